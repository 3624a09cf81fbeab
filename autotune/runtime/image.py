"""A compiled model as plain data: what `compile` makes, artifacts hold and the executor runs.

Every address is (base, byte offset), where base indexes the array of pointers that the entry
function gets: arena, constants, workspace, then the model's inputs, then its output buffers.
"""

from __future__ import annotations

import dataclasses
import hashlib
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any, Literal

import numpy as np

from autotune.arguments import listed, shortened
from autotune.memory import Bytes
from autotune.stored import stored_as
from autotune.target import Target
from autotune.types import Array, TensorType, dense_strides

ARENA, CONSTANTS, WORKSPACE, FIRST_INPUT = 0, 1, 2, 3
ENTRY_SYMBOL = "model_entry"

Source = Literal["record", "nearest", "default", "plain"]
"""Where a schedule came from: a record of the task, one of a similar task, the rule's default, or
the plain rule."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Port:
    """A public input or output: its type and where it lies. Strides in elements."""

    name: str
    type: TensorType
    base: int
    offset_bytes: int
    strides: tuple[int, ...]
    declared: str = ""
    """numpy's name of the type that the model says it is, where that is another one."""

    @property
    def public(self) -> TensorType:
        """What callers have: the type that the model declares."""
        return dataclasses.replace(self.type, dtype=self.declared) if self.declared else self.type

    def view(self, block: Bytes) -> Array:
        """The port's elements in the bytes of its buffer, bfloat16 as its bits."""
        if self.type.size == 0:
            return np.empty(self.type.shape, stored_as(self.type.dtype))
        item = np.dtype(stored_as(self.type.dtype))
        strides = tuple(s * item.itemsize for s in self.strides)
        return np.ndarray(self.type.shape, item, block, self.offset_bytes, strides)

    def fills(self, nbytes: int) -> bool:
        """Whether it is all of a buffer of that size, element by element."""
        dense = self.strides == dense_strides(self.type.shape)
        return dense and self.offset_bytes == 0 and self.type.nbytes == nbytes

    @staticmethod
    def from_json(data: Mapping[str, Any]) -> Port:
        fields = dict(data)
        kind = TensorType(dtype=fields["type"]["dtype"], shape=tuple(fields["type"]["shape"]))
        return Port(**{**fields, "type": kind, "strides": tuple(fields["strides"])})


@dataclass(frozen=True, slots=True, kw_only=True)
class LinkedKernel:
    """One kernel call. `args`: address of every parameter and, last, of the workspace."""

    name: str
    """The model's own node names."""
    symbol: str
    task_key: str
    op: str
    flops: int
    source: Source
    """Where the schedule came from: record, nearest, default or plain."""
    args: tuple[tuple[int, int], ...]
    algorithm: str = "direct"
    work_flops: int = 0
    """Operations of the algorithm: fewer than `flops` where it saves some."""
    input_bytes: int = 0
    weight_bytes: int = 0
    output_bytes: int = 0
    """Each counted once, however often the kernel comes back to it."""

    @staticmethod
    def from_json(data: Mapping[str, Any]) -> LinkedKernel:
        args = tuple((int(base), int(offset)) for base, offset in data["args"])
        return LinkedKernel(**{**data, "args": args})


@dataclass(frozen=True, slots=True)
class Summary:
    """A model in one line: its name, what it is for, what goes in and comes out. The line is made
    when it is wanted."""

    name: str
    target: Target
    inputs: tuple[Port, ...]
    outputs: tuple[Port, ...]
    kernels: int

    def __str__(self) -> str:
        target = self.target
        words = [target.cpu or target.kind]
        if not target.is_gpu:
            words.append(f"{target.threads} thread{'s' if target.threads > 1 else ''}")
        if target.precision != "float32":
            words.append(target.precision)
        sides = (
            listed((f"{p.name}: {p.public}" for p in ports), 4)
            for ports in (self.inputs, self.outputs)
        )
        return (
            f"{shortened(repr(self.name))} for {target.name} ({', '.join(words)}): "
            f"{' -> '.join(sides)}; {self.kernels} kernels"
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class ModelImage:
    """Everything needed to run a model on its target."""

    name: str
    target: Target
    inputs: tuple[Port, ...]
    outputs: tuple[Port, ...]
    output_bytes: tuple[int, ...]
    """Sizes of the output buffers; an output port may be a view of one, or lie in the arena."""
    kernels: tuple[LinkedKernel, ...] = field(repr=False)
    arena_bytes: int
    workspace_bytes: int
    versions: tuple[tuple[str, str], ...]
    objects: tuple[bytes, ...] = field(repr=False)
    """Object code of the unique kernels, the entry last."""
    constants: Bytes = field(repr=False)
    updates: tuple[tuple[str, str], ...] = ()
    """(input, output), by name, which may be one array: a state that is updated in place."""

    @property
    def summary(self) -> Summary:
        return Summary(self.name, self.target, self.inputs, self.outputs, len(self.kernels))

    def digest(self) -> str:
        """See `digest_of`."""
        return digest_of(self.objects, self.constants)

    def manifest(self) -> dict[str, Any]:
        """JSON of everything but the object code and the constants, whose sizes are given."""
        plain = {f.name: getattr(self, f.name) for f in dataclasses.fields(self)}
        return manifest_of(plain)

    @staticmethod
    def from_manifest(
        data: Mapping[str, Any], objects: tuple[bytes, ...], constants: Bytes
    ) -> ModelImage:
        return ModelImage(
            name=data["name"],
            target=Target.from_json(data["target"]),
            inputs=tuple(Port.from_json(p) for p in data["inputs"]),
            outputs=tuple(Port.from_json(p) for p in data["outputs"]),
            output_bytes=tuple(data["output_bytes"]),
            kernels=tuple(LinkedKernel.from_json(k) for k in data["kernels"]),
            arena_bytes=data["arena_bytes"],
            workspace_bytes=data["workspace_bytes"],
            versions=tuple((name, version) for name, version in data["versions"]),
            objects=objects,
            constants=constants,
            updates=tuple((name, then) for name, then in data.get("updates", ())),
        )


def digest_of(objects: Iterable[bytes], constants: Bytes) -> str:
    """SHA-256 of code and weights, in hexadecimal digits."""
    hasher = hashlib.sha256()
    for code in objects:
        hasher.update(hashlib.sha256(code).digest())
    hasher.update(hashlib.sha256(constants.data).digest())
    return hasher.hexdigest()


def manifest_of(fields: Mapping[str, Any]) -> dict[str, Any]:
    """JSON of an image's fields; of object code and constants, how much there is."""
    skipped = ("objects", "constants", "target")
    return {
        **{k: _plain(v) for k, v in fields.items() if k not in skipped},
        "target": fields["target"].to_json(),
        "objects": len(fields["objects"]),
        "constant_bytes": fields["constants"].nbytes,
    }


def _plain(value: Any) -> Any:
    if isinstance(value, tuple):
        return [_plain(v) for v in value]
    if isinstance(value, np.ndarray):
        return value.tolist()
    if dataclasses.is_dataclass(value):
        return {f.name: _plain(getattr(value, f.name)) for f in dataclasses.fields(value)}
    return value
