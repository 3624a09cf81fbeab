"""Forms of tensors: what a program takes is taken fast, anything else is refused at any call."""

from __future__ import annotations

import pytest
import torch

from autotune.torch.forms import have_forms, same_forms

FORMS = [(torch.float32, (2, 3), (3, 1)), (torch.int64, (4,), (1,))]


def given() -> list[torch.Tensor]:
    return [torch.zeros(2, 3), torch.zeros(4, dtype=torch.int64)]


def fits(tensors: list[torch.Tensor], *, known: bool) -> bool:
    """By the function of tensors that were met, where there is one, as by a look at each."""
    quick = same_forms(given()) if known else None
    return (quick is not None and quick(*tensors)) or have_forms(tensors, FORMS)


def test_what_was_met_once_is_known_at_once() -> None:
    quick = same_forms(given())
    assert quick is not None
    assert quick(*given())


def test_of_what_has_no_memory_nothing_is_known() -> None:
    assert same_forms([torch.zeros(2, device="meta")]) is None
    assert same_forms([torch.zeros(2).to_sparse()]) is None
    assert same_forms([torch.zeros(2), 3]) is None


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
    assert not fits([other, given()[1]], known=known)
    assert fits(given(), known=known)


@pytest.mark.parametrize("known", [False, True])
def test_modes_of_autograd_make_no_other_form(*, known: bool) -> None:
    detached = torch.zeros(2, 3, requires_grad=True).detach()
    assert fits([detached, given()[1]], known=known)
    with torch.inference_mode():
        assert fits(given(), known=known)
