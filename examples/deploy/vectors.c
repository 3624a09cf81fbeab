/* Where a Cortex-M begins: its stack, the end of the simulated board's memory (4 MB of an386), and
   newlib's start. */
extern void _start(void);

__attribute__((section(".vectors"), used)) static const struct {
    char *stack;
    void (*start)(void);
    void (*others[14])(void);
} vectors = {(char *)0x20400000, _start, {0}};
