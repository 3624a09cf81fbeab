"""llvmlite where it is installed. A board that only loads what others built does without."""

from __future__ import annotations

import functools
import platform
from collections.abc import Callable
from typing import Any

from autotune.errors import BuildError


def binding() -> Any:
    """llvmlite's binding of LLVM. Raises BuildError where it is not installed."""
    try:
        import llvmlite.binding
    except ImportError:
        raise BuildError(
            "llvmlite is not installed here, so nothing can be built: pip install llvmlite, or "
            "build on another machine with --build host"
        ) from None
    return llvmlite.binding


@functools.cache
def builds_here() -> bool:
    """Whether llvmlite is installed."""
    try:
        binding()
    except BuildError:
        return False
    return True


def assembles(triple: str) -> bool:
    """Whether LLVM can read assembly for a device: llvmlite has this machine's assembler alone."""
    names = ("x86_64", "amd64")
    return triple.startswith("x86_64") and platform.machine().lower() in names


def emitted(text: str, triple: str, machine: Any, emit: Callable[[Any], Any]) -> Any:
    """What a target machine emits for LLVM IR text, cleaned up. Raises BuildError where LLVM
    refuses it."""
    try:
        module = binding().parse_assembly(text)
        module.triple = triple
        module.data_layout = str(machine.target_data)
        _optimize(module, machine)
        return emit(module)
    except RuntimeError as error:
        raise BuildError(f"LLVM refused the program: {str(error).strip()[:300]}") from None


def _optimize(module: Any, machine: Any) -> None:
    """Local clean-up. Kernels are written as vectors and register tiles already, so a short pass
    list is enough: cells to registers, control flow, equal loads to one."""
    options = binding().create_pipeline_tuning_options(speed_level=1)
    options.loop_vectorization = options.slp_vectorization = options.loop_unrolling = False
    builder = binding().create_pass_builder(machine, options)
    manager = binding().create_new_module_pass_manager()
    manager.add_always_inliner_pass()
    manager.add_sroa_pass()
    manager.add_simplify_cfg_pass()
    manager.add_instruction_combine_pass()
    manager.run(module, builder)
