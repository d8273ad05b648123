"""Corrections: durable in ``corrections.md`` first, counted in the clan's records afterwards (``learn.counting``).

``corrections.md`` is a write-ahead log: one write, one fsync, and only then success.
"""

import re
import sqlite3
from collections.abc import Callable, Collection
from functools import cached_property
from typing import TYPE_CHECKING, Any

import msgspec

from fleet.learn import corrections_md
from fleet.learn.corrections_md import RELAPSED, STATED, Correction, Draft, Entry, Record, Statement
from fleet.learn.counting import WAIT_S, CountedLog, reconcile
from fleet.learn.inputs import Text, secrets_in
from fleet.model import limits
from fleet.model.errors import BusyError, FleetError, NoError, UsageError
from fleet.model.line import Line
from fleet.model.names import LOGGED, normalise, only, pattern_id
from fleet.model.pattern import PRIVATE, Pattern, fold, merged
from fleet.store.runs import Field
from fleet.store.workspace import Workspace, Writer, check_version
from fleet.text import mentions, screening
from fleet.text.screening import injected_id
from fleet.text.similarity import CANDIDATES_MAX, NEAR_MAX, Near, near

if TYPE_CHECKING:
    from fleet.learn.signals import Signals

_TITLE_CHARS_MAX = 80
_OF_LINES = ("wrong", "right", "source")
_BEFORE = r"^(?:[\s>|*+•\"'`«“‘-]|\d{1,3}[.)](?=\s))+"
_NO_ESCAPES = str.maketrans({"\\": "", "‹": "<", "›": ">"})
_ASK_FOR_THE_RULE = (
    "this tells what happened; what holds the next time, elsewhere too? Say that as a rule: fleet edit {id} --set "
    "text='...'"
)


class LogResult(msgspec.Struct, dict=True):
    """Result of logging a correction.

    Attributes:
        text: the lesson's text, as the clan knows it.
        seen: occurrences in the whole clan, this one included.
        secrets: kinds of secrets that were removed.
        find_near: returns the lessons nearest to it.
        other_right: the lesson's right way, if the entry has a different one.
        changed: fields of a known lesson that this occurrence changed, with the old and the new value.
        is_echo: True if it only repeats a lesson that this agent was shown, so that nothing was logged.
        entry: id of the entry in the log; "" if nothing was logged, or it cannot be counted yet.
        is_first: True if this occurrence made the lesson present, which was unknown, or retired.
        promoted: name of the file to which this occurrence promoted the lesson; "" for none.
        whole: number of its occurrences in all wordings that say the same; 0 if it has one, or they were not compared.
        retired_by: who had retired the lesson that this occurrence brought back; "" for nobody.
    """

    id: str
    text: str
    seen: int
    secrets: tuple[str, ...]
    find_near: Callable[[], list[Near]] = list
    other_right: str = ""
    changed: tuple[tuple[str, Any, Any], ...] = ()
    is_echo: bool = False
    entry: str = ""
    is_first: bool = False
    promoted: str = ""
    whole: int = 0
    retired_by: str = ""

    def fields(self, entry: str) -> list[Field]:
        """Return what the run of this occurrence changed; ``entry``: the id that it has in the log."""
        counted = [Field(entry, "entry", None, self.id), Field(self.id, "seen", None, self.seen)]
        return counted + [Field(self.id, *change) for change in self.changed]

    @property
    def advice(self) -> str:
        """Advice on how to state the lesson better; "" for none."""
        is_asked = not self.is_echo and self.seen <= 1 and Text(self.text).is_story()
        return _ASK_FOR_THE_RULE.format(id=self.id) if is_asked else ""

    @cached_property
    def near(self) -> list[Near]:
        """The nearest lessons, and what differs. Computed on first access: it takes longer than logging."""
        return self.find_near()


# --- logging --------------------------------------------------------------------------------------------------------


class _Target(msgspec.Struct, frozen=True):
    """The pattern that an occurrence counts for.

    Attributes:
        members: its record and those merged with it, by id.
        lesson: all members folded as one; None for a new lesson.
        has_near: True if the nearest lessons can be searched: the database can be read.
    """

    id: str
    members: dict[str, Line]
    lesson: Pattern | None
    has_near: bool


class Corrections:
    """Corrections of one agent: logged directly, or stated for a signal in its log, durable before a call returns.

    Both raise ``RefusedError`` for a text that is too long, ``DiskError`` if it did not reach the disk.
    """

    def __init__(self, workspace: Workspace, agent: str) -> None:
        self._workspace = workspace
        self._agent = agent

    @property
    def signals(self) -> "Signals":
        """Signals in the agent's log."""
        from fleet.learn.signals import Signals  # a correction flags nothing

        return Signals(self._workspace.files, self._agent, self._workspace.wall)

    def log(
        self,
        correction: Correction,
        *,
        session: str = "",
        same: str = "",
        is_own: bool = False,
        is_quoted: bool = False,
        at_ms: int = -1,
    ) -> LogResult:
        """Log one correction.

        ``same``: id of an existing pattern that this is another occurrence of; ``NoError`` where there is none.
        ``is_own``: the agent itself reports it: if it was shown the lesson before, this is an echo or a relapse.
        ``is_quoted``: a person said so, or a command failed so: it is no echo, whatever its words are.
        ``at_ms``: the time of the mistake, milliseconds since 1970; -1: now.
        """
        entry, secrets = _screened(correction)
        target = self._target(entry.pattern, same)
        when_ms = at_ms if at_ms >= 0 else self._workspace.world.wall_ms()
        was_shown = is_own and self._workspace.state.was_shown(self._agent, target.members, when_ms)
        shown = target.lesson if was_shown else None
        if not is_quoted and _is_echo(entry, *((shown.text, shown.correct) if shown is not None else ("", ""))):
            return self._echo_result(injected_id(entry.pattern) or target.id, entry.pattern, secrets)
        session, session_error = self._session(session)
        page, entry_id = self._append(entry, target, session, (RELAPSED,) if was_shown else (), is_own=is_own)
        if entry_id != "":
            self._count_now(session_error)
        if entry_id is None:
            return self._echo_result(target.id, entry.pattern, secrets)
        return self._result(target, page, entry, secrets, entry_id)

    def _append(
        self, entry: Correction, target: _Target, session: str, extra: tuple[tuple[str, str], ...], *, is_own: bool
    ) -> tuple[bytes, str | None]:
        """Append an entry to the log with the record that counts it; return the log before, and the entry's id.

        The id is "" if no record could be written, which a warning explains: then the entry is counted later, like one
        written by hand. It is None if nothing was appended, because the log has the entry's mutation already.
        """
        writer, error = self._writer_or_error()
        path = CountedLog(self._workspace, self._agent).log_file()
        with self._workspace.log_lock(self._agent):
            page, wall = self._workspace.files.page(path), self._workspace.wall()
            if is_own and _has_mutation(page, entry.source):
                return page, None
            draft = Draft(entry, f"{wall[:10]} {wall[11:16]}Z")
            entry_id = record = ""
            try:
                if writer is not None:
                    counted = Record(draft.id_in(page), target.id, writer.name, writer.tick(), session, extra)
                    entry_id, record = counted.id, counted.render()
            except FleetError as why:
                error = str(why)
            # With the record first, even half an entry, as a power failure may leave it, is known as private.
            is_private = any(fold(each).scope == PRIVATE for each in target.members.values())
            first, last = (record, "") if is_private else ("", record)
            block = f"{draft.appended_to(page, self._agent, first).rstrip()}\n{last}".rstrip()
            self._workspace.files.append(path, f"{block}\n".encode())
        if error:
            self._workspace.warn(f"the correction is logged in {path}, and counts once this is mended: {error}")
        return page, entry_id

    def state(
        self, prefix: str, taught: Correction, *, same: str = "", session: str = "", is_own: bool = False
    ) -> LogResult:
        """State the lesson of a signal: from then on the signal counts like any correction.

        The entry stays as it was written: its lesson and the record that counts it are appended in one write.

        ``prefix``: the entry's id, or the beginning of it, with or without ``c-``.
        ``taught``: pattern, right way and trigger, unscreened. Without a pattern: that of ``same``.
        ``same``: id of an existing pattern that this is another occurrence of.
        ``session``: the host's session, unless the signal names the one in which it was flagged.

        Raises:
            NoError: no entry, or more than one, begins like that; or its lesson is stated already.
        """
        lesson = Text.lesson(taught.pattern) if taught.pattern or not same else Text("", ())
        right_way, trigger = Text.enter("right", taught.right), taught.trigger
        path = CountedLog(self._workspace, self._agent).log_file()
        page_before = self._workspace.files.page(path)
        signal = self._unfilled_entry(prefix, page_before)
        target = self._target(lesson.text, same)
        text = lesson.text or (target.lesson.text if target.lesson else "")
        flagged_in, flagged_ms = self.signals.origin(signal.id)
        if flagged_ms is not None and signal.trigger:
            trigger = mentions.trigger(trigger, text, right_way.text, step=signal.trigger)
        step = Text.enter("trigger", trigger)
        # A relapse is one if the lesson had been shown before the mistake, not before it was stated.
        when_ms = flagged_ms if flagged_ms is not None else self._workspace.world.wall_ms()
        extra = (RELAPSED,) if is_own and self._workspace.state.was_shown(self._agent, target.members, when_ms) else ()
        session, session_error = (flagged_in, "") if flagged_in else self._session(session)
        writer = self._writer()
        optional = (Statement(signal.id, "right", right_way.text), Statement(signal.id, "trigger", step.text))
        statements = [Statement(signal.id, "pattern", text), *(each for each in optional if each.text)]
        filled = signal._replace(
            pattern=text, right=right_way.text or signal.right, trigger=step.text or signal.trigger
        )
        marks = (("head", filled.heading_hash), (STATED, filled.stated_hash))
        with self._workspace.log_lock(self._agent):
            page = self._workspace.files.page(path)
            if page != page_before:  # another process may have filled it just now
                self._unfilled_entry(signal.id, page)
            record = Record(signal.id, target.id, writer.name, writer.tick(), session, (*marks, *extra))
            block = "".join(each.render() for each in statements) + record.render()
            self._workspace.files.append(path, f"\n{block}\n".encode())
        self._count_now(session_error)
        stated = Correction("", right_way.text, text)
        return self._result(target, page, stated, secrets_in([lesson, right_way, step]), signal.id)

    def _target(self, lesson: str, same: str) -> _Target:
        """Return what an occurrence counts for, waiting ``WAIT_S`` at most for another process."""
        patterns = self._workspace.patterns
        target, members, has_near = same or pattern_id(lesson), [], False
        try:
            check_version(self._workspace.root)
        except NoError:  # ``_writer_or_error`` reports the error
            return _Target(target, {target: Line(target)}, None, has_near)
        try:
            with self._workspace.snapshot(WAIT_S):
                target = same or self._workspace.same_text(self._agent, lesson)
                group = patterns.groups().get(target, [target])
                members = [line for each in group if (line := self._workspace.record(self._agent, each)) is not None]
        except (FleetError, sqlite3.Error) as why:  # the log comes first, whatever is wrong with the database
            self._workspace.warn(f"what is known already could not be read: {why}")
        else:
            has_near = True
            if same and not members:
                raise NoError(f"there is no pattern {same}; nothing was logged. `fleet patterns` lists them")
        policy = self._workspace.policy()
        lesson_now = merged([fold(line, policy) for line in members]) if members else None
        return _Target(target, {target: Line(target)} | {line.id: line for line in members}, lesson_now, has_near)

    def _writer(self) -> Writer:
        """Return the agent's writer for the log alone. The write lock is taken only to mint a replica."""
        if name := self._workspace.replica_name(self._agent):
            return Writer(self._workspace, name)
        with self._workspace.writing(self._agent) as writer:
            return writer

    def _writer_or_error(self) -> tuple[Writer | None, str]:
        """Return the agent's writer, or None and the error: a fault elsewhere must not cost a correction.

        Raises:
            UsageError: the workspace is read-only on purpose.
        """
        try:
            check_version(self._workspace.root)
            return self._writer(), ""
        except FleetError as why:
            if self._workspace.is_read_only:
                raise
            return None, str(why).removesuffix(". Nothing was changed")

    def _session(self, named: str) -> tuple[str, str]:
        """Return the session of an occurrence, the host's or else the agent's own; or "" and the error."""
        if named:
            return corrections_md.session_word(named), ""
        try:
            return self._workspace.session(self._agent), ""
        except FleetError as why:
            return "", str(why)

    def _echo_result(self, lesson: str, text: str, secrets: tuple[str, ...]) -> LogResult:
        lesson = next(iter(self._workspace.patterns.beginning(lesson)), lesson)  # a start shows the beginning of an id
        shown = self._workspace.patterns.lesson(lesson)
        if shown is None:
            return LogResult(lesson, text, 0, secrets, is_echo=True)
        return LogResult(shown.id, shown.text, shown.count("seen"), secrets, is_echo=True)

    def _result(
        self, target: _Target, page: bytes, logged: Correction, secrets: tuple[str, ...], entry: str
    ) -> LogResult:
        """Return the result of an occurrence that was just logged.

        ``page``: the log before it, whose records that ``target`` does not count yet are earlier occurrences.
        ``entry``: its id in the log, "" if it cannot be counted yet.
        """
        known, text = target.lesson, logged.pattern
        if known is not None and not known.text:
            self._warn_of_purge(target)
        seen = 1 + _uncounted(target, page) + (known.count("seen") if known is not None else 0)
        lesson, known_as = (known.id, known.text or text) if known is not None else (target.id, text)
        is_first = seen == 1 if known is None else not known.is_present
        by = known.retired_by if known is not None and known.count("seen") else ""
        result = LogResult(lesson, known_as, seen, secrets, entry=entry, is_first=is_first, retired_by=by)
        if target.has_near:
            result.find_near = lambda: self._near(target.members, known_as)
        if known is not None and entry:
            self._compare(known, result, logged.right)
        return result

    def _compare(self, known: Pattern, result: LogResult, right: str) -> None:
        """Note what an occurrence changed of the lesson as it was known, and the right way where it is another one."""
        with self._workspace.db.without_refresh():
            now = self._target("", known.id).lesson or known
        if normalise(right) not in ("", normalise(now.correct)):
            result.other_right = now.correct
        names = ("text", "correct", "tags", *LOGGED) if known.is_present else ()  # else the undo retires it
        own = (name for name in names if now.edited.get(name) == known.edited.get(name))  # others may edit meanwhile
        pairs = ((name, known.fields.get(name), now.fields.get(name)) for name in own)
        result.changed = tuple(each for each in pairs if each[1] != each[2])

    def _warn_of_purge(self, target: _Target) -> None:
        """Warn of a lesson that stays without words, since a purge also covers the values that we will write."""
        me, cut = self._workspace.replica_name(self._agent), self._workspace.policy().cut
        if by := next(filter(None, (line.purger(me, "text", cut) for line in target.members.values())), ""):
            self._workspace.warn(
                f"{by} purged the words that {me} gives {target.id}, and for a time to come: this occurrence is "
                "logged, and counts for a lesson that nobody is shown. Log it in other words"
            )

    def _near(self, ids: Collection[str], text: str) -> list[Near]:
        """Return the lessons nearest to a text, except those of ``ids``; of a merged set only one.

        By words, and where lessons have embeddings by meaning: loading those takes too long for a hook.
        """
        patterns, meaning = self._workspace.patterns, dict[str, float]()
        with self._workspace.db.without_refresh():
            merged = {member: group[0] for member, group in patterns.groups().items()}
            if patterns.has_embeddings():
                from fleet.store.semantic import Embeddings  # 1 ms, and most clans embed nothing

                meaning = dict(Embeddings(self._workspace).nearest(text, CANDIDATES_MAX))
            candidates = patterns.candidates(text) | {each.id: each.text for each in patterns.some(list(meaning))}
        return near(text, [each for each in candidates.items() if each[0] not in ids], NEAR_MAX, meaning, merged)

    def _unfilled_entry(self, prefix: str, page: bytes) -> Entry:
        """Return the entry by its id's beginning; raise ``NoError`` for none, several, or one with a lesson."""
        id_prefix = prefix if prefix.startswith("c-") else f"c-{prefix}"
        entries = corrections_md.Log.parse(page).entries
        # An entry that was edited since it was counted is known by its earlier id, too.
        ids = [(entry, (entry.id, entry.record.id if entry.record is not None else entry.id)) for entry in entries]
        matches = [entry for entry, known_ids in ids if any(id_.startswith(id_prefix) for id_ in known_ids)]
        none = (
            f"{self._agent} has no correction whose id begins with {prefix[:40]!r}; nothing was logged. `fleet learn "
            "--waiting` lists those without a lesson"
        )
        only({entry.id: entry.title or entry.wrong for entry in matches}, prefix, none)
        self._check_unfilled(matches[0])
        return matches[0]

    def _check_unfilled(self, entry: Entry) -> None:
        if entry.is_undone:
            copy = self.signals.copy_of(entry.id)
            since = f", and waits for its lesson as {copy} since" if copy else ""
            raise NoError(f"{entry.id} was taken back{since}. Nothing was logged")
        if entry.record is not None:
            pattern = entry.record.pattern
            stated = self._workspace.patterns.get(pattern)
            words = (stated.text if stated is not None else "") or entry.pattern
            raise NoError(
                f"{entry.id} is filled already, and counted as {pattern}: {words[:200]}. "
                f"Nothing was logged. To say it better: `fleet edit {pattern} --set text=...`; if it is the same "
                f"lesson as another: `fleet merge {pattern} OTHER`"
            )
        if entry.pattern:
            counts = "it counts with the next `fleet correct` or `fleet sync`"
            raise NoError(f"{entry.id} is filled already, by hand: {entry.pattern[:200]}. Nothing was logged; {counts}")

    def _count_now(self, session_error: str) -> None:
        """Count what was just logged, unless another process is at work. The correction is durable either way."""
        if session_error:
            self._workspace.warn(f"the correction is logged without a session: {session_error}")
        try:
            with self._workspace.writing(self._agent, WAIT_S) as writer:
                reconcile(writer)
        except BusyError:
            pass  # the next command counts it
        except (FleetError, sqlite3.Error) as why:
            counts = "It counts once that is mended; do not log it again"
            self._workspace.warn(f"the correction is logged, but not counted yet: {why}. {counts}")


def _has_mutation(page: bytes, source: str) -> bool:
    """Return whether a log has the mutation that a source names."""
    mutation = re.match(r"mutation .* (m-[0-9a-f]{8})\Z", source)
    if mutation is None:
        return False
    entries = corrections_md.Log.parse(page).entries
    return any(each.source.endswith(mutation[1]) and not each.is_undone for each in entries)


def _screened(correction: Correction) -> tuple[Correction, tuple[str, ...]]:
    """Return the correction without secrets, and the kinds of secrets that it had."""
    if len(correction.tags) > limits.TAGS_MAX:
        raise UsageError(f"at most {limits.TAGS_MAX} tags; nothing was written")
    pattern = Text.lesson(correction.pattern)
    fields = {
        name: Text.enter(name, getattr(correction, name), lines=name in _OF_LINES)
        for name in ("wrong", "right", "title", "source", *LOGGED)
    }
    tags = [Text.enter("tag", tag) for tag in correction.tags]
    texts = {name: each.text for name, each in fields.items()}
    first_line = (texts["wrong"] or pattern.text).partition("\n")[0]
    texts["title"] = texts["title"] or screening.shortened(first_line, _TITLE_CHARS_MAX)
    # The log separates tags by commas.
    words = tuple(tag.text.replace(",", " ") for tag in tags if tag.text)
    return Correction(**texts, pattern=pattern.text, tags=words), secrets_in([pattern, *fields.values(), *tags])


def _is_echo(entry: Correction, lesson: str, right: str) -> bool:
    """Return whether a correction only repeats a lesson that was shown, "" for none.

    Either its pattern is a copied line, evidence and all; or its pattern is the lesson, and neither what went wrong nor
    the right way adds anything to the lesson: no mistake is reported.
    """
    if injected_id(entry.pattern):
        return True
    shown = ("", lesson, right, f"{lesson} — right: {right}", f"right: {right}")
    return _comparable(entry.pattern) == _comparable(lesson) and {_comparable(each) for each in shown}.issuperset(
        (_comparable(entry.wrong), _comparable(entry.right))
    )


def _comparable(text: str) -> str:
    """Return a text as it is compared: normalised, without copied lines and marks of lists and quotes."""
    typed = screening.strip_injected(text).translate(_NO_ESCAPES)
    return normalise(" ".join(re.sub(_BEFORE, "", row) for row in typed.split("\n")))


def _uncounted(target: _Target, page: bytes) -> int:
    """Return the number of occurrences in a log that the record does not count yet, logged by other processes."""

    def uncounted(records: list[Record]) -> list[Record]:
        latest = Record.latest(each for each in records if each.pattern in target.members)
        return [each for each in latest if each.at > target.members[each.pattern].counted_up_to(each.replica)]

    # Parsed only if the search finds some, since what it finds may be in a code fence.
    if not uncounted(corrections_md.Record.search(page, target.members)):
        return 0
    log = corrections_md.Log.parse(page)
    return len(uncounted([each for each in log.records if not log.is_undone(each.id)]))
