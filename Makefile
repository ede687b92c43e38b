# Thin verbs; the work is done by the Python package in scripts/.

PYTHON ?= python3
PIN ?=
NATIVE ?= native
OUT ?= dist
JOBS ?= $(shell nproc)
WHEEL ?=
BUILD ?= graft
DELIVERY ?= wheel
SOURCE ?=
ARGS ?=
PINS ?=
PYTHONS ?=
AT_ONCE ?=
KEEP ?=
LAUNCHER ?=
CUDA_ARCHS ?=
WATCH ?=
NAME ?=
VERSION ?=
TORCH ?=
INDEX ?=
SCHEMA ?=
VARIANTS ?=
KIND ?= plain
# Not every shell expands this in an argument.
override PYTHON := $(patsubst ~/%,$(HOME)/%,$(PYTHON))
# These may hold quotes of their own, so the shell gets them as variables.
export SCHEMA NATIVE LAUNCHER CUDA_ARCHS
# Native folders hold text in UTF-8, whatever the locale.
export PYTHONUTF8 := 1

find_python = command -v '$(PYTHON)' >/dev/null || { \
    printf '%s\n' 'error: PYTHON=$(PYTHON): program not found' \
        '  next: set PYTHON to a Python 3.10 or newer, as a name or a path' >&2; exit 9; }
# Runs the builder in its virtual environment, one for each Python.
graft = @$(find_python); '$(PYTHON)' scripts/environment.py
# Paths of Pythons may be quoted.
export PYTHONS
several = $(if $(PINS),--pins '$(PINS)') --pythons "$$PYTHONS"
# Where something is written by default depends on what it is.
out = $(if $(filter-out file,$(origin OUT)),--out '$(OUT)')
options = $(if $(PIN),--pin '$(PIN)') --native "$$NATIVE" $(out) --jobs '$(JOBS)' $(if $(WHEEL),--wheel '$(WHEEL)')

named = $(if $(NAME),--name '$(NAME)') $(if $(VERSION),--version '$(VERSION)')

.DEFAULT_GOAL := help
.PHONY: help patch-and-build develop undevelop thin-wheel check check-source check-cuda test test-sanitize test-nightly test-mutants wheels test-matrix \
    fuzz surfaces new-op pin apply export lint bench bench-build bench-peers clean

help:
	@echo 'make patch-and-build    build the torch wheel with the operators of NATIVE into OUT'
	@echo 'make develop            add the operators of NATIVE to the torch that PYTHON has installed; WATCH=1: on every save'
	@echo 'make undevelop          restore the torch that PYTHON had'
	@echo 'make thin-wheel         build the operators as a small wheel NAME, which requires the torch of PIN and loads with it'
	@echo 'make check              find errors in NATIVE without building'
	@echo "make check-source       compile what the operators add to PyTorch's source tree, with its own build"
	@echo 'make check-cuda         compile the CUDA sources of NATIVE against a CUDA wheel; no GPU is needed'
	@echo 'make test               build it if needed, install it in a new environment, run the tests'
	@echo 'make test-sanitize      build with address and undefined-behavior sanitizers, and run the tests of the operators'
	@echo 'make test-nightly       what takes hours: sanitizers, random calls, slow tests, ...; ARGS="fuzz slow" for some of it'
	@echo 'make test-mutants       insert one wrong line at a time and expect a failing test; ARGS="12 30-40 RoiPool" or ARGS=--list'
	@echo 'make wheels             build the wheels for each pin of PINS on each Python of PYTHONS, one after another'
	@echo 'make test-matrix        build and test those, AT_ONCE rows at once, and write a table; KEEP=1 keeps environments'
	@echo 'make fuzz               call the operators at random; ARGS="--minutes 10", ARGS="--seed N" for one call again'
	@echo 'make surfaces           compare the operators of NATIVE with two of PyTorch, surface by surface'
	@echo 'make new-op             write the skeleton of the operator SCHEMA into NATIVE: YAML, kernel, tests'
	@echo 'make pin                write the pin of the release TORCH into patches/, and report what is new'
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

patch-and-build:
	$(graft) build --build '$(BUILD)' $(options) $(if $(SOURCE),--source '$(SOURCE)') $(ARGS)

develop:
	$(graft) develop $(options) --python '$(PYTHON)' $(if $(filter-out 0,$(WATCH)),--watch) $(ARGS)

undevelop:
	$(graft) undevelop $(options) --python '$(PYTHON)' $(ARGS)

thin-wheel:
	$(graft) thin-wheel $(named) $(options) --python '$(PYTHON)' $(ARGS)

check:
	$(graft) check $(options) $(ARGS)

check-source:
	$(graft) check-source $(options) $(if $(SOURCE),--source '$(SOURCE)') $(ARGS)

check-cuda:
	$(graft) check-cuda $(options) $(ARGS)

test:
	$(graft) test --build '$(BUILD)' --delivery '$(DELIVERY)' $(options) $(if $(SOURCE),--source '$(SOURCE)') $(ARGS)

test-sanitize:
	$(graft) test-sanitize $(options) -- $(ARGS)

test-nightly:
	$(graft) test-nightly $(ARGS)

test-mutants:
	$(graft) test-mutants $(options) $(ARGS)

wheels:
	$(graft) wheels --delivery '$(DELIVERY)' $(named) $(options) $(several) $(ARGS)

test-matrix:
	$(graft) test-matrix $(options) $(several) $(if $(AT_ONCE),--at-once '$(AT_ONCE)') \
	    $(if $(filter-out 0,$(KEEP)),--keep) $(ARGS)

fuzz:
	$(graft) fuzz $(options) -- $(ARGS)

new-op:
	$(graft) new-op $(options) --schema="$$SCHEMA" --kind='$(KIND)' --variants='$(VARIANTS)' $(ARGS)

pin:
	$(graft) pin --torch '$(TORCH)' $(if $(INDEX),--index '$(INDEX)') --jobs '$(JOBS)' $(ARGS)

apply export:
	$(graft) $@ $(options) $(if $(SOURCE),--source '$(SOURCE)') $(ARGS)

lint:
	$(graft) lint

bench-build:
	$(graft) bench-build $(options) $(ARGS)

bench:
	$(graft) bench $(options) -- $(ARGS)

bench-peers:
	$(graft) bench-peers $(options) $(ARGS)

surfaces:
	$(graft) surfaces --delivery '$(DELIVERY)' $(options) $(ARGS)

clean:
	rm -rf build dist

# These are folders, so make would say that there is nothing to do.
build dist native: meant = `make patch-and-build` builds the wheel of NATIVE
tests: meant = `make test` runs the tests
patches: meant = `make pin TORCH=version` writes a pin into it
scripts: meant = `make` lists the commands
.PHONY: build dist native tests patches scripts
build dist native tests patches scripts:
	@printf 'error: `make %s`: %s is a folder, not a command\n  next: %s\n' '$@' '$@' '$(meant)' >&2; exit 2
