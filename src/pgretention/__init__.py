"""pgretention deletes expired rows from PostgreSQL, in small safe batches."""

__version__ = "0.1.0"

FILE_VARIABLE = "PGRETENTION_CONFIG"
"""The variable of the environment that names the settings file; here since `--help` speaks of it and loads little."""
