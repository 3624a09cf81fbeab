/* libcuda.so.1 and libnvidia-ml.so.1 of a machine with one H200, whose kernels the emulator runs;
 * or with the GPUs of a file `gpus` beside the library: capability, MiB, name in a line for each.
 *
 * So the real packages make the real calls, and what the driver would refuse is refused: handles and
 * addresses it never gave, calls without a context, blocks and shared memory beyond the limits,
 * waiting for a stream that is being captured. Everything is done when it is asked for. A file
 * `fault` beside the library says what is wrong with the GPU. */
#define _GNU_SOURCE
#include "driver.h"

#include <dlfcn.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

enum { GUARD = 256, GPUS = 2 };
#define PATH_LENGTH 4096

struct gpu { int major, minor; size_t memory; char name[64]; int retained; };

struct block { uint8_t *first; size_t bytes; struct block *next; };

int sticky;
static struct gpu gpus[GPUS] = {{9, 0, 143771ull << 20, "NVIDIA H200", 0}};
static int started, gpu_count = 1;
static __thread struct gpu *current;
static struct block *blocks;

/* Launches, replays, bytes that are allocated, contexts that are held. */
void emulated_counts(int64_t *out) {
    emulated_queue(out, out + 1);
    out[2] = 0, out[3] = gpus[0].retained + gpus[1].retained;
    for (struct block *b = blocks; b; b = b->next) out[2] += (int64_t)b->bytes;
}

FILE *beside(const char *name, const char *mode) {
    Dl_info here;
    char path[PATH_LENGTH];
    dladdr((void *)beside, &here);
    snprintf(path, sizeof path, "%s", here.dli_fname);
    snprintf(strrchr(path, '/') + 1, 32, "%s", name);
    return fopen(path, mode);
}

int fault(const char *wanted) {
    char word[64] = "";
    FILE *file = beside("fault", "r");
    if (!file) return 0;
    if (!fgets(word, sizeof word, file)) word[0] = 0;
    fclose(file);
    return !strcmp(word, wanted);
}

int usable(void) {
    if (!started) return NOT_INITIALIZED;
    if (sticky) return sticky;
    return current ? SUCCESS : INVALID_CONTEXT;
}
/* ---------------------------------------------------------------------------------------- device */

static void read_gpus(void) {
    FILE *file = beside("gpus", "r");
    if (!file) return;
    for (gpu_count = 0; gpu_count < GPUS; gpu_count++) {
        struct gpu *gpu = &gpus[gpu_count];
        if (fscanf(file, "%d.%d %zu %63[^\n]", &gpu->major, &gpu->minor, &gpu->memory, gpu->name) < 4)
            break;
        gpu->memory <<= 20;
    }
    fclose(file);
}

static int init(unsigned flags) {
    if (flags) return INVALID_VALUE;
    while (fault("hung")) sleep(1);
    if (fault("lost")) return UNKNOWN;
    if (fault("none")) return NO_DEVICE;
    if (!started) read_gpus();
    started = 1;
    return SUCCESS;
}

static int driver_version(int *out) { return *out = fault("old") ? 10020 : 13000, SUCCESS; }
static int device_count(int *out) { return *out = gpu_count, started ? SUCCESS : NOT_INITIALIZED; }
static int is_gpu(int number) { return started && number >= 0 && number < gpu_count; }

static int device_get(int *out, int number) {
    if (!started) return NOT_INITIALIZED;
    return *out = number, is_gpu(number) ? SUCCESS : INVALID_VALUE;
}

static int device_attribute(int *out, int key, int device) {
    if (!is_gpu(device)) return INVALID_VALUE;
    const int known[][2] = {
        {1, 1024}, {8, 49152}, {10, 32}, {13, 1980000}, {16, 132}, {38, 62914560},
        {75, gpus[device].major}, {76, gpus[device].minor}, {97, 232448}};
    for (size_t i = 0; i < sizeof known / sizeof *known; i++)
        if (known[i][0] == key) return *out = known[i][1], SUCCESS;
    return INVALID_VALUE;
}

static int device_name(char *out, int length, int device) {
    if (!is_gpu(device)) return INVALID_VALUE;
    return snprintf(out, (size_t)length, "%s", gpus[device].name), SUCCESS;
}

static int device_bus(char *out, int length, int device) {
    if (!is_gpu(device)) return INVALID_VALUE;
    return snprintf(out, (size_t)length, BUS, device), SUCCESS;
}

static int device_memory(size_t *out, int device) {
    if (!is_gpu(device)) return INVALID_VALUE;
    return *out = gpus[device].memory, SUCCESS;
}

static int context_retain(void **out, int device) {
    if (!is_gpu(device)) return started ? INVALID_VALUE : NOT_INITIALIZED;
    gpus[device].retained++;
    return *out = &gpus[device], SUCCESS;
}

static int context_release(int device) {
    if (!is_gpu(device) || !gpus[device].retained) return INVALID_CONTEXT;
    gpus[device].retained--;
    return SUCCESS;
}

static int context_set(void *context) {
    struct gpu *gpu = context;
    if (gpu && ((gpu != &gpus[0] && gpu != &gpus[1]) || !gpu->retained)) return INVALID_CONTEXT;
    return current = gpu, SUCCESS;
}

/* ---------------------------------------------------------------------------------------- memory */

/* The block in which so many bytes lie. */
static struct block *block_of(uintptr_t at, size_t bytes) {
    for (struct block *b = blocks; b; b = b->next) {
        uintptr_t first = (uintptr_t)b->first;
        if (at >= first && at + bytes <= first + b->bytes) return b;
    }
    return NULL;
}

int is_memory(uintptr_t at, size_t bytes) { return block_of(at, bytes) != NULL; }

static size_t free_bytes(void) {
    size_t used = fault("full") ? current->memory : 0;
    for (struct block *b = blocks; b; b = b->next) used += b->bytes;
    return current->memory - used;
}

static int memory_info(size_t *left, size_t *whole) {
    USABLE;
    return *left = free_bytes(), *whole = current->memory, SUCCESS;
}

static int allocate(uintptr_t *out, size_t bytes) {
    USABLE;
    if (!bytes) return INVALID_VALUE;
    struct block *block = malloc(sizeof *block);
    uint8_t *memory = bytes > free_bytes() ? NULL : aligned_alloc(GUARD, (bytes + 3 * GUARD) / GUARD * GUARD);
    if (!memory) return free(block), OUT_OF_MEMORY;
    memset(memory, 0xFF, bytes + 2 * GUARD);
    *block = (struct block){memory + GUARD, bytes, blocks};
    blocks = block;
    return *out = (uintptr_t)block->first, SUCCESS;
}

/* Kernels that write beside their memory are found here. */
static int is_whole(const struct block *block) {
    for (int i = 0; i < GUARD; i++)
        if (block->first[-1 - i] != 0xFF || block->first[block->bytes + (size_t)i] != 0xFF) return 0;
    return 1;
}

static int give_back(uintptr_t at) {
    USABLE;
    for (struct block **b = &blocks; *b; b = &(*b)->next) {
        struct block *found = *b;
        if ((uintptr_t)found->first != at) continue;
        if (!is_whole(found)) sticky = ILLEGAL_ADDRESS;
        *b = found->next;
        free(found->first - GUARD);
        free(found);
        return SUCCESS;
    }
    return INVALID_VALUE;
}

static int upload(uintptr_t to, const void *from, size_t bytes, struct stream *stream) {
    if (idle(stream)) return idle(stream);
    if (!is_memory(to, bytes)) return INVALID_VALUE;
    return memcpy((void *)to, from, bytes), SUCCESS;
}

static int download(void *to, uintptr_t from, size_t bytes, struct stream *stream) {
    if (idle(stream)) return idle(stream);
    if (!is_memory(from, bytes)) return INVALID_VALUE;
    return memcpy(to, (void *)from, bytes), SUCCESS;
}

static int fill(uintptr_t to, unsigned char byte, size_t count, struct stream *stream) {
    if (idle(stream)) return idle(stream);
    if (!is_memory(to, count)) return INVALID_VALUE;
    return memset((void *)to, byte, count), SUCCESS;
}

/* --------------------------------------------------------------------------------- names of these */

static int error_name(int status, const char **out) {
    static const struct { int status; const char *name; } names[] = {
        {INVALID_VALUE, "INVALID_VALUE"}, {OUT_OF_MEMORY, "OUT_OF_MEMORY"},
        {NOT_INITIALIZED, "NOT_INITIALIZED"}, {NO_DEVICE, "NO_DEVICE"},
        {INVALID_CONTEXT, "INVALID_CONTEXT"}, {INVALID_PTX, "INVALID_PTX"},
        {INVALID_HANDLE, "INVALID_HANDLE"}, {NOT_FOUND, "NOT_FOUND"},
        {ILLEGAL_ADDRESS, "ILLEGAL_ADDRESS"}, {LAUNCH_FAILED, "LAUNCH_FAILED"},
        {CAPTURING, "STREAM_CAPTURE_UNSUPPORTED"}, {UNKNOWN, "UNKNOWN"}};
    static char text[64];
    for (size_t i = 0; i < sizeof names / sizeof *names; i++)
        if (names[i].status == status) {
            snprintf(text, sizeof text, "CUDA_ERROR_%s", names[i].name);
            return *out = text, SUCCESS;
        }
    return *out = NULL, INVALID_VALUE;
}

int cuGetProcAddress_v2(const char *name, void **out, int version, uint64_t flags, int *found);

static const struct call calls[] = {
    {"cuInit", init}, {"cuDriverGetVersion", driver_version}, {"cuDeviceGetCount", device_count},
    {"cuDeviceGet", device_get}, {"cuDeviceGetAttribute", device_attribute},
    {"cuDeviceGetName", device_name}, {"cuDeviceGetPCIBusId", device_bus},
    {"cuDeviceTotalMem", device_memory}, {"cuDevicePrimaryCtxRetain", context_retain},
    {"cuDevicePrimaryCtxRelease", context_release}, {"cuCtxSetCurrent", context_set},
    {"cuMemGetInfo", memory_info}, {"cuMemAlloc", allocate}, {"cuMemFree", give_back}, {"cuMemcpyHtoDAsync", upload},
    {"cuMemcpyDtoHAsync", download}, {"cuMemsetD8Async", fill}, {"cuGetErrorName", error_name},
    {"cuGetProcAddress", cuGetProcAddress_v2},
    {NULL, NULL}};

static void *called(const struct call *from, const char *name) {
    for (; from->name; from++)
        if (!strcmp(from->name, name)) return from->function;
    return NULL;
}

int cuGetProcAddress_v2(const char *name, void **out, int version, uint64_t flags, int *found) {
    (void)version, (void)flags;
    *out = called(calls, name);
    if (!*out) *out = called(queue_calls, name);
    if (found) *found = *out ? 0 : 1;
    return *out ? SUCCESS : NOT_FOUND;
}
