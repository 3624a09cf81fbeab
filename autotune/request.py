"""The options of a compile as one value. In: options. Out: a CompileRequest, checked.

The fields of a request are the options of the functions that take it. A field has its default, its
check and its documentation beside it: signatures, docstrings, and what type checkers and editors
know of those functions, are made of the fields (see `taking`). What they are called on the command
line is in `autotune.cli.flags`. Standard library only: what else a check needs, it imports itself.
"""

# ruff: noqa: RUF009 (what `option` gives is a dataclass's field)

from __future__ import annotations

import functools
import inspect
import os
import textwrap
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, fields, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, ParamSpec, TypeVar

from autotune import arguments
from autotune.errors import TargetError
from autotune.exactness import ACCURACIES, precision_named
from autotune.release import needing_compiler
from autotune.systems import has_teams
from autotune.target import MAX_THREADS, Target, load_target

if TYPE_CHECKING:
    from autotune.db.types import LogStore
    from autotune.frontend import Model
    from autotune.graph.feeds import Samples
    from autotune.machine.profile import DeviceProfile
    from autotune.size_ranges import Range

Value = TypeVar("Value")
Request = TypeVar("Request")
Result = TypeVar("Result")
Options = ParamSpec("Options")
Check = Callable[[str, Any], object]
"""Raises an InputError of one line for a field's name and a value that it cannot have."""


def option(default: Value, check: Check, doc: str) -> Value:
    """A field of a request. Where the default is None, None is not checked."""
    return field(default=default, metadata={"check": check, "doc": doc})


def _check_model(_: str, value: object) -> None:
    from autotune.frontend import check_model

    check_model(value)


def _check_target(name: str, value: object) -> None:
    if not isinstance(value, Target):
        arguments.place(name, value, "a name, a .toml file or a Target", TargetError)


NOMINAL = "nominal"
"""In place of a machine: speeds of none in particular."""


_check_folder = functools.partial(arguments.place, what="the path of a folder")


def _check_machine(name: str, value: object) -> None:
    if isinstance(value, str) and value == NOMINAL:
        return
    from autotune.machine.files import load_machine
    from autotune.machine.profile import DeviceProfile

    if not isinstance(value, DeviceProfile):
        load_machine(arguments.place(name, value, "a file of autotune machine or a DeviceProfile"))


def check_log(*methods: str) -> Check:
    """A path, an SQLAlchemy URL or an open log with these methods."""

    def check(_: str, value: object) -> None:
        from autotune.db.types import check_log

        check_log(value, methods)

    return check


def _check_precision(name: str, value: object) -> None:
    precision_named(arguments.text(name, value, "a name", TargetError))


def _check_calibration(_: str, value: object) -> None:
    from autotune.graph.feeds import check_samples

    check_samples(value)


@dataclass(frozen=True, slots=True, kw_only=True)
class CompileRequest:
    """A model, and what it is compiled for. Raises an InputError of one line."""

    model: Model = field(
        kw_only=False,
        metadata={
            "check": _check_model,
            "doc": "The path of an .onnx file (tensors in files beside it are found) or a .tflite "
            "file, `zoo:NAME`, the bytes of such a file, an onnx.ModelProto or a Graph; the last "
            "three have all their tensors.",
        },
    )
    target: str | os.PathLike[str] | Target = option(
        "cpu", _check_target, "A name, a .toml file or a Target. 'cpu' is this machine."
    )
    machine: str | os.PathLike[str] | DeviceProfile | None = option(
        None,
        _check_machine,
        "The machine that default schedules are for, if not this one: a file of `autotune machine "
        "--json`, or a DeviceProfile; the target 'cpu' is that machine's. 'nominal': none that "
        "was measured. This one is measured once, which takes a few seconds.",
    )
    cache_dir: str | os.PathLike[str] | None = option(
        None, _check_folder, "Where it is kept what this machine measured; `~/.cache/autotune`."
    )
    log: str | os.PathLike[str] | LogStore | None = option(
        None,
        check_log("best", "nearest"),
        "Where schedules come from: a path, an SQLAlchemy URL or an open log; an empty one "
        "is fine, of a missing one a MissingLogWarning tells.",
    )
    threads: int = option(
        1,
        functools.partial(arguments.whole, least=1, most=MAX_THREADS, failure=TargetError),
        "Threads to run on, unless a Target is given.",
    )
    accuracy: str = option(
        "normal",
        functools.partial(arguments.one_of, choices=ACCURACIES, failure=TargetError),
        "'normal', or 'strict': no algorithm that rounds more than direct code, or by which a "
        "NaN or an infinity spoils outputs that do not read it (Winograd, Strassen), and denormal "
        "numbers are no zeros; or 'reproducible': strict, and a model gives the same bits "
        "whatever is tuned, on any number of threads, with AVX2 or AVX-512. Unless a Target is "
        "given.",
    )
    precision: str = option(
        "float32",
        _check_precision,
        "'float32', 'bf16' or 'int8'; 'f16' and 'tf32' on tensor cores. Unless a Target is given.",
    )
    calibration: Samples | None = option(
        None,
        _check_calibration,
        "Samples of the inputs for int8: a .npz file, a folder of them, or arrays by input name; "
        "without it they are random.",
    )
    shapes: Mapping[str, tuple[int | str, ...]] | None = option(
        None,
        lambda _, value: arguments.shapes(value),
        'Fixes symbolic input dimensions: {"x": (1, 3, 224, 224)}, or names them: '
        '{"x": (1, 3, "H", "W")}.',
    )
    ranges: Mapping[str, Range] | None = option(
        None,
        lambda _, value: arguments.ranges(value),
        'Least, most and step of symbolic dimensions that stay so: {"H": (64, 1024, 32)}; others '
        "may have any size.",
    )

    rewrites: str | os.PathLike[str] | None = option(
        None,
        functools.partial(arguments.place, what="the path of a file of rewrites, or 'none'"),
        "A file of equations between graphs, which are proven and then used where they are "
        "predicted to gain; 'none': none. Otherwise those that ship.",
    )
    fallback: bool = option(
        True,
        arguments.flag,
        "Whether nodes without a kernel here may run in ONNX Runtime, or else in the reference "
        "evaluator of the onnx package; a note says which. Otherwise they are refused.",
    )

    def __post_init__(self) -> None:
        for of in fields(self):
            value = getattr(self, of.name)
            if value is not None or of.default is not None:
                of.metadata["check"](of.name, value)

    def wanted_target(self) -> Target:
        """The Target that is given, or the named one with its settings. Raises TargetError."""
        if isinstance(self.target, Target):
            return self.target
        profile = self._profile() if self.target == "cpu" else None
        if profile is not None:
            named = profile.target.with_threads(self.threads)
        else:
            named = load_target(os.fspath(self.target), self.threads)
        if named.kind == "cpu" and self.threads > 1 and not has_teams(named.triple):
            raise TargetError(
                f"kernels for {named.triple} run on one thread; threads must be 1 there, got "
                f"{self.threads}"
            )
        return named.with_accuracy(self.accuracy).with_precision(self.precision)

    def measured_folder(self) -> Path | None:
        """Where it is kept what machines measured about themselves; None without a home."""
        if self.cache_dir:
            return Path(self.cache_dir)
        try:
            return Path.home() / ".cache" / "autotune"
        except RuntimeError:
            return None

    def wanted_profile(self) -> DeviceProfile | None:
        """The machine that is predicted for, at the wanted target; None where none is named.
        Raises an InputError."""
        profile = self._profile()
        return profile and replace(profile, target=self.wanted_target())

    def _profile(self) -> DeviceProfile | None:
        from autotune.machine.files import load_machine

        given = None if self.machine == NOMINAL else self.machine
        return load_machine(given) if isinstance(given, str | os.PathLike) else given


RAISES = (
    "Raises InputError, in one line, for what the user can mend; arguments are checked before\n"
    "any work begins."
)


def taking(
    request: Callable[Options, Request],
) -> Callable[[Callable[[Request], Result]], Callable[Options, Result]]:
    """A decorator: the function of a request, called with the request's fields as its options.
    They are in its signature and, documented, in its docstring, as is what it raises."""

    def decorated(function: Callable[[Request], Result]) -> Callable[Options, Result]:
        result = inspect.signature(function).return_annotation
        signature = inspect.signature(request).replace(return_annotation=result)

        @functools.wraps(function)
        def called(*args: Options.args, **options: Options.kwargs) -> Result:
            arguments.fitting(function.__name__, signature, args, options)
            with needing_compiler():
                return function(request(*args, **options))

        called.__signature__ = signature  # type: ignore[attr-defined]
        called.__doc__ = f"{inspect.getdoc(function)}\n\n{described(request)}\n\n{RAISES}"
        return called

    return decorated


def described(request: Any) -> str:
    """The fields of a request for people, a paragraph each."""
    return "\n".join(
        textwrap.fill(f"`{of.name}`: {of.metadata['doc']}", 88, subsequent_indent="    ")
        for of in fields(request)
    )
