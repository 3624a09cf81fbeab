"""Options of the whole suite: `--run-slow` also runs the tests marked slow."""

from __future__ import annotations

import pytest

from tests.postgres import new_database  # noqa: F401 (a fixture)


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption("--run-slow", action="store_true", help="also run the tests marked slow")
    parser.addoption("--update-golden", action="store_true", help="rewrite the golden texts")


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    """Deselect the slow ones unless asked for: nothing is reported as skipped."""
    if config.getoption("--run-slow"):
        return
    slow = [item for item in items if item.get_closest_marker("slow")]
    if slow:
        config.hook.pytest_deselected(items=slow)
        items[:] = [item for item in items if not item.get_closest_marker("slow")]
