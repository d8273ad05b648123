"""What is wrong elsewhere never costs a correction: it is logged first, complained of after, and the exit code is 0."""

import json
import pwd
import shutil
import subprocess
import sys
from contextlib import suppress
from pathlib import Path
from unittest.mock import Mock

import pytest

from fleet.model.line import decode
from fleet.model.pattern import fold
from fleet.store.database import SCHEMA_NUMBER
from fleet.store.files import Files
from tests import commands
from tests.cli.conftest import Stage

LESSON = "Quote every variable in a shell script"
JUNK = b"\0junk\xff" * 500


def config(text: str):
    """Return what writes another ``fleet.toml``."""
    return lambda root: (root / "fleet.toml").write_bytes(text.encode("latin-1"))


def junk(name: str, data: bytes = JUNK):
    """Return what writes rubbish into a file."""
    return lambda root: (root / name).write_bytes(data)


def folder(name: str):
    """Return what puts a folder in a file's place."""

    def harm(root: Path) -> None:
        (root / name).unlink(missing_ok=True)
        (root / name).mkdir()

    return harm


def link(name: str):
    """Return what puts a link to nothing in a file's place."""

    def harm(root: Path) -> None:
        (root / name).unlink()
        (root / name).symlink_to("nowhere")

    return harm


# What does the harm, what stands in the environment, and a word of the complaint, if there is any.
FAULTS = {
    "a key that nobody knows": (config('[share]\nremot = "x"\n'), {}, "remot"),
    "a value of another kind": (config('[recall]\nsession_idle_minutes = "x"\n'), {}, "session_idle_minutes"),
    "no TOML": (config("[share\n"), {}, "fleet.toml"),
    "no UTF-8": (config("# \xe9\n"), {}, "fleet.toml"),
    "a link to nothing for the configuration": (link("fleet.toml"), {}, "fleet.toml"),
    "a remote that git does not take": (config('[share]\nremote = "ext::sh -c x"\n'), {}, ""),
    "a damaged database": (junk(f".fleet/state-{SCHEMA_NUMBER}.db"), {}, ""),
    "a damaged local database": (junk(".fleet/local.db"), {}, ""),
    "a folder for the memory": (folder("agents/velma/memory.md"), {}, ""),
    "a clock far ahead": (junk(".fleet/clock", b"2099-01-01T00:00:00.000Z-0000\n"), {}, "clock"),
    "a folder for the clock": (folder(".fleet/clock"), {}, "clock"),
    "a damaged register": (junk(".fleet/replica.toml"), {}, "replica.toml is damaged"),
    "a file for the locks": (
        lambda root: (shutil.rmtree(root / ".fleet/locks", ignore_errors=True), junk(".fleet/locks")(root)),
        {},
        ".fleet/locks",
    ),
    "no configuration": (lambda root: (root / "fleet.toml").unlink(), {}, "fleet.toml is not there"),
    "no register": (lambda root: (root / ".fleet/replica.toml").unlink(), {}, ""),
    "a lease that is none": (lambda _: None, {"FLEET_REPLICA": "x"}, "FLEET_REPLICA"),
    "an agent that is none": (lambda _: None, {"FLEET_AGENT": "Popa Shot"}, "Popa Shot"),
}


@pytest.fixture(scope="module")
def made(tmp_path_factory) -> Stage:
    """A stage with a workspace in ``w``, and a copy of it in ``whole``."""
    stage = Stage(tmp_path_factory.mktemp("first"))
    stage.run("w", "init", "--agent", "velma")
    shutil.copytree(stage.folder / "w", stage.folder / "whole")
    return stage


@pytest.fixture
def stage(made: Stage) -> Stage:
    shutil.rmtree(made.folder / "w")
    shutil.copytree(made.folder / "whole", made.folder / "w")
    return made


def mend(whole: Path, root: Path) -> None:
    """Put back what was damaged, and leave all that was logged."""
    if (root / ".fleet/locks").is_file():
        (root / ".fleet/locks").unlink()
    for name in ("fleet.toml", ".fleet/replica.toml", ".fleet/clock", ".fleet/local.db", "agents/velma/memory.md"):
        path = root / name
        path.rmdir() if path.is_dir() else path.unlink(missing_ok=True)
        if (whole / name).exists():
            shutil.copyfile(whole / name, path)


@pytest.mark.parametrize("name", FAULTS)
def test_a_fault_elsewhere_costs_nothing_that_is_logged(stage: Stage, name: str):
    harm, env, complaint = FAULTS[name]
    root = stage.folder / "w"
    harm(root)
    told = stage.run("w", "correct", "--wrong", "w", "--right", "r", "--pattern", "Quote every path", **env).stderr
    told += stage.run("w", "discover", "--problem", "It hangs on arm64", "--solution", "Wait for it", **env).stderr
    said = {"hook_event_name": "UserPromptSubmit", "session_id": "s", "cwd": str(root)}
    said["prompt"] = "No, that is wrong: use tabs, not spaces."
    stage.run("w", "hook", "UserPromptSubmit", text=json.dumps(said), **env)
    assert complaint in told
    logs = "".join(path.read_text() for path in (root / "agents").rglob("corrections.md"))
    assert logs.count("Quote every path") == 1
    assert "use tabs, not spaces" in logs
    # Mended, all of it is the clan's to know, and counts once.
    mend(stage.folder / "whole", root)
    stage.run("w", "init", "--agent", "velma")
    stage.run("w", "sync")
    clan = root / "clan-learnings"
    [line] = (clan / "patterns.jsonl").read_bytes().splitlines()
    assert fold(decode(line)).count("seen") == 1
    assert "It hangs on arm64" in (clan / "discoveries.jsonl").read_text()
    assert not list((root / "agents").rglob("discoveries.jsonl"))


def test_what_is_wrong_with_the_words_themselves_is_refused(stage: Stage):
    stage.run("w", "correct", "--wrong", "w", "--right", "r", "--pattern", "...", expect=2)
    stage.run("w", "correct", "--wrong", "w", "--right", "r", "--pattern", "x", "--agent", "Popa Shot", expect=2)
    assert not (stage.folder / "w/agents/velma/corrections.md").exists()


def test_a_name_that_never_logged_here_is_told_once_since_it_may_be_a_slip(stage: Stage):
    stage.run("w", "init", "--agent", "velma")
    words = ("correct", "--wrong", "w", "--right", "r", "--pattern", "Quote every path", "--agent", "vlema")
    assert "vlema logs here for the first time (so far: velma)" in stage.run("w", *words).stderr
    assert "first time" not in stage.run("w", *words).stderr


@pytest.mark.parametrize("command", ["correct", "doctor", "status", "install", "import", "sync"])
def test_who_has_no_name_and_no_home_as_in_a_container_is_served_all_the_same(w, monkeypatch, command):
    monkeypatch.setattr(pwd, "getpwuid", Mock(side_effect=KeyError))
    environment = {name: value for name, value in w.environment().items() if name != "HOME"}
    words = {
        "correct": ("--wrong", "w", "--right", "r", "--pattern", "Quote every variable in a shell script"),
        "install": ("claude-code",),
        "import": ("--transcripts",),
    }
    done = commands.here((command, *words.get(command, ())), w.folder / "w", environment)
    assert done.returncode == 0, done.stderr


def test_what_a_correction_lacks_is_named_at_once_with_the_whole_command(w):
    whole = 'fleet correct --wrong "..." --right "..." --pattern "..."'
    for words, lacks in (
        ((), "missing: --wrong, --right, --pattern (or --same ID"),
        (("free text",), "'free text' belongs to no option; missing: --wrong, --right,"),
        (("--wrong", "w"), "missing: --right, --pattern"),
        (("--wrong", "w", "--right", "r", "--same", ""), "missing: --pattern"),
        (("--wrong", "", "--right", " ", "--pattern", "x"), "missing: --wrong, --right"),
        (("--wrong", "w", "--right", "r", "--pattern", "Pin", "it"), "'it' belongs to no option"),
    ):
        done = w.run("w", "correct", *words, expect=2)
        assert lacks in done.stderr
        assert whole in done.stderr
        assert not w.patterns("w")["patterns"]

    known = w.run("w", "correct", "--same", "p-1", "--wrong", "w", expect=2).stderr
    assert 'fleet correct --wrong "..." --right "..." --same p-1' in known
    assert "No such option" in w.run("w", "correct", "--nonsense", expect=2).stderr


@pytest.mark.parametrize(
    ("command", "refused"),
    [
        (("correct", "--wrong", "-", "--right", "r", "--pattern", "Pin it"), "wrong"),
        (("correct", "--wrong", "w", "--right", "r", "--pattern", " - "), "pattern"),
        (("discover", "--problem", "-", "--solution", "s"), "problem"),
        (("learn", "c-1", "--pattern", "-"), "pattern"),
    ],
)
def test_a_text_that_is_only_a_dash_is_refused_and_a_file_is_named_as_the_way(w, command, refused):
    done = w.run("w", *command, text="from stdin", expect=2)
    assert f"--{refused} is only a dash: no text is read from stdin. Nothing was logged" in done.stderr
    assert f'--{refused} "$(cat FILE)"' in done.stderr
    assert not w.patterns("w")["patterns"]


def test_a_long_lesson_that_is_near_is_one_line_for_a_person_and_whole_for_a_program(w):
    long = "Never build a sed expression from user input, " + "since a slash in a path ends it. " * 130
    w.correct("w", long)
    words = ("correct", "--wrong", "w", "--right", "r", "--pattern", long.replace("user", "file"))
    near = [row for row in w.run("w", *words).stdout.splitlines() if "close to" in row]
    assert near
    assert all(len(row) < 400 and "…" in row for row in near)
    [found] = json.loads(w.run("w", *words, "--json").stdout)["near"]
    assert found["text"] == long.strip()


def test_nothing_is_claimed_to_be_logged_before_it_is(w):
    words = ("correct", "--wrong", "w", "--right", "r", "--pattern", LESSON)
    shutil.rmtree(w.folder / "w/.fleet")
    (w.folder / "w/.fleet").write_text("")
    done = w.run("w", *words, expect=6)
    assert "nothing was written" in done.stderr
    assert "is logged" not in done.stderr
    assert not (w.folder / "w/agents/velma/corrections.md").exists()
    (w.folder / "w/.fleet").unlink()
    assert "is logged as guest's" in w.run("w", *words).stderr


def test_corrections_that_are_logged_at_once_are_in_one_session(w, monkeypatch):
    """Sessions are evidence: what begins while another command names the session is in that one."""
    words = ("correct", "--right", "r", "--pattern", LESSON, "--wrong")
    others, note = list[subprocess.Popen](), Files.note

    def noting(self: Files, path: Path, data: bytes) -> None:
        if path.parent.name == "session" and not others:
            command = [sys.executable, "-m", "fleet", *words, "the other"]
            others.append(subprocess.Popen(command, cwd=w.folder / "w", env=w.environment()))
            with suppress(subprocess.TimeoutExpired):  # it waits for this one
                others[0].wait(2)
        note(self, path, data)

    monkeypatch.setattr(Files, "note", noting)
    monkeypatch.setattr(w, "in_processes", False)  # the patch reaches no other process
    w.run("w", *words, "the one")
    assert [other.wait(60) for other in others] == [0]
    (known,) = json.loads(w.run("w", "patterns", "--json").stdout)["patterns"]
    assert (known["seen"], known["sessions"]) == (2, 1)
