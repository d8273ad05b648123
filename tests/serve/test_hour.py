"""Three sidecars left alone, one machine asleep, one on the move, one killed, hold the same bytes in the end.

FLEET_HOUR says for how many seconds (``make hour``), FLEET_HOUR_SEED with which history.
"""

import os
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.serve.conftest import until
from tests.serve.hour import Hour

LASTS_S = float(os.environ.get("FLEET_HOUR", "12"))
SEED = int(os.environ.get("FLEET_HOUR_SEED", "5"))


@pytest.fixture
def hour(tmp_path: Path) -> Iterator[Hour]:
    print(f"seed {SEED}")
    made = Hour(tmp_path, SEED, LASTS_S)
    try:
        made.set_up()
        yield made
    finally:
        made.end()
    assert until(lambda: not made.processes()), made.processes()


def test_three_sidecars_left_alone_hold_the_same_bytes_in_the_end(hour: Hour):
    hour.run_story()
    hour.check()
