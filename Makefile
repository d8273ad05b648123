# The two commands to know: `make demo` shows fleet at work, `make test` runs its tests.
# Everything is installed into .venv, from the lock files, and nowhere else.

PYTHON ?= $(shell for p in python3.13 python3.12 python3.11 python3; do \
  $$p -c 'import sys; sys.exit(sys.version_info < (3, 11))' 2>/dev/null && { echo $$p; break; }; done)
VENV := .venv
BIN := $(VENV)/bin
JOBS ?= auto
N ?= 10000
COUNT ?= 100000
LASTS ?= 1200

.PHONY: setup test test-wheel test-hosts test-interop test-semantic laws sim hour mutants house check demo bench replay lock manual format clean

$(VENV)/.runtime: requirements.lock pyproject.toml
	@test -n "$(PYTHON)" || { echo "fleet needs Python 3.11 or newer; name one: make $(MAKECMDGOALS) PYTHON=/path/to/python3"; exit 1; }
	@test -x $(BIN)/python || $(PYTHON) -m venv $(VENV)
	@echo "installing into $(VENV) ..."
	@$(BIN)/python -m pip install --quiet --disable-pip-version-check --require-hashes -r requirements.lock
	@$(BIN)/python -m pip install --quiet --disable-pip-version-check --no-deps --no-build-isolation -e .
	@touch $@

$(VENV)/.dev: requirements-dev.lock $(VENV)/.runtime
	@$(BIN)/python -m pip install --quiet --disable-pip-version-check --require-hashes -r requirements-dev.lock
	@touch $@

setup: $(VENV)/.dev

# Each of some thousand interpreters would compile all of the program again.
test laws sim: export PYTHONDONTWRITEBYTECODE =
test: setup
	$(BIN)/python -m pytest -q -n $(JOBS) --dist worksteal $(ARGS)

# Downloads openai-agents, which owns the import name `agents`: both must work in one environment.
test-wheel: setup
	$(BIN)/python tests/wheel/check_wheel.py

# Downloads Claude Code, Codex and Gemini CLI (740 MB, once, into .cache) and runs them against a scripted model on
# loopback. Needs npm.
test-hosts: setup
	FLEET_TEST_HOSTS=1 $(BIN)/python -m pytest -q tests/hosts/test_real_*.py $(ARGS)

# Downloads yjs and y-websocket (once, into .cache): a JavaScript client joins a live room. Needs node and npm.
test-interop: setup
	FLEET_TEST_INTEROP=1 $(BIN)/python -m pytest -q tests/interop $(ARGS)

# Installs the extra `semantic` (160 MB, once, into .cache) and runs the tests that are skipped without it.
SEMANTIC := .cache/semantic
test-semantic: $(SEMANTIC)/.ready
	$(SEMANTIC)/bin/python -m pytest -q -p no:cacheprovider tests/store/test_semantic.py tests/recall $(ARGS)

$(SEMANTIC)/.ready: requirements-dev.lock pyproject.toml
	@test -x $(SEMANTIC)/bin/python || $(PYTHON) -m venv $(SEMANTIC)
	@echo "installing the extra into $(SEMANTIC) ..."
	@$(SEMANTIC)/bin/python -m pip install --quiet --disable-pip-version-check '.[semantic]' hypothesis pytest pytest-xdist
	@touch $@

laws: setup
	FLEET_LAWS_PROFILE=laws $(BIN)/python -m pytest -q -n $(JOBS) tests/laws $(ARGS)

sim: setup
	FLEET_SIM_HISTORIES=$(N) $(BIN)/python -m pytest -q -n $(JOBS) tests/sim $(ARGS)

# Three real sidecars left alone for LASTS seconds: one machine sleeps, one moves between networks, one is killed.
hour: setup
	FLEET_HOUR=$(LASTS) $(BIN)/python -m pytest -q -s tests/serve/test_hour.py $(ARGS)

# Puts bugs that were found once back in, one at a time: each must be told by its tests.
mutants: setup
	$(BIN)/python tests/mutants/run.py $(ARGS)

# How much there is to know of the code, each count beside its limit; fails above it. ARGS=--all names what was counted.
house: setup
	@$(BIN)/python tests/house/counts.py $(ARGS)

check: setup house
	$(BIN)/ruff format --check .
	$(BIN)/ruff check .
	$(BIN)/mypy
	$(BIN)/python -m pytest -q tests/house

format: setup
	$(BIN)/ruff format .
	$(BIN)/ruff check --fix .

demo: $(VENV)/.runtime
	@$(BIN)/python demo/demo.py

# Every figure with its peers or its floor, in one run. COUNT=2000 for a quick look.
bench: setup
	@$(BIN)/python -m pip install --quiet --disable-pip-version-check --require-hashes -r requirements-bench.lock
	$(BIN)/python -m benchmarks.run --count $(COUNT)

# Plays recorded sessions through the real hooks: which errors had their lesson put before the agent in time.
replay: setup
	$(BIN)/python -m benchmarks.replay.play $(ARGS)

# After a change of a command, an option or an example: the page that `man fleet` shows.
manual: setup
	$(BIN)/python demo/manual.py > docs/fleet.1

# After a change of the dependencies in pyproject.toml.
lock: setup
	$(BIN)/python -m pip install --quiet uv
	$(BIN)/uv pip compile --quiet --universal --generate-hashes --no-emit-index-url --no-header --group build pyproject.toml -o requirements.lock
	$(BIN)/uv pip compile --quiet --universal --generate-hashes --no-emit-index-url --no-header --group dev pyproject.toml -o requirements-dev.lock
	$(BIN)/uv pip compile --quiet --universal --generate-hashes --no-emit-index-url --no-header --group bench pyproject.toml -o requirements-bench.lock

clean:
	rm -rf $(VENV) .pytest_cache .mypy_cache .ruff_cache .hypothesis dist
