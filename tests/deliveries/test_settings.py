"""A project as the field writes them: its sources, headers, flags and libraries lie where its authors put them. It is
built where it lies, with nothing but native_functions.yaml and a pyproject.toml.
"""

from __future__ import annotations

import shutil
from pathlib import Path
from zipfile import ZipFile

import pytest
from helpers import make_archive, make_shared, processor_flags, write
from users import CLIP, CLIPS, Environment, make

# No processor that is still made has this feature.
LACKING = "-mxop"

PYPROJECT = f"""[tool.graft]
native = "native"
sources = ["csrc/**/*.cc", "csrc/ops/*.cxx", "csrc/once.cpp"]
exclude = ["csrc/tests/*.cc"]
include-dirs = ["include"]
define = ["FIELD_FACTOR=3"]
cxx-flags = ["-ffast-math"]
libraries = ["field_outer", "field_static"]
library-dirs = ["third_party/lib"]
license-files = ["third_party/LICENSE"]

[tool.graft.cpu-flags]
"csrc/once.cpp" = "{LACKING}"
"native/cpu/*.cpp" = "{LACKING}"
"""

FILES = {
    "native/native_functions.yaml": CLIPS["native_functions.yaml"],
    "native/derivatives.yaml": CLIPS["derivatives.yaml"],
    "csrc/scale.cc": """#include "impl.cpp"
#include "field/scale.h"
namespace field {
at::Tensor sum(const at::Tensor& self);
at::Tensor library(const at::Tensor& self);
}
namespace at::native {
Tensor soft_clip(const Tensor& self, const Scalar& limit) {
  return (limit.toInt() == 0 ? field::scale : limit.toInt() == 1 ? field::sum : field::library)(self);
}
}
""",
    "csrc/impl.cpp": "#pragma once\n#include <ATen/TensorOperators.h>\n#include <ATen/core/Tensor.h>\n"
    "#include <field/factor.hh>\nnamespace field {\nusing namespace at;\n"
    "Tensor scale(const Tensor& self) { return self * factor<FIELD_FACTOR>(); }\n}\n",
    "csrc/tests/test.cc": "#error this is a test\n",
    "csrc/ops/sum.cxx": """
#include <ATen/Parallel.h>
#include <ATen/core/Tensor.h>
#include <ATen/ops/full.h>
#include <atomic>
using namespace at;
namespace field {
Tensor sum(const Tensor& self) {
  const auto whole = self.contiguous();
  const auto* data = whole.const_data_ptr<float>();
  double total = 0;
#pragma omp parallel for reduction(+ : total)
  for (int64_t i = 0; i < whole.numel(); ++i) total += data[i];
  std::atomic<int64_t> count = 0;
  parallel_for(0, whole.numel(), 1, [&](int64_t first, int64_t last) { count += last - first; });
  return at::full({}, total + count, self.options());
}
}
""",
    "csrc/library.cc": """
#include <torch/all.h>
extern "C" int field_outer();
extern "C" int field_static();
namespace field {
at::Tensor library(const at::Tensor& self) { return self.add(field_outer() + field_static()); }
}
""",
    "csrc/once.cpp": """
#include <ATen/core/Tensor.h>
#ifndef __XOP__
#error the flag is missing
#endif
namespace at::native {
std::tuple<Tensor, Tensor> clip_apart(const Tensor& self, const Scalar&) { return {self, self}; }
}
""",
    "native/Which.h": """#pragma once
#include <ATen/native/DispatchStub.h>
namespace at::native {
using clip_which_fn = int64_t (*)();
DECLARE_DISPATCH(clip_which_fn, clip_which_stub)
}
""",
    "native/Which.cpp": """
#include <ATen/native/Which.h>
#include <ATen/core/Tensor.h>
namespace at::native {
DEFINE_DISPATCH(clip_which_stub);
void clip_into(const Tensor&, Tensor& out) { out.fill_(clip_which_stub(kCPU)); }
}
""",
    "native/cpu/WhichKernel.cpp": """
#include <ATen/native/Which.h>
namespace at::native {
namespace {
int64_t which() {
#if defined(CPU_CAPABILITY_AVX512)
  const int64_t capability = 512;
#elif defined(CPU_CAPABILITY_AVX2)
  const int64_t capability = 2;
#else
  const int64_t capability = 1;
#endif
#ifdef __XOP__
  return -capability;
#else
  return capability;
#endif
}
}
ALSO_REGISTER_AVX512_DISPATCH(clip_which_stub, &which)
}
""",
    "include/field/scale.h": "#pragma once\nnamespace field { at::Tensor scale(const at::Tensor& self); }\n",
    "include/field/factor.hh": "#pragma once\nnamespace field { template <int N> double factor() { return N; } }\n",
    "third_party/LICENSE": "Anyone may use it.\n",
}

VALUES = """
import torch
x = torch.ones(4)
print(*(torch.soft_clip(x, limit).flatten()[0].item() for limit in range(3)))
"""
MORE = """
torch.clip_into(x, x)
print(x[0].item())
print((torch.tensor(2e-310, dtype=torch.double) / 2).item())  # -ffast-math at the link would give 0
try:
    torch.clip_apart(x, 1)
except RuntimeError as error:
    print(error)
"""


def write_project(folder: Path) -> Path:
    """Write the project and its libraries. Return its native folder."""
    write(folder, {"pyproject.toml": PYPROJECT, **FILES})
    libraries = folder / "third_party/lib"
    make_shared(libraries, "field_inner", "int field_inner(void) { return 3; }")
    text = "int field_inner(void); int field_outer(void) { return 2 * field_inner(); }"
    make_shared(libraries, "field_outer", text, "field_inner")
    make_archive(libraries, "field_static", "int field_static(void) { return 100; }")
    return folder / "native"


@pytest.fixture(scope="module")
def native(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return write_project(tmp_path_factory.mktemp("field"))


LACKS = "this needs xop, which this processor lacks: csrc/once.cpp was compiled for it (cpu-flags in pyproject.toml)"


def test_thin_wheel(native: Path, stock: Environment, tmp_path: Path) -> None:
    said = make("thin-wheel", stock, "--pin", "installed", "--native", native, "--name", "field", "--out", tmp_path)
    for name in ("field_inner", "field_outer"):
        assert f", from {native.parent}/third_party/lib/lib{name}.so.1\n" in said
    (wheel,) = tmp_path.glob("*.whl")
    with ZipFile(wheel) as archive:
        names = archive.namelist()
        (licence,) = (name for name in names if name.endswith("licenses/0/third_party/LICENSE"))
        assert archive.read(licence) == b"Anyone may use it.\n"
    assert len([name for name in names if "libfield_" in name and ".so.1" in name]) == 2
    stock.pip("install", "--no-deps", wheel)
    shutil.move(native.parent / "third_party", tmp_path / "third_party")
    try:
        expected = {"default": "1.0", "avx2": "1.0"}
        # PyTorch takes what the variable says, whatever the processor has.
        expected |= {"avx512": "512.0"} if "avx512f" in processor_flags() else {}
        for capability, which in expected.items():
            printed = stock.run(VALUES + MORE, ATEN_CPU_CAPABILITY=capability).stdout.splitlines()
            assert printed == ["3.0 8.0 107.0", which, "1e-310", LACKS]
    finally:
        shutil.move(tmp_path / "third_party", native.parent / "third_party")
        stock.pip("uninstall", "-y", "field")


def test_develop_follows_edits_of_the_project(native: Path, stock: Environment) -> None:
    def values() -> list[str]:
        make("develop", stock, "--native", native)
        return stock.run(VALUES).stdout.split()

    project = native.parent
    # Other tests compile the generated code of this operator alone, too.
    write(native, {"native_functions.yaml": CLIP["native_functions.yaml"]})
    assert values() == ["3.0", "8.0", "107.0"]
    edited = FILES["csrc/ops/sum.cxx"].replace("total + count", "total - count")
    write(project, {"pyproject.toml": PYPROJECT.replace("FACTOR=3", "FACTOR=5"), "csrc/ops/sum.cxx": edited})
    assert values() == ["5.0", "0.0", "107.0"]
    header = FILES["include/field/factor.hh"].replace("return N", "return 2 * N")
    write(project, {"include/field/factor.hh": header})
    assert values() == ["10.0", "0.0", "107.0"]
    write(project, {"pyproject.toml": PYPROJECT, **FILES})
