"""Runs: what a plan changed is there whole or not at all, and is taken back without a person's own lines."""

import shutil
from contextlib import suppress
from pathlib import Path
from threading import Thread
from typing import Any

import pytest

from fleet.model.errors import DiskError, NoError, UsageError
from fleet.store.database import Local
from fleet.store.files import Files
from fleet.store.runs import Edit, Run, Runs
from fleet.store.workspace import Workspace, World


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
    edits = tuple(Runs(workspace).page(f"{stem}.md").to(after) for stem, after in files.items())
    return Run(id=Runs(workspace).name("sleep"), kind="sleep", agent="velma", at=workspace.wall(), edits=edits)


def _applied(workspace: Workspace, **files: bytes) -> Run:
    run = _run(workspace, **files)
    assert not Runs(workspace).apply(run)
    return run


def _texts(root: Path) -> dict[str, bytes]:
    return {each.name: each.read_bytes() for each in sorted(root.glob("*.md"))}


def test_a_run_that_is_taken_back_leaves_every_file_byte_for_byte_as_it_was(tmp_path: Path) -> None:
    here = _workspace(tmp_path)
    (tmp_path / "a.md").write_bytes(b"one\r\ntwo \xff\n")
    before = _texts(tmp_path)
    run = _applied(here, a=b"one\nthree\n", b=b"new\n")
    assert _texts(tmp_path) == {"a.md": b"one\nthree\n", "b.md": b"new\n"}
    back = Runs(here).undo(run.id)
    assert _texts(tmp_path) == before
    assert sorted(edit.path for edit in back.edits) == ["a.md", "b.md"]
    assert Runs(here).undone() == {run.id: back.id}


@pytest.mark.parametrize("now", [b"title\na\nb\nmore\n", b"title\nmore\na\nb\n", b"title\na\nb\n", b"title\na\n"])
def test_what_an_undo_brings_back_is_not_doubled_where_it_stands_again(tmp_path: Path, now: bytes) -> None:
    here = _workspace(tmp_path)
    (tmp_path / "a.md").write_bytes(b"title\na\nb\n")
    run = _applied(here, a=b"title\n")
    (tmp_path / "a.md").write_bytes(now)
    Runs(here).undo(run.id)
    rows = (tmp_path / "a.md").read_bytes().splitlines()
    assert sorted(rows) == sorted({b"title", b"a", b"b", *now.splitlines()})


def test_a_run_that_was_taken_back_can_be_put_back(tmp_path: Path) -> None:
    here = _workspace(tmp_path)
    run = _applied(here, a=b"new\n")
    back = Runs(here).undo(run.id)
    Runs(here).undo(back.id)
    assert _texts(tmp_path) == {"a.md": b"new\n"}
    assert Runs(here).undone().keys() == {back.id}
    with pytest.raises(NoError):
        Runs(here).undo(back.id)


def test_what_a_person_wrote_since_stays_when_a_run_is_taken_back(tmp_path: Path) -> None:
    here = _workspace(tmp_path)
    (tmp_path / "a.md").write_bytes(b"title\n\nmine\n\nend\n")
    run = _applied(here, a=b"title\n\nmine\n\nadded by the run\n\nend\n", b=b"made\n")
    (tmp_path / "a.md").write_bytes(b"title, mended\n\nmine\n\nadded by the run\n\nend\n")
    (tmp_path / "b.md").write_bytes(b"made\nand mine\n")
    Runs(here).undo(run.id)
    assert (tmp_path / "a.md").read_bytes() == b"title, mended\n\nmine\n\nend\n"
    assert (tmp_path / "b.md").read_bytes() == b"and mine\n"


def test_a_plan_is_made_of_what_a_run_leaves_once_it_is_carried_on_with(tmp_path: Path) -> None:
    torn = _workspace(tmp_path, files=_Torn(tmp_path, 2))
    with pytest.raises(DiskError):
        Runs(torn).apply(_run(torn, a=b"of it\n", b=b"of it\n"))
    here, seen = _workspace(tmp_path), list[dict[str, bytes]]()
    Runs(here).apply_planned("consolidate", "velma", lambda: seen.append(_texts(tmp_path)))
    assert seen == [{"a.md": b"of it\n", "b.md": b"of it\n"}]


@pytest.mark.parametrize("written", ["a.md", "z.md"])
@pytest.mark.parametrize("writes", range(1, 5))
@pytest.mark.parametrize("paths", ["az", "za"])
def test_a_line_that_moves_is_in_a_file_whenever_power_fails_and_whatever_is_written_then(
    tmp_path: Path, written: str, writes: int, paths: str
) -> None:
    source, target = (tmp_path / f"{each}.md" for each in paths)
    source.write_bytes(b"title\nmoved\n")
    torn = _workspace(tmp_path, files=_Torn(tmp_path, writes))
    with suppress(DiskError):
        Runs(torn).apply(_run(torn, **{source.stem: b"title, in short\n", target.stem: b"moved\n"}))
    assert b"moved\n" in b"".join(_texts(tmp_path).values())
    with (tmp_path / written).open("ab") as file:
        file.write(b"of somebody else\n")
    here = _workspace(tmp_path)
    Runs(here).recover()
    assert b"moved\n" in b"".join(_texts(tmp_path).values())
    assert b"of somebody else\n" in (tmp_path / written).read_bytes()


@pytest.mark.parametrize("begun", [b"title\n", None])
def test_two_runs_that_are_taken_back_leave_no_line_of_theirs_whichever_goes_first(tmp_path: Path, begun) -> None:
    here = _workspace(tmp_path)
    if begun is not None:
        (tmp_path / "a.md").write_bytes(begun)
    first = _applied(here, a=(begun or b"") + b"of the first\n")
    second = _applied(here, a=(begun or b"") + b"of the first\nof the second\n")
    for run in (first, second):
        Runs(here).undo(run.id)
    assert (tmp_path / "a.md").read_bytes() == (begun or b"")


def test_a_file_that_changed_since_the_plan_was_made_stops_all_of_it(tmp_path: Path) -> None:
    here = _workspace(tmp_path)
    plan = _run(here, a=b"planned\n", b=b"planned\n")
    (tmp_path / "b.md").write_bytes(b"a person's\n")
    assert Runs(here).apply(plan) == ("b.md",)
    assert _texts(tmp_path) == {"b.md": b"a person's\n"}
    assert not Runs(here).listed()


def test_a_run_that_is_killed_at_any_write_is_not_begun_or_is_carried_on_with(tmp_path: Path) -> None:
    for writes in range(6):
        root = tmp_path / str(writes)
        here = _workspace(root, files=_Torn(root, writes))
        (root / "a.md").write_bytes(b"old\n")
        plan = _run(here, a=b"new\n", b=b"new\n", c=b"new\n")
        with pytest.raises(DiskError):
            Runs(here).apply(plan)
        after = _workspace(root)
        carried = Runs(after).recover()
        whole = {"a.md": b"new\n", "b.md": b"new\n", "c.md": b"new\n"}
        assert _texts(root) == (whole if writes else {"a.md": b"old\n"})
        assert [run.id for run in carried] == ([plan.id] if writes else [])
        assert not Runs(after).recover()
        shutil.rmtree(root)


def test_a_plan_that_moved_to_another_machine_is_put_aside_whole_and_hinders_no_run(tmp_path: Path) -> None:
    here = _workspace(tmp_path, files=_Torn(tmp_path, 1))
    with pytest.raises(DiskError):
        Runs(here).apply(_run(here, memory=b"new\n"))
    (left,) = (tmp_path / ".fleet/runs").glob("*.plan")
    data = left.read_bytes()
    there = _workspace(tmp_path, world=World(machine=lambda: "another"))
    assert not Runs(there).recover()
    assert "memory.md" in there.warnings[0]
    assert not (tmp_path / "memory.md").exists()
    assert left.with_suffix(".plan-aside").read_bytes() == data
    run = _applied(there, notes=b"x\n")
    assert [each.id for each in Runs(there).listed()] == [run.id]


def test_a_person_who_edits_a_file_between_crash_and_recovery_keeps_the_edit(tmp_path: Path) -> None:
    torn = _workspace(tmp_path, files=_Torn(tmp_path, 2))
    with pytest.raises(DiskError):
        Runs(torn).apply(_run(torn, a=b"new\n", b=b"new\n"))
    (tmp_path / "b.md").write_bytes(b"a person's\n")
    (carried,) = Runs(_workspace(tmp_path)).recover()
    assert _texts(tmp_path) == {"a.md": b"new\n", "b.md": b"a person's\n"}
    assert "b.md" in carried.skipped


@pytest.mark.parametrize(
    "path",
    ["../out.md", "/etc/out.md", "link/out.md", "link", ".git/config", "sub/.git/config", ".GIT/config", "a\0b", ""],
)
def test_no_run_writes_outside_its_workspace(tmp_path: Path, path: str) -> None:
    here = _workspace(tmp_path / "here")
    outside = tmp_path / "outside"
    outside.mkdir()
    (here.root / "link").symlink_to(outside)
    plan = Run(id="sleep-20261122-abcdef", kind="sleep", agent="velma", at=here.wall(), edits=(Edit(path, None, b"x"),))
    with pytest.raises(UsageError):
        Runs(here).apply(plan)
    assert not list(outside.iterdir())


def test_a_file_that_a_person_removed_is_not_put_back(tmp_path: Path) -> None:
    here = _workspace(tmp_path)
    (tmp_path / "a.md").write_bytes(b"old\n")
    run = _applied(here, a=b"new\n")
    (tmp_path / "a.md").unlink()
    assert "a.md" in Runs(here).undo(run.id).skipped
    assert _texts(tmp_path) == {}


def test_a_line_that_moves_again_is_in_a_page_that_was_made_anew_beside_what_that_holds(tmp_path: Path) -> None:
    here = _workspace(tmp_path)
    (tmp_path / "pad.md").write_bytes(b"title\nmoved\n")
    run = _applied(here, pad=b"title\n", log=b"# Log\n\nmoved\n")
    back = Runs(here).undo(run.id)
    (tmp_path / "log.md").write_bytes(b"# Log\n\nwritten since\n")
    assert not Runs(here).undo(back.id).skipped
    assert _texts(tmp_path) == {"pad.md": b"title\n", "log.md": b"# Log\n\nmoved\nwritten since\n"}


def test_an_undo_leaves_the_only_copy_of_a_line_that_two_runs_moved(tmp_path: Path) -> None:
    (tmp_path / "pad.md").write_bytes(b"title\nmoved\n")
    torn = _workspace(tmp_path, files=_Torn(tmp_path, 2))
    with pytest.raises(DiskError):
        Runs(torn).apply(_run(torn, pad=b"title\n", log=b"# Log\nmoved\n"))
    (tmp_path / "pad.md").write_bytes(b"title\nmoved\na person's\n")
    here = _workspace(tmp_path)
    (first,) = Runs(here).recover()
    assert "pad.md" in first.skipped
    _applied(here, pad=b"title\na person's\n")  # the log has it
    Runs(here).undo(first.id)
    assert b"moved\n" in (tmp_path / "log.md").read_bytes()


@pytest.mark.parametrize("is_reversed", [False, True])
def test_a_run_is_undone_while_one_of_its_undos_stands_whatever_the_clock_said_then(
    tmp_path: Path, is_reversed: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    here = _workspace(tmp_path)
    listed = Runs.listed
    monkeypatch.setattr(Runs, "listed", lambda self: listed(self)[:: -1 if is_reversed else 1])
    run = _applied(here, a=b"new\n")
    undo = Runs(here).undo(run.id)
    assert Runs(here).undone() == {run.id: undo.id}
    redo = Runs(here).undo(undo.id)
    assert Runs(here).undone() == {undo.id: redo.id}
    again = Runs(here).undo(run.id)
    assert Runs(here).undone() == {undo.id: redo.id, run.id: again.id}


def test_a_beginning_of_a_name_is_enough_when_it_is_the_only_one(tmp_path: Path) -> None:
    here = _workspace(tmp_path)
    run = _applied(here, a=b"new\n")
    assert Runs(here).find(run.id[:-2]).id == run.id
    with pytest.raises(NoError):
        Runs(here).find("nothing-")


def test_a_run_that_cannot_be_read_is_said_and_harms_no_other(tmp_path: Path) -> None:
    here = _workspace(tmp_path)
    run = _applied(here, a=b"new\n")
    (tmp_path / ".fleet" / "runs" / "bad-run.json").write_bytes(b"{")
    assert [each.id for each in Runs(here).listed()] == [run.id]
    assert any("bad-run.json" in each for each in here.warnings)


def test_a_line_that_both_changed_is_kept_in_both_wordings_and_none_is_glued_to_another(tmp_path: Path) -> None:
    here = _workspace(tmp_path)
    (tmp_path / "a.md").write_bytes(b"old end")
    run = _applied(here, a=b"new end\n")
    (tmp_path / "a.md").write_bytes(b"my end\nmore\n")
    Runs(here).undo(run.id)
    assert (tmp_path / "a.md").read_bytes() == b"old end\nmy end\nmore\n"


def test_what_others_write_while_a_command_is_at_work_is_no_part_of_its_run(tmp_path: Path) -> None:
    here, page, other = _workspace(tmp_path), tmp_path / "page.md", tmp_path / "other.md"
    page.write_bytes(b"old\n")
    with Runs(here).recording("velma", "promote"):
        page.write_bytes(b"old\nmine\n")
        other.write_bytes(b"mine, too\n")
        assert not Runs(here).swap(page, b"old\n", b"old\nrow\n")
        assert Runs(here).swap(page, b"old\nmine\n", b"old\nrow\nmine\n")
        page.write_bytes(b"old\nrow\nmine\nmore\n")
        assert Runs(here).swap(page, b"old\nrow\nmine\nmore\n", b"old\nrow\nrows\nmine\nmore\n")
    [run] = Runs(here).listed()
    assert [each.path for each in run.edits] == ["page.md"]
    Runs(here).undo(run.id)
    assert (page.read_bytes(), other.read_bytes()) == (b"old\nmine\nmore\n", b"mine, too\n")


def test_a_command_that_others_edit_a_file_of_without_its_doing_leaves_no_run(tmp_path: Path) -> None:
    here = _workspace(tmp_path)
    with Runs(here).recording("velma", "publish") as draft:
        (tmp_path / "page.md").write_bytes(b"mine\n")
    assert (draft.run, Runs(here).listed()) == ("", [])


def test_a_heading_of_a_run_stays_while_something_added_since_stands_below_it(tmp_path):
    workspace = _workspace(tmp_path / "w")
    page = workspace.root / "agents/velma/user-model.md"
    run = _applied(
        workspace, **{"agents/velma/user-model": b"# People\n\n## Ann\n- tabs\n\n## Bo\n- vim\n\n## Cy\n- tea\n"}
    )
    page.write_bytes(page.read_bytes().replace(b"- vim\n", b"- vim\n- nano\n") + b"# Mine\nmine\n")
    Runs(workspace).undo(run.id)
    assert page.read_bytes() == b"# People\n\n## Bo\n- nano\n# Mine\nmine\n"


@pytest.mark.parametrize("path", ["AGENTS", ".agents.local", ".agents/local"])
def test_a_later_runs_row_stays_below_the_heading_and_the_table_head_that_an_undone_run_wrote(tmp_path, path):
    workspace = _workspace(tmp_path / "w")
    page = workspace.root / f"{path}.md"
    page.parent.mkdir(exist_ok=True)
    page.write_bytes(b"# A\n\n## Patterns\n\n- short\n\n## Log\n")
    head = b"# A\n\n## Patterns\n\n- short\n\n## Done\n\n| a | b |\n|---|---|\n"
    run = _applied(workspace, **{path: head + b"| 1 | 2 |\n\n## Log\n"})
    _applied(workspace, **{path: head + b"| 1 | 2 |\n| 3 | 4 |\n\n## Log\n"})
    Runs(workspace).undo(run.id)
    assert page.read_bytes().split() == (head + b"| 3 | 4 |\n\n## Log\n").split()


def test_a_heading_of_a_run_goes_where_what_stands_below_it_was_there_before(tmp_path):
    workspace = _workspace(tmp_path / "w")
    page = workspace.root / "page.md"
    page.write_bytes(b"old\n")
    run = _applied(workspace, page=b"# New\n- row\nold\n")
    page.write_bytes(b"# New\n- row\nold\nmine\n")
    Runs(workspace).undo(run.id)
    assert page.read_bytes() == b"old\nmine\n"


@pytest.mark.parametrize("what", ["a command", "a purge", "a purge that is told"])
def test_of_two_notes_made_at_once_neither_is_lost(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, what: str) -> None:
    (tmp_path / ".fleet").mkdir()
    here, there, get = _workspace(tmp_path), _workspace(tmp_path), Local.get
    threads: list[Thread] = []

    def note(workspace: Workspace, name: str) -> None:
        if what == "a command":
            Runs(workspace).note_unrecorded(name, "2026-11-22T10:00:00.000Z-0000")
        else:
            workspace.trust.note_purged({name: 30})

    def get_while_another_notes(state: Local, key: str) -> str:
        found = get(state, key)
        if state is here.state and not threads:
            threads.append(Thread(target=note, args=(there, "another")))
            threads[0].start()
            threads[0].join(0.2)
        return found

    note(there, "before")
    monkeypatch.setattr(Local, "get", get_while_another_notes)
    names = {"another", "before"}
    if what == "a purge that is told":
        names -= here.trust.purged(forget=True).keys()
    else:
        note(here, "one")
        names.add("one")
    threads[0].join()
    noted = dict(Runs(here).unrecorded()) if what == "a command" else here.trust.purged()
    assert noted.keys() >= names


def test_a_command_that_stays_without_a_run_forgets_none_of_another_agent(tmp_path: Path) -> None:
    (tmp_path / ".fleet").mkdir()
    here = _workspace(tmp_path)
    folder = tmp_path / ".fleet" / "runs"
    folder.mkdir()
    for by in ("tank", "velma"):
        (folder / f"2026-11-22T10:00:00.000Z-0000 fleet edit by {by}.begun").touch()
    with Runs(here).recording("velma", "edit") as draft:
        draft.problem = "there is no room"
    assert Runs(here).unrecorded("tank") == [("fleet edit", "2026-11-22T10:00:00.000Z-0000")]
    assert len(Runs(here).unrecorded("velma")) == 1
