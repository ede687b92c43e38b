"""Results of several kinds."""

import torch


def test_values() -> None:
    x = torch.zeros(2)
    value, *numbers = torch.gr_results(x)
    assert (value.tolist(), numbers) == ([1, 1], [0.5, 2, True])
    first, second = torch.gr_results_composed(x)
    assert ([each.tolist() for each in first], [each.tolist() for each in second]) == ([[0, 0], [1, 1]], [[2, 2]])
    assert [each[0].item() for each in torch.gr_seven(x)] == [0, 1, 2, 3, 4, 5, 6]


def test_gradients() -> None:
    x = torch.zeros(2, requires_grad=True)
    (torch.gr_seven(x)[6] * 2 + torch.gr_results_composed(x)[1][0] + torch.gr_results(x)[0]).sum().backward()
    assert x.grad is not None and x.grad.tolist() == [4, 4]


def test_compile() -> None:
    compiled = torch.compile(lambda x: torch.gr_seven(x)[3] + torch.gr_results_composed(x)[0][1], fullgraph=True)
    assert compiled(torch.zeros(2)).tolist() == [4, 4]


def test_script() -> None:
    unit = torch.jit.CompilationUnit("def f(x):\n    a, b, c, d = torch.gr_results(x)\n    return b + c\n")
    assert unit.f(torch.zeros(2)) == 2.5
