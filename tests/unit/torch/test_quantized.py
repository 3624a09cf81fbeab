"""What PyTorch's own tools have quantized runs on bytes here, too."""

from __future__ import annotations

import warnings
from collections.abc import Iterator
from typing import Any

import numpy as np
import pytest
import torch
from torch import nn

import autotune
from autotune.compiler.driver import partition

pytestmark = pytest.mark.filterwarnings("ignore")  # torchao warns itself of what PyTorch will drop
torchao = pytest.importorskip("torchao")


@pytest.fixture(autouse=True)
def _seeded() -> Iterator[None]:
    torch.manual_seed(0)
    with torch.no_grad():
        yield


def exported(model: Any, x: torch.Tensor) -> Any:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        return torch.export.export(model, (x,))


def checked(model: Any, x: torch.Tensor, *, within: float) -> list[tuple[str, set[str]]]:
    """(operator, element types that it reads) of the tasks of a model's export, whose result is
    PyTorch's up to a share of its largest value."""
    program = exported(model, x)
    compiled = autotune.compile(program, machine="nominal", threads=1)
    (name,) = compiled.inputs
    (found,) = compiled.run({name: x.numpy()}).values()
    expected = model(x).numpy()
    assert np.abs(found - expected).max() <= within * np.abs(expected).max()
    tasks = partition(program, machine="nominal", threads=1).weights()
    return [(str(t.op), {p.type.dtype for p in t.params}) for t in tasks]


def network() -> nn.Module:
    return nn.Sequential(
        nn.Conv2d(3, 16, 3, padding=1), nn.ReLU(), nn.Conv2d(16, 16, 3), nn.ReLU(),
        nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(16, 64), nn.ReLU(), nn.Linear(64, 5),
    ).eval()  # fmt: skip


def test_static_quantization_by_export_runs_on_bytes() -> None:
    from torchao.quantization.pt2e import quantize_pt2e
    from torchao.quantization.pt2e.quantizer import x86_inductor_quantizer as x86

    x = torch.randn(2, 3, 12, 12)
    quantizer = x86.X86InductorQuantizer()
    quantizer.set_global(x86.get_default_x86_inductor_quantization_config())
    observed = quantize_pt2e.prepare_pt2e(exported(network(), x).module(), quantizer)
    observed(x)
    tasks = checked(quantize_pt2e.convert_pt2e(observed), x, within=0.02)
    products = [kinds for op, kinds in tasks if "conv" in op or "matmul" in op]
    assert sum({"uint8", "int8"} <= kinds for kinds in products) >= 3


@pytest.mark.parametrize("bits", [8, 4])
@pytest.mark.parametrize("rows", [1, 40])
def test_weights_of_few_bits_stay_bytes_where_rows_are_few(bits: int, rows: int) -> None:
    from torchao.quantization import Int8WeightOnlyConfig, IntxWeightOnlyConfig, quantize_
    from torchao.quantization.granularity import PerGroup

    int4: Any = torch.int4  # type: ignore[attr-defined]

    model = nn.Sequential(nn.Linear(64, 128), nn.ReLU(), nn.Linear(128, 64)).eval()
    four = IntxWeightOnlyConfig(weight_dtype=int4, granularity=PerGroup(32))
    quantize_(model, Int8WeightOnlyConfig() if bits == 8 else four)
    tasks = checked(model, torch.randn(rows, 64), within=1e-5)
    assert any("int8" in kinds for _, kinds in tasks) == (rows == 1)


@pytest.mark.parametrize("leading", [(8,), (2, 5)])
def test_dynamic_quantization_by_export_runs_on_bytes(leading: tuple[int, ...]) -> None:
    from torchao.quantization.pt2e import quantize_pt2e
    from torchao.quantization.pt2e.quantizer import x86_inductor_quantizer as x86

    model = nn.Sequential(nn.Linear(64, 128), nn.ReLU(), nn.Linear(128, 64)).eval()
    x = torch.randn(*leading, 64)
    quantizer = x86.X86InductorQuantizer()
    quantizer.set_global(x86.get_default_x86_inductor_quantization_config(is_dynamic=True))
    observed = quantize_pt2e.prepare_pt2e(exported(model, x).module(), quantizer)
    observed(x)
    quantized = quantize_pt2e.convert_pt2e(observed)
    tasks = checked(quantized, x, within=0.01)
    products = [kinds for op, kinds in tasks if "matmul" in op]
    assert len(products) == 2
    assert all({"uint8", "int8"} <= kinds for kinds in products)


def test_rows_quantized_as_they_come_are_multiplied_as_bytes() -> None:
    from torchao.quantization import Int8DynamicActivationInt8WeightConfig, quantize_

    model = nn.Sequential(nn.Linear(64, 128), nn.ReLU(), nn.Linear(128, 64)).eval()
    quantize_(model, Int8DynamicActivationInt8WeightConfig())
    tasks = checked(model, torch.randn(8, 64), within=0.01)
    assert all({"uint8", "int8"} <= kinds for op, kinds in tasks if "matmul" in op)
