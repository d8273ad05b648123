"""A stage for black-box tests: folders, a bare repository, and the real command line."""

import json
import os
import pty
import shutil
import subprocess
import sys
import threading
from contextlib import suppress
from pathlib import Path

import pytest

from fleet.model.line import Line, decode
from fleet.model.pattern import Pattern, fold
from tests import commands

ROOT = Path(__file__).resolve().parents[2]
IN_PROCESSES = os.environ.get("FLEET_TEST_PROCESSES") == "1"


class Stage:
    """A temporary folder with a bare repository ``clan.git`` and any number of workspaces.

    Its commands run in this process, through the entry point itself: twice as many in a minute.
    ``FLEET_TEST_PROCESSES=1`` gives each a process of its own all the same.

    Attributes:
        now_ms: what the wall clock says to a command; None: what it really says.
    """

    before: tuple[str, ...] = ()
    """Words of another program that runs each command."""
    in_processes = IN_PROCESSES
    """Whether each command has a process of its own, as in a shell."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.now_ms: int | None = None
        self.remote = folder / "clan.git"
        self.kept: tuple[str, ...] = ()

    def environment(self, **more: str) -> dict[str, str]:
        """Return an environment without a word of this machine's own fleet or git."""
        kept = {k: v for k, v in os.environ.items() if not k.startswith(("FLEET_", "GIT_"))}
        return kept | {"PYTHONPATH": str(ROOT), "HOME": str(self.folder), "GIT_CONFIG_NOSYSTEM": "1", **more}

    def run(self, where: str, *words: str, expect: int | None = 0, text: str | None = None, **env: str):
        """Run one fleet command in a folder below the stage."""
        folder = self.folder / where
        folder.mkdir(exist_ok=True)
        wanted = self.environment(**env)
        if self.before or (self.in_processes and self.now_ms is None):
            done = commands.run(words, folder, wanted, text or "", before=self.before)
        else:
            done = commands.here(words, folder, wanted, text or "", now_ms=self.now_ms)
        assert "Traceback" not in done.stderr, done.stderr
        assert "an error in fleet itself" not in done.stderr, done.stderr
        if expect is not None:
            assert done.returncode == expect, f"exit {done.returncode}: {done.stdout}{done.stderr}"
        return done

    def on_a_terminal(self, *words: str, stream: str = "stdout", columns: int = 120, **env: str) -> str:
        """Run a command in ``w`` with one of its streams on a terminal; return what it wrote there."""
        ours, theirs = pty.openpty()
        parts: list[bytes] = []

        def read() -> None:
            with suppress(OSError):  # nobody writes to it any more
                while part := os.read(ours, 65_536):
                    parts.append(part)

        reader = threading.Thread(target=read)
        reader.start()
        streams = {"stdout": subprocess.DEVNULL, "stderr": subprocess.DEVNULL, stream: theirs}
        plain = {name: value for name, value in self.environment().items() if name != "NO_COLOR"}
        done = subprocess.run(
            [sys.executable, "-m", "fleet", *words],
            cwd=self.folder / "w",
            env=plain | {"TERM": "xterm", "COLUMNS": str(columns), **env},
            stdin=subprocess.DEVNULL,
            timeout=120,
            check=False,
            **streams,
        )
        os.close(theirs)
        reader.join()
        os.close(ours)
        assert done.returncode == 0
        return b"".join(parts).decode().replace("\r\n", "\n")

    def keep(self, *names: str) -> None:
        """Keep folders as they are now, for ``again``; where none is named, all that is here."""
        kept = self.folder.with_name(f"{self.folder.name}-kept")
        for name in names or (".",):
            shutil.copytree(self.folder / name, kept / name, symlinks=True)
        self.kept = names or (".",)

    def again(self) -> None:
        """Lay out what was kept as it was; the folders themselves stay where they are, as what names them does."""
        kept = self.folder.with_name(f"{self.folder.name}-kept")
        for name in self.kept:
            for path in (self.folder / name).iterdir():
                shutil.rmtree(path) if path.is_dir() and not path.is_symlink() else path.unlink()
            shutil.copytree(kept / name, self.folder / name, symlinks=True, dirs_exist_ok=True)

    def git(self, *words: str, where: str = ".") -> str:
        """Run git and return what it says."""
        done = subprocess.run(
            ["git", *words], cwd=self.folder / where, env=self.environment(), capture_output=True, text=True, check=True
        )
        return done.stdout

    def join(self, agent: str, where: str | None = None) -> str:
        """Make a workspace that shares the bare repository; return its folder's name."""
        if not self.remote.exists():
            self.git("init", "--quiet", "--bare", "--template=", str(self.remote))  # no samples of hooks
            with (self.remote / "config").open("a") as config:
                config.write("[receive]\n\tautoGc = false\n")  # a process more for each push
        self.run(where or agent, "init", "--agent", agent, "--remote", str(self.remote), "--yes")
        return where or agent

    def correct(self, where: str, pattern: str, *more: str, **env: str) -> str:
        """Log a correction; return the pattern's id."""
        done = self.run(where, "correct", "--wrong", "w", "--right", "r", "--pattern", pattern, "--json", *more, **env)
        return json.loads(done.stdout)["id"]

    def patterns(self, where: str, *more: str) -> dict:
        """Return what ``fleet patterns --json`` says."""
        return json.loads(self.run(where, "patterns", "--json", *more).stdout)

    def seen(self, where: str) -> dict[str, int]:
        """Return text to count, of each wording of a cluster its own: that they are shown as one is a view."""
        shown = self.patterns(where)["patterns"]
        return {said["text"]: said["seen"] for each in shown for said in each.get("wordings", [each])}

    def edition(self) -> list[Pattern]:
        """Return the lessons of the edition in the bare repository, folded, by id."""
        shown = self.git("show", "fleet:patterns.jsonl", where="clan.git")
        return [fold(line) for line in map(decode, shown.encode().splitlines()) if isinstance(line, Line)]


class Shell(Stage):
    """The stage, each command in a process of its own."""

    in_processes = True


@pytest.fixture
def stage(tmp_path):
    return Stage(tmp_path)


@pytest.fixture
def shell(tmp_path):
    return Shell(tmp_path)


@pytest.fixture
def w(stage):
    """The stage with velma's workspace in ``w``."""
    stage.run("w", "init", "--agent", "velma")
    return stage
