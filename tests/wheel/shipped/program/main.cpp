// A libtorch program, as any user writes one: old and new operators, JIT symbols and autograd nodes.
#include <ATen/RedispatchFunctions.h>
#include <torch/script.h>
#include <torch/torch.h>

#include <cstdlib>
#include <iostream>

#define EXPECT(condition)                                                \
  if (!(condition)) {                                                    \
    std::cerr << __FILE__ << ":" << __LINE__ << ": " #condition << "\n"; \
    std::exit(1);                                                        \
  }

int main(int argc, char** argv) {
  const auto x = torch::arange(6.0).reshape({2, 3});
  const auto y = torch::ones({3});

  // The new operators, as functions, methods, out= and redispatch.
  EXPECT(at::equal(at::gdh(x), x.flatten()));
  EXPECT(at::equal(x.gdh(), at::gdh(x)));
  EXPECT(at::equal(at::twice_plus(x, y), 2 * x + y));
  auto z = torch::empty({0});
  at::twice_plus_out(z, x, y);
  EXPECT(at::equal(z, x.twice_plus(y)));
  EXPECT(at::equal(x.clone().twice_plus_(y), z));
  EXPECT(at::equal(at::redispatch::gdh(c10::DispatchKeySet(c10::DispatchKey::CPU), x), x.flatten()));

  // Old operators beside them.
  EXPECT(at::equal(at::add(x, x), 2 * x));

  // Autograd, old nodes and new.
  auto w = torch::ones({2, 3}, torch::requires_grad());
  const auto loss = w.twice_plus(y).mul(x).gdh();
  EXPECT(loss.grad_fn()->name() == "GdhBackward0");
  EXPECT(loss.grad_fn()->next_edge(0).function->name() == "MulBackward0");
  loss.sum().backward();
  EXPECT(at::equal(w.grad(), 2 * x));

  // Names are numbered alike in the headers that this was compiled with and in the libraries.
  EXPECT(c10::Symbol::fromQualString("aten::add") == c10::aten::add);
  EXPECT(c10::Symbol::fromQualString("aten::zeros_like") == c10::aten::zeros_like);
  EXPECT(c10::Symbol::fromQualString("attr::weight") == c10::attr::weight);
  EXPECT(std::string(c10::Symbol::fromQualString("aten::gdh").toQualString()) == "aten::gdh");

  // TorchScript, compiled here and loaded from the file that Python saved.
  const auto unit = torch::jit::compile("def f(x):\n  return torch.gdh(torch.twice_plus(x, x))\n");
  EXPECT(at::equal(unit->run_method("f", x).toTensor(), 3 * x.flatten()));
  auto module = torch::jit::load(argv[1]);
  EXPECT(at::equal(module.forward({x}).toTensor(), 3 * x.flatten()));
  return 0;
}
