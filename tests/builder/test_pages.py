"""The pages: their form, their links, and that each says what no other says."""

from __future__ import annotations

import datetime
import json
import re
from collections import defaultdict
from collections.abc import Iterator
from pathlib import Path

import pytest
from helpers import write
from snippets import REPOSITORY, documents, guides, pages, snippets_of

from tests.kit.markdown import within, write_figures

TUTORIAL = REPOSITORY / "native/guides/tutorial.ipynb"
# What begins a sentence, or a cell of a table.
_SENTENCES = re.compile(r"(?<=[.:;]) (?=[A-Z`])|\n(?:\s*- )|\n\n|\|")
_FIGURE = re.compile(r"(?<![\w.-])\d[\d.,]*\d (?:us|s|MB|GB|%)(?!\w)")


def named(paths: list[Path]) -> list[object]:
    return [pytest.param(path, id=str(path.relative_to(REPOSITORY))) for path in paths]


def text_of(path: Path) -> str:
    """Return what a page says: without snippets and comments. A notebook's is that of its Markdown cells."""
    if path.suffix == ".ipynb":
        cells = json.loads(path.read_text(encoding="utf-8"))["cells"]
        return "\n\n".join("".join(cell["source"]) for cell in cells if cell["cell_type"] == "markdown")
    text = re.sub(r"^ *```.*?^ *```$", "", path.read_text(encoding="utf-8"), flags=re.M | re.S)
    return re.sub(r"<!--.*?-->", "", text)


def anchors(path: Path) -> set[str]:
    """Return the names that GitHub gives to the headings of a Markdown file."""
    headings = re.findall(r"^#+ (.*)", text_of(path), re.M)
    return {re.sub(r"[^\w -]", "", heading).lower().replace(" ", "-") for heading in headings}


def links(path: Path) -> Iterator[tuple[Path, str]]:
    """Yield the file and the heading of each link that leads into the repository."""
    for file, heading in re.findall(r"\]\((?!https?:)([^)#]*)#?([^)]*)\)", text_of(path)):
        yield path.parent / file if file else path, heading


@pytest.mark.parametrize("path", named([*documents(), TUTORIAL]))
def test_links_lead_to_files_and_headings(path: Path) -> None:
    for target, heading in links(path):
        assert target.exists(), target
        assert not heading or heading in anchors(target), f"{target}#{heading}"


@pytest.mark.parametrize("path", named([*guides(), TUTORIAL]))
def test_page_of_its_folder_leads_to_a_guide(path: Path) -> None:
    assert path in {target.resolve() for target, _ in links(path.parents[1] / "README.md")}


@pytest.mark.parametrize("path", named([REPOSITORY / "native/README.md", REPOSITORY / "scripts/README.md", *guides()]))
def test_page_says_what_the_reader_can_do_shows_an_example_and_ends_with_limits(path: Path) -> None:
    title, first, *_ = text_of(path).split("\n\n")
    assert title.startswith("# ") and first.startswith("After this page, ")
    assert [each for each in snippets_of(path) if not each.reason], "no test runs an example of this page"
    *_, last = re.findall(r"^## (.*)", text_of(path), re.M)
    assert last.startswith("Limits")


def test_readme_is_short() -> None:
    assert len((REPOSITORY / "README.md").read_text(encoding="utf-8").splitlines()) <= 130


def test_no_sentence_and_no_figure_stands_in_two_places() -> None:
    sentences, figures = defaultdict(list), defaultdict(set)
    for path in [*pages(), TUTORIAL, REPOSITORY / "SECURITY.md"]:
        name = str(path.relative_to(REPOSITORY))
        for sentence in _SENTENCES.split(text_of(path)):
            words = " ".join(sentence.split())
            if len(words) >= 60:
                sentences[words].append(name)
            for figure in _FIGURE.findall(words) if name != "tests/README.md" else ():
                figures[figure].add(name)
    assert {words: places for words, places in sentences.items() if len(places) > 1} == {}
    assert {figure: places for figure, places in figures.items() if len(places) > 1} == {}


def test_benchmark_writes_its_table_and_the_date_into_the_page(tmp_path: Path) -> None:
    page = write(tmp_path, {"a.md": "# A\n", "b.md": "x\n<!-- generated: calls -->\nold\n<!-- end -->\ny\n"}) / "b.md"
    write_figures("calls", "| new |\n", "2 cores", tmp_path)
    today = datetime.date.today().isoformat()
    assert page.read_text() == f"x\n<!-- generated: calls -->\n| new |\n\n2 cores, {today}.\n<!-- end -->\ny\n"


@pytest.mark.parametrize("name", ["calls", "inline", "operators", "builds"])
def test_pages_have_a_dated_place_for_each_benchmark(name: str) -> None:
    texts = [path.read_text(encoding="utf-8") for path in guides()]
    (text,) = (each for each in texts if f"generated: {name} -->" in each)
    assert re.search(r"\n\n.*, 20\d\d-\d\d-\d\d\.\n$", within(text, name))
