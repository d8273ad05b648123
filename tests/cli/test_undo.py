"""``fleet undo``: the last command, or any run, is taken back; what was written or said since stays."""

import errno
import json
import os
import pty
import re
import shutil
import subprocess
import sys
import threading
from contextlib import closing, suppress
from pathlib import Path
from typing import Any

import pytest

from fleet.app import learning, lessons, reflecting, undoing
from fleet.cli import commands
from fleet.learn import counting
from fleet.learn.corrections_md import Correction
from fleet.model.errors import DiskError
from fleet.reflect import inbox
from fleet.reflect.inbox import Inbox, Item
from fleet.reflect.records import Record, Records, Written
from fleet.store.files import Files
from fleet.store.runs import PART, Field, Run, Runs
from fleet.store.workspace import Workspace, Writer
from tests.reflect.talks import Talk, taught

NOW_MS = 1_795_262_400_000
LESSON = "Quote every variable in a shell script"
OTHER = "Pin the version of every action"


def undo(stage, *words: str, expect: int = 0) -> dict:
    return json.loads(stage.run("w", "undo", "--json", *words, expect=expect).stdout or "{}")


def listed(stage) -> list[dict]:
    return json.loads(stage.run("w", "undo", "--list", "--all", "--json").stdout)["runs"]


def shown(stage, pattern: str) -> dict:
    return json.loads(stage.run("w", "show", pattern, "--json").stdout)


def fields(stage, pattern: str) -> dict[str, dict]:
    return json.loads(stage.run("w", "edit", pattern, "--json").stdout)["fields"]


def known(stage) -> dict[str, str]:
    return {each["text"]: each["state"] for each in stage.patterns("w", "--all")["patterns"]}


def files(stage) -> dict[str, bytes]:
    root: Path = stage.folder / "w"
    found = [each for each in (root / "agents").rglob("*.md") if each.is_file()]
    return {each.relative_to(root).as_posix(): each.read_bytes() for each in sorted(found)}


def test_an_empty_id_is_no_run_and_takes_nothing_back(w):
    w.correct("w", LESSON)
    assert "no run here is called that" in undo(w, "", expect=1)["error"]
    assert known(w) == {LESSON: "candidate"}
    assert undo(w)["kind"] == "correct"


def test_the_last_command_is_a_persons_and_no_part_of_what_fleet_did_since(w):
    w.correct("w", LESSON)
    workspace = Workspace(w.folder / "w")
    with Runs(workspace).recording("velma", "correct") as draft:
        draft.summary, draft.lessons = "logged by a sleep", ["p-0123456789abcdef"]
    part = Field(draft.run, PART, None, draft.run)
    run = Run(id="sleep-1", kind="sleep", agent="velma", at=workspace.wall(), summary="slept", fields=(part,))
    Runs(workspace).apply(run)
    workspace.close()
    told = w.run("w", "undo").stdout
    assert "taken back: correct-" in told
    assert known(w) == {LESSON: "retired"}


# --- the last command -----------------------------------------------------------------------------------------------


_LEFT_TO_STAND = (
    ("feedback", "{id}", "--helped"),
    ("journal", "--title", "A day", "--ok", "It worked"),
    ("observe", "fix", "Quoted", "it"),
    ("mutate", "M5", "--failed", "a", "--switch", "b", "--why", "c"),
    ("pause",),
    ("install", "claude-code"),
    ("init", "--author", "none"),
)


@pytest.mark.parametrize("words", _LEFT_TO_STAND, ids=lambda words: words[0])
def test_a_command_that_leaves_no_run_is_not_passed_over_for_an_older_one(w, words):
    id_ = w.correct("w", LESSON)
    w.run("w", *(word.format(id=id_) for word in words))
    done = w.run("w", "undo", expect=1)
    assert f"`fleet {words[0]}" in done.stderr, "the command that stands in the way is named"
    assert "`fleet undo correct-" in done.stderr, "and how the one before it is taken back"
    assert known(w)[LESSON] != "retired"
    (run,) = [each["id"] for each in listed(w) if each["kind"] == "correct"]
    undo(w, run)
    assert known(w)[LESSON] == "retired"


def test_what_somebody_sets_while_an_undo_waits_stays(w, monkeypatch):
    id_ = w.correct("w", LESSON)
    w.run("w", "edit", id_, "--set", "category=shell")
    run, writing = listed(w)[0]["id"], Workspace.writing

    def waits(*given: Any) -> Any:
        monkeypatch.setattr(Workspace, "writing", writing)
        w.run("w", "edit", id_, "--set", "category=database")
        return writing(*given)

    monkeypatch.setattr(Workspace, "writing", waits)
    told = w.run("w", "undo", run).stdout
    assert f"left: {id_}: category was set to something else since, and stays" in told
    assert fields(w, id_)["category"]["value"] == "database"


def test_what_is_observed_while_an_undo_replaces_the_scratchpad_stays(w, monkeypatch):
    for number in range(3):
        w.run("w", "observe", "fix", "The parser build races", "--session", f"s{number}")
    w.run("w", "sleep", "--only", "observations")
    replace, threads = Files.replace, list[threading.Thread]()

    def meanwhile(self: Files, path: Path, data: bytes, **more: bool) -> None:
        if path.name == ".agents.local.md":
            monkeypatch.setattr(Files, "replace", replace)
            threads.append(threading.Thread(target=w.run, args=("w", "observe", "fix", "heard meanwhile")))
            threads[0].start()
            threads[0].join(3)
        replace(self, path, data, **more)

    monkeypatch.setattr(Files, "replace", meanwhile)
    undo(w, next(each["id"] for each in listed(w) if each["kind"] == "reflect"))
    threads[0].join()
    assert "heard meanwhile" in (w.folder / "w/.agents.local.md").read_text()


@pytest.mark.parametrize("command", ["migrate", "resume", "upgrade"])
def test_a_command_that_found_nothing_to_do_is_passed_over(w, command):
    (w.folder / "w/.agents.local.md").write_text("# Scratchpad\n\n- 2026-05-01: the build is slow\n")
    w.run("w", "migrate")
    w.run("w", "pause")
    w.run("w", "resume")
    w.correct("w", LESSON)
    w.run("w", command)
    assert undo(w)["kind"] == "correct"
    assert known(w)[LESSON] == "retired"


def test_the_end_of_a_pause_is_not_passed_over(w):
    w.correct("w", LESSON)
    for command in ("pause", "resume"):
        w.run("w", command)
    refused = w.run("w", "undo", expect=1).stderr
    assert "the last command here was `fleet resume`, which no bare `fleet undo` takes back" in refused
    assert "`fleet pause` does" in refused


def test_the_last_command_is_the_one_after_a_clock_that_ran_ahead_was_set_back(w):
    w.now_ms = NOW_MS
    w.correct("w", "Logged before the clock ran ahead")
    w.now_ms = NOW_MS + 400 * 86_400_000
    w.correct("w", LESSON)
    w.now_ms += 60_000
    w.correct("w", "Logged by a clock that ran ahead")
    w.now_ms = NOW_MS + 3_600_000
    w.correct("w", "Logged once it was put right")
    for last in ("Logged once it was put right", "Logged by a clock that ran ahead", LESSON, "Logged before the clock"):
        w.now_ms += 60_000
        assert last in w.run("w", "undo").stdout


def test_a_tidying_that_was_given_by_hand_is_the_last_command_where_it_did_something(w):
    w.correct("w", LESSON)
    w.run("w", "edit", w.correct("w", "The build broke yesterday"), "--set", "scope=private")
    w.run("w", "tidy", "--mode", "always")
    assert "yesterday" not in w.run("w", "patterns").stdout, "else nothing could be taken back"
    assert undo(w)["kind"] == "tidy"
    assert "The build broke yesterday" in w.run("w", "patterns").stdout
    assert known(w)[LESSON] != "retired"


def test_what_a_sync_promotes_while_its_undo_is_at_work_leaves_the_memory_all_the_same(w, monkeypatch):
    for _ in range(3):
        w.correct("w", LESSON)
    memory = w.folder / "w/agents/velma/memory.md"
    assert LESSON in memory.read_text(encoding="utf-8")
    undo_files = Runs.undo

    def with_a_sync(self: Runs, run_id: str, *more) -> object:
        done = undo_files(self, run_id, *more)
        with closing(Workspace(w.folder / "w")) as beside:
            assert reflecting.promote_all(beside), "the files are as they were, and the counts not yet"
        return done

    monkeypatch.setattr(Runs, "undo", with_a_sync)
    with closing(Workspace(w.folder / "w")) as workspace:
        undoing.undo(workspace)
    assert LESSON not in memory.read_text(encoding="utf-8")
    assert known(w)[LESSON] == "candidate"


def test_after_a_dismissal_the_statement_before_it_stays(w):
    (w.folder / "w/agents/velma/corrections.md").write_text(
        "## 2026-11-20 09:00 velma\n**Wrong:** a\n**Right:** b\n", encoding="utf-8"
    )
    w.correct("w", LESSON)
    w.run("w", "learn", "--dismiss", "--all")
    assert "`fleet learn --dismiss`" in w.run("w", "undo", expect=1).stderr
    assert known(w)[LESSON] != "retired"


def test_what_only_shows_or_carries_or_a_schedule_gave_stands_in_nobodys_way(w):
    w.correct("w", LESSON)
    for words in (("learn", "--waiting"), ("mutate", "--list"), ("tidy", "--dry-run"), ("doctor",), ("who",)):
        w.run("w", *words, expect=None)
    for words in (("sync",), ("compact",), ("render-patterns",), ("backup", "b.tar.gz"), ("start",)):
        w.run("w", *words)
    w.run("w", "sleep", FLEET_SCHEDULED="1")
    w.run("w", "feedback", "p-0000", "--helped", expect=1)
    assert undo(w)["kind"] == "correct"


def test_a_lesson_that_is_logged_again_after_its_undo_has_the_words_of_the_second_time_alone(w):
    wrong = ("--category", "typo", "--tag", "oops", "--trigger", "Bash:ls*")
    id_ = w.correct("w", LESSON, "--right", "zzz: leave the quotes out", *wrong)
    undo(w)
    assert w.correct("w", LESSON, "--right", "Quote it") == id_
    found = {name: each["value"] for name, each in fields(w, id_).items() if each["value"]}
    assert found == {"text": LESSON, "correct": "Quote it"}
    undo(w)
    undo(w, next(each["id"] for each in listed(w) if each["kind"] == "undo"))
    assert fields(w, id_)["correct"]["value"] == "Quote it"


def test_of_several_agents_in_one_folder_each_takes_back_its_own_last_command(w):
    w.correct("w", LESSON, FLEET_AGENT="a1")
    id_ = w.correct("w", OTHER, FLEET_AGENT="a2")
    w.run("w", "feedback", id_, "--helped", FLEET_AGENT="a2")
    assert w.run("w", "undo", "--list").stdout.count(" (a2)") == 1
    w.run("w", "undo", FLEET_AGENT="a1")
    assert {text: state == "retired" for text, state in known(w).items()} == {LESSON: True, OTHER: False}
    assert "no command here" in w.run("w", "undo", "--agent", "a3", expect=1).stderr
    assert "the last command here was `fleet feedback`" in w.run("w", "undo", "--agent", "a2", expect=1).stderr


def test_what_somebody_edits_while_an_occurrence_is_logged_is_no_part_of_its_undo(w, monkeypatch):
    id_, log_lock = w.correct("w", LESSON), Workspace.log_lock

    def waits(*given: Any) -> Any:
        monkeypatch.setattr(Workspace, "log_lock", log_lock)
        w.run("w", "edit", id_, "--set", "right=Quote all of them", "--set", "category=shell")
        return log_lock(*given)

    monkeypatch.setattr(Workspace, "log_lock", waits)
    w.run("w", "correct", "--wrong", "w", "--right", "r", "--pattern", LESSON, "--tag", "sh")
    undo(w)
    assert {name: fields(w, id_)[name]["value"] for name in ("correct", "category", "tags")} == {
        "correct": "Quote all of them",
        "category": "shell",
        "tags": [],
    }


def test_what_is_no_agents_is_the_last_command_of_whoever_is_named_and_a_decision_is_of_who_gave_it(w):
    w.run("w", "init", "--agent", "tank")
    w.run("w", "config", "set", "promotion.mode", "suggest")
    for number in range(3):
        pattern = w.correct("w", OTHER, "--trigger", "Bash:ls *", "--session", f"s-{number}")
    w.run("w", "sync")
    w.correct("w", LESSON, FLEET_AGENT="tank")
    item = json.loads(w.run("w", "inbox", "--json").stdout)["waiting"][0]["id"]
    w.run("w", "inbox", "approve", item, FLEET_AGENT="tank")
    w.run("w", "guard", pattern, "deny", FLEET_AGENT="tank")
    w.run("w", "config", "set", "promotion.own", "4", FLEET_AGENT="tank")
    told = [w.run("w", "undo", FLEET_AGENT="tank").stdout.split("-")[0] for _ in range(3)]
    assert told == ["taken back: config", "taken back: guard", "taken back: promote"]
    assert known(w)[LESSON] != "retired"


def test_a_right_way_that_was_taken_back_does_not_come_back_where_the_log_is_read_again(w):
    w.correct("w", LESSON, "--right", "zz: leave the quotes out")
    undo(w)
    log = w.folder / "w/agents/velma/corrections.md"
    with log.open("a") as file:
        file.write(f"\n## 2026-11-20 10:00Z\n**What I got wrong:** w\n**Pattern:** {LESSON}\n")
    w.run("w", "sync")
    undo(w, next(each["id"] for each in listed(w) if each["kind"] == "count"))
    shards = b"".join(path.read_bytes() for path in (w.folder / "w/clan-learnings/patterns.d").iterdir())
    log.write_text(f"<!-- a remark -->\n{log.read_text()}")
    w.run("w", "sync")
    assert b"".join(path.read_bytes() for path in (w.folder / "w/clan-learnings/patterns.d").iterdir()) == shards


@pytest.mark.parametrize("agent", ["w", "a1"])
def test_a_setting_and_a_guard_are_taken_back_by_whichever_agent_is_named(w, agent):
    id_ = w.correct("w", LESSON, "--trigger", "Bash:git push*", FLEET_AGENT=agent)
    w.run("w", "config", "set", "sleep.zone", "Europe/Berlin", FLEET_AGENT=agent)
    w.run("w", "guard", id_, "deny", FLEET_AGENT=agent)
    for kind in ("guard", "config", "correct"):
        assert json.loads(w.run("w", "undo", "--json", FLEET_AGENT=agent).stdout)["kind"] == kind


def test_an_agent_that_was_added_stands_in_the_way_of_a_bare_undo_and_one_that_works_here_already_does_not(w):
    w.correct("w", LESSON)
    w.run("w", "init", "--agent", "tnak")
    told = w.run("w", "undo", expect=1).stderr
    assert "the last command here was `fleet init --agent`" in told
    assert known(w)[LESSON] != "retired"
    w.correct("w", OTHER)
    w.run("w", "init", "--agent", "tnak")
    assert undo(w)["kind"] == "correct"
    assert known(w)[OTHER] == "retired"


@pytest.mark.parametrize("named", ["--same", "--pattern"])
def test_the_undo_of_a_further_occurrence_takes_its_words_back_too(w, named):
    def words() -> dict[str, object]:
        return {name: each["value"] for name, each in fields(w, id_).items() if each["value"]}

    id_ = w.correct("w", LESSON, "--right", "Quote it")
    before = words()
    more = ("--category", "shell", "--tag", "sh", "--trigger", "Bash:sh *")
    same = (named, id_ if named == "--same" else LESSON)
    told = w.run("w", "correct", "--wrong", "w", "--right", "zzz: leave the quotes out", *same, *more)
    assert "--right replaces 'Quote it'" in told.stderr
    changed = words()
    assert changed["correct"] == "zzz: leave the quotes out"
    undo(w)
    assert words() == before
    undo(w, next(each["id"] for each in listed(w) if each["kind"] == "undo"))
    assert words() == changed


def test_the_undo_of_a_later_edit_sets_no_words_of_an_earlier_one_that_was_undone(w):
    def right() -> object:
        return fields(w, id_)["correct"]["value"]

    id_ = w.correct("w", LESSON, "--right", "Quote it")
    for words in ("Quote each", "Quote all", "Quote most"):
        w.run("w", "edit", id_, "--set", f"right={words}")
    last, middle, first = (each["id"] for each in listed(w) if each["kind"] == "edit")
    undo(w, first)
    undo(w, middle)
    assert right() == "Quote most"
    undo(w, last)
    assert right() == "Quote it"
    undo(w, next(each["id"] for each in listed(w) if each["kind"] == "undo"))
    assert right() == "Quote most"


def test_the_undo_of_an_edit_sets_words_that_were_given_again_after_their_undo(w):
    id_ = w.correct("w", LESSON, "--right", "Quote it")
    w.run("w", "edit", id_, "--set", "right=Quote each")
    undo(w)
    w.run("w", "edit", id_, "--set", "right=Quote each")
    w.run("w", "edit", id_, "--set", "right=Quote all")
    undo(w)
    assert fields(w, id_)["correct"]["value"] == "Quote each"


def test_the_command_after_one_that_leaves_no_run_is_the_last_one(w):
    id_ = w.correct("w", LESSON)
    w.run("w", "feedback", id_, "--helped")
    w.correct("w", OTHER)
    assert undo(w)["kind"] == "correct"
    assert known(w) == {LESSON: known(w)[LESSON], OTHER: "retired"}
    w.run("w", "undo", expect=1)
    assert known(w)[LESSON] != "retired"


def test_an_undo_after_all_is_taken_back_names_no_earlier_command_as_the_last_one(w):
    w.run("w", "init", "--install", "none")
    w.correct("w", LESSON)
    undo(w)
    assert "no command here that could be taken back" in w.run("w", "undo", expect=1).stderr
    id_ = w.correct("w", LESSON)
    w.run("w", "feedback", id_, "--helped")
    w.correct("w", OTHER)
    undo(w)
    assert "all that can be taken back since `fleet feedback` is, and" in w.run("w", "undo", expect=1).stderr


@pytest.mark.parametrize("fault", [KeyboardInterrupt, DiskError])
def test_a_command_that_could_not_be_noted_is_not_passed_over_for_the_one_before_it(w, monkeypatch, fault):
    w.correct("w", LESSON)

    def fail(*_: object) -> str:
        raise fault("now")

    with monkeypatch.context() as patch, closing(Workspace(w.folder / "w")) as workspace, suppress(KeyboardInterrupt):
        patch.setattr(Runs, "_record", fail)
        learning.correct(workspace, "velma", Correction("w", "r", OTHER))
    told = w.run("w", "undo", expect=1).stderr
    assert "the last command here was `fleet correct`" in told
    assert "`fleet undo correct-" in told, "and how the one before it is taken back"
    assert known(w) == {LESSON: "candidate", OTHER: "candidate"}
    w.correct("w", "Say what is left")
    assert undo(w)["kind"] == "correct"
    w.run("w", "undo", expect=1)


def test_a_lesson_that_was_seen_once_more_enters_the_memory_again_after_what_took_it_in_is_undone(w):
    for each in range(4):
        id_ = w.correct("w", LESSON, "--session", f"s-{each}")
    memory = w.folder / "w/agents/velma/memory.md"
    undo(w, listed(w)[1]["id"])
    assert not memory.exists(), "the undo says that it is as it was"
    w.run("w", "poll", "--local")
    assert f"{LESSON} — right: r (seen 3 by velma; {id_})" in memory.read_text()


@pytest.mark.parametrize("number", [1, 2, 3])
def test_a_lesson_leaves_the_memory_with_any_of_the_occurrences_that_took_it_in(w, number):
    for each in range(3):
        id_ = w.correct("w", LESSON, "--session", f"s-{each}")
    memory = w.folder / "w/agents/velma/memory.md"
    assert f"{LESSON} — right: r (seen 3 by velma; " in memory.read_text()
    undone = undo(w, listed(w)[3 - number]["id"])["undone_by"]
    w.run("w", "poll", "--local")
    assert not memory.exists() or LESSON not in memory.read_text()
    assert known(w) == {LESSON: "candidate"}
    undo(w, undone)
    assert "seen 3 by velma" in memory.read_text()
    assert known(w) == {LESSON: "published"}
    w.run("w", "demote", id_)
    w.run("w", "promote", id_)
    undo(w, listed(w)[-number]["id"])
    assert "a person's yes" in memory.read_text(), "a person took it in"


@pytest.mark.parametrize("is_private", [False, True])
def test_an_import_of_a_known_lesson_calls_it_known_and_its_undo_counts_it(w, is_private):
    id_ = w.correct("w", LESSON)
    if is_private:
        w.run("w", "edit", id_, "--set", "scope=private")
    (w.folder / "notes.md").write_text(f"- {LESSON}\n- {OTHER}\n")
    done = w.run("w", "import", str(w.folder / "notes.md")).stdout
    assert "2 lessons read, 1 new and 1 counted for known ones" in done
    assert "imported 2 lessons and findings" in w.run("w", "undo", "--list").stdout
    undo(w)
    assert shown(w, id_)["seen"] == 1
    assert known(w) == {LESSON: "candidate", OTHER: "retired"}


@pytest.mark.parametrize("name", ["tank", "velma"])
def test_a_retire_that_is_redone_takes_no_confirmation_that_it_had_not_seen(stage, name):
    """Also where two machines have agents of one name."""
    stage.join("velma", "w")
    stage.join(name, "there")
    id_ = stage.correct("w", LESSON)
    stage.run("w", "sync")
    stage.run("there", "sync")
    stage.run("w", "retire", id_)
    retired = listed(stage)[0]["id"]
    stage.run("w", "sync")
    stage.correct("there", LESSON, "--same", id_)
    stage.run("there", "sync")
    stage.run("w", "sync")
    undone = undo(stage, retired)["undone_by"]
    stays = undo(stage, undone)["left"]
    assert f"{id_} stays: {name}." in stays[0]
    assert "confirmed it since" in stays[0]
    assert known(stage) == {LESSON: "candidate"}


@pytest.mark.parametrize("is_heard", [True, False])
def test_a_retire_that_is_redone_retires_what_its_undo_brought_back(stage, is_heard):
    for agent in ("velma", "tank"):
        stage.join(agent, {"velma": "w"}.get(agent))
    id_ = stage.correct("tank", LESSON)
    stage.run("tank", "sync")
    stage.run("w", "sync")
    stage.run("w", "retire", id_)
    undone = undo(stage)["undone_by"]
    if is_heard:
        stage.run("w", "sync")
    assert known(stage) == {LESSON: "candidate"}
    undo(stage, undone)
    assert known(stage) == {LESSON: "retired"}


def test_what_was_private_says_where_its_counts_come_from(w):
    id_ = w.correct("w", LESSON)
    w.run("w", "edit", id_, "--set", "scope=private")
    w.correct("w", LESSON)
    w.run("w", "edit", id_, "--set", "scope=clan")
    shown = w.run("w", "show", id_).stdout
    assert "1 by velma" in shown
    assert "1 written by hand, imported, a guest's, or counted while it was private" in shown


def test_what_was_refused_or_changed_nothing_stands_in_nobodys_way(w):
    id_ = w.correct("w", LESSON)
    w.run("w", "discover", "--problem", "p", "--solution", "x" * 100_000, expect=3)
    w.run("w", "restore", id_, expect=1)
    w.run("w", "edit", id_, "--set", f"text={LESSON}")
    assert undo(w)["kind"] == "correct"
    assert not list((w.folder / "w/.fleet/runs").glob("*.begun"))


@pytest.mark.parametrize("words", ["discover --problem p --solution s", "edit ID --set text=T", "retire ID"])
def test_what_had_no_room_on_the_disk_stands_in_nobodys_way(w, monkeypatch, words):
    id_ = w.correct("w", LESSON)

    def fail(*_: object) -> None:
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    with monkeypatch.context() as patch:
        patch.setattr(Files, "_write_all", fail)
        w.run("w", *words.replace("ID", id_).split(), expect=6)
    assert undo(w)["kind"] == "correct"


def test_a_correction_that_cannot_be_counted_yet_is_not_passed_over_for_the_one_before_it(w):
    w.correct("w", LESSON)
    register = w.folder / "w/.fleet/replica.toml"
    register.rename(register.with_suffix(".old"))
    register.mkdir()
    for number in range(3):
        w.run("w", "correct", "--wrong", "w", "--right", "r", "--pattern", f"{OTHER} {number}")
    assert len(list((w.folder / "w/.fleet/runs").glob("*.begun"))) == 1, "the last command's alone"
    register.rmdir()
    register.with_suffix(".old").rename(register)
    assert "the last command here was `fleet correct`" in w.run("w", "undo", expect=1).stderr
    assert known(w)[LESSON] == "candidate"


def test_of_a_batch_of_which_one_is_not_counted_yet_the_others_are_taken_back(w, monkeypatch):
    tick, times = Writer.tick, [0]

    def fail_once(self: Writer) -> str:
        times[0] += 1
        if times[0] == 1:
            raise DiskError("the clock is damaged")
        return tick(self)

    batch = [(Correction("w", "r", text), "s") for text in (LESSON, OTHER, "Say what is left")]
    with monkeypatch.context() as patch, closing(Workspace(w.folder / "w")) as workspace:
        patch.setattr(Writer, "tick", fail_once)
        learning.correct_all(workspace, "velma", batch)
        assert "`fleet undo` takes back only what is counted" in workspace.warnings[-1]
    assert undo(w)["kind"] == "import"
    assert {text for text, state in known(w).items() if state != "retired"} <= {LESSON}


def test_a_discovery_that_waits_is_not_passed_over_for_the_command_before_it(w):
    w.correct("w", LESSON)
    (w.folder / "w/clan-learnings/discoveries.d").write_text("")
    w.run("w", "discover", "--problem", "p", "--solution", "s")
    assert "the last command here was `fleet discover`" in w.run("w", "undo", expect=1).stderr
    assert known(w) == {LESSON: "candidate"}


def test_a_command_that_ended_midway_is_not_passed_over_for_the_one_before_it(w, monkeypatch):
    w.run("other", "init", "--agent", "tank")
    for text in (OTHER, "Say what is left"):
        w.correct("other", text)
    w.run("other", "backup", "b.tar.gz")
    w.correct("w", LESSON)
    whole, left = Files._write_all, [1]

    def some(self: Files, handle: int, data: bytes) -> None:
        left[0] -= 1
        if left[0] < 0:
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
        whole(self, handle, data)

    with monkeypatch.context() as patch:
        patch.setattr(Files, "_write_all", some)
        w.run("w", "restore-backup", str(w.folder / "other/b.tar.gz"), "--yes", expect=6)
    assert "the last command here was `fleet restore-backup`" in w.run("w", "undo", expect=1).stderr
    assert known(w)[LESSON] == "candidate"


def test_each_command_is_known_to_undo_or_left_to_stand_or_changes_nothing_that_anybody_said():
    leaves_a_run = "correct learn discover inbox review edit retire restore merge unmerge guard promote demote"
    leaves_a_run += " import config undo"
    says_nothing = "search patterns show gossip start stats handover records status export help completion hook who"
    says_nothing += " sync compact render-patterns backup poll sidecar live doctor init"
    left_to_stand = {name for name, traits in commands.TRAITS.items() if "no-run" in traits}
    known_ones = {*leaves_a_run.split(), *says_nothing.split(), *left_to_stand}
    assert set(commands.MODULES) <= known_ones
    assert not left_to_stand & {*leaves_a_run.split()} - {"learn"}


def test_to_ask_for_all_runs_without_the_list_takes_none_back(w):
    w.correct("w", LESSON)
    assert "--all belongs to --list" in w.run("w", "undo", "--all", expect=2).stderr
    assert known(w)[LESSON] == "candidate"


def test_what_changes_nothing_stands_in_nobodys_way(w):
    w.correct("w", LESSON)
    assert "nothing was changed" in w.run("w", "uninstall", "claude-code").stdout
    w.run("w", "backup", "b.tar.gz")
    w.run("w", "restore-backup", "b.tar.gz", "--yes")
    talk = Talk(w.folder / "talk.jsonl").says("list the files").agent("a.py, b.py").says("thank you")
    assert "saved nothing" in w.run("w", "reflect", "--transcript", str(talk.path)).stdout
    assert "reflected on" in w.run("w", "reflect", "--transcript", str(talk.path)).stdout
    assert undo(w)["kind"] == "correct"


def test_a_reflector_that_was_chosen_on_the_way_is_not_passed_over(w):
    w.correct("w", LESSON)
    talk = Talk(w.folder / "talk.jsonl").says("list the files").agent("a.py, b.py").says("thank you")
    w.run("w", "reflect", "--use", "rules", "--transcript", str(talk.path))
    assert "`fleet reflect`" in w.run("w", "undo", expect=1).stderr
    assert known(w)[LESSON] == "candidate"


def test_each_undo_takes_back_the_reflection_before_and_then_the_command_before_all(w):
    w.run("w", "config", "set", "recall.at_prompts", "2")
    for number in range(3):
        talk = taught(w.folder / f"talk{number}.jsonl", f"5e551000-0000-4000-8000-00000000000{number}")
        w.run("w", "reflect", "--transcript", str(talk.path))
    runs = [undo(w) for _ in range(4)]
    assert [each["kind"] for each in runs] == ["reflect", "reflect", "reflect", "config"]


@pytest.mark.parametrize("command", ["tidy", "sleep", "consolidate --force"])
def test_a_pass_that_changed_nothing_stands_in_nobodys_way(w, command):
    w.run("w", *command.split(), expect=None)
    w.correct("w", LESSON)
    w.run("w", *command.split(), expect=None)
    assert undo(w)["kind"] == "correct"


def test_an_answer_to_a_pair_that_is_taken_back_stands_in_nobodys_way(w):
    w.correct("w", "Run the linter before a push")
    w.correct("w", "Run mypy before a push")
    [pair] = json.loads(w.run("w", "review", "--json").stdout)["pairs"]
    w.run("w", "review", "--answer", f"{pair['pair']}=same")
    assert undo(w)["kind"] == "merge"
    assert undo(w)["kind"] == "correct"
    assert known(w) == {"Run the linter before a push": "candidate", "Run mypy before a push": "retired"}


_DATED = "## 2026-11-20 14:00Z — t\n**What I got wrong:** w\n**Correct approach:** r\n**Pattern:** {} yesterday\n\n"


@pytest.mark.parametrize(
    "words", [("tidy",), ("sleep", "--only", "tidy"), ("sleep",), ("tidy", "--report", "report.md")], ids=" ".join
)
def test_a_pass_that_only_put_something_to_a_person_or_read_a_report_is_not_passed_over(w, words):
    if "--report" in words:
        report = "## Organization Report\nConsolidated: 3 entries\nRemoved: 1\nRe-indexed: 2 files\n"
        (w.folder / "w/report.md").write_text(report, encoding="utf-8")
    else:
        rows = [_DATED.format(f"Service {number} failed on rack r{number}") for number in range(21)]
        (w.folder / "w/agents/velma/corrections.md").write_text("".join(rows), encoding="utf-8")
    w.run("w", "sync")
    w.correct("w", LESSON)
    shown = w.run("w", *words)
    assert "`fleet undo " not in shown.stdout, "else it left a run"
    done = w.run("w", "undo", expect=1)
    assert f"the last command here was `fleet {words[0]}`" in done.stderr
    assert "`fleet undo correct-" in done.stderr
    assert known(w)[LESSON] != "retired"


def test_a_tidying_that_is_taken_back_stands_in_nobodys_way(w):
    w.correct("w", LESSON)
    w.run("w", "edit", w.correct("w", "The build broke yesterday"), "--set", "scope=private")
    w.run("w", "tidy", "--mode", "always")
    assert [undo(w)["kind"] for _ in range(4)] == ["tidy", "edit", "correct", "correct"]


def test_a_correction_is_taken_back_and_its_lesson_with_it_and_the_log_says_so(w):
    pattern = w.correct("w", LESSON)
    entry = (w.folder / "w/agents/velma/corrections.md").read_text()
    done = undo(w)
    assert done["kind"] == "correct"
    assert known(w) == {LESSON: "retired"}
    log = (w.folder / "w/agents/velma/corrections.md").read_text()
    assert log.startswith(entry), "nothing in a log is ever removed"
    assert "<!-- fleet undone c-" in log
    w.run("w", "sync")
    assert known(w) == {LESSON: "retired"}, "the log counts nothing anew"
    again = undo(w, done["undone_by"])
    assert known(w)[LESSON] != "retired"
    assert again["run"] == done["undone_by"]
    undo(w, again["undone_by"])
    assert shown(w, pattern)["state"] == "retired"


def test_a_lesson_that_others_met_since_stays_when_the_first_word_is_taken_back(w):
    w.correct("w", LESSON)
    first = listed(w)[0]["id"]
    w.run("w", "init", "--agent", "tank")
    w.correct("w", LESSON, "--agent", "tank")
    done = undo(w, first)
    assert any("stays" in each for each in done["left"])
    assert known(w)[LESSON] != "retired"


def test_of_one_lesson_said_three_times_the_last_undo_takes_it_out_and_the_first_leaves_the_memory_as_it_was(w):
    w.run("w", "correct", "--wrong", "w", "--right", "r", "--pattern", OTHER)
    for session in ("s1", "s2"):
        w.correct("w", LESSON, "--session", session)
    memory = w.folder / "w/agents/velma/memory.md"
    memory.write_text("# Mine\n\nmy own line\n")
    w.correct("w", LESSON, "--session", "s3")
    assert LESSON in memory.read_text()
    assert undo(w)["restored"] == ["agents/velma/memory.md"]
    assert memory.read_text() == "# Mine\n\nmy own line\n"
    assert known(w)[LESSON] != "retired"
    undo(w)
    assert known(w)[LESSON] != "retired"
    undo(w)
    assert known(w)[LESSON] == "retired"


def test_what_a_person_wrote_into_the_memory_since_a_promotion_stays(w):
    pattern = w.correct("w", LESSON)
    memory = w.folder / "w/agents/velma/memory.md"
    memory.write_text("# Mine\n\nmy own line\n")
    w.run("w", "promote", pattern)
    memory.write_text(memory.read_text().replace("my own line\n", "my own line\nand another\n"))
    done = undo(w)
    assert done["merged"] == ["agents/velma/memory.md"]
    assert memory.read_text() == "# Mine\n\nmy own line\nand another\n"
    assert shown(w, pattern)["state"] != "published"


def test_what_a_person_writes_into_a_memory_while_a_command_is_at_work_is_none_of_its_run(w, monkeypatch):
    pattern = w.correct("w", LESSON)
    memory = w.folder / "w/agents/velma/memory.md"
    memory.write_text("# Mine\n")
    reconcile_all = counting.reconcile_all

    def reconcile_while_a_person_writes(*args: object) -> int:
        if "meanwhile" not in memory.read_text():
            memory.write_text("# Mine\n\n- written meanwhile\n")
        return reconcile_all(*args)

    monkeypatch.setattr(counting, "reconcile_all", reconcile_while_a_person_writes)
    with closing(Workspace(w.folder / "w")) as workspace:
        lessons.retire(workspace, "velma", pattern)
    done = undo(w)
    assert (done["restored"], done["merged"]) == ([], [])
    assert memory.read_text() == "# Mine\n\n- written meanwhile\n"


def test_a_guard_that_was_set_to_something_else_since_stays(w):
    pattern = w.correct("w", LESSON, "--trigger", "Bash:rm *")
    w.run("w", "guard", pattern, "deny")
    w.run("w", "guard", pattern, "ask")
    second, first = (each["id"] for each in listed(w)[:2])
    assert "set to something else since, and stays" in " ".join(undo(w, first)["left"])
    guards = [each["decision"] for each in json.loads(w.run("w", "guard", "--json").stdout)["guards"]]
    assert guards == ["ask"]
    undo(w, second)
    guards = [each["decision"] for each in json.loads(w.run("w", "guard", "--json").stdout)["guards"]]
    assert guards == ["deny"]


def test_a_promotion_of_what_was_published_already_is_taken_back_and_done_again(w):
    pattern = w.correct("w", LESSON)
    w.run("w", "edit", pattern, "--set", "state=published")
    before = files(w)
    w.run("w", "promote", pattern)
    after = files(w)
    undo(w)
    assert files(w) == before
    undo(w, listed(w)[0]["id"])
    assert files(w) == after
    assert shown(w, pattern)["state"] == "published"


@pytest.mark.parametrize("command", ["retire", "edit", "merge", "promote", "demote", "restore", "private", "guard"])
def test_each_command_is_taken_back_and_done_again(w, command):
    pattern, other = w.correct("w", LESSON), w.correct("w", OTHER)
    if command == "demote":
        w.run("w", "promote", pattern)
    if command == "restore":
        w.run("w", "retire", pattern)
    words = {
        "retire": ("retire", pattern),
        "restore": ("restore", pattern),
        "edit": ("edit", pattern, "--set", "category=shell", "--set", "tags=a,b"),
        "private": ("edit", pattern, "--set", "scope=private"),
        "merge": ("merge", "--force", pattern, other),
        "promote": ("promote", pattern),
        "demote": ("demote", pattern),
        "guard": ("guard", other, "ask"),
    }[command]
    if command == "guard":
        w.run("w", "edit", other, "--set", "trigger=Bash:git push*")

    def seen() -> tuple[object, ...]:
        pages = {path: data for path, data in files(w).items() if not path.endswith("corrections.md")}
        # An edit that is taken back leaves an empty field, and a state that nobody set is a candidate's.
        said = [
            {name: each["value"] for name, each in fields(w, one).items() if each["value"] not in ("", [], "candidate")}
            for one in (pattern, other)
        ]
        return pages, said, known(w), json.loads(w.run("w", "guard", "--json").stdout)["guards"]

    before = seen()
    w.run("w", *words)
    after = seen()
    assert after != before
    done = undo(w)
    assert seen() == before
    assert next(each["kind"] for each in listed(w)) == "undo", "to undo is one run, and no other command's"
    undo(w, done["undone_by"])
    assert seen() == after


def test_a_discovery_is_taken_back_for_good_and_that_cannot_be_undone(w):
    w.run("w", "discover", "--problem", "the cache is stale", "--solution", "remove it")
    done = undo(w, "discover")
    assert json.loads(w.run("w", "gossip", "--json").stdout)["discoveries"] == []
    told = w.run("w", "undo", done["undone_by"], expect=1).stderr
    assert "for good" in told
    assert "Nothing was changed" in told


def test_a_bare_undo_asks_before_it_takes_a_discovery_back_for_good(w):
    w.run("w", "discover", "--problem", "the cache is stale", "--solution", "remove it")
    told = w.run("w", "undo", expect=2).stderr
    assert "for good: the cache is stale?" in told
    assert "nothing was changed" in told
    assert len(json.loads(w.run("w", "gossip", "--json").stdout)["discoveries"]) == 1
    assert re.search(r"`fleet undo discover-\S+` takes it back", told)
    for answer, left in (("n", 1), ("y", 0)):
        ours, theirs = pty.openpty()
        os.write(ours, f"{answer}\n".encode())
        try:
            done = subprocess.run(
                [sys.executable, "-m", "fleet", "undo"],
                cwd=w.folder / "w",
                env=w.environment(),
                stdin=theirs,
                capture_output=True,
                text=True,
                timeout=120,
                check=False,
            )
        finally:
            os.close(ours)
            os.close(theirs)
        assert "Take back for good: the cache is stale?" in done.stdout + done.stderr
        assert len(json.loads(w.run("w", "gossip", "--json").stdout)["discoveries"]) == left


def test_an_undone_import_with_a_discovery_is_redone_but_for_that_and_an_import_names_it(w):
    page = w.folder / "lessons.jsonl"
    finding = {"type": "gotcha", "problem": "the wheel is for x86", "solution": "pin the image", "context": "ci"}
    page.write_text(f"{json.dumps(finding)}\n{json.dumps({'lesson': LESSON})}\n")
    w.run("w", "import", str(page))
    told = w.run("w", "undo", "import").stdout
    assert "redoes all but d-" in told
    again = json.loads(w.run("w", "import", str(page), "--json").stdout)
    assert again["skipped"] == {"a discovery that was taken back, which is for good": 1}
    by = listed(w)[0]["id"]
    assert f"`fleet undo {by}` redoes it" in w.run("w", "undo", "import", expect=1).stderr
    redone = w.run("w", "undo", by).stdout
    assert "was taken back for good: nobody can bring it back" in redone
    assert known(w) == {LESSON: "candidate"}
    assert json.loads(w.run("w", "gossip", "--json").stdout)["discoveries"] == []


def test_a_discovery_that_was_retired_is_gone_for_good_and_what_came_before_can_be_named(w):
    w.correct("w", LESSON)
    before = listed(w)[0]["id"]
    w.run("w", "discover", "--problem", "the cache is stale", "--solution", "remove it")
    [found] = json.loads(w.run("w", "gossip", "--json").stdout)["discoveries"]
    w.run("w", "retire", found["id"], "--yes")
    told = w.run("w", "undo", expect=1).stderr
    assert "for good" in told
    assert "fleet undo --list" in told
    undo(w, before)
    assert known(w) == {LESSON: "retired"}


def test_an_import_is_taken_back_but_not_what_was_known_before_it(w):
    w.correct("w", LESSON)
    page = w.folder / "lessons.jsonl"
    page.write_text("".join(json.dumps({"pattern": text, "count": 1}) + "\n" for text in (LESSON, OTHER)))
    w.run("w", "import", str(page))
    assert len(known(w)) == 2
    undo(w)
    states = known(w)
    assert states.pop(OTHER) == "retired"
    assert "retired" not in states.values()


def test_an_import_of_many_is_taken_back_in_a_few_writes(w, monkeypatch):
    page = w.folder / "lessons.md"
    page.write_text("".join(f"- Always check the log of host {number} before a restart\n" for number in range(60)))
    w.run("w", "import", str(page))
    writing, taken = Workspace.writing, list[str]()

    def counted(self: Workspace, agent: str, *more: float):
        taken.append(agent)
        return writing(self, agent, *more)

    monkeypatch.setattr(Workspace, "writing", counted)
    with closing(Workspace(w.folder / "w")) as workspace:
        assert len(undoing.undo(workspace).did) == 60
    assert len(taken) < 10, "20,000 lessons took longer than six minutes"


def test_with_nothing_to_take_back_it_says_no(w):
    assert "no command here" in w.run("w", "undo", expect=1).stderr
    assert "no run here is called that" in w.run("w", "undo", "sleep-2026", expect=1).stderr


def test_what_is_taken_back_is_not_taken_back_again(w):
    w.correct("w", LESSON)
    run = listed(w)[0]["id"]
    undo(w, run)
    assert "taken back already" in w.run("w", "undo", run, expect=1).stderr


# --- a run of fleet's own -------------------------------------------------------------------------------------------


def reflect(folder: Path, pattern: str) -> str:
    """Do what a reflection does: notes in the memory, a lesson, a draft that waits, a record."""
    workspace = Workspace(folder)
    run = Runs(workspace).name("reflection")
    memory, draft = "agents/velma/memory.md", "agents/velma/skills/lint/SKILL.md"
    known_bytes = workspace.files.read(folder / memory)
    Runs(workspace).apply(
        Run(
            id=run,
            kind="reflection",
            agent="velma",
            at=workspace.wall(),
            summary="reflected on s1",
            edits=(
                Runs(workspace).page(memory).to(known_bytes + b"- 2026-05-09: a note\n"),
                Runs(workspace).page(draft).to(b"---\nname: lint\n---\nRun the linter.\n"),
            ),
            lessons=(pattern,),
        ),
    )
    body = {"draft": draft, "target": ".claude/skills/lint/SKILL.md"}
    Inbox(workspace, "velma").put([Item(kind="skill", title="Lint before a push", key="lint", run=run, body=body)])
    written = (Written(name="notes", count=1), Written(name="lessons", count=1, ids=(pattern,)))
    Records(workspace, "velma").append(Record(run=run, session="s1", outcome="success", usd=0.1, writers=written))
    workspace.close()
    return run


def test_one_undo_takes_a_reflection_back_whole_and_the_records_say_so(w):
    memory = w.folder / "w/agents/velma/memory.md"
    memory.write_text("# Memory\n\n## Notes\n")
    before = files(w)
    pattern = w.correct("w", LESSON)
    run = reflect(w.folder / "w", pattern)
    done = undo(w, run)
    now = files(w)
    now.pop("agents/velma/corrections.md")
    assert now == before
    assert not (w.folder / "w/agents/velma/skills/lint/SKILL.md").exists()
    assert known(w) == {LESSON: "retired"}
    [record] = json.loads(w.run("w", "records", "--json").stdout)["records"]
    assert record["undone"]
    assert json.loads(w.run("w", "inbox", "--json").stdout)["waiting"] == []
    rows = (w.folder / "w/agents/velma/reflections.jsonl").read_text().splitlines()
    assert [json.loads(row).get("line", "ran") for row in rows] == ["ran", "undone"]
    undo(w, done["undone_by"])
    assert memory.read_text().endswith("a note\n")
    assert known(w)[LESSON] != "retired"
    [record] = json.loads(w.run("w", "records", "--json").stdout)["records"]
    assert not record["undone"]
    assert len(json.loads(w.run("w", "inbox", "--json").stdout)["waiting"]) == 1


def test_the_undo_of_a_reflection_names_what_a_person_approved_of_it(w):
    run = reflect(w.folder / "w", w.correct("w", LESSON))
    [decided] = json.loads(w.run("w", "inbox", "approve", "--all", "skill", "--json").stdout)["decided"]
    left = f"{decided['id']} stays, by a person's yes: Lint before a push; `fleet undo {decided['run']}` takes it back"
    assert left in undo(w, run)["left"]
    assert (w.folder / "w/.claude/skills/lint/SKILL.md").exists()


def test_a_line_that_a_person_wrote_since_a_reflection_outlives_its_undo(w):
    memory = w.folder / "w/agents/velma/memory.md"
    memory.write_text("# Memory\n\n## Notes\n")
    run = reflect(w.folder / "w", w.correct("w", LESSON))
    memory.write_text(memory.read_text() + "- mine\n")
    done = undo(w, run)
    assert done["merged"] == ["agents/velma/memory.md"]
    assert memory.read_text() == "# Memory\n\n## Notes\n- mine\n"


def test_without_a_name_a_command_is_taken_back_and_never_what_fleet_did_by_itself(w):
    run = reflect(w.folder / "w", w.correct("w", LESSON))
    assert undo(w)["kind"] == "correct"
    assert "`fleet undo --list` names all runs" in w.run("w", "undo", expect=1).stderr
    assert run in w.run("w", "undo", "--list").stdout


def test_a_decision_that_fleet_carried_out_is_the_last_command(w):
    run = reflect(w.folder / "w", w.correct("w", LESSON))
    workspace = Workspace(w.folder / "w")
    item = Inbox(workspace, "velma").put([Item(kind="plan", title="Tidy the notes")])[0]
    Inbox(workspace, "velma").decide([inbox.Decision(id=item.id, outcome="approved", by="velma", run=run)])
    workspace.close()
    assert undo(w)["run"] == run
    assert "Tidy the notes" in w.run("w", "inbox").stdout


def test_an_undo_that_restores_the_configuration_gives_its_warnings_once(w):
    with (w.folder / "w/fleet.toml").open("a") as file:
        file.write("\n[nonsense]\nx = 1\n")
    w.run("w", "config", "set", "recall.at_prompts", "2")
    done = w.run("w", "undo")
    assert (done.stdout + done.stderr).count("no section [nonsense]") == 1


def test_an_import_of_one_lesson_is_listed_as_one(w):
    (w.folder / "w/lessons.md").write_text(f"# Lessons\n\n- {LESSON}\n")
    w.run("w", "import", "lessons.md")
    assert "imported 1 lesson or finding: " in w.run("w", "undo", "--list").stdout


def test_an_import_after_its_undo_says_that_the_lessons_are_retired_and_how_they_come_back(w):
    (w.folder / "w/lessons.md").write_text(f"# Lessons\n\n- {LESSON}\n- {OTHER}\n")
    w.run("w", "import", "lessons.md")
    back = undo(w)["undone_by"]
    again = w.run("w", "import", "lessons.md")
    assert "2 lessons read, 0 new" in again.stdout
    assert "2 lessons of these were imported before and retired since" in again.stderr
    assert "2 lessons of these were imported before" in w.run("w", "init", "--take-in").stderr
    first = json.loads(w.run("w", "import", "--json", "lessons.md").stdout)["retired"][0]
    assert f"fleet restore {first}" in again.stderr
    assert "retired" in {*known(w).values()}
    undo(w, back)
    assert "retired" not in {*known(w).values()}
    assert "retired since" not in w.run("w", "import", "lessons.md").stderr


def test_an_import_is_taken_back_though_the_folder_was_moved_since(w):
    (w.folder / "w/lessons.md").write_text(f"# Lessons\n\n- {LESSON}\n- {OTHER}\n")
    w.run("w", "import", "lessons.md")
    (w.folder / "w").rename(w.folder / "moved")
    done = json.loads(w.run("moved", "undo", "--json").stdout)
    assert not done["left"]
    found = json.loads(w.run("moved", "patterns", "--all", "--json").stdout)["patterns"]
    assert [(each["seen"], each["state"]) for each in found] == [(0, "retired")] * 2
    w.run("moved", "undo", done["undone_by"])
    found = json.loads(w.run("moved", "patterns", "--json").stdout)["patterns"]
    assert [each["seen"] for each in found] == [1, 1]


def test_what_a_copy_takes_back_stays_where_the_original_imported_it_as_well(stage):
    stage.join("velma")
    stage.run("velma", "sync")
    shutil.copytree(stage.folder / "velma", stage.folder / "copy")
    (stage.folder / "lessons.md").write_text(f"# Lessons\n\n- {LESSON}\n- {OTHER}\n")
    for name in ("velma", "copy"):
        stage.run(name, "import", "../lessons.md")
    for name in ("velma", "copy"):
        stage.run(name, "sync")
    stage.run("copy", "undo")
    stage.run("copy", "sync")
    stage.run("velma", "sync")
    assert [each["seen"] for each in stage.patterns("velma", "--all")["patterns"]] == [1, 1]


# --- what was undone, and the clan ----------------------------------------------------------------------------------


def branch(stage) -> str:
    paths = stage.git("ls-tree", "-r", "--name-only", "fleet", where="clan.git").split()
    return "".join(stage.git("show", f"fleet:{path}", where="clan.git") for path in paths)


def test_what_was_undone_before_it_had_left_stays_here_until_it_is_restored(stage):
    stage.join("w")
    stage.correct("w", "Keep the change log short")
    pattern = stage.correct("w", LESSON)
    back = undo(stage)["undone_by"]
    stage.run("w", "discover", "--problem", "the cache is stale", "--solution", "remove it")
    undo(stage, "discover")
    told = stage.run("w", "sync")
    assert "held back" not in told.stderr
    assert "Keep the change log short" in branch(stage)
    assert LESSON not in branch(stage)
    assert pattern not in branch(stage)
    assert "cache" not in branch(stage)
    undo(stage, back)
    stage.run("w", "sync")
    assert LESSON in branch(stage)
    undo(stage, next(each["id"] for each in listed(stage) if each["kind"] == "undo"))
    stage.run("w", "sync")
    stage.join("tank")
    stage.run("tank", "sync")
    found = json.loads(stage.run("tank", "show", pattern, "--json").stdout)
    assert (found["seen"], found["state"]) == (0, "retired"), "what had left is undone there as well"


def _renamed(stage) -> str:
    (stage.folder / "w").rename(stage.folder / "moved")
    return "moved"


def _copied(stage) -> str:
    shutil.copytree(stage.folder / "w", stage.folder / "copy")
    return "copy"


def _restored(stage) -> str:
    stage.run("w", "backup", "../b.tar.gz")
    stage.join("velma", "elsewhere")
    stage.run("elsewhere", "restore-backup", "../b.tar.gz", "--yes")
    return "elsewhere"


def _without_its_register(stage) -> str:
    shutil.rmtree(stage.folder / "w/.fleet")
    return stage.join("w")


@pytest.mark.parametrize("changed", [_renamed, _copied, _restored, _without_its_register])
def test_what_was_undone_before_it_had_left_stays_though_other_names_write_in_the_folder(stage, changed):
    stage.join("w")
    stage.correct("w", LESSON)
    back = undo(stage)["undone_by"]
    stage.run("w", "discover", "--problem", "the cache is stale", "--solution", "remove it")
    undo(stage, "discover")
    where = changed(stage)
    assert "0 lines would go out" in stage.run(where, "sync", "--dry-run").stderr
    stage.correct(where, OTHER)
    stage.run(where, "sync")
    assert OTHER in branch(stage)
    assert LESSON not in branch(stage)
    assert "cache" not in branch(stage)
    if changed in (_renamed, _copied):  # else the runs are gone
        stage.run(where, "undo", back)
        stage.run(where, "sync")
        assert LESSON in branch(stage)


def test_what_a_copy_undid_before_anybody_had_it_leaves_once_the_original_has_sent_it(stage):
    stage.join("w")
    pattern = stage.correct("w", LESSON)
    shutil.copytree(stage.folder / "w", stage.folder / "copy")
    stage.run("copy", "undo")
    assert "0 lines out" in stage.run("copy", "sync").stdout
    stage.run("w", "sync")
    assert LESSON in branch(stage)
    stage.run("copy", "sync")
    stage.join("tank")
    stage.run("tank", "sync")
    found = json.loads(stage.run("tank", "show", pattern, "--json").stdout)
    assert (found["seen"], found["state"]) == (0, "retired")


def undone_in_a_copy(stage) -> tuple[str, dict]:
    """Log a lesson, and undo that in a copy of the folder; return the lesson's id, and what the original is asked."""
    stage.join("velma")
    lesson = stage.correct("velma", LESSON, "--session", "s")
    stage.run("velma", "sync")
    shutil.copytree(stage.folder / "velma", stage.folder / "copy")
    stage.run("copy", "undo")
    stage.run("copy", "sync")
    stage.run("velma", "sync", expect=3)
    [asked] = json.loads(stage.run("velma", "review", "--json").stdout)["pairs"]
    stage.run("velma", "review", "--answer", f"{asked['pair']}=take")
    return lesson, asked


def test_an_answer_that_leaves_no_run_is_not_passed_over_for_the_command_before_it(stage):
    undone_in_a_copy(stage)
    assert "`fleet review --answer`" in stage.run("velma", "undo", expect=1).stderr


def test_what_was_undone_in_a_copy_is_asked_about_in_words_that_say_so_and_taken(stage):
    lesson, asked = undone_in_a_copy(stage)
    assert "you undid something in a copy of it" in asked["told"]
    shown = json.loads(stage.run("velma", "show", lesson, "--json").stdout)
    assert (shown["state"], shown["seen"]) == ("retired", 0)


def test_what_was_seen_was_seen_in_one_session_at_least_though_a_copy_undid_the_first(stage):
    lesson, _ = undone_in_a_copy(stage)
    stage.correct("velma", LESSON, "--session", "s")
    assert "1 time in 1 session\n" in stage.run("velma", "show", lesson).stdout


def test_own_discoveries_are_not_new_when_an_edition_folds_them(stage):
    stage.join("w")
    for number in range(2):
        stage.run("w", "discover", "--problem", f"cache {number} is stale", "--solution", "remove it")
        before = Workspace(stage.folder / "w")
        generation = before.patterns.generation
        before.close()
        assert "nothing new came in" in stage.run("w", "sync").stdout
    stage.run("w", "compact", "--yes")
    after = Workspace(stage.folder / "w")
    assert after.discoveries.changed(generation) == []
    after.close()


def test_a_merge_that_keeps_somebodys_words_edits_nothing(stage):
    for agent in ("velma", "tank"):
        stage.join(agent)
    one, other = stage.correct("velma", LESSON), stage.correct("tank", OTHER)
    for agent in ("velma", "tank", "velma"):
        stage.run(agent, "sync")
    larger, smaller = max(one, other), min(one, other)
    who = "velma" if smaller == other else "tank"
    stage.run(who, "merge", "--force", larger, smaller)
    [row] = json.loads(stage.run(who, "patterns", "--json").stdout)["patterns"]
    assert row["text"] == (LESSON if larger == one else OTHER)
    shown = stage.run(who, "patterns").stdout + stage.run(who, "show", one).stdout + stage.run(who, "start").stdout
    assert "edited by" not in shown
    assert "text was kept by a merge" in shown
    stage.run(who, "edit", row["id"], "--set", "text=Say it otherwise")
    assert "text: edited by" in stage.run(who, "start").stdout


def test_words_that_an_undo_puts_back_are_their_authors_and_edited_by_nobody(stage):
    for agent in ("velma", "tank"):
        stage.join(agent)
    one, other = stage.correct("velma", LESSON), stage.correct("velma", OTHER)
    for agent in ("velma", "tank"):
        stage.run(agent, "sync")
    stage.run("tank", "merge", "--force", max(one, other), min(one, other))
    stage.run("tank", "undo")
    stage.run("tank", "sync")
    shown = stage.run("tank", "patterns").stdout + stage.run("tank", "start").stdout
    assert "edited by" not in shown + stage.git("show", "fleet:README.md", where="clan.git")
    assert "text was put back" in stage.run("tank", "show", min(one, other)).stdout
    stage.run("velma", "edit", max(one, other), "--set", "text=Say it otherwise")
    for agent in ("velma", "tank"):
        stage.run(agent, "sync")
    stage.run("tank", "edit", max(one, other), "--set", f"text={LESSON if one > other else OTHER}")
    assert "text: edited by tank" in stage.run("tank", "patterns").stdout, "the author meant something else by now"


@pytest.mark.parametrize(("words", "sign"), [(("undo",), "Taking back"), (("doctor",), "Looking")])
def test_what_may_take_long_shows_on_a_terminal_that_it_is_at_work(w, words, sign):
    w.correct("w", LESSON)
    assert sign in w.on_a_terminal(*words, stream="stderr")


def test_an_undone_retirement_guards_its_step_again_at_once(w):
    pattern = w.correct("w", "Never run `git push --force` on main")
    w.run("w", "guard", pattern, "deny")

    def answer(session: str) -> str:
        call = {"tool_name": "Bash", "tool_input": {"command": "git push --force"}, "session_id": session}
        payload = json.dumps({**call, "cwd": str(w.folder / "w"), "hook_event_name": "PreToolUse"})
        return w.run("w", "hook", "PreToolUse", text=payload).stdout

    assert '"deny"' in answer("s-1")
    w.run("w", "retire", pattern)
    assert '"deny"' not in answer("s-2")
    undo(w)
    assert '"deny"' in answer("s-3")
