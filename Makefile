# Everything a newcomer types. GNU make 3.81 syntax; the environment is made with the standard library and pip alone.
VENV := .venv
BIN := $(VENV)/bin
STAMP := $(VENV)/.installed
DEMO_FLAGS ?=

.PHONY: install demo test test-postgres conformance lint style format faults hostile soak browser docs wheel bundle clean

demo: install
	@$(BIN)/quintain demo $(DEMO_FLAGS)

# What mypy checks: the package, its tools, and the documented program of the Python client.
TYPED := src/quintain benchmarks scripts build/documented_program.py

# Types are checked beside the tests, for mypy keeps one core busy and no more; its report comes last.
test: style
	@$(BIN)/python -m scripts.documented_program
	@report=$$(mktemp); $(BIN)/mypy $(TYPED) >$$report 2>&1 & types=$$!; \
	HF_HUB_OFFLINE=1 $(BIN)/python -m pytest -q -n 3 --dist loadfile --no-loadscope-reorder -m "not soak and not browser and not docs"; tests=$$?; \
	wait $$types; typed=$$?; cat $$report; rm $$report; \
	test $$typed -eq 0 && exit $$tests

# The store and its jobs on PostgreSQL, with a throw-away server of the system's package; skipped with the reason without one.
test-postgres: install
	@HF_HUB_OFFLINE=1 $(BIN)/python -m benchmarks.postgres_server $(BIN)/python -m pytest -q -n 2 --dist loadfile -m "not soak" tests/store tests/jobs

# The official protocol suite, the Inspector and tdqs, by npm and pip below .venv; skipped with the reason without node.
conformance: install
	@$(BIN)/python -m benchmarks.conformance

# Faults on purpose, with an audit after each trial; FULL=1 makes as many as the goals ask for, which takes hours.
faults: install
	@HF_HUB_OFFLINE=1 GOMP_SPINCOUNT=1000 $(BIN)/python -m benchmarks.faults $(if $(FULL),--full)

# Hostile inputs to every tool, method and page, over stdio and HTTP; FULL=1 sends thousands.
hostile: install
	@HF_HUB_OFFLINE=1 GOMP_SPINCOUNT=1000 $(BIN)/python -m benchmarks.hostile $(if $(FULL),--full)

lint: style
	@$(BIN)/python -m scripts.documented_program
	@$(BIN)/mypy $(TYPED)

style: install
	@$(BIN)/ruff check src tests benchmarks scripts
	@$(BIN)/ruff format --check src tests benchmarks scripts

format: install
	@$(BIN)/ruff check --fix src tests benchmarks scripts
	@$(BIN)/ruff format src tests benchmarks scripts

# The web page in the system's Chromium; screenshots and measured times are kept in build/browser.
browser: install
	@$(BIN)/python -c "import playwright, axe_playwright_python" 2>/dev/null || $(BIN)/python -m pip install --quiet --disable-pip-version-check -c constraints.txt -e '.[browser]'
	@HF_HUB_OFFLINE=1 $(BIN)/python -m pytest -q -m browser tests/browser --durations=5

soak: install
	@HF_HUB_OFFLINE=1 $(BIN)/python -m pytest -q -m soak
	@HF_HUB_OFFLINE=1 $(BIN)/python -m pytest -q --hypothesis-profile=anew -m "not soak" tests/records tests/importers tests/redaction tests/datasets tests/exporters tests/scoring

# The documentation as a site in build/site, which opens from the disk; a broken link or a page outside the navigation fails.
docs: install
	@$(BIN)/python -c "import material" 2>/dev/null || $(BIN)/python -m pip install --quiet --disable-pip-version-check -c constraints.txt -e '.[docs]'
	@HF_HUB_OFFLINE=1 $(BIN)/python -m pytest -q -m docs tests/documentation
	@echo "build/site/index.html"

# The wheel, and the bundle for desktop clients with it; the bundle is validated where node is installed.
wheel: install
	@rm -f dist/quintain-*.whl
	@$(BIN)/python -m pip wheel --quiet --disable-pip-version-check --no-deps -w dist .
	@ls -l dist/quintain-*.whl

bundle: wheel
	@$(BIN)/python -m scripts.make_bundle
	@if command -v npx >/dev/null; then \
	  folder=$$(mktemp -d) && $(BIN)/python -m zipfile -e dist/quintain-*.mcpb $$folder && \
	  npx --yes @anthropic-ai/mcpb@2 validate $$folder/manifest.json && rm -r $$folder; \
	else echo "The bundle was not validated: npx is not installed."; fi

install: $(STAMP)

$(STAMP): pyproject.toml constraints.txt Makefile
	@set -e; found=""; \
	for python in python3.13 python3.12 python3.11 python3; do \
	  if "$$python" -c 'import sys, venv, ensurepip; sys.exit(sys.version_info < (3, 11))' >/dev/null 2>&1; then found="$$python"; break; fi; \
	done; \
	if [ -z "$$found" ]; then \
	  echo "Quintain needs Python 3.11 or newer with venv: apt install python3-venv (Debian, Ubuntu) or brew install python@3.12 (macOS)." >&2; exit 1; \
	fi; \
	echo "Making $(VENV) with $$found (the first time takes some minutes: torch is large)"; \
	test -x $(BIN)/python || "$$found" -m venv $(VENV); \
	$(BIN)/python -m pip install --quiet --disable-pip-version-check -c constraints.txt -e '.[dev]'
	@$(BIN)/python -m compileall -q -j 0 src/quintain  # else each of many processes compiles it at its first start
	@touch $(STAMP)

clean:
	rm -rf $(VENV) demo-out .mypy_cache .ruff_cache
