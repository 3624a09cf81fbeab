"""How fast windows of stride 2 can be whose points begin amid lines: kernels by hand, and copying.

In: a C compiler and a core with 512-bit vectors. Out: microseconds of 28x28x136 -> 14x14x136, 3x3,
and the share of copying as many bytes. Tiles of two by two points and 16 channels, as two vectors
of 8 lanes, which no line ends in. Vectors of 16 lanes, every second of which two lines share, one
row or point at a time, and lines of the next tile asked for ahead were all slower. `in the first
cache` is the same work on one tile's data over and over; `reading` reads all rows once, in order.

Usage: python benchmarks/window_bound.py [--seconds 3]
"""

from __future__ import annotations

import by_hand

SOURCE = r"""
#define _GNU_SOURCE
#include <immintrin.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <time.h>
enum { C = 136, H = 14, ROW = 30 * C, OUT = H * C, MOVED = 28 * 28 * C + H * OUT };
typedef __m256 V;
typedef const float *In;
typedef void kernel(In, In, float *);
#define L _mm256_loadu_ps
#define UNROLL _Pragma("GCC unroll 9")
#define EACH(i, n) UNROLL for (int i = 0; i < n; i++)
#define INLINE static inline __attribute__((always_inline))
#define TILE(name) INLINE void name(In x, In w, float *y, int n)
#define AT(i, j) L(x + (i) * ROW + (j) * C + 8 * v)

TILE(depthwise_tile) {
  V s[2][2][2];
  EACH(v, n) EACH(i, 2) EACH(j, 2) s[i][j][v] = L(w + 9 * C + 8 * v);
  EACH(t, 9) EACH(v, n) {
    V weight = L(w + t * C + 8 * v);
    EACH(i, 2) EACH(j, 2)
      s[i][j][v] = _mm256_fmadd_ps(AT(2 * i + t / 3, 2 * j + t % 3), weight, s[i][j][v]);
  }
  EACH(v, n) EACH(i, 2) EACH(j, 2) _mm256_storeu_ps(y + i * OUT + j * C + 8 * v, s[i][j][v]);
}

TILE(pool_tile) {
  V zero = _mm256_setzero_ps(), ninth = _mm256_set1_ps(1 / 9.f);
  EACH(v, n) EACH(i, 2) {
    V s[5];
    EACH(j, 5) s[j] = AT(2 * i, j) + AT(2 * i + 1, j) + AT(2 * i + 2, j);
    EACH(j, 2) _mm256_storeu_ps(y + i * OUT + j * C + 8 * v,
      _mm256_max_ps((s[2 * j] + s[2 * j + 1] + s[2 * j + 2]) * ninth, zero));
  }
}

#define KERNELS(name, tile, X, Y) \
static void name(In x, In w, float *y) { \
  for (int r = 0; r < H; r += 2) for (int c = 0; c < H; c += 2) { \
    In p = x + X; \
    float *q = y + Y; \
    for (int k = 0; k < 128; k += 16) tile(p + k, w + k, q + k, 2); \
    tile(p + 128, w + 128, q + 128, 1); \
  } \
}
KERNELS(depthwise, depthwise_tile, 2 * r * ROW + 2 * c * C, r * OUT + c * C)
KERNELS(depthwise_inside, depthwise_tile, 0, 0)
KERNELS(pool, pool_tile, 2 * r * ROW + 2 * c * C, r * OUT + c * C)
KERNELS(pool_inside, pool_tile, 0, 0)

static void reading(In x, In w, float *y) {
  __m512 s[4] = {};
  for (int r = 0; r < 29; r++)
    for (int i = 0; i < 29 * C; i += 64)
      EACH(k, 4) s[k] += _mm512_loadu_ps(x + r * ROW + i + 16 * k);
  _mm512_storeu_ps(y, s[0] + s[1] + s[2] + s[3]);
}

static void copying(In x, In w, float *y) {
  UNROLL for (int i = 0; i < MOVED / 2; i += 16) _mm512_storeu_ps(y + i, _mm512_loadu_ps(x + i));
}

static double now_us(void) {
  struct timespec t;
  clock_gettime(CLOCK_MONOTONIC, &t);
  return 1e6 * t.tv_sec + 1e-3 * t.tv_nsec;
}

int main(int count, char **arguments) {
  char *memory = aligned_alloc(1 << 21, 3 << 21);
  madvise(memory, 3 << 21, MADV_HUGEPAGE);
  memset(memory, 0, 3 << 21);
  float *x = (float *)(memory + 1024), *y = (float *)(memory + (1 << 21) + 3072);
  float *w = (float *)(memory + (2 << 21));
  for (int i = 0; i < 30 * ROW; i++) x[i] = rand() % 100 / 10.f;
  for (int i = 0; i < 10 * C; i++) w[i] = rand() % 100 / 100.f;
  kernel *kernels[] = {depthwise, depthwise_inside, pool, pool_inside, reading, copying};
  const char *names[] = {"depthwise", "  in the first cache", "average pool",
                         "  in the first cache", "reading", "copying"};
  double best[6] = {1e9, 1e9, 1e9, 1e9, 1e9, 1e9}, end = now_us() + 1e6 * atof(arguments[1]);
  while (now_us() < end)
    for (int k = 0; k < 6; k++) {
      double start = now_us();
      for (int j = 0; j < 10; j++) kernels[k](x, w, y);
      double each = (now_us() - start) / 10;
      if (each < best[k]) best[k] = each;
    }
  for (int k = 0; k < 6; k++)
    printf("%-21s %5.2f us %4.0f %% of copying\n", names[k], best[k], 100 * best[5] / best[k]);
  return 0;
}
"""

if __name__ == "__main__":
    by_hand.main(__doc__, SOURCE)
