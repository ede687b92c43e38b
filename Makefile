# Thin verbs: `graft` is the builder in scripts/graft, `kit` its equipment in tests/kit. Both read the variables of make
# from the environment; scripts/graft/options.py lists them.

PYTHON ?= python3
# Not every shell expands this in an argument.
override PYTHON := $(patsubst ~/%,$(HOME)/%,$(PYTHON))
export PYTHON
# Native folders hold text in UTF-8, whatever the locale.
export PYTHONUTF8 := 1
# These may hold quotes of their own, so recipes take them from the environment.
export NATIVE SCHEMA LAUNCHER CUDA_ARCHS PYTHONS PINS

# Runs Python in the builder's virtual environment, which is created first if needed, one for each Python.
run = @command -v '$(PYTHON)' >/dev/null || { \
    printf '%s\n' 'error: PYTHON=$(PYTHON): program not found' \
        '  next: set PYTHON to a Python 3.10 or newer, as a name or a path' >&2; exit 2; }; '$(PYTHON)' scripts/environment.py
graft = $(run) graft $@ $(ARGS)
kit = $(run) tests.kit $@ $(ARGS)

.DEFAULT_GOAL := help
.PHONY: help patch-and-build develop undevelop thin-wheel check check-source check-cuda new-op pin apply export \
    test test-sanitize test-nightly test-mutants test-matrix wheels fuzz surfaces bench bench-build bench-peers lint clean

<<<<<<< HEAD
help: ## print this
	@echo 'Targets:'
	@sed -n 's/^\([a-z-]*\): ## \(.*\)/  make \1\t\2/p' Makefile | expand -t 25
	@'$(PYTHON)' scripts/environment.py variables
=======
help:
	@echo 'make patch-and-build    build the torch wheel with the operators of NATIVE into OUT'
	@echo 'make develop            add the operators of NATIVE to the torch that PYTHON has installed; WATCH=1: on every save'
	@echo 'make undevelop          restore the torch that PYTHON had'
	@echo 'make thin-wheel         build the operators as a small wheel NAME, which requires the torch of PIN and loads with it'
	@echo 'make check              find errors in NATIVE without building'
	@echo "make check-source       compile what the operators add to PyTorch's source tree, with its own build"
	@echo 'make check-incremental  recompile random objects that incremental builds skipped, and compare them'
	@echo 'make check-cuda         compile the CUDA sources of NATIVE against a CUDA wheel; no GPU is needed'
	@echo 'make test               build it if needed, install it in a new environment, run the tests'
	@echo 'make test-sanitize      build with address and undefined-behavior sanitizers, and run the tests of the operators'
	@echo 'make test-nightly       what takes hours: sanitizers, random calls, slow tests, ...; ARGS="fuzz slow" for some of it'
	@echo 'make test-mutants       insert one wrong line at a time and expect a failing test; ARGS="12 30-40 RoiPool" or ARGS=--list'
	@echo 'make wheels             build the wheels for each pin of PINS on each Python of PYTHONS, one after another'
	@echo 'make test-matrix        build and test those, AT_ONCE rows at once, and write a table; KEEP=1 keeps environments'
	@echo 'make fuzz               call the operators at random; ARGS="--minutes 10", ARGS="--again FILE" for one call again'
	@echo 'make surfaces           compare the operators of NATIVE with two of PyTorch, surface by surface'
	@echo 'make new-op             write the skeleton of the operator SCHEMA into NATIVE: YAML, kernel, tests'
	@echo 'make pin                write the pin of the release TORCH into patches/, and build upon it'
	@echo 'make apply              turn the PyTorch checkout SOURCE into the fork: patches and operators as commits'
	@echo 'make export             write the fork in SOURCE as patches for git am, into OUT (dist/fork-RELEASE)'
	@echo 'make lint               ruff, mypy --strict and clang-format'
	@echo 'make bench              time each operator and its alternatives: JSON, a table, a plot'
	@echo 'make bench-build        time builds in a copy: from nothing, unchanged, after edits; ARGS=--list names them'
	@echo 'make bench-peers        compare calls and builds with torch.library.custom_op and a C++ extension'
	@echo 'make clean              delete build/ and dist/'
	@echo
	@echo 'Variables, with their values now:'
	@printf '  %-22s%s\n' 'PIN=$(PIN)' 'the PyTorch to build on, see `ls patches`; by default the first that can be had; for thin-wheel also: installed'
	@printf '  %-22s%s\n' "NATIVE=$$NATIVE" 'the native folder, or several, separated by spaces; each has the layout of native/'
	@printf '  %-22s%s\n' 'OUT=$(OUT)' 'the output folder of wheels or patches'
	@printf '  %-22s%s\n' 'JOBS=$(JOBS)' 'compilers to run at once'
	@printf '  %-22s%s\n' 'LAUNCHER=$(LAUNCHER)' 'compiler launcher: ccache (the default if installed), sccache, distcc or none'
	@printf '  %-22s%s\n' 'CUDA_ARCHS=$(CUDA_ARCHS)' 'GPU architectures, for example "80 90a"; by default those of the base; none: no CUDA kernels'
	@printf '  %-22s%s\n' 'WHEEL=$(WHEEL)' 'the base wheel as a file; by default pip downloads it'
	@printf '  %-22s%s\n' 'BUILD=$(BUILD)' 'graft: onto the official wheel; source: all of PyTorch, from its sources'
	@printf '  %-22s%s\n' 'DELIVERY=$(DELIVERY)' 'for test and surfaces: wheel, or develop or thin-wheel, on the official torch'
	@printf '  %-22s%s\n' 'SOURCE=$(SOURCE)' 'a checkout of PyTorch; for BUILD=source and check-source also a mirror to download from'
	@printf '  %-22s%s\n' 'INCREMENTAL=$(INCREMENTAL)' '0: BUILD=source recompiles all users of changed headers, even if these only gained declarations'
	@printf '  %-22s%s\n' 'PYTHON=$(PYTHON)' 'the Python to build for'
	@printf '  %-22s%s\n' 'PINS=$(PINS)' 'for wheels and test-matrix: "2.14.1 2.15.0"; by default all that have a wheel for the Python'
	@printf '  %-22s%s\n' "PYTHONS=$$PYTHONS" 'for these: "3.11 3.12", names or paths; by default PYTHON, in test-matrix the table'"'"'s own'
	@printf '  %-22s%s\n' 'SCHEMA=' 'for new-op, for example SCHEMA="my_op(Tensor self, *, float alpha=1.0) -> Tensor"'
	@printf '  %-22s%s\n' 'KIND=$(KIND)' 'for new-op: plain, pointwise or composite'
	@printf '  %-22s%s\n' 'VARIANTS=$(VARIANTS)' 'for new-op: inplace, out or inplace,out'
	@printf '  %-22s%s\n' 'WATCH=$(WATCH)' 'for develop: 1 builds again on every save'
	@printf '  %-22s%s\n' 'GRAFT_DEBUG=$(GRAFT_DEBUG)' 'for develop: 1 compiles NATIVE with -O0 -g, for gdb'
	@printf '  %-22s%s\n' 'NAME=$(NAME)' 'for thin-wheel: the name of its package; by default that of the native folder'
	@printf '  %-22s%s\n' 'VERSION=$(VERSION)' 'for thin-wheel: its version; by default 0.1'
	@printf '  %-22s%s\n' 'TORCH=$(TORCH)' 'for pin: a version of torch, for example 2.16.0 or 2.13.0+cpu, or a wheel file'
	@printf '  %-22s%s\n' 'INDEX=$(INDEX)' 'for pin: an additional package index for pip'
	@printf '  %-22s%s\n' 'ARGS=$(ARGS)' 'additional arguments, for example ARGS=--help'
>>>>>>> pin/h-pin

patch-and-build: ## build the torch wheel with the operators of NATIVE into OUT
	$(run) graft build $(ARGS)
develop: ## add the operators of NATIVE to the torch that PYTHON has installed; WATCH=1: on every save
	$(graft)
undevelop: ## restore the torch that PYTHON had
	$(graft)
thin-wheel: ## build the operators as a small wheel NAME, which requires the torch of PIN and loads with it
	$(graft)
check: ## find errors in NATIVE without building
	$(graft)
check-source: ## compile what the operators add to PyTorch's source tree, with its own build
	$(graft)
check-cuda: ## compile the CUDA sources of NATIVE against a CUDA wheel; no GPU is needed
	$(graft)
new-op: ## write the skeleton of the operator SCHEMA into NATIVE: YAML, kernel, tests
	$(graft)
pin: ## write the pin of the release TORCH into patches/
	$(graft)
apply: ## turn the PyTorch checkout SOURCE into the fork: patches and operators as commits
	$(graft)
export: ## write the fork in SOURCE as patches for git am, into OUT (dist/fork-RELEASE)
	$(graft)
test: ## build it if needed, install it in a new environment, run the tests
	$(kit)
test-sanitize: ## build with address and undefined-behavior sanitizers, and run the tests of the operators
	$(kit)
test-nightly: ## what takes hours: sanitizers, random calls, slow tests, ...; ARGS="fuzz slow" for some of it
	$(run) nox $(if $(ARGS),-s $(ARGS),-t nightly)
test-mutants: ## insert one wrong line at a time and expect a failing test; ARGS="12 30-40 RoiPool" or ARGS=--list
	$(kit)
wheels: ## build the wheels for each pin of PINS on each Python of PYTHONS, one after another
	$(graft)
test-matrix: ## build and test those, AT_ONCE rows at once, and write a table; KEEP=1 keeps environments
	$(run) nox -s matrix -j '$(or $(AT_ONCE),1)' -- $(ARGS); code=$$?; cat build/test-matrix.md 2>/dev/null; exit $$code
fuzz: ## call the operators at random; ARGS="--minutes 10", ARGS="--again FILE" for one call again
	$(kit)
surfaces: ## compare the operators of NATIVE with two of PyTorch, surface by surface
	$(kit)
bench: ## time each operator and its alternatives: JSON, a table, a plot
	$(kit)
bench-build: ## time builds in a copy: from nothing, unchanged, after edits; ARGS=--list names them
	$(kit)
bench-peers: ## compare calls and builds with torch.library.custom_op and a C++ extension
	$(kit)
lint: ## ruff, mypy --strict, import-linter and clang-format
	$(run) nox -s lint
clean: ## delete build/ and dist/
	rm -rf build dist

# These are folders, so make would say that there is nothing to do.
build dist native: meant = `make patch-and-build` builds the wheel of NATIVE
tests: meant = `make test` runs the tests
patches: meant = `make pin TORCH=version` writes a pin into it
scripts: meant = `make` lists the commands
.PHONY: build dist native tests patches scripts
build dist native tests patches scripts:
	@printf 'error: `make %s`: %s is a folder, not a command\n  next: %s\n' '$@' '$@' '$(meant)' >&2; exit 2
