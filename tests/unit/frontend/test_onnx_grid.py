"""GridSample, against onnxruntime."""

from __future__ import annotations

import numpy as np
import pytest

from tests.unit.frontend.onnx_models import check, floats, node_model
from tests.unit.frontend.test_onnx_errors import malformed, refused

GRID = floats(2, 3, 4, 2, seed=1) * np.float32(1.5)


@pytest.mark.parametrize("aligned", [0, 1])
@pytest.mark.parametrize("padding", ["zeros", "border", "reflection"])
@pytest.mark.parametrize("mode", ["linear", "nearest", "cubic"])
def test_image(mode: str, padding: str, aligned: int) -> None:
    feeds = {"x": floats(2, 3, 5, 6), "grid": GRID}
    attrs = {"mode": mode, "padding_mode": padding, "align_corners": aligned}
    check(node_model("GridSample", feeds, opset=20, **attrs), feeds)


@pytest.mark.parametrize("mode", ["linear", "nearest"])
def test_volume(mode: str) -> None:
    feeds = {"x": floats(1, 2, 3, 4, 5), "grid": floats(1, 2, 3, 2, 3, seed=1)}
    check(node_model("GridSample", feeds, opset=20, mode=mode), feeds)


def test_names_of_modes_before_opset_20() -> None:
    feeds = {"x": floats(2, 3, 5, 6), "grid": GRID}
    check(node_model("GridSample", feeds, opset=16, mode="bilinear"), feeds)


def test_grid_of_another_batch() -> None:
    feeds = {"x": floats(1, 3, 5, 6), "grid": GRID}
    malformed(node_model("GridSample", feeds, opset=16), "grid of shape .* does not fit")


def test_unknown_padding() -> None:
    feeds = {"x": floats(2, 3, 5, 6), "grid": GRID}
    refused(node_model("GridSample", feeds, opset=16, padding_mode="wrap"), "padding_mode zeros")
