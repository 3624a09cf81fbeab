"""The page itself, as text and as a browser shows it."""

from __future__ import annotations

import base64
import dataclasses
import functools
import hashlib
import re
import subprocess
from collections.abc import Callable
from html.parser import HTMLParser
from pathlib import Path

import pytest

from autotune.report.elements import seconds
from autotune.report.facts import Facts
from autotune.report.page import page
from tests.needs import program, require
from tests.unit.report.samples import ERROR, facts, latency, timed, untimed
from tests.unit.tuner.fakes import MemoryStore
from tests.unit.tuner.synthetic import PROFILE, TARGET

SECTIONS = (
    "End to end", "Compared with an earlier run", "Time per kernel", "The network", "Roofline",
    "Search", "Parameters", "Failures by reason", "Cost model", "Environment",
)  # fmt: skip
SLOPE = re.compile(r'<polyline class="line s2" points="[^"]*"><title>[^<]* GB/s</title>')
VOID = {"meta", "link", "br"}


@functools.cache
def text_of(found: Callable[[], Facts] = timed) -> str:
    return page(found())


def empty() -> Facts:
    return facts(MemoryStore())


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


@pytest.mark.parametrize("found", [timed, untimed, empty])
def test_elements_are_closed_in_order_and_sections_there(found: Callable[[], Facts]) -> None:
    reader, text = Balance(), text_of(found)
    reader.feed(text)
    assert reader.open == []
    assert re.findall("<h2>(.*?)</h2>", text) == list(SECTIONS)


def test_measured_latencies_come_first_where_there_are_any() -> None:
    assert re.search("<b>11.1 ms</b>end to end before.*<b>8.6 ms</b>end to end after", text_of())
    assert "4.3 ms to 17.2 ms" in text_of()
    assert "The whole model was not measured" not in text_of()


def test_runs_on_boards_have_a_table_where_there_are_any() -> None:
    run = dataclasses.replace(latency("board"), before=(), target_key="cpu-aarch64-v128")
    text = page(dataclasses.replace(untimed(), boards=(run,)))
    assert re.search("<h2>On boards</h2>.*board.*cpu-aarch64-v128.*8.6 ms", text, re.DOTALL)
    assert "The whole model was not measured" in text


def test_threads_move_as_many_times_the_bytes() -> None:
    """Two threads are drawn as one that is twice as fast."""
    one = untimed()
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
    assert "kernels&#x27; sum before" in text_of(untimed)
    assert "The whole model was not measured" in text_of(untimed)
    assert "end to end before" not in text_of(untimed)


def test_nothing_is_fetched_and_nothing_runs_but_the_page_s_own_script() -> None:
    (script,) = re.findall(r"<script>(.*?)</script>", text_of(), re.DOTALL)
    rest = text_of().replace(f"<script>{script}</script>", "")
    assert not re.search(r"<script|<link|<img|<iframe|https?://|url\(|@import|src=", rest)
    assert not re.search(r"<[^>]* on\w+=", rest)
    assert not re.search(r"fetch|import|eval|innerHTML|https?:|XMLHttp", script)
    digest = base64.b64encode(hashlib.sha256(script.encode()).digest()).decode()
    (policy,) = re.findall(r'Content-Security-Policy" content="([^"]*)"', rest)
    assert policy == (
        f"default-src 'none'; style-src 'unsafe-inline'; script-src 'sha256-{digest}'"
    )


def test_text_from_outside_is_escaped() -> None:
    assert "log &lt;1&gt;.db" in text_of()
    assert "&lt;8&gt;" in text_of()
    assert ERROR not in text_of()


def test_a_config_is_shown_one_parameter_a_line() -> None:
    (task, *_) = sorted(untimed().tasks, key=lambda t: -len(t.best_config))
    lines = "".join(f"<dt>{name}</dt><dd>{choice}</dd>" for name, choice in task.best_config)
    assert lines in text_of()


def test_points_of_the_roofline_have_numbers_that_the_legend_explains() -> None:
    legend = re.findall(r"<b>(\d+)</b> ([^<]*)</li>", text_of())
    assert [int(number) for number, _ in legend] == list(range(1, len(legend) + 1))
    chart = text_of()[text_of().index("<h2>Roofline") : text_of().index("<h2>Search")]
    labels = re.findall(r'<text class="name"[^>]*>([^<]*)</text>', chart)
    assert {number for number, _ in legend} <= set(labels)
    assert any(label.startswith("peak ") for label in labels)


def test_search_plots_show_every_trial_and_every_failure() -> None:
    chart = text_of()[text_of().index("<h2>Search") : text_of().index("<h2>Parameters")]
    shown = [t for t in untimed().tasks if t.trials > 1]
    assert chart.count('class="dot trial"') == sum(t.trials - t.failures for t in shown)
    assert chart.count('class="cross"') == sum(t.failures for t in shown) > 0


def test_two_runs_are_told_apart_from_the_sum_of_kernels() -> None:
    assert "The whole model, as the run of 2026-01-01 00:00 measured it" in text_of()
    assert "Its kernels, each measured by itself: best of the log as it is now" in text_of()


def test_charts_hold_finite_numbers() -> None:
    assert "nan" not in text_of()
    assert not re.search(r'"[^"<>]*\binf\b[^"<>]*"', text_of())
    assert text_of().count("<svg") >= 4


@pytest.mark.parametrize(
    ("value", "wanted"),
    [(1.5, "1.5 s"), (2e-3, "2 ms"), (3.25e-6, "3.25 µs"), (4e-9, "4 ns"), (None, "–")],
)
def test_times_have_units(value: float | None, wanted: str) -> None:
    assert seconds(value) == wanted


def chromium(*arguments: str) -> subprocess.CompletedProcess[str]:
    require("chromium")
    command = [
        str(program("chromium")), "--headless", "--no-sandbox", "--disable-gpu",
        "--disable-dev-shm-usage",
        "--hide-scrollbars", "--host-resolver-rules=MAP * ~NOTFOUND", *arguments,
    ]  # fmt: skip
    return subprocess.run(command, capture_output=True, text=True, timeout=120, check=False)


@pytest.mark.slow
def test_a_browser_shows_it(tmp_path: Path) -> None:
    sizes = {}
    for name, text in (("report", text_of()), ("blank", "<!DOCTYPE html><title>blank</title>")):
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
    file.write_text(text_of(), encoding="utf-8")
    read = chromium(f"--user-data-dir={tmp_path / 'profile'}", "--dump-dom", file.as_uri())
    assert read.returncode == 0, read.stderr
    assert re.findall("<h2>(.*?)</h2>", read.stdout) == list(SECTIONS)
    assert read.stdout.count("<svg") == text_of().count("<svg")
    assert read.stdout.count("<circle") == text_of().count("<circle") > 0


def watched(script: str) -> str:
    """The page with a script of the test's, which its policy would not let run."""
    return re.sub(r"script-src '[^']*'", "script-src 'unsafe-inline'", text_of()) + script


def title_of(text: str, tmp_path: Path, *arguments: str) -> str:
    file = tmp_path / "report.html"
    file.write_text(text, encoding="utf-8")
    read = chromium(
        f"--user-data-dir={tmp_path / 'profile'}", "--dump-dom", *arguments, file.as_uri()
    )
    assert read.returncode == 0, read.stderr
    (title,) = re.findall("<title>([^<]*#[^<]*)</title>", read.stdout)
    return str(title)


_OUTSIDE = """<script>
document.title = [...document.querySelectorAll("svg text, svg rect, svg circle")].filter(e => {
  const own = e.getBoundingClientRect(), all = e.closest("svg").getBoundingClientRect();
  return own.left < all.left - 1 || own.right > all.right + 1;
}).map(e => e.textContent).join(" | ") + "#" + (document.body.scrollWidth > innerWidth)
</script>"""


@pytest.mark.slow
@pytest.mark.parametrize("width", [500, 1040, 1600])
def test_nothing_is_cut_off_in_a_browser(width: int, tmp_path: Path) -> None:
    size = f"--window-size={width},2400"
    assert title_of(watched(_OUTSIDE), tmp_path, size) == "#false"


_SMALLEST = """<script>
document.title = "#" + Math.min(...[...document.querySelectorAll("svg text")].map(
  e => e.getBoundingClientRect().height));
</script>"""


@pytest.mark.slow
def test_charts_are_readable_on_a_telephone(tmp_path: Path) -> None:
    """Lines of text are some 13 pixels high where nothing is scaled."""
    assert float(title_of(watched(_SMALLEST), tmp_path, "--window-size=500,2400")[1:]) >= 9


_CONTRAST = """<script>
const light = (c) => { const [r, g, b] = c.match(/[0-9.]+/g).map(v => {
  v /= 255; return v <= 0.03928 ? v / 12.92 : ((v + 0.055) / 1.055) ** 2.4; });
  return 0.2126 * r + 0.7152 * g + 0.0722 * b; };
const back = light(getComputedStyle(document.body).backgroundColor);
document.title = back + "#" + Math.min(...[...document.querySelectorAll(
  "h1, h2, p, td, th, summary, figcaption, li, text")].map(e => {
  const style = getComputedStyle(e), own = light(e.tagName == "text" ? style.fill : style.color);
  return (Math.max(own, back) + 0.05) / (Math.min(own, back) + 0.05); }));
</script>"""


@pytest.mark.slow
@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_text_is_readable_on_light_and_dark(scheme: str, tmp_path: Path) -> None:
    """At least the contrast that WCAG's level AA asks of text, 4.5."""
    setting = f"--blink-settings=preferredColorScheme={0 if scheme == 'dark' else 1}"
    back, contrast = map(float, title_of(watched(_CONTRAST), tmp_path, setting).split("#"))
    assert (back < 0.1) == (scheme == "dark")
    assert contrast >= 4.5


_SORTED = """<script>
const table = [...document.querySelectorAll("table")].find(t => t.textContent.includes("share"));
const column = (name) => [...table.tHead.rows[0].cells].findIndex(c => c.textContent == name);
const shown = (n) => [...table.tBodies[0].rows].map(r => Number(r.cells[n].dataset.value));
const calls = column("share"), found = [];
for (const _ of [1, 2]) {
  table.tHead.rows[0].cells[calls].querySelector("button").click();
  found.push(shown(calls).join(" "));
}
document.title = found.join("#");
</script>"""


@pytest.mark.slow
def test_a_click_sorts_a_table_and_another_turns_it(tmp_path: Path) -> None:
    down, up = (
        list(map(float, part.split())) for part in title_of(watched(_SORTED), tmp_path).split("#")
    )
    assert len(down) > 3
    assert down == sorted(down, reverse=True)
    assert up == sorted(up)


@pytest.mark.slow
def test_the_policy_lets_the_page_s_own_script_run_and_no_other(tmp_path: Path) -> None:
    file = tmp_path / "report.html"
    file.write_text(text_of() + "<script>document.title = 'other'</script>", encoding="utf-8")
    read = chromium(f"--user-data-dir={tmp_path / 'profile'}", "--dump-dom", file.as_uri())
    assert 'title="sort by this column"' in read.stdout
    assert "<title>other</title>" not in read.stdout


def test_names_reorder_nothing_and_move_no_cursor() -> None:
    name = "a\x1b[2J\u202etxt.exe\u2066"
    made = timed()
    made = dataclasses.replace(
        made, model=name, tasks=tuple(dataclasses.replace(t, name=name) for t in made.tasks)
    )
    text = page(made)
    assert all(c.isprintable() or c == "\n" for c in text)
    assert "a\\x1b[2J\\u202etxt.exe\\u2066" in text
