# Every target works alone in a fresh clone: it makes the virtual environment first.
PYTHON ?= python3
# What is installed: the pinned versions, or requirements-cpu.lock and requirements-pypi.lock, which have hashes besides.
REQUIREMENTS ?= requirements.txt
BIN := .venv/bin
TEST := OMP_NUM_THREADS=1 $(BIN)/python -m

.PHONY: help book serve notebooks test lint address clean

help:
	@echo "make book       build the HTML book (and execute what changed)"
	@echo "make serve      build it and open it on http://localhost:8000"
	@echo "make notebooks  execute the chapters and write book/notebooks/*.ipynb"
	@echo "make test       every test; executes the chapters once"
	@echo "make lint       what the pre-commit hooks run"
	@echo "make address    write the repository's address (from _config.yml) wherever it is needed"
	@echo "make clean      delete the build and the environment"

.venv/.installed: $(REQUIREMENTS) pyproject.toml
	$(PYTHON) -m venv .venv
	$(BIN)/pip install --quiet --requirement $(REQUIREMENTS)
	$(BIN)/pip install --quiet --no-deps --no-build-isolation --editable .
	touch $@

book: .venv/.installed
	$(BIN)/python -m tools.build

serve: book
	$(BIN)/python -m tools.serve

notebooks: .venv/.installed
	$(BIN)/python -m tools.notebooks
	$(BIN)/python -m tools.picture

# 1. the package and the ledgers; 2. every chapter, with the wheel alone, its outputs compared with the committed notebook
# (this fills the execution cache); 3. the book, built from that cache, in a browser.
test: .venv/.installed
	$(TEST) pytest -n 2 --dist=worksteal --ignore=tests/book --ignore=tests/notebooks
	$(TEST) tests.alone
	$(TEST) pytest -n 2 --dist=worksteal tests/notebooks tests/book

lint: .venv/.installed
	$(BIN)/pre-commit run --all-files

address: .venv/.installed
	$(BIN)/python -m tools.address
	$(BIN)/python -m tools.notebooks

clean:
	rm -rf _build .venv .mypy_cache .ruff_cache .pytest_cache
