"""Reader of the Markdown pages in which people and agents keep what they learned, whatever their form.

``tasks/lessons.md``, ``LEARNINGS.md``, ``gotchas.md``, ``CLAUDE.md``, ``.cursorrules`` and their like: bullets under
headings, entries with labelled fields in any order, sections of a heading and a paragraph, dated lines, tables. Only
sentences are taken; every other piece is named with its line and the reason. Never raises. It is one module, since
pages mix their forms: a section, a list and an entry hand pieces to each other.
"""

import re
from collections import deque
from collections.abc import Iterator, Sequence
from functools import partial
from itertools import pairwise, zip_longest
from pathlib import Path
from typing import NamedTuple

from fleet.learn.inputs import Text
from fleet.text.advice import (
    BLOCK_CHARS_MAX,
    CONTENT_ROLES,
    Block,
    Field,
    Label,
    Passage,
    Section,
    fields,
    outline,
    pattern,
)
from fleet.text.markdown import WHEN, Page


class Note(NamedTuple):
    """One lesson of a page, in one or a few sentences, with its first and last line, and its date as on the page.

    Attributes:
        correct: the right way, or the body under a heading that is the lesson.
        title: its own heading, if it has one.
        category: the heading above, or a field's value.
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


class SkippedPiece(NamedTuple):
    """A piece that is left out: its line, the reason, and its beginning."""

    line: int
    reason: str
    text: str = ""


# --- what is no lesson

ABOUT = "it is about the page"
_LAYOUT = "it describes the project"
TEMPLATE = "it is a template"
TASK = "it is a task to tick off"
PRIVATE = "it is private"
NO_SENTENCE = "it is no sentence that says something by itself"
NO_ADVICE = "it describes, and says nothing to do or to heed"
_PROSE = "it is prose around the lessons"
_STRUCK = "it was struck out, or replaced by a later one"
_TOO_LONG = f"it is a line of more than {BLOCK_CHARS_MAX // 2:,} characters"
TWICE = "it stands here twice"
_TABLE = "no column of this table is known to hold lessons"
_NOTHING_LEARNED = "its fields say nothing that was learned"
QUESTION = "it is a question"
HEADING = "it is a heading with nothing under it"
DONE = "it tells what was done, as a changelog does"
STORY = "it tells what happened or how far something is, and not what holds"

_FAULTS = (("pointer", NO_ADVICE), ("about", ABOUT))
_FAULTS_OF_NO_RULE = (("story", STORY), ("half", NO_SENTENCE))
"""Faults of a text by the name of the pattern that it begins with; the second where no word in it binds."""

_BODY_CHARS = 4_000
"""Length of the body that is kept with a lesson."""
_TEXT_CHARS = 420
_SHORT_SAMPLE = 80
_TITLE_RANK_MAX = 9  # labels of a higher rank, such as "Issue", name the topic of an entry
_WORDS_MIN, _SHORT_WORDS, _LONG_TITLE, _TOPIC_WORDS = 3, 6, 8, 9
# Expressions that take long to compile are texts, which `re` compiles at the first use and caches: a sync uses none.
_DATE = rf"[\[(]?(?P<when>{WHEN.replace('?P<', '?P<_')})[\])]?"
_DATE_FIRST = rf"(?ai)\W{{0,4}}{_DATE}[^\w❌✗🚫⛔]{{0,3}}(?:[-–—:：|]|\s|$)[-–—:：|\s*]*"
_DATE_LAST = (
    rf"(?i)\s*(?:[-–—|]\s*{_DATE}|[(\[（](?:[\w ,]{{0,24}}[\s:])?{_DATE.replace('?P<', '?P<in_')}"
    r"[^)\]）\n]{0,24}[)\]）])\s*[.]?$"
)
_BRACKET_FIRST = r"\[(?P<word>[^\]\n]{1,40})\]\s*(?!\()[:：-]?\s*"
_WRONG_RIGHT = (
    rf"(?si)(?:\W{{0,4}}{_DATE}[-–—:：|\s*]*)?\s*(?:❌|✗|🚫|⛔)\s*(?P<wrong>.+?)"
    r"\s*(?:→|->|=>|⇒|;|\||,|\s)\s*(?:✅|✔️?|☑️?)\s*(?P<right>.+)"
)
_IS_WRONG = rf"(?i)\A(?:\W{{0,4}}{_DATE}[-–—:：|\s*]*)?\s*(?:❌|✗|🚫|⛔)\s*"
_IS_RIGHT = r"\A\s*(?:✅|✔️?|☑️?)\s*"
_NEXT_PAIR = r"[\s.;,|]+(?=[❌✗🚫⛔][^❌✗🚫⛔✅✔☑]+[✅✔☑])"
_OF_CODE = re.compile(r"`[^`]*[/.(][^`]*`\s+[-–—]\s")
_RULE_LINES = r"(?m)(?<![^\n]\n)(?:^[A-Z][^\n]{2,}(?:\n|\Z)){2,}(?=\n|\Z)"
_GONE = re.compile(r"~~.{4,}~~|\[?\(?(?:OBSOLETE|SUPERSEDED|DEPRECATED|RETRACTED)\b", re.DOTALL)
_STATUS_LABELS = ("status", "状态", "状態")

_pattern = partial(pattern, str(Path(__file__).with_name("data") / "pages.toml"))


def read_notes(text: str, name: str) -> Iterator[Note | SkippedPiece]:
    """Yield the lessons of a page, and what was left out of it, in order of their lines.

    ``name``: the file's name, without its folder. A page of instructions has more than lessons: only advice is taken.
    """
    if name.casefold().endswith("rules"):  # .cursorrules and the like: no Markdown, a rule is a line
        text = re.sub(_RULE_LINES, lambda run: re.sub(r"(?m)^(?=.)", "- ", run[0]), text)
    top = outline(text)
    titles = (name, *(each.title for each in top.sections[:1]))
    is_log = not _pattern("rules").search(name) and any(map(_pattern("log").search, titles))
    page = _Page(top, is_log=is_log)
    page.read(top, "", is_log=is_log)
    for number, line in enumerate(text.split("\n"), 1):
        if len(line) > BLOCK_CHARS_MAX // 2:
            page.items.append(SkippedPiece(number, _TOO_LONG, line))
    named = {item.line for item in page.items}
    blocks = [block for section in top.walk() for block in section.blocks]
    tasks = [each for block in blocks for each in (block, *_below(block)) if each.is_task and each.line not in named]
    page.items += [SkippedPiece(each.line, TASK, each.text) for each in tasks]  # below an entry or an item
    seen: set[str] = set()
    for item in sorted(page.items, key=lambda each: each.line):
        folded = item.text.casefold()
        if isinstance(item, Note) and (item.text in page.superseded or folded in seen):
            yield SkippedPiece(item.line, _STRUCK if item.text in page.superseded else TWICE, item.text)
            continue
        if isinstance(item, Note):
            seen.add(folded)
        yield item


class _Heading(NamedTuple):
    """Parts of a heading: its title, its date, and the word in brackets before it."""

    title: str
    when: str = ""
    kind: str = ""
    is_entry: bool = False


class _Context(NamedTuple):
    """Context of a block: the category, heading and introduction above it, and whether lessons are kept there."""

    category: str
    head: _Heading
    is_log: bool
    intro: str = ""


def _heading(raw: str) -> _Heading:
    """Return the parts of a heading; the title is what remains without date, number and word in brackets."""
    title, when, kind, is_entry = raw.strip(), "", "", False
    for _ in range(4):
        if match := re.match(_DATE_FIRST, title):
            title, when, is_entry = title[match.end() :], match["when"], True
        elif match := re.match(_BRACKET_FIRST, title):
            word, title, is_entry = match["word"], title[match.end() :], True
            # In `[LRN-20260105-001] best_practice` the kind comes last.
            is_number = re.search(r"\d", word) and _pattern("code_first").fullmatch(f"{word}:")
            kind = title * (len(title.split()) == 1) if is_number else word
        elif match := _pattern("code_first").match(title):
            title, is_entry = title[match.end() :], True
        else:
            break
    if (match := re.search(_DATE_LAST, title)) and match.start():
        title, when, is_entry = title[: match.start()], when or match["when"] or match["in_when"], True
    return _Heading(Passage(title.strip(" -–—:：|")).plain, when, kind, is_entry)


class _Form:
    """An entry with labelled fields, while it is parsed. ``is_whole``: its heading is of this entry alone."""

    def __init__(self, line: int, title: str, when: str, category: str, *, is_whole: bool = False) -> None:
        self.line, self.end, self.title, self.when, self.category = line, line, title, when, category
        self.is_whole = is_whole
        self.story: list[Block] = []  # the blocks before the fields
        self.item: Block | None = None  # with the last field, where the fields are items of a list
        self.fields: list[tuple[Field, list[str]]] = []
        self._lines: dict[str, int] = {}  # line numbers of the values that have lines of their own

    def add(self, field: Field, end: int) -> None:
        value = field.value.replace("~~", "") if field.role == "wrong" else field.value  # struck out as well
        is_empty = not value or Passage(value).is_placeholder()
        self.fields.append((field, [] if is_empty else [Passage(value).plain]))
        self.end = max(self.end, end)

    def ends_before(self, fields: Sequence[Field]) -> bool:
        """Return whether fields begin the next entry: this one is complete, or has their first label already."""
        roles, new = {each.role for each, _ in self.fields}, {each.role for each in fields}
        has_both, is_entry = ("wrong" in each and not each.isdisjoint({"right", "rule"}) for each in (roles, new))
        is_second = (has_both and "wrong" in new) or (is_entry and not roles.isdisjoint({"wrong", "right", "rule"}))
        return (is_second and not self.is_whole) or any(each.label == fields[0].label for each, _ in self.fields)

    def reason_to_skip(self) -> str:
        """Return what its scope or status says against it: that it is private, or obsolete."""
        if any(field.label == "scope" and "privat" in field.value.casefold() for field, _ in self.fields):
            return PRIVATE
        status = (" ".join(each).upper() for field, each in self.fields if field.label in _STATUS_LABELS)
        return _STRUCK if any(map(_GONE.match, status)) else ""

    def awaits(self, text: str) -> bool:
        """Return whether a text is marked as right, and the last field says what is wrong."""
        return bool(self.fields) and self.fields[-1][0].role == "wrong" and re.match(_IS_RIGHT, text) is not None

    def is_closed_before(self, block: Block, outside: Block | None) -> bool:
        """Return whether an empty line is above an item, and neither the last field nor a paragraph leads to it."""
        is_led = outside is not None and outside.kind == "paragraph"
        value = self.fields[-1][0].value if self.fields and block.kind == "item" else ""
        return bool(value) and not is_led and not _ends_open(value) and block.line > self.end + 1

    def is_beside(self, block: Block, outside: Block | None, *, in_list: bool) -> bool:
        """Return whether an item without a label is a lesson of its own, and does not continue the last field."""
        is_closed = self.is_closed_before(block, outside)
        if block.kind != "item" or (self.fields and not in_list and not is_closed):
            return False
        if _is_binding(Passage(block.text).plain) and not self.awaits(block.text):
            return True
        if self.item is None:
            return is_closed and outside is not None
        value = self.fields[-1][0].value
        is_led = not self.item.items and (not value or _ends_open(value))  # the last field lacks its end
        return not (is_led or block.text[:1].islower() or self.awaits(block.text))

    def extend(self, block: Block) -> None:
        """Add a block to the value of the last field; a text marked as right, after a wrong one, begins a field."""
        self.end = max(self.end, block.end)
        for each in (block, *block.items):
            text = Passage(each.text).plain
            if self.fields and text and not each.is_task and not Passage(each.text).is_placeholder():
                if self.awaits(text):
                    text = re.sub(_IS_RIGHT, "", text)
                    self.fields.append((Field("right", 0, "", text), []))
                self.fields[-1][1].append(text)
                self._lines[text] = each.line

    def notes(self) -> Iterator[Note]:
        """Yield the lessons of the entry: one, or each of a list of rules."""
        note = self._as_note()
        listed = next((values for field, values in self.fields if field.role == "rule" and len(values) > 1), [])
        usable = [value for value in listed if Passage(value).is_sentence()]
        if note and len(usable) > 1:
            topic = "" if _names_errors(self.title) else self.title
            for value in usable:
                line = self._lines.get(value, note.line)
                yield note._replace(line=line, text=_with_title(value, topic), correct="")
        elif note:
            yield note

    def _as_note(self) -> Note | None:
        rules, rights, wrongs, whys = (self._values(role) for role in ("rule", "right", "wrong", "why"))
        story = [*wrongs[:1], *whys[:1]]
        title = Passage(self.title)
        is_titled = title.is_sentence() and title.is_claim() and not (rights and _names_errors(self.title))
        is_of_mistake = is_titled and bool(wrongs) and not rules and not rights  # the opposite of the heading
        rest = rights or ([] if is_of_mistake else [" ".join(story)])
        text, *details = [*rules, *rights] if rules else [*[self.title] * is_titled, *rest]
        is_whole = rules or (rights and _names_errors(self.title))
        text = text.rstrip(":： ") if is_whole else _with_title(text.rstrip(":： "), self.title)
        if self._is_short_pair() and not self.title:
            text, details = f"{rights[0].rstrip('.')}, not {wrongs[0].rstrip('.')}", rights
        is_lesson = rules or rights or Passage(text).is_sentence()
        wrong = (story if is_of_mistake else wrongs[:1]) or [Passage(block.text).plain for block in self.story]
        return self._note(text, details, " ".join(wrong)) if is_lesson and text.strip() else None

    def _is_short_pair(self) -> bool:
        """Return whether it is a wrong and a right way in a few words each, which say nothing alone: a command."""
        words = {field.role: len(" ".join(values).split()) for field, values in self.fields}
        labels = [field.label for field, _ in self.fields if field.role == "wrong"]
        is_forbidden = len(labels) == 1 and _pattern("forbids").match(labels[0]) is not None
        is_short = all(0 < number < _WORDS_MIN for number in words.values())
        return is_forbidden and is_short and words.keys() == {"wrong", "right"}

    def _note(self, text: str, details: Sequence[str], wrong: str) -> Note:
        return Note(
            self.line,
            self.end,
            text,
            " ".join(part for part in details if part and part != text)[:_BODY_CHARS],
            wrong[:_BODY_CHARS],
            self.title,
            self._first_value("category") or self.category,
            tuple(tag for part in re.split(r"[,，、;]", self._first_value("tags")) if (tag := part.strip(" #`[]\"'"))),
            self._first_value("when") or self.when,
        )

    def _values(self, role: str) -> list[str]:
        """Return the values of a role, those of the best label first."""
        ranked = [(field.rank, "; ".join(values)) for field, values in self.fields if field.role == role and values]
        return [value for _, value in sorted(ranked, key=lambda each: each[0])]

    def _first_value(self, role: str) -> str:
        return next((values[0] for field, values in self.fields if field.role == role and values), "")


class _Page:
    """A page while it is parsed."""

    def __init__(self, page: Section, *, is_log: bool) -> None:
        self._is_log = is_log
        self.items: list[Note | SkippedPiece] = []
        self.superseded: set[str] = set()
        tops = [each for each in page.sections if each.level == 1]
        first = tops[0] if tops else page
        holds = bool(first.sections) or any(block.kind != "paragraph" for block in first.blocks)
        is_named = len(tops) == 1 and _pattern("log").search(first.title)
        self._titles = [page, first] if holds or is_named else [page]

    # --- sections

    def read(self, section: Section, category: str, *, is_log: bool) -> None:
        """Read a section and those below it."""
        title = section.title
        is_log = is_log or (section.level > 0 and Label(title).is_of_lessons())
        if reason := _heads_no_lesson(title, is_log=is_log):
            self._skip_all(section, reason)
            return
        head, as_fields = _heading(title), _fields_below(section)
        has_fields = bool(as_fields) or any(map(_has_content, section.blocks))
        if section not in self._titles:
            is_entry = head.is_entry or (category and has_fields)
            category = head.kind or category if is_entry else head.title
        context = _Context(category, head, is_log)
        if has_fields:
            self._read_form(section, as_fields, context)
        elif section.blocks or section.sections or section in self._titles:
            self._read_blocks(section, section.blocks, context)
        else:
            self.items.append(SkippedPiece(section.line, HEADING, title))
        for each in section.sections:
            if each not in as_fields:
                self.read(each, category, is_log=is_log)

    def _skip_all(self, section: Section, reason: str) -> None:
        for each in section.walk():
            self._skip(reason, *each.blocks)
            if not each.blocks and each.level:
                self.items.append(SkippedPiece(each.line, reason, each.title))

    def _skip(self, reason: str, *blocks: Block) -> None:
        self.items += [SkippedPiece(block.line, reason, block.text) for block in blocks]

    # --- entries with labelled fields

    def _read_form(self, section: Section, as_fields: Sequence[Section], context: _Context) -> None:
        """Read a section with labelled fields: its entries, and what stands outside of them."""
        found = [(block, _fields_of(block)) for block in section.blocks]
        known = [field for _, labels in found for field in labels]
        form, last = self._begin_form(section, known, context), known[-1].line if known else 0
        listed = [(block, labels) for block, labels in found if block.kind == "item" and _has_content(block)]
        is_list = any(block.items or labels[0].value for block, labels in listed)
        rest, apart = list[Block](), list[Block]()
        for block, labels in found:
            outside = rest[-1] if rest and rest[-1].line > form.end else None  # stands behind the last field
            has_no_right = {field.role for field in labels}.isdisjoint({"right", "rule"})
            if block.kind == "table":
                rest.append(block)
            elif labels and not (has_no_right and re.match(_WRONG_RIGHT, block.text)):
                form = self._take_fields(form, block)
            elif form.is_whole and block.line > last and form.is_closed_before(block, outside):
                apart.append(block)
            elif _is_pair(block.text) or form.is_beside(block, outside, in_list=is_list):
                rest.append(block)
            elif form.fields and not _is_bold_lead(block):
                form.extend(block)
            elif section.level < 2 or _is_bold_lead(block) or block.is_task or Passage(block.text).is_order():
                rest.append(block)
            else:
                form.story.append(block)
        for each in as_fields:
            form.add(Field(*(Label(each.title).role or ("", 0)), Label(each.title).folded, ""), each.end)
            for block in each.blocks:
                form.extend(block)
        self._finish(form)
        self._read_blocks(section, rest, context)
        self._read_blocks(section, apart, context._replace(head=_Heading("", context.head.when)))

    def _begin_form(self, section: Section, known: Sequence[Field], context: _Context) -> _Form:
        """Return the entry that a section begins with. Its heading may be one more field: `## Wrong: x`."""
        head, is_title, roles = context.head, section in self._titles, {field.role for field in known}
        is_of_page = is_title and not head.is_entry and not Passage(head.title).is_sentence()
        title = "" if is_of_page or _is_kind(head.title) else head.title
        line = known[0].line if is_title and known else section.line
        is_whole = head.is_entry and not _names_errors(head.title)
        form = _Form(line, title, head.when, context.category, is_whole=is_whole)
        for field in fields(section.title)[:1]:
            is_other = field.role not in roles and not roles.isdisjoint({"rule", "right", "wrong"})
            if field.role in ("right", "wrong") and field.rank <= _TITLE_RANK_MAX and is_other:
                form.title = ""
                form.add(field, form.end)
        return form

    def _take_fields(self, form: _Form, block: Block) -> _Form:
        for index, field in enumerate(found := _fields_of(block)):
            if field.role:
                is_next = form.ends_before([field, *(found if index == 0 and block.kind == "item" else ())])
                form = self._next_form(form, field.line) if is_next else form
                form.add(field, block.end)
            elif index == 0 and re.search(r"\w", field.value):  # not the mark of `✅ **Right:** x`
                form = self._next_form(form, block.line)
                form.title = _heading(field.value).title
        for each in block.items:
            if _fields_of(each):
                form = self._take_fields(form, each)
            else:
                form.extend(each)
        form.item = block if block.kind == "item" and not form.is_whole else None
        return form

    def _next_form(self, form: _Form, line: int) -> _Form:
        """Finish an entry, and begin one under the same heading."""
        self._finish(form)
        return _Form(line, form.title, form.when, form.category, is_whole=form.is_whole)

    def _finish(self, form: _Form) -> None:
        reason = form.reason_to_skip()
        notes = [] if reason else list(form.notes())
        for note in notes:
            self._add(note)
        if not notes or any(field.role == "wrong" for field, _ in form.fields):
            self._skip(_PROSE, *form.story)
        if not notes and form.fields:
            texts = (text for field, values in form.fields for text in values or [field.value])
            self.items.append(SkippedPiece(form.line, reason or _NOTHING_LEARNED, " ".join([form.title, *texts])))

    # --- blocks without fields

    def _read_blocks(self, section: Section, blocks: Sequence[Block], context: _Context) -> None:
        prose: list[Block] = []
        items: list[Block] = []
        intro = ""
        is_title = section in self._titles
        is_item = [block.kind == "item" or re.match(_IS_WRONG, block.text) is not None for block in blocks]
        for index, block in enumerate(blocks):
            text, is_last = block.text, index + 1 == len(blocks)
            if is_item[index]:
                items.append(block)
                if is_last or not is_item[index + 1]:
                    self._read_prose(section, prose, context)
                    if context.is_log and is_title and section.sections and _pattern("rules_of_page").match(intro):
                        intro = "how to use"
                    self._read_list(items, context._replace(intro=intro))
                    prose, items, intro = [], [], ""
            elif block.kind == "table":
                self._read_table(block, context)
            elif block.kind == "quote" or _is_gone(text):
                self._skip(_PROSE if block.kind == "quote" else _STRUCK, block)
            elif _ends_open(text) and (_is_lead(block) or (not is_last and is_item[index + 1])):
                intro = Passage(text).plain.rstrip(":： ")
                self._skip(_PROSE, block)
            elif _is_lead(block):
                self._read_item(block, context)
            else:
                prose.append(block)
        self._read_prose(section, prose, context)

    def _read_prose(self, section: Section, prose: list[Block], context: _Context) -> None:
        """Add the blocks under a heading as its lesson; on a page of instructions, only paragraphs that are rules."""
        if not prose:
            return
        if section in self._titles or not context.is_log:
            is_free = section not in self._titles or not self._is_log  # at the top of a log, prose explains the log
            for part in prose:
                text = Passage(part.text).plain
                opening, rest = Passage(text).lead(1)
                is_told = Text(opening).is_story() and not Passage(rest).is_order()  # a story of one day is no rule
                if is_free and not is_told and _is_binding(text) and Passage(text).is_sentence():
                    self._add(Note(part.line, part.end, text, category=context.category))
                else:
                    self._skip(_PROSE, part)
            return
        title = context.head.title
        body = " ".join(Passage(block.text).plain for block in prose).rstrip(":： ")
        is_template = Passage(body).is_placeholder()
        if is_template or not (Passage(body).is_sentence() or Passage(f"{title} {body}").is_sentence()):
            self._skip(TEMPLATE if is_template else NO_SENTENCE, *prose)
            return
        topic = "" if _is_kind(title) else title
        text, rest = (title, body) if _is_lesson(title) else (_with_title(body, topic), "")
        begin, category, when = section.line or prose[0].line, context.category, context.head.when
        self._add(Note(begin, prose[-1].end, text, rest, title=title, category=category, when=when))

    def _read_list(self, items: list[Block], context: _Context) -> None:
        intro = Label(context.intro)
        if intro.is_about() or intro.is_layout():
            self._skip(ABOUT if intro.is_about() else _LAYOUT, *items)
        else:
            self._read_items(items, context)

    def _read_items(self, items: Sequence[Block], context: _Context) -> None:
        """Read items side by side: a wrong one and the right one after it are one lesson."""
        left = deque(part for item in items for part in _unfolded(item))
        while left:
            item = left.popleft()
            wrong = None if re.match(_WRONG_RIGHT, item.text) else re.match(_IS_WRONG, item.text)
            if wrong and left and re.match(_IS_RIGHT, left[0].text):
                right = left.popleft()
                self._add_pair([item, right], item.text, right.text, context, wrong["when"])
            else:
                self._read_item(item, context)

    def _add_pair(self, blocks: Sequence[Block], wrong: str, right: str, context: _Context, when: str | None) -> None:
        line, end = min(each.line for each in blocks), max(each.end for each in blocks)
        wrong = _unlabelled(re.sub(_IS_WRONG, "", Passage(wrong.replace("~~", "")).plain), "wrong")
        right = _unlabelled(re.sub(_IS_RIGHT, "", Passage(right).plain), "right")
        is_short = len(right.split()) < _SHORT_WORDS and len(wrong) < _SHORT_SAMPLE
        short = f"{right.rstrip('.')}. {wrong}" if _pattern("is_forbidding").match(wrong) else f"{right}, not {wrong}"
        text, details = short if is_short else right, [*filter(None, map(_details, blocks))]
        is_code = not re.search(r"\w", re.sub(r"`[^`]*`", "", right))
        topic = context.intro or (_topic(context.head.title) if is_code else "")
        if topic and not _names_errors(topic):
            text = f"{topic}: {text}" if is_code else _with_title(text, topic)
        correct = "; ".join([*[right] * (is_short or not details), *details])
        self._add(Note(line, end, text, correct, wrong, category=context.category, when=when or context.head.when))

    def _read_item(self, item: Block, context: _Context) -> None:
        raw = item.text
        labelled = _fields_of(item)
        if item.is_task or _pattern("to_do").match(raw):
            self._skip(TASK, item)
        elif replaced := [*_pattern("supersedes").finditer(raw)]:
            rest = Passage(raw[replaced[-1].end() :]).plain.strip(" .,;")
            details = "; ".join(filter(None, (rest, _details(item))))
            for each in replaced:
                self.superseded.add(Passage(each["old"]).plain)
                text = Passage(each["new"]).plain
                self._add(Note(item.line, item.end, text, details, each["old"], category=context.category))
        elif _is_gone(raw):
            self._skip(_STRUCK, item)
        elif match := re.match(_WRONG_RIGHT, raw):
            self._add_pair([item], match["wrong"], match["right"], context, match["when"])
        elif any(field.role in CONTENT_ROLES for field in labelled):
            self._finish(self._take_fields(_Form(item.line, "", context.head.when, context.category), item))
        elif any(field.role for field in labelled[:1]):
            self._skip(_NOTHING_LEARNED if context.is_log else NO_ADVICE, item)
        else:
            self._read_plain_item(item, context)

    def _read_plain_item(self, item: Block, context: _Context) -> None:
        raw, when, category = item.text, context.head.when, context.category
        if match := re.match(_DATE_FIRST, raw):
            raw, when = raw[match.end() :], match["when"]
        if match := re.search(_DATE_LAST, raw):
            raw, when = raw[: match.start()], match["when"] or match["in_when"]
        if (match := re.match(_BRACKET_FIRST, raw)) and Passage(raw[match.end() :]).is_sentence():
            category, raw = match["word"], raw[match.end() :]
        context = context._replace(category=category, head=context.head._replace(when=when))
        text = Passage(raw).plain.rstrip(":： ")
        subs = [each for each in item.items if not each.is_task]
        is_template = Passage(raw).is_placeholder()
        if subs and not is_template and (_ends_open(raw) or not Passage(text).is_sentence()):
            if not _ends_open(raw):
                self._skip(_PROSE, item)
            self._read_items(subs, context._replace(head=_Heading(text, when), intro=text))
            return
        if is_template or _only_describes(raw, text, is_log=context.is_log):
            self._skip(TEMPLATE if is_template else NO_ADVICE, item)
        else:
            self._read_statement(item, text, context)
        if isinstance(self.items[-1], SkippedPiece) and self.items[-1].line == item.line:
            self._read_items([each for each in _below(item) if _is_marked(each.text)], context)

    def _read_statement(self, item: Block, text: str, context: _Context) -> None:
        """Add an item as a lesson, after its heading if it is not understood alone."""
        head, intro = context.head, context.intro
        is_whole = Passage(text).is_sentence()
        topic = intro if intro and len(intro.split()) <= _TOPIC_WORDS else _topic(head.title)
        lead_in = intro or Passage(head.title).plain
        is_forbidden = _pattern("forbids").match(lead_in) and not _pattern("is_forbidding").match(text)
        if is_forbidden and Passage(text).is_order():
            is_whole, text = True, f"{lead_in}: {text}"
        statement = text if is_whole else _with_title(text, topic)
        is_name = statement != text and not Passage(text).is_claim() and not Passage(topic).is_advice()
        if is_name or not Passage(statement).is_sentence():
            self._skip(_fault(Note(item.line, item.end, text)) or NO_SENTENCE, item)
            return
        title = head.title if head.is_entry else ""
        self._add(Note(item.line, item.end, statement, _details(item), "", title, context.category, when=head.when))

    def _read_table(self, block: Block, context: _Context) -> None:
        header, *rows = [Page.cells(line) for line in block.lines]
        roles = [Label(cell).role for cell in header]
        known_roles = {role[0] for role in roles if role} & CONTENT_ROLES
        if not known_roles:
            self._skip(_TABLE, block)
            return
        for line, row in enumerate(rows, block.line + 1):
            if all(set(cell) <= set("-: ") for cell in row):
                continue
            self._read_row(line, [*zip(header, row, strict=False)], context)

    def _read_row(self, line: int, cells: Sequence[tuple[str, str]], context: _Context) -> None:
        form = _Form(line, "", context.head.when, context.category)
        for head, cell in cells:
            label = Label(head)
            if label.role:
                form.add(Field(*label.role, label.folded, cell), line)
            else:
                is_number = _pattern("code_first").fullmatch(f"{cell}:") or not re.search(r"[^\W\d_]", cell)
                form.title = form.title or ("" if is_number else Passage(cell).plain)
        values = {field.role: each[0] for field, each in form.fields if each}
        label_of_wrong = next((field.label for field, _ in form.fields if field.role == "wrong"), "")
        is_pair = values.keys() == {"wrong", "right"} and not form.title
        if is_pair and _pattern("is_forbidding").match(label_of_wrong):
            self._add_pair([Block("item", line)], values["wrong"], values["right"], context, None)
            return
        if is_pair and _pattern("problem").fullmatch(label_of_wrong):
            form.title = values["wrong"]  # the topic, without which the right way is not understood
        self._finish(form)

    def _add(self, note: Note) -> None:
        begin, rest = Passage(note.text.strip()).lead(_TEXT_CHARS)
        note = note._replace(
            text=begin.strip(" -–—•"),
            correct=(rest + " " + note.correct).strip() if rest else note.correct.strip(),
            category=_category(note.category),
        )
        if reason := _fault(note):
            self.items.append(SkippedPiece(note.line, reason, note.text))
        else:
            self.items.append(note)


def _fault(note: Note) -> str:
    """Return why a text is no lesson, "" if it is one."""
    text = note.text
    if text.endswith(("?", "？")):
        return QUESTION
    if _pattern("to_do").match(text):
        return TASK
    if Passage(text).is_placeholder() or _pattern("choices").fullmatch(text):
        return TEMPLATE
    if _GONE.match(text) or (note.title and _GONE.search(note.title)):
        return _STRUCK
    if text.isascii() and len(text.split()) < 2:  # "Never"
        return NO_SENTENCE
    reason = next((reason for name, reason in _FAULTS if _pattern(name).match(text)), "")
    if reason or _is_strict(text):
        return reason
    if Passage(text).is_changelog():
        return DONE
    if Text(text).is_story():
        return STORY
    if text.isascii() and len(text.split()) < _WORDS_MIN:
        return NO_SENTENCE
    return next((reason for name, reason in _FAULTS_OF_NO_RULE if _pattern(name).match(text)), "")


def _heads_no_lesson(title: str, *, is_log: bool) -> str:
    """Return why the content under a heading has no lesson; "" if it may have one."""
    if _is_gone(title):
        return _STRUCK
    if Label(title).is_about():
        return ABOUT
    if title and Passage(title).is_placeholder():
        return TEMPLATE
    return _LAYOUT if not is_log and Label(title).is_layout() else ""


def _is_gone(text: str) -> bool:
    """Return whether a text begins as struck out or obsolete, and gives no order in its place."""
    return _GONE.match(text) is not None and not (text.startswith("~~") and _is_binding(Passage(text).plain))


def _is_strict(text: str) -> bool:
    """Return whether a text has a word that binds: never, must, instead."""
    return _pattern("strict").search(text) is not None


def _is_binding(text: str) -> bool:
    """Return whether a paragraph says what to do or not to do, and does not only mention it."""
    return _is_strict(text) or Passage(text).is_order()


def _is_marked(text: str) -> bool:
    """Return whether a text begins with a mark for wrong or right, or replaces another text."""
    has_mark = any(re.match(mark, text) for mark in (_IS_WRONG, _IS_RIGHT))
    return has_mark or _pattern("supersedes").search(text) is not None


def _is_pair(text: str) -> bool:
    """Return whether a text has a wrong and a right way, by their marks."""
    return re.match(_WRONG_RIGHT, text) is not None or _pattern("supersedes").search(text) is not None


def _unfolded(item: Block) -> list[Block]:
    """Return an item with marks as items side by side, a wrong one before its right one, each with its details."""
    below = [*_below(item)]
    marked = [each.text for each in below if _is_marked(each.text)]
    rights = [re.sub(_IS_RIGHT, "", right) for wrong, right in pairwise(marked) if re.match(_IS_WRONG, wrong)]
    rights += [match["right"] for text in marked if (match := re.match(_WRONG_RIGHT, text))]
    # Below a text without a mark, code may only illustrate it, and right ways alone are only a list.
    is_led = any(Passage(right).is_sentence() for right in rights) and not _has_content(item)
    if item.is_task or not (_is_marked(item.text) or is_led):
        return [item]
    blocks = _pairs(item)
    for each in below:
        if _is_marked(each.text):
            blocks += _pairs(each)
        else:
            blocks[-1].items.append(_alone(each))
            blocks[-1].end = max(blocks[-1].end, each.end)
    if re.match(_IS_RIGHT, item.text):
        blocks = [each for pair in zip_longest(blocks[1::2], blocks[::2]) for each in pair if each]
    return blocks


def _pairs(item: Block) -> list[Block]:
    """Return an item for each pair of wrong and right on an item's line, without the items below it."""
    texts, rest = [], item.text
    while (pair := re.match(_WRONG_RIGHT, rest)) and (gap := re.search(_NEXT_PAIR, pair["right"])):
        texts.append(rest[: pair.start("right") + gap.start()])
        rest = rest[pair.start("right") + gap.end() :]
    return [Block("item", item.line, text) for text in (*texts, rest)] if texts else [_alone(item)]


def _below(item: Block) -> Iterator[Block]:
    """Yield the items below an item, however deep, in order."""
    for each in item.items:
        yield each
        yield from _below(each)


def _alone(item: Block) -> Block:
    """Return an item without those below it."""
    alone = Block("item", item.line, *item.lines)
    alone.is_task = item.is_task
    return alone


def _unlabelled(text: str, role: str) -> str:
    """Return a text without its label, if it begins with one of this role."""
    found = fields(text)
    return found[0].value if len(found) == 1 and found[0].role == role else text


def _details(item: Block) -> str:
    """Return the items below an item, however deep, as one text."""
    below = ((each.text, _details(each)) for each in item.items if not each.is_task)
    return "; ".join(filter(None, (Passage(text).plain for texts in below for text in texts)))


def _ends_open(text: str) -> bool:
    return Passage(text).plain.endswith((":", "："))


def _is_lead(block: Block) -> bool:
    """Return whether a paragraph is an item by itself: it begins with a date or in bold, or has wrong and right."""
    return re.match(_DATE_FIRST, block.text) is not None or _is_pair(block.text) or _is_bold_lead(block)


def _is_bold_lead(block: Block) -> bool:
    """Return whether a paragraph begins with its lesson, or its name, in bold."""
    return block.kind == "paragraph" and block.text.lstrip().startswith("**")


def _only_describes(raw: str, text: str, *, is_log: bool) -> bool:
    """Return whether a text only describes, and says nothing to do or to heed."""
    is_named, is_of_code = (not _is_strict(text) and form.match(raw) for form in (_pattern("describes"), _OF_CODE))
    return bool(is_of_code or (not is_log and (is_named or not Passage(text).is_advice())))


def _is_lesson(title: str) -> bool:
    """Return whether a heading is a lesson by itself, and no topic or symptom with its lesson below."""
    is_long = len(title.split()) >= _LONG_TITLE or not title.isascii()
    return Passage(title).is_sentence() and (_is_binding(title) or (is_long and Passage(title).is_claim()))


def _fields_of(block: Block) -> list[Field]:
    """Return the fields of a block's lines; a line without a label continues the field before it."""
    joined: list[Field] = []
    for number, line in enumerate(block.lines, block.line):
        for field in fields(line):
            if field.role or (number == block.line and not joined):
                joined.append(field._replace(line=number))
            elif joined:
                joined[-1] = joined[-1]._replace(value=f"{joined[-1].value} {field.value}".strip())
    return joined if any(field.role for field in joined) else []


def _has_content(block: Block) -> bool:
    """Return whether a block begins with a field that has the content of a lesson."""
    return any(field.role in CONTENT_ROLES for field in _fields_of(block)[:1])


def _fields_below(section: Section) -> list[Section]:
    """Return the headings that name the fields of the entry above them."""
    roles = {each.title: Label(each.title).role for each in section.sections if not each.sections}
    has_content = any(role and role[0] in CONTENT_ROLES for role in roles.values())
    return [each for each in section.sections if roles.get(each.title)] if has_content and section.level > 1 else []


def _with_title(text: str, title: str) -> str:
    """Return a text, with its heading in front unless the two share a word."""
    words = {word.casefold() for word in re.findall(r"\w{4,}", title)}
    shared = words & {word.casefold() for word in re.findall(r"\w{4,}", text)}
    return text if not title or shared or title in text else f"{title}: {text}"


def _names_errors(title: str) -> bool:
    """Return whether a heading names what went wrong or is not to be done: before a right way it says the opposite."""
    role = Label(title).role
    return (role is not None and role[0] == "wrong") or _pattern("errors").search(title) is not None


def _is_kind(title: str) -> bool:
    """Return whether a heading only names the kind of what is under it: gotchas, lessons learned."""
    return Label(title).is_of_lessons() and (len(title.split()) == 1 or Label(title).role is not None)


def _topic(title: str) -> str:
    """Return a heading if it names what is under it; not if it only names the kind: rules, gotchas, security."""
    is_kind = Label(title).is_of_lessons() or Label(title).is_layout() or len(title.split()) < 2
    return "" if is_kind or len(title.split()) > _TOPIC_WORDS else title


def _category(text: str) -> str:
    bare = re.sub(r"[—–|:(].*", "", Passage(text).plain).replace("`", "").strip(" -#.*")
    shown = (char for char in bare if char.isprintable() and ord(char) < 0x1F000 and char not in "✅❌⚠️🔥")
    return "".join(shown).strip()[:60].strip()
