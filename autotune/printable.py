"""Text of strangers, fit to be shown. In: names and messages out of model files, logs, boards and
candidates. Out: the same on one line, without anything that a terminal or a page would obey.

Escape sequences move a cursor, rename a window or hide what was written before; the marks of
bidirectional text reorder what is read. They are shown as Python would write them.
"""

from __future__ import annotations

import unicodedata

_OBEYED = frozenset(("Cc", "Cf", "Cs", "Co", "Cn", "Zl", "Zp"))
"""General categories (Unicode Standard, 4.5): control, format (bidi marks, zero widths, tags),
surrogates, private use, unassigned, separators of lines and paragraphs."""


def printable(text: str, limit: int | None = None) -> str:
    """The text with control characters escaped (`\\x1b`, `\\n`, `\\u202e`); of more than `limit`
    characters the first and the last."""
    if not text.isprintable() or not text.isascii():
        text = "".join(_shown(c) for c in text)
    if limit is None or len(text) <= limit:
        return text
    first = (limit - 3) // 2
    return f"{text[:first]}...{text[len(text) - (limit - 3 - first) :]}"


def one_line(text: str, limit: int | None = None) -> str:
    """The text with every run of white space as one blank, and the rest `printable`."""
    return printable(" ".join(text.split()), limit)


def _shown(character: str) -> str:
    if unicodedata.category(character) not in _OBEYED:
        return character
    return character.encode("unicode_escape").decode("ascii")
