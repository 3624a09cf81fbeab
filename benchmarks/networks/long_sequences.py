"""Models with long sequences, for `benchmarks/peers.py`: layers in which attention is the most.

    python benchmarks/networks/long_sequences.py build/long 1024 4096
    python benchmarks/peers.py build/long/*.onnx --rounds 5

For every number of tokens writes encoder_N.onnx, a BERT layer of 12 heads of 64, and
causal_N.onnx, attention alone under a constant causal mask, as PyTorch exports it.
"""

from __future__ import annotations

import argparse
import sys
from pathlib import Path

import numpy as np
import onnx

sys.path.insert(0, str(Path(__file__).resolve().parents[2]))

from autotune.frontend.zoo.base import Network
from autotune.frontend.zoo.transformers import Encoder, encoder

HEADS, DEPTH = 12, 64
WIDTH = HEADS * DEPTH


def layer(tokens: int) -> onnx.ModelProto:
    """Projections, attention and feed-forward, with a mask over the tokens."""
    sizes = Encoder(
        layers=1, width=WIDTH, heads=HEADS, inner=4 * WIDTH, sequence=tokens, vocabulary=1000
    )
    return encoder(f"encoder_{tokens}", sizes)


def causal(tokens: int) -> onnx.ModelProto:
    """softmax(q k + mask) v, heads side by side in memory."""
    net = Network(f"causal_{tokens}")
    split = net.integers(1, tokens, HEADS, DEPTH)

    def heads(name: str, perm: list[int]) -> str:
        given = net.input(name, np.float32, (1, tokens, WIDTH))
        scaled = net.op("Mul", given, net.constant(DEPTH**-0.25)) if name != "v" else given
        return net.op("Transpose", net.op("Reshape", scaled, split), perm=perm)

    scores = net.op("MatMul", heads("q", [0, 2, 1, 3]), heads("k", [0, 2, 3, 1]))
    mask = np.where(np.tril(np.ones((tokens, tokens), bool)), 0, -np.inf).astype(np.float32)
    weights = net.op("Softmax", net.op("Add", scores, net.constant(mask)), axis=-1)
    mixed = net.op("MatMul", weights, heads("v", [0, 2, 1, 3]))
    merged = net.op("Transpose", mixed, perm=[0, 2, 1, 3])
    whole = net.op("Reshape", merged, net.integers(1, tokens, WIDTH))
    return net.finish({"y": (whole, (1, tokens, WIDTH))})


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("folder", type=Path)
    parser.add_argument("tokens", nargs="*", type=int, default=[1024, 4096])
    options = parser.parse_args()
    options.folder.mkdir(parents=True, exist_ok=True)
    for tokens in options.tokens:
        for model in (layer(tokens), causal(tokens)):
            onnx.save(model, str(options.folder / f"{model.graph.name}.onnx"))
    return 0


if __name__ == "__main__":
    sys.exit(main())
