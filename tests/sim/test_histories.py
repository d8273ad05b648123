"""Seeded random histories: after healing all replicas are byte-equal, and nothing acknowledged is missing.

FLEET_SIM_HISTORIES says how many (``make sim N=10000``), FLEET_SIM_SEED where to begin. Every seed runs twice: a
history that differs from itself could not be looked at again.
"""

import os
from pathlib import Path

import pytest

from tests.sim.simulator import history

HISTORIES = int(os.environ.get("FLEET_SIM_HISTORIES", "300"))
FIRST_SEED = int(os.environ.get("FLEET_SIM_SEED", "0"))
BATCH = 10


@pytest.mark.parametrize("start", range(FIRST_SEED, FIRST_SEED + HISTORIES, BATCH))
def test_after_healing_all_machines_hold_the_same_and_nothing_acknowledged_is_lost(start, tmp_path):
    memory = Path("/dev/shm")
    folder = (memory if os.access(memory, os.W_OK) else tmp_path) / f"fleet-sim-{os.getpid()}-{start}"
    for seed in range(start, min(start + BATCH, FIRST_SEED + HISTORIES)):
        print(f"seed {seed}")
        assert history(seed, folder) == history(seed, folder), f"seed {seed} differs from itself"
