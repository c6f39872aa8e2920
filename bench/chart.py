"""Two small charts as SVG, which every browser shows beside a page of Markdown."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from math import log2
from xml.sax.saxutils import escape

from bench.samples import Spread

_WIDTH, _LEFT, _RIGHT, _TOP, _ROW = 720, 190, 90, 34, 26
_SPAN = _WIDTH - _LEFT - _RIGHT
_OURS, _OTHERS = "#2563a8", "#9aa5b1"


def bars(title: str, values: Sequence[tuple[str, Spread]]) -> str:
    """A bar for each median, with a line from the lowest to the highest; ours stand out."""
    most = max(spread.high for _, spread in values)
    drawn = []
    for place, (name, spread) in enumerate(values):
        y, middle = _TOP + place * _ROW, _TOP + place * _ROW + 9
        length, low, high = (_SPAN * value / most for value in (spread.median, spread.low, spread.high))
        drawn += [
            _text(_LEFT - 8, middle + 4, name, "end"),
            f'<rect x="{_LEFT}" y="{y}" width="{length:.1f}" height="18" fill="{_color(name)}"/>',
            f'<line x1="{_LEFT + low:.1f}" x2="{_LEFT + high:.1f}" y1="{middle}" y2="{middle}" stroke="#222"/>',
            _text(_LEFT + high + 6, middle + 4, f"{spread.median:,.0f}"),
        ]
    return _svg(title, _TOP + len(values) * _ROW, drawn)


def lines(title: str, series: Mapping[str, Sequence[float]]) -> str:
    """A line for each series, from its first value as 1, on a scale that doubles."""
    relative = {name: [value / values[0] for value in values] for name, values in series.items()}
    doublings = 1
    while 2**doublings < max(value for values in relative.values() for value in values):
        doublings += 1
    height = 200
    step = height / (doublings + 1)
    drawn = []
    for power in range(-1, doublings + 1):
        y = _TOP + (doublings - power) * step
        drawn += [
            f'<line x1="{_LEFT}" x2="{_LEFT + _SPAN}" y1="{y:.1f}" y2="{y:.1f}" stroke="#ddd"/>',
            _text(_LEFT - 8, y + 4, f"{2.0**power:g}", "end"),
        ]
    for name, values in relative.items():
        points = list(_points(values, doublings, step))
        drawn += [
            f'<polyline points="{" ".join(points)}" fill="none" stroke="{_color(name)}" stroke-width="2"/>',
            _text(_LEFT + _SPAN + 6, float(points[-1].split(",")[1]) + 4, name),
        ]
    return _svg(title, _TOP + height + 8, drawn)


def _points(values: Sequence[float], doublings: int, step: float) -> Iterator[str]:
    for place, value in enumerate(values):
        x = _LEFT + _SPAN * place / max(1, len(values) - 1)
        yield f"{x:.1f},{_TOP + (doublings - max(-1.0, log2(value))) * step:.1f}"


def _color(name: str) -> str:
    return _OURS if name.startswith("pgretention") else _OTHERS


def _text(x: float, y: float, text: str, anchor: str = "start") -> str:
    return f'<text x="{x:.1f}" y="{y:.1f}" text-anchor="{anchor}">{escape(text)}</text>'


def _svg(title: str, height: float, drawn: Sequence[str]) -> str:
    head = (
        f'<svg xmlns="http://www.w3.org/2000/svg" width="{_WIDTH}" height="{height:.0f}"'
        ' font-family="sans-serif" font-size="12" fill="#222">'
    )
    background = '<rect width="100%" height="100%" fill="#fff"/>'
    return "\n".join([head, background, _text(10, 20, title), *drawn, "</svg>"]) + "\n"
