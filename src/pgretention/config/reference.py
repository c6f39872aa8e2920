"""The table of docs/reference/settings.md, from the settings themselves.

`python -m pgretention.config.reference docs/reference/settings.md` writes it anew; a test says when it is stale.
"""

from __future__ import annotations

import sys
from typing import Final

from pgretention import pages
from pgretention.config.keys import KEYS

_BEGIN: Final = "<!-- settings: generated from pgretention.config.KEYS -->\n"
_END: Final = "<!-- settings: end -->\n"


def table() -> str:
    """Every setting as a Markdown table, in the order of KEYS."""
    rows = [f"| `{key.path}` | {_default(key.show(key.default))} | {key.accepts} | {key.about} |\n" for key in KEYS]
    return "".join(("| setting | default | allowed | what it is for |\n", "|---|---|---|---|\n", *rows))


def renewed(page: str) -> str:
    """The page with the table between its two markers replaced by the current one."""
    return pages.renewed(page, _BEGIN, table(), _END)


def _default(shown: str) -> str:
    return shown if " environment" in shown else f"`{shown}`"


if __name__ == "__main__":
    pages.write(sys.argv[1:], renewed)
