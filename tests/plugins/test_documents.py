"""The pages about plugins say what is so, and the hook API does not change by accident."""

from __future__ import annotations

import json
import re
from pathlib import Path

import hermes_core.plugins as package
from hermes_core import hookspecs
from hermes_core.plugins import inspection, ledger, load, workers
from tests.plugins.support import Installer
from tools import hooks as generated

ROOT = Path(__file__).parents[2]
PAGE = (ROOT / "docs" / "plugins.md").read_text(encoding="utf-8")


def test_the_reference_is_that_of_the_specs() -> None:
    hint = "run `python tools/hooks.py`"
    assert generated.REFERENCE.read_text(encoding="utf-8") == generated.reference(), hint


def test_every_hook_has_a_heading() -> None:
    page = generated.REFERENCE.read_text(encoding="utf-8")
    headings = set(re.findall(r"^### (.+)$", page, re.MULTILINE))
    assert headings == {
        f"{name}({', '.join(inspection.parameters(spec.function))})"
        for name, spec in hookspecs.ALL.items()
    }


def test_the_hook_api_is_the_recorded_one() -> None:
    """A removal needs a new first number of HOOK_API, an addition a new second number."""
    recorded = json.loads(generated.RECORD.read_text(encoding="utf-8"))
    assert json.loads(generated.record()) == recorded, "then run `python tools/hooks.py`"


def test_no_hook_is_newer_than_the_hook_api() -> None:
    def number(version: str) -> tuple[int, ...]:
        return tuple(int(part) for part in version.split("."))

    newest = max(number(spec.since) for spec in hookspecs.ALL.values())
    assert newest <= number(hookspecs.HOOK_API)


def test_the_examples_are_plugins(site: Installer) -> None:
    sources = re.findall(r"```python\n(.+?)```", PAGE, re.DOTALL)
    (requirement,) = re.findall(r'dependencies = \["(.+)"\]', PAGE)
    plugins = [source for source in sources if "@hookimpl" in source]
    for name, source in zip(("line", "cleaner", "tally"), plugins, strict=True):
        site.install(f"hermes-plugin-{name}", requires=[requirement])
        (site.directory / f"hermes_plugin_{name}.py").write_text(source)
    loaded = load(path=site.path)
    assert not loaded.quarantined
    assert list(loaded.platforms) == ["line"]
    assert list(loaded.agents) == ["cleaner"]
    assert list(loaded.services) == ["tally"]
    assert list(loaded.sections) == ["tally"]


def test_the_numbers_are_those_of_the_code() -> None:
    assert f"| {ledger.FAILURES} failures" in PAGE
    assert f"left out for {ledger.PAUSE:g} s" in PAGE
    assert f"| {ledger.MAX_ABANDONED} late calls" in PAGE
    assert f"| {workers.QUEUE:,} notifications" in PAGE


def test_the_public_names_are_sorted_and_exist() -> None:
    assert package.__all__ == sorted(package.__all__)
    for name in package.__all__:
        assert getattr(package, name) is not None
