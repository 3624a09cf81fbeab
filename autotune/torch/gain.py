"""The predicted speed-up of a piece over eager, from what calls of each cost. In: a piece and what
its nodes give. Out: a factor, before anything is compiled.

The work of kernels is taken to be the same on both sides: what is known before compiling is that
eager calls one for each operator, and ours is called once. So small pieces are eager's, and the
larger the work, the nearer the factor is to 1 or above it.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any

import torch
from torch import fx

from autotune.torch.split import GraphPiece

OPERATOR_S, VIEW_S = 2.6e-6, 0.9e-6
"""Eager's call of an operator, and of one that moves nothing; measured on one core of Emerald
Rapids, PyTorch 2.13."""
LOOKUP_S = 5.5e-6
"""Eager's call of a lookup, which looks at all indices first and is called through Python;
measured on one core of Zen 4, PyTorch 2.13."""
CALL_S, PORT_S = 1.6e-6, 0.5e-6
"""Ours of a piece, and what each of its inputs and outputs adds; measured as lookups are."""
BYTE_S, FLOP_S = 5e-11, 2e-11
"""20 GB/s, 50 GFLOP/s: about what one core does without tuning."""
_GATHERS = ("embedding", "gather", "index", "index_select", "take")
"""They read as much as they give, however large what they read from is."""
_PRODUCTS = ("mm", "bmm", "addmm", "baddbmm", "convolution", "linear", "matmul")
_VIEWS = (
    "view", "_unsafe_view", "reshape", "permute", "t", "transpose", "expand", "squeeze", "select",
    "unsqueeze", "slice", "split", "split_with_sizes", "unbind", "alias", "detach", "as_strided",
)  # fmt: skip


def predicted_gain(piece: GraphPiece, values: Mapping[fx.Node, Any]) -> float:
    """Seconds of eager over ours."""
    eager_s = work_s = 0.0
    for node in piece.nodes:
        name = getattr(getattr(node.target, "overloadpacket", None), "__name__", "")
        if not name:
            continue  # it takes one of several results
        moved = name in _VIEWS
        eager_s += VIEW_S if moved else LOOKUP_S if name in _GATHERS else OPERATOR_S
        if not moved:
            work_s += _work_s(node, name, values)
    ports = len(piece.inputs) + len(piece.outputs)
    return (eager_s + work_s) / (CALL_S + PORT_S * ports + work_s)


def _work_s(node: fx.Node, name: str, values: Mapping[fx.Node, Any]) -> float:
    """By the bytes that an operator reads and writes, and by its multiply-adds."""
    made = _tensors(values.get(node))
    read = [t for n in node.all_input_nodes for t in _tensors(values.get(n))]
    if name in _GATHERS:
        read = made
    seconds = BYTE_S * sum(t.numel() * t.element_size() for t in (*made, *read))
    if name in _PRODUCTS and made and len(read) > 1:
        # Elements of the operands besides the result's own: M K and K N of M N.
        volume = math.prod(float(t.numel()) for t in (*read[-3:], made[0])[-3:])
        seconds += 2 * FLOP_S * math.sqrt(volume)
    return seconds


def _tensors(value: Any) -> list[torch.Tensor]:
    if isinstance(value, torch.Tensor):
        return [value]
    return [t for t in value if isinstance(t, torch.Tensor)] if isinstance(value, tuple) else []
