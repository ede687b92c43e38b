"""Edits during a build, another locale, two folders: what the next wheel contains.

The same two small folders are built several times; the tests below check the results.
"""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import pytest
from helpers import DERIVED, kernel, program, write
from place import Place, sha256

FUNCTIONS = "native_functions.yaml"

CHECKED = 'TORCH_CHECK(self.dim() == 0, "kernel: Größe eins"); return self.clone();'

# The text is valid only in UTF-8 locales.
FOLDERS = {
    "one": {
        FUNCTIONS: "# Größe eins\n- func: trap_probe(Tensor self) -> Tensor\n"
        "  dispatch:\n    CompositeExplicitAutograd: trap_probe\n",
        "TrapProbe.cpp": kernel("trap_probe", "const Tensor& self", CHECKED),
        "docs/trap_probe.rst": "Größe eins.\n",
        "autocast.yaml": "# Größe\nfp32: [trap_probe]\n",
        "python/trap_module.py": 'TEXT = "Größe eins"\n',
        "python/_C/_nn.pyi": "class TrapHint: ...  # Größe\n",
        "samples.py": "# Größe\ndef trap_probe(make):\n    yield (make(),)\n",
    },
    "two": {
        FUNCTIONS: "- func: trap_gate(Tensor self) -> Tensor\n  python_module: nn\n"
        "  dispatch:\n    CompositeExplicitAutograd: trap_gate\n",
        "TrapGate.cpp": kernel("trap_gate", "const Tensor& self", "return self.neg();"),
        "samples.py": "def trap_gate(make):\n    yield (make(3),)\n    yield (make(2, 2),)\n",
    },
}

# Files saved in folder `one` while it is built.
EDITED = {
    name: FOLDERS["one"][name].replace("eins", "zwei").replace("fp32", "lower_precision_fp")
    for name in ("TrapProbe.cpp", "docs/trap_probe.rst", "autocast.yaml", "python/trap_module.py")
}

# g++ that records what it compiles, and saves the files in `hook` when it first compiles.
COMPILER = """\
here={here}
case " $* " in
*" -c "*)
    mv $here/hook $here/taken 2>/dev/null && cp -R $here/taken/. {folder}
    previous=
    for argument; do
        [ "$previous" = -c ] && echo "${{argument##*/}}" >>$here/compiled
        previous=$argument
    done;;
esac
exec g++ "$@"
"""

PROBE = """
import json
import torch
from torch import trap_module
try:
    torch.trap_probe(torch.ones(1))
except RuntimeError as error:
    kernel = str(error).splitlines()[0]
with torch.autocast("cpu", dtype=torch.bfloat16):
    dtypes = [str(torch.trap_probe(torch.ones((), dtype=d)).dtype) for d in (torch.float, torch.bfloat16)]
doc = torch.trap_probe.__doc__.strip().splitlines()[-1]
print(json.dumps({"kernel": kernel, "doc": doc, "module": trap_module.TEXT, "dtypes": dtypes}))
"""
ORIGINAL = {
    "kernel": "kernel: Größe eins",
    "doc": "Größe eins.",
    "module": "Größe eins",
    "dtypes": ["torch.float32", "torch.float32"],
}
AS_EDITED = {
    "kernel": "kernel: Größe zwei",
    "doc": "Größe zwei.",
    "module": "Größe zwei",
    "dtypes": ["torch.bfloat16", "torch.bfloat16"],
}

BOTH = """
import json
import torch
probe, gate = torch.trap_probe(torch.tensor(2.0)), torch.nn.functional.trap_gate(torch.ones(2))
print(json.dumps({"probe": probe.item(), "gate": gate.tolist()}))
"""


@dataclass(frozen=True)
class Built:
    """The result of a build: its exit code, its messages, the compiled sources, the wheel and its hash."""

    code: int
    said: str
    compiled: frozenset[str]
    wheel: str
    sha256: str


class Watched(Place):
    """A place with the two folders, whose compiler records what it does."""

    def __init__(self, folder: Path, base: Path) -> None:
        self._compiler = folder / "compiler"
        shares = ("base", *DERIVED)
        super().__init__(folder, base, shares=shares, LC_ALL="C.UTF-8", CXX=str(self._compiler / "g++"))
        self.natives = [write(self.home / name, files) for name, files in FOLDERS.items()]
        program(self._compiler / "g++", COMPILER.format(here=self._compiler, folder=self.natives[0]))

    def made(self, saved_meanwhile: dict[str, str] | None = None) -> Built:
        """Build. Once something is compiled, save files in the first folder."""
        if saved_meanwhile:
            shutil.rmtree(self._compiler / "taken", ignore_errors=True)
            write(self._compiler / "hook.partial", saved_meanwhile)
            (self._compiler / "hook.partial").rename(self._compiler / "hook")
        log = self._compiler / "compiled"
        log.write_text("")
        outcome = self.build()
        assert not (self._compiler / "hook").exists(), outcome.said
        compiled = frozenset(log.read_text().split())
        return Built(outcome.code, outcome.said, compiled, self.wheel.name, sha256(self.wheel))

    def says(self, code: str) -> object:
        """Return the output of Python code with the wheel installed."""
        installed = self.install(self.home / "installed")
        env = {**os.environ, "PYTHONPATH": str(installed)}
        done = subprocess.run([sys.executable, "-c", code], cwd=installed, env=env, capture_output=True, check=True)
        return json.loads(done.stdout)


@dataclass
class Story:
    """The builds in order, and the output of programs with their wheels."""

    place: Watched
    builds: dict[str, Built]
    probes: dict[str, object]


@pytest.fixture(scope="module")
def story(base: Path, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Story]:
    folder = tmp_path_factory.mktemp("edits")
    place = Watched(folder, base)
    one, original = place.natives[0], FOLDERS["one"]
    builds: dict[str, Built] = {}
    probes: dict[str, object] = {}

    builds["edited meanwhile"] = place.made(saved_meanwhile=EDITED)
    probes["edited meanwhile"] = place.says(PROBE)

    write(one, original)
    builds["as it was"] = place.made()

    write(one, EDITED)
    builds["edited"] = place.made(saved_meanwhile={name: original[name] for name in EDITED})
    probes["edited"] = place.says(PROBE)

    # The library of generated code takes longest to compile, and depends on the policy.
    write(one, {"autocast.yaml": EDITED["autocast.yaml"]})
    builds["reverted meanwhile"] = place.made()
    probes["reverted meanwhile"] = place.says(PROBE)
    probes["operators"] = place.says(BOTH)

    place.wheel.unlink()
    (complete,) = place.repository.glob("build/*/*/work-*/generated/complete")
    complete.unlink()
    place.variables |= {"LC_ALL": "C", "PYTHONUTF8": "0", "PYTHONCOERCECLOCALE": "0"}
    builds["in another locale"] = place.made()
    yield Story(place, builds, probes)
    shutil.rmtree(folder)


def test_builds_succeed(story: Story) -> None:
    assert not [built.said for built in story.builds.values() if built.code != 0]


def test_what_is_saved_while_a_build_runs_changes_nothing_in_it(story: Story) -> None:
    assert story.probes["edited meanwhile"] == ORIGINAL
    assert story.probes["edited"] == AS_EDITED


def test_next_build_has_what_was_saved(story: Story) -> None:
    assert "nothing changed" not in story.builds["edited"].said
    assert "nothing changed" not in story.builds["reverted meanwhile"].said
    # All files but the policy were reverted during the build before.
    assert story.probes["reverted meanwhile"] == {**ORIGINAL, "dtypes": AS_EDITED["dtypes"]}


def test_reverted_edit_changes_nothing(story: Story) -> None:
    before, after = story.builds["edited meanwhile"], story.builds["as it was"]
    assert after.said.startswith("nothing changed: ")
    assert (after.wheel, after.sha256) == (before.wheel, before.sha256)


def test_only_what_an_edit_reaches_is_compiled(story: Story) -> None:
    builds = story.builds
    expected = {"TrapProbe.cpp", "TrapGate.cpp", "library.cpp", "bindings.cpp", "module.cpp", "trampolines.cpp"}
    assert expected <= builds["edited meanwhile"].compiled
    assert {"torch.lib.libtorch.cpp", "torch._C.cpp"} <= builds["edited meanwhile"].compiled, (
        "the tables of what is bound"
    )
    assert builds["edited"].compiled == {"TrapProbe.cpp", "library.cpp"}
    # What it was before the edit was compiled, and the revert does not affect the table of bound symbols.
    assert not builds["reverted meanwhile"].compiled


def test_locale_does_not_matter(story: Story) -> None:
    before, after = story.builds["reverted meanwhile"], story.builds["in another locale"]
    assert "\ngenerate: " in after.said
    assert (after.wheel, after.sha256) == (before.wheel, before.sha256)
    # The generated files are the same, so they are not compiled again.
    assert not after.compiled


def test_operators_of_both_folders_are_in_one_wheel(story: Story) -> None:
    assert story.probes["operators"] == {"probe": 2.0, "gate": [-1.0, -1.0]}


def test_stub_gains_the_folder_s_text_once(story: Story) -> None:
    """After several builds in the same work folder. The entry of trap_gate is inserted in the same file."""
    text = story.place.members()["torch/_C/_nn.pyi"].decode()
    assert text.count("class TrapHint: ...  # Größe\n") == 1
    assert text.count("def trap_gate(") == 1
