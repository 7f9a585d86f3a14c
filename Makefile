# Two commands matter: `make run` and `make test`. The rest serves those who change sonde.

PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin
.DEFAULT_GOAL := help

help: ## what can be made
	@awk -F ':.*## ' '/^[a-z-]+:.*## / { printf "  make %-11s %s\n", $$1, $$2 }' $(MAKEFILE_LIST)

# Stamps make the second set-up cost nothing and need no network.
$(VENV)/.run: pyproject.toml
	@test -x $(BIN)/python || $(PYTHON) -m venv $(VENV)
	@$(BIN)/python -m pip install --quiet --disable-pip-version-check --editable .
	@touch $@

$(VENV)/.dev: $(VENV)/.run requirements/dev.txt
	@$(BIN)/python -m pip install --quiet --disable-pip-version-check --requirement requirements/dev.txt
	@touch $@

run: $(VENV)/.run ## start the daemon here (state in ./var) and show a live line per second until Ctrl-C
	@$(BIN)/sonde daemon --state ./var --period 1s --live

test: check real-programs real-torch ## set everything up and pass all tests
	$(BIN)/python -m pytest -m "not long"

test-long: $(VENV)/.dev real-programs real-torch real-oar machines clean-debian ## the larger tests (10 minutes of soak, a real OAR, kernels in QEMU, a clean Debian)
	$(BIN)/python -m pytest -m long --timeout 1800

check: $(VENV)/.dev ## format, lint, types, import contracts
	$(BIN)/ruff format --check src packaging tests benchmarks docs
	$(BIN)/ruff check src packaging tests benchmarks docs
	$(BIN)/mypy
	$(BIN)/lint-imports

real-programs: # Prometheus, VictoriaMetrics, Slurm and others for the integration tests; root on Debian only
	@sh tests/integration/install-real-programs
	@sh tests/packages/install-real-programs

# In an environment of its own: sonde runs beside a training process and never in it, and PyTorch is 900 MB.
$(VENV)/torch/.stamp: requirements/torch.txt
	@test -x $(VENV)/torch/bin/python || $(PYTHON) -m venv $(VENV)/torch
	@$(VENV)/torch/bin/python -m pip install --quiet --disable-pip-version-check --requirement requirements/torch.txt
	@touch $@

real-torch: $(VENV)/torch/.stamp # PyTorch for tests/torch and the benchmarks of tracing

real-oar: # OAR, PostgreSQL and sshd for tests/oar; root on Debian only
	@sh tests/oar/install-real-programs

clean-debian: # debootstrap, for the packages' tests in a system of their own; root on Debian only
	@sh tests/packages/install-real-programs long

machines: # QEMU and what its guests need, for tests/kernels; root on Debian only
	@sh tests/kernels/install-real-programs

bench: $(VENV)/.dev real-programs real-torch ## measure every bar; prints a table, keeps benchmarks/results.json
	$(BIN)/python -m benchmarks $(BENCH)

packages: $(VENV)/.dev ## wheels, deb, rpm and their checksums in dist (needs dpkg and rpm)
	PYTHONPATH=packaging $(BIN)/python -m packages

docs: $(VENV)/.dev ## generate the reference of metrics, configuration and command line
	$(BIN)/python docs/generate.py

clean: ## remove what make has made
	rm -rf $(VENV) var build dist benchmarks/build .mypy_cache .ruff_cache .pytest_cache .hypothesis

.PHONY: help run test test-long check real-programs real-torch real-oar machines clean-debian bench packages docs clean
