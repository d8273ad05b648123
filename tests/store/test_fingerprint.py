"""The two small checks that rows rest on: the fingerprint of a file, and the checksum of a row."""

import os
import sqlite3
import stat
import time

import pytest

from fleet.store import database, files

SECOND_NS = 1_000_000_000


def stated(written_ns: int) -> os.stat_result:
    """Return the state of a plain file that was written then."""
    times = dict.fromkeys(("st_atime_ns", "st_mtime_ns", "st_ctime_ns"), written_ns)
    return os.stat_result((stat.S_IFREG | 0o644, 7, 1, 1, 0, 0, 100, 0, 0, 0), times)


@pytest.mark.parametrize(
    ("written_ns", "age_ns", "is_settled"),
    [
        (5 * SECOND_NS + 1, 0, False),
        (5 * SECOND_NS + 1, 10_000_000, False),
        (5 * SECOND_NS + 1, 50_000_000, True),
        (5 * SECOND_NS, 50_000_000, False),  # perhaps of a file system with a clock of whole seconds
        (5 * SECOND_NS, 2 * SECOND_NS, True),
    ],
)
def test_a_file_has_no_fingerprint_until_a_tick_of_its_clock_has_passed(monkeypatch, written_ns, age_ns, is_settled):
    monkeypatch.setattr(time, "time_ns", lambda: written_ns + age_ns)
    assert bool(files.fingerprint(stated(written_ns))) is is_settled


def test_a_row_whose_bytes_are_others_is_never_believed():
    line = b'{"id":"p-0000000000000001"}'
    assert database.checked(line, database.checksum(line)) == line
    with pytest.raises(sqlite3.DatabaseError):
        database.checked(line.replace(b"1", b"2"), database.checksum(line))
