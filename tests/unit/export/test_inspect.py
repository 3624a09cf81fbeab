"""Files say what they are, and check themselves; malformed ones are refused in one line."""

from __future__ import annotations

import contextlib
import io
import json
import random
import zipfile
from pathlib import Path

import pytest

import autotune
from autotune.cli import execute
from autotune.errors import ArtifactError
from autotune.export.seal import read_seal, sealed
from autotune.export.write import source_target
from autotune.runtime.image_file import describe, read_image
from autotune.runtime.model import CompiledModel
from autotune.target import load_target
from tests.unit.export.mutants import spoil
from tests.unit.export.test_export import exported

Captured = pytest.CaptureFixture[str]
MUTANTS = 300


@pytest.fixture(scope="module")
def tiny() -> CompiledModel:
    return autotune.compile("zoo:tiny")


def inspected(path: Path, capsys: Captured) -> dict[str, object]:
    assert execute(["inspect", str(path), "--json"]) == 0
    return json.loads(capsys.readouterr().out)


@pytest.mark.parametrize(
    ("format_", "name"),
    [("shared", "libmodel.so"), ("static", "libmodel.a"), ("object", "model.o")],
)
def test_a_library_says_what_it_is(
    format_: str, name: str, tiny: CompiledModel, tmp_path: Path, capsys: Captured
) -> None:
    path = exported(tiny, tmp_path, format=format_) / name
    about = inspected(path, capsys)
    assert about["format"] == f"autotune-export-{format_}"
    assert about["digest"] == tiny.image.digest()
    data = bytearray(path.read_bytes())
    data[len(data) // 2] ^= 1
    path.write_bytes(data)
    assert execute(["inspect", str(path)]) == 2
    assert "does not have the digest that it names" in capsys.readouterr().err


def test_so_do_weights_and_c_and_artifacts(
    tiny: CompiledModel, tmp_path: Path, capsys: Captured
) -> None:
    exported(tiny, tmp_path, weights="file")
    assert inspected(tmp_path / "model.weights", capsys)["digest"] == tiny.image.digest()
    source = autotune.compile("zoo:tiny", target=source_target(load_target("c")))
    exported(source, tmp_path, format="c")
    assert inspected(tmp_path / "model.c", capsys)["target"] == "c"
    tiny.save(tmp_path / "tiny.model")
    about = inspected(tmp_path / "tiny.model", capsys)
    assert about["digest"] == tiny.image.digest()
    assert about["autotune-compiler"]
    assert about["log"] == ""
    assert execute(["inspect", str(tmp_path / "tiny.model")]) == 0
    assert "intact" in capsys.readouterr().out


def test_an_artifact_whose_code_was_exchanged_is_told(tiny: CompiledModel, tmp_path: Path) -> None:
    path = tmp_path / "tiny.model"
    tiny.save(path)
    parts = members(path)
    parts["objects/0000.o"] = parts["objects/0001.o"]
    write_members(path, parts)
    with pytest.raises(ArtifactError, match="does not have the digest"):
        describe(str(path))


def test_what_is_no_artifact_is_refused(tmp_path: Path, capsys: Captured) -> None:
    (tmp_path / "x").write_text("nothing of ours")
    for path in (tmp_path / "x", tmp_path / "nowhere"):
        assert execute(["inspect", str(path)]) == 2
        assert len(capsys.readouterr().err.splitlines()) == 1


def test_malformed_artifacts_raise_one_kind_of_error(tiny: CompiledModel, tmp_path: Path) -> None:
    tiny.save(tmp_path / "tiny.model")
    data, draw = (tmp_path / "tiny.model").read_bytes(), random.Random(0)
    for _ in range(MUTANTS):
        mutant = bytearray(data[: draw.randrange(len(data))] if draw.random() < 0.2 else data)
        for _ in range(draw.randrange(1, 8)):
            if mutant:
                mutant[draw.randrange(len(mutant))] = draw.randrange(256)
        refused_or_read(bytes(mutant))


def test_malformed_manifests_do_too(tiny: CompiledModel, tmp_path: Path) -> None:
    path, draw = tmp_path / "tiny.model", random.Random(1)
    tiny.save(path)
    parts = members(path)
    for _ in range(MUTANTS):
        manifest = json.loads(parts["manifest.json"])
        spoil(manifest, draw)
        write_members(path, {**parts, "manifest.json": json.dumps(manifest).encode()})
        refused_or_read(path.read_bytes())


def test_malformed_seals_do_too() -> None:
    data, draw = sealed(b"code" * 50, {"format": "x"}), random.Random(2)
    assert read_seal(data, "file") == {"format": "x"}
    for _ in range(MUTANTS):
        mutant = bytearray(data)
        at = draw.randrange(len(mutant) - 1)
        mutant[at] = (mutant[at] + draw.randrange(1, 256)) % 256
        with pytest.raises(ArtifactError):
            read_seal(bytes(mutant), "file")


def refused_or_read(data: bytes) -> None:
    with contextlib.suppress(ArtifactError):
        read_image(io.BytesIO(data))


def members(path: Path) -> dict[str, bytes]:
    """Without the digest over all of them, as in files of versions that had none."""
    with zipfile.ZipFile(path) as archive:
        return {name: archive.read(name) for name in archive.namelist() if name != "check"}


def write_members(path: Path, parts: dict[str, bytes]) -> None:
    with zipfile.ZipFile(path, "w") as archive:
        for name, data in parts.items():
            archive.writestr(name, data)
