"""A fortnight of real sessions, by a simulated clock: caps, deferral, an inbox that is emptied, all of it undone."""

import json
import stat
import sys
from pathlib import Path

import pytest

from fleet.app import inbox as deciding
from fleet.app import session_end, undoing
from fleet.hosts.local import LocalFolder
from fleet.reflect import inbox, records
from fleet.reflect.inbox import Inbox
from fleet.reflect.records import Records
from fleet.store import config
from fleet.store.runs import UNDO, Runs
from fleet.store.workspace import Workspace, World

CORPUS = Path(__file__).resolve().parents[3] / "shared" / "corpora" / "transcripts"
DAY_MS = 86_400_000
CAP_USD = 1.0

REFLECTOR = """#!{python}
import json, re, sys
asked = sys.stdin.read()
said = re.findall(r"^\\[(\\d+)\\] person: (\\S[^\\n]{{20,200}})", asked, re.M)
number = len(asked)
print(json.dumps({{
    "outcome": "partial",
    "memory_notes": [words for _, words in said[:2]],
    "should_skill": True, "skill_slug": "skill-" + str(number), "skill_description": "How it went " + str(number),
    "skill_body": "1. Look at what was asked.\\n2. Run the tests, " + str(number) + ".\\n3. Say what came of it.",
    "persona_observations": ["asks in session " + str(number) + " for " + (said[0][1][:40] if said else "nothing")],
    "next_check_at": "2026-05-30T09:00:00Z",
    "lessons": [{{"text": words, "quote": words, "by": "person", "line": int(line)}} for line, words in said[2:4]],
    "cost_usd": 0.4}}))
"""


class Clock:
    def __init__(self) -> None:
        self.ms = 1_778_320_800_000  # 2026-05-09T10:00Z

    def __call__(self) -> int:
        self.ms += 1
        return self.ms


def pages(root: Path) -> dict[str, bytes]:
    found = [*root.rglob("*.md"), *root.rglob("SKILL.md")]
    return {
        str(path.relative_to(root)): path.read_bytes()
        for path in found
        if path.name != "corrections.md" and not {".fleet", "logs"} & {*path.parts}  # these keep every line
    }


def test_a_fortnight_stays_within_its_caps_loses_no_session_and_is_undone_to_the_byte(tmp_path, monkeypatch):
    if not CORPUS.is_dir():
        pytest.skip("no shared corpora of transcripts here")
    monkeypatch.setenv("REFLECTION_DAILY_CAP_USD", str(CAP_USD))
    root, clock = tmp_path / "project", Clock()
    root.mkdir()
    program = tmp_path / "reflector.py"
    program.write_text(REFLECTOR.format(python=sys.executable))
    program.chmod(program.stat().st_mode | stat.S_IXUSR)
    (root / config.FILE_NAME).write_text(f'[reflect]\nreflector = "command"\ncommand = {json.dumps([str(program)])}\n')
    w = Workspace(root, World(durable=False, wall_ms=clock))
    with w.locked():
        w.mint("velma")
    session_end.Choice(w).agree()
    home = w.home("velma")
    home.mkdir(parents=True)
    (home / "memory.md").write_text(
        "# Memory\n\nmine\n\n## Notes\n\n- 2026-05-01: my own note\n\n## After\n\nmine, too\n"
    )
    (home / "USER.md").write_text("# Me\n")
    before = pages(root)
    transcripts = sorted(CORPUS.glob("*.jsonl"))

    shown: set[str] = set()
    decided: list[str] = []
    for day in range(14):
        for path in transcripts[day * 3 : day * 3 + 3]:  # four busy days, ten quiet ones
            LocalFolder(str(root)).hear(path.stem, "claude-code", "velma", str(path), has_ended=True)
        session_end.reflect_due(w)
        assert records.spent(w, w.wall()[:10]) <= CAP_USD + 1e-9
        if day % 3 == 2:  # a person looks every third day, and decides all that is shown
            while waiting := deciding.listing(w).entries:
                assert len(waiting) <= inbox.SHOWN_MAX
                for number, entry in enumerate(waiting):
                    assert entry.item.evidence
                    assert deciding.diff_of(w, entry)
                    shown.add(entry.item.id)
                    act = deciding.approve if (day + number) % 2 else deciding.reject
                    decided.append(act(w, "velma", entry.item.id).run)
        clock.ms += DAY_MS

    passes = Records(w, "velma").passes()
    assert len(passes) == len(transcripts)
    assert not Records(w, "velma").deferred()
    assert any(each.line == "deferred" for each in Records(w, "velma").read()), "the busy days did not fit the cap"
    assert not LocalFolder(str(root)).heard()
    every = Inbox(w, "velma").entries()
    assert every
    assert {each.item.id for each in every} == shown
    assert not [each for each in every if each.decision.outcome == "expired"]
    assert (home / "memory.md").read_text().count("\n- 20") > 1
    assert pages(root) != before

    lessons = {each.id for each in w.patterns.lessons()}
    assert lessons
    gone = Runs(w).undone()
    for run in [each.id for each in Runs(w).listed() if each.kind != UNDO and each.id not in gone]:
        undoing.undo(w, run)
    assert pages(root) == before
    assert not [each for each in w.patterns.lessons() if each.id in lessons and each.is_present]
    assert all(each.undone for each in Records(w, "velma").passes() if each.record.saved)
    w.close()
