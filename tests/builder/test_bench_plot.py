"""The picture that ``make bench`` draws of its results."""

from __future__ import annotations

import itertools
import re
from typing import Any
from xml.etree import ElementTree

import pytest

from tests.kit.bench.plot import plot

SVG = "{http://www.w3.org/2000/svg}"


def case(ratio: float, elements: int = 100, **more: Any) -> dict[str, Any]:
    return {
        "operator": "soft_clip",
        "peer": "torch.tanh",
        "name": f"{elements} elements",
        "step": "forward",
        "threads": 1,
        "ratio": ratio,
        "elements": elements,
        **more,
    }


def drawn(*cases: dict[str, Any]) -> ElementTree.Element:
    return ElementTree.fromstring(plot({"torch": "2.13.0", "processor": "an <X> & Y", "cases": list(cases)}))


def points(picture: ElementTree.Element) -> dict[str, tuple[float, float, bool]]:
    """Return where each point is in its panel, and whether it is red, by its title."""
    found = {}
    for each in (each for each in picture.iter() if each.get("class", "").startswith("point")):
        corner = (float(each.get("x", 0)) + 3, float(each.get("y", 0)) + 3)
        place = (float(each.get("cx", corner[0])), float(each.get("cy", corner[1])))
        title = each.find(f"{SVG}title")
        assert title is not None and title.text
        found[title.text] = (*place, each.get("class") == "point missed")
    return found


def even_line(picture: ElementTree.Element) -> float:
    """Return the height of the line where both are equally fast."""
    (line,) = (each for each in picture.iter() if each.get("class") == "even")
    match = re.match(r"M\S+ (\S+)h", line.get("d", ""))
    assert match
    return float(match[1])


def test_panel_for_each_operator_that_has_sizes() -> None:
    picture = drawn(
        case(2), case(2, operator="my_norm"), case(2, operator="models", elements=0), case(2, operator="replaced")
    )
    panels = picture.findall(f"{SVG}g")
    assert ["".join(panel.itertext()).split()[0] for panel in panels] == ["soft_clip", "my_norm"]
    places = [panel.get("transform") for panel in panels]
    assert len(set(places)) == 2
    assert picture.get("width") == "800"
    heads = ["".join(each.itertext()) for each in picture.findall(f"{SVG}text")]
    assert heads[1:] == ["1 thread, torch 2.13.0", "an <X> & Y"]
    assert max(map(len, heads)) <= 115  # of 13 pixels' height, in 800 pixels


def test_points_are_at_their_sizes_and_ratios() -> None:
    """On logarithmic scales: equal factors are equal distances. Above the line is faster than the peer."""
    picture = drawn(case(1, 10), case(4, 1000), case(0.25, 100_000), case(16, 1000, step="backward", name="back"))
    at, line = points(picture), even_line(picture)
    same, faster, slower = (
        at[f"{size} elements, forward: {ratio}"] for size, ratio in ((10, "1.00"), (1000, "4.00"), (100_000, "0.25"))
    )
    assert same[1] == pytest.approx(line, abs=0.1)
    assert line - faster[1] == pytest.approx(slower[1] - line, abs=0.2)
    assert line - at["back, backward: 16.00"][1] == pytest.approx(2 * (line - faster[1]), abs=0.3)
    assert faster[0] - same[0] == pytest.approx(slower[0] - faster[0], abs=0.2) and same[0] < faster[0]
    assert [each[2] for each in (same, faster, slower)] == [False, False, True]


def test_forward_and_backward_differ() -> None:
    picture = drawn(case(1), case(2, step="backward"))
    forward, backward = (
        [
            each.tag
            for each in picture.iter()
            if f", {step}" in "".join(each.itertext()) and "point" in each.get("class", "")
        ]
        for step in ("forward", "backward")
    )
    assert (forward, backward) == ([f"{SVG}circle"], [f"{SVG}rect"])


@pytest.mark.parametrize("ratios", [(1.0,), (0.99, 1.01), (0.03, 0.6), (1.1, 300), (0.2, 4000)])
@pytest.mark.parametrize("sizes", [(1, 1), (1, 3), (0, 2**26), (2**24, 2**26)])
def test_all_is_inside_and_numbers_do_not_meet(ratios: tuple[float, ...], sizes: tuple[int, int]) -> None:
    picture = drawn(*(case(ratio, size, name=f"{size} {ratio}") for ratio in ratios for size in sizes))
    (box,) = (each for each in picture.iter() if each.get("class") == "box")
    left, top, width, height = (float(box.get(name, "")) for name in ("x", "y", "width", "height"))
    for x, y, _ in points(picture).values():
        assert left - 0.1 <= x <= left + width + 0.1 and top - 0.1 <= y <= top + height + 0.1
    (panel,) = picture.findall(f"{SVG}g")
    labels = [each for each in panel.findall(f"{SVG}text") if each.get("text-anchor") != "start"]
    ratio_labels = [float(each.get("y", "")) for each in labels if each.get("text-anchor") == "end"]
    size_labels = [float(each.get("x", "")) for each in labels if each.get("text-anchor") == "middle"]
    assert "1" in [each.text for each in labels if each.get("text-anchor") == "end"]
    assert all(below - above >= 12 for below, above in itertools.pairwise(ratio_labels))
    assert all(right - at >= 40 for at, right in itertools.pairwise(size_labels))


def test_one_number_of_threads_is_drawn() -> None:
    assert list(points(drawn(case(2, threads=2), case(3, threads=1)))) == ["100 elements, forward: 3.00"]


def test_no_results_of_operators() -> None:
    assert not points(drawn(case(2, operator="replaced")))
