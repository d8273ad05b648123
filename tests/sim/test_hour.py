"""Three sidecars left alone for an hour of virtual time hold the same bytes in the end, and so does the branch.

FLEET_SIM_HOURS says how many histories, and FLEET_SIM_SEED the first seed.
"""

import os
from collections import Counter
from pathlib import Path

import pytest

from tests.sim.hour import Hour
from tests.sim.world import simulated

PROMISING = (14, 4)
"""Seeds in which all that ``PROMISED`` names happens; the last one is short, and is run twice."""
HOURS = int(os.environ.get("FLEET_SIM_HOURS", "1"))
FIRST_SEED = int(os.environ.get("FLEET_SIM_SEED", "0"))

PROMISED = ("sleep", "remote away", "away", "hanging", "mute", "crash", "torn", "server restarts", "arrived live")
PROMISED += ("correct", "write_by_hand", "retire", "restore", "edit", "discover")


def lived(seed: int, folder: Path) -> tuple[Hour, str]:
    print(f"seed {seed}")
    folder.mkdir()
    with simulated():
        hour = Hour(seed, folder)
        return hour, hour.run()


@pytest.mark.parametrize("seed", [seed for seed in range(FIRST_SEED, FIRST_SEED + HOURS) if seed not in PROMISING])
def test_after_an_hour_all_hold_the_same_and_nothing_acknowledged_is_lost_or_counted_twice(seed: int, tmp_path: Path):
    lived(seed, tmp_path / "hour")


def test_the_hours_hold_what_they_promise_and_a_seed_is_the_same_hour_again(tmp_path: Path):
    happened: Counter[str] = Counter()
    for seed in PROMISING:
        hour, once = lived(seed, tmp_path / str(seed))
        happened += hour.happened
    assert not [what for what in PROMISED if not happened[what]], happened
    assert lived(seed, tmp_path / "again")[1] == once
