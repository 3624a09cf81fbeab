"""Transformer encoders. Inputs ids and mask [1,sequence] int64, output y [1,sequence,width]."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import onnx

from autotune.frontend.zoo.base import Network, zoo_model


@dataclass(frozen=True, slots=True, kw_only=True)
class Encoder:
    """Sizes of an encoder of the BERT family."""

    layers: int
    width: int
    heads: int
    inner: int
    sequence: int = 128
    vocabulary: int = 30522


@zoo_model("bert_small")
def bert_small() -> onnx.ModelProto:
    """Devlin et al. 2018, with four narrow layers."""
    return encoder("bert_small", Encoder(layers=4, width=256, heads=4, inner=1024))


def encoder(name: str, sizes: Encoder) -> onnx.ModelProto:
    """Embeddings, then layers of attention and feed-forward, each with a residual and a norm."""
    net = Network(name)
    ids = net.input("ids", np.int64, (1, sizes.sequence))
    mask = net.input("mask", np.int64, (1, sizes.sequence))
    table = net.weights((sizes.vocabulary, sizes.width), fan_in=sizes.width)
    positions = net.weights((1, sizes.sequence, sizes.width), fan_in=sizes.width)
    x = _norm(net, net.op("Add", net.op("Gather", table, ids, axis=0), positions), sizes)
    bias = _attention_bias(net, mask)
    for _ in range(sizes.layers):
        x = _norm(net, net.op("Add", _attention(net, x, bias, sizes), x), sizes)
        h = _gelu(net, net.dense(x, sizes.width, sizes.inner))
        x = _norm(net, net.op("Add", net.dense(h, sizes.inner, sizes.width), x), sizes)
    return net.finish({"y": (x, (1, sizes.sequence, sizes.width))})


def _attention_bias(net: Network, mask: str) -> str:
    """0 where the mask is 1, a large negative number where it is 0: [1,1,1,sequence]."""
    kept = net.op("Cast", mask, to=onnx.TensorProto.FLOAT)
    dropped = net.op("Sub", net.constant(1.0), net.op("Unsqueeze", kept, net.integers(1, 2)))
    return net.op("Mul", dropped, net.constant(-1e4))


def _attention(net: Network, x: str, bias: str, sizes: Encoder) -> str:
    depth = sizes.width // sizes.heads
    split = net.integers(1, sizes.sequence, sizes.heads, depth)

    def heads(perm: list[int]) -> str:
        projected = net.dense(x, sizes.width, sizes.width)
        return net.op("Transpose", net.op("Reshape", projected, split), perm=perm)

    query, key, value = heads([0, 2, 1, 3]), heads([0, 2, 3, 1]), heads([0, 2, 1, 3])
    scores = net.op("Div", net.op("MatMul", query, key), net.constant(float(np.sqrt(depth))))
    weights = net.op("Softmax", net.op("Add", scores, bias), axis=-1)
    mixed = net.op("Transpose", net.op("MatMul", weights, value), perm=[0, 2, 1, 3])
    merged = net.op("Reshape", mixed, net.integers(1, sizes.sequence, sizes.width))
    return net.dense(merged, sizes.width, sizes.width)


def _norm(net: Network, x: str, sizes: Encoder) -> str:
    scale, bias = net.vector(sizes.width, 1.0), net.vector(sizes.width)
    return net.op("LayerNormalization", x, scale, bias, axis=-1, epsilon=1e-12)


def _gelu(net: Network, x: str) -> str:
    erf = net.op("Erf", net.op("Div", x, net.constant(float(np.sqrt(2)))))
    return net.op(
        "Mul", net.op("Mul", x, net.op("Add", erf, net.constant(1.0))), net.constant(0.5)
    )
