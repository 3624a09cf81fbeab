"""Every command of the pages for readers is run, and their Python examples too."""

from __future__ import annotations

import re
from pathlib import Path

import numpy as np
import pytest
import torch

from autotune.cli import execute
from tests.pages import PAGES, ROOT, Reader, blocks, commands, reader, sections, text_of
from tests.serial_firmware import simulated_board
from tests.tflite_models import (
    RELU,
    SAME,
    Operator,
    bias,
    constant,
    conv,
    q,
    tflite_bytes,
    weights,
)
from tests.tflite_streams import NAMES, streaming

SHORTER = {"--time 5m": "--time 8s", "--time 1m": "--time 6s"}


@pytest.fixture
def someone(tmp_path: Path, cache_home: Path, monkeypatch: pytest.MonkeyPatch) -> object:
    """A reader, who has the small model, and one of bytes."""
    x, y = q(1, 9, 7, 4), q(1, 9, 7, 8, zero=-128)
    layer = Operator(
        name="CONV_2D", inputs=[x, weights(8, 3, 3, 4), bias(8)], outputs=[y],
        options=conv(1, SAME, RELU),
    )  # fmt: skip
    (tmp_path / "model.tflite").write_bytes(tflite_bytes([layer], [x], [y]))
    with reader(tmp_path, cache_home, monkeypatch) as found:
        found.replace |= SHORTER
        assert execute(["zoo", "export", "tiny", "-o", "tiny.onnx"]) == 0
        yield found


SERIAL_PORT = "/dev/ttyACM0,921600"
PARTS = [(page, part) for page in PAGES for part, text in sections(page).items() if commands(text)]
FOLDERS = (
    "autotune", "benchmarks", "configs", "cost_model", "docs", "examples", "rpc_server",
    "search_spaces", "tests",
)  # fmt: skip
WHOLE = ("docs/GUIDE.md", "docs/LOG.md")
"""Pages whose parts go on with what earlier ones made."""
SUBJECTS = sorted(f"figures/{p.name}" for p in (ROOT / "benchmarks/figures").iterdir())
FIGURES = ("benchmarks/FIGURES.md", *(f"benchmarks/{page}" for page in SUBJECTS))
"""Pages of measurements: in short, and by subject."""


@pytest.mark.slow
@pytest.mark.parametrize(("page", "part"), [p for p in PARTS if p[0] not in WHOLE])
def test_the_commands_of_a_part_run_in_their_order(
    page: str, part: str, someone: Reader, tmp_path: Path
) -> None:
    lines = commands(sections(page)[part])
    if any(SERIAL_PORT in line for line in lines):
        port, _ = someone.servers.enter_context(simulated_board(tmp_path))
        Path(port).chmod(0o666)  # workers are another user where root runs the tests
        someone.replace[SERIAL_PORT] = port
    for line in lines:
        someone.type(re.sub(r"--trials \d+", "--trials 12", line))


@pytest.mark.slow
@pytest.mark.parametrize("page", WHOLE)
def test_the_commands_of_a_page_run_in_their_order(page: str, someone: Reader) -> None:
    for line in commands(text_of(page)):
        someone.type(line)


def test_every_page_is_linked_from_the_first() -> None:
    first = text_of("README.md")
    assert [page for page in PAGES[1:] if f"]({page})" not in first] == []


def test_the_first_page_is_short() -> None:
    assert len(text_of("README.md").splitlines()) <= 150


@pytest.mark.parametrize("page", [*PAGES, "CHANGELOG.md", "SECURITY.md", *FIGURES])
def test_links_lead_somewhere(page: str) -> None:
    for link in re.findall(r"\]\(([^)\s]+)\)", text_of(page)):
        if link.startswith("https://"):
            continue
        path, _, heading = link.partition("#")
        target = (ROOT / page).parent / path if path else ROOT / page
        assert target.exists(), link
        if heading:
            headings = re.findall(r"^#+ (.+)$", target.read_text(encoding="utf-8"), re.MULTILINE)
            assert heading in {anchor(text) for text in headings}, link


def test_every_page_of_figures_is_linked_from_the_short_one() -> None:
    assert [page for page in SUBJECTS if f"]({page})" not in text_of(FIGURES[0])] == []


@pytest.mark.parametrize("page", FIGURES)
def test_a_page_of_figures_is_one_to_read(page: str) -> None:
    """Neither so long that newer figures lie over older ones, nor with rows that miss a cell."""
    lines = text_of(page).splitlines()
    assert len(lines) <= 120 if page == FIGURES[0] else 60 <= len(lines) <= 300
    assert [line for line in lines if len(line) > 120 and not line.startswith("|")] == []
    for table in re.findall(r"(?:^\|.*\n)+", text_of(page), re.MULTILINE):
        assert len({row.count("|") for row in table.splitlines()}) == 1, table


def anchor(heading: str) -> str:
    """As a forge makes it of a heading."""
    return re.sub(r"[^\w\- ]", "", heading.lower()).replace(" ", "-")


@pytest.mark.parametrize("page", [*PAGES, "SECURITY.md", *FIGURES])
def test_paths_that_are_named_exist(page: str) -> None:
    """`x.py` stands for a part of one's own."""
    for path in re.findall(rf"\b(?:{'|'.join(FOLDERS)})/[\w./-]*\w", text_of(page)):
        assert (ROOT / path).exists() or re.search(r"/x(\.\w+|/.*)?$", path), path


@pytest.mark.slow
def test_the_first_python_example_runs(someone: Reader) -> None:
    code, _ = blocks(text_of("README.md"), "python")
    (someone.folder / "tiny.onnx").rename("resnet18.onnx")
    setup = "import numpy as np\narray = np.zeros((1, 3, 32, 32), np.float32)\n"
    exec(setup + code.replace("trials=500", "trials=10"), {})


def test_the_line_for_pytorch_runs() -> None:
    _, code = blocks(text_of("README.md"), "python")
    names = {"torch": torch, "model": torch.nn.Linear(3, 2).eval()}
    exec(code, names)
    assert names["model"](torch.ones(4, 3)).shape == (4, 2)


@pytest.mark.slow
@pytest.mark.parametrize("number", range(len(blocks(text_of("docs/GUIDE.md"), "python"))))
def test_the_guide_s_python_examples_run(number: int, someone: Reader) -> None:
    frames = constant(np.full((1, 3, 1, 6), -128), "int8", scale=0.05, zero=-128)
    sums = constant(np.zeros((1, 1, 1, 5)), "float32")
    stream = streaming(dict(zip(NAMES, (frames, sums), strict=True)))
    (someone.folder / "stream.tflite").write_bytes(stream)
    names = {"__name__": str(someone.folder), "frame": np.zeros((1, 1, 1, 6), np.int8)}
    exec(blocks(text_of("docs/GUIDE.md"), "python")[number], names)


def test_what_contributing_shows_is_the_plugin_that_is_installed() -> None:
    page = text_of("docs/CONTRIBUTING.md")
    files = [*(ROOT / "examples/plugin").rglob("*.py"), ROOT / "examples/plugin/pyproject.toml"]
    code = "\n".join(file.read_text(encoding="utf-8") for file in files)
    shown = [*blocks(page, "python"), *blocks(page, "toml")]
    assert len(shown) >= 5
    assert [block for block in shown if block not in code] == []


def test_the_folders_of_the_table_of_parts_exist() -> None:
    page = text_of("docs/CONTRIBUTING.md")
    folders = re.findall(r"`((?:[a-z_]+/)+)x[./`]", page)
    assert len(folders) >= 12
    for folder in folders:
        assert (ROOT / folder).is_dir(), folder
