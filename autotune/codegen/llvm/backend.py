"""The LLVM backend: programs to object code for any CPU that LLVM knows.

Kernels are written as vectors and register tiles already, so a short pass list is enough: cells to
registers, local clean-up, control flow. LLVM's own vectoriser and unroller are never run.
"""

from __future__ import annotations

import dataclasses
import functools
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from autotune.codegen import loader
from autotune.codegen.base import BACKENDS, EntryCall, Library, ObjectCode
from autotune.codegen.llvm.binding import binding, emitted
from autotune.codegen.llvm.entry import entry_text, run_text, support_text
from autotune.codegen.llvm.kernel import KernelText, write_kernel
from autotune.errors import BuildError
from autotune.program.ir import Program
from autotune.systems import code_triple
from autotune.target import Target

if TYPE_CHECKING:
    import llvmlite.binding as llvm


@functools.cache
def initialize() -> None:
    """Make every LLVM target known, once per process."""
    binding().initialize_all_targets()
    binding().initialize_all_asmprinters()
    binding().initialize_native_asmparser()


@functools.lru_cache(maxsize=16)
def target_machine(triple: str, cpu: str, features: str) -> llvm.TargetMachine:
    """LLVM's code generator for a device."""
    initialize()
    try:
        target = binding().Target.from_triple(triple)
        # A WebAssembly module has one place for its data, which is known when it is linked.
        reloc = "static" if triple.startswith("wasm32") else "pic"
        return target.create_target_machine(
            cpu=cpu, features=features, opt=2, reloc=reloc, codemodel="default"
        )
    except RuntimeError as error:
        raise BuildError(f"LLVM has no code generator for {triple} {cpu}: {error}") from None


def compile_text(text: str, target: Target) -> bytes:
    """LLVM IR text to an object file. Raises BuildError where LLVM refuses it."""
    return bytes(_emitted(text, target, "emit_object"))


def assembly_text(text: str, target: Target) -> str:
    """LLVM IR text to what `compile_text` makes of it, as assembly. Raises BuildError."""
    return str(_emitted(text, target, "emit_assembly"))


def _emitted(text: str, target: Target, emit: str) -> Any:
    triple = code_triple(target.triple)
    machine = target_machine(triple, target.cpu, target.features)
    return emitted(text, triple, machine, getattr(machine, emit))


def _source(kernel: KernelText, program: Program, target: Target, symbol: str) -> str:
    """A written kernel, and what it is called with."""
    driver = run_text(symbol, len(program.params), target, len(program.symbols))
    parts = [support_text(target), *kernel.declarations, kernel.function, driver, ""]
    return "\n".join(parts[0 if parts[0] else 1 :])


class LlvmBackend:
    """CPU code through LLVM."""

    name = "llvm"

    def source(self, program: Program, target: Target, symbol: str) -> str:
        return _source(write_kernel(program, target, symbol), program, target, symbol)

    def build(self, program: Program, target: Target, symbol: str) -> ObjectCode:
        kernel, text = self.written(program, target, symbol)
        return dataclasses.replace(kernel, code=compile_text(text, target))

    def written(self, program: Program, target: Target, symbol: str) -> tuple[ObjectCode, str]:
        """A kernel without its code, and the text that `compile_text` makes that of."""
        kernel = write_kernel(program, target, symbol)
        made = ObjectCode(symbol=symbol, code=b"", workspace_bytes=kernel.workspace_bytes)
        return made, _source(kernel, program, target, symbol)

    def build_entry(self, calls: Sequence[EntryCall], target: Target, symbol: str) -> bytes:
        return compile_text(entry_text(calls, target, symbol), target)


def load_text(text: str, target: Target) -> Library:
    """Compile LLVM IR text and load it: calibration and peak kernels."""
    return loader.load([compile_text(text, target)], target)


BACKENDS.add("llvm", LlvmBackend())
