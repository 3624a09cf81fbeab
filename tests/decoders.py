"""Small decoders with key-value caches, of random weights, as PyTorch's exporter writes them."""

from __future__ import annotations

import io
import math
import warnings
from collections.abc import Sequence

import torch
from torch import nn

WIDTH, HEADS, VOCABULARY = 64, 4, 50
DEPTH = WIDTH // HEADS
Rows = tuple[torch.Tensor, torch.Tensor, torch.Tensor]


class Layer(nn.Module):
    """Attention over the past and what is new, and a feed-forward; `heads` of keys."""

    def __init__(self, heads: int, *, turned: bool) -> None:
        super().__init__()
        self.heads, self.turned = heads, turned
        self.q, self.o = nn.Linear(WIDTH, WIDTH), nn.Linear(WIDTH, WIDTH)
        self.kv = nn.Linear(WIDTH, 2 * heads * DEPTH)
        self.norm, self.up, self.down = (
            nn.LayerNorm(WIDTH),
            nn.Linear(WIDTH, 99),
            nn.Linear(99, WIDTH),
        )

    def forward(self, x: torch.Tensor, seen: torch.Tensor, past: Sequence[torch.Tensor]) -> Rows:
        batch, rows, _ = x.shape
        h = self.norm(x)
        q = self.q(h).view(batch, rows, HEADS, DEPTH).transpose(1, 2)
        k, v = (
            part.reshape(batch, rows, self.heads, DEPTH).transpose(1, 2)
            for part in self.kv(h).chunk(2, -1)
        )
        if self.turned:
            first = past[0].shape[2]
            angle = torch.arange(first, first + rows)[:, None] / torch.arange(1, DEPTH + 1)
            q, k = (z * angle.cos() + z.flip(-1) * angle.sin() for z in (q, k))
        k, v = torch.cat([past[0], k], 2), torch.cat([past[1], v], 2)
        wide = [
            z[:, :, None].expand(batch, self.heads, HEADS // self.heads, z.shape[2], DEPTH)
            .reshape(batch, HEADS, z.shape[2], DEPTH)
            for z in (k, v)
        ]  # fmt: skip
        scores = q @ wide[0].transpose(-1, -2) / math.sqrt(DEPTH) + seen
        mixed = (scores.softmax(-1) @ wide[1]).transpose(1, 2).reshape(batch, rows, WIDTH)
        x = x + self.o(mixed)
        return x + self.down(torch.relu(self.up(x))), k, v


class Decoder(nn.Module):
    """Like GPT-2 (learnt positions), or, `turned`, like Llama (angles, shared keys, a mask)."""

    def __init__(self, *, turned: bool) -> None:
        super().__init__()
        self.turned = turned
        self.words, self.places = nn.Embedding(VOCABULARY, WIDTH), nn.Embedding(400, WIDTH)
        self.layers = nn.ModuleList(Layer(2 if turned else 4, turned=turned) for _ in range(2))

    def forward(
        self, ids: torch.Tensor, mask: torch.Tensor, *past: torch.Tensor
    ) -> Sequence[torch.Tensor]:
        first, rows = past[0].shape[2], ids.shape[1]
        place = torch.arange(first, first + rows)
        hidden = torch.arange(first + rows)[None] > place[:, None]
        if self.turned:
            hidden = hidden[None, None] | (mask[:, None, None] == 0)
        seen = torch.where(hidden, -1e9, 0.0)
        x = self.words(ids) if self.turned else self.words(ids) + self.places(place)
        made = []
        for number, layer in enumerate(self.layers):
            x, *kept = layer(x, seen, past[2 * number : 2 * number + 2])
            made += kept
        return x @ self.words.weight.T, *made


def written(*, turned: bool) -> bytes:
    """The model in ONNX: ids, mask (of Llama's kind only), past_0 ... -> logits, present_0 ..."""
    torch.manual_seed(0)
    model = Decoder(turned=turned).eval()
    past = [torch.randn(1, 2 if turned else 4, 7, DEPTH) for _ in range(4)]
    names = [*(("ids", "mask") if turned else ("ids",)), *(f"past_{i}" for i in range(4))]
    kept = [f"present_{i}" for i in range(4)]
    dims = {"ids": {1: "new"}, "mask": {1: "all"}, "logits": {1: "new"}}
    dims |= {f"past_{i}": {2: "past"} for i in range(4)} | {name: {2: "all"} for name in kept}
    file = io.BytesIO()
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        torch.onnx.export(
            model, (torch.zeros(1, 3, dtype=torch.int64), torch.ones(1, 10), *past), file,
            input_names=names if turned else ["ids", "mask", *names[1:]],
            output_names=["logits", *kept], dynamic_axes=dims, opset_version=17, dynamo=False,
        )  # fmt: skip
    return file.getvalue()
