"""The `autotune` command. In: arguments. Out: text, and an exit status.

One file per command, imported only when it is called: `arguments(parser)` declares its options and
`run(options)` does it. `COMMANDS` has them all, those of plugins too. Exit status: 0 done, 2 input
that cannot be used (one line on stderr), 1 a failure of ours, 130 interrupted.
"""

from __future__ import annotations

import importlib
import sys
from collections.abc import Sequence
from dataclasses import dataclass
from typing import NoReturn

from autotune.cli.warned import warned
from autotune.registry import Registry


@dataclass(frozen=True, slots=True)
class Command:
    """A command: its line in the list of commands, and the module that declares and runs it."""

    summary: str
    module: str


_OWN = {
    "tune": "tune a model's tasks and log every measurement",
    "tasks": "list the tasks of a model",
    "query": "show the best records of a tuning log",
    "log": "export, import, merge, verify, freeze, prune, check, repair a tuning log",
    "model": "train cost models on tuning logs",
    "report": "write a page about a model's tuning",
    "compile": "compile a model into one file",
    "export": "write a model as a library, an object or C, without Python",
    "inspect": "say what a compiled or exported file is, and check it",
    "run": "run a model once",
    "bench": "time a model, whole and kernel by kernel",
    "rewrite": "list or prove equations between graphs",
    "machine": "measure what this machine can do, and describe it",
    "targets": "list the known targets",
    "zoo": "list or export the bundled models",
}
COMMANDS: Registry[Command] = Registry("command")
for _name, _summary in _OWN.items():
    COMMANDS.add(_name, Command(_summary, f"autotune.cli.{_name}"))


def main(arguments: Sequence[str] | None = None) -> NoReturn:
    """Entry point of the `autotune` command."""
    try:
        from autotune.streams import open_closed

        open_closed()
        sys.exit(execute(sys.argv[1:] if arguments is None else arguments))
    except KeyboardInterrupt:  # before the command began
        print("interrupted", file=sys.stderr)
        sys.exit(130)


def execute(arguments: Sequence[str]) -> int:
    """Run one command; the exit status."""
    with warned():
        return _execute(arguments)


def _execute(arguments: Sequence[str]) -> int:
    if not arguments or arguments[0] in ("-h", "--help", "help"):
        print(usage())
        return 0 if arguments else 2
    if arguments[0] == "--version":
        import autotune

        print(autotune.__version__)
        return 0
    command = arguments[0]
    if command not in COMMANDS:
        known = ", ".join(COMMANDS.in_order())
        return _fail(f"unknown command {command!r}; expected one of {known}")
    return _guarded(command, arguments[1:])


def usage() -> str:
    rows = [f"  {name:<9} {command.summary}" for name, command in COMMANDS.in_order().items()]
    return "\n".join(
        ["usage: autotune COMMAND ...", "", *rows, "", "autotune COMMAND --help shows its options"]
    )


def _guarded(command: str, arguments: Sequence[str]) -> int:
    """The process boundary: every error the project raises on purpose becomes one line."""
    from autotune.cli.options import check_output
    from autotune.command_line import Parser
    from autotune.errors import AutotuneError, InputError
    from autotune.streams import discard, refusal

    options = None
    try:
        _show_warnings()
        module = importlib.import_module(COMMANDS.get(command).module)
        parser = Parser(prog=f"autotune {command}", description=module.__doc__)
        module.arguments(parser)
        options = parser.parse_args(arguments)
        check_output(options)
        module.run(options)
        sys.stdout.flush()
    except InputError as error:
        return _fail(Exception.__str__(error))  # its lines, if there are several, become one
    except AutotuneError as error:
        return _fail(f"{type(error).__name__}: {error}; please report this", status=1)
    except KeyboardInterrupt:
        from autotune.db.files import shown

        measured = command == "tune" and not getattr(options, "dry_run", False)
        log = getattr(options, "log", None) if measured else None
        kept = shown(log) if log else None
        print(f"interrupted{f'; measured results are in {kept}' if kept else ''}", file=sys.stderr)
        return 130
    except BrokenPipeError:
        discard(sys.stdout)  # whoever read the output has seen enough
    except OSError as error:
        discard(sys.stdout)
        return _fail(refusal(error))
    except MemoryError as error:
        return _fail(f"out of memory ({error}); take a smaller model, or a machine with more")
    return 0


def _show_warnings() -> None:
    """A log's warnings are lines on standard error."""
    import logging

    from autotune.db.damage import LOGGER
    from autotune.printable import printable

    class Line(logging.Handler):
        def emit(self, record: logging.LogRecord) -> None:
            print(f"warning: {printable(record.getMessage())}", file=sys.stderr)

    if not LOGGER.handlers:
        LOGGER.addHandler(Line())


def _fail(message: str, status: int = 2) -> int:
    from autotune.printable import one_line

    print(f"error: {one_line(message)}", file=sys.stderr)
    return status
