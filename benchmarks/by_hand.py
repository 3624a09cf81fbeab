"""Kernels by hand: C source in, its own printed figures out."""

from __future__ import annotations

import argparse
import subprocess
import tempfile
from pathlib import Path

FLAGS = ("-O3", "-march=x86-64-v4", "-mprefer-vector-width=512", "-ffast-math")


def main(description: str | None, source: str) -> None:
    """Compile a program for cores with 512-bit vectors and run it; its argument is how many
    seconds it may take. Fails where it does."""
    parser = argparse.ArgumentParser(description=(description or "").splitlines()[0])
    parser.add_argument("--seconds", type=float, default=3.0)
    options = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        text, program = Path(folder) / "kernels.c", Path(folder) / "kernels"
        text.write_text(source)
        subprocess.run(["cc", *FLAGS, "-o", program, text, "-lm"], check=True)
        subprocess.run([program, str(options.seconds)], check=True)
