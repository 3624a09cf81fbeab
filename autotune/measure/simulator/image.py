"""Code for a simulated board. In: C of kernels, the order of their calls. Out: an ELF file whose
code lies where the core has it, with a function of two arguments: an array of pointers, and a
function that is called before the first kernel and after each.

The compiler is the board's own cross compiler (`Core.compiler`).
"""

from __future__ import annotations

import shutil
import struct
import tempfile
from collections.abc import Sequence
from pathlib import Path

from autotune.codegen.base import EntryCall
from autotune.codegen.c.compiler import compile_by
from autotune.codegen.c.shared_kernels import shared_kernels
from autotune.codegen.c.source import CSource
from autotune.errors import DeviceError
from autotune.measure.simulator.cores import Core

ENTRY_OFFSET = 16
"""Where the first function lies, from the beginning of the code on. Before it is the one that is
called between kernels."""
_FLAGS = (
    "-std=gnu99", "-O2", "-fno-tree-vectorize", "-fno-builtin-printf", "-Wno-psabi", "-w",
    "-nostartfiles", "-Wl,-N", "-Wl,-e,entry", "-Wl,--no-warn-rwx-segments",
)  # fmt: skip
_HEAD = """#include <math.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>
typedef ptrdiff_t ix;
__attribute__((section(".mark"), used, noinline)) void mark(void) { __asm__ volatile(""); }"""
_LAYOUT = """SECTIONS {{
    .vectors {vectors:#x} : {{ KEEP(*(.vectors)) }}
    .code {code:#x} : {{
        KEEP(*(.mark)) . = {entry}; KEEP(*(.entry))
        *(.text .text.*)
        *(.rodata .rodata.* .srodata .srodata.* .data .data.* .sdata .sdata.*)
        *(.bss .bss.* .sbss .sbss.* COMMON)
    }}
    .tbss : {{ *(.tdata .tdata.* .tbss .tbss.*) }}
    /DISCARD/ : {{ *(.comment) *(.ARM.exidx*) *(.eh_frame) }}
}}
"""
_PROGRAM = struct.Struct("<IIIIIIII")
_LOADED = 1


def tools(core: Core) -> None:
    """Raises DeviceError where there is no compiler for such boards here."""
    if shutil.which(core.compiler) is None:
        raise DeviceError(
            f"a simulated {core.name} compiles with {core.compiler}, which was not found; install "
            f"it (Debian: {core.packages})"
        )


def image_of(
    kernels: Sequence[CSource], calls: Sequence[EntryCall], core: Core, boot: str = ""
) -> bytes:
    """The file. `calls`: kernels in order, with the places of their arguments: number of a pointer
    and bytes from there. `boot`: C of what the core begins with, if anything has to be. Raises
    BuildError with the compiler's first complaint."""
    definitions = dict.fromkeys(line for kernel in kernels for line in kernel.head)
    lines = [_HEAD, *definitions]
    written, shared = shared_kernels(kernels, calls)
    for kernel in written:
        source = kernel.source
        pointers = "".join(f"void *p{n}, " for n in range(source.params))
        head = f"static void {source.symbol}({pointers}void *workspace{kernel.behind})"
        lines += [f"__attribute__((noinline)) {head} {{", *source.body, "}"]
    lines += [
        '__attribute__((section(".entry"), used)) void entry(char **args, void (*mark)(void)) {',
        "    mark();",
    ]
    for now in shared:
        given = ", ".join(f"args[{base}] + {offset}" for base, offset in now.call.args)
        lines += [f"    {now.call.symbol}({given}{now.behind});", "    mark();"]
    return linked("\n".join([*lines, "}", boot, ""]), core)


def called_once(kernel: CSource) -> tuple[EntryCall, ...]:
    """One call of a kernel, whose arguments the pointers are in order."""
    args = tuple((number, 0) for number in range(kernel.params + 1))
    return (EntryCall(symbol=kernel.symbol, args=args),)


def linked(text: str, core: Core) -> bytes:
    """C text as an ELF file. Raises BuildError with the compiler's first complaint."""
    layout = _LAYOUT.format(vectors=core.vectors, code=core.code, entry=ENTRY_OFFSET)
    with tempfile.TemporaryDirectory() as folder:
        made, script = Path(folder, "kernel.elf"), Path(folder, "layout.ld")
        script.write_text(layout)
        places = ["-T", str(script), "-o", str(made)]
        code = ["-x", "c", "-"]
        if core.library_flags:
            kernel = str(Path(folder, "kernel.o"))
            compile_by([core.compiler, *_FLAGS, *core.flags, "-c", "-o", kernel, *code], text)
            code = [kernel]
        flags = core.library_flags or core.flags
        compile_by([core.compiler, *_FLAGS, *flags, *places, *code, "-lm"], text)
        return made.read_bytes()


def segments(elf: bytes) -> list[tuple[int, bytes]]:
    """What of a file is loaded, by address; bytes that are zero at first included."""
    start, count = struct.unpack_from("<I", elf, 28)[0], struct.unpack_from("<H", elf, 44)[0]
    rows = [_PROGRAM.unpack_from(elf, start + n * _PROGRAM.size) for n in range(count)]
    return [
        (address, elf[at : at + in_file].ljust(in_memory, b"\0"))
        for kind, at, address, _, in_file, in_memory, _, _ in rows
        if kind == _LOADED and in_memory
    ]
