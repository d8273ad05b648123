"""Lessons that share words with a text: which come first, and that what most lessons say costs nothing."""

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from crdt import clock
from fleet import RELEASED_MS
from fleet.model.line import Column, Line, encode
from fleet.store import config, database
from fleet.store.workspace import Workspace, World

NOW_MS = RELEASED_MS + 40 * 86_400_000


@pytest.fixture
def root(tmp_path):
    (tmp_path / config.FILE_NAME).write_text("")
    (tmp_path / "clan-learnings").mkdir()
    return tmp_path


def found(root, text, *lessons, order=None):
    """Return the candidates for a text among lessons, each newer than the one before; read in an order of files."""
    for number in range(len(lessons)) if order is None else order:
        column = Column(add=clock.pack(NOW_MS - 1_000_000 + number), n={"seen": 1}, first={"text": lessons[number]})
        shard = root / "clan-learnings/patterns.d/velma.09ab12cd.jsonl"
        shard.parent.mkdir(exist_ok=True)
        with shard.open("ab") as file:
            file.write(encode(Line(id=f"p-{number:016x}", w={"velma.09ab12cd": column})) + b"\n")
    workspace = Workspace(root, World(wall_ms=lambda: NOW_MS, machine=lambda: "machine", durable=False))
    try:
        return list(workspace.patterns.candidates(text).values())
    finally:
        workspace.close()


def test_whoever_shares_a_rare_word_comes_before_whoever_shares_a_frequent_one(root):
    lessons = ("drain the queue", "flush the queue", "drain a pipe", "flush a pipe", "rotate a pipe")
    assert found(root, "rotate the queue", *lessons)[0] == "rotate a pipe"
    assert found(root, "drain the queue")[0] == "drain the queue"


def test_of_equals_the_shortest_comes_first_then_the_newest(root):
    lessons = ("rotate keys daily", "rotate keys hourly or so", "rotate keys weekly", "rotate keys yearly")
    expected = ["rotate keys daily", "rotate keys yearly", "rotate keys weekly", "rotate keys hourly or so"]
    assert found(root, "rotate keys", *lessons) == expected


def test_what_most_lessons_say_is_not_looked_up(root, monkeypatch):
    monkeypatch.setattr(database, "_HOLDERS_MAX", 4)
    common = [f"check the cache of host{number}" for number in range(20)]
    lessons = [*common, "check a lease before host3 renews", "renew a lease"]
    assert set(found(root, "renew a lease, check the cache", *lessons)) == set(lessons[20:])


def test_what_has_common_words_alone_is_found_by_the_two_rarest(root, monkeypatch):
    monkeypatch.setattr(database, "_HOLDERS_MAX", 1)
    lessons = ["check the cache", "check a lease", "check the queue", "drain the cache"]
    assert found(root, "check your cache", *lessons)[0] == "check the cache"


@given(st.permutations(range(6)))
@settings(max_examples=10, deadline=None)
def test_the_order_in_which_lessons_came_changes_nothing(tmp_path_factory, order):
    lessons = ("rotate keys", "rotate logs", "drain logs", "drain keys", "flush logs", "flush keys")
    answers = []
    for each in (None, order):
        folder = tmp_path_factory.mktemp("clan")
        (folder / config.FILE_NAME).write_text("")
        (folder / "clan-learnings").mkdir()
        answers.append(found(folder, "rotate and flush the logs", *lessons, order=each))
    assert answers[0] == answers[1]
