"""The CUDA backend: programs to PTX through LLVM's NVPTX, compiled further by the GPU's driver.

Needs no CUDA toolkit, neither here nor on the board.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from autotune.codegen.base import BACKENDS, DeviceCode, EntryCall, ObjectCode
from autotune.codegen.llvm.backend import initialize
from autotune.codegen.llvm.binding import binding, emitted
from autotune.codegen.nvptx.kernel import write_kernels
from autotune.errors import BuildError
from autotune.program.ir import Program
from autotune.target import Target

if TYPE_CHECKING:
    import llvmlite.binding as llvm


def compile_ptx(text: str, target: Target) -> str:
    """LLVM IR text to PTX. Raises BuildError where LLVM refuses it."""
    machine = _machine(target)
    return str(emitted(text, target.triple, machine, machine.emit_assembly))


def _machine(target: Target) -> llvm.TargetMachine:
    initialize()
    try:
        return (
            binding()
            .Target.from_triple(target.triple)
            .create_target_machine(cpu=target.cpu, features=target.features, opt=3)
        )
    except RuntimeError as error:
        raise BuildError(f"LLVM has no code generator for {target.triple}: {error}") from None


class CudaBackend:
    """Code for NVIDIA GPUs."""

    name = "cuda"

    def source(self, program: Program, target: Target, symbol: str) -> str:
        return compile_ptx(write_kernels(program, target, symbol).text, target)

    def build(self, program: Program, target: Target, symbol: str) -> ObjectCode:
        made = write_kernels(program, target, symbol)
        code = DeviceCode(
            symbol=symbol,
            text=compile_ptx(made.text, target).encode(),
            launches=made.launches,
            params=tuple(p.name for p in program.params),
            scratch=made.scratch,
            workspace_bytes=made.workspace_bytes,
        )
        return code.object_code()

    def build_entry(self, calls: Sequence[EntryCall], target: Target, symbol: str) -> bytes:  # noqa: ARG002
        """Nothing: the runtime launches a model's kernels one by one."""
        return b""


BACKENDS.add("cuda", CudaBackend())
