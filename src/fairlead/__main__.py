from fairlead.cli.main import main

main()
