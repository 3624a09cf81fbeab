"""Node as a board: a child process that holds a module and answers frames over its pipes.

A frame is four bytes with the length of a line of JSON, that line, and as many bytes as its field
`bytes` says. V8 compiles with its optimizing compiler at once, as pages have it after a while.
"""

from __future__ import annotations

import json
import shutil
import subprocess
from collections.abc import Mapping
from typing import Any

from autotune.errors import DeviceError
from autotune.measure.timing import Sample

SCRIPT = r"""
const fs = require("node:fs");
function take(count) {
  const out = Buffer.allocUnsafe(count);
  for (let at = 0; at < count;) {
    const got = fs.readSync(0, out, at, count - at, null);
    if (!got) process.exit(0);
    at += got;
  }
  return out;
}
function put(data) {
  for (let at = 0; at < data.length;) at += fs.writeSync(1, data, at);
}
function answer(header, data = Buffer.alloc(0)) {
  const line = Buffer.from(JSON.stringify({ ...header, bytes: data.length }));
  const length = Buffer.alloc(4);
  length.writeUInt32LE(line.length);
  put(Buffer.concat([length, line]));
  put(data);
}
const own = { exp2: (x) => 2 ** x, fmod: (x, y) => x % y };
const env = new Proxy({}, { get(_, name) {
  const plain = name.replace(/f$/, "");
  return own[name] ?? Math[name] ?? own[plain] ?? Math[plain];
} });
let memory, entry;
const commands = {
  load({ code, entry: name, blocks }, data) {
    const module = new WebAssembly.Module(data.subarray(0, code));
    const { exports } = new WebAssembly.Instance(module, { env });
    [memory, entry] = [exports.memory, exports[name]];
    let from = code;
    for (const [at, count] of blocks) {
      new Uint8Array(memory.buffer, at, count).set(data.subarray(from, from + count));
      from += count;
    }
    return [{}];
  },
  run({ argument, calls }) {
    const times = BigInt(calls), busy = process.cpuUsage(), start = performance.now();
    entry(argument, times);
    const wall = performance.now() - start, used = process.cpuUsage(busy);
    return [{ wall_s: wall / 1e3, running_s: (used.user + used.system) / 1e6 }];
  },
  read({ at, count }) {
    return [{}, Buffer.from(memory.buffer, at, count)];
  },
};
for (;;) {
  const header = JSON.parse(take(take(4).readUInt32LE()));
  const data = take(header.bytes);
  try {
    answer(...commands[header.command](header, data));
  } catch (error) {
    answer({ error: String(error) });
  }
}
"""
FLAGS = ("--no-liftoff", "--no-wasm-tier-up", "--no-wasm-lazy-compilation")
SHORT_S = 0.0002
"""Shorter times are too short for the clock of processor time."""


class NodeEngine:
    """V8 in a process of node's, which lives as long as a module is loaded."""

    def __init__(self) -> None:
        node = shutil.which("node")
        if node is None:
            raise DeviceError(
                "this board runs WebAssembly in node, which was not found; install it "
                "(Debian: nodejs), or take --simulator wasmtime"
            )
        self._command = [node, *FLAGS, "-e", SCRIPT]
        self._process: subprocess.Popen[bytes] | None = None

    def load(self, module: bytes, entry: str, blocks: Mapping[int, bytes]) -> None:
        header = {
            "code": len(module), "entry": entry,
            "blocks": [(at, len(data)) for at, data in blocks.items()],
        }  # fmt: skip
        self._ask("load", header, b"".join((module, *blocks.values())))

    def run(self, argument: int, calls: int) -> Sample:
        told, _ = self._ask("run", {"argument": argument, "calls": calls})
        wall_s = max(float(told["wall_s"]), 1e-9)
        running_s = min(float(told["running_s"]), wall_s)
        stolen = 0.0 if wall_s < SHORT_S else 1.0 - running_s / wall_s
        return Sample(wall_s, stolen, running_s=running_s)

    def read(self, at: int, count: int) -> bytes:
        return self._ask("read", {"at": at, "count": count})[1]

    def close(self) -> None:
        """It ends with its input: a worker may send no signals."""
        if self._process is not None:
            self._process.communicate()
            self._process = None

    def _ask(
        self, command: str, header: Mapping[str, Any], data: bytes = b""
    ) -> tuple[dict[str, Any], bytes]:
        if self._process is None or self._process.poll() is not None:
            self._process = subprocess.Popen(
                self._command, stdin=subprocess.PIPE, stdout=subprocess.PIPE
            )
        pipes = self._process
        assert pipes.stdin is not None
        line = json.dumps({**header, "command": command, "bytes": len(data)}).encode()
        try:
            pipes.stdin.write(len(line).to_bytes(4, "little") + line)
            pipes.stdin.write(data)
            pipes.stdin.flush()
            answer = json.loads(self._taken(int.from_bytes(self._taken(4), "little")))
            found = self._taken(answer["bytes"])
        except BrokenPipeError:
            raise DeviceError(f"node ended in the middle of {command}") from None
        if "error" in answer:
            raise DeviceError(f"node: {str(answer['error'])[:200]}")
        return answer, found

    def _taken(self, count: int) -> bytes:
        assert self._process is not None
        assert self._process.stdout is not None
        data = self._process.stdout.read(count)
        if len(data) != count:
            raise BrokenPipeError
        return data
