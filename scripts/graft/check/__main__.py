"""``python -m graft.check``: print the errors in native folders, and exit with 1 if there are any; otherwise generate.

One process checks and generates, so torchgen can generate code for every folder without errors.
"""

from __future__ import annotations

import argparse
import gc
import sys
from collections.abc import Iterator, Sequence
from functools import partial
from pathlib import Path

import yaml

from ..codegen import KERNELS, MISSING, NO_CUDA
from ..codegen.__main__ import generate, reported
from ..codegen.rules import POLICIES
from ..codegen.torchgen import SchemaKind
from ..inputs.entries import Place, compose, key_text, place_of
from ..inputs.helpers import helpers_of
from ..inputs.merge import read_added
from ..inputs.native import AUTOCAST, DERIVATIVES, FUNCTIONS, NativeFolders, saved_natives
from ..inputs.sources import headers_laid_over, read_sources
from . import FOUND, Findings, line_of, nearest
from .base import BaseOperators
from .derivatives import check_derivatives
from .folder import NOT_READ, check_files, check_names, check_python
from .functions import check_functions
from .generated import check_generated
from .helpers import check_helpers
from .kernels import check_kernels, check_meta, wanted_kernels
from .lookup import check_lookup
from .schemas import Function, root_of
from .types import has_supported_types


def check(natives: NativeFolders, base: BaseOperators) -> Findings:
    """Check the YAML, the kernels and the Python files of ``natives``."""
    findings = Findings()
    check_files(natives, findings)
    check_python(natives, base.tree, findings)
    lists = {native.place(name) for name in (FUNCTIONS, DERIVATIVES) for native in natives.folders}
    entries, formulas = (
        [
            entry
            for native in natives.folders
            if native.place(name) not in findings.unreadable
            for entry in read_added(native, name, partial(findings.add, "invalid-yaml"))
        ]
        for name in (FUNCTIONS, DERIVATIVES)
    )
    lists.update(
        each.file for each in findings.errors if each.code == NOT_READ and each.file.suffix in (".yaml", ".yml")
    )
    if lists.intersection(error.file for error in findings.errors):
        return findings  # without entries, everything else would be reported as unknown
    functions = [
        function
        for function in check_functions(entries, base, findings)
        if function.entry.is_replacing or has_supported_types(function, base.tree, findings)
    ]
    # References to operators with invalid entries may be correct.
    valid = {id(function.entry) for function in functions}
    unknown = {entry.operator for entry in entries if id(entry) not in valid}
    added = [function for function in functions if not function.entry.is_replacing]
    sources = read_sources(natives)
    helpers = helpers_of(natives)
    check_derivatives(formulas, functions, unknown, sources, base, findings, helpers.declared)
    check_helpers(helpers, natives, formulas, base, findings)
    has_cuda = (base.tree / "torch/lib/libtorch_cuda.so").is_file()
    with_cuda = [each.path for each in natives.folders if has_cuda or each.cuda]
    kernels = wanted_kernels(functions, base, with_cuda=with_cuda)
    check_kernels(kernels, natives, sources, base, findings, are_all=not unknown)
    named = [f.native for f in functions]
    check_lookup(named, kernels, sources, natives.searched, base.tree, findings, headers_laid_over(natives))
    names = {f.schema.name.name.base for f in functions}
    names |= {name for operator in unknown for name in (root_of(operator), operator.partition(".")[0])}
    overloads = {str(f.schema.name).replace(".", "_") for f in functions}
    check_names(natives, names, overloads, findings)
    _check_autocast(natives, added, unknown, findings)
    if not findings.errors:
        check_meta(functions, natives, sources, findings)
    return findings


def _check_autocast(
    natives: NativeFolders, functions: Sequence[Function], unknown: set[str], findings: Findings
) -> None:
    """Check that each policy is one of PyTorch's, and that each operator is in the folders and is listed once.

    Operators in ``unknown``, whose entries are invalid, are not checked.
    """
    names = {str(f.schema.name) for f in functions}
    castable = {str(f.schema.name) for f in functions if f.schema.kind() == SchemaKind.functional}
    seen: dict[str, Place] = {}
    for name, place in _listed_for_autocast(natives, findings):
        if name in unknown:
            continue
        if name not in names:
            what = f"no operator of the folder is named {name}"
            findings.add("unknown-operator", place, what, nearest(name, castable))
        elif name not in castable:
            what = f"{name} mutates an argument, which autocast cannot cast"
            findings.add("autocast-policy", place, what, "leave it out")
        elif name in seen:
            where = line_of(*seen[name][:2], seen_from=place[0])
            findings.add("duplicate-entry", place, f"{name} is already listed, in {where}", "delete one of the two")
        seen.setdefault(name, place)


def _listed_for_autocast(natives: NativeFolders, findings: Findings) -> Iterator[tuple[str, Place]]:
    """Yield each operator that the folders list for autocast, with its place. Report lists of another form."""
    form = "write a policy and a list of operators: `fp32: [my_loss]`"
    for folder in natives.folders:
        path = folder.place(AUTOCAST)
        tree = compose(path, partial(findings.add, "invalid-yaml"), folder.paths.get(AUTOCAST))
        if tree is not None and not isinstance(tree, yaml.MappingNode):
            findings.add("autocast-policy", place_of(path, tree), "no policies", form)
        for key, value in tree.value if isinstance(tree, yaml.MappingNode) else []:
            policy = key_text(key)
            if policy not in POLICIES:
                what = f"autocast has no policy {policy}"
                findings.add("autocast-policy", place_of(path, key), what, nearest(policy, POLICIES))
            names = value.value if isinstance(value, yaml.SequenceNode) else []
            if names and all(isinstance(name, yaml.ScalarNode) for name in names):
                yield from ((str(name.value), place_of(path, name)) for name in names)
            else:
                findings.add("autocast-policy", place_of(path, value), f"{policy}: not a list of operators", form)


def main() -> int:
    """Check, and generate if ``--out`` is given."""
    parser = argparse.ArgumentParser(prog="python -m graft.check", description=__doc__)
    parser.add_argument("base", type=Path, help="the unpacked base")
    parser.add_argument("natives", type=saved_natives, help="the native folders: a file that a snapshot writes")
    parser.add_argument("--out", type=Path, help="receives what is generated")
    parser.add_argument("--cuda", choices=(KERNELS, MISSING, NO_CUDA), default=NO_CUDA, help="what of CUDA")
    parser.add_argument("--lists", action="store_true", help="also the headers of ATen that list operators")
    parser.add_argument("--json", action="store_true", help="print the findings for another process")
    parser.add_argument("--unchecked", action="store_true", help="only generate: nothing else has changed")
    parser.add_argument("--verbose", action="store_true", help="show a traceback on errors of torchgen")
    options = parser.parse_args()
    gc.disable()  # the process ends soon, so nothing needs to be freed
    if not options.unchecked:
        findings = check(options.natives, BaseOperators(options.base, options.natives.declared))
        print(f"{FOUND}{findings.as_json()}" if options.json else "\n".join(findings.lines()), flush=True)
        if findings.errors:
            return 1
    if not options.out:
        return 0

    judge = partial(check_generated, options.natives)
    given = options.base, options.natives, options.out, options.cuda, judge
    return reported(partial(generate, *given, has_lists=options.lists), options)


if __name__ == "__main__":
    sys.exit(main())
