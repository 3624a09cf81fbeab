"""A compiled model as files that need neither Python nor a compiler's runtime.

In: an image, a format, a folder. Out: a library or object, its header, a program that runs it,
files for build systems, a report of sizes. Linking is our own (`autotune.codegen.elf`): it needs
no toolchain, for this machine and others. For Python: the model's file, and a wheel that runs it.
"""

from __future__ import annotations

import dataclasses
import json
from dataclasses import dataclass
from pathlib import Path
from typing import TypeVar

from autotune import arguments
from autotune.atomic_file import write_together
from autotune.codegen.elf.loader import RUNTIME
from autotune.codegen.elf.objects import UNDEFINED, read_elf
from autotune.codegen.elf.relocatable import archive, merged_object
from autotune.codegen.elf.shared import shared_library
from autotune.codegen.llvm.backend import compile_text
from autotune.codegen.macho.objects import SYSTEMS, macho_archive, macho_object
from autotune.errors import ConfigError
from autotune.export.api_text import api_text
from autotune.export.build_files import LIBRARIES, cmake_text, pkg_config_text
from autotune.export.c_text import c_text
from autotune.export.exported import RESERVED, Exported, public_names, weights_symbol
from autotune.export.header import header_text, open_header_text
from autotune.export.interface import Frame, interface_of
from autotune.export.main_text import is_taken, main_text
from autotune.export.open_api_text import open_api_text
from autotune.export.open_c_text import open_c_text
from autotune.export.open_interface import open_interface
from autotune.export.open_wasm_module import open_wasm_module
from autotune.export.runtime_wheel import runtime_wheel
from autotune.export.seal import Description, seal, sealed
from autotune.export.size_report import module_sizes, open_sizes_of, sizes_of, source_sizes
from autotune.export.wasm_module import wasm_module
from autotune.export.wasm_text import module_text, program_text, types_text
from autotune.runtime.image_file import Image, image_bytes
from autotune.runtime.open_image import OpenImage
from autotune.systems import apple_system, is_android
from autotune.target import SOURCE, Target

FORMATS = (*LIBRARIES, "c", "wasm", "python")
WEIGHTS = ("inside", "file")
Files = dict[str, bytes | memoryview]
WASM = "wasm32"
"""The target of WebAssembly."""
_SYSTEM = {"libm.so.6": "m", "libpthread.so.0": "pthread"}
_ANDROID = {"libc.so.6": "libc.so", "libm.so.6": "libm.so"}
"""What glibc's libraries are called there. musl takes glibc's names for itself."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ExportOptions:
    """Options of an export. `prefix`: of every name in C, so that a program may hold several
    models."""

    format: str = "shared"
    weights: str = "inside"
    prefix: str = "model"


def export_image(image: Image, folder: str | Path, options: ExportOptions) -> tuple[Path, ...]:
    """Write the files, and give their paths. Raises ConfigError and BuildError."""
    return write_together(folder, exported_files(image, options), ConfigError)


def exported_files(image: Image, options: ExportOptions) -> Files:
    """The files by name. Raises ConfigError and BuildError."""
    _check(image, options)
    if options.format == "python":
        return dict((("model.model", image_bytes(image)), runtime_wheel()))
    said = about(image, options)
    if isinstance(image, OpenImage):
        image = image.alone
        return _open_files(image, options, said)
    if options.format == "wasm":
        module = wasm_module(image, said)
        return {
            "model.wasm": module,
            "model.mjs": module_text().encode(),
            "model.d.mts": types_text(image).encode(),
            "main.mjs": program_text().encode(),
            **_told(module_sizes(image, module, image.constants.nbytes)),
        }
    kept = options.format != "c"
    face = interface_of(image, options.prefix, keeps_pointers=kept)
    model = _exported(image, face, options, said)
    if options.format == "c":
        files = _sources(c_text(image, model), said) | _told(source_sizes(image, model.face))
    else:
        report = sizes_of(image, model.face).text()
        files = _objects(image, model, api_text(model), options, said) | _told(report)
    files |= {
        "model.h": header_text(model, image.name).encode(),
        "main.c": main_text(options.prefix).encode(),
    }
    return files | _outside(image, model)


def _open_files(image: OpenImage, options: ExportOptions, said: Description) -> Files:
    """Those of a model of open sizes."""
    if options.format == "wasm":
        model = _exported(image, open_interface(image, options.prefix), options, said)
        module = open_wasm_module(image, model, said)
        return {
            "model.wasm": module,
            "model.mjs": module_text(open_sizes=True).encode(),
            "model.d.mts": types_text(image).encode(),
            "main.mjs": program_text(open_sizes=True).encode(),
            **_told(module_sizes(image, module, model.face.weight_bytes)),
        }
    model = _exported(image, open_interface(image, options.prefix), options, said)
    if options.format == "c":
        return {
            **_sources(open_c_text(image, model), said),
            **_told(source_sizes(image, model.face)),
            "model.h": open_header_text(model, image.name).encode(),
            "main.c": main_text(options.prefix, open_sizes=True).encode(),
        }
    text, report = open_api_text(image, model), open_sizes_of(image, model.face).text()
    files = {
        **_objects(image, model, text, options, said),
        **_told(report),
        "model.h": open_header_text(model, image.name).encode(),
        "main.c": main_text(options.prefix, open_sizes=True).encode(),
    }
    return files | _outside(image, model)


Face = TypeVar("Face", bound=Frame)


def _exported(
    image: Image, face: Face, options: ExportOptions, said: Description
) -> Exported[Face]:
    inside = options.weights == "inside"
    return Exported(
        face=face,
        target=image.target,
        about=json.dumps(said, separators=(",", ": ")),
        seal=None if inside else seal(image.constants.data, said),
    )


def _outside(image: Image, model: Exported[Frame]) -> Files:
    """The file of weights, where they are not in the library."""
    if model.seal is None:
        return {}
    return {"model.weights": b"".join((image.constants.data, model.seal))}


def _told(report: str) -> Files:
    return {"sizes.txt": report.encode()}


def _sources(text: str, said: Description) -> Files:
    code = sealed(f"{text}\n/*".encode(), said) + b"*/\n"
    return {"model.c": code, "CMakeLists.txt": cmake_text("c").encode()}


def _objects(
    image: Image, model: Exported[Frame], text: str, options: ExportOptions, said: Description
) -> Files:
    """A linked library with the functions of `text`, and what belongs to it."""
    codes = [*image.objects, compile_text(text, image.target)]
    data = {weights_symbol(options.prefix): image.constants} if model.seal is None else {}
    links = system_libraries(codes)
    public = public_names(options.prefix, open_sizes=isinstance(image, OpenImage))
    system = tuple(_SYSTEM[name] for name in links if name in _SYSTEM)
    version = dict(image.versions).get("autotune-compiler", "0")
    library, apple = LIBRARIES[options.format], SYSTEMS.get(apple_system(image.target.triple))
    if options.format == "shared":
        needed = [_ANDROID[n] for n in links] if is_android(image.target.triple) else links
        code = sealed(shared_library(library, codes, data, public, needed), said)
    elif apple:
        merged = merged_object(codes, {}, public)
        code, system = sealed(macho_object(merged, data, public, apple), said), ()
    else:
        code = sealed(merged_object(codes, data, public), said)
    if options.format == "static":
        code = (macho_archive if apple else archive)("model.o", code, public)
    return {
        library: code,
        "CMakeLists.txt": cmake_text(options.format, system).encode(),
        "model.pc": pkg_config_text(options.format, version, system).encode(),
    }


def about(image: Image, options: ExportOptions) -> dict[str, str | int]:
    """An exported model's description of itself: its format, sizes, releases."""
    return {
        "format": f"autotune-export-{options.format}",
        "model": image.name,
        "target": image.target.name,
        "triple": image.target.triple,
        "cpu": image.target.cpu,
        "features": image.target.features,
        "threads": image.target.threads,
        "precision": image.target.precision,
        **{name: version for name, version in image.versions if version},
        "digest": image.digest(),
    }


def system_libraries(codes: list[bytes]) -> tuple[str, ...]:
    """The C library, and what else has functions that the code calls from outside."""
    items = [read_elf(code) for code in codes]
    names = {s.name for item in items for s in item.symbols if s.section == UNDEFINED}
    names -= {s.name for item in items for s in item.symbols if s.section != UNDEFINED}
    wanted = {
        library
        for name in names
        for library, offered in RUNTIME.items()
        if name.startswith("pthread_") == (library == "libpthread.so.0")
        and (offered.fullmatch(name) or name.startswith("pthread_"))
    }
    return ("libc.so.6", *sorted(wanted - {"libc.so.6"}))


def _check(image: Image, options: ExportOptions) -> None:
    target = image.target
    arguments.one_of("format", options.format, FORMATS, ConfigError)
    arguments.one_of("weights", options.weights, WEIGHTS, ConfigError)
    is_name = options.prefix.isidentifier() and options.prefix.isascii()
    if not is_name or options.prefix in RESERVED or is_taken(options.prefix):
        raise ConfigError(
            "--prefix must be a name in C that its words and the files' own leave free, like "
            f"model or face_detector, got {options.prefix!r}"
        )
    if options.format == "python" and options.weights != "inside":
        raise ConfigError("for Python the weights are in the model's file, which is mapped; leave "
                          "--weights out")  # fmt: skip
    if options.format == "wasm":
        _check_wasm(target, options)
    elif target.is_wasm:
        raise ConfigError(f"{target.name} is for --format wasm; name it, or another --target")
    if apple_system(target.triple) and options.format == "shared":
        raise ConfigError(
            f"for {target.name} there are objects and static libraries, which your linker takes: "
            "--format static, or object"
        )
    if options.format == "c":
        _check_source(target, options)
    elif target.kind != "cpu":
        raise ConfigError(
            f"models are exported for CPUs, and {target.name} is a target of kind {target.kind}; "
            "choose another with --target, see autotune targets"
        )


def _check_source(target: Target, options: ExportOptions) -> None:
    if not target.is_source:
        raise ConfigError(
            "a model that is compiled already has no C any more; export the model it came from"
        )
    if target.threads > 1 or options.weights != "inside":
        raise ConfigError(
            "C is exported for one thread with its weights inside; leave --threads and --weights "
            "out, or take another --format"
        )


def _check_wasm(target: Target, options: ExportOptions) -> None:
    if not target.is_wasm:
        raise ConfigError(
            f"--format wasm takes a model for {WASM}, and this one is for {target.name}; leave "
            "--target out, or export the model it came from"
        )
    check_alone(target.threads, options.weights)


def check_alone(threads: int, weights: str) -> None:
    """Raise ConfigError for what WebAssembly is not exported with."""
    if threads > 1 or weights != "inside":
        raise ConfigError(
            "WebAssembly is exported for one thread with its weights inside; leave --threads and "
            "--weights out"
        )


def source_target(target: Target) -> Target:
    """The target for C of the same vectors and caches. Raises ConfigError for GPUs."""
    if target.kind not in ("cpu", "c"):
        raise ConfigError(f"C is exported for CPUs, and {target.name} is of kind {target.kind}")
    return dataclasses.replace(target, kind="c", arch=SOURCE)
