"""The predicted speed-up of a piece over eager, from what calls of each cost. In: a piece and what
its nodes give. Out: a factor, before anything is compiled.

The work of kernels is taken to be the same on both sides, but for what is known to be slow here:
what is known before compiling is that eager calls one for each operator, and ours is called once.
So small pieces are eager's, and the larger the work, the nearer the factor is to 1 or above it.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any

import torch
from torch import fx

from autotune.frontend.torch.dtypes import HALVES
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
HALF_PORT_S = 2.5e-10
"""What it takes to widen or narrow an element of 16 bits that a piece takes or gives, computed in
float32; measured on one core of Zen 4, large tensors."""
DOUBLE_PRODUCT, DOUBLE_FUNCTION = 40.0, 3.0
"""Our time over eager's of matrix products and of functions in float64, which have no tiles and no
vectors here; measured as ports are."""
_FUNCTIONS = (
    "exp", "log", "sin", "cos", "tan", "tanh", "sigmoid", "erf", "pow", "gelu", "silu", "expm1",
    "log1p", "_softmax", "_log_softmax", "logsumexp",
)  # fmt: skip
_GATHERS = ("embedding", "gather", "index", "index_select", "take")
"""They read as much as they give, however large what they read from is."""
_PRODUCTS = ("mm", "bmm", "addmm", "baddbmm", "convolution", "linear", "matmul")
_VIEWS = (
    "view", "_unsafe_view", "reshape", "permute", "t", "transpose", "expand", "squeeze", "select",
    "unsqueeze", "slice", "split", "split_with_sizes", "unbind", "alias", "detach", "as_strided",
)  # fmt: skip


def predicted_gain(piece: GraphPiece, values: Mapping[fx.Node, Any]) -> float:
    """Seconds of eager over ours."""
    eager_s = work_s = ours_s = 0.0
    for node in piece.nodes:
        name = getattr(getattr(node.target, "overloadpacket", None), "__name__", "")
        if not name:
            continue  # it takes one of several results
        moved = name in _VIEWS
        eager_s += VIEW_S if moved else LOOKUP_S if name in _GATHERS else OPERATOR_S
        if not moved:
            seconds = _work_s(node, name, values)
            work_s += seconds
            ours_s += seconds * _slowdown(name, values.get(node))
    ports = (*piece.inputs, *piece.outputs)
    ours_s += CALL_S + PORT_S * len(ports) + sum(_widening_s(values.get(p)) for p in ports)
    return (eager_s + work_s) / ours_s


def _slowdown(name: str, made: Any) -> float:
    """Our kernel's time over eager's, where that is known to be more."""
    if not any(t.dtype is torch.float64 for t in _tensors(made)):
        return 1.0
    return DOUBLE_PRODUCT if name in _PRODUCTS else DOUBLE_FUNCTION if name in _FUNCTIONS else 1.0


def _widening_s(port: Any) -> float:
    return HALF_PORT_S * sum(float(t.numel()) for t in _tensors(port) if t.dtype in HALVES)


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
