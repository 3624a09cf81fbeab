"""Models as WebAssembly against onnxruntime-web, one thread each, in turns, in node and Chromium.

    npm install --prefix FOLDER onnxruntime-web
    python benchmarks/deployment/wasm_peers.py --packages FOLDER/node_modules MODEL.onnx ...
        [--target wasm32] [--log LOG] [--hosts node,chromium] [--seconds 4]

In: models with inputs of fixed sizes (open ones are taken as 1). Out: a line for each model and
host: medians and fastest runs in milliseconds, how often ours is faster, the largest difference
of outputs relative to the largest output, bytes of the module beyond the model's file.
"""

from __future__ import annotations

import argparse
import http.server
import json
import shutil
import subprocess
import tempfile
import threading
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import onnx

from autotune.compiler.driver import compile_request
from autotune.export.write import ExportOptions, export_image
from autotune.request import CompileRequest
from autotune.runtime.model import CompiledModel

TYPES = {1: ("float32", "Float32Array"), 7: ("int64", "BigInt64Array"), 9: ("bool", "Uint8Array")}
COMPARE = r"""
const median = (times) => [...times].sort((a, b) => a - b)[times.length >> 1];

export async function compare(ort, load, read, spec) {
  ort.env.wasm.numThreads = 1;
  const theirs = await ort.InferenceSession.create(
    await read("model.onnx"), { executionProviders: ["wasm"], graphOptimizationLevel: "all" });
  const ours = await load(await read("model.wasm"));
  const feeds = {}, tensors = {};
  for (const { name, type, shape, file, array } of spec.inputs) {
    const bytes = await read(file);
    feeds[name] = new globalThis[array](bytes);
    tensors[name] = new ort.Tensor(type, feeds[name], shape);
  }
  let wanted, found;
  const run = { theirs: async () => { wanted = await theirs.run(tensors); },
                ours: async () => { found = ours.run(feeds); } };
  const times = { theirs: [], ours: [] };
  for (let round = 0, end = performance.now() + 1e3 * spec.seconds;
       round < 5 || performance.now() < end; round++) {
    for (const who of ["ours", "theirs"]) {
      await run[who]();  // caches as they are while one model runs over and over
      for (let i = 0; i < 3; i++) {
        const start = performance.now();
        await run[who]();
        if (round) times[who].push(performance.now() - start);
      }
    }
  }
  let error = 0;
  for (const { name } of ours.outputs) {
    const a = found[name], b = wanted[name].data;
    let most = 1e-30, off = 0;
    for (let i = 0; i < b.length; i++) {
      most = Math.max(most, Math.abs(Number(b[i])));
      off = Math.max(off, Math.abs(Number(b[i]) - Number(a[i])));
    }
    error = Math.max(error, off / most);
  }
  return { error, ours: [median(times.ours), Math.min(...times.ours)],
           theirs: [median(times.theirs), Math.min(...times.theirs)] };
}
"""
IN_NODE = """
import { readFileSync } from "node:fs";
import * as ort from "./ort/ort.wasm.min.mjs";
import { load } from "./model.mjs";
import { compare } from "./compare.mjs";
const bytes = (name) => new Uint8Array(readFileSync(new URL(name, import.meta.url))).buffer;
const spec = JSON.parse(new TextDecoder().decode(bytes("spec.json")));
ort.env.wasm.wasmPaths = new URL("./ort/", import.meta.url).href;
console.log(JSON.stringify(await compare(ort, load, bytes, spec)));
"""
IN_PAGE = """<!doctype html><script type="module">
import * as ort from "./ort/ort.wasm.min.mjs";
import { load } from "./model.mjs";
import { compare } from "./compare.mjs";
const bytes = async (name) => (await fetch(name)).arrayBuffer();
ort.env.wasm.wasmPaths = new URL("./ort/", location.href).href;
let said;
try {
  said = await compare(ort, load, bytes, await (await fetch("spec.json")).json());
} catch (error) { said = { failed: String(error) }; }
await fetch("result", { method: "POST", body: JSON.stringify(said) });
</script>"""


class Pages(http.server.SimpleHTTPRequestHandler):
    """Serves a folder, and keeps what a page sends back."""

    answers: list[dict[str, Any]]
    done: threading.Event

    def do_POST(self) -> None:
        self.answers.append(json.loads(self.rfile.read(int(self.headers["Content-Length"]))))
        self.send_response(204)
        self.end_headers()
        self.done.set()

    def log_message(self, *_: object) -> None:
        return


def prepared(
    path: Path,
    packages: Path,
    folder: Path,
    *,
    target: str = "wasm32",
    log: str | None = None,
    seconds: float = 4.0,
) -> int:
    """A folder with both engines, the model and its inputs. Out: bytes of the module."""
    shutil.copy(path, folder / "model.onnx")
    (folder / "ort").symlink_to((packages / "onnxruntime-web" / "dist").resolve())
    request = CompileRequest(model=str(path), target=target, log=log)
    model = compile_request(request, small=None)
    if not isinstance(model, CompiledModel):
        raise SystemExit(f"{path}: the sizes are open")
    export_image(model.image, folder, ExportOptions(format="wasm"))
    rng, inputs = np.random.default_rng(0), []
    graph = onnx.load(path, load_external_data=False).graph
    constants = {tensor.name for tensor in graph.initializer}
    for port in (port for port in graph.input if port.name not in constants):
        shape = [side.dim_value or 1 for side in port.type.tensor_type.shape.dim]
        kind, array = TYPES[port.type.tensor_type.elem_type]
        data = rng.standard_normal(shape) if kind == "float32" else rng.integers(0, 2, shape)
        file = f"input{len(inputs)}.bin"
        (folder / file).write_bytes(data.astype(kind).tobytes())
        inputs.append(
            {"name": port.name, "type": kind, "shape": shape, "file": file, "array": array}
        )
    spec = {"inputs": inputs, "seconds": seconds}
    for name, text in (
        ("spec.json", json.dumps(spec)), ("compare.mjs", COMPARE), ("node.mjs", IN_NODE),
        ("index.html", IN_PAGE),
    ):  # fmt: skip
        (folder / name).write_text(text)
    return (folder / "model.wasm").stat().st_size


def in_node(folder: Path) -> dict[str, Any]:
    done = subprocess.run(
        ["node", "node.mjs"], cwd=folder, capture_output=True, text=True, check=False
    )
    if done.returncode:
        return {"failed": done.stderr.strip()[-300:]}
    found: dict[str, Any] = json.loads(done.stdout.splitlines()[-1])
    return found


def in_chromium(folder: Path) -> dict[str, Any]:
    handler = type("Handler", (Pages,), {"answers": [], "done": threading.Event()})
    with http.server.ThreadingHTTPServer(
        ("127.0.0.1", 0), partial(handler, directory=str(folder))
    ) as server:
        threading.Thread(target=server.serve_forever, daemon=True).start()
        browser = subprocess.Popen(
            ["chromium", "--headless", "--no-sandbox", "--disable-gpu", "--disable-dev-shm-usage",
             f"--user-data-dir={folder / 'profile'}", "--remote-debugging-port=0",
             f"http://127.0.0.1:{server.server_port}/index.html"],
            stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL,
        )  # fmt: skip
        handler.done.wait(300)
        browser.terminate()
        browser.wait()
        server.shutdown()
    return handler.answers[0] if handler.answers else {"failed": "no answer within 300 s"}


HOSTS = {"node": in_node, "chromium": in_chromium}


def line(path: Path, host: str, found: dict[str, Any], beyond: int) -> str:
    if "failed" in found:
        return f"| {path.stem} | {host} | failed: {found['failed']} |"
    ours, theirs = found["ours"], found["theirs"]
    return (
        f"| {path.stem} | {host} | {ours[0]:.2f} ({ours[1]:.2f}) | {theirs[0]:.2f} "
        f"({theirs[1]:.2f}) | {theirs[0] / ours[0]:.2f}x ({theirs[1] / ours[1]:.2f}x) | "
        f"{found['error']:.1e} | {beyond / 1024:.0f} |"
    )


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.split("\n", maxsplit=1)[0])
    parser.add_argument("models", nargs="+", type=Path)
    parser.add_argument("--packages", type=Path, required=True)
    parser.add_argument("--target", default="wasm32")
    parser.add_argument("--log")
    parser.add_argument("--hosts", default="node,chromium")
    parser.add_argument("--seconds", type=float, default=4.0)
    options = parser.parse_args()
    print("| model | host | ms: median (fastest) | onnxruntime-web | faster | error | KB beyond |")
    print("| --- | --- | --- | --- | --- | --- | --- |", flush=True)
    for path in options.models:
        with tempfile.TemporaryDirectory() as place:
            size = prepared(
                path, options.packages, Path(place),
                target=options.target, log=options.log, seconds=options.seconds,
            )  # fmt: skip
            for host in options.hosts.split(","):
                found = HOSTS[host](Path(place))
                print(line(path, host, found, size - path.stat().st_size), flush=True)


if __name__ == "__main__":
    main()
