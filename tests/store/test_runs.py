"""Runs: what a plan changed is there whole or not at all, and is taken back without a person's own lines."""

import shutil
from pathlib import Path
from typing import Any

import pytest

from fleet.model.errors import DiskError, NoError, UsageError
from fleet.store import runs
from fleet.store.files import Files
from fleet.store.runs import Edit, Run
from fleet.store.workspace import Workspace


class _Torn(Files):
    """Files that stop working after so many writes, as a kill would."""

    def __init__(self, root: Path, writes: int) -> None:
        super().__init__(root)
        self.writes = writes

    def replace(self, path: Path, data: bytes, *, is_durable: bool = True) -> bool:
        self._count()
        return super().replace(path, data, is_durable=is_durable)

    def remove(self, path: Path) -> None:
        self._count()
        super().remove(path)

    def _count(self) -> None:
        if self.writes == 0:
            raise DiskError("killed here")
        self.writes -= 1


def _workspace(root: Path, **more: Any) -> Workspace:
    root.mkdir(exist_ok=True)
    (root / "fleet.toml").touch()
    return Workspace(root, **more)


def _run(workspace: Workspace, **files: bytes) -> Run:
    edits = tuple(runs.edit(workspace, f"{stem}.md", after) for stem, after in files.items())
    return Run(id=runs.name(workspace, "sleep"), kind="sleep", agent="velma", at=workspace.wall(), edits=edits)


def _texts(root: Path) -> dict[str, bytes]:
    return {each.name: each.read_bytes() for each in sorted(root.glob("*.md"))}


def test_a_run_that_is_taken_back_leaves_every_file_byte_for_byte_as_it_was(tmp_path: Path) -> None:
    here = _workspace(tmp_path)
    (tmp_path / "a.md").write_bytes(b"one\r\ntwo \xff\n")
    before = _texts(tmp_path)
    run = runs.apply(here, _run(here, a=b"one\nthree\n", b=b"new\n")).run
    assert _texts(tmp_path) == {"a.md": b"one\nthree\n", "b.md": b"new\n"}
    back = runs.take_back(here, run.id)
    assert _texts(tmp_path) == before
    assert sorted(back.restored) == ["a.md", "b.md"]
    assert runs.undone(here) == {run.id: back.run.id}


def test_a_run_that_was_taken_back_can_be_put_back(tmp_path: Path) -> None:
    here = _workspace(tmp_path)
    run = runs.apply(here, _run(here, a=b"new\n")).run
    back = runs.take_back(here, run.id).run
    runs.take_back(here, back.id)
    assert _texts(tmp_path) == {"a.md": b"new\n"}
    assert runs.undone(here).keys() == {back.id}
    with pytest.raises(NoError):
        runs.take_back(here, back.id)


def test_what_a_person_wrote_since_stays_when_a_run_is_taken_back(tmp_path: Path) -> None:
    here = _workspace(tmp_path)
    (tmp_path / "a.md").write_bytes(b"title\n\nmine\n\nend\n")
    run = runs.apply(here, _run(here, a=b"title\n\nmine\n\nadded by the run\n\nend\n", b=b"made\n")).run
    (tmp_path / "a.md").write_bytes(b"title, mended\n\nmine\n\nadded by the run\n\nend\n")
    (tmp_path / "b.md").write_bytes(b"made\nand mine\n")
    back = runs.take_back(here, run.id)
    assert (tmp_path / "a.md").read_bytes() == b"title, mended\n\nmine\n\nend\n"
    assert (tmp_path / "b.md").read_bytes() == b"and mine\n"
    assert "a.md" in back.merged


def test_a_file_that_changed_since_the_plan_was_made_stops_all_of_it(tmp_path: Path) -> None:
    here = _workspace(tmp_path)
    plan = _run(here, a=b"planned\n", b=b"planned\n")
    (tmp_path / "b.md").write_bytes(b"a person's\n")
    assert runs.apply(here, plan).stale == ("b.md",)
    assert _texts(tmp_path) == {"b.md": b"a person's\n"}
    assert not list(runs.listed(here))


def test_a_run_that_is_killed_at_any_write_is_not_begun_or_is_carried_on_with(tmp_path: Path) -> None:
    for writes in range(6):
        root = tmp_path / str(writes)
        here = _workspace(root, files=_Torn(root, writes))
        (root / "a.md").write_bytes(b"old\n")
        plan = _run(here, a=b"new\n", b=b"new\n", c=b"new\n")
        with pytest.raises(DiskError):
            runs.apply(here, plan)
        after = _workspace(root)
        carried = runs.recover(after)
        whole = {"a.md": b"new\n", "b.md": b"new\n", "c.md": b"new\n"}
        assert _texts(root) == (whole if writes else {"a.md": b"old\n"})
        assert [run.id for run in carried] == ([plan.id] if writes else [])
        assert not runs.recover(after)
        shutil.rmtree(root)


def test_a_person_who_edits_a_file_between_crash_and_recovery_keeps_the_edit(tmp_path: Path) -> None:
    torn = _workspace(tmp_path, files=_Torn(tmp_path, 2))
    with pytest.raises(DiskError):
        runs.apply(torn, _run(torn, a=b"new\n", b=b"new\n"))
    (tmp_path / "b.md").write_bytes(b"a person's\n")
    (carried,) = runs.recover(_workspace(tmp_path))
    assert _texts(tmp_path) == {"a.md": b"new\n", "b.md": b"a person's\n"}
    assert "b.md" in carried.left


@pytest.mark.parametrize("path", ["../out.md", "/etc/out.md", "link/out.md", "link", ".git/config", ""])
def test_no_run_writes_outside_its_workspace(tmp_path: Path, path: str) -> None:
    here = _workspace(tmp_path / "here")
    outside = tmp_path / "outside"
    outside.mkdir()
    (here.root / "link").symlink_to(outside)
    plan = Run(id="sleep-20261122-abcdef", kind="sleep", agent="velma", at=here.wall(), edits=(Edit(path, None, b"x"),))
    with pytest.raises(UsageError):
        runs.apply(here, plan)
    assert not list(outside.iterdir())


def test_a_file_that_a_person_removed_is_not_put_back(tmp_path: Path) -> None:
    here = _workspace(tmp_path)
    (tmp_path / "a.md").write_bytes(b"old\n")
    run = runs.apply(here, _run(here, a=b"new\n")).run
    (tmp_path / "a.md").unlink()
    assert "a.md" in runs.take_back(here, run.id).run.left
    assert _texts(tmp_path) == {}


def test_a_beginning_of_a_name_is_enough_when_it_is_the_only_one(tmp_path: Path) -> None:
    here = _workspace(tmp_path)
    run = runs.apply(here, _run(here, a=b"new\n")).run
    assert runs.find(here, run.id[:-2]) == run
    with pytest.raises(NoError):
        runs.find(here, "nothing-")


def test_a_run_that_cannot_be_read_is_said_and_harms_no_other(tmp_path: Path) -> None:
    here = _workspace(tmp_path)
    run = runs.apply(here, _run(here, a=b"new\n")).run
    (tmp_path / ".fleet" / "runs" / "bad-run.json").write_bytes(b"{")
    assert [each.id for each in runs.listed(here)] == [run.id]
    assert any("bad-run.json" in each for each in here.warnings)


def test_a_line_that_both_changed_is_kept_in_both_wordings_and_none_is_glued_to_another(tmp_path: Path) -> None:
    here = _workspace(tmp_path)
    (tmp_path / "a.md").write_bytes(b"old end")
    run = runs.apply(here, _run(here, a=b"new end\n")).run
    (tmp_path / "a.md").write_bytes(b"my end\nmore\n")
    runs.take_back(here, run.id)
    assert (tmp_path / "a.md").read_bytes() == b"old end\nmy end\nmore\n"
