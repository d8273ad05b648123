"""What a shell meets: a process of its own for each command, whose exit code says how it went.

Most tests of the command line call its entry point in their own process. Here, in ``test_formats.py``,
``test_joining.py``, ``test_commands.py`` and ``test_way_out.py`` each command is a process; each hook is one anywhere.
"""

import fcntl
from contextlib import ExitStack
from pathlib import Path

import pytest

SECRET = "gh" + "p_" + "a1B2c3" * 6
SAID = ("--wrong", "w", "--right", "r", "--pattern", "Always use awk over sed")


@pytest.fixture
def w(shell):
    shell.git("init", "--quiet", "--bare", str(shell.remote))
    shell.run("w", "init", "--agent", "velma", "--remote", str(shell.remote), "--yes")
    return shell


@pytest.mark.parametrize(
    ("code", "words", "says"),
    [
        (0, ("correct", *SAID), "seen 1 time"),
        (1, ("show", "p-3f9c1a2b7d4e5f60"), "no lesson has an id that begins with"),
        (2, ("show",), "Missing argument"),
        (3, ("discover", "--problem", "p", "--solution", SECRET), "github-classic"),
        (4, ("sleep",), "is at work here"),
        (5, ("sync",), "nothing is lost"),
        (6, ("correct", *SAID, "--agent", "tank"), "link"),
    ],
    ids=lambda each: str(each) if isinstance(each, int) else "",
)
def test_the_exit_code_says_how_it_went(w, code, words, says):
    with ExitStack() as stack:
        if words == ("sleep",):
            lock = w.folder / "w/.fleet/locks/sleep.lock"
            lock.parent.mkdir(exist_ok=True)
            fcntl.flock(stack.enter_context(lock.open("a")), fcntl.LOCK_EX)
        elif words == ("sync",):
            w.remote.rename(w.folder / "elsewhere")
        elif "tank" in words:
            (w.folder / "w/agents/tank").symlink_to(Path.home())
        done = w.run("w", *words, expect=code)
    told, silent = (done.stderr, done.stdout) if code else (done.stdout, done.stderr)
    assert says in told
    assert says not in silent


def test_what_comes_in_and_leaves_again_is_a_process_too(w):
    assert "Exit codes: 0 ok, 1 no" in w.run("w", "help").stdout
    assert "SessionStart" in w.run("w", "install", "claude-code", "--dry-run").stdout
    w.run("w", "install", "claude-code")
    w.run("w", "uninstall", "claude-code")
    assert not (w.folder / "w/.claude/settings.json").exists()
    assert w.run("w", "upgrade").stdout
    w.run("w", "done", expect=None)
    assert w.run("w", "leave", "--yes").stdout
