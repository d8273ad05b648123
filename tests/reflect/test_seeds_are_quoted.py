"""Every statement of the seeds of auto-reflect, consolidation and the reflection pass is quoted in the test of it."""

import re
from pathlib import Path

import pytest

HERE = Path(__file__).parent
TESTS = {
    "auto-reflect.txt": ("test_auto_reflect.py",),
    "auto-consolidation.txt": ("test_consolidation.py",),
    "reflection-pass.txt": ("test_housekeeping.py", "test_tidying.py", "../text/test_dates.py"),
}
NO_STATEMENTS = {
    "Two modes of operation",
    "Continuous observation",
    "Session-end reflection",
    "Promotion modes",
    "What the full flow looks like",
    "Here is.agents.local.md with auto-reflect active across multiple sessions:",
    "Safety model",
    "Scripts",
    "Migrating from the old structure",
    "Run the migration script",
    "Update the memory section in AGENTS.md",
    "Update the memory system section in AGENTS.md",
    "The agent writes suggestions to",
    "Start logging to daily logs",
    "When consolidation triggers",
    "The four-phase process",
    "File structure",
    "Daily log format",
    "Index format",
    "Lock file reference",
    "Skip to main content",
    "Reflection pass — Auto-Dream-compatible semantic housekeeping",
    "MIN_HOURS_BETWEEN_COORDINATED_RUNS",
    "MIN_NEW_RECORDS_FOR_COORDINATED_RUN",
    (
        "Auto-Reflect is built on the same principle as Mastra’s Observer/Reflector pattern — dedicated observation "
        "and reflection passes extract insights from interactions automatically"
    ),
}
"""Headings, and what the seed says of its own origin."""


def words(text: str) -> str:
    """Return the words of a text alone, so that neither marks nor line ends matter."""
    return " ".join(re.findall(r"[a-z0-9]+", text.casefold()))


def statements(text: str) -> list[str]:
    """Return the sentences of a seed that say how the system behaves."""
    text = re.sub(r"\n[a-z]+(?:_[a-z]+)+(?=\n)", "", text)  # a function's name, above what it does
    text = re.sub(r"(?m)^ *\d\. [^—\n]+ — ", "• ", text)  # a sweep's name, before what it does
    whole = text.replace("\nAGENTS.md was", " AGENTS.md was").replace("\nAGENTS.md.", " AGENTS.md.")
    whole = re.sub(r"\n(?=[.a-z])", " ", re.sub(r"\.md(?=[a-z])", ".md ", whole))
    found = [part for line in whole.splitlines() for part in re.split(r"(?<=[a-z)”:])\.(?= ?[A-Z]|$)|(?<=:)- ", line)]
    skipped = {words(each) for each in NO_STATEMENTS}
    return [
        each
        for part in found
        if (each := part.strip(" -.")) and words(each) not in skipped and len(words(each).split()) > 2
    ]


@pytest.mark.parametrize("seed", TESTS)
def test_every_statement_is_quoted_by_a_test(shared, seed):
    quoted = words(" ".join((HERE / name).read_text() for name in TESTS[seed]))
    said = statements((shared / "seeds" / seed).read_text())
    assert len(said) > 15
    missing = [each for each in said if words(each) not in quoted]
    assert not missing, "\n".join(missing)
