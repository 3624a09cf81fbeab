"""Models as users of PyTorch write them, compiled: each gives what eager gives.

    PYTHONPATH=FOLDER python benchmarks/pytorch/torch_models.py [WORD ...] [--limit 300]
        [--rows FILE]

Tiny networks of `transformers` with random weights (encoders, and decoders with `generate`),
detectors of `torchvision` with their post-processing, networks of `timm`. Each runs in a process
of its own. WORDs choose some by their names. A line each: the largest difference over the largest
value (of tokens, too), seconds to the first result, graphs, and what of them PyTorch runs. A
network whose package is not installed is named as such; FOLDER is where they are.
"""

from __future__ import annotations

import argparse
import importlib.util
import json
import logging
import subprocess
import sys
import time
import warnings
from collections.abc import Callable
from pathlib import Path
from typing import Any

import torch

sys.path.insert(0, str(Path(__file__).resolve().parents[2]))

from benchmarks.pytorch.captured_graphs import error

Case = tuple[Any, Callable[[Any], Any]]
"""A model, and what is done with it."""
PLAIN = {"machine": "nominal", "threads": 1}
TINY = {
    "hidden_size": 64,
    "num_hidden_layers": 2,
    "num_attention_heads": 4,
    "intermediate_size": 128,
}
TOKENS, LENGTH, MORE = 99, 12, 8


def tokens(rows: int = 2) -> torch.Tensor:
    return torch.randint(3, TOKENS, (rows, LENGTH))


def made(kind: str, model: str, **config: Any) -> Any:
    """A network of `transformers` with random weights."""
    import transformers

    settings = getattr(transformers, f"{kind}Config")(**config)
    return getattr(transformers, model)(settings).eval()


def bert() -> Case:
    model, x = made("Bert", "BertModel", vocab_size=TOKENS, **TINY), tokens()
    mask = torch.ones_like(x)
    mask[1, 7:] = 0
    return model, lambda m: tuple(m(input_ids=x, attention_mask=mask).values())


def vit() -> Case:
    model = made("ViT", "ViTForImageClassification", image_size=32, patch_size=8, **TINY)
    x = torch.randn(2, 3, 32, 32)
    return model, lambda m: m(pixel_values=x).logits


def clip() -> Case:
    text = {**TINY, "vocab_size": TOKENS, "max_position_embeddings": 32, "eos_token_id": 2}
    sight = {**TINY, "image_size": 32, "patch_size": 8}
    model = made("CLIP", "CLIPModel", text_config=text, vision_config=sight, projection_dim=32)
    x, image = tokens(), torch.randn(2, 3, 32, 32)
    return model, lambda m: m(input_ids=x, pixel_values=image).logits_per_image


def _text(model: Any, feeds: dict[str, Any]) -> Case:
    """`generate` with a compiled forward."""

    def run(forward: Any) -> Any:
        eager, model.forward = model.forward, forward
        try:
            return model.generate(
                **feeds, max_new_tokens=MORE, min_new_tokens=MORE, do_sample=False
            )
        finally:
            model.forward = eager

    return model.forward, run


def gpt2() -> Case:
    model = made(
        "GPT2", "GPT2LMHeadModel", vocab_size=TOKENS, n_embd=64, n_layer=2, n_head=4,
        bos_token_id=1, eos_token_id=2,
    )  # fmt: skip
    return _text(model, {"input_ids": tokens(), "pad_token_id": 0})


def llama() -> Case:
    model = made("Llama", "LlamaForCausalLM", vocab_size=TOKENS, num_key_value_heads=2, **TINY)
    return _text(model, {"input_ids": tokens(), "pad_token_id": 0})


def t5() -> Case:
    model = made(
        "T5", "T5ForConditionalGeneration", vocab_size=TOKENS, d_model=64, d_kv=16, d_ff=128,
        num_layers=2, num_heads=4, decoder_start_token_id=0,
    )  # fmt: skip
    return _text(model, {"input_ids": tokens()})


def whisper() -> Case:
    model = made(
        "Whisper", "WhisperForConditionalGeneration", vocab_size=TOKENS, d_model=64,
        num_mel_bins=16, encoder_layers=2, decoder_layers=2,
        encoder_attention_heads=4, decoder_attention_heads=4,
        encoder_ffn_dim=128, decoder_ffn_dim=128, max_source_positions=32, max_target_positions=32,
        pad_token_id=0, bos_token_id=1, eos_token_id=2, decoder_start_token_id=1,
        suppress_tokens=[], begin_suppress_tokens=[],
    )  # fmt: skip
    return _text(model, {"input_features": torch.randn(1, 16, 64)})


def _detector(name: str) -> Case:
    from torchvision.models import detection

    # Random weights are sure of nothing: whatever is seen counts.
    made = getattr(detection, name)
    settings = {"box_score_thresh": 0.0} if "rcnn" in name else {"score_thresh": 0.0}
    model = made(weights=None, weights_backbone=None, num_classes=5, **settings).eval()
    x = torch.rand(3, 160, 192)
    return model, lambda m: [sorted(d.items()) for d in m([x])]


def _image(name: str) -> Case:
    import timm

    model = timm.create_model(name, pretrained=False).eval()
    x = torch.randn(1, 3, 224, 224)
    return model, lambda m: m(x)


CASES: dict[str, tuple[str, Callable[[], Case]]] = {
    **{f.__name__: ("transformers", f) for f in (bert, vit, clip, gpt2, llama, t5, whisper)},
    **{
        name: ("torchvision", lambda name=name: _detector(name))
        for name in ("ssdlite320_mobilenet_v3_large", "fasterrcnn_mobilenet_v3_large_320_fpn",
                     "retinanet_resnet50_fpn", "fcos_resnet50_fpn")
    },
    **{
        name: ("timm", lambda name=name: _image(name))
        for name in ("mobilenetv4_conv_small", "efficientformerv2_s0", "edgenext_xx_small",
                     "levit_128s", "mobilevit_xxs", "ghostnet_100", "tf_efficientnet_b0",
                     "resnest14d", "poolformerv2_s12", "xcit_nano_12_p16_224")
    },
}  # fmt: skip


def outcome(name: str) -> dict[str, Any]:
    """A case, run by eager and compiled."""
    torch.manual_seed(0)
    torch.set_num_threads(1)
    lines: list[str] = []
    handler = logging.Handler()
    handler.emit = lambda r: lines.append(r.getMessage())  # type: ignore[method-assign]
    logging.getLogger("autotune.torch").addHandler(handler)
    model, run = CASES[name][1]()
    with torch.no_grad(), warnings.catch_warnings(record=True) as warned:
        warnings.simplefilter("always")
        expected = run(model)
        compiled = torch.compile(model, backend="autotune", options=PLAIN)
        start = time.perf_counter()
        found = run(compiled)
        first_s = time.perf_counter() - start
        found = run(compiled)
    told = lines + [str(w.message) for w in warned if "defect" in str(w.message)]
    graphs = torch._dynamo.utils.counters["stats"]["unique_graphs"]
    return {
        "error": error(expected, found), "first_s": first_s, "graphs": graphs,
        "told": sorted(set(told)),
    }  # fmt: skip


def row_of(name: str, limit_s: float) -> dict[str, Any]:
    """A case's row, from a process of its own."""
    package = CASES[name][0]
    row = {"model": name, "of": package}
    if importlib.util.find_spec(package) is None:
        return row | {"fails": f"{package} is not installed"}
    command = [sys.executable, __file__, name, "--child"]
    try:
        done = subprocess.run(
            command, capture_output=True, text=True, timeout=limit_s, check=False
        )
    except subprocess.TimeoutExpired:
        return row | {"fails": f"no result in {limit_s:g} s"}
    for line in done.stdout.splitlines():
        if line.startswith("ROW "):
            return row | json.loads(line[4:])
    return row | {"fails": (done.stderr.strip().split("\n") or [""])[-1][:300]}


def said(row: dict[str, Any]) -> str:
    """A row as a line."""
    head = f"{row['of']:12} {row['model']:40}"
    if "fails" in row:
        return f"{head} fails: {row['fails']}"
    parts = f"error {row['error']:.0e}, first {row['first_s']:.1f} s, {row['graphs']} graphs"
    return "; ".join([f"{head} {parts}", *row["told"]])


def main() -> int:
    parser = argparse.ArgumentParser(description=(__doc__ or "").split("\n")[0])
    parser.add_argument("words", nargs="*")
    parser.add_argument("--limit", type=float, default=300, help="seconds of a model")
    parser.add_argument("--rows", help="a file for the rows, a line of JSON each")
    parser.add_argument("--child", action="store_true", help=argparse.SUPPRESS)
    args = parser.parse_args()
    if args.child:
        print("ROW " + json.dumps(outcome(args.words[0])), flush=True)
        return 0
    rows = []
    for name in CASES:
        whole = name in args.words or not set(args.words) & set(CASES)
        if args.words and not (whole and any(word in name for word in args.words)):
            continue
        rows.append(row_of(name, args.limit))
        print(said(rows[-1]), flush=True)
    if args.rows:
        Path(args.rows).write_text("".join(json.dumps(row) + "\n" for row in rows))
    return any("fails" in row or row["error"] > 1e-3 for row in rows)


if __name__ == "__main__":
    sys.exit(main())
