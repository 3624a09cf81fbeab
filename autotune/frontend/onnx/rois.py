"""ONNX importers: RoiAlign, regions of images seen on a grid. In: a node. Out: gathers."""

from __future__ import annotations

from autotune.errors import UnsupportedOpError
from autotune.frontend.onnx.context import NodeContext, importer
from autotune.frontend.regions import ImageRegions, aligned

COORDINATES = {"half_pixel": 0.5, "output_half_pixel": 0.0}
"""What is taken from corners of regions: where the first element's middle lies."""


@importer("RoiAlign")
def roi_align(n: NodeContext) -> str:
    """[regions, channels, rows, columns] of bins. The standard takes the largest of what corners
    add, not of their sums."""
    each, mode = _how(n)
    coordinate = _coordinate(n)
    regions = ImageRegions(
        boxes=n.input(1), images=n.cast(n.input(2), "int64"), each=each,
        bins=(n.integer("output_height", 1), n.integer("output_width", 1)),
        scale=n.number("spatial_scale", 1.0), shift=COORDINATES[coordinate],
        widened=coordinate == "output_half_pixel",
    )  # fmt: skip
    return aligned(n, n.input(0), regions, largest=mode == "max")


def _how(n: NodeContext) -> tuple[int, str]:
    """At how many places along an axis a bin is seen, and what is taken of them."""
    each, mode = n.integer("sampling_ratio", 0), n.text("mode", "avg")
    if each < 1:
        raise UnsupportedOpError(
            "sampling_ratio 0 looks at as many places as a region has elements, which only a run "
            "knows; export the model with sampling_ratio=2"
        )
    if mode not in ("avg", "max"):
        raise UnsupportedOpError(f"mode must be avg or max, got {mode!r}")
    return each, mode


def _coordinate(n: NodeContext) -> str:
    usual = "half_pixel" if n.opset >= 16 else "output_half_pixel"
    coordinate = n.text("coordinate_transformation_mode", usual)
    if coordinate not in COORDINATES:
        raise UnsupportedOpError(
            f"coordinate_transformation_mode must be one of {', '.join(COORDINATES)}, got "
            f"{coordinate!r}"
        )
    return coordinate
