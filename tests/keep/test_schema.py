"""A schema's version: backed up before a migration, all of it or none, and refused clearly by an older fleet."""

import sqlite3
from contextlib import closing

import pytest

from fleet.keep.errors import FleetError
from fleet.keep.state import State


def add_notes(connection):
    """Version 1 to 2."""
    connection.execute("CREATE TABLE note (id TEXT PRIMARY KEY)")


def fill_notes(connection):
    """Version 2 to 3."""
    connection.execute("INSERT INTO note SELECT key FROM meta")


def break_halfway(connection):
    """A migration with a fault."""
    connection.execute("CREATE TABLE half (id TEXT)")
    connection.execute("INSERT INTO nothing VALUES (1)")


def asked(path, sql):
    with closing(sqlite3.connect(path)) as connection:
        return connection.execute(sql).fetchall()


@pytest.fixture
def old(tmp_path):
    """A database of version 1, its last words still in the journal of a process that is open."""
    state = State(tmp_path / "state.db", durable=False)
    state.put(mark="m")
    state.mark_sent([b"line"])
    yield state
    state.close()


def test_an_older_database_is_copied_and_then_brought_up_to_date(old, tmp_path):
    new = State(tmp_path / "state.db", durable=False, migrations=(add_notes, fill_notes))
    assert new.get("mark") == "m"
    assert new.was_sent(b"line")
    assert asked(tmp_path / "state.db", "PRAGMA user_version") == [(3,)]
    assert asked(tmp_path / "state.db", "SELECT id FROM note") == [("mark",), ("schema",)]
    copy = tmp_path / "state.schema-1.db"
    assert asked(copy, "PRAGMA user_version") == [(1,)]
    assert asked(copy, "SELECT value FROM meta WHERE key = 'mark'") == [("m",)]
    assert asked(copy, "SELECT count(*) FROM sent") == [(1,)]
    assert not list(tmp_path.glob(".*.tmp"))
    new.close()


def test_a_database_that_is_up_to_date_is_not_copied_again(old, tmp_path):
    migrations = (add_notes,)
    for _ in range(2):
        state = State(tmp_path / "state.db", durable=False, migrations=migrations)
        assert state.get("mark") == "m"
        state.close()
        (tmp_path / "state.schema-1.db").unlink(missing_ok=True)
    assert not list(tmp_path.glob("state.schema-*"))


def test_a_new_database_goes_through_every_migration_and_leaves_no_copy(tmp_path):
    state = State(tmp_path / "state.db", durable=False, migrations=(add_notes, fill_notes))
    state.put(a="b")
    assert asked(tmp_path / "state.db", "PRAGMA user_version") == [(3,)]
    assert asked(tmp_path / "state.db", "SELECT * FROM note") == []
    assert not list(tmp_path.glob("state.schema-*"))
    state.close()


def test_a_migration_that_fails_changes_nothing(old, tmp_path):
    broken = State(tmp_path / "state.db", durable=False, migrations=(add_notes, break_halfway))
    with pytest.raises(FleetError, match="from schema 2 to 3"):
        broken.get("mark")
    assert asked(tmp_path / "state.db", "PRAGMA user_version") == [(1,)]
    assert asked(tmp_path / "state.db", "SELECT name FROM sqlite_master WHERE name IN ('note', 'half')") == []
    assert not list(tmp_path.glob("state.damaged-*")), "not up to date is not damaged"
    assert old.get("mark") == "m"


def test_an_older_fleet_refuses_a_newer_database_clearly_and_leaves_it_alone(old, tmp_path):
    new = State(tmp_path / "state.db", durable=False, migrations=(add_notes,))
    new.get("mark")
    new.close()
    with pytest.raises(FleetError, match=r"newer fleet .schema 2, this one knows 1.*Upgrade"):
        State(tmp_path / "state.db", durable=False).get("mark")
    assert asked(tmp_path / "state.db", "PRAGMA user_version") == [(2,)]


def test_a_header_that_alone_says_newer_is_damaged(old, tmp_path):
    """One bit makes a 1 a 257: a newer fleet says so in two places."""
    old.close()
    with closing(sqlite3.connect(tmp_path / "state.db")) as connection:
        connection.execute("PRAGMA user_version = 257")
    said = []
    state = State(tmp_path / "state.db", durable=False, warn=said.append)
    assert state.get("mark") == ""
    state.close()
    (aside,) = tmp_path.glob("state.damaged-*.db")
    assert asked(aside, "SELECT value FROM meta WHERE key = 'mark'") == [("m",)]
    assert "no lesson is lost" in said[0]


def test_without_a_copy_there_is_no_migration(old, tmp_path, monkeypatch):
    from fleet.keep import schema

    monkeypatch.setattr(schema, "_copy", lambda *_: (_ for _ in ()).throw(FleetError("no space")))
    with pytest.raises(FleetError, match="no space"):
        State(tmp_path / "state.db", durable=False, migrations=(add_notes,)).get("mark")
    assert asked(tmp_path / "state.db", "PRAGMA user_version") == [(1,)]
