"""``fleet tidy`` over a real notebook: what it writes, skips, leaves to a person, and that all of it is undone."""

import json
import re
import time
from pathlib import Path

import pytest

from crdt import clock
from fleet import RELEASED_MS
from fleet.app import finding, learning, lessons, sleeping, starting, tidying, undoing
from fleet.app import inbox as inboxes
from fleet.learn.corrections_md import Correction
from fleet.learn.counting import reconcile_all
from fleet.model.errors import NoError
from fleet.model.line import Column, Line, encode
from fleet.reflect import housekeeping, records
from fleet.reflect.exposure import Exposures
from fleet.reflect.housekeeping import Mode
from fleet.reflect.inbox import Inbox
from fleet.reflect.records import Records
from fleet.store import config
from fleet.store.runs import Run, Runs
from fleet.store.workspace import Workspace, World
from tests.cli.conftest import Stage

HOUR_MS = 3_600_000
DAY_MS = 24 * HOUR_MS
START_MS = RELEASED_MS + 40 * DAY_MS
ME = "velma.09ab12cd"
WRONG = ("--wrong", "w", "--right", "r")
PIN = "Pin the version of every action in a workflow by its digest"


class Clock:
    """A wall clock that a test sets."""

    def __init__(self) -> None:
        self.ms = START_MS

    def __call__(self) -> int:
        return self.ms


@pytest.fixture
def wall():
    return Clock()


@pytest.fixture
def workspace(tmp_path, wall):
    found = opened(tmp_path, wall)
    with found.writing("velma"):
        pass
    yield found
    found.close()


def opened(root: Path, wall: Clock, toml: str = '[sleep]\nzone = "UTC"\n') -> Workspace:
    if not (root / config.FILE_NAME).is_file():
        (root / config.FILE_NAME).write_text(toml)
        (root / ".fleet").mkdir()
    return Workspace(root, World(wall_ms=wall, machine=lambda: "machine", durable=False))


def note(workspace: Workspace, number: int, text: str, at_ms: int = START_MS - HOUR_MS, **fields) -> str:
    """Put a private lesson into velma's notebook; return its id."""
    each = f"p-{number:016x}"
    column = Column(add=clock.pack(at_ms), first={"scope": "private", "text": text, **fields})
    with workspace.writing("velma") as writer:
        writer.append_private([Line(each, {ME: column})])
    return each


def tidy(workspace, mode=Mode.ALWAYS, **more):
    return tidying.tidy(workspace, "velma", mode, **more)


def stage(workspace, each):
    known = workspace.notes("velma").get(each)
    return known.value("stage") if known is not None else ""


# --- what it does ---------------------------------------------------------------------------------------------------


def test_a_pass_over_the_private_notebook_is_one_run_and_undo_sets_all_of_it_back(workspace):
    broke = note(workspace, 1, "The build broke yesterday")
    old, new = note(workspace, 2, PIN, START_MS - DAY_MS, tags=["ci"]), note(workspace, 3, f"{PIN}.", tags=["pin"])
    stale = note(workspace, 4, "Restart the queue worker by hand", START_MS - 9 * DAY_MS)
    done = tidy(workspace)
    notes = workspace.notes("velma")
    assert (done.report.absolutized_dates, done.report.consolidated, done.report.archived) == (1, 1, 1)
    assert notes.get(broke).text == f"The build broke {clock.pack(START_MS - HOUR_MS - DAY_MS)[:10]}"
    assert (stage(workspace, old), stage(workspace, stale)) == ("consolidated", "archived")
    assert notes.get(new).fields["consolidated_from"] == [old]
    assert sorted(notes.get(new).tags) == ["ci", "pin"]
    assert notes.get(old).text == PIN  # nothing is deleted

    undoing.undo(workspace, done.run)
    assert notes.get(broke).text == "The build broke yesterday"
    assert (stage(workspace, old), stage(workspace, stale)) == ("", "")
    assert notes.get(new).tags == ["pin"]
    assert not notes.get(new).fields["consolidated_from"]


def test_without_a_dated_line_in_the_memory_no_run_is_read(workspace, monkeypatch):
    monkeypatch.setattr(Runs, "listed", lambda _: pytest.fail("read hundreds of files for nothing"))
    assert tidying._written_lines(workspace, "velma", b"# Mine\n\n- no date\n") == []


@pytest.mark.parametrize("is_edited", [False, True])
def test_a_pass_reads_the_notebook_once_unless_the_memory_was_edited_meanwhile(workspace, monkeypatch, is_edited):
    number = note(workspace, 1, "The build broke yesterday")
    read, count = list[str](), Exposures.accesses
    page = workspace.home("velma") / "memory.md"

    def accesses(self: Exposures, agent: str) -> dict:
        read.append(agent)
        if is_edited and len(read) == 1:
            page.write_text("a person's line\n")
        return count(self, agent)

    monkeypatch.setattr(Exposures, "accesses", accesses)
    assert tidy(workspace).report.absolutized_dates == 1
    assert len(read) == 1 + is_edited
    assert "yesterday" not in workspace.notes("velma").get(number).text
    assert page.exists() is is_edited


def test_a_pass_that_changes_nothing_says_so_and_moves_no_stamp(workspace):
    note(workspace, 1, PIN)
    before = {path: path.read_bytes() for path in workspace.home("velma").rglob("*") if path.is_file()}
    done = tidy(workspace)
    assert (done.run, done.report.summary()) == ("", "nothing to change in 1 note")
    assert {path: path.read_bytes() for path in workspace.home("velma").rglob("*") if path.is_file()} == before
    assert Runs(workspace).listed() == []


def test_a_second_pass_changes_nothing(workspace):
    for number, text in enumerate(["It broke yesterday", PIN, f"{PIN}."]):
        note(workspace, number, text, START_MS - 8 * DAY_MS + number)
    assert tidy(workspace).run
    assert not tidy(workspace).run


def test_a_dry_run_changes_nothing_and_shows_the_same_plan(workspace):
    note(workspace, 1, "The build broke yesterday")
    shown = tidy(workspace, dry_run=True)
    assert shown.run == ""
    assert [row[:2] for row in shown.plan.diff()[1:]] == ["- ", "+ "]
    assert workspace.notes("velma").get(f"p-{1:016x}").text == "The build broke yesterday"
    assert tidy(workspace).plan.changes == shown.plan.changes


def test_the_stage_is_private_and_no_shared_line_ever_names_it(workspace, wall):
    logged = learning.correct(workspace, "velma", Correction("w", "r", PIN))
    again = learning.correct(workspace, "velma", Correction("w", "r", f"{PIN} always"))
    wall.ms += 9 * DAY_MS
    done = tidy(workspace)
    assert done.report.archived + done.report.consolidated == 2
    assert {stage(workspace, each.id) for each in (logged, again)} <= {"archived", "consolidated"}
    shared = b"".join(path.read_bytes() for path in workspace.clan.rglob("*") if path.is_file())
    assert b"stage" not in shared
    assert b"archived" not in shared
    assert workspace.patterns.get(logged.id).state == ""  # and to the clan it is what it was


def test_a_lesson_that_a_pass_put_to_rest_is_named_to_a_hook_with_its_words_and_author(workspace, wall):
    logged = [learning.correct(workspace, "velma", Correction("w", "r", each)).id for each in (PIN, f"{PIN} always")]
    wall.ms += 9 * DAY_MS
    tidied = tidy(workspace)
    assert tidied.report.archived + tidied.report.consolidated == 2
    for is_undone in (False, True):
        if is_undone:
            undoing.undo(workspace, tidied.run)
        found = finding.nearest(workspace.root, [PIN], 3)
        assert {near.id: near.text for near, _ in found} == dict(zip(logged, (PIN, f"{PIN} always"), strict=True))
        assert all("velma" in whose for _, whose in found)


def test_a_private_lesson_that_becomes_the_clans_leaves_its_stage_and_the_ids_of_others_here(workspace):
    old, new = note(workspace, 2, PIN, START_MS - DAY_MS), note(workspace, 3, f"{PIN}.")
    tidy(workspace)
    for each in (old, new):
        lessons.edit(workspace, "velma", each, ["scope=clan"])
    shared = {each: workspace.patterns.get(each) for each in (old, new)}
    assert {record.text for record in shared.values()} == {PIN, f"{PIN}."}
    assert all(record.fields.keys().isdisjoint({"stage", "consolidated_from"}) for record in shared.values())
    assert (stage(workspace, old), workspace.notes("velma").get(new).fields["consolidated_from"]) == (
        "consolidated",
        [old],
    )


def test_dates_of_a_corrections_lesson_become_absolute_in_the_clans_record_while_it_is_its_own_alone(workspace):
    mine = learning.correct(workspace, "velma", Correction("w", "r", "The build broke yesterday in CI")).id
    both = learning.correct(workspace, "velma", Correction("w", "r", "The proxy was moved yesterday by ops")).id
    shard = workspace.clan / "patterns.d/tank.c0ffee42.jsonl"
    other = Column(add=clock.pack(START_MS), n={"seen": 1})
    shard.write_bytes(encode(Line(both, {"tank.c0ffee42": other})) + b"\n")
    day = clock.pack(START_MS - DAY_MS)[:10]
    done = tidy(workspace)
    assert workspace.patterns.get(mine).text == f"The build broke {day} in CI"
    assert workspace.patterns.get(both).text == "The proxy was moved yesterday by ops"
    undoing.undo(workspace, done.run)
    assert workspace.patterns.get(mine).text == "The build broke yesterday in CI"


def test_a_corrections_lesson_gets_the_tags_of_both_while_it_is_its_own_alone(workspace, wall):
    ids = list[str]()
    for text in ("Always run {}migrations before the seed step", "Restart {}workers after a rotation of the keys"):
        for tag in ("", "the "):
            told = Correction("w", "r", text.format(tag), tags=(tag.strip() or "x",))
            ids.append(learning.correct(workspace, "velma", told).id)
            wall.ms += HOUR_MS
    shard = workspace.clan / "patterns.d/tank.c0ffee42.jsonl"
    shard.write_bytes(encode(Line(ids[3], {"tank.c0ffee42": Column(add=clock.pack(START_MS), n={"seen": 1})})) + b"\n")
    done = tidy(workspace)
    assert done.report.consolidated == 2
    assert [workspace.patterns.get(each).tags for each in (ids[1], ids[3])] == [["the", "x"], ["the"]]
    assert not tidy(workspace).plan.changes
    undoing.undo(workspace, done.run)
    assert workspace.patterns.get(ids[1]).tags == ["the"]


def test_what_somebody_edited_after_the_pass_stays_when_it_is_undone(workspace):
    logged = learning.correct(workspace, "velma", Correction("w", "r", "The build broke yesterday in CI")).id
    done = tidy(workspace)
    lessons.edit(workspace, "velma", logged, ["text=The build broke on a stale lockfile"])
    undone = undoing.undo(workspace, done.run)
    assert workspace.patterns.get(logged).text == "The build broke on a stale lockfile"
    assert any("stays" in each for each in undone.left)


# --- "Accesses are what was shown and searched", read as a sum over what was merged ---------------------------------


def test_a_lesson_that_was_just_read_from_an_old_page_is_not_stale_before_its_week(workspace, wall):
    page = workspace.home("velma") / "corrections.md"
    page.parent.mkdir(parents=True)
    day = clock.pack(START_MS - 30 * DAY_MS)[:10]
    page.write_text(f"## {day} 14:30 — a\n\n**What I got wrong:** w\n**Correct approach:** r\n**Pattern:** {PIN}\n")
    reconcile_all(workspace)
    [lesson] = workspace.patterns.lessons()
    assert lesson.at.startswith(day)
    assert not tidy(workspace).report.archived
    wall.ms += 8 * DAY_MS
    assert tidy(workspace).report.archived == 1


def test_what_was_shown_or_found_by_a_search_is_not_stale(workspace):
    texts = ["Restart the worker by hand", "Quote a path in shell scripts", "Rotate each key in March"]
    shown, found, never = (note(workspace, at, text, START_MS - 9 * DAY_MS) for at, text in enumerate(texts))
    Exposures(workspace.state).note("velma", "s1", [shown], START_MS - 8 * DAY_MS)
    Exposures(workspace.state).note_found("velma", [found], START_MS - 8 * DAY_MS)
    assert tidy(workspace).report.archived == 1
    assert [stage(workspace, each) for each in (shown, found, never)] == ["", "", "archived"]


def test_a_search_on_the_command_line_is_an_access(tmp_path):
    stand = Stage(tmp_path)
    stand.run("w", "init", "--agent", "velma")
    each = stand.correct("w", "Quote every path in a shell script")
    stand.run("w", "search", "quote path")
    state = Workspace(tmp_path / "w").state
    assert Exposures(state).accesses("velma")[each][0] == 1
    assert Exposures(state).shown_to("velma") == set()  # found, and not shown by fleet


def test_accesses_are_a_sum_and_never_written_into_anothers_counter(workspace, wall):
    old, new = note(workspace, 1, PIN, START_MS - 2 * DAY_MS), note(workspace, 2, f"{PIN}.")
    Exposures(workspace.state).note("velma", "s1", [old], START_MS)
    tidy(workspace)
    assert workspace.notes("velma").get(new).totals.get("shown", {}) == {}
    wall.ms += 30 * DAY_MS
    assert tidy(workspace).report.archived == 0  # the older one was shown, and so was what it is a part of now
    assert stage(workspace, old) == "consolidated"


def test_an_archived_note_that_is_found_again_is_active_again(workspace, wall):
    each = note(workspace, 1, "Restart the queue worker by hand", START_MS - 9 * DAY_MS)
    tidy(workspace)
    assert housekeeping.resting(workspace, "velma") == {each}
    assert "Restart the queue worker" not in starting.SessionStart(workspace, "velma").text()
    wall.ms += HOUR_MS
    Exposures(workspace.state).note_found("velma", [each], wall.ms)
    assert housekeeping.resting(workspace, "velma") == set()
    starting.forget(workspace)
    assert "Restart the queue worker" in starting.SessionStart(workspace, "velma").text()


def test_what_a_pass_put_to_rest_is_not_in_a_start_as_news_or_as_relevant(tmp_path):
    stand, text = Stage(tmp_path), "Sort the tables in `schema.sql` by name"
    stand.run("w", "init", "--agent", "velma")
    (tmp_path / "w/schema.sql").write_text("")
    for words in (["init", "--quiet"], ["add", "schema.sql"], ["commit", "--quiet", "-m", "A table"]):
        stand.git("-c", "user.name=Bob", "-c", "user.email=bob@example.org", *words, where="w")
    (tmp_path / "w/schema.sql").write_text("--")  # a changed file, which the lesson is about
    (tmp_path / "w/agents/velma/corrections.md").write_text(
        "# Corrections — velma\n\n"
        "## 2026-03-15 14:30 — old\n\n**What I got wrong:** left it unsorted\n**Correct approach:** sort it\n"
        f"**Source:** Bob\n**Pattern:** {text}\n"
    )

    def has_it(session: str) -> list[bool]:
        event = {"session_id": session, "hook_event_name": "SessionStart", "source": "startup"}
        hooked = stand.run("w", "hook", "SessionStart", text=json.dumps(event | {"cwd": str(tmp_path / "w")}))
        assert "fleet" in hooked.stdout
        return [text in stand.run("w", "start").stdout, text in hooked.stdout, text in stand.run("w", "start").stdout]

    stand.run("w", "sync")
    assert text in stand.run("w", "start").stdout
    assert "nothing to change" in stand.run("w", "tidy", "--mode", "always").stdout, "it was read just now"
    (tmp_path / "w/fleet.toml").write_text("[sleep]\narchive_hours = 0.0000001\n")
    [found] = json.loads(stand.run("w", "patterns", "--json").stdout)["patterns"]
    stand.run("w", "edit", found["id"], "--set", "importance=0.1")
    assert "1 archived" in stand.run("w", "tidy", "--mode", "always").stdout
    assert has_it("s1") == [False] * 3
    stand.run("w", "search", "sort tables")
    stand.correct("w", "Quote every path in a shell script")  # the next text is made anew
    assert has_it("s2") == [True] * 3


# --- importance: "0.5, auto-detected 0.2" ---------------------------------------------------------------------------


def test_a_lesson_of_detected_entries_alone_matters_0_2(workspace):
    logged = [
        learning.correct(workspace, "velma", Correction("w", "r", text, source=source)).id
        for text, source in [("Always squash before a merge", "auto-detected"), ("Rotate a key at once", "a person")]
    ]
    notebook = tidying._Notebook(workspace, "velma")
    assert {each.id: each.importance for each in notebook.notes} == {logged[0]: 0.2, logged[1]: 0.5}


def test_a_conflict_of_two_that_matter_little_keeps_the_newer_one_active(workspace):
    old = note(workspace, 1, "Always squash commits before a merge", START_MS - 2 * HOUR_MS, importance=0.2)
    new = note(workspace, 2, "Never squash commits before a merge", importance=0.1)
    assert tidy(workspace).report.conflicts_resolved == 1
    assert (stage(workspace, old), stage(workspace, new)) == ("archived", "")


# --- modes, the host's own report, and facts of its memory ----------------------------------------------------------


def test_a_skipped_pass_changes_nothing_and_scans_0(workspace):
    for number in range(3):
        note(workspace, number, "It broke yesterday")
    done = tidy(workspace, Mode.COORDINATED)
    assert done.report.skipped == "NotEnoughNewRecords"
    assert (done.report.total_scanned, done.run) == (0, "")
    assert stage(workspace, f"p-{0:016x}") == ""


def test_a_coordinated_pass_runs_with_5_new_notes_and_then_waits(workspace, wall):
    """ "Run a reflection pass honouring mode." """
    for number in range(5):
        note(workspace, number, f"It broke yesterday, for the {number}th time", START_MS - 5)
    assert tidy(workspace, Mode.COORDINATED).report.absolutized_dates == 5
    for number in range(5, 11):
        note(workspace, number, f"It failed yesterday, for the {number}th time", START_MS + 5)
    assert tidy(workspace, Mode.COORDINATED).report.skipped == "TooSoon"
    wall.ms += 25 * HOUR_MS
    assert tidy(workspace, Mode.COORDINATED).report.absolutized_dates == 6


REPORT = "Done.\n\n## Organization Report\nConsolidated: 4\nRemoved = 1\nRe-indexed: 9\n"


def test_an_organization_report_is_ingested_once_after_which_the_coordinated_mode_skips(workspace, wall):
    for number in range(9):
        note(workspace, number, f"It broke yesterday, for the {number}th time")
    done = tidy(workspace, Mode.COORDINATED, report=REPORT)
    assert done.report.skipped == "AutoDreamAlreadyRan"
    assert done.report.dream_report_ingested == housekeeping.DreamReport(4, 1, 9)
    again = tidy(workspace, Mode.COORDINATED, report=REPORT)
    assert (again.report.skipped, again.report.dream_report_ingested) == ("AutoDreamAlreadyRan", None)
    wall.ms += 25 * HOUR_MS
    later = tidy(workspace, Mode.COORDINATED, report=REPORT)
    assert (later.report.skipped, later.report.dream_report_ingested) == (None, None)
    assert later.report.absolutized_dates == 9


def host_memory(tmp_path, monkeypatch):
    """Return a new folder, and the one in which Claude Code keeps its own memory of it."""
    monkeypatch.setenv("CLAUDE_CONFIG_DIR", str(tmp_path / "home"))
    root = tmp_path / "w"
    root.mkdir()
    folder = tmp_path / "home/projects" / re.sub(r"[^A-Za-z0-9]", "-", str(root)) / "memory"
    folder.mkdir(parents=True)
    return root, folder


def test_facts_of_the_hosts_memory_wait_as_candidates_where_that_is_allowed(tmp_path, wall, monkeypatch):
    root, folder = host_memory(tmp_path, monkeypatch)
    page = "---\nname: digest\ntype: feedback\ndescription: Pin actions by digest\n---\nAs Ms Maier asked\n"
    (folder / "digest.md").write_text(page)
    (folder / "report.md").write_text(REPORT)
    quiet = opened(root, wall)
    with quiet.writing("velma"):
        pass
    assert tidy(quiet).report.dreamed_accepted == 0
    quiet.close()
    (root / config.FILE_NAME).write_text("[hook]\nauto_memory = true\n")
    told = opened(root, wall)
    done = tidy(told)
    assert done.report.dreamed_accepted == 1
    assert done.report.dream_report_ingested == housekeeping.DreamReport(4, 1, 9)
    [item] = [each.item for each in Inbox(told, "velma").waiting("candidate")]
    assert item.title == "Pin actions by digest"
    assert "Ms Maier" not in str(item), "a yes shares what the item shows, and no more"
    again = tidy(told).report
    assert (again.dreamed_accepted, again.dream_report_ingested) == (0, None)
    told.close()


def test_a_sleep_names_the_facts_of_the_hosts_memory_and_not_notes_that_it_left(tmp_path, wall, monkeypatch):
    root, folder = host_memory(tmp_path, monkeypatch)
    (folder / "digest.md").write_text("---\nname: digest\ntype: feedback\ndescription: Pin actions by digest\n---\n")
    workspace = opened(root, wall, "[hook]\nauto_memory = true\n")
    for number in range(5):
        note(workspace, number, f"Number {number} of the modules needs index {number * 7}")
    (phase,) = sleeping.sleep(workspace, "velma", only=["tidy"]).phases
    assert (phase.changed, phase.summary) == (1, "1 fact of the host's memory: fleet inbox")
    workspace.close()


# --- notes in memory.md: fleet's own, and a person's ----------------------------------------------------------------


def write_memory(workspace, before: bytes, after: bytes) -> None:
    """Write memory.md as a pass of fleet's does, so that what is new in it is known to be fleet's."""
    path = workspace.home("velma") / "memory.md"
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes(before)
    edits = (Runs(workspace).page("agents/velma/memory.md").to(after),)
    run = Run(id="reflection-20260101-aaaaaa", kind="reflection", agent="velma", at=workspace.wall(), edits=edits)
    Runs(workspace).apply(run)


def test_notes_that_fleet_wrote_are_put_in_order_and_a_persons_lines_stay(workspace):
    theirs = b"# Mine\r\n\r\n- 2026-05-01: I broke it yesterday\r\n"
    older, newer = b"- 2026-05-08: pin the actions by digest\n", b"- 2026-05-10: Pin the actions by digest\n"
    ours = b"- 2026-05-09: the proxy was moved yesterday\n" + older + newer
    write_memory(workspace, theirs, theirs + ours)
    before = (workspace.home("velma") / "memory.md").read_bytes()
    done = tidy(workspace)
    path = workspace.home("velma") / "memory.md"
    assert path.read_bytes() == theirs + b"- 2026-05-09: the proxy was moved 2026-05-08\n" + newer
    (archive,) = workspace.home("velma").glob("archive-*.md")
    assert archive.read_text().endswith("\n- 2026-05-08: pin the actions by digest\n")
    undoing.undo(workspace, done.run)
    assert path.read_bytes() == before
    assert not archive.exists()


def test_a_line_that_a_person_wrote_while_the_pass_ran_wins(workspace, monkeypatch):
    write_memory(workspace, b"", b"- 2026-05-09: the proxy was moved yesterday\n")
    path, real, met = workspace.home("velma") / "memory.md", Runs.apply, []

    def slow(*given):
        if not met:
            met.append(1)
            path.write_bytes(path.read_bytes() + b"- 2026-05-10: mine, written yesterday\n")
        return real(*given)

    monkeypatch.setattr(Runs, "apply", slow)
    assert tidy(workspace).run
    assert path.read_bytes() == b"- 2026-05-09: the proxy was moved 2026-05-08\n- 2026-05-10: mine, written yesterday\n"


@pytest.mark.parametrize("words", [("edit", "{}", "--set", "text=Back it up"), ("correct", "--same", "{}", *WRONG)])
def test_what_somebody_edits_or_confirms_while_the_pass_runs_wins(tmp_path, monkeypatch, words):
    stand, write = Stage(tmp_path), tidying._write
    for agent in ("tank", "velma"):
        stand.run("w", "init", "--agent", agent)
    each = stand.correct("w", "The build broke yesterday in CI", "--agent", "velma")

    def waits(*given) -> None:
        stand.run("w", *(word.format(each) for word in words), "--agent", "tank")
        write(*given)

    monkeypatch.setattr(tidying, "_write", waits)
    done = stand.run("w", "tidy", "--mode", "always", "--agent", "velma")
    assert f"somebody wrote there while they were tidied: {each} (text)" in done.stderr
    text = json.loads(stand.run("w", "show", each, "--json").stdout)["text"]
    assert text == ("Back it up" if words[0] == "edit" else "The build broke yesterday in CI")


# --- the cap, the record, and machines ------------------------------------------------------------------------------


def test_a_plan_that_changes_too_much_waits_in_the_inbox(workspace):
    for number in range(21):
        note(workspace, number, f"It broke yesterday, for the {number}th time")
    done = tidy(workspace)
    assert done.run == ""
    (waiting,) = Inbox(workspace, "velma").waiting("plan")
    assert waiting.item.id == done.pending
    assert waiting.item.title == "Tidying would change 21 of 21 notes of velma"
    assert "yesterday" in waiting.item.diff
    assert workspace.notes("velma").get(f"p-{0:016x}").text.startswith("It broke yesterday")
    done = inboxes.approve(workspace, "velma", waiting.item.id)
    assert workspace.notes("velma").get(f"p-{0:016x}").text.startswith("It broke 2")
    undoing.undo(workspace, done.run)
    assert workspace.notes("velma").get(f"p-{0:016x}").text.startswith("It broke yesterday")


def test_a_plan_that_only_grew_older_since_it_was_shown_is_carried_out(workspace, wall):
    for number in range(21):
        note(workspace, number, f"The valve number {number * 37} sticks", START_MS - 200 * DAY_MS)
    waiting = tidy(workspace).pending
    assert "days old" in Inbox(workspace, "velma").waiting("plan")[0].item.diff
    wall.ms += DAY_MS
    assert inboxes.approve(workspace, "velma", waiting).run


def test_a_plan_that_grew_since_it_was_shown_waits_anew(workspace):
    for number in range(21):
        note(workspace, number, f"It broke yesterday, for the {number}th time")
    waiting = tidy(workspace).pending
    note(workspace, 21, "It broke yesterday, once more")
    with pytest.raises(NoError, match=f"{waiting} waits anew"):
        inboxes.approve(workspace, "velma", waiting)
    assert workspace.notes("velma").get(f"p-{0:016x}").text.startswith("It broke yesterday")
    (again,) = Inbox(workspace, "velma").waiting("plan")
    assert again.item.title == "Tidying would change 22 of 22 notes of velma"
    inboxes.approve(workspace, "velma", again.item.id)
    assert workspace.notes("velma").get(f"p-{21:016x}").text.startswith("It broke 2")


def test_a_plan_whose_diff_is_cut_says_so_and_a_yes_is_for_the_rest_of_it_too(stand):
    workspace = Workspace(stand.folder / "w")
    now_ms = int(time.time() * 1000)
    for number in range(100, 121):
        note(workspace, number, f"It broke yesterday, {number} times{' and again' * 100}", now_ms - HOUR_MS)
    waits = tidied(stand)
    (shown,) = json.loads(stand.run("w", "inbox", "--json").stdout)["waiting"]
    last = shown["diff"].splitlines()[-1]
    assert re.fullmatch(r"\.\.\. and \d+ more lines: fleet tidy --mode always --dry-run --json", last)
    assert f"p-{120:016x}" not in shown["diff"]
    note(workspace, 120, f"It failed yesterday, 120 times{' and again' * 100}", now_ms)  # what nobody was shown
    assert f"{waits} waits anew" in stand.run("w", "inbox", "approve", waits, expect=1).stderr
    assert workspace.notes("velma").get(f"p-{0:016x}").text.startswith("It broke yesterday")
    stand.run("w", "inbox", "approve", waits)
    assert workspace.notes("velma").get(f"p-{120:016x}").text.startswith("It failed 2")
    workspace.close()


def test_a_note_that_gets_a_date_and_is_archived_is_one_change(workspace):
    for number in range(11):
        old = START_MS - 300 * DAY_MS
        note(workspace, number, f"It broke yesterday, for the {number}th time", old, importance=0.1)
    done = tidy(workspace)
    assert (done.report.absolutized_dates, done.report.archived, done.plan.notes_changed) == (11, 11, 11)
    assert done.run  # not more than the 20 that a run may change


def noted(stand: Stage, first: int = 0) -> None:
    """Put more dated notes into velma's notebook than a run changes by itself."""
    workspace = Workspace(stand.folder / "w")
    for number in range(first, first + 21):
        note(workspace, number, f"It broke yesterday, for the {number}th time", int(time.time() * 1000) - HOUR_MS)
    workspace.close()


@pytest.fixture
def stand(tmp_path):
    made = Stage(tmp_path)
    made.run("w", "init", "--agent", "velma")
    noted(made)
    return made


def tidied(stand: Stage) -> str:
    """Return the id that the plan of ``fleet tidy`` waits as."""
    return json.loads(stand.run("w", "tidy", "--mode", "always", "--json").stdout)["waits"]


def test_a_plan_that_was_rejected_does_not_wait_and_says_how_it_would(stand):
    waits = tidied(stand)
    run = json.loads(stand.run("w", "inbox", "reject", "--all", "plan", "--json").stdout)["decided"][0]["run"]
    for words in (["tidy", "--mode", "always"], ["sleep", "--only", "tidy"]):
        said = stand.run("w", *words).stdout
        assert "waits as" not in said
        assert f"a person rejected it as {waits}; `fleet undo {run}` lets it wait again" in said
    assert tidied(stand) == ""
    stand.run("w", "undo", run)
    assert f"It waits as {waits}: fleet inbox" in stand.run("w", "tidy", "--mode", "always").stdout
    stand.run("w", "inbox", "approve", waits)


def test_after_a_plan_was_approved_another_one_of_the_same_day_waits(stand):
    for _ in range(2):
        stand.run("w", "inbox", "approve", tidied(stand))
        assert not tidied(stand)
        noted(stand, 100)


def test_20_changes_are_always_allowed_and_a_tenth_of_many(workspace):
    assert [workspace.config.sleep.changes_max(total) for total in (0, 20, 200, 10_000)] == [20, 20, 20, 1_000]


def test_each_change_is_a_line_so_that_two_machines_passes_merge(tmp_path, wall):
    homes = []
    for name in ("one", "two"):
        (tmp_path / name).mkdir()
        here = opened(tmp_path / name, wall)
        note(here, 1, "The build broke yesterday")
        note(here, 2, PIN, START_MS - DAY_MS)
        note(here, 3, f"{PIN}.")
        tidy(here)
        homes.append(here)
    both = b"".join(here.notes_file("velma").read_bytes() for here in homes)
    for here in homes:
        here.notes_file("velma").write_bytes(both)
    read = [{each.id: each.fields for each in here.notes("velma").records()} for here in homes]
    assert read[0] == read[1]
    assert read[0][f"p-{2:016x}"]["stage"] == "consolidated"
    assert [tidy(here).run for here in homes] == ["", ""]
    for here in homes:
        here.close()


def test_a_pass_is_recorded_with_what_it_came_to(workspace):
    note(workspace, 1, "The build broke yesterday")
    done = tidy(workspace)
    (told,) = Records(workspace, "velma").passes()
    assert (told.record.run, told.record.kind, told.record.writers[0].count) == (done.run, "tidy", 1)


# --- the command ----------------------------------------------------------------------------------------------------


def test_the_command_shows_a_plan_does_it_and_undo_takes_it_back(tmp_path):
    stand = Stage(tmp_path)
    stand.run("w", "init", "--agent", "velma")
    each = stand.correct("w", "The build broke yesterday in CI")
    shown = stand.run("w", "tidy", "--mode", "always", "--dry-run").stdout
    assert "- The build broke yesterday in CI" in shown
    assert shown.endswith("nothing was changed\n")
    done = json.loads(stand.run("w", "tidy", "--mode", "always", "--json").stdout)
    assert done["absolutized_dates"] == 1
    assert done["skipped"] is None
    assert "yesterday" not in stand.run("w", "show", each).stdout.split("\n")[0]
    stand.run("w", "undo", done["run"])
    assert "The build broke yesterday in CI" in stand.run("w", "show", each).stdout


def test_the_command_reads_a_report_from_a_file_or_its_input(tmp_path):
    stand = Stage(tmp_path)
    stand.run("w", "init", "--agent", "velma")
    (tmp_path / "w/report.md").write_text(REPORT)
    said = json.loads(stand.run("w", "tidy", "--report", "report.md", "--json").stdout)
    assert said["dream_report_ingested"] == {"consolidated": 4, "removed": 1, "reindexed": 9}
    assert said["skipped"] == "AutoDreamAlreadyRan"
    said = json.loads(stand.run("w", "tidy", "--report", "-", "--json", text=REPORT.replace("4", "5")).stdout)
    assert said["dream_report_ingested"]["consolidated"] == 5
    assert "was read before" in stand.run("w", "tidy", "--report", "report.md").stderr
    for text in ("", "no heading", "\0" * 500_000):
        assert "has no `## Organization Report`" in stand.run("w", "tidy", "--report", "-", text=text).stderr


@pytest.mark.parametrize("words", [("--mode", "never"), ("--report", "no-such-file")])
def test_bad_words_change_nothing_and_say_so(tmp_path, words):
    stand = Stage(tmp_path)
    stand.run("w", "init", "--agent", "velma")
    assert words[1] in stand.run("w", "tidy", *words, expect=2).stderr


# --- bad input ------------------------------------------------------------------------------------------------------


def test_a_note_of_which_nobody_says_when_it_was_written_is_left_as_it_is(workspace):
    with workspace.writing("velma") as writer:
        column = Column(
            add=clock.pack(START_MS + 400 * DAY_MS), first={"scope": "private", "text": "It broke yesterday"}
        )
        writer.append_private([Line(f"p-{1:016x}", {ME: column})])
    assert tidy(workspace).plan.changes == ()


@pytest.mark.parametrize(
    "fields",
    [
        {"stage": 7},
        {"stage": "asleep"},
        {"consolidated_from": "p-1"},
        {"consolidated_from": [1, None, f"p-{1:016x}", f"p-{2:016x}"]},
        {"importance": "high"},
        {"importance": -5},
        {"importance": 1e308},
        {"tags": "ci"},
        {"tags": [1, ["ci"]]},
    ],
)
def test_odd_values_of_a_record_cost_nothing_but_themselves(workspace, fields):
    note(workspace, 1, "The build broke yesterday", **fields)
    note(workspace, 2, "The cache broke yesterday", consolidated_from=[f"p-{1:016x}"])
    assert tidy(workspace).report.absolutized_dates == 2


@pytest.mark.parametrize("rubbish", [b"\x00\xff" * 500, b"<<<<<<< HEAD\n", b'{"id":"p-', b"\xef\xbb\xbf{}\n"])
def test_rubbish_in_the_private_file_costs_its_own_line(workspace, rubbish):
    note(workspace, 1, "The build broke yesterday")
    path = workspace.notes_file("velma")
    path.write_bytes(path.read_bytes() + rubbish + b"\n")
    assert tidy(workspace).report.absolutized_dates == 1


def test_records_that_cannot_be_read_stop_no_pass(workspace):
    note(workspace, 1, "The build broke yesterday")
    (workspace.home("velma") / records.FILE_NAME).write_bytes(
        b'\xff\xfe{"run":\n{"run":"tidy-x","kind":"tidy","raw":"{","at":"x"}\n'
    )
    assert tidy(workspace, Mode.COORDINATED).report.skipped is not None
    assert tidy(workspace).report.absolutized_dates == 1


def test_a_zone_that_nobody_knows_is_utc(tmp_path, wall):
    here = opened(tmp_path, wall, '[sleep]\nzone = "Mars/Olympus"\n')
    with here.writing("velma"):
        pass
    note(here, 1, "The build broke yesterday")
    assert tidy(here).report.absolutized_dates == 1
    here.close()


def test_tidy_names_a_zone_that_nobody_knows(tmp_path):
    stage = Stage(tmp_path)
    stage.run("w", "init", "--agent", "velma", "--yes")
    stage.run("w", "config", "set", "sleep.zone", "Europe/Berlin")
    toml = tmp_path / "w/fleet.toml"
    toml.write_text(toml.read_text().replace("Europe/Berlin", "Mars/Olympus"))
    assert "'Mars/Olympus'" in stage.run("w", "tidy", "--mode", "always").stderr
