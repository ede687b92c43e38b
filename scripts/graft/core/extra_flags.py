"""Compiler flags that users add for the sources of their folder. Those that would break the library are refused."""

from __future__ import annotations

import hashlib
import json
import re
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

from .errors import UsageError

_LEAVE_OUT = "leave it out"
_OF_BUILD = "the build passes what the compiler does, reads and writes"
_OF_LIBRARIES = "PyTorch's libraries were compiled without it, and would pass other objects than such a source expects"
_OF_LINK = "objects with it need the same flag at the link, and compiler flags never reach the link"

# The refused flags: a pattern of the whole flag, the reason, and the remedy. The flags that a source may have are too
# many to list.
_REFUSED = tuple(
    (re.compile(pattern), why, todo)
    for pattern, why, todo in (
        (r"-[DU]_GLIBCXX_USE_CXX11_ABI\b.*", "it decides what std::string is; it is set as for PyTorch", _LEAVE_OUT),
        (r"-D_GLIBCXX_DEBUG\b.*|-D_GLIBCXX_DEBUG_PEDANTIC\b.*", _OF_LIBRARIES, "write -D_GLIBCXX_ASSERTIONS"),
        # With it, at::RecordFunction has an additional member.
        (r"-UNDEBUG", _OF_LIBRARIES, "write `#undef NDEBUG` and `#include <cassert>` below the source's includes"),
        (
            r"-fabi-version=.*|-fpack-struct.*|-fshort-(enums|wchar)|-f(pcc|reg)-struct-return"
            r"|-m(16|32|x32|abi=.*|align-double|float-abi=.*|general-regs-only|long-double-.*|ms-bitfields|no-sse2?"
            r"|soft-float)",
            _OF_LIBRARIES,
            _LEAVE_OUT,
        ),
        (r"-fno-(exceptions|rtti)", "PyTorch's headers throw exceptions and ask for types", _LEAVE_OUT),
        (
            r"-f(no-)?visibility\b.*",
            "a library with the operators exports nothing but what PyTorch needs",
            "write __attribute__((visibility(...))) at a declaration",
        ),
        (r"-fsanitize.*", _OF_LINK, "leave it out; `make test-sanitize` builds with sanitizers"),
        (
            r"-[lL](?!ineinfo).*|-Wl,.*|-Xlinker.*|-shared|-static.*|-rdynamic|--coverage|-fprofile-.*|-pg|-flto.*"
            r"|-ffat-lto-objects|-dc|-(rdc|-relocatable-device-code)=.*",
            _OF_LINK,
            _LEAVE_OUT,
        ),
        (r"-f(no-)?(pie|PIE)|-fno-(pic|PIC)", "a library needs position-independent code", _LEAVE_OUT),
        (
            r"@.*|-[cES]|-o.*|-x.*|-M.*|-###|-v|--help.*|--version|-fsyntax-only|-save-temps.*|--keep.*"
            r"|-(ptx|cubin|fatbin|dlink|run|dryrun)",
            _OF_BUILD,
            _LEAVE_OUT,
        ),
        (
            r"-B.*|-specs=.*|-fplugin.*|-wrapper.*|-nostdinc.*|-isysroot.*|--sysroot.*|-(ccbin|-compiler-bindir).*",
            "it is a part of the compiler, whose version decides about objects",
            "set CXX to a script that calls the compiler with it",
        ),
        (
            r"-i(quote|dirafter|prefix|withprefix).*",
            "the build chooses the order",
            "pass the folder as an include path",
        ),
    )
)

# Flags whose value may be the next word, and the text that joins the two.
_VALUED = {
    **dict.fromkeys(("-D", "-U", "-I", "-isystem", "-iquote", "-idirafter", "-o", "-x", "-l", "-L", "-B"), ""),
    **dict.fromkeys(("-std", "--std", "--param", "-Xcompiler", "--compiler-options", "-Xptxas", "-Xcudafe"), "="),
}
_INCLUDE = "-include"
_FOLDER = re.compile(r"-(?:I|isystem)(.+)", re.S)
_STANDARD = re.compile(r"--?std=(?:c|gnu)\+\+(\w\w)")
# The years of C++98 and C++03, and of later standards by their working names.
_YEARS = {"98": 1998, "03": 2003, "0x": 2011, "1y": 2014, "1z": 2017, "2a": 2020, "2b": 2023, "2c": 2026}
_OF_HOST = re.compile(r"-(?:Xcompiler=|-compiler-options=|Wp,)(.*)", re.S)
OF_THIS_PROCESSOR = re.compile(r"-m(?:arch|cpu|tune)=native")
_SOURCE = re.compile(r".*\.(c|cc|cpp|cxx|cu|o|a|so)")


@dataclass(frozen=True)
class ExtraFlags:
    """Flags for the sources of native folders, not for generated code or the link. ``extra_flags`` creates them.

    Args:
        cflags: for the C++ compiler.
        cuda_cflags: for nvcc.
        include_paths: folders of headers, which are searched after PyTorch's and before the system's.
    """

    cflags: tuple[str, ...] = ()
    cuda_cflags: tuple[str, ...] = ()
    include_paths: tuple[Path, ...] = ()

    @property
    def settings(self) -> tuple[str, ...]:
        """The flags as JSON, for the stamp and ``from_settings``; empty if there are none."""
        given = [self.cflags, self.cuda_cflags, [*map(str, self.include_paths)]]
        return (json.dumps(given),) if any(given) else ()

    @classmethod
    def from_settings(cls, settings: Sequence[str]) -> ExtraFlags:
        """Parse the flags in ``settings``."""
        if not settings:
            return NO_EXTRA
        cflags, cuda_cflags, include_paths = json.loads(settings[0])
        return cls(tuple(cflags), tuple(cuda_cflags), tuple(map(Path, include_paths)))

    def require_standard(self, standard: str) -> None:
        """Check that no flag chooses an older C++ than ``standard``, which PyTorch's headers need."""
        for word in (*self.cflags, *self.cuda_cflags):
            if _is_older(word, standard):
                raise _refusal(word, f"this PyTorch's headers need {standard.replace('c', 'C', 1)}", _LEAVE_OUT)

    def of_newer_standards(self, standard: str, *, is_cuda: bool = False) -> tuple[str, ...]:
        """Return the flags of a compiler without flags that choose an older C++ than ``standard``."""
        words = self.cuda_cflags if is_cuda else self.cflags
        return tuple(word for word in words if not _is_older(word, standard))


NO_EXTRA = ExtraFlags()


def extra_flags(
    cflags: Iterable[str] | None = None,
    cuda_cflags: Iterable[str] | None = None,
    include_paths: Iterable[str | Path] | None = None,
) -> ExtraFlags:
    """Validate a user's flags, given as words of a command line. ``-I`` and ``-isystem`` add include paths.

    Raises:
        UsageError: names a flag that cannot be used, or a folder that does not exist.
    """
    words, cuda_words = _words(cflags, "flags of the C++ compiler"), _words(cuda_cflags, "flags of nvcc")
    folders = [hit[1] for word in (*words, *cuda_words) if (hit := _FOLDER.fullmatch(word))]
    folders += _listed(include_paths, "include paths", (str, Path))
    return ExtraFlags(
        tuple(_checked(words)), tuple(_checked(cuda_words, is_cuda=True)), tuple(dict.fromkeys(map(_folder, folders)))
    )


def _listed(given: Iterable[str | Path] | None, what: str, types: tuple[type, ...] = (str,)) -> list[str]:
    """Return the non-empty elements of a list as strings."""
    if isinstance(given, str | Path):
        raise UsageError(f"{what}: {str(given)!r} is not a list", todo=f"write [{str(given)!r}]")
    try:
        elements = [*(given or ())]
    except TypeError:
        raise UsageError(f"{what}: {given!r} is not a list", todo="pass a list of texts") from None
    for each in elements:
        if not isinstance(each, types) or re.search(r"[\n\0]", str(each)):
            raise UsageError(f"{what}: {each!r} is not text in one line", todo="pass a list of texts")
    return [str(each) for each in elements if str(each)]


def _words(given: Iterable[str] | None, what: str) -> list[str]:
    """Join two-word flags (``-I dir`` becomes ``-Idir``), except ``-include``."""
    words: list[str] = []
    left = iter(_listed(given, what))
    for word in left:
        if word in _VALUED or word == _INCLUDE:
            value = next(left, "")
            if not value:
                raise UsageError(f"the compiler flag {word} has no value", todo="write the value behind it")
            words += [word, _placed(value)] if word == _INCLUDE else [f"{word}{_VALUED[word]}{value}"]
        else:
            words.append(word)
    return words


def _placed(name: str) -> str:
    """Return a name as an absolute path if it is a file: compilers run in another folder."""
    path = Path(name).expanduser()
    return str(path.absolute()) if path.is_file() else name


def _folder(text: str) -> Path:
    path = Path(text).expanduser().absolute()
    if not path.is_dir():
        raise UsageError(f"include path {text}: no such folder", todo="correct it, or leave it out")
    return path


def _checked(words: Sequence[str], *, is_cuda: bool = False) -> Iterator[str]:
    """Validate flags and yield all but include folders. For ``-march=native``, add a macro that names the processor."""
    before = ""
    for word in words:
        is_value = before == _INCLUDE or (is_cuda and before.startswith("-") and not _SOURCE.fullmatch(word))
        if word.startswith(("-", "@")):
            for flag in host_flags(word):
                _require_usable(flag)
        elif not is_value:
            raise UsageError(f"{word}: it is not a compiler flag", todo="flags begin with `-`; pass sources as such")
        if not _FOLDER.fullmatch(word):
            yield word
        before = word
    if any(OF_THIS_PROCESSOR.fullmatch(flag) for word in words for flag in host_flags(word)):
        # Machines may share a build folder, and must not use objects for another processor.
        yield f"-DGRAFT_PROCESSOR={_processor()}"


def host_flags(word: str) -> list[str]:
    """Return the flags in a word: ``-Xcompiler=`` of nvcc and ``-Wp,`` of g++ pass on several."""
    passed = _OF_HOST.fullmatch(word)
    return re.split(r"[,\s]+", passed[1].strip("\"'")) if passed else [word]


def _require_usable(flag: str) -> None:
    for pattern, why, todo in _REFUSED:
        if pattern.fullmatch(flag):
            raise _refusal(flag, why, todo)
    if re.match("--?std=", flag) and not _STANDARD.fullmatch(flag):
        raise _refusal(flag, "it is no standard of C++", "write, for example, -std=c++20")


def _refusal(flag: str, why: str, todo: str) -> UsageError:
    return UsageError(f"the compiler flag {flag} cannot be used", cause=why, todo=todo)


def _is_older(word: str, standard: str) -> bool:
    """Return whether a flag chooses an older C++ than ``standard``."""
    chosen = _STANDARD.fullmatch(word)
    return chosen is not None and _year(chosen[1]) < _year(standard[-2:])


def _year(name: str) -> int:
    return _YEARS.get(name) or 2000 + int(re.sub(r"\D", "", name) or 0)


def _processor() -> str:
    """Return a hash of the name and features of this machine's processor."""
    try:
        lines = Path("/proc/cpuinfo").read_text(encoding="utf-8", errors="replace").splitlines()
    except OSError:
        lines = []
    about = [line for line in dict.fromkeys(lines) if re.match(r"(model name|flags|Features|CPU \w+)\s*:", line)]
    return hashlib.sha256("\n".join(about).encode()).hexdigest()[:12]
