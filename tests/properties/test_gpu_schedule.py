"""Steps for GPUs by chance: whatever is accepted computes what the program before did, without a
race, for shapes and tile sizes that do and do not divide each other.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from hypothesis import given, settings
from hypothesis import strategies as st

from autotune.errors import ScheduleError
from autotune.program.ir import Program
from autotune.program.text import print_program
from autotune.schedule import apply_schedule, schedule_from_json
from autotune.target import load_target
from autotune.tasks.build import build_program
from autotune.tasks.inputs import random_inputs
from autotune.types import Task
from search_spaces.params import Config
from search_spaces.rules import rule_for
from tests.interpreter.interp import run
from tests.interpreter.parse import parse_program
from tests.interpreter.verify import verify
from tests.unit.codegen.kernels import assert_close, matmul, node, task, unary, value

SM80 = load_target("sm_80")
few = settings(max_examples=10)
many = settings(max_examples=30)
sizes = st.integers(1, 11)
Json = dict[str, Any]


def same(before: Program, after: Program, made: Task, tolerance: float = 1e-5) -> None:
    """Verified, readable, and the same output."""
    verify(after)
    assert parse_program(print_program(after)) == after
    arrays = random_inputs(made, 1)
    assert_close(run(after, arrays), run(before, arrays), tolerance)


@few
@given(
    m=sizes, n=sizes, k=st.integers(1, 24), tile=st.tuples(*[st.sampled_from((1, 2, 4))] * 4),
    depth=st.sampled_from((2, 4, 8)), stages=st.sampled_from((1, 2, 3)),
    split=st.sampled_from((1, 2, 3)), order=st.sampled_from(("rows_first", "columns_first")),
)  # fmt: skip
def test_tiles_copies_ahead_and_parts_of_sums(
    *,
    m: int,
    n: int,
    k: int,
    tile: tuple[int, ...],
    depth: int,
    stages: int,
    split: int,
    order: str,
) -> None:
    """bind, shared, private, asynchronous, pipeline, partial."""
    made, steps = matmul(m, k, n), -(-k // depth)
    split = split if steps % split == 0 else 1
    names = ("tile_m", "tile_n", "threads_m", "threads_n")
    values: Json = dict(zip(names, tile, strict=True)) | {
        "algorithm": "direct", "depth": depth, "unroll": 1, "split": split, "order": order,
        "stages": min(stages, steps // split), "layout": "padded", "band": 1,
    }  # fmt: skip
    schedule = rule_for(made, SM80).schedule(made, SM80, Config(tuple(values.items())))
    before = build_program(made)
    same(before, apply_schedule(before, schedule), made)


@few
@given(
    m=st.integers(1, 20), n=sizes, k=st.integers(1, 40), depth=st.sampled_from((16, 32)),
    stages=st.sampled_from((1, 2)), layout=st.sampled_from(("padded", "swizzled")),
    algorithm=st.sampled_from(("bf16", "f16", "tf32")),
)  # fmt: skip
def test_matrices_in_swizzled_memory(
    *, m: int, n: int, k: int, depth: int, stages: int, layout: str, algorithm: str
) -> None:
    """swizzle, tensorize, and the same as above."""
    made = matmul(m, k, n)
    values: Json = {
        "algorithm": algorithm, "tile_m": 1, "tile_n": 1, "threads_m": 1, "threads_n": 1,
        "depth": depth, "unroll": 1, "stages": min(stages, -(-k // depth)), "split": 1,
        "order": "rows_first", "layout": layout, "band": 1,
    }  # fmt: skip
    schedule = rule_for(made, SM80).schedule(made, SM80, Config(tuple(values.items())))
    before = build_program(made)
    same(before, apply_schedule(before, schedule), made, 2e-2)


@many
@given(
    rows=st.integers(1, 3), length=st.integers(2, 150), threads=st.sampled_from((2, 8, 32, 64)),
    vector=st.sampled_from((1, 2, 4)), step=st.sampled_from(("shuffle", "tree")),
    op=st.sampled_from(("reduce_sum", "reduce_max")),
)  # fmt: skip
def test_threads_reduce_together(
    *, rows: int, length: int, threads: int, vector: int, step: str, op: str
) -> None:
    """bind, shuffle, tree, solo."""
    made = task(
        [node(op, "i0", "o0", axes=(1,), keepdims=False)],
        value("i0", (rows, length)),
        value("o0", (rows,)),
    )
    lanes = vector if length % vector == 0 else 1
    steps: list[Json] = [
        {"step": "split", "loop": "o0_r1", "factor": lanes, "outer": "k", "inner": "v"},
        {"step": "split", "loop": "k", "factor": threads, "outer": "c", "inner": "t"},
        {"step": "reorder", "loops": ["t", "c", "v"]},
        {"step": "bind", "loop": "o0_d0", "axis": "block.x"},
        {"step": step, "buffer": "o0", "loop": "t", "lanes": "v"},
        {"step": "single_thread", "loop": "o0_d0"},
    ]
    before = build_program(made)
    same(before, apply_schedule(before, schedule_from_json(steps)), made)


@few
@given(
    rows=st.integers(1, 3), length=st.sampled_from((32, 33, 64, 96, 130, 256)),
    threads=st.sampled_from((32, 64)), vector=st.sampled_from((1, 2)),
    split=st.sampled_from((1, 2, 4)), op=st.sampled_from(("softmax", "reduce_max")),
)  # fmt: skip
def test_rows_by_threads_and_blocks(
    *, rows: int, length: int, threads: int, vector: int, split: int, op: str
) -> None:
    """once, partial, store_at in registers and shared memory, shuffle."""
    made = unary("softmax", (rows, length), axis=-1)
    if op != "softmax":
        made = task(
            [node(op, "i0", "o0", axes=(0, 1), keepdims=False)],
            value("i0", (rows, length)),
            value("o0", ()),
        )
    values: Json = {
        "threads": threads, "vector": vector if length % vector == 0 else 1,
        "split": split if op != "softmax" else 1,
    }  # fmt: skip
    schedule = rule_for(made, SM80).schedule(made, SM80, Config(tuple(values.items())))
    before = build_program(made)
    same(before, apply_schedule(before, schedule), made)


@many
@given(
    rows=st.integers(1, 12), columns=st.integers(1, 72), gap=st.sampled_from((0, 1, 4)),
    dtype=st.sampled_from(("float32", "int8")),
)  # fmt: skip
def test_a_swizzle_is_refused_or_loses_nothing(
    rows: int, columns: int, gap: int, dtype: str
) -> None:
    strides = f" strides [{columns + gap}, 1]" * bool(gap)
    before = parse_program(f"""program p
param x: {dtype}[{rows}, {columns}]
param y: {dtype}[{columns}, {rows}] written
for b in 1 block.x:
  alloc s: {dtype}[{rows}, {columns}] shared{strides}:
    for t in {rows} thread.x:
      for i in {columns} serial:
        s[t, i] = x[t, i]
    barrier
    for u in {columns} thread.x:
      for j in {rows} serial:
        y[u, j] = s[j, u]
""")
    step = schedule_from_json([{"step": "swizzle", "buffer": "s"}])
    try:
        after = apply_schedule(before, step)
    except ScheduleError:
        return
    verify(after)
    x = np.arange(rows * columns).astype(dtype).reshape(rows, columns)
    np.testing.assert_array_equal(run(after, {"x": x}), x.T)
