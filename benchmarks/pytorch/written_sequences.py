"""Small networks of sequences, graphs and tables, written from public definitions. In: a name of
`SEQUENCES`. Out: a module in evaluation mode, and its inputs."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from typing import Any

import torch
import torch.nn.functional as F  # noqa: N812 (as everybody calls it)
from torch import nn

from benchmarks.pytorch.written_images import Case, T, Written


def conformer_block() -> Case:
    """Half feed-forwards, attention, and a gated depthwise convolution of time."""
    c = 96

    def attended(m: Any, x: T) -> T:
        q, k, v = m["qkv"](m["n1"](x)).view(1, -1, 3, 4, c // 4).permute(2, 0, 3, 1, 4)
        y = F.scaled_dot_product_attention(q, k, v)
        return m["o"](y.transpose(1, 2).reshape(1, -1, c))

    def run(m: Any, x: T) -> T:
        x = x + 0.5 * m["f1"](x)
        x = x + attended(m, x)
        y = F.glu(m["wide"](m["n2"](x).transpose(1, 2)), 1)
        x = x + m["narrow"](F.silu(m["bn"](m["deep"](y)))).transpose(1, 2)
        return m["n3"](x + 0.5 * m["f2"](x))

    def fed() -> nn.Module:
        return nn.Sequential(nn.LayerNorm(c), nn.Linear(c, 384), nn.SiLU(), nn.Linear(384, c))

    return Written(
        run, f1=fed(), f2=fed(), n1=nn.LayerNorm(c), n2=nn.LayerNorm(c), n3=nn.LayerNorm(c),
        qkv=nn.Linear(c, 3 * c), o=nn.Linear(c, c), wide=nn.Conv1d(c, 2 * c, 1),
        deep=nn.Conv1d(c, c, 31, padding=15, groups=c), bn=nn.BatchNorm1d(c),
        narrow=nn.Conv1d(c, c, 1),
    ), (torch.randn(1, 120, c),)  # fmt: skip


def hubert_front() -> Case:
    """Strided convolutions of a waveform, norms over time, positions by a grouped convolution."""

    def run(m: Any, x: T) -> T:
        y = F.gelu(m["norm"](m["a"](x[:, None])))
        y = F.gelu(m["c"](F.gelu(m["b"](y))))
        y = m["project"](m["ln"](y.transpose(1, 2)))
        place = m["place"](y.transpose(1, 2))[:, :, :-1]
        return y + F.gelu(place).transpose(1, 2)

    return Written(
        run, a=nn.Conv1d(1, 64, 10, 5, bias=False), norm=nn.GroupNorm(64, 64),
        b=nn.Conv1d(64, 64, 3, 2, bias=False), c=nn.Conv1d(64, 64, 2, 2, bias=False),
        ln=nn.LayerNorm(64), project=nn.Linear(64, 96),
        place=nn.Conv1d(96, 96, 16, padding=8, groups=8),
    ), (torch.randn(1, 8000),)  # fmt: skip


def log_mel() -> Case:
    """Frames of a waveform, a Fourier transform as a product, mel bands, decibels."""
    at = torch.arange(400.0)
    turn = 2 * math.pi * torch.arange(201.0)[:, None] * at / 400
    window = torch.hann_window(400)
    real, imaginary, bands = turn.cos() * window, turn.sin() * window, torch.rand(201, 80)

    def run(_: Any, x: T) -> T:
        frames = F.pad(x[:, None], (200, 200), mode="reflect")[:, 0].unfold(-1, 400, 160)
        power = (frames @ real.T) ** 2 + (frames @ imaginary.T) ** 2
        level = torch.clamp(power @ bands, min=1e-10).log10()
        return (torch.maximum(level, level.max() - 8.0) + 4.0) / 4.0

    return Written(run), (torch.randn(1, 8000),)


def _edges(nodes: int = 300, count: int = 1500) -> T:
    return torch.randint(0, nodes, (2, count))


def graph_sage() -> Case:
    """Means over neighbours by scattered sums."""

    def run(m: Any, x: T, edges: T) -> T:
        for i in range(2):
            source, target = edges
            total = torch.zeros_like(x).index_add(0, target, x[source])
            degree = torch.zeros(x.shape[0]).scatter_add(0, target, torch.ones(target.shape[0]))
            mean = total / degree.clamp(min=1)[:, None]
            x = F.normalize(F.relu(m[f"self{i}"](x) + m[f"near{i}"](mean)), dim=-1)
        return x.log_softmax(-1)

    layers = {f"{n}{i}": nn.Linear(32, 32) for n in ("self", "near") for i in range(2)}
    return Written(run, **layers), (torch.randn(300, 32), _edges())


def gat() -> Case:
    """Attention over the edges of a graph: a softmax by scattered maxima and sums."""

    def run(m: Any, x: T, edges: T) -> T:
        source, target = edges
        y = m["in"](x).view(-1, 4, 8)
        score = (y * m["a"].weight.view(1, 4, 8)).sum(-1)[source]
        score = F.leaky_relu(score + (y * m["b"].weight.view(1, 4, 8)).sum(-1)[target], 0.2)
        index = target[:, None].expand_as(score)
        most = torch.full((x.shape[0], 4), -1e30).scatter_reduce(0, index, score, "amax")
        weight = (score - most.gather(0, index)).exp()
        total = torch.zeros(x.shape[0], 4).scatter_add(0, index, weight)
        weight = weight / (total.gather(0, index) + 1e-16)
        made = torch.zeros_like(y).index_add(0, target, weight[..., None] * y[source])
        return F.elu(made.flatten(1))

    layers = {"in": nn.Linear(32, 32, bias=False), "a": nn.Linear(32, 1), "b": nn.Linear(32, 1)}
    return Written(run, **layers), (torch.randn(300, 32), _edges())


def gcn_normalized() -> Case:
    """Symmetric degrees, self loops, and nodes pooled by the graph that they are of."""

    def run(m: Any, x: T, edges: T, batch: T) -> T:
        loops = torch.arange(x.shape[0])
        edges = torch.cat([edges, torch.stack([loops, loops])], 1)
        source, target = edges
        degree = torch.zeros(x.shape[0]).scatter_add_(0, target, torch.ones(target.shape[0]))
        scale = degree.pow(-0.5)
        scale = scale.masked_fill(scale == float("inf"), 0)
        weight = scale[source] * scale[target]
        y = F.relu(torch.zeros(300, 16).index_add_(0, target, weight[:, None] * m["a"](x)[source]))
        pooled = torch.zeros(8, 16).index_add_(0, batch, y)
        return m["out"](pooled / torch.bincount(batch, minlength=8).clamp(min=1)[:, None])

    given = (torch.randn(300, 32), _edges(), torch.randint(0, 8, (300,)).sort()[0])
    return Written(run, a=nn.Linear(32, 16), out=nn.Linear(16, 3)), given


def dlrm() -> Case:
    """Bags of embeddings, dense features, products of every pair."""

    def run(m: Any, dense: T, bags: T, starts: T) -> T:
        x = m["bottom"](dense)
        every = [x, *(m[f"bag{i}"](bags[i], starts) for i in range(4))]
        stacked = torch.stack(every, 1)
        products = stacked @ stacked.transpose(1, 2)
        i, j = torch.tril_indices(5, 5, -1)
        return torch.sigmoid(m["top"](torch.cat([x, products[:, i, j]], 1)))

    bags: dict[str, nn.Module] = {
        f"bag{i}": nn.EmbeddingBag(500, 16, mode="sum") for i in range(4)
    }
    bottom = nn.Sequential(nn.Linear(13, 64), nn.ReLU(), nn.Linear(64, 16), nn.ReLU())
    top = nn.Sequential(nn.Linear(26, 32), nn.ReLU(), nn.Linear(32, 1))
    given = (torch.randn(32, 13), torch.randint(0, 500, (4, 128)), torch.arange(0, 128, 4))
    return Written(run, bottom=bottom, top=top, **bags), given


def mamba_block() -> Case:
    """A selective state space: causal convolution, a scan over time."""
    c, s = 48, 8

    def run(m: Any, x: T) -> T:
        y, gate = m["in"](x).chunk(2, -1)
        y = F.silu(m["conv"](y.transpose(1, 2))[..., : x.shape[1]]).transpose(1, 2)
        step, b, to = m["x"](y).split((3, s, s), -1)
        step = F.softplus(m["step"](step))
        decay = torch.exp(step[..., None] * -torch.exp(m["a"].weight))
        add = (step * y)[..., None] * b[:, :, None]
        state, made = torch.zeros(1, c, s), []
        for t in range(x.shape[1]):
            state = decay[:, t] * state + add[:, t]
            made.append((state * to[:, t, None]).sum(-1))
        return m["out"]((torch.stack(made, 1) + y * m["d"].weight[0]) * F.silu(gate))

    return Written(
        run, **{"in": nn.Linear(32, 2 * c)}, conv=nn.Conv1d(c, c, 4, padding=3, groups=c),
        x=nn.Linear(c, 3 + 2 * s, bias=False), step=nn.Linear(3, c), a=nn.Linear(s, c, bias=False),
        d=nn.Linear(c, 1, bias=False), out=nn.Linear(c, 32),
    ), (torch.randn(1, 16, 32),)  # fmt: skip


def rwkv_mix() -> Case:
    """RWKV: shifts in time, and weighted means that are carried from token to token."""
    c = 32

    def run(m: Any, x: T) -> T:
        before = F.pad(x, (0, 0, 1, -1))
        share = torch.sigmoid(m["mix"].weight)
        k = m["k"](x * share[0] + before * (1 - share[0]))
        v = m["v"](x * share[1] + before * (1 - share[1]))
        r = torch.sigmoid(m["r"](x * share[2] + before * (1 - share[2])))
        w, u = -torch.exp(share[3]), share[4]
        top = bottom = torch.zeros(1, c)
        most, made = torch.full((1, c), -1e38), []
        for t in range(x.shape[1]):
            here = torch.maximum(most, u + k[:, t])
            a, b = torch.exp(most - here), torch.exp(u + k[:, t] - here)
            made.append((a * top + b * v[:, t]) / (a * bottom + b))
            here = torch.maximum(most + w, k[:, t])
            a, b = torch.exp(most + w - here), torch.exp(k[:, t] - here)
            top, bottom, most = a * top + b * v[:, t], a * bottom + b, here
        return m["o"](r * torch.stack(made, 1))

    layers = {n: nn.Linear(c, c, bias=False) for n in "kvro"}
    return Written(run, mix=nn.Linear(c, 5, bias=False), **layers), (torch.randn(1, 12, c),)


def moe_routing() -> Case:
    """The best two of eight experts of every token, each over all tokens."""

    def run(m: Any, x: T) -> T:
        weight, chosen = m["gate"](x).softmax(-1).topk(2, -1)
        weight = weight / weight.sum(-1, keepdim=True)
        mask = F.one_hot(chosen, 8).float() * weight[..., None]
        y = torch.einsum("td,edh->eth", x, m["up"].weight.view(8, 32, 64))
        y = torch.einsum("eth,ehd->etd", F.silu(y), m["down"].weight.view(8, 64, 32))
        return torch.einsum("etd,te->td", y, mask.sum(1))

    layers = {
        "gate": nn.Linear(32, 8, bias=False),
        "up": nn.Linear(64, 256),
        "down": nn.Linear(32, 512),
    }
    return Written(run, **layers), (torch.randn(40, 32),)


def t5_attention() -> Case:
    """Buckets of relative positions, RMS norm in float32, no scale."""

    def run(m: Any, x: T, mask: T) -> T:
        n = x.shape[1]
        away = torch.arange(n)[None] - torch.arange(n)[:, None]
        bucket = (away > 0).long() * 16
        away = away.abs()
        far = 8 + (torch.log(away.float() / 8) / math.log(128 / 8) * 8).long()
        bucket = bucket + torch.where(away < 8, away, torch.min(far, torch.full_like(far, 15)))
        bias = m["bias"](bucket).permute(2, 0, 1)[None] + (1.0 - mask[:, None, None]) * -1e9
        y = x * torch.rsqrt(x.pow(2).mean(-1, keepdim=True) + 1e-6) * m["norm"].weight[0]
        q, k, v = (m[w](y).view(2, n, 4, 16).transpose(1, 2) for w in "qkv")
        share = F.softmax((q @ k.transpose(3, 2) + bias).float(), -1).type_as(q)
        return x + m["o"]((share @ v).transpose(1, 2).reshape(2, n, 64))

    layers = {w: nn.Linear(64, 64, bias=False) for w in "qkvo"}
    mask = torch.ones(2, 40)
    mask[1, 30:] = 0
    return Written(run, bias=nn.Embedding(32, 4), norm=nn.Linear(64, 1), **layers), (
        torch.randn(2, 40, 64), mask,
    )  # fmt: skip


def rotary_grouped_attention() -> Case:
    """Llama: rotations by position, fewer keys than queries, a causal mask, gated products."""

    def run(m: Any, x: T) -> T:
        n = x.shape[1]
        rate = 1.0 / 10000 ** (torch.arange(0, 16, 2).float() / 16)
        turn = torch.arange(n).float()[:, None] * rate
        cos, sin = (torch.cat([f(turn)] * 2, -1) for f in (torch.cos, torch.sin))

        def rotated(t: T) -> T:
            a, b = t.chunk(2, -1)
            return t * cos + torch.cat([-b, a], -1) * sin

        q = rotated(m["q"](x).view(1, n, 8, 16).transpose(1, 2))
        k = rotated(m["k"](x).view(1, n, 2, 16).transpose(1, 2)).repeat_interleave(4, 1)
        v = m["v"](x).view(1, n, 2, 16).transpose(1, 2)
        v = v[:, :, None].expand(1, 2, 4, n, 16).reshape(1, 8, n, 16)
        y = F.scaled_dot_product_attention(q, k, v, is_causal=True)
        x = x + m["o"](y.transpose(1, 2).reshape(1, n, 128))
        return x + m["down"](F.silu(m["gate"](x)) * m["up"](x))

    layers = {"q": nn.Linear(128, 128), "k": nn.Linear(128, 32), "v": nn.Linear(128, 32)}
    layers |= {"gate": nn.Linear(128, 256), "up": nn.Linear(128, 256), "down": nn.Linear(256, 128)}
    return Written(run, o=nn.Linear(128, 128), **layers), (torch.randn(1, 33, 128),)


def deberta_attention() -> Case:
    """Content to position and back, gathered by distance."""

    def run(m: Any, x: T) -> T:
        n, span = x.shape[1], 16
        q, k, v = (m[w](x).view(1, n, 4, 16).transpose(1, 2) for w in "qkv")
        place = m["place"].weight[: 2 * span]
        pk, pq = (m[w](place).view(1, -1, 4, 16).transpose(1, 2) for w in "kq")
        away = torch.arange(n)[:, None] - torch.arange(n)[None]
        index = (away + span).clamp(0, 2 * span - 1).expand(1, 4, n, n)
        score = q @ k.transpose(-1, -2) + (q @ pk.transpose(-1, -2)).gather(-1, index)
        score = score + (k @ pq.transpose(-1, -2)).gather(-1, index).transpose(-1, -2)
        y = (score / math.sqrt(48)).softmax(-1) @ v
        return m["norm"](x + m["o"](y.transpose(1, 2).reshape(1, n, 64)))

    layers = {w: nn.Linear(64, 64) for w in "qkvo"}
    return Written(run, place=nn.Embedding(64, 64), norm=nn.LayerNorm(64), **layers), (
        torch.randn(1, 40, 64),
    )


def lstm_tagger() -> Case:
    """An embedding, two directions of an LSTM, a layer."""

    def run(m: Any, x: T) -> T:
        return m["out"](m["lstm"](m["words"](x))[0]).argmax(-1)

    lstm = nn.LSTM(32, 32, batch_first=True, bidirectional=True)
    return Written(run, words=nn.Embedding(200, 32), lstm=lstm, out=nn.Linear(64, 9)), (
        torch.randint(0, 200, (2, 20)),
    )


def wavenet_layers() -> Case:
    """Dilated causal convolutions, gates, and sums of what is skipped."""

    def run(m: Any, x: T) -> T:
        skipped = torch.zeros(1, 32, x.shape[-1])
        for i in range(4):
            y = m[f"d{i}"](F.pad(x, (2**i, 0)))
            y = torch.tanh(y[:, :32]) * torch.sigmoid(y[:, 32:])
            skipped = skipped + m[f"s{i}"](y)
            x = (x + y) * math.sqrt(0.5)
        return m["out"](F.relu(skipped)).softmax(1)

    layers = {f"d{i}": nn.Conv1d(32, 64, 2, dilation=2**i) for i in range(4)}
    layers |= {f"s{i}": nn.Conv1d(32, 32, 1) for i in range(4)}
    return Written(run, out=nn.Conv1d(32, 64, 1), **layers), (torch.randn(1, 32, 200),)


def autoformer_trend() -> Case:
    """Series in moving means and the rest, a product for each, the last steps repeated."""

    def run(m: Any, x: T) -> T:
        ends = [x[:, :1].repeat(1, 12, 1), x, x[:, -1:].repeat(1, 12, 1)]
        trend = F.avg_pool1d(torch.cat(ends, 1).permute(0, 2, 1), 25, 1).permute(0, 2, 1)
        mean, deviation = x.mean(1, keepdim=True), x.std(1, keepdim=True) + 1e-5
        rest = (x - trend - mean) / deviation
        y = m["a"](rest.transpose(1, 2)) + m["b"](trend.transpose(1, 2))
        return y.transpose(1, 2) * deviation + mean

    return Written(run, a=nn.Linear(96, 24), b=nn.Linear(96, 24)), (torch.randn(4, 96, 7),)


SEQUENCES: Mapping[str, Callable[[], Case]] = {
    make.__name__: make
    for make in (
        conformer_block, hubert_front, log_mel, graph_sage, gat, gcn_normalized, dlrm, mamba_block,
        rwkv_mix, moe_routing, t5_attention, rotary_grouped_attention, deberta_attention,
        lstm_tagger, wavenet_layers, autoformer_trend,
    )
}  # fmt: skip
