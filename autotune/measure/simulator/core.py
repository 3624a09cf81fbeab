"""A simulated Cortex-M4. In: an image of code, its arguments in memory. Out: memory as the code
left it, with instructions and cycles counted.

Code runs in Unicorn (the extra `simulator`), which calls us once for each basic block; a block is
decoded once. There are no caches, no interrupts and no waiting for memory.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from types import ModuleType
from typing import Any

from autotune.errors import BuildError, DeviceError
from autotune.measure.simulator.thumb import REFILL_CYCLES, BlockCost, block_cost
from autotune.types import Array

CODE_BASE, MEMORY_BASE = 0x0000_8000, 0x2000_0000
"""Where the image lies, and its arguments: as on boards."""
_RETURN = 0x0000_1000
"""Where the code returns to: nothing lies there."""
_PAGE = 4096
_STACK_BYTES = 64 << 10
MOST_BYTES = 256 << 20
"""All memory at most: more than any such processor has."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Counted:
    """What a run took."""

    instructions: int
    cycles: int


def unicorn() -> ModuleType:
    """The simulator. Raises DeviceError where it is not installed."""
    try:
        import unicorn as found
        import unicorn.arm_const  # which `unicorn` does not load
    except ImportError:
        raise DeviceError(
            "boards are simulated by Unicorn, which is not installed: "
            "pip install autotune-compiler[simulator]"
        ) from None
    return found


class SimulatedCore:
    """One processor with its memory. `blocks`: what the code is given, by address, in order; it
    finds their addresses in an array that its only argument points to."""

    def __init__(self, image: bytes, blocks: Sequence[tuple[Array, int]]) -> None:
        self._unicorn = unicorn()
        uc, arm = self._unicorn, self._unicorn.arm_const
        self._engine = uc.Uc(uc.UC_ARCH_ARM, uc.UC_MODE_THUMB | uc.UC_MODE_MCLASS)
        self._engine.ctl_set_cpu_model(arm.UC_CPU_ARM_CORTEX_M4)
        self._blocks = tuple(blocks)
        wanted = sum(_pages(block.nbytes) + _PAGE for block, _ in blocks)
        if wanted + len(image) > MOST_BYTES:
            raise BuildError(
                f"the task takes {wanted >> 20} MiB, a simulated board has {MOST_BYTES >> 20}"
            )
        self._map(CODE_BASE, image)
        self._first: list[int] = []
        addresses, at = [], MEMORY_BASE
        for block, offset in self._blocks:
            self._first.append(at)
            self._map(at, block.tobytes())
            addresses.append(at + offset)
            at += _pages(block.nbytes) + _PAGE  # a page that is not there between two
        self._arguments = at
        self._map(at, b"".join(a.to_bytes(4, "little") for a in addresses))
        self._stack = at + _PAGE + _STACK_BYTES
        self._engine.mem_map(self._stack - _STACK_BYTES, _STACK_BYTES)
        self._costs: dict[int, BlockCost] = {}
        self._counts = [0, 0]
        self._expected = 0
        self._engine.hook_add(uc.UC_HOOK_BLOCK, self._enter)

    def run(self, timeout_s: float) -> Counted:
        """Call the image's first function. Raises DeviceError for what a processor would stop at,
        TimeoutError where it does not come back."""
        uc, arm = self._unicorn, self._unicorn.arm_const
        self._counts, self._expected = [0, 0], 0
        self._engine.reg_write(arm.UC_ARM_REG_R0, self._arguments)
        self._engine.reg_write(arm.UC_ARM_REG_SP, self._stack)
        self._engine.reg_write(arm.UC_ARM_REG_LR, _RETURN | 1)
        try:
            self._engine.emu_start(CODE_BASE | 1, _RETURN, timeout=int(timeout_s * 1e6))
        except uc.UcError as error:
            at = self._engine.reg_read(arm.UC_ARM_REG_PC)
            raise DeviceError(f"the simulated processor stopped at 0x{at:x}: {error}") from None
        if self._engine.reg_read(arm.UC_ARM_REG_PC) != _RETURN:
            raise TimeoutError(f"no end after {timeout_s:g} s of simulation")
        return Counted(instructions=self._counts[0], cycles=self._counts[1])

    def read(self) -> None:
        """The blocks as the code left them, into the arrays that they came from."""
        for (block, _), at in zip(self._blocks, self._first, strict=True):
            left = self._engine.mem_read(at, block.nbytes)
            block.reshape(-1).view("uint8")[:] = memoryview(left)

    def _enter(self, engine: Any, address: int, size: int, _: object) -> None:
        cost = self._costs.get(address)
        if cost is None:
            cost = block_cost(bytes(engine.mem_read(address, size)))
            self._costs[address] = cost
        self._counts[0] += cost.instructions
        self._counts[1] += cost.cycles + (address != self._expected) * REFILL_CYCLES
        self._expected = address + size

    def _map(self, address: int, data: bytes) -> None:
        self._engine.mem_map(address, _pages(len(data)))
        self._engine.mem_write(address, data)


def _pages(count: int) -> int:
    return -(-max(count, 1) // _PAGE) * _PAGE
