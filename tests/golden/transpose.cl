typedef int ix;
typedef float f32;
static inline ix clamp_index(ix i, ix lo, ix hi) {
    return i < lo ? lo : i > hi ? hi : i;
}
static inline ix wrap_index(long i, ix extent) {
    i = i < 0 ? i + extent : i;
    return i < 0 ? 0 : i < extent ? (ix)i : extent - 1;
}

__kernel __attribute__((reqd_work_group_size(16, 16, 1)))
void transpose_0(__global char *m0, const long a0, __global char *m1, const long a1)
{
    __global const f32 *i0_ = (__global const f32 *)(m0 + a0);
    __global f32 *o0_ = (__global f32 *)(m1 + a1);
    __local f32 tile_[271] __attribute__((aligned(64)));
    const ix by_ = (ix)get_group_id(1);
    const ix bx_ = (ix)get_group_id(0);
    {
        const ix y0_ = (ix)get_local_id(1);
        {
            const ix x0_ = (ix)get_local_id(0);
            tile_[x0_ + y0_ * 17] = i0_[bx_ * 16 + by_ * 768 + x0_ + y0_ * 48];
        }
    }
    barrier(CLK_LOCAL_MEM_FENCE);
    {
        const ix y1_ = (ix)get_local_id(1);
        {
            const ix x1_ = (ix)get_local_id(0);
            o0_[bx_ * 512 + by_ * 16 + x1_ + y1_ * 32] = tile_[x1_ * 17 + y1_];
        }
    }
}
