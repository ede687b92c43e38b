"""``make check`` on valid YAML with random changes."""

from __future__ import annotations

import contextlib
import os
import shutil
import tempfile
from pathlib import Path

import pytest
from corpus import RIGHT, files_of
from graft.check.__main__ import check
from graft.check.base import BaseOperators
from graft.codegen.lists import without_out
from graft.codegen.torchgen import accepted_without_out
from graft.core.errors import UsageError
from graft.core.layout import REPOSITORY
from graft.inputs.entries import read_entries
from graft.inputs.merge import merge_with_base
from graft.inputs.native import load_natives
from helpers import write
from hypothesis import HealthCheck, given, note, settings
from hypothesis import strategies as st
from torchgen.gen import parse_native_yaml_struct

FOLDERS = [REPOSITORY / "native", REPOSITORY / "tests/wheel/grammar"]
YAML = ("native_functions.yaml", "derivatives.yaml")

# Typing errors, leftovers of editors and merges, and words that have a meaning for torchgen.
PIECES = [
    *" \n\t:,-#|&*!?()[]{}'\"=@%.",
    *("  ", ": ", "- ", "->", "(a!)", "(a)", "[]", "[2]", "*, ", "None", "null", "~", "0", "-1", "1e999", "yes"),
    *("Tensor", "Scalar", "SymInt", "int", "bool", "str", "self", "out", "_", ".out", "grad", "result", "func", "name"),
    *("dispatch:", "CPU", "Meta", "CompositeImplicitAutograd", "structured: True", "autogen: f.out", "<<<<<<< HEAD\n"),
    *("\x00", "\ufeff", "\u2028", "\N{FIRE}", "%s", "{0}", "!!python/none"),
]


@st.composite
def mutated(draw: st.DrawFn, text: str) -> str:
    """Mutate ``text`` one to three times: insert a piece, delete, duplicate or move a span, or swap two lines."""
    for _ in range(draw(st.integers(1, 3))):
        start = draw(st.integers(0, len(text)))
        end = min(len(text), start + draw(st.integers(0, 40)))
        piece = draw(st.one_of(st.sampled_from(PIECES), st.text(st.characters(exclude_categories=["Cs"]), max_size=3)))
        elsewhere = draw(st.integers(0, len(text)))
        span = text[start:end]
        text = draw(
            st.sampled_from(
                [
                    text[:start] + piece + text[start:],
                    text[:start] + text[end:],
                    text[:start] + piece + text[end:],
                    text[:start] + span + span + text[end:],
                    text[:elsewhere] + span + text[elsewhere:],
                ]
            )
        )
    return text


@settings(max_examples=50, deadline=None, suppress_health_check=list(HealthCheck))
@given(data=st.data())
def test_mutated_yaml_gives_clean_findings_or_is_valid(data: st.DataObject, known: BaseOperators) -> None:
    """No traceback; each finding has its place and a remedy; no file changes; torchgen accepts what has no finding."""
    folder = data.draw(st.sampled_from(FOLDERS))
    texts = {name: (folder / name).read_text() for name in YAML}
    name = data.draw(st.sampled_from(YAML))
    texts[name] = data.draw(mutated(texts[name]))
    with tempfile.TemporaryDirectory() as place:
        native = Path(place)
        write(native, texts)
        findings = check(load_natives([native]), known)
        read = read_entries(native / "native_functions.yaml")
        for finding in findings.found:
            note(str(finding))
            assert finding.file.parent == native
            assert 1 <= finding.line <= texts[finding.file.name].count("\n") + 2
            assert finding.what and finding.todo and "\n" not in str(finding)
        assert {file: (native / file).read_bytes().decode() for file in texts} == texts
        assert sorted(path.name for path in native.iterdir()) == sorted(texts)
    # The kernels are elsewhere, so they are missing; torchgen does not check that.
    if name == "native_functions.yaml" and all(f.code == "kernel-missing" for f in findings.errors):
        entries = [{**entry.fields, "__line__": entry.line} for entry in read]
        with accepted_without_out(without_out(entry.schema for entry in read)):
            parse_native_yaml_struct(entries, known.tags)


(FOLDER,) = (files_of(case) for case in RIGHT if case["right"] == "a file of each kind")
NAMES = (
    "a b.cpp",
    "x$y.h",
    "pipe|.cu",
    "line\n.rst",
    "g[r.cpp",
    ".hidden.cpp",
    "cpu/K.cpp",
    "sub/K.cpp",
    "l" * 250 + ".cpp",
)

# What tools write before and after a text, and depth.
AROUND = (
    *(("\ufeff", ""), ("---\n", ""), ("%YAML 1.1\n---\n", ""), ("", "...\n"), ("", "--- # end\n"), ("", "\0")),
    *(
        ("namespace a {" * 2000, "}" * 2000),
        ("#if 1\n" * 2000, "#endif\n" * 2000),
        ("", "[" * 2000),
        ("x = ", "-" * 100_000),
    ),
)


@st.composite
def folders(draw: st.DrawFn, place: Path) -> None:
    """Write the folder into ``place``, and change its files, their names and their kinds."""
    write(place, FOLDER)
    for _ in range(draw(st.integers(1, 3))):
        path = place / draw(st.sampled_from(sorted(FOLDER)))
        if not path.is_file() or path.is_symlink():
            continue
        act = draw(st.sampled_from(["text", "bytes", "around", "name", "link", "folder", "fifo", "loop", "gone"]))
        if act == "text":
            path.write_bytes(draw(mutated(path.read_text(errors="replace"))).encode())
        elif act == "bytes":
            path.write_bytes(path.read_bytes() + draw(st.binary(min_size=1, max_size=4)))
        elif act == "around":
            before, after = draw(st.sampled_from(AROUND))
            path.write_text(f"{before}{path.read_text(errors='replace')}{after}")
        elif act == "name":
            with contextlib.suppress(OSError):
                shutil.move(path, place / draw(st.sampled_from(NAMES)))
        elif act == "loop":
            (path.parent / "cpu").symlink_to(place)
        else:
            path.unlink()
            if act == "link":
                path.symlink_to(draw(st.sampled_from(["nowhere", "/etc", "..", path.name, "Clip.h"])))
            elif act == "folder":
                path.mkdir()
            elif act == "fifo":
                os.mkfifo(path)


@pytest.mark.slow
@settings(max_examples=1000, deadline=10_000, suppress_health_check=list(HealthCheck))
@given(data=st.data())
def test_changed_folders_are_judged_as_builds_judge_them(data: st.DataObject, known: BaseOperators) -> None:
    """Errors or findings, never a traceback; what has none, a build can merge; and nothing is written."""
    with tempfile.TemporaryDirectory() as folder, tempfile.TemporaryDirectory() as merged:
        native = Path(folder, "native")
        with contextlib.suppress(FileExistsError):
            data.draw(folders(native))
        before = sorted(native.rglob("*"))
        with contextlib.suppress(UsageError):
            if not check(load_natives([native]), known).errors:
                merge_with_base(load_natives([native]), known.tree, Path(merged))
        assert sorted(native.rglob("*")) == before
