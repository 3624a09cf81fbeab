"""The page that classifies an image, in headless Chromium: the class and the scores that ONNX
Runtime finds, and the time beside them."""

from __future__ import annotations

import http.server
import re
import shutil
import subprocess
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from functools import partial
from pathlib import Path

import numpy as np
import onnxruntime
import pytest

from autotune.cli import execute
from tests.needs import needs, program
from tests.networks import network

PAGE = Path(__file__).parents[3] / "examples" / "deploy" / "classify.html"
BLACK = (0 - np.array([0.485, 0.456, 0.406])) / np.array([0.229, 0.224, 0.225])
"""What the page makes of the empty canvas, channel by channel."""
SCORES = """<script type="module">
  import { load } from "./model.mjs";
  const model = await load();
  const out = model.run({ x: Float32Array.from({ length: 3072 }, (_, i) => (i % 7) - 3) });
  document.body.dataset.scores = out[model.outputs[0].name].join(" ");
</script>"""


class Quiet(http.server.SimpleHTTPRequestHandler):
    def log_message(self, *_: object) -> None:
        return


@contextmanager
def served(folder: Path) -> Iterator[str]:
    handler = partial(Quiet, directory=str(folder))
    with http.server.ThreadingHTTPServer(("127.0.0.1", 0), handler) as server:
        thread = threading.Thread(target=server.serve_forever)
        thread.start()
        try:
            yield f"http://127.0.0.1:{server.server_port}"
        finally:
            server.shutdown()
            thread.join()


def shown(url: str, profile: Path) -> str:
    command = [
        str(program("chromium")), "--headless", "--no-sandbox", "--disable-gpu",
        "--disable-dev-shm-usage", f"--user-data-dir={profile}", "--virtual-time-budget=60000",
        "--dump-dom", url,
    ]  # fmt: skip
    read = subprocess.run(command, capture_output=True, text=True, timeout=120, check=False)
    assert read.returncode == 0, read.stderr
    return read.stdout


@pytest.mark.slow
@needs("chromium")
def test_the_page_classifies_in_a_browser_as_onnx_runtime_does(tmp_path: Path) -> None:
    model = network("tiny")
    path, out = tmp_path / "net.onnx", tmp_path / "out"
    path.write_bytes(model.SerializeToString())
    words = ["export", str(path), "--format", "wasm", "-o", str(out)]
    assert execute([*words, "--log", str(tmp_path / "no.db")]) == 0
    shutil.copy(PAGE, out)
    (out / "scores.html").write_text(f"<!doctype html><body>{SCORES}</body>")
    session = onnxruntime.InferenceSession(path)
    with served(out) as url:
        page = shown(f"{url}/classify.html", tmp_path / "profile")
        found = shown(f"{url}/scores.html", tmp_path / "profile")
    image = np.broadcast_to(BLACK[:, None, None], (1, 3, 32, 32)).astype(np.float32)
    best = int(session.run(None, {"x": image})[0].argmax())
    assert re.search(rf'<p id="result">class {best}, [0-9.]+ ms</p>', page), page
    (text,) = re.findall('data-scores="([^"]*)"', found)
    ramp = (np.arange(3072) % 7 - 3).astype(np.float32).reshape(1, 3, 32, 32)
    wanted = session.run(None, {"x": ramp})[0].ravel()
    scores = np.array(text.split(), np.float32)
    np.testing.assert_allclose(scores, wanted, rtol=0, atol=1e-4 * max(1, np.abs(wanted).max()))
