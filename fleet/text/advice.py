"""Judgement of a piece of a page: a label, a template, the name of something, or a sentence that can stand as a lesson.

Pure. Its words, in six languages, are in ``data/notes.toml``.
"""

import re
import tomllib
import unicodedata
from functools import cache, cached_property
from itertools import pairwise
from pathlib import Path
from typing import Any, NamedTuple


class Field(NamedTuple):
    """A labelled field: what it holds (rule, right, wrong, why, ...), how well its label says so, and its value."""

    role: str
    rank: int
    label: str
    value: str


_NOTES = Path(__file__).with_name("data").joinpath("notes.toml")


@cache
def _page(page: Path) -> dict[str, Any]:
    return tomllib.loads(page.read_text("utf-8"))


@cache
def _roles() -> dict[str, tuple[str, int]]:
    """Return the role of a field by its label, and the rank of the label among its like."""
    found: dict[str, tuple[str, int]] = {}
    for role, labels in _page(_NOTES)["labels"].items():
        for rank, label in enumerate(labels):
            found.setdefault(label, (role, rank))
    return found


@cache
def _words() -> dict[str, frozenset[str]]:
    """Return the lists of words by name, and those that follow from them."""
    lists = _page(_NOTES)["headings"] | _page(_NOTES)["cues"]
    told = {name: frozenset(words) for name, words in lists.items()}
    plural = told["imperatives"] - told["nouns"]
    finite = frozenset(f"{verb}{end}" for verb in plural for end in ("s", "es"))
    return told | {
        "advice": told["advice"] | told["binding"],
        "claims": told["binding"] | told["verbs"] | finite,
        "plural": plural,
        "predicates": told["cjk"] | told["predicates"],
    }


@cache
def pattern(page: Path, name: str) -> re.Pattern[str]:
    """Return an expression of a page of them, a TOML file: its lines are joined, and case does not matter."""
    return re.compile("".join(_page(page)[name].split("\n")), re.IGNORECASE)


SAID = frozenset({"rule", "right", "wrong", "why"})
"""Roles of fields that say what was learned; the others say when, where and about what."""

_STARS = re.compile(r"(\*{1,3})(?=[^\s*])([^*\n]+?)(?<=[^\s*])\1")
_UNDERLINES = re.compile(r"(?<![\w/.])(_{1,2})(?=[^\s_])([^_\n]+?)(?<=[^\s_])\1(?![\w./(])")
_LINK = re.compile(r"!?\[([^\]\n]{1,300})\]\([^)\s]{1,500}(?:\s\"[^\"\n]{0,200}\")?\)")
_CODE = re.compile(r"(`+)(?:(?!\1).){1,2000}?\1", re.DOTALL)
_WORD = re.compile(r"[^\W_][\w'’+#./@-]*")
_FIRST_CJK = 0x2E80
_AROUND_LABEL = " \t*_`~#[]【】()（）-–—:：.!"
_BOLD_LABEL = re.compile(
    r"\s{0,3}(?:[^\w\s`*_\[(【（\"'<]{1,4}\s*)?(?:"
    r"(?P<mark>\*{2,3}|__|\*|_)\s*(?P<bold>[^*\n]{1,48}?)\s*(?:[:：]\s*(?P=mark)|(?P=mark)\s*(?:\([^)\n]{1,48}\)\s*)?(?:[:：]|[—–-]{1,2}\s|→))"
    r"|【(?P<box>[^】\n]{1,24})】\s*[:：]?"
    r"|(?P<plain>[^\W\d][^\n:：*|]{0,39}?)\s?[:：](?!//)(?=\s|[^\x00-\x7f]|$))\s*(?P<value>.*)",
    re.DOTALL,
)
_INNER = re.compile(
    r"(?:(?<=\s)|^)(?P<mark>\*\*|__)(?P<bold>[^*\n:：]{1,40}?)(?:[:：]\s?(?P=mark)|(?P=mark)\s?[:：])"
    r"|(?:(?<=[.;|。；])|→|⇒|->)\s*(?P<plain>[^\W\d][\w' -]{1,30}?)[:：]\s"
)
_BRACKETED = re.compile(r"[\"'“”]?(?:\[[^\]]*\]|<[^>]*>|\{+[^}]*\}+|\([^)]*\)|\.{2,}|…|[-–—_]+)[\"'“”]?[.:]?")
_TEMPLATE = re.compile(
    r"\bYYYY\b|\{\{|\[(?:id|title|date|name|xxx|your|describe|description|brief|short|what|insert|topic|lesson|rule"
    r"|one[- ]line|category|optional|add|placeholder|learning|correction)\b[^\]\n]{0,120}\](?!\()"
    r"|<(?:your|describe|description|brief|short|what|insert|title|topic|one[- ]line|lesson|rule|date|name|category)\b"
    r"[^>\n]{0,80}>"
    r"|\bXXX\b|\[(?:LRN|ERR|FEAT)-Y",
    re.IGNORECASE,
)
_LAYOUT = re.compile(
    r"\b(?:overview|(?:project|directory|file|folder|repository|code) structure|tech(?:nology)? stack|entry points?|"
    r"components|data flow|environment variables?|project layout)\b"
)
_REQUIRED = re.compile(
    r"^`[^`]+` (?:before|after|when|for)\b|\brequired(?=\s(?:for|to|by|in|on|when|before)\b|\s*[.,;)—–]|$)",
    re.IGNORECASE,
)
_NOTHING = re.compile(
    r"(?:none|nothing|n/?a|tbd|todo|fixme|wip|empty|no \w+)(?: (?:yet|so far|recorded|logged|known|entries))*"
    r"|(?:暂无|无|待补充|未定|なし|keine?|ninguno|aucun)",
    re.IGNORECASE,
)
_NUMBERED = re.compile(r"\[[A-Z]{1,8}-\d[\w-]*\]")
_SENTENCE_END = re.compile(r"(?<=[.!?])[\"')\]*]{0,3}\s+(?=[^a-z\s])|(?<=[。！？])\s*(?=\S)")
_PATHLIKE = re.compile(r"[/\\_=<>{}$]|\.\w{1,5}$|^\d")
_SHORT_WORDS, _PLAIN_WORDS, _LONG_WORDS, _FINITE_WITHIN = 4, 8, 12, 7
_ASCII_LAST = 127
_CJK_CHARS_MIN, _CJK_LONG = 7, 18


class Label:
    """Words of a heading, or of what stands before a field, as the word lists know them."""

    def __init__(self, words: str) -> None:
        self._words = words

    @cached_property
    def folded(self) -> str:
        """The label as the word list has it: case-folded, without marks, emoji and what stands in brackets."""
        bare = re.sub(r"[(（][^)）]{0,60}[)）]", "", self._words).casefold()
        letters = "".join(one for one in bare if unicodedata.category(one) not in ("So", "Sk", "Cf", "Mn"))
        return " ".join(letters.strip(_AROUND_LABEL).replace("’", "'").replace("_", " ").split())

    @property
    def role(self) -> tuple[str, int] | None:
        """The role of a field of this label, and the rank of the label among its like; None for any other words."""
        known = _roles()
        return known.get(self.folded) or known.get(self.folded.split(" #")[0].rstrip("0123456789 "))

    def is_about(self) -> bool:
        """Tell a heading of what the page says about itself: how to use it, its format, its index."""
        return self.folded in _words()["about"]

    def is_layout(self) -> bool:
        """Tell a heading of what describes a project: its structure, commands, stack."""
        return self.folded in _words()["layout"] or _LAYOUT.search(self.folded) is not None

    def is_of_lessons(self) -> bool:
        """Tell a heading under which a page of instructions keeps what was learned: gotchas, rules, pitfalls."""
        return self.folded == "patterns" or any(word in self.folded for word in _words()["lessons"])


class Passage:
    """A piece of a page, and what it is: a template, a name, an order, a sentence that can stand as a lesson."""

    def __init__(self, text: str) -> None:
        self._text = text

    @cached_property
    def plain(self) -> str:
        """The text without the marks of emphasis and the targets of links; code spans stay as they are."""
        pieces: list[str] = []
        at = 0
        for code in _CODE.finditer(self._text):
            pieces += [_without_marks(self._text[at : code.start()]), code[0]]
            at = code.end()
        return " ".join("".join([*pieces, _without_marks(self._text[at:])]).split())

    def is_placeholder(self) -> bool:
        """Tell what a template has where a lesson will be, or that there is none yet."""
        if _NUMBERED.match(self._text):
            return False
        bare = self.plain.strip(" *_\"'`.:。")
        if not bare or _NOTHING.fullmatch(bare.strip("()[]<>")):
            return True
        return _BRACKETED.fullmatch(self.plain) is not None or _TEMPLATE.search(_CODE.sub("``", self._text)) is not None

    def is_sentence(self) -> bool:
        """Tell whether a text says something by itself, and is not a name, a path, a date or the start of a list."""
        said = self.plain
        bare = _CODE.sub(" code ", said).strip()
        if not bare or bare.endswith((":", "：", "?", "？")):
            return False
        unspaced = sum(ord(one) >= _FIRST_CJK and unicodedata.category(one)[0] == "L" for one in bare)
        if unspaced >= _CJK_CHARS_MIN:
            return unspaced >= _CJK_LONG or any(word in bare for word in _words()["predicates"])
        words = [word.strip(".'’-").casefold() for word in _WORD.findall(bare)]
        real = [word for word in words if not _PATHLIKE.search(word) and word != "code"]
        if len(real) < 2 or len(words) + 2 * unspaced < _SHORT_WORDS - Passage(said).is_order():
            return False
        is_foreign = not bare.isascii() and any(
            ord(one) > _ASCII_LAST and one.isalpha() for one in bare
        )  # its verbs are not listed
        return len(words) >= (_PLAIN_WORDS if is_foreign else _LONG_WORDS) or Passage(said).is_claim() or unspaced > 2

    def is_claim(self) -> bool:
        """Tell a text that says something of something, or what to do: it has a verb, and is no name of a thing."""
        known = _words()
        words = [
            word.strip(".'’-").casefold().replace("’", "'") for word in _WORD.findall(_CODE.sub(" code ", self.plain))
        ]
        plural = any(
            one.endswith("s") and two in known["plural"] for one, two in pairwise(words)
        )  # "Exported fields use ..."
        if self._is_ordered() or plural or not known["claims"].isdisjoint(words):
            return True
        return _REQUIRED.search(self._text) is not None or any(word in self._text for word in known["predicates"])

    def is_done(self) -> bool:
        """Tell what was done, as a changelog has it: "Added a guard", and not "Added fields are ignored"."""
        said = self.plain
        words = [word.casefold() for word in _WORD.findall(_CODE.sub(" code ", said)[:160])]
        known = _words()
        is_named = re.search(r"[:：=]", said[:60]) is not None  # "Hardened runtime + own certificate: ..." is a thing
        return (
            bool(words)
            and not is_named
            and words[0] in known["done"]
            and known["verbs"].isdisjoint(words[1:_FINITE_WITHIN])
        )

    def is_order(self) -> bool:
        """Tell a text that begins with an order: "Use pnpm", "Never commit secrets"."""
        words = _WORD.findall(_CODE.sub(" ", self._text.lstrip("`*_ "))[:80])
        return bool(words) and (words[0].casefold().replace("’", "'") in _words()["imperatives"] or words[0] == "No")

    def is_advice(self) -> bool:
        """Tell a text that says what to do or not to do: it begins with an order, or has a word that binds."""
        said = self.plain
        folded = [word.casefold().replace("’", "'") for word in _WORD.findall(_CODE.sub(" ", said))]
        known = _words()
        return bool(folded) and (
            Passage(said)._is_ordered()
            or not known["advice"].isdisjoint(folded)
            or any(word in said for word in known["cjk"])
        )

    def _is_ordered(self) -> bool:
        """Tell a text one of whose clauses begins with an order: "When it hangs, restart the daemon"."""
        bare = _CODE.sub(" ", self.plain)
        known = _words()["imperatives"]
        names = re.match(r"\W*[^\s:：]+(?:\s+[^\s:：]+)?\s?[:：]", bare)  # "State file: ..." is no order
        parts = (re.sub(r"^\W*\w+ly\s+", "", part) for part in re.split(r"[.:;,—–→]\s*", bare))  # "Regularly audit ..."
        clauses = [words[0].casefold() for part in parts if (words := _WORD.findall(part))]
        return bool(clauses) and (
            (clauses[0] in known and not names) or clauses[0] == "no" or not known.isdisjoint(clauses[1:])
        )

    def lead(self, chars_max: int) -> tuple[str, str]:
        """Return the first sentences of a text, up to so many characters but one at least, and the rest."""
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

    def last_sentence(self) -> tuple[str, str]:
        """Return what stands before the last sentence of a text, and that sentence."""
        hidden = _CODE.sub(lambda code: "x" * len(code[0]), self._text)
        cut = 0
        for end in _SENTENCE_END.finditer(hidden):
            cut = end.end()
        return self._text[:cut].strip(), self._text[cut:].strip()


def _without_marks(text: str) -> str:
    bare = _UNDERLINES.sub(r"\2", _STARS.sub(r"\2", _LINK.sub(r"\1", text)))
    return bare.replace("**", "").replace("~~", "") if "*" in bare or "~" in bare else bare


def _field(text: str) -> Field | None:
    """Read a text that begins with the label of a field."""
    found = _BOLD_LABEL.match(text)
    if found is None:
        return None
    label = Label(found["bold"] or found["box"] or found["plain"])
    role = label.role
    return Field(role[0], role[1], label.folded, found["value"].strip()) if role else None


def fields(text: str) -> list[Field]:
    """Return the fields of a line, also several of them: ``**Mistake:** x **Rule:** y``. What stands before is first.

    A text that stands before the first label has the role "".
    """
    cuts: list[tuple[int, int]] = []
    for found in _INNER.finditer(text):
        role = Label(found["bold"] or found["plain"]).role
        if role and role[0] in SAID and not _is_in_code(text, found.start()):
            start = found.start("mark") if found["mark"] else found.start("plain")
            cuts.append((found.start(), start))
    starts = [0, *(start for at, start in cuts if at > 0)]
    ends = [*(at for at, _ in cuts if at > 0), len(text)]
    pieces = [text[start:end].strip(" \t|→⇒") for start, end in zip(starts, ends, strict=True)]
    return [_field(piece) or Field("", 0, "", piece) for piece in pieces if piece]


def _is_in_code(text: str, at: int) -> bool:
    return any(code.start() < at < code.end() for code in _CODE.finditer(text))
