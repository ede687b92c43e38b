"""Print the content of the torch on the import path as JSON: schemas, tags, dispatch tables, names and docstrings."""

import hashlib
import json
import pathlib
import re
import subprocess
import sys
import types
import warnings
from collections.abc import Mapping
from typing import Any

warnings.simplefilter("ignore")

import torch  # noqa: E402


def offer_of(variables: Mapping[str, str]) -> dict[str, Any]:
    """Return the content, by surface, of the torch that a process with these environment variables imports."""
    done = subprocess.run([sys.executable, __file__], capture_output=True, text=True, check=True, env=variables)
    offer: dict[str, Any] = json.loads(done.stdout)
    return offer


def documentation(owner: object) -> dict[str, str]:
    """Return a short hash of the type and docstring of every public and private attribute."""
    found = {}
    for name in dir(owner):
        value = getattr(owner, name, None)
        if not isinstance(value, types.ModuleType):
            text = f"{type(value).__name__} {getattr(value, '__doc__', '')!r}"
            text = re.sub("0x[0-9a-f]+", "an address", text)
            found[name] = hashlib.sha256(text.encode()).hexdigest()[:16]
    return found


def main() -> None:
    """Print the probe."""
    folder = str(pathlib.Path(torch.__file__).parent)
    names = sorted(torch._C._dispatch_get_all_op_names())
    owners = (torch, torch.Tensor, torch.nn.functional, torch.fft, torch.linalg, torch.special, torch.sparse)
    owners += (torch.nested, torch._C._nn, torch._C._fft, torch._C._linalg, torch._C._special, torch.return_types)
    schemas = {(s.name, s.overload_name): str(s) for s in torch._C._jit_get_all_schemas()}
    json.dump(
        {
            "version": torch.__version__,
            "CUDA": {"version": torch.version.cuda, "GPU": torch.cuda.is_available(), "of": torch.cuda.get_arch_list()},
            "schemas": {f"{name}.{overload}": text for (name, overload), text in sorted(schemas.items())},
            "tags": {name: sorted(map(str, operator(name).tags)) for name in names if operator(name)},
            # Kernels in Python are identified by the file that registered them.
            "dispatch tables": {name: torch._C._dispatch_dump_table(name).replace(folder, "torch") for name in names},
            **{f"names of {getattr(owner, '__name__', owner)}": documentation(owner) for owner in owners},
        },
        sys.stdout,
    )


def operator(qualified: str) -> torch._ops.OpOverload | None:
    """``torch.ops.<namespace>.<name>.<overload>``."""
    namespace, _, rest = qualified.partition("::")
    name, _, overload = rest.partition(".")
    try:
        return getattr(getattr(getattr(torch.ops, namespace), name), overload or "default")
    except (AttributeError, RuntimeError):
        return None


if __name__ == "__main__":
    main()
