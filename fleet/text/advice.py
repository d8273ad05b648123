"""Outline of a page in any form, and the kind of each piece: a label, a template, a name, or what can be a lesson.

The outline is the page's sections, and in each the paragraphs, list items and tables, with their lines: CommonMark with
tables, parsed by markdown-it. In hand-written paragraphs, a line with a date, a label, a symbol or a bullet of another
kind begins a block of its own.

Pure. The words by which a piece is judged, in six languages, are in ``data/notes.toml``.
"""

import re
import unicodedata
from collections.abc import Iterator
from functools import cache, cached_property
from itertools import pairwise
from typing import TYPE_CHECKING, Literal, NamedTuple

from fleet.text import apostrophed, tables
from fleet.text.markdown import Page

if TYPE_CHECKING:
    from markdown_it import MarkdownIt
    from markdown_it.token import Token

# --- the outline ----------------------------------------------------------------------------------------------------

BlockKind = Literal["paragraph", "item", "table", "quote"]


class Block:
    """Block of a section, from ``line``, counted from 1, to ``end``: for an item, the end of the last item below it.

    Attributes:
        lines: its text, line by line, without marks of lists and quotations; of a table the rows.
        is_task: an item with a checkbox.
    """

    def __init__(self, kind: BlockKind, line: int, *lines: str) -> None:
        self.kind, self.line, self.end = kind, line, line + max(0, len(lines) - 1)
        self.lines = list(lines)
        self.items: list[Block] = []
        self.is_task = False

    @property
    def text(self) -> str:
        """Return its text on one line."""
        return " ".join(" ".join(line.split()) for line in self.lines if line.strip())


class Section:
    """Heading, without marks, with its own blocks and its subsections; level and line of the page itself are 0.

    ``end``: last line of its own blocks.
    """

    def __init__(self, level: int, title: str, line: int) -> None:
        self.level, self.title, self.line, self.end = level, title, line, line
        self.blocks: list[Block] = []
        self.sections: list[Section] = []

    def walk(self) -> "Iterator[Section]":
        """Yield this section and all below it, in order."""
        yield self
        for section in self.sections:
            yield from section.walk()


BLOCK_CHARS_MAX = 8_192
"""Greatest length of a block: a longer one was not written by hand, and is cut. Half of it is a line's limit."""
# Expressions are texts, which `re` compiles at the first use and caches: few processes need any.
_ITEM = r"[ \t]*(?:(?:[•▪◦–]|\(?\d{1,3}[.)])[ \t]+(?=\S)|(?=(?:❌|✅|🚫|⛔|✗|✔|SUPERSEDES:?\s)))(?P<text>.*)"
_TASK = r"\[[ xX]\][ \t]+"
_DATED_LINE = r"\W{0,4}\d{4}[-/.]\d{1,2}[-/.]\d{1,2}\b"
_LABELLED_LINE = r"\s{0,3}(?:[^\w\s*]{1,3}\s*)?\*\*[^*\n]{1,40}?(?::\*\*|：\*\*|\*\*\s?[:：])"


def outline(text: str) -> Section:
    """Return the sections of a page. Never raises; linear in its size."""
    lines = Page.content_lines(text, BLOCK_CHARS_MAX // 2)
    page = Section(0, "", 0)
    reader = _OutlineBuilder(page, lines)
    for token in _parser().parse("\n".join(lines)):
        reader.take(token)
    return page


@cache
def _parser() -> "MarkdownIt":
    from markdown_it import MarkdownIt  # 20 ms, which only a page costs

    # Indented text is no code, and a line of dashes below a text no heading.
    unwanted = ["code", "lheading", "reference", "inline", "text_join"]
    return MarkdownIt("commonmark").enable("table").disable(unwanted)


class _OutlineBuilder:
    """Builder of an outline from tokens."""

    def __init__(self, page: Section, lines: list[str]) -> None:
        self._sections, self._lines = [page], lines  # the open sections, the innermost last
        self._items: list[Block] = []  # the open items, likewise
        self._quotes = self._level = 0
        self._is_table = False

    def take(self, token: "Token") -> None:
        first, last = token.map or (0, 0)
        if token.type in ("blockquote_open", "blockquote_close"):
            self._quotes += token.nesting
        elif token.type in ("table_open", "table_close"):
            self._is_table = token.nesting > 0
            if self._is_table:
                self._add(Block("table", first + 1, *self._lines[first:last]))
        elif token.type == "list_item_open" and not self._quotes:
            item = Block("item", first + 1)
            (self._items[-1].items if self._items else self._sections[-1].blocks).append(item)
            self._items.append(item)
        elif token.type == "list_item_close" and not self._quotes:
            self._items.pop()
        elif token.type in ("heading_open", "heading_close"):
            self._level = int(token.tag[1]) if token.nesting > 0 else 0
        elif token.type == "inline" and not self._is_table:
            self._text(token.content, first + 1)
        elif token.type == "html_block" and not token.content.lstrip().startswith("<!--"):
            self._text(token.content.rstrip("\n"), first + 1)
        elif token.type == "fence":
            self._extend_to(last)

    def _extend_to(self, line: int) -> None:
        for block in (*self._items, *self._sections[-1].blocks[-1:]):
            block.end = line
        self._sections[-1].end = line

    def _add(self, block: Block) -> None:
        self._sections[-1].blocks.append(block)
        self._extend_to(block.end)

    def _text(self, text: str, line: int) -> None:
        lines = re.sub(r"(?<!\\)\\(?=\n)", "", text[:BLOCK_CHARS_MAX]).split("\n")  # a backslash is a hard line break
        if self._items and not self._quotes:
            self._item_text(lines, line)
        elif self._level and not self._quotes:
            self._open_section(Passage(text).plain or text.strip(), line)  # a title that is struck out keeps its marks
        else:
            self._paragraph("quote" if self._quotes else "paragraph", lines, line)

    def _open_section(self, title: str, line: int) -> None:
        while self._sections[-1].level >= self._level:
            self._sections.pop()
        section = Section(self._level, title, line)
        self._sections[-1].sections.append(section)
        self._sections.append(section)

    def _item_text(self, lines: list[str], line: int) -> None:
        item = self._items[-1]
        if not item.lines and (task := re.match(_TASK, lines[0])):
            item.is_task, lines = True, [lines[0][task.end() :], *lines[1:]]
        for number, text in enumerate(lines, line):
            if (match := re.fullmatch(_ITEM, text)) and item.lines:
                item.items.append(Block("item", number, match["text"]))
            elif item.items and item.items[-1].line == number - 1:
                item.items[-1].lines.append(text)
            else:
                item.lines.append(text)
        self._extend_to(line + len(lines) - 1)

    def _paragraph(self, kind: BlockKind, lines: list[str], line: int) -> None:
        block: Block | None = None
        for number, text in enumerate(lines, line):
            if kind == "paragraph" and (match := re.fullmatch(_ITEM, text)):
                block = Block("item", number, match["text"])
                self._add(block)
            elif block is None or re.match(_DATED_LINE, text) or re.match(_LABELLED_LINE, text):
                block = Block(kind, number, text)
                self._add(block)
            else:
                block.lines.append(text)
                self._extend_to(number)


# --- the kind of a piece ----------------------------------------------------------------------------------------------


class Field(NamedTuple):
    """Labelled field: its role (rule, right, wrong, why, ...), the rank of its label in that role, value and line."""

    role: str
    rank: int
    label: str
    value: str
    line: int = 0


_NOTES = "notes.toml"
_page = cache(tables)


@cache
def _roles() -> dict[str, tuple[str, int]]:
    """Return the role of a field, and the rank of its label, by label."""
    roles: dict[str, tuple[str, int]] = {}
    for role, labels in _page(_NOTES)["labels"].items():
        for rank, label in enumerate(labels):
            roles.setdefault(label, (role, rank))
    return roles


@cache
def _words() -> dict[str, frozenset[str]]:
    """Return the word lists by name, and those derived from them."""
    page = _page(_NOTES)
    lists = {name: frozenset(words) for name, words in (page["headings"] | page["cues"]).items()}
    plural = lists["imperatives"] - lists["nouns"]
    finite = frozenset(f"{verb}{end}" for verb in plural for end in ("s", "es"))
    return lists | {
        "advice": lists["advice"] | lists["binding"],
        "claims": lists["binding"] | lists["verbs"] | finite,
        "plural": plural,
        "predicates": lists["cjk"] | lists["predicates"],
    }


@cache
def pattern(page: str, name: str) -> re.Pattern[str]:
    """Return an expression of a TOML file: its lines are joined, and case does not matter."""
    return re.compile("".join(_page(page)[name].split("\n")), re.IGNORECASE)


CONTENT_ROLES = frozenset({"rule", "right", "wrong", "why"})
"""Roles of the content of a lesson; the others are its circumstances."""

_STARS = re.compile(r"(\*{1,3})(?=[^\s*])([^*\n]+?)(?<=[^\s*])\1")
_UNDERLINES = re.compile(r"(?<![\w/.])(_{1,2})(?=[^\s_])([^_\n]+?)(?<=[^\s_])\1(?![\w./(])")
_STRUCK_OUT = re.compile(r"~~(?=[^\s~])(?:(?!~~).){1,2000}~~")
_LINK = re.compile(r"!?\[([^\]\n]{1,300})\]\([^)\s]{1,500}(?:\s\"[^\"\n]{0,200}\")?\)")
_CODE = re.compile(r"(`+)(?:(?!\1).){1,2000}?\1", re.DOTALL)
_WORD = re.compile(r"[^\W_][\w'’+#./@-]*")
_FIRST_CJK = 0x2E80
_AROUND_LABEL = " \t*_`~#[]【】()（）-–—:：.!"
_NUMBERED = re.compile(r"\[[A-Z]{1,8}-\d[\w-]*\]")
_SENTENCE_END = re.compile(r"(?<=[.!?])[\"')\]*]{0,3}\s+(?=[^a-z\s])|(?<=[。！？])\s*(?=\S)")
_PATHLIKE = re.compile(r"[/\\_=<>{}$]|\.\w{1,5}$|^\d")
_SHORT_WORDS, _PLAIN_WORDS, _LONG_WORDS, _FINITE_WITHIN = 4, 8, 12, 7
_CJK_CHARS_MIN, _CJK_LONG = 7, 18


class Label:
    """Label of a field, or text of a heading, as looked up in the word lists."""

    def __init__(self, words: str) -> None:
        self._words = words

    @cached_property
    def folded(self) -> str:
        """The normalised label: case-folded, without marks, emoji and brackets with their content."""
        bare = re.sub(r"[(（][^)）]{0,60}[)）]", "", self._words).casefold()
        letters = "".join(one for one in bare if unicodedata.category(one) not in ("So", "Sk", "Cf", "Mn"))
        return " ".join(apostrophed(letters.strip(_AROUND_LABEL)).replace("_", " ").split())

    @property
    def role(self) -> tuple[str, int] | None:
        """The role of a field with this label, and the rank of the label; None for an unknown label."""
        roles = _roles()
        return roles.get(self.folded) or roles.get(self.folded.split(" #")[0].rstrip("0123456789 "))

    def is_about(self) -> bool:
        """Return whether it heads a section about the page itself: how to use it, its format, its index."""
        return self.folded in _words()["about"]

    def is_layout(self) -> bool:
        """Return whether it heads a section about a project: its structure, commands, stack."""
        return self.folded in _words()["layout"] or pattern(_NOTES, "layout").search(self.folded) is not None

    def is_of_lessons(self) -> bool:
        """Return whether it heads the lessons in a page of instructions: gotchas, rules, pitfalls."""
        return self.folded == "patterns" or any(word in self.folded for word in _words()["lessons"])


class Passage:
    """Piece of a page, with its classification: a template, a name, an order, a sentence that can be a lesson."""

    def __init__(self, text: str) -> None:
        self._text = text

    @cached_property
    def plain(self) -> str:
        """The text without marks of emphasis, targets of links and what is struck out; code spans are unchanged."""
        pieces: list[str] = []
        position = 0
        for code in _CODE.finditer(self._text):
            pieces += [_without_marks(self._text[position : code.start()]), code[0]]
            position = code.end()
        return " ".join("".join([*pieces, _without_marks(self._text[position:])]).split())

    @cached_property
    def _lower_words(self) -> list[str]:
        return [word.casefold() for word in _WORD.findall(apostrophed(_CODE.sub(" code ", self.plain)))]

    def is_placeholder(self) -> bool:
        """Return whether it is a template's stand-in for a lesson, or a note that there is none yet."""
        if _NUMBERED.match(self._text):
            return False
        bare = self.plain.strip(" *_\"'`.:。")
        if not bare or pattern(_NOTES, "nothing").fullmatch(bare.strip("()[]<>")):
            return True
        is_bracketed = pattern(_NOTES, "bracketed").fullmatch(self.plain) is not None
        return is_bracketed or pattern(_NOTES, "template").search(_CODE.sub("``", self._text)) is not None

    def is_sentence(self) -> bool:
        """Return whether it is a statement, and not a name, a path, a date, a question or the start of a list."""
        bare = _CODE.sub(" code ", self.plain).strip()
        if not bare or bare.endswith((":", "：", "?", "？")):
            return False
        unspaced = sum(ord(char) >= _FIRST_CJK and unicodedata.category(char)[0] == "L" for char in bare)
        if unspaced >= _CJK_CHARS_MIN:
            return unspaced >= _CJK_LONG or any(word in bare for word in _words()["predicates"])
        words = [word.strip(".'’-").casefold() for word in _WORD.findall(bare)]
        real = [word for word in words if not _PATHLIKE.search(word) and word != "code"]
        if len(real) < 2 or len(words) + 2 * unspaced < _SHORT_WORDS - Passage(self.plain).is_order():
            return False
        is_foreign = any(char.isalpha() and not char.isascii() for char in bare)  # its verbs are not listed
        is_long = len(words) >= (_PLAIN_WORDS if is_foreign else _LONG_WORDS)
        return is_long or unspaced > 2 or Passage(self.plain).is_claim()

    def is_claim(self) -> bool:
        """Return whether it has a verb, and is no name of a thing."""
        lists = _words()
        words = [word.strip(".'-") for word in self._lower_words]
        plural = any(one.endswith("s") and two in lists["plural"] for one, two in pairwise(words))  # "Fields use ..."
        if self._is_ordered() or plural or not lists["claims"].isdisjoint(words):
            return True
        is_required = pattern(_NOTES, "required").search(self._text) is not None
        return is_required or any(word in self._text for word in lists["predicates"])

    def is_changelog(self) -> bool:
        """Return whether it is a line of a changelog: "Added a guard", and not "Added fields are ignored"."""
        words = [word.casefold() for word in _WORD.findall(_CODE.sub(" code ", self.plain)[:160])]
        if not words or re.search(r"[:：=]", self.plain[:60]):  # "Hardened runtime + own certificate: ..."
            return False
        return words[0] in _words()["done"] and _words()["verbs"].isdisjoint(words[1:_FINITE_WITHIN])

    def is_order(self) -> bool:
        """Return whether it begins with an order: "Use pnpm", "Never commit secrets"."""
        words = _WORD.findall(_CODE.sub(" ", self._text.lstrip("`*_ "))[:80])
        return bool(words) and (apostrophed(words[0].casefold()) in _words()["imperatives"] or words[0] == "No")

    def is_advice(self) -> bool:
        """Return whether it is a rule: a clause begins with an order, or it has a binding word."""
        is_binding = not _words()["advice"].isdisjoint(self._lower_words)
        has_words = self._lower_words != []
        return has_words and (is_binding or self._is_ordered() or any(word in self.plain for word in _words()["cjk"]))

    def _is_ordered(self) -> bool:
        """Return whether a clause of it begins with an order: "When it hangs, restart the daemon"."""
        bare = _CODE.sub(" ", self.plain)
        orders = _words()["imperatives"]
        names = re.match(r"\W*[^\s:：]+(?:\s+[^\s:：]+)?\s?[:：]", bare)  # "State file: ..." is no order
        parts = (re.sub(r"^\W*\w+ly\s+", "", part) for part in re.split(r"[.:;,—–→]\s*", bare))  # "Regularly audit ..."
        clauses = [words[0].casefold() for part in parts if (words := _WORD.findall(part))]
        return bool(clauses) and (
            (clauses[0] in orders and not names) or clauses[0] == "no" or not orders.isdisjoint(clauses[1:])
        )

    def lead(self, chars_max: int) -> tuple[str, str]:
        """Return its first sentences, within ``chars_max`` characters but at least one sentence, and the rest."""
        if len(self._text) <= chars_max:
            return self._text, ""
        hidden = _CODE.sub(lambda code: "x" * len(code[0]), self._text)
        cut = 0
        for end in _SENTENCE_END.finditer(hidden):
            if cut and end.start() > chars_max:
                break
            cut = end.start() if end.end() == end.start() else end.end()
            if cut > chars_max:
                break
        return (self._text[:cut].strip(), self._text[cut:].strip()) if cut else (self._text, "")


def _without_marks(text: str) -> str:
    text = _STRUCK_OUT.sub(" ", text) if "~~" in text else text
    bare = _UNDERLINES.sub(r"\2", _STARS.sub(r"\2", _LINK.sub(r"\1", text)))
    return bare.replace("**", "").replace("~~", "") if "*" in bare or "~" in bare else bare


def _field(text: str) -> Field:
    """Return the field of a text, by the label at its beginning; without a label, its role is ""."""
    if match := pattern(_NOTES, "bold-label").match(text):
        label = Label(match["bold"] or match["box"] or match["plain"])
        if role := label.role:
            return Field(*role, label.folded, match["value"].strip())
    return Field("", 0, "", text)


def fields(text: str) -> list[Field]:
    """Return the fields of a line, which may have several: ``**Mistake:** x **Rule:** y``.

    Text before the first label is a field with the role "".
    """
    starts, ends = [0], list[int]()
    for match in pattern(_NOTES, "inner").finditer(text):
        role = Label(match["bold"] or match["plain"]).role
        is_code = any(code.start() < match.start() < code.end() for code in _CODE.finditer(text))
        if role and role[0] in CONTENT_ROLES and not is_code and match.start() > 0:
            starts.append(match.start("mark" if match["mark"] else "plain"))
            ends.append(match.start())
    pieces = [text[start:end].strip(" \t|→⇒") for start, end in zip(starts, [*ends, len(text)], strict=True)]
    return [_field(piece) for piece in pieces if piece]
