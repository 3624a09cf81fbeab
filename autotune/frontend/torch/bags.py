"""Bags of embeddings, in operators that there are. In: a table, places in it, and where in these
each bag begins. Out: for each bag the sum or the mean of its rows."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor

SUM, MEAN = 0, 1
"""Modes of PyTorch's operator, whose third is the largest of each column."""
_DEFAULTS = {
    "scale_grad_by_freq": False, "mode": SUM, "sparse": False, "per_sample_weights": None,
    "include_last_offset": False, "padding_idx": -1,
}  # fmt: skip


def embedding_bag(
    weight: Tensor, indices: Tensor, offsets: Tensor, *more: Any, **named: Any
) -> tuple[Tensor, Tensor, Tensor, Tensor]:
    """The bags, and what gradients need: the bag of each place, how many places each bag has, and
    nothing. `more` and `named`: the operator's further arguments. NotImplemented for other
    modes."""
    given = _DEFAULTS | dict(zip(_DEFAULTS, more, strict=False)) | named
    share, padding = given["per_sample_weights"], given["padding_idx"]
    if given["mode"] not in (SUM, MEAN):
        return NotImplemented  # type: ignore[no-any-return]
    count = offsets.shape[0] - given["include_last_offset"]
    places = torch.arange(indices.shape[0], dtype=offsets.dtype)
    bag = torch.searchsorted(offsets, places, right=True) - 1
    rows = torch.index_select(weight, 0, indices)
    kept = (indices != padding).to(torch.int64)
    if padding >= 0:
        rows = rows * kept.to(weight.dtype)[:, None]
    if share is not None:
        rows = rows * share[:, None]
    made = weight.new_zeros(count, weight.shape[1]).index_add(0, bag, rows)
    sizes = torch.zeros(count, dtype=torch.int64).index_add(0, bag, kept)
    if given["mode"] == MEAN:
        made = made / sizes.clamp(min=1).to(weight.dtype)[:, None]
    return made, bag, sizes, torch.zeros(count, dtype=torch.int64)
