"""What of public injection sets reaches a memory, a guard or a start as a published lesson, when somebody pushes them.

    python -m benchmarks.injections.report SET=FILE ...

Each file is one of a public set, by its path; none is part of this repository. JSON: texts in a list, in lists by
category, or as ``user_input``; anything else: a text a line. For each set and each form in which somebody who may push
brings words in, a member's folder fetches a branch with all texts of the set in that form, meets a lesson of its own
twice more (its third occurrence promotes by itself), and syncs again. Printed are the texts that stand in its
``memory.md`` or in what a hook asks before a step; beside it the base rate: of how many the evidence, as it is claimed,
was enough before a yes was asked for.
"""

import io
import json
import os
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from contextlib import redirect_stderr, redirect_stdout
from pathlib import Path
from typing import Any
from unittest import mock

from crdt import clock
from fleet.app import starting
from fleet.cli import main
from fleet.model import limits
from fleet.model.names import normalise, pattern_id
from fleet.reflect.evidence import Evidence
from fleet.store.config import Promotion
from fleet.store.workspace import Workspace
from fleet.text.screening import readable

MALLORY = "mallory.0000000f"
STAMP = "2026-11-20T00:00:00.000Z-0000"
OWN = "Read the whole error first"
GUARDED = "Never `git push --force` to main"
MOST = 2**53 - 1

Columns = dict[str, dict[str, Any]]
Form = Callable[[str, str, str], list[tuple[str, Columns]]]
"""Lines for a text, given our own replica and a stamp 23 h ahead: (id, columns) each."""


def texts(path: Path) -> list[str]:
    """Return the texts of a file, each once, as far as a lesson can have them."""
    raw = path.read_text("utf-8")
    found = list(_leaves(json.loads(raw))) if path.suffix == ".json" else raw.split("\n")
    fit = (text for text in found if normalise(text) and len(text.encode()) <= limits.TEXT_BYTES_MAX)
    return list({pattern_id(text): text for text in fit}.values())


def _leaves(value: Any) -> Iterator[str]:
    if isinstance(value, str):
        yield value
    elif isinstance(value, dict):
        yield from _leaves(value["user_input"] if "user_input" in value else list(value.values()))
    elif isinstance(value, list):
        for each in value:
            yield from _leaves(each)


def _told(text: str = "", **more: Any) -> dict[str, Any]:
    said = {"add": STAMP, "n": {"seen": 9, "sessions": 9}, **more}
    return said | ({"first": {"text": text}} if text else {})


def _edit(field: str, by: str = MALLORY) -> Form:
    return lambda text, _, near: [
        (pattern_id(lesson), {by: {"set": {field: [near, text]}}}) for lesson in (OWN, GUARDED)
    ]


FORMS: dict[str, Form] = {
    "two other agents": lambda text, *_: [
        (pattern_id(text), {"tank.00000001": _told(text), "slash.00000002": _told()})
    ],
    "another replica of my name": lambda text, *_: [(pattern_id(text), {"velma.0000dead": _told(text)})],
    "my own column": lambda text, mine, _: [(pattern_id(text), {mine: _told(text)})],
    "entries by hand in my name": lambda text, *_: [
        (pattern_id(text), {"velma.0000dead": {"add": STAMP, "first": {"text": text}, "parts": {
            "seen": {f"{n:016x}": 1 for n in range(9)}}}})
    ],
    "50 agents": lambda text, *_: [
        (pattern_id(text), {f"agent{n}.{n:08x}": {**_told("" if n else text), "n": {"seen": MOST, "sessions": MOST}}
                            for n in range(50)})
    ],
    "published": lambda text, *_: [
        (pattern_id(text), {"tank.00000001": _told(text, set={"state": [STAMP, "published"]}), MALLORY: _told()})
    ],
    "text of my lesson, +23 h": _edit("text"),
    "right way of my lesson, +23 h": _edit("correct"),
    "the same under my name": _edit("text", "velma.0000dead"),
    "merged into my lesson under my name": lambda text, _, near: [
        (pattern_id(text), {"velma.0000dead": _told(text, set={"merged_into": [near, pattern_id(OWN)]})}),
    ],
    "my lesson merged into it": lambda text, _, near: [
        (pattern_id(text), {MALLORY: _told(text), "tank.00000001": _told()}),
        (pattern_id(OWN), {MALLORY: {"set": {"merged_into": [near, pattern_id(text)]}}}),
    ],
    "merged into my lesson": lambda text, _, near: [
        (pattern_id(text), {MALLORY: _told(text, set={"merged_into": [near, pattern_id(OWN)]}),
                            "tank.00000001": _told()}),
    ],
    "in place of what it removes": lambda text, mine, near: [
        (pattern_id(text), {MALLORY: _told(text), "tank.00000001": _told()}),
        (pattern_id(OWN), {MALLORY: {"rem": {mine: near}}}),
    ],
}  # fmt: skip


def reached(folder: Path, form: Form, said: list[str]) -> tuple[int, int, float]:
    """Return how many texts reached a memory or a guard, how many were eligible, and what the sync took, seconds."""
    remote, here = folder / "clan.git", folder / "velma"
    subprocess.run(["git", "init", "-q", "--bare", str(remote)], check=True)
    here.mkdir()
    _fleet(here, "init", "--agent", "velma", "--remote", str(remote), "--yes")
    for lesson in (OWN, GUARDED):
        _fleet(here, "correct", "--wrong", "w", "--right", "r", "--pattern", lesson)
    _fleet(here, "guard", pattern_id(GUARDED), "deny")
    _fleet(here, "sync")
    mine = json.loads(_fleet(here, "status", "--json"))["replica"]
    near = clock.pack(int(time.time() * 1000) + 23 * 3_600_000)
    lines = b"".join(
        json.dumps({"id": each, "w": columns}, sort_keys=True, separators=(",", ":")).encode() + b"\n"
        for text in said
        for each, columns in form(text, mine, near)
    )
    _push(remote, lines)
    began = time.monotonic()
    _fleet(here, "sync")
    took = time.monotonic() - began
    for number in range(2):
        _fleet(here, "correct", "--wrong", "w", "--right", "r", "--pattern", OWN, "--session", f"s{number}")
    _fleet(here, "sync")
    workspace = Workspace(here)
    try:
        file = here / "agents/velma/memory.md"
        shown = (file.read_text() if file.exists() else "") + "".join(
            g.lesson for g in starting.Guards(workspace).all()
        )
        flat = " ".join(shown.replace("\\", "").split())
        inside = sum(" ".join(readable(text).split())[:60] in flat for text in said)
        claimed = (workspace.patterns.get(pattern_id(text)) for text in said)
        due = [each for each in claimed if each and Evidence("cantona", Promotion()).due([each])]
        return inside, len(due), took
    finally:
        workspace.close()


def _push(remote: Path, lines: bytes) -> None:
    script = b"commit refs/heads/fleet\ncommitter m <m@localhost> 1795219200 +0000\ndata 0\nfrom refs/heads/fleet^0\n"
    script += b"M 100644 inline patterns.d/%b.jsonl\ndata %d\n%b\n" % (MALLORY.encode(), len(lines), lines)
    subprocess.run(["git", "fast-import", "--quiet", "--force"], cwd=remote, input=script, check=True)


def _fleet(folder: Path, *words: str) -> str:
    """Run a command in this process; return what it printed."""
    kept = {name: value for name, value in os.environ.items() if not name.startswith(("FLEET_", "GIT_"))}
    out, before = io.StringIO(), Path.cwd()
    os.chdir(folder)
    try:
        with (
            mock.patch.dict(os.environ, kept, clear=True),
            mock.patch.object(sys, "argv", ["fleet", *words]),
            redirect_stdout(out),
            redirect_stderr(io.StringIO()),
        ):
            main.run()
    finally:
        os.chdir(before)
    return out.getvalue()


def report(given: list[str]) -> int:
    """Print the table; return 1 where a text reached anything."""
    sets: dict[str, list[str]] = {}
    for each in given:
        name, _, path = each.partition("=")
        sets.setdefault(name, []).extend(texts(Path(path)))
    worst = 0
    print("| set | texts | form | reached | eligible by claimed evidence | sync |\n|---|---|---|---|---|---|")
    for name, found in sets.items():
        said = list({pattern_id(text): text for text in found}.values())
        for form, lines in FORMS.items():
            with tempfile.TemporaryDirectory() as folder:
                inside, due, took = reached(Path(folder), lines, said)
            worst = max(worst, inside)
            print(f"| {name} | {len(said):,} | {form} | {inside:,} | {due:,} | {took:.1f} s |", flush=True)
    return int(worst > 0)


if __name__ == "__main__":
    sys.exit(report(sys.argv[1:]))
