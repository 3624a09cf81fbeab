"""List the bundled models, or export one as an ONNX file. Weights are seeded: no download."""

from __future__ import annotations

import argparse

from autotune.command_line import Parser


def arguments(parser: Parser) -> None:
    actions = parser.add_subparsers(dest="action", metavar="list | export")
    actions.add_parser("list", help="names of the models (the default)")
    export = actions.add_parser("export", help="write a model as an .onnx file")
    export.add_argument("name", metavar="NAME")
    export.add_argument("-o", "--output", required=True, metavar="FILE")


def run(options: argparse.Namespace) -> None:
    from autotune.frontend.zoo import ZOO, export_onnx  # needs onnx

    if options.action == "export":
        export_onnx(options.name, options.output)
        print(f"{options.output}: {options.name}")
        return
    for name in ZOO:
        print(name)
