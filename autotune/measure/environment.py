"""Environment variables of a worker process. In: those of its parent. Out: the few that Python,
loaders, compilers and drivers read.

Everything else stays behind: passwords, tokens and addresses are often kept there.
"""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from pathlib import Path

COMPILER = "pocl"
"""Name of the compiler's own directory in the temporary one."""
NAMES = frozenset({
    "PATH", "LANG", "LANGUAGE", "TZ", "LD_LIBRARY_PATH", "LD_PRELOAD", "CPATH", "C_INCLUDE_PATH",
    "LIBRARY_PATH", "SOURCE_DATE_EPOCH", "SYSTEMROOT", "VIRTUAL_ENV", "CONDA_PREFIX",
})  # fmt: skip
PREFIXES = (
    "LC_", "PYTHON", "CUDA_", "NVIDIA_", "OCL_", "OPENCL_", "POCL_", "PYOPENCL_", "ROCR_", "HIP_",
    "HSA_", "GPU_", "ZE_", "ONEAPI_", "OMP_", "GOMP_", "KMP_", "MKL_", "OPENBLAS_", "BLIS_",
    "VECLIB_", "MALLOC_", "GLIBC_TUNABLES", "NUMPY_", "QEMU_", "ASAN_", "UBSAN_",
)  # fmt: skip
INSTALLED = ("site-packages", "dist-packages")
"""Names of directories that hold nothing but installed modules."""
_NUMPY_THREADS = (
    "OPENBLAS_NUM_THREADS",
    "MKL_NUM_THREADS",
    "BLIS_NUM_THREADS",
    "VECLIB_MAXIMUM_THREADS",
)


def own_path(outer: Mapping[str, str], search_path: Sequence[str]) -> list[str]:
    """Entries of a search path without the directory that a program was started in, or lies in,
    which may be somebody's home: what is installed, was named in PYTHONPATH, or is this package's
    own."""
    here = str(Path(__file__).resolve().parents[2])
    named = {os.path.abspath(p) for p in outer.get("PYTHONPATH", "").split(os.pathsep) if p}
    standard = os.path.dirname(os.__file__)
    entries = [os.path.abspath(p) for p in search_path if p]
    kept = [
        p for p in entries
        if p in named or Path(p).name in INSTALLED or p.startswith(standard) or os.path.isfile(p)
    ]  # fmt: skip
    return list(dict.fromkeys([*kept, here]))


def worker_environment(
    outer: Mapping[str, str], folder: Path, search_path: Sequence[str]
) -> dict[str, str]:
    """A worker finds the same modules as its parent. PoCL keeps what it compiles, and pyopencl
    what it generates, where that can be written; numpy has no threads, which after their work
    wait busily on the cores that kernels are timed on."""
    return {
        **{k: v for k, v in outer.items() if k in NAMES or k.startswith(PREFIXES)},
        "PYTHONPATH": os.pathsep.join(map(os.path.abspath, search_path)),
        "HOME": str(folder),
        "TMPDIR": str(folder),
        "POCL_CACHE_DIR": str(folder / COMPILER),
        "PYOPENCL_NO_CACHE": "1",
        **dict.fromkeys(_NUMPY_THREADS, "1"),
    }
