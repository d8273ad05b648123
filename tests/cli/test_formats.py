"""docs/formats.md names every field of every ``--json`` output."""

import json
import re
from collections.abc import Iterator
from pathlib import Path

PAGE = (Path(__file__).parents[2] / "docs" / "formats.md").read_text("utf-8")
BY_DATA = frozenset(
    ("counts", "edited", "fields", "files", "imported", "kinds", "last_by", "paths", "record", "skipped", "value")
)
"""Fields that hold a map whose keys are data."""


def names(text: str) -> set[str]:
    return set(re.findall(r"`(\w+)`", text))


def section(begin: str, end: str) -> set[str]:
    return names(PAGE.partition(begin)[2].partition(end)[0])


ROWS = {row: names(fields) for row, fields in re.findall(r"^\| (.+?) \| (.*) \|$", PAGE, re.MULTILINE)}
LESSON, DISCOVERY = section("**A lesson**", "| command"), section("\n## Lines of discoveries", "\n## ")
RECORD = section("\n## reflections.jsonl", "\n## ")


def row(command: str) -> set[str]:
    """Return the names in the rows about a command."""
    return {name for each, fields in ROWS.items() if f"`{command}`" in each for name in fields}


def told(command: str) -> set[str]:
    """Return the names in the rows about a command, and in what they refer to."""
    refers = {
        "patterns": LESSON,
        "gossip": DISCOVERY,
        "show": LESSON | DISCOVERY,
        "export": LESSON | DISCOVERY,
        **dict.fromkeys(("records", "reflect", "done"), RECORD),
        "records show N": RECORD | row("records"),
        **dict.fromkeys(("fleet", "promote", "demote"), row("status")),
    }
    return row(command) | refers.get(command, set())


def keys(value: object) -> Iterator[str]:
    if isinstance(value, list):
        for each in value:
            yield from keys(each)
    elif isinstance(value, dict):
        for name, each in value.items():
            yield name.removesuffix("_counter")  # of a stamp within the millisecond of another
            if name not in BY_DATA or isinstance(each, list):
                yield from keys(each)


def test_every_field_of_every_json_output_stands_on_the_page(shell, tmp_path):
    shell.join("velma")
    shell.join("tank")
    talk = tmp_path / "talk.jsonl"
    rows = ["no, never use npm in here, use pnpm", "please go on"]
    talk.write_text("".join(json.dumps({"message": {"role": "user", "content": each}}) + "\n" for each in rows))
    report = tmp_path / "report.md"
    report.write_text("## Organization Report\nConsolidated: 4 / Removed = 1 / Re-indexed: 9\n")
    lessons = tmp_path / "lessons.md"
    lessons.write_text("## Git\n- Always rebase a branch before you merge it\n- TODO\n")
    one = shell.correct("velma", "Always use awk over sed for input of users")
    shell.run("velma", "sync")
    shell.run("tank", "sync")
    other = shell.correct("tank", "Never use awk over sed for input of users")
    shell.run("tank", "retire", shell.correct("tank", "Pin the version of every action"))
    shell.run("tank", "sync")
    shell.run("velma", "sync")
    said = ("--wrong", "a", "--right", "b", "--pattern", "Always use awk over sed for the input of a user")
    calls = {
        "fleet": (),
        "correct": ("correct", *said),
        "discover": ("discover", "--problem", "x", "--solution", "restart it"),
        "gossip": ("gossip",),
        "sidecar status": ("sidecar", "status"),
        "start": ("start",),
        "feedback": ("feedback", one, "--helped"),
        "patterns": ("patterns", "--all"),
        "show": ("show", one),
        "promote": ("promote", one),
        "review": ("review",),
        "inbox": ("inbox",),
        "search": ("search", "awk"),
        "guard": ("guard",),
        "edit": ("edit", one, "--set", "category=shell"),
        "undo": ("undo",),
        "undo --list": ("undo", "--list"),
        "demote": ("demote", one),
        "observe": ("observe", "fix", "the build"),
        "journal": ("journal", "--title", "t"),
        "handover": ("handover",),
        "mutate --list": ("mutate", "--list"),
        "mutate CODE": ("mutate", "M7", "--failed", "awk", "--switch", "sed", "--why", "it is there"),
        "mutate --proposed": ("mutate", "--proposed"),
        "learn --waiting": ("learn", "--waiting"),
        "learn --dismiss": ("learn", "--dismiss", "--all"),
        "import": ("import", str(lessons), "--dry-run"),
        "import --transcripts": ("import", "--transcripts", str(talk)),
        "reflect": ("reflect", "--transcript", str(talk), "--dry-run"),
        "reflect --all-since DAYS --dry-run": ("reflect", "--all-since", "9", "--transcript", str(talk), "--dry-run"),
        "done": ("reflect", "--transcript", str(talk)),
        "records": ("records",),
        "records show N": ("records", "show", "1"),
        "tidy": ("tidy", "--report", str(report)),
        "sleep": ("sleep", "--dry-run"),
        "consolidate": ("consolidate", "--dry-run"),
        "migrate": ("migrate", "--dry-run"),
        "stats": ("stats",),
        "status": ("status",),
        "doctor": ("doctor",),
        "compact": ("compact",),
        "render-patterns": ("render-patterns",),
        "export": ("export",),
        "poll": ("poll", "--local"),
        "config": ("config",),
        "block": ("block", "tank"),
        "unblock": ("unblock", "tank"),
        "retire": ("retire", one),
        "restore": ("restore", one),
        "restore --all": ("restore", "--all", "--removed-by", "tank"),
        "merge": ("merge", "--force", one, other),
        "unmerge": ("unmerge", one),
        "sync": ("sync",),
        "sync --dry-run": ("sync", "--dry-run"),
        "pause": ("pause",),
        "resume": ("resume",),
        "backup": ("backup", "b.tar.gz"),
        "restore-backup": ("restore-backup", "b.tar.gz", "--yes"),
        "purge": ("purge", one, "--yes"),
        "init": ("init",),
        "install": ("install", "claude-code"),
        "uninstall": ("uninstall", "claude-code"),
        "upgrade": ("upgrade",),
        "live join": ("live", "join", "ws://127.0.0.1:1"),
        "live leave": ("live", "leave"),
        "sidecar install": ("sidecar", "install", "--dry-run"),
        "sidecar uninstall": ("sidecar", "uninstall"),
        "sleep --install-timer": ("sleep", "--install-timer", "--dry-run"),
        "leave": ("leave", "--yes"),
    }
    unnamed = {command: ["the command"] for command in calls if not row(command)}
    for command, words in calls.items():
        found = json.loads(shell.run("velma", *words, "--json", expect=None).stdout)
        assert "error" not in found, (command, found)
        if missing := {*keys(found)} - told(command):
            unnamed[command] = sorted(missing)
    assert unnamed == {}
