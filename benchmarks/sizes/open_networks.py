"""Networks of open sizes, for `benchmarks/sizes/any_size.py`: a detector and a BERT, written here
and exported by PyTorch with dynamic axes, and models from files with their batch and image opened.
Weights of what is written here are random."""

from __future__ import annotations

import io
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import onnx
import torch
from torch import Tensor, nn
from torch.nn import functional

Axes = dict[str, dict[int, str]]


class Block(nn.Module):
    """Convolution, its normalization folded in, and SiLU."""

    def __init__(self, taken: int, made: int, size: int = 1, stride: int = 1) -> None:
        super().__init__()
        self.conv = nn.Conv2d(taken, made, size, stride, size // 2)

    def forward(self, x: Tensor) -> Tensor:
        out: Tensor = functional.silu(self.conv(x))
        return out


class Partial(nn.Module):
    """Half of the channels through bottlenecks, then beside the other half (CSPNet,
    arXiv:1911.11929)."""

    def __init__(self, taken: int, made: int, depth: int, shortcut: bool = True) -> None:
        super().__init__()
        half, self.shortcut = made // 2, shortcut
        self.one, self.two, self.last = Block(taken, half), Block(taken, half), Block(made, made)
        self.inner = nn.ModuleList(
            [nn.Sequential(Block(half, half), Block(half, half, 3)) for _ in range(depth)]
        )

    def forward(self, x: Tensor) -> Tensor:
        kept = self.one(x)
        for inner in self.inner:
            kept = kept + inner(kept) if self.shortcut else inner(kept)
        out: Tensor = self.last(torch.cat([kept, self.two(x)], 1))
        return out


class Detector(nn.Module):
    """A one-stage detector at three scales: stages of halved images, pools of 5x5 one after the
    other, features joined up and down, and a head of boxes and classes through a sigmoid."""

    def __init__(self, width: int = 16, classes: int = 80) -> None:
        super().__init__()
        w = [width * k for k in (1, 2, 4, 8, 16)]
        self.stem = Block(3, w[0], 6, 2)
        self.stem.conv.padding = (2, 2)
        self.stages = nn.ModuleList(
            [
                nn.Sequential(Block(w[k], w[k + 1], 3, 2), Partial(w[k + 1], w[k + 1], depth))
                for k, depth in enumerate((1, 2, 3, 1))
            ]
        )
        self.squeeze, self.pool = Block(w[4], w[3]), nn.MaxPool2d(5, 1, 2)
        self.pooled = Block(4 * w[3], w[4])
        self.lateral = nn.ModuleList([Block(w[4], w[3]), Block(w[3], w[2])])
        self.up = nn.ModuleList([Partial(w[4], w[3], 1, False), Partial(w[3], w[2], 1, False)])
        self.halve = nn.ModuleList([Block(w[2], w[2], 3, 2), Block(w[3], w[3], 3, 2)])
        self.down = nn.ModuleList([Partial(w[3], w[3], 1, False), Partial(w[4], w[4], 1, False)])
        self.heads = nn.ModuleList([nn.Conv2d(n, 3 * (classes + 5), 1) for n in w[2:]])

    def forward(self, x: Tensor) -> tuple[Tensor, ...]:
        x, found = self.stem(x), []
        for stage in self.stages:
            x = stage(x)
            found.append(x)
        pools = [self.squeeze(x)]
        for _ in range(3):
            pools.append(self.pool(pools[-1]))
        x, sides = self.pooled(torch.cat(pools, 1)), []
        for lateral, up, beside in zip(self.lateral, self.up, (found[2], found[1]), strict=True):
            sides.append(lateral(x))
            wide = functional.interpolate(sides[-1], scale_factor=2.0, mode="nearest")
            x = up(torch.cat([wide, beside], 1))
        scales = [x]
        for halve, down, side in zip(self.halve, self.down, sides[::-1], strict=True):
            scales.append(down(torch.cat([halve(scales[-1]), side], 1)))
        pairs = zip(self.heads, scales, strict=True)
        return tuple(torch.sigmoid(head(scale)) for head, scale in pairs)


class Layer(nn.Module):
    """Attention and a feed-forward network, each added and normalized after."""

    def __init__(self, width: int, heads: int) -> None:
        super().__init__()
        self.heads, self.depth = heads, width // heads
        self.q, self.k, self.v, self.o = (nn.Linear(width, width) for _ in range(4))
        self.wide, self.narrow = nn.Linear(width, 4 * width), nn.Linear(4 * width, width)
        self.first, self.second = nn.LayerNorm(width), nn.LayerNorm(width)

    def forward(self, x: Tensor, mask: Tensor) -> Tensor:
        batch, tokens, width = x.shape

        def apart(y: Tensor) -> Tensor:
            return y.view(batch, tokens, self.heads, self.depth).transpose(1, 2)

        q, k, v = apart(self.q(x)), apart(self.k(x)), apart(self.v(x))
        scores = q @ k.transpose(2, 3) * self.depth**-0.5 + mask
        mixed = (torch.softmax(scores, -1) @ v).transpose(1, 2).reshape(batch, tokens, width)
        x = self.first(x + self.o(mixed))
        out: Tensor = self.second(x + self.narrow(functional.gelu(self.wide(x))))
        return out


class Bert(nn.Module):
    """BERT (arXiv:1810.04805), of the size called "small": 4 layers of 512, 8 heads."""

    def __init__(
        self, layers: int = 4, width: int = 512, heads: int = 8, words: int = 30522
    ) -> None:
        super().__init__()
        self.words, self.places = nn.Embedding(words, width), nn.Embedding(512, width)
        self.norm = nn.LayerNorm(width)
        self.layers = nn.ModuleList([Layer(width, heads) for _ in range(layers)])

    def forward(self, ids: Tensor, mask: Tensor) -> Tensor:
        places = torch.arange(ids.shape[1], device=ids.device)
        x = self.norm(self.words(ids) + self.places(places)[None])
        hidden = (1.0 - mask[:, None, None, :].to(x.dtype)) * -10000.0
        for layer in self.layers:
            x = layer(x, hidden)
        return x


def detector() -> onnx.ModelProto:
    """Inputs: images [N,3,H,W]."""
    torch.manual_seed(0)
    axes = {"images": {0: "N", 2: "H", 3: "W"}}
    return _exported(Detector(), (torch.zeros(1, 3, 64, 96),), ["images"], axes)


def bert() -> onnx.ModelProto:
    """Inputs: ids, mask, int64[B,S]."""
    torch.manual_seed(0)
    ids = torch.ones(2, 7, dtype=torch.int64)
    axes = {name: {0: "B", 1: "S"} for name in ("ids", "mask")}
    return _exported(Bert(), (ids, ids), ["ids", "mask"], axes)


def opened(path: Path) -> onnx.ModelProto:
    """An image network of a file with batch, height and width open: N, H, W."""
    model = onnx.load(path)
    weights = {t.name for t in model.graph.initializer}
    (image,) = [i for i in model.graph.input if i.name not in weights]
    for axis, name in ((0, "N"), (2, "H"), (3, "W")):
        image.type.tensor_type.shape.dim[axis].dim_param = name
    for out in model.graph.output:
        out.type.tensor_type.ClearField("shape")
    del model.graph.value_info[:]
    return model


def _exported(
    module: nn.Module, inputs: tuple[Any, ...], names: Sequence[str], axes: Axes
) -> onnx.ModelProto:
    out = io.BytesIO()
    torch.onnx.export(
        module.eval(), inputs, out,
        input_names=list(names), dynamic_axes=axes, opset_version=17, dynamo=False,
    )  # fmt: skip
    return onnx.load_from_string(out.getvalue())
