"""Models on which searches for rewrites were published (TASO, PET, EinNet), as PyTorch modules.

Definitions are public: torchvision's where it has one, else written here from the papers named
beside. Weights are random under the seed that the caller sets.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

Definition = tuple[Callable[[], Any], tuple[tuple[int, ...], ...]]
IMAGE = (1, 3, 224, 224)
_WIDTH, _HEADS = 768, 12
"""Of BERT base, Longformer base and GPT-2."""


def vision(name: str, **options: Any) -> Callable[[], Any]:
    """One of torchvision's, without trained weights."""

    def make() -> Any:
        import torchvision

        return torchvision.models.get_model(name, weights=None, **options)

    return make


def written(parts: dict[str, Any], forward: Callable[..., Any]) -> Any:
    """A module of these parts whose `forward` is given: torch is not imported before one is."""
    from torch import nn

    class Written(nn.Module):  # type: ignore[misc]
        def __init__(self) -> None:
            super().__init__()
            self.parts = nn.ModuleDict(parts)

        def forward(self, *given: Any) -> Any:
            return forward(self.parts, *given)

    return Written()


def nasrnn() -> Any:
    """The recurrent cell that a search found (Zoph and Le 2017), four steps of 256, as in TASO."""
    import torch
    from torch import nn

    width = 256
    layers: dict[str, Any] = {f"x{i}": nn.Linear(width, width, bias=False) for i in range(8)}
    layers |= {f"h{i}": nn.Linear(width, width, bias=False) for i in range(8)}

    def forward(parts: Any, x: Any, h: Any, c: Any) -> Any:
        for _ in range(4):
            m = [parts[f"x{i}"](x) + parts[f"h{i}"](h) for i in range(8)]
            one = torch.tanh(torch.sigmoid(m[0]) * torch.relu(m[1]))
            two = torch.tanh(torch.sigmoid(m[2]) + torch.tanh(m[3]))
            three = torch.tanh(torch.sigmoid(m[4]) * torch.tanh(m[5]))
            four = torch.sigmoid(torch.sigmoid(m[6]) + torch.relu(m[7]))
            c = torch.tanh(one + c) * two
            h = torch.tanh(c * torch.tanh(three + four))
        return h

    return written(layers, forward)


def nasnet_a(width: int = 44, repeats: int = 2) -> Callable[[], Any]:
    """Normal cells of NASNet-A (Zoph et al. 2018), which are what TASO rewrites: width 44 on 28x28
    is the mobile one's first stage, 168 on 42x42 the large one's."""

    def separable(channels: int, kernel: int) -> Any:
        from torch import nn

        layers: list[Any] = []
        for _ in range(2):
            layers += [
                nn.ReLU(), nn.Conv2d(channels, channels, kernel, 1, kernel // 2, groups=channels),
                nn.Conv2d(channels, channels, 1, bias=False), nn.BatchNorm2d(channels),
            ]  # fmt: skip
        return nn.Sequential(*layers)

    def squeeze(i: int, o: int) -> Any:
        from torch import nn

        return nn.Sequential(nn.ReLU(), nn.Conv2d(i, o, 1, bias=False), nn.BatchNorm2d(o))

    def make() -> Any:
        import torch
        from torch import nn

        layers: dict[str, Any] = {}
        before, now = 3 * width, 3 * width
        for r in range(repeats):
            layers[f"p{r}"], layers[f"h{r}"] = squeeze(before, width), squeeze(now, width)
            for i, kernel in enumerate((5, 3, 5, 3, 3)):
                layers[f"s{r}_{i}"] = separable(width, kernel)
            before, now = now, 6 * width
        mean = nn.AvgPool2d(3, 1, 1, count_include_pad=False)

        def forward(parts: Any, last: Any) -> Any:
            x = last
            for r in range(repeats):
                p, h = parts[f"p{r}"](last), parts[f"h{r}"](x)
                s = [parts[f"s{r}_{i}"] for i in range(5)]
                joined = [
                    p, s[0](h) + s[1](p), s[2](p) + s[3](p), mean(h) + p, mean(p) + mean(p),
                    s[4](h) + h,
                ]  # fmt: skip
                last, x = x, torch.cat(joined, 1)
            return x

        return written(layers, forward)

    return make


def _layer(attend: Callable[..., Any]) -> Any:
    """A transformer's layer around that attention of q, k and v [heads, places, each]."""
    from torch import nn

    parts = {n: nn.Linear(_WIDTH, _WIDTH) for n in "qkvo"}
    parts |= {"up": nn.Linear(_WIDTH, 4 * _WIDTH), "down": nn.Linear(4 * _WIDTH, _WIDTH)}
    parts |= {"n1": nn.LayerNorm(_WIDTH), "n2": nn.LayerNorm(_WIDTH)}

    def split(x: Any) -> Any:
        return x.reshape(x.shape[0], _HEADS, _WIDTH // _HEADS).transpose(0, 1)

    def forward(parts: Any, x: Any, *cache: Any) -> Any:
        q, k, v = (split(parts[n](x)) for n in "qkv")
        seen = attend(q, k, v, *cache).transpose(0, 1).reshape(x.shape)
        x = parts["n1"](x + parts["o"](seen))
        return parts["n2"](x + parts["down"](nn.functional.gelu(parts["up"](x))))

    return written(parts, forward)


def _attention(q: Any, k: Any, v: Any) -> Any:
    import torch

    return torch.softmax(q @ k.transpose(1, 2) / math.sqrt(q.shape[-1]), -1) @ v


def bert(layers: int = 2) -> Callable[[], Any]:
    """So many of BERT base's twelve layers (Devlin et al. 2019), 128 tokens."""

    def make() -> Any:
        from torch import nn

        return nn.Sequential(*(_layer(_attention) for _ in range(layers)))

    return make


def longformer() -> Any:
    """A layer whose tokens see blocks of 64 beside their own (Beltagy et al. 2020)."""
    import torch

    def attend(q: Any, k: Any, v: Any) -> Any:
        heads, places, each = q.shape
        block = 64
        q = q.reshape(heads, places // block, block, each)

        def around(x: Any) -> Any:
            x = torch.nn.functional.pad(x, (0, 0, block, block))
            x = x.reshape(heads, places // block + 2, block, each)
            return torch.cat([x[:, :-2], x[:, 1:-1], x[:, 2:]], 2)

        scores = torch.softmax(q @ around(k).transpose(2, 3) / math.sqrt(each), -1)
        return (scores @ around(v)).reshape(heads, places, each)

    return _layer(attend)


def decoder_step() -> Any:
    """One token of GPT-2's layer (Radford et al. 2019) over 512 that were kept."""
    import torch

    def attend(q: Any, k: Any, v: Any, keys: Any, values: Any) -> Any:
        return _attention(q, torch.cat([keys, k], 1), torch.cat([values, v], 1))

    return _layer(attend)


def infogan() -> Any:
    """Its generator for 28x28 (Chen et al. 2016)."""
    from torch import nn

    return nn.Sequential(
        nn.Linear(74, 1024), nn.ReLU(), nn.Linear(1024, 128 * 7 * 7), nn.ReLU(),
        nn.Unflatten(1, (128, 7, 7)), nn.ConvTranspose2d(128, 64, 4, 2, 1), nn.ReLU(),
        nn.ConvTranspose2d(64, 1, 4, 2, 1), nn.Sigmoid(),
    )  # fmt: skip


def unet() -> Any:
    """Three levels of a U-Net (Ronneberger et al. 2015), padded, its images doubled by 2x2."""
    import torch
    from torch import nn

    def double(i: int, o: int) -> Any:
        return nn.Sequential(
            nn.Conv2d(i, o, 3, padding=1), nn.ReLU(), nn.Conv2d(o, o, 3, padding=1), nn.ReLU()
        )

    layers = {"d0": double(3, 64), "d1": double(64, 128), "d2": double(128, 256)}
    layers |= {"u1": nn.ConvTranspose2d(256, 128, 2, 2), "u0": nn.ConvTranspose2d(128, 64, 2, 2)}
    layers |= {"e1": double(256, 128), "e0": double(128, 64), "out": nn.Conv2d(64, 2, 1)}
    pool = nn.functional.max_pool2d

    def forward(parts: Any, x: Any) -> Any:
        a = parts["d0"](x)
        b = parts["d1"](pool(a, 2))
        y = parts["u1"](parts["d2"](pool(b, 2)))
        y = parts["u0"](parts["e1"](torch.cat([b, y], 1)))
        return parts["out"](parts["e0"](torch.cat([a, y], 1)))

    return written(layers, forward)


ANCHORS: dict[str, Definition] = {
    "resnet18": (vision("resnet18"), (IMAGE,)),
    "resnet50": (vision("resnet50"), (IMAGE,)),
    "resnext50": (vision("resnext50_32x4d"), (IMAGE,)),
    "vgg19": (vision("vgg19"), (IMAGE,)),
    "inception_v3": (
        vision("inception_v3", aux_logits=False, init_weights=False), ((1, 3, 299, 299),),
    ),
    "squeezenet": (vision("squeezenet1_1"), (IMAGE,)),
    "shufflenet": (vision("shufflenet_v2_x1_0"), (IMAGE,)),
    "efficientnet": (vision("efficientnet_b0"), (IMAGE,)),
    "nasrnn": (nasrnn, ((1, 256),) * 3),
    "nasnet_a": (nasnet_a(), ((1, 132, 28, 28),)),
    "nasnet_a_large": (nasnet_a(168, 6), ((1, 504, 42, 42),)),
    "bert": (bert(), ((128, _WIDTH),)),
    "bert_base": (bert(12), ((128, _WIDTH),)),
    "longformer": (longformer, ((512, _WIDTH),)),
    "decoder_step": (
        decoder_step, ((1, _WIDTH), *((_HEADS, 512, _WIDTH // _HEADS),) * 2),
    ),
    "infogan": (infogan, ((1, 74),)),
    "unet": (unet, ((1, 3, 128, 128),)),
}  # fmt: skip
