"""docs/architecture.md is true: rooms and their order, tables, where promises are kept."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator
from pathlib import Path

import hermes_core
from hermes_core.store.models import MODELS

CORE = Path(hermes_core.__file__).parent
PAGE = (CORE.parent / "docs" / "architecture.md").read_text(encoding="utf-8")


def first_cells(heading: str) -> list[list[str]]:
    """The names in the first column of the table under a heading, row by row."""
    section = PAGE.partition(f"\n## {heading}\n")[2].partition("\n## ")[0]
    rows = re.findall(r"^\| (`[^|]*) \|", section, re.MULTILINE)
    return [re.findall(r"`([^`]+)`", row) for row in rows]


def rooms() -> dict[str, int]:
    """The row of each room in the table."""
    return {
        name.removesuffix("/"): number
        for number, names in enumerate(first_cells("Rooms"))
        for name in names
    }


def modules() -> Iterator[tuple[str, Path]]:
    """Every module of the core, by its parts below `hermes_core`."""
    for path in sorted(CORE.rglob("*.py")):
        parts = path.relative_to(CORE).with_suffix("").parts
        yield ".".join(part for part in parts if part != "__init__"), path


def imports(path: Path, *, types: bool) -> set[str]:
    """The modules of the core that a module imports, with `types` also for its types alone."""
    found: set[str] = set()
    pending: list[ast.AST] = [ast.parse(path.read_text(encoding="utf-8"))]
    names = {name for name, _ in modules()}
    while pending:
        node = pending.pop()
        if isinstance(node, ast.If) and not types and ast.unparse(node.test) == "TYPE_CHECKING":
            continue
        if isinstance(node, ast.ImportFrom) and (node.module or "").startswith("hermes_core."):
            base = str(node.module).removeprefix("hermes_core.")
            inner = {f"{base}.{alias.name}" for alias in node.names}
            found |= (inner & names) or {base}
        pending.extend(ast.iter_child_nodes(node))
    return found


def test_every_room_is_on_the_map_and_nothing_else_is() -> None:
    there = {name.partition(".")[0] for name, _ in modules()} - {""}
    assert set(rooms()) == there


def test_rooms_import_from_their_row_and_from_those_above_it() -> None:
    place = rooms()
    for name, path in modules():
        for other in imports(path, types=False) if name else ():
            here, there = name.partition(".")[0], other.partition(".")[0]
            assert place[there] <= place[here], f"{name} imports {other}"


def test_no_modules_import_each_other_in_a_circle() -> None:
    waiting = {name: imports(path, types=True) - {name} for name, path in modules()}
    while free := [name for name, needed in waiting.items() if not needed & waiting.keys()]:
        for name in free:
            del waiting[name]
    assert not waiting


def test_every_table_is_described() -> None:
    described = {name for names in first_cells("State") for name in names}
    assert described == {model._meta.table_name for model in MODELS}


def test_the_places_where_promises_are_kept_exist() -> None:
    section = PAGE.partition("\n## Where the promises are kept\n")[2]
    names = re.findall(r"`([a-z_]+(?:[./][A-Za-z_]+)*)/?`", section)
    assert len(names) > 20
    for name in names:
        module, symbols = resolved(name)
        text = module.read_text(encoding="utf-8")
        for symbol in symbols:
            assert re.search(rf"\b{symbol}\b", text), name


def resolved(name: str) -> tuple[Path, list[str]]:
    """The file of a dotted name, and what is named inside of it."""
    parts = re.split(r"[./]", name)
    for count in range(len(parts), 0, -1):
        path = CORE.joinpath(*parts[:count])
        if path.with_suffix(".py").exists():
            return path.with_suffix(".py"), parts[count:]
        if (path / "__init__.py").exists():
            return path / "__init__.py", parts[count:]
    raise AssertionError(f"{name} is nowhere")
