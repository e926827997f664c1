"""The list of known failures and the tests that are marked with its ids agree."""

from __future__ import annotations

import ast
import re
from collections import defaultdict
from pathlib import Path

ROOT = Path(__file__).parents[1]
LIST = ROOT / "docs" / "cases.md"
PLACES = ("tests", "plugins/*/tests", "contrib/*/tests")
NUMBER = 148
"""How many cases the list was made of. It may grow; it does not shrink."""


def listed() -> dict[str, str]:
    """What the list says about each case: its files, or the reason why there is none."""
    rows = re.findall(
        r"^\| ([A-Z]{2}-\d\d) \| [^|]+ \| ([^|]+) \|$", LIST.read_text(), re.MULTILINE
    )
    assert len({case for case, _ in rows}) == len(rows), "a case is listed twice"
    return dict(rows)


def files(text: str) -> set[str]:
    return set(re.findall(r"`([^`]+)`", text))


def marked() -> dict[str, set[str]]:
    """The files that have a test of each case."""
    found: dict[str, set[str]] = defaultdict(set)
    for place in PLACES:
        for path in sorted(file for top in ROOT.glob(place) for file in top.rglob("*.py")):
            for case in _cases(ast.parse(path.read_bytes())):
                found[case].add(str(path.relative_to(ROOT)))
    return found


def _cases(tree: ast.Module) -> list[str]:
    return [
        node.args[0].value
        for node in ast.walk(tree)
        if isinstance(node, ast.Call)
        and isinstance(node.func, ast.Attribute)
        and node.func.attr == "case"
        and node.args
        and isinstance(node.args[0], ast.Constant)
        and isinstance(node.args[0].value, str)
    ]


def test_the_list_is_whole() -> None:
    assert len(listed()) >= NUMBER


def test_every_marker_names_a_case_of_the_list_that_says_so() -> None:
    known = listed()
    assert {case: sorted(where) for case, where in marked().items() if case not in known} == {}
    silent = [case for case in marked() if not files(known[case])]
    assert silent == [], f"{LIST.name} does not say where these are tested"


def test_every_file_that_the_list_names_has_a_test_of_the_case() -> None:
    found = marked()
    missing = {case: files(text) - found[case] for case, text in listed().items()}
    assert {case: sorted(names) for case, names in missing.items() if names} == {}


def test_a_case_without_a_test_has_one_of_the_two_reasons() -> None:
    for case, text in listed().items():
        if files(text):
            continue
        decision = re.fullmatch(r"\[[^\]]+\]\((decisions/[^)]+\.md)\)", text)
        if decision is not None:
            assert (LIST.parent / decision[1]).is_file(), case
        else:
            assert re.fullmatch(r"\*with [a-zA-Z ]+\*", text), f"{case}: {text}"
