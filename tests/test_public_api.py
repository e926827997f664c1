"""What `import hermes_core` promises, and what it costs."""

from __future__ import annotations

import importlib
import re
import subprocess
import sys
import typing

import hermes_core
from hermes_core import hookspecs


def loaded_by(statement: str) -> set[str]:
    """The top-level modules that a fresh interpreter has after `statement`."""
    code = f"{statement}; import sys; print(*{{name.partition('.')[0] for name in sys.modules}})"
    done = subprocess.run([sys.executable, "-c", code], check=True, capture_output=True, text=True)
    return set(done.stdout.split())


def test_every_public_name_is_there() -> None:
    for name in hermes_core.__all__:
        assert getattr(hermes_core, name) is not None
        assert name in dir(hermes_core)


def test_the_import_alone_loads_no_library() -> None:
    added = loaded_by("import hermes_core") - loaded_by("pass")
    assert added - sys.stdlib_module_names == {"hermes_core"}


def test_the_public_names_load_only_the_values_and_the_registry() -> None:
    heavy = {"peewee", "watchfiles", "click", "asyncio", "ssl", "http", "sqlite3", "aiohttp"}
    assert not heavy & loaded_by("from hermes_core import Adapter, hookimpl")


def test_unknown_names_are_attribute_errors() -> None:
    module = importlib.import_module("hermes_core")
    assert not hasattr(module, "nothing_of_that_name")


def test_every_type_in_the_signature_of_a_hook_is_public() -> None:
    annotations = [
        annotation
        for spec in hookspecs.ALL.values()
        for annotation in spec.function.__annotations__.values()
    ]
    named = set(re.findall(r"\b[A-Z]\w+", " ".join(map(str, annotations))))
    pythons = {name for name in named if hasattr(typing, name) or name == "None"}
    assert "Outbound" in named
    assert named - pythons <= set(hermes_core.__all__)
