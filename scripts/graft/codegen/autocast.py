"""Autocast policies of the native folder: ``torch.autocast`` casts an operator's arguments first.

``autocast.yaml`` lists operators by the names of upstream's policies (ATen/autocast_mode.h), like upstream's lists::

    lower_precision_fp: [my_convolution]
    fp32: [my_loss]
"""

from __future__ import annotations

from pathlib import Path

import yaml
from torchgen.model import NativeFunction
from torchgen.yaml_utils import YamlLoader

from .derived import registrations
from .operators import Operators
from .writer import Output

# Policies that upstream registers without an additional signature.
POLICIES = ("lower_precision_fp", "fp32", "fp32_set_opt_dtype", "promote")

# The dispatch keys that a policy is registered for, each with upstream's macro. `Autocast` is the key of CUDA.
_KEYS = {"AutocastCPU": "KERNEL_CPU", "Autocast": "KERNEL_CUDA"}

_SOURCE = """\
// Upstream's own policies are listed in ATen/autocast_mode.h and registered in ATen/autocast_mode.cpp.
#include <ATen/autocast_mode.h>
#include <ATen/core/dispatch/Dispatcher.h>

namespace at::autocast {{
namespace {{

{registrations}

}} // namespace
}} // namespace at::autocast
"""


def generate_autocast(operators: Operators, declarations: Path, out: Output) -> None:
    """Generate the registrations of the policies in the file ``declarations``, which may not exist."""
    policies = read_policies(declarations)
    listed = [(f, policies[str(f.func.name)]) for f in operators.new_functions if str(f.func.name) in policies]
    if listed:
        blocks = [
            registrations(key, [(f, f"{macro}({_macro_name(f)}, {policy})") for f, policy in listed])
            for key, macro in _KEYS.items()
        ]
        out(out.folder / "ATen/RegisterAutocast.cpp", _SOURCE.format(registrations="\n\n".join(blocks)))


def read_policies(path: Path) -> dict[str, str]:
    """Return the policy of each operator in ``path``, by name with overload."""
    lists = yaml.load(path.read_text(encoding="utf-8"), YamlLoader) if path.is_file() else None
    return {name: policy for policy, names in (lists or {}).items() for name in names}


def _macro_name(f: NativeFunction) -> str:
    name = f.func.name
    return f"{name.name}, {name.overload_name}" if name.overload_name else str(name.name)
