"""Small networks of images, written from public definitions: what captured graphs of other
networks are made of. In: a name of `IMAGES`. Out: a module in evaluation mode, and its inputs."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

import torch
import torch.nn.functional as F  # noqa: N812 (as everybody calls it)
from torch import nn

Case = tuple[nn.Module, tuple[Any, ...]]
T = torch.Tensor


class Written(nn.Module):
    """A network that is a function of its layers and inputs."""

    def __init__(self, run: Callable[..., Any], **layers: nn.Module) -> None:
        super().__init__()
        self.run, self.layers = run, nn.ModuleDict(layers)

    def forward(self, *given: Any) -> Any:
        return self.run(self.layers, *given)


def conv(cin: int, cout: int, k: int = 3, s: int = 1, **more: Any) -> nn.Sequential:
    """Convolution, batch norm with statistics, SiLU."""
    norm = nn.BatchNorm2d(cout)
    nn.init.uniform_(norm.running_var, 0.5, 1.5)  # type: ignore[arg-type]
    return nn.Sequential(
        nn.Conv2d(cin, cout, k, s, more.pop("padding", k // 2), bias=False, **more),
        norm,
        nn.SiLU(),
    )


def windows(x: T, size: int) -> T:
    n, h, w, c = x.shape
    x = x.view(n, h // size, size, w // size, size, c)
    return x.permute(0, 1, 3, 2, 4, 5).reshape(-1, size * size, c)


def swin_block() -> Case:
    """Shifted windows with relative positions and a mask."""
    size, heads, c = 7, 3, 96
    table = nn.Embedding((2 * size - 1) ** 2, heads)
    at = torch.stack(torch.meshgrid(torch.arange(size), torch.arange(size), indexing="ij"))
    away = at.flatten(1)[:, :, None] - at.flatten(1)[:, None] + size - 1
    number = away[0] * (2 * size - 1) + away[1]
    zone = torch.zeros(28, 28)
    for i, a in enumerate((slice(0, -7), slice(-7, -3), slice(-3, None))):
        for j, b in enumerate((slice(0, -7), slice(-7, -3), slice(-3, None))):
            zone[a, b] = 3 * i + j
    zones = windows(zone[None, :, :, None], size).squeeze(-1)
    mask = (zones[:, None] != zones[:, :, None]).float() * -100

    def run(m: Any, x: T) -> T:
        n, h, w, _ = x.shape
        y = windows(torch.roll(m["norm"](x), (-3, -3), (1, 2)), size)
        q, k, v = m["qkv"](y).view(-1, 49, 3, heads, c // heads).permute(2, 0, 3, 1, 4)
        score = q * (c // heads) ** -0.5 @ k.transpose(-2, -1)
        score = score + m["table"](number).permute(2, 0, 1)
        score = (score.view(n, -1, heads, 49, 49) + mask[None, :, None]).view(-1, heads, 49, 49)
        y = m["out"]((score.softmax(-1) @ v).transpose(1, 2).reshape(-1, 49, c))
        y = y.view(n, h // size, w // size, size, size, c).permute(0, 1, 3, 2, 4, 5)
        x = x + torch.roll(y.reshape(n, h, w, c), (3, 3), (1, 2))
        return x + m["mlp"](x)

    mlp = nn.Sequential(nn.LayerNorm(c), nn.Linear(c, 4 * c), nn.GELU(), nn.Linear(4 * c, c))
    layers = {"norm": nn.LayerNorm(c), "qkv": nn.Linear(c, 3 * c), "out": nn.Linear(c, c)}
    return Written(run, table=table, mlp=mlp, **layers), (torch.randn(1, 28, 28, c),)


def convnext_block() -> Case:
    """Depthwise 7 x 7, norm over channels, layer scale."""
    c = 96
    scale = nn.Linear(c, c, bias=False)

    def run(m: Any, x: T) -> T:
        y = m["norm"](m["deep"](x).permute(0, 2, 3, 1))
        y = m["down"](F.gelu(m["up"](y))) * scale.weight[0]
        return x + y.permute(0, 3, 1, 2)

    layers = {
        "norm": nn.LayerNorm(c, eps=1e-6),
        "up": nn.Linear(c, 384),
        "down": nn.Linear(384, c),
    }
    return Written(run, deep=nn.Conv2d(c, c, 7, 1, 3, groups=c), scale=scale, **layers), (
        torch.randn(1, c, 28, 28),
    )


def mbconv_se() -> Case:
    """EfficientNet: inverted bottleneck with squeeze and excitation."""

    def run(m: Any, x: T) -> T:
        y = m["deep"](m["up"](x))
        y = y * torch.sigmoid(m["grow"](F.silu(m["shrink"](y.mean((2, 3), keepdim=True)))))
        return x + m["down"](y)[:, :32]

    return Written(
        run, up=conv(32, 128, 1), deep=conv(128, 128, 5, groups=128), shrink=nn.Conv2d(128, 8, 1),
        grow=nn.Conv2d(8, 128, 1), down=conv(128, 40, 1),
    ), (torch.randn(2, 32, 28, 28),)  # fmt: skip


def hrnet_fuse() -> Case:
    """Branches of three resolutions, each summed into every other."""

    def run(m: Any, a: T, b: T, c: T) -> tuple[T, T, T]:
        up2, up4 = (
            F.interpolate(m[n](t), scale_factor=s) for n, t, s in (("ba", b, 2), ("ca", c, 4))
        )
        high = F.relu(a + up2 + up4)
        mid = F.relu(m["ab"](a) + b + F.interpolate(m["cb"](c), scale_factor=2, mode="nearest"))
        return high, mid, F.relu(m["ac"](a) + m["bc"](b) + c)

    return Written(
        run, ba=conv(36, 18, 1), ca=conv(72, 18, 1), cb=conv(72, 36, 1), ab=conv(18, 36, 3, 2),
        ac=nn.Sequential(conv(18, 18, 3, 2), conv(18, 72, 3, 2)), bc=conv(36, 72, 3, 2),
    ), tuple(torch.randn(1, c, n, n) for c, n in ((18, 56), (36, 28), (72, 14)))  # fmt: skip


def aspp() -> Case:
    """DeepLab: dilated branches and the image's mean, joined."""

    def run(m: Any, x: T) -> T:
        n = x.shape[-2:]
        pooled = m["pool"](F.adaptive_avg_pool2d(x, 1))
        pooled = F.interpolate(pooled, n, mode="bilinear", align_corners=False)
        parts = [m["one"](x), m["a"](x), m["b"](x), m["c"](x), pooled]
        return F.interpolate(m["out"](torch.cat(parts, 1)), scale_factor=4.0, mode="bilinear")

    rates = {n: conv(64, 32, padding=d, dilation=d) for n, d in (("a", 6), ("b", 12), ("c", 18))}
    return Written(
        run, one=conv(64, 32, 1), pool=conv(64, 32, 1), out=conv(160, 21, 1), **rates
    ), (torch.randn(1, 64, 32, 32),)


def vitpose_head() -> Case:
    """Tokens as an image, transposed convolutions, the places of the largest values."""

    def run(m: Any, x: T) -> tuple[T, T]:
        heat = m["last"](m["up"](x.transpose(1, 2).reshape(1, 96, 16, 12)))
        value, place = heat.flatten(2).max(-1)
        return torch.stack([place % 48, place // 48], -1).float(), value

    up = nn.Sequential(
        nn.ConvTranspose2d(96, 64, 4, 2, 1, bias=False), nn.BatchNorm2d(64), nn.ReLU(),
        nn.ConvTranspose2d(64, 64, 4, 2, 1, bias=False), nn.BatchNorm2d(64), nn.ReLU(),
    )  # fmt: skip
    return Written(run, up=up, last=nn.Conv2d(64, 17, 1)), (torch.randn(1, 192, 96),)


def simcc_head() -> Case:
    """RTMPose: gated attention over joints, and classes for x and y."""

    def run(m: Any, x: T) -> tuple[T, T]:
        y = m["mlp"](m["conv"](x).flatten(2))
        u, v, base = F.silu(m["uv"](F.normalize(y, dim=-1) * 16)).split([256, 256, 64], -1)
        q, k = base * 1.1 + 0.1, base * 0.9 - 0.1
        kernel = torch.square(F.relu(q @ k.transpose(1, 2) / 8))
        y = y + m["o"](u * (kernel @ v))
        return m["x"](y), m["y"](y)

    layers = {"mlp": nn.Linear(48, 128), "uv": nn.Linear(128, 576), "o": nn.Linear(256, 128)}
    ends = {"x": nn.Linear(128, 384), "y": nn.Linear(128, 512)}
    return Written(run, conv=nn.Conv2d(96, 17, 7, 1, 3), **layers, **ends), (
        torch.randn(1, 96, 8, 6),
    )


def yolo_head() -> Case:
    """YOLOv8: three levels, distributions over distances (DFL), boxes from anchors."""

    def run(m: Any, *levels: T) -> T:
        found, anchors, steps = [], [], []
        for i, x in enumerate(levels):
            found.append(torch.cat([m[f"box{i}"](x), m[f"kind{i}"](x)], 1).flatten(2))
            n = x.shape[-1]
            at = torch.arange(n, dtype=torch.float32) + 0.5
            y, z = torch.meshgrid(at, at, indexing="ij")
            anchors.append(torch.stack((z, y), -1).view(-1, 2))
            steps.append(torch.full((n * n, 1), 8.0 * 2**i))
        box, kind = torch.cat(found, 2).split((64, 20), 1)
        anchor, step = torch.cat(anchors).T, torch.cat(steps).T
        away = box.view(1, 4, 16, -1).transpose(2, 1).softmax(1)
        away = F.conv2d(away, torch.arange(16.0).view(1, 16, 1, 1)).view(1, 4, -1)
        low, high = anchor - away.chunk(2, 1)[0], anchor + away.chunk(2, 1)[1]
        box = torch.cat([(low + high) / 2, high - low], 1) * step
        return torch.cat([box, kind.sigmoid()], 1)

    layers: dict[str, nn.Module] = {}
    for i, c in enumerate((32, 64, 128)):
        layers[f"box{i}"] = nn.Sequential(conv(c, 64), conv(64, 64), nn.Conv2d(64, 64, 1))
        layers[f"kind{i}"] = nn.Sequential(conv(c, 32), nn.Conv2d(32, 20, 1))
    given = tuple(torch.randn(1, c, n, n) for c, n in ((32, 20), (64, 10), (128, 5)))
    return Written(run, **layers), given


def c2f_sppf() -> Case:
    """YOLOv8: split, bottlenecks, all of them joined; pools one after the other."""

    def run(m: Any, x: T) -> T:
        parts = list(m["up"](x).chunk(2, 1))
        parts.append(parts[-1] + m["b"](m["a"](parts[-1])))
        x = m["out"](torch.cat(parts, 1))
        y = [m["less"](x)]
        for _ in range(3):
            y.append(F.max_pool2d(y[-1], 5, 1, 2))
        return m["join"](torch.cat(y, 1))

    return Written(
        run, up=conv(64, 64, 1), a=conv(32, 32), b=conv(32, 32), out=conv(96, 64, 1),
        less=conv(64, 32, 1), join=conv(128, 64, 1),
    ), (torch.randn(1, 64, 20, 20),)  # fmt: skip


def deformable_attention() -> Case:
    """Deformable DETR: samples of several levels at learned places."""
    shapes, heads, points, c = ((16, 16), (8, 8)), 4, 4, 64

    def run(m: Any, query: T, value: T, place: T) -> T:
        n, q, _ = query.shape
        v = m["value"](value).view(n, -1, heads, c // heads)
        offset = m["offset"](query).view(n, q, heads, 2, points, 2)
        share = m["share"](query).view(n, q, heads, 2 * points).softmax(-1)
        size = torch.tensor([[w, h] for h, w in shapes], dtype=torch.float32)
        grid = 2 * (place[:, :, None, None, None] + offset / size[None, None, None, :, None]) - 1
        got = []
        for i, (part, (h, w)) in enumerate(
            zip(v.split([h * w for h, w in shapes], 1), shapes, strict=True)
        ):
            image = part.flatten(2).transpose(1, 2).reshape(n * heads, c // heads, h, w)
            at = grid[:, :, :, i].transpose(1, 2).flatten(0, 1)
            got.append(F.grid_sample(image, at, padding_mode="zeros", align_corners=False))
        share = share.transpose(1, 2).reshape(n * heads, 1, q, 2 * points)
        y = (torch.stack(got, -2).flatten(-2) * share).sum(-1).view(n, c, q)
        return m["out"](y.transpose(1, 2))

    layers = {"value": nn.Linear(c, c), "offset": nn.Linear(c, 64), "share": nn.Linear(c, 32)}
    given = (torch.randn(1, 50, c), torch.randn(1, 320, c), torch.rand(1, 50, 2))
    return Written(run, out=nn.Linear(c, c), **layers), given


def roi_align() -> Case:
    """Boxes of an image, sampled bilinearly at computed places, and pooled."""

    def run(m: Any, x: T, boxes: T) -> T:
        low, high = boxes[:, :2], boxes[:, 2:]
        at = (torch.arange(14.0) + 0.5) / 14
        xs = low[:, None, 0] + at * (high - low)[:, None, 0] - 0.5
        ys = low[:, None, 1] + at * (high - low)[:, None, 1] - 0.5

        def parts(p: T) -> tuple[T, T, T]:
            p = p.clamp(0, 31)
            first = p.floor().long()
            return first, (first + 1).clamp(max=31), p - first

        (y0, y1, fy), (x0, x1, fx) = parts(ys), parts(xs)
        image = x[0]
        fy, fx = fy[:, :, None], fx[:, None, :]

        def at_(y: T, z: T) -> T:
            return image[:, y[:, :, None], z[:, None, :]]

        top = at_(y0, x0) * (1 - fx) + at_(y0, x1) * fx
        below = at_(y1, x0) * (1 - fx) + at_(y1, x1) * fx
        y = F.avg_pool2d((top * (1 - fy) + below * fy).transpose(0, 1), 2)
        return m["out"](y.flatten(1)).relu()

    low = torch.rand(12, 2) * 16
    boxes = torch.cat([low, low + 4 + torch.rand(12, 2) * 12], 1)
    return Written(run, out=nn.Linear(16 * 49, 64)), (torch.randn(1, 16, 32, 32), boxes)


def focal_modulation() -> Case:
    """FocalNet: contexts of growing windows, gated."""

    def run(m: Any, x: T) -> T:
        q, ctx, gates = m["in"](x).permute(0, 3, 1, 2).split((48, 48, 4), 1)
        total = torch.zeros_like(q)
        for i in range(3):
            ctx = F.gelu(m[f"deep{i}"](ctx))
            total = total + ctx * gates[:, i : i + 1]
        mean = F.gelu(ctx.mean((2, 3), keepdim=True))
        y = q * m["mix"](total + mean * gates[:, 3:])
        return x + m["out"](y.permute(0, 2, 3, 1))

    deep = {f"deep{i}": nn.Conv2d(48, 48, 3 + 2 * i, 1, 1 + i, groups=48) for i in range(3)}
    layers = {"in": nn.Linear(48, 100), "mix": nn.Conv2d(48, 48, 1), "out": nn.Linear(48, 48)}
    return Written(run, **deep, **layers), (torch.randn(1, 28, 28, 48),)


def linear_attention() -> Case:
    """EfficientViT: ReLU kernels instead of softmax, the sum beside the values."""

    def run(m: Any, x: T) -> T:
        n, _, h, w = x.shape
        qkv = m["qkv"](x)
        qkv = torch.cat([qkv, m["group"](m["deep"](qkv))], 1).view(n, -1, 48, h * w)
        q, k, v = (t.transpose(-1, -2) for t in qkv.split(16, 2))
        q, k = F.relu(q), F.relu(k)
        v = F.pad(v, (0, 1), value=1.0)
        y = q @ (k.transpose(-1, -2) @ v)
        y = y[..., :-1] / (y[..., -1:] + 1e-15)
        return x + m["out"](y.transpose(-1, -2).reshape(n, -1, h, w))

    return Written(
        run, qkv=nn.Conv2d(32, 96, 1, bias=False), deep=nn.Conv2d(96, 96, 5, 1, 2, groups=96),
        group=nn.Conv2d(96, 96, 1, groups=6), out=conv(64, 32, 1),
    ), (torch.randn(1, 32, 14, 14),)  # fmt: skip


def unet_levels() -> Case:
    """Down, up with a transposed convolution, group norm, and what was skipped joined."""

    def run(m: Any, x: T) -> T:
        a = F.relu(m["a"](x))
        b = F.leaky_relu(m["n"](m["b"](F.avg_pool2d(a, 2, ceil_mode=True))), 0.1)
        up = m["up"](b)
        up = F.pad(up, (0, a.shape[3] - up.shape[3], 0, a.shape[2] - up.shape[2]))
        return m["out"](torch.cat([a, up], 1)).sigmoid()

    return Written(
        run, a=nn.Conv2d(3, 16, 3, 1, 1), b=nn.Conv2d(16, 32, 3, 1, 1), n=nn.GroupNorm(8, 32),
        up=nn.ConvTranspose2d(32, 16, 2, 2), out=nn.Conv2d(32, 1, 1),
    ), (torch.randn(1, 3, 63, 65),)  # fmt: skip


def pixel_shuffle_super_resolution() -> Case:
    """Residual channel attention, and pixels out of channels."""

    def run(m: Any, x: T) -> T:
        y = m["a"](x)
        z = m["c"](F.prelu(m["b"](y), m["p"].weight))
        y = y + z * m["gate"](z)
        up = F.interpolate(x, scale_factor=2, mode="bicubic", align_corners=False)
        return (up + F.pixel_shuffle(m["up"](y), 2)).clamp(0, 1)

    gate = nn.Sequential(
        nn.AdaptiveAvgPool2d(1), nn.Conv2d(32, 4, 1), nn.ReLU(), nn.Conv2d(4, 32, 1), nn.Sigmoid()
    )
    layers = {
        n: nn.Conv2d(i, o, 3, 1, 1) for n, i, o in (("a", 3, 32), ("b", 32, 32), ("c", 32, 32))
    }
    return Written(run, gate=gate, p=nn.PReLU(), up=nn.Conv2d(32, 12, 3, 1, 1), **layers), (
        torch.rand(1, 3, 40, 40),
    )


IMAGES: Mapping[str, Callable[[], Case]] = {
    make.__name__: make
    for make in (
        swin_block, convnext_block, mbconv_se, hrnet_fuse, aspp, vitpose_head, simcc_head,
        yolo_head, c2f_sppf, deformable_attention, roi_align, focal_modulation, linear_attention,
        unet_levels, pixel_shuffle_super_resolution,
    )
}  # fmt: skip
