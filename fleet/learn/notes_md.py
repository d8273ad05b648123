"""Reader of the Markdown pages in which people and agents keep what they learned, whatever their form.

``tasks/lessons.md``, ``LEARNINGS.md``, ``gotchas.md``, ``CLAUDE.md``, ``.cursorrules`` and their like: bullets under
headings, entries with labelled fields in any order, sections of a heading and a paragraph, dated lines, tables. What is
taken is a sentence that says something; what is not is named with its lines and the reason. Never raises.
"""

import re
from collections.abc import Iterator, Sequence
from itertools import pairwise

from fleet.learn.note_parts import (
    ABOUT,
    BODY_CHARS,
    BRACKET_FIRST,
    DANGLES,
    DATE_FIRST,
    DATE_LAST,
    GONE,
    HEADING,
    LAYOUT,
    NO_ADVICE,
    NO_SENTENCE,
    NOTHING_LEARNED,
    PROSE,
    STRUCK,
    TABLE,
    TASK,
    TEMPLATE,
    TOO_LONG,
    TWICE,
    WORDS_MIN,
    Form,
    Heading,
    Left,
    Note,
    date_in,
    fault,
    fields_of,
    heading,
    is_strict,
    standing,
)
from fleet.text import advice
from fleet.text.advice import Field
from fleet.text.outline import BLOCK_CHARS_MAX, Block, Section, outline

_TEXT_CHARS = 420
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
_SUPERSEDES = re.compile(
    r"SUPERSEDES:?\s*[\"“「](?P<old>[^\"”」]+)[\"”」]\s*(?:→|->|=>|with|by)\s*[\"“「](?P<new>[^\"”」]+)[\"”」]", re.I
)
_WRONG_RIGHT = re.compile(
    r"\s*(?:❌|✗|🚫|⛔)\s*(?P<wrong>.+?)\s*(?:→|->|=>|⇒|;|\||,|\s)\s*(?:✅|✔️?|☑️?)\s*(?P<right>.+)", re.DOTALL
)
_IS_WRONG, _IS_RIGHT = re.compile(r"\s*(?:❌|✗|🚫|⛔)\s*"), re.compile(r"\s*(?:✅|✔️?|☑️?)\s*")
_DESCRIBES = re.compile(
    r"(?:[\w &/-]+\s\(`[^`]+`\)|`[^`]+`|\[[^\]]+\]\([^)]+\)|[\w./-]+/)\s*(?:[-–—:：=|]|\(|→|is |are )"
)
_FORBIDS = re.compile(
    r"[^\w]*(?:never|don['’]?t\b|do not|avoid|forbidden|prohibited|must not|anti-?patterns?|bad\b|wrong\b|mistakes to|"
    r"(?:what|things) (?:not to|to avoid|to not)|禁止|不要)",
    re.IGNORECASE,
)
"""What stands under this is not to be done: without it, an order there says the opposite."""
_IS_FORBIDDING = re.compile(r"\W*(?:never|don['’]?t|do not|no|not|avoid|禁止|不要)\b", re.IGNORECASE)
_ENDS_OPEN = re.compile(r"(?:^|\W)(?:when|if|where|unless|because|until|while|for|to|by|only)$", re.IGNORECASE)
_LINK_FIRST = re.compile(r"!?\[[^\]]+\]\([^)]+\)|https?://\S+$|see\s+[`\[]", re.IGNORECASE)
_BOLD_LABEL = re.compile(r"\s*\*\*[^*]{1,30}(?:[:：]\s*\*\*|\*\*\s*[:：])")
_OF_CODE = re.compile(r"`[^`]*[/.(][^`]*`\s+[-–—]\s")
_RULES_OF_PAGE = re.compile(
    r"(?:rules?|(?:add|append|write) (?:an? |new )?(?:entry|entries|lesson)|conventions|guidelines|how to|usage|"
    r"when to (?:add|write))\b",
    re.IGNORECASE,
)
_PURPOSE = re.compile(r"(?:to|when|if|before|after|for|in order to|while)\s", re.IGNORECASE)
_SHORT_SAMPLE = 80
_FIELDS_MIN = 2
_SHORT_WORDS, _LONG_TITLE, _TOPIC_WORDS = 6, 8, 9
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
    for number, line in enumerate(text.split("\n"), 1):
        if len(line) > BLOCK_CHARS_MAX // 2:
            yield Left(number, number, TOO_LONG, line[:_SHORT_SAMPLE])
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
        head = heading(section.title)
        here = category if self._is_title(section) else (head.kind or category if head.is_entry else head.title)
        as_fields = self._fields_below(section)
        fields = {each.line for each in as_fields}
        below = [each for each in section.sections if each.line not in fields]
        if as_fields or self._is_form(section):
            self._read_form(section, as_fields, here, head, is_log=is_log)
        else:
            self._read_blocks(section, here, head, is_log=is_log)
            if not section.blocks and not section.sections and section.level and not self._is_title(section):
                if section.end > section.line and is_log and advice.is_sentence(head.title):  # code shows what it says
                    self._put(Note(section.line, section.end, head.title, category=category, when=head.when))
                else:
                    self.found.append(Left(section.line, section.line, HEADING, section.title))
        for each in below:
            self.read(each, here, is_log=is_log)

    def _read_layout(self, section: Section) -> None:
        for each in section.walk():
            for block in each.blocks:
                if block.kind in ("item", "paragraph") and is_strict(block.text):
                    self._item(block, section.title, heading(""), "", is_log=False)
                else:
                    self._leave(block, LAYOUT)

    def _is_title(self, section: Section) -> bool:
        return section.level == 0 or section is self._title

    def _fields_below(self, section: Section) -> list[Section]:
        """Return the headings that name the fields of the entry above them."""
        roles = {each.line: advice.role_of(each.title) for each in section.sections}
        known = [role for role in roles.values() if role]
        if not any(role[0] in advice.SAID for role in known):
            return []
        is_entry = heading(section.title).is_entry and section.level > 1
        if not is_entry and len(known) < _FIELDS_MIN:
            return []
        return [each for each in section.sections if self._is_field(each, roles[each.line], is_entry=is_entry)]

    def _is_field(self, below: Section, role: tuple[str, int] | None, *, is_entry: bool) -> bool:
        if below.sections:
            return False
        if role is None:
            return is_entry
        # Several bullets under a rule are several lessons, each for itself.
        return not (role[0] == "rule" and sum(block.kind == "item" for block in below.blocks) > 1)

    def _is_form(self, section: Section) -> bool:
        firsts = [found[0] for block in section.blocks if (found := fields_of(block))]
        found = [each for each in firsts if each.role in advice.SAID]
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
        self, section: Section, as_fields: Sequence[Section], category: str, head: Heading, *, is_log: bool
    ) -> None:
        form = Form(section.line or 1, head.title if not self._is_title(section) else "", head.when)
        form.category = head.kind or category
        rest: list[Block] = []
        for block in section.blocks:
            if block.kind == "table":
                rest.append(block)
            elif fields_of(block):
                form = self._take_fields(form, block)
            elif form.fields and not _is_bold_lead(block) and (block.kind != "item" or form.is_open):
                form.more(block)
            elif head.is_entry and not block.is_task and (not _is_bold_lead(block) or _BOLD_LABEL.match(block.text)):
                form.about(block)
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

    def _take_section(self, form: "Form", section: Section) -> "Form":
        """Take a heading that names a field, and what stands under it; return the entry that it went into."""
        role = advice.role_of(section.title) or ("other", 0)
        label = advice.fold_label(section.title)
        if form.has(label):
            form = self._next_form(form, section.line)
        form.add(Field(role[0], role[1], label, ""), section.line, section.end)
        for block in section.blocks:
            inner = fields_of(block)
            if inner and role[0] not in advice.SAID:
                for one in inner:
                    form.add(one, block.line, block.end)
            else:
                form.more(block)
        return form

    def _take_fields(self, form: "Form", block: Block) -> "Form":
        for number, one in enumerate(fields_of(block)):
            if one.role and form.has(one.label) and (one.label == form.first or one.role in advice.SAID):
                form = self._next_form(form, block.line)
            if one.role:
                form.add(one, block.line, block.end)
            elif number == 0 and one.value:
                form = self._next_form(form, block.line)
                form.title = ""
                form.open(one.value, block)
        return form

    def _next_form(self, form: "Form", line: int) -> "Form":
        """Finish an entry, and begin one under the same heading."""
        self._finish(form)
        following = Form(line, form.title, form.when)
        following.category = form.category
        return following

    def _finish(self, form: "Form") -> None:
        notes = list(form.notes())
        for made in notes:
            self._put(made)
        if not notes and (form.fields or form.lead):
            said = " ".join([*form.lead, *(one.value for one, _, _ in form.fields)])
            reason = TEMPLATE if advice.is_placeholder(said) else NOTHING_LEARNED
            self.found.append(Left(form.line, form.end, reason, advice.plain(said)[:_SHORT_SAMPLE]))

    # --- blocks without fields

    def _read_blocks(self, section: Section, category: str, head: Heading, *, is_log: bool) -> None:
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
                if is_log and self._is_title(section) and section.sections and intro and _RULES_OF_PAGE.match(intro):
                    intro = "how to use"
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
            elif DATE_FIRST.match(text) or _is_bold_lead(block) or _WRONG_RIGHT.match(text) or _SUPERSEDES.search(text):
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

    def _prose(self, section: Section, prose: list[Block], category: str, head: Heading, *, is_log: bool) -> None:
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
        body = " ".join(filter(None, (_without_lead_in(block) for block in prose))) or advice.plain(prose[0].text)
        body = body.rstrip(":： ")
        first, last = (section.line or prose[0].line), prose[-1].end
        if advice.is_placeholder(body) or (
            not advice.is_sentence(body) and not advice.is_sentence(f"{head.title} {body}")
        ):
            for block in prose:
                self._leave(block, TEMPLATE if advice.is_placeholder(body) else NO_SENTENCE)
            return
        above = category if category != head.title else ""
        is_titled = _is_lesson(head.title)
        if is_titled and not any(b.kind != "paragraph" for b in section.blocks):
            self._put(Note(first, last, head.title, body, title=head.title, category=above, when=head.when))
        else:
            begin, rest = advice.lead(body, _TEXT_CHARS)
            topic = "" if advice.is_of_lessons(head.title) and len(head.title.split()) == 1 else head.title
            text = f"{topic}: {begin}" if topic and DANGLES.match(begin) else standing(begin, topic)
            self._put(Note(first, last, text, rest, title=head.title, category=above, when=head.when))

    def _list(self, items: list[Block], category: str, head: Heading, intro: str, *, is_log: bool) -> None:
        if intro and (advice.is_about(intro) or advice.is_layout(intro)):
            for each in items:
                self._leave(each, ABOUT if advice.is_about(intro) else LAYOUT)
            return
        usable = [each for each in items if advice.is_sentence(each.text) or fields_of(each) or each.items]
        is_open = _ENDS_OPEN.search(intro) is not None
        is_one = len(usable) * 2 < len(items) or is_open
        if intro and len(items) > 1 and is_one and not any(each.is_task for each in items):
            joined = f"{intro}: " + "; ".join(advice.plain(each.text).rstrip(".;") for each in items)
            if (
                (advice.is_advice(intro) or _PURPOSE.match(intro) or is_open)
                and advice.is_sentence(joined)
                and len(joined) <= _TEXT_CHARS
                and not advice.is_placeholder(joined)
            ):
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

    def _item(self, item: Block, category: str, head: Heading, intro: str, *, is_log: bool) -> None:
        if item.is_task:
            self._leave(item, TASK)
            return
        raw = item.text
        if found := _SUPERSEDES.search(raw):
            self.gone.add(advice.plain(found["old"]))
            self._put(Note(item.line, item.end, advice.plain(found["new"]), wrong=found["old"], category=category))
            return
        if GONE.match(raw):
            self._leave(item, STRUCK)
            return
        if found := _WRONG_RIGHT.match(raw):
            wrong, right = advice.plain(found["wrong"]), advice.plain(found["right"])
            self._put(Note(item.line, item.end, _instead(wrong, right), right, wrong, category=category))
            return
        whole = [*fields_of(item), *(one for each in item.items for one in fields_of(each))]
        if any(one.role in advice.SAID for one in whole):
            form = self._take_fields(Form(item.line, "", head.when), item)
            form.category = category
            for each in item.items:
                if fields_of(each):
                    form = self._take_fields(form, each)
                else:
                    form.more(each)
            self._finish(form)
            return
        if any(one.role for one in whole[:1]):
            self._leave(item, NO_ADVICE if not is_log else NOTHING_LEARNED)
            return
        self._plain_item(item, category, head, intro, is_log=is_log)

    def _plain_item(self, item: Block, category: str, head: Heading, intro: str, *, is_log: bool) -> None:
        raw, when = item.text, head.when
        if found := DATE_FIRST.match(raw):
            raw, when = raw[found.end() :], found["when"]
        if (found := DATE_LAST.search(raw)) and found.start() > _SHORT_SAMPLE // 4:
            raw, when = raw[: found.start()], date_in(found)
        parts = _columns(raw)
        if when and len(parts) > 1:  # date | what went wrong | rule
            text, wrong = advice.plain(parts[-1]), advice.plain(" ".join(parts[:-1]))
            self._put(Note(item.line, item.end, standing(text, ""), wrong=wrong, category=category, when=when))
            return
        if (found := BRACKET_FIRST.match(raw)) and advice.is_sentence(raw[found.end() :]):
            category, raw = found["word"], raw[found.end() :]
        text = advice.plain(raw)
        if item.end > item.line and not item.items:
            text = text.rstrip(":： ")  # code shows it
        subs = [each for each in item.items if not each.is_task]
        if advice.is_placeholder(raw):
            self._leave(item, TEMPLATE)
        elif subs and (text.endswith((":", "：")) or not advice.is_sentence(text)):
            self._below(item, subs, text.rstrip(":： "), category, when, is_log=is_log)
        elif _only_describes(raw, text, is_log=is_log):
            self._leave(item, NO_ADVICE)
        else:
            self._say(item, raw, text, category, head._replace(when=when), intro, is_log=is_log)

    def _below(self, item: Block, subs: list[Block], start: str, category: str, when: str, *, is_log: bool) -> None:
        """Take what stands below an item that only names it: together where that is short, else each for itself."""
        whole = f"{start}: " + "; ".join(advice.plain(each.text).rstrip(".;") for each in subs)
        if len(whole) <= _TEXT_CHARS and (advice.is_advice(whole) or (is_log and any(map(_is_told, subs)))):
            self._put(Note(item.line, item.end, whole, category=category, when=when))
            return
        for each in subs:
            self._item(each, category, Heading(start, when, "", is_entry=False), start, is_log=is_log)

    def _say(self, item: Block, raw: str, text: str, category: str, head: Heading, intro: str, *, is_log: bool) -> None:
        """Take an item, with the heading before it where it needs that."""
        when, subs = head.when, [each for each in item.items if not each.is_task]
        is_whole = advice.is_sentence(text) and not (is_log and _needs_title(text))
        over = intro if intro and len(intro.split()) <= _TOPIC_WORDS else _topic(head.title)
        under = intro or advice.plain(head.title)
        if advice.is_order(text) and _FORBIDS.match(under) and not _IS_FORBIDDING.match(text):
            is_whole, text = True, f"{under}: {text}"
        elif intro and is_whole:
            is_whole = advice.is_order(text) or len(text.split()) >= _SHORT_WORDS
        own = text if is_whole else standing(text, over)
        is_name = own != text and not advice.is_claim(text) and not advice.is_advice(over)
        if is_name or not advice.is_sentence(own) or (is_log and _LINK_FIRST.fullmatch(raw)):
            self._leave(item, fault(Note(item.line, item.end, text)) or NO_SENTENCE)
            return
        body = "; ".join(advice.plain(each.text) for each in subs)
        begin, rest = advice.lead(own, _TEXT_CHARS)
        self._put(
            Note(
                item.line,
                item.end,
                begin,
                " ".join(filter(None, [rest, body]))[:BODY_CHARS],
                title=head.title if head.is_entry else "",
                category=category,
                when=when,
            )
        )

    # --- tables

    def _table(self, block: Block, category: str, head: Heading, *, is_log: bool) -> None:
        rows = [_cells(line) for line in block.lines]
        header = rows[0] if rows else []
        roles = [advice.role_of(cell) for cell in header]
        said = [role for role in roles if role and role[0] in advice.SAID]
        if len(rows) < 3 or not said or (not is_log and not any(role[0] in ("rule", "right") for role in said)):
            self._leave(block, TABLE if len(rows) > 2 or not said else TEMPLATE)
            return
        for number, cells in enumerate(rows):
            line = block.line + number
            if number == 0 or all(set(cell) <= set("-: ") for cell in cells):
                continue
            form = Form(line, "", head.when)
            form.category = category
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
        if reason := fault(note):
            self.found.append(Left(note.line, note.end, reason, note.text[:_SHORT_SAMPLE]))
        else:
            self.found.append(note)


def _is_told(item: Block) -> bool:
    return advice.is_claim(item.text) and not advice.is_done(item.text)


def _is_bold_lead(block: Block) -> bool:
    """Tell a paragraph that begins with its lesson, or its name, in bold."""
    return block.kind == "paragraph" and re.match(r"\s*(?:\W{1,3}\s)?\*\*[^*]{2,}\*\*", block.text) is not None


def _only_describes(raw: str, text: str, *, is_log: bool) -> bool:
    """Tell what says what something is, and nothing to do or to heed."""
    if _OF_CODE.match(raw) and not is_strict(text):
        return True
    if is_log:
        return False
    is_name = _LINK_FIRST.match(raw) or (_DESCRIBES.match(raw) and not is_strict(text))
    return bool(is_name) or not advice.is_advice(text)


def _is_lesson(title: str) -> bool:
    """Tell a heading that is a lesson by itself from a topic or a symptom, whose lesson stands under it."""
    is_long = len(title.split()) >= _LONG_TITLE or not title.isascii()
    return advice.is_sentence(title) and (_is_binding(title) or (is_long and advice.is_claim(title)))


def _without_lead_in(block: Block) -> str:
    """Return a paragraph without its last sentence where that only leads to the code below it."""
    text = advice.plain(block.text)
    before, last = advice.last_sentence(text)
    return before if text.endswith((":", "：")) and not _is_binding(last) else text


def _one_a_line(block: Block) -> list[Block]:
    """Return the lines of a paragraph as blocks of their own, where each is a sentence by itself."""
    if len(block.lines) > 1 and all(line.rstrip().endswith((".", "!", "。", "！")) for line in block.lines):
        return [Block("paragraph", block.line + at, line) for at, line in enumerate(block.lines)]
    return [block]


def _topic(title: str) -> str:
    """Return a heading if it names what is told under it; not if it only names the kind: rules, gotchas, security."""
    is_kind = advice.is_of_lessons(title) or advice.is_layout(title) or len(title.split()) < 2
    return "" if is_kind or len(title.split()) > _TOPIC_WORDS else title


def _needs_title(text: str) -> bool:
    """Tell a text that does not say of what it speaks: it is short, or begins in the middle."""
    if advice.is_order(text):
        return len(text.split()) <= WORDS_MIN and "`" not in text
    return len(text.split()) < _SHORT_WORDS or _MIDDLE.match(text.casefold()) is not None or text[:1].islower()


def _is_binding(text: str) -> bool:
    """Tell a paragraph that says what to do or not to do from one that only mentions it."""
    after = re.split(r"^[^.!?]{1,60}?[:—–]\s+", text, maxsplit=1)
    return is_strict(text) or advice.is_order(after[-1])


def _instead(wrong: str, right: str) -> str:
    return f"{right}, not {wrong}" if len(right.split()) < _SHORT_WORDS and len(wrong) < _SHORT_SAMPLE else right


def _category(text: str) -> str:
    bare = re.sub(r"[—–|:(].*", "", advice.plain(text)).replace("`", "").strip(" -#.*")
    bare = "".join(one for one in bare if one.isprintable() and ord(one) < 0x1F000 and one not in "✅❌⚠️🔥").strip()
    return bare[:60].strip()


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
