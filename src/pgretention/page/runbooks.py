"""The runbooks of docs/runbooks as pages, so that what to do is a click away and needs no other site."""

from __future__ import annotations

import re
from dataclasses import dataclass
from functools import cache
from importlib.resources import files
from typing import Final

from markdown_it import MarkdownIt

_FOLDER: Final = files("pgretention.page") / "runbooks"
_ELSEWHERE: Final = re.compile(r'<a href="(?!#|[a-z-]+(?:#[a-z-]*)?")[^"]*">(.*?)</a>', re.DOTALL)
_HEADING: Final = re.compile("<h2>([^<]*)</h2>")
_SIBLING: Final = re.compile(r'<a href="([a-z-]+)\.md(#[a-z-]*)?">')


@dataclass(frozen=True, slots=True)
class Runbook:
    """A runbook: its heading, and the rest of it as HTML."""

    title: str
    html: str


@cache
def names() -> tuple[str, ...]:
    """The names of all runbooks."""
    return tuple(sorted(each.name.removesuffix(".md") for each in _FOLDER.iterdir() if each.name != "README.md"))


def runbook(name: str) -> Runbook | None:
    """The runbook of that name, if there is one. Links to pages that are not here are left as words."""
    return _rendered(name) if name in names() else None


@cache
def _rendered(name: str) -> Runbook:
    heading, _, text = (_FOLDER / f"{name}.md").read_text("utf-8").partition("\n")
    html = MarkdownIt("commonmark", {"html": False}).enable("table").render(text)
    html = _SIBLING.sub(r'<a href="\1\2">', html)
    html = _HEADING.sub(lambda found: f'<h2 id="{found[1].lower().replace(" ", "-")}">{found[1]}</h2>', html)
    html = _ELSEWHERE.sub(r"\1", html).replace("<pre>", '<pre tabindex="0">')
    return Runbook(heading.removeprefix("# ").strip(), html)
