# Thin verbs: `graft` is the builder in scripts/graft, `kit` its equipment in tests/kit. Both read the variables of make
# from the environment, where scripts/environment.py renames them; scripts/graft/options.py lists them.

PYTHON ?= python3
# Not every shell expands this in an argument.
override PYTHON := $(patsubst ~/%,$(HOME)/%,$(PYTHON))
export PYTHON
# Native folders hold text in UTF-8, whatever the locale.
export PYTHONUTF8 := 1
# These may hold quotes of their own, so recipes take them from the environment.
export NATIVE OP FILES BRANCH DIFF SCHEMA LAUNCHER CUDA_ARCHS PYTHONS PIN PINS
# The names on the command line, of which the builder reports mistakes; not those of a make that calls this one.
export GIVEN := $(if $(filter 0,$(MAKELEVEL)),$(foreach name,$(.VARIABLES),$(if $(filter command,$(origin $(name))),$(name))))

# The user's variables for Python do not count: -E.
environment = "$$PYTHON" -E scripts/environment.py
# Runs Python in the builder's virtual environment, which is created first if needed, one for each Python.
run = @[ -f scripts/environment.py ] || { \
    printf '%s\n' 'error: make was run in another folder' '  next: use `make -C` and the folder of Graft' >&2; exit 2; }; \
    [ ! -d "$$PYTHON" ] || { \
    meant=$$PYTHON/bin/python; [ -f "$$meant" ] && meant="did you mean $$meant?" || meant='set PYTHON to a program'; \
    printf '%s\n' "error: PYTHON=$$PYTHON: this is a folder" "  next: $$meant" >&2; exit 2; }; \
    command -v "$$PYTHON" >/dev/null || { \
    printf '%s\n' "error: PYTHON=$$PYTHON: program not found" \
        '  next: set PYTHON to a Python 3.10 or newer, as a name or a path' >&2; exit 2; }; $(environment)
graft = $(run) graft $@ $(ARGS)
kit = $(run) tests.kit $@ $(ARGS)

.DEFAULT_GOAL := help
.PHONY: help patch-and-build develop undevelop thin-wheel check show check-source check-cuda new-op adopt pin apply export \
    import test test-all test-sanitize test-nightly test-mutants test-matrix fuzz surfaces bench bench-build bench-peers lint dist clean clean-cache clean-all

## Targets:
help: ## print this
	@sed -n 's/^## //p; s/^\([a-z-]*\): ## \(.*\)/  make \1\t\2/p' Makefile | expand -t 25
	@$(environment) variables

patch-and-build: ## build the torch wheel with the operators of NATIVE, or what SOURCE changes, into OUT
	$(run) graft build $(ARGS)
develop: ## add the operators of NATIVE, or what the checkout SOURCE changes, to the torch that PYTHON has; WATCH=1: on every save
	$(graft)
undevelop: ## restore the torch that PYTHON had
	$(graft)
thin-wheel: ## build the operators, or what SOURCE changes, as a small wheel NAME, which requires the torch of PIN and loads with it
	$(graft)
check: ## find errors in NATIVE, or in what SOURCE changes, without building; ARGS=--cuda, ARGS=--source: with compilers
	$(graft)
show: ## list what PYTHON's torch, or WHEEL, has; with OP, show what is generated for it; ARGS=VariableType.cpp: the code
	$(run) graft show $(if $(OP),"$$OP") $(ARGS)
new-op: ## write the skeleton of the operator SCHEMA into NATIVE: YAML, kernel, tests
	$(run) graft new $(ARGS)
adopt: ## write the operators of the extension PACKAGE, which PYTHON has installed, as a native folder NATIVE
	$(run) graft adopt $(PACKAGE) $(ARGS)
import: ## write what the branch BRANCH of the checkout SOURCE, or the diff DIFF to it, changes as a native folder NATIVE
	$(graft)
test: ## build it if needed, install it in a new environment, run the tests; with SOURCE, of what it changes
	$(kit)
bench: ## time each operator and its alternatives: JSON, a table, a plot; with SOURCE, what it changes and PyTorch's
	$(run) tests.kit $@ -- $(ARGS)
clean: ## delete build/ and dist/
	rm -rf build dist
clean-cache: ## delete what all clones share: the downloaded torches, objects, environments
	$(run) graft clean --cache $(ARGS)
clean-all: ## list all that Graft ever wrote on this machine, ask, and delete it; ARGS=--yes does not ask
	$(run) graft clean --all $(ARGS)

## Targets for maintainers:
pin: ## write the pin of the release TORCH into patches/
	$(graft)
apply: ## turn the PyTorch checkout SOURCE into the fork: patches and operators as commits
	$(graft)
export: ## write the fork in SOURCE as patches for git am, into OUT (dist/fork-RELEASE)
	$(graft)
test-all: ## as test, and the tests of the builder, of generated code and of what the READMEs say
	$(kit)
test-sanitize: ## build with address and undefined-behavior sanitizers, and run the tests of the operators
	$(run) tests.kit $@ -- $(ARGS)
test-nightly: ## what takes hours: sanitizers, random calls, slow tests, ...; ARGS="fuzz slow" for some of it
	$(kit)
test-mutants: ## insert one wrong line at a time and expect a failing test; ARGS="12 30-40 RoiPool" or ARGS=--list
	$(kit)
test-matrix: ## build and test each version of PIN on each Python of PYTHONS, AT_ONCE rows at once, and write a table; KEEP=1 keeps environments
	$(run) nox -s matrix -j '$(or $(AT_ONCE),1)' -- $(ARGS); code=$$?; cat build/test-matrix.md 2>/dev/null; exit $$code
fuzz: ## call the operators at random; ARGS="--minutes 10", ARGS="--again FILE" for one call again
	$(run) tests.kit $@ -- $(ARGS)
surfaces: ## compare the operators of NATIVE with two of PyTorch, surface by surface
	$(kit)
bench-build: ## time builds in a copy: from nothing, unchanged, after edits; ARGS=--list names them
	$(kit)
bench-peers: ## compare calls and builds with torch.library.custom_op, a C++ extension and load_inline
	$(kit)
lint: ## ruff, mypy --strict, import-linter and clang-format
	$(run) nox -s lint
dist: ## build the wheel of Graft itself, which installs the command graft, into dist/
	$(run) hatchling build -t wheel -d dist

# Aliases, which help does not list.
check-cuda check-source:
	$(graft)

# These are folders, so make would say that there is nothing to do.
build native: meant = `make patch-and-build` builds the wheel of NATIVE
tests: meant = `make test` runs the tests
patches: meant = `make pin TORCH=version` writes a pin into it
scripts: meant = `make` lists the commands
.PHONY: build native tests patches scripts
build native tests patches scripts:
	@printf 'error: `make %s`: %s is a folder, not a command\n  next: %s\n' '$@' '$@' '$(meant)' >&2; exit 2
