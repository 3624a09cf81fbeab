#include <math.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>
typedef ptrdiff_t ix;
typedef float f32;
typedef int64_t i64;
typedef f32 f32x4 __attribute__((vector_size(16)));
typedef f32 f32x4_u __attribute__((vector_size(16), aligned(4), may_alias));
#define f32x4_load(p) ((f32x4)*(const f32x4_u *)(p))
#define f32x4_store(p, ...) (*(f32x4_u *)(p) = (__VA_ARGS__))
static inline ix clamp_index(ix i, ix lo, ix hi) {
    return i < lo ? lo : i > hi ? hi : i;
}
static inline ix wrap_index(int64_t i, ix extent) {
    i = i < 0 ? i + extent : i;
    return i < 0 ? 0 : i >= extent ? extent - 1 : (ix)i;
}

void matmul(void *p0, void *p1, void *p2, void *workspace, int64_t thread, int64_t threads)
{
    const f32 *i0_ = (const f32 *)p0;
    const f32 *c0_ = (const f32 *)p1;
    f32 *o0_ = (f32 *)p2;
    for (ix mo_ = 0; mo_ < 2; mo_++) {
        for (ix no_ = 0; no_ < 2; no_++) {
            {
                f32x4 o0_reg_0;
                f32x4 o0_reg_4;
                o0_reg_0 = ((0.0f) - (f32x4){0});
                o0_reg_4 = ((0.0f) - (f32x4){0});
                for (ix o0_k_ = 0; o0_k_ < 3; o0_k_++) {
                    o0_reg_0 = (i0_[mo_ * 6 + o0_k_] * f32x4_load(c0_ + no_ * 12 + o0_k_ * 4)) + o0_reg_0;
                    o0_reg_4 = (i0_[mo_ * 6 + o0_k_ + 3] * f32x4_load(c0_ + no_ * 12 + o0_k_ * 4)) + o0_reg_4;
                }
                f32x4_store(o0_ + mo_ * 16 + no_ * 4, o0_reg_0);
                f32x4_store(o0_ + mo_ * 16 + no_ * 4 + 8, o0_reg_4);
            }
        }
    }
}

#if defined(__SSE__)
static inline uint32_t get_control(void) {
    uint32_t word;
    __asm__ volatile("stmxcsr %0" : "=m"(word) : : "memory");
    return word;
}
static inline void set_control(uint32_t word) {
    __asm__ volatile("ldmxcsr %0" : : "m"(word) : "memory");
}
#define KERNEL_CONTROL 40896
#elif defined(__aarch64__)
static inline uint64_t get_control(void) {
    uint64_t word;
    __asm__ volatile("mrs %0, fpcr" : "=r"(word) : : "memory");
    return word;
}
static inline void set_control(uint64_t word) {
    __asm__ volatile("msr fpcr, %0" : : "r"(word) : "memory");
}
#define KERNEL_CONTROL 16777216
#elif defined(__ARM_FP)
static inline uint32_t get_control(void) {
    uint32_t word;
    __asm__ volatile("vmrs %0, fpscr" : "=r"(word) : : "memory");
    return word;
}
static inline void set_control(uint32_t word) {
    __asm__ volatile("vmsr fpscr, %0" : : "r"(word) : "memory");
}
#define KERNEL_CONTROL 16777216
#else
static inline uint32_t get_control(void) { return 0; }
static inline void set_control(uint32_t word) { (void)word; }
#define KERNEL_CONTROL 0
#endif
void matmul_run(void **args, int64_t repeats)
{
    const int64_t thread = 0, threads = 1;
    const uint64_t caller_control = get_control();
    set_control(KERNEL_CONTROL);
    for (int64_t i = 0; i < repeats; i++) {
        matmul(args[0], args[1], args[2], args[3], thread, threads);
    }
    set_control(caller_control);
}
