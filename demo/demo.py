"""Seven agents, one bare repository, no server: what `make demo` shows.

Everything happens in a temporary folder, through the same command line that you would use, and is gone afterwards.
"""

import hashlib
import json
import os
import shlex
import shutil
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
FLEET = [sys.executable, "-m", "fleet"]
AGENTS = ["popashot", "cantona", "splinter", "velma", "tank", "zerocool", "slash"]
WRONG = "a forced push threw away a commit"
RIGHT = "git push --force-with-lease"
LESSON = "Never run `git push --force` on a branch that others push to"
COMMAND = "git push --force origin main"
IS_COLOURED = not os.environ.get("NO_COLOR") and bool(os.environ.get("FORCE_COLOR") or sys.stdout.isatty())
BOLD, DIM, RED, GREEN, YELLOW, CYAN = 1, 2, 31, 32, 33, 36


class Demo:
    """The stage: a bare repository that holds this repository's own lessons, and a workspace for each agent."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.remote = folder / "clan.git"

    def fleet(self, agent: str, *words: str, text: str = "") -> str:
        """Run one fleet command as an agent; return what it says."""
        environment = {k: v for k, v in os.environ.items() if not k.startswith(("FLEET_", "GIT_"))}
        done = subprocess.run(
            [*FLEET, *words],
            cwd=self.folder / agent,
            env=environment | {"PYTHONPATH": str(ROOT), "NO_COLOR": "1", "COLUMNS": "100"},
            input=text,
            capture_output=True,
            text=True,
            check=False,
        )
        if done.returncode:
            sys.exit(f"{agent}: fleet {' '.join(words)} failed ({done.returncode})\n{done.stdout}{done.stderr}")
        return done.stdout

    def at_once(self, do: Callable[[str], object]) -> list:
        """Let all agents do something at the same time."""
        with ThreadPoolExecutor(len(AGENTS)) as crew:
            return list(crew.map(do, AGENTS))

    def set_up(self) -> None:
        """Make the remote, with the lessons of this repository on its branch, and let seven agents join."""
        branch = self.folder / "branch"
        shutil.copytree(ROOT / "clan-learnings", branch)
        who = ("-c", "user.name=demo", "-c", "user.email=demo@example.org")
        for words in (
            ("init", "--quiet", "--bare", str(self.remote)),
            ("-C", str(branch), "init", "--quiet", "--initial-branch", "fleet"),
            ("-C", str(branch), "add", "--all"),
            ("-C", str(branch), *who, "commit", "--quiet", "--message", "What the clan knows"),
            ("-C", str(branch), "push", "--quiet", str(self.remote), "fleet"),
        ):
            subprocess.run(["git", *words], check=True)
        self.at_once(self.join)

    def join(self, agent: str) -> None:
        """One agent joins the clan."""
        (self.folder / agent).mkdir()
        self.fleet(agent, "init", "--agent", agent, "--remote", str(self.remote), "--yes")

    def notebook(self, agent: str) -> str:
        """Return what one agent knows, as JSON."""
        return self.fleet(agent, "patterns", "--json")


def painted(text: str, *codes: int) -> str:
    """Return a text in colours, where there are any."""
    return f"\x1b[{';'.join(map(str, codes))}m{text}\x1b[0m" if IS_COLOURED else text


def say(text: str = "") -> None:
    """Print at once: a demo that stands still looks broken."""
    print(text, flush=True)


def step(number: int, text: str) -> None:
    """Print what comes next."""
    say(f"\n{painted(f'{number}. {text}', BOLD, CYAN)}")


def typed(agent: str, *words: str) -> None:
    """Print a command as the agent types it."""
    say(painted(f"{agent} $ ", DIM) + painted(f"fleet {shlex.join(words)}", BOLD))


def main() -> int:
    """Run the demo; 0 when the lesson was shown and all seven hold the same bytes."""
    began = time.monotonic()
    with tempfile.TemporaryDirectory(prefix="fleet-demo-") as name:
        demo = Demo(Path(name))
        step(1, "Seven agents join a clan: a bare git repository with what they learned so far. No server.")
        demo.set_up()
        known = lessons(demo.notebook("slash"))
        say(f"{', '.join(AGENTS)}: {len(known)} lessons each")

        step(2, "velma errs, is corrected, and logs that before it replies.")
        say(f"velma ran:  {painted('git push --force', RED)}")
        say(f"a person:   {painted('no! that threw away my commit. Use --force-with-lease', YELLOW)}")
        words = ("correct", "--wrong", WRONG, "--right", RIGHT, "--pattern", LESSON)
        typed("velma", *words)
        say(demo.fleet("velma", *words).splitlines()[0])

        step(
            3,
            "velma syncs. At the same moment slash retires a lesson, and syncs, too. Nobody waits, nothing conflicts.",
        )
        gone = min(known)
        typed("slash", "retire", gone)
        say(demo.fleet("slash", "retire", gone).splitlines()[0])
        typed("velma", "sync")
        typed("slash", "sync")
        with ThreadPoolExecutor(2) as crew:
            list(crew.map(lambda agent: demo.fleet(agent, "sync"), ["velma", "slash"]))
        demo.at_once(lambda agent: demo.fleet(agent, "sync"))

        step(4, "tank was not there. This is what its next session starts with:")
        start = rows_with(demo.fleet("tank", "start"), LESSON)
        say(painted("\n".join(start), GREEN))
        say(f"\nand before it runs {painted(COMMAND, RED)}, its host asks fleet, which says:")
        hook = before_command(demo)
        say(painted("\n".join(hook), GREEN))

        step(5, "Seven notebooks, seven hashes:")
        books = demo.at_once(demo.notebook)
        is_well = len(set(books)) == 1 and gone not in lessons(books[0]) and bool(start) and bool(hook)
        for agent, book in zip(AGENTS, books, strict=True):
            say(f"{agent:<10} {painted(hashlib.sha256(book.encode()).hexdigest()[:16], GREEN if is_well else RED)}")
        say(
            painted(
                "the same bytes everywhere: velma's lesson is in, what slash retired is out"
                if is_well
                else "SOMETHING IS WRONG",
                BOLD,
                GREEN if is_well else RED,
            )
        )
    say(f"\n{time.monotonic() - began:.0f} seconds. Now yours, in any project:")
    say(painted("  fleet init\n  fleet install claude-code", BOLD))
    return 0 if is_well else 1


def lessons(notebook: str) -> set[str]:
    """Return the ids of the lessons in a notebook."""
    return {each["id"] for each in json.loads(notebook)["patterns"]}


def rows_with(text: str, words: str) -> list[str]:
    """Return the lines of a text that tell a lesson."""
    return [row for row in text.splitlines() if words in row]


def before_command(demo: Demo) -> list[str]:
    """Return what fleet's hook tells tank before the command, in the payload that Claude Code sends."""
    asked = {
        "session_id": "demo",
        "hook_event_name": "PreToolUse",
        "tool_name": "Bash",
        "cwd": str(demo.folder / "tank"),
    }
    answer = demo.fleet("tank", "hook", "PreToolUse", text=json.dumps(asked | {"tool_input": {"command": COMMAND}}))
    told = json.loads(answer or "{}").get("hookSpecificOutput", {}).get("additionalContext", "")
    return rows_with(told, LESSON)


if __name__ == "__main__":
    sys.exit(main())
