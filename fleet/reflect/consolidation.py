"""Consolidation of daily logs into topics: the lock file, the three gates, and the four phases that make a plan. Pure.

Orient reads the index and the topic files, gather the daily logs, consolidate merges what they say into topics, prune
and index brings the index up to date. The result is a plan, the texts of files as they are to be: nothing is written
here, no file is ever removed, and the same input gives the same plan; after it was carried out, an empty one.
"""

import json
import math
import re
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from functools import partial
from typing import NamedTuple

from fleet.reflect import topics
from fleet.reflect.auto_reflect import Block
from fleet.reflect.clusters import Recurrence
from fleet.reflect.observations import Said, says
from fleet.reflect.topics import Topic
from fleet.store import homes
from fleet.text import dates, screening, similarity

LOCK = homes.LOCK
HOURS_MIN = 24
SESSIONS_MIN = 5
STALE_MINUTES = 30
"""A lock that is older by anything is stale."""
RECURRED_MIN = 2
"""Separate sessions in which something must have come up to become a topic."""
AUTO, FORCE = "auto-consolidation", "force-consolidation"

_HOUR_MS = 3_600_000
_MINUTE_MS = 60_000
_FIELDS = ("last_consolidated_at", "locked_by", "locked_at")
_LOCK_BYTES_MAX = 64 * 1024
_SNIPPET_SHARE = 0.5
_SNIPPET_CHARS_MIN = 25
_CODE = re.compile(r"`[^`]+`")
_CODE_LINE = re.compile(
    r"[;{}]\s*$|^\s*(?:import|from|def|class|const|let|var|func|fn|return|if|for)\b.*[({:;]|=>|\$ \w+|\w+\(.*\)\s*;?$"
)


# --- the lock file ----------------------------------------------------------------------------------------------------


class Lock(NamedTuple):
    """Content of a lock file.

    Attributes:
        last_ms: when was consolidated last, milliseconds since 1970; 0: never, or nobody knows.
        by: who holds it, "" for nobody.
        at_ms: since when, 0 where it is free or does not say.
        trouble: why it cannot be read, "" where it can.
    """

    last_ms: int = 0
    by: str = ""
    at_ms: int = 0
    trouble: str = ""

    @classmethod
    def read(cls, data: bytes) -> "Lock":
        """Return what a lock file says, in every known form: milliseconds or seconds, floats, times, keys left out.

        Never raises. A file that cannot be read is in ``trouble``, and open to nobody who does not force it.
        """
        if not data.strip():
            return cls() if not data else cls(trouble="is empty")
        try:
            found = json.loads(data[:_LOCK_BYTES_MAX].decode("utf-8-sig"))
        except (ValueError, RecursionError):
            return cls(trouble="holds no JSON, or half of it")
        if not isinstance(found, dict):
            return cls(trouble="holds no JSON object")
        if found and found.keys().isdisjoint(_FIELDS):  # somebody's own: it may be held, and nobody could tell
            return cls(trouble=f"has none of the fields {', '.join(_FIELDS)}")
        last, by, at = (found.get(name) for name in _FIELDS)
        if last is not None and not _ms(last) and last not in (0, ""):
            return cls(trouble="tells no time of the last consolidation that can be read")
        holder = by if isinstance(by, str) else "" if by in (None, False, 0) else "somebody"
        return cls(_ms(last), holder[:120], _ms(at))

    @property
    def is_taken(self) -> bool:
        """True where somebody took it and did not give it back."""
        return bool(self.by or self.at_ms)

    def last_before(self, now_ms: int) -> int:
        """Return when was consolidated last; 0 for never, and by a clock that was ahead: that must close no gate."""
        return self.last_ms if 0 < self.last_ms <= now_ms else 0

    def is_live(self, now_ms: int) -> bool:
        """Tell whether its holder may still be at work.

        A lock of the future is as stale as an old one: a clock was wrong, and nobody holds it for so long.
        """
        return self.is_taken and abs(now_ms - self.at_ms) <= STALE_MINUTES * _MINUTE_MS

    def render(self) -> bytes:
        """Return the bytes of the file, as they are documented."""
        told = zip(_FIELDS, (self.last_ms or None, self.by or None, self.at_ms or None), strict=True)
        return json.dumps(dict(told)).encode() + b"\n"


def _ms(value: object) -> int:
    """Return milliseconds since 1970 for a number of either unit, or a time as text; 0 for what is none."""
    if isinstance(value, bool) or value is None:
        return 0
    if isinstance(value, int | float):
        if not math.isfinite(value) or value <= 0:
            return 0
        return round(value * 1000) if value < 1e11 else round(min(value, 9e15))
    return dates.to_ms(value) or 0


class Gates(NamedTuple):
    """The three gates of a consolidation.

    Attributes:
        hours: since the last one; None: there was none.
        holder: who holds the lock, "" for nobody.
        trouble: why nobody can tell, "" for nothing.
    """

    hours: float | None
    sessions: int
    holder: str = ""
    trouble: str = ""

    @classmethod
    def of(cls, lock: Lock, found: Iterable[Block], now_ms: int, own: str = "") -> "Gates":
        """Return how the gates stand.

        ``own``: the key of the session that asks: it has not ended yet, and does not count.
        """
        last = lock.last_before(now_ms)
        sessions = {one for each in found if each.ends_ms > last for one in each.sessions if one != own}
        holder = (lock.by or "somebody") if lock.is_live(now_ms) else ""
        hours = (now_ms - last) / _HOUR_MS if last else None
        return cls(hours, len(sessions), holder, lock.trouble)

    @property
    def is_time(self) -> bool:
        """True where at least 24 hours have passed."""
        return self.hours is None or self.hours >= HOURS_MIN

    @property
    def is_open(self) -> bool:
        """True where all three are."""
        return not self.trouble and self.is_time and self.sessions >= SESSIONS_MIN and not self.holder

    def told(self) -> str:
        """Return the three gates as one line."""
        hours = "never before" if self.hours is None else f"{self.hours:.1f} of {HOURS_MIN} h"
        lock = f"held by {self.holder}" if self.holder else "free"
        return f"time: {hours}; sessions: {self.sessions} of {SESSIONS_MIN}; lock: {lock}"


# --- the phases -------------------------------------------------------------------------------------------------------


class Plan(NamedTuple):
    """Plan of a consolidation.

    Attributes:
        files: path to the text that it is to have, of those alone that change.
        phases: the four, by name:  what it read, changed and left, in words.
        merged: titles of topics that have more sessions now.
        flagged: what reads as a directive: kept in the logs, and no topic by itself.
    """

    files: dict[str, str]
    phases: Mapping[str, str]
    added: tuple[str, ...] = ()
    merged: tuple[str, ...] = ()
    flagged: tuple[str, ...] = ()

    @classmethod
    def of(
        cls,
        index: str,
        files: Mapping[str, bytes],
        blocks: Sequence[Block],
        absolute: Callable[[str, str], str],
        taken_back: Sequence[str] = (),
    ) -> "Plan":
        """Return what these daily logs change about the topics and the index.

        ``absolute``: returns a text with its relative dates made absolute, given the day it was said.
        ``taken_back``: texts of topics that somebody took back: what says the same does not become one again.
        """
        known = {path: Topic.read(path, data) for path, data in sorted(files.items())}
        numbered = [(path, text) for path, each in known.items() for text in each.texts]
        troubled = [f"{each.path} {each.trouble}" for each in known.values() if each.trouble]

        kept, skipped = _gathered(blocks)
        found, matched = Recurrence.among(kept, [*(text for _, text in numbered), *taken_back])
        recurred = [each for each in found if len(each.sessions) >= RECURRED_MIN]
        flagged = tuple(each.text for each in recurred if each.is_directive)
        sessions = {one for each in blocks for one in each.sessions}
        passed_over = [f"{count} skipped: {why}" for why, count in sorted(skipped.items())]
        passed_over += [f"{len(flagged)} read as directives, and stay data"] if flagged else []

        changed = _merged(known, numbered, matched, files)
        merged = tuple(known[path].title for path in changed)
        changed |= _fresh([each for each in recurred if not each.is_directive], absolute, {*files, *changed})

        known |= {path: Topic.read(path, text.encode()) for path, text in changed.items()}
        added = tuple(each.title for path, each in known.items() if path not in files)
        indexed = topics.index(index, [known[path] for path in sorted(known)], _contradicted(known.values()))
        if known and indexed.text != index:
            changed[topics.INDEX] = indexed.text
        dropped = [f"dropped the pointer to {title!r}" for title in indexed.dropped]
        left = [f"{indexed.left_out} topics have no room in the index"] if indexed.left_out else []
        phases = {
            "orient": [f"{len(files)} topics", *troubled],
            "gather": [f"{len(kept)} entries of {len(sessions)} sessions", *passed_over],
            "consolidate": [f"{len(added)} new topics, {len(merged)} merged into"],
            "prune and index": [f"{len(indexed.text.splitlines())} lines" if known else "no topics", *dropped, *left],
        }
        told = {name: "; ".join(parts) for name, parts in phases.items()}
        return cls(changed, told, added, merged, flagged)


def _fresh(
    recurred: Iterable[Recurrence], absolute: Callable[[str, str], str], taken: Collection[str]
) -> dict[str, str]:
    """Return new topics, path to text."""
    made: dict[str, str] = {}
    for each in recurred:
        path, text = Topic.fresh(each, partial(_dated, each, absolute), {*taken, *made})
        made[path] = text
    return made


def _dated(found: Recurrence, absolute: Callable[[str, str], str], text: str) -> str:
    """Return a wording with its dates absolute, from the day on which it was said first."""
    day = min((each.at for each in found.said if text in each.text), default=found.said[0].at)
    return absolute(text, day)


def _merged(
    known: Mapping[str, Topic],
    numbered: Sequence[tuple[str, str]],
    matched: Mapping[int, Sequence[Said]],
    files: Mapping[str, bytes],
) -> dict[str, str]:
    """Return the topics that more sessions have met, as they are to be."""
    told: dict[str, list[Said]] = {}
    for number, said in matched.items():
        if number < len(numbered):
            told.setdefault(numbered[number][0], []).extend(said)
    texts = {path: known[path].merged(files[path].decode(), said) for path, said in sorted(told.items())}
    return {path: text for path, text in texts.items() if text.encode() != files[path]}


def _contradicted(known: Iterable[Topic]) -> set[str]:
    """Return the paths of the topics that a newer one says the opposite of."""
    single = [each for each in known if 0 < len(each.texts) <= 2]
    found = set()
    for pair in similarity.alike(tuple(each.texts[-1] for each in single)):
        if pair.is_turned:
            old, new = sorted((single[pair.one], single[pair.other]), key=lambda each: (each.updated, each.path))
            found |= {old.path} if old.updated < new.updated else set()
    return found


# --- what is worth keeping --------------------------------------------------------------------------------------------


def _gathered(blocks: Iterable[Block]) -> tuple[list[Said], dict[str, int]]:
    """Return what the logs say that may be worth a topic, and how much was skipped for which reason."""
    kept: list[Said] = []
    skipped: dict[str, int] = {}
    for block in blocks:
        for each in block.said:
            if why := _skip_reason(each):
                skipped[why] = skipped.get(why, 0) + 1
            else:
                kept.append(each)
    return kept, skipped


def _skip_reason(said: Said) -> str:
    """Return why an entry of a daily log is not worth a topic; "" for one that may be."""
    if screening.screen(said.text).secrets or "[REDACTED:" in said.text:
        return "a secret"
    if said.kind in ("done", "commit"):
        return "a one-time event"
    if says(said.text, "transient"):
        return "a transient state"
    if says(said.text, "once"):
        return "a one-time event"
    if _is_snippet(said.text):
        return "a code snippet"
    return ""


def _is_snippet(text: str) -> bool:
    """Tell whether a text is code, rather than words about it."""
    spans = sum(len(match[0]) for match in _CODE.finditer(text))
    if spans >= _SNIPPET_CHARS_MIN and spans > _SNIPPET_SHARE * len(text):
        return True
    bare = _CODE.sub("", text)
    return _CODE_LINE.search(bare) is not None and len(re.findall(r"[A-Za-z]{2,} [A-Za-z]{2,}", bare)) < 3
