"""ONNX importers: GridSample and AffineGrid."""

from __future__ import annotations

import numpy as np

from autotune.errors import UnsupportedOpError
from autotune.frontend.grid import PADDINGS, Sampling, grid_sampled
from autotune.frontend.onnx.context import NodeContext, importer

MODES = {
    "linear": "linear", "bilinear": "linear", "nearest": "nearest", "cubic": "cubic",
    "bicubic": "cubic",
}  # fmt: skip


@importer("AffineGrid")
def affine_grid(n: NodeContext) -> str:
    """Places [batch, ...size, rank] that matrices [batch, rank, rank + 1] map an even grid to."""
    theta, (batch, _, *size) = n.input(0), n.required_ints(1)
    rank, aligned = len(size), bool(n.integer("align_corners", 0))
    n.made(*size, rank + 1)
    axes = []
    for extent in size:
        middle, places = (extent - 1) / 2, np.arange(extent)
        axes.append((places - middle) / (max(middle, 0.5) if aligned else extent / 2))
    columns = np.meshgrid(*axes, indexing="ij")
    grid = np.stack([*reversed(columns), np.ones(size)], -1)
    points = n.constant(grid.reshape(-1, rank + 1), n.dtype(theta))
    y = n.op("matmul", points, theta, transpose_b=True)
    return n.reshape(y, (batch, *size, rank))


@importer("GridSample")
def grid_sample(n: NodeContext) -> str:
    mode = MODES.get(n.text("mode", "linear"))
    padding = n.text("padding_mode", "zeros")
    if mode is None or padding not in PADDINGS:
        raise UnsupportedOpError(
            f"mode must be {', '.join(MODES)} and padding_mode {', '.join(PADDINGS)}; got "
            f"{n.text('mode', 'linear')!r} and {padding!r}"
        )
    aligned = bool(n.integer("align_corners", 0))
    how = Sampling(mode=mode, padding=padding, aligned=aligned)
    return grid_sampled(n, n.input(0), n.input(1), how)
