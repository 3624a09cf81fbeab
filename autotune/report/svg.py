"""Small charts. In: numbers. Out: SVG text to put into a page; colours come from its style sheet.

Series are told apart by class (`s0`, `s1`, ...), and every mark has a title that a browser shows.
"""

from __future__ import annotations

import html
import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass

Points = Sequence[tuple[float, float]]
_LEFT, _RIGHT, _TOP, _BOTTOM = 56.0, 14.0, 12.0, 40.0
"""Margins of a chart, in pixels."""
_NARROW = 600
"""Pixels that a picture may be drawn at on any screen."""
FEWEST_TICKS, MOST_TICKS = 4, 9
_LETTER, _LINE = 6.6, 12.0
"""Pixels of a letter, about, and of a line of text."""
_FACTORS = ((1,), (1, 2, 5), (1, 1.5, 2, 3, 4, 5, 6, 8))
"""Ticks of a decade, from few to many: the first set that gives enough of them is taken. Where
none does, the axis is short: its ticks are those of a linear one."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ChartAxis:
    """What an axis shows. Logarithmic axes have ticks at powers of ten and round numbers between,
    as many as it takes."""

    label: str
    low: float
    high: float
    log: bool = False

    def place(self, value: float) -> float:
        """0 at the low end, 1 at the high end."""
        if self.log:
            return math.log(value / self.low) / math.log(self.high / self.low)
        return (value - self.low) / (self.high - self.low)

    def ticks(self) -> tuple[float, ...]:
        if not self.log:
            return _linear_ticks(self.low, self.high)
        decades = range(math.floor(math.log10(self.low)), math.ceil(math.log10(self.high)) + 1)
        for factors in _FACTORS:
            marks = tuple(
                f * 10.0**d
                for d in decades
                for f in factors
                if self.low <= f * 10.0**d <= self.high * 1.0001
            )
            if FEWEST_TICKS <= len(marks) <= MOST_TICKS:
                return marks
        return _linear_ticks(self.low, self.high)


def log_axis(label: str, values: Sequence[float]) -> ChartAxis:
    """A logarithmic axis around positive values."""
    positive = [v for v in values if 0 < v < math.inf] or [1.0]
    return ChartAxis(label=label, low=min(positive) / 1.3, high=max(positive) * 1.3, log=True)


def linear_axis(label: str, high: float, low: float = 0.0) -> ChartAxis:
    return ChartAxis(label=label, low=low, high=max(high, low + 1e-12), log=False)


def _linear_ticks(low: float, high: float) -> tuple[float, ...]:
    for parts in (4, 8):
        step = _round_step((high - low) / parts)
        places = range(math.ceil(low / step), math.floor(high / step) + 1)
        if len(places) > 1:
            break
    return tuple(step * n for n in places)


def _round_step(rough: float) -> float:
    power = 10.0 ** math.floor(math.log10(rough))
    return next(f * power for f in (1, 2, 5, 10) if f * power >= rough * 0.999)


def number(value: float) -> str:
    """Three digits, with a magnitude where it is large."""
    for unit, scale in (("G", 1e9), ("M", 1e6), ("k", 1e3)):
        if abs(value) >= scale:
            return f"{value / scale:.3g}{unit}"
    return f"{value:.3g}"


class Chart:
    """A frame with two axes, to which marks are added."""

    def __init__(
        self,
        x: ChartAxis,
        y: ChartAxis,
        *,
        width: int = 460,
        height: int = 240,
        label_y: Callable[[float], str] = number,
    ) -> None:
        self._x, self._y = x, y
        self._width, self._height = width, height
        self._parts: list[str] = []
        self._texts: list[tuple[float, float, float]] = []
        """Left and right end and height of what is written into the chart."""
        self._frame(label_y)

    def line(self, points: Points, kind: str, title: str, *, steps: bool = False) -> None:
        """A polyline; with `steps`, values hold until the next point."""
        path: list[str] = []
        last = 0.0
        for number_, (x, y) in enumerate(points):
            if steps and number_:
                path.append(f"{self._at_x(x):.1f},{last:.1f}")
            last = self._at_y(y)
            path.append(f"{self._at_x(x):.1f},{last:.1f}")
        self._parts.append(
            f'<polyline class="line {kind}" points="{" ".join(path)}">{heading(title)}</polyline>'
        )

    def dot(self, x: float, y: float, kind: str, title: str, radius: float = 4.0) -> None:
        self._parts.append(
            f'<circle class="dot {kind}" cx="{self._at_x(x):.1f}" cy="{self._at_y(y):.1f}" '
            f'r="{radius:.1f}">{heading(title)}</circle>'
        )

    def cross(self, x: float, title: str) -> None:
        """A mark at the upper edge: of something that has no value."""
        at = self._at_x(x)
        path = f"M{at - 3:.1f} {_TOP - 3}l6 6m0 -6l-6 6"
        self._parts.append(f'<path class="cross" d="{path}">{heading(title)}</path>')

    def write(self, x: float, y: float, text: str, anchor: str = "start") -> None:
        """Text right above a place, or as near as other texts let it be."""
        at, above = self._at_x(x), self._at_y(y) - 5
        width = _LETTER * len(text)
        left = at - width * {"start": 0.0, "middle": 0.5, "end": 1.0}[anchor]
        inside = range(-int(above / _LINE), int((self._height - _BOTTOM - above) / _LINE) + 1)
        heights = (above + n * _LINE for n in sorted(inside, key=abs))
        height = next((h for h in heights if self._is_free(left, left + width, h)), above)
        self._texts.append((left, left + width, height))
        self._parts.append(_label(at, height, anchor, text, "name"))

    def _is_free(self, left: float, right: float, height: float) -> bool:
        return height >= _TOP and all(
            right <= a or b <= left or abs(height - h) >= _LINE for a, b, h in self._texts
        )

    def text(self) -> str:
        return picture(self._width, self._height, self._parts)

    def _at_x(self, value: float) -> float:
        return _LEFT + self._x.place(value) * (self._width - _LEFT - _RIGHT)

    def _at_y(self, value: float) -> float:
        return self._height - _BOTTOM - self._y.place(value) * (self._height - _TOP - _BOTTOM)

    def _frame(self, label_y: Callable[[float], str]) -> None:
        right, bottom = self._width - _RIGHT, self._height - _BOTTOM
        for tick in self._x.ticks():
            at = self._at_x(tick)
            self._parts.append(f'<path class="grid" d="M{at:.1f} {_TOP}V{bottom}"/>')
            self._parts.append(_label(at, bottom + 15, "middle", number(tick)))
        for tick in self._y.ticks():
            at = self._at_y(tick)
            self._parts.append(f'<path class="grid" d="M{_LEFT} {at:.1f}H{right}"/>')
            self._parts.append(_label(_LEFT - 6, at + 4, "end", label_y(tick)))
        self._parts.append(f'<path class="axis" d="M{_LEFT} {_TOP}V{bottom}H{right}"/>')
        self._parts.append(
            _label((_LEFT + right) / 2, self._height - 6, "middle", self._x.label, "name")
        )


def bars(rows: Sequence[tuple[str, float, str]], *, kind: str = "s0", width: int = 860) -> str:
    """Horizontal bars of (name, value, text), in the order given."""
    most = max((value for _, value, _ in rows), default=1.0) or 1.0
    height, name_width, text_width = 22, 400, 130
    space = width - name_width - text_width
    parts = []
    for place, (name, value, text) in enumerate(rows):
        top = place * height
        length = max(1.0, space * value / most)
        parts.append(_label(name_width - 8, top + 15, "end", shortened(name, 52)))
        parts.append(
            f'<rect class="bar {kind}" x="{name_width}" y="{top + 4}" width="{length:.1f}" '
            f'height="{height - 8}">{heading(f"{name}: {text}")}</rect>'
        )
        parts.append(_label(name_width + length + 6, top + 15, "start", text))
    total = max(1, len(rows)) * height
    return picture(width, total, parts)


def picture(width: int, height: int, parts: Sequence[str]) -> str:
    """Wide ones scroll on a narrow screen, where they would be too small to read."""
    size = f'viewBox="0 0 {width} {height}" width="{width}" height="{height}"'
    drawn = f'<svg {size} role="img">{"".join(parts)}</svg>'
    return f'<div class="wide">{drawn}</div>' if width > _NARROW else drawn


def shortened(text: str, most: int) -> str:
    """The text without what is too much of its middle: how often comes last."""
    return text if len(text) <= most else f"{text[: most - 7]}…{text[-6:]}"


def _label(x: float, y: float, anchor: str, text: str, kind: str = "tick") -> str:
    return (
        f'<text class="{kind}" x="{x:.1f}" y="{y:.1f}" text-anchor="{anchor}">'
        f"{html.escape(text)}</text>"
    )


def heading(text: str) -> str:
    return f"<title>{html.escape(text)}</title>"
