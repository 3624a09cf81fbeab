"""Programs bound to blocks and threads, written by hand, and numpy's answer."""

from __future__ import annotations

import numpy as np

from autotune.program.ir import Program
from autotune.types import Array
from tests.interpreter.parse import parse_program

TILED_MATMUL = """program matmul
param i0: float32[32, 24]
param c0: float32[24, 40] constant
param o0: float32[32, 40] written
for by in 2 block.y:
  for bx in 2 block.x:
    alloc a: float32[16, 8] shared:
      alloc b: float32[8, 20] shared:
        alloc acc: float32[2, 2] register:
          for y0 in 8 thread.y:
            for x0 in 10 thread.x:
              for u0 in 2 unroll:
                for v0 in 2 vector:
                  acc[u0, v0] = float32(0.0)
          for ko in 3 serial:
            for y1 in 8 thread.y:
              for x1 in 8 thread.x:
                for u1 in 2 unroll:
                  a[2*y1 + u1, x1] = i0[16*by + 2*y1 + u1, 8*ko + x1]
            for y2 in 8 thread.y:
              for x2 in 10 thread.x:
                for v2 in 2 vector:
                  b[y2, 2*x2 + v2] = c0[8*ko + y2, 20*bx + 2*x2 + v2]
            barrier
            for y3 in 8 thread.y:
              for x3 in 10 thread.x:
                for ki in 8 serial:
                  for u3 in 2 unroll:
                    for v3 in 2 vector:
                      acc[u3, v3] sum= mul(a[2*y3 + u3, ki], b[ki, 2*x3 + v3])
            barrier
          for y4 in 8 thread.y:
            for x4 in 10 thread.x:
              for u4 in 2 unroll:
                for v4 in 2 vector:
                  o0[16*by + 2*y4 + u4, 20*bx + 2*x4 + v4] = max(acc[u4, v4], float32(0.0))
"""
"""relu(i0 @ c0): shared tiles, registers that live across barriers, vector loads and stores."""

ROW_SUMS = """program sums
param i0: float32[6, 64]
param o0: float32[6, 64] written
alloc total: float32[6] scratch:
  for b0 in 6 block.x:
    alloc part: float32[32] shared:
      for t0 in 32 thread.x:
        part[t0] = i0[b0, t0]
        part[t0] sum= i0[b0, t0 + 32]
      barrier
      for t1 in 8 thread.x:
        part[t1] sum= part[t1 + 8]
        part[t1] sum= part[t1 + 16]
        part[t1] sum= part[t1 + 24]
      barrier
      for t2 in 1 thread.x:
        total[b0] = float32(0.0)
        for k in 8 serial:
          total[b0] sum= part[k]
  for b1 in 6 block.x:
    for t3 in 16 thread.x:
      for v in 4 vector:
        o0[b1, 4*t3 + v] = div(i0[b1, 4*t3 + v], total[b1])
"""
"""Rows over their sums, in two launches, with threads that idle."""

STAGES = """program stages
param i0: float32[8, 4, 32]
param o0: float32[4, 32] written
for b in 4 block.x:
  alloc stage: float32[2, 32] shared:
    alloc total: float32[4] register:
      for t0 in 8 thread.x:
        copy 4 stage[0, 4*t0] from i0[0, b, 4*t0]
        for v0 in 4 vector:
          total[v0] = float32(0.0)
      commit
      for k in 7 serial:
        for t1 in 8 thread.x:
          copy 4 stage[(k + 1 % 2), 4*t1] from i0[k + 1, b, 4*t1]
        commit
        wait 1
        barrier
        for t2 in 8 thread.x:
          for v2 in 4 vector:
            total[v2] sum= stage[(k % 2), -4*t2 + v2 + 28]
        barrier
      wait 0
      barrier
      for t3 in 8 thread.x:
        for v3 in 4 vector:
          total[v3] sum= stage[1, -4*t3 + v3 + 28]
      for t4 in 8 thread.x:
        for v4 in 4 vector:
          o0[b, -4*t4 + v4 + 28] = total[v4]
"""
"""Sums over the first dimension, the next stage on its way while one is used."""


def stages() -> tuple[Program, dict[str, Array], Array]:
    """(program, arrays, result)."""
    x = np.random.default_rng(3).standard_normal((8, 4, 32)).astype(np.float32)
    return parse_program(STAGES), {"i0": x}, x.sum(axis=0)


def tiled_matmul() -> tuple[Program, dict[str, Array], Array]:
    """(program, arrays, result)."""
    rng = np.random.default_rng(0)
    arrays = {
        "i0": rng.standard_normal((32, 24)).astype(np.float32),
        "c0": rng.standard_normal((24, 40)).astype(np.float32),
    }
    return parse_program(TILED_MATMUL), arrays, np.maximum(arrays["i0"] @ arrays["c0"], 0)


def row_sums() -> tuple[Program, dict[str, Array], Array]:
    """(program, arrays, result)."""
    x = np.random.default_rng(1).uniform(0.5, 1.5, (6, 64)).astype(np.float32)
    return parse_program(ROW_SUMS), {"i0": x}, x / x.sum(axis=1, keepdims=True)
