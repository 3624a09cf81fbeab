"""Numbers of a call that sizes decide. In: a graph's symbols, and a call's inputs. Out: what its
nodes that are numbers give, and strides of results."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from typing import Any

import torch
from torch import fx

from autotune.frontend.torch.sizes import OpenGraphSizes
from autotune.sizes import value_at
from autotune.torch.spreads import OpenStrides, spread


class CallNumbers:
    """Sizes of a call's inputs, and what is computed of them."""

    def __init__(
        self,
        opened: OpenGraphSizes,
        wanted: Collection[fx.Node],
        slots: Mapping[fx.Node, int],
        spreads: Mapping[fx.Node, OpenStrides],
    ) -> None:
        """`wanted`: nodes that are numbers; `slots`: where the values of nodes are held;
        `spreads`: strides of nodes. Raises UnsupportedOpError for a number that is no expression
        of the inputs' sizes."""
        given = {n: opened.values[n] for n in slots if n.op == "placeholder"}
        self._sources: dict[str, tuple[int, int | None]] = {}
        """By symbol: the slot of a number, or of a tensor and one of its dimensions."""
        for node, value in given.items():
            places = enumerate(value.shape) if isinstance(value, torch.Tensor) else [(None, value)]
            for dim, amount in places:
                name = str(amount) if isinstance(amount, torch.SymInt) else ""
                if name in opened.ranges:
                    self._sources.setdefault(name, (slots[node], dim))
        self._made = [
            (slots[n], opened.sizes.of(opened.values[n])) for n in wanted if n not in given
        ]
        self._spreads = [(slots[n], strides) for n, strides in spreads.items()]

    def enter(self, held: list[Any]) -> None:
        """Put the numbers into their slots; the inputs are in theirs."""
        if not self._made:
            return
        sizes = self._sizes(held)
        for slot, amount in self._made:
            held[slot] = value_at(amount, sizes)

    def spread(self, held: list[Any]) -> None:
        """Give results their strides; they and the inputs are in their slots."""
        if not self._spreads:
            return
        sizes = self._sizes(held)
        for slot, strides in self._spreads:
            held[slot] = spread(held[slot], strides(sizes))

    def _sizes(self, held: Sequence[Any]) -> dict[str, int]:
        return {
            name: held[slot] if dim is None else held[slot].shape[dim]
            for name, (slot, dim) in self._sources.items()
        }
