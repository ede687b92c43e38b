"""The snippets of the pages, run literally: commands in a home of their own, Python with the wheel under test."""

from __future__ import annotations

import re
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
from graft.base.find import FOUND, default_release
from helpers import of_the_base_wheel, write
from place import Place
from snippets import REPOSITORY, Snippet, documents, snippets_of

SNIPPETS = [snippet for path in documents() for snippet in snippets_of(path)]
FILES = {name: text for snippet in SNIPPETS for name, text in snippet.files.items()}
SHOWN = {snippet.file for snippet in SNIPPETS}


def by_place(snippets: list[Snippet]) -> list[object]:
    return [pytest.param(each, id=each.place) for each in snippets]


@pytest.fixture(scope="module")
def user(plain: Place, base: Path) -> Iterator[Place]:
    """A user who reads from the top: later snippets use what earlier ones create."""
    pin, default = base.parents[1].name, default_release(REPOSITORY / "patches")
    if pin != f"{default}+cpu" and not (base / FOUND).is_file():
        pytest.skip("the README's commands are for another torch than this one")
    others = {name.removeprefix("~/"): text for name, text in FILES.items() if not name.startswith("~/my_ops/")}
    write(plain.home, others)
    with plain.edited({}):
        yield plain


TYPED = [each for each in SNIPPETS if not (each.reason or each.is_nightly or each.is_cell)]


@pytest.mark.parametrize("snippet", by_place(TYPED))
def test_snippet_works(snippet: Snippet, user: Place) -> None:
    if snippet.file:
        name = Path(snippet.file).relative_to("~")
        assert snippet.text in (user.home / name).read_text(encoding="utf-8")
    elif snippet.tag == "bash":
        done = user.run(["bash", "-euc", snippet.text])
        assert (done.code != 0) == ("# fails" in snippet.text), done.said
    elif snippet.tag == "python":
        done = user.run([sys.executable, "-W", "error", "-c", snippet.text])
        assert done.code == 0, done.said
    else:
        pytest.fail(f"{snippet.place}: say what it is, by <!-- file: NAME --> or <!-- not run: REASON --> before it")


@pytest.mark.parametrize("snippet", by_place([each for each in SNIPPETS if each.reason]))
def test_what_runs_a_snippet_instead_has_its_words(snippet: Snippet) -> None:
    """Commands are typed; other text that is not run may be for readers alone."""
    files = [REPOSITORY / name for name in re.findall(r"(?:tests|native)/[\w/]+\.\w+", snippet.reason)]
    texts = [words(path.read_text(encoding="utf-8")) for path in files]
    assert texts or snippet.tag != "bash", f"no test types this; write <!-- by night -->: {snippet.text}"
    if texts:
        missing = [line for line in map(words, without_comments(snippet)) if not any(line in each for each in texts)]
        assert not missing, f"{', '.join(map(str, files))}: these words are not there"


def words(text: str) -> str:
    """Return a text with one space between its words."""
    return " ".join(text.split())


def without_comments(snippet: Snippet) -> list[str]:
    """Return the lines of a snippet that are no comments."""
    mark = {"cpp": "//"}.get(snippet.tag, "#")
    lines = [re.sub(rf"(^|\s+){mark}\s.*", "", line) for line in snippet.text.splitlines()]
    return [line for line in lines if line.strip()]


def test_readmes_show_every_command_of_make() -> None:
    shown = {name for each in SNIPPETS if each.is_typed for name in re.findall(r"^make ([a-z-]+)", each.text, re.M)}
    help_ = subprocess.run(["make", "ARGS="], cwd=REPOSITORY, stdout=subprocess.PIPE, text=True, check=True).stdout
    listed = set(re.findall(r"^  make ([a-z-]+) ", help_, re.M))
    assert listed - {"help"} == shown


def test_commands_after_an_edit_name_tests() -> None:
    table = (REPOSITORY / "tests/README.md").read_text(encoding="utf-8").split("\n## ")[1]
    words = {word for chosen in re.findall(r"-k '?([\w ]+)", table) for word in chosen.split(" or ")}
    files = " ".join(path.name for path in (REPOSITORY / "tests").rglob("test_*.py"))
    assert words
    assert not [word for word in words if word not in files]


def joined(text: str) -> list[str]:
    """Join the lines of wrapped messages."""
    return re.sub(r"\n(?!\S+:\d+:)", " ", text.strip()).splitlines()


def test_mistakes_are_named_as_the_readme_shows(user: Place) -> None:
    (shown,) = (snippet.text for snippet in SNIPPETS if "did you mean `self`?" in snippet.text)
    mistakes = {
        "derivatives.yaml": FILES["~/my_ops/derivatives.yaml"].replace("  self:", "  slef:"),
        "SoftClip.cpp": FILES["~/my_ops/SoftClip.cpp"].replace(", const Scalar& limit) {", ") {"),
    }
    with user.edited(mistakes):
        done = user.run(user.command("check"))
    assert done.code == 1
    said = done.said.replace(f"{user.home}/my_ops/", "")
    for message in joined(shown):
        assert message in said


def test_script_runs_with_the_official_torch_and_saves_the_folder(base: Path, tmp_path: Path) -> None:
    place = Place(tmp_path / "place", base)
    place.variables["PYTHONPATH"] = f"{of_the_base_wheel('GRAFT_STOCK')}:{place.repository / 'scripts'}"
    write(place.home, {"soft_clip.py": FILES["~/soft_clip.py"]})
    # gradcheck's forward mode uses TorchScript.
    warnings: list[str | Path] = ["-W", "error", "-W", "ignore:`torch.jit:DeprecationWarning"]
    done = place.run([sys.executable, *warnings, place.home / "soft_clip.py"])
    assert done.code == 0 and "True" in done.said, done.said
    saved = {name: text for name, text in FILES.items() if name.startswith("~/my_ops/") and name not in SHOWN}
    assert {f"~/{path.relative_to(place.home)}" for path in (place.home / "my_ops").iterdir()} == {*saved}
    for name, text in saved.items():
        assert (place.home / name.removeprefix("~/")).read_text(encoding="utf-8") == text


def test_folder_that_ci_tests_is_the_one_that_is_shown(tmp_path: Path) -> None:
    script = REPOSITORY / "tests/readme_folder.py"
    subprocess.run([sys.executable, script, tmp_path / "my_ops"], check=True)
    assert {str(path.relative_to(tmp_path)) for path in tmp_path.rglob("*") if path.is_file()} == {
        name.removeprefix("~/") for name in FILES if name.startswith("~/my_ops/")
    }
