# make demo      tune a bundled model on this machine and show what it gained
# make test      lint, type-check and run every test but the slow ones
# make test-all  the same, and then the slow ones; .ci/run does so
# make lint      ruff and mypy only
# Everything Python is installed into .venv, which is made if it is missing. What tests need from the
# system is installed as root by apt-get (npm's packages into a folder of the user's caches);
# elsewhere those tests are skipped, and named at the end.

PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin
INSTALLED := $(VENV)/installed
PYTEST_ARGS ?= -n 2
# The tests start some thousand processes: none of them is to compile the sources again.
unexport PYTHONDONTWRITEBYTECODE

.PHONY: demo test test-all lint quick slow needs clean

demo: $(INSTALLED)
	$(BIN)/python benchmarks/demo.py

# Side by side: mypy takes one core for most of a minute where nothing of it is kept.
test: $(INSTALLED) needs
	@$(MAKE) --no-print-directory -j 2 lint quick

test-all: test slow

quick: $(INSTALLED) needs
	$(BIN)/pytest $(PYTEST_ARGS)

slow: $(INSTALLED) needs
	$(BIN)/pytest --run-slow -m slow $(PYTEST_ARGS)

needs: $(INSTALLED)
	$(BIN)/python -m tests.needs

lint: $(INSTALLED)
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy

$(INSTALLED): pyproject.toml
	@test -x $(BIN)/python || $(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11) and \
		"Python 3.11 or newer is needed: make PYTHON=/path/to/python3.11")'
	test -x $(BIN)/python || $(PYTHON) -m venv $(VENV)
	$(BIN)/python -m pip install --quiet --disable-pip-version-check -e '.[dev]'
	@touch $@

clean:
	rm -rf build dist .pytest_cache .mypy_cache .ruff_cache .hypothesis *.egg-info
