"""The status page: what a worker knows of its jobs, for people to look at. Read-only, and it waits for no database.

`situation` says what is known, `verdict` what that means, `cards`, `charts` and `tree` what is shown of it, `routes` at
which address and `guard` to whom. How it looks is in `templates/` and `static/`.
"""
