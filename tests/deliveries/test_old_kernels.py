"""Files of PyTorch 2.6.0 replace those of a newer torch, unchanged but for calls that count. The bits stay the same."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path

import pytest
from asking import asked
from checkout_repository import commit, of_2_6_0, run_git
from graft.checkout.branch import import_branch
from graft.core.layout import PACKAGES, REPOSITORY
from graft.cpp.syntax import parse
from graft.fork.apply import NATIVE, YAML_FILES
from helpers import write
from tree_sitter import Node
from users import Environment, make

# Each with an OpInfo that runs it.
FILES = {
    "cpu/LerpKernel.cpp": "lerp",
    "cpu/CrossKernel.cpp": "linalg.cross",
    "cpu/PixelShuffleKernel.cpp": "nn.functional.pixel_shuffle",
    "cpu/SumKernel.cpp": "sum",
    "AveragePool2d.cpp": "nn.functional.avg_pool2d",
    "Cross.cpp": "cross",
    "Embedding.cpp": "nn.functional.embedding",
    "FractionalMaxPool2d.cpp": "nn.functional.fractional_max_pool2d",
    "Im2Col.cpp": "nn.functional.unfold",
    "Integration.cpp": "trapezoid",
    "LossMultiMargin.cpp": "nn.functional.multi_margin_loss",
    "MaxUnpooling.cpp": "nn.functional.max_unpool2d",
    "Onehot.cpp": "nn.functional.one_hot",
}
FORMULA = "sinc"

COUNTER = {
    "native_functions.yaml": """
- func: count_run(str name, int step=1) -> int
  variants: function
  dispatch:
    CompositeExplicitAutograd: count_run
""",
    "CountRun.h": """#pragma once
#include <cstdint>
#include <string_view>

namespace at::native {
int64_t count_run(std::string_view name, int64_t step);
}
""",
    "CountRun.cpp": """#include <ATen/native/CountRun.h>
#include <ATen/ops/count_run_native.h>

#include <map>
#include <mutex>
#include <string>

namespace at::native {

int64_t count_run(std::string_view name, int64_t step) {
  static std::mutex mutex;
  static std::map<std::string, int64_t> runs;
  const std::lock_guard<std::mutex> guard(mutex);
  return runs[std::string(name)] += step;
}

} // namespace at::native
""",
}

COMPARE = """
import json, sys
sys.path[:0] = PATHS
import torch
from torch.testing._internal.common_methods_invocations import op_db
from tests.kit.replaced import difference, dtypes_of

compared, runs = {}, {}
for file, name in FILES.items():
    before = torch.count_run(file, 0)
    for info in op_db:
        if info.name == name and not info.variant_test_name:
            compared[name] = {str(dtype): difference(info, dtype) for dtype in dtypes_of(info)}
    runs[file] = torch.count_run(file, 0) - before
print(json.dumps([compared, runs]))
"""


def bodies(node: Node) -> Iterator[Node]:
    """Yield the bodies of functions at namespace level, without templates, whose speed and vectors are the kernel's."""
    if node.type == "function_definition":
        body = node.child_by_field_name("body")
        if body is not None and body.type == "compound_statement":
            yield body
    elif node.type not in ("class_specifier", "struct_specifier", "template_declaration"):
        for child in node.named_children:
            yield from bodies(child)


def counting(name: str, text: str) -> str:
    """Return a source whose functions count their calls."""
    for body in sorted(bodies(parse(text)), key=lambda body: -body.start_byte):
        place = body.start_byte + 1
        text = f'{text[:place]} at::native::count_run("{name}", 1);{text[place:]}'
    head, include, rest = text.partition("#include")
    return f"{head}#include <ATen/native/CountRun.h>\n{include}{rest}"


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The import of a branch that makes the files count."""
    top = tmp_path_factory.mktemp("old")
    names = [*YAML_FILES.values(), *(f"{NATIVE}/{file}" for file in FILES)]
    texts = {name: content.decode() for name, content in of_2_6_0(names).items()}
    tree = write(top / "pytorch", texts)
    run_git(tree, "init", "--quiet")
    commit(tree, "2.6.0")
    formulas = texts["tools/autograd/derivatives.yaml"]
    old = "self: sinc_backward(grad, self)"
    assert old in formulas
    counted = formulas.replace(old, f'self: (at::count_run("{FORMULA}"), sinc_backward(grad, self))')
    sources = {f"{NATIVE}/{file}": counting(file, texts[f"{NATIVE}/{file}"]) for file in FILES}
    write(tree, {"tools/autograd/derivatives.yaml": counted, **sources})
    diff = top / "counting.diff"
    diff.write_text(run_git(tree, "diff") + "\n")
    run_git(tree, "checkout", "--quiet", ".")
    into = top / "imported"
    import_branch(asked(source=str(tree), diff=diff, native=(into,)))
    for name, text in COUNTER.items():
        with (into / name).open("a") as file:
            file.write(text)
    return into


@pytest.mark.slow
def test_each_file_runs_and_gives_the_same_bits(environment: Environment, folder: Path, tmp_path: Path) -> None:
    new = environment.copied_to(tmp_path / "environment")
    new.pip("install", "expecttest", "pyyaml", "scipy")
    make("develop", new, "--native", folder)
    code = COMPARE.replace("PATHS", repr([str(REPOSITORY), str(PACKAGES)]))
    # One capability is compiled.
    done = new.run(code.replace("FILES", repr({**FILES, FORMULA: FORMULA})), ATEN_CPU_CAPABILITY="avx2")
    compared, runs = json.loads(done.stdout.splitlines()[-1])
    assert min(runs.values()) > 0, runs
    assert compared.keys() == {*FILES.values(), FORMULA}
    assert {
        name: said for name, dtypes in compared.items() if (said := [each for each in dtypes.values() if each])
    } == {}
