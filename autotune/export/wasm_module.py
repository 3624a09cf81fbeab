"""A compiled model as a WebAssembly module. In: a ModelImage for wasm32. Out: `model.wasm`.

Everything lies at an address that is known here: code's data, the stack, weights, the arena,
inputs and outputs, and the array of pointers that the entry reads. A module is one instance of the
model, it allocates nothing, and its custom section `autotune` says in JSON where inputs and
outputs are.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from autotune.codegen.wasm.leb import block, text
from autotune.codegen.wasm.module import LinkedModule
from autotune.codegen.wasm.objects import CUSTOM
from autotune.errors import BuildError
from autotune.export.seal import Description, seal
from autotune.memory import ALIGNMENT
from autotune.runtime.image import ENTRY_SYMBOL, ModelImage, Port
from autotune.stored import stored_as

DESCRIPTION = "autotune"
POINTER_BYTES = 4
"""Bytes of a pointer of wasm32."""
MATH = frozenset(
    f"{name}{kind}"
    for name in (
        "acos", "acosh", "asin", "asinh", "atan", "atan2", "atanh", "cos", "cosh", "exp", "exp2",
        "expm1", "fmod", "log", "log10", "log1p", "log2", "pow", "sin", "sinh", "tan", "tanh",
    )
    for kind in ("", "f")
)  # fmt: skip
"""Functions that `model.mjs` gives the module."""


@dataclass(frozen=True, slots=True)
class _Layout:
    """Addresses of the pointers' targets, and of the array of pointers; the end of it all."""

    bases: tuple[int, ...]
    pointers: int
    end: int


def wasm_module(image: ModelImage, about: Description) -> bytes:
    """Raises BuildError where the model calls what JavaScript lacks, or needs more memory than
    WebAssembly has."""
    module = linked(image.objects, [ENTRY_SYMBOL])
    layout = _layout(image, module.start)
    pointers = b"".join(base.to_bytes(POINTER_BYTES, "little") for base in layout.bases)
    described = json.dumps(description(image, layout)).encode()
    code = module.written(
        {layout.bases[1]: image.constants.data, layout.pointers: pointers},
        layout.end,
        {DESCRIPTION: described},
    )
    return sealed_module(code, about)


def sealed_module(code: bytes, about: Description) -> bytes:
    """A module with what it says of itself, and a digest of all that, at its end."""
    name = text("seal")
    length = len(name) + len(seal(b"", about))
    head = bytes([CUSTOM]) + block(bytes(length))[:-length] + name
    return code + head + seal(code + head, about)


def linked(objects: Sequence[bytes], wanted: Sequence[str]) -> LinkedModule:
    """Raises BuildError where they call what JavaScript lacks."""
    module = LinkedModule(objects, wanted)
    if lacking := [name for name in module.outside if name not in MATH]:
        raise BuildError(
            f"the model calls {lacking[0]}, which JavaScript lacks; export it for a CPU"
        )
    return module


def description(image: ModelImage, layout: _Layout) -> Mapping[str, Any]:
    """What a host needs to run the module. Strides in elements."""

    def port(one: Port) -> Mapping[str, Any]:
        return {
            "name": one.name,
            "type": stored_as(one.type.dtype),
            "shape": one.type.shape,
            "strides": one.strides,
            "address": layout.bases[one.base] + one.offset_bytes,
        }

    return {
        "entry": layout.pointers,
        "inputs": list(map(port, image.inputs)),
        "outputs": list(map(port, image.outputs)),
    }


def _layout(image: ModelImage, start: int) -> _Layout:
    sizes = (
        image.arena_bytes,
        image.constants.nbytes,
        image.workspace_bytes,
        *(port.type.nbytes for port in image.inputs),
        *image.output_bytes,
    )
    at, bases = start, []
    for size in sizes:
        bases.append(at)
        at += -(-max(size, 1) // ALIGNMENT) * ALIGNMENT
    return _Layout(tuple(bases), at, at + len(bases) * POINTER_BYTES)
