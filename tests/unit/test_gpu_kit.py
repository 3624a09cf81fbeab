"""benchmarks/gpus/gpu_kit.py: which wheels are asked for, and what becomes of them."""

from __future__ import annotations

import sys
import tarfile
import zipfile
from pathlib import Path

import pytest

from benchmarks.gpus import gpu_kit


def test_wheels_for_another_python_become_one_folder_of_modules(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    asked: list[list[str]] = []

    def run(command: list[str], check: bool) -> None:
        assert check
        asked.append(command)
        folder = Path(command[command.index("-d") + 1])
        for name in ("a", "b"):
            with zipfile.ZipFile(folder / f"{name}-1-py3-none-any.whl", "w") as wheel:
                wheel.writestr(f"{name}/__init__.py", "")

    monkeypatch.setattr(gpu_kit.subprocess, "run", run)
    archive = tmp_path / "kit.tar.xz"
    monkeypatch.setattr(sys, "argv", ["gpu_kit", "--python", "3.13", "-o", str(archive)])
    assert gpu_kit.main() == 0
    (command,) = asked
    assert command[command.index("--python-version") + 1] == "3.13"
    assert set(gpu_kit.PACKAGES) <= set(command)
    with tarfile.open(archive) as packed:
        assert {"a/__init__.py", "b/__init__.py"} <= set(packed.getnames())
    assert capsys.readouterr().out == f"{archive}: 2 packages, 0 MiB\n"
