"""What the rule-based reflector finds in labelled transcripts: ``python -m benchmarks.reflection.report``.

A label is a few words of what a careful person would keep of a session (``keep``), or might (``may``), chosen by
reading the transcript before the reflector was run on it. A lesson is right where it quotes the words of a label.
Precision strict counts ``keep`` alone; lenient, ``may`` too. The base rate is that of taking every prompt that a person
typed, and every refusal with words, for a lesson.
"""

import json
import sys
from collections.abc import Iterable
from pathlib import Path
from typing import Any, NamedTuple

from fleet.hosts import sessions
from fleet.reflect import rules
from fleet.reflect.digest import Support
from fleet.reflect.reflection import Lesson
from fleet.text.prompts import Prompt

LABELS = Path(__file__).with_name("labels.jsonl")
CORPUS = Path(__file__).resolve().parents[3] / "shared" / "corpora" / "transcripts"


class Scores(NamedTuple):
    """Counts over some sessions: lessons, those that are to be kept, those that may be, labels and those found."""

    sessions: int = 0
    lessons: int = 0
    kept: int = 0
    may: int = 0
    labels: int = 0
    found: int = 0
    prompts: int = 0
    prompts_kept: int = 0

    @property
    def precision(self) -> float:
        """The share of the lessons that a careful person would keep."""
        return self.kept / self.lessons if self.lessons else 1.0

    @property
    def lenient(self) -> float:
        """The share of the lessons that a careful person would or might keep."""
        return (self.kept + self.may) / self.lessons if self.lessons else 1.0

    @property
    def recall(self) -> float:
        """The share of the labels that a lesson quotes."""
        return self.found / self.labels if self.labels else 1.0

    @property
    def base_rate(self) -> float:
        """The share of what a person said that a careful person would keep."""
        return self.prompts_kept / self.prompts if self.prompts else 0.0

    @property
    def false_a_session(self) -> float:
        """Lessons a session that nobody would keep."""
        return (self.lessons - self.kept - self.may) / self.sessions if self.sessions else 0.0


def score(corpus: Path, half: int = 0) -> Scores:
    """Return what the reflector finds in the labelled sessions of one half; 0: of both."""
    total = Scores()
    for line in LABELS.read_text("utf-8").splitlines():
        label = json.loads(line)
        if half in (0, label["half"]):
            one = _one(corpus / f"{label['session']}.jsonl", label)
            total = Scores(*(mine + more for mine, more in zip(total, one, strict=True)))
    return total


def _one(path: Path, label: dict[str, Any]) -> Scores:
    session = sessions.read(path)
    said = rules.reflect(session).lessons
    support = Support(session.events)
    lessons = [each for each in said if not support.of(each)]
    kept = [each for each in lessons if _is_in(each, label["keep"])]
    may = [each for each in lessons if each not in kept and _is_in(each, label["may"])]
    found = [words for words in label["keep"] if any(_is_in(each, [words]) for each in lessons)]
    typed = [each.text for each in session.events if each.kind == "prompt" and Prompt(each.text).is_typed]
    typed += [each.text for each in session.events if each.kind == "refused" and each.text]
    worth = [text for text in typed if any(_flat(words) in _flat(text) for words in label["keep"])]
    return Scores(1, len(lessons), len(kept), len(may), len(label["keep"]), len(found), len(typed), len(worth))


def _is_in(lesson: Lesson, words: Iterable[str]) -> bool:
    told = _flat(f"{lesson.text} {lesson.quote}")
    return any(_flat(each) in told for each in words)


def _flat(text: str) -> str:
    return " ".join(text.split()).lower()


def main() -> None:
    """Print a row for each half, and for both."""
    if not CORPUS.is_dir():
        sys.exit(f"no shared corpora: {CORPUS} is not there")
    print("sessions  lessons  precision  lenient  recall  base rate  false a session")
    for half in (1, 2, 0):
        found = score(CORPUS, half)
        print(
            f"{found.sessions:8}  {found.lessons:7}  {found.precision:9.2f}  {found.lenient:7.2f}  {found.recall:6.2f}"
            f"  {found.base_rate:9.2f}  {found.false_a_session:15.2f}"
        )


if __name__ == "__main__":
    main()
