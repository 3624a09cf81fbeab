"""The page itself, as text and as a browser shows it."""

from __future__ import annotations

import dataclasses
import re
import shutil
import subprocess
from html.parser import HTMLParser
from pathlib import Path

import pytest

from autotune.report.page import page, seconds
from tests.unit.report.samples import ERROR, facts, latency
from tests.unit.tuner.fakes import MemoryStore
from tests.unit.tuner.synthetic import PROFILE, TARGET

UNTIMED = page(facts())
TEXT = page(facts(latencies=[latency()]))
SECTIONS = (
    "End to end", "Time per kernel", "Roofline", "Search", "Failures by reason", "Cost model",
    "Environment",
)  # fmt: skip
SLOPE = re.compile(r'<polyline class="line s2" points="[^"]*"><title>[^<]* GB/s</title>')
VOID = {"meta", "link", "br"}


class Balance(HTMLParser):
    """Checks that every element is closed in order."""

    def __init__(self) -> None:
        super().__init__()
        self.open: list[str] = []

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        del attrs
        if tag not in VOID:
            self.open.append(tag)

    def handle_startendtag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        pass

    def handle_endtag(self, tag: str) -> None:
        assert self.open.pop() == tag


@pytest.mark.parametrize(
    "text", [TEXT, UNTIMED, page(facts(MemoryStore()))], ids=["full", "untimed", "empty"]
)
def test_elements_are_closed_in_order_and_sections_there(text: str) -> None:
    reader = Balance()
    reader.feed(text)
    assert reader.open == []
    assert re.findall("<h2>(.*?)</h2>", text) == list(SECTIONS)


def test_measured_latencies_come_first_where_there_are_any() -> None:
    assert re.search("<b>11.1 ms</b>end to end before.*<b>8.6 ms</b>end to end after", TEXT)
    assert "4.3 ms to 17.2 ms" in TEXT
    assert "The whole model was not measured" not in TEXT


def test_threads_move_as_many_times_the_bytes() -> None:
    """Two threads are drawn as one that is twice as fast."""
    one = facts()
    levels = tuple(
        dataclasses.replace(level, load_bytes_per_s=2 * level.load_bytes_per_s)
        for level in PROFILE.levels
    )
    fast = dataclasses.replace(PROFILE, peak_flops=2 * PROFILE.peak_flops, levels=levels)
    two = dataclasses.replace(one, target=TARGET.with_threads(2))
    drawn = [SLOPE.findall(page(f)) for f in (two, dataclasses.replace(one, profile=fast))]
    assert drawn[0] == drawn[1]
    assert len(drawn[0]) == len(PROFILE.levels)


def test_sums_of_kernels_are_called_that() -> None:
    assert "kernels&#x27; sum before" in UNTIMED
    assert "The whole model was not measured" in UNTIMED
    assert "end to end before" not in UNTIMED


def test_nothing_is_fetched_and_nothing_runs() -> None:
    assert not re.search(r"<script|<link|<img|<iframe|https?://|url\(|@import|src=", TEXT)


def test_text_from_outside_is_escaped() -> None:
    assert "log &lt;1&gt;.db" in TEXT
    assert "&lt;8&gt;" in TEXT
    assert ERROR not in TEXT


def test_charts_hold_finite_numbers() -> None:
    assert "nan" not in TEXT
    assert not re.search(r'"[^"<>]*\binf\b[^"<>]*"', TEXT)
    assert TEXT.count("<svg") >= 4


@pytest.mark.parametrize(
    ("value", "wanted"),
    [(1.5, "1.5 s"), (2e-3, "2 ms"), (3.25e-6, "3.25 µs"), (4e-9, "4 ns"), (None, "–")],
)
def test_times_have_units(value: float | None, wanted: str) -> None:
    assert seconds(value) == wanted


def chromium(*arguments: str) -> subprocess.CompletedProcess[str]:
    browser = shutil.which("chromium")
    if browser is None:
        pytest.fail("the Debian package chromium is missing: apt-get install chromium")
    command = [
        browser, "--headless", "--no-sandbox", "--disable-gpu", "--disable-dev-shm-usage",
        "--hide-scrollbars", "--host-resolver-rules=MAP * ~NOTFOUND", *arguments,
    ]  # fmt: skip
    return subprocess.run(command, capture_output=True, text=True, timeout=120, check=False)


@pytest.mark.slow
def test_a_browser_shows_it(tmp_path: Path) -> None:
    sizes = {}
    for name, text in (("report", TEXT), ("blank", "<!DOCTYPE html><title>blank</title>")):
        file, picture = tmp_path / f"{name}.html", tmp_path / f"{name}.png"
        file.write_text(text, encoding="utf-8")
        shown = chromium(
            f"--user-data-dir={tmp_path / 'profile'}", "--window-size=1040,2400",
            f"--screenshot={picture}", file.as_uri(),
        )  # fmt: skip
        assert shown.returncode == 0, shown.stderr
        assert picture.read_bytes().startswith(b"\x89PNG")
        sizes[name] = picture.stat().st_size
    assert sizes["report"] > 5 * sizes["blank"]


@pytest.mark.slow
def test_a_browser_reads_every_section(tmp_path: Path) -> None:
    file = tmp_path / "report.html"
    file.write_text(TEXT, encoding="utf-8")
    read = chromium(f"--user-data-dir={tmp_path / 'profile'}", "--dump-dom", file.as_uri())
    assert read.returncode == 0, read.stderr
    assert re.findall("<h2>(.*?)</h2>", read.stdout) == list(SECTIONS)
    assert read.stdout.count("<svg") == TEXT.count("<svg")
    assert read.stdout.count("<circle") == TEXT.count("<circle") > 0


_OUTSIDE = """<script>
document.title = [...document.querySelectorAll("svg text, svg rect, svg circle")].filter(e => {
  const own = e.getBoundingClientRect(), all = e.closest("svg").getBoundingClientRect();
  return own.left < all.left - 1 || own.right > all.right + 1;
}).map(e => e.textContent).join(" | ") + "#" + (document.body.scrollWidth > innerWidth)
</script>"""


@pytest.mark.slow
def test_nothing_is_cut_off_in_a_browser(tmp_path: Path) -> None:
    file = tmp_path / "report.html"
    file.write_text(TEXT + _OUTSIDE, encoding="utf-8")
    read = chromium(
        f"--user-data-dir={tmp_path / 'profile'}", "--window-size=1040,2400", "--dump-dom",
        file.as_uri(),
    )  # fmt: skip
    assert read.returncode == 0, read.stderr
    assert re.findall("<title>([^<]*#[^<]*)</title>", read.stdout) == ["#false"]
