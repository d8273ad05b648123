"""Seven agents, one bare git repository, no server: what `make demo` shows.

Everything happens in a temporary folder, through the same command line that you would use, and is gone afterwards.
"""

import hashlib
import json
import os
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
CUT_OFF = ["tank", "slash"]
SHARED = "Quote every shell variable that may hold a path, whatever today's paths look like"


class Demo:
    """The stage: a bare repository, and a workspace and a road to it for each agent."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.remote = folder / "clan.git"

    def fleet(self, agent: str, *words: str, may_fail: bool = False) -> subprocess.CompletedProcess[str]:
        """Run one fleet command as an agent."""
        environment = {k: v for k, v in os.environ.items() if not k.startswith(("FLEET_", "GIT_"))}
        done = subprocess.run(
            [*FLEET, *words],
            cwd=self.folder / agent,
            env=environment | {"PYTHONPATH": str(ROOT)},
            capture_output=True,
            text=True,
            check=False,
        )
        if done.returncode and not may_fail:
            sys.exit(f"{agent}: fleet {' '.join(words)} failed ({done.returncode})\n{done.stdout}{done.stderr}")
        return done

    def at_once(self, agents: list[str], do: Callable[[str], object]) -> list:
        """Let many agents do something at the same time."""
        with ThreadPoolExecutor(len(agents)) as crew:
            return list(crew.map(do, agents))

    def set_up(self) -> None:
        """Make the bare remote and a workspace for each agent from the sample."""
        subprocess.run(["git", "init", "--quiet", "--bare", str(self.remote)], check=True)
        for agent in AGENTS:
            home = self.folder / agent / "agents"
            shutil.copytree(ROOT / "agents" / agent, home / agent)
            (self.folder / f"road-{agent}").symlink_to(self.remote)
        shutil.copy(ROOT / "clan-learnings" / "members.toml", self.folder)
        self.at_once(AGENTS, self.join)

    def join(self, agent: str) -> None:
        """One agent joins the clan."""
        self.fleet(agent, "init", "--agent", agent, "--remote", str(self.folder / f"road-{agent}"), "--yes")
        shutil.copy(self.folder / "members.toml", self.folder / agent / "clan-learnings")
        self.fleet(agent, "import", str(ROOT / "demo" / "discoveries.jsonl"))

    def work(self, agent: str) -> str:
        """One agent is corrected twice: about what all of them meet, and about something of its own.

        Returns the id of the lesson that they share.
        """
        told = ("--wrong", "left $OUT bare in a script", "--right", '"$OUT"', "--pattern", SHARED)
        logged = json.loads(self.fleet(agent, "correct", *told, "--json").stdout)
        self.fleet(
            agent,
            "correct",
            *("--wrong", f"{agent} guessed an option"),
            *("--right", f"run the tool with --help first, as {agent} does now"),
            *("--pattern", f"Read the help of the installed version before using an option ({agent}'s tools)"),
        )
        self.fleet(agent, "discover", "--problem", f"{agent}'s cache was stale", "--solution", "key it by content hash")
        return str(logged["id"])

    def sync(self, agent: str) -> int:
        """One agent syncs."""
        return self.fleet(agent, "sync", may_fail=True).returncode

    def cut_off(self) -> None:
        """Two agents lose the way to the remote, and go on working."""
        for agent in CUT_OFF:
            (self.folder / f"road-{agent}").unlink()

    def reconnect(self) -> None:
        """They find it again."""
        for agent in CUT_OFF:
            (self.folder / f"road-{agent}").symlink_to(self.remote)

    def patterns(self, agent: str) -> list[dict[str, object]]:
        """Return what one agent knows."""
        found = json.loads(self.fleet(agent, "patterns", "--json", "--all").stdout)["patterns"]
        assert isinstance(found, list)
        return found

    def digest(self, agent: str) -> str:
        """Return a hash of the very bytes of one agent's notebook."""
        shown = self.fleet(agent, "patterns", "--json", "--all").stdout + self.fleet(agent, "gossip", "--json").stdout
        return hashlib.sha256(shown.encode()).hexdigest()[:16]


def say(text: str = "") -> None:
    """Print at once: a demo that stands still looks broken."""
    print(text, flush=True)


def main() -> int:
    """Run the demo; 0 when all seven hold the same bytes."""
    began = time.monotonic()
    with tempfile.TemporaryDirectory(prefix="fleet-demo-") as name:
        demo = Demo(Path(name))
        say("1. A bare git repository, and seven agents with their logs so far (agents/ of this repository).")
        demo.set_up()
        say("2. All seven sync at once.")
        demo.at_once(AGENTS, demo.sync)
        say(f"3. {' and '.join(CUT_OFF)} lose the way to the remote. All seven are corrected, and sync, at once.")
        demo.cut_off()
        [shared] = set(demo.at_once(AGENTS, demo.work))
        codes = dict(zip(AGENTS, demo.at_once(AGENTS, demo.sync), strict=True))
        say(f"   exit codes: {', '.join(f'{a} {c}' for a, c in codes.items())}   (5: remote unavailable, all is kept)")
        say("4. velma retires a lesson; tank, cut off, confirms the very same one.")
        demo.fleet("velma", "retire", shared)
        demo.fleet("tank", "correct", "--wrong", "again", "--right", '"$OUT"', "--pattern", SHARED)
        say("5. The way is free again. All seven sync at once, and once more to hear what the last one said.")
        demo.reconnect()
        for _ in range(2):
            demo.at_once(AGENTS, demo.sync)
        return show(demo, shared, time.monotonic() - began)


def show(demo: Demo, shared: str, seconds: float) -> int:
    """Show how it ended."""
    say("\n--- seven notebooks " + "-" * 60)
    digests = {agent: demo.digest(agent) for agent in AGENTS}
    for agent, digest in digests.items():
        say(f"{agent:<10} {digest}")
    found = {p["id"]: p for p in demo.patterns("popashot")}
    lesson = found[shared]
    survived = lesson["state"] != "retired"
    say(f"\nretired by velma, confirmed by tank meanwhile: {'it stays' if survived else 'IT IS GONE'},")
    say(f"seen {lesson['seen']} times by {', '.join(map(str, lesson['agents']))}")
    say("\n--- the top of patterns.md " + "-" * 53)
    page = (demo.folder / "popashot" / "clan-learnings" / "patterns.md").read_text().splitlines()
    say("\n".join(page[:24]))
    say("\n--- what slash reads of the clan's discoveries when its session starts " + "-" * 9)
    say("\n".join(demo.fleet("slash", "gossip", "-n", "6").stdout.splitlines()))
    same = len(set(digests.values())) == 1
    say("\n" + "-" * 80)
    say(f"{'The same bytes in all seven notebooks' if same else 'THE NOTEBOOKS DIFFER'}: {len(found)} lessons.")
    say(f"{seconds:.1f} seconds.")
    return 0 if same and survived else 1


if __name__ == "__main__":
    sys.exit(main())
