"""Image classifiers: resnet18, mobilenetv2, shufflenet, squeezenet, tiny. Input x [1,3,H,W],
output y."""

from __future__ import annotations

import numpy as np
import onnx

from autotune.frontend.zoo.base import Network, zoo_model

IMAGE = (1, 3, 224, 224)
"""Shape of an image of ImageNet, channels first."""
CLASSES = 1000
"""Classes of ImageNet."""

# mobilenetv2: expansion, output channels, repetitions, first stride (Sandler et al. 2018, table 2)
INVERTED_RESIDUALS = (
    (1, 16, 1, 1), (6, 24, 2, 2), (6, 32, 3, 2), (6, 64, 4, 2), (6, 96, 3, 1), (6, 160, 3, 2),
    (6, 320, 1, 1),
)  # fmt: skip


class ImageNetwork(Network):
    """A network over NCHW images that keeps the number of channels of each value."""

    def __init__(self, name: str, shape: tuple[int, ...] = IMAGE) -> None:
        super().__init__(name)
        self.image = self.input("x", np.float32, shape)
        self.channels = {self.image: shape[1]}

    def conv(self, x: str, outputs: int, kernel: int, stride: int = 1, groups: int = 1) -> str:
        """A convolution with a bias."""
        return self._conv((x, self.vector(outputs)), outputs, kernel, stride, groups)

    def _conv(
        self, operands: tuple[str, ...], outputs: int, kernel: int, stride: int, groups: int
    ) -> str:
        x, *bias = operands
        inputs = self.channels[x] // groups
        weights = self.weights((outputs, inputs, kernel, kernel), inputs * kernel * kernel)
        y = self.op(
            "Conv", x, weights, *bias, kernel_shape=[kernel] * 2, strides=[stride] * 2,
            pads=[kernel // 2] * 4, group=groups,
        )  # fmt: skip
        self.channels[y] = outputs
        return y

    def conv_norm(
        self, x: str, outputs: int, kernel: int, stride: int = 1, groups: int = 1
    ) -> str:
        y = self._conv((x,), outputs, kernel, stride, groups)
        scale, variance = (self.vector(outputs, 1.0, 0.2) for _ in range(2))
        bias, mean = (self.vector(outputs) for _ in range(2))
        return self.same("BatchNormalization", y, scale, bias, mean, variance)

    def same(self, kind: str, x: str, *inputs: str, **attrs: object) -> str:
        """An operator that keeps the channels of its first input."""
        y = self.op(kind, x, *inputs, **attrs)
        self.channels[y] = self.channels[x]
        return y

    def relu(self, x: str) -> str:
        return self.same("Relu", x)

    def relu6(self, x: str) -> str:
        return self.same("Clip", x, self.constant(0.0), self.constant(6.0))

    def joined(self, *values: str) -> str:
        """The channels of several values side by side."""
        y = self.op("Concat", *values, axis=1)
        self.channels[y] = sum(self.channels[x] for x in values)
        return y

    def shuffle(self, x: str, size: int, groups: int) -> str:
        """Channels dealt out anew, so that every group gets some of each; images of `size`²."""
        channels = self.channels[x]
        apart = self.op("Reshape", x, self.integers(1, groups, channels // groups, size, size))
        dealt = self.op("Transpose", apart, perm=[0, 2, 1, 3, 4])
        y = self.op("Reshape", dealt, self.integers(1, channels, size, size))
        self.channels[y] = channels
        return y

    def max_pool(self, x: str, kernel: int, stride: int, pad: int = 0, ceil: int = 0) -> str:
        return self.same(
            "MaxPool", x, kernel_shape=[kernel] * 2, strides=[stride] * 2, pads=[pad] * 4,
            ceil_mode=ceil,
        )  # fmt: skip

    def classify(self, x: str, classes: int = CLASSES) -> onnx.ModelProto:
        """Average over the image, a dense layer, softmax."""
        features = self.op("Flatten", self.op("GlobalAveragePool", x))
        y = self.op("Softmax", self.dense(features, self.channels[x], classes), axis=-1)
        return self.finish({"y": (y, (1, classes))})


@zoo_model("resnet18")
def resnet18() -> onnx.ModelProto:
    """He et al. 2015."""
    net = ImageNetwork("resnet18")
    x = net.max_pool(net.relu(net.conv_norm(net.image, 64, 7, 2)), 3, 2, 1)
    for channels, first in ((64, 1), (128, 2), (256, 2), (512, 2)):
        for stride in (first, 1):
            y = net.relu(net.conv_norm(x, channels, 3, stride))
            y = net.conv_norm(y, channels, 3)
            if stride != 1 or net.channels[x] != channels:
                x = net.conv_norm(x, channels, 1, stride)
            x = net.relu(net.same("Add", y, x))
    return net.classify(x)


@zoo_model("mobilenetv2")
def mobilenetv2() -> onnx.ModelProto:
    """Sandler et al. 2018."""
    net = ImageNetwork("mobilenetv2")
    x = net.relu6(net.conv_norm(net.image, 32, 3, 2))
    for expansion, channels, repeats, first in INVERTED_RESIDUALS:
        for stride in (first, *[1] * (repeats - 1)):
            inner = net.channels[x] * expansion
            y = net.relu6(net.conv_norm(x, inner, 1)) if expansion > 1 else x
            y = net.relu6(net.conv_norm(y, inner, 3, stride, groups=inner))
            y = net.conv_norm(y, channels, 1)
            x = net.same("Add", y, x) if stride == 1 and net.channels[x] == channels else y
    return net.classify(net.relu6(net.conv_norm(x, 1280, 1)))


@zoo_model("shufflenet")
def shufflenet() -> onnx.ModelProto:
    """Zhang et al. 2017, 1x with three groups."""
    groups, size = 3, 56
    net = ImageNetwork("shufflenet")
    x = net.max_pool(net.relu(net.conv_norm(net.image, 24, 3, 2)), 3, 2, 1)
    for channels, repeats in ((240, 4), (480, 8), (960, 4)):
        for stride in (2, *[1] * (repeats - 1)):
            inner, first = channels // 4, groups if net.channels[x] > 24 else 1
            y = net.relu(net.conv_norm(x, inner, 1, groups=first))
            y = net.conv_norm(net.shuffle(y, size, groups), inner, 3, stride, groups=inner)
            if stride == 1:
                x = net.relu(net.same("Add", net.conv_norm(y, channels, 1, groups=groups), x))
                continue
            size //= 2
            y = net.conv_norm(y, channels - net.channels[x], 1, groups=groups)
            x = net.same("AveragePool", x, kernel_shape=[3, 3], strides=[2, 2], pads=[1] * 4)
            x = net.relu(net.joined(x, y))
    return net.classify(x)


@zoo_model("squeezenet")
def squeezenet() -> onnx.ModelProto:
    """Iandola et al. 2016, version 1.1."""
    net = ImageNetwork("squeezenet")
    x = net.max_pool(net.relu(net.conv(net.image, 64, 3, 2)), 3, 2, ceil=1)
    for stage in (
        ((16, 64), (16, 64)),
        ((32, 128), (32, 128)),
        ((48, 192),) * 2 + ((64, 256),) * 2,
    ):
        for squeeze, expand in stage:
            narrow = net.relu(net.conv(x, squeeze, 1))
            branches = [net.relu(net.conv(narrow, expand, kernel)) for kernel in (1, 3)]
            x = net.joined(*branches)
        if stage[0][0] < 48:
            x = net.max_pool(x, 3, 2, ceil=1)
    return net.classify(net.relu(net.conv(x, CLASSES, 1)))


@zoo_model("tiny")
def tiny() -> onnx.ModelProto:
    """A small network with one of everything that matters; tunes in seconds."""
    net = ImageNetwork("tiny", (1, 3, 32, 32))
    x = net.relu(net.conv_norm(net.image, 16, 3))
    x = net.max_pool(x, 2, 2)
    y = net.relu(net.conv_norm(x, 16, 3, groups=16))
    x = net.relu(net.same("Add", net.conv_norm(y, 16, 1), x))
    x = net.relu(net.conv_norm(x, 32, 3, 2))
    return net.classify(x, classes=10)
