"""Processes that prove: what one of them dies of is the end of no other proof."""

from __future__ import annotations

import os

import pytest

from autotune.rewrite.files import generated
from autotune.rewrite.parse import parse
from autotune.rewrite.provers import WALL_BYTES, Provers
from autotune.rewrite.rule import Rewrite

LITTLE = 640 << 20
"""Bytes within which all that ships is proven, several times over."""


def named(name: str) -> Rewrite:
    (rewrite,) = parse(f"rewrite {name}\n    value x [*s]\n    from abs(abs(x))\n    to abs(x)\n")
    return rewrite


def greedy(text: str, _kept: int) -> str:
    """In place of the proofs: some take more than there is, as Python tells or as others end."""
    if "hungry" in text:
        bytearray(WALL_BYTES)
    if "ending" in text:
        os.abort()
    return "it is wrong" if "wrong" in text else ""


@pytest.mark.parametrize("how", ["hungry", "ending"])
def test_what_takes_too_much_alone_has_no_proof(how: str) -> None:
    with Provers(1, greedy, wall_bytes=LITTLE) as provers:
        found = provers.unproven([named(how), named("wrong")])
        assert found == [f"{how}: its proofs take more than 640 MiB", "it is wrong"]
        assert provers.unproven([named("good")]) == [""]


def test_proofs_take_little_memory() -> None:
    """Reductions of joined values have the most rules: read as one text they took 3 GB."""
    wanted = [r for r in generated() if r.name.startswith("reduce-sum-concat")][:3]
    assert wanted
    with Provers(1, wall_bytes=LITTLE) as provers:
        assert provers.unproven(wanted) == [""] * len(wanted)
