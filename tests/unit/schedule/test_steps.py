"""Every step: what it makes of a small program, and what it refuses."""

from __future__ import annotations

import pytest

from autotune.errors import ScheduleError
from autotune.program.ir import Program
from autotune.program.text import print_stmt
from autotune.schedule import STEPS, Step, apply_schedule, schedule_from_json
from tests.interpreter.parse import parse_program
from tests.interpreter.verify import verify

HEAD = "program p\nparam x: float32[4, 6]\nparam w: float32[6] constant\n"
TABLE = """program p
param c: int64[4] constant
param x: float32[9]
param y: float32[4] written
for i in 4 serial:
  y[i] = x[int(c[(i % 4)], 9)]
"""
COPY = (
    HEAD
    + """param y: float32[4, 6] written
for i in 4 serial:
  for j in 6 serial:
    y[i, j] = mul(x[i, j], w[j])
"""
)
SUMS = (
    HEAD
    + """param y: float32[4] written
for i in 4 serial:
  y[i] = float32(0.0)
  for k in 6 serial:
    y[i] sum= x[i, k]
"""
)
STAGES = (
    HEAD
    + """param y: float32[4, 6] written
alloc t: float32[4, 6] scratch:
  for i in 4 serial:
    for j in 6 serial:
      t[i, j] = neg(x[i, j])
  for a in 4 serial:
    for b in 6 serial:
      y[a, b] = abs(t[a, b])
"""
)
NORM = (
    HEAD
    + """param y: float32[4, 6] written
alloc s: float32[4] scratch:
  for i in 4 serial:
    s[i] = float32(0.0)
    for k in 6 serial:
      s[i] sum= x[i, k]
  for a in 4 serial:
    for b in 6 serial:
      y[a, b] = mul(x[a, b], s[a])
"""
)


def made(name: str, **fields: object) -> Step:
    """A step by name."""
    return schedule_from_json([{"step": name, **fields}])[0]


def step(program: str, name: str, **fields: object) -> Program:
    """The program after one step, verified."""
    out = made(name, **fields).apply(parse_program(program))
    verify(out)
    return out


def lines(program: Program) -> list[str]:
    """The body's lines, without indents."""
    return [text.strip() for s in program.body for text in print_stmt(s).split("\n")]


def test_split_guards_what_the_factor_does_not_divide() -> None:
    assert lines(step(COPY, "split", loop="j", factor=4, outer="jo", inner="ji")) == [
        "for i in 4 serial:",
        "for jo in 2 serial:",
        "for ji in 4 serial:",
        "if 0 <= ji + 4*jo < 6:",
        "y[i, ji + 4*jo] = mul(x[i, ji + 4*jo], w[ji + 4*jo])",
    ]


def test_split_by_a_divisor_needs_no_guard() -> None:
    assert not any("if" in t for t in lines(
        step(COPY, "split", loop="j", factor=3, outer="jo", inner="ji")))  # fmt: skip


def test_fuse_divides_the_new_loop() -> None:
    assert lines(step(COPY, "fuse", outer="i", inner="j", fused="f")) == [
        "for f in 24 serial:",
        "y[(f // 6), (f % 6)] = mul(x[(f // 6), (f % 6)], w[(f % 6)])",
    ]


def test_fusing_what_was_split_gives_back_the_loop() -> None:
    split = made("split", loop="j", factor=3, outer="jo", inner="ji")
    fuse = made("fuse", outer="jo", inner="ji", fused="j")
    fused = apply_schedule(parse_program(COPY), (split, fuse))
    assert lines(fused)[1] == "for j in 6 serial:"


def test_reorder_swaps_loops() -> None:
    assert lines(step(COPY, "reorder", loops=("j", "i")))[:2] == [
        "for j in 6 serial:",
        "for i in 4 serial:",
    ]


@pytest.mark.parametrize("kind", ["unroll", "vectorize", "parallel"])
def test_annotations(kind: str) -> None:
    fields = {"loop": "i"} if kind == "parallel" else {"loops": ("j",)}
    kinds = {"unroll": "unroll", "vectorize": "vector", "parallel": "parallel"}
    assert any(t.endswith(f"{kinds[kind]}:") for t in lines(step(COPY, kind, **fields)))


def test_inline_takes_values_of_a_single_element() -> None:
    single = parse_program(
        HEAD
        + """param y: float32[4] written
alloc t: float32[] scratch:
  t[] = neg(w[0])
  for i in 4 serial:
    y[i] = mul(x[i, 0], t[])
"""
    )
    assert lines(apply_schedule(single, (made("inline", buffer="t"),))) == [
        "for i in 4 serial:",
        "y[i] = mul(x[i, 0], neg(w[0]))",
    ]


def test_inline_puts_the_expression_into_its_reader() -> None:
    assert lines(step(STAGES, "inline", buffer="t")) == [
        "for a in 4 serial:",
        "for b in 6 serial:",
        "y[a, b] = abs(neg(x[a, b]))",
    ]


def test_compute_at_joins_the_loops() -> None:
    assert lines(step(STAGES, "compute_at", buffer="y", at="j"))[1:] == [
        "for i in 4 serial:",
        "for j in 6 serial:",
        "t[i, j] = neg(x[i, j])",
        "y[i, j] = abs(t[i, j])",
    ]


def test_compute_at_keeps_inner_loops_apart() -> None:
    assert lines(step(NORM, "compute_at", buffer="y", at="i"))[1:] == [
        "for i in 4 serial:",
        "s[i] = float32(0.0)",
        "for k in 6 serial:",
        "s[i] sum= x[i, k]",
        "for b in 6 serial:",
        "y[i, b] = mul(x[i, b], s[i])",
    ]


def test_cache_write_sinks_the_tile_below_the_reduction() -> None:
    assert lines(step(SUMS, "cache_write", buffer="y", loops=("i",))) == [
        "alloc y.reg: float32[4] register:",
        "for i_init in 4 serial:",
        "y.reg[i_init] = float32(0.0)",
        "for k in 6 serial:",
        "for i in 4 serial:",
        "y.reg[i] sum= x[i, k]",
        "for i_out in 4 serial:",
        "y[i_out] = y.reg[i_out]",
    ]


def test_cache_write_guards_what_would_be_read_outside() -> None:
    split = made("split", loop="j", factor=4, outer="jo", inner="ji")
    cache = made("cache_write", buffer="t", loops=("jo", "ji"))
    program = apply_schedule(parse_program(STAGES), (split, cache))
    verify(program)
    assert "if 0 <= ji_init + 4*jo_init < 6:" in lines(program)


def test_cache_write_leaves_constants_without_a_guard() -> None:
    split = made("split", loop="i", factor=3, outer="io", inner="ii")
    cache = made("cache_write", buffer="y", loops=("io", "ii"))
    program = apply_schedule(parse_program(SUMS), (split, cache))
    verify(program)
    written = lines(program)
    assert written[written.index("for ii_init in 3 serial:") + 1].startswith("y.reg[")


def test_rfactor_keeps_a_partial_sum_per_iteration() -> None:
    split = made("split", loop="k", factor=2, outer="ko", inner="ki")
    factor = made("rfactor", buffer="y", top="ko", loops=("ki",))
    assert lines(apply_schedule(parse_program(SUMS), (split, factor)))[2:] == [
        "alloc y.part: float32[2] register:",
        "for ki_init in 2 serial:",
        "y.part[ki_init] = float32(0.0)",
        "for ko in 3 serial:",
        "for ki in 2 serial:",
        "y.part[ki] sum= x[i, ki + 2*ko]",
        "for ki_out in 2 serial:",
        "y[i] sum= y.part[ki_out]",
    ]


def test_rfactor_of_two_loops_leaves_one_vector_to_reduce() -> None:
    split = made("split", loop="k", factor=2, outer="ko", inner="ki")
    factor = made("rfactor", buffer="y", top="ko", loops=("ko", "ki"))
    program = apply_schedule(parse_program(SUMS), (split, factor))
    verify(program)
    assert lines(program)[-5:] == [
        "for ko_out in 2 serial:",
        "for ki_mix in 2 serial:",
        "y.part[0, ki_mix] sum= y.part[ko_out + 1, ki_mix]",
        "for ki_out in 2 serial:",
        "y[i] sum= y.part[0, ki_out]",
    ]


def test_join_combines_the_terms_of_a_loop_in_one_store() -> None:
    split = made("split", loop="k", factor=2, outer="ko", inner="ki")
    program = apply_schedule(parse_program(SUMS), (split, made("fuse_reduction_terms", loop="ki")))
    verify(program)
    assert lines(program)[-2:] == [
        "for ko in 3 serial:",
        "y[i] sum= add(x[i, 2*ko], x[i, 2*ko + 1])",
    ]


def test_specialize_writes_the_last_iteration_apart() -> None:
    steps = schedule_from_json([
        {"step": "split", "loop": "i", "factor": 3, "outer": "io", "inner": "ii"},
        {"step": "cache_write", "buffer": "y", "loops": ["ii"]},
        {"step": "specialize", "loop": "io", "at": "y.reg"},
    ])  # fmt: skip
    program = apply_schedule(parse_program(SUMS), steps)
    verify(program)
    text = lines(program)
    assert text[1] == "if 0 <= io < 1:"
    assert "if 1 <= io < 2:" in text
    assert "y[ii_out] = y.reg[ii_out]" not in text[text.index("if 1 <= io < 2:") :]


def test_specialize_without_a_buffer_writes_the_whole_body_twice() -> None:
    split = made("split", loop="j", factor=4, outer="jo", inner="ji")
    program = apply_schedule(parse_program(COPY), (split, made("specialize", loop="jo")))
    verify(program)
    assert lines(program)[2:] == [
        "if 0 <= jo < 1:",
        "for ji in 4 serial:",
        "y[i, ji + 4*jo] = mul(x[i, ji + 4*jo], w[ji + 4*jo])",
        "if 1 <= jo < 2:",
        "for ji.jo0 in 4 serial:",
        "if 0 <= ji.jo0 + 4 < 6:",
        "y[i, ji.jo0 + 4] = mul(x[i, ji.jo0 + 4], w[ji.jo0 + 4])",
    ]


def rows_together(reader: str) -> Program:
    """The norm with two rows at a time; `reader`: how the second nest's rows are split."""
    steps = (
        made("split", loop="i", factor=2, outer="io", inner="ii"),
        made("split", loop="a", factor=2, outer="ao", inner="ai"),
        *(() if reader == "same" else (made("reorder", loops=("ai", "ao")),)),
        made("compute_at", buffer="y", at="io"),
        made("store_at", buffer="s", loop="io"),
    )
    program = apply_schedule(parse_program(NORM), steps)
    verify(program)
    return program


def test_rows_of_a_block_take_each_pass_together() -> None:
    text = lines(rows_together("same"))
    assert text[:4] == [
        "for io in 2 serial:",
        "alloc s: float32[2] scratch:",
        "for ii in 2 serial:",
        "s[ii] = float32(0.0)",
    ]
    assert text[-1] == "y[ai + 2*io, b] = mul(x[ai + 2*io, b], s[ai])"


def test_rows_of_another_block_are_not_finished() -> None:
    with pytest.raises(ScheduleError, match="read where it is not written yet"):
        rows_together("other")


def test_pack_lays_weights_out_in_blocks() -> None:
    program = step(COPY, "pack", buffer="w", splits=((0, 4),), order=(1, 0))
    assert program.params[1].shape == (4, 2)
    assert lines(program)[-1] == "y[i, j] = mul(x[i, j], w[(j % 4), (j // 4)])"


def test_cache_read_copies_in_the_order_of_use() -> None:
    program = step(COPY, "cache_read", buffer="x", loop="i", dims=(1,), splits=((0, 4),),
                   order=(0, 1))  # fmt: skip
    assert lines(program) == [
        "for i in 4 serial:",
        "alloc x.cache: float32[2, 4] scratch:",
        "for x_p0 in 2 serial:",
        "for x_p1 in 4 serial:",
        "x.cache[x_p0, x_p1] = select(0 <= 4*x_p0 + x_p1 < 6, x[i, 4*x_p0 + x_p1], float32(0.0))",
        "for j in 6 serial:",
        "y[i, j] = mul(x.cache[(j // 4), (j % 4)], w[j])",
    ]


def test_store_at_drops_the_dimensions_that_are_fixed() -> None:
    joined = made("compute_at", buffer="y", at="i")
    narrow = made("store_at", buffer="s", loop="i")
    text = lines(apply_schedule(parse_program(NORM), (joined, narrow)))
    assert text[:3] == ["for i in 4 serial:", "alloc s: float32[] scratch:", "s[] = float32(0.0)"]


@pytest.mark.parametrize(
    ("program", "name", "fields", "message"),
    [
        (COPY, "split", {"loop": "q", "factor": 2, "outer": "a", "inner": "b"},
         "no loop q; loops: i, j"),
        (COPY, "split", {"loop": "j", "factor": 0, "outer": "a", "inner": "b"}, "factor must be"),
        (COPY, "split", {"loop": "j", "factor": 2, "outer": "i", "inner": "b"},
         "loop name i is taken"),
        (SUMS, "fuse", {"outer": "i", "inner": "k", "fused": "f"}, "holds more than one loop"),
        (COPY, "fuse", {"outer": "i", "inner": "q", "fused": "f"}, "directly inside i is j"),
        (SUMS, "reorder", {"loops": ("k", "i")}, "does not hold exactly one loop"),
        (NORM, "inline", {"buffer": "s"}, "not computed by a single plain store"),
        (STAGES, "compute_at", {"buffer": "t", "at": "a"}, "is computed before the loop"),
        (STAGES, "compute_at", {"buffer": "y", "at": "a"}, "is computed inside a already"),
        (NORM, "compute_at", {"buffer": "y", "at": "k"}, "s is not finished inside k"),
        (SUMS, "cache_write", {"buffer": "y", "loops": ("k",)},
         "y is not computed in these loops"),
        (COPY, "cache_write", {"buffer": "y", "loops": ("i",)}, "indexed by loops inside"),
        (SUMS, "rfactor", {"buffer": "y", "top": "i", "loops": ("k",)}, "not a reduction into y"),
        (SUMS, "rfactor", {"buffer": "y", "top": "k", "loops": ("i",)},
         "are not loops inside k"),
        (SUMS, "fuse_reduction_terms", {"loop": "i"}, "holds more than one reduction"),
        (SUMS, "fuse_reduction_terms", {"loop": "k"}, "is all of a reduction"),
        (COPY, "fuse_reduction_terms", {"loop": "j"}, "holds more than one reduction"),
        (SUMS, "specialize", {"loop": "i", "at": "y.reg"}, "no buffer y.reg inside loop i"),
        (COPY, "pack", {"buffer": "x", "splits": (), "order": (1, 0)},
         "x is not a constant param"),
        (TABLE, "pack", {"buffer": "c", "splits": ((0, 2),), "order": (1, 0)},
         "c says where others are read"),
        (STAGES, "cache_read", {"buffer": "t", "loop": "", "dims": (0, 1), "splits": (),
                                "order": (0, 1)}, "t is not computed yet"),
        (COPY, "cache_read", {"buffer": "x", "loop": "i", "dims": (0,), "splits": (),
                              "order": (0,)}, "x depends on loops inside i"),
        (STAGES, "store_at", {"buffer": "t", "loop": "i"}, "t is used outside loop i"),
        (STAGES, "store_at", {"buffer": "u", "loop": "i"}, "no local buffer u"),
    ],
)  # fmt: skip
def test_refusals(program: str, name: str, fields: dict[str, object], message: str) -> None:
    with pytest.raises(ScheduleError, match=message):
        step(program, name, **fields)


def test_an_error_names_the_step() -> None:
    with pytest.raises(ScheduleError, match="step 0 Inline"):
        apply_schedule(parse_program(COPY), (made("inline", buffer="t"),))


@pytest.mark.parametrize(
    ("data", "message"),
    [
        ([{"step": "teleport"}], "unknown step 'teleport'; known: "),
        ([{"step": "inline", "buffer": "t", "speed": 2}], "speed"),
        ([{"step": "inline"}], "buffer"),
    ],
)
def test_unknown_steps_and_fields_in_json(data: list[dict[str, object]], message: str) -> None:
    with pytest.raises(ScheduleError, match=message):
        schedule_from_json(data)


def test_every_step_is_known_by_its_name() -> None:
    assert all(STEPS.get(name).step == name for name in STEPS)
