"""What compilers, wheels and builds make of settings, before anything is compiled."""

from __future__ import annotations

import os
import re
from collections.abc import Iterator

from ..core.console import WARNING, say
from ..core.errors import UsageError
from ..core.extra_flags import host_flags
from ..core.keys import FILE
from ..core.process import UNTRANSLATED, run
from .settings import Settings
from .toolchain import Toolchain

_OF_THIS_PROCESSOR = re.compile(r"-m(arch|cpu|tune)=native")
# What not every x86-64 processor has; ARM's names begin otherwise.
_OF_SOME_PROCESSORS = re.compile(
    r"-m(arch|cpu)=(?!x86-64$).*"
    r"|-m(avx|amx|bmi|fma|f16c|sse[34]|ssse3|xop|sha|aes|vaes|pclmul|vpclmul|gfni|popcnt|lzcnt|movbe).*"
)
_UNKNOWN_FLAG = re.compile(r"option '([^'\n]+)'|(-[\w=.+-]+)")

# Variables that compilers read, and the settings to write instead.
_UNUSED = {
    "CPATH": "include-dirs",
    "CPLUS_INCLUDE_PATH": "include-dirs",
    "LIBRARY_PATH": "library-dirs",
    "CXXFLAGS": "cxx-flags",
    "LDFLAGS": "libraries",
    "NVCC_APPEND_FLAGS": "nvcc-flags",
    "NVCC_PREPEND_FLAGS": "nvcc-flags",
}


def tell_unused() -> None:
    """Say which variables of compilers are set and do not count: builds depend on nothing that is not written down."""
    for name, key in _UNUSED.items():
        if os.environ.get(name):
            say(f"{name} is not used; write `{key}` into [tool.graft] of {FILE}", WARNING)


def tell_processors(settings: Settings, *, is_for_edits: bool) -> None:
    """Say which flags need a processor that not every user has.

    Raises:
        UsageError: what ships would be compiled for the processor of this machine, whatever that is.
    """
    words = [("cxx-flags", word) for word in settings.flags.cflags]
    words += [("nvcc-flags", word) for word in settings.flags.cuda_cflags]
    for key, word in words:
        for flag in host_flags(word):
            if _OF_THIS_PROCESSOR.fullmatch(flag) and not is_for_edits:
                todo = "leave it out, or write what the sources need into cpu-flags"
                raise UsageError(settings.fault(key, f"{flag}: a wheel is for other processors, too", word), todo=todo)
            if _OF_SOME_PROCESSORS.fullmatch(flag):
                what = "what is built crashes on other processors; cpu-flags give an error there that names the feature"
                say(settings.fault(key, f"{flag}: {what}", word), WARNING)


def require_accepted(settings: Settings, toolchain: Toolchain) -> None:
    """Check that the compiler accepts the flags, and that PyTorch's headers accept the standard.

    Raises:
        UsageError: names the flag.
    """
    for fault, todo in _faults(settings, toolchain):
        raise UsageError(fault, todo=todo)


def _faults(settings: Settings, toolchain: Toolchain) -> Iterator[tuple[str, str]]:
    try:
        settings.flags.require_standard(toolchain.standard)
    except UsageError as error:
        key = "cxx-flags" if any("-std" in flag for flag in settings.flags.cflags) else "nvcc-flags"
        yield settings.fault(key, f"{error.what}: {error.cause}", error.what.split()[3]), error.todo
    features = {flag for flags in settings.cpu_flags.values() for flag in flags} if toolchain.has_features else ()
    for key, flags in (("cxx-flags", settings.flags.cflags), ("cpu-flags", sorted(features))):
        command = [toolchain.compiler, *flags, "-fsyntax-only", "-x", "c++", "/dev/null"]
        done = run(command, env=UNTRANSLATED, check=False) if flags else None
        if done and done.returncode != 0:
            found = _UNKNOWN_FLAG.search(done.stdout)
            first = next((line for line in done.stdout.splitlines() if "error" in line), done.stdout.strip())
            yield settings.fault(key, first, (found[1] or found[2]) if found else ""), "correct or leave out the flag"
    for flag in sorted(features):
        asks = f'int main() {{ return __builtin_cpu_supports("{flag.removeprefix("-m")}"); }}'
        if run([toolchain.compiler, "-fsyntax-only", "-x", "c++", "-"], stdin=asks, check=False).returncode != 0:
            what = f"{flag}: {toolchain.compiler} cannot tell whether a processor has this"
            yield settings.fault("cpu-flags", what, flag), "leave it out, or use a newer g++"
