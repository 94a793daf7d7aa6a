from fairlead.cli.entry import main

main()
