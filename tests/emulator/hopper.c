/* Hopper's own: barriers in shared memory, fetches by the copy engine, products of four warps.
 *
 * Fetches arrive at once, or when nothing else can go on: what depends on when they do has a race.
 * The sums of a product are kept until it is waited for; what stands for them until then is no
 * number. Operands that change while a product is on its way are found. */
#include "emulator.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

enum { DIMS = 5, MAX_FETCHES = 64, ROW = 128, DEPTH = 32, MAX_COLUMNS = 256, MAX_PRODUCTS = 256 };

/* -------------------------------------------------------------------------------------- barriers */

struct barrier { uint16_t expected, phase, pending; int16_t unused; };
static int32_t bytes_of[SHARED / 8]; /* still to come, per barrier */

/* The place in shared memory of an address in the GPU's window. */
static uint32_t place_of(uint32_t address) {
    return (address - (uint32_t)(uintptr_t)shared_memory) % WINDOW;
}

static struct barrier *barrier_at(uint32_t place) {
    if (place % 8 || place + 8 > SHARED) failure = ODD;
    return (struct barrier *)(shared_memory + (failure == ODD ? 0 : place));
}

static void advance(uint32_t place) {
    struct barrier *barrier = barrier_at(place);
    if (barrier->pending || bytes_of[place / 8]) return;
    barrier->phase ^= 1;
    barrier->pending = barrier->expected;
}

void emulate_barrier_init(uint32_t place, uint32_t arrivals) {
    place = place_of(place);
    *barrier_at(place) = (struct barrier){(uint16_t)arrivals, 0, (uint16_t)arrivals, 0};
    bytes_of[place / 8] = 0;
}

void emulate_arrive(uint32_t place) {
    place = place_of(place);
    if (!barrier_at(place)->pending--) failure = NEVER;
    advance(place);
}

void emulate_expect(uint32_t place, uint32_t bytes) {
    bytes_of[place_of(place) / 8] += (int32_t)bytes;
    emulate_arrive(place);
}

int phase_is_over(struct thread *thread) {
    return barrier_at(thread->barrier)->phase != thread->parity;
}

void emulate_wait(uint32_t place, uint32_t parity) {
    now->barrier = place_of(place);
    now->parity = parity;
    while (!phase_is_over(now) && !failure) wait_as(AT_PHASE);
}

void emulate_fence_init(void) {}
void emulate_prepare(const void *map) { (void)map; }

/* --------------------------------------------------------------------------------------- fetches */

/* The description of a tensor, as tests/emulator makes it; the innermost dimension first. */
struct map {
    const uint8_t *address;
    int64_t strides[DIMS]; /* bytes; the first is an element's */
    int32_t rank, extents[DIMS], box[DIMS];
};
struct fetch { uint32_t to, barrier; const struct map *map; int32_t first[DIMS]; };
static struct fetch fetches[MAX_FETCHES];
static int under_way;

/* 16 bytes at place c of row r lie at place c ^ r % 8. */
static uint32_t swizzled(uint32_t place, int bits) {
    return place ^ (place >> 7 & ((1u << bits) - 1)) << 4;
}

static void arrive(const struct fetch *fetch) {
    const struct map *map = fetch->map;
    int32_t at[DIMS] = {0}, item = (int32_t)map->strides[0], count = 1;
    for (int d = 0; d < map->rank; d++) count *= map->box[d];
    if (fetch->to % ROW || map->box[0] * item != ROW || fetch->to + count * item > SHARED) {
        failure = ODD;
        return;
    }
    for (int32_t i = 0; i < count; i++) {
        int inside = 1;
        int64_t offset = 0;
        for (int d = 0; d < map->rank; d++) {
            int32_t place = fetch->first[d] + at[d];
            inside &= place >= 0 && place < map->extents[d];
            offset += place * map->strides[d];
        }
        uint8_t *to = shared_memory + swizzled(fetch->to + (uint32_t)(i * item), 3);
        if (inside) memcpy(to, map->address + offset, (size_t)item);
        else memset(to, 0, (size_t)item);
        for (int d = 0; d < map->rank && ++at[d] == map->box[d]; d++) at[d] = 0;
    }
    bytes_of[fetch->barrier / 8] -= count * item;
    advance(fetch->barrier);
}

int fetch_arrives(void) {
    if (!under_way) return 0;
    arrive(&fetches[0]);
    memmove(fetches, fetches + 1, (size_t)--under_way * sizeof *fetches);
    return 1;
}

void emulate_fetch(uint32_t to, const struct map *map, uint32_t barrier, int32_t rank, int32_t a,
                   int32_t b, int32_t c, int32_t d, int32_t e) {
    struct fetch fetch = {place_of(to), place_of(barrier), map, {a, b, c, d, e}};
    if (rank != map->rank) failure = ODD;
    else if (early) arrive(&fetch);
    else if (under_way == MAX_FETCHES) failure = TOO_MANY_COPIES;
    else fetches[under_way++] = fetch;
}

/* --------------------------------------------------------------------------- products of 4 warps */

struct product { uint64_t a, b, sum; int columns, batch; };
struct group { struct product products[MAX_PRODUCTS]; int count, batches, fenced; };
static struct group groups[MAX_THREADS / GROUP];

static struct group *group_of(struct thread *thread) { return &groups[thread->tid[0] / GROUP]; }

void hopper_begin(void) {
    memset(groups, 0, sizeof groups);
    under_way = 0;
}

int hopper_left(struct thread *thread) {
    return group_of(thread)->count || thread->held;
}

/* What operands are made of; sums of bytes are whole numbers. */
enum operands { BFLOATS, HALVES, BYTES, UNSIGNED };

/* A byte of a row of an operand, as its descriptor says. */
static const uint8_t *operand(uint64_t descriptor, int row, int byte) {
    static const int widths[] = {16, 128, 64, 32}, swizzles[] = {0, 3, 2, 1};
    int mode = (int)(descriptor >> 62), width = widths[mode];
    uint32_t start = place_of((uint32_t)(descriptor & 0x3FFF) << 4);
    uint32_t leading = (uint32_t)(descriptor >> 16 & 0x3FFF) << 4;
    uint32_t stride = (uint32_t)(descriptor >> 32 & 0x3FFF) << 4;
    uint32_t place = start + row / 8 * stride + row % 8 * width;
    place += mode ? (uint32_t)byte : byte / 16 * leading + byte % 16;
    place = swizzled(place, swizzles[mode]);
    return shared_memory + (place + 2 > SHARED ? 0 : place);
}

static uint64_t fingerprint(uint64_t descriptor, int rows) {
    uint64_t sum = 0;
    for (int row = 0; row < rows; row++)
        for (int byte = 0; byte < DEPTH; byte += 2) {
            const uint8_t *at = operand(descriptor, row, byte);
            sum = (sum ^ at[0] ^ (uint64_t)at[1] << 8) * 0x100000001B3u + 1;
        }
    return sum;
}

static uint64_t both(const struct product *product) {
    return fingerprint(product->a, 64) * 3 + fingerprint(product->b, product->columns);
}

/* Rows of 32 bytes. Gives how many elements they are. */
static int unpack(float to[][DEPTH], uint64_t descriptor, int rows, enum operands kind) {
    int item = kind < BYTES ? 2 : 1, depth = DEPTH / item;
    for (int row = 0; row < rows; row++)
        for (int k = 0; k < depth; k++) {
            const uint8_t *at = operand(descriptor, row, item * k);
            uint32_t word = kind < BYTES ? (uint32_t)at[0] << 16 | (uint32_t)at[1] << 24 : 0;
            if (kind == BYTES) to[row][k] = (float)(int8_t)at[0];
            else if (kind == UNSIGNED) to[row][k] = (float)at[0];
            else if (kind == HALVES) to[row][k] = (float)half((uint16_t)(word >> 16));
            else memcpy(&to[row][k], &word, 4);
        }
    return depth;
}

/* A sum with more added to it, in the same 32 bits. */
static float added(float sum, double more, int whole) {
    int32_t number;
    if (!whole) return (float)(sum + more);
    memcpy(&number, &sum, 4);
    number += (int32_t)more;
    memcpy(&sum, &number, 4);
    return sum;
}

/* Sums that are not there yet: no numbers, which say where the thread keeps them. */
static const uint32_t TOKEN = 0x7FE00000u;

static int token_of(float value) {
    uint32_t word;
    memcpy(&word, &value, 4);
    return (word & TOKEN) == TOKEN && word - TOKEN < MAX_SUMS ? (int)(word - TOKEN) : -1;
}

struct request { struct thread *thread; float *sums; uint64_t a, b; int columns, kind; };

static void multiply(void **lanes) {
    static float left[64][DEPTH], right[MAX_COLUMNS][DEPTH];
    struct request *first = lanes[0];
    struct group *group = group_of(first->thread);
    struct product product = {first->a, first->b, 0, first->columns, group->batches};
    if (!group->fenced) failure = UNFENCED;
    if (group->count == MAX_PRODUCTS) failure = TOO_MANY_COPIES;
    int whole = first->kind >= BYTES, depth = unpack(left, first->a, 64, first->kind);
    unpack(right, first->b, first->columns, whole ? BYTES : first->kind);
    for (int t = 0; t < GROUP && !failure; t++) {
        struct request *mine = lanes[t];
        if (mine->a != first->a || mine->b != first->b) failure = DIVERGED;
        for (int i = 0; i < mine->columns / 2; i++) {
            int row = t / WARP * 16 + t % WARP / 4 + i / 2 % 2 * 8;
            int column = i / 4 * 8 + t % 4 * 2 + i % 2, token = token_of(mine->sums[i]);
            if (token < 0) {
                token = mine->thread->held++ % MAX_SUMS;
                mine->thread->sums[token] = mine->sums[i];
            }
            double sum = 0;
            for (int k = 0; k < depth; k++) sum += (double)left[row][k] * right[column][k];
            float *total = &mine->thread->sums[token];
            *total = added(*total, sum, whole);
            uint32_t word = TOKEN + (uint32_t)token;
            memcpy(&mine->sums[i], &word, 4);
        }
    }
    product.sum = both(&product);
    if (!failure) group->products[group->count++] = product;
}

void emulate_wgmma(float *sums, uint64_t a, uint64_t b, int columns, int kind) {
    struct request mine = {now, sums, a, b, columns, kind};
    together(AT_GROUP, multiply, &mine);
}

static void fence(void **lanes) { group_of(((struct request *)lanes[0])->thread)->fenced = 1; }

static void commit(void **lanes) { group_of(((struct request *)lanes[0])->thread)->batches++; }

static void finish(void **lanes) {
    struct request *first = lanes[0];
    struct group *group = group_of(first->thread);
    int kept = 0;
    for (int i = 0; i < group->count; i++) {
        struct product product = group->products[i];
        if (product.batch >= group->batches - first->columns) group->products[kept++] = product;
        else if (both(&product) != product.sum) failure = CHANGED;
    }
    group->count = kept;
    group->fenced = 0;
}

static void ask(collective what, int number) {
    struct request mine = {now, 0, 0, 0, number, 0};
    together(AT_GROUP, what, &mine);
}

void emulate_wgmma_fence(void) { ask(fence, 0); }
void emulate_wgmma_commit(void) { ask(commit, 0); }
void emulate_wgmma_wait(int pending) { ask(finish, pending); }

void emulate_keep(const float *sums) { (void)sums; }

void emulate_settle(float *sums, int count) {
    ask(finish, 0);
    for (int i = 0; i < count; i++) {
        int token = token_of(sums[i]);
        if (token >= 0) sums[i] = now->sums[token];
    }
    now->held = 0;
}
