"""What to do if an operator differs from PyTorch's own: one line for each surface."""

from __future__ import annotations

import re

_FORMULA = "fix the formulas in derivatives.yaml"
_META = (
    "write a structured kernel, or a meta function in python/_meta_registrations.py, that computes the "
    "result's shape, dtype and strides from those of the arguments"
)
_DECOMPOSITION = "write a decomposition into python/_decomp/decompositions.py, like the skeleton of `make new-op`"
_BATCHED = "use operators with batching rules in the kernel and the formulas, and sizes from the arguments"
_SHARDING = "for an operator that is not pointwise, write a sharding rule into python/distributed/tensor/_ops"
_GENERATED = "run `make clean` and build again; if this remains, report it: it is generated from the schema"

# By patterns of titles; the first match is used.
_REMEDIES = (
    (r"^gradcheck of complex", f"{_FORMULA}: gradients of complex tensors need .conj()"),
    (
        r"^gradgradcheck|forward mode over backward",
        f"{_FORMULA}; the operators that they call must be differentiable, too",
    ),
    (r"^forward mode|batched gradients", f"add a formula `result:` to derivatives.yaml, or {_FORMULA}"),
    (r"^(gradcheck|undefined gradients|gradient of|composite compliance of)", _FORMULA),
    (r"^the node|hooks on saved|checkpoint|compiled autograd|compile, backward", _FORMULA),
    (r"^torch\.func\.", f"{_FORMULA}; under vmap: {_BATCHED}"),
    (r"^C\+\+", "install a C++ compiler; the headers themselves are generated"),
    (r"vmap", _BATCHED),
    (r"^Inductor fuses", _DECOMPOSITION),
    (r"^(Inductor|AOTInductor)", f"compare the decomposition with the kernel; if there is none, {_META}"),
    (r"symbolic shapes|dynamic shapes|dynamic$", f"use SymInt sizes, with x.sym_size(i); {_META}"),
    (r"Meta|fake|export|torch\.compile|aot_autograd|make_fx|opcheck", _META),
    (r"^DTensor", _SHARDING),
    (r"jit\.(script|trace)|fx\.", "use only the types of the schema, and call no Python code of your own"),
    (
        r"in-place form|x\.op_\(\)",
        "write `name_(Tensor(a!) self, ...)` into native_functions.yaml, with a kernel for it",
    ),
    (r"out=", "write `name.out(..., *, Tensor(a!) out)` into native_functions.yaml, or `autogen: name.out`"),
    (r"^(help|Tensor\.op|type stub)", "write docs/NAME.rst without the signature, which comes from the schema"),
    (r"^x\.op|method", "write `variants: function, method` into native_functions.yaml"),
    (r"pt2_compliant|torch_dispatch|composite compliance|functionalization|subclass", f"call only operators; {_META}"),
    (r"aliases and writes", "write (a!) after the type of each mutated argument, and (a) after one that is returned"),
    (
        r"conjugate and negative",
        "read tensors with operators or TensorIterator; call .resolve_conj() before reading memory",
    ),
    (r"memory layouts", "let TensorIterator allocate the result, or create it with at::empty_like(self)"),
    (r"nested tensors", "write `tags: pointwise`, or a kernel for NestedTensorCPU into `dispatch:`"),
    (r"deterministic", "call at::globalContext().alertNotDeterministic() only if the kernel is nondeterministic"),
    (r"autocast's policy", "list the operator in autocast.yaml"),
    (r"autocast takes half", "support half types in the kernel, or list the operator in autocast.yaml under fp32"),
    (r"^as many threads", "use TensorIterator or at::parallel_for in the kernel, and write each element once"),
    (r"keywords|wrong argument", "use the schema's own names; only the first tensor may be `self`"),
    (r"data loader|copied and saved|pickled", "keep no state outside of tensors"),
    (r"", _GENERATED),
)


def remedy(title: str) -> str:
    """Return what to do if a surface is missing.

    Args:
        title: the title of the surface.
    """
    return next(text for pattern, text in _REMEDIES if re.search(pattern, title))
