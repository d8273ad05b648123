"""The way out of a command: all that it has to say is said, and who is to be called at the end is called."""

import os
import signal
import subprocess
import sys

import pytest

COMMAND = "import sys; from fleet.cli.main import main; sys.argv = ['fleet', *{words}]; main()"
AT_THE_END = "import atexit; atexit.register(print, 'called')\n"
STILL_RUNNING = (
    "import threading\n"
    "def work():\n threading.main_thread().join()\n print('done', flush=True)\n"
    "threading.Thread(target=work).start()\n"
)


def ended(before: str, *words: str) -> subprocess.CompletedProcess[str]:
    buffered = {name: value for name, value in os.environ.items() if name != "PYTHONUNBUFFERED"}
    command = [sys.executable, "-c", before + "print('first')\n" + COMMAND.format(words=words)]
    return subprocess.run(command, env=buffered, capture_output=True, text=True, check=False)


@pytest.mark.parametrize(("words", "code"), [(("--version",), 0), (("correct", "--wrong", "w"), 2)])
def test_a_command_says_all_it_has_to(words, code):
    done = ended("", *words)
    assert done.returncode == code
    assert "first" in done.stdout
    assert done.stderr if code else "fleet" in done.stdout


@pytest.mark.parametrize(("before", "said"), [(AT_THE_END, "called"), (STILL_RUNNING, "done")])
def test_who_wants_to_be_called_or_still_runs_is_waited_for(before, said):
    done = ended(before, "--version")
    assert done.returncode == 0
    assert said in done.stdout


HEARS_CTRL_C = "import signal\nsignal.signal(signal.SIGINT, signal.default_int_handler)\n"
"""What a program has that is started on a terminal, whoever started this one."""
INTERRUPTED_AT = (
    "import builtins, os, signal\n"
    "real = builtins.__import__\n"
    "def slow(name, *more):\n"
    " if name == {name!r}: os.kill(os.getpid(), signal.SIGINT)\n"
    " return real(name, *more)\n"
    "builtins.__import__ = slow\n"
)


@pytest.mark.parametrize("name", ["fleet.cli", "typer", "fleet.model.errors"])
def test_ctrl_c_while_the_program_is_still_coming_in_ends_it_without_a_stack(name):
    done = ended(HEARS_CTRL_C + INTERRUPTED_AT.format(name=name), "patterns")
    assert done.returncode == -signal.SIGINT, "a shell sees 130"
    assert done.stderr == ""


def test_ctrl_c_in_a_command_says_what_is_kept():
    stop = "import fleet.cli.commands as c, signal, os\nc._module = lambda _: os.kill(os.getpid(), signal.SIGINT)\n"
    done = ended(HEARS_CTRL_C + stop, "patterns")
    assert done.returncode == 130
    assert "nothing that was logged is lost" in done.stderr


def test_where_the_caller_has_ctrl_c_ignored_it_stays_so():
    done = ended("import signal; signal.signal(signal.SIGINT, signal.SIG_IGN)\n" + INTERRUPTED_AT.format(name="typer"))
    assert done.returncode == 0


def test_a_user_that_there_is_not_is_a_name_like_any_other():
    done = ended("", "patterns", "--dir", "~no such user/w")
    assert done.returncode == 1
    assert "~no such user/w is no fleet workspace" in done.stderr


def test_where_the_caller_has_the_end_of_children_ignored_their_exit_codes_count():
    before = "import signal, subprocess; signal.signal(signal.SIGCHLD, signal.SIG_IGN)\n"
    ask = "import atexit; atexit.register(lambda: print('code', subprocess.call(['/bin/sh', '-c', 'exit 3'])))\n"
    assert "code 3" in ended(before + ask, "--version").stdout
