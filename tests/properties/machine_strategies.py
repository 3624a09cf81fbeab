"""Random machines, and random tasks and networks whose sizes come near those of their caches.

Code is for instructions that this machine has. Wider vectors than its own LLVM cuts, so that every
width is run.
"""

from __future__ import annotations

import dataclasses
import functools

import numpy as np
from hypothesis import assume
from hypothesis import strategies as st

from autotune.errors import ArtifactError, TargetError
from autotune.exactness import possible
from autotune.graph.build import GraphBuilder
from autotune.graph.ir import Graph
from autotune.runtime.host import check_host
from autotune.target import MAX_THREADS, Target, host_target, load_target
from autotune.types import Attr, Task, TensorType
from tests.contracts.test_rules import TASKS, batched, conv, layer_norm, scatter
from tests.properties.further_tasks import further_task
from tests.unit.attentions import attention
from tests.unit.codegen.kernels import matmul, node, task, unary, value

KIB, MIB, GIB = 1 << 10, 1 << 20, 1 << 30
MOST_PRODUCTS = 2_000_000
"""Of a task: its reference is computed by numpy."""
MOST_ELEMENTS = 200_000
COMMON_THREADS = (1, 1, 1, 2, 2, 3, 4, 7, 16, 64)
CACHES = {
    "l1": st.sampled_from([16, 24, 32, 48, 64, 80, 96]) | st.integers(16, 96),
    "l2": st.sampled_from([128, 256, 512, 1024, 1280, 2048, 4096]) | st.integers(128, 4096),
    "l3": st.sampled_from([0, 0, 8 * KIB, 33 * KIB, 480 * KIB, MIB]) | st.integers(1, MIB),
}  # fmt: skip
"""KiB; sizes as there are, and any others."""


@functools.cache
def code_targets() -> tuple[Target, ...]:
    """Instruction sets that run here: this machine's, and narrower ones of its kind."""
    avx2 = load_target("x86-64-v3")
    sse = dataclasses.replace(
        avx2, cpu="x86-64-v2", features="+sse4.2", vector_bytes=16, name="sse"
    )
    found = [host_target()]
    for target in (avx2, sse):
        try:
            check_host(target, "a kernel")
        except ArtifactError:
            continue
        found.append(target)
    return tuple(found)


@st.composite
def machines(draw: st.DrawFn, kind: str = "cpu") -> Target:
    """A processor with any caches, vectors, registers and threads."""
    code = draw(st.sampled_from(code_targets())) if kind == "cpu" else load_target(kind)
    threads = draw(st.sampled_from(COMMON_THREADS) | st.integers(1, 64))
    found = dataclasses.replace(
        code,
        vector_bytes=draw(st.sampled_from([16, 32, 64])),
        vector_registers=draw(st.sampled_from([16, 32]) | st.integers(16, 32)),
        l1_bytes=draw(CACHES["l1"]) * KIB,
        l2_bytes=draw(CACHES["l2"]) * KIB,
        l3_bytes=draw(CACHES["l3"]) * KIB,
        l1_ways=draw(st.sampled_from([4, 8, 12, 16]) | st.integers(4, 16)),
        line_bytes=draw(st.sampled_from([64, 64, 64, 32, 128])),
        cores=min(MAX_THREADS, threads * draw(st.integers(1, 2))),
        threads=threads,
        accuracy=draw(st.sampled_from(["normal", "normal", "strict"])),
        precision=draw(st.sampled_from(["float32"] * 4 + ["bfloat16"])),
    )
    wanted = dataclasses.replace(found, accuracy="reproducible")
    return wanted if draw(st.integers(0, 7)) == 0 and can_be(wanted) else found


def can_be(target: Target) -> bool:
    """Whether its accuracy is one that it can have."""
    try:
        possible(target)
    except TargetError:
        return False
    return True


def extents(most: int) -> st.SearchStrategy[int]:
    """Few, many, and those that vectors and tiles divide."""
    whole = [e for e in (1, 2, 4, 8, 16, 32, 48, 64, 96, 128, 192, 256, 384, 512) if e <= most]
    return st.sampled_from(whole) | st.integers(1, most)


@st.composite
def convolutions(draw: st.DrawFn) -> Task:
    """Dense, grouped, and a channel by itself; also with strides, dilations, a residual."""
    kernel = draw(st.sampled_from([(3, 3), (1, 1), (5, 5), (7, 7), (1, 3), (3, 1), (2, 2)]))
    strides = draw(st.sampled_from([(1, 1), (1, 1), (2, 2), (2, 1)]))
    dilations = draw(st.sampled_from([(1, 1), (1, 1), (1, 1), (2, 2)]))
    batch, height, width = draw(st.integers(1, 2)), draw(extents(32)), draw(extents(32))
    groups, inputs, outputs = draw(
        st.tuples(st.just(1), extents(128), extents(128))
        | st.tuples(st.integers(2, 4), extents(16), extents(16))
        | st.tuples(extents(192), st.just(1), st.integers(1, 2))
    )
    pad = draw(st.sampled_from([0, kernel[0] // 2, 1]))
    out = tuple(
        (e + 2 * pad - d * (k - 1) - 1) // s + 1
        for e, k, s, d in zip((height, width), kernel, strides, dilations, strict=True)
    )
    assume(min(out) > 0)
    channels = groups * outputs
    assume(batch * out[0] * out[1] * kernel[0] * kernel[1] * inputs * channels <= MOST_PRODUCTS)
    attrs: dict[str, Attr] = {"strides": strides, "dilations": dilations, "groups": groups}
    return conv(
        (batch, height, width, groups * inputs), (*kernel, inputs, channels),
        (batch, *out, channels), pad=pad, residual=draw(st.booleans()), **attrs,
    )  # fmt: skip


@st.composite
def products(draw: st.DrawFn) -> Task:
    """Matrices by weights and by each other, alone and in batches; weights larger than a cache."""
    rows, depth, configs = draw(extents(128)), draw(extents(512)), draw(extents(512))
    assume(rows * depth * configs <= MOST_PRODUCTS)
    if draw(st.integers(0, 3)) == 0:
        assume(3 * rows * depth * configs <= MOST_PRODUCTS)
        return batched(rows, depth, configs)
    return matmul(rows, depth, configs, constant=draw(st.booleans()))


@st.composite
def attentions(draw: st.DrawFn) -> Task:
    sizes = [draw(extents(64)) for _ in range(4)]
    causal = draw(st.none() | st.just(max(0, sizes[1] - sizes[0])))
    return attention(
        (1, draw(st.integers(1, 4))), *sizes, causal=causal, transposed=draw(st.booleans()),
    )  # fmt: skip


@st.composite
def rows(draw: st.DrawFn) -> Task:
    """What goes over rows, columns or everything."""
    shape = (draw(extents(8)), draw(extents(64)), draw(extents(512)))
    axis = draw(st.integers(0, 2))
    assume(shape[0] * shape[1] * shape[2] <= MOST_ELEMENTS)
    kind = draw(st.sampled_from(["softmax", "norm", "reduce", "gelu", "transpose", "scatter"]))
    if kind == "softmax":
        return unary("softmax", shape, axis=axis)
    if kind == "norm":
        return layer_norm(*shape, axis=axis)
    if kind == "gelu":
        return unary("gelu", shape)
    if kind == "scatter":
        return scatter((shape[0], shape[2]), (shape[1], 1), (shape[1], shape[2]))
    if kind == "transpose":
        turned = [node("transpose", "i0", "o0", perm=(2, 0, 1))]
        return task(turned, value("i0", shape), value("o0", (shape[2], *shape[:2])))
    op = draw(st.sampled_from(["reduce_sum", "reduce_mean", "reduce_max"]))
    kept = tuple(1 if d == axis else e for d, e in enumerate(shape))
    reduced = [node(op, "i0", "o0", axes=(axis,), keepdims=True)]
    return task(reduced, value("i0", shape), value("o0", kept))


@st.composite
def pools(draw: st.DrawFn) -> Task:
    height, width, channels = draw(extents(32)), draw(extents(32)), draw(extents(192))
    kernel, stride = draw(st.integers(1, 3)), draw(st.integers(1, 3))
    out = [(e + 2 - kernel) // stride + 1 for e in (height, width)]
    assume(min(out) > 0 and height * width * channels <= MOST_ELEMENTS)
    op = draw(st.sampled_from(["max_pool2d", "avg_pool2d"]))
    attrs = {"kernel": (kernel,) * 2, "strides": (stride,) * 2, "pads": (1,) * 4}
    return task(
        [node(op, "i0", "o0", **attrs)],
        value("i0", (1, height, width, channels)),
        value("o0", (1, *out, channels)),
    )


def any_task() -> st.SearchStrategy[Task]:
    """Of every kind, of the sizes that models have and of those that they do not."""
    return (
        st.sampled_from(sorted(TASKS.values(), key=lambda t: t.key))
        | convolutions() | convolutions() | products() | attentions() | rows() | pools()
        | further_task() | further_task()
    )  # fmt: skip


@st.composite
def image_networks(draw: st.DrawFn) -> Graph:
    """Convolutions, pools and sums over images that small caches do not hold, and a classifier."""
    builder, rng = GraphBuilder("images"), np.random.default_rng(draw(st.integers(0, 9)))

    def weights(*shape: int) -> str:
        scale = np.sqrt(np.prod(shape[:-1]))
        return builder.constant((rng.standard_normal(shape) / scale).astype(np.float32))

    size, channels = draw(st.integers(12, 56)), draw(st.sampled_from([3, 8, 16, 32]))
    x = builder.input("x", TensorType(dtype="float32", shape=(1, size, size, channels)))
    for _ in range(draw(st.integers(1, 4))):
        _, height, width, channels = builder.shape(x)
        kind = draw(st.sampled_from(["conv", "conv", "depthwise", "point", "pool", "block"]))
        outs = draw(st.sampled_from([8, 13, 16, 32, 48]))
        if kind == "pool":
            if min(height, width) > 3:
                x = builder.op("max_pool2d", x, kernel=(2, 2), strides=(2, 2), pads=(0,) * 4)
        elif kind == "depthwise":
            filters = weights(3, 3, 1, channels)
            x = builder.op("conv2d", x, filters, pads=(1,) * 4, groups=channels)
        elif kind == "point":
            x = builder.op("relu", builder.op("conv2d", x, weights(1, 1, channels, outs)))
        elif kind == "block":
            inner = builder.op("conv2d", x, weights(3, 3, channels, channels), pads=(1,) * 4)
            x = builder.op("relu", builder.op("add", inner, x))
        else:
            stride = draw(st.integers(1, 2))
            filters = weights(3, 3, channels, outs)
            x = builder.op("conv2d", x, filters, pads=(1,) * 4, strides=(stride,) * 2)
    means = builder.op("reduce_mean", x, axes=(1, 2), keepdims=False)
    y = builder.op("matmul", means, weights(builder.shape(x)[3], draw(extents(128))))
    return builder.finish([("y", y), ("x", x)])
