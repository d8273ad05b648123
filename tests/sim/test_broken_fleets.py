"""An invariant that nothing can break proves nothing: the histories must catch each of these fleets.

They are broken from outside, at the remote and in the join, so that how a sync works inside may change.
"""

import os
from collections.abc import Callable
from pathlib import Path

import pytest

from fleet.keep import line as codec
from fleet.keep import notebook
from fleet.keep.reading import KINDS, PATTERNS, Read, entries
from fleet.keep.store import raw_lines
from fleet.learn import corrections
from fleet.learn.corrections import Correction
from fleet.share import remote as far
from fleet.share.remote import Files, Mark
from fleet.share.tree import kind_of
from tests.sim.people import held_in
from tests.sim.simulator import Simulation, history
from tests.sim.world import Machine, SimRemote

SEEDS = 200
QUIET_SEEDS = 8


class Believing(Simulation):
    """Takes the remote's word for everything: what a revert, a rewind or a merge took out is out here as well."""

    def _sync(self, machine: Machine, *rest, **more) -> None:
        before = self._base(machine)
        files, _ = SimRemote(self.server, lambda: None).pull("")
        if not machine.is_cut_off:
            for path, old in before.items():
                gone = set(raw_lines(old)) - set(raw_lines(files.get(path, b"")))
                for folder in ("clan-learnings", ".fleet/base"):
                    _drop(machine.root / folder / path, gone)
        super()._sync(machine, *rest, **more)

    def _base(self, machine: Machine) -> Files:
        base = machine.root / ".fleet/base"
        paths = [base / kind.edition for kind in KINDS] + sorted(base.glob("*.d/*.jsonl"))
        return {str(path.relative_to(base)): path.read_bytes() for path in paths if path.exists()}


def _drop(path: Path, gone: set[bytes]) -> None:
    if path.exists():
        path.write_bytes(b"".join(raw + b"\n" for raw in raw_lines(path.read_bytes()) if raw not in gone))


class CountsAgain(Simulation):
    """Logs anew what a remote has lost, instead of sending the lines again."""

    def _sync(self, machine: Machine, workspace, *rest, **more) -> None:
        files, _ = SimRemote(self.server, lambda: None).pull("")
        known, before = held_in(files).notebook, {PATTERNS.edition: workspace.store.read_base(PATTERNS.edition)}
        for line in list(held_in(before).notebook.present()):
            if line.id not in known.patterns and not machine.is_cut_off:
                corrections.correct(workspace, machine.agent, Correction("w", "r", notebook.text(line)))
        super()._sync(machine, workspace, *rest, **more)


class Reading(SimRemote):
    """A remote whose files are tidied on the way in."""

    def pull(self, since: Mark) -> tuple[Files, Mark]:
        files, mark = super().pull(since)
        kind = far.Whole if isinstance(files, far.Whole) else dict
        return kind({path: self.tidied(path, data) if kind_of(path) else data for path, data in files.items()}), mark

    def tidied(self, path: str, data: bytes) -> bytes:
        """Return what is read of a file."""
        raise NotImplementedError


class FirstCopy(Reading):
    """Keeps the first of several lines with one id: right for an edition, until a union merge has been at it."""

    def tidied(self, path: str, data: bytes) -> bytes:
        if "/" in path:
            return data
        found: dict[str, bytes] = {}
        for raw, entry in entries(kind_of(path), iter([data]), path, Read()):
            found.setdefault(entry.id, raw)
        return b"".join(raw + b"\n" for raw in found.values())


class Sweeping(SimRemote):
    """Takes shards away that no edition covers yet, as if what everybody has read were safe."""

    def push(self, files: Files, on: Mark, *, message: str | None = None):
        swept = {path: b"" for path in self._server.tree(on) if "/" in path and path not in files}
        return super().push(swept | files, on, message=message)


class OfSweeps(Simulation):
    """Sweeps with every push."""

    remote_class = Sweeping


class OfMerges(Simulation):
    """Somebody merges with plain git four times as often; whom this catches is caught the sooner."""

    remote_class = FirstCopy
    rewind = revert = cut_off = Simulation.merge


def _summed(mine: codec.Line, theirs: codec.Line) -> codec.Line:
    joined = _JOIN(mine, theirs)
    seen = {r: mine.n.get("seen", {}).get(r, 0) + theirs.n.get("seen", {}).get(r, 0) for r in joined.n.get("seen", {})}
    joined.n = {**joined.n, "seen": seen} if seen else joined.n
    return joined


_JOIN = codec.join
FLEETS: dict[str, type[Simulation]] = {
    "a-revert-is-believed": Believing,
    "what-a-revert-took-is-counted-again": CountsAgain,
    "of-a-union-merge-the-first-copy": OfMerges,
    "shards-are-swept": OfSweeps,
}
JOINS: dict[str, Callable[[codec.Line, codec.Line], codec.Line]] = {
    "the-last-line-wins": lambda _mine, theirs: theirs,
    "the-first-line-wins": lambda mine, _theirs: mine,
    "repeated-lines-are-added-up": _summed,
}


@pytest.fixture
def folder(tmp_path) -> Path:
    memory = Path("/dev/shm")
    return memory / f"fleet-broken-{os.getpid()}" if os.access(memory, os.W_OK) else tmp_path / "sim"


def first_caught(kind: type[Simulation], folder: Path, seeds: int = SEEDS) -> int | None:
    """Return the first seed whose history fails."""
    for seed in range(seeds):
        try:
            history(seed, folder, kind)
        except AssertionError:
            return seed
    return None


class Quiet:
    """Nobody comes to the remote with plain git, and nothing crashes or is copied."""

    def rewind(self, _: Machine) -> bool:
        return False

    revert = merge = crash = copy = bring_back = jump = rewind


@pytest.mark.parametrize("name", [name for name in FLEETS if name != "shards-are-swept"])  # it needs nobody's help
def test_a_fleet_that_is_wrong_about_the_remote_is_caught_by_nothing_else(name, folder):
    kind = type("QuietBroken", (Quiet, FLEETS[name]), {})
    assert first_caught(kind, folder, seeds=QUIET_SEEDS) is None


@pytest.mark.parametrize("name", FLEETS)
def test_a_fleet_that_is_wrong_about_the_remote_is_caught(name, folder):
    assert first_caught(FLEETS[name], folder) is not None


@pytest.mark.parametrize("name", JOINS)
def test_a_fleet_that_joins_wrongly_is_caught(name, folder, monkeypatch):
    monkeypatch.setattr(codec, "join", JOINS[name])
    assert first_caught(Simulation, folder) is not None
