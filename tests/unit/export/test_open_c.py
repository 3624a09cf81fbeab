"""Models of open sizes as C: compiled without a warning, in memory of the caller's."""

from __future__ import annotations

import ctypes
import subprocess
from pathlib import Path

import numpy as np
import pytest

import autotune
from autotune.export.write import ExportOptions, export_image, source_target
from autotune.runtime.sized import SizedModel
from autotune.target import load_target
from tests.needs import needs
from tests.unit.export.library import Model, pointers
from tests.unit.export.test_open_export import (
    BAD_ARGUMENT,
    BAD_MEMORY,
    BAD_SIZES,
    C_FLAGS,
    RANGES,
    SIZES,
    image_of,
    network,
    reference,
    sizes_of,
    told,
)

pytestmark = needs("cc")


@pytest.fixture(scope="module")
def small(tmp_path_factory: pytest.TempPathFactory) -> SizedModel:
    target = source_target(load_target("c"))
    model = autotune.compile(network(tmp_path_factory.mktemp("c")), ranges=RANGES, target=target)
    assert isinstance(model, SizedModel)
    assert model.serves_all
    return model


@pytest.fixture(scope="module")
def folder(small: SizedModel, tmp_path_factory: pytest.TempPathFactory) -> Path:
    out = tmp_path_factory.mktemp("exported")
    export_image(small.image, out, ExportOptions(format="c"))
    subprocess.run(["cc", *C_FLAGS, "-fPIC", "-c", "model.c"], cwd=out, check=True)
    subprocess.run(["cc", "-shared", "model.o", "-lm", "-o", "libmodel.so"], cwd=out, check=True)
    return out


class Arena:
    """Memory of a caller's, aligned, with bytes behind it that nobody may touch."""

    def __init__(self, nbytes: int) -> None:
        self.block = np.full(nbytes + 128, 0xFF, np.uint8)
        self.start = self.block.ctypes.data + -self.block.ctypes.data % 64
        self._end = self.start - self.block.ctypes.data + nbytes

    def is_kept(self) -> bool:
        return bool((self.block[self._end :] == 0xFF).all())


def check(
    small: SizedModel, library: Model, made: ctypes.c_void_p, sizes: tuple[int, ...], path: Path
) -> None:
    assert library.function("resize")(made, sizes_of(small, sizes)) == 0
    x = image_of(sizes)
    (given,) = told(library, made, "input")
    assert (tuple(given.shape[:4]), given.bytes) == (x.shape, x.nbytes)
    wanted = reference(path, x)
    outputs = [np.full(array.shape, np.nan, np.float32) for array in wanted]
    for tensor, array in zip(told(library, made, "output"), wanted, strict=True):
        assert (tuple(tensor.shape[: tensor.rank]), tensor.bytes) == (array.shape, array.nbytes)
    assert library.function("run")(made, pointers([x]), pointers(outputs)) == 0
    for found, array in zip(outputs, wanted, strict=True):
        np.testing.assert_allclose(found, array, rtol=1e-4, atol=1e-5)


def test_one_arena_serves_all_sizes_that_fit(
    small: SizedModel, folder: Path, tmp_path: Path
) -> None:
    library, path = Model(folder / "libmodel.so"), network(tmp_path)
    memory_bytes = library.function("memory_bytes")
    needed = max(memory_bytes(sizes_of(small, sizes)) for sizes in SIZES)
    assert memory_bytes(None) < needed < memory_bytes(sizes_of(small, (4, 64, 64)))
    arena, made = Arena(needed), ctypes.c_void_p()
    create, resize = library.function("create_in"), library.function("resize")
    assert create(arena.start, memory_bytes(None) - 1, None, ctypes.byref(made)) == BAD_MEMORY
    assert create(arena.start, needed, None, ctypes.byref(made)) == 0
    for sizes in SIZES:
        check(small, library, made, sizes, path)
    assert resize(made, sizes_of(small, (4, 64, 64))) == BAD_MEMORY
    check(small, library, made, SIZES[0], path)
    assert arena.is_kept()


def test_sizes_must_be_given_and_in_range(small: SizedModel, folder: Path) -> None:
    library = Model(folder / "libmodel.so")
    memory_bytes, resize = library.function("memory_bytes"), library.function("resize")
    arena, made = Arena(memory_bytes(sizes_of(small, (1, 8, 8)))), ctypes.c_void_p()
    size = len(arena.block) - 128
    assert library.function("create_in")(arena.start, size, None, ctypes.byref(made)) == 0
    x, outputs = image_of((1, 8, 8)), [np.empty(1 << 12, np.float32) for _ in range(3)]
    assert library.function("run")(made, pointers([x]), pointers(outputs)) == BAD_SIZES
    assert resize(made, None) == BAD_ARGUMENT
    for sizes in ((0, 8, 8), (5, 8, 8), (1, 12, 8), (1, 8, 72), (1, 1 << 40, 8)):
        assert resize(made, sizes_of(small, sizes)) == BAD_SIZES
        assert memory_bytes(sizes_of(small, sizes)) == 0
    assert b"out of range" in library.function("error")(BAD_SIZES)


def test_the_program_runs_it_at_sizes(folder: Path, tmp_path: Path) -> None:
    subprocess.run(
        ["cc", *C_FLAGS, "main.c", "model.o", "-lm", "-o", "main"], cwd=folder, check=True
    )
    x = image_of((2, 16, 40))
    x.tofile(folder / "x.bin")
    outs = ["-o", "image.bin", "part.bin", "classes.bin"]
    sizes = ["--size", "N=2", "--size", "H=16", "--size", "W=40"]
    subprocess.run(["./main", "x.bin", *outs, *sizes], cwd=folder, check=True)
    for name, array in zip(
        ("image", "part", "classes"), reference(network(tmp_path), x), strict=True
    ):
        found = np.fromfile(folder / f"{name}.bin", np.float32).reshape(array.shape)
        np.testing.assert_allclose(found, array, rtol=1e-4, atol=1e-5)
    for wrong, said in (
        (["--size", "N=3"], "error: H: expected --size NAME=N for it"),
        ([*sizes, "--size", "H=30"], "error: --size H=30: expected 8 to 64 in steps of 8"),
    ):
        run = subprocess.run(
            ["./main", "x.bin", *wrong], cwd=folder, check=False, capture_output=True, text=True
        )
        assert (run.returncode, run.stderr.strip()) == (2, said)
