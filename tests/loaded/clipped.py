"""A native folder with an operator of each kind, and programs that use them in every way that PyTorch has."""

ENTRIES = """- func: soft_clip(Tensor self, Scalar limit=1) -> Tensor
  structured_delegate: soft_clip.out
  variants: function, method

- func: soft_clip_(Tensor(a!) self, Scalar limit=1) -> Tensor(a!)
  structured_delegate: soft_clip.out
  variants: function, method

- func: soft_clip.out(Tensor self, Scalar limit=1, *, Tensor(a!) out) -> Tensor(a!)
  structured: True
  dispatch:
    CPU: soft_clip_out

- func: twice(Tensor self) -> Tensor
  variants: function, method
  dispatch:
    CPU: twice_cpu

- func: clip_twice(Tensor self, Scalar limit=1) -> Tensor
  variants: function, method
"""

FORMULAS = """- name: soft_clip(Tensor self, Scalar limit=1) -> Tensor
  self: grad * (1 - (result / limit).pow(2))
  result: auto_element_wise

- name: twice(Tensor self) -> Tensor
  self: 2 * grad
  result: auto_linear
"""

META = """#include <ATen/core/Tensor.h>
#include <ATen/ops/soft_clip_meta.h>

namespace at::meta {

TORCH_META_FUNC(soft_clip)(const Tensor& self, const Scalar& limit) {
  const auto size = self.sizes().vec();
  set_output_raw_strided(0, size, {}, self.options());
}

} // namespace at::meta
"""

KERNEL = """#include <ATen/core/Tensor.h>
#include <ATen/ops/soft_clip_native.h>

namespace at::native {

TORCH_IMPL_FUNC(soft_clip_out)(const Tensor& self, const Scalar& limit, const Tensor& result) {
  result.narrow(0, 0, self.size(0)).copy_(self.div(limit).tanh().mul(limit));
}

} // namespace at::native
"""

TWICE = """#include <ATen/core/Tensor.h>
#include <ATen/ops/twice_native.h>

namespace at::native {

Tensor twice_cpu(const Tensor& self) {
  return self.mul(2);
}

} // namespace at::native
"""

COMPOSED = """#include <ATen/core/Tensor.h>
#include <ATen/ops/clip_twice_native.h>
#include <ATen/ops/soft_clip.h>
#include <ATen/ops/twice.h>

namespace at::native {

Tensor clip_twice(const Tensor& self, const Scalar& limit) {
  return at::twice(at::soft_clip(self, limit));
}

} // namespace at::native
"""

META_IN_PYTHON = """@register_meta(aten.twice.default)
def meta_twice(self):
    return torch.empty_like(self)
"""

TEXTS = {
    "native_functions.yaml": ENTRIES,
    "derivatives.yaml": FORMULAS,
    "autocast.yaml": "fp32: [soft_clip]\n",
    "SoftClip.cpp": META,
    "SoftClipKernel.cpp": KERNEL,
    "Twice.cpp": TWICE,
    "ClipTwice.cpp": COMPOSED,
    "python/_meta_registrations.py": META_IN_PYTHON,
    "docs/soft_clip.rst": "Clips softly.\n",
}

# What programs need.
TOOLS = """
import copy, inspect, pickle, pydoc, re, warnings
import torch.autograd.forward_ad as forward_ad
from torch._decomp import core_aten_decompositions
from torch._subclasses import FakeTensorMode
from torch.fx.experimental.proxy_tensor import make_fx

def x():
    return torch.linspace(-2, 3, 4, dtype=torch.double).requires_grad_()

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

def compiled(backend):
    return torch.compile(lambda x: [each + 1 for each in apart(x)], backend=backend, fullgraph=True)

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
aot, inductor, decomposed = map(compiled, ("aot_eager", "inductor", "aot_eager_decomp_partition"))
graph, program, pickled, model = make_fx(of_all)(x()), exported(), pickle.dumps(torch.soft_clip), Model()
for each in (aot, inductor, decomposed):
    sum(each(x())).sum().backward()
"""

SETUP = TOOLS + HELD

PROGRAMS = {
    "eager": (
        "shown([torch.soft_clip(x()), torch.soft_clip(x(), 2), held(x()), op(x()), packet(x(), 2), "
        "model(x()), apart(x())])"
    ),
    "method": "shown([x().soft_clip(), x().soft_clip(2), method(x()), x().twice(), x().clip_twice(2)])",
    "in place": "shown([x().detach().soft_clip_(2), torch.soft_clip_(x().detach())])",
    "out": "shown(torch.soft_clip(x().detach(), 2, out=torch.empty(0, dtype=torch.double)))",
    "backward": "shown([gradient(each, x()) for each in (torch.soft_clip, held, op, torch.twice, torch.clip_twice)])",
    "double backward": "shown([second(each, x()) for each in (torch.soft_clip, torch.clip_twice)])",
    "forward": """
with forward_ad.dual_level():
    dual = forward_ad.make_dual(x().detach(), torch.ones(4, dtype=torch.double))
    tangents = [forward_ad.unpack_dual(each).tangent for each in apart(dual)]
shown(tangents)""",
    "func": (
        "shown([torch.func.jvp(of_all, (x(),), (x(),)), torch.func.jacrev(of_all)(x()), "
        "torch.func.grad(lambda x: of_all(x).sum())(x())])"
    ),
    "vmap": (
        "shown([torch.vmap(apart)(torch.stack([x(), x()])), "
        "torch.vmap(torch.func.grad(lambda x: of_all(x).sum()))(torch.stack([x()]))])"
    ),
    "meta": (
        "[[each.shape for each in apart(torch.empty(4, device='meta'))], "
        "[type(each).__name__ for each in apart(torch.empty(4, device='meta'))]]"
    ),
    "fake": """
with FakeTensorMode():
    sizes = [each.shape for each in apart(torch.empty(4))]
sizes""",
    "make_fx": "[make_fx(of_all)(x()).code, shown(make_fx(of_all)(x())(x()))]",
    "make_fx with decompositions": "make_fx(of_all, decomposition_table=core_aten_decompositions())(x()).code",
    "make_fx of backward": "make_fx(lambda x: gradient(of_all, x))(x()).code",
    "graph of before": "shown(graph(x()))",
    "aot_eager": "[shown(compiled('aot_eager')(x())), shown(gradient(lambda x: sum(compiled('aot_eager')(x)), x()))]",
    "aot_eager of before": "[shown(aot(x())), shown(gradient(lambda x: sum(aot(x)), x()))]",
    "decomposed": "[shown(compiled('aot_eager_decomp_partition')(x()))]",
    "decomposed of before": "[shown(decomposed(x())), shown(gradient(lambda x: sum(decomposed(x)), x()))]",
    "inductor": "[shown(compiled('inductor')(x())), shown(gradient(lambda x: sum(compiled('inductor')(x)), x()))]",
    "inductor of before": "[shown(inductor(x())), shown(gradient(lambda x: sum(inductor(x)), x()))]",
    "export": (
        "[shown(exported().module()(x().detach())), exported().graph_module.code, "
        "exported().run_decompositions().graph_module.code]"
    ),
    "export of before": "shown(program.module()(x().detach()))",
    "TorchScript": (
        "[shown(scripted(x())), shown(gradient(lambda x: sum(scripted(x)), x())), re.sub('<piece.*', '', "
        "str(scripted.graph))]"
    ),
    "TorchScript anew": """
@torch.jit.script
def anew(x):
    return torch.soft_clip(x), x.soft_clip(2), torch.twice(x), torch.clip_twice(x, 3)
shown(anew(x()))""",
    "trace": "shown(torch.jit.trace(apart, (x().detach(),))(x()))",
    "autocast": """
with torch.autocast("cpu", torch.bfloat16):
    under = [torch.soft_clip(x().bfloat16()), x().bfloat16().soft_clip(2)]
shown(under)""",
    "pickle": (
        "[shown(pickle.loads(pickle.dumps(torch.soft_clip))(x())), shown(pickle.loads(pickled)(x())), "
        "pickle.loads(pickled) is torch.soft_clip]"
    ),
    "help": (
        "[pydoc.render_doc(torch.soft_clip), pydoc.render_doc(torch.Tensor.soft_clip), pydoc.render_doc(torch.twice)]"
    ),
    "schemas": (
        "[str(getattr(each, name)._schema) for each in (torch.ops.aten.soft_clip, "
        "torch.ops.aten.twice) for name in each.overloads()]"
    ),
    "overrides": (
        ""
        "[str(inspect.signature(torch.overrides.get_testing_overrides()[each])) for each in (torch.soft_clip, "
        "torch.Tensor.soft_clip, torch.twice)]"
    ),
}
