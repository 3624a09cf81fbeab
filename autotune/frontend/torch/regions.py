"""Importers of torchvision's operators on regions of images, and of deformed convolutions; there
where torchvision is. In: a call. Out: gathers."""

from __future__ import annotations

import math

import numpy as np

from autotune.frontend.deformed import DeformedWindow, deformed_convolution
from autotune.frontend.regions import ImageRegions, aligned, by_place
from autotune.frontend.torch.context import AtenCall, aten
from autotune.frontend.volume import VolumeWindow


@aten("torchvision.roi_align")
def roi_align(n: AtenCall) -> str:
    from_middles = bool(n.arg("aligned", False))
    shift = 0.5 if from_middles else 0.0
    return aligned(n, n.value("input"), _regions(n, shift, widened=not from_middles))


@aten("torchvision.ps_roi_align")
def ps_roi_align(n: AtenCall) -> tuple[str, str]:
    """What is seen, and the channel that each element was seen in."""
    regions = _regions(n, 0.5, widened=False)
    made = by_place(n, n.value("input"), regions)
    shape = n.shape(made)
    channels = np.arange(math.prod(shape[1:]), dtype=np.int32).reshape(1, *shape[1:])
    return made, n.expanded(n.constant(channels), shape)


def _regions(n: AtenCall, shift: float, *, widened: bool) -> ImageRegions:
    rois, each = n.value("rois"), n.integer("sampling_ratio")
    if each < 1:
        n.refuse("regions that are seen at as many places as they have elements")
    count = n.shape(rois)[0]
    boxes = n.op("slice", rois, starts=(0, 1), stops=(count, 5), steps=(1, 1))
    image = n.op("slice", rois, starts=(0, 0), stops=(count, 1), steps=(1, 1))
    return ImageRegions(
        boxes=boxes, images=n.reshape(n.cast(image, "int64"), (count,)), each=each,
        bins=(n.integer("pooled_height"), n.integer("pooled_width")),
        scale=n.number("spatial_scale"), shift=shift, widened=widened,
    )  # fmt: skip


@aten("torchvision.deform_conv2d")
def deform_conv(n: AtenCall) -> str:
    x, w = n.value("input"), n.value("weight")
    pads = (n.integer("pad_h"), n.integer("pad_w")) * 2
    window = VolumeWindow(
        kernel=n.shape(w)[2:], pads=pads, valid_pads=pads,
        strides=(n.integer("stride_h"), n.integer("stride_w")),
        dilations=(n.integer("dilation_h"), n.integer("dilation_w")),
    )  # fmt: skip
    how = DeformedWindow(
        window=window, offsets=n.value("offset"), parts=n.integer("offset_groups"),
        groups=n.integer("groups"), mask=n.value("mask") if n.arg("use_mask", False) else None,
    )  # fmt: skip
    return deformed_convolution(n, x, w, how, n.value("bias"))
