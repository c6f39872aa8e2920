"""A throw-away PostgreSQL and realistic data: see a deletion before you trust it with data of your own."""
