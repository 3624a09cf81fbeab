typedef int ix;
typedef float f32;
static inline ix clamp_index(ix i, ix lo, ix hi) {
    return i < lo ? lo : i > hi ? hi : i;
}
static inline ix wrap_index(long i, ix extent) {
    i = i < 0 ? i + extent : i;
    return i < 0 ? 0 : i < extent ? (ix)i : extent - 1;
}

__kernel __attribute__((reqd_work_group_size(64, 1, 1)))
void rows_0(__global char *m0, const long a0, __global char *m1, const long a1)
{
    __global const f32 *i0_ = (__global const f32 *)(m0 + a0);
    __global f32 *o0_ = (__global f32 *)(m1 + a1);
    __local f32 part_[64] __attribute__((aligned(64)));
    const ix b_ = (ix)get_group_id(0);
    {
        const ix t0_ = (ix)get_local_id(0);
        part_[t0_] = exp(i0_[b_ * 64 + t0_]);
    }
    barrier(CLK_LOCAL_MEM_FENCE);
    if (get_local_id(0) < 32) {
        const ix t1_ = (ix)get_local_id(0);
        part_[t1_] = part_[t1_ + 32] + part_[t1_];
    }
    barrier(CLK_LOCAL_MEM_FENCE);
    if (get_local_id(0) < 16) {
        const ix t2_ = (ix)get_local_id(0);
        part_[t2_] = part_[t2_ + 16] + part_[t2_];
    }
    barrier(CLK_LOCAL_MEM_FENCE);
    if (get_local_id(0) < 1) {
        for (ix k_ = 0; k_ < 16; k_++) {
            if (k_ >= 1) {
                part_[0] = part_[k_] + part_[0];
            }
        }
    }
    barrier(CLK_LOCAL_MEM_FENCE);
    if (get_local_id(0) < 1) {
        o0_[b_] = part_[0];
    }
}
