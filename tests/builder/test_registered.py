"""What C++ sources register by name."""

from __future__ import annotations

from graft.inputs.registered import registrations

SOURCE = """
// TORCH_LIBRARY_IMPL(aten, CPU, m) { m.impl("comment", f); }
TORCH_LIBRARY_IMPL(aten, CPU, lib) {
  lib.impl("trace", mine::trace);
  lib.impl("aten::sum.dim_IntList", TORCH_FN(sum));
  if (true) {
    lib.impl(TORCH_SELECTIVE_NAME("aten::abs"), [](const Tensor& self) { return self; });
  }
}
TORCH_LIBRARY_IMPL(mine, CPU, m) { m.impl("other", f); }
TORCH_LIBRARY_IMPL(aten, AutocastCPU, m) {
  KERNEL_CPU(histc, fp32)
  KERNEL_CPU(max_pool2d, fp32) /* KERNEL_CPU(commented, fp32) */
}
int after() { return CHECK(this_one); }
"""


def test_methods_and_macros_are_read() -> None:
    assert [tuple(each) for each in registrations(SOURCE)] == [
        (4, "CPU", ("trace",), "mine::trace"),
        (5, "CPU", ("sum.dim_IntList",), "sum"),
        (7, "CPU", ("abs",), ""),
        (12, "AutocastCPU", ("histc.fp32", "histc"), ""),
        (13, "AutocastCPU", ("max_pool2d.fp32", "max_pool2d"), ""),
    ]
