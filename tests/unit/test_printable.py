"""Names of strangers on a terminal and on a page."""

from __future__ import annotations

import pytest

from autotune.printable import one_line, printable


@pytest.mark.parametrize(
    ("text", "shown"),
    [
        ("plain", "plain"), ("Größe 模型 …", "Größe 模型 …"), ("\x1b[2J", "\\x1b[2J"),
        ("a\nb\rc\td", "a\\nb\\rc\\td"), ("\x07\x9b", "\\x07\\x9b"),
        ("abc\u202ecba", "abc\\u202ecba"), ("\u2066x\u2069", "\\u2066x\\u2069"),
        ("zero\u200bwidth", "zero\\u200bwidth"), ("\u2028", "\\u2028"), ("\udc80", "\\udc80"),
        ("\U000e0041", "\\U000e0041"),
    ],
)  # fmt: skip
def test_nothing_is_obeyed(text: str, shown: str) -> None:
    assert printable(text) == shown


def test_long_text_keeps_its_ends() -> None:
    assert printable("a" * 50 + "z" * 50, 21) == "a" * 9 + "..." + "z" * 9


def test_lines_become_one() -> None:
    assert one_line("two\n  lines\x1b") == "two lines\\x1b"
