"""How much of what real people object to is heard: rejected calls, stopped turns and prompts of ``corpora/replay``.

    python -m benchmarks.hearing.report

142 real sessions of five people on one repository. The first 71, in time order, were read while the reader of
transcripts was written. Of the later 71, prompts that a person typed were labelled by the definition of
``benchmarks.triggers.report`` before anything was run on them; ``labels.jsonl`` names them by session and place.

First draw: 280 by chance, without the turn before them. 40 are corrections, 13 are unclear and count nowhere. The signs
of ``phrases.toml`` were fitted to these, and to 250 prompts of the first 71 sessions (draw 0): their figures flatter it
now. Without the turn before it, a prompt that follows a rejection may read like a plain task: such a label is "none".

Second draw: all 346 others without repetitions, which leaves 301, labelled with the two events before them, before the
signs were thought of: 34 are corrections, 18 are unclear. They were run when the signs were done, and no weight was
changed after that; but who thought of the signs had read them, to label them.

*Heard* is what is logged: a strong or medium signal of phrases or signs; a rejected call with words; a rejected call
without words, or a stopped turn, with the prompt that follows it. Phrases and signs are the default ones.
"""

import json
import math
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any, NamedTuple

from fleet.hosts import transcripts
from fleet.text import shell
from fleet.text.prompts import EVENT_CHARS_MAX, Event, Prompt
from fleet.text.signals import detect, objections

SHARED = Path(__file__).resolve().parents[2].parent / "shared"
SESSIONS = SHARED / "corpora" / "replay" / "sessions.jsonl"
LABELS = Path(__file__).with_name("labels.jsonl")
READ_FIRST = 71
Z = 1.96


class Session(NamedTuple):
    """A session as events of a transcript; the place of each in the file's own order."""

    name: str
    events: list[Event]
    places: list[int]


def sessions() -> list[Session]:
    """Return the sessions of the corpus in time order."""
    told: dict[str, list[dict[str, Any]]] = {}
    for line in SESSIONS.read_text("utf-8").splitlines():
        row = json.loads(line)
        told.setdefault(row["s"], []).append(row)
    return [_session(name, rows) for name, rows in told.items()]


def _session(name: str, rows: list[dict[str, Any]]) -> Session:
    found = [(place, event) for place, row in enumerate(rows) for event in _event(row, f"{name} {place}")]
    return Session(name, [event for _, event in found], [place for place, _ in found])


def _event(row: dict[str, Any], name: str) -> Iterator[Event]:
    """Yield an event, by way of a line as the client writes it: what is measured is the reader."""
    kind = row["e"]
    if kind == "interrupt":
        block: dict[str, Any] = {"type": "text", "text": "[Request interrupted by user]"}
    elif kind == "prompt":
        block = {"type": "text", "text": row["text"]}
    elif kind == "call":
        block = {"type": "tool_use", "id": row["id"], "name": row["tool"], "input": row["input"]}
    elif kind == "result":
        block = {"type": "tool_result", "tool_use_id": row["id"], "is_error": not row["ok"], "content": row["text"]}
    else:
        return
    role = "assistant" if kind == "call" else "user"
    line = {"message": {"role": role, "content": [block]}, "timestamp": row["t"], "uuid": name}
    yield from transcripts.events_in(line)


class Share(NamedTuple):
    """So many of so many, with the 95 % interval of Wilson."""

    part: int
    whole: int

    def __str__(self) -> str:
        if not self.whole:
            return "-"
        share, spread = self.part / self.whole, Z * Z / self.whole
        middle = (share + spread / 2) / (1 + spread)
        reach = Z * math.sqrt(share * (1 - share) / self.whole + spread / (4 * self.whole)) / (1 + spread)
        return f"{share:.2f} ({self.part} of {self.whole}; {middle - reach:.2f} to {middle + reach:.2f})"


def by_phrases(text: str) -> bool:
    """Tell whether the phrases take a prompt for a correction."""
    return detect(text) is not None


def rejections(chosen: list[Session]) -> list[str]:
    """Return the rows about rejected calls."""
    rows = []
    with_words = without = heard_with = heard_without = 0
    for session in chosen:
        heard = {each.id for each in objections(session.events)[0] if each.kind == "rejection"}
        for event in session.events:
            if event.kind == "refused" and event.text:
                with_words, heard_with = with_words + 1, heard_with + (event.id in heard)
            elif event.kind == "refused":
                without, heard_without = without + 1, heard_without + (event.id in heard)
    rows.append(f"| rejected with words: heard | {Share(heard_with, with_words)} |")
    rows.append(f"| rejected without: heard, with the next prompt | {Share(heard_without, without)} |")
    rows.append(f"| all rejected: heard | {Share(heard_with + heard_without, with_words + without)} |")
    return rows


def left_out(chosen: list[Session]) -> list[str]:
    """Return what followed each rejection that was not heard."""
    rows = []
    for session in chosen:
        heard = {each.id for each in objections(session.events)[0]}
        tools = {event.id: event.tool for event in session.events if event.kind == "call"}
        for at, event in enumerate(session.events):
            if event.kind == "refused" and event.id not in heard:
                then = next((each.text for each in session.events[at:] if each.kind == "prompt"), "(nothing)")
                rows.append(f"  {tools.get(event.id)}: then {then[:80]!r}")
    return rows


def prompts(chosen: list[Session], draw: int) -> list[str]:
    """Return the rows about the labelled prompts of one draw, and about all prompts of the stream."""
    rows_told = map(json.loads, LABELS.read_text("utf-8").splitlines())
    labels = {(row["s"], row["n"]): row["label"] for row in rows_told if row.get("draw", 1) == draw}
    told = [label for label in labels.values() if label != "unclear"]
    ways = {"phrases and signs": [0, 0], "these and rejections": [0, 0], "these, rejections, stopped turns": [0, 0]}
    typed = [0, 0, 0]
    for session in chosen:
        found = objections(session.events)[0]
        refused, stopped = (
            {each.words for each in found if each.kind == kind} for kind in ("rejection", "interruption")
        )
        for event, place in zip(session.events, session.places, strict=True):
            if event.kind != "prompt":
                continue
            words = event.text.strip()[:EVENT_CHARS_MAX]
            is_heard = by_phrases(event.text)
            heard = (is_heard, is_heard or words in refused, is_heard or words in refused or words in stopped)
            typed = [typed[0] + 1, typed[1] + Prompt(event.text).is_typed, typed[2] + heard[-1]]
            label = labels.get((session.name, place), "unclear")
            if label != "unclear":
                for counts, is_one in zip(ways.values(), heard, strict=True):
                    counts[label == "none"] += is_one
    corrections = told.count("correction")
    base = corrections / len(told)
    rows = [f"| labelled prompts that are corrections (base rate) | {Share(corrections, len(told))} |"]
    for name, (right, false) in ways.items():
        rows.append(f"| {name}: recall | {Share(right, corrections)} |")
        rows.append(f"| {name}: precision | {Share(right, right + false)} |")
    both = list(ways.values())[-1]
    scale = 1000 / len(told)
    rows.append(
        f"| of 1,000 typed prompts, of which {1000 * base:.0f} are corrections | heard {scale * sum(both):.0f}: "
        f"{scale * both[0]:.0f} rightly, {scale * both[1]:.0f} wrongly; missed {scale * (corrections - both[0]):.0f} |"
    )
    rows.append(f"| prompts of these sessions | {typed[0]}, typed by a person {typed[1]}, heard {typed[2]} |")
    return rows


def builds(chosen: list[Session]) -> list[str]:
    """Return the rows about builds and tests whose exit code is masked."""
    whole = masked = known = 0
    for session in chosen:
        calls = {event.id: event for event in session.events if event.kind == "call" and event.tool == "Bash"}
        for event in session.events:
            call = calls.get(event.id) if event.kind == "result" else None
            if call is not None and shell.Command(call.about).is_build():
                either = {shell.Command(call.about).outcome(event.text, is_error=each) for each in (False, True)}
                is_masked = either != {True, False}
                whole, masked = whole + 1, masked + is_masked
                known += is_masked and None not in either
    return [
        f"| builds and tests whose exit code is masked | {Share(masked, whole)} |",
        f"| of these, those whose output says how they ended, in what the corpus keeps | {Share(known, masked)} |",
    ]


def main() -> int:
    """Print the report; 0 also where the corpus is not there, with the reason."""
    show = print
    if not SESSIONS.is_file():
        show(f"## Hearing: not measured, since {SESSIONS.name} is not beside this repository")
        return 0
    everything = sessions()
    for name, chosen in (("first 71 sessions", everything[:READ_FIRST]), ("later 71", everything[READ_FIRST:])):
        show(f"## Hearing, {name} of corpora/replay\n\n| what | figure (95 % interval) |\n|---|---|")
        for row in (*rejections(chosen), *builds(chosen)):
            show(row)
        for draw in (1, 2) if name == "later 71" else ():
            show(f"| labelled prompts, draw {draw} | |")
            for row in prompts(chosen, draw):
                show(row)
        show("\nrejected and not heard:")
        for row in left_out(chosen) or ["  none"]:
            show(row)
        show("")
    return 0


if __name__ == "__main__":
    sys.exit(main())
