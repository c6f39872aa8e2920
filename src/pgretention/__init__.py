"""pgretention deletes expired rows from PostgreSQL, in small safe batches."""

__version__ = "0.1.0"
