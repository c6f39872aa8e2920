"""Where the tour is shown: plain text for a pipe or a file; for a terminal see `terminal.py`."""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import AbstractContextManager, nullcontext
from typing import Protocol, TextIO

from pgretention.demo.proof import Check


class Screen(Protocol):
    """Shows one thing below the other; none of it is kept."""

    def part(self, title: str) -> None:
        """Begin a new part."""
        ...

    def say(self, text: str) -> None:
        """Show one line."""
        ...

    def statement(self, text: str) -> None:
        """Show a piece of SQL."""
        ...

    def table(self, rows: Sequence[Sequence[str]]) -> None:
        """Show a table; the first row is its heading, the first column is text and the others are numbers."""
        ...

    def checks(self, checks: Sequence[Check]) -> None:
        """Show each check with its verdict."""
        ...

    def busy(self, words: str) -> AbstractContextManager[object]:
        """While inside, let whoever watches see that something is being done."""
        ...


class Plain:
    """Text without colours or a width, line by line."""

    def __init__(self, out: TextIO) -> None:
        self._out = out

    def part(self, title: str) -> None:
        self.say(f"\n== {title} ==\n")

    def say(self, text: str) -> None:
        self._out.write(f"{text}\n")
        self._out.flush()

    def statement(self, text: str) -> None:
        self.say("\n".join(f"    {line}".rstrip() for line in text.splitlines()))

    def table(self, rows: Sequence[Sequence[str]]) -> None:
        widths = [max(map(len, column)) for column in zip(*rows, strict=True)]
        for name, *numbers in rows:
            cells = (number.rjust(width) for number, width in zip(numbers, widths[1:], strict=True))
            self.say("  ".join((name.ljust(widths[0]), *cells)))

    def checks(self, checks: Sequence[Check]) -> None:
        width = max(len(check.statement) for check in checks)
        for check in checks:
            self.say(f"{check.verdict:4}{check.statement:{width}}  {check.detail}")

    def busy(self, words: str) -> AbstractContextManager[object]:  # noqa: ARG002  a pipe has nobody who waits
        return nullcontext()


def screen_for(out: TextIO) -> Screen:
    """The screen that suits `out`."""
    if not out.isatty():
        return Plain(out)
    from pgretention.demo.terminal import Terminal  # noqa: PLC0415  rich is slow to import and a pipe has no use for it

    return Terminal(out)
