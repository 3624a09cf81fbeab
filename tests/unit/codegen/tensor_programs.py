"""Programs for tensor cores, written by hand."""

from __future__ import annotations

from autotune.program.ir import Program
from tests.interpreter.parse import parse_program


def tensor_matmul(dtype: str) -> Program:
    """relu(i0 @ c0.T + c1) by 2 x 2 warps of 32 x 16, from two stages in shared memory.

    The second operand's stages are copied asynchronously."""
    depth, total, chunk = {
        "bfloat16": (16, "float32", 8), "float32": (8, "float32", 4), "int8": (32, "int32", 16),
    }[dtype]  # fmt: skip
    k, row = 4 * depth, depth + chunk
    given = "float32" if dtype == "bfloat16" else dtype
    data = f"i0[t1 + 64*by, {depth}*ko + q]"
    data = f"to_bfloat16({data})" if dtype == "bfloat16" else data
    zero = f"{total}(0.0)" if total == "float32" else "int32(0)"
    pack = (
        f"pack c0: [32, {k}] splits [] order [0, 1] as bfloat16\n" if dtype == "bfloat16" else ""
    )
    ahead = f"c0[t2, {depth}*ko + {depth} + {chunk}*s2]"
    right = "b[(ko % 2), 16*(w1 % 2) + 8*n1, 0]"
    column = "16*(w2 % 2) + 8*n2 + g2"
    biased = f"add(acc[16*m2 + f2, 8*n2 + g2], c1[{column}])"
    return parse_program(f"""program tensor_{dtype}
param i0: {given}[64, {k}]
param c0: {dtype}[32, {k}] constant
param c1: {total}[32] constant
param o0: {total}[64, 32] written
{pack}for by in 1 block.y:
  alloc acc: {total}[32, 16] fragment:
    for w0 in 4 warp:
      for m0 in 2 unroll:
        for n0 in 2 unroll:
          for f0 in 16 fragment.m:
            for g0 in 8 fragment.n:
              acc[16*m0 + f0, 8*n0 + g0] = {zero}
    alloc a: {dtype}[64, {depth}] strides [{row}, 1] shared:
      alloc b: {dtype}[2, 32, {depth}] strides [{32 * row}, {row}, 1] shared:
        for t0 in 32 thread.x:
          for s0 in 2 unroll:
            copy {chunk} b[0, t0, {chunk}*s0] from c0[t0, {chunk}*s0]
        commit
        for ko in 4 serial:
          for t1 in 64 thread.x:
            for q in {depth} unroll:
              a[t1, q] = {data}
          for t2 in 32 thread.x:
            if 0 <= ko < 3:
              for s2 in 2 unroll:
                copy {chunk} b[(ko + 1 % 2), t2, {chunk}*s2] from {ahead}
          commit
          wait 1
          barrier
          for w1 in 4 warp:
            for m1 in 2 unroll:
              for n1 in 2 unroll:
                mma acc[16*m1, 8*n1], a[32*(w1 // 2) + 16*m1, 0], {right}
          barrier
        wait 0
    for w2 in 4 warp:
      for m2 in 2 unroll:
        for n2 in 2 unroll:
          for f2 in 16 fragment.m:
            for g2 in 8 fragment.n:
              o0[32*(w2 // 2) + 16*m2 + f2, {column}] = max({biased}, {zero})
""")
