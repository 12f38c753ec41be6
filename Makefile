# Whetstone's commands. `make help` lists them.
SHELL := /bin/bash
PYTHON := .venv/bin/python
DEV := PYTHONPATH=dev:operator:server:trainer:agent $(PYTHON) -m whetstone_dev
PYTEST := $(PYTHON) -m pytest
# A file's tests stay together: they share what is costly to start.
ON_ALL_CORES := --numprocesses auto --dist loadfile
STAMP := .venv/.whetstone-stamp
DEMO := $(if $(REGISTRY),--registry '$(REGISTRY)') $(if $(INSECURE_REGISTRY),--insecure-registry) \
	$(if $(STORAGE_CLASS),--storage-class '$(STORAGE_CLASS)') $(if $(SMALL),--small) $(if $(DRY_RUN),--dry-run)
.DEFAULT_GOAL := help
.PHONY: help venv generate verify lint test test-unit test-integration test-trainer test-cluster test-long demo demo-down cluster cluster-down cluster-status images clean bench sbom audit

help: ## Show this list
	@grep -hE '^[a-z-]+:.*## ' $(MAKEFILE_LIST) | awk -F ':.*## ' '{printf "  make %-18s %s\n", $$1, $$2}'

$(STAMP): pyproject.toml uv.lock dev/bootstrap.sh images/uv/requirements.txt
	@dev/bootstrap.sh
	@touch $@

venv: $(STAMP) ## Make .venv with all that the checks need

demo: $(STAMP) ## The whole loop, for real; on your cluster with KUBECONFIG=... REGISTRY=... (docs/demo.md)
	@$(DEV) demo $(DEMO)

demo-down: $(STAMP) ## Remove what the demo made on the local cluster, or on that of KUBECONFIG
	@$(DEV) demo-down

test: $(STAMP) ## Unit, integration and cluster tests; sets everything up (one small loop on a shared engine)
	@$(MAKE) --no-print-directory test-unit test-integration test-trainer test-cluster

test-unit: $(STAMP) ## Tests that need no cluster
	$(PYTEST) tests/unit --ignore tests/unit/trainer -q $(ON_ALL_CORES)

test-trainer: $(STAMP) ## The trainer's tests, in an environment with torch
	@$(DEV) test-trainer -- -m "not long"

test-integration: $(STAMP) ## Tests against a real API server without a node
	@$(DEV) build-tools
	$(PYTEST) tests/integration -q -m "not long" $(ON_ALL_CORES)

test-cluster: $(STAMP) ## Tests on the local node, but for the slow ones
	@$(DEV) cluster up
	@$(DEV) images
	$(PYTEST) tests/cluster -q -m "not long"

test-long: $(STAMP) ## Everything slow: the whole demo, restarts, deletions, 20 minutes of chaos
	@$(DEV) cluster up
	@$(DEV) images
	@$(DEV) build-tools
	$(PYTEST) tests/integration -q -m long
	@$(DEV) test-trainer -- -m long
	$(PYTEST) tests/cluster -q -m long
	@$(DEV) demo

bench: $(STAMP) ## Measure what Whetstone adds (10 minutes; ARGS="publish guard", ARGS=training, ARGS=benchmark, ARGS=scale, ARGS=soak)
	@$(DEV) build-tools
	@PYTHONPATH=bench:tests:dev:operator:server:agent $(PYTHON) -m whetstone_bench $(ARGS)

generate: $(STAMP) ## Rewrite everything that is generated (CRDs, docs pages, dashboards, chart READMEs)
	@$(DEV) generate

verify: $(STAMP) ## Generated files are current, lint, types, import contracts, charts
	@$(DEV) verify

sbom: $(STAMP) ## Write what is in the images to build/sbom, as CycloneDX
	@$(DEV) sbom

audit: $(STAMP) ## Ask PyPI whether a package of the images has a known hole (needs the network)
	@$(DEV) audit

lint: $(STAMP) ## Format and fix what ruff can fix
	for part in "check --fix" format; do .venv/bin/ruff $$part operator server trainer agent dev tests bench; done

cluster: $(STAMP) ## Start the local Kubernetes (kubeconfig in build/kubeconfig); NODES=2 for a second node
	@$(DEV) cluster up $(if $(NODES),--nodes $(NODES))

cluster-down: $(STAMP) ## Stop it and remove all that it made, also after a crash
	@$(DEV) cluster down

cluster-status: $(STAMP) ## Say what of it runs
	@$(DEV) cluster status

images: $(STAMP) ## Build all images and push them to the local registry
	@$(DEV) images

clean: ## Remove .venv and build/ (caches outside the checkout stay)
	rm -rf .venv build dist
