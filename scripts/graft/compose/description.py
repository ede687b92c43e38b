"""The generator's description of the added operators, for the writers of Python files."""

from __future__ import annotations

import json
from dataclasses import dataclass
from pathlib import Path

from ..codegen.places import PLACES, Place


@dataclass(frozen=True)
class Bound:
    """A name that added operators are bound to, and that the base does not have.

    Args:
        place: the class or module of ``torch._C``.
        name: its name there.
        public: the public name: ``torch.fft.x`` if ``name`` is ``fft_x``.
        signatures: the first lines of its docstring.
        reference: the rest of the docstring if it refers to another name; else empty.
        derived: a description derived from the schema, for operators without a docstring in the native folder.
    """

    place: Place
    name: str
    public: str
    signatures: str
    reference: str
    derived: str

    @property
    def short(self) -> str:
        """The last part of the public name."""
        return self.public.rpartition(".")[2]


@dataclass(frozen=True)
class Description:
    """The added operators.

    Args:
        bound: the names that the base does not have.
        hints: definitions for stub files, by place and name.
        return_types: definitions of named tuples for ``return_types.pyi``, by name.
        annotated: lines for ``annotated_fn_args.py``, from which PyTorch's test_overrides.py takes arguments.
    """

    bound: list[Bound]
    hints: dict[str, dict[str, list[str]]]
    return_types: dict[str, list[str]]
    annotated: list[str]


def load_description(path: Path) -> Description:
    """Read the file that the generator wrote."""
    places = {place.name: place for place in PLACES}
    fields = json.loads(path.read_text(encoding="utf-8"))
    bound = [Bound(places[each.pop("place")], **each) for each in fields.pop("bound")]
    return Description(bound=bound, **fields)


def describe_additions(base: str, description: Description) -> str:
    """Return the notice that is added to PyTorch's licenses: what was added to the version ``base``, and from where."""
    names = sorted({bound.public for bound in description.bound})
    return (
        f"This is PyTorch {base}, under the license in LICENSE, with operators that Graft added.\n"
        "The added operators are under the license of their authors:\n" + "".join(f"    {name}\n" for name in names)
    )
