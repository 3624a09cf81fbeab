"""Artifacts: what is saved is what is loaded, and nothing else is accepted."""

from __future__ import annotations

import dataclasses
import json
import subprocess
import sys
import zipfile
from pathlib import Path

import numpy as np
import pytest

from autotune.errors import ArtifactError
from autotune.runtime.image_file import is_artifact, read_image, save
from autotune.runtime.model import CompiledModel
from tests.unit.runtime import fakes


@pytest.fixture
def saved(tmp_path: Path) -> Path:
    path = tmp_path / "model.atm"
    save(fakes.image(), path)
    return path


def test_an_image_survives_the_file(saved: Path) -> None:
    before, after = fakes.image(), read_image(saved)
    for field in dataclasses.fields(before):
        if field.name != "constants":
            assert getattr(after, field.name) == getattr(before, field.name)
    np.testing.assert_array_equal(after.constants, before.constants)


def test_a_loaded_image_runs(saved: Path) -> None:
    x = np.ones((2, 3), np.float32)
    model = CompiledModel(read_image(saved), fakes.CallbackLibrary())
    np.testing.assert_array_equal(model.run({"x": x})["y"], x * 4)


def test_weights_are_mapped(saved: Path) -> None:
    """Those of a file; a file within another, or bytes, are read."""
    image = read_image(saved)
    assert isinstance(image.constants.base, np.memmap)
    assert image.constants.ctypes.data % 4096 == 0
    with saved.open("rb") as file:
        for source in (saved.read_bytes(), file):
            np.testing.assert_array_equal(read_image(source).constants, image.constants)


def test_artifacts_of_a_version_that_did_not_align_are_read(saved: Path, tmp_path: Path) -> None:
    old = tmp_path / "old.model"
    with zipfile.ZipFile(saved) as source, zipfile.ZipFile(old, "w") as target:
        for name in source.namelist():
            if name != "check":
                target.writestr(name, source.read(name))
    np.testing.assert_array_equal(read_image(old).constants, read_image(saved).constants)


def test_a_mapped_model_outlives_its_file(saved: Path) -> None:
    image, before = read_image(saved), read_image(saved.read_bytes())
    save(dataclasses.replace(image, constants=image.constants[::-1].copy()), saved)
    saved.unlink()
    np.testing.assert_array_equal(image.constants, before.constants)


def test_saving_replaces_the_file_in_one_step(saved: Path) -> None:
    CompiledModel(fakes.image(constant=5), fakes.CallbackLibrary()).save(saved)
    assert read_image(saved).constants[64:68].view(np.float32)[0] == 5
    assert [p.name for p in saved.parent.iterdir()] == [saved.name]


def test_a_missing_directory_is_named(tmp_path: Path) -> None:
    with pytest.raises(ArtifactError, match=r"cannot write .*nowhere.*No such file"):
        save(fakes.image(), tmp_path / "nowhere" / "m.atm")


def test_a_missing_file_is_named(tmp_path: Path) -> None:
    with pytest.raises(ArtifactError, match=r"cannot read .*no\.atm: No such file"):
        read_image(tmp_path / "no.atm")


def test_another_file_is_not_an_artifact(tmp_path: Path) -> None:
    path = tmp_path / "x.onnx"
    path.write_bytes(b"not a zip at all")
    assert not is_artifact(path)
    with pytest.raises(ArtifactError, match="not a compiled model"):
        read_image(path)


def test_another_zip_is_not_an_artifact(tmp_path: Path) -> None:
    path = tmp_path / "x.zip"
    with zipfile.ZipFile(path, "w") as archive:
        archive.writestr("readme", "hello")
    with pytest.raises(ArtifactError, match="not a compiled model"):
        read_image(path)


@pytest.mark.parametrize("share", [0.3, 0.7, 0.99])
def test_a_truncated_file_is_refused(saved: Path, share: float) -> None:
    data = saved.read_bytes()
    saved.write_bytes(data[: int(len(data) * share)])
    assert is_artifact(saved)
    with pytest.raises(ArtifactError, match="compile the model again"):
        read_image(saved)


def test_flipped_weights_are_refused(saved: Path) -> None:
    data = bytearray(saved.read_bytes())
    at = data.index(np.float32(3).tobytes(), data.index(b"constants.bin"))
    data[at] ^= 1
    saved.write_bytes(data)
    with pytest.raises(ArtifactError, match="damaged"):
        read_image(saved)


@pytest.mark.parametrize("entry", ["manifest.json", "constants.bin"])
@pytest.mark.parametrize(("field", "value"), [(8, 1), (10, 77)], ids=["encrypted", "compressed"])
def test_flags_of_an_entry_that_make_no_sense(
    entry: str, field: int, value: int, saved: Path
) -> None:
    data = bytearray(saved.read_bytes())
    at = data.rindex(entry.encode()) - 46  # its header in the directory at the end
    data[at + field] = value
    saved.write_bytes(data)
    with pytest.raises(ArtifactError, match="damaged"):
        read_image(saved)


def test_a_newer_format_is_refused(saved: Path) -> None:
    rewrite_manifest(saved, format_version=99)
    with pytest.raises(ArtifactError, match="format version 99, this version reads up to 3"):
        read_image(saved)


def test_a_manifest_without_a_field_is_refused(saved: Path) -> None:
    rewrite_manifest(saved, kernels=None)
    with pytest.raises(ArtifactError, match="damaged"):
        read_image(saved)


def test_missing_cpu_features_are_named(tmp_path: Path) -> None:
    target = dataclasses.replace(fakes.host_target(), cpu="future", features="+amx-quantum")
    save(fakes.image(target=target), tmp_path / "m.atm")
    with pytest.raises(ArtifactError, match="built for future, this CPU lacks amx-quantum"):
        read_image(tmp_path / "m.atm")


def test_another_architecture_is_named(tmp_path: Path) -> None:
    target = dataclasses.replace(fakes.host_target(), triple="riscv64-unknown-linux-gnu")
    save(fakes.image(target=target), tmp_path / "m.atm")
    with pytest.raises(ArtifactError, match="built for riscv64"):
        read_image(tmp_path / "m.atm")


def test_reading_needs_neither_the_tuner_nor_the_frontend(saved: Path) -> None:
    script = (
        "import sys\n"
        "for name in ('xgboost', 'sqlalchemy', 'onnx', 'rich', 'typer', 'rpyc'):\n"
        "    sys.modules[name] = None\n"
        "from autotune.runtime import image_file\n"
        f"print(image_file.read_image({str(saved)!r}).name)\n"
    )
    done = subprocess.run(
        [sys.executable, "-c", script], capture_output=True, text=True, check=False
    )
    assert (done.stdout, done.stderr) == ("fake\n", "")


def rewrite_manifest(path: Path, **fields: object) -> None:
    with zipfile.ZipFile(path) as archive:
        parts = {name: archive.read(name) for name in archive.namelist() if name != "check"}
    manifest = {**json.loads(parts["manifest.json"]), **fields}
    parts["manifest.json"] = json.dumps(manifest).encode()
    with zipfile.ZipFile(path, "w") as archive:
        for name, data in parts.items():
            archive.writestr(name, data)
