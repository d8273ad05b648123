"""Make the sample again, after changing ``agents/``: let fleet read it and write ``clan-learnings/``."""

import os
import shutil
import subprocess
import sys
import tempfile
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
AGENTS = sorted(path.name for path in (ROOT / "agents").iterdir() if path.is_dir())
SHARED = (
    "README.md",
    "patterns.jsonl",
    "patterns.md",
    "discoveries.jsonl",
    "discoveries.md",
    "members.toml",
    ".gitattributes",
    ".fleet-format",
)


def main() -> None:
    """Build a clan of the seven in a temporary folder, and take what it shares."""
    with tempfile.TemporaryDirectory(prefix="fleet-sample-") as name:
        folder = Path(name)
        work, remote = folder / "work", folder / "clan.git"
        shutil.copytree(ROOT / "agents", work / "agents")
        (work / "clan-learnings").mkdir()
        shutil.copy(ROOT / "clan-learnings" / "members.toml", work / "clan-learnings")
        subprocess.run(["git", "init", "--quiet", "--bare", str(remote)], check=True)
        for agent in AGENTS:
            fleet(work, "init", "--agent", agent, "--remote", str(remote), "--yes")
        fleet(work, "sync")
        fleet(work, "import", str(ROOT / "demo" / "discoveries.jsonl"))
        fleet(work, "sync")
        for agent in AGENTS:
            shutil.copy(work / "agents" / agent / "corrections.md", ROOT / "agents" / agent)
        shutil.rmtree(ROOT / "clan-learnings")
        (ROOT / "clan-learnings").mkdir()
        for path in SHARED:
            shown = subprocess.run(["git", "show", f"fleet:{path}"], cwd=remote, capture_output=True, check=True)
            (ROOT / "clan-learnings" / path).write_bytes(shown.stdout)


def fleet(folder: Path, *words: str) -> None:
    """Run one fleet command."""
    environment = {k: v for k, v in os.environ.items() if not k.startswith(("FLEET_", "GIT_"))}
    subprocess.run(
        [sys.executable, "-m", "fleet", *words], cwd=folder, env=environment | {"PYTHONPATH": str(ROOT)}, check=True
    )


if __name__ == "__main__":
    main()
