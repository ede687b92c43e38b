"""``python -m graft.codegen.show BASE NATIVES NAME OUT``: write the code that torchgen generates for the operators of
one name below OUT, and print the purpose of each file as JSON.

A build generates code for new operators only, and a wheel has only headers for PyTorch's. This program generates code
for both, as if they were new.
"""

from __future__ import annotations

import difflib
import gc
import json
import re
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from ..core.errors import BuildError
from ..inputs.entries import places_of_operators
from ..inputs.helpers import helpers_of
from ..inputs.merge import PACKAGED
from ..inputs.native import DERIVATIVES, FUNCTIONS, NativeFolders, saved_natives
from . import KERNELS, REPLACED, rules
from .__main__ import explained, generate_replacements, generate_sources, load_operators, names_file
from .describe import describe
from .description import NAMESPACES
from .operators import Operators, Replacements, Selection
from .output import Output
from .torchgen import NativeFunction

# The purpose of a generated file, by the end of its path. The order is that in which a call from Python passes the
# files. {op} is the name, {key} a dispatch key.
_PURPOSES = (
    (r"\.pyi", "the signatures in Python"),
    (r"/bindings\.cpp", "the Python functions: they parse arguments, release the GIL and call at::{op}"),
    (r"/python_return_types\.h", "the types of results with names"),
    (r"/variable_factories\.h", "torch::{op}, which makes tensors for C++ code"),
    (r"/ops/{op}\.h", "at::{op}, which C++ code calls"),
    (r"/ops/{op}_ops\.h", "at::_ops::{op}: the schema, call() and redispatch()"),
    (r"/Operators\.cpp", "at::_ops::{op}::call(), which asks the dispatcher for a kernel"),
    (r"/RegisterSchema\.cpp", "registers the schema with the dispatcher"),
    (r"/BatchRulesOfAdded\w+\.cpp", "the batching rule, for vmap"),
    (r"/RegisterFunctionalization\.cpp", "the kernel that removes writes and views from graphs"),
    (r"/ViewMetaClasses\.(cpp|h)", "how functionalization replays the view"),
    (r"/RegisterAutocast\.cpp", "the kernel for autocast: casts arguments"),
    (r"/TraceType\.cpp", "the kernel for Tracer, which torch.jit.trace uses"),
    (r"/VariableType\.cpp", "the kernel for Autograd: makes the node, and calls the next kernel"),
    (r"/generated/Functions\.h", "the autograd node: what it saves"),
    (r"/autograd/Functions\.cpp", "the node's apply(): takes what it saved, and calls the formula"),
    (r"/autograd/Formulas\.cpp", "the derivative formulas"),
    (r"/python_functions\.cpp", "the node's attributes in Python, such as grad_fn._saved_self"),
    (r"/ADInplaceOrViewType\.cpp", "the kernel for ADInplaceOrView: counts versions, marks views"),
    (r"/ViewFuncs\.(cpp|h)", "how autograd replays the view"),
    (r"/RegisterWriting\.cpp", "kernels for an operator that writes what it does not return"),
    (r"/RegisterMissingCUDA\.cpp", "registers an error, since there is no kernel for CUDA"),
    (r"/Register(?P<key>\w+)\.cpp", "the kernel for {key}: calls that of the entry; and its registration"),
    (r"/CompositeViewCopyKernels\.cpp", "the kernel of a variant that torchgen makes of another"),
    (r"/Ufunc\w+\.\w+", "the kernel around the function of ufunc_inner_loop"),
    (r"/ops/{op}_native\.h", "declares the kernels of the entry"),
    (r"/ops/{op}_meta\.h", "the class with the meta function, which structured kernels extend"),
    (r"/ops/{op}_(?P<key>[a-z]+)_dispatch\.h", "at::{key}::{op}, which calls the kernel without the dispatcher"),
    (r"", ""),
)

# Files that only include others, files that torchgen reads, and files with all operators of PyTorch.
_NOT_SHOWN = re.compile(
    r"/narrow/|/templates/|/merged/|^/include/|/(library|formulas|autograd|operators|cuda|nodes)\.cpp$"
)
# Files whose code for PyTorch's own operators is written by hand.
_BY_HAND = re.compile(r"OfAdded|/RegisterWriting\.cpp$")


# What may stand before the name of an operator in Python and C++.
_OWNER = r"(?:torch\.ops\.)?aten\.|torch\._C\.\w+\.|(?:torch\.)?(?:Tensor|nn\.functional)\.|torch\.|a(?:t|ten)::"
# Includes, comments but those with a schema, and what formulas.py declares.
_ASIDE = re.compile(r"\s*(?:#\s*include|//(?!.*\baten::)|at::Tensor \w+__\w+\(.*;$)")


def show(base: Path, natives: NativeFolders, name: str, out: Path) -> dict[str, Any]:
    """Generate the operators of a name below ``out``. Return their descriptions, and those of the files.

    Args:
        base: the base's tree.
        natives: the native folders, whose operators can be shown, too.
        name: a name as schemas, C++ and Python have it: ``relu``, ``add.Tensor``, ``aten::relu``, ``torch.fft.rfft2``.
        out: the folder; files of an earlier run are deleted.

    Raises:
        BuildError: no operator has this name.
    """
    output = Output(out)
    operators = load_operators(base, natives, out / "merged")
    chosen = _chosen(operators, name)
    kernels, formulas = (natives.entries(file, replacing=True) for file in (FUNCTIONS, DERIVATIVES))
    replaced = operators.replaced_by(kernels, formulas, helpers_of(natives).names)
    is_new = chosen[0] in operators.new
    # The generators treat these operators as new ones.
    operators.new = Selection(operators, chosen)
    generate_sources(operators, rules.read_policies(natives), output, output, KERNELS)
    ours = Replacements(_both(replaced.kernels, operators.new), _both(replaced.formulas, operators.new))
    if ours.kernels.functions or ours.formulas.functions:
        generate_replacements(operators, ours, base, output, KERNELS)
    for namespace, hints in describe(operators.new).hints.items():
        stub = next(each.stub for each in NAMESPACES if each.name == namespace) or f"torch/_C/_{namespace}.pyi"
        output.write(stub, "\n".join(text for of_name in hints.values() for text in of_name))
    output.prune()
    root = chosen[0].root_name
    names = set(map(Path.as_posix, output.names))
    names -= set() if is_new else {name for name in names if _BY_HAND.search(f"/{name}")}
    # The folder's take the place of PyTorch's.
    names -= {name.replace(f"units/{REPLACED}/", f"units/{root}/") for name in names if REPLACED in name}
    found = sorted(each for each in (_found(output, name, root) for name in names) if each)
    return {
        "operators": [*_described(operators, ours, base, natives)],
        "files": [(name, line, purpose) for _, name, line, purpose in found],
    }


def _both(some: Selection, others: Selection) -> Selection:
    return Selection(some.whole, [f for f in some.functions if f in others])


def _chosen(operators: Operators, name: str) -> list[NativeFunction]:
    """Return all operators with the root name of the operator ``name``."""
    short = re.sub(rf"^(?:{_OWNER})", "", name.strip()).removesuffix(".default")
    spellings = {short, short.replace(".", "_")}
    found = [f for f in operators.functions if spellings & {str(f.func.name), str(f.func.name.name), f.root_name}]
    if not found:
        names = {str(f.func.name.name) for f in operators.functions}
        near = difflib.get_close_matches(short.partition(".")[0], names, 5)
        todo = f"did you mean {', '.join(near)}?" if near else "write its name as schemas or Python have it"
        raise BuildError(f"{name}: neither PyTorch nor the native folder has such an operator", todo=todo)
    return [f for f in operators.functions if f.root_name == found[0].root_name]


def _described(
    operators: Operators, replaced: Replacements, base: Path, natives: NativeFolders
) -> Iterator[dict[str, Any]]:
    """Yield each operator's schema, entry, formula and kernels: those of a native folder, if it replaces PyTorch's."""
    places: list[dict[str, str]] = []
    for file in (FUNCTIONS, DERIVATIVES):
        ours = {each.operator: f"{each.file}:{each.line}" for each in natives.entries(file)}
        places.append(places_of_operators(base / PACKAGED[file] / file) | ours)
    every = [*operators.new.with_infos, *replaced.formulas.with_infos]
    infos = {str(each.func.func): info for each in every for info in (each.info or {}).values()}
    for f in operators.new.functions:
        whole = replaced.kernels.whole if f in replaced.kernels else operators
        kernels: dict[str, list[str]] = {}
        for key, index in whole.backend_indices.items():
            if kernel := index.get_kernel(f):
                kernels.setdefault(kernel.kernel, []).append(str(key))
        info = infos.get(str(f.func))
        yield {
            "schema": f"{f.namespace}::{f.func}",
            "entry": places[0].get(str(f.func.name), "generated by torchgen"),
            "formula": places[1].get(str(info.func.func.name), "derived by torchgen") if info else "",
            "node": (info.op or "") if info else "",
            "kernels": kernels,
            "delegate": str(f.structured_delegate or ""),
        }


def _found(output: Output, name: str, root: str) -> tuple[int, str, int, str] | None:
    """Return the position of a file's purpose in the list, its name, its first line about the operators of a root name,
    and the purpose. Return None for a file without such a line.
    """
    if _NOT_SHOWN.search(f"/{name}"):
        return None
    called = rf"(?<![A-Za-z0-9_])(?:THPVariable_|structured_|wrapper_\w*_)?{root}(?![A-Za-z0-9])"
    about = re.compile(rf"{called}|\b{_camel(root)}\w*Backward")
    numbered = enumerate(output.read(name).splitlines(), 1)
    if not (line := next((number for number, text in numbered if about.search(text) and not _ASIDE.match(text)), 0)):
        return None
    for place, (pattern, purpose) in enumerate(_PURPOSES):
        if found := re.search(f"(?:{pattern.replace('{op}', root)})$", f"/{name}"):
            instead = "; in place of PyTorch's" if REPLACED in name else ""
            return place, name, line, purpose.format(op=root, **found.groupdict()) + instead
    raise AssertionError(name)  # the last pattern matches


def _camel(name: str) -> str:
    """Return the beginning of the names of an operator's autograd nodes."""
    return "".join(word.capitalize() for word in name.split("_"))


if __name__ == "__main__":
    gc.disable()  # the process ends soon, so nothing needs to be freed
    base_tree, note, wanted, folder = sys.argv[1:]
    folders = saved_natives(note)
    try:
        print(json.dumps(show(Path(base_tree), folders, wanted, Path(folder))))
    except BuildError as error:
        print(json.dumps({"error": vars(error)}))
    except Exception as error:  # torchgen raises AssertionError, ValueError or KeyError
        message = explained(str(error), folders)
        if not names_file(message, folders):
            raise
        print(json.dumps({"error": vars(BuildError(message, todo="`make check` says what to write"))}))
