"""What a build must not be caught by: inputs that change while it runs, another compiler, another locale, two at once.

One build after another is made of the same two small folders; the tests below look at what came of each.
"""

from __future__ import annotations

import hashlib
import json
import os
import shutil
import subprocess
import sys
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from zipfile import ZipFile

import pytest
from helpers import of_the_base_wheel

from scripts.common.errors import CompileError, OperatorError
from scripts.common.layout import REPOSITORY, Layout
from scripts.compose.description import Description
from scripts.compose.wheel_files import Composition
from scripts.inputs import snapshot
from scripts.inputs.snapshot import take_snapshot

FUNCTIONS = "native_functions.yaml"

# With text that no locale but one of UTF-8 can read.
FOLDERS = {
    "one": {
        FUNCTIONS: "# Größe eins\n- func: trap_probe(Tensor self) -> Tensor\n"
        "  dispatch:\n    CompositeExplicitAutograd: trap_probe\n",
        "TrapProbe.cpp": """\
// Größe
#define TORCH_ASSERT_ONLY_METHOD_OPERATORS
#include <ATen/core/Tensor.h>
#include <ATen/ops/trap_probe_native.h>

namespace at::native {

Tensor trap_probe(const Tensor& self) {
  TORCH_CHECK(self.dim() == 0, "kernel: Größe eins");
  return self.clone();
}

} // namespace at::native
""",
        "docs/trap_probe.rst": "Größe eins.\n",
        "autocast.yaml": "# Größe\nfp32: [trap_probe]\n",
        "python/trap_module.py": 'TEXT = "Größe eins"\n',
        "python/_C/_nn.pyi": "class TrapHint: ...  # Größe\n",
        "samples.py": "# Größe\ndef trap_probe(make):\n    yield (make(),)\n",
    },
    "two": {
        FUNCTIONS: "- func: trap_gate(Tensor self) -> Tensor\n  python_module: nn\n"
        "  dispatch:\n    CompositeExplicitAutograd: trap_gate\n",
        "TrapGate.cpp": """\
#define TORCH_ASSERT_ONLY_METHOD_OPERATORS
#include <ATen/core/Tensor.h>
#include <ATen/ops/trap_gate_native.h>

namespace at::native {

Tensor trap_gate(const Tensor& self) {
  return self.neg();
}

} // namespace at::native
""",
        "samples.py": "def trap_gate(make):\n    yield (make(3),)\n    yield (make(2, 2),)\n",
    },
}

# What is saved in folder `one` while it is built.
EDITED = {
    name: FOLDERS["one"][name].replace("eins", "zwei").replace("fp32", "lower_precision_fp")
    for name in ("TrapProbe.cpp", "docs/trap_probe.rst", "autocast.yaml", "python/trap_module.py")
}

# g++ that notes what it compiles, calls itself what the file `version` says, and saves what lies in `hook` when it
# compiles for the first time.
COMPILER = """\
#!/bin/sh
here={here}
case " $* " in
*" --version "*) g++ --version | sed "1s/$/ $(cat $here/version)/"; exit;;
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

OP_DB = """
import json
import torch
from torch.testing._internal.common_methods_invocations import op_db
found = {op.name: op for op in op_db if "trap_" in op.name}
counts = {name: len(list(op.sample_inputs("cpu", torch.float32))) for name, op in found.items()}
x = torch.ones(2)
print(json.dumps({**counts, "gate": torch.nn.functional.trap_gate(x).tolist()}))
"""


@dataclass(frozen=True)
class Outcome:
    """What came of a build.

    Args:
        code: its exit code.
        said: what it printed.
        compiled: the names of the sources that it compiled.
        wheel: the name of the wheel that lies there afterwards; empty if there is none.
        sha256: of that wheel.
    """

    code: int
    said: str
    compiled: frozenset[str]
    wheel: str
    sha256: str


class Place:
    """A copy of the builder, which shares the base that is laid out, and the two folders."""

    def __init__(self, folder: Path, base: Path, stock: Path) -> None:
        self.folder = folder
        for part in ("patches", "scripts"):
            shutil.copytree(REPOSITORY / part, folder / part, ignore=shutil.ignore_patterns("__pycache__"))
        made = folder / "build" / base.parents[1].name / base.parent.name
        made.mkdir(parents=True)
        (made / "base").symlink_to(base)
        self._wheel_of_base = next(base.glob("*.whl"))
        self._stock = stock
        self.natives = [folder / name for name in FOLDERS]
        for name, files in FOLDERS.items():
            write(folder / name, files)
        self._compiler = folder / "compiler"
        write(self._compiler, {"g++": COMPILER.format(here=self._compiler, folder=folder / "one"), "version": "first"})
        (self._compiler / "g++").chmod(0o755)

    def command(self) -> list[str | Path]:
        options: list[str | Path] = [
            "--native",
            " ".join(map(str, self.natives)),
            "--out",
            self.folder / "dist",
            "--jobs",
            "2",
        ]
        return [sys.executable, "-m", "scripts", "build", *options, "--wheel", self._wheel_of_base]

    def start(self, **variables: str) -> subprocess.Popen[str]:
        env = {name: value for name, value in os.environ.items() if not name.startswith(("LC_", "LANG", "PYTHON"))}
        env |= {"CXX": str(self._compiler / "g++"), "LAUNCHER": "none", "LC_ALL": "C.UTF-8", **variables}
        pipe = subprocess.PIPE
        return subprocess.Popen(
            self.command(), cwd=self.folder, env=env, stdin=subprocess.DEVNULL, stdout=pipe, stderr=subprocess.STDOUT,
            encoding="utf-8", errors="backslashreplace",
        )  # fmt: skip

    def build(self, *, saved_meanwhile: dict[str, str] | None = None, **variables: str) -> Outcome:
        if saved_meanwhile:
            shutil.rmtree(self._compiler / "taken", ignore_errors=True)
            write(self._compiler / "hook.partial", saved_meanwhile)
            (self._compiler / "hook.partial").rename(self._compiler / "hook")
        (self._compiler / "compiled").unlink(missing_ok=True)
        with self.start(**variables) as process:
            said, _ = process.communicate(timeout=600)
        assert not (self._compiler / "hook").exists(), "nothing was compiled"
        return self.outcome(process.returncode, said)

    def outcome(self, code: int, said: str) -> Outcome:
        log = self._compiler / "compiled"
        compiled = frozenset(log.read_text().split()) if log.is_file() else frozenset()
        wheels = list((self.folder / "dist").glob("*.whl"))
        names = " ".join(wheel.name for wheel in wheels)
        sha256 = " ".join(hashlib.sha256(wheel.read_bytes()).hexdigest() for wheel in wheels)
        return Outcome(code, said, compiled, names, sha256)

    def use_compiler(self, version: str) -> None:
        (self._compiler / "version").write_text(version)

    @property
    def work(self) -> Path:
        (work,) = (self.folder / "build").glob("*/*/work-*")
        return work

    def members(self) -> dict[str, bytes]:
        """What the wheel has that the base has not, or has otherwise."""
        (wheel,) = (self.folder / "dist").glob("*.whl")
        with ZipFile(self._wheel_of_base) as base, ZipFile(wheel) as ours:
            theirs = {info.filename: info.CRC for info in base.infolist()}
            changed = (info for info in ours.infolist() if theirs.get(info.filename) != info.CRC)
            return {info.filename: ours.read(info) for info in changed}

    def run(self, program: str) -> object:
        """Run a program on the wheel, as it would be installed; return what it prints."""
        installed = self.folder / "installed"
        shutil.rmtree(installed, ignore_errors=True)
        subprocess.run(["cp", "-rs", self._stock, installed], check=True)
        for name, content in self.members().items():
            (installed / name).parent.mkdir(parents=True, exist_ok=True)
            (installed / name).unlink(missing_ok=True)
            (installed / name).write_bytes(content)
        env = {**os.environ, "PYTHONPATH": str(installed)}
        done = subprocess.run([sys.executable, "-c", program], cwd=installed, env=env, capture_output=True, check=True)
        return json.loads(done.stdout)


def write(folder: Path, files: dict[str, str]) -> Path:
    for name, text in files.items():
        (folder / name).parent.mkdir(parents=True, exist_ok=True)
        (folder / name).write_text(text, encoding="utf-8")
    return folder


@dataclass
class Story:
    """The builds, in their order, and what programs said on their wheels."""

    place: Place
    outcomes: dict[str, Outcome]
    probes: dict[str, object]


@pytest.fixture(scope="module")
def story(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Story]:
    base, stock = of_the_base_wheel("GRAFT_BASE"), of_the_base_wheel("GRAFT_STOCK")
    place = Place(tmp_path_factory.mktemp("traps"), base, stock)
    one, original = place.folder / "one", FOLDERS["one"]
    builds: dict[str, Outcome] = {}
    probes: dict[str, object] = {}

    builds["edited meanwhile"] = place.build(saved_meanwhile=EDITED)
    probes["edited meanwhile"] = place.run(PROBE)

    write(one, original)
    builds["as it was"] = place.build()

    write(one, EDITED)
    place.use_compiler("second")
    builds["edited"] = place.build(saved_meanwhile={name: original[name] for name in EDITED})
    probes["edited"] = place.run(PROBE)

    # The library of generated code takes longest to compile, and depends on the policy.
    write(one, {"autocast.yaml": EDITED["autocast.yaml"]})
    builds["reverted meanwhile"] = place.build()
    probes["reverted meanwhile"] = place.run(PROBE)

    write(one, {"TrapProbe.cpp": original["TrapProbe.cpp"].replace("self.clone()", "self.clone()\n      .nothing()")})
    builds["broken"] = place.build()
    write(one, {"TrapProbe.cpp": original["TrapProbe.cpp"]})
    builds["no longer broken"] = place.build()

    (place.folder / "dist" / builds["no longer broken"].wheel).unlink()
    (place.work / "generated/complete").unlink()
    builds["in another locale"] = place.build(LC_ALL="C", PYTHONUTF8="0", PYTHONCOERCECLOCALE="0")

    write(one, {"TrapProbe.cpp": EDITED["TrapProbe.cpp"]})
    both = [place.start() for _ in range(2)]
    said = [process.communicate(timeout=600)[0] for process in both]
    for number, process in enumerate(both):
        builds[f"at once {number}"] = place.outcome(process.returncode, said[number])
    probes["operators"] = place.run(OP_DB)
    yield Story(place, builds, probes)
    shutil.rmtree(place.folder)


def test_builds_succeed(story: Story) -> None:
    failed = {name: outcome.said for name, outcome in story.outcomes.items() if outcome.code != 0}
    assert set(failed) == {"broken"}, failed


def test_what_is_saved_while_a_build_runs_changes_nothing_in_it(story: Story) -> None:
    assert story.probes["edited meanwhile"] == ORIGINAL
    assert story.probes["edited"] == AS_EDITED


def test_next_build_has_what_was_saved(story: Story) -> None:
    assert "nothing changed" not in story.outcomes["edited"].said
    assert "nothing changed" not in story.outcomes["reverted meanwhile"].said
    # All but the policy was reverted while the build before ran.
    assert story.probes["reverted meanwhile"] == {**ORIGINAL, "dtypes": AS_EDITED["dtypes"]}


def test_reverted_edit_changes_nothing(story: Story) -> None:
    before, after = story.outcomes["edited meanwhile"], story.outcomes["as it was"]
    assert after.said.startswith("nothing changed: ")
    assert (after.wheel, after.sha256) == (before.wheel, before.sha256)


def test_another_compiler_compiles_everything_again(story: Story) -> None:
    outcomes = story.outcomes
    expected = {"TrapProbe.cpp", "TrapGate.cpp", "library.cpp", "bindings.cpp", "module.cpp", "trampolines.cpp"}
    assert expected <= outcomes["edited meanwhile"].compiled
    assert {"torch.lib.libtorch.cpp", "torch._C.cpp"} <= outcomes["edited meanwhile"].compiled, (
        "the tables of what is bound"
    )
    assert outcomes["edited"].compiled == outcomes["edited meanwhile"].compiled
    # Its revert compiles what it reaches; not the table of what is bound, which is the same.
    assert outcomes["reverted meanwhile"].compiled == {"TrapProbe.cpp"}


def test_broken_kernel_is_named_and_the_last_wheel_is_kept(story: Story) -> None:
    broken, before = story.outcomes["broken"], story.outcomes["reverted meanwhile"]
    assert broken.code == CompileError.exit_code == 6
    line = 1 + FOLDERS["one"]["TrapProbe.cpp"].splitlines().index("  return self.clone();") + 1
    assert f"{story.place.folder}/one/TrapProbe.cpp:{line}:8: error: " in broken.said
    assert "snapshot" not in broken.said
    assert (broken.wheel, broken.sha256) == (before.wheel, before.sha256)
    after = story.outcomes["no longer broken"]
    assert after.said.startswith("nothing changed: ")
    assert after.sha256 == before.sha256


def test_locale_does_not_matter(story: Story) -> None:
    before, after = story.outcomes["no longer broken"], story.outcomes["in another locale"]
    assert ") generate " in after.said
    assert (after.wheel, after.sha256) == (before.wheel, before.sha256)
    # What was generated there is the same, so that it is not compiled again. The kernel was broken before.
    assert after.compiled == {"TrapProbe.cpp"}


def test_two_builds_at_once_wait_for_each_other(story: Story) -> None:
    outcomes = [story.outcomes[f"at once {number}"] for number in range(2)]
    assert sum("another build runs here" in outcome.said for outcome in outcomes) == 1
    assert sum("nothing changed: " in outcome.said for outcome in outcomes) == 1
    assert all(outcome.wheel in outcome.said for outcome in outcomes)


def test_operators_of_both_folders_are_in_one_wheel(story: Story) -> None:
    assert story.probes["operators"] == {"trap_probe": 1, "nn.functional.trap_gate": 2, "gate": [-1.0, -1.0]}


def test_stub_gains_the_folder_s_text_once(story: Story) -> None:
    """After several builds in the same work folder. The entry of trap_gate is inserted in the same file."""
    text = story.place.members()["torch/_C/_nn.pyi"].decode()
    assert text.count("class TrapHint: ...  # Größe\n") == 1
    assert text.count("def trap_gate(") == 1


def test_clash_of_two_folders_names_both_places(story: Story) -> None:
    place = story.place
    write(place.folder / "three", {FUNCTIONS: "\n" + FOLDERS["one"][FUNCTIONS], "Three.cpp": ""})
    place.natives = [place.folder / "one", place.folder / "three"]
    with place.start() as process:
        said, _ = process.communicate(timeout=600)
    assert process.returncode == OperatorError.exit_code
    (line,) = (
        line for line in said.splitlines() if "trap_probe" in line and FUNCTIONS in line and "warning" not in line
    )
    assert f"{place.folder}/three/{FUNCTIONS}:3" in line
    assert f"{place.folder}/one/{FUNCTIONS}:2" in line


def test_patch_of_a_stub_is_kept(tmp_path: Path) -> None:
    name = "torch/_C/_nn.pyi"
    tree = write(tmp_path / "tree", {name: "def a() -> int: ...\ndef d() -> int: ...\n"})
    patched = {name: b"def a() -> str: ...\ndef d() -> int: ...\n"}
    composition = Composition(tree, patched, tmp_path / "generated")
    hints = {"nn": {"c": ["def c() -> int: ..."]}}
    composition.insert(None, Description(bound=[], hints=hints, return_types={}, annotated=[]))  # type: ignore[arg-type]
    composition.append({name: "class Own: ...\n"})
    text = composition.text(name) or ""
    assert text.startswith("def a() -> str: ...\ndef c() -> int: ...\ndef d() -> int: ...\n")
    assert text.endswith("class Own: ...\n")
    assert (tree / name).read_text() == "def a() -> int: ...\ndef d() -> int: ...\n"


@pytest.fixture
def stamps(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Callable[[], tuple[str, str]]:
    """The stamps of a folder's build, and of what is generated for it, by a copy of the builder."""
    shutil.copytree(REPOSITORY / "scripts", tmp_path / "scripts", ignore=shutil.ignore_patterns("__pycache__"))
    monkeypatch.setattr(snapshot, "REPOSITORY", tmp_path)
    native = write(tmp_path / "native", {**FOLDERS["one"], **dict.fromkeys(READ, "// eins\n"), "README.md": "eins\n"})
    pin = max(path.name for path in (REPOSITORY / "patches").iterdir() if (path / "pin.yaml").is_file())

    def stamps() -> tuple[str, str]:
        taken = take_snapshot(Layout(pin, (native,), tmp_path / "out"))
        return taken.stamp, taken.stamp_of_generated

    return stamps


READ = ("cuda/Probe.cu", "cuda/Helper.cpp", "cuda/Helper.h", "Probe.inl", "Table.inc", "Probe.h", "cpu/ProbeKernel.cpp")


def test_stamp_is_of_every_file_that_a_build_reads(stamps: Callable[[], tuple[str, str]], tmp_path: Path) -> None:
    seen = {stamps()}
    for name in (*READ, *FOLDERS["one"]):
        path = tmp_path / "native" / name
        before, text = len(seen), path.read_text(encoding="utf-8")
        path.write_text(text + "\n", encoding="utf-8")
        seen.add(stamps())
        assert len(seen) == before + 1, name
        assert len({generated for _, generated in seen}) == 1 + (name == FUNCTIONS or name == "autocast.yaml"), name
        path.write_text(text, encoding="utf-8")
        seen = {stamps()}
    (tmp_path / "native/README.md").write_text("zwei\n")
    assert {stamps()} == seen


def test_stamp_is_of_the_compiler_and_its_version(
    stamps: Callable[[], tuple[str, str]], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    before = stamps()
    write(tmp_path, {"g++": COMPILER.format(here=tmp_path, folder=tmp_path), "version": "first"})
    (tmp_path / "g++").chmod(0o755)
    monkeypatch.setenv("CXX", str(tmp_path / "g++"))
    first = stamps()
    (tmp_path / "version").write_text("second")
    second = stamps()
    assert len({before[0], first[0], second[0]}) == 3
    assert {before[1], first[1], second[1]} == {before[1]}


@pytest.mark.parametrize(
    ("name", "changes_wheel", "changes_generated"),
    [
        ("measure/builds.py", False, False),
        ("testing/run.py", False, False),
        ("generate/operators.py", True, True),
        ("generate/templates/RegisterSchema.cpp", True, True),
        ("compile/templates/module.cpp", True, False),
        ("compose/stubs.py", True, False),
        ("graft.py", True, False),
    ],
)
def test_stamp_is_of_the_code_that_makes_wheels(
    stamps: Callable[[], tuple[str, str]], tmp_path: Path, name: str, changes_wheel: bool, changes_generated: bool
) -> None:
    wheel, generated = stamps()
    with (tmp_path / "scripts" / name).open("a", encoding="utf-8") as file:
        file.write("\n")
    wheel_now, generated_now = stamps()
    assert (wheel_now != wheel, generated_now != generated) == (changes_wheel, changes_generated)
