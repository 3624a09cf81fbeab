"""Importers of operators on complex tensors give what PyTorch gives."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch import fft
from torch.utils import _pytree as pytree

from tests.unit.torch.oracle import by_numpy


def floats(*shape: int) -> torch.Tensor:
    return torch.randn(shape, generator=torch.Generator().manual_seed(sum(shape)))


X, LONG = floats(3, 24), floats(2, 1920)
Z = torch.complex(floats(3, 4), floats(4, 3).t())
W = torch.complex(floats(4, 3).t() + 0.2, floats(3, 4))
WINDOW = torch.hann_window(40)

Case = tuple[str, Callable[..., Any], tuple[torch.Tensor, ...]]
CASES: list[Case] = [
    ("arithmetic", lambda a, b, x: (a + b, a - 2 * b, a * b, a / b, -a, a / 3, 2 * a, a + 1,
     a * (1 + 2j), x * a, x - a, a.reciprocal(), a**2, a.square(), torch.add(a, b, alpha=2)),
     (Z, W, floats(3, 4))),
    ("functions", lambda a: (a.abs(), a.angle(), a.exp(), a.log(), a.conj() * a, a.real, a.imag),
     (Z,)),
    ("large and small", lambda a: (a.abs(), (a / (a * 2)), a.reciprocal()),
     (torch.complex(torch.tensor([1e30, 1e-30, 0.0]), torch.tensor([1e30, -1e-30, 2.0])),)),
    ("made", lambda x: (torch.complex(x, x[0]), torch.polar(x.abs(), x), x.to(torch.complex64),
     torch.zeros(2, dtype=torch.complex64) + x[0, 0], torch.ones_like(torch.complex(x, x))),
     (X,)),
    ("views", lambda a, b: (a.t(), a[1], a[:, 1:3], torch.cat([a, b]), torch.stack([a, b], 1),
     a.view(2, 6), a.flip(0), a.roll(1, 0), *a.unbind(1), *a.split(2, 1), a.expand(2, 3, 4)),
     (Z, W)),
    ("picked", lambda a, b: (torch.where(a.real > 0, a, b), a[torch.tensor([2, 0])], a == b,
     a != b, a.masked_fill(a.real > 0, 0)), (Z, W)),
    ("sums and products", lambda a, b: (a.sum(0), a.mean(), a @ b.t(), a @ b.mH,
     torch.einsum("ij,kj->ik", a, b)), (Z, W)),
    ("made of real ones", lambda a, x: (torch.cat([a, x]), torch.cat([x, a], 1),
     x.sum(0, dtype=torch.complex64), torch.nn.functional.pad(a, (1, 2), value=1.5)),
     (Z, floats(3, 4))),
    ("made real", lambda a: (a.to(torch.float32), a.to(torch.int64), a.bool()),
     (torch.complex(torch.tensor([0.0, 0.0, -3.7]), torch.tensor([0.0, 2.0, 1.0])),)),
    ("infinite", lambda a: (a.exp(), a.abs()), (torch.complex(
     torch.tensor([-math.inf, -math.inf, math.inf, math.nan]),
     torch.tensor([math.inf, math.nan, 0.0, 0.0])),)),
    ("lying otherwise", lambda a: a.t() * 2, (Z.t(),)),
    ("rotary embedding", lambda x, angle: torch.view_as_real(
        torch.view_as_complex(x.reshape(3, 4, 3, 2)) * torch.polar(torch.ones_like(angle), angle)
     ).flatten(2), (X, floats(4, 3))),
    ("of real numbers", lambda x: (fft.rfft(x), fft.rfft(x, norm="ortho"), fft.rfft(x, n=17),
     fft.rfft(x, dim=0), fft.rfft2(x), fft.ihfft(x)), (X,)),
    ("of complex numbers", lambda x: (fft.fft(x), fft.ifft(x, norm="forward"), fft.fft2(x),
     fft.fftn(x[None].expand(2, 3, 24)), fft.fftshift(fft.fft(x))), (X,)),
    ("to real numbers", lambda x: (fft.irfft(fft.rfft(x)), fft.irfft(fft.rfft(x), n=23),
     fft.irfft(fft.rfft(x), n=30), fft.irfft2(fft.rfft2(x)), fft.hfft(fft.fft(x))), (X,)),
    ("of a length with factors", lambda x: (fft.rfft(x), fft.fft(x).real, fft.irfft(fft.rfft(x)),
     fft.irfft(fft.rfft(x)[:, :800])), (LONG,)),
    ("of windows", lambda x, w: (torch.stft(x, 40, 10, window=w, return_complex=True).abs() ** 2,
     torch.stft(x, 30, window=w[:30], return_complex=True, normalized=True)), (LONG, WINDOW)),
]  # fmt: skip


@pytest.mark.filterwarnings("ignore:Casting complex values to real")
@pytest.mark.parametrize(("function", "inputs"), [c[1:] for c in CASES], ids=[c[0] for c in CASES])
def test_it_gives_what_pytorch_gives(
    function: Callable[..., Any], inputs: tuple[torch.Tensor, ...]
) -> None:
    expected = pytree.tree_leaves(function(*inputs))
    found, plan = by_numpy(function, inputs)
    assert not plan.refused
    for a, b in zip(found, expected, strict=True):
        scale = b.to(torch.complex128).abs().max().item() or 1.0
        assert a.dtype == b.dtype
        torch.testing.assert_close(
            a, b.resolve_conj(), rtol=1e-5, atol=(1e-6 * scale if math.isfinite(scale) else 1e-6),
            equal_nan=True,
        )  # fmt: skip


@pytest.mark.filterwarnings("ignore:Casting complex values to real")
def test_what_would_mix_the_parts_is_left_to_pytorch() -> None:
    def function(a: torch.Tensor, x: torch.Tensor) -> tuple[torch.Tensor, ...]:
        return torch.add(x, a, alpha=1j), x.clone().copy_(a)

    given = (Z, floats(3, 4))
    found, plan = by_numpy(function, given)
    assert plan.refused
    for a, b in zip(found, function(*given), strict=True):
        torch.testing.assert_close(a, b)


def test_compiled_complex_numbers_come_in_and_out() -> None:
    def function(z: torch.Tensor, x: torch.Tensor) -> tuple[torch.Tensor, ...]:
        return z.t() * z.t().conj() + x.t(), fft.rfft(x.relu() + 1)

    given = (Z, floats(3, 4))
    made = torch.compile(
        function, backend="autotune", options={"machine": "nominal", "threads": 1, "min_gain": 0}
    )(*given)
    for a, b in zip(made, function(*given), strict=True):
        torch.testing.assert_close(a, b, rtol=1e-5, atol=1e-5)
        assert a.stride() == b.stride()


def test_a_complex_result_of_no_elements_is_ours() -> None:
    """PyTorch looks at how its parts would lie in memory."""
    fast = torch.compile(
        torch.complex,
        backend="autotune",
        options={"machine": "nominal", "threads": 1, "min_gain": 0},
    )
    for _ in range(2):
        made = fast(floats(0, 1, 3), floats(0, 10, 3))
        assert (made.shape, made.dtype) == ((0, 10, 3), torch.complex64)
