"""List equations between graphs that the compiler may use, prove those of a file by evaluation,
derive them from properties of operators, or generate more."""

from __future__ import annotations

import argparse
import functools
import sys
from collections.abc import Sequence
from typing import TYPE_CHECKING

from autotune.atomic_file import write_text
from autotune.cli import tables
from autotune.command_line import Parser
from autotune.errors import ConfigError

if TYPE_CHECKING:
    from autotune.rewrite.rule import Rewrite

ACTIONS = ("list", "prove", "derive", "generate")


def arguments(parser: Parser) -> None:
    parser.add_argument("action", choices=ACTIONS, help="what to do")
    parser.add_argument("file", nargs="?", metavar="FILE", help="of rewrites (default: by hand)")
    parser.add_argument("-o", "--output", metavar="FILE", help="generate: where to")
    parser.add_argument("--theme", action="append", help="generate: of these (default: all)")
    parser.add_argument("--text", action="store_true", help="list: print rewrites as in a file")


def run(options: argparse.Namespace) -> None:
    from autotune.rewrite import files

    if options.output and options.action != "generate":
        raise ConfigError("-o is where 'rewrite generate' writes to; it says nothing here")
    if options.action == "generate":
        _generate(options.file, options.output, options.theme)
        return
    path = options.file or files.SHIPPED
    if options.action == "prove":
        _prove(path)
        return
    rewrites = files.read(path)
    if options.action == "derive":
        _derive(rewrites)
        return
    if options.text:
        print("\n\n".join(map(str, rewrites)))
        return
    rows = [(r.name, "exact" if r.exact else "", " ".join(r.note)[:100]) for r in rewrites]
    print(tables.table(("rewrite", "sums", "why"), rows))


def _generate(file: str | None, output: str | None, wanted: list[str] | None) -> None:
    """Rewrites that follow from no smaller one, from those that ship, or from a file's."""
    from autotune.rewrite import files
    from autotune.rewrite.generate import generate, written
    from autotune.rewrite.themes import themes

    names = [theme.name for theme in themes()]
    for name in set(wanted or ()) - set(names):
        raise ConfigError(f"there is no theme {name!r}; there are {', '.join(names)}")
    known = files.read(file or files.SHIPPED)
    say = functools.partial(print, file=sys.stderr)
    found = list(generate(wanted or names, known, say))
    text = written(found)
    if output is None:
        print(text, end="")
        return
    write_text(output, text, ConfigError)
    count = sum(r.saves for r in found)
    print(f"{len(found)} rewrites, of which {count} may save work, are in {output}")


def _derive(rewrites: Sequence[Rewrite]) -> None:
    """A line for each derivation. Raises UnprovenError at the first rewrite without one."""
    from autotune.rewrite.derive import Deriver, properties

    deriver = Deriver(properties())
    for rewrite in rewrites:
        print(deriver.derive(rewrite), flush=True)
    print(f"{len(rewrites)} rewrites derived from {len(deriver.given)} properties")


def _prove(path: object) -> None:
    """A line for each proof. Raises UnprovenError at the first rewrite without one."""
    import os

    from autotune.rewrite import files
    from autotune.rewrite.prove import prove

    assert isinstance(path, str | os.PathLike)
    rewrites = files.read(path)
    for rewrite in rewrites:
        print(prove(rewrite), flush=True)
    print(f"{len(rewrites)} rewrites proven")
