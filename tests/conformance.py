"""The table from requirement to tests, read out of the markers: `python -m tests.conformance` writes it anew."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator
from functools import cache
from pathlib import Path

ROOT = Path(__file__).parent.parent
REQUIREMENTS = ROOT / "docs" / "requirements.md"
TABLE = ROOT / "docs" / "conformance.md"


def requirements() -> list[str]:
    """Every requirement's number, in the order of docs/requirements.md."""
    text = re.sub(r"\*\*|`", "", REQUIREMENTS.read_text(encoding="utf-8"))
    return re.findall(r"\b([AFH]-\d\d)\b(?= )", text)


@cache
def claims() -> dict[str, list[str]]:
    """Every claimed requirement with the tests that claim it, as `path::name`."""
    found: dict[str, list[str]] = {}
    for path in sorted((ROOT / "tests").rglob("test_*.py")):
        for name, numbers in _claims_in(ast.parse(path.read_text(encoding="utf-8"))):
            for number in numbers:
                found.setdefault(number, []).append(f"{path.relative_to(ROOT)}::{name}")
    return found


def _claims_in(module: ast.Module) -> Iterator[tuple[str, list[str]]]:
    for node in ast.walk(module):
        if isinstance(node, ast.FunctionDef | ast.ClassDef):
            yield node.name, [number for decorator in node.decorator_list for number in _numbers(decorator)]


def _numbers(decorator: ast.expr) -> list[str]:
    if isinstance(decorator, ast.Call) and ast.unparse(decorator.func) == "pytest.mark.req":
        return [ast.literal_eval(argument) for argument in decorator.args]
    return []


def table() -> str:
    """The contents of docs/conformance.md."""
    claimed = claims()
    lines = [
        "# Conformance",
        "",
        "Which tests prove which line of [requirements.md](requirements.md). Written by `make conformance` from the",
        "markers in the tests, and checked by one of them.",
        "",
        "| requirement | proven by |",
        "|---|---|",
    ]
    for number in requirements():
        proof = "<br>".join(f"`{test}`" for test in claimed.get(number, []))
        lines.append(f"| {number} | {proof} |")
    return "\n".join(lines) + "\n"


if __name__ == "__main__":
    TABLE.write_text(table(), encoding="utf-8")
