"""What is found in a base, and the differences between two."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterable, Mapping
from dataclasses import dataclass

from ..base.base import Base
from ..core.errors import UnusableBaseError
from ..inputs.pin import Pin


@dataclass(frozen=True)
class Findings:
    """The properties of a base for the report.

    Args:
        version: the version of its wheel.
        commit: the commit that it was built from.
        cuda: the version of CUDA; empty for CPU.
        architectures: the GPU architectures.
        standard: the C++ standard.
        needed: the libraries in ``torch/lib``, and what each loads.
        pythons: the Pythons that it has wheels for.
    """

    version: str
    commit: str
    cuda: str
    architectures: tuple[str, ...]
    standard: str
    needed: Mapping[str, tuple[str, ...]]
    pythons: tuple[str, ...]

    @property
    def devices(self) -> str:
        """The platform."""
        return f"CPU, CUDA {self.cuda} for {' '.join(self.architectures)}" if self.cuda else "CPU"


def look_at(base: Base, pin: Pin) -> Findings:
    """Return the properties of a pin's base."""
    names = sorted(path.name for path in base.libraries.glob("*.so*"))
    return Findings(
        version=pin.wheel_version,
        commit=base.commit,
        cuda=base.cuda,
        architectures=base.architectures,
        standard=standard_of(base),
        needed={name: base.library(f"lib/{name}").needed for name in names},
        pythons=pythons_of(pin.sha256),
    )


def standard_of(base: Base) -> str:
    """Return the C++ standard that PyTorch compiles extensions with, for example ``c++20``.

    Raises:
        UnusableBaseError: it is not stated.
    """
    text = (base.tree / "torch/utils/cpp_extension.py").read_text(encoding="utf-8")
    # The examples there mention other standards, too.
    found = Counter(re.findall(r"-std=(c\+\+\d+)", text))
    if not found:
        raise UnusableBaseError(f"{base.wheel.name} cannot be used as a base: it does not say its C++ standard")
    return str(max(found, key=found.__getitem__))


def pythons_of(tags: Iterable[str]) -> tuple[str, ...]:
    """Return the Pythons of compatibility tags: ``3.11`` for ``cp311-cp311-manylinux_2_28_x86_64``."""
    return tuple(re.sub(r"cp3(\d+)-.*", r"3.\1", tag) for tag in tags)


def differences(old: Findings, new: Findings) -> dict[str, str]:
    """Return what differs in ``new`` from ``old``, by subject."""
    both = [name for name in new.needed if name in old.needed]
    found = {
        "CUDA": _changed(old.cuda or "none", new.cuda or "none"),
        "architectures": _gained(old.architectures, new.architectures),
        "C++": _changed(old.standard, new.standard),
        "Pythons": _gained(old.pythons, new.pythons),
        "libraries": _gained(old.needed, new.needed),
        **{f"{name} needs": _gained(old.needed[name], new.needed[name]) for name in both},
    }
    return {about: text for about, text in found.items() if text}


def _changed(old: str, new: str) -> str:
    return f"{new}, was {old}" if old != new else ""


def _gained(old: Iterable[str], new: Iterable[str]) -> str:
    """``+added -removed``."""
    before, after = list(old), list(new)
    signs = [f"+{name}" for name in after if name not in before] + [f"-{name}" for name in before if name not in after]
    return " ".join(signs)
