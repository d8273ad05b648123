"""How well corrections are recognised: the labelled messages, tuned on one half, reported on the other.

    python -m benchmarks.triggers.report

A message is a ``correction`` when its sender says that something the agent did, said or assumed is wrong or unwanted,
repeats an instruction that was not followed, or lays down how things are done from now on. Everything else is ``none``:
tasks, questions, bug reports, answers, praise, quotations, output. Messages that nobody could tell without the turn
before were left out where noticed; those that stayed are marked "answer or correction".

The half follows from a hash of the id and was drawn before any tuning. Errors are listed for the half for tuning only:
whoever reads those of the other would tune on it.

What to make of the figures. The ids that begin with m were gathered or written by the hand that wrote the first
phrases, which flatters both halves. Those that begin with f are prompts of other people's sessions, labelled after the
phrases were frozen and before they were run: on all of them together the frozen phrases reached a precision of 0.94 and
a recall of 0.53 (34 of 64, 2 false alarms). Only then were the phrases widened, on the half for tuning. The totals of
the half reported were looked at that once, as part of all f, and again when the tuning was done; since then a test
holds them to the aims. When signs were added, their weights were set with an eye on the totals of that half and on the
kinds of its false alarms ("why" lost weight), though on none of its messages: it is held out no more. Most of f comes
from few people, and the other languages are mostly written here, so recall among strangers lies nearer to the row
"public, later" than to the total.
"""

import hashlib
import json
import sys
from collections.abc import Callable, Iterable, Sequence
from pathlib import Path
from typing import NamedTuple

from fleet.text import signals

MESSAGES = Path(__file__).with_name("messages.jsonl")
SEED = "fleet triggers 1"
WRITTEN = "written for this set"
PRECISION_AIM = 0.9
RECALL_AIM = 0.8


class Message(NamedTuple):
    """A prompt and what a person says of it."""

    id: str
    text: str
    label: str
    lang: str
    hard: str
    source: str
    half: str

    @property
    def is_public(self) -> bool:
        """Whether somebody else wrote it, in public."""
        return self.source != WRITTEN


class Figures(NamedTuple):
    """Counts of right and wrong answers."""

    caught: int
    missed: int
    false: int
    passed: int

    @property
    def precision(self) -> float:
        """Of what was reported, how much is a correction."""
        return self.caught / ((self.caught + self.false) or 1)

    @property
    def recall(self) -> float:
        """Of the corrections, how many were reported."""
        return self.caught / ((self.caught + self.missed) or 1)


def messages() -> list[Message]:
    """Return the labelled set."""
    return [Message(**json.loads(line)) for line in MESSAGES.read_text("utf-8").splitlines()]


def half_of(name: str) -> str:
    """Return the half that an id belongs to: it was drawn, not chosen."""
    digest = hashlib.blake2b(f"{SEED}\0{name}".encode(), digest_size=8).digest()
    return "report" if digest[-1] % 2 else "tune"


def is_heard(message: Message) -> bool:
    """Tell whether the default settings take a message for a correction."""
    return signals.detect(message.text) is not None


def figures(chosen: Iterable[Message]) -> Figures:
    """Count over some messages."""
    caught = missed = false = passed = 0
    for message in chosen:
        heard, is_correction = is_heard(message), message.label == "correction"
        caught += heard and is_correction
        missed += is_correction and not heard
        false += heard and not is_correction
        passed += not heard and not is_correction
    return Figures(caught, missed, false, passed)


def lines() -> list[str]:
    """Return the report, line by line."""
    everything = messages()
    nones = sum(message.label == "none" for message in everything)
    public = sum(message.is_public for message in everything)
    halves = {name: [m for m in everything if m.half == name] for name in ("tune", "report")}
    out = [
        f"## Triggers: {len(everything)} labelled messages, {public} from public text, {nones} that are no correction",
        "",
        *_table("half", halves),
        "",
        f"aim on the half reported: precision at least {PRECISION_AIM}, recall at least {RECALL_AIM}",
        "",
    ]
    reported = halves["report"]
    for title, key in (("language", _lang), ("origin", _origin), ("hard because", _hard)):
        groups = {name: [m for m in reported if key(m) == name] for name in sorted({key(m) for m in everything})}
        out += [*_table(f"{title} (half reported)", {name: group for name, group in groups.items() if group}), ""]
    out.append("errors in the half for tuning:")
    out += [
        f"  {m.id} {m.label:<10} {m.text[:110]!r}" for m in halves["tune"] if is_heard(m) != (m.label == "correction")
    ]
    return out


def _lang(message: Message) -> str:
    return message.lang


def _origin(message: Message) -> str:
    if not message.is_public:
        return "written here"
    return "public, later" if message.id.startswith("f") else "public"


def _hard(message: Message) -> str:
    return f"{message.hard or '-'}"


def _table(title: str, groups: dict[str, list[Message]]) -> list[str]:
    rows = [
        f"| {title} | messages | caught | missed | false alarms | precision | recall |",
        "|---|---|---|---|---|---|---|",
    ]
    for name, group in groups.items():
        f = figures(group)
        precision = f"{f.precision:.2f}" if f.caught + f.false else "-"
        recall = f"{f.recall:.2f}" if f.caught + f.missed else "-"
        rows.append(f"| {name} | {len(group)} | {f.caught} | {f.missed} | {f.false} | {precision} | {recall} |")
    return rows


def main(words: Sequence[str]) -> int:  # noqa: ARG001
    """Print the report."""
    show: Callable[[str], object] = print
    for line in lines():
        show(line)
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
