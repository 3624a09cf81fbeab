"""Packages for a GPU machine that has no network, in one archive. In: its Python. Out: a .tar.xz.

    python benchmarks/gpus/gpu_kit.py [--python 3.12] [-o kit.tar.xz] [--packages NAME ...]

Packs what `benchmarks/gpus/gpu.py` needs beside numpy, onnx, rich, cuda-bindings, nvidia-ml-py,
PyTorch and their like, for Linux on x86-64; 50 MB, in some minutes. There:

    mkdir -p site && tar -xJf kit.tar.xz -C site && ln -s ../configs autotune/configs
    PYTHONPATH=$PWD/site python3 benchmarks/gpus/gpu.py

The link stands for what an installation does: `autotune.configs` is the folder `configs`.
"""

from __future__ import annotations

import argparse
import subprocess
import sys
import tarfile
import tempfile
import zipfile
from collections.abc import Sequence
from pathlib import Path

PACKAGES = (
    "llvmlite>=0.50", "xgboost-cpu>=3.0", "sqlalchemy>=2.0.40", "greenlet", "alembic>=1.15",
    "mako", "rpyc>=6.0.2", "plumbum",
)  # fmt: skip
"""xgboost-cpu: the usual package brings 300 MB for GPUs, which the cost model does without."""
PLATFORMS = ("manylinux_2_28", "manylinux_2_27", "manylinux_2_17", "manylinux2014")


def download(packages: Sequence[str], python: str, folder: str) -> list[Path]:
    """Wheels of just these packages."""
    command = [sys.executable, "-m", "pip", "download", "-q", "--no-deps", "-d", folder]
    command += ["--only-binary=:all:", "--implementation", "cp", "--python-version", python]
    for platform in PLATFORMS:
        command += ["--platform", f"{platform}_x86_64"]
    subprocess.run([*command, *packages], check=True)
    return sorted(Path(folder).glob("*.whl"))


def pack(wheels: Sequence[Path], archive: Path) -> None:
    """What the wheels hold, as one folder of modules."""
    with tempfile.TemporaryDirectory() as folder:
        for wheel in wheels:
            with zipfile.ZipFile(wheel) as opened:
                opened.extractall(folder)
        with tarfile.open(archive, "w:xz") as out:
            for path in sorted(Path(folder).iterdir()):
                out.add(path, path.name)


def main() -> int:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--python", default="3.12", help="version there")
    parser.add_argument("-o", "--output", type=Path, default=Path("kit.tar.xz"))
    parser.add_argument("--packages", nargs="+", default=PACKAGES)
    options = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        wheels = download(options.packages, options.python, folder)
        pack(wheels, options.output)
    size_mib = options.output.stat().st_size / 2**20
    print(f"{options.output}: {len(wheels)} packages, {size_mib:.0f} MiB")
    return 0


if __name__ == "__main__":
    sys.exit(main())
