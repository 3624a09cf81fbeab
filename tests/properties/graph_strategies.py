"""Random small graphs as a frontend makes them: image operators between transposes, batch norm and
bias as elementwise constants, attention-like matmuls, views of every kind."""

from __future__ import annotations

import numpy as np
from hypothesis import strategies as st

from autotune.graph.build import GraphBuilder
from autotune.graph.ir import Graph
from autotune.types import Array, TensorType

TO_NHWC, TO_NCHW = (0, 2, 3, 1), (0, 3, 1, 2)
LIMIT = 4096


class RandomGraph:
    """Grows a graph; every choice is drawn, so that failures shrink."""

    def __init__(self, draw: st.DrawFn) -> None:
        self.draw = draw
        self.b = GraphBuilder("random")
        self.rng = np.random.default_rng(draw(st.integers(0, 3)))
        self.values: list[str] = []
        for number in range(draw(st.integers(1, 2))):
            shape = (draw(st.integers(1, 2)), *(draw(st.integers(1, 6)) for _ in range(3)))
            self.values.append(
                self.b.input(f"x{number}", TensorType(dtype="float32", shape=shape))
            )

    def finish(self, steps: int) -> Graph:
        actions = [
            self.conv, self.pool, self.affine, self.activate, self.gelu, self.residual,
            self.concat, self.slice, self.transpose, self.reshape, self.dense, self.attention,
            self.reduce, self.softmax, self.pad, self.shuffle, self.norm,
            self.shuffled_conv, self.gather, self.split, self.chain, self.chain, self.scatter,
            self.resize,
        ]  # fmt: skip
        for _ in range(steps):
            made = self.draw(st.sampled_from(actions))()
            if made is not None and 0 < np.prod(self.b.shape(made)) <= LIMIT:
                self.values.append(made)
        picked = self.draw(st.lists(st.sampled_from(self.values), min_size=0, max_size=2))
        return self.b.finish([(f"y{i}", v) for i, v in enumerate([self.values[-1], *picked])])

    def array(self, *shape: int) -> str:
        return self.b.constant(self.rng.standard_normal(shape).astype(np.float32) * 0.5)

    def pick(self, rank: int | None = None) -> str | None:
        fit = [v for v in self.values if rank is None or len(self.b.shape(v)) == rank]
        return self.draw(st.sampled_from(fit[::-1])) if fit else None

    def conv(self) -> str | None:
        x = self.pick(4)
        if x is None:
            return None
        channels, *sizes = self.b.shape(x)[1:]
        groups = self.draw(
            st.sampled_from([g for g in range(1, channels + 1) if channels % g == 0])
        )
        outs = groups * self.draw(st.integers(1, 3))
        kernel = (self.draw(st.sampled_from([1, 3, 2, 5])), self.draw(st.sampled_from([1, 3])))
        strides, dilations = (
            (self.draw(st.integers(1, most)), self.draw(st.integers(1, most))) for most in (3, 2)
        )
        pads = tuple(self.draw(st.integers(0, 2)) for _ in range(4))
        reach = [(k - 1) * d for k, d in zip(kernel, dilations, strict=True)]
        if any(s + pads[i] + pads[i + 2] <= reach[i] for i, s in enumerate(sizes)):
            return None
        image = self.b.op("transpose", x, perm=TO_NHWC)
        out = self.b.op(
            "conv2d", image, self.array(*kernel, channels // groups, outs), strides=strides,
            pads=pads, dilations=dilations, groups=groups,
        )  # fmt: skip
        out = self.b.op("transpose", out, perm=TO_NCHW)
        return self.b.op("add", out, self.array(1, outs, 1, 1))

    def pool(self) -> str | None:
        x = self.pick(4)
        if x is None:
            return None
        attrs = {"kernel": (3, 3), "strides": (1, 1), "pads": (1,) * 4, "dilations": (1, 1)}
        image = self.b.op("transpose", x, perm=TO_NHWC)
        if self.draw(st.booleans()):
            out = self.b.op("max_pool2d", image, **attrs)
        else:
            out = self.b.op(
                "avg_pool2d", image, count_include_pad=self.draw(st.booleans()),
                valid_pads=(1,) * 4, **attrs,
            )  # fmt: skip
        return self.b.op("transpose", out, perm=TO_NCHW)

    def affine(self) -> str | None:
        x = self.pick()
        assert x is not None
        rank = len(self.b.shape(x))
        axis = self.draw(st.integers(0, rank - 1))
        shape = [e if d == axis else 1 for d, e in enumerate(self.b.shape(x))]
        return self.b.op("add", self.b.op("mul", x, self.array(*shape)), self.array(*shape[axis:]))

    def activate(self) -> str | None:
        x = self.pick()
        assert x is not None
        op = self.draw(st.sampled_from(["relu", "tanh", "neg", "copy"]))
        return self.b.op(op, x)

    def gelu(self) -> str | None:
        x = self.pick()
        assert x is not None
        scaled = self.b.op("div", x, self.b.constant(np.asarray(1.41421, np.float32)))
        one = self.b.op(
            "add", self.b.op("erf", scaled), self.b.op("scalar", value=1.0, dtype="float32")
        )
        return self.b.op("mul", x, one)

    def residual(self) -> str | None:
        x = self.pick()
        assert x is not None
        same = [v for v in self.values if self.b.shape(v) == self.b.shape(x)]
        return self.b.op("add", x, self.draw(st.sampled_from(same)))

    def concat(self) -> str | None:
        x = self.pick()
        assert x is not None
        shape = self.b.shape(x)
        axis = self.draw(st.integers(0, len(shape) - 1))
        fit = [
            v
            for v in self.values
            if len(self.b.shape(v)) == len(shape)
            and all(
                a == b or d == axis
                for d, (a, b) in enumerate(zip(self.b.shape(v), shape, strict=True))
            )
        ]
        others = self.draw(st.lists(st.sampled_from(fit), min_size=1, max_size=2))
        return self.b.op("concat", x, *others, axis=axis)

    def slice(self) -> str | None:
        x = self.pick()
        assert x is not None
        shape = self.b.shape(x)
        axis = self.draw(st.integers(0, len(shape) - 1))
        start = self.draw(st.integers(0, shape[axis] - 1))
        stop = self.draw(st.integers(start + 1, shape[axis]))
        ends = [(start, stop) if d == axis else (0, e) for d, e in enumerate(shape)]
        steps = tuple(self.draw(st.integers(1, 2)) if d == axis else 1 for d in range(len(shape)))
        return self.b.op(
            "slice", x, starts=tuple(s for s, _ in ends), stops=tuple(e for _, e in ends),
            steps=steps,
        )  # fmt: skip

    def gather(self) -> str | None:
        """Places at equal distances, backward or forward, or the same one again and again."""
        x = self.pick()
        assert x is not None
        shape = self.b.shape(x)
        axis, step = self.draw(st.integers(0, len(shape) - 1)), self.draw(st.integers(-2, 2))
        first = self.draw(st.integers(0, shape[axis] - 1))
        room = shape[axis] - 1 - first if step > 0 else first
        count = self.draw(st.integers(1, room // abs(step) + 1 if step else 3))
        negative = self.draw(st.sampled_from([0, shape[axis]]))
        places = first + step * np.arange(count, dtype=np.int64) - negative
        return self.b.op("gather", x, self.b.constant(places), axis=axis)

    def reversal(self) -> str | None:
        x = self.pick()
        assert x is not None
        axis = self.draw(st.integers(0, len(self.b.shape(x)) - 1))
        places = np.arange(self.b.shape(x)[axis], dtype=np.int64)[::-1]
        return self.b.op("gather", x, self.b.constant(places.copy()), axis=axis)

    def split(self) -> str | None:
        """Both parts of a value, the second in front."""
        x = self.pick()
        assert x is not None
        shape = self.b.shape(x)
        axis = self.draw(st.integers(0, len(shape) - 1))
        if shape[axis] < 2:
            return None
        cut, parts = self.draw(st.integers(1, shape[axis] - 1)), list[str]()
        for start, stop in ((0, cut), (cut, shape[axis])):
            starts = [start if d == axis else 0 for d in range(len(shape))]
            stops = [stop if d == axis else e for d, e in enumerate(shape)]
            part = self.b.op(
                "slice", x, starts=tuple(starts), stops=tuple(stops), steps=(1,) * len(shape)
            )  # fmt: skip
            parts.append(part)
        self.values.append(parts[0])
        return self.b.op("concat", *parts[::-1], axis=axis) if self.draw(st.booleans()) else part

    def chain(self) -> str | None:
        """Up to six views, each of the one before; any of them may be read later on."""
        views = [
            self.transpose, self.reversal, self.slice, self.gather, self.concat, self.pad,
            self.split, self.reshape,
        ]  # fmt: skip
        held = self.values
        self.values = [self.draw(st.sampled_from(held[::-1]))]
        for _ in range(self.draw(st.integers(1, 6))):
            made = self.draw(st.sampled_from(views))()
            if made is not None and 0 < np.prod(self.b.shape(made)) <= LIMIT:
                self.values = [made]
        last, self.values = self.values[-1], held
        return last if last not in held else None

    def scatter(self) -> str | None:
        """A value's part, reversed, joined to it or put in its place."""
        x = self.pick()
        assert x is not None
        shape = self.b.shape(x)
        axis = self.draw(st.integers(0, len(shape) - 1))
        places = np.arange(shape[axis], dtype=np.int64)[::-1][: self.draw(st.integers(1, 4))]
        updates = self.b.op("gather", x, self.b.constant(places[::-1].copy()), axis=axis)
        where = places.reshape([-1 if d == axis else 1 for d in range(len(shape))])
        reduction = self.draw(st.sampled_from(["none", "add", "max"]))
        return self.b.op(
            "scatter", x, self.b.constant(where.copy()), updates, axis=axis, reduction=reduction
        )

    def resize(self) -> str | None:
        x = self.pick()
        assert x is not None
        target = tuple(self.draw(st.sampled_from([e, e + 2, 2 * e])) for e in self.b.shape(x))
        if np.prod(target) > LIMIT:
            return None
        mode = self.draw(st.sampled_from(["nearest", "linear"]))
        return self.b.op(
            "resize", x, out_shape=target, mode=mode, coordinate="half_pixel",
            nearest_mode="floor",
        )  # fmt: skip

    def transpose(self) -> str | None:
        x = self.pick()
        assert x is not None
        perm = self.draw(st.permutations(range(len(self.b.shape(x)))))
        return self.b.op("transpose", x, perm=tuple(perm))

    def reshape(self) -> str | None:
        x = self.pick()
        assert x is not None
        shape = list(self.b.shape(x))
        at = self.draw(st.integers(0, len(shape) - 1))
        divisors = [d for d in range(1, shape[at] + 1) if shape[at] % d == 0]
        if len(shape) > 1 and at + 1 < len(shape) and self.draw(st.booleans()):
            shape[at : at + 2] = [shape[at] * shape[at + 1]]
        elif len(shape) < 5:
            first = self.draw(st.sampled_from(divisors))
            shape[at : at + 1] = [first, shape[at] // first]
        return self.b.op("reshape", x, shape=tuple(shape))

    def shuffle(self) -> str | None:
        x = self.pick(4)
        if x is None or self.b.shape(x)[1] % 2:
            return None
        n, c, h, w = self.b.shape(x)
        parts = self.b.op("reshape", x, shape=(n, 2, c // 2, h, w))
        return self.b.op(
            "reshape", self.b.op("transpose", parts, perm=(0, 2, 1, 3, 4)), shape=(n, c, h, w)
        )

    def shuffled_conv(self) -> str | None:
        """A shuffle with its convolution: depthwise or dense, and what an activation follows."""
        x = self.shuffle()
        if x is None:
            return None
        channels = self.b.shape(x)[1]
        groups = self.draw(st.sampled_from([1, channels]))
        stride = self.draw(st.integers(1, 2))
        out = self.b.op(
            "conv2d", self.b.op("transpose", x, perm=TO_NHWC),
            self.array(1, 1, channels // groups, channels), strides=(stride, 1),
            pads=(0,) * 4, dilations=(1, 1), groups=groups,
        )  # fmt: skip
        out = self.b.op("transpose", out, perm=TO_NCHW)
        return self.b.op("relu", self.b.op("add", out, self.array(1, channels, 1, 1)))

    def dense(self) -> str | None:
        x = self.pick()
        assert x is not None
        if self.draw(st.booleans()):
            shape = self.b.shape(x)
            x = self.b.op("reshape", x, shape=(shape[0], int(np.prod(shape[1:]))))
        if len(self.b.shape(x)) < 2:
            return None
        outs = self.draw(st.sampled_from([2, 4, 6]))
        out = self.b.op("matmul", x, self.array(self.b.shape(x)[-1], outs), transpose_b=False)
        return self.b.op("add", out, self.array(outs))

    def attention(self) -> str | None:
        """Two heads over the last dimension of a [b, s, 2 * d] value, as exporters write it."""
        x = self.pick(3)
        if x is None or self.b.shape(x)[-1] % 2:
            return None
        b, s, width = self.b.shape(x)
        heads = (b, s, 2, width // 2)
        weights = self.array(width, width)
        q = self.b.op("reshape", self.b.op("matmul", x, weights), shape=heads)
        q = self.b.op("transpose", q, perm=(0, 2, 1, 3))
        keys = self.b.op("transpose", self.b.op("reshape", x, shape=heads), perm=(0, 2, 3, 1))
        scores = self.b.op("softmax", self.b.op("matmul", q, keys), axis=3)
        out = self.b.op("transpose", self.b.op("matmul", scores, q), perm=(0, 2, 1, 3))
        return self.b.op("reshape", out, shape=(b, s, width))

    def reduce(self) -> str | None:
        x = self.pick()
        assert x is not None
        axes = self.draw(
            st.lists(st.integers(0, len(self.b.shape(x)) - 1), min_size=1, max_size=2, unique=True)
        )
        keep = self.draw(st.booleans()) or len(axes) == len(self.b.shape(x))
        return self.b.op("reduce_mean", x, axes=tuple(sorted(axes)), keepdims=keep)

    def norm(self) -> str | None:
        """A normalization step by step, as exporters write it."""
        x = self.pick()
        assert x is not None
        rank = len(self.b.shape(x))
        axes = tuple(range(self.draw(st.integers(0, rank - 1)), rank))
        if self.draw(st.booleans()):
            x = self.b.op("sub", x, self.b.op("reduce_mean", x, axes=axes, keepdims=True))
        square = self.b.op("pow", x, self.b.constant(np.asarray(2.0, np.float32)))
        mean = self.b.op("reduce_mean", square, axes=axes, keepdims=True)
        epsilon = self.b.op("scalar", value=0.1, dtype="float32")
        root = self.b.op("sqrt", self.b.op("add", mean, epsilon))
        if self.draw(st.booleans()):
            out = self.b.op("div", x, root)
        else:
            out = self.b.op("mul", self.b.op("reciprocal", root), x)
        scale = self.array(*self.b.shape(x)[self.draw(st.sampled_from(axes)) :])
        return self.b.op("add", self.b.op("mul", out, scale), self.array(self.b.shape(x)[-1]))

    def softmax(self) -> str | None:
        x = self.pick()
        assert x is not None
        axis = self.draw(st.integers(0, len(self.b.shape(x)) - 1))
        return self.b.op("softmax", x, axis=axis)

    def pad(self) -> str | None:
        x = self.pick()
        assert x is not None
        rank = len(self.b.shape(x))
        pads = tuple(self.draw(st.integers(0, 1)) for _ in range(2 * rank))
        return self.b.op("pad", x, pads=pads, value=0.5)


@st.composite
def graphs(draw: st.DrawFn, max_steps: int = 9) -> Graph:
    """A random graph and nothing else; see `feeds_for`."""
    return RandomGraph(draw).finish(draw(st.integers(1, max_steps)))


def feeds_for(graph: Graph) -> dict[str, Array]:
    rng = np.random.default_rng(7)
    return {n: rng.standard_normal(t.shape).astype(np.float32) for n, t in graph.inputs}
