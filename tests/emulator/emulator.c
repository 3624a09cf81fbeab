/* Runs kernels written for NVIDIA GPUs on the processor: the meaning of NVPTX's intrinsics.
 *
 * A block's threads are contexts that take turns: each runs until it waits for the others of its
 * warp or its block. Shared memory starts as garbage in every block, and asynchronous copies
 * arrive as late as they may. `reversed` runs threads and blocks last to first, and copies arrive
 * at once: code whose result depends on the order has a race. Addresses must be as aligned as the
 * instruction needs, which faults on a GPU. Bank conflicts of `ldmatrix` and of asynchronous copies are
 * counted: how often more than once the memory is asked, for what it could give at once. */
#include "emulator.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

uint8_t shared_memory[SHARED] __attribute__((aligned(1024)));
struct thread *now;
int failure, early;

static struct thread threads[MAX_THREADS];
static char *stacks;
static ucontext_t scheduler;
static uint32_t ctaid[3];
static void (*entry)(void **);
static void **arguments;
static int64_t asked[2], conflicts[2];
enum { MATRICES, COPIES };

static void start(void) {
    entry(arguments);
    if (now->pending || hopper_left(now)) failure = COPIES_LEFT;
    now->state = FINISHED;
    swapcontext(&now->context, &scheduler);
}

void wait_as(enum state state) {
    now->state = state;
    swapcontext(&now->context, &scheduler);
}

void together(enum state where, collective what, void *operands) {
    now->wants = what;
    now->operands = operands;
    wait_as(where);
}

void emulate_aligned(const void *address, uint32_t bytes) {
    if ((uintptr_t)address % bytes == 0) return;
    failure = MISALIGNED;
    wait_as(FINISHED); /* never resumed */
}

static void resume(struct thread *thread) {
    now = thread;
    swapcontext(&scheduler, &thread->context);
}

/* What threads of a warp read or write by one instruction: 16 bytes by 8 of them at a time, less by
 * as many more. Threads that reach the same word get it at once. */
static void count(int kind, const uintptr_t *at, int threads, int bytes) {
    int together = WARP * 4 / bytes;
    for (int first = 0; first < threads; first += together) {
        uintptr_t words[WARP];
        int used[WARP] = {0}, most = 0, found = 0;
        for (int t = first; t < threads && t < first + together; t++)
            for (int byte = 0; byte < bytes; byte += 4) {
                uintptr_t word = (at[t] + (uintptr_t)byte) / 4;
                int known = 0;
                for (int i = 0; i < found; i++) known |= words[i] == word;
                if (known) continue;
                words[found++] = word;
                if (++used[word % WARP] > most) most = used[word % WARP];
            }
        asked[kind]++;
        conflicts[kind] += most - 1;
    }
}

/* Copies of a warp since it last waited: those of one place in the code belong together. */
static void count_copies(struct thread *first, int threads) {
    for (int t = 0; t < threads; t++)
        for (int i = 0; i < first[t].accessed; i++) {
            struct access one = first[t].accesses[i];
            uintptr_t at[WARP];
            int found = 0;
            if (!one.site) continue;
            for (int other = t; other < threads; other++)
                for (int n = 0; n < first[other].accessed; n++)
                    if (first[other].accesses[n].site == one.site) {
                        first[other].accesses[n].site = NULL;
                        at[found++] = first[other].accesses[n].at;
                        break;
                    }
            count(COPIES, at, found, one.bytes);
        }
    for (int t = 0; t < threads; t++) first[t].accessed = 0;
}

void emulate_conflicts(int64_t *out) {
    memcpy(out, asked, sizeof asked);
    memcpy(out + 2, conflicts, sizeof conflicts);
    memset(asked, 0, sizeof asked);
    memset(conflicts, 0, sizeof conflicts);
}

/* Whether `count` threads all wait for the same thing to do together; if so, it is done. */
static int do_together(struct thread *first, int count, enum state where) {
    void *lanes[GROUP];
    for (int i = 0; i < count; i++) {
        if (first[i].state != where || first[i].wants != first[0].wants) return 0;
        lanes[i] = first[i].operands;
    }
    first[0].wants(lanes);
    for (int i = 0; i < count; i++) first[i].state = READY;
    return 1;
}

/* Run a warp until every thread of it waits for others or has finished; says whether any ran. */
static int run_warp(struct thread *first, int count, int reversed) {
    for (int ran = 0;; ran = 1) {
        int any = 0;
        for (int i = 0; i < count; i++) {
            struct thread *thread = first + (reversed ? count - 1 - i : i);
            if (thread->state == AT_PHASE && phase_is_over(thread)) thread->state = READY;
            if (thread->state != READY) continue;
            any = 1;
            resume(thread);
            if (failure) return 1;
        }
        count_copies(first, count);
        if (count == WARP && do_together(first, WARP, AT_WARP)) continue;
        if (!any) return ran;
    }
}

/* What a block in which nothing runs any more waits for; OK if it may go on. */
static int stuck(int count) {
    int waiting[FINISHED + 1] = {0};
    for (int i = 0; i < count; i++) waiting[threads[i].state]++;
    if (waiting[AT_BARRIER] == count) {
        for (int i = 0; i < count; i++) threads[i].state = READY;
        return OK;
    }
    return waiting[AT_PHASE] ? NEVER : DIVERGED;
}

static void run_block(int count, int reversed) {
    memset(shared_memory, 0xFF, SHARED);
    for (int i = 0; i < count; i++) {
        getcontext(&threads[i].context);
        threads[i].context.uc_stack.ss_sp = stacks + (size_t)i * STACK;
        threads[i].context.uc_stack.ss_size = STACK;
        threads[i].state = READY;
        threads[i].pending = threads[i].groups = threads[i].accessed = threads[i].held = 0;
        makecontext(&threads[i].context, start, 0);
    }
    early = reversed;
    hopper_begin();
    for (int finished = 0; finished < count && !failure;) {
        int warps = (count + WARP - 1) / WARP, ran = 0;
        for (int w = 0; w < warps && !failure; w++) {
            int first = (reversed ? warps - 1 - w : w) * WARP;
            ran |= run_warp(threads + first, count - first < WARP ? count - first : WARP, reversed);
        }
        for (int g = 0; g + GROUP <= count && !failure; g += GROUP)
            ran |= do_together(threads + g, GROUP, AT_GROUP);
        finished = 0;
        for (int i = 0; i < count; i++) finished += threads[i].state == FINISHED;
        if (!ran && !failure && finished < count && !fetch_arrives()) failure = stuck(count);
    }
}

int emulate(void (*kernel)(void **), void **args, const uint32_t *grid, const uint32_t *block,
            int reversed) {
    uint32_t count = block[0] * block[1] * block[2], blocks = grid[0] * grid[1] * grid[2];
    if (count > MAX_THREADS) return TOO_MANY_THREADS;
    if (!stacks) stacks = malloc((size_t)MAX_THREADS * STACK);
    entry = kernel, arguments = args, failure = OK;
    for (uint32_t i = 0; i < count; i++) {
        threads[i].tid[0] = i % block[0];
        threads[i].tid[1] = i / block[0] % block[1];
        threads[i].tid[2] = i / block[0] / block[1];
    }
    for (uint32_t b = 0; b < blocks && !failure; b++) {
        uint32_t at = reversed ? blocks - 1 - b : b;
        ctaid[0] = at % grid[0], ctaid[1] = at / grid[0] % grid[1], ctaid[2] = at / grid[0] / grid[1];
        run_block((int)count, reversed);
    }
    return failure;
}

/* -------------------------------------------------------------------------------- intrinsics */

int32_t emu_read_ptx_sreg_tid_x(void) { return (int32_t)now->tid[0]; }
int32_t emu_read_ptx_sreg_tid_y(void) { return (int32_t)now->tid[1]; }
int32_t emu_read_ptx_sreg_tid_z(void) { return (int32_t)now->tid[2]; }
int32_t emu_read_ptx_sreg_ctaid_x(void) { return (int32_t)ctaid[0]; }
int32_t emu_read_ptx_sreg_ctaid_y(void) { return (int32_t)ctaid[1]; }
int32_t emu_read_ptx_sreg_ctaid_z(void) { return (int32_t)ctaid[2]; }
void emu_barrier_cta_sync_aligned_all(int32_t number) { (void)number, wait_as(AT_BARRIER); }

/* The special function unit is not exact: what it gives is off by as much as it may be. */
static double off;
void emulate_errors(double share) { off = share; }
static float about(double exact, double error) { return (float)(exact * (1 + off * error)); }

static float ulps(double exact, int count) {
    if (!isfinite(exact) || exact == 0) return (float)exact;
    return (float)(exact + off * count * ldexp(1, ilogb(exact) - 23));
}

float emu_div_full(float a, float b) { return ulps((double)a / b, 2); }
float emu_ex2_approx_ftz_f(float x) { return ulps(exp2(x), 2); }
float emu_rsqrt_approx_f(float x) { return about(1.0 / sqrt(x), 0x1.12p-23); }
float emu_sin_approx_f(float x) { return (float)(sin(x) + off * 0x1.6ap-21); }
float emu_cos_approx_f(float x) { return (float)(cos(x) + off * 0x1.6ap-21); }

/* -------------------------------------------------------------------------------- tensor cores */

struct operands { void *address; uint32_t *words; int count, turned; };

/* Thread 8 i + r names row r of matrix i, 8 rows of 16 bytes; thread t gets word t % 4 of row
 * t / 4 of each; turned, element t / 4 of rows 2 (t % 4) and the next. */
static void load_matrices(void **lanes) {
    int matrices = ((struct operands *)lanes[0])->count;
    for (int i = 0; i < matrices; i++) {
        uintptr_t rows[8];
        for (int r = 0; r < 8; r++)
            rows[r] = (uintptr_t)((struct operands *)lanes[8 * i + r])->address;
        count(MATRICES, rows, 8, 16);
        for (int t = 0; t < WARP; t++) {
            struct operands *mine = lanes[t];
            char *word = (char *)&mine->words[i];
            if (mine->turned)
                for (int h = 0; h < 2; h++) {
                    char *row = ((struct operands *)lanes[8 * i + 2 * (t % 4) + h])->address;
                    memcpy(word + 2 * h, row + 2 * (t / 4), 2);
                }
            else memcpy(word, (char *)((struct operands *)lanes[8 * i + t / 4])->address
                        + 4 * (t % 4), 4);
        }
    }
}

void emulate_ldmatrix(void *address, uint32_t *words, int count) {
    struct operands mine = {address, words, count, 0};
    emulate_aligned(address, 16);
    together(AT_WARP, load_matrices, &mine);
}

void emulate_ldmatrix_turned(void *address, uint32_t *words, int count) {
    struct operands mine = {address, words, count, 1};
    emulate_aligned(address, 16);
    together(AT_WARP, load_matrices, &mine);
}

/* LLVM calls these where the processor has no instruction that rounds to bfloat16, and no library
 * of Debian 12 has them. The result is in the low half of the register that returns a float. */
float __truncsfbf2(float x) {
    uint32_t bits;
    memcpy(&bits, &x, 4);
    if (isnan(x)) bits |= 0x400000u;
    else bits += 0x7FFFu + (bits >> 16 & 1);
    bits >>= 16;
    memcpy(&x, &bits, 4);
    return x;
}

float __truncdfbf2(double x) {
    float near = (float)x;
    uint32_t bits;
    memcpy(&bits, &near, 4);
    /* rounded to odd first, so that rounding twice is as rounding once */
    if (!isnan(x) && (double)near != x) {
        if (isinf(near) || fabs((double)near) > fabs(x)) bits -= 1;
        bits |= 1;
        memcpy(&near, &bits, 4);
    }
    return __truncsfbf2(near);
}

struct factors { uint32_t *a, *b; void *sum; };

enum kind { S8, U8, BF16, F16, TF32 };
static const int sizes[] = {1, 1, 2, 2, 4};

double half(uint16_t bits) {
    int exponent = bits >> 10 & 31, rest = bits & 1023;
    double size = exponent == 31 ? (rest ? NAN : INFINITY)
                : exponent ? ldexp(1024 + rest, exponent - 25) : ldexp(rest, -24);
    return bits & 0x8000 ? -size : size;
}

/* The element that begins at a byte of a word. */
static double element(uint32_t word, int byte, enum kind kind) {
    float out;
    if (kind == S8) return (int8_t)(word >> 8 * byte);
    if (kind == U8) return (uint8_t)(word >> 8 * byte);
    if (kind == F16) return half((uint16_t)(word >> 8 * byte));
    word = kind == TF32 ? word & 0xFFFFE000u : byte ? word & 0xFFFF0000u : word << 16;
    memcpy(&out, &word, 4);
    return out;
}

/* Row r of 32 bytes is held by threads 4 r .. 4 r + 3: byte i in word i / 16 of thread i / 4 % 4;
 * rows of `a` beyond 8 in every other word. */
static void multiply(void **lanes, enum kind kind) {
    for (int m = 0; m < 16; m++)
        for (int n = 0; n < 8; n++) {
            double sum = 0;
            for (int byte = 0; byte < 32; byte += sizes[kind]) {
                struct factors *left = lanes[m % 8 * 4 + byte / 4 % 4];
                struct factors *right = lanes[n * 4 + byte / 4 % 4];
                sum += element(left->a[m / 8 + 2 * (byte / 16)], byte % 4, kind) *
                       element(right->b[byte / 16], byte % 4, kind == U8 ? S8 : kind);
            }
            void *total = ((struct factors *)lanes[m % 8 * 4 + n / 2])->sum;
            int at = n % 2 + 2 * (m / 8);
            if (kind <= U8) ((int32_t *)total)[at] += (int32_t)sum;
            else ((float *)total)[at] = (float)(((float *)total)[at] + sum);
        }
}

static void multiply_s8(void **lanes) { multiply(lanes, S8); }
static void multiply_u8(void **lanes) { multiply(lanes, U8); }
static void multiply_bf16(void **lanes) { multiply(lanes, BF16); }
static void multiply_f16(void **lanes) { multiply(lanes, F16); }
static void multiply_tf32(void **lanes) { multiply(lanes, TF32); }

void emulate_mma(uint32_t *a, uint32_t *b, void *sum, int kind) {
    static const collective all[] = {multiply_s8, multiply_u8, multiply_bf16, multiply_f16,
                                     multiply_tf32};
    struct factors mine = {a, b, sum};
    together(AT_WARP, all[kind], &mine);
}

/* ----------------------------------------------------------------------- exchange of registers */

struct exchange { int32_t value, distance; };

static void exchange(void **lanes) {
    int32_t values[WARP];
    for (int t = 0; t < WARP; t++) values[t] = ((struct exchange *)lanes[t])->value;
    for (int t = 0; t < WARP; t++) {
        struct exchange *mine = lanes[t];
        mine->value = values[t ^ mine->distance];
    }
}

int32_t emu_shfl_sync_bfly_i32(int32_t members, int32_t value, int32_t distance, int32_t clamp) {
    struct exchange mine = {value, distance};
    (void)members, (void)clamp;
    together(AT_WARP, exchange, &mine);
    return mine.value;
}

/* ------------------------------------------------------------------------- asynchronous copies */

static void copy(void *to, const void *from, int32_t bytes, const void *site) {
    emulate_aligned(to, (uint32_t)bytes);
    emulate_aligned(from, (uint32_t)bytes);
    if (now->pending == MAX_COPIES) {
        failure = TOO_MANY_COPIES;
        return;
    }
    if (now->accessed < MAX_COPIES)
        now->accesses[now->accessed++] = (struct access){site, (uintptr_t)to, bytes};
    if (early) memcpy(to, from, (size_t)bytes);
    else now->copies[now->pending++] = (struct copy){to, from, bytes, now->groups};
}

void emu_cp_async_commit_group(void) { now->groups++; }

void emu_cp_async_wait_group(int32_t newest) {
    int kept = 0;
    for (int i = 0; i < now->pending; i++) {
        struct copy copy = now->copies[i];
        if (copy.group < now->groups - newest) memcpy(copy.to, copy.from, (size_t)copy.bytes);
        else now->copies[kept++] = copy;
    }
    now->pending = kept;
}

#define SITE __builtin_return_address(0)
void emu_cp_async_ca_shared_global_4(void *to, const void *from) { copy(to, from, 4, SITE); }
void emu_cp_async_ca_shared_global_8(void *to, const void *from) { copy(to, from, 8, SITE); }
void emu_cp_async_cg_shared_global_16(void *to, const void *from) { copy(to, from, 16, SITE); }
