"""Programs of streams and groups of warps, written by hand."""

from __future__ import annotations

from autotune.program.ir import Program
from tests.interpreter.parse import parse_program


def stream_matmul(
    *, groups: int = 2, count: int = 8, depth: int = 200, copies: int = 2
) -> Program:
    """relu(c0 @ c1.T + i0), 64 rows per group of warps and blocks of 8 * count columns.

    The depth may end within a step: what lies beyond is fetched as zeros."""
    rows, width, steps = 64 * groups, 8 * count, -(-depth // 64)
    warps = 4 * groups
    place, slot = f"16*w2 + f2, 8*n2 + g2 + {width}*bx", f"(ko % {copies})"
    return parse_program(f"""program stream
param i0: float32[{rows}, {2 * width}]
param c0: bfloat16[{rows}, {depth}] constant
param c1: bfloat16[{2 * width}, {depth}] constant
param o0: float32[{rows}, {2 * width}] written
pack c0: [{rows}, {depth}] splits [] order [0, 1] as bfloat16
pack c1: [{2 * width}, {depth}] splits [] order [0, 1] as bfloat16
for bx in 2 block.x:
  alloc acc: float32[{count}, 16, 8] fragment:
    for w0 in {warps} warp:
      for n0 in {count} unroll:
        for f0 in 16 fragment.m:
          for g0 in 8 fragment.n:
            acc[n0, f0, g0] = float32(0.0)
    alloc a: bfloat16[{copies}, {rows}, 64] shared:
      alloc b: bfloat16[{copies}, {width}, 64] shared:
        for ko in {steps} stream:
          fetch [{rows}, 64] a[{slot}, 0, 0] from c0[0, 64*ko]
          fetch [{width}, 64] b[{slot}, 0, 0] from c1[{width}*bx, 64*ko]
          for w1 in {warps} warp:
            for k in 4 unroll:
              wgmma {count} acc[0, 0, 0], a[{slot}, 16*w1, 16*k], b[{slot}, 0, 16*k]
    for w2 in {warps} warp:
      for n2 in {count} unroll:
        for f2 in 16 fragment.m:
          for g2 in 8 fragment.n:
            o0[{place}] = max(add(acc[n2, f2, g2], i0[{place}]), float32(0.0))
""")
