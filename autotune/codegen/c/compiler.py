"""The system's C compiler. In: C text. Out: an object file, or a loaded library of several."""

from __future__ import annotations

import ctypes
import functools
import shutil
import subprocess
import tempfile
from collections.abc import Sequence
from pathlib import Path

from autotune.errors import BuildError
from autotune.target import Target, machine_of

FLAGS = (
    "-std=gnu99", "-O2", "-fPIC", "-fwrapv", "-ffp-contract=fast", "-fno-math-errno",
    "-fno-trapping-math", "-fno-tree-vectorize", "-Wno-psabi", "-w",
)  # fmt: skip
"""The code is written as vectors already; the compiler's own vectoriser only takes time."""
TIMEOUT_S = 120.0
"""Seconds of one call of the compiler."""
_SYSTEMS = {"arm": "arm-linux-gnueabihf"}
"""What cross compilers are called after, where it is not the machine with `-linux-gnu`."""
_LEVELS = {
    "x86-64-v4": {"+avx512f", "+avx512bw", "+avx512cd", "+avx512dq", "+avx512vl"},
    "x86-64-v3": {"+avx2", "+fma"},
    "x86-64-v2": {"+sse4.2"},
}


@functools.lru_cache(maxsize=16)
def find_compiler(machine: str) -> str:
    """Path of a compiler for this machine ("unknown": whatever it is) or another one
    (`machine_of`). Raises BuildError."""
    import platform

    own = machine in (machine_of(platform.machine()), "unknown")
    system = _SYSTEMS.get(machine, f"{machine}-linux-gnu")
    names = ("cc", "gcc", "clang") if own else (f"{system}-gcc",)
    for name in names:
        if found := shutil.which(name):
            return found
    package = "gcc" if own else f"gcc-{system.replace('_', '-')}"
    raise BuildError(
        f"targets of kind c need a C compiler, and none of {', '.join(names)} was found; install "
        f"one (Debian: {package})"
    )


def compile_c(text: str, target: Target) -> bytes:
    """C text to an object file. Raises BuildError with the compiler's first complaint."""
    with tempfile.TemporaryDirectory() as folder:
        out = Path(folder, "kernel.o")
        run_compiler(
            machine_of(target.triple),
            ["-c", *FLAGS, *machine_flags(target), "-x", "c", "-", "-o", out],
            text,
        )
        return out.read_bytes()


def shared_library(text: str) -> bytes:
    """C text to a shared library of this machine. Raises BuildError with the compiler's first
    complaint."""
    with tempfile.TemporaryDirectory() as folder:
        out = Path(folder, "library.so")
        run_compiler("unknown", [*FLAGS, "-shared", "-x", "c", "-", "-o", out], text)
        return out.read_bytes()


_EXTENSIONS = {
    "+fullfp16": "+fp16", "+dotprod": "+dotprod", "+bf16": "+bf16", "+i8mm": "+i8mm",
    "+sve": "+sve",
}  # fmt: skip
"""LLVM's features of aarch64 -> those that C compilers add to an architecture."""


def machine_flags(target: Target) -> list[str]:
    """Which instructions may be used. On x86 and aarch64 the architecture's level: compilers know
    few of each other's names of CPUs."""
    openmp = ["-fopenmp"] if target.threads > 1 else []
    if target.cpu == "generic" or machine_of(target.triple) == "unknown":
        return openmp
    features = set(target.features.split(","))
    if target.triple.startswith("aarch64"):
        more = [name for feature, name in _EXTENSIONS.items() if feature in features]
        level = "armv8.2-a" if more else "armv8-a"
        return [f"-march={level}{''.join(more)}", *openmp]
    if not target.triple.startswith("x86_64"):
        return [f"-mcpu={target.cpu}", *openmp]
    levels = [name for name, needed in _LEVELS.items() if features >= needed]
    return [f"-march={levels[0] if levels else 'x86-64'}", *openmp]


class CLibrary:
    """Objects that may call each other, linked and loaded. Addresses are valid while the library
    is referenced."""

    def __init__(self, codes: Sequence[bytes], target: Target) -> None:
        with tempfile.TemporaryDirectory() as folder:
            names = []
            for number, code in enumerate(codes):
                names.append(Path(folder, f"{number}.o"))
                names[-1].write_bytes(code)
            out = Path(folder, "kernels.so")
            openmp = ["-fopenmp"] if target.threads > 1 else []
            run_compiler(
                machine_of(target.triple), ["-shared", *openmp, "-o", out, *names, "-lm"], ""
            )
            self._library = ctypes.CDLL(str(out))

    def address(self, symbol: str) -> int:
        try:
            found = ctypes.cast(getattr(self._library, symbol), ctypes.c_void_p).value
        except AttributeError:
            found = None
        if not found:
            raise BuildError(f"no function {symbol} in the loaded objects")
        return found


def run_compiler(machine: str, arguments: Sequence[str | Path], text: str) -> None:
    """Raises BuildError with the first complaint. `machine`: see `find_compiler`."""
    compile_by([find_compiler(machine), *map(str, arguments)], text)


def compile_by(command: Sequence[str], text: str) -> None:
    """Run a compiler on a text. Raises BuildError with its first complaint."""
    try:
        done = subprocess.run(
            command, input=text, capture_output=True, text=True, timeout=TIMEOUT_S, check=False
        )
    except subprocess.TimeoutExpired:
        raise BuildError(f"{command[0]} took more than {TIMEOUT_S:.0f} s") from None
    except OSError as error:
        raise BuildError(f"cannot start {command[0]}: {error.strerror}") from None
    if done.returncode != 0:
        complaints = [line for line in done.stderr.splitlines() if "error" in line.lower()]
        first = (complaints or done.stderr.splitlines() or ["no message"])[0]
        raise BuildError(f"{command[0]} refused the program: {first.strip()[:300]}")
