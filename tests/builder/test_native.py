"""Which files of a folder a build reads: the folder may be a repository, and hold anything else; what they register."""

from __future__ import annotations

import os
from pathlib import Path

import pytest
from graft.core.errors import UsageError
from graft.cpp.registrations import registrations
from graft.inputs.native import load_native
from helpers import beside, write

CASES = beside(__file__)

FILES = {
    "native_functions.yaml": "",
    "A.cpp": '#include "third_party/one.hpp"\n',
    "cpu/AKernel.cpp": "",
    "docs/a.rst": "",
}

LEFT_ALONE = (
    *("build/A.cpp", "venv/pyvenv.cfg", "venv/lib/x.cpp", "third_party/lib.cpp", "third_party/other.hpp"),
    *("src/main.cpp", "config.yaml", "setup.py", "docs/a.rst~", "docs/#a.rst#", ".#A.cpp", ".A.cpp.swp", "A.cpp.orig"),
    *("A.cpp~", ".git/A.cpp"),
    *("ops.egg-info/SOURCES.txt", "docs/conf.py", "docs/guide/more.rst", "notes $|\n.txt", "cpu/notes.md"),
    "tests/t.cpp",
)


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    return write(tmp_path / "ops", FILES)


def names(folder: Path) -> list[str]:
    return [str(file) for file in load_native(folder).files]


def test_what_is_elsewhere_in_a_repository_is_left_alone(folder: Path) -> None:
    write(folder, dict.fromkeys(LEFT_ALONE, "a scratch file"))
    write(folder, {"third_party/one.hpp": '#include "two.h"\n', "third_party/two.h": "#include <ATen/native/A.h>\n"})
    assert names(folder) == sorted([*FILES, "third_party/one.hpp", "third_party/two.h"])
    assert {str(file) for file in load_native(folder).headers} == {"third_party/one.hpp", "third_party/two.h"}


def test_folders_of_pytorch_s_own_build_are_read(folder: Path) -> None:
    own = ("sparse/A.cpp", "quantized/cpu/kernels/Q.cpp", "nested/cuda/N.cu", "transformers/T.h")
    write(folder, dict.fromkeys(own, ""))
    assert {*own} <= {*names(folder)}


def test_linked_folders_are_followed(folder: Path) -> None:
    write(folder, {"pages/b.rst": "b", "code/nn/b.py": "b = 1\n"})
    (folder / "docs/a.rst").unlink()
    (folder / "docs").rmdir()
    (folder / "docs").symlink_to("pages")
    (folder / "python").symlink_to(folder / "code")
    assert {"docs/b.rst", "python/nn/b.py"} <= set(names(folder))


def refused(folder: Path) -> str:
    with pytest.raises(UsageError) as caught:
        load_native(folder)
    assert caught.value.todo
    return caught.value.what.replace(f"{folder}/", "")


def test_links_that_lead_elsewhere_are_named(folder: Path, tmp_path: Path) -> None:
    write(tmp_path / "other", {"b.py": ""})
    (folder / "python").symlink_to(tmp_path / "other")
    (folder / "cpu/again").symlink_to("..")
    assert set(refused(folder).splitlines()) == {
        f"python: this link leads out of the native folder, to {tmp_path / 'other'}",
        "cpu/again: this link leads to a folder that it is in",
    }


def test_what_is_no_file_is_named(folder: Path) -> None:
    os.mkfifo(folder / "docs/b.rst")
    (folder / "Foo.cpp").mkdir()
    (folder / "Foo.h").symlink_to("nowhere")
    (folder / "autocast.yaml").symlink_to("autocast.yaml")
    assert refused(folder).splitlines() == [
        "Foo.cpp: not a file",
        "Foo.h: this link leads nowhere",
        "autocast.yaml: this link leads nowhere",
        "docs/b.rst: not a file",
    ]


@pytest.mark.parametrize(
    "name", [b"a$b.cpp", b"a|b.h", b"a\nb.cpp", b"a b.cu", b"\xff.cpp", b"a" * 240 + b".cpp", b"docs/\xff.rst"]
)
def test_names_that_tools_cannot_handle_are_named(folder: Path, name: bytes) -> None:
    Path(os.fsdecode(os.fsencode(folder) + b"/" + name)).write_text("")
    message = refused(folder)
    assert message.endswith(": its name needs to be at most 120 letters, digits and . _ + -")
    assert message.isprintable()


def test_includes_that_name_no_file_are_the_compiler_s_business(folder: Path) -> None:
    included = (".", "x/..", "..", "/", "/etc/passwd", "../A.h", "a" * 290, "\0", "cpu")
    write(folder, {"A.cpp": "".join(f'#include "{name}"\n' for name in included)})
    assert names(folder) == sorted(FILES)


def test_files_are_listed_once(folder: Path) -> None:
    """A folder may have thousands of files, and a build asks for each."""
    write(folder, {f"cpu/H{number}.h": "" for number in range(50)})
    native = load_native(folder)
    assert len(native.headers) == 50
    assert native.files is native.files and native.vectorized is native.vectorized


PLAIN = "namespace at::native {\nTensor my_neg_cpu(const Tensor& s) { return -s; }\n}\n"


@pytest.mark.parametrize(
    ("text", "is_vectorized"),
    [
        (PLAIN, False),
        ("", False),
        (f"// REGISTER_DISPATCH(stub, &kernel)\n/* ALSO_REGISTER_AVX512_DISPATCH(stub, &kernel) */\n{PLAIN}", False),
        (f"#ifdef CPU_CAPABILITY_AVX2\n#endif\n{PLAIN}", False),
        (f'#include "Rows.h"\n{PLAIN}', False),
        ("REGISTER_DISPATCH(stub, &kernel)\n", True),
        ("ALSO_REGISTER_AVX512_DISPATCH(stub, &kernel)\n", True),
        ("#define MINE(stub) REGISTER_NO_AVX512_DISPATCH(stub)\nMINE(stub)\n", True),
        ('#include "Registered.inl"\n', True),
        ("namespace at::native {\ninline namespace CPU_CAPABILITY {\nvoid helper() {}\n}\n}\n", True),
    ],
)
@pytest.mark.parametrize("place", ["cpu", "quantized/cpu/kernels"])
def test_file_in_cpu_that_is_no_stub_kernel_is_compiled_once(
    folder: Path, text: str, is_vectorized: bool, place: str
) -> None:
    """One for a stub is compiled for each capability, and so is what such files call."""
    rows = "inline namespace CPU_CAPABILITY {\ninline void rows() {}\n}\n"
    write(folder, {f"{place}/K.cpp": text, f"{place}/Rows.h": rows})
    write(folder, {f"{place}/Registered.inl": "REGISTER_DISPATCH(stub, &kernel)\n"})
    native, kernel = load_native(folder), Path(place, "K.cpp")
    assert (kernel in native.vectorized, kernel in native.sources) == (is_vectorized, not is_vectorized)


SOURCE = CASES["source"]


def test_methods_and_macros_are_read() -> None:
    assert [tuple(each) for each in registrations(SOURCE)] == [
        (4, "CPU", ("trace",), "mine::trace"),
        (5, "CPU", ("sum.dim_IntList",), "sum"),
        (7, "CPU", ("abs",), ""),
        (12, "AutocastCPU", ("histc.fp32", "histc"), ""),
        (13, "AutocastCPU", ("max_pool2d.fp32", "max_pool2d"), ""),
    ]
