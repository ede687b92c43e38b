"""Registrations of derived kernels, each made only if the folder did not register its own.

Which kernels a folder registers itself is known only after its initializers have run. In a grafted library they run
before those of generated code (scripts/graft/compile). In a source tree they run after, and replace the derived ones.
"""

from __future__ import annotations

from collections.abc import Sequence

from torchgen.model import NativeFunction

_BLOCK = """\
TORCH_LIBRARY_IMPL(aten, {key}, m) {{
  // What the native folder registers itself comes first.
  const auto is_free = [](const char* name, const char* overload) {{
    const auto op = c10::Dispatcher::singleton().findOp({{std::string("aten::") + name, overload}});
    return !op || ({is_unset});
  }};
{registrations}
}}"""

_REGISTRATION = """\
  if (is_free("{name.name}", "{name.overload_name}")) {{
    {statement}
  }}"""


def registrations(key: str, statements: Sequence[tuple[NativeFunction, str]], *, or_key: str | None = None) -> str:
    """Return a C++ block that registers kernels for the dispatch key ``key``.

    Args:
        key: the dispatch key, in C++.
        statements: the statement that registers each operator's kernel with the library ``m``.
        or_key: another key; its kernel also prevents the registration.
    """
    keys = [each for each in (key, or_key) if each]
    is_unset = " && ".join(f"!op->hasKernelForDispatchKey(c10::DispatchKey::{each})" for each in keys)
    lines = "\n".join(_REGISTRATION.format(name=f.func.name, statement=statement) for f, statement in statements)
    return _BLOCK.format(key=key, is_unset=is_unset, registrations=lines)
