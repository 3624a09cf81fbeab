"""Models for systems that are not here: Android, macOS and iOS, Linux with musl. Linked to whole
programs by Zig's linker; run by emulators where there is one."""

from __future__ import annotations

import struct
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

import autotune
from autotune.codegen.elf.objects import MACHINES
from autotune.errors import ConfigError, TargetError
from autotune.export.seal import read_seal
from autotune.graph.feeds import random_feeds
from autotune.runtime.model import CompiledModel
from autotune.types import Array
from tests.needs import needs
from tests.unit.export.macho_machine import KEPT, MachO
from tests.unit.export.test_export import exported

MACHO = b"\xcf\xfa\xed\xfe"
MACHO_EXECUTABLE = 2
PLATFORMS = {"apple-macos": 1, "apple-ios": 2}


@pytest.fixture(scope="module")
def expected() -> tuple[dict[str, Array], Array]:
    """Inputs of zoo:tiny, and its output."""
    model = autotune.compile("zoo:tiny")
    feeds = random_feeds(model.inputs, 3)
    (output,) = model.run(feeds).values()
    return feeds, output


@pytest.fixture(scope="module")
def macos() -> CompiledModel:
    return autotune.compile("zoo:tiny", target="apple-macos")


def linked(folder: Path, target: str, *words: str) -> Path:
    """`main` and a library as a program."""
    pytest.importorskip("ziglang")
    command = [sys.executable, "-m", "ziglang", "cc", "-target", target, "-O1", "main.c", *words]
    done = subprocess.run(
        [*command, "-o", "main"], cwd=folder, capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stderr
    assert not done.stderr
    return folder / "main"


@pytest.mark.slow  # Zig builds its parts of macOS's libraries when it first links
@pytest.mark.parametrize(("form", "library"), [("static", "libmodel.a"), ("object", "model.o")])
def test_a_program_for_macos_computes_what_the_model_does(
    form: str,
    library: str,
    macos: CompiledModel,
    expected: tuple[dict[str, Array], Array],
    tmp_path: Path,
) -> None:
    pytest.importorskip("unicorn")
    program = linked(exported(macos, tmp_path, format=form), "aarch64-macos", library)
    data = program.read_bytes()
    assert (data[:4], struct.unpack_from("<I", data, 12)[0]) == (MACHO, MACHO_EXECUTABLE)
    machine, (feeds, output) = MachO(program), expected
    nbytes = machine.call("model_memory_bytes")
    memory, made = machine.block(bytes(nbytes)), machine.block(bytes(8))
    assert machine.call("model_create_in", memory, nbytes, 0, made) == 0
    inputs = [machine.block(array.tobytes()) for array in feeds.values()]
    found = machine.block(bytes(output.nbytes))
    places = [machine.block(struct.pack("<Q", at)) for at in (*inputs, found)]
    assert machine.call("model_run", machine.word(made), *places) == 0
    array = np.frombuffer(bytes(machine.machine.mem_read(found, output.nbytes)), output.dtype)
    np.testing.assert_allclose(array.reshape(output.shape), output, rtol=1e-4, atol=1e-5)
    assert machine.reserved() == KEPT


@pytest.mark.parametrize("name", ["apple-macos", "apple-ios"])
def test_objects_name_their_system_and_check_themselves(name: str, tmp_path: Path) -> None:
    model = autotune.compile("zoo:tiny", target=name)
    data = (exported(model, tmp_path, format="object") / "model.o").read_bytes()
    assert data[:4] == MACHO
    build = data.index(struct.pack("<3I", 0x32, 24, PLATFORMS[name]))
    assert build < 32 + 1024
    for code in model.image.objects:
        assert int.from_bytes(code[18:20], "little") in MACHINES
    exported(model, tmp_path, format="static")
    for file in ("model.o", "libmodel.a"):
        about = read_seal((tmp_path / file).read_bytes(), file)
        assert about["target"] == name


def test_apple_s_systems_have_no_shared_libraries_here(
    macos: CompiledModel, tmp_path: Path
) -> None:
    with pytest.raises(ConfigError, match="objects and static libraries"):
        exported(macos, tmp_path, format="shared")


@pytest.mark.parametrize("name", ["android", "apple-macos", "apple-ios"])
def test_their_models_run_on_one_thread(name: str) -> None:
    with pytest.raises(TargetError, match="run on one thread"):
        autotune.compile("zoo:tiny", target=name, threads=2)


@needs("qemu")
@pytest.mark.slow  # Zig builds musl when it first links
def test_an_object_for_android_is_linked_and_runs(
    expected: tuple[dict[str, Array], Array], tmp_path: Path
) -> None:
    """With musl in bionic's place, of which there is no loader here."""
    model = autotune.compile("zoo:tiny", target="android")
    folder = exported(model, tmp_path, format="static")
    program = linked(folder, "aarch64-linux-musl", "libmodel.a")
    check_run(["qemu-aarch64", str(program)], folder, expected)


def test_a_shared_library_for_android_asks_for_its_libraries(tmp_path: Path) -> None:
    model = autotune.compile("zoo:tiny", target="android")
    data = (exported(model, tmp_path) / "libmodel.so").read_bytes()
    assert b"\0libc.so\0" in data
    assert b".so.6" not in data


@needs("musl")
@pytest.mark.slow  # as above
def test_a_shared_library_runs_with_musl(
    expected: tuple[dict[str, Array], Array], tmp_path: Path
) -> None:
    """Its loader has glibc's libraries' names for its own."""
    folder = exported(autotune.compile("zoo:tiny"), tmp_path)
    words = ("-dynamic", "-L.", "-lmodel", "-Wl,-rpath,$ORIGIN")
    check_run([str(linked(folder, "x86_64-linux-musl", *words))], folder, expected)


def check_run(command: list[str], folder: Path, expected: tuple[dict[str, Array], Array]) -> None:
    feeds, output = expected
    names = [f"in{number}.bin" for number in range(len(feeds))]
    for name, array in zip(names, feeds.values(), strict=True):
        (folder / name).write_bytes(array.tobytes())
    done = subprocess.run(
        [*command, *names, "-o", "out0.bin"],
        cwd=folder, capture_output=True, text=True, check=False,
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    found = np.frombuffer((folder / "out0.bin").read_bytes(), output.dtype)
    np.testing.assert_allclose(found.reshape(output.shape), output, rtol=1e-4, atol=1e-5)
