"""Pieces of a page. In: text and numbers. Out: HTML, everything from outside escaped."""

from __future__ import annotations

import base64
import hashlib
import html
import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass

STYLE = """
:root { --text: #1f2933; --soft: #5c6875; --line: #d9dee4; --c0: #2563a8; --c1: #c2571a;
  --c2: #3d8b52; --back: #fff; color-scheme: light dark; }
@media (prefers-color-scheme: dark) { :root { --text: #e4e8ec; --soft: #9aa5b1; --line: #3a444f;
  --c0: #6ea8e5; --c1: #ef9a62; --c2: #7cc691; --back: #16191d; } }
body { font: 15px/1.5 system-ui, sans-serif; color: var(--text); background: var(--back);
  max-width: 1000px; margin: 2rem auto; padding: 0 1rem; }
h1 { font-size: 1.6rem; margin-bottom: 0; overflow-wrap: anywhere; }
h2 { font-size: 1.15rem; margin-top: 2.2rem; }
.sub, .note, figcaption { color: var(--soft); overflow-wrap: anywhere; }
.note { font-size: .9rem; }
.cards { display: flex; flex-wrap: wrap; gap: .8rem; margin: .4rem 0 1rem; }
.card { border: 1px solid var(--line); border-radius: 6px; padding: .5rem .9rem; min-width: 7rem; }
.card b { display: block; font-size: 1.35rem; } .group { margin: 1.1rem 0 0; font-weight: 600; }
.wide { overflow-x: auto; } .tall { max-height: 36rem; overflow: auto;
  border: 1px solid var(--line); border-radius: 6px; padding: .4rem; }
table { border-collapse: collapse; font-size: .88rem; width: 100%; }
th, td { text-align: left; padding: .25rem .6rem .25rem 0; border-bottom: 1px solid var(--line);
  vertical-align: top; } .right { text-align: right; } td.right { white-space: nowrap; }
th button { font: inherit; color: inherit; background: none; border: 0; padding: 0;
  text-align: inherit; cursor: pointer; } th[aria-sort=ascending] button::after { content: " ▲"; }
th[aria-sort=descending] button::after { content: " ▼"; }
td { overflow-wrap: anywhere; min-width: 3.5rem; } td:first-child { min-width: 10rem; }
  td:last-child { min-width: 8rem; }
summary { cursor: pointer; } small { color: var(--soft); display: block; }
dl { margin: .2rem 0; display: grid;
  grid-template-columns: auto auto; gap: 0 .8rem; } dt { color: var(--soft); } dd { margin: 0; }
.curves { display: grid; grid-template-columns: repeat(auto-fill, minmax(300px, 1fr)); gap: 1rem; }
figure { margin: 0; } figcaption { font-size: .8rem; }
.legend { font-size: .85rem; columns: 2 20rem; padding-left: 0; list-style: none; }
.legend li { break-inside: avoid; overflow-wrap: anywhere; }
.key { display: inline-block; width: .8em; height: .8em; border-radius: 50%; margin-right: .3em; }
.key.s0 { background: var(--c0); } .key.s1 { background: var(--c1); }
svg { max-width: 100%; height: auto; } .tall svg { max-width: none; }
.wide svg { min-width: 40rem; } .tall .wide { overflow: visible; }
.grid { stroke: var(--line); stroke-width: .6; }
.axis { stroke: var(--soft); fill: none; } text { fill: var(--text); font-size: 11px; }
.name { fill: var(--soft); } .line { fill: none; stroke-width: 2; }
.line.s0 { stroke: var(--c0); } .line.s1 { stroke: var(--c1); stroke-dasharray: 5 4; }
.line.s2 { stroke: var(--soft); } .dot { fill-opacity: .75; }
.dot.s0, .bar.s0 { fill: var(--c0); } .dot.s1, .bar.s1 { fill: var(--c1); }
.dot.s2, .bar.s2 { fill: var(--c2); } .dot.trial { fill: var(--soft); fill-opacity: .5; }
.cross { stroke: var(--c1); stroke-width: 1; fill: none; } .node { fill: var(--c0); }
.edge { fill: none; stroke: var(--soft); stroke-opacity: .55; }
@media print { .tall { max-height: none; } th button::after { content: none; } }
"""
SCRIPT = """
for (const table of document.querySelectorAll("table")) {
  const body = table.tBodies[0];
  [...table.tHead.rows[0].cells].forEach((head, column) => {
    const button = document.createElement("button");
    button.type = "button";
    button.textContent = head.textContent;
    button.title = "sort by this column";
    head.replaceChildren(button);
    button.addEventListener("click", () => {
      const down = head.getAttribute("aria-sort") !== "descending";
      for (const other of head.parentNode.cells) other.removeAttribute("aria-sort");
      head.setAttribute("aria-sort", down ? "descending" : "ascending");
      const key = (row) => row.cells[column].dataset.value ?? row.cells[column].textContent;
      const compare = (a, b) => {
        const [x, y] = [key(a), key(b)];
        const [n, m] = [Number(x), Number(y)];
        return x !== "" && y !== "" && !isNaN(n) && !isNaN(m) ? n - m : x.localeCompare(y);
      };
      const rows = [...body.rows].sort(compare);
      body.append(...(down ? rows.reverse() : rows));
    });
  });
}
"""
"""Sorts a table by the column that is clicked. It is all that the page's policy lets run."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Cell:
    """A table's cell: its text, or HTML that is safe, and the number that it is sorted by."""

    text: str = ""
    value: float | None = None
    markup: str = ""


def document(title: str, body: str) -> str:
    """A page that fetches nothing and runs only SCRIPT, which its policy names by its hash."""
    digest = base64.b64encode(hashlib.sha256(SCRIPT.encode()).digest()).decode()
    policy = f"default-src 'none'; style-src 'unsafe-inline'; script-src 'sha256-{digest}'"
    return (
        '<!DOCTYPE html><html lang="en"><head><meta charset="utf-8">'
        f'<meta http-equiv="Content-Security-Policy" content="{policy}">'
        '<meta name="viewport" content="width=device-width">'
        f"<title>{html.escape(title)}</title><style>{STYLE}</style></head>"
        f"<body>{body}<script>{SCRIPT}</script></body></html>\n"
    )


def seconds(value: float | None) -> str:
    """A time with three digits and its unit; a dash for none."""
    if value is None or not math.isfinite(value):
        return "–"
    for unit, scale in (("s", 1.0), ("ms", 1e-3), ("µs", 1e-6)):
        if value >= scale:
            return f"{value / scale:.3g} {unit}"
    return f"{value / 1e-9:.3g} ns"


def time_cell(value: float | None) -> Cell:
    return Cell(text=seconds(value), value=value)


def gain(before_s: float | None, after_s: float | None) -> str:
    return f"{before_s / after_s:.2f}×" if before_s and after_s else "–"


def gain_cell(before_s: float | None, after_s: float | None) -> Cell:
    ratio = before_s / after_s if before_s and after_s else None
    return Cell(text=gain(before_s, after_s), value=ratio)


def share_cell(value: float | None) -> Cell:
    return Cell(text="–" if value is None else f"{value:.0%}", value=value)


def count_cell(value: int) -> Cell:
    return Cell(text=str(value), value=float(value))


def settings(pairs: Sequence[tuple[str, str]]) -> Cell:
    """Parameters and their choices, one a line, behind the first one's choice."""
    if not pairs:
        return Cell(text="–")
    lines = "".join(f"<dt>{html.escape(k)}</dt><dd>{html.escape(v)}</dd>" for k, v in pairs)
    first = html.escape(f"{'='.join(pairs[0])} and {len(pairs) - 1} more")
    return Cell(markup=f"<details><summary>{first}</summary><dl>{lines}</dl></details>")


def named(name: str, detail: str) -> Cell:
    """A name, with what it is of under it."""
    return Cell(markup=f"{html.escape(name)}<small>{html.escape(detail)}</small>", text=name)


def section(title: str, body: str) -> str:
    return f"<section><h2>{html.escape(title)}</h2>{body}</section>"


def note(text: str) -> str:
    return f'<p class="note">{html.escape(text)}</p>'


def table(
    header: Sequence[str], rows: Iterable[Sequence[Cell | str]], right: Sequence[int] = ()
) -> str:
    """Columns numbered in `right` hold numbers, aligned to the right."""
    heads = "".join(
        f'<th scope="col"{_aligned(i, right)}>{html.escape(h)}</th>' for i, h in enumerate(header)
    )
    body = "".join(
        f"<tr>{''.join(_cell(c, _aligned(i, right)) for i, c in enumerate(row))}</tr>"
        for row in rows
    )
    return (
        f'<div class="wide"><table><thead><tr>{heads}</tr></thead><tbody>{body}</tbody></table>'
        "</div>"
    )


def cards(pairs: Sequence[tuple[str, str]], title: str) -> str:
    """Large figures with their names, under what they are of."""
    body = "".join(
        f'<div class="card"><b>{html.escape(value)}</b>{html.escape(name)}</div>'
        for value, name in pairs
    )
    return f'<p class="group">{html.escape(title)}</p><div class="cards">{body}</div>'


def _aligned(column: int, right: Sequence[int]) -> str:
    return ' class="right"' if column in right else ""


def _cell(cell: Cell | str, attributes: str) -> str:
    if isinstance(cell, str):
        cell = Cell(text=cell)
    if cell.value is not None and math.isfinite(cell.value):
        attributes += f' data-value="{cell.value:.9g}"'
    return f"<td{attributes}>{cell.markup or html.escape(cell.text)}</td>"
