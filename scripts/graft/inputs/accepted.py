"""Check settings before anything is compiled: flags that compilers refuse, or that need a certain processor."""

from __future__ import annotations

import os
import re
from collections.abc import Iterable, Iterator

from ..core.console import WARNING, say
from ..core.errors import UsageError
from ..core.extra_flags import OF_THIS_PROCESSOR, ExtraFlags, host_flags
from ..core.keys import FILE
from ..core.process import UNTRANSLATED, run
from .native import NativeFolder
from .settings import Extension, Settings, flag_in
from .toolchain import Toolchain

# Flags for what not every x86-64 processor has. ARM's names of features begin differently.
_OF_SOME_PROCESSORS = re.compile(
    r"-m(arch|cpu)=(?!x86-64$).*"
    r"|-m(avx|amx|bmi|fma|f16c|sse[34]|ssse3|xop|sha|aes|vaes|pclmul|vpclmul|gfni|popcnt|lzcnt|movbe).*"
)
# The remedy for -march=native in an extension.
NO_WHEEL = "for a wheel, write what its sources need instead, such as -mavx2; `make develop` takes it as it is"

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


def tell(folders: Iterable[NativeFolder], *, stays: bool) -> None:
    """Warn about settings of folders and environment variables that may not do what the user expects.

    Raises:
        UsageError: a wheel would be compiled for this machine's processor (``-march=native``).
    """
    _tell_unused()
    for folder in folders:
        tell_processors(folder.settings, stays=stays)
        for extension in folder.settings.extensions:
            tell_processors(extension.settings, stays=stays, is_extension=True)


def _tell_unused() -> None:
    """Warn about compilers' variables that are set: builds ignore them, and use only settings that are written down."""
    for name, key in _UNUSED.items():
        if os.environ.get(name):
            say(f"{name} is not used; write `{key}` into [tool.graft] of {FILE}", WARNING)


def tell_processors(settings: Settings, *, stays: bool, is_extension: bool = False) -> None:
    """Warn about flags for processors that not every user has. ``-march=native`` is allowed if the result ``stays``
    here.

    Raises:
        UsageError: a wheel would be compiled for this machine's processor (``-march=native``).
    """
    words = [("cxx-flags", word) for word in settings.flags.cflags]
    words += [("nvcc-flags", word) for word in settings.flags.cuda_cflags]
    for key, word in words:
        for flag in host_flags(word):
            if OF_THIS_PROCESSOR.fullmatch(flag) and not stays:
                todo = NO_WHEEL if is_extension else "leave it out, or write what the sources need into cpu-flags"
                raise UsageError(settings.fault(key, f"{flag}: a wheel is for other processors, too", word), todo=todo)
            if _OF_SOME_PROCESSORS.fullmatch(flag):
                what = "what is built crashes on other processors"
                what += "" if is_extension else "; cpu-flags give an error there that names the feature"
                say(settings.fault(key, f"{flag}: {what}", word), WARNING)


def require_accepted(settings: Settings, toolchain: Toolchain) -> None:
    """Check that the compiler accepts the flags, and that PyTorch's headers accept the standard.

    Raises:
        UsageError: names the first flag that is not accepted.
    """
    if fault := next(_faults(settings, toolchain), None):
        raise UsageError(fault, todo="correct the flag or leave it out, or use a newer g++")


def require_flags(extension: Extension, toolchain: Toolchain) -> None:
    """Check that the compiler accepts the flags of an extension. An older standard is raised to PyTorch's.

    Raises:
        UsageError: names the first flag that is not accepted.
    """
    words = extension.settings.flags.of_newer_standards(toolchain.standard)
    if words and (said := _refused(toolchain, *words, "/dev/null")):
        raise UsageError(_unknown(extension.settings, "cxx-flags", said), todo="correct the flag or leave it out")


def _unknown(settings: Settings, key: str, said: str) -> str:
    """Return the message for a flag that the compiler refused; ``said`` is the compiler's output."""
    found = _UNKNOWN_FLAG.search(said)
    first = next((line for line in said.splitlines() if "error" in line), said)
    return settings.fault(key, first, (found[1] or found[2]) if found else "")


def _faults(settings: Settings, toolchain: Toolchain) -> Iterator[str]:
    cxx, cuda = settings.flags.cflags, settings.flags.cuda_cflags
    for key, flags in (("cxx-flags", ExtraFlags(cxx)), ("nvcc-flags", ExtraFlags((), cuda))):
        try:
            flags.require_standard(toolchain.standard)
        except UsageError as error:
            yield settings.fault(key, f"{error.what}: {error.cause}", flag_in(error.what))
    features = {flag for words in settings.cpu_flags.values() for flag in words} if toolchain.has_features else ()
    for key, words in (("cxx-flags", cxx), ("cpu-flags", sorted(features))):
        if words and (said := _refused(toolchain, *words, "/dev/null")):
            yield _unknown(settings, key, said)
    for flag in sorted(features):
        asks = f'int main() {{ return __builtin_cpu_supports("{flag.removeprefix("-m")}"); }}'
        if _refused(toolchain, "-", stdin=asks):
            yield settings.fault("cpu-flags", f"{flag}: g++ cannot tell whether a processor has this", flag)


def _refused(toolchain: Toolchain, *words: str, stdin: str = "") -> str:
    """Return the compiler's errors for C++ with these arguments; empty if it accepts them."""
    done = run([toolchain.compiler, "-fsyntax-only", "-x", "c++", *words], env=UNTRANSLATED, stdin=stdin, check=False)
    return done.stdout.strip() if done.returncode != 0 else ""
