"""Decompositions of the operators that PyTorch's own layers of transformers are in evaluation
mode (`nn.TransformerEncoderLayer`, `nn.MultiheadAttention`): each is a whole layer, with its
weights."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any

from torch import Tensor, nn

PADDING_MASK = 1
"""The kind of a mask of places of each sequence; others are of pairs of places."""


@dataclass(frozen=True, slots=True, eq=False)
class HeadsCall:
    """The arguments of `_native_multi_head_attention`, in its order."""

    query: Tensor
    key: Tensor
    value: Tensor
    embed_dim: int
    num_head: int
    qkv_weight: Tensor
    qkv_bias: Tensor
    proj_weight: Tensor
    proj_bias: Tensor
    mask: Tensor | None = None
    need_weights: bool = True
    average_attn_weights: bool = True
    mask_type: int | None = None

    def masked(self, seen: Tensor) -> Tensor:
        """What (sequence, head, place) sees of each place, without that which is masked."""
        if self.mask is None:
            return seen
        hidden = self.mask.bool()
        if self.mask_type == PADDING_MASK:
            hidden = hidden[:, None, None, :]
        return seen.masked_fill(hidden, float("-inf"))


@dataclass(frozen=True, slots=True, eq=False)
class EncoderLayerCall:
    """The arguments of `_transformer_encoder_layer_fwd`, in its order."""

    src: Tensor
    embed_dim: int
    num_heads: int
    qkv_weight: Tensor
    qkv_bias: Tensor
    proj_weight: Tensor
    proj_bias: Tensor
    use_gelu: bool
    norm_first: bool
    eps: float
    norm_weight_1: Tensor
    norm_bias_1: Tensor
    norm_weight_2: Tensor
    norm_bias_2: Tensor
    ffn_weight_1: Tensor
    ffn_bias_1: Tensor
    ffn_weight_2: Tensor
    ffn_bias_2: Tensor
    mask: Tensor | None = None
    mask_type: int | None = None

    def attended(self, x: Tensor) -> Tensor:
        """What each place takes from the others."""
        heads = HeadsCall(
            x, x, x, self.embed_dim, self.num_heads, self.qkv_weight, self.qkv_bias,
            self.proj_weight, self.proj_bias, self.mask, False, True, self.mask_type,
        )  # fmt: skip
        return attention(heads)[0]

    def fed(self, x: Tensor) -> Tensor:
        """Two dense layers."""
        wide = nn.functional.linear(x, self.ffn_weight_1, self.ffn_bias_1)
        active = nn.functional.gelu(wide) if self.use_gelu else nn.functional.relu(wide)
        return nn.functional.linear(active, self.ffn_weight_2, self.ffn_bias_2)

    def first_norm(self, x: Tensor) -> Tensor:
        shape = (self.embed_dim,)
        return nn.functional.layer_norm(x, shape, self.norm_weight_1, self.norm_bias_1, self.eps)

    def second_norm(self, x: Tensor) -> Tensor:
        shape = (self.embed_dim,)
        return nn.functional.layer_norm(x, shape, self.norm_weight_2, self.norm_bias_2, self.eps)


def multi_head_attention(*args: Any, **named: Any) -> tuple[Tensor, Tensor]:
    """(what heads see, projected; how much each place looks at each, nothing where not asked)."""
    return attention(HeadsCall(*args, **named))


def attention(call: HeadsCall) -> tuple[Tensor, Tensor]:
    """The same, of the call's arguments."""
    width = call.embed_dim // call.num_head
    heads = []
    parts = zip(call.qkv_weight.chunk(3), call.qkv_bias.chunk(3), strict=True)
    for given, (weight, bias) in zip((call.query, call.key, call.value), parts, strict=True):
        batch, length, _ = given.shape
        made = nn.functional.linear(given, weight, bias)
        heads.append(made.view(batch, length, call.num_head, width).transpose(1, 2))
    q, k, v = heads
    looks = call.masked((q / math.sqrt(width)) @ k.transpose(2, 3)).softmax(-1)
    joined = (looks @ v).transpose(1, 2).reshape(call.query.shape)
    made = nn.functional.linear(joined, call.proj_weight, call.proj_bias)
    if not call.need_weights:
        return made, made.new_empty(0)
    return made, looks.mean(1) if call.average_attn_weights else looks


def encoder_layer(*args: Any, **named: Any) -> Tensor:
    """Attention and two dense layers, each beside its input."""
    call = EncoderLayerCall(*args, **named)
    if call.norm_first:
        between = call.src + call.attended(call.first_norm(call.src))
        return between + call.fed(call.second_norm(between))
    between = call.first_norm(call.src + call.attended(call.src))
    return call.second_norm(between + call.fed(between))
