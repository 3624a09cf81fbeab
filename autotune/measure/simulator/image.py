"""Code for a simulated board. In: C of a kernel. Out: an image that lies at a fixed address and
begins with a function of one argument, an array of pointers.

The compiler is arm-none-eabi-gcc (Debian: gcc-arm-none-eabi, libnewlib-arm-none-eabi), as for the
board itself.
"""

from __future__ import annotations

import shutil
import subprocess
import tempfile
from collections.abc import Sequence
from pathlib import Path

from autotune.codegen.c.source import CSource
from autotune.errors import BuildError, DeviceError
from autotune.measure.simulator.core import CODE_BASE

COMPILER, OBJCOPY = "arm-none-eabi-gcc", "arm-none-eabi-objcopy"
_TIMEOUT_S = 60.0
_FLAGS = (
    "-std=gnu99", "-O2", "-fno-tree-vectorize", "-Wno-psabi", "-w", "-mcpu=cortex-m4", "-mthumb",
    "-mfloat-abi=soft", "-nostartfiles", "-ffunction-sections", "-Wl,--gc-sections",
    f"-Wl,--section-start=.entry={CODE_BASE:#x}", f"-Wl,-Ttext={CODE_BASE + 0x100:#x}",
    "-Wl,-e,entry",
)  # fmt: skip
_HEAD = """#include <math.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>
typedef ptrdiff_t ix;"""


def tools() -> None:
    """Raises DeviceError where there is no compiler for such boards here."""
    for name in (COMPILER, OBJCOPY):
        if shutil.which(name) is None:
            raise DeviceError(
                f"a simulated board compiles with {COMPILER}, which was not found; install it "
                "(Debian: gcc-arm-none-eabi libnewlib-arm-none-eabi)"
            )


def image_of(kernel: CSource) -> bytes:
    """The image of one kernel. Raises BuildError with the compiler's first complaint."""
    count = kernel.params + 1
    pointers = "".join(f"void *p{n}, " for n in range(kernel.params))
    given = ", ".join(f"args[{n}]" for n in range(count))
    lines = [
        _HEAD, *kernel.head,
        f"void {kernel.symbol}({pointers}void *workspace) {{", *kernel.body, "}",
        '__attribute__((section(".entry"))) void entry(void **args) {',
        f"    {kernel.symbol}({given});", "}", "",
    ]  # fmt: skip
    with tempfile.TemporaryDirectory() as folder:
        made, out = Path(folder, "kernel.elf"), Path(folder, "kernel.bin")
        _run([COMPILER, *_FLAGS, "-x", "c", "-", "-lm", "-o", str(made)], "\n".join(lines))
        _run([OBJCOPY, "-O", "binary", str(made), str(out)], "")
        return out.read_bytes()


def _run(command: Sequence[str], text: str) -> None:
    try:
        done = subprocess.run(
            command, input=text, capture_output=True, text=True, timeout=_TIMEOUT_S, check=False
        )
    except subprocess.TimeoutExpired:
        raise BuildError(f"{command[0]} took more than {_TIMEOUT_S:.0f} s") from None
    except OSError as error:
        raise BuildError(f"cannot start {command[0]}: {error.strerror}") from None
    if done.returncode != 0:
        complaints = [line for line in done.stderr.splitlines() if "error" in line]
        first = (complaints or done.stderr.splitlines() or ["no message"])[0]
        raise BuildError(f"{command[0]} refused the program: {first.strip()[:300]}")
