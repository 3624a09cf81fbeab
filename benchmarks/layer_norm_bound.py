"""How fast a layer norm of rows in the second cache can be: two kernels by hand, and copying.

In: a C compiler and a core with 512-bit vectors. Out: microseconds of 128 rows of 384, and the
share of copying them. `in turn`: pass after pass over eight rows, as the generator does. `mixed`:
the pass that finds mean and variance of four rows goes through the pipelines beside the last pass
of the four before, four vectors of each row at a time, so that adders and multipliers work at once
and whole lines come and go; the sums along four rows are added up together.

Usage: python benchmarks/layer_norm_bound.py [--seconds 3]
"""

from __future__ import annotations

import by_hand

SOURCE = r"""
#define _GNU_SOURCE
#include <immintrin.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <time.h>
enum { C = 384, ROWS = 128, MANY = 8, K = 4, AT_ONCE = 4 };
typedef __m512 V;
typedef void kernel(const float *, const float *, const float *, float *);
#define L(p) _mm512_loadu_ps(p)
#define ALL(v) _mm512_set1_ps(v)
#define FMA _mm512_fmadd_ps
#define UNPACK(kind, part, a, b) (V)_mm512_unpack##part##kind(AS(kind, a), AS(kind, b))
#define AS(kind, a) AS##kind(a)
#define AS_ps(a) (a)
#define AS_pd(a) _mm512_castps_pd(a)
#define PAIRS(kind, a, b) (UNPACK(kind, lo, a, b) + UNPACK(kind, hi, a, b))
#define EACH(k) _Pragma("GCC unroll 8") for (int k = 0; k < K; k++)
#define EACH_OF(c) _Pragma("GCC unroll 8") for (int c = from; c < from + 16 * AT_ONCE; c += 16)
#define VECTORS(n) for (int from = 0, c = 0; from < C; from += 16 * n, c = from)

static void in_turn(const float *x, const float *g, const float *b, float *restrict y) {
  float mean[MANY], scale[MANY];
  for (int i = 0; i < ROWS; i += MANY, x += MANY * C, y += MANY * C) {
    for (int k = 0; k < MANY; k++) {
      V first = ALL(x[k * C]), s[2] = {}, q[2] = {};
      for (int c = 0; c < C; c += 32)
        _Pragma("GCC unroll 2") for (int j = 0; j < 2; j++) {
          V d = L(x + k * C + c + 16 * j) - first;
          s[j] += d;
          q[j] = FMA(d, d, q[j]);
        }
      float m = _mm512_reduce_add_ps(s[0] + s[1]) / C;
      mean[k] = m + x[k * C];
      scale[k] = _mm512_reduce_add_ps(q[0] + q[1]) / C - m * m;
    }
    for (int k = 0; k < MANY; k++) scale[k] = 1 / sqrtf(scale[k] + 1e-12f);
    for (int k = 0; k < MANY; k += 2)
      VECTORS(1)
        _Pragma("GCC unroll 2") for (int j = k; j < k + 2; j++)
          _mm512_storeu_ps(y + j * C + c,
            FMA((L(x + j * C + c) - ALL(mean[j])) * ALL(scale[j]), L(g + c), L(b + c)));
  }
}

static void mixed(const float *x, const float *g, const float *b, float *restrict y) {
  float mean[2][K], scale[2][K];
  for (int i = -K; i < ROWS; i += K) {
    const float *next = x + (i + K) * C, *now = x + i * C;
    int old = (i / K) & 1, new = !old;
    V first[K], s[K], q[K], by[K], to[K];
    EACH(k) if (i >= 0) by[k] = ALL(scale[old][k]), to[k] = ALL(-mean[old][k] * scale[old][k]);
    EACH(k) if (i < ROWS - K) first[k] = ALL(next[k * C]), s[k] = q[k] = ALL(0);
#define SUM { V d = L(next + k * C + c) - first[k]; s[k] += d; q[k] = FMA(d, d, q[k]); }
#define OUT { V d = FMA(L(now + k * C + c), by[k], to[k]); \
              _mm512_storeu_ps(y + (i + k) * C + c, FMA(d, L(g + c), L(b + c))); }
    if (i < 0) VECTORS(1) EACH(k) SUM
    else if (i < ROWS - K) VECTORS(AT_ONCE) { EACH(k) EACH_OF(c) SUM EACH(k) EACH_OF(c) OUT }
    else VECTORS(1) EACH(k) OUT
    if (i == ROWS - K) break;
    V d = PAIRS(_pd, PAIRS(_ps, s[0], s[1]), PAIRS(_ps, s[2], s[3]));
    V e = PAIRS(_pd, PAIRS(_ps, q[0], q[1]), PAIRS(_ps, q[2], q[3]));
    V t = _mm512_shuffle_f32x4(d, e, 0x88) + _mm512_shuffle_f32x4(d, e, 0xDD);
    t = (t + _mm512_shuffle_f32x4(t, t, 0xB1)) / ALL(C);
    __m128 m = _mm512_castps512_ps128(t), squares = _mm512_extractf32x4_ps(t, 2);
    __m128 of = _mm_set_ps(next[3 * C], next[2 * C], next[C], next[0]);
    _mm_storeu_ps(scale[new], 1 / _mm_sqrt_ps(squares - m * m + 1e-12f));
    _mm_storeu_ps(mean[new], m + of);
  }
}

static void copying(const float *x, const float *g, const float *b, float *restrict y) {
  _Pragma("GCC unroll 4") for (int c = 0; c < ROWS * C; c += 16) _mm512_storeu_ps(y + c, L(x + c));
}

static double now_us(void) {
  struct timespec t;
  clock_gettime(CLOCK_MONOTONIC, &t);
  return 1e6 * t.tv_sec + 1e-3 * t.tv_nsec;
}

int main(int count, char **arguments) {
  char *memory = aligned_alloc(1 << 21, 3 << 21);
  madvise(memory, 3 << 21, MADV_HUGEPAGE);
  float *x = (float *)(memory + 1024), *y = (float *)(memory + (1 << 21) + 1024);
  float *g = (float *)(memory + (2 << 21)), *b = g + C, *right = malloc(4 * ROWS * C);
  for (int i = 0; i < ROWS * C; i++) x[i] = (rand() % 2000 - 1000) / 100.f;
  for (int i = 0; i < C; i++) g[i] = 1 + .01f * i, b[i] = .01f * i;
  kernel *kernels[] = {in_turn, mixed, copying};
  const char *names[] = {"in turn", "mixed", "copying"};
  double best[3] = {1e9, 1e9, 1e9}, end = now_us() + 1e6 * atof(arguments[1]), off = 0;
  in_turn(x, g, b, y);
  memcpy(right, y, 4 * ROWS * C);
  mixed(x, g, b, y);
  for (int i = 0; i < ROWS * C; i++) off = fmax(off, fabs(y[i] - right[i]));
  while (now_us() < end)
    for (int k = 0; k < 3; k++) {
      double start = now_us();
      for (int j = 0; j < 10; j++) kernels[k](x, g, b, y);
      best[k] = fmin(best[k], (now_us() - start) / 10);
    }
  for (int k = 0; k < 3; k++)
    printf("%-8s %6.2f us %4.0f %% of copying\n", names[k], best[k], 100 * best[2] / best[k]);
  return off > 1e-4;
}
"""

if __name__ == "__main__":
    by_hand.main(__doc__, SOURCE)
