"""A yes to a remote outlives the database that can be made anew, and belongs to one machine and one remote."""

import sqlite3
from contextlib import closing

import pytest

LESSON = "Quote every shell variable"


def agreed(stage, *put: str) -> list[str]:
    """Return what was agreed to in tank's workspace, after putting other words in its place."""
    with closing(sqlite3.connect(stage.folder / "tank/.fleet/local.db", isolation_level=None)) as connection:
        for words in put:
            connection.execute("UPDATE consent SET value = ? WHERE kind = 'remote'", (words,))
        return [row[0] for row in connection.execute("SELECT value FROM consent WHERE kind = 'remote'")]


@pytest.mark.parametrize("damage", ["gone", "random bytes", "empty"])
def test_a_lost_database_does_not_end_the_sharing(stage, damage: str):
    stage.join("tank")
    stage.run("tank", "sync")
    [database] = (stage.folder / "tank/.fleet").glob("state-*.db")
    if damage == "gone":
        database.unlink()
    else:
        database.write_bytes(bytes(range(256)) * 16 if damage == "random bytes" else b"")
    stage.correct("tank", LESSON)
    assert "synced" in stage.run("tank", "sync").stdout
    assert LESSON in stage.git("show", "fleet:patterns.md", where="clan.git")


def test_a_yes_is_for_one_remote_and_one_machine(stage):
    stage.join("tank")
    [given] = agreed(stage)
    machine, url = given.split()
    assert url == str(stage.remote)
    for other in (f"{machine} {url}-too", f"0123456789abcdef {url}", "", f"{machine}\n{url}"):
        agreed(stage, other)
        assert "nobody has agreed" in stage.run("tank", "sync", expect=2).stderr
    stage.run("tank", "sync", "--yes")
    stage.run("tank", "sync")


def test_a_lost_yes_is_asked_for_again(stage):
    stage.join("tank")
    (stage.folder / "tank/.fleet/local.db").unlink()
    assert "nobody has agreed" in stage.run("tank", "sync", expect=2).stderr
    assert stage.git("for-each-ref", where="clan.git") == ""


def test_who_left_stays_away_though_the_database_is_lost(stage):
    stage.join("tank")
    stage.correct("tank", "Pin the image by its digest")
    stage.run("tank", "sync")
    stage.run("tank", "leave", "--yes")
    for path in (stage.folder / "tank/.fleet").glob("state-*"):
        path.unlink()
    stage.git("init", "--quiet", where="tank")
    stage.git("remote", "add", "origin", str(stage.remote), where="tank")
    before = stage.git("rev-parse", "fleet", where="clan.git")
    stage.correct("tank", LESSON)
    assert "nothing was sent" in stage.run("tank", "sync").stdout
    assert stage.git("rev-parse", "fleet", where="clan.git") == before
    stage.run("tank", "init", "--remote", str(stage.remote))
    assert "synced" in stage.run("tank", "sync").stdout
