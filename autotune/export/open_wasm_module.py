"""A model of open sizes as a WebAssembly module. In: an OpenImage for wasm32. Out: `model.wasm`.

As of fixed sizes, but that an instance's head (see `open_interface`) has a place of its own, and
the block behind it, with room for inputs at its end, is planned by a function of the module for
each set of sizes: whoever runs it grows the memory. The section `autotune` says where all that is.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any

from autotune.codegen.llvm.backend import compile_text
from autotune.export.exported import Exported
from autotune.export.interface import WEIGHTS_POINTER, aligned
from autotune.export.open_interface import OpenInterface, OpenTensor
from autotune.export.open_plan_text import PLAN, numbered_plan_lines
from autotune.export.seal import Description
from autotune.export.wasm_module import DESCRIPTION, POINTER_BYTES, linked, sealed_module
from autotune.runtime.image import FIRST_INPUT
from autotune.runtime.open_image import TABLE, OpenImage
from autotune.stored import stored_as
from autotune.types import ITEM_BYTES


def open_wasm_module(
    image: OpenImage, model: Exported[OpenInterface], about: Description
) -> bytes:
    """Raises BuildError where the model calls what JavaScript lacks, or its weights take more
    memory than WebAssembly has."""
    plan = compile_text("\n".join([*numbered_plan_lines(image, model), ""]), image.target)
    module = linked([*image.objects, plan], [PLAN, TABLE])
    face = model.face
    weights = module.start
    head = aligned(weights + max(1, image.constants.nbytes))
    sizes = head + face.memory_bytes
    block = aligned(sizes + len(face.symbols) * 8)
    pointers = bytearray(face.pointers * POINTER_BYTES)
    for pointer, address in (
        (WEIGHTS_POINTER, weights), (face.counts, head + face.places.counts),
    ):  # fmt: skip
        at = pointer * POINTER_BYTES
        pointers[at : at + POINTER_BYTES] = address.to_bytes(POINTER_BYTES, "little")
    described = _description(image, face, {"head": head, "given": sizes, "block": block})
    code = module.written(
        {weights: image.constants.data, head: bytes(pointers)},
        block,
        {DESCRIPTION: json.dumps(described).encode()},
    )
    return sealed_module(code, about)


def _description(
    image: OpenImage, face: OpenInterface, places: Mapping[str, int]
) -> Mapping[str, Any]:
    """What a host needs: addresses, ranges, and of tensors the rows that tell their shapes.
    Strides and offsets are rows as well, of elements and bytes."""

    def told(tensor: OpenTensor) -> Mapping[str, Any]:
        port = tensor.port
        return {
            "name": port.name,
            "type": stored_as(port.dtype),
            "shape": tensor.kind.shape,
            "extents": port.shape,
            "strides": port.strides,
            "offset": port.offset,
            "pointer": port.base,
            "item": ITEM_BYTES[port.dtype],
        }

    first = FIRST_INPUT + len(face.inputs)
    return {
        **places,
        "values": places["head"] + face.places.values,
        "offsets": places["head"] + face.places.offsets,
        "needed": places["head"] + face.places.needed,
        "calls": places["head"] + face.places.calls,
        "placed": [0, 2, *range(first, first + len(image.output_bytes))],
        "rows": len(image.table.choices),
        "width": image.table.words.shape[1],
        "sizes": [
            {"name": name, "least": s.least, "most": s.most, "step": s.step}
            for name, s in face.symbols
        ],
        "inputs": list(map(told, face.inputs)),
        "outputs": list(map(told, face.outputs)),
    }
