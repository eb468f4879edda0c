# Every command that anybody needs. `make` alone lists them; each is one line that starts a program.

PYTHON ?= python3
VENV   ?= .venv
CODEGEN = $(VENV)-proto
RUN     = $(VENV)/bin/python
# A file of tests stays in one process; tests/conftest.py begins with the files that take longest.
SIDE_BY_SIDE = -n auto --maxprocesses 4 --dist loadfile --no-loadscope-reorder

.DEFAULT_GOAL := help
.PHONY: help setup demo test coverage drills check format lock dist proto proto-check breaking raft-traces oracle sim mutants bench \
        bench-core load trace report clean check-format check-lint check-types check-imports check-contract \
        check-stubs check-manifests setup-proto \
        go-parts

help: ## List the targets
	@awk -F ':.*## ' '/^[a-z-]+:.*## / { printf "  %-15s %s\n", $$1, $$2 }' $(MAKEFILE_LIST)

setup: ## Install everything into .venv (instant when nothing changed)
	@$(PYTHON) tools/environment.py $(VENV)

demo: setup ## Three nodes, four consumers, a killed leader, a verdict and a Spark report
	@$(RUN) -m demo

test: setup go-parts ## All tests (T="tests/service -k put" chooses some)
	@$(RUN) -m pytest -q $(SIDE_BY_SIDE) $(T)

coverage: setup ## Which lines the tests reach (T= as for test)
	@$(RUN) -m coverage run -m pytest -q $(T); $(RUN) -m coverage combine -q; $(RUN) -m coverage report

drills: setup ## Tests that kill node processes, cut their links and fill their disks
	@$(RUN) -m pytest -q tests/cluster tests/service/process $(T)

check: check-format check-lint check-types check-imports check-contract check-stubs check-manifests ## Format, lint, types, imports, contract, stubs, manifests

format: setup ## Format the code and the contract
	@$(RUN) -m ruff format && $(RUN) -m ruff check --fix --select I && $(VENV)/bin/buf format -w

lock: setup ## Resolve constraints/ anew from the pyproject.toml files
	@$(RUN) -m tools.lock

dist: setup ## Build the wheels into var/dist (VERSION=1.2.3 fails if they have another version)
	@rm -rf var/dist
	@$(RUN) -m pip --disable-pip-version-check wheel --quiet --no-deps --no-build-isolation \
		--wheel-dir var/dist . ./clients/python ./pipeline
	@test -z "$(VERSION)" || test "$$(ls var/dist/*-$(VERSION)-*.whl | wc -l)" -eq 3 || \
		{ echo "not all wheels in var/dist have version $(VERSION); set it in the pyproject.toml files" >&2; exit 1; }
	@ls var/dist

proto: setup-proto ## Generate the stubs from proto/
	@$(CODEGEN)/bin/python -m tools.stubs

proto-check: check-contract check-stubs ## Lint the contract; compare the stubs with it

breaking: setup ## Compare the contract with another commit (AGAINST=main)
	@$(VENV)/bin/buf breaking --against '.git#ref=$(or $(AGAINST),main)'

raft-traces: setup ## Replay Raft traces and name each file that differs (TRACES=directory)
	@$(RUN) -m tests.raft_traces $(TRACES)

oracle: setup ## Replay traces of tarantool/queue through running nodes (TRACES=directory)
	@$(RUN) -m tests.oracle $(or $(TRACES),../shared/oracle)

sim: setup ## Simulate clusters with faults (SEEDS=200 STEPS=5000 SEED_BASE=1)
	@$(RUN) -m tests.sim --seeds $(or $(SEEDS),200) --steps $(or $(STEPS),5000) --seed-base $(or $(SEED_BASE),1) $(ARGS)

mutants: setup ## Break consensus in many places and show which test notices (ONLY=figure-8,... ARGS=--list)
	@$(RUN) -m tests.mutants $(if $(ONLY),--only $(ONLY)) $(ARGS)

bench: setup load ## Measure one and three nodes through gRPC (ARGS="...")
	@$(RUN) -m bench $(ARGS)

bench-core: setup ## Measure the queue core, its write-behind, and the commit path (ARGS="--full")
	@$(RUN) -m bench.core $(ARGS)

trace: setup ## Count the Python calls of one put, take and ack in a node (ARGS="--way put" lists them)
	@$(RUN) -m tools.trace $(ARGS)

load: setup ## Build the load generator (Go)
	@command -v go >/dev/null || { echo 'the load generator needs Go, which is not installed' >&2; exit 1; }
	@go generate -C bench/load && go build -C bench/load -o ../../var/load .

report: setup ## Spark report over a running cluster or a journal (ARGS="...")
	@$(VENV)/bin/taskraft pipeline report $(ARGS)

clean: ## Remove caches and everything programs wrote below var/
	@rm -rf var .mypy_cache .ruff_cache .pytest_cache .import_linter_cache .hypothesis .coverage*

# The parts of `check`, for those who want one of them.

check-format: setup
	@$(RUN) -m ruff format --check && $(VENV)/bin/buf format --diff --exit-code

check-lint: setup
	@$(RUN) -m ruff check

check-types: setup
	@$(RUN) -m mypy

check-imports: setup
	@$(VENV)/bin/lint-imports

check-contract: setup
	@$(VENV)/bin/buf lint

check-stubs: setup-proto
	@$(CODEGEN)/bin/python -m tools.stubs --check

check-manifests: setup
	@$(VENV)/bin/yamllint --strict k8s .github .pre-commit-config.yaml buf.yaml && $(RUN) -m tools.manifests

# A first compilation takes minutes; in a test it would look like a hang.
go-parts:
	@if command -v go >/dev/null; then $(MAKE) --no-print-directory load; fi

setup-proto:
	@$(PYTHON) tools/environment.py $(CODEGEN) --proto
