"""Markdown to what Telegram shows: a text and spans of it.

No Markdown is sent, so there is nothing that Telegram could fail to parse. What it cannot show is
left as it was written: tables as preformatted text, images and odd links with their address.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import Literal
from urllib.parse import urlsplit

import msgspec
from markdown_it import MarkdownIt
from markdown_it.token import Token
from markdown_it.tree import SyntaxTreeNode

from hermes_core import utf16_length

Kind = Literal["bold", "italic", "strikethrough", "code", "pre", "text_link", "blockquote"]

_STYLES: dict[str, Kind] = {"strong": "bold", "em": "italic", "s": "strikethrough"}
_SCHEMES = frozenset({"http", "https", "tg", "mailto", "tel"})
_RULE = "———"
MAX_DEPTH = 50
"""Nesting beyond this is no formatting but an accident, or an attempt to exhaust the stack."""
_parser = (
    MarkdownIt("commonmark", {"html": False})
    .enable(["table", "strikethrough"])
    .disable("lheading")  # a line of dashes below a text is meant as a rule
)


class Span(msgspec.Struct, frozen=True):
    """A part of the text, in UTF-16 code units, and how it is shown."""

    kind: Kind
    offset: int
    length: int
    url: str | None = None
    language: str | None = None


class Rendered(msgspec.Struct, frozen=True):
    """What to send: `text` and the spans of it, outermost first."""

    text: str
    spans: tuple[Span, ...] = ()


def render(markdown: str) -> Rendered:
    """Markdown as Telegram shows it. Never longer than `markdown`, and blank only if that is."""
    tokens = _parser.parse(markdown)
    if _depth(tokens) > MAX_DEPTH:
        return Rendered(markdown)
    writer = _Writer()
    _Document(markdown, writer).blocks(SyntaxTreeNode(tokens).children)
    rendered = writer.result()
    if not rendered.text.strip() or utf16_length(rendered.text) > utf16_length(markdown):
        return Rendered(markdown)
    return rendered


def _depth(tokens: Sequence[Token]) -> int:
    levels = [piece.level for token in tokens for piece in token.children or ()]
    return max([*levels, *(token.level for token in tokens)], default=0)


class _Open(msgspec.Struct):
    kind: Kind
    start: int
    url: str | None = None
    language: str | None = None


class _Writer:
    """Collects text, and the spans that are open over it."""

    def __init__(self) -> None:
        self._pieces: list[str] = []
        self._at = 0
        self._open: list[_Open] = []
        self._spans: list[Span] = []

    def write(self, text: str) -> None:
        self._pieces.append(text)
        self._at += utf16_length(text)

    def has(self, kind: Kind) -> bool:
        return any(span.kind == kind for span in self._open)

    @contextmanager
    def span(
        self, kind: Kind, *, url: str | None = None, language: str | None = None
    ) -> Iterator[None]:
        """Everything written inside is shown as `kind`. The same kind within itself is one."""
        if self.has(kind):
            yield
            return
        self._open.append(_Open(kind, self._at, url, language))
        yield
        self._close(self._open.pop())

    @contextmanager
    def alone(self, kind: Literal["code", "pre"], *, language: str | None = None) -> Iterator[None]:
        """Code can neither contain anything nor be inside: what is open is interrupted."""
        interrupted, self._open = self._open, []
        for span in interrupted:
            self._close(span)
        with self.span(kind, language=language):
            yield
        for span in interrupted:
            span.start = self._at
        self._open = interrupted

    def _close(self, span: _Open) -> None:
        if length := self._at - span.start:
            self._spans.append(Span(span.kind, span.start, length, span.url, span.language))

    def result(self) -> Rendered:
        """The text without white space at its end, and the spans that are left of it."""
        text = "".join(self._pieces).rstrip()
        end = utf16_length(text)
        spans = [
            msgspec.structs.replace(span, length=min(span.length, end - span.offset))
            for span in self._spans
            if span.offset < end
        ]
        return Rendered(text, tuple(sorted(spans, key=lambda span: (span.offset, -span.length))))


class _Document:
    """Walks the tree of one Markdown text."""

    def __init__(self, source: str, writer: _Writer) -> None:
        self._lines = source.split("\n")
        self._writer = writer

    def blocks(self, nodes: Sequence[SyntaxTreeNode], indent: str = "") -> None:
        """Blocks one below the other, with the blank lines that the author put between them."""
        for number, node in enumerate(nodes):
            if number:
                self._writer.write(self._gap(node) + indent)
            self._block(node, indent)

    def _gap(self, node: SyntaxTreeNode) -> str:
        first = node.map[0] if node.map else 0
        before = self._lines[first - 1] if 0 < first <= len(self._lines) else "-"
        return "\n" if before.strip(" \t>") else "\n\n"

    def _block(self, node: SyntaxTreeNode, indent: str) -> None:
        match node.type:
            case "paragraph":
                self._inline(node.children, indent)
            case "heading":
                with self._writer.span("bold"):
                    self._inline(node.children, indent)
            case "blockquote":
                with self._writer.span("blockquote"):
                    self.blocks(node.children, indent)
            case "bullet_list" | "ordered_list":
                self._list(node, indent)
            case "fence" | "code_block":
                with self._writer.alone("pre", language=_language(node.info)):
                    self._writer.write(node.content.removesuffix("\n"))
            case "hr":
                self._writer.write(_RULE)
            case _:
                self._as_written(node)

    def _list(self, node: SyntaxTreeNode, indent: str) -> None:
        for number, item in enumerate(node.children):
            if number:
                self._writer.write(self._gap(item) + indent)
            marker = "•" if node.type == "bullet_list" else f"{item.info}{item.markup}"
            self._writer.write(f"{marker} ")
            self.blocks(item.children, indent + "  ")

    def _as_written(self, node: SyntaxTreeNode) -> None:
        first, end = node.map or (0, 0)
        with self._writer.alone("pre"):
            self._writer.write("\n".join(self._lines[first:end]).strip("\n"))

    def _inline(self, nodes: Sequence[SyntaxTreeNode], indent: str) -> None:
        for node in nodes:
            self._piece(node, indent)

    def _piece(self, node: SyntaxTreeNode, indent: str) -> None:
        match node.type:
            case "inline":
                self._inline(node.children, indent)
            case "softbreak" | "hardbreak":
                self._writer.write(f"\n{indent}")
            case "code_inline":
                with self._writer.alone("code"):
                    self._writer.write(node.content)
            case "strong" | "em" | "s":
                with self._writer.span(_STYLES[node.type]):
                    self._inline(node.children, indent)
            case "link":
                self._link(str(node.attrs.get("href", "")), node.children, indent)
            case "image":
                self._image(str(node.attrs.get("src", "")), node.content)
            case _:
                self._writer.write(node.content)

    def _link(self, href: str, children: Sequence[SyntaxTreeNode], indent: str) -> None:
        if not _can_be_opened(href):
            self._inline(children, indent)
            self._writer.write(f" ({href})" if href else "")
            return
        with self._writer.span("text_link", url=href):
            self._inline(children, indent)

    def _image(self, source: str, alt: str) -> None:
        if _can_be_opened(source):
            with self._writer.span("text_link", url=source):
                self._writer.write(alt or "image")
        else:
            self._writer.write(f"{alt} ({source})" if source else alt)


def _language(info: str) -> str | None:
    words = info.split()
    return words[0][:64] if words else None


def _can_be_opened(href: str) -> bool:
    try:
        parts = urlsplit(href)
        host = parts.hostname
    except ValueError:
        return False
    if parts.scheme in {"http", "https"}:
        return bool(host) and ("." in str(host) or host == "localhost")
    return parts.scheme in _SCHEMES and bool(parts.path or parts.netloc)
