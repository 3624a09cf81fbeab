"""Every line of docs/DEPLOY.md, part by part, as a shell runs it."""

from __future__ import annotations

import os
import subprocess
from pathlib import Path

import pytest

from tests.needs import program, require
from tests.pages import BIN, ROOT, blocks, sections

PAGE = "docs/DEPLOY.md"
PARTS = [part for part, text in sections(PAGE).items() if blocks(text, "sh")]
NEEDED = {
    "cc": "cc",
    "aarch64-linux-gnu-gcc": "aarch64-cc",
    "qemu-aarch64": "qemu",
    "arm-none-eabi-gcc": "cortex-m",
    "cppcheck": "cppcheck",
    "node": "node",
}
OPTIONAL = ("cmake", "c++", "rustc")
"""What a machine may lack: the part's lines with them are left out, and what they would make."""


QUICK = ("C", "In a program", "Python with numpy alone")
"""The parts that are tried every time; what others compile takes several seconds each, and for
Android, Zig makes a C library first."""
TRIED = [pytest.param(p, marks=[pytest.mark.slow] * (p not in QUICK)) for p in PARTS]


@pytest.mark.parametrize("part", TRIED)
def test_the_lines_of_a_part_run_in_their_order(part: str, tmp_path: Path) -> None:
    (text,) = blocks(sections(PAGE)[part], "sh")
    for word, need in NEEDED.items():
        if f"{word} " in text:
            require(need)
    made: set[str] = set()
    for line in text.splitlines():
        words = line.split()
        if words[0] in OPTIONAL and program(words[0]) is None:
            made.add(f"./{words[-1]}" if words[0] != "cmake" else "build/main")
            continue
        if words[0] not in made:
            run(line, tmp_path)
    outputs = list(tmp_path.glob("out0.bin"))
    assert all(file.stat().st_size == 40 for file in outputs)


def run(line: str, folder: Path) -> None:
    paths = os.pathsep.join([str(BIN), os.environ["PATH"]])
    environment = {**os.environ, "PATH": paths, "EXAMPLES": str(ROOT / "examples/deploy")}
    done = subprocess.run(
        line, shell=True, cwd=folder, env=environment, capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, f"{line}\n{done.stderr}"


def test_each_format_is_at_most_five_lines() -> None:
    formats = [p for p in PARTS if "--format" in sections(PAGE)[p]]
    assert len(formats) >= 4
    for part in formats:
        (text,) = blocks(sections(PAGE)[part], "sh")
        assert len(text.splitlines()) <= 5
