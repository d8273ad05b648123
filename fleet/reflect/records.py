"""Records of the passes that reflect: what each read, cost, wrote and left out, and why; ``reflections.jsonl``.

One line tells of one pass: a reflection on a session, a sleep, a consolidation. Other lines are about a pass: money
that was reserved for it or settled, that it was deferred, that it was undone. The file is all there is: what was
spent on a day is counted from it, so that no database that is deleted gives anybody a second budget.
"""

from collections.abc import Iterable
from contextlib import AbstractContextManager
from typing import Literal, NamedTuple

import msgspec

from fleet.store.lines import JsonLines
from fleet.store.workspace import Workspace

FILE_NAME = "reflections.jsonl"
RAN, RESERVED, SETTLED, DEFERRED, UNDONE = "ran", "reserved", "settled", "deferred", "undone"


class Written(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """Account of one writer of a pass.

    Attributes:
        name: lessons, notes, skill, persona, user-model, next-check ...
        ids: of what it wrote, put into the inbox or confirmed.
        count: how many things it saved; 0 where it only skipped.
        skipped: what it did not write, each with the reason, in a sentence.
        error: why it failed; the other writers went on.
    """

    name: str
    ids: tuple[str, ...] = ()
    count: int = 0
    skipped: tuple[str, ...] = ()
    error: str = ""


class Record(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """One line.

    Attributes:
        run: id of the pass; where it changed files, the id of its run (``store/runs``).
        line: ran, reserved, settled, deferred or undone.
        kind: of the pass: reflection, sleep, tidy, consolidation, auto-reflect.
        at: when the line was written, a stamp; set by ``append``.
        transcript: path of what was read.
        drawn: numbers of the transcript's lines, from 1, that something was drawn from.
        left_out: what did not fit the budget, in a sentence.
        reflector: rules, claude, command, endpoint ...
        usd: what it cost, or what was reserved or settled; None where nobody said.
        outcome: success, partial, failure, or skipped where there was no answer to write down.
        why: why nothing was saved, or it was deferred, skipped or undone; in a sentence.
    """

    run: str
    line: Literal["ran", "reserved", "settled", "deferred", "undone"] = "ran"
    kind: str = "reflection"
    at: str = ""
    session: str = ""
    host: str = ""
    transcript: str = ""
    drawn: tuple[int, ...] = ()
    left_out: str = ""
    reflector: str = ""
    model: str = ""
    usd: float | None = None
    tokens_in: int = 0
    tokens_out: int = 0
    duration_s: float = 0.0
    outcome: str = ""
    why: str = ""
    writers: tuple[Written, ...] = ()
    raw: str = ""

    def as_found(self, *, with_raw: bool = True) -> dict[str, object]:
        """Return it as JSON shows it: the fields of the file, each there."""
        found = msgspec.structs.asdict(self) | {"writers": [msgspec.structs.asdict(each) for each in self.writers]}
        return {name: value for name, value in found.items() if with_raw or name != "raw"}

    @property
    def saved(self) -> int:
        """Number of things that the pass saved."""
        return sum(each.count for each in self.writers)

    def summary(self) -> str:
        """Return what came of the pass in a sentence, as it said itself; where it saved nothing, why."""
        if self.kind != "reflection" and self.why:
            return self.why
        if saved := [_counted(each) for each in self.writers if each.count]:
            failed = [f"{each.name} failed: {each.error}" for each in self.writers if each.error]
            number = sum(each.startswith("i-") for writer in self.writers for each in writer.ids)
            waits = [f"{number} of these wait{'s' * (number == 1)} in the inbox"] if number else []
            return "; ".join([f"saved {', '.join(saved)}", *waits, *failed])
        reasons = [self.why, *(each.error for each in self.writers), *(why for w in self.writers for why in w.skipped)]
        return f"saved nothing: {next(filter(None, reasons), 'it found nothing worth keeping')}"


def _counted(written: Written) -> str:
    """Return what a writer wrote with its number: one lesson, two lessons."""
    is_one = written.count == 1 and written.name in ("lessons", "notes", "topics", "parts")
    return f"{written.count:,} {written.name[:-1] if is_one else written.name}"


class Pass(NamedTuple):
    """One pass of an agent, with what was said of it later.

    Attributes:
        number: counting from 1 in the order of the file, so that it never changes.
        undone: when it was undone, a stamp; "" where it stands.
    """

    number: int
    record: Record
    usd: float | None
    undone: str = ""


class Records:
    """An agent's records, and what is said of them later."""

    def __init__(self, workspace: Workspace, agent: str) -> None:
        self._workspace = workspace
        self._path = workspace.home(agent) / FILE_NAME

    def append(self, record: Record) -> Record:
        """Write one line, screened and durable before this returns; return it with the time it was given.

        Raises:
            DiskError: it is not there.
        """
        with self._lock():
            return self._append(record)

    def _lock(self) -> AbstractContextManager[None]:
        return self._workspace.files.lock(self._workspace.local / "locks" / "reflections.lock")

    def _append(self, record: Record) -> Record:
        said = record if record.at else msgspec.structs.replace(record, at=self._workspace.wall())
        JsonLines(self._workspace.files, self._path).add([said])
        return said

    def read(self, since: str = "") -> list[Record]:
        """Return an agent's lines, oldest first; those from a time on (a stamp, or the beginning of one)."""
        return [each for each in JsonLines(self._workspace.files, self._path).read(Record) if each.at >= since]

    def passes(self) -> list[Pass]:
        """Return the passes of an agent, oldest first."""
        lines = self.read()
        undone: dict[str, str] = {}
        for each in lines:  # an undone line with an outcome takes the undoing back
            if each.line == UNDONE:
                undone[each.run] = "" if each.outcome else each.at
        paid = _paid(lines)
        ran = [each for each in lines if each.line == RAN]
        return [
            Pass(number, each, paid.get(each.run, ("", each.usd))[1], undone.get(each.run, ""))
            for number, each in enumerate(ran, 1)
        ]

    def reserve(self, record: Record, cap_usd: float) -> bool:
        """Reserve what a pass may cost at most, ``record.usd``; return whether the day's cap leaves room for it.

        Asked and written under one lock, so that two passes at once never share the same dollar. What is reserved is
        settled by the line of the pass, also of one that failed.
        """
        with self._lock():
            if spent(self._workspace, self._workspace.wall()[:10]) + (record.usd or 0.0) > cap_usd + 1e-9:
                return False
            self._append(msgspec.structs.replace(record, line="reserved"))
            return True

    def deferred(self) -> list[Record]:
        """Return what was deferred and has not been reflected on since, oldest first, each session once."""
        waiting: dict[str, Record] = {}
        for each in self.read():
            if each.line == DEFERRED:
                waiting.setdefault(each.session, each)
            elif each.line == RAN:
                waiting.pop(each.session, None)
        return list(waiting.values())

    def undo(self, run: str, why: str = "", *, again: bool = False) -> bool:
        """Say that a pass was undone, or with ``again`` that it stands once more; return whether the agent has it."""
        known = next((each for each in self.read() if each.run == run and each.line == RAN), None)
        if known is None:
            return False
        outcome = known.outcome or "success" if again else ""
        self.append(Record(run=run, line="undone", kind=known.kind, outcome=outcome, why=why))
        return True


def spent(workspace: Workspace, day: str) -> float:
    """Return what all agents here spent on a day (YYYY-MM-DD, UTC), in dollars, with what is reserved.

    A reservation that nobody settled counts in full: a pass that crashed may have been paid for. What counts is the day
    on which the money was reserved.
    """
    return sum(
        usd or 0.0
        for agent in workspace.homes()
        for at, usd in _paid(Records(workspace, agent).read()).values()
        if at.startswith(day)
    )


def _paid(lines: Iterable[Record]) -> dict[str, tuple[str, float | None]]:
    """Return, by pass, when its money was reserved and what it came to."""
    paid: dict[str, tuple[str, float | None]] = {}
    for each in lines:
        if each.line in (RAN, RESERVED, SETTLED):
            at, usd = paid.get(each.run, (each.at, None))
            paid[each.run] = (at, usd if each.usd is None else each.usd)
    return paid
