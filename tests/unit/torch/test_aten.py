"""Importers of ATen operators give what PyTorch gives."""

from __future__ import annotations

import math
import warnings
from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch._inductor import inductor_prims
from torch.nn import functional as F  # noqa: N812 (as PyTorch's users write it)
from torch.utils import _pytree as pytree

from tests.unit.torch.oracle import by_numpy


def floats(*shape: int) -> torch.Tensor:
    return torch.randn(shape, generator=torch.Generator().manual_seed(sum(shape)))


def places(limit: int, *shape: int) -> torch.Tensor:
    return torch.randint(0, limit, shape, generator=torch.Generator().manual_seed(limit))


X, Y, ROW = floats(3, 4), floats(3, 4) + 0.1, floats(4)
WHOLE, BOOLS = places(9, 3, 4) - 4, floats(3, 4) > 0
IMAGE, VOLUME, LINE = floats(2, 4, 9, 8), floats(1, 2, 5, 6, 4), floats(2, 4, 11)
Q, K, V = floats(2, 4, 5, 8), floats(2, 4, 7, 8), floats(2, 4, 7, 8)
MASK = floats(5, 7) > -0.5

Case = tuple[str, Callable[..., Any], tuple[torch.Tensor, ...]]
CASES: list[Case] = [
    ("arithmetic", lambda x, y: (x + y, x - 2 * y, x * y, x / y, 3 - x, x + 1), (X, Y)),
    ("other names", lambda x: (torch.ops.prims.convert_element_type(x, torch.int64),
     torch.ops.aten.true_divide(x, 3), torch.ops.aten.negative(x)), (X,)),
    ("alpha", lambda x, y: (torch.add(x, y, alpha=2), torch.rsub(x, y, alpha=3)), (X, Y)),
    ("promotion", lambda x, i, b: (x * i, i / 2, i + 1.5, b + i, b * x), (X, WHOLE, BOOLS)),
    ("integers", lambda i: (i // 3, i % 3, -i, i.abs(), i**2, i.clamp(-1, 2), ~i), (WHOLE,)),
    ("floors", lambda x, y: (x // y, x % y, torch.fmod(x, y), torch.trunc(x * 3)), (X, Y)),
    ("floors of no number", lambda x, y: (x // y, torch.div(x, y, rounding_mode="trunc")),
     (torch.tensor([1, -1, math.inf, 3]).repeat(4),
      torch.tensor([0.0, -0.0, -math.inf, math.inf]).repeat_interleave(4))),
    ("floors of the largest integers", lambda i, j: (i // 7, i // -7, i // j, torch.fmod(i, j)),
     (torch.tensor([-128, -127, 127, 1, 7], dtype=torch.int8),
      torch.tensor([7, 127, -128, -128, -7], dtype=torch.int8))),
    ("numbers beyond a type", lambda i: (i // -3, i % -3, i + 300, torch.where(i > 3, i, -1)),
     (torch.tensor([1, 7, 200, 253, 255], dtype=torch.uint8),)),
    ("between", lambda x, y, w: (x.lerp(y, 1.0), x.lerp(y, w), x.lerp(y, 0.2)),
     (X + 1e8, Y, torch.tensor([0.0, 0.3, 0.7, 1.0]))),
    ("compared", lambda x, y, i: (x < y, x >= 0.5, i == 2, i != x, i <= 1.5), (X, Y, WHOLE)),
    ("logic", lambda b, i: (b & ~b, b | (i > 0), b ^ b, b.logical_not(), b.any()), (BOOLS, WHOLE)),
    ("arithmetic of bools", lambda a, b: (torch.add(a, b, alpha=True), a + b, a * b,
     torch.add(a, b, alpha=False), torch.clamp_min(a, b), torch.clamp_max(a, b)),
     (BOOLS, floats(3, 4) > 0.3)),
    ("functions", lambda x: (x.exp(), x.sin(), x.tanh(), x.erf(), x.sigmoid(), x.expm1()), (X,)),
    ("roots", lambda x: (x.abs().sqrt(), x.abs().rsqrt(), (x**2).log1p(), x**3, x.sign()), (X,)),
    ("small logs", lambda x: (torch.log1p(x * 1e-6), torch.log2(x.abs()), x.exp2()), (X,)),
    ("rounded to decimals", lambda x: (torch.round(x * 100, decimals=2),
     torch.round(x * 1e4, decimals=-2)), (X,)),
    ("shifted", lambda i, j, k: (i << 3, i >> 1, i << j.abs(), i >> j.abs(), k << 7, k >> 2),
     (WHOLE, WHOLE, torch.tensor([-128, 127, -1, 5], dtype=torch.int8))),
    ("multiplied and added at once", lambda x, y: inductor_prims.fma(x, y, x + 1), (X, Y)),
    ("norms of any order", lambda x, y: tuple(torch.linalg.vector_norm(t, ord=p, dim=d, keepdim=k)
     for t in (x, y) for p in (0, 0.5, 3, -1.5, 6) for d, k in ((None, False), (1, True))),
     (X, X * (X > 0))),
    ("normalized by what is remembered", lambda x, m, v, w: torch.ops.aten
     ._native_batch_norm_legit_functional(x, w, m, m, v, True, 0.3, 1e-5),
     (IMAGE, ROW, ROW.abs(), ROW + 1)),
    ("normalized by its own", lambda x, m, v, w: torch.ops.aten
     ._batch_norm_with_update_functional(x, w, m, m, v, 0.3, 1e-5)[0],
     (IMAGE, ROW, ROW.abs(), ROW + 1)),
    ("beside none", lambda x, y: (torch.fmax(x, y), torch.fmin(x, y), torch.copysign(y, x)),
     (torch.tensor([1, math.nan, -0.0, math.nan]), torch.tensor([math.nan, 2, 3, math.nan]))),
    ("triangles of places", lambda x: x[torch.tril_indices(3, 4, -1).unbind()]
     * torch.ldexp(x[0, :3], torch.triu_indices(3, 3, 1)[0]), (X,)),
    ("bags", lambda w, i, s: (F.embedding_bag(i, w, torch.tensor([0, 3, 3, 7])),
     F.embedding_bag(i, w, torch.tensor([0, 2, 9]), mode="sum", padding_idx=2,
                     per_sample_weights=s, include_last_offset=True)),
     (floats(6, 5), places(6, 9), floats(9))),
    ("bags of largest numbers", lambda w, i: (*torch.embedding_bag(
        w, i, torch.tensor([0, 3, 3, 7]), False, 2, False, None, False, 2), F.embedding_bag(
        i, w, torch.tensor([0, 2, 9]), mode="max", include_last_offset=True)),
     (floats(6, 5), places(6, 9))),
    ("odd numbers", lambda x: (x.isnan(), x.isinf(), torch.nan_to_num(x)),
     (torch.tensor([1.0, math.nan, math.inf, -math.inf]),)),
    ("picked by a condition", lambda b, x, y: (torch.where(b, x, y), x.masked_fill(b, 2)),
     (BOOLS, X, Y)),
    ("activations", lambda x: (F.relu(x), F.silu(x), F.gelu(x), F.gelu(x, approximate="tanh"),
     F.mish(x), F.hardswish(x), F.hardsigmoid(x), F.leaky_relu(x, 0.2), F.elu(x, 0.7)), (X,)),
    ("more activations", lambda x: (F.softplus(x, 2, 1), F.celu(x, 0.5), F.selu(x), F.glu(x),
     F.logsigmoid(x), F.hardtanh(x, -0.5, 0.3), F.threshold(x, 0.1, -1), F.relu6(x * 9)), (X,)),
    ("prelu", F.prelu, (IMAGE, floats(4))),
    ("softmax", lambda x: (x.softmax(0), F.log_softmax(x, -1), F.softmin(x, 1)), (X,)),
    ("views", lambda x: (x.view(2, 6), x.t(), x[1], x[:, 1:3], x[::2], x.unsqueeze(1)), (X,)),
    ("turned", lambda x: (x.flip(0), x.roll(1, 1), x.roll(3), torch.rot90(x)), (X,)),
    ("repeated", lambda x: (x.repeat(2, 1, 3), x.expand(2, 3, 4), x.repeat_interleave(2, 0)),
     (X,)),
    ("parts", lambda x: (*x.split(2, 1), *x.chunk(3), *x.unbind(1), x.narrow(1, 1, 2)), (X,)),
    ("joined", lambda x, y: (torch.cat([x, y], 1), torch.stack([x, y], 2), torch.cat([x, x[:0]])),
     (X, Y)),
    ("diagonals", lambda x: (x.diagonal(1), x.diagonal(-1), x.tril(1), x.triu()), (X,)),
    ("padded", lambda x: (F.pad(x, (1, 2)), F.pad(x, (-1, 1, 0, 2), value=3.0)), (X,)),
    ("mirrored", lambda x: (F.pad(x, (1, 2, 3, 0), "reflect"), F.pad(x,
     (1, 2, 0, 1), "replicate")),
     (IMAGE,)),
    ("by strides", lambda x: (x.as_strided((3, 4), (4, 1)), (x + 1).as_strided((2, 2), (1, 5), 2),
     x.as_strided((4, 3), (1, 4))), (X,)),
    ("windows", lambda x: (x.unfold(1, 3, 2), x.unfold(0, 2, 1)), (X,)),
    ("shuffled", lambda x: (F.pixel_shuffle(x, 2), F.pixel_unshuffle(x[:, :, :8], 2)), (IMAGE,)),
    ("written", lambda x: (x.clone().fill_(2), torch.zeros_like(x).copy_(x[0])), (X,)),
    ("put in a range", lambda x, r: (_put_range(x, r), _put_column(x)), (X, ROW)),
    ("made", lambda x: (torch.arange(5) + x[0, 0], torch.full((2, 3), 7.0) * x[0, 1],
     torch.eye(3, 4) + x, torch.linspace(0, 1, 4) * x[1]), (X,)),
    ("reduced", lambda x: (x.sum(), x.sum(1), x.mean(0, keepdim=True), x.amax(1), x.prod(0)),
     (X,)),
    ("extremes", lambda x: (*x.max(1), *x.min(0), x.argmax(), x.argmin(1, keepdim=True)), (X,)),
    ("moments", lambda x: (x.var(1), x.std(0, correction=0), *torch.var_mean(x, 1)), (X,)),
    ("sums of bools", lambda b: (b.sum(), b.sum(0), b.all(1), b.any(0), b.float().mean()),
     (BOOLS,)),
    ("norms", lambda x: (x.norm(), x.norm(1, 1), F.normalize(x, dim=1), x.logsumexp(1)), (X,)),
    ("running", lambda x, i: (x.cumsum(0), x.cumprod(1), i.cumsum(1)), (X, WHOLE)),
    ("products", lambda x, y: (x @ y.t(), torch.bmm(x[None], y.t()[None]), x[0] @ y[0]), (X, Y)),
    ("affine", lambda x, w, b: (F.linear(x, w, b), torch.addmm(b, x, w.t(), beta=2, alpha=0.5)),
     (X, floats(5, 4), floats(5))),
    ("sums of products", lambda x, y: torch.einsum("ij,kj->ki", x, y), (X, Y)),
    ("attention", F.scaled_dot_product_attention, (Q, K, V)),
    ("masked attention", lambda q, k, v, m: (F.scaled_dot_product_attention(q, k, v, attn_mask=m),
     F.scaled_dot_product_attention(q, k, v, attn_mask=m.float(), scale=0.3)), (Q, K, V, MASK)),
    ("images of one row or column", lambda x: [
        F.interpolate(x, size=size, mode=mode)
        for size in (1, (1, 5), (7, 1)) for mode in ("bilinear", "bicubic")], (IMAGE,)),
    ("attention to nothing", lambda q, k, v, m: (
        F.scaled_dot_product_attention(q, k, v, attn_mask=m), F.scaled_dot_product_attention(
        q, k, v, attn_mask=torch.zeros(5, 7).masked_fill(~m, -math.inf))),
     (Q, K, V, MASK & (torch.arange(5)[:, None] % 2 > 0))),
    ("causal attention", lambda q, k, v: F.scaled_dot_product_attention(
        q, k[:, :, :5], v[:, :, :5], is_causal=True), (Q, K, V)),
    ("layer norm", lambda x, w, b: (F.layer_norm(x, (4,), w, b), F.layer_norm(x, (3, 4)),
     F.rms_norm(x, (4,), w)), (X, ROW, ROW)),
    ("group norm", lambda x, w, b: (F.group_norm(x, 2, w, b), F.instance_norm(x)),
     (IMAGE, ROW, ROW)),
    ("batch norm", lambda x, w, b, v: F.batch_norm(x, b, v, w, b),
     (IMAGE, ROW, ROW, ROW.abs() + 1)),
    ("convolution", lambda x, w, b: (F.conv2d(x, w, b, stride=2, padding=1),
     F.conv2d(x, w[:, :2], groups=2, dilation=(1, 2))), (IMAGE, floats(6, 4, 3, 3), floats(6))),
    ("convolution of rows", lambda x, w: F.conv1d(x, w, padding=2, dilation=2),
     (LINE, floats(3, 4, 3))),
    ("convolution of volumes", lambda x, w: F.conv3d(x, w, padding=(1, 0, 1)),
     (VOLUME, floats(3, 2, 2, 3, 3))),
    ("transposed", lambda x, w: (F.conv_transpose2d(x, w, stride=2, padding=1, output_padding=1),
     F.conv_transpose2d(x, w, groups=2, dilation=2)), (IMAGE, floats(4, 3, 3, 3))),
    ("pools", lambda x: (F.max_pool2d(x, 3, 2, 1), F.avg_pool2d(x, 2, ceil_mode=True),
     F.avg_pool2d(x, 3, 1, 1, count_include_pad=False), F.max_pool2d(x[0], 2, dilation=2)),
     (IMAGE,)),
    ("pools of rows", lambda x: (F.max_pool1d(x, 3), F.avg_pool1d(x, 2, padding=1)), (LINE,)),
    ("pools of volumes", lambda x: (F.max_pool3d(x, 2), F.avg_pool3d(x, 2, 1)), (VOLUME,)),
    ("adaptive pools", lambda x: (F.adaptive_avg_pool2d(x, 1), F.adaptive_avg_pool2d(x, (3, 5)),
     F.adaptive_avg_pool2d(x, (4, 4))), (IMAGE,)),
    ("nearest", lambda x: (F.interpolate(x, scale_factor=2), F.interpolate(x, (5, 13)),
     F.interpolate(x, (5, 13), mode="nearest-exact")), (IMAGE,)),
    ("bilinear", lambda x: (F.interpolate(x, scale_factor=2, mode="bilinear"),
     F.interpolate(x, (5, 13), mode="bilinear", align_corners=True),
     F.interpolate(x, scale_factor=(1.6, 0.7), mode="bilinear")), (IMAGE,)),
    ("bicubic", lambda x: F.interpolate(x, (12, 13), mode="bicubic"), (IMAGE,)),
    ("linear", lambda x: F.interpolate(x, 17, mode="linear"), (LINE,)),
    ("columns", lambda x: F.unfold(x, 3, padding=1, stride=2), (IMAGE,)),
    ("embedding", F.embedding, (places(6, 2, 3), floats(6, 5))),
    ("indexed", lambda x, i: (x[i], x[:, i], x[i, i], x[i[:, None], i], x.index_select(1, i)),
     (X, places(3, 2))),
    ("indexed apart", lambda x, i: (x[i, :, i], x[:, i, i]), (floats(3, 3, 3), places(3, 2))),
    ("gathered", lambda x, i: (x.gather(1, i), torch.take_along_dim(x, i, 1)),
     (X, places(4, 3, 2))),
    ("scattered", lambda x, i, y: (x.scatter(1, i, y), x.scatter(1, i, 2.0),
     x.scatter_add(0, i % 3, y)), (X, places(4, 3, 2), Y)),
    ("bools put", lambda b, i: (b.scatter_add(1, i, b), b.scatter(1, i, True)),
     (BOOLS, places(4, 3, 2))),
    ("put", lambda x, i, y: (x.index_put((i,), y[:2]), x.index_put((i,), y[:2], accumulate=True),
     x.index_add(0, i, y[:2])), (X, torch.tensor([2, 0]), Y)),
    ("put between", lambda x, i, y: (_put_between(x, i, y), x.index_copy(1, i, y[:, :2])),
     (X, torch.tensor([2, 0]), Y)),
    ("put by a mask", lambda x: x.index_put((x > 0.5,), torch.tensor(-1.0)), (X,)),
    ("in order", lambda x: (*x.topk(2), *x.sort(1, descending=True), *x.topk(1, 0, largest=False)),
     (X,)),
    ("in the middle", lambda x, i: (*x.median(1), x.median(), *x.kthvalue(2, 0, keepdim=True),
     i.median(), x.nanmedian(), *x.nanmedian(0), x.quantile(0.3, dim=1)), (X, WHOLE)),
    ("so far", lambda x, i: (*x.cummax(1), *x.cummin(0), *i.cummax(0), x.logcumsumexp(1)),
     (floats(5, 7), WHOLE)),
    ("counted finely", lambda x: x.histc(4, 0, 4),
     (torch.tensor([1 - 1e-12, 1, 3 - 1e-13, 4 + 1e-12, -1e-13], dtype=torch.float64),)),
    ("sizes", torch.hypot, (torch.tensor([math.inf, math.nan, 0.0, 1.0]),
     torch.tensor([math.nan, -math.inf, 0.0, math.nan]))),
    ("counted", lambda x, i: (x.histc(7, -1, 1), i.float().histc(4, -4, 4)), (floats(40), WHOLE)),
    ("joined without what is there", lambda x, i, y: (
        *(x.scatter_reduce(1, i, y, how, include_self=own) for own in (False, True)
          for how in ("sum", "amax", "amin", "prod", "mean")), *_rows_reduced(x, y)),
     (X, places(4, 3, 2), Y)),
    ("rows put by a mask", lambda x, r: (x.index_put((x[:, 0] > 0,), r), x.index_put(
        (x[:, 0] > 0,), r[None]), x.index_put((x > 0,), r[:1])), (X, ROW)),
    ("smoothed", lambda x: (F.interpolate(x, (4, 13), mode="bilinear", antialias=True),
     F.interpolate(x, (3, 5), mode="bicubic", antialias=True),
     F.interpolate(x, scale_factor=0.6, mode="bicubic", antialias=True),
     F.interpolate(x, (4, 3), mode="bilinear", antialias=True, align_corners=True)), (IMAGE,)),
    ("bits", lambda i: (i & 3, i | 8, i ^ -1, ~i, (i + 9).to(torch.uint8) & 6), (WHOLE,)),
    ("short integers", lambda i: (i.to(torch.int16) * 2, i.to(torch.int16).sum(1)), (WHOLE,)),
    ("angles", torch.atan2, (torch.tensor([[0.0], [-0.0], [2.0], [-3.0], [math.inf]]),
     torch.tensor([0.0, -0.0, 1.5, -2.5, -math.inf, math.inf]))),
    ("small shares", lambda x: (torch.special.erfc(x * 4), torch.logaddexp(x, x * 9),
     torch.hypot(x, x + 1)), (X,)),
    ("distances", lambda x, y: (torch.cdist(x, y), torch.cdist(x, y, p=1)), (X, Y[:2])),
    ("buckets", lambda x, b: (torch.bucketize(x, b), torch.bucketize(x[0, 0], b, right=True),
     torch.searchsorted(b, x, side="right")), (X, torch.tensor([-1.0, 0.0, 0.5]))),
    ("put in order by a mask", lambda x, m, s: x.masked_scatter(m, s), (X, BOOLS, Y)),
    ("largest of windows", lambda x: (F.adaptive_max_pool2d(x, (3, 4)),
     F.adaptive_max_pool2d(x, (4, 3)), *F.max_pool2d(x, 3, 2, 1, return_indices=True)), (IMAGE,)),
    ("folded", lambda x: F.fold(x, (6, 5), (2, 3), padding=1, stride=2),
     (floats(2, 3 * 6, 12),)),
    ("distance", lambda x, y: (torch.dist(x, y), torch.dist(x, y, 1)), (floats(3, 4), floats(4))),
    ("products added up", lambda x, a, b: (torch.addbmm(x, a, b), torch.addbmm(x, a, b, beta=0.5,
     alpha=2), torch.addbmm(x.long(), a.long(), b.long(), beta=2, alpha=3)),
     (floats(4, 5), floats(3, 4, 6), floats(3, 6, 5))),
    ("between two vectors", lambda a, b, w, c: (F.bilinear(a, b, w, c), torch._trilinear(a, a, a,
     [0], [1], [0], [2]), torch._trilinear(a, a, a, [0], [1], [0], [])),
     (floats(6, 4), floats(6, 3), floats(5, 4, 3), floats(5))),
    ("powers of two", lambda k, j: (2**k, 4**k, 2**j, 8**k.to(torch.int16)),
     (torch.tensor([0, 1, 5, 31, 62, 63, 64, -1, 2**40]),
      torch.tensor([0, 7, 8], dtype=torch.uint8))),
    ("folded with gaps", lambda x: F.fold(x, (8, 7), 2, stride=3), (floats(1, 4 * 4, 3 * 2),)),
    ("folded from far", lambda x: F.fold(x, (9, 8), 3, dilation=(2, 1), padding=(1, 2)),
     (floats(2, 2 * 9, 7 * 10),)),
    ("sampled", lambda x, g: (F.grid_sample(x, g, align_corners=True), F.grid_sample(x, g,
     mode="nearest", padding_mode="border", align_corners=False)), (IMAGE, floats(2, 3, 5, 2))),
    ("one number", lambda x: (x.sum() * 2, x.sum().softmax(0), x.sum().argmax(), x.sum().max()),
     (X,)),
    ("none", lambda x: (x + 1, x.sum(), torch.cat([x, x]), x.sum(1)), (floats(3, 0),)),
]  # fmt: skip


def _rows_reduced(x: torch.Tensor, y: torch.Tensor) -> list[torch.Tensor]:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # it is said to be in beta
        return [
            x.index_reduce(0, torch.tensor([2, 0]), y[:2], how, include_self=False)
            for how in ("amax", "mean", "prod")
        ]


def _put_between(x: torch.Tensor, i: torch.Tensor, y: torch.Tensor) -> torch.Tensor:
    x = x.clone()
    x[:, i] = y[:, :2]
    x[None, i, i] += 3
    return x


def _put_range(x: torch.Tensor, row: torch.Tensor) -> torch.Tensor:
    x = x.clone()
    x[1] = row
    x[:, 1:3] += 1
    return x


def _put_column(x: torch.Tensor) -> torch.Tensor:
    x = x.clone()
    x[:, ::2] = 0
    return x


@pytest.mark.parametrize(("function", "inputs"), [c[1:] for c in CASES], ids=[c[0] for c in CASES])
def test_an_importer_agrees_with_pytorch(
    function: Callable[..., Any], inputs: tuple[torch.Tensor, ...]
) -> None:
    expected = pytree.tree_leaves(function(*inputs))
    found, how = by_numpy(function, inputs)
    assert not how.refused
    for one, other in zip(found, expected, strict=True):
        torch.testing.assert_close(one, other, rtol=2e-4, atol=2e-5, equal_nan=True)


def test_a_smoothed_image_of_bytes_is_left_to_pytorch() -> None:
    """Shares of less than 1 are none in whole numbers."""

    def smaller(x: torch.Tensor) -> torch.Tensor:
        return F.interpolate(x, (4, 5), mode="bilinear", antialias=True)

    image = places(256, 1, 3, 9, 8).to(torch.uint8)
    (found,), plan = by_numpy(smaller, (image,))
    assert plan.refused
    torch.testing.assert_close(found, smaller(image))
