"""List equations between graphs that the compiler may use, prove those of a file by evaluation,
or derive them from properties of operators."""

from __future__ import annotations

import argparse
from collections.abc import Sequence
from typing import TYPE_CHECKING

from autotune.cli import tables
from autotune.command_line import Parser

if TYPE_CHECKING:
    from autotune.rewrite.rule import Rewrite

ACTIONS = ("list", "prove", "derive")


def arguments(parser: Parser) -> None:
    parser.add_argument("action", choices=ACTIONS, help="what to do")
    parser.add_argument("file", nargs="?", metavar="FILE", help="of rewrites (default: shipped)")
    parser.add_argument("--text", action="store_true", help="list: print rewrites as in a file")


def run(options: argparse.Namespace) -> None:
    from autotune.rewrite import files

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
