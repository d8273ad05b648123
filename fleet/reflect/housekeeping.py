"""Housekeeping pass over one agent's notebook: a plan of what to put in order, computed from its notes alone.

Four sweeps in this order. Relative dates become absolute. Two notes that say the same become one: the newer stays, and
the older is consolidated into it. Of two notes that contradict each other and matter little, the newer stays active.
What matters little and was never looked at goes to rest in the archive. Nothing is deleted and no text is lost: a note
that is consolidated or archived has another *stage*, which is private and can be set back.

Deciding reads no file and no clock. Notes are compared with those that share their rarest words (``likely_pairs``),
never all with all.
"""

import math
import re
from collections.abc import Callable, Collection, Mapping, Sequence
from datetime import UTC, datetime, tzinfo
from enum import StrEnum
from typing import NamedTuple

import msgspec

from crdt import clock
from fleet.model.pattern import Pattern
from fleet.reflect.exposure import Exposures
from fleet.store.workspace import Workspace
from fleet.text import dates
from fleet.text.similarity import Alike, compared, likely_pairs

COORDINATED_HOURS_MIN = 24
"""So long a coordinated pass waits after the last one: the host's own housekeeping has that cadence."""
COORDINATED_NEW_MIN = 5
"""So many notes have to be new since then."""
COSINE_MIN = 0.92
"""Cosine of two notes from which on they say the same, where embeddings are at hand."""
SCORE_MIN = 0.92
"""The same by their words alone: on the labelled pairs no less precise than the cosine (docs/evaluation.md)."""
LOW_IMPORTANCE = 0.3
ARCHIVE_BELOW = 0.2
ARCHIVE_HOURS = 168
IMPORTANCE, AUTO_IMPORTANCE = 0.5, 0.2
"""Importance of a note that says none: of one that somebody wrote, and of one that was detected."""
STAGE, MERGED_FROM = "stage", "consolidated_from"
"""Fields of a private record: its stage, and the ids of those that were consolidated into it."""

_DECAY_AN_HOUR = 0.01
_GAIN = 0.05
_HOUR_MS = 3_600_000
_SAID_CHARS = 80
_HEADING = re.compile(r"^#{1,6}[ \t]+organization[ \t]+report[ \t]*#*[ \t]*\r?$", re.IGNORECASE | re.MULTILINE)
_KEY = re.compile(
    r"\b(consolidated|removed|re[-_ ]?indexed)\b[*_`]{0,3}[ \t]{0,8}[:=][*_` \t]{0,8}([0-9]{1,9})(?![\w.])",
    re.IGNORECASE,
)


class Stage(StrEnum):
    """Where a note stands in its agent's notebook. No stage says what a lesson is to the clan (``state``)."""

    RAW = "raw"
    ACTIVE = "active"
    PENDING = "pending"
    CONSOLIDATED = "consolidated"
    ARCHIVED = "archived"
    FORGOTTEN = "forgotten"


RESTING = frozenset({Stage.CONSOLIDATED, Stage.ARCHIVED, Stage.FORGOTTEN})
"""Stages of notes that are neither shown at a start nor looked at by the pass."""


class Mode(StrEnum):
    """When a pass runs: after a while and with enough to do, beside the host's own one; or now."""

    COORDINATED = "coordinated"
    ALWAYS = "always"


class _SkipReason(StrEnum):
    """Why a coordinated pass did nothing."""

    TOO_SOON = "TooSoon"
    NOT_ENOUGH = "NotEnoughNewRecords"
    DREAM_RAN = "AutoDreamAlreadyRan"


def stage_of(own: Pattern | None, last_ms: int) -> Stage:
    """Return the stage that a private record notes; of an archived one that was looked at since: active again."""
    said = own.value(STAGE) if own is not None else ""
    if own is None or said not in set(Stage):
        return Stage.ACTIVE
    stage = Stage(said)
    set_ms = clock.unpack(own.edited[STAGE][0])[0] if STAGE in own.edited else 0
    return Stage.ACTIVE if stage is Stage.ARCHIVED and last_ms > set_ms else stage


def resting(workspace: Workspace, agent: str) -> set[str]:
    """Return the ids of the lessons that a pass put to rest in an agent's notebook, and that nobody looked at since."""
    if not workspace.notes_file(agent).is_file():
        return set()
    looked = Exposures(workspace.state).accesses(agent)
    records = workspace.notes(agent).records()
    return {each.id for each in records if stage_of(each, looked.get(each.id, (0, 0))[1]) in RESTING}


class DreamReport(msgspec.Struct, frozen=True):
    """What the host's own housekeeping says that it did, at the end of its answer."""

    consolidated: int = 0
    removed: int = 0
    reindexed: int = 0


class ReflectionReport(msgspec.Struct, frozen=True, kw_only=True):
    """Result of one pass.

    Attributes:
        consolidated: notes that became a part of a newer one.
        dreamed_accepted: facts of the host's own memory that wait as candidates now.
        conflicts_resolved: contradictions of which the newer note stayed active.
        total_scanned: notes that were looked at; 0 of a pass that was skipped.
        skipped: why nothing was looked at; None of a pass that ran.
        dream_report_ingested: what the host says that it did, read for the first time.
        compared_by: "cosine", or "words" where there are no embeddings.
    """

    consolidated: int = 0
    absolutized_dates: int = 0
    dreamed_accepted: int = 0
    archived: int = 0
    conflicts_resolved: int = 0
    total_scanned: int = 0
    skipped: _SkipReason | None = None
    dream_report_ingested: DreamReport | None = None
    compared_by: str = ""

    @property
    def changes(self) -> int:
        """How many notes another than before."""
        return self.consolidated + self.absolutized_dates + self.archived + self.conflicts_resolved


class Note(NamedTuple):
    """One note of an agent.

    Attributes:
        id: of its record, or of its line.
        at_ms: when it was written, milliseconds since 1970.
        importance: 0 to 1.
        accesses: how often it was shown or found, with those of the notes that it was made of.
        last_ms: when that was last; 0 for never.
        merged: ids of the notes that were consolidated into it.
        may_change: its text is this agent's alone, and may be edited.
        group: notes of another group are never compared with it.
    """

    id: str
    text: str
    at_ms: int
    importance: float = IMPORTANCE
    accesses: int = 0
    last_ms: int = 0
    tags: tuple[str, ...] = ()
    stage: Stage = Stage.ACTIVE
    merged: tuple[str, ...] = ()
    may_change: bool = True
    may_rest: bool = True
    group: str = ""


class _Change(NamedTuple):
    """One field of one note before and after the pass, by which sweep, and why."""

    sweep: str
    id: str
    field: str
    before: object
    after: object
    why: str = ""


DATES, MERGES, CONFLICTS, ARCHIVE = "dates", "dedup", "conflicts", "archive"


class Plan(NamedTuple):
    """What a pass would do: its report, its changes in order, and the contradictions that it left to a person."""

    report: ReflectionReport
    changes: tuple[_Change, ...] = ()
    contradictions: tuple[tuple[str, str], ...] = ()


Cosines = Callable[[Sequence[str], Sequence[tuple[int, int]]], Mapping[tuple[int, int], float]]
"""From texts and pairs of their numbers to the cosines of those pairs; of a pair that is not in it nobody knows."""


def parse_organization_report(text: str) -> DreamReport | None:
    """Return the report that the host's own housekeeping ends with; None without its heading.

    Permissive: keys in any case after a colon or an equals sign, the first of each; a missing one is 0.
    """
    heading = None
    for found in _HEADING.finditer(text):
        heading = found
    if heading is None:
        return None
    keys = {_letters(key): int(value) for key, value in reversed(_KEY.findall(text, heading.end()))}
    return DreamReport(*(keys.get(key, 0) for key in DreamReport.__struct_fields__))


def _letters(key: str) -> str:
    return re.sub(r"[-_ ]", "", key.lower())


def _effective_importance(importance: float, hours: float, accesses: int) -> float:
    """Return what a note matters now: it fades with the hours since it was last looked at, and gains by each look."""
    faded = importance * math.exp(-_DECAY_AN_HOUR * max(hours, 0.0))
    return min(1.0, faded + _GAIN * math.log(1 + max(accesses, 0)))


def skip_reason(mode: Mode, now_ms: int, last_ms: int | None, new: int, dream_ms: int | None) -> _SkipReason | None:
    """Return why a pass is to be skipped; None where it runs.

    ``last_ms``: when a pass changed something last; None for never.
    ``dream_ms``: when a report of the host's own housekeeping was read last; None for never.
    """
    if mode is Mode.ALWAYS:
        return None
    if dream_ms is not None and _hours(now_ms, dream_ms) < COORDINATED_HOURS_MIN:
        return _SkipReason.DREAM_RAN
    if last_ms is not None and _hours(now_ms, last_ms) < COORDINATED_HOURS_MIN:
        return _SkipReason.TOO_SOON
    return _SkipReason.NOT_ENOUGH if new < COORDINATED_NEW_MIN else None


def _hours(now_ms: int, then_ms: int) -> float:
    """Return the hours since a moment; one ahead, by a clock that was set back, counts alike."""
    return abs(now_ms - then_ms) / _HOUR_MS


def plan(
    notes: Sequence[Note],
    now_ms: int,
    zone: tzinfo | None = UTC,
    *,
    keep_words: bool = False,
    archive_hours: float = ARCHIVE_HOURS,
    cosines: Cosines | None = None,
    apart: Collection[tuple[str, str]] = frozenset(),
) -> Plan:
    """Return what a pass would do with these notes.

    ``zone``: in which the notes were written; None: this machine's.
    ``keep_words``: a date is added behind its phrase, and never stands for it.
    ``archive_hours``: how old a note is at least that goes to rest.
    ``cosines``: compares by meaning; None: by words.
    ``apart``: pairs of ids, the smaller first, of which somebody said that they are two.
    """
    known = {each.id: each for each in notes if each.stage not in RESTING}
    changes: list[_Change] = []
    dated = _absolutize(known, zone, changes, keep_words=keep_words)
    pairs = _pairs(list(known.values()), cosines, apart)
    merged = _consolidate(known, pairs, changes, is_cosine=cosines is not None)
    solved, contradictions = _resolve(known, pairs, changes)
    archived = _archive(known, now_ms, archive_hours, changes)
    report = ReflectionReport(
        consolidated=merged,
        absolutized_dates=dated,
        archived=archived,
        conflicts_resolved=solved,
        total_scanned=len(known) + merged + solved + archived,
        compared_by="words" if cosines is None else "cosine",
    )
    return Plan(report, tuple(changes), contradictions)


def _absolutize(known: dict[str, Note], zone: tzinfo | None, changes: list[_Change], *, keep_words: bool) -> int:
    number = 0
    for each in list(known.values()):
        if not each.may_change:
            continue
        text = dates.absolutize(each.text, _moment(each.at_ms, zone), keep_words=keep_words)
        if text != each.text:
            number += 1
            changes.append(_Change(DATES, each.id, "text", each.text, text))
            known[each.id] = each._replace(text=text)
    return number


def _moment(at_ms: int, zone: tzinfo | None) -> datetime:
    return datetime.fromtimestamp(at_ms / 1000, UTC).astimezone(zone)


class _Pair(NamedTuple):
    """Two notes that are close: the one that stays, the other, their cosine if it is known, and how they differ."""

    winner: str
    loser: str
    cosine: float
    found: Alike


def _pairs(notes: Sequence[Note], cosines: Cosines | None, apart: Collection[tuple[str, str]]) -> list[_Pair]:
    texts = [each.text for each in notes]
    likely = [pair for pair in likely_pairs(texts) if notes[pair[0]].group == notes[pair[1]].group]
    close = compared(texts, likely)
    told = cosines(texts, [(each.one, each.other) for each in close]) if cosines is not None else {}
    found = []
    for each in close:
        one, other = notes[each.one], notes[each.other]
        if (min(one.id, other.id), max(one.id, other.id)) in apart:
            continue
        first, second = (one, other) if one.at_ms >= other.at_ms else (other, one)  # a tie: the one scanned first
        found.append(_Pair(first.id, second.id, told.get((each.one, each.other), 0.0), each))
    place = {each.id: at for at, each in enumerate(notes)}
    at_ms = {each.id: each.at_ms for each in notes}
    return sorted(found, key=lambda pair: (-at_ms[pair.winner], place[pair.winner], place[pair.loser]))


def _consolidate(known: dict[str, Note], pairs: Sequence[_Pair], changes: list[_Change], *, is_cosine: bool) -> int:
    number = 0
    gained: dict[str, Note] = {}
    for pair in pairs:
        close = pair.cosine if is_cosine else pair.found.score
        if pair.found.differs or pair.found.is_replaced or close < (COSINE_MIN if is_cosine else SCORE_MIN):
            continue
        winner, loser = known.get(pair.winner), known.get(pair.loser)
        if winner is None or loser is None:
            continue
        number += 1
        said = f"{'cosine' if is_cosine else 'words'} {close:.2f}, says the same as {winner.id}"
        changes.append(_Change(MERGES, loser.id, STAGE, loser.stage.value, Stage.CONSOLIDATED.value, said))
        gained.setdefault(winner.id, winner)
        known[winner.id] = winner._replace(
            accesses=winner.accesses + loser.accesses,
            tags=tuple(dict.fromkeys([*winner.tags, *loser.tags])),
            merged=(*winner.merged, loser.id),
        )
        del known[loser.id]
    for before in gained.values():
        after = known.get(before.id)
        if after is None:  # it was consolidated in its turn, with all that it is made of
            continue
        changes.append(_Change(MERGES, after.id, MERGED_FROM, list(before.merged), list(after.merged)))
        if after.tags != before.tags:
            changes.append(_Change(MERGES, after.id, "tags", list(before.tags), list(after.tags)))
    return number


def _resolve(
    known: dict[str, Note], pairs: Sequence[_Pair], changes: list[_Change]
) -> tuple[int, tuple[tuple[str, str], ...]]:
    number = 0
    left = []
    for pair in pairs:
        winner, loser = known.get(pair.winner), known.get(pair.loser)
        if not pair.found.is_turned or winner is None or loser is None:
            continue
        if max(winner.importance, loser.importance) >= LOW_IMPORTANCE:
            left.append((min(winner.id, loser.id), max(winner.id, loser.id)))
            continue
        number += 1
        said = f"contradicts {winner.id}, which is newer"
        changes.append(_Change(CONFLICTS, loser.id, STAGE, loser.stage.value, Stage.ARCHIVED.value, said))
        del known[loser.id]
    return number, tuple(left)


def _archive(known: dict[str, Note], now_ms: int, archive_hours: float, changes: list[_Change]) -> int:
    number = 0
    for each in list(known.values()):
        age = (now_ms - each.at_ms) / _HOUR_MS
        since = (now_ms - max(each.last_ms, each.at_ms)) / _HOUR_MS
        matters = _effective_importance(each.importance, since, each.accesses)
        if not each.may_rest or each.accesses or age <= archive_hours or matters >= ARCHIVE_BELOW:
            continue
        number += 1
        said = f"{age / 24:.0f} days old, never looked at, matters {matters:.2f}"
        changes.append(_Change(ARCHIVE, each.id, STAGE, each.stage.value, Stage.ARCHIVED.value, said))
        del known[each.id]
    return number


def diff(changes: Sequence[_Change], texts: Mapping[str, str]) -> list[str]:
    """Return changes as lines that a person reads: what goes with a ``-``, what comes with a ``+``."""
    lines: list[str] = []
    for each in changes:
        if each.field == "text":
            lines += [f"{each.sweep} {each.id}", f"- {each.before}", f"+ {each.after}"]
        elif each.field == STAGE:
            said = texts.get(each.id, "")
            said = said if len(said) <= _SAID_CHARS else f"{said[: _SAID_CHARS - 1]}…"
            lines.append(f"{each.sweep} {each.id} {each.before} -> {each.after}: {said} ({each.why})")
    return lines
