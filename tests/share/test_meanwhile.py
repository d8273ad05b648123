"""What is done while git is waited for: in order, once, and nobody's trouble but its own."""

import os
import sys
import time
from pathlib import Path

import pytest

from fleet.share import gitprocess
from fleet.share.meanwhile import Meanwhile


def failing() -> None:
    raise OSError("a task's own trouble")


def test_tasks_are_done_in_order_and_once():
    done, meanwhile = [], Meanwhile()
    for number in range(4):
        meanwhile.add(lambda number=number: done.append(number))
    meanwhile.one()
    assert done == [0]
    meanwhile.spend()
    meanwhile.spend()
    meanwhile.finish()
    assert done == [0, 1, 2, 3]


def test_what_goes_wrong_is_told_by_who_needs_it_done_and_stops_what_comes_after_it():
    done, meanwhile = [], Meanwhile()
    for task in (failing, lambda: done.append("later")):
        meanwhile.add(task)
    meanwhile.one()
    meanwhile.spend()
    assert not done, "the next task may need the one that failed"
    with pytest.raises(OSError, match="a task's own trouble"):
        meanwhile.finish()
    meanwhile.finish()
    assert done == ["later"]


def test_it_is_done_while_the_command_runs_and_does_not_count_as_waiting(tmp_path: Path):
    mark = tmp_path / "seen"

    def until_seen() -> None:
        until = time.monotonic() + 10
        while not mark.exists() and time.monotonic() < until:
            time.sleep(0.01)
        assert mark.exists(), "the command runs already"
        time.sleep(0.4)

    command = [sys.executable, "-c", "import pathlib, sys, time; pathlib.Path(sys.argv[1]).touch()", str(mark)]
    until = time.monotonic() + 0.3
    done = gitprocess.run(command, folder=tmp_path, env=os.environ, until=until, meanwhile=until_seen)
    assert done.code == 0


def test_no_command_outlives_an_interrupt_meanwhile(tmp_path: Path):
    started = tmp_path / "pid"

    def interrupted() -> None:
        while not started.exists() or not started.read_text():
            time.sleep(0.01)
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        gitprocess.run(
            ["sh", "-c", 'echo $$ > "$1"; exec sleep 600', "x", str(started)],
            folder=tmp_path,
            env=os.environ,
            until=time.monotonic() + 60,
            meanwhile=interrupted,
        )
    with pytest.raises(ProcessLookupError):
        os.kill(int(started.read_text()), 0)
