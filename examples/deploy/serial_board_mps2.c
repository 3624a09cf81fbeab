/* serial_board.c on Arm's MPS2 board with a Cortex-M4 (AN386), or QEMU's: its first UART, a timer.
   On a chip of yours DWT->CYCCNT counts cycles of the core. */
#include "serial_board.h"

#define UART ((volatile uint32_t *)0x40004000) /* data, state, control, interrupts, divider */
#define IRQ ((volatile uint32_t *)0xE000E100) /* enabled; 96 words on: not pending any more */
#define TIMER ((volatile uint32_t *)0x40000000) /* control, value, reload; counts down */

const board_block board_code = {0x00200000, 0x00200000}; /* the upper half of 4 MB */
const board_block board_memory = {0x21000000, 0x00100000};
const uint32_t board_clock_hz = 25000000;
const char board_name[] = "mps2-an386";

uint8_t board_get(void)
{
    uint8_t byte;
    while (!(UART[1] & 2)) __asm__ volatile("wfi"); /* woken by its interrupt, which is not taken */
    byte = (uint8_t)UART[0];
    UART[3] = 2;
    IRQ[96] = 1;
    return byte;
}

void board_put(uint8_t byte)
{
    while (UART[1] & 1) {}
    UART[0] = byte;
}

uint32_t board_cycles(void) { return 0xFFFFFFFFu - TIMER[1]; }

void board_sync(void) { __asm__ volatile("dsb\nisb" : : : "memory"); }

int main(void)
{
    UART[4] = 16;
    __asm__ volatile("cpsid i");
    UART[2] = 11;
    IRQ[0] = 1;
    TIMER[2] = 0xFFFFFFFFu;
    TIMER[1] = 0xFFFFFFFFu;
    TIMER[0] = 1;
    board_serve();
}
