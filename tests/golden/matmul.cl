typedef int ix;
typedef float f32;
typedef int i32;
typedef float4 f32x4;
#define f32x4_load(p) vload4(0, p)
#define f32x4_store(p, v) vstore4(v, 0, p)
typedef int4 i32x4;
#define i32x4_load(p) vload4(0, p)
#define i32x4_store(p, v) vstore4(v, 0, p)
static inline f32x4 f32x4_max(f32x4 a, f32x4 b) { return select(a, b, a < b); }
static inline ix clamp_index(ix i, ix lo, ix hi) {
    return i < lo ? lo : i > hi ? hi : i;
}
static inline ix wrap_index(long i, ix extent) {
    i = i < 0 ? i + extent : i;
    return i < 0 ? 0 : i < extent ? (ix)i : extent - 1;
}

__kernel __attribute__((reqd_work_group_size(8, 8, 1)))
void matmul_0(__global char *m0, const long a0, __global char *m1, const long a1, __global char *m2, const long a2)
{
    __global const f32 *i0_ = (__global const f32 *)(m0 + a0);
    __global const f32 *c0_ = (__global const f32 *)(m1 + a1);
    __global f32 *o0_ = (__global f32 *)(m2 + a2);
    __local f32 a_[256] __attribute__((aligned(64)));
    __local f32 b_[256] __attribute__((aligned(64)));
    const ix by_ = (ix)get_group_id(1);
    const ix bx_ = (ix)get_group_id(0);
    {
        f32x4 acc_0;
        f32x4 acc_4;
        f32x4 acc_8;
        f32x4 acc_12;
        {
            const ix ty0_ = (ix)get_local_id(1);
            {
                const ix tx0_ = (ix)get_local_id(0);
                acc_0 = (f32x4)(0.0f);
                acc_4 = (f32x4)(0.0f);
                acc_8 = (f32x4)(0.0f);
                acc_12 = (f32x4)(0.0f);
            }
        }
        for (ix ko_ = 0; ko_ < 4; ko_++) {
            barrier(CLK_LOCAL_MEM_FENCE);
            {
                const ix ty1_ = (ix)get_local_id(1);
                {
                    const ix tx1_ = (ix)get_local_id(0);
                    a_[tx1_ * 32 + ty1_ * 4] = i0_[by_ * 1024 + ko_ * 8 + tx1_ + ty1_ * 128];
                    a_[tx1_ * 32 + ty1_ * 4 + 1] = i0_[by_ * 1024 + ko_ * 8 + tx1_ + ty1_ * 128 + 32];
                    a_[tx1_ * 32 + ty1_ * 4 + 2] = i0_[by_ * 1024 + ko_ * 8 + tx1_ + ty1_ * 128 + 64];
                    a_[tx1_ * 32 + ty1_ * 4 + 3] = i0_[by_ * 1024 + ko_ * 8 + tx1_ + ty1_ * 128 + 96];
                    f32x4_store(b_ + tx1_ * 4 + ty1_ * 32, f32x4_load(c0_ + bx_ * 32 + ko_ * 512 + tx1_ * 4 + ty1_ * 64));
                }
            }
            barrier(CLK_LOCAL_MEM_FENCE);
            {
                const ix ty2_ = (ix)get_local_id(1);
                {
                    const ix tx2_ = (ix)get_local_id(0);
                    {
                        f32x4 left_0;
                        left_0 = f32x4_load(a_ + ty2_ * 4);
                        acc_0 = (left_0.s0 * f32x4_load(b_ + tx2_ * 4)) + acc_0;
                        acc_4 = (left_0.s1 * f32x4_load(b_ + tx2_ * 4)) + acc_4;
                        acc_8 = (left_0.s2 * f32x4_load(b_ + tx2_ * 4)) + acc_8;
                        acc_12 = (left_0.s3 * f32x4_load(b_ + tx2_ * 4)) + acc_12;
                    }
                    {
                        f32x4 left_0;
                        left_0 = f32x4_load(a_ + ty2_ * 4 + 32);
                        acc_0 = (left_0.s0 * f32x4_load(b_ + tx2_ * 4 + 32)) + acc_0;
                        acc_4 = (left_0.s1 * f32x4_load(b_ + tx2_ * 4 + 32)) + acc_4;
                        acc_8 = (left_0.s2 * f32x4_load(b_ + tx2_ * 4 + 32)) + acc_8;
                        acc_12 = (left_0.s3 * f32x4_load(b_ + tx2_ * 4 + 32)) + acc_12;
                    }
                    {
                        f32x4 left_0;
                        left_0 = f32x4_load(a_ + ty2_ * 4 + 64);
                        acc_0 = (left_0.s0 * f32x4_load(b_ + tx2_ * 4 + 64)) + acc_0;
                        acc_4 = (left_0.s1 * f32x4_load(b_ + tx2_ * 4 + 64)) + acc_4;
                        acc_8 = (left_0.s2 * f32x4_load(b_ + tx2_ * 4 + 64)) + acc_8;
                        acc_12 = (left_0.s3 * f32x4_load(b_ + tx2_ * 4 + 64)) + acc_12;
                    }
                    {
                        f32x4 left_0;
                        left_0 = f32x4_load(a_ + ty2_ * 4 + 96);
                        acc_0 = (left_0.s0 * f32x4_load(b_ + tx2_ * 4 + 96)) + acc_0;
                        acc_4 = (left_0.s1 * f32x4_load(b_ + tx2_ * 4 + 96)) + acc_4;
                        acc_8 = (left_0.s2 * f32x4_load(b_ + tx2_ * 4 + 96)) + acc_8;
                        acc_12 = (left_0.s3 * f32x4_load(b_ + tx2_ * 4 + 96)) + acc_12;
                    }
                    {
                        f32x4 left_0;
                        left_0 = f32x4_load(a_ + ty2_ * 4 + 128);
                        acc_0 = (left_0.s0 * f32x4_load(b_ + tx2_ * 4 + 128)) + acc_0;
                        acc_4 = (left_0.s1 * f32x4_load(b_ + tx2_ * 4 + 128)) + acc_4;
                        acc_8 = (left_0.s2 * f32x4_load(b_ + tx2_ * 4 + 128)) + acc_8;
                        acc_12 = (left_0.s3 * f32x4_load(b_ + tx2_ * 4 + 128)) + acc_12;
                    }
                    {
                        f32x4 left_0;
                        left_0 = f32x4_load(a_ + ty2_ * 4 + 160);
                        acc_0 = (left_0.s0 * f32x4_load(b_ + tx2_ * 4 + 160)) + acc_0;
                        acc_4 = (left_0.s1 * f32x4_load(b_ + tx2_ * 4 + 160)) + acc_4;
                        acc_8 = (left_0.s2 * f32x4_load(b_ + tx2_ * 4 + 160)) + acc_8;
                        acc_12 = (left_0.s3 * f32x4_load(b_ + tx2_ * 4 + 160)) + acc_12;
                    }
                    {
                        f32x4 left_0;
                        left_0 = f32x4_load(a_ + ty2_ * 4 + 192);
                        acc_0 = (left_0.s0 * f32x4_load(b_ + tx2_ * 4 + 192)) + acc_0;
                        acc_4 = (left_0.s1 * f32x4_load(b_ + tx2_ * 4 + 192)) + acc_4;
                        acc_8 = (left_0.s2 * f32x4_load(b_ + tx2_ * 4 + 192)) + acc_8;
                        acc_12 = (left_0.s3 * f32x4_load(b_ + tx2_ * 4 + 192)) + acc_12;
                    }
                    {
                        f32x4 left_0;
                        left_0 = f32x4_load(a_ + ty2_ * 4 + 224);
                        acc_0 = (left_0.s0 * f32x4_load(b_ + tx2_ * 4 + 224)) + acc_0;
                        acc_4 = (left_0.s1 * f32x4_load(b_ + tx2_ * 4 + 224)) + acc_4;
                        acc_8 = (left_0.s2 * f32x4_load(b_ + tx2_ * 4 + 224)) + acc_8;
                        acc_12 = (left_0.s3 * f32x4_load(b_ + tx2_ * 4 + 224)) + acc_12;
                    }
                }
            }
        }
        {
            const ix ty3_ = (ix)get_local_id(1);
            {
                const ix tx3_ = (ix)get_local_id(0);
                f32x4_store(o0_ + bx_ * 32 + by_ * 2048 + tx3_ * 4 + ty3_ * 256, f32x4_max(acc_0, (f32x4)(0.0f)));
                f32x4_store(o0_ + bx_ * 32 + by_ * 2048 + tx3_ * 4 + ty3_ * 256 + 64, f32x4_max(acc_4, (f32x4)(0.0f)));
                f32x4_store(o0_ + bx_ * 32 + by_ * 2048 + tx3_ * 4 + ty3_ * 256 + 128, f32x4_max(acc_8, (f32x4)(0.0f)));
                f32x4_store(o0_ + bx_ * 32 + by_ * 2048 + tx3_ * 4 + ty3_ * 256 + 192, f32x4_max(acc_12, (f32x4)(0.0f)));
            }
        }
    }
}
