"""Rewrites as text, their proofs, and that wrong ones have none."""

from __future__ import annotations

from pathlib import Path

import pytest

from autotune.errors import ConfigError
from autotune.rewrite.files import shipped, wanted
from autotune.rewrite.parse import parse
from autotune.rewrite.prove import UnprovenError, prove
from autotune.rewrite.rule import Rewrite

DISTRIBUTES = """
rewrite factor-out
    value a b c [*s]
    from add(mul(a, b), mul(a, c))
    to mul(a, add(b, c))
"""


@pytest.mark.parametrize("rewrite", shipped(), ids=lambda r: r.name)
def test_what_ships_is_proven_and_reads_back(rewrite: Rewrite) -> None:
    assert prove(rewrite, instances=8).error < 1e-12
    assert parse(str(rewrite)) == (rewrite,)


@pytest.mark.parametrize(
    ("good", "wrong"),
    [
        ("mul(a, add(b, c))", "mul(a, sub(b, c))"),
        ("mul(a, add(b, c))", "mul(b, add(a, c))"),
        ("add(mul(a, b), mul(a, c))\n    to", "add(relu(mul(a, b)), relu(mul(a, c)))\n    to"),
    ],
)
def test_a_wrong_rewrite_has_no_proof(good: str, wrong: str) -> None:
    prove(parse(DISTRIBUTES)[0])
    with pytest.raises(UnprovenError, match="the sides differ, for s="):
        prove(parse(DISTRIBUTES.replace(good, wrong))[0])


@pytest.mark.parametrize(
    ("left", "right", "exact"),
    [
        ("matmul(x, add(u, v))", "add(matmul(x, u), matmul(x, v))", False),
        ("slice(matmul(x, u), starts=(0, 1), stops=(m, n), steps=(1, 1))",
         "matmul(x, slice(u, starts=(0, 1), stops=(k, n), steps=(1, 1)))", True),
        ("matmul(neg(x), u)", "neg(matmul(x, u))", True),
    ],
)  # fmt: skip
def test_exact_means_that_the_same_sums_are_rounded(left: str, right: str, exact: bool) -> None:
    text = (
        f"rewrite one\n    value x [m, k]\n    value u v [k, n]\n    from {left}\n    to {right}\n"
    )
    assert not prove(parse(text)[0]).exact
    claimed = parse(f"{text}    exact\n")[0]
    if exact:
        assert prove(claimed).exact
    else:
        with pytest.raises(UnprovenError, match="round other sums"):
            prove(claimed)


def test_numbers_are_compared_where_that_is_what_it_needs() -> None:
    twice = "rewrite twice\n    value x [*s]\n    from relu(relu(x))\n    to relu(x)\n"
    assert prove(parse(twice)[0]).ordered
    assert prove(parse(twice)[0]).error < 1e-12
    with pytest.raises(UnprovenError):
        prove(parse(twice.replace("to relu(x)", "to x"))[0])


@pytest.mark.parametrize(
    ("text", "says"),
    [
        ("rewrite a\n    value x [n]\n    from relu(x)\n", "a 'to' for every 'from'"),
        ("rewrite a\n    value x [n]\n    from relu(x)\n    to y\n", "no value 'y'"),
        ("rewrite a\n    from relu(x)\n    to relu(x)\n", "no value 'x' that is declared"),
        ("rewrite a\n    value x [n]\n    from rely(x)\n    to x\n", "no operator 'rely'"),
        ("rewrite a\n    value x n\n", r"expected 'value x \[n, c\]'"),
        ("rewrite a\n    value x [n]\n    where open('f')\n", "is no expression"),
        ("rewrite a\n    value x [n]\n    where n.real\n", "is no expression"),
        ("rewrite a\n    value x [n]\n    from relu(x\n", "cannot be read"),
        ("relu(x)\n", "line 1: expected 'rewrite NAME'"),
        (DISTRIBUTES * 2, "factor-out is there twice"),
    ],
)
def test_what_is_no_rewrite_is_said_in_a_line(text: str, says: str) -> None:
    with pytest.raises(ConfigError, match=says) as caught:
        parse(text)
    assert "\n" not in str(caught.value)


def test_a_user_s_file_is_proven_before_it_is_used(tmp_path: Path) -> None:
    path = tmp_path / "mine.rewrites"
    path.write_text(DISTRIBUTES)
    assert [r.name for r in wanted(path)] == ["factor-out"]
    path.write_text(DISTRIBUTES.replace("to mul", "to add"))
    with pytest.raises(UnprovenError):
        wanted(path)
    with pytest.raises(ConfigError, match="cannot read"):
        wanted(tmp_path / "none.rewrites")
    assert wanted("none") == ()
