"""How fast a job runs where: profiles, and the estimators that read them. Pure: files are read in `traces`."""
