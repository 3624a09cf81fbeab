#include <math.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>
typedef ptrdiff_t ix;
typedef float f32;
typedef int32_t i32;
typedef int64_t i64;
typedef f32 f32x4 __attribute__((vector_size(16)));
typedef f32 f32x4_u __attribute__((vector_size(16), aligned(4), may_alias));
#define f32x4_load(p) ((f32x4)*(const f32x4_u *)(p))
#define f32x4_store(p, ...) (*(f32x4_u *)(p) = (__VA_ARGS__))
typedef i32 i32x4 __attribute__((vector_size(16)));
typedef i32 i32x4_u __attribute__((vector_size(16), aligned(4), may_alias));
#define i32x4_load(p) ((i32x4)*(const i32x4_u *)(p))
#define i32x4_store(p, ...) (*(i32x4_u *)(p) = (__VA_ARGS__))
static inline f32x4 f32x4_select(i32x4 m, f32x4 a, f32x4 b) { return (f32x4)((m & (i32x4)a) | (~m & (i32x4)b)); }
static inline f32x4 f32x4_max(f32x4 a, f32x4 b) { return f32x4_select(a < b, b, a); }
static inline ix clamp_index(ix i, ix lo, ix hi) {
    return i < lo ? lo : i > hi ? hi : i;
}
static inline ix wrap_index(int64_t i, ix extent) {
    i = i < 0 ? i + extent : i;
    return i < 0 ? 0 : i >= extent ? extent - 1 : (ix)i;
}

void conv(void *p0, void *p1, void *p2, void *p3, void *workspace, int64_t thread, int64_t threads)
{
    const f32 *i0_ = (const f32 *)p0;
    const f32 *c0_ = (const f32 *)p1;
    const f32 *c1_ = (const f32 *)p2;
    f32 *o0_ = (f32 *)p3;
    for (ix oo_ = thread * 2 / threads; oo_ < (thread + 1) * 2 / threads; oo_++) {
        for (ix t0_oh_ = 0; t0_oh_ < 6; t0_oh_++) {
            for (ix wo_ = 0; wo_ < 4; wo_++) {
                if (wo_ < 3) {
                    {
                        f32x4 t0_reg_0;
                        f32x4 t0_reg_4;
                        t0_reg_0 = ((0.0f) - (f32x4){0});
                        t0_reg_4 = ((0.0f) - (f32x4){0});
                        for (ix t0_kh_ = 0; t0_kh_ < 3; t0_kh_++) {
                            for (ix t0_kw_ = 0; t0_kw_ < 3; t0_kw_++) {
                                for (ix t0_ic_ = 0; t0_ic_ < 5; t0_ic_++) {
                                    t0_reg_0 = (i0_[t0_ic_ + t0_kh_ * 45 + t0_kw_ * 5 + t0_oh_ * 45 + wo_ * 10 - 50] * f32x4_load(c0_ + oo_ * 180 + t0_ic_ * 4 + t0_kh_ * 60 + t0_kw_ * 20)) + t0_reg_0;
                                    t0_reg_4 = (i0_[t0_ic_ + t0_kh_ * 45 + t0_kw_ * 5 + t0_oh_ * 45 + wo_ * 10 - 45] * f32x4_load(c0_ + oo_ * 180 + t0_ic_ * 4 + t0_kh_ * 60 + t0_kw_ * 20)) + t0_reg_4;
                                }
                            }
                        }
                        f32x4_store(o0_ + oo_ * 4 + t0_oh_ * 56 + wo_ * 16, f32x4_max((t0_reg_0 + f32x4_load(c1_ + oo_ * 4)), ((0.0f) - (f32x4){0})));
                        f32x4_store(o0_ + oo_ * 4 + t0_oh_ * 56 + wo_ * 16 + 8, f32x4_max((t0_reg_4 + f32x4_load(c1_ + oo_ * 4)), ((0.0f) - (f32x4){0})));
                    }
                }
                if (wo_ >= 3) {
                    {
                        f32x4 t0_reg_wo0_0;
                        f32x4 t0_reg_wo0_4;
                        t0_reg_wo0_0 = ((0.0f) - (f32x4){0});
                        t0_reg_wo0_4 = ((0.0f) - (f32x4){0});
                        for (ix t0_kh_wo0_ = 0; t0_kh_wo0_ < 3; t0_kh_wo0_++) {
                            for (ix t0_kw_wo0_ = 0; t0_kw_wo0_ < 3; t0_kw_wo0_++) {
                                for (ix t0_ic_wo0_ = 0; t0_ic_wo0_ < 5; t0_ic_wo0_++) {
                                    t0_reg_wo0_0 = (i0_[t0_ic_wo0_ + t0_kh_wo0_ * 45 + t0_kw_wo0_ * 5 + t0_oh_ * 45 - 20] * f32x4_load(c0_ + oo_ * 180 + t0_ic_wo0_ * 4 + t0_kh_wo0_ * 60 + t0_kw_wo0_ * 20)) + t0_reg_wo0_0;
                                }
                            }
                        }
                        f32x4_store(o0_ + oo_ * 4 + t0_oh_ * 56 + 48, f32x4_max((t0_reg_wo0_0 + f32x4_load(c1_ + oo_ * 4)), ((0.0f) - (f32x4){0})));
                    }
                }
            }
        }
    }
}

#include <omp.h>
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
void conv_run(void **args, int64_t repeats)
{
#pragma omp parallel num_threads(2)
    {
        const int64_t thread = omp_get_thread_num(), threads = omp_get_num_threads();
        const uint64_t caller_control = get_control();
        set_control(KERNEL_CONTROL);
        for (int64_t i = 0; i < repeats; i++) {
            conv(args[0], args[1], args[2], args[3], args[4], thread, threads);
            #pragma omp barrier
        }
        set_control(caller_control);
    }
}
