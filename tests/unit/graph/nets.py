"""Small graphs in the form a frontend makes: image operators between transposes."""

from __future__ import annotations

from collections import Counter

import numpy as np

from autotune.graph.build import GraphBuilder
from autotune.graph.ir import Graph
from autotune.types import Array, TensorType

TO_NHWC, TO_NCHW = (0, 2, 3, 1), (0, 3, 1, 2)


class Net(GraphBuilder):
    """A builder with the operators of an image network on NCHW values."""

    def __init__(self) -> None:
        super().__init__("net")
        self._rng = np.random.default_rng(0)

    def array(self, *shape: int) -> Array:
        return self._rng.standard_normal(shape).astype(np.float32)

    def weights(self, *shape: int) -> str:
        return self.constant(self.array(*shape))

    def feed(self, name: str, *shape: int, dtype: str = "float32") -> str:
        return self.input(name, TensorType(dtype=dtype, shape=shape))

    def conv(self, x: str, outs: int, k: int = 3, stride: int = 1, groups: int = 1) -> str:
        """Convolution without bias, padded to keep the extent."""
        image = self.op("transpose", x, perm=TO_NHWC)
        weights = self.weights(k, k, self.shape(x)[1] // groups, outs)
        out = self.op(
            "conv2d",
            image,
            weights,
            strides=(stride, stride),
            pads=(k // 2,) * 4,
            dilations=(1, 1),
            groups=groups,
        )
        return self.op("transpose", out, perm=TO_NCHW)

    def batch_norm(self, x: str) -> str:
        channels = self.shape(x)[1]
        scaled = self.op("mul", x, self.weights(1, channels, 1, 1))
        return self.op("add", scaled, self.weights(1, channels, 1, 1))

    def max_pool(self, x: str) -> str:
        image = self.op("transpose", x, perm=TO_NHWC)
        attrs = {"kernel": (2, 2), "strides": (2, 2), "pads": (0,) * 4, "dilations": (1, 1)}
        return self.op("transpose", self.op("max_pool2d", image, **attrs), perm=TO_NCHW)

    def linear(self, x: str, outs: int) -> str:
        weights = self.weights(self.shape(x)[-1], outs)
        return self.op("add", self.op("matmul", x, weights, transpose_b=False), self.weights(outs))

    def layer_norm(self, x: str) -> str:
        width = self.shape(x)[-1]
        axis = len(self.shape(x)) - 1
        scale, bias = self.weights(width), self.weights(width)
        return self.op("layer_norm", x, scale, bias, axis=axis, epsilon=1e-5)

    def scalar(self, value: float) -> str:
        return self.constant(np.asarray(value, dtype=np.float32))

    def attention(self, x: str, heads: int) -> str:
        """Self-attention as exporters write it, scale and all."""
        b, s, width = self.shape(x)
        split = (b, s, heads, width // heads)

        def head(perm: tuple[int, ...]) -> str:
            return self.op(
                "transpose", self.op("reshape", self.linear(x, width), shape=split), perm=perm
            )

        queries, keys, values = head((0, 2, 1, 3)), head((0, 2, 3, 1)), head((0, 2, 1, 3))
        scores = self.op("matmul", queries, keys, transpose_b=False)
        scores = self.op("softmax", self.op("div", scores, self.scalar(8.0)), axis=3)
        mixed = self.op("matmul", scores, values, transpose_b=False)
        mixed = self.op("transpose", mixed, perm=(0, 2, 1, 3))
        return self.op("reshape", mixed, shape=(b, s, width))

    def graph(self, *values: str) -> Graph:
        return self.finish([(f"y{i}", v) for i, v in enumerate(values)])


def op_counts(graph: Graph) -> Counter[str]:
    return Counter(node.op for node in graph.nodes)


def random_feeds(graph: Graph) -> dict[str, Array]:
    rng = np.random.default_rng(1)
    return {n: rng.standard_normal(t.shape).astype(np.float32) for n, t in graph.inputs}
