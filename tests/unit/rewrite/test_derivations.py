"""Derivations from properties, and that the properties are what numpy computes."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import pytest

from autotune.cli import execute
from autotune.ops import OPS
from autotune.rewrite.apply import build
from autotune.rewrite.derive import Deriver, properties
from autotune.rewrite.dims import prefix_form, symbol
from autotune.rewrite.evaluate import Inference
from autotune.rewrite.files import shipped
from autotune.rewrite.parse import parse
from autotune.rewrite.properties import translated
from autotune.rewrite.prove import UnprovenError, instances_of, prove
from autotune.rewrite.provers import generated_deriver
from autotune.rewrite.rule import Rewrite
from autotune.rewrite.symbolic_shapes import shape_of
from autotune.types import Array

DERIVER = Deriver(properties())
WRONG = {
    "another-operator": ("factor-out", "mul(a, add(b, c))", "mul(a, sub(b, c))"),
    "swapped-operands": (
        "reassociate-right", "to matmul(a, matmul(b, c))", "to matmul(matmul(b, a), c)",
    ),
    "one-more-row-of-zeros": ("pad-into-convolution", "(t + a, l + b,", "(t + a + 1, l + b,"),
    "zeros-on-the-other-side": (
        "pad-into-convolution", "(t + a, l + b, u + f, v + g)", "(u + f, l + b, t + a, v + g)",
    ),
    "swapped-strides": (
        "means-before-pointwise-convolution-False",
        "strides=(i, j)), k)", "strides=(j, i)), k)",
    ),
    "no-stride": (
        "slice-places-before-pointwise-convolution",
        "steps=(1, i, j, 1), stops=(n, f, g, c)", "steps=(1, 1, j, 1), stops=(n, f, g, c)",
    ),
    "swapped-axes": ("slice-before-turning", "to transpose(slice(x, starts=tuple((z[index(p, i)]",
                     "to transpose(slice(x, starts=tuple((z[p[i]]"),
    "a-cut-one-too-far": (
        "merge-products", "starts=(*z, 0, i), steps=(*v, 1, 1), stops=(*s, m, i + j)",
        "starts=(*z, 0, i - 1), steps=(*v, 1, 1), stops=(*s, m, i + j - 1)",
    ),
    "too-large-a-box": (
        "fold-pointwise-before-convolution-with-bias", "box (0, y, z, 0)", "box (0, 0, z, 0)",
    ),
    "joined-in-another-order": ("merge-products", "concat(a, b, axis=1)", "concat(b, a, axis=1)"),
}  # fmt: skip
"""Of a rewrite that ships, what is changed, and to what; most of these are right at some sizes."""


class Numbers(Inference):
    """Terms by operators' references in double precision, and by shapes of symbols."""

    def __init__(self, arrays: dict[str, Array]) -> None:
        super().__init__({n: a.shape for n, a in arrays.items()})
        self.arrays = dict(arrays)

    def emit(self, op: str, inputs: Sequence[str], attrs: dict[str, Any]) -> str:
        name = super().emit(op, inputs, attrs)
        shapes = [self.types[i].shape for i in inputs]
        assert shape_of(op, shapes, attrs) == self.types[name].shape
        self.arrays[name] = OPS.get(op).reference([self.arrays[i] for i in inputs], attrs)
        return name


@pytest.mark.parametrize("given", properties(), ids=lambda r: r.name)
def test_a_property_is_what_numpy_computes(given: Rewrite) -> None:
    rng = np.random.default_rng(1)
    for instance in instances_of(given, rng, 3):
        run = Numbers({n: rng.standard_normal(s) for n, s in instance.shapes.items()})
        names = {n: n for n in instance.shapes}
        sides = (given.left[0], given.right[0])
        with np.errstate(all="ignore"):
            one, other = build(given, sides, instance.symbols, names, run.emit)
        np.testing.assert_allclose(run.arrays[one], run.arrays[other], rtol=1e-9, atol=1e-9)


@pytest.mark.parametrize("rewrite", shipped()[::9], ids=lambda r: r.name)
def test_what_ships_follows_from_properties(rewrite: Rewrite) -> None:
    assert str(DERIVER.derive(rewrite)).startswith(f"{rewrite.name}: ")


@pytest.mark.slow
def test_all_that_ships_follows_from_properties() -> None:
    for rewrite in shipped():
        DERIVER.derive(rewrite)


def test_places_counted_from_a_length_make_rules() -> None:
    """A starred attribute that an axis is counted from has a length, it is no order."""
    (columns,) = (p for p in properties() if p.name == "joined-weights-broadcast")
    assert translated(columns, frozenset({2, 3}), frozenset())


@pytest.mark.slow
def test_properties_are_proven_over_the_field() -> None:
    for given in properties():
        prove(given, instances=4)


@pytest.mark.parametrize("what", WRONG)
def test_neither_proof_takes_a_wrong_rewrite(what: str) -> None:
    name, part, changed = WRONG[what]
    (right,) = (r for r in shipped() if r.name == name)
    text = str(right)
    assert text.count(part) == 1
    (wrong,) = parse(text.replace(part, changed))
    bounded = generated_deriver()  # what does not follow may grow without end
    bounded.derive(right)
    for proof in (prove, bounded.derive):
        with pytest.raises(UnprovenError):
            proof(wrong)


def test_dimensions_have_one_form() -> None:
    h, i = symbol("h"), symbol("i")
    assert (h + i) * 2 - i - h == h + i
    assert h - h == 0
    assert (h + 1) // 1 == h + 1
    assert prefix_form((h * i + 3) // (i + 1)) == "(/ (+ (* h i) 3) (+ i 1))"
    assert prefix_form((h * i + 3) // i) == "(+ (/ 3 i) h)"
    # What both have as a factor cancels, as for all numbers that are not 0.
    assert (h * i - 2 * i) // i == h - 2
    assert (h * h * i) // (h * i * i) == h // i
    assert (h * i + i) // (2 * i) == (h + 1) // 2


def test_derivations_are_printed(tmp_path: Any, capsys: pytest.CaptureFixture[str]) -> None:
    path = tmp_path / "mine.rewrites"
    text = "rewrite mine\n    value x y [*s]\n    from sub(x, neg(y))\n    to add(x, y)\n"
    path.write_text(text)
    assert execute(["rewrite", "derive", str(path)]) == 0
    assert "mine: derived within" in capsys.readouterr().out
    path.write_text(text.replace("to add(x, y)", "to add(x, x)"))
    assert execute(["rewrite", "derive", str(path)]) == 2
    assert capsys.readouterr().err.startswith("error: mine: the sides do not follow")


def test_quotients_leave_out_what_the_divisor_divides() -> None:
    a, b, c = map(symbol, "abc")
    assert (a + b - 1) // b == (a - 1) // b + 1
    assert (a * b * c + c) // (b * c) == a + c // (b * c)
    assert str((a + b) // (b + c)) == "((a + b) // (b + c))"
