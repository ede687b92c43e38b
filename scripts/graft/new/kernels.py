"""The C++ files: torchgen's signatures, checks, and bodies to complete."""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence

from torchgen import local
from torchgen.api import structured
from torchgen.api.types import Binding, NativeSignature
from torchgen.model import FunctionSchema, NativeFunction, NativeFunctionsGroup, OptionalType

from .entries import kernel_name, takes_symint
from .request import TENSOR, Request

_WIDTH = 120
_BUILDERS = {1: "build_borrowing_unary_op", 2: "build_borrowing_binary_op", 3: "build_ternary_op"}


def kernel_files(request: Request, functions: Sequence[NativeFunction]) -> dict[str, str]:
    """Return the C++ files of an operator, by path in the native folder.

    Args:
        request: the requested operator.
        functions: torchgen's result for the entries.
    """
    if request.kind != "pointwise":
        # torchgen sets this for every function whose entry does not set the opposite.
        with local.parametrize(use_const_ref_for_mutable_tensors=False, use_ilistref_for_tensor_lists=False):
            return {f"{request.camel}.cpp": _plain(request)}
    group = NativeFunctionsGroup.from_dict({f.func.kind(): f for f in functions})
    assert group is not None
    return {
        f"{request.camel}.cpp": _structured(request, group),
        f"{request.camel}.h": _header(request, group),
        f"cpu/{request.camel}Kernel.cpp": _cpu(request, group),
    }


def _plain(request: Request) -> str:
    # TensorOperators.h has +, * etc. for tensors.
    includes = ["ATen/core/Tensor.h", "ATen/TensorOperators.h"]
    if any(str(argument.type).startswith("Tensor?[") for argument in request.tensors):
        includes.append("ATen/core/List.h")
    by_copy = request.out and request.kind == "composite"
    if by_copy:
        includes.append("ATen/native/Resize.h")
    functions = [_functional(request)]
    if request.inplace:
        functions.append(_inplace(request))
    if by_copy:
        functions.append(_out(request))
    return _file(request, includes, _namespace("at::native", functions))


def _functional(request: Request) -> str:
    checks = "".join(_check(request, binding) for binding in _signature(request, request.func).arguments())
    body = f"{checks}  // TODO: compute the result here.\n{_todo(request, f'{request.camel}.cpp')}"
    return _function(request, request.func, body)


def _inplace(request: Request) -> str:
    given = ", ".join(binding.name for binding in _signature(request, request.inplace_func).arguments())
    kernel = kernel_name(request, request.func)
    body = f"""\
  // TODO: this computes in new memory and copies; write it into self where that is faster.
  const Tensor result = at::native::{kernel}({given});
  TORCH_CHECK(
      result.sym_sizes() == self.sym_sizes(),
      "{request.func.name.name}_(): expected a result of self's shape, ",
      self.sym_sizes(),
      ", but it has ",
      result.sym_sizes());
  return self.copy_(result);
"""
    return _function(request, request.inplace_func, body)


def _out(request: Request) -> str:
    outs = [argument.name for argument in request.out_func.arguments.out]
    given = ", ".join(
        binding.name for binding in _signature(request, request.out_func).arguments() if binding.name not in outs
    )
    options = request.func.arguments.tensor_options
    if options is not None:
        # The out= variant of a factory function has no options; they are those of out.
        given = ", ".join(
            f"{outs[0]}.{_OF_OUT[binding.name]}" if binding.name in _OF_OUT else binding.name
            for binding in _signature(request, request.func).arguments()
        )
    call = f"at::native::{kernel_name(request, request.func)}({given})"
    results = ["result"] if len(outs) == 1 else [f"result{index}" for index in range(len(outs))]
    first = (
        f"  const Tensor result = {call};\n" if len(outs) == 1 else f"  const auto [{', '.join(results)}] = {call};\n"
    )
    copies = "".join(
        f"  at::native::resize_output_symint({out}, {result}.sym_sizes());\n  {out}.copy_({result});\n"
        for out, result in zip(outs, results, strict=True)
    )
    returned = outs[0] if len(outs) == 1 else f"std::forward_as_tuple({', '.join(outs)})"
    todo = "  // TODO: this computes in new memory and copies; write it into the outputs where that is faster.\n"
    return _function(request, request.out_func, f"{todo}{first}{copies}  return {returned};\n")


_OF_OUT = {
    "dtype": "scalar_type()",
    "layout": "layout()",
    "device": "device()",
    "pin_memory": "is_pinned()",
}


def _check(request: Request, binding: Binding) -> str:
    """Return a check of one argument, as most kernels need."""
    argument, name, operator = binding.argument, binding.name, request.func.name.name
    kind = getattr(argument, "type", None)
    todo = "  // TODO: check the number of dimensions, the shapes and the dtypes of the inputs.\n"
    first = todo if name == _first_tensor(request) else ""
    if kind == TENSOR:
        return f"""\
{first}\
  TORCH_CHECK(
      isFloatingType({name}.scalar_type()) || isComplexType({name}.scalar_type()),
      "{operator}(): expected {name} to be floating-point or complex, but it is ",
      {name}.scalar_type());
"""
    if kind == OptionalType(TENSOR):
        return f"""\
{first}\
  if ({name}.has_value() && {name}->defined()) {{
    TORCH_CHECK(
        isFloatingType({name}->scalar_type()) || isComplexType({name}->scalar_type()),
        "{operator}(): expected {name} to be floating-point or complex, but it is ",
        {name}->scalar_type());
  }}
"""
    if str(kind).startswith("Tensor[") or str(kind).startswith("Tensor?["):
        return f"""\
  TORCH_CHECK(!{name}.empty(), "{operator}(): expected {name} to hold at least one tensor, but it is empty");
"""
    return ""


def _first_tensor(request: Request) -> str:
    return next((argument.name for argument in request.tensors if not argument.type.is_list_like()), "")


def _structured(request: Request, group: NativeFunctionsGroup) -> str:
    name = request.name
    meta = structured.meta_arguments(group)
    inputs = [argument.name for argument in request.tensors]
    output = "maybe_get_output()"
    meta_body = f"""\
  {_BUILDERS[len(inputs)]}({", ".join([output, *inputs])});
  // TODO: check for the dtypes that the kernel supports.
  TORCH_CHECK(
      isFloatingType(common_dtype()),
      "{request.func.name.name}(): expected {" and ".join(inputs)} to be floating-point, but the dtype is ",
      common_dtype());
"""
    impl = structured.impl_arguments(group)
    extra = "".join(f", {binding.name}" for binding in _others(group))
    impl_body = f"  {name}_stub(device_type(), *this{extra});\n"
    blocks = [
        _namespace("at::meta", [_definition(f"TORCH_META_FUNC({name})", meta, meta_body)]),
        _namespace(
            "at::native",
            [
                f"DEFINE_DISPATCH({name}_stub);\n",
                _definition(f"TORCH_IMPL_FUNC({kernel_name(request, request.out_func)})", impl, impl_body),
            ],
        ),
    ]
    includes = ["ATen/core/Tensor.h", "ATen/native/TensorIterator.h", f"ATen/native/{request.camel}.h"]
    return _file(request, includes, "\n".join(blocks))


def _header(request: Request, group: NativeFunctionsGroup) -> str:
    others = _others(group)
    types = ", ".join(["TensorIteratorBase&", *(_tidy(binding.nctype.type.cpp_type()) for binding in others)])
    names = set(re.findall(r"\w+", " ".join(binding.nctype.type.cpp_type() for binding in others)))
    is_plain = names <= {"double", "int64_t", "bool", "const", "at", "Scalar"}
    includes = "" if is_plain else "#include <ATen/core/TensorBase.h>\n"
    includes += "#include <ATen/native/DispatchStub.h>\n"
    # TensorBase.h only declares it.
    includes += "#include <c10/core/Scalar.h>\n" if "Scalar" in names else ""
    return f"""\
#pragma once

{includes}
namespace at {{
struct TensorIteratorBase;
}}

namespace at::native {{

using {request.name}_fn = void (*)({types});

DECLARE_DISPATCH({request.name}_fn, {request.name}_stub)

}} // namespace at::native
"""


def _cpu(request: Request, group: NativeFunctionsGroup) -> str:
    parameters = ["TensorIteratorBase& iter", *(_tidy(binding.defn()) for binding in _others(group))]
    element = ", ".join(f"scalar_t {argument.name}" for argument in request.tensors)
    first = request.tensors[0].name
    return f"""\
#define TORCH_ASSERT_NO_OPERATORS
#include <ATen/native/{request.camel}.h>

#include <ATen/Dispatch_v2.h>
#include <ATen/native/TensorIterator.h>
#include <ATen/native/cpu/Loops.h>

namespace at::native {{
namespace {{

{_head(f"void {request.name}_kernel", parameters)} {{
  // TODO: delete this check, and compute one element below.
{_todo(request, f"cpu/{request.camel}Kernel.cpp")}\
  AT_DISPATCH_V2(
      iter.common_dtype(),
      "{request.name}_cpu",
      AT_WRAP([&] {{ cpu_kernel(iter, [=]({element}) -> scalar_t {{ return {first}; }}); }}),
      AT_EXPAND(AT_FLOATING_TYPES),
      kHalf,
      kBFloat16);
}}

}} // namespace

ALSO_REGISTER_AVX512_DISPATCH({request.name}_stub, &{request.name}_kernel)

}} // namespace at::native
"""


def _others(group: NativeFunctionsGroup) -> list[Binding]:
    """Return the arguments that are not tensors, in the form that the meta function and the kernel receive."""
    return [binding for binding in structured.meta_arguments(group) if binding.argument.type != TENSOR]


def _signature(request: Request, func: FunctionSchema) -> NativeSignature:
    return NativeSignature(func, symint=takes_symint(request, func))


def _function(request: Request, func: FunctionSchema, body: str) -> str:
    signature = _signature(request, func)
    head = f"{_tidy(signature.returns_type().cpp_type())} {kernel_name(request, func)}"
    return _definition(head, signature.arguments(), body)


def _definition(head: str, arguments: Iterable[Binding], body: str) -> str:
    return f"{_head(head, [_tidy(binding.defn()) for binding in arguments])} {{\n{body}}}\n"


def _head(head: str, parameters: Sequence[str]) -> str:
    line = f"{head}({', '.join(parameters)})"
    if len(line) + len(" {") <= _WIDTH:
        return line
    result, _, name = head.rpartition(" ")
    alone = f"{name}({', '.join(parameters)})"
    if result and len(alone) + len(" {") <= _WIDTH:
        return f"{result}\n{alone}"
    return f"{head}(\n    " + ",\n    ".join(parameters) + ")"


def _tidy(text: str) -> str:
    """Format one of torchgen's declarations for use within ``namespace at::native``."""
    text = re.sub(r"(?<![\w:])(?:::)?at::", "", text)
    text = re.sub(r"(?<![\w:])::std::", "std::", text)
    return re.sub(r",(?=\S)", ", ", text.replace(" &", "&"))


def _todo(request: Request, file: str) -> str:
    name = request.func.name.name
    return f'  TORCH_CHECK_NOT_IMPLEMENTED(false, "{name}(): TODO: implement it in {file}");\n'


def _namespace(name: str, blocks: Iterable[str]) -> str:
    return f"namespace {name} {{\n\n" + "\n".join(blocks) + f"\n}} // namespace {name}\n"


def _file(request: Request, includes: Sequence[str], content: str) -> str:
    lines = "".join(f"#include <{name}>\n" for name in includes)
    return f"""\
#define TORCH_ASSERT_ONLY_METHOD_OPERATORS
{lines}
#ifndef AT_PER_OPERATOR_HEADERS
#include <ATen/NativeFunctions.h>
#else
#include <ATen/ops/{request.func.name.name}_native.h>
#endif

{content}"""
