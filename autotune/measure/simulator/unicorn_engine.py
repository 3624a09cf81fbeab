"""Unicorn as a board. In: an image of code, its memory. Out: memory as the code left it, with
instructions and cycles counted between marks.

Unicorn (the extra `simulator`) calls us once for each basic block; a block is decoded once. There
are no caches, no interrupts and no waiting for memory.
"""

from __future__ import annotations

from types import ModuleType
from typing import Any

from autotune.errors import DeviceError
from autotune.measure.simulator.cores import Core, core_of
from autotune.measure.simulator.costs import BlockCost, Counted
from autotune.measure.simulator.image import ENTRY_OFFSET, segments
from autotune.measure.simulator.memory import PAGE, CoreMemory, pages
from autotune.target import Target

_RETURN = PAGE
"""Below the code: where it returns to."""


def unicorn() -> ModuleType:
    """The simulator. Raises DeviceError where it is not installed."""
    try:
        import unicorn as found
        import unicorn.arm_const  # which `unicorn` does not load
        import unicorn.riscv_const
    except ImportError:
        raise DeviceError(
            "boards are simulated by Unicorn, which is not installed: "
            "pip install autotune-compiler[simulator], or take --simulator qemu"
        ) from None
    return found


class UnicornEngine:
    """Simulates any core that Unicorn has."""

    name = "simulated"
    boot = False
    """Whether images need code that the core begins with."""

    def core(self, target: Target) -> Core:
        """Raises ConfigError."""
        return core_of(target)

    def check(self, core: Core) -> None:  # noqa: ARG002
        """Raises DeviceError where what it takes is not installed."""
        unicorn()

    def run(
        self, core: Core, image: bytes, memory: CoreMemory, timeout_s: float
    ) -> tuple[tuple[Counted, ...], bytes]:
        """Sections between marks, and all of the memory. Raises DeviceError for what a processor
        would stop at, TimeoutError where it does not come back."""
        return _UnicornRun(core, image, memory).done(timeout_s)


class _UnicornRun:
    def __init__(self, core: Core, image: bytes, memory: CoreMemory) -> None:
        self._core, self._memory, uc = core, memory, unicorn()
        self._unicorn = uc
        kinds = (uc.UC_ARCH_ARM, uc.UC_MODE_THUMB | uc.UC_MODE_MCLASS, uc.arm_const)
        if not core.is_arm:
            kinds = (uc.UC_ARCH_RISCV, uc.UC_MODE_RISCV32, uc.riscv_const)
        arch, mode, names = kinds
        registers = ("ARM_REG_R0", "ARM_REG_R1", "ARM_REG_SP", "ARM_REG_LR", "ARM_REG_PC")
        if not core.is_arm:
            registers = ("RISCV_REG_A0", "RISCV_REG_A1", "RISCV_REG_SP", "RISCV_REG_RA",
                         "RISCV_REG_PC")  # fmt: skip
        self._registers = [getattr(names, f"UC_{name}") for name in registers]
        self._engine = uc.Uc(arch, mode)
        self._engine.ctl_set_cpu_model(getattr(names, core.unicorn))
        for at, data in _joined(segments(image)):
            self._map(at, data)
        for at, data in (*memory.parts(), (core.code - _RETURN, b"")):
            self._map(at, data)
        self._costs: dict[int, BlockCost] = {}
        self._sections: list[Counted] = []
        self._counts = [0, 0]
        self._last: tuple[int, int] | None = None
        """Where the block before ended, and what jumping out of it takes."""
        self._mark = core.code
        self._engine.hook_add(uc.UC_HOOK_BLOCK, self._enter)

    def done(self, timeout_s: float) -> tuple[tuple[Counted, ...], bytes]:
        memory, thumb = self._memory, 1 if self._core.is_arm else 0
        last = self._core.code - _RETURN
        values = (memory.arguments, self._mark | thumb, memory.stack_top, last | thumb)
        if not self._core.is_arm:
            self._engine.reg_write(self._unicorn.riscv_const.UC_RISCV_REG_TP, memory.scratch)
        for register, value in zip(self._registers, values, strict=False):
            self._engine.reg_write(register, value)
        pc, start = self._registers[-1], self._core.code + ENTRY_OFFSET
        try:
            self._engine.emu_start(start | thumb, last, timeout=int(timeout_s * 1e6))
        except self._unicorn.UcError as error:
            at = self._engine.reg_read(pc)
            raise DeviceError(f"the simulated processor stopped at 0x{at:x}: {error}") from None
        if self._engine.reg_read(pc) != last:
            raise TimeoutError(f"no end after {timeout_s:g} s of simulation")
        left = bytearray(memory.nbytes)
        for at, data in memory.parts():
            place = at - memory.base
            left[place : place + len(data)] = self._engine.mem_read(at, len(data))
        return tuple(self._sections), bytes(left)

    def _enter(self, engine: Any, address: int, size: int, _: object) -> None:
        if self._last and address != self._last[0]:
            self._counts[1] += self._last[1]
        if address == self._mark:
            instructions, cycles = self._counts
            self._sections.append(Counted(instructions=instructions, cycles=cycles))
            self._counts, self._last = [0, 0], None
            return
        cost = self._costs.get(address)
        if cost is None:
            cost = self._core.costs(bytes(engine.mem_read(address, size)))
            self._costs[address] = cost
        self._counts[0] += cost.instructions
        self._counts[1] += cost.cycles
        self._last = address + size, cost.refill

    def _map(self, address: int, data: bytes) -> None:
        self._engine.mem_map(address, pages(len(data)))
        self._engine.mem_write(address, data)


def _joined(parts: list[tuple[int, bytes]]) -> list[tuple[int, bytes]]:
    """Parts that begin on pages, those on the same or neighbouring pages as one."""
    out: list[tuple[int, bytearray]] = []
    for at, data in sorted(parts):
        first = at // PAGE * PAGE
        if out and first <= out[-1][0] + pages(len(out[-1][1])):
            start, whole = out[-1]
        else:
            start, whole = first, bytearray()
            out.append((start, whole))
        whole.extend(bytes(max(0, at + len(data) - start - len(whole))))
        whole[at - start : at - start + len(data)] = data
    return [(at, bytes(data)) for at, data in out]
