"""Decoders as PyTorch's exporter writes those of transformers, sizes open, beside ONNX Runtime.

    python benchmarks/sizes/exported_decoders.py [llama gpt2] [--width 512] [--layers 2] [--bits 4]
        [--prompt 128] [--tokens 40] [--folder build/decoders]

Needs the extras [bench] and [torch], and transformers. Weights are random under a seed. Nothing is
said of sizes: one program serves prompts, tokens and empty keys and values. Prints, as a table in
Markdown, the seconds of the compile, and milliseconds on one thread, ours and ONNX Runtime's in
turns: a prompt with nothing before it, a token with keys and values as inputs and outputs, a token
in a session of ours, which keeps them; medians. Every call's error is over the largest value.
"""

from __future__ import annotations

import argparse
import statistics
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np

sys.path.insert(0, str(Path(__file__).resolve().parents[2]))

VOCABULARY, HEAD = 4096, 64
Arrays = dict[str, Any]


def config(kind: str, width: int, layers: int) -> Any:
    import transformers

    heads = width // HEAD
    if kind == "gpt2":
        return transformers.GPT2Config(
            vocab_size=VOCABULARY, n_embd=width, n_layer=layers, n_head=heads
        )
    return transformers.LlamaConfig(
        vocab_size=VOCABULARY, hidden_size=width, intermediate_size=width * 11 // 4 // 64 * 64,
        num_hidden_layers=layers, num_attention_heads=heads,
        num_key_value_heads=max(1, heads // 4),
    )  # fmt: skip


def write(kind: str, path: Path, options: argparse.Namespace) -> None:
    import torch
    import transformers
    from transformers.cache_utils import DynamicCache

    torch.manual_seed(0)
    made = config(kind, options.width, options.layers)
    model = transformers.AutoModelForCausalLM.from_config(made).eval()

    class Decoder(torch.nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.model = model

        def forward(self, ids: Any, mask: Any, *past: Any) -> tuple[Any, ...]:
            cache = DynamicCache()
            for layer in range(options.layers):
                cache.update(past[2 * layer], past[2 * layer + 1], layer)
            out = self.model(ids, attention_mask=mask, past_key_values=cache, use_cache=True)
            rows = (row for each in out.past_key_values.layers for row in (each.keys, each.values))
            return (out.logits, *rows)

    heads = getattr(made, "num_key_value_heads", made.num_attention_heads)
    past = [torch.randn(1, heads, 5, HEAD) for _ in range(2 * options.layers)]
    old = [f"past.{layer}.{part}" for layer in range(options.layers) for part in "kv"]
    new = [name.replace("past", "present") for name in old]
    ids, mask = torch.randint(0, VOCABULARY, (1, 3)), torch.ones(1, 8, dtype=torch.long)
    with torch.no_grad():
        torch.onnx.export(
            Decoder().eval(), (ids, mask, *past), path, dynamo=False, opset_version=17,
            input_names=["ids", "mask", *old], output_names=["logits", *new],
            dynamic_axes={"ids": {1: "S"}, "mask": {1: "T"}}
            | {name: {2: "P"} for name in old} | {name: {2: "T"} for name in new},
        )  # fmt: skip


def in_few_bits(path: Path, bits: int) -> Path:
    """The model with weights in blocks of so many bits."""
    import onnx
    from onnxruntime.quantization.matmul_nbits_quantizer import MatMulNBitsQuantizer

    out = path.with_suffix(f".{bits}.onnx")
    made = MatMulNBitsQuantizer(onnx.load(path), bits=bits, block_size=32, is_symmetric=True)
    made.process()
    made.model.save_model_to_file(str(out))
    return out


class Run:
    """A model on both sides, and how long calls took."""

    def __init__(self, path: Path) -> None:
        import onnxruntime

        import autotune

        begin = time.perf_counter()
        self.ours = autotune.compile(path)
        self.compile_s = time.perf_counter() - begin
        settings = onnxruntime.SessionOptions()
        settings.intra_op_num_threads = 1
        self.theirs = onnxruntime.InferenceSession(
            path, settings, providers=["CPUExecutionProvider"]
        )
        self.names = [out.name for out in self.theirs.get_outputs()]
        self.state = {n: n.replace("past", "present") for n in self.ours.inputs if "past" in n}
        self.error = 0.0
        self.ms: dict[str, list[float]] = {}

    def empty(self) -> Arrays:
        shapes = {name: self.ours.inputs[name].shape for name in self.state}
        return {
            name: np.zeros([n if isinstance(n, int) else 0 for n in shape], np.float32)
            for name, shape in shapes.items()
        }

    def timed(self, what: str, call: Callable[[], Any]) -> Any:
        begin = time.perf_counter()
        out = call()
        self.ms.setdefault(what, []).append((time.perf_counter() - begin) * 1e3)
        return out

    def step(self, ids: Any, past: Arrays, session: Any, prompt: bool) -> Arrays:
        """One call of each way; the keys and values that it made."""
        what = "prompt" if prompt else "token"
        length = next(iter(past.values())).shape[2] + ids.shape[1]
        feeds = {"ids": ids, "mask": np.ones((1, length), np.int64)}
        want = self.timed(f"{what}, theirs", lambda: self.theirs.run(None, feeds | past))
        wanted = dict(zip(self.names, want, strict=True))
        found = self.timed(what, lambda: self.ours.run(feeds | past))
        kept = self.timed(f"{what}, session", lambda: session.run(feeds))
        for name, array in [*found.items(), *kept.items()]:
            largest = np.abs(wanted[name]).max()
            self.error = max(self.error, float(np.abs(array - wanted[name]).max() / largest))
        return {name: wanted[then] for name, then in self.state.items()}

    def row(self, prompt: int, tokens: int) -> list[str]:
        rng = np.random.default_rng(0)
        for _ in range(2):  # the first time everything is met for the first time
            self.ms.clear()
            with self.ours.session(self.state) as session:
                past = self.step(
                    rng.integers(0, VOCABULARY, (1, prompt)), self.empty(), session, True
                )
                for _ in range(tokens):
                    past = self.step(rng.integers(0, VOCABULARY, (1, 1)), past, session, False)
        ms = {what: statistics.median(times) for what, times in self.ms.items()}
        theirs = ms["token, theirs"]
        return [
            f"{self.compile_s:.1f}", f"{ms['prompt']:.2f}", f"{ms['prompt, theirs']:.2f}",
            f"{ms['token']:.2f} ({theirs / ms['token']:.2f}x)",
            f"{ms['token, session']:.2f} ({theirs / ms['token, session']:.2f}x)",
            f"{theirs:.2f}", f"{self.error:.0e}",
        ]  # fmt: skip


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("kinds", nargs="*", default=["llama", "gpt2"], metavar="llama|gpt2")
    for name, default in (("width", 512), ("layers", 2), ("prompt", 128), ("tokens", 40)):
        parser.add_argument(f"--{name}", type=int, default=default)
    parser.add_argument("--bits", type=int, nargs="*", default=[32, 4], help="32: floats")
    parser.add_argument("--folder", type=Path, default=Path("build/decoders"))
    options = parser.parse_args()
    options.folder.mkdir(parents=True, exist_ok=True)
    print("| decoder | compile, s | prompt | ONNX Runtime | token | in a session | ONNX Runtime |"
          " error |\n|" + " --- |" * 8)  # fmt: skip
    for kind in options.kinds:
        path = options.folder / f"{kind}.{options.width}.{options.layers}.onnx"
        if not path.exists():
            write(kind, path, options)
        for bits in options.bits:
            run = Run(path if bits == 32 else in_few_bits(path, bits))
            cells = run.row(options.prompt, options.tokens)
            print(f"| {kind}, {bits} bits | {' | '.join(cells)} |", flush=True)


if __name__ == "__main__":
    main()
