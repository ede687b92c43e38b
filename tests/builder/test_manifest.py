"""What a compiler looked for decides about an object. The compiler is g++, behind a script that changes files."""

from __future__ import annotations

import os
import subprocess
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
from faked_compiler import Build, Compiler
from graft.compile import ninja
from graft.compile.manifest import inputs_of
from graft.compile.units import Unit
from graft.core.errors import CompileError

# Adds a folder of headers, notes that it compiles, and runs the script `meanwhile` once a source was read.
WRAPPER = """#!/bin/sh
here={here}
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

    def own(self, name: str, text: str) -> Path:
        """Write a file of the native folder."""
        self.build.write(f"src/ATen/native/{name}", text)
        return self.build.layout.work / f"src/ATen/native/{name}"

    def outside(self, name: str, text: str, time: int = 1_577_836_800) -> Path:
        """Write a file elsewhere, as old as a package's."""
        path = self.here / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)
        os.utime(path, (time, time))
        return path

    def meanwhile(self, script: str) -> None:
        """Run a script whenever a source was compiled, until it deletes itself."""
        (self.here / "meanwhile").write_text(script)

    def value(self) -> str:
        """Build. Return the value."""
        self.build.run()
        data = (self.build.layout.work / "objects/TpX.o").read_bytes()
        return data.partition(b"VALUE=")[2].partition(b"\0")[0].decode()

    def compiles(self) -> int:
        """Return how often the last build compiled."""
        return len(self.build.calls())


@pytest.fixture
def real(build: Build, tmp_path: Path) -> Real:
    here = tmp_path / "here"
    (here / "system").mkdir(parents=True)
    wrapper = here / "g++"
    wrapper.write_text(WRAPPER.format(here=here))
    wrapper.chmod(0o755)
    build.compiler, build.searching = Compiler(str(wrapper)), str(wrapper)
    build.units = [Unit(Path(SOURCE), Path("objects/TpX.o"))]
    return Real(build, here)


OR_NONE = "#ifndef VAL\n#define VAL none\n#endif\n"


def test_header_that_hides_another_of_its_name(real: Real) -> None:
    """The folder has one already, which the source does not find."""
    real.own("cpu/omp.h", "#define VAL 1\n")
    real.source(f'#include "omp.h"\n{OR_NONE}')
    assert real.value() == "none"
    hiding = real.own("omp.h", "#define VAL 3\n")
    assert real.value() == "3"
    hiding.unlink()
    assert (real.value(), real.compiles()) == ("none", 0)


def test_header_of_the_system_that_hides_another(real: Real) -> None:
    """The script's folder is searched before the compiler's own."""
    real.source(f"#include <omp.h>\n{OR_NONE}")
    assert real.value() == "none"
    real.outside("system/omp.h", "#define VAL 3\n")
    assert real.value() == "3"


def test_header_beside_a_header_elsewhere_that_hides_another(real: Real) -> None:
    header = real.outside("lib/mine.h", f'#include "omp.h"\n{OR_NONE}')
    real.source(f'#include "{header}"\n')
    assert real.value() == "none"
    real.outside("lib/omp.h", "#define VAL 3\n")
    assert real.value() == "3"


ASKING = "#if __has_include({})\n#define VAL there\n#endif\n"


@pytest.mark.parametrize("name", ['"opt.h"', "<opt.h>", '"lib/opt.h"', "<ATen/native/opt.h>"])
def test_header_that_a_source_asks_for(real: Real, name: str) -> None:
    real.source(ASKING.format(name) + OR_NONE)
    assert real.value() == "none"
    folder = "lib/" if "lib" in name else ""
    header = real.outside("system/opt.h", "") if name == "<opt.h>" else real.own(f"{folder}opt.h", "")
    assert real.value() == "there"
    header.unlink()
    assert (real.value(), real.compiles()) == ("none", 0)


def test_header_that_a_header_elsewhere_asks_for(real: Real) -> None:
    real.outside("system/asks.h", ASKING.format("<opt.h>"))
    real.source(f"#include <asks.h>\n{OR_NONE}")
    assert real.value() == "none"
    real.outside("system/opt.h", "")
    assert real.value() == "there"


def test_name_that_is_computed_is_asked_for_each_time(real: Real) -> None:
    real.source(f'#define OPT "opt.h"\n{ASKING.format("OPT")}{OR_NONE}')
    assert real.value() == "none"
    assert real.build.outside and not real.build.outside.is_as_read(real.build.layout.work)
    real.own("opt.h", "")
    assert real.value() == "there"
    assert (real.value(), real.compiles()) == ("there", 1)


def including(header: Path) -> str:
    return f'#include "{header}"\n'


# Replaces the header by another, which is as old, and is not run again.
REPLACE = """cp -p $here/next.h $here/renamed.h; mv $here/renamed.h $here/f.h; rm $here/meanwhile
"""


def test_header_that_changes_while_it_is_compiled(real: Real) -> None:
    real.source(including(real.outside("f.h", "#define VAL 1\n")))
    real.outside("next.h", "#define VAL 2\n")
    real.meanwhile(REPLACE)
    assert (real.value(), real.compiles()) == ("2", 2)
    assert (real.value(), real.compiles()) == ("2", 0)
    real.outside("f.h", "#define VAL 1\n")
    assert (real.value(), real.compiles()) == ("1", 1)


def test_header_that_appears_while_it_is_asked_for(real: Real) -> None:
    real.source(ASKING.format("<opt.h>") + OR_NONE)
    real.meanwhile("touch $here/system/opt.h; rm $here/meanwhile\n")
    assert (real.value(), real.compiles()) == ("there", 2)


def test_header_that_no_object_has_any_more_may_change(real: Real, capsys: pytest.CaptureFixture[str]) -> None:
    """And go on changing: it was looked at before."""
    header = real.outside("f.h", "#define VAL 1\n")
    real.source(including(header))
    assert real.value() == "1"
    real.source("#define VAL 2\n")
    real.meanwhile('echo "#define VAL $(date +%N)" >$here/f.h\n')
    assert real.value() == "2"
    assert real.value() == "2"


def test_header_that_changes_while_nothing_is_compiled(real: Real, monkeypatch: pytest.MonkeyPatch) -> None:
    header = real.outside("f.h", "#define VAL 1\n")
    real.source(including(header))
    assert real.value() == "1"
    run, texts = ninja._run, iter(range(2, 9))

    def changing(*given: Any) -> bool:
        header.write_text(f"#define VAL {next(texts)}\n")
        return run(*given)

    with monkeypatch.context() as meanwhile:
        meanwhile.setattr(ninja, "_run", changing)
        real.value()
    assert real.value() == header.read_text().split()[-1]


def test_header_that_changes_again_and_again_is_told(real: Real, capsys: pytest.CaptureFixture[str]) -> None:
    header = real.outside("f.h", "#define VAL 1\n")
    real.source(including(header))
    real.meanwhile('echo "#define VAL $(date +%N)" >$here/f.h\n')
    real.value()
    assert real.compiles() == 3
    assert f"{header}: it changes while it is compiled" in capsys.readouterr().err
    (real.here / "meanwhile").unlink()
    header.write_text("#define VAL 7\n")
    assert real.value() == "7"


def test_header_that_was_linked_again_is_the_same(real: Real) -> None:
    """As `uv` and `make develop` do with hard links, which changes the time of its inode."""
    header = real.outside("f.h", "#define VAL 1\n")
    real.source(including(header))
    assert real.value() == "1"
    real.meanwhile("ln $here/f.h $here/other.h; rm $here/meanwhile\n")
    real.build.units.append(Unit(Path("src/ATen/native/Other.cpp"), Path("objects/Other.o")))
    real.own("Other.cpp", including(header))
    assert (real.value(), real.compiles()) == ("1", 1)


def test_link_that_leads_to_another_header(real: Real) -> None:
    first, second = (real.outside(f"{number}.h", f"#define VAL {number}\n") for number in (1, 2))
    link = real.here / "f.h"
    link.symlink_to(first)
    real.source(including(link))
    real.meanwhile(f"ln -sfn {second} $here/f.h; rm $here/meanwhile\n")
    assert real.value() == "2"


def test_time_that_goes_back_after_a_failed_build(real: Real) -> None:
    header = real.outside("f.h", "#define VAL 1\n", 1_577_836_800)
    real.source(including(header))
    real.build.units.append(Unit(Path("src/ATen/native/Other.cpp"), Path("objects/Other.o")))
    real.own("Other.cpp", "")
    assert real.value() == "1"
    real.outside("f.h", "#define VAL 2\n", 1_577_923_200)
    real.own("Other.cpp", "wrong\n")
    with pytest.raises(CompileError):
        real.value()
    real.outside("f.h", "#define VAL 1\n", 1_577_836_800)
    real.own("Other.cpp", "")
    assert (real.value(), real.compiles()) == ("1", 0)


def test_time_that_goes_back_after_a_killed_build(real: Real) -> None:
    """Its objects are there, and nothing was noted."""
    header = real.outside("f.h", "#define VAL 1\n", 1_577_836_800)
    real.source(including(header))
    assert real.value() == "1"
    work, store = real.build.layout.work, real.build.layout.store
    for path in (work / "objects").glob("*.json"):
        path.unlink()
    for path in store.glob("*/*"):
        path.unlink()
    real.outside("f.h", "#define VAL 2\n", 1_577_750_400)
    assert real.value() == "2"


def test_data_that_a_source_embeds(real: Real) -> None:
    data = real.outside("weights.bin", "VALUE=first")
    real.build.write(SOURCE, f'asm(".section .rodata\\n.incbin \\"{data}\\"\\n.byte 0\\n.text\\n");\n')
    assert real.value() == "first"
    assert (real.value(), real.compiles()) == ("first", 0)
    data.write_text("VALUE=second")
    assert real.value() == "second"


def test_data_whose_name_is_computed_is_read_each_time(real: Real) -> None:
    data = real.outside("weights.bin", "VALUE=first")
    real.build.write(SOURCE, f'#define DATA "{data}"\nasm(".data\\n.incbin \\"" DATA "\\"\\n.byte 0\\n.text\\n");\n')
    assert real.value() == "first"
    data.write_text("VALUE=second")
    assert real.value() == "second"


def test_date_is_that_of_a_wheel_s_members(real: Real) -> None:
    """So that the same inputs give the same bytes."""
    real.build.write(SOURCE, 'extern const char value[] = "VALUE=" __DATE__ " " __TIME__;\n')
    assert real.value() == "Jan  1 1980 00:00:00"


@pytest.mark.parametrize(
    ("text", "names"),
    [
        ("", []),
        ("a.o: a.cpp b.h\n", ["a.cpp", "b.h"]),
        ("a.o: a.cpp \\\n ../b/./c.h /d/../e.h \\\n f.h\n\nb.h:\n", ["a.cpp", "../b/c.h", "/d/../e.h", "f.h"]),
        ("a.o: a\\ $$b\\#.h c\\d.h\n", ["a $b#.h", "c\\d.h"]),
    ],
)
def test_names_in_a_depfile(tmp_path: Path, text: str, names: list[str]) -> None:
    (tmp_path / "a.d").write_text(text)
    assert inputs_of(tmp_path / "a.d") == names


def test_depfile_of_a_compiler(tmp_path: Path) -> None:
    """With the characters that make's syntax escapes."""
    odd = ["a b.h", "c#d.h", "e$f.h"]
    for name in odd:
        (tmp_path / name).write_text("")
    (tmp_path / "a.cpp").write_text("".join(f'#include "{name}"\n' for name in odd))
    subprocess.run(["g++", "-MD", "-MF", "a.d", "-c", "a.cpp", "-o", "a.o"], cwd=tmp_path, check=True)
    assert set(odd) < set(inputs_of(tmp_path / "a.d"))
