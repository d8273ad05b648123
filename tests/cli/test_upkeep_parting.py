"""Taking back, pausing, leaving: nothing is lost, nothing is sent, and it is said what stays where."""

import contextlib
import json
import re
import sqlite3

import pytest

from fleet.app import sharing
from fleet.model.errors import NoError
from fleet.store.database import SCHEMA_NUMBER, Local
from fleet.store.files import Files
from fleet.store.workspace import Workspace

LESSON = "Always use awk over sed for user-provided input substitution"


def head(stage):
    return stage.git("for-each-ref", where="clan.git")


def gossip(stage, where):
    return [d["problem"] for d in json.loads(stage.run(where, "gossip", "--json").stdout)["discoveries"]]


def test_a_discovery_that_is_taken_back_stays_so_everywhere(stage):
    for agent in ("velma", "tank"):
        stage.join(agent)
    words = ("discover", "--problem", "p", "--solution", "s", "--json")
    found = json.loads(stage.run("velma", *words).stdout)["id"]
    stage.run("velma", "discover", "--problem", "another", "--solution", "s")
    for agent in ("velma", "tank"):
        stage.run(agent, "sync")
    assert "--yes" in stage.run("tank", "retire", found[:8], expect=2).stderr, (
        "nobody can be asked, and nothing was done"
    )
    assert len(gossip(stage, "tank")) == 2
    assert "for good" in stage.run("tank", "retire", found[:8], "--yes").stdout
    for agent in ("tank", "velma"):
        stage.run(agent, "sync")
    assert gossip(stage, "velma") == gossip(stage, "tank") == ["another"]
    assert "was taken back" in stage.run("velma", *words, expect=3).stderr
    assert gossip(stage, "velma") == ["another"], "what is taken back stays so"
    assert "already" in stage.run("velma", "retire", found, "--yes", expect=1).stderr
    stage.run("velma", "retire", "d-", expect=1)
    stage.run("velma", "retire", "d-ffff", expect=1)


def test_what_was_sent_is_undone_for_all_though_the_next_word_of_it_never_left(stage):
    for agent in ("velma", "tank"):
        stage.join(agent)
    stage.correct("velma", LESSON)
    for agent in ("velma", "tank"):
        stage.run(agent, "sync")
    assert stage.seen("tank") == {LESSON: 1}
    stage.run("velma", "undo")
    stage.correct("velma", LESSON)
    stage.run("velma", "undo")
    for agent in ("velma", "tank"):
        stage.run(agent, "sync")
    assert stage.seen("velma") == stage.seen("tank") == {}


def test_what_was_undone_before_it_left_is_in_a_file_again_with_the_next_sync_though_its_shard_was_deleted(stage):
    stage.join("velma")
    lesson = stage.correct("velma", LESSON)
    for shard in (stage.folder / "velma/clan-learnings/patterns.d").iterdir():
        shard.unlink()
    stage.run("velma", "undo")
    stage.run("velma", "sync")
    assert head(stage) == "", "nothing of it was sent"
    before = stage.run("velma", "show", lesson, "--json").stdout
    for file in (stage.folder / "velma/.fleet").glob(f"state-{SCHEMA_NUMBER}.db*"):
        file.unlink()
    assert stage.run("velma", "show", lesson, "--json").stdout == before
    assert LESSON in before


def test_while_paused_nothing_leaves_and_everything_is_logged(stage):
    stage.join("velma")
    stage.run("velma", "pause")
    stage.correct("velma", LESSON)
    for command in ("sync", "compact"):
        assert "paused until `fleet resume`" in stage.run("velma", command).stdout
    assert head(stage) == ""
    assert stage.seen("velma") == {LESSON: 1}
    assert LESSON in stage.run("velma", "start").stdout
    assert "paused" in stage.run("velma", "status").stdout
    assert re.search(r"^paused +nothing is shared until `fleet resume`$", stage.run("velma").stdout, re.MULTILINE)
    until = json.loads(stage.run("velma", "status", "--json").stdout)["paused"]
    for command in ("pause", "sync", "compact"):
        assert json.loads(stage.run("velma", command, "--json").stdout) == {"paused": until}
    assert LESSON in stage.run("velma", "sync", "--dry-run").stdout
    stage.run("velma", "resume")
    assert "not paused" in stage.run("velma", "resume").stdout
    assert not json.loads(stage.run("velma", "status", "--json").stdout)["paused"]
    stage.run("velma", "sync")
    assert [pattern.text for pattern in stage.edition()] == [LESSON]


def test_a_pause_ends_by_itself_and_a_damaged_one_does_not(stage):
    stage.join("velma")
    assert "Z;" in stage.run("velma", "pause", "--minutes", "5").stdout
    assert "not synced" in stage.run("velma", "sync").stdout
    for until, is_paused in (("2020-01-01T00:00:00.000Z-0000", False), ("rubbish", True)):
        with contextlib.closing(sqlite3.connect(stage.folder / "velma/.fleet/local.db")) as connection:
            connection.execute("INSERT OR REPLACE INTO value VALUES ('paused', ?)", (until,))
            connection.commit()
        assert ("not synced" in stage.run("velma", "sync").stdout) == is_paused
    stage.run("velma", "pause", "--minutes", "0", expect=2)


def test_who_leaves_keeps_every_line_sends_nothing_more_and_may_come_back(stage):
    for agent in ("velma", "tank"):
        stage.join(agent)
        stage.correct(agent, LESSON)
        stage.run(agent, "sync")
    stage.run("velma", "sync")
    stage.correct("velma", "not sent yet")
    before = stage.patterns("velma")
    assert "--yes" in stage.run("velma", "leave", expect=2).stderr
    shown = stage.run("velma", "leave", "--yes").stdout
    for part in ("clan.git", "velma.", "1 line never went out", "fleet init --remote"):
        assert part in shown
    at = head(stage)
    assert "no remote is named" in stage.run("velma", "sync").stdout
    stage.run("velma", "leave", "--yes", expect=1)
    assert head(stage) == at
    assert stage.patterns("velma") == before
    stage.correct("velma", "logged alone")
    stage.run("velma", "init", "--remote", str(stage.remote))
    stage.run("velma", "sync")
    stage.run("tank", "sync")
    assert stage.seen("tank") == {LESSON: 2, "not sent yet": 1, "logged alone": 1}
    assert stage.seen("velma") == stage.seen("tank")


@pytest.mark.parametrize("act", ["leave", "pause"])
@pytest.mark.parametrize("sync", [sharing.sync, sharing.sync_if_agreed, sharing.fetch_if_agreed])
def test_nothing_is_exchanged_after_a_leave_or_a_pause_while_a_sync_waited_for_another(stage, monkeypatch, act, sync):
    stage.join("velma")
    stage.correct("velma", LESSON)
    root, lock, acts = stage.folder / "velma", Workspace.lock, [act]

    def lock_after_that(workspace, name, *wait_s):
        if name == "sync" and acts:
            acts.pop()
            with contextlib.closing(Workspace(root)) as other:
                membership = sharing.Membership(other)
                membership.leave() if act == "leave" else membership.pause(None)
        return lock(workspace, name, *wait_s)

    with contextlib.closing(Workspace(root)) as workspace, monkeypatch.context() as patch:
        patch.setattr(Workspace, "lock", lock_after_that)
        if (act, sync) == ("pause", sharing.sync):
            with pytest.raises(NoError, match="sharing is paused"):
                sync(workspace, "velma")
        else:
            assert sync(workspace, "velma").remote == ""
        assert workspace.tree.head() == ""
    assert head(stage) == ""


class Killed(BaseException):
    """The process is gone."""


def kept_logins(workspace, remote):
    """Return the keys of a kept login: this version's, and an earlier one's."""
    return workspace.state.here(f"login:{remote}"), f"login:{remote}"


@pytest.mark.parametrize("what", ["origin", "fleet.toml", "project"])
@pytest.mark.parametrize("at", range(6))
def test_a_leave_that_is_cut_short_is_finished_by_the_next(stage, monkeypatch, what, at):
    login = "https://velma:pa55word@localhost/clan.git"
    stage.join("velma")
    stage.correct("velma", LESSON)
    stage.run("velma", "sync")
    if what == "project":
        stage.git("init", "--quiet", where="velma")
        stage.git("add", "fleet.toml", where="velma")
    if what == "origin":
        stage.git("init", "--quiet", where="velma")
        stage.git("remote", "add", "origin", str(stage.remote), where="velma")
        stage.run("velma", "config", "set", "share.remote", "")
    writes = []

    def killed(of, name):
        act = getattr(of, name)

        def acting(*arguments, **more):
            writes.append(name)
            if len(writes) == at + 1:
                raise Killed
            return act(*arguments, **more)

        return acting

    root = stage.folder / "velma"
    with contextlib.closing(Workspace(root)) as workspace:
        workspace.state.put(**dict.fromkeys(logins := kept_logins(workspace, stage.remote), login))
        with monkeypatch.context() as patch, contextlib.suppress(Killed):
            for of, name in ((Workspace, "take"), (Local, "put"), (Local, "disagree"), (Files, "replace")):
                patch.setattr(of, name, killed(of, name))
            sharing.Membership(workspace).leave()
    stage.run("velma", "leave", "--yes", expect=None)
    with contextlib.closing(Workspace(root)) as workspace:
        assert (workspace.state.agreed("remote"), workspace.tree.head()) == ([], "")
        assert what == "origin" or not any(map(workspace.state.get, logins))
        assert workspace.config.share.remote == (str(stage.remote) if what == "project" else "")
        assert sharing.sync_if_agreed(workspace, "velma").remote == ""


@pytest.mark.parametrize(("of", "name"), [(Workspace, "take"), (Local, "agree")])
def test_a_yes_to_another_remote_that_is_cut_short_leaves_no_tree_of_the_clan_before(stage, monkeypatch, of, name):
    stage.join("velma")
    stage.correct("velma", LESSON)
    stage.run("velma", "sync")

    def killed(*_, **__):
        raise Killed

    with contextlib.closing(Workspace(stage.folder / "velma")) as workspace:
        with monkeypatch.context() as patch, contextlib.suppress(Killed):
            patch.setattr(of, name, killed)
            sharing.Membership(workspace).agree("/another/clan")
        assert workspace.state.agreed("remote") == [str(stage.remote)], "the next yes does the whole again"
        sharing.Membership(workspace).agree("/another/clan")
        assert workspace.tree.head() == ""


def test_an_import_before_the_own_word_of_it_is_no_other_machines_after_a_return(stage):
    stage.join("velma")
    stage.run("velma", "config", "set", "keep.edition_always_bytes", "0")  # as in a clan that is not small
    stage.run("velma", "config", "set", "keep.edition_uncovered_share", "9")
    page = stage.folder / "page.jsonl"
    page.write_text(json.dumps({"pattern": LESSON, "correction": "r", "seen": 2, "date": "2026-11-19"}) + "\n")
    stage.run("velma", "import", str(page))
    stage.run("velma", "compact")
    stage.correct("velma", LESSON)
    stage.run("velma", "sync")
    stage.run("velma", "leave", "--yes")
    told = stage.run("velma", "init", "--remote", str(stage.remote), "--yes").stderr
    assert "somebody else writes" not in told + stage.run("velma", "sync").stderr
    assert stage.seen("velma") == {LESSON: 3}


def test_leaving_does_not_speak_for_others(stage):
    stage.join("velma")
    stage.correct("velma", LESSON)
    stage.run("velma", "sync")
    stage.git("init", "--quiet", where="velma")
    stage.git("add", "fleet.toml", where="velma")
    config = (stage.folder / "velma/fleet.toml").read_bytes()
    assert "for others" in stage.run("velma", "leave", "--yes").stdout
    assert (stage.folder / "velma/fleet.toml").read_bytes() == config
    at = head(stage)
    stage.correct("velma", "more")
    stage.run("velma", "sync")
    assert head(stage) == at
    assert json.loads(stage.run("velma", "status", "--json").stdout)["remote"] == ""
    assert "not here yet" not in stage.run("velma", "init").stderr
    assert "never asked" not in stage.run("velma", "start").stdout
    shown = stage.run("velma").stdout
    assert "never synced" not in shown
    assert "fleet sync" not in shown, "it would do nothing"


def test_who_left_the_projects_own_clan_is_told_how_to_come_back_and_nothing_that_does_not_work(stage):
    stage.run("velma", "init", "--agent", "velma")
    stage.git("init", "--quiet", "--bare", str(stage.remote))
    stage.git("init", "--quiet", where="velma")
    stage.git("remote", "add", "origin", str(stage.remote), where="velma")
    stage.correct("velma", LESSON)
    stage.run("velma", "sync", "--yes")
    assert f"fleet init --remote {stage.remote}` comes back" in stage.run("velma", "leave", "--yes").stdout
    assert "fleet sync --yes" not in stage.run("velma", "init").stdout
    assert "no remote is named" in stage.run("velma", "sync", "--yes").stdout
    stage.run("velma", "init", "--remote", str(stage.remote))
    assert "synced with" in stage.run("velma", "sync").stdout


@pytest.mark.parametrize("remote", [True, False])
def test_there_is_no_leaving_without_a_clan(stage, remote):
    stage.run("alone", "init", "--agent", "velma")
    if remote:  # only the project's own origin, which nobody ever agreed to
        stage.git("init", "--quiet", where="alone")
        stage.git("remote", "add", "origin", "https://example.org/x.git", where="alone")
    stage.run("alone", "leave", "--yes", expect=1)
