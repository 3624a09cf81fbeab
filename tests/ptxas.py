"""NVIDIA's assembler. In: PTX. Out: what it says of every kernel. It needs no GPU."""

from __future__ import annotations

import functools
import re
import shutil
import subprocess
import tempfile
from dataclasses import dataclass
from importlib import metadata
from pathlib import Path

PACKAGE = "nvidia-cuda-nvcc-cu12"


@dataclass(frozen=True, slots=True, kw_only=True)
class KernelReport:
    """Bytes and registers are per thread."""

    registers: int
    stack_bytes: int
    spill_bytes: int
    remarks: tuple[str, ...] = ()
    """What ptxas changed about instructions of groups of warps, or left undone."""


@functools.cache
def ptxas() -> str:
    """The assembler's path."""
    found = shutil.which("ptxas")
    if found:
        return found
    try:
        files = metadata.files(PACKAGE) or []
    except metadata.PackageNotFoundError:
        files = []
    paths = [Path(str(f.locate())) for f in files if f.name == "ptxas"]
    assert paths, f"ptxas is missing: pip install {PACKAGE} (it is in the [dev] extra)"
    return str(paths[0])


def assemble(ptx: str, arch: str) -> dict[str, KernelReport]:
    """Kernel -> report. AssertionError with ptxas's words where it refuses the text."""
    with tempfile.NamedTemporaryFile("w", suffix=".ptx") as file:
        file.write(ptx)
        file.flush()
        command = [ptxas(), "-v", f"-arch={arch}", file.name, "-o", "/dev/null"]
        done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert done.returncode == 0, f"ptxas: {done.stderr[:800]}"
    found = re.finditer(
        r"entry function '(\w+)'.*?(\d+) bytes stack frame, (\d+) bytes spill stores, "
        r"(\d+) bytes spill loads.*?Used (\d+) registers",
        done.stderr,
        re.DOTALL,
    )
    return {
        m[1]: KernelReport(
            registers=int(m[5]),
            stack_bytes=int(m[2]),
            spill_bytes=int(m[3]) + int(m[4]),
            remarks=tuple(re.findall(rf"\(C75\d+\).*'{m[1]}'.*", done.stderr)),
        )
        for m in found
    }
