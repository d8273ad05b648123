"""Parts of a page of notes: a lesson, what is none and why, a heading taken apart, an entry with labelled fields."""

import re
from collections.abc import Iterator
from typing import NamedTuple

from fleet.text import advice
from fleet.text.advice import Field
from fleet.text.dates import WHEN
from fleet.text.outline import BLOCK_CHARS_MAX, Block


class Note(NamedTuple):
    """One lesson of a page.

    Attributes:
        line: on which it begins, from 1.
        end: on which it ends.
        text: the lesson, one or a few sentences.
        correct: what else it says: the right way, or the body under a heading that is the lesson.
        wrong: what went wrong.
        title: the heading that it stands under, if that is its own.
        category: the heading above, or what a field says.
        tags: as a field says.
        when: a date, as the page has it.
        source: who told.
        trigger: before what it matters.
    """

    line: int
    end: int
    text: str
    correct: str = ""
    wrong: str = ""
    title: str = ""
    category: str = ""
    tags: tuple[str, ...] = ()
    when: str = ""
    source: str = ""
    trigger: str = ""


class Left(NamedTuple):
    """A piece of a page that was not taken: its lines, why not, and how it begins."""

    line: int
    end: int
    reason: str
    text: str


BODY_CHARS = 4_000
"""So much of a body is kept beside a lesson."""
STANDING_WORDS = 26
"""A text of more words is understood without its heading."""
_DATE = rf"[\[(]?(?P<when>{WHEN.pattern.replace('?P<', '?P<_')})[\])]?"
DATE_FIRST = re.compile(rf"\W{{0,4}}{_DATE}\W{{0,3}}(?:[-–—:：|]|\s|$)[-–—:：|\s*]*", re.ASCII | re.IGNORECASE)
DATE_LAST = re.compile(
    rf"\s*(?:[-–—|]\s*{_DATE}|[(\[（](?:[\w ,]{{0,24}}[\s:])?{_DATE.replace('?P<', '?P<in_')}"
    r"[^)\]）\n]{0,24}[)\]）])\s*[.]?$",
    re.IGNORECASE,
)
_CODE_FIRST = re.compile(
    r"(?P<code>\[?(?:[A-Z]{1,8}-)?#?\d[\d.-]*(?:-\d+)*\]?|[A-Z]\d{2,4}|(?:lesson|learning|rule|pattern|gotcha|mistake|issue|entry|"
    r"correction|bug|problem|insight|principle|tip)(?:\s+#?\d+)?)\s*(?:[:：.)\]·]|\s[-–—]|[-–—]\s)\s*",
    re.IGNORECASE,
)
BRACKET_FIRST = re.compile(r"\[(?P<word>[^\]\n]{1,40})\]\s*(?!\()[:：-]?\s*")


class Heading(NamedTuple):
    """A heading, taken apart: what remains of it, its date, and the word in brackets."""

    title: str
    when: str
    kind: str
    is_entry: bool


def heading(raw: str) -> Heading:
    """Return a heading taken apart: date, number and word in brackets off."""
    title, when, kind, is_entry = raw.strip(), "", "", False
    for _ in range(4):
        if (found := DATE_FIRST.match(title)) and found.end():
            title, when, is_entry = title[found.end() :], found["when"], True
        elif (found := BRACKET_FIRST.match(title)) and not advice.is_placeholder(found["word"]):
            kind, title, is_entry = (found["word"], title[found.end() :], True)
        elif (found := _CODE_FIRST.match(title)) and found.end():
            title, is_entry = title[found.end() :], True
        else:
            break
    if (found := DATE_LAST.search(title)) and found.start():
        title, when, is_entry = title[: found.start()], when or date_in(found), True
    kind = "" if re.search(r"\d", kind) else kind
    return Heading(advice.plain(title.strip(" -–—:：|")), when, kind, is_entry)


class Form:
    """An entry with labelled fields, while it is being read."""

    def __init__(self, line: int, title: str, when: str) -> None:
        self.line, self.end, self.title, self.when = line, line, title, when
        self.category = ""
        self.lead: list[str] = []
        self.fields: list[tuple[Field, list[str], int]] = []
        self.first = ""
        self._is_listing = False
        self.told: list[str] = []

    @property
    def is_open(self) -> bool:
        """Tell whether the last field goes on with a list: it has no value yet, or one that ends with a colon."""
        values = self.fields[-1][1] if self.fields else []
        return not values or self._is_listing or values[-1].endswith((":", "："))

    def has(self, label: str) -> bool:
        """Tell whether it has a field of this label."""
        return any(one.label == label for one, _, _ in self.fields)

    def open(self, text: str, block: Block) -> None:
        """Begin it with the text of an item, which is its title."""
        head = heading(text)
        self.line, self.end = block.line, block.end
        self.when = head.when or self.when
        self.lead.append(head.title)

    def add(self, one: Field, line: int, end: int) -> None:
        """Add a field."""
        self.first, self._is_listing = self.first or one.label, False
        value = [] if not one.value or advice.is_placeholder(one.value) else [advice.plain(one.value)]
        self.fields.append((one, value, line))
        self.end = max(self.end, end)

    def more(self, block: Block) -> None:
        """Add what follows a field to it."""
        self._is_listing = block.kind == "item"
        self.end = max(self.end, block.end)
        for each in (block, *block.items):
            text = advice.plain(each.text)
            if self.fields and text and not each.is_task and not advice.is_placeholder(each.text):
                self.fields[-1][1].append(text)

    def about(self, block: Block) -> None:
        """Add what it tells beside its fields."""
        self.end = max(self.end, block.end)
        self.told.append(advice.plain(block.text))

    def notes(self) -> Iterator[Note]:
        """Yield the lessons that it amounts to: one, or each of a list of rules."""
        listed = [values for one, values, _ in self.fields if one.role == "rule" and len(values) > 1]
        usable = [value for values in listed[:1] for value in values if advice.is_sentence(value)]
        if len(usable) > 1 and not any(one.role == "rule" and len(values) == 1 for one, values, _ in self.fields):
            for made in self._made():
                for value in usable:
                    yield made._replace(text=standing(value, self.title), correct="")
            return
        yield from self._made()

    def _made(self) -> Iterator[Note]:
        rules, rights, wrongs, whys = (self._said(role) for role in ("rule", "right", "wrong", "why"))
        title, lead = self.title, " ".join(self.lead)
        if not title:
            title, lead = lead, ""
        is_titled = advice.is_sentence(title) and advice.is_claim(title)
        wrong = " ".join(wrongs[:1] or self.told)
        if rules:
            text, more = rules[0], [*rules[1:], *rights[:2]]
        elif rights and not is_titled:
            text, more = rights[0], rights[1:]
        elif rights:
            text, more = title, rights
        else:
            told = " ".join([*wrongs[:1], *whys[:1]])
            text, more = (title, [told]) if is_titled and told else (standing(told, title), [])
            if not advice.is_sentence(text):
                return
        if text.endswith((":", "：")):
            text, more = (title, [text, *more]) if is_titled else (text.rstrip(":： "), more)
        is_short = bool(rules) and not advice.is_sentence(text) and len(text.split()) > 1
        if text and text != title and (not rules or is_short):
            text = standing(text, title)
        if not text.strip():
            return
        yield Note(
            self.line,
            self.end,
            text,
            " ".join(part for part in more if part and part != text)[:BODY_CHARS],
            wrong[:BODY_CHARS],
            title,
            self._one("category") or self.category,
            tuple(tag for part in re.split(r"[,，、;]", self._one("tags")) if (tag := part.strip(" #`[]\"'"))),
            self._one("when") or self.when,
            self._one("source"),
            self._one("trigger"),
        )

    def _said(self, role: str) -> list[str]:
        """Return the values of a role, those of the best label first."""
        found = [
            (
                one.rank,
                number,
                joined(values),
            )
            for number, (one, values, _) in enumerate(self.fields)
            if one.role == role and values
        ]
        return [value for _, _, value in sorted(found)]

    def _one(self, role: str) -> str:
        return next((values[0] for one, values, _ in self.fields if one.role == role and values), "")


def joined(values: list[str]) -> str:
    """Return the items of a list on one line; what ends with a colon leads to the next."""
    return "".join(
        value if last else f"{value} " if value.endswith((":", "：")) else f"{value.rstrip('.;')}; "
        for value, last in zip(values, [*[False] * (len(values) - 1), True], strict=True)
    )


def fields_of(block: Block) -> list[Field]:
    """Return the fields of a block's lines; a line without a label goes on with the field before it."""
    found: list[Field] = []
    for number, line in enumerate(block.lines):
        for one in advice.fields(line):
            if one.role or (number == 0 and not found):
                found.append(one)
            elif found:
                found[-1] = found[-1]._replace(value=f"{found[-1].value} {one.value}".strip())
    return found if any(one.role for one in found) else []


def standing(text: str, title: str) -> str:
    """Return a text with the heading before it that it needs to be understood."""
    words = {word.casefold() for word in re.findall(r"\w{4,}", title)}
    shared = words & {word.casefold() for word in re.findall(r"\w{4,}", text)}
    if not title or shared or len(text.split()) > STANDING_WORDS or title in text:
        return text
    return f"{title}: {text}"


def date_in(found: re.Match[str]) -> str:
    """Return the date that ``DATE_LAST`` found."""
    return found["when"] or found["in_when"]


# --- what is no lesson

ABOUT = "it is about the page"
LAYOUT = "it describes the project"
TEMPLATE = "it is a template"
TASK = "it is a task to tick off"
NO_SENTENCE = "it is no sentence that says something by itself"
NO_ADVICE = "it describes, and says nothing to do or to heed"
PROSE = "it is prose around the lessons"
STRUCK = "it was struck out, or replaced by a later one"
TOO_LONG = f"it is a line of more than {BLOCK_CHARS_MAX // 2:,} characters"
TWICE = "it stands here twice"
TABLE = "no column of this table is known to hold lessons"
NOTHING_LEARNED = "its fields say nothing that was learned"
QUESTION = "it is a question"
HEADING = "it is a heading with nothing under it"
DONE = "it tells what was done, as a changelog does"
STATUS = "it tells how far something is"
STORY = "it tells what happened, and not what holds"
POINTER = "it only says where to read"
GONE = re.compile(r"~~.{4,}~~|\[?\(?(?:OBSOLETE|SUPERSEDED|DEPRECATED|RETRACTED)\b", re.DOTALL)
_ABOUT_TEXT = re.compile(
    r"[^.!?]{0,80}\b(?:this (?:entire |whole )?(?:file|document|page|log|guide)|these guidelines)\b|"
    r"[^.!?]{0,60}\b(?:add|write|log|append|record)\b[^.!?]{0,50}\b(?:here|below)\W*$",
    re.IGNORECASE,
)
_STATUS = re.compile(
    r"(?:✅\s*)?(?:status|total|roi|success rate|last updated|version|current (?:plan|state|status|phase)|progress|"
    r"live|next steps?|phase \d+|branch|duration|time spent|files? (?:changed|modified))\s*[:：=]|"
    r"[^.!?]*?\b(?:in progress|in place|on track|(?:fully|partially|not yet) implemented|all tests pass|coming soon|"
    r"(?:is|are) (?:now )?(?:live|deferred|complete|deployed|operational)|will be (?:updated|added|documented))\b",
    re.IGNORECASE,
)
_PAGE = r"(?:\S+\.md|`[^`]+`)"
_POINTER = re.compile(
    r"[^.:`]{1,60}:\s*(?:\S+\.md|`[^`]+\.md`)\.?$|"
    r"(?:see|refer to|full|more|for (?:more|full)|details?|docs?|documentation|references?|source|read)\b"
    rf"[^.:]{{0,60}}[:：]?\s*(?:{_PAGE}|https?://\S+|§\S+)(?:(?:,| and)+ {_PAGE})*[^.]{{0,40}}\.?$",
    re.IGNORECASE,
)
_HALF = re.compile(
    r"(?:.{0,80}?[:：]\s)?(?:[❌✅]\s)?(?:(?:when|if|after|before|while|once|during|because|whenever)\s[^,:;，：→=—–]*|"
    r"(?:for )?examples?\b.*)",
    re.IGNORECASE,
)
"""A condition without what follows from it, or an example."""
_CHOICES = re.compile(r"[^.|]{1,40}(?:\s?\|\s?[\w -]{1,30}){2,}")
_STORY = re.compile(
    r"(?:this is how|(?:hit|seen|found|happened|occurred|observed)\s(?:up)?on \d|bit (?:us|me|twice|once)\b|"
    r"the user (?:said|asked|reported)|(?:situation|context|result|action|finding|what happened)(?: \([^)]*\))?[.:] )",
    re.IGNORECASE,
)
DANGLES = re.compile(
    r"(?:each (?:is|has|of|enforces)|these|those|this (?:is|was)|they|both (?:are|of)|it|its)\s", re.IGNORECASE
)
_STRICT = re.compile(
    r"\b(?:always|never|must(?:n't)?|do not|don['’]t|avoid|prefer|only|should(?:n['’]t)?|ensure|instead|cannot|"
    r"required?s?)\b|必须|不要|禁止|务必|避免",
    re.IGNORECASE,
)
WORDS_MIN = 3


def fault(note: Note) -> str:
    """Return why a text is no lesson, "" if it is one."""
    text = note.text
    if text.endswith(("?", "？")):
        return QUESTION
    if advice.is_placeholder(text) or _CHOICES.fullmatch(text):
        return TEMPLATE
    if GONE.match(text) or (note.title and GONE.search(note.title)):
        return STRUCK
    if _POINTER.match(text):
        return POINTER
    if _ABOUT_TEXT.match(text):
        return ABOUT
    if is_strict(text):
        return ""
    if advice.is_done(text):
        return DONE
    if _STORY.match(text) or advice.tells_what_happened(text):
        return STORY
    if _STATUS.match(text):
        return STATUS
    is_word = text.isascii() and len(text.split()) < WORDS_MIN
    return NO_SENTENCE if is_word or DANGLES.match(text) or _HALF.fullmatch(text) else ""


def is_strict(text: str) -> bool:
    """Tell a text with a word that binds: never, must, instead."""
    return _STRICT.search(text) is not None
