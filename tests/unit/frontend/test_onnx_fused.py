"""What ONNX Runtime's optimizer writes computes what onnxruntime computes of it."""

from __future__ import annotations

from typing import Any

import numpy as np
import onnx
import pytest
from onnx import helper, numpy_helper

from autotune.errors import ModelError, UnsupportedOpError
from tests.unit.frontend.onnx_models import check, floats, imported, ints, nodes_model

Inputs = list[Any]
"""Arrays in order, None where one is left out."""
X, IMAGE = floats(2, 5, 32), floats(1, 4, 8, 8)
WEIGHTS, BIAS, WINDOW = floats(32, 96, seed=1), floats(96, seed=2), floats(6, 4, 3, 3, seed=3)
QUERY, KEY, VALUE = floats(2, 5, 32, seed=4), floats(2, 7, 32, seed=5), floats(2, 7, 32, seed=6)
COSINES, SINES = floats(32, 8, seed=7), floats(32, 8, seed=8)
NORM = (floats(32, seed=9), floats(32, seed=10), floats(32, seed=11))
HEADS, GROUPS = {"num_heads": 4}, {"num_heads": 4, "kv_num_heads": 2}
SAME = {"pads": [1, 1, 1, 1]}


def i4(*values: Any) -> Any:
    return np.array(values, np.int32)


def whole(dtype: str, *shape: int) -> Any:
    info = np.iinfo(dtype)
    generator = np.random.default_rng(0)
    return generator.integers(info.min, info.max, shape, endpoint=True).astype(dtype)


def one(value: float, dtype: str = "float32") -> Any:
    return np.array(value, dtype)


MASK = i4([1, 1, 1, 0, 0], [1] * 5)
LOWER = np.tril(np.ones((2, 5, 5), np.int32))
WORDS, SEGMENTS = whole("uint8", 2, 5).astype(np.int32) % 9, MASK
TABLES: Inputs = [floats(10, 32), floats(16, 32, seed=1), floats(2, 32, seed=2)]
STEP: Inputs = [floats(1, 1, 64), floats(1, 1, 32, seed=1), floats(1, 1, 32, seed=2),
                floats(1, 2, 7, 16, seed=3), floats(1, 2, 7, 16, seed=4)]  # fmt: skip
PROMPT: Inputs = [floats(1, 6, 64), floats(1, 6, 32, seed=1), floats(1, 6, 32, seed=2), None, None]
BUFFER: Inputs = [*STEP[:3], floats(1, 2, 12, 16), floats(1, 2, 12, 16, seed=1)]
PAIR: Inputs = [np.concatenate([x, 2 * x]) for x in STEP]
DATA = whole("uint8", 2, 5, 32)

# name -> (operator, inputs, those that are constants, outputs, attributes)
CASES: dict[str, tuple[str, Inputs, tuple[int, ...], list[str], dict[str, Any]]] = {
    "gelu": ("Gelu", [X], (), ["y"], {}),
    "bias gelu": ("BiasGelu", [X, NORM[0]], (1,), ["y"], {}),
    "fast gelu": ("FastGelu", [X], (), ["y"], {}),
    "fast gelu bias": ("FastGelu", [X, NORM[0]], (1,), ["y"], {}),
    "quick gelu": ("QuickGelu", [X], (), ["y"], {"alpha": 1.5}),
    "conv sum": ("FusedConv", [IMAGE, WINDOW, floats(6), floats(1, 6, 8, 8)], (1, 2), ["y"],
                 {"activation": "Relu", **SAME}),
    "conv clip": ("FusedConv", [IMAGE, WINDOW], (1,), ["y"],
                  {"activation": "Clip", "activation_params": [0.0, 6.0], **SAME}),
    "conv leaky": ("FusedConv", [IMAGE, WINDOW], (1,), ["y"],
                   {"activation": "LeakyRelu", "activation_params": [0.2]}),
    "conv hard sigmoid": ("FusedConv", [IMAGE, WINDOW], (1,), ["y"],
                          {"activation": "HardSigmoid", "activation_params": [0.1, 0.4]}),
    "gemm leaky": ("FusedGemm", [floats(3, 8), floats(8, 5), floats(5)], (1, 2), ["y"],
                   {"activation": "LeakyRelu", "activation_alpha": 0.3, "alpha": 0.5}),
    "gemm relu": ("FusedGemm", [floats(3, 8), floats(8, 5), floats(5)], (1, 2), ["y"],
                  {"activation": "Relu"}),
    "matmul": ("FusedMatMul", [floats(2, 3, 8), floats(2, 5, 8)], (), ["y"],
               {"alpha": 0.125, "transB": 1}),
    "matmul batch": ("FusedMatMul", [floats(8, 2, 3), floats(2, 8, 5)], (), ["y"],
                     {"transA": 1, "transBatchA": 1}),
    "skip norm": ("SkipLayerNormalization", [X, 2 * X[:1], *NORM], (2, 3, 4),
                  ["y", "", "", "sum"], {"epsilon": 1e-5}),
    "skip norm alone": ("SkipLayerNormalization", [X, X, NORM[0]], (2,), ["y"], {}),
    "skip rms": ("SkipSimplifiedLayerNormalization", [X, 2 * X, *NORM[:2]], (2, 3),
                 ["y", "", "", "sum"], {"epsilon": 1e-5}),
    "embedding": ("EmbedLayerNormalization", [WORDS, SEGMENTS, *TABLES, *NORM[:2], MASK],
                  (2, 3, 4, 5, 6), ["y", "kept", "sum"], {}),
    "embedding places": ("EmbedLayerNormalization",
                         [WORDS, None, *TABLES[:2], None, *NORM[:2], None, WORDS + 1],
                         (2, 3, 5, 6), ["y", "kept"], {}),
    "attention": ("Attention", [X, WEIGHTS, BIAS], (1, 2), ["y"], HEADS),
    "attention mask": ("Attention", [X, WEIGHTS, BIAS, MASK], (1, 2), ["y"], HEADS),
    "attention ends": ("Attention", [X, WEIGHTS, BIAS, i4(3, 5)], (1, 2), ["y"], HEADS),
    "attention starts": ("Attention", [X, WEIGHTS, BIAS, i4(3, 5, 1, 0)], (1, 2), ["y"], HEADS),
    "attention rows": ("Attention", [X, WEIGHTS, BIAS, LOWER], (1, 2), ["y"], HEADS),
    "attention past": ("Attention", [X, WEIGHTS, BIAS, None, floats(2, 2, 4, 3, 8)], (1, 2),
                       ["y", "present"], {"unidirectional": 1, **HEADS}),
    "attention bias": ("Attention", [X, WEIGHTS, BIAS, None, None, floats(2, 4, 5, 5)], (1, 2),
                       ["y"], {"scale": 0.3, **HEADS}),
    "attention sizes": ("Attention", [X, WEIGHTS[:, :80], BIAS[:80]], (1, 2), ["y"],
                        {"qkv_hidden_sizes": [32, 32, 16], **HEADS}),
    "heads": ("MultiHeadAttention", [QUERY, KEY, VALUE, BIAS], (3,), ["y"], HEADS),
    "heads mask": ("MultiHeadAttention", [QUERY, KEY, VALUE, None, i4(4, 7)], (), ["y"], HEADS),
    "heads bias": ("MultiHeadAttention", [QUERY, KEY, VALUE, None, None, floats(1, 4, 5, 7)], (),
                   ["y"], HEADS),
    "heads apart": ("MultiHeadAttention",
                    [QUERY, floats(2, 4, 7, 8), floats(2, 4, 7, 8, seed=1), BIAS], (3,), ["y"],
                    HEADS),
    "heads past": ("MultiHeadAttention",
                   [QUERY, QUERY, 2 * QUERY, None, None, None, floats(2, 4, 3, 8),
                    floats(2, 4, 3, 8, seed=1)],
                   (), ["y", "k", "v"], {"unidirectional": 1, **HEADS}),
    "rotary": ("RotaryEmbedding", [floats(2, 5, 64), ints(*range(10)).reshape(2, 5), COSINES,
                                   SINES], (2, 3), ["y"], {}),
    "rotary from": ("RotaryEmbedding", [floats(2, 4, 5, 16), ints(3), COSINES, SINES], (2, 3),
                    ["y"], {"interleaved": 1}),
    "rotary part": ("RotaryEmbedding", [floats(2, 4, 5, 24), ints(3), COSINES, SINES], (2, 3),
                    ["y"], {"num_heads": 4, "rotary_embedding_dim": 16}),
    "groups": ("GroupQueryAttention", [*PROMPT, i4(5), one(6, "int32")], (6,),
               ["y", "k", "v"], GROUPS),
    "groups step": ("GroupQueryAttention", [*STEP, i4(7), one(8, "int32"), COSINES, SINES],
                    (6, 7, 8), ["y", "k", "v"], {"do_rotary": 1, **GROUPS}),
    "groups buffer": ("GroupQueryAttention", [*BUFFER, i4(7), one(8, "int32")], (6,),
                      ["y", "k", "v"], {"softcap": 5.0, **GROUPS}),
    "groups batch": ("GroupQueryAttention", [*PAIR, i4(7, 4), one(8, "int32")], (6,),
                     ["y", "k", "v"], {"local_window_size": 3, **GROUPS}),
    "groups packed": ("GroupQueryAttention",
                      [floats(1, 3, 128), None, None, *STEP[3:], i4(9), one(10, "int32"), COSINES,
                       SINES], (6, 7, 8), ["y", "k", "v"],
                      {"do_rotary": 1, "rotary_interleaved": 1, **GROUPS}),
    "groups bias": ("GroupQueryAttention",
                    [*STEP, i4(7), one(8, "int32"), None, None, None, floats(1, 4, 1, 8)], (6,),
                    ["y", "k", "v"], GROUPS),
    "bits": ("MatMulNBits", [floats(2, 3, 80), whole("uint8", 20, 3, 16), floats(60)], (1, 2),
             ["y"], {"K": 80, "N": 20, "bits": 4, "block_size": 32}),
    "bits zeros": ("MatMulNBits",
                   [floats(3, 80), whole("uint8", 20, 3, 16), floats(60), whole("uint8", 20, 2),
                    None, floats(20)],
                   (1, 2, 3, 5), ["y"], {"K": 80, "N": 20, "bits": 4, "block_size": 32}),
    "bits of a row": ("MatMulNBits",
                      [floats(1, 1, 96), whole("uint8", 20, 3, 16), floats(60), None, None,
                       floats(20)],
                      (1, 2, 5), ["y"], {"K": 96, "N": 20, "bits": 4, "block_size": 32}),
    "bits of rows, zeros": ("MatMulNBits",
                            [floats(2, 2, 96), whole("uint8", 20, 3, 16), floats(60),
                             whole("uint8", 20, 2)],
                            (1, 2, 3), ["y"], {"K": 96, "N": 20, "bits": 4, "block_size": 32}),
    "bytes of a row": ("MatMulNBits",
                       [floats(1, 96), whole("uint8", 20, 3, 32), floats(60),
                        whole("uint8", 20, 3)],
                       (1, 2, 3), ["y"], {"K": 96, "N": 20, "bits": 8, "block_size": 32}),
    "bytes": ("MatMulNBits", [floats(3, 80), whole("uint8", 20, 3, 32), floats(60)], (1, 2),
              ["y"], {"K": 80, "N": 20, "bits": 8, "block_size": 32}),
    "quantized matmul": ("DynamicQuantizeMatMul",
                         [X, whole("uint8", 32, 6), one(0.02), one(3, "uint8"), floats(6)],
                         (1, 2, 3, 4), ["y"], {}),
    "integers to floats": ("MatMulIntegerToFloat",
                           [DATA, whole("int8", 32, 6), one(0.02), floats(6), one(3, "uint8"),
                            np.zeros(6, np.int8), floats(6)],
                           (1, 2, 3, 4, 5, 6), ["y"], {}),
    "quantized attention": ("QAttention",
                            [DATA, whole("int8", 32, 96), BIAS, one(0.02), one(0.01), i4(3, 5),
                             one(100, "uint8"), one(0, "int8")],
                            (1, 2, 3, 4, 6, 7), ["y"], HEADS),
}  # fmt: skip


def model_of(
    op: str, inputs: Inputs, constants: tuple[int, ...], outputs: list[str], attrs: dict[str, Any]
) -> tuple[onnx.ModelProto, dict[str, Any]]:
    """(a model of one node, what its other inputs are given)."""
    domain = "" if op.startswith("Simplified") else "com.microsoft"
    names = ["" if x is None else f"i{k}" for k, x in enumerate(inputs)]
    node = helper.make_node(op, names, outputs, name="node", domain=domain, **attrs)
    given = {n: x for k, (n, x) in enumerate(zip(names, inputs, strict=True)) if n}
    tensors = [numpy_helper.from_array(given.pop(names[k]), names[k]) for k in constants]
    return nodes_model([node], given, tensors, [o for o in outputs if o]), given


@pytest.mark.parametrize("name", CASES)
def test_operators_are_those_of_onnxruntime(name: str) -> None:
    model, feeds = model_of(*CASES[name])
    check(model, feeds, 2e-5)


def test_simplified_layer_norms_have_no_domain() -> None:
    inputs = [X, NORM[0]]
    check(*model_of("SimplifiedLayerNormalization", inputs, (1,), ["y"], {"axis": -1}))


REFUSED: dict[str, tuple[str, Inputs, tuple[int, ...], dict[str, Any], str]] = {
    "activation": ("FusedConv", [IMAGE, WINDOW], (1,), {"activation": "Cube"}, "Cube"),
    "switch": ("Attention", [X, WEIGHTS, BIAS], (1, 2), {"do_rotary": 1, **HEADS}, "do_rotary"),
    "mask": ("Attention", [X, WEIGHTS, BIAS, i4(*range(8))], (1, 2), HEADS, "mask of shape"),
    "packed": ("MultiHeadAttention", [floats(2, 5, 4, 3, 8)], (), HEADS, "packed"),
    "total": ("GroupQueryAttention", [*STEP, i4(7), i4(8)], (), GROUPS, "must be a constant"),
    "sink": ("GroupQueryAttention", [*PROMPT, i4(5), one(6, "int32")], (6,),
             {"smooth_softmax": 1, **GROUPS}, "sinks"),
    "order": ("MatMulNBits", [floats(3, 32), whole("uint8", 20, 1, 16), floats(20), None,
                              i4(*range(32))], (1, 2, 4), {"K": 32, "N": 20}, "g_idx"),
    "three bits": ("MatMulNBits", [floats(3, 32), whole("uint8", 20, 1, 12), floats(20)], (1, 2),
                   {"K": 32, "N": 20, "bits": 3}, "3 bits"),
    "deviation": ("SkipLayerNormalization", [X, X, NORM[0]], (2,), {}, "deviation"),
}  # fmt: skip


@pytest.mark.parametrize("name", REFUSED)
def test_what_is_not_supported_is_one_line(name: str) -> None:
    op, inputs, constants, attrs, words = REFUSED[name]
    outputs = ["y", "mean"] if name == "deviation" else ["y"]
    model, _ = model_of(op, inputs, constants, outputs, attrs)
    with pytest.raises(UnsupportedOpError, match=words):
        imported(model)


def test_rotary_tables_must_fit() -> None:
    model, _ = model_of("RotaryEmbedding", [floats(2, 4, 5, 24), ints(3), COSINES, SINES], (2, 3),
                        ["y"], {"num_heads": 4, "rotary_embedding_dim": 8})  # fmt: skip
    with pytest.raises(ModelError, match="rotary_embedding_dim 8"):
        imported(model)
