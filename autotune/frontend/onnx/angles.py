"""ONNX importers: functions of angles and hyperbolas, and their inverses."""

from __future__ import annotations

from autotune.frontend.onnx.context import Importer, NodeContext, importer

_FUNCTIONS = {
    "Tan": "tan", "Cosh": "cosh", "Sinh": "sinh", "Atan": "atan", "Asin": "asin", "Acos": "acos",
    "Asinh": "asinh", "Acosh": "acosh", "Atanh": "atanh",
}  # fmt: skip
"""ONNX operator -> element function."""


def _of(function: str) -> Importer:
    def imported(n: NodeContext) -> str:
        return n.op(function, n.input(0))

    return imported


for _operator, _function in _FUNCTIONS.items():
    importer(_operator)(_of(_function))
