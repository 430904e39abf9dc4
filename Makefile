# Nothing but Python, make and a C compiler is needed: .venv is made where it is missing.
PYTHON ?= python3
BIN := .venv/bin
WORKDIR ?= runs/quickstart
BENCH ?= runs/bench
WORKERS ?= 0

.PHONY: demo check test test-full test-slow test-browser test-device chaos bench results lint docs clean

install: .venv/installed

demo: .venv/installed
	$(BIN)/python launch.py --config=configs/quickstart.py --workdir=$(WORKDIR)

# Nearly all of the time is that of compiling programs that run once: machine code is not optimised,
# simple code is made, and by one thread for each of the two processes. The slow tests, and pytest without these, compile as users do.
QUICK_COMPILES := JAX_DISABLE_MOST_OPTIMIZATIONS=1 XLA_FLAGS="--xla_cpu_use_fusion_emitters=false --xla_cpu_parallel_codegen_split_count=1"

MARKS ?= not full and not slow and not browser

test: .venv/installed
	$(QUICK_COMPILES) $(BIN)/python -m pytest -n 2 --dist worksteal -m "$(MARKS)"

# Before a commit: lint, types, the imports between folders, and the tests of what was touched.
check: lint
	$(QUICK_COMPILES) $(BIN)/python -m pytest -x --durations=0 --durations-min=5 tests/test_structure.py $$($(BIN)/python tests/support/touched.py)

# Products of registries, processes, terminals, fuzz, docs and load: what CI runs beside `make test`.
test-full:
	$(MAKE) test MARKS="full and not slow and not browser"

# Minutes long: kills and resumes a run, trains the quickstart.
test-slow: .venv/installed
	$(BIN)/python -m pytest -m slow

# Kills runs, flips bits, makes configs and files at random, and counts what was lost: see its docstring.
chaos: .venv/installed
	$(BIN)/python tests/chaos/chaos.py $(CHAOS)

# Opens pages in Chromium, which must be there: apt-get install chromium.
test-browser: .venv/installed
	$(BIN)/python -m pytest -m browser

# The tests of numbers on the GPU or TPU that jax in .venv can use, whose plugin may warn.
test-device: .venv/installed
	XLA_PYTHON_CLIENT_PREALLOCATE=false $(BIN)/python -m pytest -n $(WORKERS) -W default -m "device and not slow"

# Measures speed, memory and start on this machine.
bench: .venv/installed
	$(BIN)/python -m experiments.benchmark --out=$(BENCH) $(FLAGS)

# Runs the commands of the pages in docs/results/ and collects their scores: many hours, resumable.
results: .venv/installed
	$(BIN)/python -m studies.results $(FLAGS)

lint: .venv/installed
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/python -m tools.structure
	$(BIN)/basedpyright --pythonpath $(BIN)/python

# The documentation as a site in build/docs; a link that leads nowhere is an error.
docs: .venv/installed
	$(QUICK_COMPILES) NO_MKDOCS_2_WARNING=1 $(BIN)/python -m mkdocs build

# uv takes a tenth of pip's time, and pip knows the mirrors that its pip.conf names.
PIP := $(BIN)/python -m pip install --quiet --disable-pip-version-check

.venv/installed: requirements.lock
	$(PYTHON) -m venv .venv
	$(PIP) $$(grep '^uv==' requirements.lock)
	$(BIN)/uv pip install --quiet --python $(BIN)/python -r requirements.lock || $(PIP) -r requirements.lock
	$(BIN)/python -c "import site; print('$(CURDIR)', file=open(site.getsitepackages()[0] + '/repository.pth', 'w'))"
	touch $@

# Trained models in runs/ stay.
clean:
	rm -rf .venv build
