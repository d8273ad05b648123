"""A yes to a remote outlives the database that can be made anew, and belongs to one machine and one remote."""

import pytest

from fleet.keep.workspace import Workspace

LESSON = "Quote every shell variable"


@pytest.mark.parametrize("damage", ["gone", "random bytes", "empty"])
def test_a_lost_database_does_not_end_the_sharing(stage, damage: str):
    stage.join("tank")
    stage.run("tank", "sync")
    database = stage.folder / "tank/.fleet/state.db"
    if damage == "gone":
        database.unlink()
    else:
        database.write_bytes(bytes(range(256)) * 16 if damage == "random bytes" else b"")
    stage.correct("tank", LESSON)
    assert "synced" in stage.run("tank", "sync").stdout
    assert LESSON in stage.git("show", "fleet:patterns.md", where="clan.git")


def test_a_yes_is_for_one_remote_and_one_machine(stage):
    stage.join("tank")
    given = stage.folder / "tank/.fleet/consent"
    word, machine, url = given.read_text().split()
    assert (word, url) == ("agreed", str(stage.remote))
    for other in (f"agreed {machine} {url}-too", f"agreed 0123456789abcdef {url}", "", f"agreed\n{machine}\n{url}"):
        given.write_text(other)
        assert "nobody has agreed" in stage.run("tank", "sync", expect=2).stderr
    stage.run("tank", "sync", "--yes")
    stage.run("tank", "sync")


def test_who_left_stays_away_though_the_database_is_lost(stage):
    stage.join("tank")
    stage.correct("tank", "Pin the image by its digest")
    stage.run("tank", "sync")
    stage.run("tank", "leave", "--yes")
    (stage.folder / "tank/.fleet/state.db").unlink()
    stage.git("init", "--quiet", where="tank")
    stage.git("remote", "add", "origin", str(stage.remote), where="tank")
    before = stage.git("rev-parse", "fleet", where="clan.git")
    stage.correct("tank", LESSON)
    assert "nothing was sent" in stage.run("tank", "sync").stdout
    assert stage.git("rev-parse", "fleet", where="clan.git") == before
    stage.run("tank", "init", "--remote", str(stage.remote))
    assert "synced" in stage.run("tank", "sync").stdout


@pytest.mark.parametrize("was", ["agreed", "left"])
def test_what_an_earlier_version_kept_in_the_database_still_counts(stage, was: str):
    stage.join("tank")
    stage.correct("tank", LESSON)
    given = stage.folder / "tank/.fleet/consent"
    _, machine, url = given.read_text().split()
    given.unlink()
    values = {"confirmed": f"{machine} {url}", "left": ""}
    if was == "left":
        values = {"confirmed": "", "left": "2026-11-20T22:30:00.123Z-0000"}
    workspace = Workspace(stage.folder / "tank")
    workspace.state.put(**values)
    workspace.close()
    told = stage.run("tank", "sync").stdout
    assert ("synced" if was == "agreed" else "nothing was sent") in told
