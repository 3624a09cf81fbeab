"""Tokens of a decoder in a session, beside ONNX Runtime with its IO binding.

    python benchmarks/networks/sessions.py decoder.onnx --tokens 512

The model takes ids [1, n], past_* with an open dimension and, if it likes, a mask over all rows;
it gives logits and present_*, as PyTorch's exporters write it. Times are the fastest of `--rounds`
by token, in turns; the session's first round, which compiles, is left out.
"""

from __future__ import annotations

import argparse
import sys
import time
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import numpy as np
import onnxruntime

sys.path.insert(0, str(Path(__file__).resolve().parents[2]))

import autotune
from autotune.runtime.sized import SizedModel

Array = np.ndarray[Any, Any]
Step = Callable[[dict[str, Array]], Array]


def feeds(model: SizedModel, length: int) -> dict[str, Array]:
    """A token and, where the model has one, a mask of ones over all rows."""
    out = {"ids": np.array([[length % 7]])}
    for name, kind in model.inputs.items():
        if name != "ids" and not name.startswith("past"):
            out[name] = np.ones((1, length + 1), kind.dtype)
    return out


def bound(path: str, threads: int, state: Mapping[str, str], shapes: Mapping[str, Any]) -> Step:
    """A step of ONNX Runtime whose caches never leave its own memory."""
    options = onnxruntime.SessionOptions()
    options.intra_op_num_threads = threads
    session = onnxruntime.InferenceSession(path, options)
    names = [output.name for output in session.get_outputs()]
    kept = {
        name: onnxruntime.OrtValue.ortvalue_from_numpy(np.zeros(shape, np.float32))
        for name, shape in shapes.items()
    }
    binding = session.io_binding()

    def step(given: dict[str, Array]) -> Array:
        for name, array in given.items():
            binding.bind_cpu_input(name, array)
        for name, value in kept.items():
            binding.bind_ortvalue_input(name, value)
        for name in names:
            binding.bind_output(name, "cpu")
        session.run_with_iobinding(binding)
        made = dict(zip(names, binding.get_outputs(), strict=True))
        kept.update((name, made[then]) for name, then in state.items())
        return np.asarray(made["logits"].numpy())

    return step


def timed(step: Step, model: SizedModel, tokens: int) -> tuple[list[float], Array]:
    """Seconds of every token, and the last logits."""
    seconds, last = [], np.zeros(0)
    for length in range(tokens):
        given = feeds(model, length)
        start = time.perf_counter()
        last = step(given)
        seconds.append(time.perf_counter() - start)
    return seconds, last


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("model")
    parser.add_argument("--tokens", type=int, default=512)
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--threads", type=int, default=1)
    options = parser.parse_args()
    model = autotune.compile(options.model, threads=options.threads)
    assert isinstance(model, SizedModel)
    past = [name for name in model.inputs if name.startswith("past")]
    state = {name: name.replace("past", "present") for name in past}
    empty = {n: [0 if isinstance(d, str) else d for d in model.inputs[n].shape] for n in past}
    session = model.session(state)
    ours, theirs = [], []
    for _ in range(options.rounds + 1):
        session.reset()
        seconds, here = timed(lambda given: session.run(given)["logits"], model, options.tokens)
        ours.append(seconds)
        step = bound(options.model, options.threads, state, empty)
        seconds, there = timed(step, model, options.tokens)
        theirs.append(seconds)
        error = float(np.abs(here - there).max())
    fast, slow = (np.min(rows[1:], 0) for rows in (ours, theirs))
    print(f"largest difference of the last logits {error:.1e}")
    for what, part in (("all tokens", slice(None)), ("last 64", slice(-64, None))):
        mine, other = (float(np.median(row[part])) * 1e6 for row in (fast, slow))
        total = slow[part].sum() / fast[part].sum()
        print(f"{what}: {mine:.0f} us a token, ONNX Runtime {other:.0f} us, {total:.2f}x in all")
    return 0


if __name__ == "__main__":
    sys.exit(main())
