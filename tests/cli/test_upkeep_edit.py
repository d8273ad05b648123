"""``fleet edit``: the last writer wins; what enters is screened; what is not edited is refused, with the way to it."""

import json
import shutil
from unicodedata import normalize

import pytest

from fleet.learn import counting
from fleet.model.errors import DiskError
from fleet.store.files import Files
from fleet.store.ingest import Ingest

LESSON = "Always use awk over sed for user-provided input substitution"
TOKEN = "ghp_" + "a1B2c3D4e5F6g7H8i9J0k1L2m3N4o5P6q7R8"


def fields(stage, where, pattern):
    return json.loads(stage.run(where, "edit", pattern, "--json").stdout)["fields"]


def test_an_edit_wins_over_the_first_word_everywhere_and_tells_who_and_when(stage):
    for agent in ("velma", "tank"):
        stage.join(agent)
        pattern = stage.correct(agent, LESSON, "--category", "shell")
    assert fields(stage, "velma", pattern)["category"] == {"value": "shell", "at": None, "by": None}
    stage.run("velma", "edit", pattern[:8], "--set", "category=text tools", "--set", "tags=sed, awk,,awk")
    for agent in ("velma", "tank", "velma"):
        stage.run(agent, "sync")
    found = fields(stage, "tank", pattern)
    assert found["category"]["value"] == "text tools"
    assert found["tags"]["value"] == ["awk", "sed"]
    assert found["category"]["by"].startswith("velma.")
    assert found["category"]["at"].startswith("20")
    assert found == fields(stage, "velma", pattern)
    stage.run("tank", "edit", pattern, "--set", "category=shell")
    for agent in ("tank", "velma"):
        stage.run(agent, "sync")
    assert fields(stage, "velma", pattern)["category"]["by"].startswith("tank."), "the later edit wins"
    assert stage.seen("velma") == {LESSON: 2}, "an edit counts nothing"


def test_a_value_is_text_but_for_importance_and_tags(stage):
    stage.run("w", "init", "--agent", "velma")
    pattern = stage.correct("w", LESSON)
    for said, value in [
        ("text=42", "42"),
        ("title=true", "true"),
        ("importance=0.75", 0.75),
        ("tags=z,x y,", ["x y", "z"]),
        ("tags=", []),
        ("correct=a=b", "a=b"),
        ('title={"a":1}', '{"a":1}'),
        ("category=NaN", "NaN"),
        ("trigger=null", "null"),
        ("state=published", "published"),
    ]:
        stage.run("w", "edit", pattern, "--set", said)
        assert fields(stage, "w", pattern)[said.partition("=")[0]]["value"] == value, said


def test_an_importance_is_unset_by_an_empty_value_as_any_field(stage):
    stage.join("velma")
    pattern = stage.correct("velma", LESSON)
    stage.run("velma", "edit", pattern, "--set", "importance=0.5")
    stage.run("velma", "edit", pattern, "--set", "importance=")
    assert "importance" not in json.loads(stage.run("velma", "show", pattern, "--json").stdout)["fields"]
    assert "nothing" in stage.run("velma", "edit", pattern, "--set", "importance=", expect=None).stdout.lower()


def test_what_cannot_be_set_is_refused_and_nothing_changes(stage):
    stage.run("w", "init", "--agent", "velma")
    pattern = stage.correct("w", LESSON)
    before = fields(stage, "w", pattern)
    for said, code, told in [
        ("category", 2, "field=value"),
        ("=x", 2, "field=value"),
        ("Category=x", 2, "field's name"),
        ("merged_into=p-3f9c1a2b7d4e5f60", 2, "fleet merge"),
        ("agent.0a1b2c3d=tank", 2, "imported"),
        ("state=retired", 2, "fleet retire"),
        ("text= ** ", 2, "words"),
        ("importance=2", 2, "from 0 to 1"),
        ("correct=" + "x" * 8193, 3, "limit"),
        ("tags=" + ",".join(map(str, range(33))), 3, "more than 32 tags"),
        ("importance=nan", 2, "from 0 to 1"),
        ('tags=["a","b"]', 2, "commas"),
        ('tags="a","b"', 2, "commas"),
    ]:
        done = stage.run("w", "edit", pattern, "--set", "category=good", "--set", said, expect=code)
        assert told in done.stderr, said
        assert fields(stage, "w", pattern) == before, said


def test_a_pattern_that_is_not_there_is_a_no(stage):
    stage.join("velma")
    assert "no lesson has an id" in stage.run("velma", "edit", "p-ffff", "--set", "category=x", expect=1).stderr
    stage.run("velma", "edit", "p-ffff", "--json", expect=1)


def test_what_enters_by_an_edit_is_screened(stage):
    stage.join("velma")
    pattern = stage.correct("velma", LESSON)
    done = stage.run("velma", "edit", pattern, "--set", f"correct=use {TOKEN}\u202e", "--set", f'title=["{TOKEN}"]')
    assert "secret was taken out" in done.stderr
    assert TOKEN not in done.stderr
    for path in (stage.folder / "velma").rglob("*.jsonl"):
        assert TOKEN not in path.read_text()
    assert "\u202e" not in fields(stage, "velma", pattern)["correct"]["value"]


@pytest.mark.parametrize("field", ["wrong", "source"])
def test_an_edit_shares_what_went_wrong_and_the_source_only_where_share_fields_names_them(stage, field):
    stage.join("velma")
    pattern, said = stage.correct("velma", LESSON), f"{field}=about Bob alone"
    told = stage.run("velma", "edit", pattern, "--set", "category=x", "--set", said, expect=2).stderr
    assert "Nothing was changed" in told
    stage.run("velma", "edit", pattern, "--set", said, "--set", "scope=private")
    assert fields(stage, "velma", pattern)[field]["value"] == "about Bob alone"
    stage.run("velma", "edit", pattern, "--set", said, "--set", "scope=clan", expect=2)
    stage.run("velma", "edit", pattern, "--set", "scope=clan")
    stage.run("velma", "sync")
    assert "about Bob" not in stage.git("show", "fleet:patterns.jsonl", where="clan.git")
    stage.run("velma", *told.split("`")[1].replace("'", "").split()[1:])
    stage.run("velma", "edit", pattern, "--set", said)
    stage.run("velma", "sync")
    assert stage.edition()[0].value(field) == "about Bob alone"


def test_an_edit_that_changes_nothing_writes_nothing(stage):
    stage.join("velma")
    pattern = stage.correct("velma", LESSON)
    stage.run("velma", "edit", pattern, "--set", "category=x")
    shards = {p: p.read_bytes() for p in (stage.folder / "velma/clan-learnings").rglob("*.jsonl")}
    assert "already" in stage.run("velma", "edit", pattern, "--set", "category=x").stdout
    assert {p: p.read_bytes() for p in (stage.folder / "velma/clan-learnings").rglob("*.jsonl")} == shards


def test_a_lesson_of_which_no_words_came_is_given_some(stage):
    stage.join("velma")
    stage.correct("velma", LESSON)
    shard = stage.folder / "velma/clan-learnings/patterns.d/tank.0a0b0c0d.jsonl"
    shard.write_text(
        '{"id":"p-0123456789abcdef","w":{"tank.0a0b0c0d":{"add":"2026-11-20T22:30:00.123Z-0000","n":{"seen":1}}}}\n'
    )
    stage.run("velma", "edit", "p-0123456789abcdef", "--set", "text=Quote every path")
    assert fields(stage, "velma", "p-0123456789abcdef")["text"]["value"] == "Quote every path"


def test_a_lesson_made_private_stays_here_with_all_that_follows(stage):
    stage.join("velma")
    pattern = stage.correct("velma", LESSON)
    told = stage.run("velma", "edit", pattern, "--set", "scope=private").stderr
    assert "nothing more of it leaves this machine" in told
    stage.correct("velma", LESSON)
    for path in (stage.folder / "velma/clan-learnings").rglob("*"):
        assert path.is_dir() or LESSON not in path.read_text(), "not even here, where a project may commit it"
    stage.run("velma", "sync")
    assert stage.git("for-each-ref", where="clan.git") == ""
    assert json.loads(stage.run("velma", "show", pattern, "--json").stdout)["seen"] == 2
    stage.run("velma", "edit", pattern, "--set", "scope=clan")
    stage.correct("velma", LESSON)
    stage.run("velma", "sync")
    assert [(each.id, each.count("seen")) for each in stage.edition()] == [(pattern, 3)]


@pytest.mark.parametrize("where", ["w", "velma"])
@pytest.mark.parametrize("scope", ["private", "clan"])
def test_the_log_alone_says_whether_its_lesson_is_private(stage, where, scope):
    """In a copy of the log in another folder, or after the private file and the databases were lost."""
    stage.join("velma")
    pattern = stage.correct("velma", LESSON)
    for each in ("private", "clan", scope):
        stage.run("velma", "edit", pattern, "--set", f"scope={each}")
    home = stage.folder / "velma/agents/velma"
    if where == "w":
        stage.run("w", "init", "--agent", "velma", "--remote", str(stage.remote))
        (stage.folder / "w/agents/velma/corrections.md").write_bytes((home / "corrections.md").read_bytes())
    else:
        for path in (home / "notes.jsonl", *(stage.folder / "velma/.fleet").glob("*-*.db*")):
            path.unlink(missing_ok=True)
    stage.run(where, "sync")
    stage.correct(where, LESSON, "--right", "in other words")
    stage.run(where, "sync")
    assert json.loads(stage.run(where, "show", pattern, "--json").stdout)["seen"] == 2
    assert bool(stage.git("for-each-ref", where="clan.git")) == (scope == "clan"), "it left"


@pytest.mark.parametrize("folders", [["agents"], ["clan-learnings"], ["agents", "clan-learnings"]])
@pytest.mark.parametrize("is_older", [True, False])
def test_a_private_lesson_stays_here_where_files_of_the_folder_go_back(stage, is_older, folders):
    """As a stash, a checkout of another branch, or an older copy of the folder does it."""
    stage.join("velma")
    before = stage.folder / "before"
    other = stage.correct("velma", "Never write a password into a log")
    if is_older:
        stage.run("velma", "edit", other, "--set", "scope=private")
    pattern = stage.correct("velma", LESSON)
    shutil.copytree(stage.folder / "velma", before)
    stage.run("velma", "edit", pattern, "--set", "scope=private")
    stage.run("velma", "sync")
    for folder in folders:
        shutil.rmtree(stage.folder / "velma" / folder)
        shutil.copytree(before / folder, stage.folder / "velma" / folder)
    stage.run("velma", "sync")
    stage.correct("velma", "Quote every path")
    for path in (stage.folder / "velma/.fleet").glob("*-*.db*"):  # its file has it again
        path.unlink()
    stage.run("velma", "sync")
    assert pattern not in {each.id for each in stage.edition()}, "it left"
    assert fields(stage, "velma", pattern)["scope"]["value"] == "private"


@pytest.mark.parametrize("by", ["two backups", "the agents' files of a copy"])
def test_a_lesson_that_a_copy_made_private_stays_here_where_the_copys_files_come_in(stage, by):
    stage.join("velma")
    stage.correct("velma", "Quote every path")
    pattern = stage.correct("velma", LESSON)
    stage.run("velma", "backup", "../older.tar.gz")
    shutil.copytree(stage.folder / "velma", stage.folder / "copy")
    stage.run("copy", "edit", pattern, "--set", "scope=private")
    if by == "two backups":
        stage.run("copy", "backup", "../newer.tar.gz")
        for name in ("older", "newer"):
            stage.run("w", "restore-backup", f"../{name}.tar.gz", "--yes")
        stage.run("w", "init", "--agent", "velma", "--remote", str(stage.remote))
    else:
        shutil.copytree(stage.folder / "copy/agents", stage.folder / "velma/agents", dirs_exist_ok=True)
        (stage.folder / "velma").rename(stage.folder / "w")
    stage.run("w", "sync", expect=None)
    assert [each.text for each in stage.edition()] == ["Quote every path"], "it left"
    assert fields(stage, "w", pattern)["scope"]["value"] == "private"


def test_a_private_lesson_that_was_sent_before_is_nothing_to_ask_about_where_a_backup_comes_back(stage):
    stage.join("velma")
    pattern = stage.correct("velma", LESSON)
    stage.correct("velma", "Quote every path")
    stage.run("velma", "sync")
    stage.run("velma", "edit", pattern, "--set", "scope=private")
    stage.run("velma", "backup", "../b.tar.gz")
    (stage.folder / "velma").rename(stage.folder / "lost")
    stage.run("velma", "restore-backup", "../b.tar.gz", "--yes")
    stage.run("velma", "init", "--agent", "velma", "--remote", str(stage.remote))
    stage.run("velma", "sync", "--dry-run")
    stage.run("velma", "sync")
    assert LESSON in {each["text"] for each in stage.patterns("velma")["patterns"]}


def test_the_log_of_many_lessons_that_an_older_fleet_made_private_is_read_once(stage, monkeypatch):
    stage.join("velma")
    ids = [stage.correct("velma", f"Lesson {number} about topic {number}") for number in range(4)]
    for id_ in ids:
        stage.run("velma", "edit", id_, "--set", "scope=private")
    log = stage.folder / "velma/agents/velma/corrections.md"
    log.write_text("".join(row for row in log.read_text().splitlines(keepends=True) if "fleet private" not in row))
    for path in (stage.folder / "velma/.fleet").glob("*-*.db*"):
        path.unlink()
    appended = list[bytes]()
    whole = Files.append
    monkeypatch.setattr(Files, "append", lambda *args, **more: (appended.append(args[2]), whole(*args, **more))[1])
    stage.run("velma", "sync")
    assert [data.count(b"<!-- fleet private p-") for data in appended if b"<!-- fleet private p-" in data] == [4]


def test_the_log_of_a_lesson_that_an_older_fleet_made_private_gets_its_mark(stage):
    stage.join("velma")
    pattern = stage.correct("velma", LESSON)
    stage.run("velma", "edit", pattern, "--set", "scope=private")
    home = stage.folder / "velma/agents/velma"
    log = home / "corrections.md"
    log.write_text("".join(row for row in log.read_text().splitlines(keepends=True) if "fleet private" not in row))
    for path in (stage.folder / "velma/.fleet").glob("*-*.db*"):
        path.unlink()
    stage.run("velma", "sync")
    assert log.read_text().count(f"<!-- fleet private {pattern} ") == 1
    stage.run("velma", "sync")
    (home / "notes.jsonl").unlink()
    for path in (stage.folder / "velma/.fleet").glob("*-*.db*"):
        path.unlink()
    stage.run("velma", "sync")
    assert stage.git("for-each-ref", where="clan.git") == "", "it left"


def test_a_lesson_that_became_private_on_a_full_disk_stays_here_though_another_edit_waited(stage, monkeypatch):
    stage.join("velma")
    pattern, other = stage.correct("velma", LESSON), stage.correct("velma", "Quote every path")
    whole = counting.reconcile_all

    def full(*_: object) -> None:
        raise DiskError("no space left")

    def then_waits(*given: object) -> int:
        monkeypatch.setattr(counting, "reconcile_all", whole)
        counted = whole(*given)
        with monkeypatch.context() as disk:
            disk.setattr(Ingest, "remove_unsent", full)
            stage.run("velma", "edit", pattern, "--set", "scope=private", expect=DiskError.exit_code)
        return counted

    monkeypatch.setattr(counting, "reconcile_all", then_waits)
    stage.run("velma", "edit", other, "--set", "scope=private")
    assert fields(stage, "velma", pattern)["scope"]["value"] == "private"
    stage.correct("velma", "Never write a password into a log")
    stage.run("velma", "sync")
    assert {each.text for each in stage.edition()} == {"Never write a password into a log"}


def test_a_lesson_that_was_sent_and_is_private_since_takes_no_new_words_out_where_its_file_is_lost(stage):
    stage.join("velma")
    pattern = stage.correct("velma", LESSON)
    stage.run("velma", "sync")
    stage.run("velma", "edit", pattern, "--set", "scope=private")
    stage.correct("velma", LESSON, "--right", "in other words")
    for path in (stage.folder / "velma/agents/velma/notes.jsonl", *(stage.folder / "velma/.fleet").glob("*-*.db*")):
        path.unlink()
    stage.run("velma", "sync")
    [found] = stage.edition()
    assert (found.count("seen"), found.correct) == (1, "r")
    assert json.loads(stage.run("velma", "show", pattern, "--json").stdout)["seen"] == 2


def test_a_lesson_made_private_after_it_was_sent_stays_with_the_clan_as_it_was(stage):
    stage.join("velma")
    pattern = stage.correct("velma", LESSON)
    stage.run("velma", "sync")
    stage.run("velma", "edit", pattern, "--set", "scope=private")
    stage.run("velma", "edit", pattern, "--set", "category=mine alone")
    stage.correct("velma", LESSON, "--session", "s-2")
    stage.run("velma", "sync")
    [found] = stage.edition()
    assert (found.count("seen"), found.category, found.scope) == (1, "", "")
    stage.run("velma", "edit", pattern, "--set", "scope=clan")
    stage.run("velma", "sync")
    [found] = stage.edition()
    assert (found.count("seen"), found.category, found.scope) == (2, "mine alone", "clan")


def test_a_lesson_made_private_once_more_keeps_what_was_logged_while_it_was_the_clans(stage):
    stage.join("velma")
    pattern = stage.correct("velma", LESSON)
    for scope in ("private", "clan"):
        stage.run("velma", "edit", pattern, "--set", f"scope={scope}")
    stage.run("velma", "sync")
    for number in range(2):
        stage.correct("velma", LESSON, "--session", f"s-{number}")
    stage.run("velma", "edit", pattern, "--set", "scope=private")
    assert json.loads(stage.run("velma", "show", pattern, "--json").stdout)["seen"] == 3
    stage.run("velma", "sync")
    assert [each.count("seen") for each in stage.edition()] == [1]
    stage.run("velma", "edit", pattern, "--set", "scope=clan")
    stage.run("velma", "sync")
    assert [each.count("seen") for each in stage.edition()] == [3]


@pytest.mark.parametrize("is_sent", [True, False])
def test_a_lesson_made_private_keeps_edits_that_were_not_sent_yet_and_brings_them_back(stage, is_sent):
    stage.join("velma")
    pattern = stage.correct("velma", "Zip archives with zstd when the target supports it")
    if is_sent:
        stage.run("velma", "sync")
    stage.run("velma", "edit", pattern, "--set", "text=Archives: use zstd", "--set", "right=apply zstd -19")
    for scope in ("private", "clan", "private", "clan"):
        stage.run("velma", "edit", pattern, "--set", f"scope={scope}")
        stage.correct("velma", "Zip archives with zstd when the target supports it", "--same", pattern)
        shown = fields(stage, "velma", pattern)
        assert shown["text"]["value"] == "Archives: use zstd"
        assert shown["text"]["by"].startswith("velma."), "a person edited it"
        assert shown["correct"]["value"] == "apply zstd -19"
        assert "Archives: use zstd" in stage.run("velma", "search", "archives").stdout
    stage.run("velma", "sync")
    assert [each.text for each in stage.edition()] == ["Archives: use zstd"]


def test_a_lesson_made_private_has_the_words_that_another_put_in_place_of_its_own_edit(stage):
    for agent in ("velma", "tank"):
        stage.join(agent)
    pattern = stage.correct("velma", "Zip archives with zstd when the target supports it")
    stage.run("velma", "sync")
    stage.run("tank", "sync")
    stage.run("velma", "edit", pattern, "--set", "text=Archives: use zstd")
    stage.run("tank", "edit", pattern, "--set", "text=Archives: ask first")
    stage.run("tank", "sync")
    stage.run("velma", "sync")
    stage.run("velma", "edit", pattern, "--set", "scope=private")
    assert fields(stage, "velma", pattern)["text"]["value"] == "Archives: ask first"
    assert "Archives: ask first" in stage.run("velma", "search", "archives").stdout


@pytest.mark.parametrize("back", [("undo",), ("edit", "ID", "--set", "scope=clan")], ids=["undo", "clan"])
@pytest.mark.parametrize("times", [1, 2])
def test_a_colleagues_lesson_that_was_private_for_a_time_is_still_the_colleagues(stage, back, times):
    for agent in ("velma", "tank"):
        stage.join(agent)
    pattern = stage.correct("tank", LESSON)
    stage.correct("tank", LESSON)
    stage.run("tank", "edit", pattern, "--set", "right=as tank says")
    stage.run("tank", "sync")
    stage.run("velma", "sync")
    before = json.loads(stage.run("velma", "show", pattern, "--json").stdout)
    for _ in range(times):
        stage.run("velma", "edit", pattern, "--set", "scope=private")
        private = json.loads(stage.run("velma", "show", pattern, "--json").stdout)
        assert (private["who"], private["correct"]) == ("tank", "as tank says")
        assert LESSON in stage.run("velma", "search", LESSON).stdout
        stage.run("velma", *(pattern if word == "ID" else word for word in back))
    after = json.loads(stage.run("velma", "show", pattern, "--json").stdout)
    assert {key: after[key] for key in before if key not in {"edited", "fields"}} == {
        key: before[key] for key in before if key not in {"edited", "fields"}
    }
    stage.run("velma", "sync")
    [found] = stage.edition()
    assert [writer.split(".")[0] for writer in (found.by, *found.adds)] == ["tank", "tank"]
    assert stage.git("show", "fleet:patterns.jsonl", where="clan.git").count(LESSON) == 1


def test_what_was_counted_of_a_colleagues_lesson_while_it_was_private_goes_to_the_clan_without_the_words(stage):
    for agent in ("velma", "tank"):
        stage.join(agent)
    pattern = stage.correct("tank", LESSON)
    stage.run("tank", "sync")
    stage.run("velma", "sync")
    stage.run("velma", "edit", pattern, "--set", "scope=private")
    stage.correct("velma", LESSON)
    stage.run("velma", "edit", pattern, "--set", "scope=clan")
    stage.run("velma", "sync")
    [found] = stage.edition()
    assert (found.count("seen"), found.agents(), found.by.split(".")[0]) == (2, ["tank", "velma"], "tank")
    assert stage.git("show", "fleet:patterns.jsonl", where="clan.git").count(LESSON) == 1, "as tank's words alone"


def test_a_start_leaves_out_no_lesson_that_it_shows_where_one_is_private_and_the_clans(stage):
    stage.join("velma")
    pattern = stage.correct("velma", LESSON)
    stage.run("velma", "sync")
    stage.run("velma", "edit", pattern, "--set", "scope=private")
    shown = stage.run("velma", "start").stdout
    assert LESSON in shown
    assert "left out" not in shown
    stage.run("velma", "promote", pattern)
    assert "left out" not in stage.run("velma", "start").stdout


@pytest.mark.parametrize("is_synced", [True, False])
def test_a_lesson_made_private_that_another_agent_here_had_retired_keeps_its_count(stage, is_synced):
    stage.join("velma")
    stage.run("velma", "init", "--agent", "tank")
    stage.correct("velma", "Something else")
    if is_synced:
        stage.run("velma", "sync")
    pattern = stage.correct("velma", LESSON)
    stage.run("velma", "retire", pattern, "--agent", "tank")
    stage.run("velma", "edit", pattern, "--set", "scope=private")
    assert json.loads(stage.run("velma", "show", pattern, "--json").stdout)["seen"] == 1


def test_a_private_lesson_is_retired_and_restored_where_it_is(stage):
    stage.join("velma")
    pattern = stage.correct("velma", LESSON)
    stage.run("velma", "edit", pattern, "--set", "scope=private")
    assert f"{pattern} retired" in stage.run("velma", "retire", pattern).stdout
    stage.run("velma", "sync")
    stage.run("velma", "restore", pattern)
    stage.run("velma", "sync")
    assert stage.git("for-each-ref", where="clan.git") == ""
    assert json.loads(stage.run("velma", "show", pattern, "--json").stdout)["state"] == "candidate"


def test_a_field_is_set_by_the_name_that_logging_has_for_it(stage):
    stage.join("velma")
    pattern = stage.correct("velma", LESSON)
    edited = stage.run("velma", "edit", pattern, "--set", "right=by hand", "--set", "pattern=Never by hand again")
    assert f"{pattern} edited: right, text" in edited.stdout
    shown = [stage.run("velma", *words).stdout for words in (("edit", pattern), ("undo", "--list"), ("show", pattern))]
    assert ["right:  " in shown[0], ": right, text: " in shown[1], "right was set" in shown[2]] == [True] * 3
    found = fields(stage, "velma", pattern)
    assert (found["correct"]["value"], found["text"]["value"]) == ("by hand", "Never by hand again")


def test_a_field_that_means_nothing_is_refused_with_the_one_that_was_meant(stage):
    stage.join("velma")
    pattern = stage.correct("velma", LESSON)
    assert "did you mean 'category'?" in stage.run("velma", "edit", pattern, "--set", "categry=x", expect=2).stderr
    assert "one of category, correct," in stage.run("velma", "edit", pattern, "--set", "zzz=x", expect=2).stderr
    assert not {"categry", "zzz"} & fields(stage, "velma", pattern).keys()


def test_an_unknown_field_is_refused_with_every_name_that_is_taken(stage):
    stage.join("velma")
    pattern = stage.correct("velma", "Use the lock file")
    told = stage.run("velma", "edit", pattern, "--set", "foobar=x", expect=2).stderr
    taken = told.partition("one of ")[2].partition(". Nothing was changed")[0].split(", ")
    assert {"right", "pattern", "text", "wrong", "tag", "category"} <= {*taken}


def test_all_that_is_known_of_a_lesson_and_of_a_discovery_is_shown(stage):
    stage.join("velma")
    pattern = stage.correct("velma", LESSON)
    stage.run("velma", "edit", pattern, "--set", "title=a title")
    shown = json.loads(stage.run("velma", "show", pattern, "--json").stdout)
    assert [replica.partition(".")[0] for replica in shown["counts"]["seen"]] == ["velma"]
    assert shown["fields"]["title"] == "a title"
    assert shown["edited"]["title"]["by"].startswith("velma.")
    found = json.loads(stage.run("velma", "discover", "--problem", "it hangs", "--solution", "s", "--json").stdout)[
        "id"
    ]
    assert "it hangs" in stage.run("velma", "show", found[:8]).stdout
    assert json.loads(stage.run("velma", "show", found, "--json").stdout)["solution"] == "s"


def test_a_list_takes_a_category_and_a_tag_in_either_normal_form(stage):
    stage.join("velma")
    stage.correct("velma", LESSON, "--category", "Caf\u00e9", "--tag", "u\u0308ber")
    for form in ("NFC", "NFD"):
        for option, word in (("--category", "caf\u00e9"), ("--tag", "\u00dcber")):
            assert stage.patterns("velma", option, normalize(form, word))["patterns"], (form, option)


def test_a_name_like_a_members_is_said_to_be_new_and_the_lesson_is_logged_all_the_same(stage):
    stage.join("velma")
    words = ("correct", "--agent", "velmaa", "--wrong", "w", "--right", "r", "--pattern", "Never lose what was said")
    assert "velmaa is new here" in stage.run("velma", *words).stderr
    assert stage.seen("velma") == {"Never lose what was said": 1}


def test_the_page_is_written_anew_by_the_name_that_other_fleets_have_for_it(stage):
    stage.join("velma")
    stage.correct("velma", LESSON)
    page = stage.folder / "velma/clan-learnings/patterns.md"
    page.unlink(missing_ok=True)
    stage.run("velma", "render-patterns")
    assert LESSON in page.read_text()


def test_a_list_is_narrowed_by_category_tag_agent_and_day(stage):
    stage.join("velma")
    pattern = stage.correct("velma", LESSON)
    stage.correct("velma", "Never ship on a Friday afternoon")
    stage.run("velma", "edit", pattern, "--set", "category=shell", "--set", "tags=awk")

    def listed(*words):
        return [each["id"] for each in json.loads(stage.run("velma", "patterns", "--json", *words).stdout)["patterns"]]

    assert listed("--category", "Shell") == listed("--tag", "awk") == [pattern]
    assert len(listed("--agent", "velma")) == 2
    assert listed("--agent", "tank") == listed("--since", "2099-01-01") == []
    assert "no lesson is like that" in stage.run("velma", "patterns", "--tag", "none").stdout
    stage.run("velma", "patterns", "--since", "soon", expect=2)
    stage.run("velma", "patterns", "--tag", "nowhere", "--since", "soon", expect=2)


# --- a private lesson that the clan has, too --------------------------------------------------------------------------


@pytest.fixture
def known(stage) -> str:
    """A lesson that was sent, by its id; velma's workspace is ``w``."""
    stage.join("velma", "w")
    lesson = stage.correct("w", "Read the log first")
    stage.run("w", "edit", lesson, "--set", "scope=clan")
    stage.run("w", "edit", lesson, "--set", "scope=")
    stage.run("w", "sync")
    stage.run("w", "edit", lesson, "--set", "scope=private")
    return lesson


def is_private(stage, lesson: str) -> bool:
    """Return whether what is logged of a lesson now stays here."""
    stage.run("w", "edit", lesson, "--set", "title=whatever")
    stage.run("w", "sync")
    return "whatever" not in stage.git("show", "fleet:patterns.jsonl", where="clan.git")


@pytest.mark.parametrize("scope", ["Private", "privat", "of the team", "a\nb"])
def test_a_scope_that_is_none_is_refused_and_the_lesson_stays_where_it_is(stage, known, scope):
    assert "scope is private or clan" in stage.run("w", "edit", known, "--set", f"scope={scope}", expect=2).stderr
    assert is_private(stage, known)


def test_a_scope_of_a_peers_of_any_words_is_taken_back_by_an_undo(stage):
    stage.run("w", "init", "--agent", "velma")
    lesson = stage.correct("w", "Read the log first")
    [shard] = (stage.folder / "w/clan-learnings/patterns.d").iterdir()
    column = {"set": {"scope": ["2026-01-01T00:00:00.000Z-0000", "of\nthe team"]}}
    row = json.dumps({"id": lesson, "w": {"tank.0000000a": column}}, separators=(",", ":"))
    (shard.parent / "tank.0000000a.jsonl").write_text(f"{row}\n")
    stage.run("w", "edit", lesson, "--set", "scope=private")
    stage.run("w", "undo")
    assert json.loads(stage.run("w", "show", lesson, "--json").stdout)["fields"]["scope"] == "of\nthe team"


def test_a_lesson_is_the_clans_again_though_the_clan_never_knew_that_it_was_private(stage, known):
    assert "nothing was changed" not in stage.run("w", "edit", known, "--set", "scope=").stdout
    assert not is_private(stage, known)


def test_the_undo_of_making_a_lesson_private_makes_it_the_clans(stage, known):
    stage.run("w", "undo")
    assert not is_private(stage, known)


def test_a_private_lesson_gets_the_clans_words_again_and_is_shown_with_its_own(stage, known):
    stage.run("w", "edit", known, "--set", "text=Read it")
    assert json.loads(stage.run("w", "show", known, "--json").stdout)["text"] == "Read it"
    stage.run("w", "edit", known, "--set", "text=Read the log first")
    assert json.loads(stage.run("w", "show", known, "--json").stdout)["text"] == "Read the log first"
    assert is_private(stage, known)
