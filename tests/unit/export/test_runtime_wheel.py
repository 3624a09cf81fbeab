"""A wheel of the runtime: small, and beside numpy alone it runs models right."""

from __future__ import annotations

import os
import subprocess
import sys
import zipfile
from pathlib import Path

import numpy as np
import onnxruntime
import pytest

import autotune
from autotune.cli import execute
from autotune.export.runtime_wheel import runtime_wheel
from autotune.runtime.__main__ import main
from tests.networks import network

MOST_BYTES = 600_000
RUN = """
import sys, autotune
from autotune.runtime import __main__ as runner
print(autotune.__file__)
print(runner.main([*sys.argv[1:]]))
found = {name.partition(".")[0] for name in sys.modules} - {"__main__"}
print(sorted(found - set(sys.stdlib_module_names)))
try:
    autotune.compile("zoo:tiny")
    autotune.tune
except autotune.InputError as error:
    print(error)
"""


def environment_of_numpy(folder: Path) -> Path:
    """The Python of an environment that has numpy and nothing else."""
    venv = (sys.executable, "-m", "venv", "--without-pip", "--symlinks", str(folder))
    subprocess.run(venv, check=True, timeout=120)
    (packages,) = folder.glob("lib/python*/site-packages")
    here = Path(np.__file__).parent.parent
    for name in ("numpy", "numpy.libs"):
        if (here / name).exists():
            (packages / name).symlink_to(here / name)
    with zipfile.ZipFile(next(folder.parent.glob("out/*.whl"))) as wheel:
        wheel.extractall(packages)  # as an installer does
    return folder / "bin/python"


@pytest.mark.parametrize("name", ["tiny", pytest.param("resnet18", marks=pytest.mark.slow)])
def test_a_model_runs_where_there_is_numpy_alone(name: str, tmp_path: Path) -> None:
    model = network(name)
    (tmp_path / "net.onnx").write_bytes(model.SerializeToString())
    session = onnxruntime.InferenceSession(model.SerializeToString())
    (port,) = session.get_inputs()
    shape = [side if isinstance(side, int) else 1 for side in port.shape]
    x = np.random.default_rng(0).standard_normal(shape).astype(np.float32)
    words = ["export", str(tmp_path / "net.onnx"), "--format", "python"]
    assert execute([*words, "-o", str(tmp_path / "out"), "--log", str(tmp_path / "no.db")]) == 0
    (tmp_path / "in0.bin").write_bytes(x.tobytes())
    python = environment_of_numpy(tmp_path / "venv")
    expected = session.run(None, {port.name: x})
    files = [str(tmp_path / f"out{n}.bin") for n in range(len(expected))]
    words = [str(tmp_path / "out/model.model"), str(tmp_path / "in0.bin"), "-o", *files]
    clean = {k: v for k, v in os.environ.items() if k != "PYTHONPATH"}
    done = subprocess.run(
        [str(python), "-c", RUN, *words], capture_output=True, text=True, env=clean, cwd=tmp_path,
        check=False,
    )  # fmt: skip
    assert done.stderr == ""
    place, times, status, imported, refusal = done.stdout.splitlines()
    assert str(tmp_path) in place
    assert "median of 1" in times
    assert (status, imported) == ("0", "['autotune', 'numpy']")
    assert "autotune-runtime is installed" in refusal
    for file, array in zip(files, expected, strict=True):
        found = np.fromfile(file, np.float32).reshape(array.shape)
        np.testing.assert_allclose(found, array, rtol=0, atol=1e-4 * np.abs(array).max())


def test_the_wheel_is_small_and_always_the_same() -> None:
    name, data = runtime_wheel()
    assert name.startswith("autotune_runtime-")
    assert name.endswith("-py3-none-any.whl")
    assert len(data) < MOST_BYTES
    assert runtime_wheel() == (name, data)


def test_pip_takes_the_wheel(tmp_path: Path) -> None:
    name, data = runtime_wheel()
    (tmp_path / name).write_bytes(data)
    pip = (sys.executable, "-m", "pip", "install", "--quiet", "--no-deps", "--no-index")
    done = subprocess.run(
        [*pip, "--target", str(tmp_path / "there"), str(tmp_path / name)],
        capture_output=True, text=True, check=False,
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    assert (tmp_path / "there/autotune/runtime/artifact.py").is_file()


@pytest.mark.parametrize(
    ("words", "line"),
    [
        (["none.model", "in0.bin"], "cannot read none.model"),
        (["tiny.model"], "expected 1 inputs, got 0"),
        (["tiny.model", "short.bin"], "12288 bytes, got 4"),
        (["tiny.model", "in0.bin", "--repeat", "x"], "--repeat must be a whole number"),
        (["tiny.model", "in0.bin", "-o", "a", "b"], "expected 1 files after -o, got 2"),
    ],
)
def test_what_is_wrong_with_the_files_is_one_line(
    words: list[str], line: str, tmp_path: Path, capsys: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
) -> None:  # fmt: skip
    monkeypatch.chdir(tmp_path)
    autotune.compile("zoo:tiny").save("tiny.model")
    Path("short.bin").write_bytes(bytes(4))
    Path("in0.bin").write_bytes(bytes(12288))
    assert main(words) == 2
    error = capsys.readouterr().err
    assert line in error
    assert error.count("\n") == 1
