"""Programs as text and back."""

from __future__ import annotations

import math

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from autotune.errors import VerifyError
from autotune.program.ir import (
    COMBINERS,
    FUNCTIONS,
    Alloc,
    Apply,
    Bound,
    Buffer,
    Clamp,
    Const,
    FloorDiv,
    For,
    If,
    Index,
    IndexValue,
    Load,
    LoadIndex,
    Mod,
    Pack,
    Prefetch,
    Program,
    Select,
    Store,
    Table,
)
from autotune.program.text import print_index, print_program
from autotune.tasks.build import build_program
from tests.interpreter.parse import parse_program
from tests.unit.program import tasks

small = st.integers(-9, 9)
positive = st.integers(1, 9)
names = st.sampled_from(["x", "i0_oh", "t0.max", "o0.pad.cache", "int", "clamp", "true_x", "e5"])
floats = st.floats(allow_nan=False)


def _indices(atoms: st.SearchStrategy[object]) -> st.SearchStrategy[Index]:
    terms = st.dictionaries(atoms, small.filter(bool), max_size=3)
    return st.builds(
        lambda t, c: sum((Index(((a, k),)) for a, k in t.items()), Index((), c)), terms, small
    )


plain = _indices(names)
points = st.lists(plain, max_size=3).map(tuple)


def _nested(inner: st.SearchStrategy[Index]) -> st.SearchStrategy[Index]:
    return _indices(
        st.one_of(
            names,
            st.builds(FloorDiv, inner, positive),
            st.builds(Mod, inner, positive),
            st.builds(Clamp, inner, small, small),
            st.builds(LoadIndex, names, st.lists(inner, max_size=2).map(tuple), positive),
        )
    )


indices = st.recursive(plain, _nested, max_leaves=4)
bounds = st.lists(st.builds(Bound, indices, small, small), max_size=3).map(tuple)
consts = st.one_of(
    st.builds(Const, floats, st.sampled_from(["float32", "float64"])),
    st.builds(Const, st.integers(-(2**63), 2**63 - 1), st.sampled_from(["int64", "int8"])),
    st.builds(Const, st.booleans(), st.just("bool")),
)
loads = st.builds(Load, names, st.lists(indices, max_size=3).map(tuple))
tables = st.builds(
    Table,
    st.lists(st.lists(floats, min_size=2, max_size=2).map(tuple), min_size=1, max_size=3).map(
        tuple
    ),
    indices,
    indices,
)


def _deeper(values: st.SearchStrategy[object]) -> st.SearchStrategy[object]:
    calls = st.sampled_from(sorted(FUNCTIONS)).flatmap(
        lambda f: st.builds(Apply, st.just(f), st.tuples(*[values] * FUNCTIONS[f]))
    )
    return st.one_of(calls, st.builds(Select, bounds, values, values))


values = st.recursive(
    st.one_of(consts, loads, tables, st.builds(IndexValue, indices, st.just("int32"))),
    _deeper,
    max_leaves=5,
)


@st.composite
def buffers(draw: st.DrawFn, scope: str) -> Buffer:
    rank = draw(st.integers(0, 3))
    each = {"min_size": rank, "max_size": rank}
    dense = Buffer.dense(draw(names), "float32", tuple(draw(st.lists(positive, **each))), scope)
    if draw(st.booleans()):
        return dense
    pairs = st.tuples(st.integers(0, 3), st.integers(0, 3))
    return Buffer(
        dense.name,
        "int8",
        dense.shape,
        scope,
        tuple(draw(st.lists(small, **each))),
        tuple(draw(st.lists(pairs, **each))),
        constant=scope == "param" and draw(st.booleans()),
        written=scope == "param" and draw(st.booleans()),
    )


leaves = st.one_of(
    st.builds(Store, names, points, values, st.sampled_from([None, *COMBINERS])),
    st.builds(Prefetch, names, points),
)
statements = st.recursive(
    leaves,
    lambda inner: st.one_of(
        st.builds(
            For,
            names,
            positive,
            st.sampled_from(["serial", "parallel", "unroll", "vector"]),
            st.lists(inner, max_size=3).map(tuple),
        ),
        st.builds(Alloc, buffers("register"), st.lists(inner, max_size=2).map(tuple)),
        st.builds(If, bounds, st.lists(inner, max_size=2).map(tuple)),
    ),
    max_leaves=6,
)
packs = st.builds(
    Pack,
    names,
    st.lists(positive, max_size=3).map(tuple),
    st.lists(st.tuples(st.integers(0, 3), positive), max_size=2).map(tuple),
    st.lists(st.integers(0, 3), max_size=3).map(tuple),
    st.lists(st.tuples(st.integers(0, 3), *[positive] * 3), max_size=2).map(tuple),
)
programs = st.builds(
    Program,
    names,
    st.lists(buffers("param"), max_size=3).map(tuple),
    st.lists(statements, max_size=3).map(tuple),
    st.lists(packs, max_size=2).map(tuple),
)


@settings(max_examples=150)
@given(programs)
def test_round_trip(program: Program) -> None:
    assert parse_program(print_program(program)) == program


@settings(max_examples=100)
@given(indices)
def test_indices_round_trip(value: Index) -> None:
    text = f"program p\nprefetch a[{print_index(value)}]\n"
    assert parse_program(text).body == (Prefetch("a", (value,)),)


def test_nan_and_infinities_are_literals() -> None:
    text = "program p\na[] = add(float32(nan), add(float32(inf), float64(-inf)))\n"
    program = parse_program(text)
    store = program.body[0]
    assert isinstance(store, Store)
    assert isinstance(store.value, Apply)
    first = store.value.args[0]
    assert isinstance(first, Const)
    assert math.isnan(first.value)
    assert print_program(program) == text


def test_a_program_reads_like_its_grammar() -> None:
    text = print_program(build_program(tasks.attention_scores()))
    assert text.startswith(
        "program matmul\n"
        "param i0: float32[2, 5, 3]\n"
        "param i1: float32[2, 7, 3]\n"
        "param o0: float32[2, 5, 7] written\n"
        "alloc t0: float32[2, 5, 7] scratch:\n"
    )


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("", "expected 'program', got 'the end'"),
        ("program p q\n", "nothing after 'p'"),
        ("program p\n  a[] = float32(1.0)\n", "a statement at the left margin"),
        ("program p\na[] = float32(x)\n", "expected a number and not 'x'"),
        ("program p\na[] = nothing(1)\n", "a function and not 'nothing'"),
        ("program p\na[] and= float32(1.0)\n", "one of sum, max, min, prod"),
        ("program p\nfor x in y serial:\n", "an integer and not 'y'"),
        ("program p\na[x, ] = float32(1.0)\n", "a name and not ']'"),
        ("program p\na[x ? 2] = float32(1.0)\n", "a token at column"),
        ("program p\na[] = add(float32(1.0))\n", "add takes 2 values"),
        ("program p\na[(x + 2)] = float32(1.0)\n", r"expected '%' and not '\)'"),
    ],
)
def test_what_does_not_parse_is_named(text: str, message: str) -> None:
    with pytest.raises(VerifyError, match=message):
        parse_program(text)
