"""JavaScript of models of open sizes: a class for `model.mjs`, what `main.mjs` has besides, the
class's type. Out: texts."""

from __future__ import annotations

import json
from collections.abc import Sequence

OPEN_MODEL = r"""
/** A model whose sizes a run decides: `resize` gives it some before the first run, and whenever
 * they change; inputs and outputs have their shapes then. */
export class OpenModel extends Model {
  constructor(module, instance, description) {
    super(module, instance, description);
    this.sizes = description.sizes;
    this._sized = false;
  }

  /** Sizes by name. Throws a RangeError for those that the model was not compiled for. */
  resize(sizes) {
    const about = this._description, given = this._checked(sizes);
    this._sized = false;
    new BigInt64Array(this.memory.buffer, about.given, given.length).set(given);
    if (this._exports.plan(about.head, about.given)) {
      throw new RangeError("these sizes take more memory than WebAssembly has");
    }
    const values = new BigInt64Array(this.memory.buffer, about.values);
    const told = (port) => ({
      name: port.name, type: port.type,
      shape: port.extents.map((row) => Number(values[row])),
      strides: port.strides.map((row) => Number(values[row])),
    });
    const inputs = about.inputs.map(told), outputs = about.outputs.map(told);
    let end = about.block + Number(new BigInt64Array(this.memory.buffer, about.needed, 1)[0]);
    inputs.forEach((port, i) => {
      port.address = end;
      end += Math.ceil(port.shape.reduce((a, b) => a * b, about.inputs[i].item) / 64) * 64;
    });
    this._grow(end);
    this._place(inputs, outputs);
    [this.inputs, this.outputs, this._sized] = [inputs, outputs, true];
  }

  _checked(sizes) {
    const names = this.sizes.map(({ name }) => name);
    for (const name of Object.keys(sizes ?? {})) {
      if (!names.includes(name)) {
        throw new RangeError(`size ${name}: the model has ${names.join(", ")}`);
      }
    }
    return this.sizes.map(({ name, least, most, step }) => {
      const size = sizes?.[name];
      if (!Number.isInteger(size) || size < least || size > most || (size - least) % step) {
        throw new RangeError(`size ${name}: expected ${least} to ${most} in steps of ${step}, ` +
          `got ${size ?? "nothing"}`);
      }
      return BigInt(size);
    });
  }

  _grow(end) {
    const more = Math.ceil((end - this.memory.buffer.byteLength) / 65536);
    try {
      if (more > 0) this.memory.grow(more);
    } catch {
      throw new RangeError(`these sizes take ${end} bytes, more than there are`);
    }
  }

  /** Pointers to the parts of the block, to inputs, and to outputs inside it. */
  _place(inputs, outputs) {
    const about = this._description, buffer = this.memory.buffer;
    const pointers = new Uint32Array(buffer, about.head);
    const offsets = new BigInt64Array(buffer, about.offsets);
    const values = new BigInt64Array(buffer, about.values);
    for (const n of about.placed) pointers[n] = about.block + Number(offsets[n]);
    about.inputs.forEach((port, i) => { pointers[port.pointer] = inputs[i].address; });
    about.outputs.forEach((port, i) => {
      outputs[i].address = pointers[port.pointer] + Number(values[port.offset]);
    });
  }

  run(inputs) {
    if (!this._sized) {
      const example = this.sizes.map(({ name, least }) => `${name}: ${least}`).join(", ");
      throw new RangeError(`the model's sizes are open; call resize({ ${example} }) before run`);
    }
    return super.run(inputs);
  }

  _call() {
    const { calls, rows, width, head } = this._description;
    this._exports.model_table(calls, BigInt(rows), BigInt(width), head);
  }
}

"""

OPEN_PARTS = {
    "@USAGE@": " --size NAME=N ...",
    "@OPTIONS@": "--repeat, --threads or --size",
    "@LOCALS@": ", sizes = {}",
    "@OPTION@": """\
  } else if (words[i] === "--size") {
    const [name, size] = (words[++i] ?? "").split("=");
    sizes[name] = number("--size", size);
""",
    "@RESIZE@": """\
try {
  model.resize(sizes);
} catch (error) {
  fail(`--size: ${error.message}`);
}
""",
}
"""What `main.mjs` of open sizes has besides."""


def open_type(names: Sequence[str]) -> str:
    """The class's type. `names`: of the model's sizes."""
    fields = ", ".join(f"{json.dumps(name)}: number" for name in names)
    return f"""\
export class OpenModel extends Model {{
  readonly sizes: {{ name: string; least: number; most: number; step: number }}[];
  resize(sizes: {{ {fields} }}): void;
}}
"""
