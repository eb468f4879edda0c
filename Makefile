# All commands for development. `make` without arguments lists them.

PYTHON ?= python3
VENV   ?= .venv
CODEGEN = $(VENV)-proto
RUN     = $(VENV)/bin/python

# Nodes, commands and tests start much faster with the compiled modules of the first start.
unexport PYTHONDONTWRITEBYTECODE

.DEFAULT_GOAL := help
.PHONY: help setup dev demo console pictures test gate unstable nightly coverage drill spark-kills spark-versions upgrade-drill golden process-tests real-prometheus long-tasks hostile-frames slow-links check format lock release prepare-release record-release proto proto-check breaking raft-traces oracle sim mutants docs bench \
        bench-core bench-pipeline bench-peers bench-brokers load trace pipeline report clean check-format check-lint check-types check-imports check-contract \
        check-stubs check-manifests setup-run setup-demo setup-docs setup-proto \
        go-parts real-collector k8s sbom image check-edge native test-native test-grpc scan

help: ## List the targets
	@awk -F ':.*## ' '/^[a-z0-9-]+:.*## / { printf "  %-15s %s\n", $$1, $$2 }' $(MAKEFILE_LIST)

setup: ## Install all tools into .venv (instant if nothing changed)
	@$(PYTHON) tools/environment.py $(VENV)

setup-run: # what a node, the client, the command line and the console need
	@$(PYTHON) tools/environment.py $(VENV) --level run

setup-demo: # and Spark
	@$(PYTHON) tools/environment.py $(VENV) --level demo

dev: setup-run ## Run a cluster of three nodes on this machine until Ctrl-C (ARGS="--data var/dev")
	@$(VENV)/bin/taskraft dev --nodes 3 $(ARGS)

demo: setup-demo ## Run three nodes, four consumers, a killed leader, a check and a Spark report
	@$(RUN) -m demo

console: setup-run ## Run three nodes with a busy day of work, and the web console, until Ctrl-C
	@$(RUN) -m demo.busy_day $(ARGS)

pictures: setup ## Take the pictures of the console for the documentation; needs Chromium
	@$(RUN) -m pytest -q tests/console/console_pictures.py

test: setup go-parts ## Run all tests in two stages (T="tests/service -k put" selects some)
	@$(RUN) -m tests.gate $(T)

gate: ## Run what CI runs, on a fresh clone of the committed HEAD
	@$(PYTHON) -m tools.gate

unstable: setup go-parts ## Run stage 2 of the tests under load and add its failures to var/unstable.md (N=1)
	@$(RUN) -m tests.gate.under_load --runs $(or $(N),1) $(ARGS) $(T)

nightly: setup ## Run what is too long for a change, and print one table (ONLY="drills mutants")
	@$(RUN) -m tests.nightly $(ONLY)

native: setup ## Build the native edge, the faster server of the client port, into .venv; needs cargo
	@$(RUN) -m tools.native_edge $(VENV)

# The tests that the server of the client port decides: the API, the interop cases, hostile callers, the conformance suite.
EDGE_TESTS = tests/service/api tests/service/access tests/service/process/test_services.py \
	tests/service/process/test_edge_failure.py tests/service/test_call_costs.py tests/cluster/test_hostile_frames.py \
	tests/foreign/test_interop.py tests/foreign/test_conformance.py

test-native: native go-parts ## Run the tests of the API, interop and conformance over the native edge
	@TASKRAFT_REQUIRE_EDGE=1 TASKRAFT_EDGE=native $(RUN) -m tests.gate $(EDGE_TESTS) $(T)

test-grpc: setup go-parts ## Run the tests of the API, interop and conformance over grpc.aio
	@TASKRAFT_EDGE=grpc $(RUN) -m tests.gate $(EDGE_TESTS) $(T)

coverage: setup ## Measure the test coverage (T= as for test)
	@$(RUN) -m coverage run -m pytest -q $(T); $(RUN) -m coverage combine -q; $(RUN) -m coverage report

drill: setup ## Put node processes under faults and judge what clients saw (ONLY="pause kill-all" SEED=1 HISTORY=dir)
	@HISTORY="$(HISTORY)" $(RUN) -m tests.drill $(ONLY) --seed $(or $(SEED),1) $(ARGS)

process-tests: setup ## Run the tests with real processes: kills, cut links, full disks
	@$(RUN) -m pytest -q tests/cluster tests/service/process $(T)

spark-kills: setup ## Put a million tasks from Spark while its driver and the leader are killed, and count them (ARGS="--tasks 100000")
	@$(RUN) -m tests.pipeline.sink_kills $(ARGS)

spark-versions: setup ## Read, stream and export with each minor version of PySpark 4, and check that others are refused (ARGS="4.2 4.3")
	@$(RUN) -m tests.pipeline.spark_versions $(ARGS)

upgrade-drill: setup ## Upgrade three nodes and return, at 200 puts a second (WHEELS=var/release: from these wheels)
	@TASKRAFT_TEST_UPGRADE_PUTS=200 TASKRAFT_TEST_RELEASE_WHEELS=$(WHEELS) $(RUN) -m pytest -q --timeout 1800 -rP tests/upgrade $(T)

golden: setup ## Write the golden files of versions of formats that have none
	@$(RUN) -m tests.golden

real-prometheus: setup ## Let a real Prometheus scrape three nodes, load the alerts and answer all queries
	@TASKRAFT_TEST_PROMETHEUS=1 $(RUN) -m pytest -q --timeout 1800 -rs tests/k8s/test_prometheus.py $(T)

real-collector: setup ## Let a real OpenTelemetry Collector receive spans, metrics and logs of three nodes; needs Go
	@mkdir -p var && cd tests/collector && go build -tags remove_all_sd -trimpath -ldflags "-s -w" -o ../../var/collector .
	@TASKRAFT_TEST_COLLECTOR=var/collector $(RUN) -m pytest -q --timeout 1800 -rs tests/collector $(T)

k8s: setup ## Run the manifests on a real API server, with pods in network namespaces; needs Go
	@$(RUN) -m tests.k8s.control_plane -q --timeout 1800 -rP tests/k8s/test_real_api_server.py $(T)

sbom: setup ## Write the bill of materials of the image to var/sbom.json (CycloneDX)
	@$(PYTHON) tools/environment.py $(VENV)-sbom --only sbom
	@mkdir -p var && $(VENV)-sbom/bin/cyclonedx-py requirements --output-reproducible -o var/sbom.json constraints/service.txt

image: sbom ## Build both images with buildah, and run a node and an export from them; needs root, buildah and debootstrap
	@TASKRAFT_TEST_IMAGE=1 $(RUN) -m pytest -q --timeout 1800 -rs tests/k8s/test_image.py $(T)

scan: setup ## Scan the locked dependencies for known vulnerabilities, with the scanners that are installed
	@$(RUN) -m tools.dependency_scan

long-tasks: setup ## Work two minutes on a task from Go and Node, over silent streams
	@TASKRAFT_TEST_WORK_MS=120000 $(RUN) -m pytest -q tests/foreign/test_long_tasks.py $(T)

hostile-frames: setup ## Send a million hostile frames to a node, and print figures (ARGS="--frames 100000")
	@$(RUN) -m tests.cluster.hostile_frames_table $(ARGS)

slow-links: setup ## Put tasks of all sizes over slow links between nodes, and print a table (ARGS="--rates 1 46")
	@$(RUN) -m tests.cluster.slow_links_table $(ARGS)

check: check-format check-lint check-types check-imports check-contract breaking check-stubs check-manifests check-edge ## Check format, lint, types, imports, contract, compatibility, stubs and manifests

format: setup ## Format code and contract
	@$(RUN) -m ruff format && $(RUN) -m ruff check --fix --select I && $(VENV)/bin/buf format -w

# -E reads all pages again, because the generated references change without a change of their pages.
docs: setup-docs ## Draw the pictures, build the site into var/site, and check links and generated pages
	@$(RUN) -m tools.pictures
	@$(RUN) -m sphinx -c docs -W --keep-going -q -E -d var/doctrees . var/site
	@echo "the site: var/site/index.html"

lock: setup ## Resolve the dependencies of all pyproject.toml files into constraints/
	@$(RUN) -m tools.lock

release: ## Build the wheels of HEAD into var/release, and use them with each Python that is found (VERSION=1.2.3 is checked)
	@$(PYTHON) tools/environment.py $(VENV)-release --only release
	@$(VENV)-release/bin/python -m tools.release $(if $(VERSION),--version $(VERSION))

proto: setup-proto ## Generate the stubs from proto/
	@$(CODEGEN)/bin/python -m tools.stubs

proto-check: check-contract check-stubs ## Lint the contract and compare the stubs with it

prepare-release: setup ## Write the version and the changelog of a release (VERSION=1.2.3)
	@test -n "$(VERSION)" || { echo 'give VERSION=1.2.3, the version of the release' >&2; exit 2; }
	@$(RUN) -m tools.release.prepare $(VERSION)

record-release: setup ## Write the commit of a release, which is HEAD, into the file RELEASE
	@$(RUN) -m tools.release.record

breaking: setup ## Find incompatible changes of the contract and of golden files since the last release (AGAINST=main)
	@$(RUN) -m tools.release.breaking $(if $(AGAINST),--against $(AGAINST))

raft-traces: setup ## Replay Raft traces and list the files that differ (TRACES=directory)
	@$(RUN) -m tests.raft_traces $(TRACES)

oracle: setup ## Replay traces of tarantool/queue through running nodes (TRACES=directory)
	@$(RUN) -m tests.oracle $(or $(TRACES),../shared/oracle)

sim: setup ## Simulate a cluster with faults (SEEDS=200 STEPS=5000 SEED_BASE=1)
	@$(RUN) -m tests.sim --seeds $(or $(SEEDS),200) --steps $(or $(STEPS),5000) --seed-base $(or $(SEED_BASE),1) $(ARGS)

mutants: setup ## Break the code in one place at a time; show which test fails (ONLY=figure-8,... ARGS=--list)
	@$(RUN) -m tests.mutants $(if $(ONLY),--only $(ONLY)) $(ARGS)

bench: setup load ## Measure one and three nodes over gRPC (ARGS="...")
	@$(RUN) -m bench $(ARGS)

bench-core: setup ## Measure the queue core, write-behind and the commit path (ARGS="--full")
	@$(RUN) -m bench.core $(ARGS)

bench-pipeline: setup-demo ## Measure how fast Spark reads and exports the history of real nodes (ARGS="--rates 450 --rounds 1")
	@$(RUN) -m bench.history_read --spark --journal $(ARGS)

bench-peers: setup ## Compare workers with those of dramatiq and Celery (ARGS="--tasks 2000 --rounds 1")
	@$(PYTHON) tools/environment.py $(VENV)-peers --only peers
	@$(RUN) -m bench.peers --python $(VENV)-peers/bin/python $(ARGS)

bench-brokers: setup load native ## Compare with RabbitMQ and NATS in one run (PEERS=DIR of their harness, ARGS="--rounds 1")
	@test -n "$(PEERS)" || { echo 'give PEERS=DIR, the folder of the harness that starts the brokers' >&2; exit 2; }
	@$(PYTHON) tools/environment.py $(VENV)-brokers --only brokers
	@$(RUN) -m bench.brokers --peers $(PEERS) --python $(VENV)-brokers/bin/python $(ARGS)

trace: setup ## Count the Python calls of one put, take and ack in a node (ARGS="--way put" lists them)
	@$(RUN) -m tools.trace $(ARGS)

load: setup ## Build the load generator (Go)
	@command -v go >/dev/null || { echo 'the load generator needs Go, which is not installed' >&2; exit 1; }
	@go generate -C bench/load && go build -C bench/load -o ../../var/load .

pipeline: setup-demo ## Simulate a busy day, and make its journal, tables and report with Spark (ARGS="--events 9500000 --open")
	@$(RUN) -m demo.pipeline_run $(ARGS)

report: setup-demo ## Make the Spark report of a running cluster or a journal (ARGS="...")
	@$(VENV)/bin/taskraft pipeline report $(ARGS)

clean: ## Remove caches and everything in var/
	@rm -rf var .mypy_cache .ruff_cache .pytest_cache .import_linter_cache .hypothesis .coverage*

# The parts of `check`.

check-format: setup
	@$(RUN) -m ruff format --check && $(VENV)/bin/buf format --diff --exit-code

check-lint: setup
	@$(RUN) -m ruff check

check-types: setup
	@$(RUN) -m mypy

check-imports: setup
	@$(VENV)/bin/lint-imports

# Rust is optional, so the crate is checked only where cargo and its tools are installed.
check-edge:
	@unset MAKEFLAGS; ! command -v cargo-clippy >/dev/null || ! $(PYTHON) -m tools.native_edge --crates || { \
		cargo fmt --check --manifest-path edge/Cargo.toml && \
		cargo clippy --quiet --locked --all-targets --manifest-path edge/Cargo.toml -- --deny warnings && \
		cargo test --quiet --locked --manifest-path edge/Cargo.toml; }

check-contract: setup
	@$(VENV)/bin/buf lint

check-stubs: setup-proto
	@$(CODEGEN)/bin/python -m tools.stubs --check

check-manifests: setup
	@$(VENV)/bin/yamllint --strict k8s .github .pre-commit-config.yaml buf.yaml && $(RUN) -m tools.manifests

# Built before the tests, because a first compilation takes minutes and would look like a hanging test.
go-parts:
	@if command -v go >/dev/null; then $(MAKE) --no-print-directory load; fi

setup-docs: setup
	@$(PYTHON) tools/environment.py $(VENV) --only docs

setup-proto:
	@$(PYTHON) tools/environment.py $(CODEGEN) --only proto
