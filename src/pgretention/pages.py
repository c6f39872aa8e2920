"""Pages of docs/reference: what stands between two markers is written anew from the code, the rest by hand."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from pathlib import Path


def renewed(page: str, begin: str, content: str, end: str) -> str:
    """The page with what stands between the lines `begin` and `end` replaced by `content`."""
    before, _, rest = page.partition(begin)
    _, _, after = rest.partition(end)
    return f"{before}{begin}{content}{end}{after}"


def write(names: Iterable[str], renew: Callable[[str], str]) -> None:
    """Renew the files of these names."""
    for name in names:
        file = Path(name)
        file.write_text(renew(file.read_text("utf-8")), "utf-8")
