"""Measures pgretention beside what one would do instead, on the same rows of the same server: `python -m bench`."""
