"""Backends: object code of kernels and of a whole model's entry, and a way to load it.

CPUs (targets of kind cpu and c). Symbols in an object built for a kernel NAME (pointers are to
element 0,0,... of the tensor):
    void NAME(ptr param0, ..., ptr workspace, i64 thread, i64 threads, i64 epoch)     one
        thread's part in a call of the kernel; returns when the whole call is done, by whichever
        threads of the team came. `epoch` numbers the calls of this kernel, from 0
    void NAME_run(ptr args, i64 repeats)     args: array of pointers, params then workspace; opens
        a parallel region of target.threads and runs the kernel `repeats` times
A model's entry: void NAME(ptr bases), which runs every call in one parallel region.

Devices (kinds opencl and cuda) have their own memory and are driven launch by launch: the object
code of a kernel is an encoded `DeviceCode`, and a model needs no entry (`build_entry` gives b"").
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from typing import TYPE_CHECKING, Any, Protocol

from autotune.errors import BuildError
from autotune.registry import Registry
from autotune.target import Target

if TYPE_CHECKING:
    from autotune.program.ir import Program

DEVICE_KINDS = ("opencl", "cuda")
"""Kinds of targets whose code is `DeviceCode`, run through `autotune.measure.devices`."""
PLACED, REPEATED, SKIPPED = "slots placed", "calls repeated", "calls skipped"
"""Drivers of a table of calls that are no kernels: pointers are made, calls made again, or not."""
CONTROL = {PLACED: 1, REPEATED: 2, SKIPPED: 3}
"""What stands for them where drivers are addresses."""

Extents = tuple[int, int, int]


@dataclass(frozen=True, slots=True, kw_only=True)
class ObjectCode:
    """A relocatable object file, or for devices an encoded `DeviceCode`."""

    symbol: str
    code: bytes
    workspace_bytes: int
    """Scratch memory one call needs (64-byte aligned), all threads together."""


@dataclass(frozen=True, slots=True, kw_only=True)
class TensorMap:
    """A tensor in memory as a device's copy engine takes boxes of it, the innermost dimension
    first. Rows of a box are 128 bytes, which lie swizzled in shared memory; zeros lie around."""

    dtype: str
    extents: tuple[int, ...]
    strides_bytes: tuple[int, ...]
    """Bytes between neighbours along every dimension but the innermost."""
    box: tuple[int, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class Launch:
    """One kernel launch: `grid` blocks of `block` threads, both (x, y, z)."""

    kernel: str
    """The function's name in the code."""
    grid: Extents
    block: Extents
    shared_bytes: int
    """Shared memory of a block that is asked for at the launch (what the code declares itself with
    a fixed size is not counted)."""
    args: tuple[str, ...]
    """Names of buffers, params and scratch, in the order of the function's arguments."""
    maps: tuple[TensorMap, ...] = ()
    """The last arguments are not pointers but descriptions of the buffers, which these become."""


@dataclass(frozen=True, slots=True, kw_only=True)
class DeviceCode:
    """A program for a device: text or PTX, and the launches that make up one call, in order."""

    symbol: str
    text: bytes
    """OpenCL C or PTX."""
    launches: tuple[Launch, ...]
    params: tuple[str, ...]
    """Names of the program's params, in order."""
    scratch: tuple[tuple[str, int], ...]
    """(buffer, byte offset of its first element in the call's workspace)."""
    workspace_bytes: int

    def encode(self) -> bytes:
        """Bytes that `decode` reads back: one line of JSON, then the text."""
        fields = {k: v for k, v in asdict(self).items() if k != "text"}
        return json.dumps(fields).encode() + b"\n" + self.text

    @staticmethod
    def decode(code: bytes) -> DeviceCode:
        """Raises BuildError where the bytes are not encoded device code."""
        head, _, text = code.partition(b"\n")
        try:
            fields = json.loads(head)
            launches = tuple(_launch(item) for item in fields.pop("launches"))
            scratch = tuple((str(name), int(offset)) for name, offset in fields.pop("scratch"))
            params = tuple(map(str, fields.pop("params")))
            return DeviceCode(
                **fields, text=text, launches=launches, scratch=scratch, params=params
            )
        except (ValueError, TypeError, KeyError, AttributeError) as error:
            raise BuildError(
                f"expected device code, got {head[:40]!r} ({type(error).__name__}); "
                "compile it again"
            ) from None

    def object_code(self) -> ObjectCode:
        return ObjectCode(
            symbol=self.symbol, code=self.encode(), workspace_bytes=self.workspace_bytes
        )


def _launch(data: Mapping[str, Any]) -> Launch:
    grid, block = (tuple(map(int, data[name])) for name in ("grid", "block"))
    if len(grid) != 3 or len(block) != 3:
        raise ValueError("a grid and a block have three extents")
    return Launch(
        kernel=str(data["kernel"]),
        grid=grid,
        block=block,
        shared_bytes=int(data["shared_bytes"]),
        args=tuple(map(str, data["args"])),
        maps=tuple(map(_tensor_map, data.get("maps", ()))),
    )


def _tensor_map(data: Mapping[str, Any]) -> TensorMap:
    extents, strides, box = (
        tuple(map(int, data[name])) for name in ("extents", "strides_bytes", "box")
    )
    return TensorMap(dtype=str(data["dtype"]), extents=extents, strides_bytes=strides, box=box)


@dataclass(frozen=True, slots=True, kw_only=True)
class EntryCall:
    """One kernel call of a model's entry: (index into `bases`, byte offset) per param and last for
    the workspace."""

    symbol: str
    args: tuple[tuple[int, int], ...]


class Backend(Protocol):
    """Programs to machine code. Add one: a file in this folder and `BACKENDS.add`."""

    @property
    def name(self) -> str: ...

    def source(self, program: Program, target: Target, symbol: str) -> str:
        """The generated text (LLVM IR, C): what golden tests hold."""
        ...

    def build(self, program: Program, target: Target, symbol: str) -> ObjectCode:
        """Raises BuildError."""
        ...

    def build_entry(self, calls: Sequence[EntryCall], target: Target, symbol: str) -> bytes: ...


class Library(Protocol):
    """Loaded objects; `address` of a symbol is valid while the library is referenced."""

    def address(self, symbol: str) -> int: ...


BACKENDS: Registry[Backend] = Registry("backend", room="autotune.codegen.backends")


def backend_for(target: Target) -> Backend:
    """The backend of a target's kind: llvm for cpu, else the one named like the kind. Raises
    BuildError where there is none."""
    name = "llvm" if target.kind == "cpu" else target.kind
    if name not in BACKENDS:
        known = ", ".join(BACKENDS)
        raise BuildError(f"no backend for targets of kind {target.kind!r}; backends: {known}")
    return BACKENDS.get(name)
