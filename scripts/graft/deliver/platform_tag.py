"""Find the platform tag of a wheel with the new libraries."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping
from pathlib import Path

from auditwheel.architecture import Architecture
from auditwheel.libc import Libc
from auditwheel.policy import WheelPolicies

from ..base.elf import ElfFile
from ..core.console import say


def platform_tag(base_platforms: Collection[str], libraries: Iterable[Path]) -> str:
    """Return the base's platform tag, or a newer one if ``libraries`` need newer symbols.

    The policies are auditwheel's. A manylinux tag limits the versions of symbols from glibc and libstdc++ (PEP 600).
    """
    policies = WheelPolicies(libc=Libc.GLIBC, arch=Architecture.x86_64)
    needed = [ElfFile(library).needed_versions() for library in libraries]
    ours = policies.versioned_symbols_policy({str(i): set(versions) for i, versions in enumerate(needed) if versions})
    base = min((policy for policy in policies if policy.name in base_platforms), key=lambda policy: policy.priority)
    # Higher priorities are older platforms.
    if base.priority <= ours.priority:
        return str(base.name)
    newer = newer_symbols(needed, base.symbol_versions)
    say(f"      the wheel is for {ours.name}, since it needs newer symbols than {base.name} has: {newer}")
    return str(ours.name)


def newer_symbols(needed: Iterable[Mapping[str, set[str]]], known: Mapping[str, Iterable[str]]) -> str:
    """Return the symbols of libraries in ``known`` with versions that these lack: ``exp, log2 (GLIBC_2.29)``."""
    found: dict[str, set[str]] = {}
    for versions in needed:
        for version, symbols in versions.items():
            library, _, number = version.partition("_")
            if library in known and number not in known[library]:
                found.setdefault(version, set()).update(symbols)
    return "; ".join(f"{', '.join(sorted(symbols))} ({version})" for version, symbols in sorted(found.items()))
