"""TensorFlow Lite models that keep values between runs: run after run, what the interpreter
gives; as a session, and as C."""

from __future__ import annotations

import subprocess
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import autotune
from autotune.errors import ModelError, UnsupportedOpError
from autotune.export.write import ExportOptions, export_image, source_target
from autotune.frontend import load_model
from autotune.runtime.model import CompiledModel
from autotune.target import load_target
from tests.tflite_models import RNG, Tensor, constant
from tests.tflite_streams import NAMES, streaming

FRAMES = 7


def initial(value: Any = -128) -> dict[str, Tensor]:
    frames = constant(np.full((1, 3, 1, 6), value), "int8", scale=0.05, zero=-128)
    return {NAMES[0]: frames, NAMES[1]: constant(np.zeros((1, 1, 1, 5)), "float32")}


def fed() -> list[np.ndarray[Any, Any]]:
    rng = np.random.default_rng(5)
    return [rng.integers(-128, 128, (1, 1, 1, 6)).astype(np.int8) for _ in range(FRAMES)]


def interpreted(model: bytes) -> list[tuple[Any, Any]]:
    from ai_edge_litert.interpreter import Interpreter, OpResolverType

    judge = Interpreter(
        model_content=model, experimental_op_resolver_type=OpResolverType.BUILTIN_REF
    )
    judge.allocate_tensors()
    (given,), outputs = judge.get_input_details(), judge.get_output_details()
    made = []
    for frame in fed():
        judge.set_tensor(given["index"], frame)
        judge.invoke()
        made.append(tuple(judge.get_tensor(o["index"]) for o in outputs))
    return made


@pytest.mark.parametrize("value", [-128, 7, RNG.integers(-128, 128, (1, 3, 1, 6))],
                         ids=["least", "other", "each its own"])  # fmt: skip
def test_a_session_gives_what_the_interpreter_gives(value: Any) -> None:
    model = streaming(initial(value))
    compiled = autotune.compile(model, threads=1)
    names = [name for name, _ in load_model(model).outputs]
    with compiled.session({name: f"{name}_next" for name in NAMES}) as session:
        for frame, (sums, bytes_) in zip(fed(), interpreted(model), strict=True):
            got = session.run({"t0": frame})
            np.testing.assert_array_equal(got[names[1]], bytes_)
            np.testing.assert_allclose(got[names[0]], sums, rtol=1e-6)


def test_c_takes_and_gives_the_states(tmp_path: Path) -> None:
    """Files of one run's states are the next one's inputs; zeros at first."""
    model = streaming(initial())
    target = source_target(load_target("c", 1))
    compiled = autotune.compile(model, target=target)
    assert isinstance(compiled, CompiledModel)
    export_image(compiled.image, tmp_path, ExportOptions(format="c"))
    files = [str(tmp_path / name) for name in ("main.c", "model.c")]
    strict = ["-std=c99", "-O1", "-Wall", "-Wextra", "-pedantic", "-Werror"]
    subprocess.run(["cc", *strict, *files, "-lm", "-o", tmp_path / "main"], check=True)
    states = [tmp_path / "frames.bin", tmp_path / "sums.bin"]
    for state, size in zip(states, (18, 20), strict=True):
        state.write_bytes(bytes(size))
    for frame, (_, bytes_) in zip(fed(), interpreted(model), strict=True):
        (tmp_path / "in0.bin").write_bytes(frame.tobytes())
        outputs = [tmp_path / "sums", tmp_path / "bytes", *states]
        given = [tmp_path / "in0.bin", *states]
        subprocess.run(
            [tmp_path / "main", *given, *(p for o in outputs for p in ("-o", o))],
            check=True,
            capture_output=True,
        )
        assert (tmp_path / "bytes").read_bytes() == bytes_.tobytes()


def test_what_begins_with_nothing_or_other_floats_is_refused() -> None:
    with pytest.raises(ModelError, match="'stream/frames' is read before it has a value"):
        load_model(streaming({NAMES[1]: initial()[NAMES[1]]}))
    ones = initial() | {NAMES[1]: constant(np.ones((1, 1, 1, 5)), "float32")}
    with pytest.raises(UnsupportedOpError, match="'sums' of float32 begins with other numbers"):
        load_model(streaming(ones))
