"""What all tests share: how hard hypothesis searches, where they write, in what order, and where the corpora are."""

import gc
import os
import random
import shutil
from pathlib import Path

import hypothesis
import pytest
from hypothesis import HealthCheck, settings

pytest.register_assert_rewrite("tests.laws.checks")

ROOT = Path(__file__).resolve().parent.parent
MEMORY = Path("/dev/shm")
MEMORY_BYTES_MIN = 4 * 1024**3
SLOW_FIRST = ("sim", "faults", "serve", "test_quarter.py", "test_sleeping.py", "test_broken_joins.py")
"""Folders and files whose tests may take long: begun first, so that no worker is left alone with one in the end."""
PROFILE = os.environ.get("FLEET_LAWS_PROFILE", "fast")

# fast: the same examples on every run, so that a red build is never luck. laws: new ones each night, by a printed seed.
settings.register_profile("fast", max_examples=60, deadline=None, derandomize=True)
settings.register_profile(
    "laws",
    max_examples=100_000,
    deadline=None,
    derandomize=False,
    print_blob=True,
    suppress_health_check=[HealthCheck.too_slow],
)
settings.load_profile(PROFILE)


@pytest.hookimpl(tryfirst=True)
def pytest_configure(config: pytest.Config) -> None:
    """Choose the seed of a random profile here, so that it can be printed before anything fails; and where to write."""
    if "PYTEST_DEBUG_TEMPROOT" not in os.environ and _is_roomy(MEMORY):
        os.environ["PYTEST_DEBUG_TEMPROOT"] = str(MEMORY)  # nobody waits for a disk, which no test can see fail here
    if not settings.default.derandomize and config.getoption("hypothesis_seed", None) is None:
        config.option.hypothesis_seed = str(random.randrange(2**32))
    seed = config.getoption("hypothesis_seed", None)
    if seed is not None:
        hypothesis.core.global_force_seed = int(seed)


def _is_roomy(folder: Path) -> bool:
    """Tell whether temporary files may lie in memory here: in a container it may be small, or run no programs."""
    if not os.access(folder, os.W_OK) or os.statvfs(folder).f_flag & os.ST_NOEXEC:
        return False
    return shutil.disk_usage(folder).free >= MEMORY_BYTES_MIN


@pytest.hookimpl(optionalhook=True)
def pytest_xdist_auto_num_workers() -> int:
    """Return how many tests run at once by default: one more than there are cores, for some of them wait for time."""
    return len(os.sched_getaffinity(0)) + 1 if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Begin with those that take long; else the order stays."""
    items.sort(key=lambda item: not {item.path.parent.name, item.path.name} & {*SLOW_FIRST})


def pytest_collection_finish() -> None:
    """Leave out of every search for garbage what stays until the end: some thousand tests and their modules."""
    gc.freeze()


def pytest_report_header(config: pytest.Config) -> str:
    """Say which profile and seed this run uses, and how to run it again."""
    chosen = settings.default
    seed = config.getoption("hypothesis_seed", None)
    luck = "derandomized" if seed is None else f"again with --hypothesis-seed={seed}"
    return f"fleet laws: FLEET_LAWS_PROFILE={PROFILE}, {chosen.max_examples} examples a law, {luck}"


@pytest.fixture(scope="session")
def shared() -> Path:
    """The folder of shared corpora beside the project root."""
    found = ROOT.parent / "shared"
    if not found.is_dir():
        pytest.skip(f"no shared corpora at {found}")
    return found
