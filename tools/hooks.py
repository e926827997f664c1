"""Write what follows from the hook specs: their reference for authors, and the recorded hook API.

`python tools/hooks.py` after a change of `hermes_core/hookspecs.py`. A test fails until then.
"""

from __future__ import annotations

import inspect
import json
import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
sys.path.insert(0, str(ROOT))

from hermes_core import hookspecs  # noqa: E402
from hermes_core.hookkinds import AdapterHook, Collect, Decide, Notify, Spec  # noqa: E402

REFERENCE = ROOT / "docs" / "hooks.md"
RECORD = ROOT / "tests" / "plugins" / "hook_api.json"

_KINDS: tuple[type[Spec[..., object]], ...] = (Collect, AdapterHook, Decide, Notify)
_INTRODUCTION = f"""\
# Hooks

Every point at which a plugin can join in, as of hook API {hookspecs.HOOK_API}. Written from
`hermes_core/hookspecs.py` by `python tools/hooks.py`; do not edit. [plugins.md](plugins.md) is the
manual; `hermes hooks list` shows the same with who implements what on your machine.

An implementation is a function of the hook's name that is marked `@hookimpl`. It takes any of the
arguments, by name, and may be plain or `async def` unless stated otherwise.
"""


def reference() -> str:
    """The text of `docs/hooks.md`."""
    pages = [_INTRODUCTION]
    for kind in _KINDS:
        pages.append(f"## {kind.kind.capitalize()} hooks\n\n{_prose(kind.__doc__)}\n")
        pages += [_entry(spec) for spec in hookspecs.ALL.values() if isinstance(spec, kind)]
    return "\n".join(pages)


def record() -> str:
    """The hook API as JSON text: what must not change without a new version of it."""
    hooks = {name: _facts(spec) for name, spec in hookspecs.ALL.items()}
    return json.dumps({"version": hookspecs.HOOK_API, "hooks": hooks}, indent=2) + "\n"


def _entry(spec: Spec[..., object]) -> str:
    signature = inspect.signature(spec.function)
    facts = [f"Since {spec.since}."]
    if spec.limit is not None:
        facts.append(f"Time limit of an async implementation: {spec.limit:g} s.")
    if isinstance(spec, Decide):
        facts.append("A failure refuses." if spec.closed else "A failure is passed over.")
    return (
        f"### {spec.name}({', '.join(signature.parameters)})\n\n"
        f"```python\ndef {spec.name}{_unquoted(signature)}: ...\n```\n\n"
        f"{_prose(spec.doc)}\n\n{' '.join(facts)}\n"
    )


def _facts(spec: Spec[..., object]) -> dict[str, object]:
    signature = inspect.signature(spec.function)
    return {
        "kind": spec.kind,
        "since": spec.since,
        "limit": spec.limit,
        "closed": spec.closed,
        "arguments": {
            name: str(parameter).partition(": ")[2].replace("'", "")
            for name, parameter in signature.parameters.items()
        },
        "returns": str(signature.return_annotation),
    }


def _unquoted(signature: inspect.Signature) -> str:
    return str(signature).replace("'", "")


def _prose(text: str | None) -> str:
    return inspect.cleandoc(text or "").replace("``", "`")


def main() -> None:
    """Write both files."""
    REFERENCE.write_text(reference(), encoding="utf-8")
    RECORD.write_text(record(), encoding="utf-8")


if __name__ == "__main__":
    main()
