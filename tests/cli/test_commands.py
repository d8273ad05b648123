"""How a command is found and run: each imports its own module alone, and options before it and behind it are one."""

import json
import os
import subprocess
import sys

import pytest

from fleet.cli import commands

LATE = ("anyio", "pycrdt", "rich", "watchfiles", "websockets")
FACES = {f"fleet.cli.{name}" for name in commands.MODULES.values()}


def imported(shell, *words: str, text: str = "") -> set[str]:
    """Return the modules that a command imports."""
    told = "import atexit, sys\natexit.register(lambda: print('\\n', *sys.modules))\n"
    call = f"from fleet.cli.main import main\nsys.argv[1:] = {words!r}\nmain()"
    done = subprocess.run(
        [sys.executable, "-c", told + call],
        cwd=shell.folder / "one",
        env=shell.environment(),
        input=text,
        capture_output=True,
        text=True,
        check=True,
    )
    return set(done.stdout.splitlines()[-1].split())


@pytest.fixture
def one(shell):
    shell.run("one", "init", "--agent", "velma")
    return shell


@pytest.mark.parametrize(
    "words",
    [
        ("correct", "--wrong", "a", "--right", "b", "--pattern", "c"),
        ("start",),
        ("gossip",),
        ("patterns",),
        ("sync",),
        ("status",),
        ("--version",),
    ],
    ids=lambda words: words[0],
)
def test_a_command_imports_its_own_module_and_nothing_heavy(one, words):
    found = imported(one, *words)
    module = commands.MODULES.get(words[0], "help")
    assert found & FACES == {f"fleet.cli.{module}"}
    assert not found & set(LATE)


def test_a_hook_is_answered_without_the_parser(one):
    found = imported(one, "hook", "Stop", text="{}")
    assert not found & {"typer", "msgspec", "pathlib", "fleet.cli.commands"}


def test_options_before_the_command_and_behind_it_say_the_same(one):
    words = ("correct", "--wrong", "a", "--right", "b", "--pattern", "c", "--json")
    behind = one.run("one", *words, "--agent", "tank").stdout
    before = one.run(".", "--dir", "one", "--agent", "tank", *words).stdout
    assert behind.replace('"seen":1', '"seen":2') == before


def test_a_word_that_is_nearly_a_command_is_told(one):
    done = one.run("one", "patern", expect=2)
    assert "No such command 'patern'. Did you mean 'patterns'?" in done.stderr


@pytest.mark.parametrize("reader", ["bash", "zsh", "fish"])
def test_a_completion_script_asks_fleet_itself(one, reader):
    assert "_FLEET_COMPLETE" in one.run("one", "completion", reader).stdout


def test_commands_and_options_are_completed(one):
    asking = {"_FLEET_COMPLETE": "complete_bash", "COMP_CWORD": "1"}
    shown = one.run("one", COMP_WORDS="fleet pa", **asking).stdout.split()
    assert shown == ["patterns", "pause"]
    asking["COMP_CWORD"] = "2"
    assert "--pattern" in one.run("one", COMP_WORDS="fleet correct --pa", **asking).stdout.split()
    assert one.run("one", "completion", "tcsh", expect=2).stderr


# --- a session's start that lies ready ------------------------------------------------------------------------------


@pytest.mark.parametrize("words", [[], ["--agent", "velma"], ["--dir", "."]])
def test_a_ready_start_is_printed_as_it_would_be_made(one, words):
    one.correct("one", "Say 日本 and a bell \x07 quietly")
    made = one.run("one", "start", *words).stdout.splitlines()
    ready = one.run("one", "start", *words).stdout.splitlines()
    assert [row for row in ready if row != ready[0]] == [row for row in made if row != made[0]]
    assert ready[0] == ready[-2] != made[0]
    assert "日本" in "".join(ready)


def test_a_start_that_cannot_be_printed_says_what_is_wrong(one):
    one.run("one", "start")
    assert "no fleet workspace" in one.run("one", "start", "--dir", "nowhere", expect=1).stderr
    assert "cannot be an agent" in one.run("one", "start", "--agent", "No One", expect=2).stderr


def test_nobody_who_stops_reading_a_start_hears_of_it(one):
    one.run("one", "start")
    reader, writer = os.pipe()
    os.close(reader)
    try:
        done = subprocess.run(
            [sys.executable, "-u", "-m", "fleet", "start"],
            cwd=one.folder / "one",
            env=one.environment(),
            stdout=writer,
            stderr=subprocess.PIPE,
            check=False,
        )
    finally:
        os.close(writer)
    assert done.stderr == b""


def test_what_waits_to_go_out_waits_in_a_folder_that_was_moved_too(stage):
    stage.join("velma")
    stage.correct("velma", "Pin the version of every action")
    (stage.folder / "velma").rename(stage.folder / "moved")
    assert json.loads(stage.run("moved", "status", "--json").stdout)["waiting"]["lines"] == 1
    assert "1 line out" in stage.run("moved", "sync").stdout
    assert json.loads(stage.run("moved", "status", "--json").stdout)["waiting"]["lines"] == 0
