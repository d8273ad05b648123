"""Replay of recorded sessions through the real hooks: ``make replay``.

What is counted, and what it cannot show, stands in docs/evaluation.md, which was written before the first run.
"""

import argparse
import random
import statistics
import tempfile
import time
from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from benchmarks.replay.arms import Fleet, Nothing, Tail, Told
from benchmarks.replay.sessions import Event, Session, Symptom, calls, family, load, symptom

SESSIONS = Path(__file__).resolve().parents[2].parent / "shared/corpora/replay/sessions.jsonl"
RESAMPLES = 1_000
SEED = 20_260_509
RUN = 3
"""So many equal failures in a row, and nothing edited between them: the next equal call is a fourth."""

ARMS: dict[str, Callable[[Path], Nothing]] = {
    "none": Nothing,
    "tail": Tail,
    "fleet": Fleet,
    "alone": lambda folder: Fleet(folder, is_synced=False),
}


@dataclass
class Row:
    """What one session came to.

    Attributes:
        recurring: symptoms that an earlier session had met.
        covered: of these, those whose lesson had been put before the agent by then.
        foreign: recurring symptoms that only a colleague had met.
        foreign_covered: of these, those whose lesson had been shown.
        chars: characters put before the agent, its memory apart.
        shown: lessons that were shown.
        about: of these, those whose family of command or tool was used in the session.
        met: of these, those whose very symptom came up in it.
        stopped: calls that were stopped; those of them that had succeeded.
        fourths: fourth equal failures; those of them that were stopped.
    """

    recurring: int = 0
    covered: int = 0
    foreign: int = 0
    foreign_covered: int = 0
    chars: int = 0
    shown: int = 0
    about: int = 0
    met: int = 0
    stopped: int = 0
    stopped_well: int = 0
    fourths: int = 0
    fourths_stopped: int = 0


@dataclass
class Play:
    """One arm on its way through the sessions."""

    arm: Nothing
    met_by: dict[Symptom, set[str]] = field(default_factory=dict)
    rows: list[Row] = field(default_factory=list)

    def play(self, session: Session) -> None:
        """Play one session."""
        turn = Turn(self, session)
        turn.run()
        self.rows.append(turn.finish())
        for each in turn.symptoms:
            self.met_by.setdefault(each, set()).add(session.who)


class Turn:
    """One session on its way."""

    def __init__(self, play: Play, session: Session) -> None:
        self._play, self._session, self._arm = play, session, play.arm
        self._known = {each.lesson: each for each in play.met_by}
        self._results = {result["id"]: result for _, result in calls(session.events)}
        self._calls = {call["id"]: call for call, _ in calls(session.events)}
        self.row = Row()
        self.symptoms: dict[Symptom, None] = {}
        self._shown: set[Symptom] = set()
        self._open: dict[str, list[Symptom]] = {}
        self._streak: tuple[object, int] = (None, 0)
        self._stopped: set[str] = set()
        self._has_turn = False

    def run(self) -> None:
        """Play the events in order."""
        self._note(self._arm.begin(self._session))
        for event in self._session.events:
            getattr(self, f"_{event['e']}")(event)

    def _note(self, told: Told) -> Told:
        self.row.chars += max(len(told.text) - self._arm.memory_in(told.text), 0)
        self._shown |= self._arm.about(told.text, self._known)
        return told

    def _prompt(self, event: Event) -> None:
        if self._has_turn:
            self._note(self._arm.stop())
        self._has_turn = True
        self._note(self._arm.prompt(event["text"]))

    def _call(self, event: Event) -> None:
        if event["id"] in self._results and self._note(self._arm.before(event)).is_stopped:
            self._stopped.add(event["id"])

    def _result(self, event: Event) -> None:
        call = self._calls.get(event["id"])
        if call is None:
            return
        found = symptom(call, event)
        self._count_stops(call, event, is_failure=found is not None)
        if call["id"] in self._stopped:
            return
        if found is not None and found not in self.symptoms:
            self._count(found)
        self._note(self._arm.after(call, event))
        kind = family(call["tool"], call["input"])
        if found is not None and found not in self.symptoms:
            self.symptoms[found] = None
            self._open.setdefault(kind, []).append(found)
        elif event["ok"]:
            for each in self._open.pop(kind, []):
                self._arm.learned(each, _right(call))

    def _count_stops(self, call: Event, event: Event, *, is_failure: bool) -> None:
        is_stopped = call["id"] in self._stopped
        self.row.stopped += is_stopped
        self.row.stopped_well += is_stopped and event["ok"]
        said = call["input"].get("command")
        if call["tool"] in ("Edit", "Write", "MultiEdit", "NotebookEdit") and event["ok"]:
            self._streak = (None, 0)
        elif call["tool"] == "Bash":
            before, number = self._streak
            if is_failure and said == before and number >= RUN:
                self.row.fourths += 1
                self.row.fourths_stopped += is_stopped
            number = number + 1 if said == before else 1
            self._streak = (said, number) if is_failure else (None, 0)

    def _count(self, found: Symptom) -> None:
        by = self._play.met_by.get(found)
        if by is None:
            return
        is_covered = found in self._shown
        self.row.recurring += 1
        self.row.covered += is_covered
        if self._session.who not in by:
            self.row.foreign += 1
            self.row.foreign_covered += is_covered

    def _interrupt(self, event: Event) -> None:
        self._arm.interrupted(event["t"])
        self._has_turn = False

    def _end(self, event: Event) -> None:
        pass

    def finish(self) -> Row:
        """End the session; count what was shown in it."""
        if self._has_turn:
            self._note(self._arm.stop())
        for waiting in self._open.values():
            for each in waiting:
                self._arm.learned(each, "")
        self._arm.end()
        used = {family(call["tool"], call["input"]) for call in self._calls.values()}
        self.row.shown = len(self._shown)
        self.row.about = sum(each.family in used for each in self._shown)
        self.row.met = sum(each in self.symptoms for each in self._shown)
        return self.row


def _right(call: Event) -> str:
    given = call["input"]
    said = given.get("command") or given.get("file_path") or given.get("pattern") or ""
    return f"this worked: {said}"[:200] if said else ""


# --- the report -----------------------------------------------------------------------------------------------------


def share(rows: Sequence[Row], part: str, whole: str) -> str:
    """Return a share with its 95 % interval, by bootstrap over sessions."""

    def of(some: Sequence[Row]) -> float:
        return sum(getattr(row, part) for row in some) / max(sum(getattr(row, whole) for row in some), 1)

    if not sum(getattr(row, whole) for row in rows):
        return "-"
    draw = random.Random(SEED)
    drawn = sorted(of(draw.choices(rows, k=len(rows))) for _ in range(RESAMPLES))
    low, high = drawn[int(RESAMPLES * 0.025)], drawn[int(RESAMPLES * 0.975)]
    return f"{of(rows):.2f} [{low:.2f}, {high:.2f}]"


def total(rows: Sequence[Row], name: str) -> int:
    """Return the sum of a count over sessions."""
    return sum(getattr(row, name) for row in rows)


def report(name: str, arm: Nothing, rows: Sequence[Row], seconds: float) -> list[str]:
    """Return the lines about one arm."""
    chars = sorted(row.chars for row in rows)
    covered = max(total(rows, "covered"), 1)
    lines = [
        f"## {name}  ({seconds:.0f} s)",
        f"covered recurrences          {share(rows, 'covered', 'recurring')}  of {total(rows, 'recurring')}",
        f"  that a colleague alone met {share(rows, 'foreign_covered', 'foreign')}  of {total(rows, 'foreign')}",
        f"characters a session         median {statistics.median(chars):,.0f}, p90 {chars[int(len(chars) * 0.9)]:,}",
        f"characters a covered one     {sum(chars) / covered:,.0f}",
        f"lessons shown                {total(rows, 'shown')}",
        f"  about a command in it      {share(rows, 'about', 'shown')}",
        f"  whose symptom came up      {share(rows, 'met', 'shown')}",
        f"calls stopped                {total(rows, 'stopped')}, of which had succeeded {total(rows, 'stopped_well')}",
        f"fourth equal failures        {total(rows, 'fourths')}, stopped {total(rows, 'fourths_stopped')}",
    ]
    if heard := arm.heard():
        lines.append(f"signals heard                {', '.join(f'{kind} {n}' for kind, n in sorted(heard.items()))}")
    return lines


def base(sessions: Sequence[Session]) -> list[str]:
    """Return the base rates of the recording."""
    events = Counter(event["e"] for session in sessions for event in session.events)
    failed = sum(not event["ok"] for session in sessions for event in session.events if event["e"] == "result")
    results = [event for session in sessions for event in session.events if event["e"] == "result"]
    rejected = [event for event in results if event.get("rejected")]
    words = sum("the user said:" in event["text"] for event in rejected)
    people = Counter(session.who for session in sessions)
    return [
        f"{len(sessions)} sessions of {len(people)} people ({', '.join(str(n) for _, n in people.most_common())})",
        f"{events['prompt']:,} prompts, {events['call']:,} calls, {failed} failures or refusals",
        f"{len(rejected)} refused calls, {words} with words; {events['interrupt']} interruptions",
    ]


def main() -> None:
    """Play the sessions through the arms, and print what was counted."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--sessions", type=Path, default=SESSIONS)
    parser.add_argument("--arms", default=",".join(ARMS))
    parser.add_argument("--first", type=int, default=0, help="play so many sessions only")
    asked = parser.parse_args()
    if not asked.sessions.is_file():
        raise SystemExit(f"{asked.sessions} is not there: name the recorded sessions with --sessions PATH")
    sessions = load(asked.sessions)
    sessions = sessions[: asked.first] if asked.first else sessions
    print("\n".join(base(sessions)))
    for name in asked.arms.split(","):
        with tempfile.TemporaryDirectory(dir="/dev/shm" if Path("/dev/shm").is_dir() else None) as folder:
            began = time.monotonic()
            play = Play(ARMS[name](Path(folder)))
            for session in sessions:
                play.play(session)
            print("\n" + "\n".join(report(name, play.arm, play.rows, time.monotonic() - began)), flush=True)


if __name__ == "__main__":
    main()
