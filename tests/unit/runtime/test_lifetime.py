"""A compiled model from its making to its end: shown, saved, copied, pickled, closed."""

from __future__ import annotations

import copy
import dataclasses
import gc
import io
import pickle
import threading
import weakref
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest

import autotune
from autotune.errors import ArtifactError, ClosedError
from autotune.runtime.artifact import load
from autotune.runtime.device_session import DeviceSession
from autotune.runtime.model import CompiledModel
from autotune.target import load_target
from autotune.types import Array, TensorType
from tests.emulator.device import EmulatedDevice
from tests.unit.runtime import fakes

X = np.arange(6, dtype=np.float32).reshape(2, 3)
Y = X * 3 + 1


def fake() -> CompiledModel:
    return CompiledModel(fakes.image(), fakes.CallbackLibrary(), notes=("a note",))


@pytest.fixture(scope="module")
def tiny() -> CompiledModel:
    return autotune.compile("zoo:tiny")


@pytest.fixture(scope="module")
def image() -> dict[str, Array]:
    return {"x": np.random.default_rng(0).standard_normal((1, 3, 32, 32)).astype(np.float32)}


# ------------------------------------------------------------------------------------------ shown


def test_a_model_shows_what_goes_in_and_comes_out() -> None:
    text = repr(fake())
    assert text.startswith("<CompiledModel 'fake' for cpu (")
    assert "1 thread): x: float32[2,3] -> y: float32[2,3], t: float32[2,3]; 2 kernels>" in text


def test_a_closed_model_says_so() -> None:
    model = fake()
    model.close()
    assert repr(model).endswith("2 kernels, closed>")


def test_no_part_of_a_model_prints_its_weights(tiny: CompiledModel) -> None:
    assert len(repr(tiny)) < 300
    assert len(repr(tiny.image)) < 3000
    assert len(repr(tiny.bench(1))) < 300


def test_inputs_and_outputs_have_names_shapes_and_types() -> None:
    model = fake()
    kind = TensorType(dtype="float32", shape=(2, 3))
    assert model.inputs == {"x": kind}
    assert list(model.outputs.items()) == [("y", kind), ("t", kind)]
    assert (model.inputs["x"].dtype, model.inputs["x"].shape) == ("float32", (2, 3))


def test_inputs_and_outputs_cannot_be_changed() -> None:
    model = fake()
    for ports in (model.inputs, model.outputs):
        with pytest.raises(TypeError):
            ports["x"] = None  # type: ignore[index]
        with pytest.raises(AttributeError):
            next(iter(ports.values())).dtype = "int8"  # type: ignore[misc]


# ------------------------------------------------------------------------------------------ saved


def test_a_model_is_saved_to_an_open_file_and_loaded_from_bytes(
    tiny: CompiledModel, image: dict[str, Array], tmp_path: Path
) -> None:
    file = io.BytesIO()
    tiny.save(file)
    tiny.save(tmp_path / "tiny.model")
    with (tmp_path / "other.model").open("wb") as other:
        tiny.save(other)
    want, data = tiny.run(image), file.getvalue()
    with (tmp_path / "tiny.model").open("rb") as reading:
        sources = [data, bytearray(data), memoryview(data), io.BytesIO(data), reading]
        models = [load(source) for source in sources]  # type: ignore[arg-type]
    models += [load(str(tmp_path / "tiny.model")), load(tmp_path / "other.model")]
    for model in models:
        for name, array in model.run(image).items():
            np.testing.assert_array_equal(array, want[name])


class Pipe(io.RawIOBase):
    """A file that goes one way."""

    def __init__(self) -> None:
        self.held = bytearray()

    def writable(self) -> bool:
        return True

    def write(self, data: bytes) -> int:  # type: ignore[override]
        self.held += data
        return len(data)


def test_a_model_goes_through_a_pipe(tiny: CompiledModel, image: dict[str, Array]) -> None:
    pipe = Pipe()
    tiny.save(pipe)  # type: ignore[arg-type]
    got = load(bytes(pipe.held)).run(image)
    for name, array in tiny.run(image).items():
        np.testing.assert_array_equal(got[name], array)


def test_a_file_that_cannot_be_written(tmp_path: Path) -> None:
    closed = io.BytesIO()
    closed.close()
    (tmp_path / "there").write_bytes(b"kept")
    with (tmp_path / "there").open("rb") as reading, (tmp_path / "text").open("w") as text:
        for file in (closed, reading, text, io.StringIO()):
            with pytest.raises(
                ArtifactError, match=r"cannot write to the file given: .*; give one"
            ):
                fake().save(file)  # type: ignore[arg-type]
    assert (tmp_path / "there").read_bytes() == b"kept"


@pytest.mark.parametrize("data", [b"", b"PK\3\4", b"no zip at all" * 50])
def test_bytes_that_are_no_model(data: bytes) -> None:
    with pytest.raises(ArtifactError, match="the model given as bytes is not a compiled model"):
        load(data)


def test_a_file_that_cannot_be_read(tmp_path: Path) -> None:
    with (tmp_path / "m").open("w") as text, (tmp_path / "n").open("wb") as writing:
        closed = io.BytesIO()
        closed.close()
        for file in (text, writing, closed):
            with pytest.raises(ArtifactError, match=r"cannot read the file given: .* with 'rb'"):
                load(file)  # type: ignore[arg-type]


# ----------------------------------------------------------------------------------- copied, kept


@pytest.mark.parametrize(
    "again",
    [copy.copy, copy.deepcopy, lambda model: pickle.loads(pickle.dumps(model))],
    ids=["copy", "deepcopy", "pickle"],
)
def test_a_copy_gives_the_same_outputs_after_the_first_is_closed(
    again: Callable[[CompiledModel], CompiledModel], image: dict[str, Array]
) -> None:
    first = autotune.compile("zoo:tiny")
    first.notes = ("a note",)
    want = first.run(image)
    second = again(first)
    first.close()
    assert second.notes == ("a note",)
    assert (second.inputs, second.outputs) == (first.inputs, first.outputs)
    for name, array in second.run(image).items():
        np.testing.assert_array_equal(array, want[name])


def test_a_copy_shares_the_weights_and_a_deep_one_does_not(tiny: CompiledModel) -> None:
    weights = tiny.image.constants
    assert np.shares_memory(copy.copy(tiny).image.constants, weights)
    assert not np.shares_memory(copy.deepcopy(tiny).image.constants, weights)


def test_a_pickle_is_the_artifact_s_bytes(tiny: CompiledModel) -> None:
    file = io.BytesIO()
    tiny.save(file)
    function, (data, notes, quantization) = tiny.__reduce__()
    assert f"{function.__module__}.{function.__name__}" == "autotune.runtime.artifact.restored"
    assert load(data).image.objects == tiny.image.objects
    assert len(data) == len(file.getvalue())
    assert (notes, quantization) == (tiny.notes, None)


def test_what_is_known_of_int8_is_kept() -> None:
    model = autotune.compile("zoo:tiny", precision="int8")
    assert model.quantization is not None
    assert pickle.loads(pickle.dumps(model)).quantization == model.quantization
    assert copy.copy(model).quantization is model.quantization


def test_a_model_for_another_cpu_is_pickled_and_refused_where_it_does_not_run() -> None:
    here = fakes.host_target()
    foreign = load_target("cortex-a72" if "x86" in here.triple else "x86-64-v3")
    model = CompiledModel(fakes.image(target=foreign))
    assert copy.deepcopy(model).image.target == foreign
    with pytest.raises(ArtifactError, match="the model given as bytes is built for"):
        pickle.loads(pickle.dumps(model))


# ----------------------------------------------------------------------------------------- closed

USES: dict[str, Callable[[CompiledModel], object]] = {
    "run": lambda model: model.run({"x": X}),
    "run with out": lambda model: model.run({"x": X}, out={"y": Y.copy()}),
    "wrong feeds": lambda model: model.run({}),
    "bench": lambda model: model.bench(1),
    "save": lambda model: model.save(io.BytesIO()),
    "image": lambda model: model.image,
    "copy": copy.copy,
    "deepcopy": copy.deepcopy,
    "pickle": pickle.dumps,
}


@pytest.mark.parametrize("use", USES.values(), ids=USES)
def test_a_closed_model_is_one_clear_error(use: Callable[[CompiledModel], object]) -> None:
    model = fake()
    model.close()
    model.close()
    with pytest.raises(ClosedError, match=r"^the model 'fake' for .* is closed; load or compile"):
        use(model)


def test_a_closed_model_keeps_its_names() -> None:
    model = fake()
    model.close()
    assert list(model.inputs) == ["x"]
    assert model.notes == ("a note",)


def test_a_model_is_closed_at_the_end_of_its_block() -> None:
    with fake() as model:
        np.testing.assert_array_equal(model.run({"x": X})["y"], Y)
    with pytest.raises(ClosedError):
        model.run({"x": X})
    with pytest.raises(ZeroDivisionError), fake() as model:
        raise ZeroDivisionError
    with pytest.raises(ClosedError):
        model.run({"x": X})


def test_closing_gives_the_memory_back(image: dict[str, Array]) -> None:
    model = autotune.compile("zoo:tiny")
    model.run(image)
    session, weights = weakref.ref(fakes.session_of(model)), weakref.ref(model.image.constants)
    model.close()
    assert (session(), weights()) == (None, None)


def test_closing_waits_for_the_run_of_another_thread() -> None:
    """The thread is held inside its run until the other one tries to close the model."""
    inside, closing = threading.Event(), threading.Event()
    model, done = fake(), []

    def tick() -> float:
        inside.set()
        assert closing.wait(60)
        return 0.0

    def close() -> None:
        closing.set()
        model.close()
        done.append("closed")

    def bench() -> None:
        model.bench(3, clock=tick)
        done.append("run")

    runner, closer = threading.Thread(target=bench), threading.Thread(target=close)
    runner.start()
    assert inside.wait(60)
    closer.start()
    runner.join()
    closer.join()
    assert sorted(done) == ["closed", "run"]
    with pytest.raises(ClosedError):
        model.run({"x": X})


def test_a_run_may_close_its_own_model() -> None:
    """As a signal's handler does, in the thread that runs."""
    model = fake()

    def tick() -> float:
        model.close()
        return 0.0

    assert model.bench(2, clock=tick).latency_s == (0.0, 0.0)
    with pytest.raises(ClosedError):
        model.run({"x": X})


def test_threads_that_run_while_others_close_end_with_results_or_the_error(
    image: dict[str, Array],
) -> None:
    model = autotune.compile("zoo:tiny")
    want = model.run(image)
    ended: list[str] = []
    first = threading.Event()

    def work() -> None:
        try:
            while True:
                got = model.run(image)
                first.set()
                assert all(np.array_equal(got[name], want[name]) for name in want)
        except ClosedError:
            ended.append("closed")

    threads = [threading.Thread(target=work) for _ in range(4)]
    for thread in threads:
        thread.start()
    assert first.wait(60)
    model.close()
    for thread in threads:
        thread.join()
    assert ended == ["closed"] * 4


class PlainDevice(EmulatedDevice):
    """A device that captures nothing, as OpenCL's."""

    def capture(self, run: Callable[[], None]) -> Callable[[], None]:
        return run


def test_the_memory_of_a_device_goes_with_the_session() -> None:
    image = dataclasses.replace(fakes.image(), kernels=(), objects=())
    session = DeviceSession(image, PlainDevice())
    memory = weakref.ref(session._pool)
    gc.disable()
    try:
        del session
        assert memory() is None
    finally:
        gc.enable()
