/* What the parts of the emulated driver share. */
#include "emulator.h"

#include <stddef.h>
#include <stdio.h>

#define BUS "0000:19:%02d.0" /* of a GPU's number */
enum {
    SUCCESS = 0, INVALID_VALUE = 1, OUT_OF_MEMORY = 2, NOT_INITIALIZED = 3, NO_DEVICE = 100,
    INVALID_CONTEXT = 201, INVALID_PTX = 218, INVALID_HANDLE = 400, NOT_FOUND = 500,
    NOT_READY = 600, ILLEGAL_ADDRESS = 700, LAUNCH_FAILED = 719, CAPTURING = 900, UNKNOWN = 999
};

struct graph;
struct stream { struct graph *capture; int broken; };
struct call { const char *name; void *function; };

extern const struct call queue_calls[]; /* queue.c; ends with a NULL */
extern int sticky;                      /* an error after which nothing works any more */

/* A file in the library's folder: the state of the card, which processes share. */
FILE *beside(const char *name, const char *mode);
/* Whether the file `fault` beside the library says this word. */
int fault(const char *wanted);
/* Whether calls that need a context may be made; whether a stream may be used at once, too. */
int usable(void);
int idle(const struct stream *stream);
#define USABLE do { int status = usable(); if (status) return status; } while (0)
/* Whether so many bytes of the device's memory lie there. */
int is_memory(uintptr_t at, size_t bytes);
void emulated_queue(int64_t *launched, int64_t *replayed);
