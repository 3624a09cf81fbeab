"""JavaScript around `model.wasm`: `model.mjs` with its types, and `main.mjs` for node. In: a
image. Out: texts."""

from __future__ import annotations

import json
from collections.abc import Sequence

from autotune.export.open_wasm_text import OPEN_MODEL, OPEN_PARTS, open_type
from autotune.runtime.image import ModelImage, Port
from autotune.runtime.open_image import OpenImage, OpenPort
from autotune.stored import stored_as

ARRAYS = {
    "float32": "Float32Array", "float64": "Float64Array", "int8": "Int8Array",
    "uint8": "Uint8Array", "bool": "Uint8Array", "int16": "Int16Array", "uint16": "Uint16Array",
    "float16": "Uint16Array", "int32": "Int32Array", "uint32": "Uint32Array",
    "int64": "BigInt64Array", "uint64": "BigUint64Array",
}  # fmt: skip
"""JavaScript's arrays of numpy's types; of float16 and bfloat16 the bits."""

MODULE = r"""// Runs model.wasm in browsers, node, and what else has WebAssembly with SIMD.
//
//     import { load } from "./model.mjs";
//     const model = await load();
//     const outputs = model.run({ x: new Float32Array(3072) });
//
// Arrays are dense, in the order of their dimensions (model.inputs[i].shape).

const ARRAYS = { @ARRAYS@ };

const FUNCTIONS = {
  exp2: (x) => 2 ** x,
  fmod: (x, y) => x % y,
};

function environment() {
  return new Proxy({}, {
    get(_, name) {
      const plain = name.replace(/f$/, "");
      return FUNCTIONS[name] ?? Math[name] ?? FUNCTIONS[plain] ?? Math[plain];
    },
  });
}

const SEAL = "\nautotune-sha256:", HEX_DIGITS = 64;

/** Throws where a module is not as it was exported. Engines without cryptography (pages that are
 * neither local nor https) take it as it is. */
async function check(bytes) {
  const end = bytes.length - SEAL.length - HEX_DIGITS - 1;
  const said = new TextDecoder().decode(bytes.subarray(Math.max(0, end)));
  let whole = end > 0 && said.startsWith(SEAL);
  if (whole && globalThis.crypto?.subtle) {
    const digest = new Uint8Array(await crypto.subtle.digest("SHA-256", bytes.subarray(0, end)));
    const shown = Array.from(digest, (byte) => byte.toString(16).padStart(2, "0")).join("");
    whole = said === `${SEAL}${shown}\n`;
  }
  if (!whole) throw new TypeError("this is no exported model, or was changed; export it again");
}

async function bytesOf(source) {
  if (source instanceof ArrayBuffer) return new Uint8Array(source);
  if (ArrayBuffer.isView(source)) {
    return new Uint8Array(source.buffer, source.byteOffset, source.byteLength);
  }
  const url = new URL(source, import.meta.url);
  if (url.protocol === "file:") {
    const { readFile } = await import("node:fs/promises");
    return new Uint8Array(await readFile(url));
  }
  const answer = await fetch(url);
  if (!answer.ok) throw new Error(`cannot load ${url}: ${answer.status} ${answer.statusText}`);
  return new Uint8Array(await answer.arrayBuffer());
}

async function compiled(source) {
  if (source instanceof WebAssembly.Module) return source;
  const bytes = await bytesOf(source);
  await check(bytes);
  return WebAssembly.compile(bytes);
}

/** A model in a memory of its own. Runs of one model go one after the other. */
export class Model {
  constructor(module, instance, description) {
    this.module = module;
    this.inputs = description.inputs;
    this.outputs = description.outputs;
    this.memory = instance.exports.memory;
    this._exports = instance.exports;
    this._description = description;
  }

  /** The memory of an input: what is written there is what the next run reads. */
  view(port) {
    const count = port.shape.reduce((a, b) => a * b, 1);
    return new ARRAYS[port.type](this.memory.buffer, port.address, count);
  }

  /** Outputs by name, of inputs by name. Throws a TypeError for arrays that do not fit. */
  run(inputs) {
    for (const port of this.inputs) {
      const place = this.view(port), given = inputs[port.name];
      if (!(given instanceof place.constructor) || given.length !== place.length) {
        const got = given == null ? "nothing" : `${given.constructor.name} of ${given.length}`;
        throw new TypeError(
          `input ${port.name}: expected ${place.constructor.name} of ${place.length}, got ${got}`);
      }
      place.set(given);
    }
    this._call();
    return Object.fromEntries(this.outputs.map((port) => [port.name, this._read(port)]));
  }

  _call() {
    this._exports.model_entry(this._description.entry);
  }

  _read(port) {
    const { shape, strides } = port, kind = ARRAYS[port.type];
    const count = shape.reduce((a, b) => a * b, 1), out = new kind(count);
    if (!count) return out;
    const reach = shape.reduce((sum, side, d) => sum + (side - 1) * strides[d], 1);
    const from = new kind(this.memory.buffer, port.address, reach);
    const at = shape.map(() => 0);
    for (let i = 0, place = 0; i < count; i++) {
      out[i] = from[place];
      for (let d = shape.length - 1; d >= 0; d--) {
        place += strides[d];
        if (++at[d] < shape[d]) break;
        place -= strides[d] * shape[d];
        at[d] = 0;
      }
    }
    return out;
  }
}

@OPEN@/** The model of a URL, of bytes or a compiled module; by default model.wasm beside this. */
export async function load(source = "./model.wasm") {
  const module = await compiled(source);
  const [section] = WebAssembly.Module.customSections(module, "autotune");
  if (!section) throw new TypeError("this is no exported model");
  const instance = await WebAssembly.instantiate(module, { env: environment() });
  return new @MODEL@(module, instance, JSON.parse(new TextDecoder().decode(section)));
}
"""

MAIN = r"""// Runs a model on files of raw numbers, and prints milliseconds.
//
//     node main.mjs in0.bin ... -o out0.bin ... [--repeat N] [--threads N]@USAGE@
//
// A file holds one input, dense, little-endian, in the order of the model's inputs.
import { readFileSync, writeFileSync } from "node:fs";

const files = { inputs: [], outputs: [] };
let side = files.inputs, repeat = 1@LOCALS@;
const words = process.argv.slice(2);
for (let i = 0; i < words.length; i++) {
  if (words[i] === "-o") side = files.outputs;
  else if (words[i] === "--repeat") repeat = number(words[i], words[++i]);
  else if (words[i] === "--threads") {
    if (number(words[i], words[++i]) > 1) fail("--threads: the model was compiled for up to 1");
@OPTION@  } else if (words[i].startsWith("--")) fail(`${words[i]}: expected @OPTIONS@`);
  else side.push(words[i]);
}

function fail(line) {
  console.error(`error: ${line}`);
  process.exit(2);
}

function number(option, word) {
  if (!/^[1-9]\d{0,8}$/.test(word ?? "")) fail(`${option}: expected a number of at least 1`);
  return Number(word);
}

let model;
try {
  const { load } = await import("./model.mjs");
  model = await load();
} catch (error) {
  fail(`model.mjs and model.wasm cannot be loaded: ${error.message}`);
}
@RESIZE@if (files.inputs.length !== model.inputs.length) {
  fail(`expected ${model.inputs.length} files of inputs, got ${files.inputs.length}`);
}
if (side === files.outputs && files.outputs.length !== model.outputs.length) {
  fail(`expected ${model.outputs.length} files after -o, got ${files.outputs.length}`);
}
const inputs = {};
model.inputs.forEach((port, i) => {
  const place = model.view(port);
  let data;
  try {
    data = readFileSync(files.inputs[i]);
  } catch (error) {
    fail(`${files.inputs[i]}: ${error.code}`);
  }
  if (data.length !== place.byteLength) {
    fail(`${files.inputs[i]}: expected ${place.byteLength} bytes, got ${data.length}`);
  }
  const bytes = new Uint8Array(data).buffer;
  inputs[port.name] = new place.constructor(bytes);
});
const times = [];
let outputs;
for (let i = 0; i < repeat; i++) {
  const start = performance.now();
  outputs = model.run(inputs);
  times.push(performance.now() - start);
}
files.outputs.forEach((path, i) => {
  const array = outputs[model.outputs[i].name];
  try {
    writeFileSync(path, new Uint8Array(array.buffer, array.byteOffset, array.byteLength));
  } catch (error) {
    fail(`${path}: cannot be written (${error.code})`);
  }
});
const middle = [...times].sort((a, b) => a - b)[times.length >> 1];
console.log(`${times[0].toFixed(3)} ms first, ${middle.toFixed(3)} ms median of ${repeat}`);
"""


_FIXED_PARTS = dict.fromkeys(OPEN_PARTS, "") | {"@OPTIONS@": "--repeat or --threads"}


def module_text(*, open_sizes: bool = False) -> str:
    """`model.mjs`."""
    text = MODULE.replace("@ARRAYS@", ", ".join(f"{k}: {v}" for k, v in ARRAYS.items()))
    text = text.replace("@OPEN@", OPEN_MODEL if open_sizes else "")
    if open_sizes:
        run = "//     const outputs"
        text = text.replace(run, f"//     model.resize({{ H: 224 }});\n{run}", 1)
    return text.replace("@MODEL@", "OpenModel" if open_sizes else "Model")


def program_text(*, open_sizes: bool = False) -> str:
    """`main.mjs`."""
    text = MAIN
    for mark, part in (OPEN_PARTS if open_sizes else _FIXED_PARTS).items():
        text = text.replace(mark, part)
    return text


def types_text(image: ModelImage | OpenImage) -> str:
    """`model.d.mts`: the module's types, with the model's own names."""

    def dtype(port: Port | OpenPort) -> str:
        return port.dtype if isinstance(port, OpenPort) else port.type.dtype

    def fields(ports: Sequence[Port | OpenPort]) -> str:
        return "\n".join(
            f"  {json.dumps(port.name)}: {ARRAYS[stored_as(dtype(port))]};" for port in ports
        )

    opened = isinstance(image, OpenImage)
    more = open_type([unit.name for unit in image.units]) if isinstance(image, OpenImage) else ""
    return f"""\
export interface Port {{
  name: string;
  type: string;
  shape: number[];
  strides: number[];
  address: number;
}}
export interface Inputs {{
{fields(image.inputs)}
}}
export interface Outputs {{
{fields(image.outputs)}
}}
export type Numbers = Inputs[keyof Inputs];
export class Model {{
  readonly module: WebAssembly.Module;
  readonly memory: WebAssembly.Memory;
  readonly inputs: Port[];
  readonly outputs: Port[];
  view(port: Port): Numbers;
  run(inputs: Inputs): Outputs;
}}
{more}export function load(
  source?: string | URL | ArrayBuffer | ArrayBufferView | WebAssembly.Module,
): Promise<{"OpenModel" if opened else "Model"}>;
"""
