"""`make docs`: every relative link of a page leads to a file, every anchor to a heading."""

from __future__ import annotations

import re
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
_LINK = re.compile(r"(?<!!)\[[^\]]*\]\((?!\w+:)(?P<path>[^)#\s]*)(?:#(?P<anchor>[^)\s]*))?\)")
_FENCE = re.compile(r"^(```|~~~).*?^\1", re.MULTILINE | re.DOTALL)
_HEADING = re.compile(r"^#+\s+(.*?)\s*$", re.MULTILINE)


def pages() -> list[Path]:
    """The Markdown files that git knows or would add."""
    command = ["git", "ls-files", "-z", "--cached", "--others", "--exclude-standard", "*.md"]
    listed = subprocess.run(command, cwd=ROOT, check=True, capture_output=True, text=True).stdout
    return [ROOT / name for name in sorted(set(listed.split("\0"))) if (ROOT / name).is_file()]


def prose(page: Path) -> str:
    """The text of a page without its fenced examples."""
    return _FENCE.sub("", page.read_text(encoding="utf-8"))


def anchors(page: Path) -> set[str]:
    """The anchors of a page's headings, as GitHub makes them."""
    headings = (heading.lower() for heading in _HEADING.findall(prose(page)))
    return {re.sub(r"[^\w\- ]", "", heading).replace(" ", "-") for heading in headings}


def broken_links(page: Path) -> Iterator[str]:
    """One line for each link of `page` that leads nowhere."""
    for link in _LINK.finditer(prose(page)):
        target = (page.parent / link["path"]).resolve() if link["path"] else page
        if not target.exists():
            yield f"{page.relative_to(ROOT)}: {link[0]} leads to no file"
        elif link["anchor"] and target.suffix == ".md" and link["anchor"] not in anchors(target):
            yield f"{page.relative_to(ROOT)}: {link[0]} leads to no heading"


def main() -> int:
    """Print the broken links; 1 if there are any."""
    checked = pages()
    broken = [line for page in checked for line in broken_links(page)]
    for line in broken:
        print(line, file=sys.stderr)
    print(f"{len(checked)} pages, {len(broken)} broken links")
    return 1 if broken else 0


if __name__ == "__main__":
    sys.exit(main())
