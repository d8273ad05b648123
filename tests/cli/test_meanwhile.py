"""A sync whose remote does meanwhile what there is to do: the same files, counts and warnings as without."""

import random

import pytest

from fleet.cli import exchanging, wiring
from fleet.keep import config
from fleet.keep.errors import FleetError
from fleet.keep.workspace import Workspace
from fleet.learn import corrections
from fleet.learn.corrections import Correction
from fleet.share.meanwhile import Meanwhile
from fleet.share.memory import MemoryRemote, MemoryServer
from fleet.share.remote import RemoteUnavailable
from fleet.share.tree import MEMBERS, PAGE


class Waiting(MemoryRemote):
    """A remote that takes its time, in which tasks are done, and something else may happen here."""

    def __init__(self, server, meanwhile, happens=lambda: None):
        super().__init__(server)
        self.meanwhile, self.happens = meanwhile, happens

    def pull(self, since):
        self.meanwhile.spend()
        return super().pull(since)

    def push(self, files, on, *, message=None):
        self.meanwhile.one()
        self.meanwhile.spend()
        self.happens()
        return super().push(files, on, message=message)


@pytest.fixture
def clan(tmp_path):
    return Clan(tmp_path)


class Clan:
    def __init__(self, folder):
        self.folder, self.server = folder, MemoryServer()

    def open(self, agent):
        root = self.folder / agent
        root.mkdir(exist_ok=True)
        (root / config.FILE_NAME).touch()
        workspace = Workspace(root)
        with workspace.writing(agent):
            pass
        return workspace

    def correct(self, agent, lesson):
        corrections.correct(self.open(agent), agent, Correction("w", "r", lesson))

    def by_hand(self, agent, lesson):
        path = self.folder / agent / "agents" / agent / "corrections.md"
        path.parent.mkdir(parents=True, exist_ok=True)
        with path.open("a") as file:
            file.write(f"\n## 2026-11-21 — by hand\n**Pattern:** {lesson}\n")

    def sync(self, agent, happens=lambda: None, remote=None):
        meanwhile, workspace = Meanwhile(), self.open(agent)
        remote = remote or Waiting(self.server, meanwhile, happens)
        rng = random.Random(1)
        done = exchanging.sync(workspace, remote, rng=rng, sleep=lambda _: None, meanwhile=meanwhile)
        assert workspace.store.read(PAGE) == wiring.page(workspace, workspace.load().notebook)
        return done, workspace.store.read(PAGE)


@pytest.fixture(params=["read", "glanced at"])
def size(request, monkeypatch):
    """Whether the clan is read as a whole, or the index is asked."""
    if request.param == "glanced at":
        monkeypatch.setattr("fleet.keep.limits.VIEW_BYTES_MIN", 0)


@pytest.fixture
def pages(monkeypatch):
    made = []
    render = wiring.render_page
    monkeypatch.setattr(wiring, "render_page", lambda *words, **more: made.append(1) or render(*words, **more))
    return made


@pytest.mark.usefixtures("size")
def test_what_came_in_is_counted_and_what_was_written_by_hand_here_is_not(clan):
    clan.correct("tank", "a lesson of tank's")
    clan.sync("tank")
    clan.by_hand("velma", "a lesson of velma's")
    done, page = clan.sync("velma")
    assert (done.out, done.patterns_in) == (1, 1)
    assert b"tank's" in page
    assert b"velma's" in page


@pytest.mark.usefixtures("size")
def test_a_remote_that_never_waits_is_given_all_there_is_to_do_before_its_files_are_taken_in(clan):
    clan.correct("tank", "a lesson of tank's")
    clan.sync("tank")
    clan.by_hand("velma", "a lesson of velma's")
    done, _ = clan.sync("velma", remote=MemoryRemote(clan.server))
    assert (done.out, done.patterns_in) == (1, 1)


@pytest.mark.usefixtures("size")
def test_the_page_is_made_while_a_push_runs_and_not_again(clan, pages, monkeypatch):
    monkeypatch.setattr("fleet.share.tree.edition", lambda *_, **__: {})
    clan.correct("tank", "a lesson")
    at_push = []
    clan.sync("tank", happens=lambda: at_push.append(len(pages)))
    assert at_push == [1]
    assert len(pages) == 2, "the second is this test's own, to compare"


@pytest.mark.usefixtures("size")
def test_what_is_logged_while_a_push_runs_is_on_the_page(clan):
    clan.correct("velma", "the first lesson")
    clan.sync("velma")
    clan.correct("velma", "the second lesson")
    _, page = clan.sync("velma", happens=lambda: clan.correct("velma", "logged meanwhile"))
    assert b"logged meanwhile" in page


@pytest.mark.usefixtures("size")
def test_a_member_who_is_named_while_a_push_runs_is_on_the_page(clan, monkeypatch):
    monkeypatch.setattr("fleet.share.tree.edition", lambda *_, **__: {})  # else the clan's own files change, too
    clan.correct("velma", "the first lesson")

    def named():
        workspace = clan.open("velma")
        workspace.store.write(MEMBERS, b'[velma]\nemoji = "\xf0\x9f\x94\x8e"\n')

    _, page = clan.sync("velma", happens=named)
    assert "🔎".encode() in page


def test_our_own_words_are_settled_though_the_remote_is_not_reached(clan):
    clan.correct("velma", "the first lesson")
    clan.by_hand("velma", "a lesson by hand")
    clan.server.is_down = True
    with pytest.raises(RemoteUnavailable):
        clan.sync("velma", remote=MemoryRemote(clan.server))
    assert b"a lesson by hand" in b"".join(
        path.read_bytes() for path in (clan.folder / "velma/clan-learnings/patterns.d").iterdir()
    )


def test_what_goes_wrong_here_meanwhile_is_told_as_what_it_is(clan, monkeypatch):
    clan.correct("velma", "the first lesson")

    def broken(_):
        raise OSError(5, "Input/output error", "corrections.md")

    monkeypatch.setattr(corrections, "settle_all", broken)
    with pytest.raises(OSError, match=r"corrections\.md"):
        clan.sync("velma")
    assert not clan.server.tree(), "nothing was taken in or sent"


@pytest.mark.parametrize("ours", [OSError(5, "Input/output error", "corrections.md"), FleetError("the log is odd")])
def test_of_two_troubles_a_person_hears_of_both(clan, monkeypatch, ours):
    clan.correct("velma", "the first lesson")
    clan.server.is_down = True
    workspace, meanwhile = clan.open("velma"), Meanwhile()

    def broken(_):
        raise ours

    monkeypatch.setattr(corrections, "settle_all", broken)
    with pytest.raises(RemoteUnavailable):
        exchanging.sync(workspace, MemoryRemote(clan.server), meanwhile=meanwhile)
    (told,) = workspace.warnings
    assert "meanwhile, on this machine" in told
    assert "corrections.md" in told or "the log is odd" in told


def test_a_fault_of_fleets_own_is_not_hidden_by_a_remote_that_is_down(clan, monkeypatch):
    clan.correct("velma", "the first lesson")
    clan.server.is_down = True
    workspace, meanwhile = clan.open("velma"), Meanwhile()
    monkeypatch.setattr(corrections, "settle_all", lambda _: {}["nothing"])
    with pytest.raises(KeyError):
        exchanging.sync(workspace, MemoryRemote(clan.server), meanwhile=meanwhile)
    (told,) = workspace.warnings
    assert "down" in told or "lost" in told
