"""What happens here while a sync talks to its remote: counted, settled and shown as if it had come before or after."""

import random
import threading

import pytest

from fleet.app import pages, sharing
from fleet.learn import corrections, counting
from fleet.learn.corrections_md import Correction
from fleet.model.errors import NoError
from fleet.share.git import GitRemote
from fleet.share.remote import Moved, RemoteUnavailable
from fleet.store import config
from fleet.store.tree import MEMBERS, PAGE
from fleet.store.workspace import Workspace
from tests.memory_remote import MemoryRemote, MemoryServer


class Happening(MemoryRemote):
    """A remote, while whose push something happens here."""

    def __init__(self, server, tree, happens):
        super().__init__(server, tree)
        self.happens = happens

    def push(self, files, on, *, message=None):
        self.happens()
        return super().push(files, on, message=message)


@pytest.fixture
def clan(tmp_path):
    clan = Clan(tmp_path)
    yield clan
    for workspace in clan.opened:
        workspace.close()


class Clan:
    def __init__(self, folder):
        self.folder, self.server = folder, MemoryServer()
        self.opened = []

    def open(self, agent):
        root = self.folder / agent
        root.mkdir(exist_ok=True)
        (root / config.FILE_NAME).touch()
        workspace = Workspace(root)
        self.opened.append(workspace)
        with workspace.writing(agent):
            pass
        return workspace

    def correct(self, agent, lesson):
        corrections.Corrections(self.open(agent), agent).log(Correction("w", "r", lesson))

    def by_hand(self, agent, lesson):
        path = self.folder / agent / "agents" / agent / "corrections.md"
        path.parent.mkdir(parents=True, exist_ok=True)
        with path.open("a") as file:
            file.write(f"\n## 2026-11-21 — by hand\n**Pattern:** {lesson}\n")

    def sync(self, agent, happens=lambda: None):
        workspace = self.open(agent)
        remote = Happening(self.server, workspace.tree, happens)
        done = sharing.sync_with(workspace, remote, rng=random.Random(1), sleep=lambda _: None)
        page = (workspace.clan / PAGE).read_bytes()
        assert page == pages.rendered_page(workspace)
        return done, page


def test_what_came_in_is_counted_and_what_was_written_by_hand_here_is_not(clan):
    clan.correct("tank", "a lesson of tank's")
    clan.sync("tank")
    clan.by_hand("velma", "a lesson of velma's")
    done, page = clan.sync("velma")
    assert (done.out, done.patterns_in) == (1, 1)
    assert b"tank's" in page
    assert b"velma's" in page


def test_what_is_logged_while_a_push_runs_is_on_the_page(clan):
    clan.correct("velma", "the first lesson")
    clan.sync("velma")
    clan.correct("velma", "the second lesson")
    _, page = clan.sync("velma", happens=lambda: clan.correct("velma", "logged meanwhile"))
    assert b"logged meanwhile" in page


def test_a_member_who_is_named_while_a_push_runs_is_on_the_page(clan):
    clan.correct("velma", "the first lesson")

    def named():
        (clan.folder / "velma/clan-learnings" / MEMBERS).write_bytes(b'[velma]\nemoji = "\xf0\x9f\x94\x8e"\n')

    _, page = clan.sync("velma", happens=named)
    assert "🔎".encode() in page


def test_our_own_words_are_counted_though_the_remote_is_not_reached(clan):
    clan.correct("velma", "the first lesson")
    clan.by_hand("velma", "a lesson by hand")
    clan.server.is_down = True
    with pytest.raises(RemoteUnavailable):
        clan.sync("velma")
    shards = clan.folder / "velma/clan-learnings/patterns.d"
    assert b"a lesson by hand" in b"".join(path.read_bytes() for path in shards.iterdir())


def test_what_goes_wrong_here_is_told_as_what_it_is_and_nothing_is_sent(clan, monkeypatch):
    clan.correct("velma", "the first lesson")

    def broken(_):
        raise OSError(5, "Input/output error", "corrections.md")

    monkeypatch.setattr(counting, "reconcile_all", broken)
    with pytest.raises(OSError, match=r"corrections\.md"):
        clan.sync("velma")
    assert not clan.server.tree()


@pytest.mark.parametrize("when", ["fetch", "back-off"])
def test_nothing_is_sent_after_a_pause_that_comes_during_a_sync(clan, when):
    clan.correct("velma", "a lesson of velma's")
    workspace, other = clan.open("velma"), clan.open("velma")

    class Pausing(MemoryRemote):
        def fetch(self, since):
            if when == "fetch":
                other.state.pause("")
            return super().fetch(since)

        def push(self, files, on, *, message=None):
            return Moved("somebody was faster") if when == "back-off" else super().push(files, on, message=message)

    remote = Pausing(clan.server, workspace.tree)
    with pytest.raises(NoError, match="sharing is paused until"):
        sharing.sync_with(workspace, remote, rng=random.Random(1), sleep=lambda _: other.state.pause(""))
    assert not clan.server.tree()
    workspace.state.resume()
    assert clan.sync("velma")[0].out == 1


@pytest.mark.parametrize("words", [("edit", "{}", "--set", "scope=private"), ("pause",), ("undo",)])
def test_nobody_is_told_that_nothing_more_is_sent_while_a_push_still_runs(stage, monkeypatch, words):
    stage.join("velma")
    lesson = stage.correct("velma", "The customer Acme pays late")
    if words == ("undo",):  # of what made it the clan's
        for scope in ("private", "clan"):
            stage.run("velma", "edit", lesson, "--set", f"scope={scope}")
    push, ended, threads = GitRemote.push, list[str](), list[threading.Thread]()

    def asks() -> None:
        stage.run("velma", *(word.format(lesson) for word in words))
        ended.append("asked")

    def meanwhile(*given, **more):
        monkeypatch.setattr(GitRemote, "push", push)
        threads.append(threading.Thread(target=asks))
        threads[0].start()
        threads[0].join(3)
        pushed = push(*given, **more)
        ended.append("pushed")
        return pushed

    monkeypatch.setattr(GitRemote, "push", meanwhile)
    told = stage.run("velma", "sync", expect=None).stderr
    threads[0].join()
    assert ended == ["pushed", "asked"]
    assert "Everything is kept here" not in told


def test_nothing_is_sent_any_more_once_another_remote_was_agreed_to(clan):
    clan.correct("velma", "a lesson of velma's")
    workspace = clan.open("velma")

    class Other(MemoryRemote):
        def fetch(self, since):
            sharing.Membership(workspace).agree("/another/clan")
            return super().fetch(since)

    with pytest.raises(NoError, match="another remote"):
        sharing.sync_with(workspace, Other(clan.server, workspace.tree), sleep=lambda _: None)
    assert not clan.server.tree()
