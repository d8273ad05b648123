"""Corrections: durable in ``corrections.md`` first, counted in the clan's records afterwards.

The log is the write-ahead log of every correction: one write, one fsync, and only then success. What a replica's column
says of its own occurrences is worked out from the records in the log, so that nothing is counted twice and nothing is
lost: deleting an entry lowers no count, a lost database or a crash recounts none, and a retired lesson does not come
back by itself.
"""

import re
import sqlite3
from collections.abc import Callable, Collection, Iterable
from functools import cached_property
from typing import TYPE_CHECKING

import msgspec

from fleet.learn import corrections_md
from fleet.learn.corrections_md import RELAPSED, STATED, Bound, Draft, Record, Statement
from fleet.learn.counting import (
    WAIT_S,
    CountedLog,
    reconcile,
)
from fleet.learn.inputs import Text, secrets_in
from fleet.model.errors import BusyError, FleetError, NoError, UsageError
from fleet.model.line import Line
from fleet.model.names import normalise, only, pattern_id
from fleet.model.pattern import Pattern, fold, merged
from fleet.store.workspace import Workspace, Writer, check_version
from fleet.text import mentions, screening
from fleet.text.screening import injected_id
from fleet.text.similarity import CANDIDATES_MAX, NEAR_MAX, Near, near

if TYPE_CHECKING:
    from fleet.learn.signals import Signals

_BEFORE = r"^(?:[\s>|*+•\"'`«“‘-]|\d{1,3}[.)](?=\s))+"
_NO_ESCAPES = str.maketrans({"\\": "", "‹": "<", "›": ">"})
_ASK_FOR_THE_RULE = (
    "this tells what happened; what holds the next time, elsewhere too? Say that as a rule: fleet edit {id} --set "
    "text='...'"
)


class Correction(msgspec.Struct, frozen=True):
    """One mistake, as it was told: what went wrong, the correct approach, the source, the generalizable pattern."""

    wrong: str
    right: str
    pattern: str
    title: str = ""
    source: str = ""
    category: str = ""
    tags: tuple[str, ...] = ()
    trigger: str = ""


class Logged(msgspec.Struct, dict=True):
    """Result of logging a correction.

    Attributes:
        text: of the lesson, as the clan knows it.
        seen: occurrences in the whole clan, this one included.
        secrets: kinds of secrets that were taken out.
        look: finds the lessons nearest to it.
        is_echo: it told nothing but a lesson that this agent was shown, so nothing was logged.
        entry: id of the entry in the log; "" where nothing was logged, or nobody could count it yet.
        is_first: the lesson was not known, or was retired: it is in through this occurrence.
        promoted: the file where the lesson stands from now on, if this was the occurrence that it takes.
    """

    id: str
    text: str
    seen: int
    secrets: tuple[str, ...]
    look: Callable[[], list[Near]] = list
    is_echo: bool = False
    entry: str = ""
    is_first: bool = False
    promoted: str = ""

    @property
    def advice(self) -> str:
        """Advice for a better lesson, in a sentence; "" for nothing."""
        is_asked = not self.is_echo and self.seen <= 1 and Text(self.text).is_story()
        return _ASK_FOR_THE_RULE.format(id=self.id) if is_asked else ""

    @cached_property
    def near(self) -> list[Near]:
        """The lessons nearest to this one, and what differs. Looked for when somebody asks: it takes longer than
        logging."""  # noqa: D205, D209
        return self.look()


# --- logging --------------------------------------------------------------------------------------------------------


class _Target(msgspec.Struct, frozen=True):
    """The pattern that an occurrence counts for.

    Attributes:
        members: the record, and those that it is merged with, by id.
        lesson: all of them as one; None for a new lesson.
        is_alone: there is nothing near to look for: the caller named it, or what is known cannot be read.
    """

    id: str
    members: dict[str, Line]
    lesson: Pattern | None
    is_alone: bool


class Corrections:
    """Corrections of an agent: logged, and stated for the signals in its log."""

    def __init__(self, workspace: Workspace, agent: str) -> None:
        self._workspace = workspace
        self._agent = agent

    @property
    def signals(self) -> "Signals":
        """Signals in the agent's log."""
        from fleet.learn.signals import Signals  # a correction flags nothing

        return Signals(self._workspace, self._agent)

    def log(self, told: Correction, *, session: str = "", same: str = "", is_own: bool = False) -> Logged:
        """Log one correction, durable before this returns.

        ``same``: id of an existing pattern that this is another occurrence of.
        ``is_own``: the agent tells it itself: whether it had been shown the lesson makes an echo, or a relapse, of it.

        Raises:
            RefusedError: a field is too long.
            NoError: there is no pattern ``same``.
            DiskError: it did not reach the disk.
        """
        entry, secrets = _screened(told)
        target = self._target(entry.pattern, same)
        now_ms = self._workspace.world.wall_ms()
        was_shown = is_own and self._workspace.state.was_shown(self._agent, target.members, now_ms)
        if echo := _echo_of(entry, target, was_shown=was_shown):
            return self._echo_result(echo, entry.pattern, secrets)
        extra = (RELAPSED,) if was_shown else ()
        named, trouble = self._session(session)
        writer, missing = self._writer_or_why()
        path = CountedLog(self._workspace, self._agent).log_file()
        with self._workspace.log_lock(self._agent):
            page, at = self._workspace.files.read(path), ""
            if writer is not None:
                try:
                    at = writer.tick()
                except FleetError as why:
                    missing = str(why)
            now = self._workspace.wall()
            draft = Draft(when=f"{now[:10]} {now[11:16]}Z", **msgspec.structs.asdict(entry))
            entry_id = draft.id_in(page) if at else ""
            block = f"{draft.appended_to(page, self._agent).rstrip()}\n"
            if writer is not None and at:
                record = Record(entry_id, target.id, writer.name, at, named, extra)
                block += f"{record.render()}\n"
            self._workspace.files.append(path, block.encode())
        if missing:  # it counts like an entry that a person wrote, as soon as somebody may count here
            self._workspace.warn(f"the correction is logged in {path}, and counts once this is mended: {missing}")
            return self._result(target, page, entry.pattern, secrets, "")
        if trouble:
            self._workspace.warn(f"the correction is logged without a session: {trouble}")
        self._count_now()
        return self._result(target, page, entry.pattern, secrets, entry_id)

    def state(
        self,
        prefix: str,
        pattern: str,
        right: str = "",
        *,
        trigger: str = "",
        same: str = "",
        session: str = "",
        is_own: bool = False,
    ) -> Logged:
        """State what a signal teaches, durable before this returns: from then on it counts like any correction.

        Append-only: the entry stays as it was written. Its lesson goes to the end of the log, with the record that
        counts it, in one write.

        ``prefix``: the entry's id, or the beginning of it, with or without ``c-``.
        ``pattern``: the lesson, unscreened. "" with ``same``: that pattern's own words.
        ``same``: id of an existing pattern that this is another occurrence of.
        ``session``: the host's session; the one in which the signal was flagged comes first.

        Raises:
            NoError: no entry, or more than one, begins like that; or its lesson is stated already.
            RefusedError: a text is too long.
            DiskError: it did not reach the disk.
        """
        said = Text.lesson(pattern) if pattern or not same else Text("", ())
        way = Text.enter("right", right)
        path = CountedLog(self._workspace, self._agent).log_file()
        first = self._workspace.files.read(path)
        bound = self._unfilled_entry(prefix, first)
        target = self._target(said.text, same)
        text = said.text or (target.lesson.text if target.lesson else "")
        flagged_in, flagged_ms = self.signals.origin(bound.id)
        if not trigger and flagged_ms is not None and bound.entry.trigger:
            # What was refused, or failed, is a step besides those that the words name.
            trigger = ", ".join(filter(None, [mentions.trigger("", text, way.text), bound.entry.trigger]))
        step = Text.enter("trigger", trigger)
        # Whether it is a relapse was decided when the mistake was made, not when somebody said what it teaches.
        when_ms = flagged_ms if flagged_ms is not None else self._workspace.world.wall_ms()
        extra = (RELAPSED,) if is_own and self._workspace.state.was_shown(self._agent, target.members, when_ms) else ()
        named, trouble = (flagged_in, "") if flagged_in else self._session(session)
        writer = self._writer()
        told = (Statement(bound.id, "right", way.text), Statement(bound.id, "trigger", step.text))
        statements = [Statement(bound.id, "pattern", text), *(each for each in told if each.text)]
        filled = bound.entry._replace(
            pattern=text, right=way.text or bound.entry.right, trigger=step.text or bound.entry.trigger
        )
        known_by = (("head", filled.heading_mark), (STATED, filled.stated_mark))
        with self._workspace.log_lock(self._agent):
            page = self._workspace.files.read(path)
            if page != first and _is_filled(bound.id, page):
                raise NoError(f"{bound.id} was filled just now by another process; nothing was logged")
            record = Record(bound.id, target.id, writer.name, writer.tick(), named, (*known_by, *extra))
            block = "".join(each.render() for each in statements) + record.render()
            self._workspace.files.append(path, f"\n{block}\n".encode())
        if trouble:
            self._workspace.warn(f"the correction is logged without a session: {trouble}")
        self._count_now()
        return self._result(target, page, text, secrets_in([said, way, step]), bound.id)

    def _target(self, lesson: str, same: str) -> _Target:
        """Return what an occurrence counts for, by what is known here: nobody waits long for another process."""
        patterns = self._workspace.patterns
        found, members, is_alone = same or pattern_id(lesson), [], True
        try:
            check_version(self._workspace.root)
        except NoError:  # told where the record is missing
            return _Target(found, {found: Line(found)}, None, is_alone)
        try:
            with self._workspace.snapshot(WAIT_S):
                found = same or self._workspace.same_text(self._agent, lesson)
                group = patterns.groups().get(found, [found])
                members = [line for each in group if (line := self._workspace.record(self._agent, each)) is not None]
        except (FleetError, sqlite3.Error) as why:  # the log comes first, whatever the database says
            self._workspace.warn(f"what is known already could not be read: {why}")
        else:
            is_alone = bool(same)
            if same and not members:
                raise NoError(f"there is no pattern {same}; nothing was logged. `fleet patterns` lists them")
        policy = self._workspace.policy()
        whole = merged([fold(line, policy) for line in members]) if members else None
        return _Target(found, {found: Line(found)} | {line.id: line for line in members}, whole, is_alone)

    def _writer(self) -> Writer:
        """Return the agent's writer for the log alone. Only to mint a replica the write lock is taken."""
        if name := self._workspace.replica_name(self._agent):
            return Writer(self._workspace, name)
        with self._workspace.writing(self._agent) as writer:
            return writer

    def _writer_or_why(self) -> tuple[Writer | None, str]:
        """Return the agent's writer, or why there is none: what is wrong elsewhere costs no correction.

        Raises:
            UsageError: the workspace is only read, as somebody wanted it.
        """
        try:
            check_version(self._workspace.root)
            return self._writer(), ""
        except FleetError as why:
            if self._workspace.is_read_only:
                raise
            return None, str(why).removesuffix(". Nothing was changed")

    def _session(self, named: str) -> tuple[str, str]:
        """Return the session of an occurrence: the host's, else the replica's own until it has been idle for a while.

        Beside it, why there is none: the log comes first, and only then what is missing in it is told.
        """
        if named:
            return corrections_md.session_word(named), ""
        try:
            return self._workspace.session(self._agent), ""
        except FleetError as why:
            return "", str(why)

    def _echo_result(self, lesson: str, text: str, secrets: tuple[str, ...]) -> Logged:
        lesson = next(iter(self._workspace.patterns.beginning(lesson)), lesson)  # a start shows the beginning of an id
        found = self._workspace.patterns.lesson(lesson)
        if found is None:
            return Logged(lesson, text, 0, secrets, is_echo=True)
        return Logged(found.id, found.text, found.count("seen"), secrets, is_echo=True)

    def _result(self, target: _Target, page: bytes, text: str, secrets: tuple[str, ...], entry: str) -> Logged:
        """Return what is told of an occurrence that was just logged.

        ``page``: the log before it: what stands in there and is not counted in ``target`` came earlier.
        ``entry``: its id in the log, "" where it is not counted yet.
        """
        whole = target.lesson
        seen = 1 + _uncounted(target, page) + (whole.count("seen") if whole is not None else 0)
        lesson, known_as = (whole.id, whole.text or text) if whole is not None else (target.id, text)
        look: Callable[[], list[Near]] = list if target.is_alone else lambda: self._near(target.members, text)
        is_first = seen == 1 if whole is None else not whole.is_present
        return Logged(lesson, known_as, seen, secrets, look, entry=entry, is_first=is_first)

    def _near(self, ids: Collection[str], text: str) -> list[Near]:
        """Return the lessons nearest to a text, other than the one that it was logged under; of a merged set only one.

        By words, and where lessons have embeddings, by meaning: never before the correction is durable, nor in a hook.
        """
        patterns = self._workspace.patterns
        with self._workspace.db.as_they_are():
            merged = {member: group[0] for member, group in patterns.groups().items()}
            meaning = self._by_meaning(text) if patterns.has_meanings() else {}
            known = patterns.candidates(text) | {each.id: each.text for each in patterns.some(list(meaning))}
        found = [(each, said) for each, said in known.items() if each not in ids]
        return near(text, found, NEAR_MAX, meaning, merged)

    def _by_meaning(self, text: str) -> dict[str, float]:
        from fleet.store.semantic import Embeddings  # 1 ms, and most clans embed nothing

        return dict(Embeddings(self._workspace).nearest(text, CANDIDATES_MAX))

    def _unfilled_entry(self, prefix: str, page: bytes) -> Bound:
        """Return the entry that an id, or the unique beginning of one, names: it waits for its lesson.

        Raises:
            UsageError: a beginning of no characters.
            NoError: no entry, or more than one; or its lesson is stated.
        """
        wanted = prefix if prefix.startswith("c-") else f"c-{prefix}"
        if wanted == "c-":
            raise UsageError("name the correction: `fleet learn --waiting` lists those that wait for their lesson")
        bound = corrections_md.Log.parse(page).bound()
        # An entry whose text was mended since it was counted is known by what it was called then, too.
        found = [
            b for b in bound if b.id.startswith(wanted) or (b.record is not None and b.record.id.startswith(wanted))
        ]
        none = (
            f"no correction of {self._agent}'s begins with {prefix[:40]!r}; nothing was logged. `fleet learn "
            "--waiting` lists those that wait for their lesson"
        )
        only([b.id for b in found], prefix, none)
        self._check_unfilled(found[0])
        return found[0]

    def _check_unfilled(self, bound: Bound) -> None:
        if bound.entry.is_undone:
            waits = self.signals.copy_of(bound.id)
            since = f", and waits for its lesson as {waits} since" if waits else ""
            raise NoError(f"{bound.id} was taken back{since}. Nothing was logged")
        if bound.record is not None:
            pattern = bound.record.pattern
            known = self._workspace.patterns.get(pattern)
            told = (known.text if known is not None else "") or bound.entry.pattern
            raise NoError(
                f"{bound.id} is filled already, and counted as {pattern}: {told[:200]}. Nothing was logged. To say it "
                f"better: `fleet edit {pattern} --set text=...`; if it is the same lesson as another: "
                f"`fleet merge {pattern} OTHER`"
            )
        if bound.entry.pattern:
            raise NoError(
                f"{bound.id} is filled already, by hand: {bound.entry.pattern[:200]}. Nothing was logged; it counts "
                "with the next `fleet correct` or `fleet sync`"
            )

    def _count_now(self) -> None:
        """Count what was just logged, if nobody else is at work. It has succeeded either way: the log is there."""
        try:
            with self._workspace.writing(self._agent, WAIT_S) as writer:
                reconcile(writer)
        except BusyError:
            pass  # the next command counts it
        except (FleetError, sqlite3.Error) as why:
            self._workspace.warn(f"the correction is logged, but not counted yet: {why}")


def _screened(told: Correction) -> tuple[Correction, tuple[str, ...]]:
    """Return the correction as it may be kept, and what was taken out."""
    pattern = Text.lesson(told.pattern)
    wrong = Text.enter("wrong", told.wrong, lines=True)
    right = Text.enter("right", told.right, lines=True)
    title, source = Text.enter("title", told.title), Text.enter("source", told.source, lines=True)
    category, tags = Text.enter("category", told.category), [Text.enter("tag", tag) for tag in told.tags]
    trigger = Text.enter("trigger", told.trigger)
    entry = Correction(
        wrong=wrong.text,
        right=right.text,
        pattern=pattern.text,
        title=title.text or _first_words(wrong.text or pattern.text),
        source=source.text,
        category=category.text,
        # A comma would make two of one in the log.
        tags=tuple(tag.text.replace(",", " ") for tag in tags if tag.text),
        trigger=trigger.text,
    )
    return entry, secrets_in([pattern, wrong, right, title, source, category, trigger, *tags])


def _first_words(wrong: str) -> str:
    first = wrong.splitlines()[0] if wrong else ""
    return first if len(first) <= 80 else first[:79].rstrip() + "…"


def _echo_of(entry: Correction, target: _Target, *, was_shown: bool) -> str:
    """Return the id of the lesson that was shown, and that this correction only repeats; "" for a correction."""
    shown = [(target.lesson.text, target.lesson.correct)] if was_shown and target.lesson is not None else []
    is_echo = _is_echo(entry.wrong, entry.right, entry.pattern, shown)
    return (injected_id(entry.pattern) or target.id) if is_echo else ""


def _is_echo(wrong: str, right: str, pattern: str, lessons: Iterable[tuple[str, str]]) -> bool:
    """Tell whether a correction only repeats what was shown.

    So it is when its pattern is a copied line, evidence and all; or when its pattern is a shown lesson, and neither
    what went wrong nor the right way says anything but that lesson: no mistake is told.

    ``lessons``: text and right way of the lessons that were shown.
    """
    if injected_id(pattern):
        return True
    told = [_comparable(wrong), _comparable(right)]
    for lesson, way in lessons:
        if _comparable(pattern) != _comparable(lesson):
            continue
        known = {
            "",
            _comparable(lesson),
            _comparable(way),
            _comparable(f"{lesson} — right: {way}"),
            _comparable(f"right: {way}"),
        }
        if known.issuperset(told):
            return True
    return False


def _comparable(said: str) -> str:
    """Return a text as it is compared: without copied lines, without what a list or a quote puts before it."""
    left = screening.strip_injected(said).translate(_NO_ESCAPES)
    return normalise(" ".join(re.sub(_BEFORE, "", row) for row in left.split("\n")))


def _uncounted(target: _Target, page: bytes) -> int:
    """Return how many occurrences stand in a log that the record does not count yet: others log at the same time."""

    def news(records: list[Record]) -> list[Record]:
        latest = Record.latest(each for each in records if each.pattern in target.members)
        return [each for each in latest if each.at > target.members[each.pattern].counted_up_to(each.replica)]

    # Nearly always there are none; only then the log is parsed, since a code fence may hold what looks like one.
    if not news(corrections_md.Record.standing_in(page, target.members)):
        return 0
    log = corrections_md.Log.parse(page)
    return len(news([each for each in log.records if not log.is_undone(each.id)]))


def _is_filled(entry: str, page: bytes) -> bool:
    bound = corrections_md.Log.parse(page).bound()
    return any(each.id == entry and (each.record is not None or each.entry.pattern) for each in bound)
