"""Ground of the tests of auto-reflect and consolidation: a project with git and a workspace, a clock that stands."""

import json
import os
import signal
import subprocess
from collections.abc import Callable
from datetime import UTC, datetime
from pathlib import Path

from fleet.app import consolidating, observing, sleeping
from fleet.hosts import local
from fleet.reflect.reflection import Reflection
from fleet.store.files import Files
from fleet.store.workspace import Workspace, World
from tests import commands

ROOT = Path(__file__).resolve().parents[2]
MINUTE, HOUR, DAY = 60_000, 3_600_000, 86_400_000
BEGIN = int(datetime(2026, 3, 18, 14, 32, 5, tzinfo=UTC).timestamp() * 1000)
SESSION = "8c53a2ca-723d-4ed2-a1b0-b81655a138fc"


def killed(do: Callable[[], object], write: int) -> bool:
    """Do something in a process that is killed before its so many-th write; tell whether it came to that."""
    child = os.fork()
    if not child:
        code = 1
        try:
            left = iter(range(write))

            def counted(real):
                def call(*words, **more):
                    if next(left, None) is None:
                        os.kill(os.getpid(), signal.SIGKILL)
                    return real(*words, **more)

                return call

            Files._rename, Files._write_all = counted(Files._rename), counted(Files._write_all)
            do()
            code = 0
        finally:
            os._exit(code)
    status = os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])
    assert status in (0, -signal.SIGKILL)
    return status != 0


class Project:
    """A project with git and a workspace, whose clock stands until it is moved."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.now_ms = BEGIN
        folder.mkdir(parents=True)
        self.git("init", "--quiet", "--initial-branch", "main")
        self.fleet("init", "--agent", "tank", "--yes")

    def environment(self, **more: str) -> dict[str, str]:
        """Return an environment without a word of this machine's own."""
        mine = ("FLEET_", "GIT_", "CLAUDE", "CODEX", "COPILOT", "GEMINI", "CURSOR")
        kept = {key: value for key, value in os.environ.items() if not key.startswith(mine)}
        who = {f"GIT_{role}_{what}": "t@example.org" for role in ("AUTHOR", "COMMITTER") for what in ("NAME", "EMAIL")}
        return kept | who | {"PYTHONPATH": str(ROOT), "HOME": str(self.folder.parent), **more}

    def git(self, *words: str, where: str = ".") -> str:
        """Run git in the project."""
        done = subprocess.run(
            ["git", *words], cwd=self.folder / where, env=self.environment(), capture_output=True, text=True, check=True
        )
        return done.stdout

    def fleet(self, *words: str, expect: int = 0, where: str = ".", **env: str):
        """Run a command of fleet."""
        done = commands.here(words, self.folder / where, self.environment(**env))
        assert "Traceback" not in done.stderr, done.stderr
        assert done.returncode == expect, f"exit {done.returncode}: {done.stdout}{done.stderr}"
        return done

    def hook(self, event: str, payload: dict, *, session: str = SESSION, where: str = "."):
        """Call the hook as a host does."""
        told = {"session_id": session, "cwd": str(self.folder / where), "hook_event_name": event, "prompt_id": "p"}
        done = commands.hook([event], self.folder, self.environment(), json.dumps(told | payload).encode())
        assert done.returncode == 0
        assert b"Traceback" not in done.stderr, done.stderr.decode()
        return done

    def bash(self, command: str, *, fails: str = "", session: str = SESSION, where: str = ".") -> None:
        """Tell the hooks of a command that ran."""
        given = {"tool_name": "Bash", "tool_input": {"command": command}}
        self.hook("PreToolUse", given, session=session, where=where)
        if fails:
            self.hook("PostToolUseFailure", {**given, "error": f"Exit code 1\n{fails}"}, session=session, where=where)
        else:
            answer = {"tool_response": {"stdout": "ok", "stderr": "", "interrupted": False}}
            self.hook("PostToolUse", {**given, **answer}, session=session, where=where)

    def workspace(self) -> Workspace:
        """Open the workspace under the clock of this project."""
        return Workspace(self.folder, World(wall_ms=lambda: self.now_ms, durable=False))

    def close(self, session: str, said: Reflection | None = None, agent: str = "tank", run: str = ""):
        """End a session."""
        workspace = self.workspace()
        try:
            return consolidating.close_session(workspace, agent, session, said, run)
        finally:
            workspace.close()

    def end(self, session: str, transcript: Path) -> None:
        """End a session as the process behind a host's hook does."""
        local.LocalFolder(str(self.folder)).hear(session, "claude", "tank", str(transcript), has_ended=True)
        sleeping.end_session(local.Call("SessionEnd", str(self.folder), "tank", session))

    def observe(self, kind: str, text: str, session: str, agent: str = "tank"):
        """Note something at the time of the clock."""
        return observing.observe(self.folder, agent, session, kind, text, self.now_ms)

    def consolidate(self, **how):
        """Consolidate under the clock."""
        workspace = self.workspace()
        try:
            return consolidating.consolidate(workspace, "tank", **how)
        finally:
            workspace.close()

    def check(self, session: str = ""):
        """Return how the gates stand."""
        workspace = self.workspace()
        try:
            return consolidating.check(workspace, "tank", session)
        finally:
            workspace.close()

    def read(self, path: str) -> str:
        """Return a file's text, "" where there is none."""
        file = self.folder / path
        return file.read_text() if file.exists() else ""

    def write(self, path: str, text: str) -> None:
        """Write a file."""
        file = self.folder / path
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_text(text)

    @property
    def page(self) -> str:
        """The scratchpad."""
        return self.read(".agents.local.md")

    def seen(self) -> list[str]:
        """Return the observations' lines of the scratchpad."""
        return [line for line in self.page.splitlines() if line.startswith("- 20")]

    def rows(self) -> list[list[str]]:
        """Return the rows of the table of what is ready to promote."""
        part = self.page.partition("## Ready to Promote")[2].partition("\n## ")[0]
        lines = [line for line in part.splitlines() if line.startswith("| ")]
        return [[cell.strip() for cell in line.strip("|").split("|")] for line in lines if "Category" not in line]

    def files(self) -> dict[str, bytes]:
        """Return the Markdown files at the project's root and below ``.agents``, path to bytes."""
        found = [
            *self.folder.glob("*.md"),
            *self.folder.glob(".agents.local.md*"),
            *self.folder.glob(".agents/**/*.md"),
        ]
        return {str(path.relative_to(self.folder)): path.read_bytes() for path in found}
