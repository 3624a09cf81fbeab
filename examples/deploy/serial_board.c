/* A microcontroller as a board of `rpc_server serve --serial PORT`: takes code and data over a serial
   port into its memory, runs the code and says how many cycles each part of it took.

   A frame, either way, little-endian:
       A5 5A | type | number | length (2 bytes) | payload | CRC-32 (4 bytes, of type to payload)
   A request has a small letter for an answer, with its number, or an `e` with a text.
       H                      -> h: version, clock in Hz, code, its bytes, memory, its bytes (4 bytes
                                    each), most bytes of a payload (2), a name
       W address, bytes       -> w
       R address, count (2)   -> r: bytes
       X entry, arguments     -> x: cycles (4 bytes) between calls of the function that the code gets
   What is no frame is left out; addresses outside of code and memory are an error.

   Give it these six functions, and two blocks of memory, of which one may hold code. */
#include "serial_board.h"

#include <string.h>

enum { MOST = 1024, HEAD = 6, MOST_MARKS = MOST / 4, VERSION = 1 };

static uint8_t frame[HEAD + MOST + 4];
static uint32_t marks[MOST_MARKS + 1];
static uint32_t marked;

static uint32_t crc(const uint8_t *data, uint32_t count)
{
    uint32_t sum = 0xFFFFFFFFu;
    while (count--) {
        int bit;
        sum ^= *data++;
        for (bit = 0; bit < 8; bit++) sum = sum >> 1 ^ (sum & 1 ? 0xEDB88320u : 0u);
    }
    return ~sum;
}

static uint32_t word(const uint8_t *from)
{
    return from[0] | (uint32_t)from[1] << 8 | (uint32_t)from[2] << 16 | (uint32_t)from[3] << 24;
}

static uint8_t *put_word(uint8_t *to, uint32_t value)
{
    int n;
    for (n = 0; n < 4; n++) *to++ = (uint8_t)(value >> 8 * n);
    return to;
}

static void answer(uint8_t type, uint32_t length)
{
    uint32_t n, total = HEAD + length;
    frame[0] = 0xA5, frame[1] = 0x5A, frame[2] = type;
    frame[4] = (uint8_t)length, frame[5] = (uint8_t)(length >> 8);
    put_word(frame + total, crc(frame + 2, total - 2));
    for (n = 0; n < total + 4; n++) board_put(frame[n]);
}

static void refuse(const char *text)
{
    uint32_t length = (uint32_t)strlen(text);
    memcpy(frame + HEAD, text, length);
    answer('e', length);
}

static int inside(uint32_t at, uint32_t count, const board_block *block)
{
    return at >= block->first && count <= block->bytes && at - block->first <= block->bytes - count;
}

static int allowed(uint32_t at, uint32_t count)
{
    return inside(at, count, &board_code) || inside(at, count, &board_memory);
}

static void mark(void)
{
    uint32_t now = board_cycles();
    if (marked <= MOST_MARKS) marks[marked] = now;
    marked++;
}

static void hello(void)
{
    const char *name = board_name;
    uint8_t *to = frame + HEAD;
    to = put_word(to, VERSION);
    to = put_word(to, board_clock_hz);
    to = put_word(to, board_code.first);
    to = put_word(to, board_code.bytes);
    to = put_word(to, board_memory.first);
    to = put_word(to, board_memory.bytes);
    *to++ = (uint8_t)MOST, *to++ = (uint8_t)(MOST >> 8);
    while (*name && to < frame + HEAD + 64) *to++ = (uint8_t)*name++;
    answer('h', (uint32_t)(to - frame - HEAD));
}

static void run(uint32_t entry, uint32_t arguments)
{
    uint32_t n;
    uint8_t *to = frame + HEAD;
    if (!inside(entry & ~(uint32_t)1, 2, &board_code) || !allowed(arguments, 4)) {
        refuse("the code to run lies outside of this board's memory");
        return;
    }
    marked = 0;
    board_sync();
    ((void (*)(uint32_t, void (*)(void)))(uintptr_t)entry)(arguments, mark);
    if (marked < 1 || marked > MOST_MARKS + 1) {
        refuse("more kernels than an answer has room for");
        return;
    }
    for (n = 1; n < marked; n++) to = put_word(to, marks[n] - marks[n - 1]);
    answer('x', (uint32_t)(to - frame - HEAD));
}

static void obey(uint32_t length)
{
    const uint8_t *given = frame + HEAD;
    uint32_t at = length >= 4 ? word(given) : 0, count;
    switch (frame[2]) {
    case 'H': hello(); return;
    case 'W':
        if (length < 4 || !allowed(at, length - 4)) break;
        memcpy((void *)(uintptr_t)at, given + 4, length - 4);
        answer('w', 0);
        return;
    case 'R':
        count = length == 6 ? given[4] | (uint32_t)given[5] << 8 : MOST + 1u;
        if (count > MOST || !allowed(at, count)) break;
        memcpy(frame + HEAD, (const void *)(uintptr_t)at, count);
        answer('r', count);
        return;
    case 'X':
        if (length != 8) break;
        run(at, word(given + 4));
        return;
    default: break;
    }
    refuse("this board does not take such a request");
}

void board_serve(void)
{
    for (;;) {
        uint32_t length, n;
        if (board_get() != 0xA5 || board_get() != 0x5A) continue;
        for (n = 2; n < HEAD; n++) frame[n] = board_get();
        length = frame[4] | (uint32_t)frame[5] << 8;
        if (length > MOST) continue;
        for (n = 0; n < length + 4; n++) frame[HEAD + n] = board_get();
        if (word(frame + HEAD + length) == crc(frame + 2, HEAD - 2 + length)) obey(length);
    }
}
