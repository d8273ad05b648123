"""Triggers that others write: what they cost before a step is bounded, and hides no trigger of one's own."""

import json
import random
import string
from pathlib import Path

import pytest

from fleet.model.names import pattern_id
from tests import commands
from tests.cli.conftest import Shell
from tests.pace import is_within

HOOK_S = 0.4
"""Processor time of one hook; the compilation of 3,200 patterns takes twice that."""
OWN = "Look at the targets before a build"


def hostile_trigger(rng: random.Random, number: int) -> str:
    """Return a trigger of eight patterns, each of which must be compiled to see that it does not match."""
    sets = ("*".join(f"[{''.join(rng.sample(string.ascii_lowercase, 21))}]" for _ in range(8)) for _ in range(8))
    return ",".join(f":{each[:180]}]*~~{number}_{place}" for place, each in enumerate(sets))


@pytest.fixture
def flooded(tmp_path: Path) -> Shell:
    """A workspace in which somebody else has logged 400 lessons with such triggers."""
    stage, rng = Shell(tmp_path), random.Random(1)
    stage.run("w", "init", "--agent", "velma")
    stage.run("w", "edit", stage.correct("w", OWN), "--set", "trigger=Bash:mak[e] *")
    rows = []
    for number in range(400):
        text = f"lesson number {number} about thing {number * 7}"
        first = {"text": text, "trigger": hostile_trigger(rng, number)}
        column = {"add": "2026-11-30T17:00:00.000Z-0000", "first": first, "n": {"seen": 9, "sessions": 9}}
        rows.append(json.dumps({"id": pattern_id(text), "w": {"mal.0badc0de": column}}, separators=(",", ":")))
    shard = tmp_path / "w/clan-learnings/patterns.d/mal.0badc0de.jsonl"
    shard.write_text("\n".join(rows) + "\n")
    stage.run("w", "start")
    return stage


def test_triggers_of_others_cost_a_step_little_and_hide_none(flooded: Shell):
    payload = {"session_id": "n1", "cwd": str(flooded.folder / "w"), "tool_name": "Bash", "tool_use_id": "t1"}
    payload["tool_input"] = {"command": "make -j8 all && cp a b"}
    began_s = commands.spent_s()
    told = flooded.run("w", "hook", "PreToolUse", text=json.dumps(payload)).stdout
    assert is_within(commands.spent_s() - began_s, HOOK_S)
    assert OWN in told
