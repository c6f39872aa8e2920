"""The tour in a terminal: colours, tables that fit the width, and a sign of life while something is being done."""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import AbstractContextManager
from typing import TextIO

from rich.console import Console
from rich.padding import Padding
from rich.syntax import Syntax
from rich.table import Table
from rich.text import Text

from pgretention.demo.proof import Check


class Terminal:
    """A Screen made with rich, which leaves out what the terminal cannot show."""

    def __init__(self, out: TextIO) -> None:
        self._console = Console(file=out, highlight=False)

    def part(self, title: str) -> None:
        self._console.print()
        self._console.rule(Text(title, "bold"), align="left")

    def say(self, text: str) -> None:
        self._console.print(Text(text))

    def statement(self, text: str) -> None:
        code = Syntax(text, "postgresql", theme="ansi_dark", background_color="default", word_wrap=True)
        self._console.print(Padding(code, (0, 0, 0, 2)))

    def table(self, rows: Sequence[Sequence[str]]) -> None:
        first, *others = rows[0]
        table = Table(box=None, pad_edge=False, header_style="bold")
        table.add_column(first)
        for heading in others:
            table.add_column(heading, justify="right")
        for row in rows[1:]:
            table.add_row(*map(Text, row))
        self._console.print(table)

    def checks(self, checks: Sequence[Check]) -> None:
        table = Table(box=None, pad_edge=False, show_header=False)
        for check in checks:
            colour = "green" if check.holds else "bold red"
            table.add_row(Text(check.verdict, colour), Text(check.statement), Text(check.detail, "dim"))
        self._console.print(table)

    def busy(self, words: str) -> AbstractContextManager[object]:
        return self._console.status(Text(words))
