"""Forms of tensors: what a program takes is taken fast, anything else is refused at any call."""

from __future__ import annotations

import pytest
import torch

from autotune.torch.forms import FormGuard

FORMS = [(torch.float32, (2, 3), (3, 1)), (torch.int64, (4,), (1,))]


def given() -> list[torch.Tensor]:
    return [torch.zeros(2, 3), torch.zeros(4, dtype=torch.int64)]


def fits(guard: FormGuard, tensors: list[torch.Tensor]) -> bool:
    return guard.quick(*tensors) or guard.all(tensors)


def test_what_fits_once_is_known_at_once() -> None:
    guard = FormGuard(FORMS)
    assert not guard.quick(*given())
    assert guard.all(given())
    assert guard.quick(*given())


@pytest.mark.parametrize("known", [False, True])
@pytest.mark.parametrize(
    "other",
    [
        torch.zeros(3, 2),
        torch.zeros(2, 3, dtype=torch.float64),
        torch.zeros(3, 2).T,
        torch.zeros(2, 3, 1),
        torch.zeros(2, 3, dtype=torch.complex64).conj().imag,
        torch.zeros(2, 3).to_sparse(),
    ],
    ids=["shape", "type", "strides", "rank", "negative", "sparse"],
)
def test_another_form_is_refused(other: torch.Tensor, *, known: bool) -> None:
    guard = FormGuard(FORMS)
    if known:
        assert guard.all(given())
    assert not fits(guard, [other, given()[1]])
    assert fits(guard, given())


def test_modes_of_autograd_make_no_other_form() -> None:
    guard = FormGuard(FORMS)
    assert guard.all(given())
    assert fits(guard, [torch.zeros(2, 3, requires_grad=True).detach(), given()[1]])
    with torch.inference_mode():
        assert fits(guard, given())
    assert fits(guard, given())
