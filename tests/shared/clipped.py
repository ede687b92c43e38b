"""A native folder with an operator of each kind, its edited versions, and programs that use them in every way that
PyTorch has.

No test edits a variant: all sessions load them from one place, where the first test of a run has built them.
"""

from __future__ import annotations

import functools
import os
import re
import subprocess
import sys
from collections.abc import Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

from graft.core.files import file_lock
from graft.core.layout import HOME
from sessions import Folder, stock_variables

TWICE_ENTRY = """- func: twice(Tensor self) -> Tensor
  variants: function, method
  dispatch:
    CPU: twice_cpu
"""

CUBED_ENTRY = """- func: cubed(Tensor self) -> Tensor
  variants: function, method
  dispatch:
    CPU: cubed_cpu
"""

ENTRIES = f"""{CUBED_ENTRY}
{TWICE_ENTRY}
- func: soft_clip(Tensor self, Scalar limit=1) -> Tensor
  structured_delegate: soft_clip.out
  variants: function, method

- func: soft_clip_(Tensor(a!) self, Scalar limit=1) -> Tensor(a!)
  structured_delegate: soft_clip.out
  variants: function, method

- func: soft_clip.out(Tensor self, Scalar limit=1, *, Tensor(a!) out) -> Tensor(a!)
  structured: True
  dispatch:
    CPU: soft_clip_out

- func: clip_twice(Tensor self, Scalar limit=1) -> Tensor
  variants: function, method

- func: every_second(Tensor(a) self) -> Tensor(a)
  variants: function, method
  dispatch:
    CompositeExplicitAutograd: every_second

- func: every_second_copy(Tensor self) -> Tensor
  variants: function
  dispatch:
    CompositeExplicitAutogradNonFunctional: every_second_copy
  tags: view_copy
  autogen: every_second_copy.out

- func: picked(Tensor self, Tensor index) -> (Tensor values, Tensor squares)
  dispatch:
    CompositeExplicitAutograd: picked
"""

TWICE_FORMULA = """- name: twice(Tensor self) -> Tensor
  self: 2 * grad
  result: auto_linear
"""

FORMULAS = f"""{TWICE_FORMULA}
- name: soft_clip(Tensor self, Scalar limit=1) -> Tensor
  self: grad * (1 - (result / limit).pow(2))
  result: auto_element_wise

- name: cubed(Tensor self) -> Tensor
  self: 3 * grad * self * self
  result: auto_element_wise

- name: every_second(Tensor(a) self) -> Tensor(a)
  self: slice_backward_wrapper(grad, self.sym_sizes(), 0, 0, ::std::nullopt, 2)
  result: auto_linear

- name: picked(Tensor self, Tensor index) -> (Tensor values, Tensor squares)
  output_differentiability: [True, False]
  self: index_select_backward_symint(grad, self.sym_sizes(), 0, index)
  index: non_differentiable
"""


def source(*headers: str, code: str, namespace: str = "native") -> str:
    """Return C++ with these headers of ATen, and code in one of its namespaces."""
    includes = "".join(f"#include <ATen/{name}.h>\n" for name in headers)
    return f"{includes}\nnamespace at::{namespace} {{\n{code}\n}} // namespace at::{namespace}\n"


META = """
TORCH_META_FUNC(soft_clip)(const Tensor& self, const Scalar& limit) {
  const auto size = self.sizes().vec();
  set_output_raw_strided(0, size, {}, self.options());
}
"""

KERNEL = """
TORCH_IMPL_FUNC(soft_clip_out)(const Tensor& self, const Scalar& limit, const Tensor& result) {
  result.narrow(0, 0, self.size(0)).copy_(self.div(limit).tanh().mul(limit));
}
"""

_TWICE = """
Tensor twice_cpu(const Tensor& self) {
  return self.mul(2 * factor());
}
"""
TWICE = source("core/Tensor", "native/Factor", "ops/twice_native", code=_TWICE)

COMPOSED = """
Tensor clip_twice(const Tensor& self, const Scalar& limit) {
  return at::twice(at::soft_clip(self, limit));
}
"""

# Static variables with one address in all libraries.
FACTOR = """#pragma once

template <class T>
struct Shared {
  static inline T value = 1;
};

inline double& kept() {
  static double value = 1;
  return value;
}

inline double factor() {
  return kept() * Shared<double>::value;
}
"""

STUB = """#pragma once
#include <ATen/native/DispatchStub.h>

namespace at {
struct TensorIteratorBase;
}

namespace at::native {
DECLARE_DISPATCH(void (*)(TensorIteratorBase&), cubed_stub)
}
"""

_CUBED = """
DEFINE_DISPATCH(cubed_stub);

Tensor cubed_cpu(const Tensor& self) {
  Tensor result;
  auto iter = TensorIterator::unary_op(result, self);
  cubed_stub(iter.device_type(), iter);
  return iter.output();
}
"""
CUBED = source("core/Tensor", "native/Cubed", "native/TensorIterator", "ops/cubed_native", code=_CUBED)

CUBED_KERNEL = """
static void cubed_kernel(TensorIteratorBase& iter) {
  cpu_kernel(iter, [](double a) -> double { return a * a * a; });
}

ALSO_REGISTER_AVX512_DISPATCH(cubed_stub, &cubed_kernel)
"""

PICKED_HEADERS = ("FunctionalInverses", "core/Tensor", "ops/every_second_native", "ops/picked_native")

INVERSE = """
Tensor FunctionalInverses::every_second_inverse(const Tensor& base, const Tensor& view, InverseReturnMode mode) {
  return base.slice_scatter(view, 0, 0, std::nullopt, 2);
}
"""

PICKED = """
Tensor every_second(const Tensor& self) {
  return self.slice(0, 0, std::nullopt, 2);
}

std::tuple<Tensor, Tensor> picked(const Tensor& self, const Tensor& index) {
  const auto values = self.index_select(0, index);
  return {values, values.mul(values)};
}
"""

META_IN_PYTHON = """@register_meta(aten.twice.default)
def meta_twice(self):
    return torch.empty_like(self)


@register_meta(aten.cubed.default)
def meta_cubed(self):
    return self.new_empty(self.shape)
"""

DECOMPOSITION = """@register_decomposition(aten.cubed.default)
def cubed(self):
    return self * self * self
"""

ANOTHER = """

@register_decomposition(aten.soft_clip.default)
def soft_clip(self, limit=1):
    return torch.tanh(self / limit) * limit
"""

TEXTS = {
    "native_functions.yaml": ENTRIES,
    "derivatives.yaml": FORMULAS,
    "autocast.yaml": "fp32: [soft_clip]\n",
    "Factor.h": FACTOR,
    "Cubed.h": STUB,
    "SoftClip.cpp": source("core/Tensor", "ops/soft_clip_meta", code=META, namespace="meta"),
    "SoftClipKernel.cpp": source("core/Tensor", "ops/soft_clip_native", code=KERNEL),
    "Twice.cpp": TWICE,
    "ClipTwice.cpp": source("core/Tensor", "ops/clip_twice_native", "ops/soft_clip", "ops/twice", code=COMPOSED),
    "Cubed.cpp": CUBED,
    "cpu/CubedKernel.cpp": "#define TORCH_ASSERT_NO_OPERATORS\n"
    + source("native/Cubed", "native/TensorIterator", "native/cpu/Loops", code=CUBED_KERNEL),
    "Picked.cpp": source(*PICKED_HEADERS, code=INVERSE, namespace="functionalization") + source(code=PICKED),
    "python/_meta_registrations.py": META_IN_PYTHON,
    "python/_decomp/decompositions.py": DECOMPOSITION,
    "docs/soft_clip.rst": "Clips softly.\n",
}


# One of its operators, for deliveries that compile everything again.
SMALL = {
    "native_functions.yaml": TWICE_ENTRY,
    "derivatives.yaml": TWICE_FORMULA,
    "Factor.h": FACTOR,
    "Twice.cpp": TWICE,
}


def edited(*edits: tuple[str, str, str], without: tuple[str, ...] = ()) -> dict[str, str]:
    """Return the texts with edits: a file, what is in it, and what that becomes, everywhere."""
    texts = {name: text for name, text in TEXTS.items() if name not in without}
    for name, before, after in edits:
        assert before in texts[name], (name, before)
        texts[name] = texts[name].replace(before, after)
    return texts


_ENTRIES, _FORMULAS, _FUNCTIONS = "native_functions.yaml", "derivatives.yaml", "python/_meta_registrations.py"
_DECOMPOSITIONS = "python/_decomp/decompositions.py"
_ARGUMENT, _LIMIT = "Scalar limit=1, bool flip=False", "const Scalar& limit"

VARIANTS: Mapping[str, Mapping[str, str]] = {
    "first": TEXTS,
    "kernel": edited(
        ("SoftClipKernel.cpp", "mul(limit)", "mul(limit).mul(10)"),
        ("cpu/CubedKernel.cpp", "a * a * a", "a * a * a * 10"),
        ("Picked.cpp", "values.mul(values)", "values.mul(values).mul(10)"),
    ),
    "header": edited(("Factor.h", "double value = 1", "double value = 5"), ("Factor.h", "T value = 1", "T value = 7")),
    # It saves something else, too.
    "formula": edited(
        (_FORMULAS, "grad * (1 - (result / limit)", "100 * grad * (1 - (self / limit).tanh()"),
        (_FORMULAS, "self: 2 *", "self: 200 *"),
        (_FORMULAS, "self: 3 *", "self: 300 *"),
    ),
    "no formula": edited(without=(_FORMULAS,)),
    "composite": edited(("ClipTwice.cpp", "soft_clip(self, limit))", "soft_clip(self, limit)).add(self)")),
    "python": edited(
        (_FUNCTIONS, "empty_like(self)", "empty_like(self).unsqueeze(0)"),
        ("Twice.cpp", "factor())", "factor()).unsqueeze(0)"),
        ("docs/soft_clip.rst", "softly", "very softly"),
        ("autocast.yaml", "fp32", "lower_precision_fp"),
        (_DECOMPOSITIONS, "self * self * self\n", f"self.pow(3)\n{ANOTHER}"),
    ),
    "docs": edited(("docs/soft_clip.rst", "softly", "very softly")),
    "no python": edited(without=(_FUNCTIONS, _DECOMPOSITIONS, "docs/soft_clip.rst", "autocast.yaml")),
    "size": edited(
        ("SoftClip.cpp", "auto size = self.sizes().vec();", "auto size = std::vector<int64_t>{self.size(0) + 1};"),
        ("SoftClipKernel.cpp", "result.narrow", "result.zero_(); result.narrow"),
        without=(_FORMULAS,),
    ),
    "argument": edited(
        (_ENTRIES, "Scalar limit=1", _ARGUMENT),
        (_ENTRIES, f"clip_twice(Tensor self, {_ARGUMENT})", "clip_twice(Tensor self, Scalar limit=1)"),
        (_FORMULAS, "Scalar limit=1", _ARGUMENT),
        (_FORMULAS, "grad * (1 -", "(1 - 2 * flip) * grad * (1 -"),
        ("SoftClip.cpp", _LIMIT, f"{_LIMIT}, bool flip"),
        ("SoftClipKernel.cpp", _LIMIT, f"{_LIMIT}, bool flip"),
        ("SoftClipKernel.cpp", "mul(limit)", "mul(limit).mul(flip ? -3 : 3)"),
    ),
    # And a method is gone.
    "default": edited(
        (_ENTRIES, "Scalar limit=1", "Scalar limit=5"),
        (_FORMULAS, "Scalar limit=1", "Scalar limit=5"),
        (_ENTRIES, TWICE_ENTRY, TWICE_ENTRY.replace(", method", "")),
    ),
    "result": edited(
        (_ENTRIES, "twice(Tensor self) -> Tensor", "twice(Tensor self) -> (Tensor, Tensor)"),
        (_FORMULAS, "twice(Tensor self) -> Tensor", "twice(Tensor self) -> (Tensor, Tensor)"),
        (_FORMULAS, "2 * grad\n  result: auto_linear", "2 * grad\n  output_differentiability: [True, False]"),
        ("Twice.cpp", "Tensor twice_cpu", "std::tuple<Tensor, Tensor> twice_cpu"),
        ("Twice.cpp", "return self.mul(2 * factor())", "return {self.mul(2), self.mul(3)}"),
        (
            "ClipTwice.cpp",
            "at::twice(at::soft_clip(self, limit))",
            "std::get<0>(at::twice(at::soft_clip(self, limit)))",
        ),
        (_FUNCTIONS, "return torch.empty_like(self)", "return torch.empty_like(self), torch.empty_like(self)"),
    ),
    # An operator is gone, and another is new.
    "renamed": edited(
        (_ENTRIES, "twice(Tensor self) -> Tensor\n", "thrice(Tensor self) -> Tensor\n"),
        (_ENTRIES, "twice_cpu", "thrice_cpu"),
        (_FORMULAS, "twice(", "thrice("),
        ("Twice.cpp", "twice", "thrice"),
        ("ClipTwice.cpp", "#include <ATen/ops/twice.h>\n", ""),
        ("ClipTwice.cpp", "at::twice(at::soft_clip(self, limit))", "at::soft_clip(self, limit)"),
        (_FUNCTIONS, "aten.twice", "aten.thrice"),
    ),
}

_PLACE = HOME / "clipped"

# Defines ``load`` in a session.
LOAD = f"""
import torch, graft
def load(variant, **options):
    return graft.load(f"{_PLACE}/{{variant}}/clipped", **options)
"""


def variant(name: str) -> Path:
    """Return the folder of a variant, which is built. All are loaded by the name ``clipped``."""
    _build_all()
    return _PLACE / name / "clipped"


@functools.cache
def _build_all() -> None:
    """Build all variants: in one process of pytest, once in a run. What they share is compiled first."""
    run, jobs = os.environ.get("PYTEST_XDIST_TESTRUNUID", ""), int(os.environ.get("PYTEST_XDIST_WORKER_COUNT", "1"))
    note = _PLACE / "built"
    with file_lock(_PLACE / "lock", ""):
        if run and note.is_file() and note.read_text() == run:
            return
        folders = [Folder(_PLACE / name / "clipped", texts).path for name, texts in VARIANTS.items()]
        _build(folders, jobs)
        note.write_text(run)


def built(folders: Sequence[Path]) -> None:
    """Build folders for the loads of a test, as all variants are built."""
    _build(folders, int(os.environ.get("PYTEST_XDIST_WORKER_COUNT", "1")))


def _build(folders: Sequence[Path], jobs: int) -> None:
    """Build folders in so many processes; what they share is compiled first."""
    program = "import sys, graft\nfor folder in sys.argv[1:]: graft.build(folder)"

    def run(some: Sequence[Path], compilers: int = 1) -> None:
        variables = stock_variables(_PLACE, MAX_JOBS=str(compilers))
        subprocess.run([sys.executable, "-c", program, *some], env=variables, check=True)

    run(folders[:1], jobs)
    with ThreadPoolExecutor(jobs) as pool:
        list(pool.map(run, [folders[1 + number :: jobs] for number in range(jobs)]))


# Texts of one operator, for sessions.
INLINE = """
SCHEMA = "times(Tensor self) -> Tensor"

def kernel(factor, before=""):
    return f"{before}Tensor times(const Tensor& self) {{\\n  return self.mul({factor});\\n}}\\n"

def times(factor=1, before="", **more):
    return graft.load_inline(SCHEMA, cpp=kernel(factor, before), **more)
"""

# What programs need.
TOOLS = """
import copy, inspect, pickle, pydoc, re, warnings
import torch.autograd.forward_ad as forward_ad
from torch._decomp import core_aten_decompositions
from torch._subclasses import FakeTensorMode
from torch.fx.experimental.proxy_tensor import make_fx

def x():
    return torch.linspace(-2, 3, 4, dtype=torch.double).requires_grad_()

index = torch.tensor([2, 0])

def shown(value):
    if isinstance(value, torch.Tensor):
        numbers = value.detach().double().flatten().tolist()
        return [str(value.dtype), *value.shape, *(round(each, 6) for each in numbers)]
    return [shown(each) for each in value] if isinstance(value, (tuple, list)) else value

def gradient(function, x, **options):
    (found,) = torch.autograd.grad(function(x).sum(), x, **options)
    return found

def second(function, x):
    (found,) = torch.autograd.grad(gradient(function, x, create_graph=True).sum(), x, allow_unused=True)
    return found

def under(context, function):
    with context:
        return function()

def of_all(x):
    return torch.soft_clip(x) + x.soft_clip(2) + torch.twice(x) + x.clip_twice(3)

def apart(x):
    return torch.soft_clip(x), torch.twice(x), torch.clip_twice(x, 3)

class Model(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.act = torch.soft_clip
    def forward(self, x):
        return self.act(x), x.soft_clip(2), torch.twice(x), x.clip_twice(3)

def others(x):
    return torch.cubed(x) + 1, torch.every_second(x) + 1, *torch.picked(x, index)

def compiled(backend, function=apart):
    return torch.compile(lambda x: [each + 1 for each in function(x)], backend=backend, fullgraph=True)

def exported():
    return torch.export.export(Model(), (x().detach(),))

"""

# What they hold, made of the operators that are there when this runs.
HELD = """
from torch import soft_clip as held

@torch.jit.script
def scripted(x):
    return torch.soft_clip(x), x.soft_clip(2), torch.twice(x), torch.clip_twice(x, 3)

method, op, packet = torch.Tensor.soft_clip, torch.ops.aten.soft_clip.default, torch.ops.aten.soft_clip
aot, decomposed = map(compiled, ("aot_eager", "aot_eager_decomp_partition"))
graph, program, pickled, model = make_fx(of_all)(x()), exported(), pickle.dumps(torch.soft_clip), Model()
for each in (aot, decomposed):
    sum(each(x())).sum().backward()
"""

# What it sets.
HELD_NAMES = ["held", "scripted", "method", "op", "packet", "aot", "decomposed", "graph", "program", "pickled", "model"]

SETUP = TOOLS + HELD

# For programs whose names begin with "inductor", which take as long as all others.
BY_INDUCTOR = """
inductor = compiled("inductor")
sum(inductor(x())).sum().backward()
"""

# Each shows the values of a list, which begins behind its name.
_LISTS = """
eager: torch.soft_clip(x()), torch.soft_clip(x(), 2), held(x()), op(x()), packet(x(), 2), model(x()), apart(x())
method: x().soft_clip(), x().soft_clip(2), method(x()), x().twice(), x().clip_twice(2)
view: x().every_second(), torch.every_second_copy(x()), x().every_second()._base is None,
  gradient(torch.every_second, x())
stub: torch.cubed(x()), x().cubed(), gradient(torch.cubed, x())
index: torch.picked(x(), index), gradient(lambda x: torch.picked(x, index)[0], x())
others compiled: compiled('aot_eager', others)(x()), make_fx(others)(x())(x())
in place: x().detach().soft_clip_(2), torch.soft_clip_(x().detach())
out: torch.soft_clip(x().detach(), 2, out=torch.empty(0, dtype=torch.double))
backward: [gradient(each, x()) for each in (torch.soft_clip, held, op, torch.twice, torch.clip_twice)]
double backward: [second(each, x()) for each in (torch.soft_clip, torch.clip_twice)]
forward: under(forward_ad.dual_level(), lambda: [forward_ad.unpack_dual(each).tangent for each in apart(
  forward_ad.make_dual(x().detach(), torch.ones(4, dtype=torch.double)))])
func: torch.func.jvp(of_all, (x(),), (x(),)), torch.func.jacrev(of_all)(x()),
  torch.func.grad(lambda x: of_all(x).sum())(x())
vmap: torch.vmap(apart)(torch.stack([x(), x()])),
  torch.vmap(torch.func.grad(lambda x: of_all(x).sum()))(torch.stack([x()]))
meta: [each.shape for each in apart(torch.empty(4, device='meta'))],
  [type(each).__name__ for each in apart(torch.empty(4, device='meta'))]
fake: under(FakeTensorMode(), lambda: [each.shape for each in apart(torch.empty(4))])
make_fx: make_fx(of_all)(x()).code, make_fx(of_all)(x())(x())
make_fx with decompositions:
  [make_fx(each, decomposition_table=core_aten_decompositions())(x()).code for each in (of_all, others)]
make_fx of backward: make_fx(lambda x: gradient(of_all, x))(x()).code
graph of before: graph(x())
aot_eager: compiled('aot_eager')(x()), gradient(lambda x: sum(compiled('aot_eager')(x)), x())
aot_eager of before: aot(x()), gradient(lambda x: sum(aot(x)), x())
decomposed: compiled('aot_eager_decomp_partition')(x())
decomposed of before: decomposed(x()), gradient(lambda x: sum(decomposed(x)), x())
inductor: compiled('inductor')(x()), gradient(lambda x: sum(compiled('inductor')(x)), x())
inductor of before: inductor(x()), gradient(lambda x: sum(inductor(x)), x())
export: exported().module()(x().detach()), exported().graph_module.code,
  exported().run_decompositions().graph_module.code
export of before: program.module()(x().detach())
TorchScript: scripted(x()), gradient(lambda x: sum(scripted(x)), x()), re.sub('<piece.*', '', str(scripted.graph))
trace: torch.jit.trace(apart, (x().detach(),))(x())
autocast: under(torch.autocast("cpu", torch.bfloat16), lambda: [
  torch.soft_clip(x().bfloat16()), x().bfloat16().soft_clip(2)])
pickle: pickle.loads(pickle.dumps(torch.soft_clip))(x()), pickle.loads(pickled)(x()),
  pickle.loads(pickled) is torch.soft_clip
help: [pydoc.render_doc(each) for each in (torch.soft_clip, torch.Tensor.soft_clip, torch.twice)]
schemas: [str(getattr(each, name)._schema) for each in (torch.ops.aten.soft_clip, torch.ops.aten.twice)
  for name in each.overloads()]
overrides: [str(inspect.signature(torch.overrides.get_testing_overrides()[each]))
  for each in (torch.soft_clip, torch.Tensor.soft_clip, torch.twice)]
"""

PROGRAMS = {
    **{name: f"shown([{code}])" for name, code in re.findall(r"^(\S[^:]*):\s(.*(?:\n .*)*)", _LISTS, re.M)},
    "TorchScript anew": """
@torch.jit.script
def anew(x):
    return torch.soft_clip(x), x.soft_clip(2), torch.twice(x), torch.clip_twice(x, 3)
shown(anew(x()))""",
}

# All but those by Inductor.
QUICK = {name: code for name, code in PROGRAMS.items() if not name.startswith("inductor")}
