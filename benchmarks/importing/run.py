"""Measurement of what ``fleet import`` takes of real pages, against labels.

    git clone each repository of labels.json at its commit into FOLDER/<owner>/<name>, then
    python benchmarks/importing/run.py FOLDER [--show]

A label is where a lesson stands: a line, or the lines from its heading to its end. It is taken if a record begins in
those lines, or has most of the words of the labelled line. Nothing of the pages is kept here but line numbers.
"""

import argparse
import json
import re
from pathlib import Path

from fleet.learn.formats import Finding, Lesson, read_records
from fleet.text.advice import Passage

LABELS = Path(__file__).with_name("labels.json")
_SHARED_MIN = 0.6


def words(text: str) -> set[str]:
    """Return the words of a text by which it is known again."""
    return {word.casefold() for word in re.findall(r"[^\W_]{4,}|[\u3040-\u9fff]", text)}


def is_taken(first: int, last: int, lines: list[str], records: list[tuple[int, str]]) -> bool:
    """Tell whether a labelled lesson is among the records."""
    if last > first and any(first <= line <= last for line, _ in records):
        return True
    wanted = words(lines[first - 1])
    return any(line == first for line, _ in records) or any(
        wanted and len(wanted & words(said)) >= _SHARED_MIN * len(wanted) for _, said in records
    )


def main() -> None:
    """Measure, and print a table."""
    parser = argparse.ArgumentParser()
    parser.add_argument("folder", type=Path)
    parser.add_argument("--show", action="store_true", help="print what was missed, and every record")
    wanted = parser.parse_args()
    total: dict[str, list[int]] = {"read": [0] * 4, "second": [0] * 4, "third": [0] * 4}
    for label in json.loads(LABELS.read_text("utf-8")):
        data = (wanted.folder / label["repository"] / label["path"]).read_bytes()
        lines = data.decode("utf-8", "replace").splitlines()
        items = [each for each in read_records(label["path"], data) if isinstance(each, Lesson | Finding)]
        records = []
        for each in items:
            said = (
                f"{each.text} {each.correct} {json.loads(each.identity)[4]}"
                if isinstance(each, Lesson)
                else f"{each.problem} {each.solution} {each.context}"
            )
            records.append((each.line, said, each.text if isinstance(each, Lesson) else each.problem))
        inside = [each for each in records if label["from"] <= each[0] <= label["to"]]
        spans = [tuple(map(int, (span.split("-") * 2)[:2])) for span in label["lessons"].split(",") if span]
        pairs = [(line, said) for line, said, _ in inside]
        missed = [first for first, last in spans if not is_taken(first, last, lines, pairs)]
        usable = [each for each in inside if Passage(each[2]).is_sentence()]
        counts = total[label["part"]]
        for at, number in enumerate((len(spans), len(spans) - len(missed), len(inside), len(usable))):
            counts[at] += number
        print(f"{label['part']:<7}{len(spans) - len(missed):>4} of {len(spans):>3} taken, {len(inside):>3} records  "
              f"{label['repository']} {label['path']}")  # fmt: skip
        if wanted.show:
            print("   missed:", missed)
            for line, _, text in inside:
                print(f"   {line}: {text[:150]}")
    for part, (labelled, taken, made, usable) in total.items():
        share = 100 * taken / max(labelled, 1)
        print(f"{part}: {taken} of {labelled} lessons ({share:.0f} %); "
              f"{usable} of {made} records are told for a sentence")  # fmt: skip


if __name__ == "__main__":
    main()
