"""Object files into this process without a compiler or a linker, for boards too weak to have one.

In: relocatable objects for this machine. Out: addresses of functions. No page is writable and
executable at the same time. From outside, objects may use a few functions of the C and compiler
runtimes and nothing else.
"""

from __future__ import annotations

import ctypes
import mmap
import os
import platform
import re
import weakref
from collections.abc import Callable, Sequence

from autotune.codegen.elf.image import ElfImage
from autotune.codegen.elf.symbols import TEAM_END
from autotune.errors import BuildError
from autotune.target import machine_of

RUNTIME = {
    "libc.so.6": re.compile(r"mem(cpy|move|set|cmp)|syscall|pthread_(create|join|setaffinity_np)"
                            r"|sched_get(cpu|affinity)"),
    "libpthread.so.0": re.compile(r"pthread_(create|join|setaffinity_np)"),
    "libm.so.6": re.compile(r"(exp(2|10)?|expm1|sincos|ldexp|log2?|log1p|pow|a?(sin|cos|tan)h?"
                            r"|erfc?|fma|fmax|fmin|fmod|sqrt|floor|ceil|trunc|rint|nearbyint|round(even)?)f?"),
    "libgcc_s.so.1": re.compile(r"__aeabi_\w+|__(fix|float|trunc|extend)\w+|__u?(div|mod)[ds]i3"),
}  # fmt: skip
"""Library -> the functions of it that objects may call."""
_READ, _WRITE, _RUN = 1, 2, 4
"""Protections of pages (mmap)."""
_ARM_CACHEFLUSH = 0x0F0002
"""Number of Linux's private system call of 32-bit Arm."""


def this_machine() -> str:
    """Its name, as objects are for it."""
    return machine_of(platform.machine())


class ElfLibrary:
    """Loaded objects. Addresses are valid while the library is referenced. Raises BuildError.

    `outside`: address of a name that the objects lack, None where there is none; by default, of
    the runtime's functions.
    """

    def __init__(
        self, codes: Sequence[bytes], outside: Callable[[str], int | None] | None = None
    ) -> None:
        runtime = outside or Runtime().address
        self._image = ElfImage(codes, machine=this_machine(), runtime=runtime, allocate=_allocate)
        libc = ctypes.CDLL(None, use_errno=True)
        code, constants, _ = self._image.regions
        for region, rights in ((code, _READ | _RUN), (constants, _READ)):
            size = ctypes.c_size_t(region.room - region.start)
            start = ctypes.c_void_p(self._image.base + region.start)
            if size.value and libc.mprotect(start, size, rights):
                raise BuildError("the system lets no memory be made executable here")
        flush_instructions(self._image.base, self._image.base + code.room)
        if TEAM_END in self._image:
            _end_with(self, self._image, self._image.address(TEAM_END))

    def address(self, symbol: str) -> int:
        """The address of a function in the objects. Raises BuildError."""
        return self._image.address(symbol)


def _end_with(library: object, code: object, end: int) -> None:
    """Call TEAM_END, at that address, when the library is not used any more; hold its code until
    the threads have left it."""
    weakref.finalize(library, _end_threads, os.getpid(), code, end)


def _end_threads(process: int, _code: object, end: int) -> None:
    if os.getpid() == process:  # a fork has no threads but its own, and would wait for ever
        ctypes.CFUNCTYPE(None)(end)()


def _allocate(size: int) -> tuple[mmap.mmap, int]:
    memory = mmap.mmap(-1, size, flags=mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS, prot=_READ | _WRITE)
    return memory, ctypes.addressof(ctypes.c_char.from_buffer(memory))


def flush_instructions(start: int, end: int) -> None:
    """Make the processor see code that was written as data. x86-64 does so by itself."""
    machine, first, last = this_machine(), ctypes.c_void_p(start), ctypes.c_void_p(end)
    if machine == "aarch64":
        ctypes.CDLL("libgcc_s.so.1").__clear_cache(first, last)
    elif machine == "arm":
        ctypes.CDLL(None).syscall(_ARM_CACHEFLUSH, first, last, 0)
    elif machine == "riscv64":
        ctypes.CDLL(None).__riscv_flush_icache(first, last, ctypes.c_ulong(0))


class Runtime:
    """Functions outside of the objects."""

    def __init__(self) -> None:
        self._libraries: dict[str, ctypes.CDLL] = {}

    def address(self, name: str) -> int | None:
        """The address of a function that objects may call; None where there is none. Raises
        BuildError where the library it is in is missing."""
        for library, offered in RUNTIME.items():
            if offered.fullmatch(name):
                function = getattr(self._library(library), name, None)
                if function is not None:
                    return ctypes.cast(function, ctypes.c_void_p).value
        return None

    def _library(self, name: str) -> ctypes.CDLL:
        if name not in self._libraries:
            try:
                self._libraries[name] = ctypes.CDLL(name)
            except OSError:
                package = name.partition(".")[0].replace("_", "-")
                raise BuildError(f"object code needs {name}; install {package}") from None
        return self._libraries[name]
