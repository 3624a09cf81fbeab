"""Attributes in one form: those that an operator leaves out as what they then are, and dimensions
counted from the front, so that equal nodes have equal attributes."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from autotune.types import Attr

_WINDOW: Mapping[str, Attr] = {"strides": (1, 1), "pads": (0, 0, 0, 0), "dilations": (1, 1)}
DEFAULTS: Mapping[str, Mapping[str, Attr]] = {
    "scalar": {"dtype": "float32"},
    "matmul": {"transpose_b": False},
    "conv2d": {**_WINDOW, "groups": 1},
    "max_pool2d": _WINDOW,
    "avg_pool2d": {**_WINDOW, "count_include_pad": False},
    "concat": {"axis": 0},
    **{f: {"axis": -1} for f in ("softmax", "log_softmax")},
    **{f: {"axis": -1, "epsilon": 1e-5} for f in ("layer_norm", "rms_norm")},
    "pad": {"value": 0.0},
    "resize": {
        "mode": "nearest", "coordinate": "half_pixel", "nearest_mode": "round_prefer_floor",
    },
    **{f"reduce_{how}": {"keepdims": True} for how in ("sum", "mean", "max", "min")},
}  # fmt: skip
"""What operators take attributes for that are not there."""


def normal(
    op: str, attrs: Mapping[str, Attr], shapes: Sequence[tuple[int, ...]]
) -> dict[str, Attr]:
    """A node's attributes, its operands being of these shapes."""
    out = {**DEFAULTS.get(op, {}), **attrs}
    rank = len(shapes[0]) if shapes else 0
    if op == "slice":
        out.setdefault("steps", (1,) * rank)
    if op.startswith("reduce_"):
        out.setdefault("axes", tuple(range(rank)))
    axis, axes = out.get("axis"), out.get("axes")
    if isinstance(axis, int) and rank:
        out["axis"] = axis % rank
    if isinstance(axes, tuple) and rank:
        out["axes"] = tuple(sorted(int(a) % rank for a in axes))
    if op.endswith("pool2d") and out.get("valid_pads") == out["pads"]:
        del out["valid_pads"]  # which is what they are where none are given
    flag = next((n for n in ("transpose_b", "keepdims", "count_include_pad") if n in out), None)
    if flag:
        out[flag] = bool(out[flag])
    if op == "resize" and out["mode"] == "linear":
        out["nearest_mode"] = "round_prefer_floor"  # which means nothing there
    return out
