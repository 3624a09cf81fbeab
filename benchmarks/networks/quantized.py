"""Models as ONNX Runtime's static quantization writes them, for engines that take them so.

In: an .onnx file and samples of its inputs. Out: a file with pairs of QuantizeLinear and
DequantizeLinear: uint8 activations, int8 weights per channel, ranges from the samples.
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

OPSET = 17
"""The first ones have no scales per channel."""


def write_quantized(path: Path, samples: Sequence[dict[str, Any]], folder: Path) -> Path:
    """Needs onnxruntime's quantization tools (sympy); graph outputs keep their types."""
    import onnx
    from onnxruntime.quantization import (
        CalibrationDataReader,
        QuantFormat,
        QuantType,
        quantize_static,
    )
    from onnxruntime.quantization.shape_inference import quant_pre_process

    class Reader(CalibrationDataReader):  # type: ignore[misc]
        def __init__(self) -> None:
            self.left = list(samples)

        def get_next(self) -> dict[str, Any] | None:
            return self.left.pop(0) if self.left else None

    model = onnx.load(path)
    if model.opset_import[0].version < OPSET:
        model = onnx.version_converter.convert_version(model, OPSET)
    newer, ready = folder / "newer.onnx", folder / "ready.onnx"
    onnx.save(model, newer)
    quant_pre_process(str(newer), str(ready), skip_symbolic_shape=True)
    out = folder / f"{path.stem}.qdq.onnx"
    quantize_static(
        str(ready), str(out), Reader(), quant_format=QuantFormat.QDQ, per_channel=True,
        activation_type=QuantType.QUInt8, weight_type=QuantType.QInt8,
    )  # fmt: skip
    return out
