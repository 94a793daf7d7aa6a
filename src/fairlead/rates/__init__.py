"""What a job would do where: profiles and the estimators that read them. Pure: files are read in `traces`."""
