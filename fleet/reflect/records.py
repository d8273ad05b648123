"""Records of the passes that reflect: what each read, cost, wrote and left out, and why; ``reflections.jsonl``.

One line is one pass: a reflection on a session, a sleep, a consolidation. Other lines are about a pass: money was
reserved for it or settled, it was deferred, it was undone. What was spent on a day is counted from the file alone, so
that deleting a database gives nobody a second budget.
"""

from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Literal, NamedTuple

import msgspec

from fleet.store.lines import JsonLines
from fleet.store.workspace import Workspace
from fleet.text.screening import counted

FILE_NAME = "reflections.jsonl"
RAN, RESERVED, SETTLED, DEFERRED, UNDONE = "ran", "reserved", "settled", "deferred", "undone"


class Written(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """Account of one writer of a pass: the ids and number of what it saved, and what it did not write, with why."""

    name: str
    ids: tuple[str, ...] = ()
    count: int = 0
    skipped: tuple[str, ...] = ()
    error: str = ""


class Record(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """One line of the file, with the fields that docs/formats.md explains.

    ``at`` is set by ``append``; ``usd``, the cost or what was reserved or settled, is None where it is unknown.
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

    def as_json(self, *, with_raw: bool = True) -> dict[str, object]:
        """Return the record as ``--json`` has it: all fields of the file."""
        fields = msgspec.structs.asdict(self) | {"writers": [msgspec.structs.asdict(each) for each in self.writers]}
        return {name: value for name, value in fields.items() if with_raw or name != "raw"}

    @property
    def saved(self) -> int:
        """Number of things that the pass saved."""
        return sum(each.count for each in self.writers)

    def summary(self) -> str:
        """Return the result of the pass in a sentence; where it saved nothing, the reason."""
        if self.kind != "reflection" and self.why:
            return self.why
        pending = {each.name: sum(id_.startswith("i-") for id_ in each.ids) for each in self.writers}
        saved = _numbers({each.name: each.count - pending[each.name] for each in self.writers})
        waiting = sum(pending.values())
        if saved or waiting:
            failed = [f"{each.name} failed: {each.error}" for each in self.writers if each.error]
            waits = [f"{_numbers(pending)} wait{'s' * (waiting == 1)} in the inbox"] if waiting else []
            return "; ".join([f"saved {saved or 'nothing yet'}", *waits, *failed])
        reasons = [self.why, *(each.error for each in self.writers), *(why for w in self.writers for why in w.skipped)]
        return f"saved nothing: {next(filter(None, reasons), 'it found nothing worth keeping')}"


def _numbers(by_writer: Mapping[str, int]) -> str:
    """Return numbers of things in words, without zeros."""
    return ", ".join(counted(number, name.removesuffix("s")) for name, number in by_writer.items() if number > 0)


class Pass(NamedTuple):
    """One pass of an agent, by its number in the file, which never changes, with what later lines add."""

    number: int
    record: Record
    usd: float | None
    undone: str = ""


class Records:
    """File of an agent's records."""

    def __init__(self, workspace: Workspace, agent: str) -> None:
        self._workspace = workspace
        self._lines = JsonLines(workspace.files, workspace.home(agent) / FILE_NAME)

    def append(self, record: Record) -> Record:
        """Append one line, screened and durable before this returns; return it with its time."""
        with self._workspace.lock("reflections"):
            return self._append(record)

    def _append(self, record: Record) -> Record:
        stamped = record if record.at else msgspec.structs.replace(record, at=self._workspace.wall())
        self._lines.add([stamped])
        return stamped

    def read(self) -> list[Record]:
        """Return the lines, oldest first."""
        return list(self._lines.read(Record))

    def passes(self) -> list[Pass]:
        """Return the passes, oldest first."""
        lines = self.read()
        # An undone line with an outcome takes the undoing back.
        undone = {each.run: "" if each.outcome else each.at for each in lines if each.line == UNDONE}
        paid = _paid(lines)
        ran = [each for each in lines if each.line == RAN]
        return [
            Pass(number, each, paid.get(each.run, ("", each.usd))[1], undone.get(each.run, ""))
            for number, each in enumerate(ran, 1)
        ]

    def reserve(self, record: Record, cap_usd: float) -> bool:
        """Reserve the maximal cost of a pass, ``record.usd``; return whether the day's cap leaves room for it.

        Check and reservation are under one lock, so that two passes at once never spend the same dollar. The line of
        the pass settles the reservation, even if the pass failed.
        """
        with self._workspace.lock("reflections"):
            if spent(self._workspace, self._workspace.wall()[:10]) + (record.usd or 0.0) > cap_usd + 1e-9:
                return False
            self._append(msgspec.structs.replace(record, line="reserved"))
            return True

    def deferred(self) -> list[Record]:
        """Return the deferred reflections that have not run since, oldest first, each session once."""
        return self._unfinished(DEFERRED)

    def interrupted(self) -> list[Record]:
        """Return the reservations of reflections that another process works on, or that were killed, oldest first.

        Sessions whose transcript is gone are left out.
        """
        return [each for each in self._unfinished(RESERVED) if Path(each.transcript).is_file()]

    def _unfinished(self, line: str) -> list[Record]:
        pending: dict[str, Record] = {}
        for record in self.read():
            is_stopped = line == RESERVED and record.line == SETTLED and not record.raw  # there will be no answer
            if record.line == line and (line == RESERVED or record.session not in pending):
                pending[record.session] = record
            elif record.kind == "reflection" and (record.line == RAN or is_stopped):
                pending.pop(record.session, None)
        return list(pending.values())

    def undo(self, run: str, why: str = "", *, again: bool = False) -> bool:
        """Note that a pass was undone, or with ``again`` that it stands once more; return whether it is known."""
        record = next((each for each in self.read() if each.run == run and each.line == RAN), None)
        if record is None:
            return False
        outcome = record.outcome or "success" if again else ""
        self.append(Record(run=run, line="undone", kind=record.kind, outcome=outcome, why=why))
        return True


def spent(workspace: Workspace, day: str) -> float:
    """Return the dollars that all agents here spent on a day (YYYY-MM-DD, UTC), reservations included.

    A reservation that was never settled counts in full: a pass that crashed may have been paid for. Its day is that of
    the reservation.
    """
    return sum(
        usd or 0.0
        for agent in workspace.homes()
        for at, usd in _paid(Records(workspace, agent).read()).values()
        if at.startswith(day)
    )


def _paid(lines: Iterable[Record]) -> dict[str, tuple[str, float | None]]:
    """Return the time of reservation and the cost of each pass, by its run."""
    paid: dict[str, tuple[str, float | None]] = {}
    for record in lines:
        if record.line in (RAN, RESERVED, SETTLED):
            at, usd = paid.get(record.run, (record.at, None))
            paid[record.run] = (at, usd if record.usd is None else record.usd)
    return paid
