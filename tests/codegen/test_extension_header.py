"""``<torch/extension.h>``, which sources of extensions begin with, needs no Python here."""

from __future__ import annotations

from pathlib import Path

from corpus import compiled
from graft.compile import units
from helpers import write

# As extensions are written; what is PyTorch's is used by its name in each namespace.
SOURCE = """\
#include <torch/extension.h>

namespace at::native {
torch::Tensor ext_neg(const torch::Tensor& self) {
  TORCH_CHECK(self.dim() > 0, "ext_neg(): expected a dimension");
  at::Tensor out = torch::empty_like(self, self.options().dtype(torch::kFloat));
  AT_DISPATCH_FLOATING_TYPES(self.scalar_type(), "ext_neg", [&] { out.fill_(*self.const_data_ptr<scalar_t>()); });
  return torch::cat({out, at::neg(self)}, 0);
}
}
TORCH_LIBRARY_FRAGMENT(ext, m) {
  m.def("neg(Tensor self) -> Tensor", &at::native::ext_neg);
}
"""


def test_source_of_an_extension_compiles_without_python(base: Path, tmp_path: Path) -> None:
    source = write(tmp_path, {"ExtNeg.cpp": SOURCE}) / "ExtNeg.cpp"
    # The folders that are searched in a build, in their order.
    include = base / "torch/include"
    folders = [Path(units.__file__).with_name("templates"), include, include / "torch/csrc/api/include"]
    assert compiled(source, folders, "-MD", "-MF", source.with_suffix(".d")) == ""
    read = {Path(word).name for word in source.with_suffix(".d").read_text().split()}
    assert "ATen.h" in read and "library.h" in read
    assert not read & {"Python.h", "pybind11.h", "python.h"}
