"""ONNX importers: Fourier transforms, windows and mel filters of sounds.

In: nodes. Out: a short transform is a product with a constant matrix; real and imaginary parts lie
side by side in its rows and columns, as they do in a tensor's last dimension. Windows and filters
are constants.
"""

from __future__ import annotations

import math

import numpy as np

from autotune.errors import ModelError
from autotune.frontend import open_fourier
from autotune.frontend.fourier import (
    DIRECT,
    ComplexValue,
    along,
    back_from_half,
    joined,
    parts_of,
)
from autotune.frontend.onnx.context import NodeContext, dtype_name, importer
from autotune.frontend.views import positive_axis, select_ranges
from autotune.sizes import any_size

# Windows are sums of cosines of 0, 1, 2 turns, by these factors.
WINDOWS = {
    "HannWindow": (0.5, -0.5), "HammingWindow": (25 / 46, -21 / 46),
    "BlackmanWindow": (0.42, -0.5, 0.08),
}  # fmt: skip


@importer("DFT")
def dft(n: NodeContext) -> str:
    x, inverse, half = n.input(0), bool(n.integer("inverse", 0)), bool(n.integer("onesided", 0))
    rank, shape = n.rank(x), n.shape(x)
    given = (n.int_parameter(2) or (-2,))[0] if n.opset >= 20 else n.integer("axis", 1)
    axis = positive_axis(given, rank)
    if axis == rank - 1:
        raise ModelError(f"axis {axis} of {shape} holds the parts of numbers")
    default = 2 * (shape[axis] - 1) if inverse and half else shape[axis]
    length = (n.int_parameter(1) or (default,))[0]
    order = [d for d in range(rank - 1) if d != axis] + [axis, rank - 1]
    y = _transformed(n, n.transpose(x, order), length, inverse=inverse, half=half)
    return n.transpose(y, [order.index(d) for d in range(rank)])


@importer("STFT")
def stft(n: NodeContext) -> str:
    """Frames of a signal [batch, length, parts], in windows, each transformed."""
    signal, window = n.input(0), n.optional(2)
    if n.rank(signal) == 2:
        signal = n.reshape(signal, (*n.shape(signal), 1))
    length = n.shape(signal)[1]
    step = n.required_ints(1)[0]
    default = length if window is None else n.shape(window)[0]
    size = (n.int_parameter(3) or (default,))[0]
    if step < 1 or not 1 <= size <= length:
        raise ModelError(f"frames of {size}, every {step}, do not fit a signal of {length}")
    count = 1 + (length - size) // step
    n.made(count, size)
    places = np.arange(count)[:, None] * step + np.arange(size)
    frames = n.op("gather", signal, n.constant(places, "int64"), axis=1)
    if window is not None:
        frames = n.op("mul", frames, n.reshape(window, (size, 1)))
    return _transformed(n, frames, size, inverse=False, half=bool(n.integer("onesided", 1)))


def _transformed(n: NodeContext, x: str, length: int, *, inverse: bool, half: bool) -> str:
    """x [..., extent, parts] transformed along the extent, cut or filled up to a length. Half of
    it is what real numbers need."""
    *outer, extent, parts = n.shape(x)
    if parts not in (1, 2) or length < 1:
        raise ModelError(f"expected one or two parts behind {extent} numbers, got {n.shape(x)}")
    if any_size((extent, length)):
        return open_fourier.transformed(n, x, length, inverse=inverse, half=half)
    if max(extent, length) > DIRECT:
        return _by_factors(n, x, length, inverse=inverse, half=half)
    given, kept = extent * parts, length // 2 + 1 if half else length
    unit = np.eye(extent)
    numbers = unit if parts == 1 else np.stack([unit, 1j * unit], 1).reshape(given, extent)
    if half and inverse:
        made = np.fft.irfft(numbers, length)[..., None]
    else:
        turned = np.fft.ifft(numbers, length) if inverse else np.fft.fft(numbers, length)
        made = np.stack([turned.real, turned.imag], 2)[:, :kept]
    matrix = n.builder.constant(made.reshape(given, -1).astype(n.dtype(x)))
    rows = n.reshape(x, (math.prod(outer), given))
    return n.reshape(n.op("matmul", rows, matrix, transpose_b=False), (*outer, *made.shape[1:]))


def _by_factors(n: NodeContext, x: str, length: int, *, inverse: bool, half: bool) -> str:
    """The same of a length whose matrix would be large."""
    axis = n.rank(x) - 2
    *outer, extent, parts = n.shape(x)
    wanted = length // 2 + 1 if inverse and half else length
    if extent > wanted:
        x = select_ranges(n, x, {axis: range(wanted)})
    elif extent < wanted:
        zeros = n.constant(np.zeros((*outer, wanted - extent, parts)), n.dtype(x))
        x = n.op("concat", x, zeros, axis=axis)
    if parts == 1:
        real, imaginary = n.reshape(x, (*outer, wanted)), None
    else:
        both = parts_of(n, x)
        real, imaginary = both.real, both.imaginary
    if inverse and half:
        nothing = n.op("mul", real, n.constant(0.0, n.dtype(real)))
        z = ComplexValue(real, nothing if imaginary is None else imaginary)
        y = n.reshape(back_from_half(n, z, axis, length), (*outer, length, 1))
    else:
        kept = length // 2 + 1 if half else length
        y = joined(n, along(n, real, imaginary, axis, sign=1 if inverse else -1, kept=kept))
    return n.op("mul", y, n.constant(1 / length, n.dtype(y))) if inverse else y


@importer(*WINDOWS)
def window_of_cosines(n: NodeContext) -> str:
    size = n.required_ints(0)[0]
    whole = size if n.integer("periodic", 1) else size - 1
    n.made(size)
    angles = np.arange(size) * (2 * math.pi / max(whole, 1))
    values = sum(f * np.cos(k * angles) for k, f in enumerate(WINDOWS[n.operator]))
    return n.constant(values, _result_type(n))


def _result_type(n: NodeContext) -> str:
    return dtype_name(n.integer("output_datatype", 1), "the type of the result")


@importer("MelWeightMatrix")
def mel_weight_matrix(n: NodeContext) -> str:
    """[frequencies, bins]: every bin a triangle over frequencies, even steps of mel apart."""
    bins, length, rate = (n.required_ints(i)[0] for i in range(3))
    low, high = (_mel(_number(n, i)) for i in (3, 4))
    n.made(length // 2 + 1, bins + 2)
    mels = low + np.arange(bins + 2) * ((high - low) / (bins + 2))
    hertz = 700 * (10 ** (mels / 2595) - 1)
    edges = np.floor((length + 1) * hertz / rate)
    start, middle, end = edges[:-2], edges[1:-1], edges[2:]
    at = np.arange(length // 2 + 1)[:, None]
    rising = np.where(middle > start, (at - start) / np.maximum(middle - start, 1), 1.0)
    falling = (end - at) / np.maximum(end - middle, 1)
    before, behind = (at >= start) & (at <= middle), (at >= middle) & (at < end)
    return n.constant(np.where(behind, falling, np.where(before, rising, 0.0)), _result_type(n))


def _number(n: NodeContext, position: int) -> float:
    n.input(position)
    array = n.parameter(position)
    assert array is not None  # a required input is there
    return float(array.item())


def _mel(hertz: float) -> float:
    return 2595 * math.log10(1 + hertz / 700)
