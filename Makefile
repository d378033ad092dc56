# Every target builds .venv by itself when needed; nothing else has to be set up.
PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin
DEVELOPMENT := .[test,lint,docs,build]
# Some tests wait for servers, so that three workers use two cores best; a file stays with one worker,
# so that its fixtures are made once.
PYTEST := -m pytest -n 3 --dist loadfile

# Flower and Ray send no usage statistics because of anything that is started here.
export FLWR_TELEMETRY_ENABLED := 0
export RAY_USAGE_STATS_ENABLED := 0

.PHONY: audit test test-all test-flower coverage bench lint format docs pictures build hashes system-deps clean
.DELETE_ON_ERROR:

# What the commands need; then, on top, what working on the project needs.
$(VENV)/.ready: pyproject.toml constraints.txt
	@echo "Setting up $(VENV) (once, about a minute)"
	@if command -v uv >/dev/null 2>&1; then uv venv --quiet --clear --python $(PYTHON) $(VENV); \
	else $(PYTHON) -m venv --clear $(VENV); fi
	@$(call install,.)
	@touch $@

$(VENV)/.dev: $(VENV)/.ready
	@echo "Adding Flower, Ray, databases and the tools of development (once, one or two minutes)"
	@$(call install,$(DEVELOPMENT))
	@touch $@

install = $(call pip_install,--constraint constraints.txt --editable '$(1)')

define pip_install
if command -v uv >/dev/null 2>&1; then VIRTUAL_ENV=$(VENV) uv pip install --quiet $(1); \
else $(BIN)/python -m pip install -qq --disable-pip-version-check --no-warn-script-location $(1); fi
endef

audit: $(VENV)/.ready  ## the main job: a verdict in the terminal, a report to open
	@$(BIN)/verax audit --out verax-audit

test: $(VENV)/.dev
	@$(BIN)/python $(PYTEST) -m "not slow"

test-all: $(VENV)/.dev
	@$(BIN)/python $(PYTEST)

FLOWER ?= 1.42.0
test-flower: $(VENV)/.dev  ## the tests of Flower with another version of it; make test has the oldest
	@if { $(call pip_install,--no-deps --target .flower/$(FLOWER) flwr==$(FLOWER)); }; then \
	  PYTHONPATH=.flower/$(FLOWER) $(BIN)/python $(PYTEST) -m "not slow" tests/flower tests/apps; \
	else echo "flwr $(FLOWER) could not be installed; its tests are skipped (FLOWER=… names another)"; fi

coverage: $(VENV)/.dev  ## fails below 95 % of branches in the mechanism and the game
	@$(BIN)/python $(PYTEST) -m "not slow" --cov --cov-report=
	@$(BIN)/python -m coverage report --include='src/verax/mechanism/*,src/verax/game/*' --fail-under=95

bench: $(VENV)/.dev  ## measures all of docs/performance.md anew; builds the peers' environments on first use
	@$(BIN)/python benchmarks/everything.py

lint: $(VENV)/.dev
	@$(BIN)/ruff check --quiet .
	@$(BIN)/ruff format --quiet --check .
	@$(BIN)/pyright --warnings

format: $(VENV)/.dev
	@$(BIN)/ruff check --quiet --fix .
	@$(BIN)/ruff format --quiet .

docs: $(VENV)/.dev  ## builds the site; checks its links and its spelling
	@$(BIN)/codespell README.md CHANGELOG.md CONTRIBUTING.md docs src examples
	@NO_MKDOCS_2_WARNING=1 $(BIN)/mkdocs build --quiet --strict

pictures: $(VENV)/.dev  ## makes the pictures of README and docs again
	@$(BIN)/verax audit --out verax-audit --again
	@cp verax-audit/figures/valley.png docs/valley.png
	@$(BIN)/python -m tests.console.pictures verax-audit docs/console

build: $(VENV)/.dev
	@rm -rf dist
	@$(BIN)/python -m build --outdir dist . >/dev/null
	@$(BIN)/python -m verax.verifier.pack dist/verify.py
	@$(BIN)/python -W ignore -m cyclonedx_py requirements core.txt --pyproject pyproject.toml --mc-type library --output-reproducible -o dist/verax-fl.cdx.json
	@$(BIN)/twine check --strict dist/*.whl dist/*.tar.gz

hashes: $(VENV)/.dev  ## writes core.txt again, after constraints.txt has changed
	@$(BIN)/python -m uv pip compile pyproject.toml -c constraints.txt --universal --generate-hashes \
	  --no-emit-index-url --no-annotate --no-header --quiet -o core.new
	@{ sed '/^[^#]/,$$d' core.txt; cat core.new; } > core.made && mv core.made core.txt && rm core.new

system-deps: $(VENV)/.dev  ## for some tests: Debian's Chromium, and PyTorch if the index has it
	@$(BIN)/python -c "import torch" 2>/dev/null || $(BIN)/python -m pip --version >/dev/null 2>&1 || $(BIN)/python -m ensurepip >/dev/null 2>&1 || true
	@$(BIN)/python -c "import torch" 2>/dev/null || \
	  { echo "Installing PyTorch for the tests of PyTorch apps" && $(BIN)/python -m pip install -qq --disable-pip-version-check --constraint constraints.txt torch==2.13.0; } || \
	  echo "PyTorch could not be installed; its tests will be skipped (pip install torch==2.13.0)"
	@command -v chromium >/dev/null 2>&1 && command -v chromedriver >/dev/null 2>&1 || \
	if command -v apt-get >/dev/null 2>&1 && [ "$$(id -u)" = 0 ]; then \
	  echo "Installing Chromium for the browser tests"; \
	  apt-get update -qq && DEBIAN_FRONTEND=noninteractive apt-get install -qq -y --no-install-recommends chromium chromium-driver >/dev/null 2>&1 || \
	  echo "Chromium could not be installed; the browser tests will be skipped"; \
	else echo "No Chromium here; the browser tests will be skipped (as root: apt-get install chromium chromium-driver)"; fi

clean:
	@rm -rf $(VENV) dist site .pytest_cache .ruff_cache .coverage .bench .flower verax-example verax-audit
