# Every command of the project; continuous integration calls `make test`, `make test-compiled` and
# `make test-debian13`.
# `make help` lists them. ARGS goes to the command, as in: make test ARGS="-k redis -x"

SHELL := /bin/bash
.SHELLFLAGS := -euo pipefail -c
.DEFAULT_GOAL := help
# Tests and benches start hundreds of gateways: none of them is to compile the package anew.
unexport PYTHONDONTWRITEBYTECODE

ARGS ?=
SEEDS ?= 10
SECONDS ?= 10
# Tests mostly wait for servers, so more of them than there are CPUs run at a time; JOBS=0 for one
# after the other in one process, as a debugger wants it.
JOBS ?= 3
BIN := .venv/bin
PYTEST := $(BIN)/python -m pytest --numprocesses=$(JOBS) --dist=loadfile --no-loadscope-reorder
TYPED := gateway tests bench
# What is compiled is made below build/compiled, one folder for each state of the sources; a command
# after this uses it, or the sources where there is no compiler.
COMPILED = package=$$($(BIN)/python scripts/compiled.py $(1)) && \
	PYTHONSAFEPATH=1 PYTHONPATH="$${package:-$(CURDIR)}:$(CURDIR)"
HEADERS = $(shell $(BIN)/python -c 'import sysconfig as s; print(s.get_path("include"))')/Python.h
UV_COMPILE = $(BIN)/uv pip compile --quiet --universal --python-version 3.11 \
	--generate-hashes --no-annotate --custom-compile-command "make lock" $(LOCK_FLAGS)
# LOCK_FLAGS="--upgrade" or "--upgrade-package NAME" lets the locked versions move.
LOCK_FLAGS ?=

.PHONY: help
help: ## list the commands
	@grep -hE '^[a-z0-9-]+:.*## ' $(MAKEFILE_LIST) | sed -E 's/^([a-z0-9-]+):.*## /  \1\t/' | expand -t 18

.PHONY: runtime
runtime:
	@scripts/venv.sh runtime

.PHONY: extras
extras: ## install the optional libraries into .venv: MySQL, gRPC, ZeroMQ, JWT
	@scripts/venv.sh extras

.PHONY: dev
dev: ## create .venv with everything needed for development
	@scripts/venv.sh dev

.PHONY: run
run: runtime ## start a demo upstream and the gateway in front of it
	@$(COMPILED) exec $(BIN)/sluice demo $(ARGS)

.PHONY: test-packages
test-packages:
	@scripts/debian-packages.sh redis-server:redis-server mariadbd:mariadb-server nginx:nginx wrk:wrk \
		curl:curl faketime:faketime slowhttptest:slowhttptest nghttp:nghttp2-client \
		/usr/share/doc/libnss-wrapper:libnss-wrapper node:nodejs npm:npm \
		gcc:gcc /usr/include/stdlib.h:libc6-dev "$(HEADERS):python3-dev"
	@cd tests/node && if ! cmp -s package-lock.json node_modules/.installed; then \
		npm ci --ignore-scripts --no-audit --no-fund --silent && \
		cp package-lock.json node_modules/.installed; fi

.PHONY: test
test: dev test-packages ## install what the tests need and run them
	$(PYTEST) $(ARGS)

.PHONY: test-compiled
test-compiled: dev test-packages ## run the tests on the compiled build
	$(call COMPILED,--require) SLUICE_BUILD=compiled \
		$(PYTEST) -o pythonpath="$$package $(CURDIR)" $(ARGS)

.PHONY: test-debian12 test-debian13
test-debian12: ## run `make run` and `make test` in a clean Debian 12 (Python 3.11)
	@scripts/debian-root.sh bookworm
test-debian13: ## the same in a clean Debian 13 (Python 3.13)
	@scripts/debian-root.sh trixie

.PHONY: test-next-aiohttp
test-next-aiohttp: dev test-packages ## run what builds on aiohttp with its newest release, or AIOHTTP
	@JOBS=$(JOBS) scripts/next-aiohttp.sh $(ARGS)

.PHONY: coverage
coverage: dev test-packages ## run the tests and report the branches they miss
	$(PYTEST) --cov --cov-report=term $(ARGS)

.PHONY: fuzz
fuzz: dev test-packages ## run the property tests with many more examples than `make test`
	$(PYTEST) --hypothesis-profile=fuzz --timeout=3600 -m hypothesis $(ARGS)

.PHONY: model
model: dev test-packages ## run gateways and stores under random faults: SEEDS runs of SECONDS per store
	$(BIN)/python -m tests.model --seeds $(SEEDS) --seconds $(SECONDS) $(ARGS)

.PHONY: autobahn
autobahn: dev ## run Autobahn's WebSocket suite with and without the gateway; needs Python 2.7
	$(BIN)/python -m tests.autobahn $(ARGS)

.PHONY: lint
lint: dev ## check style, format, types and the Dockerfile
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy $(TYPED)
	$(BIN)/hadolint Dockerfile

.PHONY: format
format: dev ## format the source
	$(BIN)/ruff check --fix-only .
	$(BIN)/ruff format .

.PHONY: bench
bench: dev ## benchmark the gateway against other proxies, one core each
	$(BIN)/python -m bench.install
	$(COMPILED) $(BIN)/python -m bench $(ARGS)

.PHONY: changing
changing: dev ## change, kill and end gateways under load; ARGS="kills --seconds 60" for one part
	$(BIN)/python -m bench.changing $(ARGS)

.PHONY: protos
protos: dev ## regenerate the descriptor sets from the .proto files beside them
	$(BIN)/python scripts/protos.py

.PHONY: lock
lock: dev ## regenerate requirements/*.txt from pyproject.toml
	$(UV_COMPILE) pyproject.toml -o requirements/runtime.txt
	$(UV_COMPILE) pyproject.toml --all-extras -c requirements/runtime.txt \
		-o requirements/image.txt
	$(UV_COMPILE) --group build -c requirements/runtime.txt -o requirements/build.txt
	$(UV_COMPILE) pyproject.toml --group build --group compile -c requirements/image.txt \
		-c requirements/build.txt -o requirements/compile.txt
	$(UV_COMPILE) pyproject.toml --group dev -c requirements/image.txt \
		-c requirements/compile.txt -o requirements/dev.txt
	$(UV_COMPILE) --no-deps --group servers -o requirements/servers.txt

.PHONY: clean
clean: ## remove everything that the commands above have created
	rm -rf .venv .venv-autobahn .venv-bench .venv-next-aiohttp build dist .coverage .coverage.* htmlcov
	rm -rf tests/node/node_modules .mypy_cache .ruff_cache .pytest_cache .hypothesis
	find . -name __pycache__ -type d -prune -exec rm -rf {} +
