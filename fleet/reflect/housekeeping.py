"""Housekeeping pass over one agent's notebook: a plan of changes, computed from its notes alone.

Four sweeps in this order. Relative dates become absolute. Two notes that say the same become one: the newer stays, and
the older is consolidated into it. Of two unimportant notes that contradict each other, the newer stays active. An
unimportant note that was never accessed is archived. No text is lost: a note that is consolidated or archived has
another *stage*, which is private and can be set back. The plan reads no file and no clock.
"""

import math
import re
from collections import Counter
from collections.abc import Callable, Collection, Mapping, Sequence
from datetime import UTC, datetime, tzinfo
from enum import StrEnum
from typing import NamedTuple

import msgspec

from crdt import clock
from fleet.model import limits
from fleet.model.pattern import MERGED_FROM, STAGE, Pattern
from fleet.reflect.clusters import Closeness, alike
from fleet.reflect.exposure import Exposures
from fleet.store.workspace import Workspace
from fleet.text import dates
from fleet.text.screening import counted, shortened

COORDINATED_HOURS_MIN = 24
"""Time between coordinated passes: the cadence of the host's own housekeeping."""
COORDINATED_NEW_MIN = 5
"""Notes that must be new since the last one."""
COSINE_MIN = 0.92
"""Least cosine of two notes that say the same, if there are embeddings."""
SCORE_MIN = 0.92
"""Least score of their words, without embeddings; on the labelled pairs it is as precise (docs/evaluation.md)."""
LOW_IMPORTANCE = 0.3
ARCHIVE_BELOW = 0.2
ARCHIVE_HOURS = 168
IMPORTANCE, AUTO_IMPORTANCE = 0.5, 0.2
"""Default importance of a note that somebody wrote, and of one that was detected."""

_DECAY_AN_HOUR = 0.01
_HOUR_MS = 3_600_000
_SAID_CHARS = 80
_HEADING = r"(?im)^#{1,6}[ \t]+organization[ \t]+report[ \t]*#*[ \t]*\r?$"
_KEY = r"(?i)\b(consolidated|removed|re[-_ ]?indexed)\b[*_`]{0,3}[ \t]{0,8}[:=][*_` \t]{0,8}([0-9]{1,9})(?![\w.])"


class Stage(StrEnum):
    """Stage of a note in its agent's notebook, apart from the ``state`` of a lesson for the clan."""

    RAW = "raw"
    ACTIVE = "active"
    PENDING = "pending"
    CONSOLIDATED = "consolidated"
    ARCHIVED = "archived"
    FORGOTTEN = "forgotten"

    @classmethod
    def of(cls, own: Pattern | None, last_ms: int) -> "Stage":
        """Return the stage of a private record; an archived one that was accessed since is active again."""
        value = own.value(STAGE) if own is not None else ""
        if own is None or value not in set(cls):
            return cls.ACTIVE
        set_ms = clock.unpack(own.edited[STAGE][0])[0] if STAGE in own.edited else 0
        return cls.ACTIVE if value == cls.ARCHIVED and last_ms > set_ms else cls(value)


RESTING = frozenset({Stage.CONSOLIDATED, Stage.ARCHIVED, Stage.FORGOTTEN})
"""Stages of notes that are neither shown at a start nor read by the pass."""


_WHY_SKIPPED = {
    "TooSoon": f"the last pass was less than {COORDINATED_HOURS_MIN} hours ago",
    "NotEnoughNewRecords": f"fewer than {COORDINATED_NEW_MIN} notes are new",
    "AutoDreamAlreadyRan": f"the host's own housekeeping was less than {COORDINATED_HOURS_MIN} hours ago",
}
"""Reasons for which a coordinated pass does nothing."""


class Mode(StrEnum):
    """Condition for a pass: after a while and with enough to do, beside the host's own one; or now."""

    COORDINATED = "coordinated"
    ALWAYS = "always"

    def skip_reason(self, now_ms: int, last_ms: int | None, new: int, dream_ms: int | None) -> str | None:
        """Return why a pass is to be skipped, of ``_WHY_SKIPPED``; None where it runs.

        ``last_ms``: when a pass changed something last; None for never.
        ``dream_ms``: when a report of the host's own housekeeping was read last; None for never.
        """
        if self is Mode.ALWAYS:
            return None
        # A time in the future, from before a clock was set back, counts like one in the past.
        least_ms = COORDINATED_HOURS_MIN * _HOUR_MS
        if dream_ms is not None and abs(now_ms - dream_ms) < least_ms:
            return "AutoDreamAlreadyRan"
        if last_ms is not None and abs(now_ms - last_ms) < least_ms:
            return "TooSoon"
        return "NotEnoughNewRecords" if new < COORDINATED_NEW_MIN else None


def resting(workspace: Workspace, agent: str) -> set[str]:
    """Return the ids of the lessons that a pass put to rest in an agent's notebook, and nobody accessed since."""
    if not workspace.has_notes(agent):
        return set()
    accesses = Exposures(workspace.state).accesses(agent)
    records = workspace.notes(agent).records()
    return {each.id for each in records if Stage.of(each, accesses.get(each.id, (0, 0))[1]) in RESTING}


class DreamReport(msgspec.Struct, frozen=True):
    """Report of the host's own housekeeping, at the end of its answer."""

    consolidated: int = 0
    removed: int = 0
    reindexed: int = 0

    @classmethod
    def parse(cls, text: str) -> "DreamReport | None":
        """Return the last report in a text; None without its heading.

        Permissive: keys in any case before a colon or an equals sign, the first of each; a missing one is 0.
        """
        headings = list(re.finditer(_HEADING, text))
        if not headings:
            return None
        pairs = reversed(re.compile(_KEY).findall(text, headings[-1].end()))
        keys = {re.sub(r"[-_ ]", "", key.lower()): int(value) for key, value in pairs}
        return cls(*(keys.get(key, 0) for key in cls.__struct_fields__))


class ReflectionReport(msgspec.Struct, frozen=True, kw_only=True):
    """Result of one pass.

    Attributes:
        dreamed_accepted: facts of the host's own memory that wait as candidates now.
        skipped: reason for a pass that was skipped.
        dream_report_ingested: the host's own report, read for the first time.
        compared_by: "cosine", or "words" where there are no embeddings.
    """

    consolidated: int = 0
    absolutized_dates: int = 0
    dreamed_accepted: int = 0
    archived: int = 0
    conflicts_resolved: int = 0
    total_scanned: int = 0
    skipped: str | None = None
    dream_report_ingested: DreamReport | None = None
    compared_by: str = ""

    def summary(self) -> str:
        """Return the report as one line."""
        if self.skipped is not None:
            return f"skipped: {_WHY_SKIPPED[self.skipped]}; `fleet tidy --mode always` does it now"
        parts = {
            f"{counted(self.absolutized_dates, 'date')} made absolute": self.absolutized_dates,
            f"{self.consolidated:,} consolidated": self.consolidated,
            f"{counted(self.conflicts_resolved, 'conflict')} resolved": self.conflicts_resolved,
            f"{self.archived:,} archived": self.archived,
        }
        summary = ", ".join(part for part, number in parts.items() if number)
        notes = counted(self.total_scanned, "note")
        return f"{summary} of {notes}, compared by {self.compared_by}" if summary else f"nothing to change in {notes}"


class Note(NamedTuple):
    """Note of an agent, with the id of its record, or of its line.

    Attributes:
        at_ms: time of writing, milliseconds since 1970; ``read_ms``: time of reading here, if that may be later.
        accesses: number of times it, or a note that it was made of, was shown or found.
        merged: ids of the notes that were consolidated into it.
        may_change: its text and tags are this agent's alone, and may be edited.
        group: notes of another group are never compared with it.
    """

    id: str
    text: str
    at_ms: int
    importance: float = IMPORTANCE
    accesses: int = 0
    tags: tuple[str, ...] = ()
    stage: Stage = Stage.ACTIVE
    merged: tuple[str, ...] = ()
    may_change: bool = True
    may_rest: bool = True
    group: str = ""
    read_ms: int = 0


class _Change(NamedTuple):
    """Change of one field of one note, by a sweep, with the reason."""

    sweep: str
    id: str
    field: str
    before: object
    after: object
    why: str = ""


DATES, MERGES, CONFLICTS, ARCHIVE = "dates", "dedup", "conflicts", "archive"


Cosines = Callable[[Sequence[str], Sequence[tuple[int, int]]], Mapping[tuple[int, int], float]]
"""Function from texts and pairs of their indexes to the cosines of these pairs, as far as they are known."""


class Plan(NamedTuple):
    """Plan of a pass: its report, its changes, the contradicting notes left to a person, and the texts as they were."""

    report: ReflectionReport
    changes: tuple[_Change, ...] = ()
    contradictions: tuple[tuple[str, str], ...] = ()
    texts: Mapping[str, str] = {}

    @classmethod
    def of(
        cls,
        notes: Sequence[Note],
        now_ms: int,
        zone: tzinfo | None = UTC,
        *,
        keep_words: bool = False,
        archive_hours: float = ARCHIVE_HOURS,
        cosines: Cosines | None = None,
        apart: Collection[tuple[str, str]] = frozenset(),
    ) -> "Plan":
        """Return the plan of a pass over these notes.

        ``zone``: in which the notes were written; None: this machine's.
        ``keep_words``: a date is added behind its phrase, instead of replacing it.
        ``archive_hours``: age from which on a note may be archived.
        ``cosines``: compares by meaning; None: by words.
        ``apart``: pairs of ids, the smaller first, that a person keeps apart.
        """
        sweeps = _Pass([each for each in notes if each.stage not in RESTING])
        scanned = len(sweeps.notes)
        sweeps.absolutize(zone, keep_words=keep_words)
        pairs = sweeps.pairs(cosines, apart)
        sweeps.consolidate(pairs, is_cosine=cosines is not None)
        contradictions = sweeps.resolve(pairs)
        sweeps.archive(now_ms, archive_hours)
        number = Counter(each.sweep for each in sweeps.changes if each.field in ("text", STAGE))
        report = ReflectionReport(
            consolidated=number[MERGES],
            absolutized_dates=number[DATES],
            archived=number[ARCHIVE],
            conflicts_resolved=number[CONFLICTS],
            total_scanned=scanned,
            compared_by="words" if cosines is None else "cosine",
        )
        return cls(report, tuple(sweeps.changes), contradictions, {each.id: each.text for each in notes})

    @property
    def notes_changed(self) -> int:
        """Number of changed notes: one that gets a date and is archived counts once."""
        return len({each.id for each in self.changes if each.field in ("text", STAGE)})

    def diff(self) -> list[str]:
        """Return the changes as the lines of a diff."""
        lines: list[str] = []
        for change in self.changes:
            if change.field == "text":
                lines += [f"{change.sweep} {change.id}", f"- {change.before}", f"+ {change.after}"]
            elif change.field == STAGE:
                text = shortened(self.texts.get(change.id, ""), _SAID_CHARS)
                lines.append(f"{change.sweep} {change.id} {change.before} -> {change.after}: {text} ({change.why})")
        return lines


class _Pair(NamedTuple):
    """Pair of close notes: the one that stays, the other, their cosine if known, and their comparison."""

    winner: str
    loser: str
    cosine: float
    found: Closeness


class _Pass:
    """Four sweeps over notes: the remaining notes by id, and the changes."""

    def __init__(self, notes: Sequence[Note]) -> None:
        self.notes = {each.id: each for each in notes}
        self.changes: list[_Change] = []

    def _rest(self, sweep: str, note: Note, stage: Stage, why: str) -> None:
        self.changes.append(_Change(sweep, note.id, STAGE, note.stage.value, stage.value, why))
        del self.notes[note.id]

    def absolutize(self, zone: tzinfo | None, *, keep_words: bool) -> None:
        """Make relative dates absolute in the notes that may be changed."""
        for note in [note for note in self.notes.values() if note.may_change]:
            written = datetime.fromtimestamp(note.at_ms / 1000, UTC).astimezone(zone)
            text = dates.absolutize(note.text, written, keep_words=keep_words)
            if text != note.text:
                self.changes.append(_Change(DATES, note.id, "text", note.text, text))
                self.notes[note.id] = note._replace(text=text)

    def pairs(self, cosines: Cosines | None, apart: Collection[tuple[str, str]]) -> list[_Pair]:
        """Return the pairs of close notes, those with the newest note first."""
        notes = list(self.notes.values())
        texts = [each.text for each in notes]
        close = [each for each in alike(texts) if notes[each[0]].group == notes[each[1]].group]
        by_meaning = cosines(texts, [each[:2] for each in close]) if cosines is not None else {}
        pairs = []
        for a, b, found in close:
            newer, older = (a, b) if notes[a].at_ms >= notes[b].at_ms else (b, a)  # a tie: the one first here
            pair = _Pair(notes[newer].id, notes[older].id, by_meaning.get((a, b), 0.0), found)
            if (min(pair[:2]), max(pair[:2])) not in apart:
                pairs.append((-notes[newer].at_ms, newer, older, pair))
        return [pair for *_, pair in sorted(pairs, key=lambda each: each[:3])]

    def consolidate(self, pairs: Sequence[_Pair], *, is_cosine: bool) -> None:
        """Consolidate the older of two notes that say the same into the newer."""
        measure, least = ("cosine", COSINE_MIN) if is_cosine else ("words", SCORE_MIN)
        gained: dict[str, Note] = {}
        for pair in pairs:
            close = pair.cosine if is_cosine else pair.found.score
            winner, loser = self.notes.get(pair.winner), self.notes.get(pair.loser)
            may_differ = pair.found.differs or pair.found.is_doubtful or (pair.found.is_part and not is_cosine)
            if may_differ or close < least or winner is None or loser is None:
                continue
            self._rest(MERGES, loser, Stage.CONSOLIDATED, f"{measure} {close:.2f}, says the same as {winner.id}")
            gained.setdefault(winner.id, winner)
            self.notes[winner.id] = winner._replace(
                accesses=winner.accesses + loser.accesses,
                tags=tuple(dict.fromkeys([*winner.tags, *loser.tags]))[: limits.TAGS_MAX],
                merged=(*winner.merged, loser.id),
            )
        for before in gained.values():
            after = self.notes.get(before.id, before)  # one that was consolidated in turn gained nothing
            for field, old, new in ((MERGED_FROM, before.merged, after.merged), ("tags", before.tags, after.tags)):
                if old != new and (field != "tags" or before.may_change):
                    self.changes.append(_Change(MERGES, before.id, field, list(old), list(new)))

    def resolve(self, pairs: Sequence[_Pair]) -> tuple[tuple[str, str], ...]:
        """Archive the older of two contradicting, unimportant notes; return the other pairs."""
        unresolved = []
        for pair in pairs:
            winner, loser = self.notes.get(pair.winner), self.notes.get(pair.loser)
            if not pair.found.is_turned or winner is None or loser is None:
                continue
            if max(winner.importance, loser.importance) < LOW_IMPORTANCE:
                self._rest(CONFLICTS, loser, Stage.ARCHIVED, f"contradicts {winner.id}, which is newer")
            else:
                unresolved.append((min(winner.id, loser.id), max(winner.id, loser.id)))
        return tuple(unresolved)

    def archive(self, now_ms: int, archive_hours: float) -> None:
        """Archive the old, unimportant notes that were never accessed."""
        # Accesses need not be weighed: a note that was accessed is not archived at all.
        for note in [note for note in self.notes.values() if note.may_rest and not note.accesses]:
            # The age counts from the reading here, before which nobody can have looked at the note.
            age = (now_ms - max(note.at_ms, note.read_ms)) / _HOUR_MS
            matters = note.importance * math.exp(-_DECAY_AN_HOUR * max(age, 0.0))
            if age > archive_hours and matters < ARCHIVE_BELOW:
                why = f"{age / 24:.0f} days old, never looked at, matters {matters:.2f}"
                self._rest(ARCHIVE, note, Stage.ARCHIVED, why)
