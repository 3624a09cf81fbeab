"""Models of which an equation leaves much work out, as PyTorch modules: definitions are public,
weights random under the seed that the caller sets."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from benchmarks.rewrites.anchor_models import bert, written

Definition = tuple[Callable[[], Any], tuple[tuple[int, ...], ...]]
_WIDTH = 768
_FEATURES = 64
"""Of EDSR's baseline."""


def edsr(doublings: int) -> Callable[[], Any]:
    """EDSR's baseline (Lim et al. 2017): 16 residual blocks, then convolutions whose channels
    become places (Shi et al. 2016), so often by 2."""

    def window(o: int = _FEATURES, i: int = _FEATURES) -> Any:
        from torch import nn

        return nn.Conv2d(i, o, 3, padding=1)

    def make() -> Any:
        from torch import nn

        layers = {f"b{i}": nn.Sequential(window(), nn.ReLU(), window()) for i in range(16)}
        layers |= {"head": window(i=3), "body": window()}
        ups = [m for _ in range(doublings) for m in (window(4 * _FEATURES), nn.PixelShuffle(2))]
        layers["tail"] = nn.Sequential(*ups, window(3))

        def forward(parts: Any, x: Any) -> Any:
            x = y = parts["head"](x)
            for i in range(16):
                y = y + parts[f"b{i}"](y)
            return parts["tail"](x + parts["body"](y))

        return written(layers, forward)

    return make


def bert_first() -> Any:
    """Two of BERT base's layers over 128 tokens, of which the first alone is read, as classifiers
    do (Devlin et al. 2019)."""
    from torch import nn

    def forward(parts: Any, x: Any) -> Any:
        return parts["words"](parts["layers"](x)[:1])

    return written({"layers": bert(2)(), "words": nn.Linear(_WIDTH, 2)}, forward)


def transition() -> Any:
    """DenseNet-121's second transition (Huang et al. 2017): 1x1, then means of 2x2."""
    from torch import nn

    return nn.Sequential(
        nn.BatchNorm2d(512), nn.ReLU(), nn.Conv2d(512, 256, 1, bias=False), nn.AvgPool2d(2)
    )


def image_decoder() -> Any:
    """From 16x16 to an image of 128x128, doubled and then convolved three times, as decoders of
    latents are (Rombach et al. 2022), narrow."""
    from torch import nn

    layers: list[Any] = [nn.Conv2d(256, 256, 3, padding=1), nn.ReLU()]
    for i, o in ((256, 128), (128, 64), (64, 32)):
        layers += [nn.Upsample(scale_factor=2), nn.Conv2d(i, o, 3, padding=1), nn.ReLU()]
    return nn.Sequential(*layers, nn.Conv2d(32, 3, 3, padding=1))


def branches() -> Any:
    """Blocks as they are trained, not merged: a window beside its row, its column, its middle
    (Ding et al. 2019) and a norm of the image (Ding et al. 2021)."""
    from torch import nn

    windows = (((3, 3), (1, 1)), ((1, 3), (0, 1)), ((3, 1), (1, 0)), ((1, 1), (0, 0)))

    def branch(size: tuple[int, int], around: tuple[int, int]) -> Any:
        conv = nn.Conv2d(_FEATURES, _FEATURES, size, padding=around, bias=False)
        return nn.Sequential(conv, nn.BatchNorm2d(_FEATURES))

    def block() -> Any:
        return nn.ModuleList([branch(*window) for window in windows] + [nn.BatchNorm2d(_FEATURES)])

    def forward(parts: Any, x: Any) -> Any:
        x = parts["stem"](x).relu()
        for i in range(3):
            x = sum(part(x) for part in parts[f"b{i}"]).relu()
        return x

    layers = {"stem": nn.Conv2d(3, _FEATURES, 3, stride=2, padding=1)}
    return written({**layers, **{f"b{i}": block() for i in range(3)}}, forward)


def discriminator() -> Any:
    """Means behind convolutions, as discriminators shrink images (Karras et al. 2018)."""
    from torch import nn

    layers: list[Any] = []
    for i, o in ((64, 128), (128, 256)):
        layers += [nn.Conv2d(i, o, 3, padding=1), nn.AvgPool2d(2), nn.LeakyReLU(0.2)]
    return nn.Sequential(*layers)


def image_context() -> Any:
    """What an image has in the mean, beside each of its places (Liu et al. 2016)."""
    import torch
    from torch import nn

    def forward(parts: Any, x: Any) -> Any:
        x = parts["stem"](x).relu()
        alike = parts["context"](x.mean((2, 3), keepdim=True)).relu().expand_as(x)
        return parts["mix"](torch.cat((x, alike), 1)).relu()

    layers = {
        "stem": nn.Conv2d(3, 256, 3, stride=2, padding=1), "context": nn.Conv2d(256, 256, 1),
        "mix": nn.Conv2d(512, 256, 1),
    }  # fmt: skip
    return written(layers, forward)


def bottlenecks() -> Any:
    """Two levels of blocks whose first mix has the stride, as residual networks were published
    (He et al. 2016)."""
    from torch import nn

    def block(taken: int, width: int, stride: int) -> Any:
        return nn.ModuleList([
            nn.Conv2d(taken, width, 1, stride), nn.Conv2d(width, width, 3, padding=1),
            nn.Conv2d(width, 4 * width, 1), nn.Conv2d(taken, 4 * width, 1, stride),
        ])  # fmt: skip

    def forward(parts: Any, x: Any) -> Any:
        for i in range(4):
            mix, window, out, shortcut = parts[f"b{i}"]
            y = out(window(mix(x).relu()).relu())
            x = (y + (x if i % 2 else shortcut(x))).relu()
        return x

    layers = [block(64, 64, 1), block(256, 64, 1), block(256, 128, 2), block(512, 128, 1)]
    return written({f"b{i}": layer for i, layer in enumerate(layers)}, forward)


def joined_levels() -> Any:
    """Levels of a decoder, each at twice the size of the one before and joined with what its
    encoder had there (Ronneberger et al. 2015, by nearest neighbours)."""
    import torch
    from torch import nn

    def forward(parts: Any, x: Any, *encoded: Any) -> Any:
        for i, beside in enumerate(encoded):
            large = nn.functional.interpolate(x, scale_factor=2.0)
            x = parts[f"l{i}"](torch.cat((large, beside), 1)).relu()
        return x

    sides = ((256, 128), (128, 64), (64, 32))
    return written(
        {f"l{i}": nn.Conv2d(a + b, b, 3, padding=1) for i, (a, b) in enumerate(sides)}, forward
    )


REDUCED: dict[str, Definition] = {
    "branches": (branches, ((1, 3, 112, 112),)),
    "discriminator": (discriminator, ((1, 64, 64, 64),)),
    "image_context": (image_context, ((1, 3, 64, 64),)),
    "bottlenecks": (bottlenecks, ((1, 64, 56, 56),)),
    "joined_levels": (
        joined_levels,
        ((1, 256, 16, 16), (1, 128, 32, 32), (1, 64, 64, 64), (1, 32, 128, 128)),
    ),
    "edsr_x2": (edsr(1), ((1, 3, 64, 64),)),
    "edsr_x4": (edsr(2), ((1, 3, 64, 64),)),
    "bert_first": (bert_first, ((128, _WIDTH),)),
    "image_decoder": (image_decoder, ((1, 256, 16, 16),)),
    "transition": (transition, ((1, 512, 28, 28),)),
}  # fmt: skip
