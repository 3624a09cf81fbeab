/* What the parts of the emulator share: threads of the block that runs, and how they wait. */
#include <stdint.h>
#include <ucontext.h>

enum {
    WARP = 32, GROUP = 128, MAX_THREADS = 1024, STACK = 256 << 10, SHARED = 232448,
    WINDOW = 1 << 18, MAX_COPIES = 512, MAX_SUMS = 512
};
enum state { READY, AT_BARRIER, AT_WARP, AT_GROUP, AT_PHASE, FINISHED };
enum {
    OK, DIVERGED, TOO_MANY_THREADS, COPIES_LEFT, TOO_MANY_COPIES, NEVER, CHANGED, UNFENCED, ODD,
    MISALIGNED
};

typedef void (*collective)(void **lanes);
struct copy { void *to; const void *from; int bytes, group; };
struct access { const void *site; uintptr_t at; int bytes; };
struct thread {
    ucontext_t context;
    enum state state;
    uint32_t tid[3];
    collective wants;
    void *operands;
    struct copy copies[MAX_COPIES];
    int pending, groups;
    struct access accesses[MAX_COPIES];
    int accessed;
    uint32_t barrier, parity; /* AT_PHASE: of what */
    float sums[MAX_SUMS];     /* of products on their way */
    int held;
};

extern uint8_t shared_memory[SHARED];
extern struct thread *now;
extern int failure;
extern int early; /* whether asynchronous copies and fetches arrive at once */

void wait_as(enum state state);
/* All threads of a warp (AT_WARP) or group of four (AT_GROUP) do something, in order of threads. */
void together(enum state where, collective what, void *operands);

/* The value of float16's bits. */
double half(uint16_t bits);

/* hopper.c: before a block; whether a thread ends too early; whether its phase is over; whether
 * there was a fetch that has arrived now. */
void hopper_begin(void);
int hopper_left(struct thread *thread);
int phase_is_over(struct thread *thread);
int fetch_arrives(void);
