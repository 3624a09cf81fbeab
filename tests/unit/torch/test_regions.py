"""torchvision's operators on regions give what their definitions say, without torchvision."""

from __future__ import annotations

import math
from collections.abc import Iterator
from typing import Any

import pytest
import torch

from tests.unit.torch.oracle import by_numpy

SCHEMAS = (
    "roi_align(Tensor input, Tensor rois, float spatial_scale, SymInt pooled_height, SymInt "
    "pooled_width, int sampling_ratio, bool aligned) -> Tensor",
    "ps_roi_align(Tensor input, Tensor rois, float spatial_scale, SymInt pooled_height, SymInt "
    "pooled_width, int sampling_ratio) -> (Tensor, Tensor)",
    "deform_conv2d(Tensor input, Tensor weight, Tensor offset, Tensor mask, Tensor bias, SymInt "
    "stride_h, SymInt stride_w, SymInt pad_h, SymInt pad_w, SymInt dilation_h, SymInt dilation_w,"
    " SymInt groups, SymInt offset_groups, bool use_mask) -> Tensor",
)
BOXES = torch.tensor(
    [
        [0, 0, 0, 9, 7],
        [1, 1.5, 2.5, 6, 4],
        [0, -3, -2, 30, 20],
        [1, 4, 4, 4.2, 4.1],
        [1, 8, 6, 2, 1],
    ]
)


def noise(*shape: int) -> torch.Tensor:
    return torch.randn(shape, generator=torch.Generator().manual_seed(sum(shape)))


def seen(image: torch.Tensor, y: float, x: float, *, clipped: bool) -> torch.Tensor:
    """Channels [C] of an image [C, H, W] between its elements; beyond its border of one element
    zeros, within it the nearest elements' numbers where `clipped`."""
    height, width = image.shape[1:]
    made = torch.zeros(image.shape[0], dtype=torch.float64)
    if y < -1 or y > height or x < -1 or x > width:
        return made
    if clipped:
        y, x = min(max(y, 0), height - 1), min(max(x, 0), width - 1)
    top, left = math.floor(y), math.floor(x)
    for row, column in ((top, left), (top, left + 1), (top + 1, left), (top + 1, left + 1)):
        if 0 <= row < height and 0 <= column < width:
            made += (1 - abs(y - row)) * (1 - abs(x - column)) * image[:, row, column].double()
    return made


def bins(x: torch.Tensor, box: Any, scale: float, *, each: int, aligned: bool) -> torch.Tensor:
    """What one region sees in 3 rows and 2 columns: [C, 3, 2]."""
    shift = 0.5 if aligned else 0.0
    left, top, right, bottom = (float(v) * scale - shift for v in box[1:])
    size = bottom - top, right - left
    if not aligned:
        size = max(size[0], 1.0), max(size[1], 1.0)
    steps = size[0] / 3 / each, size[1] / 2 / each
    image, made = x[int(box[0])], torch.zeros(x.shape[1], 3, 2, dtype=torch.float64)
    for row in range(3 * each):
        for column in range(2 * each):
            place = top + (row + 0.5) * steps[0], left + (column + 0.5) * steps[1]
            made[:, row // each, column // each] += seen(image, *place, clipped=True)
    return made / each**2


@pytest.fixture(autouse=True)
def _torchvision() -> Iterator[None]:
    """The operators' names and shapes, where torchvision does not bring them."""
    if hasattr(torch.ops.torchvision, "roi_align"):
        yield
        return
    make: Any = torch.library.Library
    library = make("torchvision", "FRAGMENT")
    for schema in SCHEMAS:
        library.define(schema)

    def regions(x: Any, rois: Any, _: float, rows: int, columns: int, *__: Any) -> Any:
        return x.new_empty(rois.shape[0], x.shape[1], rows, columns)

    def by_place(x: Any, rois: Any, _: float, rows: int, columns: int, *__: Any) -> Any:
        made = x.new_empty(rois.shape[0], x.shape[1] // (rows * columns), rows, columns)
        return made, made.to(torch.int32)

    def deformed(x: Any, w: Any, offset: Any, *_: Any) -> Any:
        return x.new_empty(x.shape[0], w.shape[0], *offset.shape[2:])

    for name, like in (("roi_align", regions), ("ps_roi_align", by_place),
                       ("deform_conv2d", deformed)):  # fmt: skip
        library.impl(name, like, "Meta")
    yield
    library._destroy()


@pytest.mark.parametrize("aligned", [False, True])
def test_regions_are_seen_on_a_grid(aligned: bool) -> None:
    x = noise(2, 3, 9, 11)

    def function(x: torch.Tensor, rois: torch.Tensor) -> Any:
        return torch.ops.torchvision.roi_align(x, rois, 0.8, 3, 2, 2, aligned)

    (found,), plan = by_numpy(function, (x, BOXES))
    assert not plan.refused
    expected = torch.stack([bins(x, box, 0.8, each=2, aligned=aligned) for box in BOXES])
    torch.testing.assert_close(found.double(), expected, rtol=1e-4, atol=1e-5)


def test_every_bin_may_have_channels_of_its_own() -> None:
    x = noise(2, 24, 9, 11)

    def function(x: torch.Tensor, rois: torch.Tensor) -> Any:
        return torch.ops.torchvision.ps_roi_align(x, rois, 0.7, 3, 2, 2)

    (found, channels), plan = by_numpy(function, (x, BOXES))
    assert not plan.refused
    wide = torch.stack([bins(x, box, 0.7, each=2, aligned=True) for box in BOXES])
    at = torch.arange(24).reshape(1, 4, 3, 2)
    expected = wide.reshape(5, 4, 6, 3, 2).gather(2, (at % 6)[:, :, None].expand(5, 4, 1, 3, 2))
    torch.testing.assert_close(found.double(), expected[:, :, 0], rtol=1e-4, atol=1e-5)
    assert torch.equal(channels, at.expand(5, 4, 3, 2).int())


@pytest.mark.parametrize("masked", [False, True])
def test_elements_of_a_kernel_lie_where_the_model_says(masked: bool) -> None:
    """Two groups of channels, two groups of offsets, a stride along columns."""
    x, w, bias = noise(1, 4, 6, 7), noise(4, 2, 3, 3), noise(4)
    offset, mask = 2 * noise(1, 36, 6, 4), noise(1, 18, 6, 4)

    def function(*given: torch.Tensor) -> Any:
        shape = (1, 2, 1, 1, 1, 1, 2, 2, masked)
        return torch.ops.torchvision.deform_conv2d(*given, *shape)

    (found,), plan = by_numpy(function, (x, w, offset, mask, bias))
    assert not plan.refused
    expected = bias.double().reshape(1, 4, 1, 1).repeat(1, 1, 6, 4)
    for row, column, place in ((r, c, k) for r in range(6) for c in range(4) for k in range(9)):
        for part in range(2):
            at = 18 * part + 2 * place
            y = row - 1 + place // 3 + offset[0, at, row, column].item()
            across = 2 * column - 1 + place % 3 + offset[0, at + 1, row, column].item()
            own = seen(x[0, 2 * part : 2 * part + 2], y, across, clipped=False)
            own = own * (mask[0, 9 * part + place, row, column].double() if masked else 1)
            taken = w[2 * part : 2 * part + 2, :, place // 3, place % 3].double()
            expected[0, 2 * part : 2 * part + 2, row, column] += taken @ own
    torch.testing.assert_close(found.double(), expected, rtol=1e-4, atol=1e-4)
