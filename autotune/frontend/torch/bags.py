"""Bags of embeddings, in operators that there are. In: a table, places in it, and where in these
each bag begins. Out: for each bag the sum, the mean or the largest of its rows."""

from __future__ import annotations

import math
from typing import Any

import torch
from torch import Tensor

SUM, MEAN, MAX = 0, 1, 2
"""Modes of PyTorch's operator."""
_DEFAULTS = {
    "scale_grad_by_freq": False, "mode": SUM, "sparse": False, "per_sample_weights": None,
    "include_last_offset": False, "padding_idx": -1,
}  # fmt: skip


def embedding_bag(
    weight: Tensor, indices: Tensor, offsets: Tensor, *more: Any, **named: Any
) -> tuple[Tensor, Tensor, Tensor, Tensor]:
    """The bags, and what gradients need: the bag of each place, how many places each bag has, and
    of largest rows where each column is from. `more` and `named`: the operator's further
    arguments."""
    given = _DEFAULTS | dict(zip(_DEFAULTS, more, strict=False)) | named
    share, padding = given["per_sample_weights"], given["padding_idx"]
    count = offsets.shape[0] - given["include_last_offset"]
    places = torch.arange(indices.shape[0], dtype=offsets.dtype)
    bag = torch.searchsorted(offsets, places, right=True) - 1
    rows = torch.index_select(weight, 0, indices)
    kept = (indices != padding).to(torch.int64)
    sizes = torch.zeros(count, dtype=torch.int64).index_add(0, bag, kept)
    if given["mode"] == MAX:
        return _largest(rows, kept, bag, indices, sizes)
    if padding >= 0:
        rows = rows * kept.to(weight.dtype)[:, None]
    if share is not None:
        rows = rows * share[:, None]
    made = weight.new_zeros(count, weight.shape[1]).index_add(0, bag, rows)
    if given["mode"] == MEAN:
        made = made / sizes.clamp(min=1).to(weight.dtype)[:, None]
    return made, bag, sizes, torch.zeros(count, dtype=torch.int64)


def _largest(
    rows: Tensor, kept: Tensor, bag: Tensor, indices: Tensor, sizes: Tensor
) -> tuple[Tensor, Tensor, Tensor, Tensor]:
    """The same of the largest number in each column, 0 where a bag has no rows."""
    some, own = (sizes > 0)[:, None], bag[:, None].expand_as(rows)
    seen = rows.masked_fill((kept == 0)[:, None], -math.inf)
    least = rows.new_full((sizes.shape[0], rows.shape[1]), -math.inf)
    made = least.scatter_reduce(0, own, seen, "amax")
    is_largest = (rows == made.index_select(0, bag)) & (kept != 0)[:, None]
    last = max(indices.shape[0] - 1, 0)
    places = torch.arange(indices.shape[0])[:, None].expand_as(rows)
    first = torch.full_like(least, last, dtype=torch.int64)
    first = first.scatter_reduce(0, own, places.masked_fill(~is_largest, last), "amin")
    sources = indices[first].masked_fill(~some, 0)
    return made.masked_fill(~some, 0), bag, sizes, sources
