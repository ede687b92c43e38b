"""Check dispatch stubs: the kernels that are compiled once for each CPU capability.

See ATen/native/DispatchStub.h.
"""

from __future__ import annotations

from pathlib import Path

from .cplusplus import Source, StubMacro
from .finding import Findings

# Macros that register for the capability the file is compiled for, so they work only in such files.
_BY_CAPABILITY = frozenset(
    {
        "REGISTER_DISPATCH",
        "ALSO_REGISTER_AVX512_DISPATCH",
        "ALSO_REGISTER_SVE128_DISPATCH",
        "ALSO_REGISTER_SVE256_DISPATCH",
    }
)


def check_stubs(sources: list[Source], findings: Findings) -> None:
    """Check that each stub is declared, defined once, and registered for every capability."""
    macros = [macro for source in sources for macro in source.stub_macros]
    names = {source.path: source.name for source in sources}
    defined = {macro.stub: macro for macro in macros if macro.macro == "DEFINE_DISPATCH"}
    filled = {macro.stub for macro in macros if "REGISTER" in macro.macro}
    for macro in macros:
        place = (macro.file, macro.line, 0)
        if macro.macro == "DECLARE_DISPATCH" and macro.stub not in defined:
            what = f"the dispatch stub {macro.stub} is declared, but no file defines it"
            findings.add(place, what, f"write `DEFINE_DISPATCH({macro.stub});` in one .cpp file", is_warning=True)
        if macro.macro == "DEFINE_DISPATCH" and macro.stub not in filled:
            what = f"no file registers a kernel for the dispatch stub {macro.stub}"
            todo = f"write `ALSO_REGISTER_AVX512_DISPATCH({macro.stub}, &kernel)` in a file below cpu/"
            findings.add(place, what, todo, is_warning=True)
        if macro.macro in _BY_CAPABILITY:
            _check_registration(names[macro.file], macro, findings)


def _check_registration(name: Path, macro: StubMacro, findings: Findings) -> None:
    place = (macro.file, macro.line, 0)
    if macro.file.suffix == ".cpp" and name.parent not in (Path("cpu"), Path("quantized/cpu/kernels")):
        what = f"{macro.macro} works only in files that are compiled for each CPU capability"
        todo = f"move the kernel into cpu/{macro.file.name}, or write `REGISTER_ALL_CPU_DISPATCH`"
        findings.add(place, what, todo)
    elif macro.macro == "REGISTER_DISPATCH" and macro.file.suffix == ".cpp":
        what = f"with REGISTER_DISPATCH, {macro.stub} uses the AVX2 kernel on CPUs with AVX512"
        todo = f"write `ALSO_REGISTER_AVX512_DISPATCH({macro.stub}, ...)`, unless AVX512 is slower here"
        findings.add(place, what, todo, is_warning=True)
