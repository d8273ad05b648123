"""README.md: its tour prints what stands there, and it stays short."""

import os
import re
import subprocess
import sys
from pathlib import Path

README = (Path(__file__).resolve().parents[2] / "README.md").read_text("utf-8")
WORDS_MAX = 1_300
_END = "-- end of a command --"


def test_it_can_be_read_in_five_minutes():
    assert len(README.split()) <= WORDS_MAX


def test_each_command_of_the_tour_prints_what_stands_below_it(tmp_path: Path):
    blocks = re.findall(r"(?ms)^```\n(\$ .*?)^```$", README)
    steps = [step for block in blocks for step in re.findall(r"(?ms)^\$ (.*?(?<!\\))\n(.*?)(?=^\$ |\Z)", block)]
    assert len(steps) >= 9
    commands = [f"{command}\necho '{_END}'\n" for command, _ in steps]
    script = f'fleet() {{ "{sys.executable}" -m fleet "$@"; }}\n' + "".join(commands)
    home = {"HOME": str(tmp_path), "PATH": os.environ["PATH"], "GIT_CONFIG_NOSYSTEM": "1"}
    done = subprocess.run(
        ["bash", "-e"],
        input=script.replace("/tmp/tour", str(tmp_path)),
        env=home,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        check=True,
    )
    printed = done.stdout.replace(str(tmp_path), "/tmp/tour").split(f"{_END}\n")
    for (command, below), actual in zip(steps, printed, strict=False):
        assert re.fullmatch(pattern(below), plain(actual)), f"{command}\n{actual}"


def plain(shown: str) -> str:
    """Return an output in one line, each run of spaces one space."""
    return " ".join(shown.split())


def pattern(below: str) -> str:
    """Return the expression of an output: ``...`` is anything, and ids of replicas, marks and days any."""
    found = re.escape(plain(below)).replace(r"\.\.\.", ".*")
    for one in (r"(?<=\\\.)[0-9a-f]{8}\b", r"(?<=fleet\\-)[0-9a-f]{16}\b"):
        found = re.sub(one, "[0-9a-f]+", found)
    return re.sub(r"\d{4}\\-\d\d\\-\d\d", r"\\d{4}-\\d\\d-\\d\\d", found)
