"""Extensions that stay libraries of their own: their settings, what their build says, and the stub that opens the one
for the torch of a process.
"""

from __future__ import annotations

import json
import subprocess
import sys
import sysconfig
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import graft
import pytest
from graft.adopt.adopt_options import Asked
from graft.adopt.builds import TheirBuild, TheirExtension, as_settings, their_build
from graft.adopt.project import dependencies_of, project_text
from graft.backend import build_sdist
from graft.base.base import Base
from graft.compile.extension_stub import extension_stub, folder_for
from graft.compile.extensions import _Build
from graft.core.errors import UsageError
from graft.deliveries import refuse_beside
from graft.inputs.native import load_native
from graft.inputs.packages import carried
from graft.inputs.pyproject import tomllib
from graft.inputs.settings import Settings, settings_of
from graft.inputs.toolchain import Toolchain
from helpers import Capture, Patch, beside, compiled, refused, write

CASES = beside(__file__)

TREE = CASES["tree"]

TABLE = CASES["table"]


def settings(tmp_path: Path, table: str = TABLE) -> Settings:
    """Return the settings of a native folder beside the tree of an extension."""
    write(tmp_path, {f"tree/{name}": text for name, text in TREE.items()})
    project = f'[project]\nname = "x"\n\n[tool.graft]\nnative = "native"\n{table}\n'
    write(tmp_path / "ops", {"pyproject.toml": project, "native/native_functions.yaml": ""})
    return settings_of(tmp_path.resolve() / "ops/native")


def test_settings(tmp_path: Path) -> None:
    found, tree = settings(tmp_path), tmp_path.resolve() / "tree"
    first, second = found.extensions
    assert (first.name, first.sources) == ("their._C", (tree / "csrc/z.cpp", tree / "csrc/a.cu"))
    assert first.settings.flags.cflags == ("-DA", "-DB=2", "-fvisibility=hidden", "-std=c++14")
    assert first.settings.flags.cuda_cflags == ("-DA", "-DB=2")
    assert first.settings.flags.of_newer_standards("c++17") == ("-DA", "-DB=2", "-fvisibility=hidden")
    assert first.place(".abi.so") == "their/_C.so" and second.place(".abi.so") == "their/_other.abi.so"
    assert first.link_flags == ("-Wl,-z,now",)
    assert found.sources == frozenset() and found.packages == {"their": (tree / "their",)}


def test_inputs_and_stamp(tmp_path: Path) -> None:
    found, tree = settings(tmp_path), tmp_path.resolve() / "tree"
    assert {tree / "csrc/z.cpp", tree / "csrc/a.cu", tree / "LICENSE"} <= {*load_native(found.root / "native").inputs}
    assert str(tmp_path) not in found.stamp[0] and "their._other" in found.stamp[0]
    with pytest.raises(UsageError, match=r"extensions: PyTorch's own build has no such settings"):
        found.require_none()


def test_packages_carry_no_sources(tmp_path: Path) -> None:
    found = carried(settings(tmp_path).packages)
    assert [*found] == ["their/__init__.py", "their/data.json", "their/py.typed", "their/deep/__init__.py"]
    write(tmp_path, {"more/__init__.py": "1", "more/new.py": "", "alone.py": ""})
    both = carried({"their": (tmp_path / "more", tmp_path / "tree/their"), "alone": (tmp_path / "alone.py",)})
    assert both["their/__init__.py"] == tmp_path / "more/__init__.py" and "their/deep/__init__.py" in both
    assert both["alone.py"] == tmp_path / "alone.py"


@pytest.mark.parametrize(("old", "new", "line", "said"), CASES["mistakes"])
def test_mistakes(tmp_path: Path, old: str, new: str, line: int, said: str) -> None:
    assert old in TABLE
    error = refused(UsageError, settings, tmp_path, TABLE.replace(old, new))
    first, *others = error.what.splitlines()
    assert not others and first.startswith(f"{tmp_path.resolve()}/ops/pyproject.toml:{line}: ") and said in first


def test_what_a_build_says_is_what_settings_mean(tmp_path: Path) -> None:
    write(tmp_path, {f"tree/{name}": text for name, text in TREE.items()})
    tree = tmp_path.resolve() / "tree"
    sources, include = (tree / "csrc/z.cpp", tree / "csrc/a.cu"), (tree / "csrc/include", Path("/usr/include"))
    flags = ("-O1", "-UX", "-include", f"{tree}/csrc/include/a.h"), ("--use_fast_math",), ("-fopenmp",)
    extension = TheirExtension("their._C", ".so", sources, include, ("A", 'TEXT="a \\ b"'), *flags, ("z",))
    build = TheirBuild(tree, (extension,), {"their": tree / "their"}, (tree / "LICENSE",), {})
    found = settings(tmp_path, as_settings(build, tmp_path.resolve() / "ops"))
    (read,) = found.extensions
    assert (read.name, read.suffix, read.sources) == (extension.name, ".so", extension.sources)
    assert read.settings.include_dirs == extension.include_dirs
    assert read.settings.flags.cflags == ("-DA", '-DTEXT="a \\ b"', "-O1", "-UX", *extension.cxx_flags[2:])
    assert read.settings.flags.cuda_cflags == ("-DA", '-DTEXT="a \\ b"', "--use_fast_math")
    assert (read.link_flags, read.settings.libraries) == (("-fopenmp",), ("z",))
    assert read.settings.licenses == build.licenses and found.packages == {"their": (tree / "their",)}
    assert str(tmp_path) not in found.stamp[0]


def test_compile_commands(tmp_path: Path) -> None:
    write(tmp_path, {f"tree/{name}": text for name, text in TREE.items() if name != "setup.py"})
    tree = tmp_path.resolve() / "tree"
    flags = f"-DA -D_C_EXPORTS -DB='\"x y\"' -I{tree}/csrc/include -isystem /env/torch/include -O3 -fPIC -std=gnu++17"
    flags = f"{flags} -g -ggdb3 -gencode arch=compute_80,code=sm_80 -Xcompiler -fPIC -Xcompiler -Wall -Xcompiler -O1"
    flags = f"{flags} -include ../csrc/include/a.h -include <b.h>"
    target = "CMakeFiles/_C.dir"
    compiled = {
        f"g++ {flags} -o {target}/z.o -c x": "../csrc/z.cpp",
        "g++ -o CMakeFiles/test.dir/t.o": "../csrc/test.cpp",
    }
    commands = [{"directory": f"{tree}/build", "command": each, "file": file} for each, file in compiled.items()]
    link = f"g++ -shared -o lib_C.so {target}/z.cpp.o -L/no/such/lib -lz -ltorch_cpu -lc10"
    link = f"{link} -Wl,--as-needed,/x/libno.so /usr/lib/libjpeg.so libfoo.a {tree}/their/libbar.so.2 ../their/_x.so"
    link = f"{link} /env/torch/lib/libkineto.a /no/cuda/lib64/libcudart.so.12 /usr/lib/libpython3.11.so"
    files = {f"{target}/link.txt": link, "CMakeFiles/test.dir/link.txt": "g++ -o test"}
    write(tree / "build", {"compile_commands.json": json.dumps(commands), **files})
    build = their_build(tree, sys.executable)
    (extension,) = build.extensions
    assert (extension.name, extension.suffix) == ("their._C", ".so")
    assert extension.sources == (tree / "csrc/z.cpp",) and extension.include_dirs == (tree / "csrc/include",)
    assert extension.define == ("A", 'B="x y"') and extension.cxx_flags[:2] == ("-O3", "-std=gnu++17")
    architecture = ("-gencode", "arch=compute_80,code=sm_80")
    headers = ("-include", f"{tree}/csrc/include/a.h", "-include", "<b.h>")
    assert extension.cxx_flags[2:] == (*architecture, "-Xcompiler", "-Wall", "-Xcompiler", "-O1", *headers)
    assert extension.libraries == ("z", "jpeg", ":libfoo.a", ":libbar.so.2", ":_x.so")
    folders = (Path("/usr/lib"), tree / "build", tree / "their")  # those that are there
    assert extension.library_dirs == folders
    assert build.packages == {"their": tree / "their"} and build.licenses == (tree / "LICENSE",)


def test_compile_commands_of_ninja_do_not_say_how_it_links(tmp_path: Path) -> None:
    commands = [
        {"directory": "/x", "file": f"{name}.cpp", "command": f"g++ -o CMakeFiles/{name}.dir/a.o"}
        for name in ("_C", "unit_test")
    ]
    write(tmp_path, {"build/compile_commands.json": json.dumps(commands)})
    with pytest.raises(UsageError, match=r"nothing beside it says how CMake links _C, unit_test") as caught:
        their_build(tmp_path, sys.executable)
    assert '-G "Unix Makefiles"' in caught.value.todo and "by hand" in caught.value.todo


@pytest.mark.parametrize(
    "words",
    [
        ["-gencode", "arch=compute_80,code=sm_80", "-gencode=arch=compute_90a,code=sm_90a"],
        ["-arch", "sm_80", "-arch=sm_90a"],
        ["-gencode arch=compute_80,code=sm_80", "--gpu-architecture", "compute_80", "-code", "sm_90a"],
        ["--generate-code=arch=compute_80,code=[compute_80,sm_80]", "--generate-code", "arch=compute_90a,code=sm_90a"],
    ],
)
def test_architectures_of_an_extension_give_way(tmp_path: Path, words: list[str]) -> None:
    table = TABLE.replace("cxx-flags", f"nvcc-flags = {json.dumps(['-O1', *words, '-Xcompiler', '-Wall'])}\ncxx-flags")
    extension, _ = settings(tmp_path, table).extensions
    nvcc, toolchain = SimpleNamespace(folder="/cuda", architectures=("80", "90")), Toolchain("g++", "", "c++20")
    vars(toolchain).update(python_configuration="", python_include="/python")
    build: Any = SimpleNamespace(_toolchain=toolchain, _nvcc=nvcc, _of_pybind=[], _written=())
    build._snapshot = SimpleNamespace(extensions=[(extension, None)])
    flags = [*_Build._flags(build, extension, tmp_path / "a.cu", is_cuda=True)]
    first = flags.index("-O1")
    assert flags[first : first + 4] == ["-O1", "-Xcompiler", "-Wall", "-DTORCH_API_INCLUDE_EXTENSION_H"]
    said = "their._C: its flags are for the GPU architectures 80 90a; it is compiled for 80 90"
    assert [*_Build._notes(build)] == [f'{said}; for its code for 90a, set CUDA_ARCHS="80 90a"']
    nvcc.architectures = ("80", "90a")
    assert [*_Build._notes(build)] == [f"{said}a"]


def test_libraries_of_others_with_the_same_name_are_opened(tmp_path: Path, monkeypatch: Patch) -> None:
    files = ("site/_C.so", "site/ops/_C.so", "tree/_C.so", "tree/ops/_C.so", "other/_C.so", "other/foo/ops/_C.so")
    write(tmp_path, {**dict.fromkeys(files, ""), "other/foo/__init__.py": "", "site/torch/_graft.json": ""})

    class Ops:
        def load_library(self, path: str) -> str:
            return path

    monkeypatch.setattr(sys, "meta_path", [*sys.meta_path])
    monkeypatch.setattr(sys, "path", ["", *sys.path])
    monkeypatch.chdir(tmp_path / "tree")
    code = (Path(graft.__file__).parent / "compose/of_extensions/_ops.py").read_text(encoding="utf-8")
    names = {"_Ops": Ops, "EXTENSIONS": ("_C", "ops._C"), "__file__": str(tmp_path / "site/torch/_ops.py")}
    exec(compile(code, "_ops.py", "exec"), names)
    for file in ("site/_C.so", "site/ops/_C.so", "other/_C.so", "other/foo/ops/_C.so"):
        assert Ops().load_library(f"{tmp_path}/{file}") == f"{tmp_path}/{file}"
    for file in ("tree/_C.so", "tree/ops/_C.so"):
        with pytest.raises(ImportError, match="is another copy of what this torch was built with"):
            Ops().load_library(f"{tmp_path}/{file}")


CHANGING = CASES["changing"]


def test_a_build_that_is_asked_changes_nothing(tmp_path: Path) -> None:
    tree = write(tmp_path / "tree", {**TREE, "setup.py": CHANGING}).resolve()

    def contents() -> dict[Path, bytes]:
        return {path: path.read_bytes() if path.is_file() else b"" for path in tree.rglob("*")}

    before, written = contents(), their_build(tree, sys.executable).written
    assert contents() == before
    own = {"their/version.py": b"1", "their/second.py": b"2", "their/z.cpp": b"3"}
    same = {"their/moved.json": b"", "their/copied.json": b"", "csrc/other/a.h": b""}
    names = " ".join(sorted(path.name for path in tree.iterdir()))
    assert written == own | same | {"names.txt": f"{names}\n".encode()}


@pytest.mark.parametrize(
    "files",
    [
        {"setup.py": CASES["requiring"].replace("REQUIRES", "['torch>=2', 'numba<1', 'torch-scatter']")},
        {"setup.py": CASES["requiring"].replace("REQUIRES", repr("torch\n # first\n\nnumba<1\ntorch-scatter"))},
        {
            "setup.py": CASES["requiring"].replace("REQUIRES", "[]"),
            "setup.cfg": "[options]\ninstall_requires =\n  Torch\n  numba<1\n  torch-scatter\n",
        },
    ],
)
def test_dependencies_of_a_tree(tmp_path: Path, files: dict[str, str]) -> None:
    """They are written into the project, since its packages are carried; torch is what the project is built for."""
    write(tmp_path, {**files, "a.cpp": ""})
    requires = their_build(tmp_path, sys.executable).requires
    assert requires == ("numba<1", "torch-scatter")
    asked, found = Asked(modules=("their",)), {"distributions": {"their": ["their", "2.0+cpu"]}}
    text = project_text(tmp_path, asked, found, "", dependencies_of(asked, found, [*requires, 'x; os_name == "y"']))
    needed = ["their>=2.0", *requires, 'x; os_name == "y"']
    assert tomllib.loads(text)["project"]["dependencies"] == needed


def test_tree_without_a_build(tmp_path: Path) -> None:
    def refused(what: str, todo: str, file: str = "") -> None:
        if file:
            write(tmp_path, {file: ""})
        with pytest.raises(UsageError, match=what) as caught:
            their_build(tmp_path, sys.executable)
        assert todo in caught.value.todo

    refused("it has no sources to compile", f"`pip install {tmp_path}`, `graft adopt their_package`")
    refused("it has no sources", "`graft adopt theirs`", "theirs/__init__.py")
    refused("all its sources are for CUDA", "where CUDA is", "csrc/a.cu")
    refused("it has no setup.py", "[[tool.graft.extensions]]", "csrc/a.cc")
    refused("CMake builds it", 'cmake -S lib -B build -G "Unix Makefiles"', "lib/CMakeLists.txt")
    refused(
        "CMake builds it", '-S . -B build -G "Unix Makefiles" -DCMAKE_EXPORT_COMPILE_COMMANDS=ON`', "CMakeLists.txt"
    )


def test_load_refuses_what_is_beside_torch(tmp_path: Path) -> None:
    folders = [SimpleNamespace(settings=settings(tmp_path))]
    with pytest.raises(UsageError, match=r"pyproject.toml:10: \[tool.graft\] extensions: graft.load adds operators"):
        refuse_beside(SimpleNamespace(read=SimpleNamespace(folders=folders)))


def test_sdist_needs_the_sources_below_the_project(tmp_path: Path, monkeypatch: Patch, capsys: Capture) -> None:
    settings(tmp_path)
    monkeypatch.chdir(tmp_path / "ops")
    with pytest.raises(SystemExit):
        build_sdist(str(tmp_path / "out"))
    assert f"extensions: {tmp_path.resolve()}/tree/csrc/z.cpp is not below" in capsys.readouterr().err


MODULE = CASES["module"]


@pytest.fixture(scope="module")
def stubbed(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with a package for two torches, 1 and 2, and a third torch that it is not for."""
    folder = tmp_path_factory.mktemp("stubbed")
    shared = ("-shared", "-Wl,--build-id=sha1")
    for number in (1, 2, 3):
        torch = folder / f"torch{number}"
        library = torch / "torch/lib/libtorch_cpu.so"
        compiled(f"int torch_{number} = {number};", library, *shared, "-Wl,-soname,libtorch_cpu.so")
        target = folder / "site" / folder_for("my_ops", Base(Path("x"), torch)) / "their/_C.so"
        if number < 3:
            text = MODULE.replace("VALUE", str(number))
            compiled(text, target, *shared, f"-I{sysconfig.get_path('include')}")
    stub = extension_stub(Toolchain("g++", "", "c++20"), folder / "stubs", "my_ops", "their/_C.so")
    write(folder / "site/their", {"__init__.py": ""})
    (folder / "site/their/_C.so").write_bytes(stub.read_bytes())
    return folder


def run(folder: Path, torch: int, code: str) -> tuple[str, str]:
    """Run Python code in a process with a torch, or with none if that is 0. Return what it prints to both streams."""
    first = f"import ctypes; ctypes.CDLL('{folder}/torch{torch}/torch/lib/libtorch_cpu.so')\n" if torch else ""
    command = [sys.executable, "-c", f"import sys; sys.path.insert(0, '{folder}/site')\n{first}{code}"]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    return done.stdout.strip(), done.stderr.strip()


IMPORT = """
try:
    from their import _C
    print(_C.value, _C.__name__, _C.__file__.endswith("site/their/_C.so"))
except ImportError as error:
    print(error)
"""


@pytest.mark.parametrize("torch", [1, 2])
def test_stub_opens_the_extension_for_the_torch_that_is_there(stubbed: Path, torch: int) -> None:
    assert run(stubbed, torch, IMPORT) == (f"{torch} their._C True", f"opened {torch}")
    # As torch.ops.load_library opens a file that a finder of importlib names.
    find = "import importlib.machinery as m; found = m.PathFinder.find_spec('_C', [sys.path[0] + '/their'])"
    assert run(stubbed, torch, f"{find}\nctypes.CDLL(found.origin)") == ("", f"opened {torch}")
    beside_it = f"import os; os.chdir('{stubbed}/site/their'); ctypes.CDLL('./_C.so')"
    assert run(stubbed, torch, beside_it)[1] == f"opened {torch}"


def test_stub_says_why_it_opens_nothing(stubbed: Path) -> None:
    said = "their/_C.so: my_ops was not built for the torch that is here; install one for it"
    assert run(stubbed, 3, IMPORT) == (said, said)
    said = "their/_C.so: it belongs to a torch, and this process has none; import torch first"
    assert run(stubbed, 0, IMPORT) == (said, said)
