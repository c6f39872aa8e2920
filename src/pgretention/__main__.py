"""`python -m pgretention`."""

from pgretention.cli import main

main()
