"""Modules beside another engine of browsers, one thread each, in turns, in the same process: how
much faster they are, how near their results, how large."""

from __future__ import annotations

from pathlib import Path

import onnx
import pytest

from autotune.frontend.zoo import build_model
from benchmarks.deployment.wasm_peers import HOSTS, prepared
from tests.needs import NODE_MODULES, needs

LEAST_RATIO = 1.5
LARGEST_ERROR = 1e-4
"""Of the largest output."""
MOST_BEYOND = 200 << 10
"""Bytes of a module beyond its weights."""
TRIES = 4
"""Rounds in all: each side keeps its fastest run of them, so other load has to last to mislead."""
SECONDS = 3.0
"""Of both engines in a round."""


@pytest.mark.slow
@needs("node", "npm", "chromium", "onnxruntime-web")
def test_mobilenetv2_is_half_again_as_fast_as_the_peer_in_node_and_in_a_browser(
    tmp_path: Path,
) -> None:
    path, folder = tmp_path / "net.onnx", tmp_path / "both"
    model = build_model("mobilenetv2")
    path.write_bytes(model.SerializeToString())
    folder.mkdir()
    size = prepared(path, NODE_MODULES, folder, seconds=SECONDS)
    weights = sum(onnx.numpy_helper.to_array(t).nbytes for t in model.graph.initializer)
    assert size - weights <= MOST_BEYOND
    for host, run in HOSTS.items():
        ours = theirs = float("inf")
        for _ in range(TRIES):
            found = run(folder)
            assert "failed" not in found, f"{host}: {found['failed']}"
            assert found["error"] <= LARGEST_ERROR, host
            ours, theirs = min(ours, found["ours"][1]), min(theirs, found["theirs"][1])
            if theirs >= LEAST_RATIO * ours:
                break
        assert theirs >= LEAST_RATIO * ours, (
            f"{host}: {ours:.1f} ms here, {theirs:.1f} ms there, {theirs / ours:.2f}x, fastest "
            f"runs of {TRIES} rounds; medians of the last {found['ours'][0]:.1f} and "
            f"{found['theirs'][0]:.1f}"
        )
