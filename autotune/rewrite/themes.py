"""Themes of enumeration: values of shapes that have something to do with one another, and
operators over them.

A theme has a name, lines of a rewrite's grammar, and names of `vocabulary.OPERATORS` or operators
with the attributes that they are tried with.
"""

from __future__ import annotations

from collections.abc import Iterator

from autotune.rewrite.enumeration import Theme
from autotune.rewrite.parse import parse_header
from autotune.rewrite.vocabulary import FUNCTIONS, OPERATORS, TriedOperator, fixed

_WINDOW = "\nattribute t l u v in 0..1\nattribute i j d e in 1..2"
_CONV = "conv2d(_, _, pads=(t, l, u, v), strides=(i, j), dilations=(d, e))"
_GROUPED = "conv2d(_, _, pads=(t, l, u, v), strides=(i, j), dilations=(d, e), groups=2)"
_POINT = "conv2d(_, _)"
_POOL = "\nattribute p q i j in 1..2"
_MEANS = "avg_pool2d(_, kernel=(p, q), strides=(i, j))"
_LARGEST = "max_pool2d(_, kernel=(p, q), strides=(i, j))"
_SIZES = """
    attribute p q in 1..6
    attribute at in half_pixel pytorch_half_pixel asymmetric align_corners
    attribute near in round_prefer_floor round_prefer_ceil floor ceil"""
_ZEROS = "\nattribute t l u v in 0..1"
_CUT = "\nattribute i in 1..3\ndraw m = i + 1\nwhere 0 < i < m"
_EVERY = " ".join(FUNCTIONS)

_THEMES: tuple[tuple[str, str, tuple[str, ...], int], ...] = (
    # -- elementwise
    ("sums", "value x y z [*s]", ("add sub mul neg",), 3),
    ("extremes", "value x y z [*s]", ("relu max min",), 3),
    # -- data that move
    ("functions-turned", "value x [*s, m, n]", (_EVERY, "transpose"), 2),
    ("functions-of-images", "value x [n, h, w, c]", (_EVERY, "transpose reshape"), 2),
    ("functions-joined", "value x [*s, m]\nvalue y [*s, n]", (_EVERY, "concat"), 3),
    ("functions-cut", f"value x [*s, m]{_CUT}", (_EVERY, "slice"), 2),
    ("functions-resized", f"value x [n, h, w, c]{_SIZES}", (_EVERY, "nearest"), 2),
    ("turned", "value x y [*s, m, n]", ("transpose add sub mul div",), 3),
    ("reshaped", "value x y [m, n]", ("reshape transpose add sub mul div",), 3),
    ("images", "value x y [n, h, w, c]", ("transpose reshape add sub mul",), 3),
    ("extremes-that-move", "value x y [*s, m, n]", ("transpose concat max min relu",), 3),
    ("extremes-of-images", f"value x y [n, h, w, c]{_SIZES}", ("nearest max min relu",), 3),
    ("cut", f"value x y [*s, m]{_CUT}", ("slice add sub mul div concat",), 3),
    ("joined", "value x [*s, m]\nvalue y [*s, n]\nvalue z [*s, k]", ("concat slice relu neg",), 3),
    ("joined-pairs", "value x y [*s, m]\nvalue z [*s, n]", ("concat add sub mul slice",), 3),
    ("joined-rows", "value x [*s, m, n]\nvalue y [*s, k, n]", ("concat transpose add slice",), 3),
    ("padded", f"value x y [m, n]{_ZEROS}", ("pad add sub mul neg transpose",), 3),
    ("padded-images", f"value x y [n, h, w, c]{_ZEROS}", ("pad add sub mul neg",), 3),
    # -- products
    ("products", "value a [*s, m, k]\nvalue b [*s, k, j]\nvalue c [*s, j, n]",
     ("matmul transpose neg",), 3),
    ("products-of-sums", "value a b [*s, m, k]\nvalue c [*s, k, n]",
     ("matmul add sub neg transpose concat",), 3),
    ("products-by-sums", "value a [*s, m, k]\nvalue b c [*s, k, n]",
     ("matmul add sub neg transpose concat",), 3),
    ("scaled-products", "value a [*s, m, k]\nvalue b [*s, k, n]\nvalue f []",
     ("matmul mul add neg transpose",), 3),
    ("products-of-scaled-columns", "value a [*s, m, k]\nvalue b [*s, k, n]\nvalue f [n]",
     ("matmul mul add neg concat",), 3),
    ("products-by-weights", "value a b [*s, m, k]\nvalue c [k, n]",
     ("matmul add sub neg concat relu",), 3),
    ("products-by-two-weights", "value a [*s, m, k]\nvalue b c [k, n]",
     ("matmul add sub neg concat transpose",), 3),
    ("chains-by-weights", "value a [*s, m, k]\nvalue b [k, j]\nvalue c [j, n]",
     ("matmul neg",), 3),
    ("joined-products", "value a [*s, m, k]\nvalue b [*s, k, n]\nvalue c [*s, k, j]",
     ("matmul concat slice relu",), 3),
    ("rows-of-products", "value a [*s, m, k]\nvalue b [*s, j, k]\nvalue c [*s, k, n]",
     ("matmul concat slice neg",), 3),
    ("cut-products", f"value a [*s, m, k]\nvalue b [*s, k, n]{_CUT}",
     ("matmul slice concat relu",), 3),
    ("padded-products", f"value a [m, k]\nvalue b [k, n]{_ZEROS}",
     ("matmul pad neg transpose",), 3),
    # -- reductions and rows
    ("softmaxes", "value x [m, n]\nvalue y [k, n]",
     ("softmax log_softmax concat slice transpose",), 3),
    # -- images
    ("convolutions-of-sums", f"value x y [n, h, w, c]\nvalue k [r, g, c, o]{_WINDOW}",
     (_CONV, "add sub neg concat"), 3),
    ("convolutions-by-sums", f"value x [n, h, w, c]\nvalue k l [r, g, c, o]{_WINDOW}",
     (_CONV, "add sub neg concat"), 3),
    ("scaled-convolutions", f"value x [n, h, w, c]\nvalue k [r, g, c, o]\nvalue f []{_WINDOW}",
     (_CONV, "mul neg add"), 3),
    ("convolutions-to-scaled", f"value x [n, h, w, c]\nvalue k [r, g, c, o]\nvalue f [o]{_WINDOW}",
     (_CONV, "mul neg add"), 3),
    ("joined-convolutions",
     f"value x [n, h, w, c]\nvalue k [r, g, c, o]\nvalue l [r, g, c, b]{_WINDOW}",
     (_CONV, "concat slice relu neg"), 3),
    ("grouped-convolutions", f"value x y [n, h, w, c]\nvalue k [r, g, c, o]{_WINDOW}",
     (_CONV, _GROUPED, "concat add"), 3),
    ("padded-convolutions", f"value x [n, h, w, c]\nvalue k [r, g, c, o]{_WINDOW}",
     (_CONV, "pad neg relu"), 3),
    ("pointwise-convolutions", "value x [n, h, w, c]\nvalue k [1, 1, c, b]\nvalue l [1, 1, b, o]",
     (_POINT, "matmul places_mean places_sum neg"), 3),
    ("pointwise-of-sums", "value x y [n, h, w, c]\nvalue k [1, 1, c, o]",
     (_POINT, "add sub neg concat places_mean"), 3),
    ("resized", f"value x y [n, h, w, c]{_SIZES}",
     ("nearest add sub mul neg concat",), 3),
    ("resized-linear", f"value x y [n, h, w, c]{_SIZES}", ("linear add sub neg concat",), 3),
    ("resized-convolutions", f"value x [n, h, w, c]\nvalue k l [1, 1, c, o]{_SIZES}",
     (_POINT, "nearest linear add neg"), 3),
    ("resized-channels", f"value x y [n, h, w, c]\nvalue f [c]{_SIZES}",
     ("nearest linear add mul",), 3),
    ("means", f"value x y [n, h, w, c]{_POOL}", (_MEANS, "add sub neg concat"), 3),
    ("means-of-channels", f"value x [n, h, w, c]\nvalue f [c]\nvalue g []{_POOL}",
     (_MEANS, "add mul neg"), 3),
    ("means-of-convolutions", f"value x [n, h, w, c]\nvalue k l [1, 1, c, o]{_POOL}",
     (_MEANS, _POINT, "add neg"), 3),
    ("largest", f"value x y [n, h, w, c]{_POOL}", (_LARGEST, "max relu concat"), 3),
    ("largest-of-channels", f"value x [n, h, w, c]\nvalue f [c]{_POOL}",
     (_LARGEST, "add relu"), 3),
)  # fmt: skip


def themes() -> Iterator[Theme]:
    """All of them, in order."""
    for name, header, operators, most in _THEMES:
        yield Theme(
            name=name, header=parse_header(header, name), most=most,
            operators=tuple(o for text in operators for o in _operators(text)),
            cuts=(("m", "i"),) if header.endswith(_CUT) else (),
        )  # fmt: skip


def _operators(text: str) -> Iterator[TriedOperator]:
    if "(" in text:
        yield fixed(text)
    else:
        yield from (OPERATORS[word] for word in text.split())
