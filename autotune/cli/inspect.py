"""Say what a compiled or exported file is, and check that it is whole."""

from __future__ import annotations

import argparse
import json
from pathlib import Path

from autotune.cli import tables
from autotune.command_line import Parser
from autotune.errors import ArtifactError
from autotune.printable import printable


def arguments(parser: Parser) -> None:
    parser.add_argument(
        "file", metavar="FILE", help="of autotune compile, or a library, object or C of export"
    )
    parser.add_argument("--json", action="store_true", help="as JSON")


def run(options: argparse.Namespace) -> None:
    from autotune.export.seal import read_seal
    from autotune.runtime.image_file import describe, is_artifact

    if is_artifact(options.file):
        about = describe(options.file)
    else:
        try:
            data = Path(options.file).read_bytes()
        except OSError as error:
            raise ArtifactError(f"cannot read {options.file}: {error.strerror}") from None
        about = read_seal(data, options.file)
    if options.json:
        print(json.dumps(about))
        return
    rows = [(name, printable(str(value))) for name, value in about.items()]
    print(tables.table(("", ""), [*rows, ("intact", "yes")]).strip())
