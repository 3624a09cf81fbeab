"""Random networks of open sizes: one program for all of them against ONNX Runtime, at random
sizes, the least and the largest among them."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import onnx
import onnxruntime
import pytest

import autotune
from autotune.runtime.sized import SizedModel
from tests.properties.open_networks import image_network, sequence_network

Make = Callable[[np.random.Generator, int], onnx.ModelProto]
IMAGES = {"N": (1, 3), "H": (4, 40), "W": (4, 40)}
SEQUENCES = {"B": (1, 3), "S": (1, 70)}
TOLERANCE = 2e-3
"""Of the largest value of an output: tiled filtering rounds in other places."""


def check(make: Make, ranges: dict[str, tuple[int, ...]], seed: int, depth: int) -> None:
    rng = np.random.default_rng(seed)
    proto = make(rng, depth)
    model = autotune.compile(proto, ranges=ranges)  # type: ignore[arg-type]
    assert isinstance(model, SizedModel)
    assert "one program serves all of them" in model.notes[0], model.notes
    peer = onnxruntime.InferenceSession(
        proto.SerializeToString(), providers=["CPUExecutionProvider"]
    )
    low, high = ({k: v[end] for k, v in ranges.items()} for end in (0, 1))
    drawn = [
        {k: int(rng.choice(range(v[0], v[1] + 1, *v[2:]))) for k, v in ranges.items()}
        for _ in range(6)
    ]
    for sizes in (low, high, *drawn):
        shape = model.inputs["x"].at(sizes).shape
        x = rng.standard_normal(shape).astype(np.float32)
        wanted = peer.run(None, {"x": x})
        for got, want in zip(model.run({"x": x}).values(), wanted, strict=True):
            assert got.shape == want.shape
            assert np.abs(got - want).max() <= TOLERANCE * np.abs(want).max(), sizes


@pytest.mark.parametrize("seed", range(2))
def test_sequences(seed: int) -> None:
    check(sequence_network, SEQUENCES, seed, 3)


@pytest.mark.slow
@pytest.mark.parametrize("seed", range(10, 18))
def test_deeper_sequences(seed: int) -> None:
    check(sequence_network, SEQUENCES, seed, 8)


@pytest.mark.slow
@pytest.mark.parametrize("seed", range(3))
def test_images(seed: int) -> None:
    check(image_network, IMAGES, seed, 6)
