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
_EACH = "conv2d(_, _, pads=(t, l, u, v), strides=(i, j), dilations=(d, e), groups=c)"
_POINT = "conv2d(_, _)"
_POOL = "\nattribute p q i j in 1..2"
_MEANS = "avg_pool2d(_, kernel=(p, q), strides=(i, j))"
_LARGEST = "max_pool2d(_, kernel=(p, q), strides=(i, j))"
_SIZES = """
    attribute p q in 1..6
    attribute at in half_pixel pytorch_half_pixel asymmetric align_corners
    attribute near in round_prefer_floor round_prefer_ceil floor ceil"""
_ZEROS = "\nattribute t l u v in 0..1"
_CUT = "\nattribute part in 1..3\ndraw m = part + 1\nwhere 0 < part < m"
_AROUND = "conv2d(_, _, pads=(1, 1, 1, 1))"
_GROWN = "pad(_, pads=(1, 1, 0, 0, 1, 1, 0, 0))"
_EVERY = " ".join(FUNCTIONS)

_THEMES: tuple[tuple[str, str, tuple[str, ...], int], ...] = (
    # -- elementwise
    ("sums", "value x y z [*s]", ("add sub mul neg",), 4),
    ("extremes", "value x y z [*s]", ("relu max min",), 4),
    # -- data that move
    ("functions-turned", "value x [*s, m, n]", (_EVERY, "transpose"), 4),
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
    ("joined", "value x [*s, m]\nvalue y [*s, n]\nvalue z [*s, k]", ("concat slice relu neg",), 4),
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
     ("matmul neg",), 4),
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
    ("softmaxes-cut", f"value x [*s, m, n]{_CUT}", ("softmax log_softmax slice neg",), 2),
    ("rows-of-images", "value x [n, h, w, c]\nvalue f b [c]",
     ("softmax log_softmax layer_norm rms_norm reshape",), 2),
    ("softmaxes-of-heads", "value x [*s, m, n]\nvalue y [*s, k, n]",
     ("softmax log_softmax concat slice",), 4),
    ("norms", "value x [m, n]\nvalue y [k, n]\nvalue f b [n]",
     ("layer_norm concat slice add neg",), 2),
    ("norms-cut", f"value x [*s, m, n]\nvalue f b [n]{_CUT}",
     ("layer_norm rms_norm slice neg",), 2),
    ("norms-by-scales", "value x [*s, m]\nvalue f b g [m]", ("layer_norm mul add neg",), 2),
    ("norms-by-numbers", "value x [*s, m]\nvalue f b [m]\nvalue g []",
     ("layer_norm mul neg",), 2),
    ("scaled-norms", "value x [*s, m]\nvalue f g [m]\nvalue h []", ("rms_norm mul neg",), 3),
    ("scaled-norms-joined", "value x [*s, m, n]\nvalue y [*s, k, n]\nvalue f [n]",
     ("rms_norm concat mul neg",), 3),
    ("norms-of-heads", "value x [*s, m, n]\nvalue y [*s, k, n]\nvalue f b [n]",
     ("layer_norm concat slice add neg",), 2),
    ("reduced", "value x y [*s, m, n]", ("reduce_sum reduce_mean add sub neg",), 4),
    ("reduced-extremes", "value x y [*s, m, n]", ("reduce_max reduce_min max min neg relu",), 4),
    ("reduced-turned", "value x [*s, m, n]",
     ("reduce_sum reduce_mean reduce_max reduce_min transpose neg relu",), 4),
    ("reduced-reshaped", "value x [m, n]",
     ("reduce_sum reduce_mean reduce_max reduce_min reshape transpose neg",), 2),
    ("reduced-joined", "value x [*s, m, n]\nvalue y [*s, k, n]",
     ("reduce_sum reduce_mean concat add neg",), 4),
    ("reduced-joined-extremes", "value x [*s, m, n]\nvalue y [*s, k, n]",
     ("reduce_max reduce_min concat max min",), 2),
    ("reduced-cut", f"value x [*s, m, n]{_CUT}",
     ("reduce_sum reduce_mean reduce_max reduce_min slice neg",), 2),
    ("reduced-scaled", "value x y [*s, m]\nvalue f []",
     ("reduce_sum reduce_mean mul add neg",), 2),
    ("reduced-columns", "value x [*s, m, n]\nvalue f [n]",
     ("reduce_sum reduce_mean reduce_max reduce_min mul add neg",), 2),
    ("reduced-products", "value a [*s, m, k]\nvalue b [*s, k, n]",
     ("matmul reduce_sum reduce_mean neg transpose",), 3),
    ("reduced-layers", "value a [*s, m, k]\nvalue c [k, n]",
     ("matmul reduce_sum reduce_mean neg relu",), 3),
    ("reduced-places", "value x y [n, h, w, c]", ("places_sum places_mean add neg concat",), 2),
    ("reduced-places-extremes", "value x y [n, h, w, c]",
     ("places_max places_min max min relu neg",), 2),
    # -- images
    ("scaled-images", "value x y [n, h, w, c]\nvalue f g [c]", ("mul add sub neg",), 3),
    ("batches-of-convolutions",
     f"value x [n, h, w, c]\nvalue y [m, h, w, c]\nvalue k [r, g, c, o]{_WINDOW}",
     (_CONV, "concat slice relu neg"), 3),
    ("convolutions-cut", f"value x [n, h, w, c]\nvalue k [r, g, c, m]{_WINDOW}{_CUT}",
     (_CONV, "slice concat relu"), 3),
    ("convolutions-in-groups", f"value x y [n, h, w, c]\nvalue k p [r, g, c, o]{_WINDOW}",
     (_CONV, _GROUPED, "concat slice"), 4),
    ("windows-joined", "value x [n, h, w, c]\nvalue k [1, 1, c, o]\nvalue p [3, 3, c, b]",
     (_POINT, _AROUND, _GROWN, "concat slice"), 4),
    ("windows-added", "value x [n, h, w, c]\nvalue k [1, 1, c, o]\nvalue p [3, 3, c, o]",
     (_POINT, _AROUND, _GROWN, "add neg"), 4),
    ("branches", "value x [n, h, w, c]\nvalue k [1, 1, c, o]\nvalue l [1, 1, c, b]",
     (_POINT, "concat slice relu"), 4),
    ("convolutions-of-sums", f"value x y [n, h, w, c]\nvalue k [r, g, c, o]{_WINDOW}",
     (_CONV, "add sub neg concat"), 3),
    ("convolutions-by-sums", f"value x [n, h, w, c]\nvalue k p [r, g, c, o]{_WINDOW}",
     (_CONV, "add sub neg concat"), 3),
    ("scaled-convolutions", f"value x [n, h, w, c]\nvalue k [r, g, c, o]\nvalue f []{_WINDOW}",
     (_CONV, "mul neg add"), 3),
    ("convolutions-to-scaled", f"value x [n, h, w, c]\nvalue k [r, g, c, o]\nvalue f [o]{_WINDOW}",
     (_CONV, "mul neg add"), 3),
    ("joined-convolutions",
     f"value x [n, h, w, c]\nvalue k [r, g, c, o]\nvalue p [r, g, c, b]{_WINDOW}",
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
    ("resized-turned", f"value x y [n, c, h, w]{_SIZES}",
     ("nearest linear transpose relu add",), 3),
    ("resized-cut", f"value x [n, h, w, m]{_SIZES}{_CUT}", ("nearest linear slice relu",), 2),
    ("pools-cut", f"value x [n, h, w, m]{_POOL}{_CUT}", (_MEANS, _LARGEST, "slice relu neg"), 2),
    ("means", f"value x y [n, h, w, c]{_POOL}", (_MEANS, "add sub neg concat"), 3),
    ("means-of-channels", f"value x [n, h, w, c]\nvalue f [c]\nvalue g []{_POOL}",
     (_MEANS, "add mul neg"), 3),
    ("means-of-convolutions", f"value x [n, h, w, c]\nvalue k l [1, 1, c, o]{_POOL}",
     (_MEANS, _POINT, "add neg"), 3),
    ("largest", f"value x y [n, h, w, c]{_POOL}", (_LARGEST, "max relu concat"), 3),
    ("largest-of-channels", f"value x [n, h, w, c]\nvalue f [c]{_POOL}",
     (_LARGEST, "add relu"), 4),
)  # fmt: skip
_FURTHER: tuple[tuple[str, str, tuple[str, ...], int], ...] = (
    # -- factors and terms of fewer elements
    ("numbers", "value x y [*s]\nvalue f []", ("add mul neg",), 3),
    ("two-numbers", "value x [*s]\nvalue f g []", ("add mul neg",), 3),
    ("columns", "value x y [*s, m]\nvalue f [m]", ("add mul neg",), 3),
    ("two-columns", "value x [*s, m]\nvalue f g [m]", ("add mul neg",), 3),
    ("a-column-and-a-number", "value x [*s, m]\nvalue f [m]\nvalue g []", ("add mul",), 3),
    ("rows", "value x y [*s, m, n]\nvalue f [*s, m, 1]", ("add mul neg",), 3),
    ("two-rows", "value x [*s, m, n]\nvalue f g [*s, m, 1]", ("add mul neg",), 3),
    ("a-row-and-a-column", "value x [*s, m, n]\nvalue f [*s, m, 1]\nvalue g [n]",
     ("add mul",), 3),
    ("extremes-and-numbers", "value x y [*s]\nvalue f []", ("max add",), 3),
    ("extremes-and-columns", "value x [*s, m]\nvalue f g [m]", ("max add",), 3),
    ("numbers-turned", "value x y [*s, m, n]\nvalue f []", ("transpose add mul",), 3),
    ("numbers-reshaped", "value x y [m, n]\nvalue f []", ("reshape add mul",), 3),
    ("numbers-joined", "value x [*s, m]\nvalue y [*s, n]\nvalue f []",
     ("concat add mul",), 3),
    ("columns-joined", "value x [*s, m, n]\nvalue y [*s, k, n]\nvalue f [n]",
     ("concat add mul",), 3),
    ("numbers-cut", f"value x y [*s, m]\nvalue f []{_CUT}", ("slice add mul",), 3),
    ("numbers-padded", f"value x y [m, n]\nvalue f []{_ZEROS}", ("pad mul neg",), 3),
    ("numbers-resized", f"value x y [n, h, w, c]\nvalue f []{_SIZES}",
     ("nearest add mul",), 3),
    ("reduced-rows", "value x y [*s, m, n]\nvalue f [*s, m, 1]",
     ("reduce_sum reduce_mean reduce_max mul add",), 3),
    ("reduced-numbers", "value x y [*s, m, n]\nvalue f []",
     ("reduce_sum reduce_mean reduce_max mul add",), 3),
    ("reduced-places-scaled", "value x [n, h, w, c]\nvalue f [c]\nvalue g []",
     ("places_sum places_mean mul add neg",), 3),
    ("largest-places-of-channels", "value x [n, h, w, c]\nvalue f [c]",
     ("places_max places_min add max relu",), 3),
    ("softmaxes-of-sums", "value x [*s, m, n]\nvalue f [*s, m, 1]\nvalue g []",
     ("softmax log_softmax add",), 3),
    # -- layers
    ("scaled-layers", "value a [*s, m, k]\nvalue c [k, n]\nvalue f []",
     ("matmul mul add neg",), 3),
    ("layers-of-scaled-columns", "value a [*s, m, k]\nvalue c [k, n]\nvalue f [k]",
     ("matmul mul add",), 3),
    ("layers-to-scaled-columns", "value a [*s, m, k]\nvalue c [k, n]\nvalue f [n]",
     ("matmul mul add",), 3),
    ("layers-of-scaled-rows", "value a [*s, m, k]\nvalue c [k, n]\nvalue f [*s, m, 1]",
     ("matmul mul add",), 3),
    ("layers-of-joined", "value a [*s, m, k]\nvalue b [*s, m, j]\nvalue c [k, n]\nvalue d [j, n]",
     ("matmul concat add",), 3),
    ("layers-of-images", f"value x [n, h, w, c]\nvalue k [c, o]{_SIZES}",
     ("matmul nearest linear places_mean places_sum",), 3),
    ("layers-of-means", f"value x [n, h, w, c]\nvalue k [c, o]{_POOL}",
     ("matmul", _MEANS, "add neg"), 3),
    ("layers-of-images-and-biases", f"value x [n, h, w, c]\nvalue k [c, o]\nvalue f [o]{_SIZES}",
     ("matmul nearest linear places_mean add",), 3),
    # -- images and numbers
    ("pointwise-by-numbers", "value x [n, h, w, c]\nvalue k [1, 1, c, o]\nvalue f []",
     (_POINT, "mul add places_mean"), 3),
    ("pointwise-to-columns", "value x [n, h, w, c]\nvalue k [1, 1, c, o]\nvalue f [o]",
     (_POINT, "mul add places_mean"), 3),
    ("pointwise-of-columns", "value x [n, h, w, c]\nvalue k [1, 1, c, o]\nvalue f [c]",
     (_POINT, "mul add places_mean"), 3),
    ("pointwise-padded", f"value x [n, h, w, c]\nvalue k l [1, 1, c, o]{_ZEROS}",
     (_POINT, "pad add neg concat"), 3),
    ("means-of-pointwise-and-biases",
     f"value x [n, h, w, c]\nvalue k [1, 1, c, o]\nvalue f [o]{_POOL}",
     (_MEANS, _POINT, "add mul"), 3),
    ("resized-by-numbers-linear", f"value x [n, h, w, c]\nvalue f [c]\nvalue g []{_SIZES}",
     ("linear mul add neg",), 3),
    ("resized-pointwise-and-biases",
     f"value x [n, h, w, c]\nvalue k [1, 1, c, o]\nvalue f [o]{_SIZES}",
     (_POINT, "nearest linear add mul"), 3),
    ("grouped-by-numbers", f"value x [n, h, w, c]\nvalue k [r, g, c, o]\nvalue f []{_WINDOW}",
     (_GROUPED, "mul add neg"), 3),
    ("grouped-to-columns", f"value x [n, h, w, c]\nvalue k [r, g, c, o]\nvalue f [o]{_WINDOW}",
     (_GROUPED, "mul add"), 3),
)  # fmt: skip

_MORE: tuple[tuple[str, str, tuple[str, ...], int], ...] = (
    # -- what nobody reads of products and images
    ("layers-cut", f"value a [*s, m, k]\nvalue c [k, n]{_CUT}", ("matmul slice relu neg",), 3),
    ("layers-to-cut", f"value a [*s, k, j]\nvalue c [j, m]{_CUT}", ("matmul slice relu neg",), 3),
    ("layers-cut-and-added", f"value a [*s, m, k]\nvalue c [k, n]\nvalue f [n]{_CUT}",
     ("matmul slice add",), 3),
    ("rows-cut-and-scaled", f"value x [*s, m, n]\nvalue f [n]{_CUT}",
     ("slice mul add relu",), 3),
    ("rows-cut-by-numbers", f"value x [*s, m, n]\nvalue f [*s, m, 1]{_CUT}",
     ("slice mul add",), 3),
    ("rows-of-images-cut", f"value x [n, m, w, c]\nvalue k [1, 1, c, o]{_CUT}",
     (_POINT, "slice relu neg"), 3),
    ("columns-of-images-cut", f"value x [n, h, m, c]\nvalue k [1, 1, c, o]{_CUT}",
     (_POINT, "slice relu neg"), 3),
    ("channels-cut", f"value x [n, h, w, m]\nvalue k [1, 1, m, o]{_CUT}",
     (_POINT, "slice add concat"), 3),
    ("images-cut", f"value x [m, h, w, c]\nvalue k [r, g, c, o]{_WINDOW}{_CUT}",
     (_CONV, "slice relu"), 2),
    ("images-cut-and-pooled", f"value x [m, h, w, c]{_POOL}{_CUT}",
     (_MEANS, _LARGEST, "slice relu"), 3),
    ("images-cut-and-resized", f"value x [m, h, w, c]{_SIZES}{_CUT}",
     ("nearest linear slice relu",), 3),
    # -- convolutions in groups
    ("sums-in-groups", f"value x y [n, h, w, c]\nvalue k [r, g, c, o]{_WINDOW}",
     (_GROUPED, "add sub neg"), 3),
    ("groups-of-batches",
     f"value x [n, h, w, c]\nvalue y [m, h, w, c]\nvalue k [r, g, c, o]{_WINDOW}",
     (_GROUPED, "concat relu"), 3),
    ("groups-padded", f"value x [n, h, w, c]\nvalue k [r, g, c, o]{_WINDOW}",
     (_GROUPED, "pad neg relu"), 3),
    ("sums-by-channel", f"value x y [n, h, w, c]\nvalue k [r, g, 1, c]{_WINDOW}",
     (_EACH, "add sub neg"), 3),
    ("windows-by-channel", f"value x [n, h, w, c]\nvalue k p [r, g, 1, c]{_WINDOW}",
     (_EACH, "add sub neg"), 3),
    ("scales-by-channel", f"value x [n, h, w, c]\nvalue k [r, g, 1, c]\nvalue f [c]{_WINDOW}",
     (_EACH, "mul add"), 3),
    ("numbers-by-channel", f"value x [n, h, w, c]\nvalue k [r, g, 1, c]\nvalue f []{_WINDOW}",
     (_EACH, "mul add neg"), 3),
    ("padded-by-channel", f"value x [n, h, w, c]\nvalue k [r, g, 1, c]{_WINDOW}",
     (_EACH, "pad neg"), 3),
    ("batches-by-channel",
     f"value x [n, h, w, c]\nvalue y [m, h, w, c]\nvalue k [r, g, 1, c]{_WINDOW}",
     (_EACH, "concat relu"), 3),
    # -- means and sums of what is made
    ("means-of-images-resized", f"value x y [n, h, w, c]{_SIZES}",
     ("nearest linear places_mean places_sum add",), 3),
    ("means-of-padded", f"value x y [n, h, w, c]{_ZEROS}",
     ("pad places_sum places_max relu add",), 3),
    ("means-of-windows", f"value x y [n, h, w, c]{_POOL}",
     (_MEANS, "add mul relu"), 3),
    # -- products of joined and repeated values
    ("products-with-joined", "value a [*s, m, k]\nvalue b [*s, n, k]\nvalue c [*s, j, k]",
     ("matmul concat transpose relu",), 3),
    ("products-by-joined", "value a [*s, m, k]\nvalue b [*s, m, j]\nvalue c [k, n]",
     ("matmul concat slice",), 3),
    ("scaled-products-by-two", "value a [*s, m, k]\nvalue b [*s, k, n]\nvalue f [*s, m, 1]",
     ("matmul mul neg relu",), 3),
    ("pointwise-turned", "value x [n, c, h, w]\nvalue k [1, 1, c, o]",
     (_POINT, "transpose relu places_mean"), 3),
)  # fmt: skip


CHAPTERS = tuple(tuple(name for name, *_ in chapter) for chapter in (_THEMES, _FURTHER, _MORE))
"""Names of themes by what is found first: it prunes the chapters behind it, none before, so that
what a chapter gives stays as it is where another is added."""


def themes() -> Iterator[Theme]:
    """All of them, in order."""
    for name, header, operators, most in (*_THEMES, *_FURTHER, *_MORE):
        yield Theme(
            name=name, header=parse_header(header, name), most=most,
            operators=tuple(o for text in operators for o in _operators(text)),
            cuts=(("m", "part"),) if header.endswith(_CUT) else (),
        )  # fmt: skip


def _operators(text: str) -> Iterator[TriedOperator]:
    if "(" in text:
        yield fixed(text)
    else:
        yield from (OPERATORS[word] for word in text.split())
