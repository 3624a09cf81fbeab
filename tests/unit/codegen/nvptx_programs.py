"""Small programs bound to blocks and threads, written by hand."""

from __future__ import annotations

from tests.interpreter.parse import parse_program

ADD = parse_program("""program add
param i0: float32[1024]
param i1: float32[1024]
param o0: float32[1024] written
for b in 4 block.x:
  for t in 64 thread.x:
    for v in 4 vector:
      o0[256*b + 4*t + v] = add(i0[256*b + 4*t + v], i1[256*b + 4*t + v])
""")

# 100 elements by blocks of 32 threads: the last block has too many.
TAIL = parse_program("""program tail
param i0: float32[10, 10]
param o0: float32[10, 10] written
for b in 4 block.x:
  for t in 32 thread.x:
    if 0 <= 32*b + t < 100:
      o0[(32*b + t % 10), (32*b + t // 10)] = neg(i0[(32*b + t // 10), (32*b + t % 10)])
""")

# A transpose through shared memory: rows are read, columns written, both side by side. The
# shared rows are longer by one, so that a column does not lie in one bank.
TRANSPOSE = parse_program("""program transpose
param i0: float32[32, 48]
param o0: float32[48, 32] written
for by in 2 block.y:
  for bx in 3 block.x:
    alloc tile: float32[16, 16] strides [17, 1] shared:
      for y0 in 16 thread.y:
        for x0 in 16 thread.x:
          tile[y0, x0] = i0[16*by + y0, 16*bx + x0]
      barrier
      for y1 in 16 thread.y:
        for x1 in 16 thread.x:
          o0[16*bx + y1, 16*by + x1] = tile[x1, y1]
""")

# The sum of exponentials of each row by halves in shared memory; fewer threads at every step.
ROWS = parse_program("""program rows
param i0: float32[6, 64]
param o0: float32[6] written
for b in 6 block.x:
  alloc part: float32[64] shared:
    for t0 in 64 thread.x:
      part[t0] = exp(i0[b, t0])
    barrier
    for t1 in 32 thread.x:
      part[t1] sum= part[t1 + 32]
    barrier
    for t2 in 16 thread.x:
      part[t2] sum= part[t2 + 16]
    barrier
    for t3 in 1 thread.x:
      for k in 16 serial:
        if 1 <= k < 16:
          part[0] sum= part[k]
    barrier
    for t4 in 1 thread.x:
      o0[b] = part[t4]
""")

# Register tiles of 4x4 from stages in shared memory, 8 deep.
MATMUL = parse_program("""program matmul
param i0: float32[64, 32]
param c0: float32[32, 64] constant
param o0: float32[64, 64] written
for by in 2 block.y:
  for bx in 2 block.x:
    alloc acc: float32[4, 4] register:
      for ty0 in 8 thread.y:
        for tx0 in 8 thread.x:
          for r0 in 4 unroll:
            for s0 in 4 vector:
              acc[r0, s0] = float32(0.0)
      alloc a: float32[8, 32] shared:
        alloc b: float32[8, 32] shared:
          for ko in 4 serial:
            barrier
            for ty1 in 8 thread.y:
              for tx1 in 8 thread.x:
                for q in 4 unroll:
                  a[tx1, 4*ty1 + q] = i0[32*by + 4*ty1 + q, 8*ko + tx1]
                for w in 4 vector:
                  b[ty1, 4*tx1 + w] = c0[8*ko + ty1, 32*bx + 4*tx1 + w]
            barrier
            for ty2 in 8 thread.y:
              for tx2 in 8 thread.x:
                for k in 8 unroll:
                  alloc left: float32[4] register:
                    for z in 4 vector:
                      left[z] = a[k, 4*ty2 + z]
                    for r in 4 unroll:
                      for s in 4 vector:
                        acc[r, s] sum= mul(left[r], b[k, 4*tx2 + s])
      for ty3 in 8 thread.y:
        for tx3 in 8 thread.x:
          for r3 in 4 unroll:
            for s3 in 4 vector:
              o0[32*by + 4*ty3 + r3, 32*bx + 4*tx3 + s3] = max(acc[r3, s3], float32(0.0))
""")

# Two launches with memory between them.
TWO = parse_program("""program two
param i0: float32[40]
param o0: float32[40] written
alloc t0: float32[40] scratch:
  for b0 in 5 block.x:
    for x0 in 8 thread.x:
      t0[8*b0 + x0] = mul(i0[8*b0 + x0], float32(2.0))
  for b1 in 5 block.x:
    for x1 in 8 thread.x:
      o0[8*b1 + x1] = add(t0[39 - 8*b1 - x1], float32(1.0))
""")

PROGRAMS = (ADD, TAIL, TRANSPOSE, ROWS, MATMUL, TWO)
