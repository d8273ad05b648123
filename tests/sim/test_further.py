"""Further histories pass the checks of the others: all machines are equal, and what was acknowledged is there once."""

import os
from collections import Counter
from pathlib import Path
from typing import ClassVar

import pytest

from fleet.learn import restore
from fleet.reflect.promotion import Promotions
from tests.sim.further import Further
from tests.sim.simulator import FURTHER_FROM, history

SEEDS = range(FURTHER_FROM, FURTHER_FROM + 6)
RARE = ("restore_all", "name_guest", "answer_inbox", "settle_elsewhere", "demote", "block_and_retire")
"""Actions that need not happen in so few histories."""


@pytest.fixture
def folder(tmp_path):
    """A folder in memory, where the system has one."""
    memory = Path("/dev/shm")
    return memory / f"fleet-further-{os.getpid()}" if os.access(memory, os.W_OK) else tmp_path / "sim"


class Thick(Further):
    """A further history in which most actions are those that only further histories have."""

    happened_in_all: ClassVar[Counter[str]] = Counter()
    about = (
        *("work_as_another", "log_as_guest", "name_guest", "settle_elsewhere", "lose_fleet", "promote", "demote"),
        *("answer_inbox", "restore_all", "sleep", "use_other_remote", "meet", "empty_room", "leave"),
        *("block_and_retire", "save", "correct"),
    )

    def close(self) -> None:
        """Close, and add what happened to the count of all histories."""
        super().close()
        self.happened_in_all.update(self.happened)
        self.happened.clear()


def test_a_further_history_holds_what_the_others_do(folder):
    Thick.happened_in_all.clear()
    for seed in SEEDS:
        print(f"seed {seed}")
        history(seed, folder, kind=Thick)
    happened = Thick.happened_in_all
    assert not [each for each in Thick.about if not happened[each] and each not in RARE], happened


def _fails(folder: Path, about: str, begin: int = 0) -> bool:
    """Return whether some history about these actions fails; ``begin``, which once did, is tried first."""

    class About(Further):
        pass

    About.about = tuple(about.split())
    for number in (begin, *range(60)):
        try:
            history(FURTHER_FROM + number, folder, kind=About)
        except AssertionError:
            return True
    return False


def test_a_demotion_that_leaves_the_lesson_in_is_noticed(folder, monkeypatch):
    monkeypatch.setattr(Promotions, "leave", lambda *_: None)
    assert _fails(folder, "promote demote")


def test_a_guest_that_is_taken_over_twice_counts_twice_and_is_noticed(folder, monkeypatch):
    monkeypatch.setattr(restore, "_GUESTS_RECORD", rb"none (is made a part)")
    assert _fails(folder, "log_as_guest log_as_guest name_guest save restore_saved", begin=16)
