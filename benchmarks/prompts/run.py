"""How often a lesson that is shown at a prompt is about it: ``python -m benchmarks.prompts.run [HALF]``.

``lessons.txt`` holds 42 lessons about one repository, worded from what went wrong in the first 65 sessions of
``../shared/corpora/replay``. ``labels.jsonl`` names prompts of the later sessions, drawn at random, and which of the
lessons each is about, by their line. They were labelled before anything was run on them: ``tuned`` are those that rule
and threshold were chosen on, ``final`` those that nobody had read by then.
"""

import json
import sys
import tempfile
import time
from pathlib import Path

from fleet.learn.corrections import Correction, Corrections
from fleet.store import config, relevant
from fleet.store.workspace import Workspace, World

HERE = Path(__file__).resolve().parent
SESSIONS = HERE.parents[2] / "shared" / "corpora" / "replay" / "sessions.jsonl"
SHOWN_MAX = 3


def main(halves: list[str]) -> None:
    """Print base rate, precision and recall of each half, over the thresholds around the one that is used."""
    lessons = (HERE / "lessons.txt").read_text(encoding="utf-8").splitlines()
    labels = [json.loads(row) for row in (HERE / "labels.jsonl").read_text(encoding="utf-8").splitlines()]
    prompts = _prompts()
    with tempfile.TemporaryDirectory() as folder:
        root = Path(folder)
        (root / config.FILE_NAME).write_text(config.render("", "fleet"))
        workspace = Workspace(root, World(durable=False))
        numbers = {
            Corrections(workspace, "a").log(Correction("w", "r", text)).id: n for n, text in enumerate(lessons, 1)
        }
        workspace.db.refresh()
        workspace.close()
        for half in halves or ["tuned", "final"]:
            _report(half, [each for each in labels if each["half"] == half], prompts, root, numbers)


def _prompts() -> dict[tuple[str, str], str]:
    rows = map(json.loads, SESSIONS.read_text(encoding="utf-8").splitlines())
    return {(row["s"], row["t"]): row["text"] for row in rows if row["e"] == "prompt"}


def _report(half: str, labels: list[dict], prompts: dict, root: Path, numbers: dict[str, int]) -> None:
    about = sum(len(each["about"]) for each in labels)
    pairs = len(labels) * len(numbers)
    print(f"{half}: {len(labels)} prompts, {pairs} pairs, {about} about one another (base rate {about / pairs:.3f})")
    chosen = relevant.SCORE_MIN
    for least in sorted({0.15, 0.2, 0.25, 0.3, 0.35, chosen}):
        relevant.SCORE_MIN = least
        shown = right = asked = 0
        began = time.perf_counter()
        for each in labels:
            found = relevant.relevant(root, "a", prompts[each["s"], each["t"]], 10)[:SHOWN_MAX]
            asked += bool(found)
            shown += len(found)
            right += sum(numbers[one.id] in each["about"] for one in found)
        took = (time.perf_counter() - began) / len(labels) * 1000
        mark = "*" if least == chosen else " "
        print(
            f"{mark} from {least:.2f}: {shown} shown at {asked} prompts, precision {right / max(shown, 1):.2f} "
            f"({right}/{shown}), recall {right / about:.2f}; {took:.1f} ms a prompt"
        )
    relevant.SCORE_MIN = chosen


if __name__ == "__main__":
    main(sys.argv[1:])
