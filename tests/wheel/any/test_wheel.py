"""The rebuilt wheel is a valid torch wheel, and is consistent. These tests apply to any native folder."""

import base64
import csv
import hashlib
import importlib
import importlib.metadata
import io
import operator
import os
import re
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from zipfile import ZipFile

import pytest
import torch
import yaml
from elftools.elf.elffile import ELFFile
from elftools.elf.gnuversions import GNUVerNeedSection
from graft.base.symbols import SymbolFile
from graft.core.folders import OVERLAY
from graft.core.layout import REPOSITORY, native_folders
from graft.inputs.native import load_native
from graft.inputs.patches import load_series
from packaging.utils import parse_wheel_filename
from packaging.version import Version
from torchgen.model import BaseOperatorName

NATIVES = native_folders(os.environ["GRAFT_NATIVE"])

# What a checkout lays over torch's own files.
LAID_OVER = {name: path for native in NATIVES for name, path in load_native(native).overlay.items()}


@pytest.fixture(scope="module")
def archive(wheel: Path) -> Iterator[ZipFile]:
    with ZipFile(wheel) as opened:
        yield opened


@pytest.fixture(scope="module")
def base_archive(base: Path) -> Iterator[ZipFile]:
    (path,) = base.parent.glob("*.whl")
    with ZipFile(path) as opened:
        yield opened


def test_versions_agree(wheel: Path, archive: ZipFile) -> None:
    _, version, _, _ = parse_wheel_filename(wheel.name)
    (metadata,) = (name for name in archive.namelist() if name.endswith(".dist-info/METADATA"))
    assert str(version) == importlib.metadata.version("torch")
    # PyTorch's wheels on the package index name their variant (+cu130) only in torch.__version__.
    found = Version(torch.__version__)
    assert (found.public, str(found.local).split(".")[-2:]) == (version.public, str(version.local).split(".")[-2:])
    assert f"\nVersion: {version}\n" in archive.read(metadata).decode()
    assert metadata == f"torch-{version}.dist-info/METADATA"


def test_record_is_complete_and_right(archive: ZipFile) -> None:
    (record,) = (name for name in archive.namelist() if name.endswith(".dist-info/RECORD"))
    rows = {row[0]: row[1:] for row in csv.reader(io.StringIO(archive.read(record).decode()))}
    files = [info.filename for info in archive.infolist() if not info.is_dir()]
    assert sorted(rows) == sorted(files)
    assert len(rows) == len(set(files))
    assert rows.pop(record) == ["", ""]
    for name, (digest, size) in rows.items():
        content = archive.read(name)
        expected = base64.urlsafe_b64encode(hashlib.sha256(content).digest()).rstrip(b"=").decode()
        assert (digest, size) == (f"sha256={expected}", str(len(content))), name


def test_unchanged_members_have_the_bytes_of_the_base(archive: ZipFile, base_archive: ZipFile, base: Path) -> None:
    pin = base.parents[2].name.partition("+")[0]
    ours = {info.filename: info for info in archive.infolist()}
    changed = set()
    for info in base_archive.infolist():
        if ".dist-info/" in info.filename:
            continue
        same = ours[info.filename]
        if same.CRC != info.CRC:
            changed.add(info.filename)
        else:
            assert (same.compress_size, same.external_attr) == (info.compress_size, info.external_attr)
    patched = {target for patch in load_series(REPOSITORY / "patches" / pin) for target in patch.targets}
    generated = re.compile(
        r"torch/(version\.py|return_types\.pyi|_C/\w+\.pyi|_C\..*\.so|lib/libtorch\.so|include/.*\.h"
        r"|testing/_internal/generated/annotated_fn_args\.py)"
    )
    rest = [name for name in sorted(changed - patched) if not generated.fullmatch(name)]
    # In all other files that differ, text is appended to the base's, or to what a checkout has.
    before = {name: LAID_OVER[name].read_bytes() if name in LAID_OVER else base_archive.read(name) for name in rest}
    assert [name for name in rest if not archive.read(name).startswith(before[name])] == []
    assert all(name.endswith((".py", ".pyi", ".yaml")) for name in set(rest) - LAID_OVER.keys())


def info_of(opened: ZipFile) -> dict[str, str]:
    """Return the texts in a wheel's .dist-info, by file name."""
    names = [name for name in opened.namelist() if ".dist-info/" in name and not name.endswith(("/", "/RECORD"))]
    return {name.partition(".dist-info/")[2]: opened.read(name).decode() for name in names}


def test_metadata_differ_from_the_base_in_version_and_tag_only(
    wheel: Path, archive: ZipFile, base_archive: ZipFile
) -> None:
    _, version, _, (tag,) = parse_wheel_filename(wheel.name)
    expected = info_of(base_archive)
    expected["METADATA"] = re.sub(r"\nVersion: \S+\n", f"\nVersion: {version}\n", expected["METADATA"], count=1)
    expected["WHEEL"] = re.sub(r"(\nTag: \S+)+\n", f"\nTag: {tag}\n", expected["WHEEL"], count=1)
    found = info_of(archive)
    notice = found.pop("licenses/NOTICE.graft")
    assert found == expected
    base = parse_wheel_filename(Path(str(base_archive.filename)).name)[1]
    # The version of a wheel for CUDA does not have the local part that torch.__version__ has.
    assert re.match(rf"This is PyTorch {re.escape(str(base))}[+,]", notice)
    listed = re.findall(r"^    (\S+)$", notice, re.M)
    files = [name for name in listed if "/" in name]
    assert {*files} <= {*archive.namelist()}
    named = [name for name in listed if name not in files]
    added = {
        name.removeprefix("aten::").partition(".")[0] for name in schema_names(archive) - schema_names(base_archive)
    }
    assert {name for name in added if hasattr(torch, name)} <= {name.rpartition(".")[2] for name in named}
    assert all(operator.attrgetter(name.removeprefix("torch."))(torch) for name in named)


# The additions to every wheel, independent of its folders.
OF_GRAFT = {"torch/_added_operators.py", "torch/_graft.json", "torch/_graft.py"}

HEADERS = {".h", ".hpp", ".inl", ".inc", ".cuh"}


def test_added_members_are_those_of_operators_and_folders(archive: ZipFile, base_archive: ZipFile) -> None:
    names = {name for name in archive.namelist() if ".dist-info/" not in name and not name.endswith("/")}
    added = names - set(base_archive.namelist())
    roots = {name.removeprefix("aten::") for name in schema_names(archive) - schema_names(base_archive)}
    roots = {str(BaseOperatorName.parse(name.partition(".")[0]).base) for name in roots}
    generated = {name for name in added if name.startswith("torch/include/ATen/ops/")}
    suffix = r"(_native|_ops|_meta|_\w+_dispatch)?\.h"
    assert generated == {
        name for name in generated if any(re.fullmatch(rf"{root}{suffix}", Path(name).name) for root in roots)
    }
    brought = {*LAID_OVER}
    for native in NATIVES:
        others = [path.parent for path in native.glob("*/native_functions.yaml")]  # folders of their own
        others += [native / OVERLAY] if load_native(native).overlay else []
        files = [
            path.relative_to(native)
            for path in native.rglob("*")
            if path.is_file() and "__pycache__" not in path.parts and not any(map(path.is_relative_to, others))
        ]
        brought |= {f"torch/{Path(*path.parts[1:])}" for path in files if path.parts[0] == "python"}
        headers = {path for path in files if path.suffix in HEADERS}
        if not torch.version.cuda:
            headers = {path for path in headers if "cuda" not in path.parts}
        brought |= {f"torch/include/ATen/native/{path}" for path in headers}
        brought.discard("torch/include/ATen/native/FunctionsManual.h")  # formulas alone see it
    libraries = {name for name in added if name == "torch/lib/libtorch_operators_cuda.so"}
    assert added - generated - libraries - OF_GRAFT == brought & added
    assert brought - added <= set(base_archive.namelist()) and added >= OF_GRAFT


def test_pip_is_content() -> None:
    done = subprocess.run([sys.executable, "-m", "pip", "check"], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout


def test_numbered_names_are_those_of_the_base(archive: ZipFile, base_archive: ZipFile) -> None:
    """The base's binaries were compiled with these numbers."""
    # Their folders differ between releases; torchgen's templates have these names, too.
    numbered = [name for name in archive.namelist() if name.endswith(("/aten_interned_strings.h", "/enum_tag.h"))]
    assert len([name for name in numbered if name.startswith("torch/include/")]) >= 2
    for name in numbered:
        assert archive.read(name) == base_archive.read(name)


def test_headers_only_gain_lines(archive: ZipFile, base_archive: ZipFile) -> None:
    compared = 0
    for info in base_archive.infolist():
        name = info.filename
        if name.startswith("torch/include/") and name not in LAID_OVER and archive.getinfo(name).CRC != info.CRC:
            lines = iter(archive.read(name).decode().splitlines())
            lost = [line for line in base_archive.read(name).decode().splitlines() if line not in lines]
            assert lost == [], name
            compared += 1
    assert compared > 0 or not torch._added_operators.OPERATORS  # a folder may only replace


def schema_names(archive: ZipFile) -> set[str]:
    entries = yaml.load(archive.read("torchgen/packaged/ATen/native/native_functions.yaml"), yaml.CSafeLoader)
    names = set()
    for entry in entries:
        name = entry["func"].split("(")[0]
        names.add(name if "::" in name else f"aten::{name}")
        for generated in re.split(r",\s*", entry.get("autogen") or ""):
            names |= {generated if "::" in generated else f"aten::{generated}"} if generated else set()
    return names


def test_packaged_yaml_lists_what_is_registered(archive: ZipFile, base_archive: ZipFile) -> None:
    new = schema_names(archive) - schema_names(base_archive)
    assert new >= {f"aten::{name}" for name in torch._added_operators.OPERATORS if "::" not in name}
    assert new <= set(torch._C._dispatch_get_all_op_names())


def test_headers_of_new_operators_are_installed(archive: ZipFile, base_archive: ZipFile) -> None:
    include = Path(torch.__file__).parent / "include/ATen/ops"
    for name in schema_names(archive) - schema_names(base_archive):
        root = BaseOperatorName.parse(name.split("::")[1].partition(".")[0]).base
        for suffix in ("", "_ops", "_native"):
            assert (include / f"{root}{suffix}.h").is_file(), f"{root}{suffix}.h"


LIBRARIES = [
    Path(torch._C.__file__),
    *Path(torch.__file__).parent.glob("lib/libtorch.so"),
    *Path(torch.__file__).parent.glob("lib/libtorch_operators_cuda.so"),
]
# glibc's versions by platform tag are in the tag itself; GLIBCXX 3.4.24 is GCC 8's (PEP 600: manylinux_2_28).
NEWEST_LIBSTDCXX = {(2, 28): (3, 4, 25)}


@pytest.mark.parametrize("library", LIBRARIES, ids=lambda path: path.name)
def test_platform_tag_promises_no_more_than_the_libraries_keep(wheel: Path, library: Path) -> None:
    (platform,) = {tag.platform for tag in parse_wheel_filename(wheel.name)[3]}
    if platform.startswith("linux_"):
        pytest.skip("the wheel of a source build promises to run where it was built, not elsewhere")
    glibc = tuple(map(int, re.match(r"manylinux_(\d+)_(\d+)_", platform).groups()))  # type: ignore[union-attr]
    with library.open("rb") as file:
        section = ELFFile(file).get_section_by_name(".gnu.version_r")
        assert isinstance(section, GNUVerNeedSection)
        needed = [entry.name for _, entries in section.iter_versions() for entry in entries]
    for name in needed:
        kind, _, text = name.partition("_")
        if re.fullmatch(r"[\d.]+", text):
            version = tuple(map(int, text.split(".")))
            assert kind != "GLIBC" or version <= glibc, name
            assert kind != "GLIBCXX" or version <= NEWEST_LIBSTDCXX.get(glibc, (3, 4, 99)), name


@pytest.mark.skipif(REPOSITORY / "native" not in NATIVES, reason="a folder's own sources may need newer symbols")
def test_platform_tag_is_that_of_the_official_wheels(wheel: Path) -> None:
    if "-linux_" in wheel.name:
        pytest.skip("the wheel of a source build promises to run where it was built, not elsewhere")
    assert "-manylinux_2_28_" in wheel.name


def test_what_the_replaced_library_exported_is_still_there(base: Path) -> None:
    """On ARM, the official libtorch.so exports functions of libstdc++, as libc10.so does."""
    libraries = Path(torch.__file__).parent / "lib"
    ours = [SymbolFile(libraries / name).exported() for name in ("libtorch.so", "libc10.so")]
    assert not SymbolFile(base / "torch/lib/libtorch.so").exported().difference(*ours)


@pytest.mark.slow
@pytest.mark.skipif(torch.version.cuda is not None, reason="auditwheel finds no CUDA beside the wheel")
def test_auditwheel_finds_the_platform_tag_right(wheel: Path) -> None:
    (platform,) = {tag.platform for tag in parse_wheel_filename(wheel.name)[3]}
    done = subprocess.run(
        [sys.executable, "-m", "auditwheel", "show", wheel], capture_output=True, text=True, check=False
    )
    assert f'constrains the platform tag to "{platform}"' in " ".join(done.stdout.split()), done.stdout + done.stderr


PYTHON_FILES = sorted(
    path.relative_to(native / "python").with_suffix("")
    for native in NATIVES
    for path in (native / "python").rglob("*.py")
)

if PYTHON_FILES:

    @pytest.mark.parametrize("file", PYTHON_FILES, ids=str)
    def test_module_is_imported(file: Path) -> None:
        """Modules that the folder's Python files are part of: torch may import some only when it compiles."""
        if file.parts[0] == "distributed" and not torch.distributed.is_available():
            pytest.skip("this torch is built without torch.distributed")
        importlib.import_module(".".join(["torch", *file.parts]).removesuffix(".__init__"))
