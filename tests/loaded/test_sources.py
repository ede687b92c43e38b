"""Sources that register, or are initialized, by themselves, in a folder that is loaded into a process."""

from __future__ import annotations

from pathlib import Path

import pytest
from clipped import TWICE, VARIANTS, variant
from sessions import Folder, Session

OWN_LIBRARY = """#include <torch/library.h>
#include <ATen/core/Tensor.h>

namespace {

at::Tensor tripled(const at::Tensor& self) {
  return self.mul(3);
}

std::vector<at::Tensor> repeated(const at::Tensor& self, int64_t n) {
  return std::vector<at::Tensor>(n, self);
}

} // namespace

TORCH_LIBRARY(own_operators, m) {
  m.def("tripled(Tensor self) -> Tensor");
  m.def("shape_of(Tensor self) -> int[]");
  m.def("repeated", &repeated);
  m.def("repeated_again", TORCH_FN(repeated));
  m.def("halved", [](const at::Tensor& self) { return self.div(2); });
}

TORCH_LIBRARY_IMPL(own_operators, CPU, m) {
  m.impl("tripled", tripled);
}

TORCH_LIBRARY_IMPL(own_operators, CompositeExplicitAutograd, m) {
  m.impl("shape_of", [](const at::Tensor& self) { return self.sizes().vec(); });
}
"""

REFUSED = {
    "class": (
        "#include <torch/custom_class.h>\n\nstruct Own : torch::CustomClassHolder {};\n"
        'static auto own = torch::class_<Own>("own_space", "Own");\n',
        4,
        "torch::class_",
    ),
    "class in a library": (
        "#include <torch/custom_class.h>\n#include <torch/library.h>\n\nstruct Own : torch::CustomClassHolder {};\n"
        'TORCH_LIBRARY(own_space, m) {\n  m.class_<Own>("Own");\n}\n',
        6,
        "class_",
    ),
    "pybind11": ("#include <pybind11/pybind11.h>\n\nPYBIND11_MODULE(own, m) {}\n", 3, "pybind11"),
}

BEGINNING = "x = torch.ones(2)"

THROWS = '#include <stdexcept>\nstatic int bad = [] { throw std::runtime_error("oops"); return 1; }();\n'


def test_statics_with_global_symbols(where: Path) -> None:
    """Static variables of an inline function have one address in all libraries. Other tests edit them, too."""
    with Session(where) as session:
        session.run("import os, sys; sys.setdlopenflags(os.RTLD_NOW | os.RTLD_GLOBAL); x = torch.ones(2)")
        for name, result in (("first", [2.0, 2.0]), ("header", [70.0, 70.0])):
            session.load(variant(name))
            assert session.value("torch.twice(x).tolist()") == result


def test_initializer_that_throws_is_an_error(session: Session, folder: Folder) -> None:
    folder.become(VARIANTS["header"])
    for thrown, said in ((THROWS, "oops"), (THROWS.replace('std::runtime_error("oops")', "5"), "")):
        folder.add("Twice.cpp", TWICE + thrown)
        for _ in range(2):
            error = session.error(f"graft.load({str(folder.path)!r})")
            assert "BuildError" in error and said in error
            assert session.value("torch.twice(x).tolist()") == [2.0, 2.0]
    folder.add("Twice.cpp", TWICE)
    session.load(folder.path)
    assert session.value("torch.twice(x).tolist()") == [70.0, 70.0]


def test_first_load_whose_initializer_throws_leaves_nothing(where: Path, folder: Folder) -> None:
    folder.add("Twice.cpp", TWICE + THROWS)
    with Session(where) as session:
        assert "oops" in session.error(f"graft.load({str(folder.path)!r})")
        assert session.value("[hasattr(torch, 'twice'), list(graft.loaded())]") == [False, []]
        session.load(variant("first"))
        assert session.value("torch.twice(torch.ones(2)).tolist()") == [2.0, 2.0]
        assert session.ended() == 0


@pytest.mark.parametrize("name", REFUSED)
def test_what_registers_once_in_a_process_is_refused_by_name(session: Session, folder: Folder, name: str) -> None:
    text, line, word = REFUSED[name]
    folder.add("Own.cpp", text)
    said = session.error(f"graft.load({str(folder.path)!r})")
    assert f"Own.cpp:{line}" in said and word in said
    assert session.value("torch.twice(x).tolist()") == [2.0, 2.0]
    folder.add("Own.cpp", "// torch::class_<Own>(\n/* PYBIND11_MODULE(own, m) */\n")
    session.load(folder.path)
    assert session.value("[torch.twice(x).tolist(), list(graft.loaded())]") == [[2.0, 2.0], ["clipped"]]


def test_library_of_its_own_has_the_edited_code(session: Session, folder: Folder) -> None:
    folder.add("Own.cpp", OWN_LIBRARY)
    session.load(folder.path)
    session.run("own = torch.ops.own_operators.tripled.default")
    assert session.value("[own(x).tolist(), torch.ops.own_operators.tripled(x).tolist()]") == [[3.0, 3.0]] * 2
    assert session.value("torch.ops.own_operators.shape_of(x)") == [2]
    for name in ("repeated", "repeated_again"):
        assert session.value(f"len(torch.ops.own_operators.{name}(x, 3))") == 3
    assert session.value("torch.ops.own_operators.halved(x).tolist()") == [0.5, 0.5]
    folder.edit("Own.cpp", "mul(3)", "mul(4)")
    session.load(folder.path)
    assert session.value("[own(x).tolist(), torch.ops.own_operators.tripled(x).tolist()]") == [[4.0, 4.0]] * 2
    folder.edit("Own.cpp", "tripled(Tensor self) -> Tensor", "tripled(Tensor self, int n=1) -> Tensor")
    folder.edit("Own.cpp", "tripled(const at::Tensor& self)", "tripled(const at::Tensor& self, int64_t n)")
    folder.edit("Own.cpp", "mul(4)", "mul(4 * n)")
    session.load(folder.path)
    assert session.value("torch.ops.own_operators.tripled(x, 2).tolist()") == [8.0, 8.0]
    assert "graft.load" in session.error("own(x)")
    session.load(variant("first"))
    assert "AttributeError" in session.error("torch.ops.own_operators.tripled")
    assert session.value("torch.twice(x).tolist()") == [2.0, 2.0]


@pytest.mark.slow
def test_library_of_its_own_adds_a_kernel_to_the_folders_operator(session: Session, folder: Folder) -> None:
    own = OWN_LIBRARY[: OWN_LIBRARY.index("TORCH_LIBRARY(")]
    folder.add("Own.cpp", own + 'TORCH_LIBRARY_IMPL(aten, SparseCPU, m) {\n  m.impl("twice", tripled);\n}\n')
    session.load(folder.path)
    assert session.value("torch.twice(x.to_sparse()).to_dense().tolist()") == [3.0, 3.0]
    folder.edit("Own.cpp", "mul(3)", "mul(4)")
    session.load(folder.path)
    assert session.value("torch.twice(x.to_sparse()).to_dense().tolist()") == [4.0, 4.0]
    session.load(variant("first"))
    assert "SparseCPU" in session.error("torch.twice(x.to_sparse())")


def test_module_of_the_folder_keeps_its_class_and_calls_the_new_operator(session: Session, folder: Folder) -> None:
    module = "import torch\n\nclass Scale(torch.nn.Module):\n    def forward(self, x):\n        return torch.twice(x)\n"
    folder.add("python/nn/modules/scale.py", module)
    folder.add("python/nn/modules/__init__.py", 'from .scale import Scale\n\n__all__ += ["Scale"]\n')
    session.load(folder.path)
    session.run("instance = torch.nn.Scale(); kind = type(instance)")
    folder.add("Factor.h", VARIANTS["header"]["Factor.h"])
    session.load(folder.path)
    assert session.value("[type(instance) is kind, instance(x).tolist()]") == [True, [70.0, 70.0]]
    folder.edit("python/nn/modules/scale.py", "torch.twice(x)", "-torch.twice(x)")
    session.load(folder.path)
    assert session.value("[type(instance) is kind, torch.nn.Scale()(x).tolist()]") == [True, [-70.0, -70.0]]
    assert session.value("instance(x).tolist()") in ([70.0, 70.0], [-70.0, -70.0])
    session.load(variant("first"))
    assert "AttributeError" in session.error("torch.nn.Scale")
    assert session.value("[type(instance) is kind, instance(x).tolist() in ([2.0, 2.0], [-2.0, -2.0])]") == [True, True]
