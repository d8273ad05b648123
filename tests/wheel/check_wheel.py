"""Build the wheel, install it beside openai-agents in a new environment, and use it outside the checkout.

No pytest module on purpose: it downloads, and `make test` must not.
"""

import os
import subprocess
import sys
import tempfile
import time
import zipfile
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]


def run(*words: str, folder: Path) -> str:
    """Run a command in a folder without any of our environment."""
    environment = {k: v for k, v in os.environ.items() if not k.startswith(("FLEET_", "PYTHON", "VIRTUAL_ENV"))}
    done = subprocess.run(words, cwd=folder, env=environment, capture_output=True, text=True, check=False)
    if done.returncode:
        sys.exit(f"{' '.join(words)} failed:\n{done.stdout}{done.stderr}")
    return done.stdout


def built_twice(folder: Path) -> Path:
    """Return the wheel, built twice from copies of what is committed, at other places and times: the same bytes."""
    found = []
    for name in ("one", "two"):
        copy, out = folder / name, folder / f"dist-{name}"
        run("git", "clone", "--quiet", str(ROOT), str(copy), folder=folder)
        run(sys.executable, "-m", "hatchling", "build", "-t", "wheel", "-d", str(out), folder=copy)
        found += out.glob("fleet_learnings-*.whl")
        time.sleep(2.1)  # a zip file's times have steps of two seconds
    one, two = found
    if one.read_bytes() != two.read_bytes():
        sys.exit("two builds of one commit gave two wheels")
    return one


def from_git(folder: Path) -> None:
    """Install from a git address, as who has no checkout does, and ask which commit it is."""
    run(sys.executable, "-m", "venv", str(folder / "git-env"), folder=folder)
    python = str(folder / "git-env" / "bin" / "python")
    run(python, "-m", "pip", "install", "--quiet", f"git+file://{ROOT}", folder=folder)
    commit = run("git", "-C", str(ROOT), "rev-parse", "--short=12", "HEAD", folder=folder).strip()
    said = run(str(folder / "git-env" / "bin" / "fleet"), "--version", folder=folder)
    if f"commit {commit}" not in said or "Python 3." not in said:
        sys.exit(f"`fleet --version` names neither commit nor Python: {said}")


def main() -> None:
    """Fail with a message when the wheel is not what it must be."""
    with tempfile.TemporaryDirectory(prefix="fleet-wheel-") as name:
        folder = Path(name)
        python = sys.executable
        wheel = built_twice(folder)
        packed = {path.split("/")[0] for path in zipfile.ZipFile(wheel).namelist()}
        packed = {path for path in packed if not path.endswith((".dist-info", ".data"))}
        if packed != {"crdt", "fleet"}:
            sys.exit(f"the wheel holds {sorted(packed)}, not crdt and fleet alone")
        plugin = "fleet/hosts/claude_code"
        wanted = {
            f"{plugin}/.claude-plugin/plugin.json",
            f"{plugin}/hooks/hooks.json",
            f"{plugin}/skills/fleet/SKILL.md",
            "fleet/docs/concepts.md",
            "fleet/cli/data/examples.txt",
        }
        if missing := wanted - set(zipfile.ZipFile(wheel).namelist()):
            sys.exit(f"the wheel lacks a part of the plugin: {sorted(missing)}")
        run(python, "-m", "venv", str(folder / "env"), folder=folder)
        fresh = str(folder / "env" / "bin" / "python")
        run(fresh, "-m", "pip", "install", "--quiet", str(wheel), "openai-agents", folder=folder)
        work = folder / "work"
        work.mkdir()
        fleet = str(folder / "env" / "bin" / "fleet")
        run(fleet, "init", "--agent", "velma", "--yes", folder=work)
        run(fleet, "correct", "--wrong", "w", "--right", "r", "--pattern", "The wheel works", folder=work)
        if "The wheel works" not in run("sh", "-c", f"echo '{{}}' | '{fleet}' hook SessionStart", folder=work):
            sys.exit("the installed fleet tells a session nothing")
        if "The wheel works" not in run(fleet, "patterns", folder=work):
            sys.exit("the installed fleet does not know what it was told")
        if "# Concepts" not in run(fleet, "help", "concepts", folder=work):
            sys.exit("the installed fleet has no documentation")
        if not (folder / "env/share/man/man1/fleet.1").is_file():
            sys.exit("the installed fleet has no manual page")
        whose = run(fresh, "-c", "import agents; print(agents.Agent.__module__)", folder=work)
        if not whose.startswith("agents."):
            sys.exit(f"the import name `agents` is not openai-agents' own: {whose}")
        from_git(folder)
        print(f"{wheel.name}: is the same bytes twice, installs, runs, and leaves `agents` to openai-agents")


if __name__ == "__main__":
    main()
