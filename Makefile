# `make help` lists the targets. All that they make lies in .venv and .tidemark, and in the cache of the control
# plane's programs (docs/guides/development.md); none touches a user's own cluster or kubeconfig.

.DEFAULT_GOAL := help
SHELL := /bin/sh

VENV := .venv
BIN := $(VENV)/bin
INSTALLED := $(VENV)/.installed
# Spark's workers are whatever python3 PATH finds first
IN_VENV := PATH="$(CURDIR)/$(BIN):$$PATH"
PYTEST := $(IN_VENV) $(BIN)/python -m pytest
CLASS_DATA := .tidemark/spark.jsa
# these start no Spark and no control plane, so several run beside each other; neighbours stay in one process, and
# share what their module set up, until another has nothing left to do
FAST := -m "not (slow or spark or cluster or e2e or node or kafka or postgres or iceberg)" -n auto --maxprocesses 4 --dist worksteal

.PHONY: help
help: ## this list
	@awk -F ':.*## ' '/^[a-z-]+:.*## / { printf "  %-14s %s\n", $$1, $$2 }' $(MAKEFILE_LIST)

# --- to try it ---

.PHONY: demo
demo: java ## bring everything up with real data, show views being kept up to date, leave it running (CONTEXT=name: on a cluster of yours; RESET=1: examples/ anew)
	@$(MAKE) --no-print-directory -j2 venv demo-programs
	@$(IN_VENV) CONTEXT=$(CONTEXT) $(BIN)/python -m tidemark_devcluster.demo up $(if $(RESET),--reset)

# compiling begins beside the installation, with the Python that is there; what fails here is tried again by `up`
.PHONY: demo-programs
demo-programs:
	-@[ -n "$(KUBECONFIG)$(CONTEXT)" ] || PYTHONPATH=devcluster $${PYTHON:-python3} -m tidemark_devcluster build --api-server >/dev/null

.PHONY: demo-down
demo-down: venv ## end what `make demo` left running (DELETE=1: remove its data, too)
	@$(IN_VENV) $(BIN)/python -m tidemark_devcluster.demo down $(if $(DELETE),--delete)

.PHONY: images
images: venv ## build both images with buildah, print their sizes beside what they are held to
	@$(BIN)/tidemark-devcluster images

.PHONY: cluster-packages
cluster-packages: venv ## install the Debian packages that a node and images need (as root)
	@missing=$$($(BIN)/tidemark-devcluster node packages); [ -z "$$missing" ] || tools/install-packages $$missing

# --- to prove it ---

.PHONY: test
test: java test-packages venv ## lint, types and the tests, in lanes: an eighth of the broad ones, none of the slow ones (LANES=--resume: what has not passed yet)
	@$(MAKE) --no-print-directory -j2 test-ready
	$(IN_VENV) $(BIN)/python -m tests.lanes $(LANES)

# two at a time, the longest first: mypy and the JVM of the archive keep one core busy each
.PHONY: test-ready
test-ready: types $(CLASS_DATA) control-plane kafka-broker kafka-connect iceberg-catalogue jdbc-driver dbt-environment lint

.PHONY: test-all
test-all: ## `make test` with all of the broad tests
	@$(MAKE) --no-print-directory test LANES="--broad all $(LANES)"

.PHONY: test-fast
test-fast: venv ## the tests without Spark and without a control plane (minutes)
	$(PYTEST) $(FAST)

.PHONY: test-slow
test-slow: java test-packages venv control-plane kafka-broker kafka-connect iceberg-catalogue jdbc-driver psycopg2-tests dbt-environment $(CLASS_DATA) ## the long tests; EIGHTH=3: the third of eight shares of them; LANES=--resume
	$(IN_VENV) $(BIN)/python -m tests.lanes --lanes slow $(if $(EIGHTH),--share $(EIGHTH)/8) $(LANES)

.PHONY: test-cluster
test-cluster: venv ## build the images; the chart, and replicas as pods, on a real one-node cluster (root, Debian packages)
	$(PYTEST) tests/cluster --durations=15 -rs -p no:cacheprovider

.PHONY: test-sqllogictest
test-sqllogictest: java venv ## every file of sqllogictest, in all modes (docs/testing.md)
	$(IN_VENV) $(BIN)/python -m tests.sqllogictest --dialect spark tests/sqllogictest/files/*.slt

.PHONY: test-dialects
test-dialects: java test-packages venv ## every construct of dialect postgres against a real PostgreSQL
	$(PYTEST) tests/dialects -rs

.PHONY: test-packages
test-packages: ## install the Debian packages that tests need, where they are missing: PostgreSQL and Maven (as root)
	@missing=""; \
	[ -n "$$(ls -d /usr/lib/postgresql/*/bin/initdb 2>/dev/null)" ] || missing=postgresql; \
	command -v mvn >/dev/null || missing="$$missing maven"; \
	[ -z "$$missing" ] || tools/install-packages $$missing

.PHONY: oracle
oracle: java venv ## every case of the oracle over TIDEMARK_ORACLE_SEEDS random histories (10 unless set)
	$(IN_VENV) TIDEMARK_ORACLE_SEEDS=$${TIDEMARK_ORACLE_SEEDS:-10} $(BIN)/python -m pytest tests/oracle tests/continual_tasks --durations=15

.PHONY: oracle-answers
oracle-answers: java venv ## write Spark's answers for the histories of make test anew (tests/oracle/kept_answers.py)
	$(IN_VENV) $(BIN)/python -m tests.oracle.keep_answers
	$(IN_VENV) $(BIN)/python -m tests.tpch.keep_answers

.PHONY: fuzz
fuzz: venv ## TIDEMARK_FUZZ_FRAMES (1,000,000) garbled frames against both edges of the protocol (minutes)
	TIDEMARK_FUZZ_FRAMES=$${TIDEMARK_FUZZ_FRAMES:-1000000} $(BIN)/python -m tests.fuzz

.PHONY: fuzz-planning
fuzz-planning: java venv ## TIDEMARK_FUZZ_STATEMENTS (100,000) mutated statements through the planner's workers (hours; goes on where it stopped)
	$(IN_VENV) TIDEMARK_FUZZ_STATEMENTS=$${TIDEMARK_FUZZ_STATEMENTS:-100000} $(BIN)/python -m tests.fuzz_planning

.PHONY: lint
lint: venv ## style and the arrows between packages
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/lint-imports

.PHONY: types
types: venv ## mypy: all packages strictly, and the calls and names of tests and benches
	$(BIN)/mypy

BENCHES := step hydrate arrange sharing views refresh catchup memory soak peek serve reconnect controller operator recovery homes ingest nexmark

.PHONY: bench
bench: java venv ## the benchmarks (hours; docs/performance.md); each prints one JSON object as its last line
	@set -e; for bench in $(BENCHES); do $(IN_VENV) $(BIN)/python -m bench.$$bench --json; done

.PHONY: bench-cluster
bench-cluster: venv ## what replicas as pods cost, on a real one-node cluster (root, Debian packages; docs/benchmarks.md)
	@$(BIN)/tidemark-devcluster node check
	$(BIN)/python -m bench.cluster --json

.PHONY: bench-peers
bench-peers: venv ## install the engines that `make bench` compares with, into the cache: Pathway, Flink, and a Rust program
	$(BIN)/python -m bench.peers.pathway_peer
	$(BIN)/python -m bench.peers.flink_streaming
	$(BIN)/python -m bench.peers.differential_peer

# --- to read it ---

SITE := .tidemark/docs-venv

.PHONY: docs
docs: reference $(SITE)/.installed ## build the site of docs/ into .tidemark/site; a broken link is an error
	$(SITE)/bin/python -m mkdocs build --strict --quiet
	@echo "the site is in .tidemark/site: open .tidemark/site/index.html"

$(SITE)/.installed: pyproject.toml constraints.txt
	@tools/make-venv $(SITE) docs
	@touch $@

.PHONY: reference
reference: venv ## write the reference pages that are generated: resources, functions
	@$(BIN)/python -m tools.reference_pages

# --- to change it ---

.PHONY: fmt
fmt: venv ## put the sources into the house's format
	$(BIN)/ruff check --fix .
	$(BIN)/ruff format .

.PHONY: proto
proto: venv ## generate the protobuf code anew from protocol/tidemark_protocol/pb/*.proto
	cd protocol && ../$(BIN)/python -m grpc_tools.protoc -I. --python_out=. --pyi_out=. --grpc_python_out=. \
		tidemark_protocol/pb/*.proto

.PHONY: krew
krew: venv ## an archive of `kubectl tidemark` for this platform, and krew's manifest of all that are in dist/krew; URL=...
	@[ -n "$(URL)" ] || { echo "give URL=https://HOST/FOLDER, below which users will find the archives" >&2; exit 1; }
	$(BIN)/python -m tools.krew --out dist/krew --url "$(URL)"

.PHONY: lock
lock: ## resolve constraints.txt anew from pyproject.toml, and that of dbt/
	@command -v uv >/dev/null || { echo "uv is missing: pip install uv" >&2; exit 1; }
	uv pip compile --quiet --upgrade --universal --python-version 3.11 --all-extras --strip-extras \
		--custom-compile-command "make lock" --output-file constraints.txt pyproject.toml
	uv pip compile --quiet --upgrade --universal --python-version 3.11 --all-extras --strip-extras \
		--custom-compile-command "make lock" --output-file dbt/constraints.txt dbt/pyproject.toml

.PHONY: clean
clean: ## remove .venv and what tools left behind; a running demo is ended by `make demo-down`
	rm -rf $(VENV) .mypy_cache .pytest_cache .ruff_cache .hypothesis .import_linter_cache spark-warehouse
	find . -name __pycache__ -type d -not -path './.tidemark/*' -prune -exec rm -rf {} +

# --- what the others need ---

.PHONY: venv
venv: $(INSTALLED) ## .venv with everything installed, at the versions of constraints.txt

$(INSTALLED): pyproject.toml constraints.txt tools/make-venv
	@tools/make-venv $(VENV)
	@touch $@

.PHONY: java
java:
	@tools/check-java

# JVMs of tests map the classes that they load from this archive
$(CLASS_DATA): $(INSTALLED) tests/lanes/class_data.py
	@$(IN_VENV) $(BIN)/python -m tests.lanes.class_data $@

.PHONY: control-plane
control-plane: venv ## build etcd, kube-apiserver, kube-controller-manager, kubectl, toxiproxy, versitygw into the cache (once)
	@$(BIN)/tidemark-devcluster build --with-toxiproxy --with-versitygw --with-monitoring-kinds >/dev/null

.PHONY: kafka-broker
kafka-broker: java test-packages venv ## fetch the Kafka broker of the tests from Maven into the cache (once, 43 MB)
	@$(BIN)/python -m tests.kafka.broker

.PHONY: kafka-connect
kafka-connect: java test-packages venv ## fetch Kafka Connect, Debezium and converters of the tests from Maven into the cache (once, 43 MB)
	@$(BIN)/python -m tests.kafka.connect

.PHONY: iceberg-catalogue
iceberg-catalogue: java test-packages venv ## fetch the Iceberg catalogue of the tests from Maven into the cache (once, 82 MB)
	@$(BIN)/python -m tests.published.iceberg.rest_catalogue

.PHONY: jdbc-driver
jdbc-driver: java test-packages venv ## fetch pgjdbc, the driver of the tests, from Maven into the cache (once, 1.4 MB)
	@$(BIN)/python -m tests.pgwire.jdbc.pgjdbc

.PHONY: psycopg2-tests
psycopg2-tests: test-packages venv ## fetch psycopg2 with its own tests, by pip, into the cache (once, 15 MB)
	@$(BIN)/python -m tests.pgwire.psycopg2_suite.suite

.PHONY: dbt-environment
dbt-environment: venv ## install dbt, which needs another protobuf than we do, into an environment in the cache (once)
	@$(BIN)/python -m tests.dbt.environment >/dev/null
