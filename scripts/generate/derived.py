"""Registrations of kernels that are derived, each made only where the folder has registered none of its own.

The kernels that a folder registers itself are only known when its initializers have run, which in a grafted library is
before those of what is generated (scripts/compile). In a source tree it is the other way round, and the folder's
kernels then replace what is derived.
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
    """A C++ block that registers kernels for the dispatch key ``key``.

    Args:
        key: the dispatch key, in C++.
        statements: for each operator what registers its kernel with the library ``m``.
        or_key: another key whose kernel stands in the way of one for ``key``.
    """
    keys = [each for each in (key, or_key) if each]
    is_unset = " && ".join(f"!op->hasKernelForDispatchKey(c10::DispatchKey::{each})" for each in keys)
    lines = "\n".join(_REGISTRATION.format(name=f.func.name, statement=statement) for f, statement in statements)
    return _BLOCK.format(key=key, is_unset=is_unset, registrations=lines)
