"""Who is told about a run, one file an audience: each sink is a function of one fact (`report.Fact`)."""
