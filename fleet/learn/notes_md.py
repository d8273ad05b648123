"""Reader of the Markdown pages in which people and agents keep what they learned, whatever their form.

``tasks/lessons.md``, ``LEARNINGS.md``, ``gotchas.md``, ``CLAUDE.md``, ``.cursorrules`` and their like: bullets under
headings, entries with labelled fields in any order, sections of a heading and a paragraph, dated lines, tables. What is
taken is a sentence that says something; what is not is named with its lines and the reason. Never raises.
"""

import re
from collections.abc import Iterator, Sequence
from itertools import pairwise
from typing import NamedTuple

from fleet.text import advice
from fleet.text.advice import Field
from fleet.text.dates import WHEN
from fleet.text.outline import Block, Section, outline


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


ABOUT = "it is about the page"
LAYOUT = "it describes the project"
TEMPLATE = "it is a template"
TASK = "it is a task to tick off"
NO_SENTENCE = "it is no sentence that says something by itself"
NO_ADVICE = "it describes, and says nothing to do or to heed"
PROSE = "it is prose around the lessons"
STRUCK = "it was struck out, or replaced by a later one"
TWICE = "it stands here twice"
TABLE = "no column of this table is known to hold lessons"
HEADING = "it is a heading with nothing under it"

_TEXT_CHARS, _BODY_CHARS = 420, 4_000
_LOG = re.compile(
    r"lesson|learning|correction|gotcha|mistake|error|pitfall|memory|insight|feedback|troubleshoot|postmortem|"
    r"knowledge|tips|til\b|retro|agents\.local|best.?practice|notes|bugs|incident|经验|教训",
    re.IGNORECASE,
)
_RULES = re.compile(
    r"(?:claude|agents|gemini|copilot-instructions|conventions|contributing|readme|rules)\b|cursorrules|windsurfrules|"
    r"clinerules|\.mdc$",
    re.IGNORECASE,
)
_DATE = rf"[\[(]?(?P<when>{WHEN.pattern.replace('?P<', '?P<_')})[\])]?"
_DATE_FIRST = re.compile(rf"\W{{0,4}}{_DATE}\W{{0,3}}(?:[-–—:：|]|\s|$)[-–—:：|\s*]*", re.ASCII | re.IGNORECASE)
_DATE_LAST = re.compile(
    rf"\s*(?:[-–—|]\s*{_DATE}|[(\[（](?:[\w ,]{{0,24}}[\s:])?{_DATE.replace('?P<', '?P<in_')}"
    r"[^)\]）\n]{0,24}[)\]）])\s*[.]?$",
    re.IGNORECASE,
)
_CODE_FIRST = re.compile(
    r"(?P<code>\[?(?:[A-Z]{1,8}-)?#?\d[\d.-]*(?:-\d+)*\]?|[A-Z]\d{2,4}|(?:lesson|learning|rule|pattern|gotcha|mistake|issue|entry|"
    r"correction|bug|problem|insight|principle|tip)(?:\s+#?\d+)?)\s*(?:[:：.)\]]|\s[-–—]|[-–—]\s)\s*",
    re.IGNORECASE,
)
_BRACKET_FIRST = re.compile(r"\[(?P<word>[^\]\n]{1,40})\]\s*(?!\()[:：-]?\s*")
_GONE = re.compile(r"~~.{4,}~~|\[?\(?(?:OBSOLETE|SUPERSEDED|DEPRECATED|RETRACTED)\b", re.DOTALL)
_SUPERSEDES = re.compile(
    r"SUPERSEDES:?\s*[\"“「](?P<old>[^\"”」]+)[\"”」]\s*(?:→|->|=>|with|by)\s*[\"“「](?P<new>[^\"”」]+)[\"”」]", re.I
)
_WRONG_RIGHT = re.compile(
    r"\s*(?:❌|✗|🚫|⛔)\s*(?P<wrong>.+?)\s*(?:→|->|=>|⇒|;|\||,|\s)\s*(?:✅|✔️?|☑️?)\s*(?P<right>.+)", re.DOTALL
)
_IS_WRONG, _IS_RIGHT = re.compile(r"\s*(?:❌|✗|🚫|⛔)\s*"), re.compile(r"\s*(?:✅|✔️?|☑️?)\s*")
_DESCRIBES = re.compile(r"(?:`[^`]+`|\[[^\]]+\]\([^)]+\)|[\w./-]+/)\s*(?:[-–—:：=|]|\(|→|is |are )")
_LINK_FIRST = re.compile(r"!?\[[^\]]+\]\([^)]+\)|https?://\S+$|see\s+[`\[]", re.IGNORECASE)
_SHORT_SAMPLE = 80
_SHORT_WORDS, _STANDING_WORDS, _TOPIC_WORDS = 6, 26, 9
_MIDDLE = re.compile(
    r"(?:only|not|must|without|with|or|and|also|it|this|these|that|they|same|both|enabled|disabled|needs?|already|"
    r"still|otherwise|default|works?|fails?|returns?|requires?|uses?|has|have|is|are|was|can|cannot|does|doesn't|"
    r"pauses|runs|takes|causes|affected|why)\b|[→=]",
)


def read_notes(text: str, name: str) -> Iterator[Note | Left]:
    """Yield the lessons of a page, and what was left out of it, in order of their lines.

    Args:
        text: of the page.
        name: of the file, without its folder: a page of instructions holds more than lessons, so there only advice is.
    """
    found = outline(text)
    page = _Page(found.page, is_log=_is_log(name, found.page))
    page.read(found.page, "", is_log=page.is_log)
    seen: set[str] = set()
    for item in sorted(page.found, key=lambda each: (each.line, each.end)):
        said = item.text.casefold()
        if isinstance(item, Note) and (item.text in page.gone or said in seen):
            yield Left(item.line, item.end, STRUCK if item.text in page.gone else TWICE, item.text)
            continue
        if isinstance(item, Note):
            seen.add(said)
        yield item


def _is_log(name: str, page: Section) -> bool:
    """Tell a page of lessons from one of instructions: by its name, else by its title."""
    if _RULES.search(name):
        return False
    titles = [each.title for each in page.sections[:1]]
    return _LOG.search(name) is not None or any(_LOG.search(title) for title in titles)


class _Heading(NamedTuple):
    """A heading, taken apart: what remains of it, its date, and the word in brackets."""

    title: str
    when: str
    kind: str
    is_entry: bool


def _heading(raw: str) -> _Heading:
    title, when, kind, is_entry = raw.strip(), "", "", False
    for _ in range(4):
        if (found := _DATE_FIRST.match(title)) and found.end():
            title, when, is_entry = title[found.end() :], found["when"], True
        elif (found := _BRACKET_FIRST.match(title)) and not advice.is_placeholder(found["word"]):
            kind, title, is_entry = (found["word"], title[found.end() :], True)
        elif (found := _CODE_FIRST.match(title)) and found.end():
            title, is_entry = title[found.end() :], True
        else:
            break
    if (found := _DATE_LAST.search(title)) and found.start():
        title, when, is_entry = title[: found.start()], when or _date_in(found), True
    kind = "" if re.search(r"\d", kind) else kind
    return _Heading(advice.plain(title.strip(" -–—:：|")), when, kind, is_entry)


class _Page:
    """A page while it is being read."""

    def __init__(self, page: Section, *, is_log: bool) -> None:
        self.is_log = is_log
        self.found: list[Note | Left] = []
        self.gone: set[str] = set()
        tops = [each for each in page.sections if each.level == 1]
        first = tops[0] if tops else None
        is_title = first is not None and (
            bool(first.sections) or any(b.kind != "paragraph" for b in first.blocks) or len(tops) == 1
        )
        if is_title and first is not None and len(tops) == 1 and not first.sections and not _LOG.search(first.title):
            is_title = any(block.kind != "paragraph" for block in first.blocks)
        self._title = first if is_title else None

    # --- sections

    def read(self, section: Section, category: str, *, is_log: bool) -> None:
        """Read a section and those below it."""
        if section.level:
            if advice.is_placeholder(section.title) and section.title:
                self._leave_all(section, TEMPLATE)
                return
            if advice.is_about(section.title):
                self._leave_all(section, ABOUT)
                return
            is_log = is_log or (not self.is_log and advice.is_of_lessons(section.title))
            if not is_log and advice.is_layout(section.title):
                self._read_layout(section)
                return
        head = _heading(section.title)
        here = category if self._is_title(section) else (head.kind or category if head.is_entry else head.title)
        below = [each for each in section.sections if not self._is_field(section, each)]
        as_fields = [each for each in section.sections if each not in below]
        if as_fields or self._is_form(section):
            self._read_form(section, as_fields, here, head, is_log=is_log)
        else:
            self._read_blocks(section, here, head, is_log=is_log)
            if not section.blocks and not section.sections and section.level and not self._is_title(section):
                self.found.append(Left(section.line, section.line, HEADING, section.title))
        for each in below:
            self.read(each, here, is_log=is_log)

    def _read_layout(self, section: Section) -> None:
        for each in section.walk():
            for block in each.blocks:
                if block.kind == "item" and _is_strict(block.text):
                    self._item(block, section.title, _heading(""), "", is_log=False)
                else:
                    self._leave(block, LAYOUT)

    def _is_title(self, section: Section) -> bool:
        return section.level == 0 or section is self._title

    def _is_field(self, section: Section, below: Section) -> bool:
        """Tell a heading that names a field of the entry above it."""
        if below.sections or (role := advice.role_of(below.title)) is None:
            return False
        roles = [found for each in section.sections if (found := advice.role_of(each.title))]
        said = [found for found in roles if found[0] in advice.SAID]
        if not said:
            return False
        if role[0] == "rule" and sum(block.kind == "item" for block in below.blocks) > 1:
            return False  # several lessons, each for itself
        return len(roles) > 1 or (_heading(section.title).is_entry and section.level > 1)

    def _is_form(self, section: Section) -> bool:
        found = [each for block in section.blocks for each in _fields_of(block) if each.role in advice.SAID]
        return bool(found) and (not self._is_title(section) or len(found) > 1 or not section.sections)

    def _leave_all(self, section: Section, reason: str) -> None:
        for each in section.walk():
            for block in each.blocks:
                self._leave(block, reason)
            if not each.blocks and each.level:
                self.found.append(Left(each.line, each.line, reason, each.title))

    def _leave(self, block: Block, reason: str) -> None:
        self.found.append(Left(block.line, block.end, reason, block.text[:_SHORT_SAMPLE]))

    # --- entries with labelled fields

    def _read_form(
        self, section: Section, as_fields: Sequence[Section], category: str, head: _Heading, *, is_log: bool
    ) -> None:
        form = _Form(section.line or 1, head.title if not self._is_title(section) else "", head.when)
        form.category = head.kind or category
        rest: list[Block] = []
        for block in section.blocks:
            if block.kind == "table":
                rest.append(block)
            elif _fields_of(block):
                form = self._take_fields(form, block)
            elif form.fields and not _is_bold_lead(block) and (block.kind != "item" or form.is_open):
                form.more(block)
            elif block.kind == "paragraph" and not (form.fields or _is_bold_lead(block) or self._is_title(section)):
                form.lead.append(block.text)
                form.end = block.end
            else:
                rest.append(block)
        for each in as_fields:
            form = self._take_section(form, each)
        self._finish(form)
        holder = Section(section.level, section.title, section.line, section.above)
        holder.blocks = rest
        self._read_blocks(holder, category, head, is_log=is_log)

    def _take_section(self, form: "_Form", section: Section) -> "_Form":
        """Take a heading that names a field, and what stands under it; return the entry that it went into."""
        role = advice.role_of(section.title)
        if role is None:
            return form
        label = advice.fold_label(section.title)
        if form.has(label):
            form = self._next_form(form, section.line)
        form.add(Field(role[0], role[1], label, ""), section.line, section.end)
        for block in section.blocks:
            inner = _fields_of(block)
            if inner and role[0] not in advice.SAID:
                for one in inner:
                    form.add(one, block.line, block.end)
            else:
                form.more(block)
        return form

    def _take_fields(self, form: "_Form", block: Block) -> "_Form":
        for number, one in enumerate(_fields_of(block)):
            if one.role and form.has(one.label) and (one.label == form.first or one.role in advice.SAID):
                form = self._next_form(form, block.line)
            if one.role:
                form.add(one, block.line, block.end)
            elif number == 0 and one.value:
                form = self._next_form(form, block.line)
                form.title = ""
                form.open(one.value, block)
        return form

    def _next_form(self, form: "_Form", line: int) -> "_Form":
        """Finish an entry, and begin one under the same heading."""
        self._finish(form)
        following = _Form(line, form.title, form.when)
        following.category = form.category
        return following

    def _finish(self, form: "_Form") -> None:
        for made in form.notes():
            self._put(made)

    # --- blocks without fields

    def _read_blocks(self, section: Section, category: str, head: _Heading, *, is_log: bool) -> None:
        prose: list[Block] = []
        intro = ""
        at = 0
        blocks = section.blocks
        while at < len(blocks):
            block = blocks[at]
            at += 1
            if block.kind == "item":
                items = [block]
                while at < len(blocks) and blocks[at].kind == "item":
                    items.append(blocks[at])
                    at += 1
                self._prose(section, prose, category, head, is_log=is_log)
                prose = []
                self._list(items, category, head, intro, is_log=is_log)
                intro = ""
                continue
            text = block.text
            if block.kind == "table":
                self._table(block, category, head, is_log=is_log)
            elif block.kind == "quote" and not (
                is_log and advice.is_sentence(text) and advice.is_advice(text) and not self._is_title(section)
            ):
                self._leave(block, PROSE)
            elif (
                _DATE_FIRST.match(text) or _is_bold_lead(block) or _WRONG_RIGHT.match(text) or _SUPERSEDES.search(text)
            ):
                if advice.plain(text).endswith((":", "：")):
                    intro = self._intro(block, category, is_log=is_log)
                else:
                    self._item(block, category, head, "", is_log=is_log)
            elif text.endswith((":", "：")) and at < len(blocks) and blocks[at].kind == "item":
                intro = self._intro(block, category, is_log=is_log)
            else:
                prose.append(block)
        self._prose(section, prose, category, head, is_log=is_log)

    def _intro(self, block: Block, category: str, *, is_log: bool) -> str:
        """Return what leads to the list below it: its last sentence; those before may be a lesson."""
        begin, last = advice.last_sentence(advice.plain(block.text))
        if begin and advice.is_sentence(begin) and (_is_binding(begin) or (is_log and _is_bold_lead(block))):
            self._put(Note(block.line, block.end, begin, category=category))
        else:
            self._leave(block, PROSE)
        return re.sub(r"\s*\([^)]*\)$", "", last.rstrip(":： "))

    def _prose(self, section: Section, prose: list[Block], category: str, head: _Heading, *, is_log: bool) -> None:
        """Take what stands under a heading as its lesson; on a page of instructions, only a paragraph that binds."""
        if not prose:
            return
        if self._is_title(section) or not is_log:
            for block in prose:
                parts = _one_a_line(block)
                for part in parts:
                    text = advice.plain(part.text)
                    if _is_binding(text) and advice.is_sentence(text) and (not self._is_title(section) or not is_log):
                        self._put(Note(part.line, part.end, text, category=category))
                    else:
                        self._leave(part, PROSE)
            return
        body = advice.plain(" ".join(block.text for block in prose))
        first, last = (section.line or prose[0].line), prose[-1].end
        if advice.is_placeholder(body) or (
            not advice.is_sentence(body) and not advice.is_sentence(f"{head.title} {body}")
        ):
            for block in prose:
                self._leave(block, TEMPLATE if advice.is_placeholder(body) else NO_SENTENCE)
            return
        above = category if category != head.title else ""
        if head.title and advice.is_sentence(head.title) and not any(b.kind != "paragraph" for b in section.blocks):
            self._put(Note(first, last, head.title, body, title=head.title, category=above, when=head.when))
        else:
            begin, rest = advice.lead(body, _TEXT_CHARS)
            text = _standing(begin, head.title)
            self._put(Note(first, last, text, rest, title=head.title, category=above, when=head.when))

    def _list(self, items: list[Block], category: str, head: _Heading, intro: str, *, is_log: bool) -> None:
        usable = [each for each in items if advice.is_sentence(each.text) or _fields_of(each) or each.items]
        if intro and len(items) > 1 and len(usable) * 2 < len(items) and not any(each.is_task for each in items):
            joined = f"{intro}: " + "; ".join(advice.plain(each.text).rstrip(".;") for each in items)
            if (is_log or advice.is_advice(intro)) and advice.is_sentence(joined) and not advice.is_placeholder(joined):
                self._put(Note(items[0].line, items[-1].end, joined, category=category, when=head.when))
                return
        at = 0
        while at < len(items):
            item = items[at]
            at += 1
            after = items[at] if at < len(items) else None
            if (
                _IS_WRONG.match(item.text)
                and not _WRONG_RIGHT.match(item.text)
                and after
                and _IS_RIGHT.match(after.text)
            ):
                self._pair(item, after, category)
                at += 1
            else:
                self._item(item, category, head, intro, is_log=is_log)

    def _pair(self, bad: Block, good: Block, category: str) -> None:
        wrong, right = _IS_WRONG.sub("", advice.plain(bad.text), 1), _IS_RIGHT.sub("", advice.plain(good.text), 1)
        self._put(Note(bad.line, good.end, _instead(wrong, right), right, wrong, category=category))

    def _item(self, item: Block, category: str, head: _Heading, intro: str, *, is_log: bool) -> None:
        if item.is_task:
            self._leave(item, TASK)
            return
        raw = item.text
        if found := _SUPERSEDES.search(raw):
            self.gone.add(advice.plain(found["old"]))
            self._put(Note(item.line, item.end, advice.plain(found["new"]), wrong=found["old"], category=category))
            return
        if _GONE.match(raw):
            self._leave(item, STRUCK)
            return
        if found := _WRONG_RIGHT.match(raw):
            wrong, right = advice.plain(found["wrong"]), advice.plain(found["right"])
            self._put(Note(item.line, item.end, _instead(wrong, right), right, wrong, category=category))
            return
        whole = [*_fields_of(item), *(one for each in item.items for one in _fields_of(each))]
        if any(one.role in advice.SAID for one in whole):
            form = self._take_fields(_Form(item.line, "", head.when), item)
            form.category = category
            for each in item.items:
                if _fields_of(each):
                    form = self._take_fields(form, each)
                else:
                    form.more(each)
            self._finish(form)
            return
        if any(one.role for one in whole[:1]):
            self._leave(item, NO_ADVICE if not is_log else "it is a field that says nothing that was learned")
            return
        self._plain_item(item, category, head, intro, is_log=is_log)

    def _plain_item(self, item: Block, category: str, head: _Heading, intro: str, *, is_log: bool) -> None:
        raw, when = item.text, head.when
        if found := _DATE_FIRST.match(raw):
            raw, when = raw[found.end() :], found["when"]
        if (found := _DATE_LAST.search(raw)) and found.start() > _SHORT_SAMPLE // 4:
            raw, when = raw[: found.start()], _date_in(found)
        parts = _columns(raw)
        if when and len(parts) > 1:  # date | what went wrong | rule
            text, wrong = advice.plain(parts[-1]), advice.plain(" ".join(parts[:-1]))
            self._put(Note(item.line, item.end, _standing(text, ""), wrong=wrong, category=category, when=when))
            return
        if (found := _BRACKET_FIRST.match(raw)) and advice.is_sentence(raw[found.end() :]):
            category, raw = found["word"], raw[found.end() :]
        text = advice.plain(raw)
        subs = [each for each in item.items if not each.is_task]
        if advice.is_placeholder(raw):
            self._leave(item, TEMPLATE)
            return
        if subs and (text.endswith((":", "：")) or not advice.is_sentence(text)):
            start = text.rstrip(":： ")
            whole = f"{start}: " + "; ".join(advice.plain(each.text).rstrip(".;") for each in subs)
            if len(whole) <= _TEXT_CHARS and (is_log or advice.is_advice(whole)):
                self._put(Note(item.line, item.end, whole, category=category, when=when))
            else:
                for each in subs:
                    self._item(each, category, _Heading(start, when, "", is_entry=False), start, is_log=is_log)
            return
        if not is_log and (
            _LINK_FIRST.match(raw) or (_DESCRIBES.match(raw) and not _is_strict(text)) or not advice.is_advice(text)
        ):
            self._leave(item, NO_ADVICE)
            return
        is_whole = advice.is_sentence(text) and not (is_log and _needs_title(text))
        over = intro if intro and len(intro.split()) <= _TOPIC_WORDS else _topic(head.title)
        if intro and is_whole:
            is_whole = advice.is_order(text) or len(text.split()) >= _SHORT_WORDS
        own = text if is_whole else _standing(text, over)
        if not advice.is_sentence(own) or (is_log and _LINK_FIRST.fullmatch(raw)):
            self._leave(item, NO_SENTENCE)
            return
        body = "; ".join(advice.plain(each.text) for each in subs)
        begin, rest = advice.lead(own, _TEXT_CHARS)
        self._put(
            Note(
                item.line,
                item.end,
                begin,
                " ".join(filter(None, [rest, body]))[:_BODY_CHARS],
                title=head.title if head.is_entry else "",
                category=category,
                when=when,
            )
        )

    # --- tables

    def _table(self, block: Block, category: str, head: _Heading, *, is_log: bool) -> None:
        rows = [_cells(line) for line in block.lines]
        header = rows[0] if rows else []
        roles = [advice.role_of(cell) for cell in header]
        said = [role for role in roles if role and role[0] in advice.SAID]
        is_pair = len(header) == 2 and is_log and not said
        if (
            len(rows) < 3
            or not (said or is_pair)
            or (not is_log and not any(role[0] in ("rule", "right") for role in said))
        ):
            self._leave(block, TABLE if len(rows) > 2 or not said else TEMPLATE)
            return
        for number, cells in enumerate(rows):
            line = block.line + number
            if number == 0 or all(set(cell) <= set("-: ") for cell in cells):
                continue
            form = _Form(line, "", head.when)
            form.category = category
            if is_pair and len(cells) == 2:
                form.open(cells[0], block)
                form.add(Field("right", 0, "right", cells[1]), line, line)
            else:
                for role, title, cell in zip(roles, header, cells, strict=False):
                    if role:
                        form.add(Field(role[0], role[1], advice.fold_label(title), cell), line, line)
                    elif not form.lead:
                        form.lead.append(cell)
            form.line = form.end = line
            self._finish(form)

    def _put(self, note: Note) -> None:
        begin, rest = advice.lead(note.text.strip(), _TEXT_CHARS)
        note = note._replace(
            text=begin.strip(" -–—•"),
            correct=(rest + " " + note.correct).strip() if rest else note.correct.strip(),
            category=_category(note.category),
        )
        if advice.is_placeholder(note.text):
            self.found.append(Left(note.line, note.end, TEMPLATE, note.text[:_SHORT_SAMPLE]))
        elif _GONE.match(note.text) or (note.title and _GONE.search(note.title)):
            self.found.append(Left(note.line, note.end, STRUCK, note.text[:_SHORT_SAMPLE]))
        else:
            self.found.append(note)


class _Form:
    """An entry with labelled fields, while it is being read."""

    def __init__(self, line: int, title: str, when: str) -> None:
        self.line, self.end, self.title, self.when = line, line, title, when
        self.category = ""
        self.lead: list[str] = []
        self.fields: list[tuple[Field, list[str], int]] = []
        self.first = ""
        self._is_listing = False

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
        head = _heading(text)
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

    def notes(self) -> Iterator[Note]:
        """Yield the lessons that it amounts to: as a rule one."""
        rules, rights, wrongs, whys = (self._said(role) for role in ("rule", "right", "wrong", "why"))
        title, lead = self.title, " ".join(self.lead)
        if not title:
            title, lead = lead, ""
        is_titled = advice.is_sentence(title)
        wrong = " ".join(wrongs[:1])
        if rules:
            text, more = rules[0], [*rules[1:], *rights[:2]]
        elif rights and not is_titled:
            text, more = rights[0], rights[1:]
        elif rights:
            text, more = title, rights
        else:
            told = " ".join([*wrongs[:1], *whys[:1]])
            text, more = (title, [told]) if is_titled and told else (told, [])
        if text.endswith((":", "：")):
            text, more = (title, [text, *more]) if is_titled else (text.rstrip(":： "), more)
        is_short = bool(rules) and not advice.is_sentence(text) and len(text.split()) > 1
        if text and text != title and (not rules or is_short):
            text = _standing(text, title)
        if not text.strip():
            return
        yield Note(
            self.line,
            self.end,
            text,
            " ".join(part for part in more if part and part != text)[:_BODY_CHARS],
            wrong[:_BODY_CHARS],
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
            (one.rank, number, " ".join(values))
            for number, (one, values, _) in enumerate(self.fields)
            if one.role == role and values
        ]
        return [value for _, _, value in sorted(found)]

    def _one(self, role: str) -> str:
        return next((values[0] for one, values, _ in self.fields if one.role == role and values), "")


def _fields_of(block: Block) -> list[Field]:
    """Return the fields of a block's lines; a line without a label goes on with the field before it."""
    found: list[Field] = []
    for number, line in enumerate(block.lines):
        for one in advice.fields(line):
            if one.role or (number == 0 and not found):
                found.append(one)
            elif found:
                found[-1] = found[-1]._replace(value=f"{found[-1].value} {one.value}".strip())
    return found if any(one.role for one in found) else []


def _is_bold_lead(block: Block) -> bool:
    """Tell a paragraph that begins with its lesson, or its name, in bold."""
    return block.kind == "paragraph" and re.match(r"\s*(?:\W{1,3}\s)?\*\*[^*]{2,}\*\*", block.text) is not None


def _one_a_line(block: Block) -> list[Block]:
    """Return the lines of a paragraph as blocks of their own, where each is a sentence by itself."""
    if len(block.lines) > 1 and all(line.rstrip().endswith((".", "!", "。", "！")) for line in block.lines):
        return [Block("paragraph", block.line + at, line) for at, line in enumerate(block.lines)]
    return [block]


_STRICT = re.compile(
    r"\b(?:always|never|must(?:n't)?|do not|don['’]t|avoid|prefer|only|should(?:n['’]t)?|ensure|instead|cannot|"
    r"required?s?)\b|必须|不要|禁止|务必|避免",
    re.IGNORECASE,
)


def _is_strict(text: str) -> bool:
    return _STRICT.search(text) is not None


def _standing(text: str, title: str) -> str:
    """Return a text with the heading before it that it needs to be understood."""
    words = {word.casefold() for word in re.findall(r"\w{4,}", title)}
    shared = words & {word.casefold() for word in re.findall(r"\w{4,}", text)}
    if not title or shared or len(text.split()) > _STANDING_WORDS or title in text:
        return text
    return f"{title}: {text}"


def _topic(title: str) -> str:
    """Return a heading if it names what is told under it; not if it only names the kind: rules, gotchas, security."""
    is_kind = advice.is_of_lessons(title) or advice.is_layout(title) or len(title.split()) < 2
    return "" if is_kind or len(title.split()) > _TOPIC_WORDS else title


def _needs_title(text: str) -> bool:
    """Tell a text that does not say of what it speaks: it is short, or begins in the middle."""
    if advice.is_order(text):
        return False
    return len(text.split()) < _SHORT_WORDS or _MIDDLE.match(text.casefold()) is not None or text[:1].islower()


def _is_binding(text: str) -> bool:
    """Tell a paragraph that says what to do or not to do from one that only mentions it."""
    after = re.split(r"^[^.!?]{1,60}?[:—–]\s+", text, maxsplit=1)
    return _is_strict(text) or advice.is_order(after[-1])


def _instead(wrong: str, right: str) -> str:
    return f"{right}, not {wrong}" if len(right.split()) < _SHORT_WORDS and len(wrong) < _SHORT_SAMPLE else right


def _category(text: str) -> str:
    bare = re.sub(r"[—–|:(].*", "", advice.plain(text)).replace("`", "").strip(" -#.*")
    bare = "".join(one for one in bare if one.isprintable() and ord(one) < 0x1F000 and one not in "✅❌⚠️🔥").strip()
    return bare[:60].strip()


def _date_in(found: re.Match[str]) -> str:
    return found["when"] or found["in_when"]


def _columns(text: str) -> list[str]:
    hidden = re.sub(r"`[^`]*`", lambda code: "x" * len(code[0]), text)
    cuts = [found.span() for found in re.finditer(r"\s\|\s", hidden)]
    starts, ends = [0, *(end for _, end in cuts)], [*(start for start, _ in cuts), len(text)]
    return [text[start:end].strip() for start, end in zip(starts, ends, strict=True)]


def _cells(line: str) -> list[str]:
    hidden = re.sub(r"`[^`]*`|\\\|", lambda code: "x" * len(code[0]), line.strip())
    cuts = [at for at, one in enumerate(hidden) if one == "|"]
    text = line.strip()
    return [text[start + 1 : end].replace("\\|", "|").strip() for start, end in pairwise(cuts)]
