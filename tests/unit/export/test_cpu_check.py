"""A library for another processor of its kind says so when an instance is made."""

from __future__ import annotations

import subprocess
from pathlib import Path

import pytest

import autotune
from autotune.export.cpu_check_text import X86_BITS
from autotune.target import load_target, target_names
from tests.needs import needs
from tests.unit.export.test_export import exported

LINE = "error: model: this processor lacks instructions that the model was compiled for"


@needs("cc", "aarch64-cc", "qemu")
@pytest.mark.parametrize(
    ("target", "compiler", "emulator", "cpus"),
    [
        ("x86-64-v3", "cc", "qemu-x86_64", ("Nehalem", "Haswell")),
        ("neoverse-v1", "aarch64-linux-gnu-gcc", "qemu-aarch64", ("cortex-a53", "max")),
    ],
)
def test_a_processor_that_lacks_instructions_is_told_in_a_line(
    target: str, compiler: str, emulator: str, cpus: tuple[str, str], tmp_path: Path
) -> None:
    exported(autotune.compile("zoo:tiny", target=target), tmp_path, format="static")
    command = [
        compiler,
        "-O1",
        "-static",
        "main.c",
        "libmodel.a",
        "-lm",
        "-lpthread",
        "-o",
        "main",
    ]
    subprocess.run(command, cwd=tmp_path, check=True)
    (tmp_path / "in.bin").write_bytes(bytes(12288))
    for cpu, status in zip(cpus, (2, 0), strict=True):  # without, and with
        run = [emulator, "-cpu", cpu, "./main", "in.bin", "-o", "out.bin"]
        done = subprocess.run(run, cwd=tmp_path, capture_output=True, text=True, check=False)
        assert done.returncode == status, done.stderr
        assert (LINE in done.stderr) == (status == 2)


def test_everything_that_targets_name_is_asked_for() -> None:
    for name in target_names():
        target = load_target(name)
        if target.triple.startswith("x86_64") and name != "cpu":
            named = {f[1:] for f in target.features.split(",") if f.startswith("+")}
            assert named <= set(X86_BITS)
