"""What a compiler looked for decides about an object. The compiler is g++, behind a script that changes files."""

from __future__ import annotations

import os
import subprocess
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import pytest
from builds import GXX, Build, Compiler
from graft.compile import incremental, ninja
from graft.compile.manifest import inputs_of
from graft.compile.units import Unit
from graft.core.errors import BuildError
from graft.core.extra_flags import extra_flags
from helpers import Capture, Patch, program, write

# Adds a folder of headers, notes that it compiles, and runs the script `meanwhile` once a source was read.
WRAPPER = """here={here}
case " $* " in *" -c "*) echo "$*" >>calls;; esac
g++ "$@" -isystem $here/system || exit
case " $* " in *" -c "*) [ ! -f $here/meanwhile ] || . $here/meanwhile;; esac
"""

SOURCE = "src/ATen/native/TpX.cpp"
# Its object contains the text VALUE=, and the value.
TEXT = """#define STRING(value) "VALUE=" #value
#define STRING_OF(value) STRING(value)
extern const char value[] = STRING_OF(VAL);
"""


@dataclass
class Real:
    """A build of one source."""

    build: Build
    here: Path

    def source(self, text: str) -> None:
        self.build.write(SOURCE, text + TEXT)

    def write(self, name: str, text: str, time: int = 1_577_836_800) -> Path:
        """Write a file that is as old as a package's: of the native folder, or elsewhere."""
        folder = self.build.layout.work / "src/ATen" if name.startswith("native/") else self.here
        path = write(folder, {name: text}) / name
        os.utime(path, (time, time))
        return path

    def meanwhile(self, script: str) -> None:
        """Run a script whenever a source was compiled, until it deletes itself."""
        self.write("meanwhile", script)

    def value(self) -> str:
        """Build. Return the value."""
        self.build.run()
        data = (self.build.layout.work / "objects/TpX.o").read_bytes()
        return data.partition(b"VALUE=")[2].partition(b"\0")[0].decode()

    def values(self) -> tuple[str, int]:
        """Build. Return the value, and how often something was compiled."""
        return self.value(), len(self.build.calls())


@pytest.fixture
def real(build: Build, tmp_path: Path) -> Real:
    here = tmp_path / "here"
    (here / "system").mkdir(parents=True)
    wrapper = program(here / "g++", WRAPPER.format(here=here))
    build.compiler, build.toolchain = Compiler(str(wrapper)), replace(GXX, compiler=str(wrapper))
    folders = [write(here / name, {"none": ""}) for name in ("first", "second")]
    build.layout = replace(build.layout, extra=extra_flags(None, None, folders))
    build.units = [Unit(Path(SOURCE), Path("objects/TpX.o"), tuple(f"-I{folder}" for folder in folders))]
    return Real(build, here)


OR_NONE = "#ifndef VAL\n#define VAL none\n#endif\n"


def asking(name: str) -> str:
    return f"#if __has_include({name})\n#define VAL there\n#endif\n"


@pytest.mark.parametrize(
    ("source", "others", "found"),
    [
        # The folder has another one of this name, which the source does not find.
        ('#include "omp.h"\n', {"native/cpu/omp.h": "#define VAL 1\n"}, "native/omp.h"),
        ("#include <omp.h>\n", {}, "system/omp.h"),
        ("#include <omp.h>\n", {"second/omp.h": ""}, "first/omp.h"),  # settings have such folders
        ('#include "{here}/lib/mine.h"\n', {"lib/mine.h": '#include "omp.h"\n'}, "lib/omp.h"),
        (asking('"opt.h"'), {}, "native/opt.h"),
        (asking("<opt.h>"), {}, "system/opt.h"),
        (asking('"lib/opt.h"'), {}, "native/lib/opt.h"),
        (asking("<ATen/native/opt.h>"), {}, "native/opt.h"),
        ("#include <asks.h>\n", {"system/asks.h": asking("<opt.h>")}, "system/opt.h"),
    ],
)
def test_header_that_would_be_found_first_or_is_asked_for(
    real: Real, source: str, others: dict[str, str], found: str
) -> None:
    """Instead of g++'s own omp.h, in whose place a folder that is searched earlier may have one."""
    for name, text in others.items():
        real.write(name, text)
    real.source(source.format(here=real.here) + OR_NONE)
    assert real.value() == "none"
    header = real.write(found, "#define VAL 3\n")
    assert real.value() == ("3" if found.endswith("omp.h") else "there")
    header.unlink()
    assert real.values() == ("none", 0)


def test_name_that_is_computed_is_asked_for_each_time(real: Real) -> None:
    real.source(f'#define OPT "opt.h"\n{asking("OPT")}{OR_NONE}')
    assert real.value() == "none"
    assert real.build.outside and not real.build.outside.is_as_read(real.build.layout.work)
    real.write("native/opt.h", "")
    assert real.value() == "there"
    assert real.values() == ("there", 1)


def including(header: Path) -> str:
    return f'#include "{header}"\n'


@pytest.fixture
def header(real: Real) -> Path:
    """A header elsewhere that the source includes."""
    header = real.write("f.h", "#define VAL 1\n")
    real.source(including(header))
    return header


def add_other(real: Real, text: str) -> None:
    """Add another source."""
    real.write("native/Other.cpp", text)
    real.build.units.append(Unit(Path("src/ATen/native/Other.cpp"), Path("objects/Other.o")))


# Replaces the header by another, which is as old, and is not run again.
REPLACE = """cp -p $here/next.h $here/renamed.h; mv $here/renamed.h $here/f.h; rm $here/meanwhile
"""
GO_ON = 'echo "#define VAL $(date +%N)" >$here/f.h\n'


def test_header_that_changes_while_it_is_compiled(real: Real, header: Path) -> None:
    real.write("next.h", "#define VAL 2\n")
    real.meanwhile(REPLACE)
    assert real.values() == ("2", 2)
    assert real.values() == ("2", 0)
    before, work = real.build.outside, real.build.layout.work
    assert before and before.is_as_read(work)
    real.write("f.h", "#define VAL 1\n")
    assert not before.is_as_read(work)
    assert real.values() == ("1", 1)
    assert real.build.outside and real.build.outside.is_as_read(work)


def test_header_that_appears_while_it_is_asked_for(real: Real) -> None:
    real.source(asking("<opt.h>") + OR_NONE)
    real.meanwhile("touch $here/system/opt.h; rm $here/meanwhile\n")
    assert real.values() == ("there", 2)


def test_header_that_no_object_has_any_more_may_change(real: Real, header: Path) -> None:
    """And go on changing: it was looked at before."""
    assert real.value() == "1"
    real.source("#define VAL 2\n")
    real.meanwhile(GO_ON)
    assert real.value() == "2"
    assert real.value() == "2"


def test_header_that_changes_while_nothing_is_compiled(real: Real, header: Path, monkeypatch: Patch) -> None:
    assert real.value() == "1"
    run, texts = ninja.run, iter(range(2, 9))

    def changing(*given: Any) -> tuple[bool, list[str]]:
        header.write_text(f"#define VAL {next(texts)}\n")
        return run(*given)

    with monkeypatch.context() as meanwhile:
        meanwhile.setattr(ninja, "run", changing)
        real.value()
    assert real.value() == header.read_text().split()[-1]


def test_header_that_changes_again_and_again_is_told(real: Real, header: Path, capsys: Capture) -> None:
    real.meanwhile(GO_ON)
    assert real.values()[1] == 3
    assert f"{header}: it changes while it is compiled" in capsys.readouterr().err
    (real.here / "meanwhile").unlink()
    header.write_text("#define VAL 7\n")
    assert real.value() == "7"


def test_header_that_was_linked_again_is_the_same(real: Real, header: Path) -> None:
    """As `uv` and `make develop` do with hard links, which changes the time of its inode."""
    assert real.value() == "1"
    real.meanwhile("ln $here/f.h $here/other.h; rm $here/meanwhile\n")
    add_other(real, including(header))
    assert real.values() == ("1", 1)


def test_link_that_leads_to_another_header(real: Real) -> None:
    first, second = (real.write(f"{number}.h", f"#define VAL {number}\n") for number in (1, 2))
    link = real.here / "f.h"
    link.symlink_to(first)
    real.source(including(link))
    real.meanwhile(f"ln -sfn {second} $here/f.h; rm $here/meanwhile\n")
    assert real.value() == "2"


def test_time_that_goes_back_after_a_failed_build(real: Real, header: Path) -> None:
    add_other(real, "")
    assert real.value() == "1"
    real.write("f.h", "#define VAL 2\n", 1_577_923_200)
    real.write("native/Other.cpp", "wrong\n")
    with pytest.raises(BuildError):
        real.value()
    real.write("f.h", "#define VAL 1\n")
    real.write("native/Other.cpp", "")
    assert real.values() == ("1", 0)


def test_time_that_goes_back_after_a_killed_build(real: Real, header: Path) -> None:
    """Its objects are there, and nothing was noted."""
    assert real.value() == "1"
    for path in (*real.build.layout.work.glob("objects/*.json"), *incremental.objects_of_all().glob("*/*")):
        path.unlink()
    real.write("f.h", "#define VAL 2\n", 1_577_750_400)
    assert real.value() == "2"


EMBEDDED = 'asm(".section .rodata\\n.incbin \\"{data}\\"\\n.byte 0\\n.text\\n");\n'
# Its name is computed, so that it is read each time.
COMPUTED = '#define DATA "{data}"\nasm(".data\\n.incbin \\"" DATA "\\"\\n.byte 0\\n.text\\n");\n'


@pytest.mark.parametrize(("source", "compiles"), [(EMBEDDED, 0), (COMPUTED, 1)])
def test_data_that_a_source_embeds(real: Real, source: str, compiles: int) -> None:
    data = real.write("weights.bin", "VALUE=first")
    real.build.write(SOURCE, source.format(data=data))
    assert real.value() == "first"
    assert real.values() == ("first", compiles)
    data.write_text("VALUE=second")
    assert real.value() == "second"


def test_date_is_the_first_of_a_wheel_s_members(real: Real) -> None:
    """So that the same inputs give the same bytes."""
    real.build.write(SOURCE, 'extern const char value[] = "VALUE=" __DATE__ " " __TIME__;\n')
    assert real.value() == "Jan  1 1980 00:00:00"


def test_depfile_of_a_compiler(tmp_path: Path) -> None:
    """In several lines, with the characters that make's syntax escapes. Folders elsewhere may be links."""
    names = ["a b.h", "c#d.h", "e$f.h", "g\\h.h", f"deep/{'i' * 80}.h", "deep/../j.h", "deep/./k.h"]
    names.append(f"{tmp_path}/deep/../l.h")
    includes = "".join(f'#include "{name}"\n' for name in names)
    write(tmp_path, {**dict.fromkeys(names, ""), "a.cpp": includes, "empty.d": ""})
    subprocess.run(["g++", "-MD", "-MF", "a.d", "-c", "a.cpp", "-o", "a.o"], cwd=tmp_path, check=True)
    assert {*names[:5], "j.h", "deep/k.h", names[-1], "a.cpp"} < {*inputs_of(tmp_path / "a.d")}
    assert inputs_of(tmp_path / "empty.d") == []
