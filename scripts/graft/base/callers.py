"""Find direct calls between functions of a library. The dispatcher's calls are not direct: they use pointers."""

from __future__ import annotations

import json
import re
from collections.abc import Collection, Iterable, Iterator, Mapping
from pathlib import Path
from tempfile import NamedTemporaryFile
from typing import Any

import numpy as np
import numpy.typing as npt

from ..core.elf import ElfFile
from ..core.files import write_atomically
from ..core.process import run
from ..inputs.entries import Entry, kernels_of
from .symbols import SymbolFile

# Generated functions that call kernels: wrappers for the dispatcher, and those of `at::cpu` and similar namespaces.
_BY_DISPATCHER = r"wrapper_|^_ZN2at(?:3cpu|25compositeexplicitautograd|25compositeimplicitautograd)\d"

# Elf64_Rela.
_RELOCATION = np.dtype([("offset", "<u8"), ("type", "<u4"), ("symbol", "<u4"), ("addend", "<i8")])

# The procedure linkage table has a header, and an entry of 16 bytes for each relocation.
_PLT_ENTRY = 16
_PLT_HEADERS = {"EM_X86_64": 16, "EM_AARCH64": 32}

# How many bytes of code are searched at once.
_CHUNK = 1 << 25

_Numbers = npt.NDArray[Any]


def kept_calls(path: Path, replaced: Iterable[tuple[Entry, Mapping[str, Any]]], note: Path) -> dict[str, list[str]]:
    """Return the functions that call PyTorch's own kernels of replaced operators without the dispatcher, by name of the
    called function: ``at::native::foo``, or ``at::cpu::foo``, which is generated.

    Args:
        path: the library of PyTorch's kernels.
        replaced: the replacing entries, each with the fields of PyTorch's entry.
        note: the file that caches the result, since the library is large.
    """
    names = sorted({name for ours, theirs in replaced for name in _called(ours, theirs)})
    key = [ElfFile(path).build_id, *names]
    kept = json.loads(note.read_text(encoding="utf-8")) if note.is_file() else []
    if kept[:1] != [key]:
        # Callers that are replaced themselves do not count.
        left_out = "|".join([_BY_DISPATCHER, *(f"^{name}" for name in names)])
        found: dict[str, set[str]] = {}
        for called, callers in direct_callers(path, names, left_out).items() if names else ():
            found.setdefault(_plain(called), set()).update(map(_plain, callers))
        kept = [key, {called: sorted(callers) for called, callers in found.items()}]
        write_atomically(note, json.dumps(kept).encode())
    calls: dict[str, list[str]] = kept[1]
    return calls


def python_overrides(tree: Path, replaced: Iterable[Entry]) -> list[str]:
    """Return the kernels of entries that ``torch._native`` may override in Python, each with the file that names both
    the operator and the key. Whether it does depends on the packages that are installed where torch is imported.
    """
    files = sorted((tree / "torch/_native/ops").rglob("*.py"))
    texts = {path.relative_to(tree).as_posix(): path.read_text(encoding="utf-8") for path in files}
    return [
        f"{entry.operator} ({key}) in {name}"
        for entry in replaced
        for key in entry.kernels
        for name, text in texts.items()
        if f'"{key}"' in text and re.search(rf'"{entry.operator.partition(".")[0]}_?(\.\w+)?"', text)
    ]


def _called(ours: Entry, theirs: Mapping[str, Any]) -> Iterator[str]:
    """Yield the beginnings of the mangled names of the functions that an entry replaces."""
    root, _, overload = ours.operator.partition(".")
    out = [f"{root}_out", f"{root}_outf"]
    own = out if overload.endswith("out") else [root]
    kernels = kernels_of(theirs)
    for key in ours.kernels or ["CompositeImplicitAutograd"]:
        kernel = kernels.get(key, own[0]).rpartition("::")[2]
        yield from (f"{_mangled('native', kernel)}E", f"{_mangled('native', f'structured_{kernel}')}4implE")
        for name in [root, f"{root}_", *out] if theirs.get("structured") else own:
            yield from (f"{_mangled(key.lower(), each)}E" for each in (name, f"{name}_symint"))


def _mangled(namespace: str, name: str) -> str:
    return f"_ZN2at{len(namespace)}{namespace}{len(name)}{name}"


def _plain(symbol: str) -> str:
    """Return the demangled name of a function; for a lambda, the name of the function that contains it."""
    (name,) = run(["c++filt", "--no-params"], stdin=symbol).stdout.splitlines()
    name = name.replace("(anonymous namespace)::", "")
    return max(re.findall(r"\w+(?:::\w+)+", name), key=len, default=name)


def demangled(symbols: Iterable[str]) -> dict[str, str]:
    """Return the demangled name of each symbol, with the parameters."""
    every = sorted(symbols)
    return dict(zip(every, run(["c++filt"], stdin="\n".join(every)).stdout.splitlines(), strict=True))


def direct_callers(path: Path, names: Collection[str], left_out: str = r"^$") -> dict[str, list[str]]:
    """Return the functions of a library that call others directly, by name of the called one.

    Args:
        path: the library.
        names: of called functions, as the beginnings of mangled names.
        left_out: a pattern of callers to leave out.
    """
    library = SymbolFile(path)
    symbols, strings = library.functions()
    called = re.compile(rb"\0((?:%s)[^\0.]*)(?=\0)" % b"|".join(re.escape(name.encode()) for name in sorted(names)))
    named = {match.start(1): match[1].decode() for match in called.finditer(strings)}
    targets = {int(each["value"]): named[int(each["name"])] for each in symbols[np.isin(symbols["name"], [*named])]}
    targets |= {place: name for name, place in _linkage(library, {*targets.values()})}
    order = np.argsort(symbols["value"])
    starts = symbols["value"][order]
    found: dict[str, set[str]] = {}
    for place, target in _calls(library, np.array(sorted(targets), dtype=np.int64)):
        caller = symbols[order[np.searchsorted(starts, place, side="right") - 1]]
        name = strings[caller["name"] : strings.index(b"\0", caller["name"])].decode()
        if not re.search(left_out, name) and _is_instruction(library, int(caller["value"]), place):
            found.setdefault(targets[target], set()).add(name)
    return {name: sorted(callers) for name, callers in found.items()}


def _is_instruction(library: SymbolFile, start: int, place: int) -> bool:
    """Return whether an instruction of the function at ``start`` begins at ``place``."""
    if library.machine != "EM_X86_64":
        return True
    section = library.section(".text")
    assert section is not None
    first, end = (section["sh_offset"] + address - section["sh_addr"] for address in (start, place + 5))
    with NamedTemporaryFile() as file:
        file.write(library.data[first:end])
        file.flush()
        words = ["objdump", "-D", "-b", "binary", "-m", "i386:x86-64", f"--adjust-vma={start}", file.name]
        return bool(re.search(rf"^ *{place:x}:", run(words).stdout, re.M))


def _linkage(library: SymbolFile, names: Collection[str]) -> Iterator[tuple[str, int]]:
    """Yield the entries of the procedure linkage table for ``names``, each with its address."""
    section, table = library.section(".rela.plt"), library.section(".plt.sec") or library.section(".plt")
    if section is None or table is None:
        return
    count = section["sh_size"] // _RELOCATION.itemsize
    numbers = np.frombuffer(library.data, _RELOCATION, count=count, offset=section["sh_offset"])["symbol"]
    header = 0 if table.name == ".plt.sec" else _PLT_HEADERS[library.machine]
    for place, name in enumerate(library.dynamic_names(numbers)):
        if name in names:
            yield name, table["sh_addr"] + header + place * _PLT_ENTRY


def _calls(library: SymbolFile, targets: _Numbers) -> Iterator[tuple[int, int]]:
    """Yield the calls, and jumps, to addresses: the place of each, and its target."""
    section = library.section(".text")
    assert section is not None
    find = {"EM_X86_64": _of_x86, "EM_AARCH64": _of_arm}[library.machine]
    for start in range(0, section["sh_size"], _CHUNK):
        # Chunks overlap by 4 bytes: the distance behind an opcode at the end of a chunk.
        size = min(_CHUNK + 4, section["sh_size"] - start)
        code = np.frombuffer(library.data, np.uint8, count=size, offset=section["sh_offset"] + start)
        places, reached = find(code, section["sh_addr"] + start)
        is_meant = np.isin(reached, targets)
        yield from zip(places[is_meant].tolist(), reached[is_meant].tolist(), strict=True)


def _of_x86(code: _Numbers, address: int) -> tuple[_Numbers, _Numbers]:
    """Return the places of ``call`` and ``jmp`` with a distance of 32 bits, and their targets."""
    starts = np.flatnonzero((code[:-4] & 0xFE) == 0xE8)
    distances = np.zeros(len(starts), np.int64)
    for byte in range(4):
        distances |= code[starts + 1 + byte].astype(np.int64) << (8 * byte)
    return address + starts, address + starts + 5 + ((distances ^ 1 << 31) - (1 << 31))


def _of_arm(code: _Numbers, address: int) -> tuple[_Numbers, _Numbers]:
    """Return the places of ``bl`` and ``b``, and their targets."""
    words = code[: len(code) // 4 * 4].view("<u4").astype(np.int64)
    numbers = np.flatnonzero((words >> 26 & 0x1F) == 0x05)
    distances = ((words[numbers] & (1 << 26) - 1) ^ 1 << 25) - (1 << 25)
    return address + 4 * numbers, address + 4 * numbers + 4 * distances
