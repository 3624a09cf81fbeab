"""QEMU as a board: a whole one with its memory map, which the code boots on. In: an image of code,
its memory. Out: memory as the code left it (by semihosting), with instructions and cycles counted
between marks.

A plugin of ours counts basic blocks; the core's table gives what each costs. There are no caches,
no interrupts and no waiting for memory.
"""

from __future__ import annotations

import shutil
import subprocess
import tempfile
from collections.abc import Sequence
from pathlib import Path

from autotune.errors import DeviceError
from autotune.measure.simulator.cores import Core, core_of
from autotune.measure.simulator.costs import BlockCost, Counted
from autotune.measure.simulator.image import segments
from autotune.measure.simulator.memory import CoreMemory
from autotune.measure.simulator.qemu_plugin import plugin, sections
from autotune.target import Target

PACKAGES = "qemu-system-arm qemu-system-misc"
Block = tuple[int, int, int, int]
"""Where a block is, its bytes, how often it ran, and how often it was left by a jump."""
LONG_BYTES = 256
"""A block of so many may have been ended for its length alone, chosen: QEMU's own operations are
counted for that, some 40 for each SMLAD, of 4000."""
_FAULT = 3
"""Exit status of the code's own handler of faults."""
_QUIET = (
    "-nographic", "-monitor", "none", "-serial", "none", "-accel", "tcg,thread=single,tb-size=32",
    "-semihosting-config", "enable=on,target=native",
)  # fmt: skip


class QemuEngine:
    """Simulates any board of the cores' table."""

    name = "simulated"
    boot = True
    """Whether images need code that the core begins with."""

    def core(self, target: Target) -> Core:
        """Raises ConfigError."""
        return core_of(target)

    def check(self, core: Core) -> None:
        """Raises DeviceError where what it takes is not installed."""
        if shutil.which(core.qemu) is None:
            raise DeviceError(
                f"a {core.name} is simulated by {core.qemu}, which was not found; install it "
                f"(Debian: {PACKAGES})"
            )
        plugin()

    def run(
        self, core: Core, image: bytes, memory: CoreMemory, timeout_s: float
    ) -> tuple[tuple[Counted, ...], bytes]:
        """Sections between marks, and all of the memory. Raises DeviceError for what a processor
        would stop at, TimeoutError where it does not come back."""
        with tempfile.TemporaryDirectory() as place:
            folder = Path(place)
            _start(core, image, memory, folder, timeout_s)
            counts = (folder / "counts").read_bytes()
            left = (folder / "memory").read_bytes()
        if len(left) != memory.nbytes:
            raise DeviceError(f"the simulated board wrote {len(left)} of {memory.nbytes} bytes")
        return _counted(counts, image, core), left


def _start(core: Core, image: bytes, memory: CoreMemory, folder: Path, timeout_s: float) -> None:
    for name, data in (("code", image), ("given", memory.whole()), ("plugin.so", plugin())):
        (folder / name).write_bytes(data)
    command = [
        core.qemu, *core.machine, *_QUIET,
        "-kernel" if core.is_arm else "-bios", "code",
        "-device", f"loader,file=given,addr={memory.base:#x},force-raw=on",
        "-plugin", f"./plugin.so,out=counts,mark={core.code:#x}",
    ]  # fmt: skip
    try:
        done = subprocess.run(
            command, cwd=folder, stdin=subprocess.DEVNULL, capture_output=True, text=True,
            errors="replace", timeout=timeout_s, check=False,
        )  # fmt: skip
    except subprocess.TimeoutExpired:
        raise TimeoutError(f"no end after {timeout_s:g} s of simulation") from None
    except OSError as error:
        raise DeviceError(f"cannot start {core.qemu}: {error.strerror}") from None
    if done.returncode == _FAULT:
        raise DeviceError("the simulated processor stopped at a fault")
    if done.returncode or not (folder / "memory").exists():
        said = (done.stderr.strip().splitlines() or [f"exit status {done.returncode}"])[0]
        raise DeviceError(f"the simulated processor stopped: {said[:200]}")


def joined(blocks: Sequence[Block]) -> list[Block]:
    """Blocks, those that QEMU parted for their length as one: the first is always left for the
    second, which nothing else goes to."""
    behind: dict[int, list[Block]] = {}
    for block in blocks:
        behind.setdefault(block[0], []).append(block)
    out: list[Block] = []
    taken: set[Block] = set()
    for block in sorted(blocks):
        if block in taken:
            continue
        at, nbytes, runs, jumps = block
        while not jumps and nbytes >= LONG_BYTES:
            found = behind.get(at + nbytes, [])
            if len(found) != 1 or found[0][2] != runs:
                break
            taken.add(found[0])
            _, more, _, jumps = found[0]
            nbytes += more
        out.append((at, nbytes, runs, jumps))
    return out


def _counted(data: bytes, image: bytes, core: Core) -> tuple[Counted, ...]:
    """What the core's table says of the blocks that ran."""
    code = segments(image)
    costs: dict[tuple[int, int], BlockCost] = {}
    begun, *later = sections(data) or [[]]
    out = [Counted(instructions=0, cycles=0)] * bool(begun)  # the board's own code, and ours
    for section in later:
        instructions = cycles = 0
        for at, count, runs, jumps in joined(section):
            if (at, count) not in costs:
                costs[at, count] = _cost(code, at, count, core)
            cost = costs[at, count]
            instructions += runs * cost.instructions
            cycles += runs * cost.cycles + jumps * cost.refill
        out.append(Counted(instructions=instructions, cycles=cycles))
    return tuple(out)


def _cost(code: list[tuple[int, bytes]], at: int, count: int, core: Core) -> BlockCost:
    for start, data in code:
        if start <= at < start + len(data):
            return core.costs(data[at - start : at - start + count])
    raise DeviceError(f"the simulated processor ran what is no code, at 0x{at:x}")


def boot_text(core: Core) -> str:
    """C of what the core begins with: it calls `entry` on a stack of the board's memory, writes
    all of that memory to a file by semihosting and ends the simulation."""
    begins = _ARM_BEGIN if core.is_arm else _RISCV_BEGIN
    return f"#define MEMORY {core.memory:#x}u\n{begins}{_REST}"


_ARM_BEGIN = """
static uint32_t host(uint32_t what, const void *given) {
    register uint32_t r0 __asm__("r0") = what;
    register const void *r1 __asm__("r1") = given;
    __asm__ volatile("bkpt 0xAB" : "+r"(r0) : "r"(r1) : "memory");
    return r0;
}
void started(void);
static void boot(void) __attribute__((naked));
static void boot(void) {
    __asm__ volatile(
        "str %2, [%1]\\n" /* coprocessors of floats and vectors, if there are any */
        "dsb\\nisb\\n"
        "ldr r0, [%0]\\n"
        "mov sp, r0\\n"
        "b started\\n" : : "r"(MEMORY), "r"(0xE000ED88u), "r"(0x00F00000u));
}
static void fault(void);
__attribute__((section(".vectors"), used)) static const void *const vectors[16] = {
    (void *)(MEMORY + 0x1000), (void *)boot, (void *)fault, (void *)fault, (void *)fault,
    (void *)fault, (void *)fault, (void *)fault,
};
"""
_RISCV_BEGIN = """
__attribute__((noinline, aligned(16))) static uint32_t host(uint32_t what, const void *given) {
    register uint32_t a0 __asm__("a0") = what;
    register const void *a1 __asm__("a1") = given;
    __asm__ volatile(
        ".option push\\n.option norvc\\n.balign 16\\n"
        "slli x0, x0, 0x1f\\nebreak\\nsrai x0, x0, 7\\n.option pop\\n"
        : "+r"(a0) : "r"(a1) : "memory");
    return a0;
}
void started(void);
static void fault(void) __attribute__((aligned(4), used));
__attribute__((section(".vectors"), used, naked)) static void boot(void) {
    __asm__ volatile(
        ".option arch, +zicsr\\n"
        "la t0, fault\\n"
        "csrw mtvec, t0\\n"
        "li t0, 0x600\\n"
        "csrs mstatus, t0\\n" /* vectors, if there are any */
        "lw sp, 0(%0)\\n"
        "addi tp, %0, 1024\\n"
        "tail started\\n" : : "r"(MEMORY));
}
"""
_REST = """
static void stop(uint32_t code) {
    const uint32_t given[2] = {0x20026, code};
    for (;;) host(0x20, given);
}
static void fault(void) { stop(3); }
void started(void) {
    const uint32_t *head = (const uint32_t *)MEMORY;
    const uint32_t file[3] = {(uint32_t)"memory", 5, 6};
    uint32_t all[3];
    entry((char **)head[1], mark);
    all[0] = host(1, file);
    all[1] = head[2], all[2] = head[3];
    host(5, all);
    stop(0);
}
"""
