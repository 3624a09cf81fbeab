/* What serial_board.c needs of a board. */
#ifndef SERIAL_BOARD_H
#define SERIAL_BOARD_H

#include <stdint.h>

typedef struct {
    uint32_t first, bytes;
} board_block;

extern const board_block board_code;   /* memory that may hold code */
extern const board_block board_memory; /* memory for data, which begins at a multiple of 64 */
extern const uint32_t board_clock_hz;  /* of board_cycles */
extern const char board_name[];

uint8_t board_get(void);       /* waits for a byte */
void board_put(uint8_t byte);
uint32_t board_cycles(void);   /* a counter that goes up: DWT->CYCCNT, or a timer */
void board_sync(void);         /* caches and pipeline see code that was written as data */

void board_serve(void);        /* takes requests for ever */

#endif
