"""Tended histories pass the checks of the others, keep what people wrote, and restore the bytes with each undo."""

import os
from collections import Counter
from pathlib import Path
from typing import Any, ClassVar

import pytest

from fleet.app import starting
from fleet.app.starting import Guards
from fleet.learn.counting import CountedLog
from fleet.reflect import memory_md
from fleet.reflect.inbox import Inbox
from fleet.store import runs
from fleet.store.trust import Trust
from tests.sim.simulator import TENDED_FROM, history
from tests.sim.tended import Tended

SEEDS = range(TENDED_FROM, TENDED_FROM + (4 if "FLEET_SIM_HISTORIES" in os.environ else 1))
RARE = ("migrate", "lift_guard", "block_a_while", "tidy", "suggest")
"""Actions that need not happen in so few histories."""


@pytest.fixture
def folder(tmp_path):
    """A folder in memory, where the system has one."""
    memory = Path("/dev/shm")
    return memory / f"fleet-tended-{os.getpid()}" if os.access(memory, os.W_OK) else tmp_path / "sim"


class Thick(Tended):
    """A tended history in which most actions are those that only tended histories have."""

    happened_in_all: ClassVar[Counter[str]] = Counter()
    about = (
        *("observe", "end_session", "end_session", "write_by_a_person", "answer_inbox", "propose", "consolidate"),
        *("suggest", "guard", "lift_guard", "tidy", "sleep", "strike", "wait_days", "block_a_while", "migrate"),
        *("undo_any", "sync", "correct", "turn_directive", "upgrade"),
    )

    def close(self) -> None:
        """Close, and add what happened to the count of all histories."""
        super().close()
        self.happened_in_all.update(self.happened)
        self.happened.clear()


def test_a_tended_history_holds_what_the_others_do(folder):
    Thick.happened_in_all.clear()
    for seed in SEEDS:
        print(f"seed {seed}")
        history(seed, folder, kind=Thick)
    happened = Thick.happened_in_all
    assert not [each for each in Thick.about if not happened[each] and each not in RARE], happened


# --- what tended histories find ---------------------------------------------------------------------------------------


def what_was_written_since_goes_with_an_undo(patch: pytest.MonkeyPatch) -> None:
    """An undo restores a page's old bytes, even if somebody wrote into it since."""
    patch.setattr(runs, "_merged", lambda _path, _now, _base, target: target)


def others_word_a_guard(patch: pytest.MonkeyPatch) -> None:
    """A guard shows its lesson as it reads now, even if others edited it."""

    def as_now(self: Guards, guard: Any) -> str:
        lesson = self._workspace.patterns.get(guard.id)
        return starting._words_of(lesson) if lesson is not None else guard.lesson

    patch.setattr(Guards, "_words", as_now)


def an_undone_reflection_counts(patch: pytest.MonkeyPatch) -> None:
    """The entries of an undone run stay unmarked in the log."""
    patch.setattr(CountedLog, "mark", lambda *_, **__: True)


def an_item_whose_answer_is_taken_back_stays_decided(patch: pytest.MonkeyPatch) -> None:
    """The inbox does not follow an undo."""
    patch.setattr(Inbox, "undo", lambda *_, **__: [])


def a_block_lasts(patch: pytest.MonkeyPatch) -> None:
    """A writer that was blocked once stays blocked."""
    patch.setattr(Trust, "unblock", lambda *_: True)


def a_memorys_other_lines_are_tidied_away(patch: pytest.MonkeyPatch) -> None:
    """A lesson that leaves a memory takes along the lines that belong to no lesson."""
    less = memory_md.Memory._less
    patch.setattr(memory_md.Memory, "_less", lambda self, ids: less(self, ["", *ids]))


FAULTS = {
    what_was_written_since_goes_with_an_undo: (("write_by_a_person", "end_session", "undo_any"), 5),
    others_word_a_guard: (("guard", "guard", "reword", "sync"), 5),
    an_undone_reflection_counts: (("end_session", "sync"), 2),
    an_item_whose_answer_is_taken_back_stays_decided: (("propose", "answer_inbox"), 4),
    a_block_lasts: (("correct", "sync", "block_a_while"), 0),
    a_memorys_other_lines_are_tidied_away: (("promote", "write_by_a_person", "demote"), 0),
}
"""Each fault, the actions that find it soon, and a history that found it, which is tried first."""


@pytest.mark.parametrize("fault", FAULTS, ids=lambda fault: fault.__name__)
def test_a_fleet_with_a_fault_is_caught_by_tended_histories(fault, folder, monkeypatch):
    fault(monkeypatch)
    steps, begin = FAULTS[fault]
    kind = type("About", (Tended,), {"about": steps})
    for number in (begin, *range(40)):
        try:
            history(TENDED_FROM + number, folder, kind)
        except AssertionError as why:
            print(f"caught by {number}: {why}")
            return
    pytest.fail("no history notices it")
