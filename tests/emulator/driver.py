"""A machine with an emulated GPU, for other processes. In: a folder. Out: the environment in which
the real packages find `libcuda.so.1` and `libnvidia-ml.so.1` there, made of `driver.c`.
"""

from __future__ import annotations

import functools
import os
import subprocess
import tempfile
from collections.abc import Mapping
from pathlib import Path

from tests.needs import require

HERE = Path(__file__).parent
SOURCES = ("driver.c", "queue.c", "nvml.c", "emulator.c", "hopper.c")


def emulated_machine(folder: Path) -> Mapping[str, str]:
    """Processes with these variables have the GPU; `fault` in the folder says what is wrong."""
    library = folder / "libcuda.so.1"
    library.write_bytes(_driver())
    (folder / "libnvidia-ml.so.1").symlink_to(library)
    # workers see the folders where modules are
    paths = [str(HERE / "site"), str(HERE.parents[1]), str(folder)]
    return {
        **os.environ,
        "LD_LIBRARY_PATH": str(folder),
        "PYTHONPATH": os.pathsep.join(paths),
    }


@functools.cache
def _driver() -> bytes:
    """The shared library, compiled once for all machines."""
    require("cc")
    with tempfile.TemporaryDirectory() as folder:
        library = Path(folder) / "libcuda.so.1"
        sources = [str(HERE / name) for name in SOURCES]
        named = ["-Wl,-soname,libcuda.so.1", "-o", str(library)]
        command = ["cc", "-O1", "-shared", "-fPIC", *named, *sources, "-lm", "-ldl"]
        subprocess.run(command, check=True, capture_output=True)
        return library.read_bytes()


def break_down(folder: Path, fault: str) -> None:
    """From now on the GPU has a fault of `driver.c`; empty: it is well."""
    (folder / "fault").write_text(fault)


def put_in(folder: Path, *gpus: str) -> None:
    """Processes that start from now on have these GPUs: "8.0 81920 NVIDIA A100" (capability, MiB
    of memory, name)."""
    (folder / "gpus").write_text("\n".join(gpus))
