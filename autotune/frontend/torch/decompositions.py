"""Decompositions that PyTorch makes before we see a graph. Out: its table of core ATen
decompositions, less the operators that graphs here have as one, and some of its further ones."""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor
from torch._decomp import core_aten_decompositions, get_decompositions
from torch._prims_common import suggest_memory_format

from autotune.frontend.torch.bags import embedding_bag
from autotune.frontend.torch.compositions import batches_added, trilinear
from autotune.frontend.torch.encoder_layers import encoder_layer, multi_head_attention
from autotune.frontend.torch.repeats import repeated_places

KEPT = (
    "addmm", "elu", "gelu", "hardsigmoid", "hardswish", "hardtanh", "leaky_relu", "mish",
    "native_group_norm", "native_layer_norm", "pixel_shuffle", "pixel_unshuffle", "silu",
    "softplus", "upsample_bicubic2d", "upsample_bilinear2d", "upsample_linear1d",
    "upsample_nearest1d", "upsample_nearest2d", "upsample_nearest3d", "upsample_trilinear3d",
    "_scaled_dot_product_flash_attention_for_cpu", "_safe_softmax", "std", "var_mean", "std_mean",
    "all", "any", "lerp", "addcmul", "addcdiv", "masked_fill", "fill", "eye", "linspace", "rsub",
    "reflection_pad1d", "reflection_pad2d", "reflection_pad3d", "replication_pad1d",
    "replication_pad2d", "replication_pad3d", "unfold", "im2col", "baddbmm", "glu", "isinf",
    "_upsample_nearest_exact1d", "_upsample_nearest_exact2d", "_upsample_nearest_exact3d",
    "index_select", "logsumexp", "stack", "tril", "triu", "select_scatter", "slice_scatter",
    "col2im", "grid_sampler_2d", "erfc", "special_erfc", "logaddexp", "hypot", "bucketize",
    "masked_scatter",
)  # fmt: skip
FURTHER = ("ldexp", "dist")
"""Operators that PyTorch decomposes, its core does not."""
BAGS = ("_embedding_bag", "_embedding_bag_forward_only")


IN_IMAGES_ORDER = ("max_unpool2d", "roll", "channel_shuffle", "native_channel_shuffle")
"""Operators that leave images as they lie, and whose decompositions do not."""


@functools.cache
def decompositions() -> dict[Any, Callable[..., Any]]:
    """By overload."""
    aten = torch.ops.aten
    table = dict(core_aten_decompositions())
    table.update(get_decompositions([getattr(aten, name) for name in FURTHER]))
    table.update({getattr(aten, name).default: embedding_bag for name in BAGS})
    table[aten.addbmm.default] = batches_added
    table[aten._trilinear.default] = trilinear
    table[aten.repeat_interleave.Tensor] = repeated_places
    table[aten._transformer_encoder_layer_fwd.default] = encoder_layer
    table[aten._native_multi_head_attention.default] = multi_head_attention
    for name in KEPT:
        packet = getattr(torch.ops.aten, name, None)
        for overload in packet.overloads() if packet is not None else ():
            table.pop(getattr(packet, overload), None)
    for name in IN_IMAGES_ORDER:
        overload = getattr(aten, name).default
        if overload in table:
            table[overload] = functools.partial(_lying_as_images, table[overload])
    return table


def _lying_as_images(
    decomposed: Callable[..., Tensor], images: Tensor, *args: Any, **kwargs: Any
) -> Tensor:
    """Channels last where the images have them so, as the operator gives it in eager."""
    made = decomposed(images, *args, **kwargs)
    return made.contiguous(memory_format=suggest_memory_format(images))
