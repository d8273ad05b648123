"""``fleet import``: what other fleets wrote becomes lines, each record once, wherever it is imported.

A record's counts sit in a slot of its own, ``import.<8 hex of the record>``, stamped from the record: two machines that
import the same record write the same line, and the join counts it once.
"""

import hashlib
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import NamedTuple

from crdt import clock
from fleet.keep import limits, names, screening
from fleet.keep.discoveries import Discovery, discovery_id
from fleet.keep.line import BadLineError, Line, Refused, check_value
from fleet.keep.notebook import Notebook
from fleet.keep.reading import DISCOVERIES, PATTERNS
from fleet.keep.workspace import Workspace
from fleet.learn import reconcile
from fleet.learn.shapes import Bad, Finding, Lesson, Skipped, read_records

UNDATED_MS = 0
"""A record without a date is stamped 1970, the same everywhere, and shown as undated."""

FILE_BYTES_MAX = 256 * 1024 * 1024
SUFFIXES = (".jsonl", ".ndjson", ".json", ".md", ".markdown", ".mdx")


@dataclass(slots=True)
class Imported:
    """What came of an import.

    Attributes:
        patterns: lessons read, and how many of them were new here.
        discoveries: findings read, and how many were new here.
        skipped: records understood and rightly not taken, by reason.
        refused: records that cannot be used.
        redacted: records that held a secret, which was taken out.
    """

    patterns: int = 0
    patterns_new: int = 0
    discoveries: int = 0
    discoveries_new: int = 0
    skipped: dict[str, int] = field(default_factory=dict)
    refused: list[Refused] = field(default_factory=list)
    redacted: int = 0


class _Unusable(Exception):  # noqa: N818 - private, and turned into a Refused at once
    """Why a record cannot become a line."""


def files_in(paths: list[Path]) -> Iterator[Path]:
    """Yield the files to read: those named, and in folders those of a known ending, in order."""
    for path in paths:
        if path.is_dir():
            yield from sorted(f for f in path.rglob("*") if f.suffix.casefold() in SUFFIXES and f.is_file())
        else:
            yield path


def import_files(
    workspace: Workspace, agent: str, files: list[Path], progress: Callable[[Path], None] = lambda _: None
) -> Imported:
    """Read files and write what is new to the agent's shard.

    Raises:
        DiskError: nothing of it was acknowledged.
    """
    done = Imported()
    with workspace.writing(agent) as writer:
        held = workspace.load()
        workspace.admit(held.notebook)
        known = _Known(held.notebook, held.notebook.edited())
        lines: dict[bytes, Line] = {}
        found: dict[str, Discovery] = {}
        for path in files:
            progress(path)
            for item in _items(path, done):
                _sort_in(item, path, workspace, known, lines, found, done)
        owed = [line for line in lines.values() if not held.notebook.covers(line)]
        new = [entry for entry in found.values() if entry.id not in held.findings.entries]
        done.patterns_new, done.discoveries_new = len(owed), len(new)
        writer.append(PATTERNS, owed)
        writer.append(DISCOVERIES, new)
        workspace.quarantine.keep(done.refused, workspace.wall())
    return done


class _Known(NamedTuple):
    """What is known before the import.

    Attributes:
        notebook: all of it.
        edited: ids of records whose text was edited: looked up once, not with every lesson.
    """

    notebook: Notebook
    edited: list[str]

    def pattern_of(self, lesson: str) -> str:
        """Return the id that a lesson is logged under."""
        return reconcile.find_pattern(self.notebook, lesson, self.edited)


def _items(path: Path, done: Imported) -> Iterator[Lesson | Finding | Bad | Skipped]:
    try:
        if path.stat().st_size > FILE_BYTES_MAX:
            done.refused.append(Refused(str(path.name), 0, f"larger than {FILE_BYTES_MAX >> 20} MiB", b""))
            return
        data = path.read_bytes()
    except OSError as why:
        done.refused.append(Refused(str(path.name), 0, f"cannot be read: {why.strerror}", b""))
        return
    yield from read_records(path.name, data)


def _sort_in(
    item: Lesson | Finding | Bad | Skipped,
    path: Path,
    workspace: Workspace,
    known: _Known,
    lines: dict[bytes, Line],
    found: dict[str, Discovery],
    done: Imported,
) -> None:
    if isinstance(item, Bad):
        done.refused.append(Refused(path.name, item.line, item.reason, item.raw))
    elif isinstance(item, Skipped):
        done.skipped[item.reason] = done.skipped.get(item.reason, 0) + 1
    elif isinstance(item, Lesson):
        if _is_counted(item, known):
            done.skipped["already counted by fleet"] = done.skipped.get("already counted by fleet", 0) + 1
            return
        try:
            line = _as_line(item, workspace, known, done)
        except _Unusable as why:
            done.refused.append(Refused(path.name, 0, str(why), item.identity.encode()))
            return
        done.patterns += 1
        mine = lines.setdefault(_key(line), line)
        # Two copies of one record that differ in their count: the larger one, never the sum.
        for replica, total in line.n["seen"].items():
            mine.n["seen"][replica] = max(total, mine.n["seen"][replica])
    else:
        try:
            entry = _as_discovery(item, workspace, done)
        except _Unusable as why:
            done.refused.append(Refused(path.name, 0, str(why), item.identity.encode()))
            return
        done.discoveries += 1
        known_entry = found.get(entry.id)
        if known_entry is None or entry.at < known_entry.at:
            found[entry.id] = entry


def _key(line: Line) -> bytes:
    return f"{line.id} {line.by}".encode()


def _is_counted(item: Lesson, known: _Known) -> bool:
    """Tell whether a correction of another fleet log is counted here already, under the replica that logged it."""
    replica = dict(item.extra).get("replica", "")
    line = known.notebook.get(known.pattern_of(_clean(item.text)[0])) if replica else None
    return line is not None and replica in line.n.get("seen", {})


def _as_line(item: Lesson, workspace: Workspace, known: _Known, done: Imported) -> Line:
    text, had_secret = _clean(item.text)
    mark = hashlib.blake2b(item.identity.encode(), digest_size=4).hexdigest()
    slot = f"{names.IMPORT}.{mark}"
    stamp = _stamp(item.at_ms, workspace)
    fields: dict[str, object] = {"text": text}
    for name, value in (("correct", item.correct), ("title", item.title), ("category", item.category)):
        clean, was_secret = _clean(value)
        had_secret = had_secret or was_secret
        if clean and clean != text:
            fields[name] = clean
    if tags := _tags(item.tags):
        fields["tags"] = tags
    if names.is_agent(item.agent):
        fields[f"agent.{mark}"] = item.agent
    done.redacted += had_secret
    return Line(
        id=known.pattern_of(text),
        at=stamp,
        by=slot,
        add={slot: stamp},
        n={"seen": {slot: max(1, min(item.seen, limits.INTEGER_MAX))}},
        set=_checked(fields),
    )


def _as_discovery(item: Finding, workspace: Workspace, done: Imported) -> Discovery:
    texts = [_clean(value) for value in (item.context, item.problem, item.solution)]
    context, problem, solution = (text for text, _ in texts)
    done.redacted += any(was_secret for _, was_secret in texts)
    mark = hashlib.blake2b(item.identity.encode(), digest_size=4).hexdigest()
    _checked({"context": context, "problem": problem, "solution": solution})
    return Discovery(
        id=discovery_id(item.type, context, problem, solution),
        at=_stamp(item.at_ms, workspace),
        by=f"{item.agent if names.is_agent(item.agent) else names.IMPORT}.{mark}",
        type=item.type,
        context=context,
        problem=problem,
        solution=solution,
        tags=tuple(_tags(item.tags)),
        confidence=item.confidence,
        minutes=item.minutes,
    )


def _clean(text: str) -> tuple[str, bool]:
    # Not this machine's home folder: another machine must make the very same line of this record.
    screened = screening.screen(text)
    return screening.one_line(screened.text), bool(screened.secrets)


def _tags(tags: tuple[str, ...]) -> list[str]:
    return sorted({clean for tag in tags if (clean := _clean(tag)[0])})[: limits.TAGS_MAX]


def _checked(fields: dict[str, object]) -> dict[str, object]:
    try:
        for name, value in fields.items():
            check_value(name, value)
    except BadLineError as why:
        raise _Unusable(str(why)) from why
    if not (fields.get("text") or fields.get("problem")):
        raise _Unusable("nothing is left of its text after screening")
    return fields


def _stamp(at_ms: int | None, workspace: Workspace) -> str:
    """A record from the future would be held everywhere until then: it counts as undated."""
    latest = workspace.world.wall_ms() + limits.AHEAD_HOURS_MAX * 3_600_000
    return clock.pack(at_ms if at_ms is not None and UNDATED_MS <= at_ms <= latest else UNDATED_MS)
