"""``PYTHONPATH=scripts:<base>/tree python -m tests.kit.json_schemas <base>/tree``: write the JSON Schemas that editors
use into scripts/graft/schemas, from the tables that `make check` has.
"""

from __future__ import annotations

import json
import sys
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

import yaml
from graft.adopt.adopt_options import HELP, Asked, field_of
from graft.check.schemas import KEYS as ENTRY_KEYS
from graft.codegen.description import PYTHON_MODULES
from graft.codegen.rules import POLICIES
from graft.codegen.torchgen import Variant, dispatch_keys
from graft.core.keys import KEYS, OF_EXTENSIONS, SHARED_WITH_EXTENSIONS, Key
from graft.deliver.editor import SCHEMAS
from graft.inputs.entries import RELEASES, REPLACE
from graft.inputs.merge import PACKAGED
from graft.inputs.native import FUNCTIONS

Json = dict[str, Any]

_TEXT: Json = {"type": "string", "minLength": 1}
_YES: Json = {"type": "boolean"}
_TEXTS: Json = {"anyOf": [_TEXT, {"type": "array", "items": _TEXT}]}
_OF_OURS: dict[str, Json] = {
    REPLACE: {"const": True, "description": "whether the entry replaces PyTorch's own, which it names"},
    RELEASES: {**_TEXT, "description": 'the releases of PyTorch that it is for, such as "<2.15"'},
}
_TOGETHER: Json = {"dependencies": {RELEASES: [REPLACE]}}


def _words(words: Iterable[str], separator: str = ", ") -> Json:
    """Return the schema of one word, which editors complete, or of several in a text."""
    known = sorted(words)
    one = "|".join(known)
    return {"anyOf": [{"enum": known}, {"type": "string", "pattern": f"^({one})({separator}({one}))+$"}]}


def _object(properties: Mapping[str, Json], **more: Any) -> Json:
    return {"type": "object", "properties": dict(sorted(properties.items())), "additionalProperties": False, **more}


def _list(items: Json) -> Json:
    return {"type": ["array", "null"], "items": items}


def native_functions(tree: Path) -> Json:
    """Return the schema of native_functions.yaml for the torchgen in ``tree``."""
    tags = {name: " ".join(text.split()) for name, text in _tags(tree).items()}
    tag: Json = {"enum": [*tags], "enumDescriptions": [*tags.values()]}
    keys = [str(key) for key in dispatch_keys]
    several = {f"^({'|'.join(keys)})(, *({'|'.join(keys)}))+$": _TEXT}
    about: dict[str, tuple[Json, str]] = {
        "func": (
            {"type": "string", "pattern": r"^\s*[\w.]+\s*\(.*\)\s*->\s*\S"},
            "the schema: name(arguments) -> returns",
        ),
        "variants": (
            _words(each.name for each in Variant),
            "whether Python and C++ have a function, a method, or both",
        ),
        "dispatch": (
            _object(dict.fromkeys(keys, _TEXT), patternProperties=several),
            "the kernel for each dispatch key; by default the operator's name, for CompositeImplicitAutograd",
        ),
        "tags": ({"anyOf": [tag, {"type": "array", "items": tag}]}, "what PyTorch may assume of the operator"),
        "autogen": (_TEXT, "the variants that torchgen writes: name.out, name_"),
        "structured": (_YES, "whether this out variant has a meta function that all variants share"),
        "structured_delegate": (_TEXT, "the out variant whose kernel this variant uses"),
        "structured_inherits": (_TEXT, "the class that structured kernels inherit from, such as TensorIteratorBase"),
        "precomputed": (_list(_TEXT), "what the meta function computes for the kernel"),
        "ufunc_inner_loop": ({"type": "object"}, "the loops that torchgen writes kernels of"),
        "python_module": (
            {"enum": sorted(PYTHON_MODULES)},
            "the module of Python that has the function: torch.<module>",
        ),
        "device_check": ({"enum": ["NoCheck", "ExactSame"]}, "whether all tensors must be on one device"),
        "device_guard": (_YES, "whether the kernel runs with the device of its tensors as the current one"),
        "category_override": (_TEXT, "how bindings treat the function: dummy or factory"),
        "cpp_no_default_args": (_list(_TEXT), "the arguments without a default in C++"),
        "use_const_ref_for_mutable_tensors": (_YES, "whether mutated tensors are const references in C++"),
        "manual_cpp_binding": (_YES, "whether the C++ function is handwritten, in PyTorch's own sources"),
        "manual_kernel_registration": (_YES, "whether a source registers the kernels"),
    }
    assert about.keys() == ENTRY_KEYS, f"describe {ENTRY_KEYS.symmetric_difference(about)}"
    described = {name: {**value, "description": help_} for name, (value, help_) in about.items()}
    return _list(_object({**described, **_OF_OURS}, required=["func"], **_TOGETHER))


def _tags(tree: Path) -> dict[str, str]:
    entries = yaml.safe_load((tree / PACKAGED[FUNCTIONS] / "tags.yaml").read_text(encoding="utf-8"))
    return {entry["tag"]: entry["desc"] for entry in entries}


def derivatives() -> Json:
    """Return the schema of derivatives.yaml."""
    formula: Json = {"type": ["string", "number"], "description": "the formula of a gradient, or of a result, in C++"}
    flag: Json = {"type": ["boolean", "string"]}
    flags: Json = {"type": "array", "items": flag, "description": "whether each result is differentiable"}
    formulas: Json = {"type": "object", "additionalProperties": formula}
    own: dict[str, Json] = {
        "name": {"type": "string", "pattern": r"^\s*[\w.]+\s*\(.*\)\s*->\s*\S", "description": "the operator's schema"},
        "output_differentiability": flags,
        "result": {**formula, "description": "the formula of forward mode: auto_linear, auto_element_wise, or C++"},
        "dispatch": {
            "type": "object",
            "additionalProperties": {**formulas, "properties": {"output_differentiability": flags}},
            "description": "formulas for each dispatch key, or Default",
        },
    }
    return _list(_object({**own, **_OF_OURS}, required=["name"], **_TOGETHER) | {"additionalProperties": formula})


def autocast() -> Json:
    """Return the schema of autocast.yaml."""
    operators: Json = {"type": "array", "items": _TEXT, "minItems": 1}
    return _object(dict.fromkeys(POLICIES, operators)) | {"type": ["object", "null"]}


def adopt() -> Json:
    """Return the schema of adopt.toml."""
    kinds: dict[type, Json] = {
        bool: _YES,
        str: {"type": "string"},
        tuple: {"type": "array", "items": {"type": "string"}},
        dict: {"type": "object", "additionalProperties": {"type": "string"}},
    }
    fields = {key: kinds[type(getattr(Asked(), field_of(key)))] for key in HELP}
    fields["writes"] = {"type": "object", "additionalProperties": kinds[tuple]}
    return _object({key: {**value, "description": HELP[key]} for key, value in fields.items()})


def pyproject() -> Json:
    """Return the schema of pyproject.toml, of which it describes ``[tool.graft]``."""
    table: Json = {"type": "object", "additionalProperties": _TEXTS}
    values = {"cpu-flags": table, "releases": table, "packages": table, "name": _TEXT, "suffix": _TEXT}

    def described(keys: Mapping[str, Key]) -> Json:
        about = {name: f"{key.help} ({key.holds})" for name, key in keys.items()}
        return _object({name: {**values.get(name, _TEXTS), "description": help_} for name, help_ in about.items()})

    of_extension = described(OF_EXTENSIONS | {key: KEYS[key] for key in SHARED_WITH_EXTENSIONS})
    values["extensions"] = {"type": "array", "items": {**of_extension, "required": ["name"]}}
    tool = {"type": "object", "properties": {"graft": described(KEYS)}}
    return {"type": "object", "properties": {"tool": tool}}


def schemas(tree: Path) -> dict[str, str]:
    """Return the text of each schema by its file's name."""
    every = {
        "native_functions": native_functions(tree),
        "derivatives": derivatives(),
        "autocast": autocast(),
        "adopt": adopt(),
        "pyproject": pyproject(),
    }
    draft = {"$schema": "http://json-schema.org/draft-07/schema#"}
    return {f"{name}.json": f"{json.dumps({**draft, **each}, indent=1)}\n" for name, each in every.items()}


if __name__ == "__main__":
    for name, text in schemas(Path(sys.argv[1])).items():
        (SCHEMAS / name).write_text(text, encoding="utf-8")
