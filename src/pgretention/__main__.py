"""`pgretention`, and `python -m pgretention`."""

from pgretention import signals


def main() -> None:
    """The command; a signal that comes while it is still being loaded is not lost (H-02)."""
    signals.hold()
    from pgretention.cli import main as command  # noqa: PLC0415  takes a moment to load

    command()


if __name__ == "__main__":
    main()
