"""A small workspace, and the hook in a process of its own, as a host runs it."""

import json
import os
from pathlib import Path

import pytest

from fleet.hosts.local import LocalFolder
from tests import commands

# The real clients are downloads of 740 MB: `make test-hosts` asks for them.
REAL = ["test_real_client.py", "test_real_codex_and_gemini.py"]
collect_ignore = [] if os.environ.get("FLEET_TEST_HOSTS") == "1" else REAL

ROOT = Path(__file__).resolve().parents[2]
SESSION = "8c53a2ca-723d-4ed2-a1b0-b81655a138fc"


class Place:
    """A workspace in a temporary folder, with one agent."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.home = folder.parent / "home"

    def environment(self, **more: str) -> dict[str, str]:
        """Return an environment without a word of this machine's own fleet, git or host."""
        mine = ("FLEET_", "GIT_", "CLAUDE", "CODEX", "COPILOT", "GEMINI", "CURSOR")
        kept = {key: value for key, value in os.environ.items() if not key.startswith(mine)}
        return kept | {"PYTHONPATH": str(ROOT), "HOME": str(self.home), "GIT_CONFIG_NOSYSTEM": "1", **more}

    def hook(self, event: str, payload: object = None, *, data: bytes | None = None, expect: int = 0, **env: str):
        """Call the hook; what it prints to stdout is nothing or one JSON object, whatever it was given."""
        if data is None:
            told = {"session_id": SESSION, "cwd": str(self.folder), "hook_event_name": event, **(payload or {})}
            data = json.dumps(told).encode()
        done = commands.hook([event], self.home.parent, self.environment(**env), data, timeout_s=60)
        assert b"Traceback" not in done.stderr, done.stderr.decode()
        assert done.returncode == expect, f"exit {done.returncode}: {done.stdout!r} {done.stderr!r}"
        if done.stdout:
            assert isinstance(json.loads(done.stdout), dict)
        return done

    def context(self, event: str, payload: object = None, **env: str) -> str:
        """Call the hook; return what it puts into the model's context, "" for nothing."""
        done = self.hook(event, payload, **env)
        told = json.loads(done.stdout) if done.stdout else {}
        return told.get("hookSpecificOutput", {}).get("additionalContext", "")

    def fleet(self, *words: str, expect: int = 0, **env: str):
        """Run a command of fleet in the workspace."""
        done = commands.here(words, self.folder, self.environment(**env))
        assert "Traceback" not in done.stderr, done.stderr
        assert done.returncode == expect, f"exit {done.returncode}: {done.stdout}{done.stderr}"
        return done

    def log(self) -> list[dict]:
        """Return the lines of ``.fleet/log``."""
        path = self.folder / ".fleet" / "log"
        return [json.loads(line) for line in path.read_text().splitlines()] if path.exists() else []

    def entries(self) -> str:
        """Return the agent's log of corrections."""
        path = self.folder / "agents" / "tank" / "corrections.md"
        return path.read_text() if path.exists() else ""


@pytest.fixture
def place(tmp_path):
    """A workspace whose default agent is tank, as far as a hook looks at one."""
    found = Place(tmp_path / "work")
    found.home.mkdir()
    (found.folder / ".fleet").mkdir(parents=True)
    (found.folder / "fleet.toml").write_text("[share]\n# attempts = 15\n")
    (found.folder / ".fleet" / "replica.toml").write_text('# fleet\ndefault_agent = "tank"\n')
    LocalFolder(str(found.folder)).name("tank")
    return found


@pytest.fixture
def bare(tmp_path):
    """A folder that is no workspace."""
    found = Place(tmp_path / "work")
    found.home.mkdir()
    found.folder.mkdir()
    return found
