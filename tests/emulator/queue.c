/* What the emulated driver does in order: kernels, streams, graphs, events. */
#include "driver.h"

#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

enum { MAX_ARGS = 32, MAP = 128, ORDINARY_SHARED = 48 << 10, NAME = 128 };

struct kernel { /* what Python knows of a function */
    void *code;
    int32_t args;
    uint32_t maps; /* which of them are descriptions of tensors */
    uint32_t block[3];
};
/* Python's part: a module's number or -1 from its text, then functions of it; 0 where there is. */
typedef int (*load_hook)(const char *text);
typedef int (*find_hook)(int module, const char *name, struct kernel *out);
struct module { int number; };
struct function { struct kernel known; int module; uint32_t shared; char name[NAME]; };
struct launch {
    struct function *function;
    uint32_t grid[3], block[3];
    void *args[MAX_ARGS];
    _Alignas(64) uint8_t maps[4][MAP];
    struct launch *next;
};
struct graph { struct launch *first, **last; };
struct event { double at_ms; int recorded; };


extern int emulate(void *kernel, void **args, const uint32_t *grid, const uint32_t *block, int back);

static load_hook load_text;
static find_hook find_kernel;
static int64_t launches, replays;

void emulated_hooks(load_hook load, find_hook find) { load_text = load, find_kernel = find; }
void emulated_queue(int64_t *launched, int64_t *replayed) {
    *launched = launches, *replayed = replays;
}

int idle(const struct stream *stream) {
    USABLE;
    if (fault("lost")) return UNKNOWN;
    if (!stream) return INVALID_HANDLE;
    return stream->capture ? CAPTURING : SUCCESS;
}

/* --------------------------------------------------------------------------------------- kernels */

static int module_load(struct module **out, const void *image, unsigned count, const int *options,
                       void **values) {
    USABLE;
    enum { ERROR_LOG = 5, ERROR_LOG_BYTES = 6 };
    int number = load_text ? load_text(image) : -1;
    if (number < 0) {
        for (unsigned i = 0; i + 1 < count; i++)
            if (options[i] == ERROR_LOG && options[i + 1] == ERROR_LOG_BYTES)
                snprintf(values[i], (size_t)(uintptr_t)values[i + 1], "ptxas fatal: not a kernel");
        return INVALID_PTX;
    }
    *out = malloc(sizeof **out);
    (*out)->number = number;
    return SUCCESS;
}

static int module_unload(struct module *module) { return free(module), SUCCESS; }

static int module_function(struct function **out, struct module *module, const char *name) {
    USABLE;
    struct kernel known;
    if (find_kernel(module->number, name, &known)) return NOT_FOUND;
    *out = malloc(sizeof **out);
    **out = (struct function){known, module->number, ORDINARY_SHARED, ""};
    snprintf((*out)->name, NAME, "%s", name);
    return SUCCESS;
}

static int function_set(struct function *function, int key, int value) {
    enum { MOST_SHARED = 8 };
    USABLE;
    if (key != MOST_SHARED || value < 0 || value > SHARED) return INVALID_VALUE;
    if ((uint32_t)value > function->shared) function->shared = (uint32_t)value;
    return SUCCESS;
}

static int run(struct launch *one) {
    void *args[MAX_ARGS];
    memcpy(args, one->args, sizeof args);
    for (int i = 0, map = 0; i < one->function->known.args; i++)
        if (one->function->known.maps >> i & 1) args[i] = one->maps[map++];
    launches++;
    while (fault("endless")) sleep(1);
    int failed = emulate(one->function->known.code, args, one->grid, one->block, (int)(launches % 2));
    if (failed) fprintf(stderr, "%s: the emulator's failure %d\n", one->function->name, failed);
    if (fault("illegal")) sticky = ILLEGAL_ADDRESS;
    if (failed && !sticky) sticky = LAUNCH_FAILED;
    return SUCCESS; /* as on a GPU, it is told by what comes later */
}

static int launch_kernel(struct function *function, unsigned gx, unsigned gy, unsigned gz,
                         unsigned bx, unsigned by, unsigned bz, unsigned shared,
                         struct stream *stream, void **params, void **extra) {
    USABLE;
    const struct kernel *known = &function->known;
    if (!stream || extra) return stream ? INVALID_VALUE : INVALID_HANDLE;
    if (!gx || !gy || !gz || gy > 65535 || gz > 65535 || shared > function->shared)
        return INVALID_VALUE;
    if (bx != known->block[0] || by != known->block[1] || bz != known->block[2])
        return INVALID_VALUE;
    struct launch *one = calloc(1, (sizeof *one + 63) / 64 * 64);
    *one = (struct launch){.function = function, .grid = {gx, gy, gz}, .block = {bx, by, bz}};
    for (int i = 0, map = 0; i < known->args; i++) {
        if (known->maps >> i & 1) {
            if ((uintptr_t)params[i] % 64) return free(one), INVALID_VALUE;
            memcpy(one->maps[map++], params[i], MAP);
        } else {
            memcpy(&one->args[i], params[i], sizeof(void *));
            if (!is_memory((uintptr_t)one->args[i], 1)) sticky = ILLEGAL_ADDRESS;
        }
    }
    if (sticky) return free(one), SUCCESS;
    if (!stream->capture) {
        run(one);
        free(one);
        return SUCCESS;
    }
    *stream->capture->last = one;
    stream->capture->last = &one->next;
    return SUCCESS;
}

static int encode(void *out, int kind, uint32_t rank, void *address, const uint64_t *extents,
                  const uint64_t *strides, const uint32_t *box, const uint32_t *steps,
                  int interleave, int swizzle, int promotion, int outside) {
    struct { const void *address; int64_t strides[5]; int32_t rank, extents[5], box[5]; } map = {0};
    enum { UINT8 = 0, FLOAT16 = 6, BFLOAT16 = 9, BY_128 = 3 };
    uint32_t item = kind == UINT8 ? 1 : 2;
    if ((kind != UINT8 && kind != FLOAT16 && kind != BFLOAT16) || interleave || swizzle != BY_128 || promotion < 0 || promotion > 3 ||
        outside || !rank || rank > 5 || (uintptr_t)out % 64 || (uintptr_t)address % 16)
        return INVALID_VALUE;
    map.address = address, map.rank = (int32_t)rank, map.strides[0] = item;
    if (box[0] * item > 128) return INVALID_VALUE;
    for (uint32_t i = 0; i < rank; i++) {
        if (steps[i] != 1 || box[i] > 256 || !box[i] || !extents[i] || extents[i] >> 32)
            return INVALID_VALUE;
        if (i && (strides[i - 1] % 16 || strides[i - 1] >> 40)) return INVALID_VALUE;
        map.extents[i] = (int32_t)extents[i], map.box[i] = (int32_t)box[i];
        if (i) map.strides[i] = (int64_t)strides[i - 1];
    }
    memset(out, 0, MAP);
    return memcpy(out, &map, sizeof map), SUCCESS;
}

/* ---------------------------------------------------------------------------- streams and events */

static int stream_create(struct stream **out, unsigned flags) {
    USABLE;
    if (flags > 1) return INVALID_VALUE;
    return *out = calloc(1, sizeof **out), SUCCESS;
}

static int stream_destroy(struct stream *stream) {
    USABLE;
    return free(stream), SUCCESS;
}

static int stream_synchronize(struct stream *stream) {
    if (stream && stream->capture) stream->broken = 1;
    return idle(stream);
}

static int capture_begin(struct stream *stream, int mode) {
    if (idle(stream)) return idle(stream);
    if (mode < 0 || mode > 2) return INVALID_VALUE;
    stream->capture = calloc(1, sizeof *stream->capture);
    stream->capture->last = &stream->capture->first;
    stream->broken = 0;
    return SUCCESS;
}

static int capture_end(struct stream *stream, struct graph **out) {
    USABLE;
    if (!stream || !stream->capture) return INVALID_VALUE;
    *out = stream->broken ? NULL : stream->capture;
    stream->capture = NULL;
    return stream->broken ? CAPTURING + 1 : SUCCESS;
}

/* The graph that runs is a copy: the one it is made from may go. */
static int graph_instantiate(struct graph **out, struct graph *graph, unsigned long long flags) {
    USABLE;
    if (!graph || flags) return INVALID_VALUE;
    *out = calloc(1, sizeof **out);
    (*out)->last = &(*out)->first;
    for (struct launch *one = graph->first; one; one = one->next) {
        struct launch *copy = calloc(1, (sizeof *copy + 63) / 64 * 64);
        *copy = *one, copy->next = NULL;
        *(*out)->last = copy, (*out)->last = &copy->next;
    }
    return SUCCESS;
}

static int graph_destroy(struct graph *graph) {
    for (struct launch *one = graph->first, *next; one; one = next) {
        next = one->next;
        memset(one, 0xFF, sizeof *one);
        free(one);
    }
    return free(graph), SUCCESS;
}

static int graph_launch(struct graph *graph, struct stream *stream) {
    if (idle(stream)) return idle(stream);
    replays++;
    for (struct launch *one = graph->first; one; one = one->next) run(one);
    return SUCCESS;
}

static int event_create(struct event **out, unsigned flags) {
    USABLE;
    return *out = calloc(1, sizeof **out), flags ? INVALID_VALUE : SUCCESS;
}

static int event_destroy(struct event *event) { return free(event), SUCCESS; }

static int event_record(struct event *event, struct stream *stream) {
    if (idle(stream)) return idle(stream);
    struct timespec time;
    clock_gettime(CLOCK_MONOTONIC, &time);
    *event = (struct event){(double)time.tv_sec * 1e3 + (double)time.tv_nsec * 1e-6, 1};
    return SUCCESS;
}

static int event_synchronize(struct event *event) {
    USABLE;
    return event->recorded ? SUCCESS : INVALID_HANDLE;
}

static int event_elapsed(float *out, struct event *start, struct event *end) {
    USABLE;
    if (!start->recorded || !end->recorded) return INVALID_HANDLE;
    return *out = (float)(end->at_ms - start->at_ms), SUCCESS;
}

const struct call queue_calls[] = {
    {"cuModuleLoadDataEx", module_load}, {"cuModuleUnload", module_unload},
    {"cuModuleGetFunction", module_function}, {"cuFuncSetAttribute", function_set},
    {"cuLaunchKernel", launch_kernel}, {"cuTensorMapEncodeTiled", encode},
    {"cuStreamCreate", stream_create}, {"cuStreamDestroy", stream_destroy},
    {"cuStreamSynchronize", stream_synchronize}, {"cuStreamBeginCapture", capture_begin},
    {"cuStreamEndCapture", capture_end}, {"cuGraphInstantiate", graph_instantiate},
    {"cuGraphInstantiateWithFlags", graph_instantiate}, {"cuGraphDestroy", graph_destroy},
    {"cuGraphExecDestroy", graph_destroy}, {"cuGraphLaunch", graph_launch},
    {"cuEventCreate", event_create}, {"cuEventDestroy", event_destroy},
    {"cuEventRecord", event_record}, {"cuEventSynchronize", event_synchronize},
    {"cuEventElapsedTime", event_elapsed},
    {NULL, NULL}};
