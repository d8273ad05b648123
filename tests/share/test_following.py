"""Reading on in files that grow, and anew in files that are other ones now."""

from collections.abc import Iterator
from pathlib import Path

import pytest

from fleet.keep.disk import Disk
from fleet.keep.store import Store
from fleet.share import following
from fleet.share.following import Follower

SHARD = "patterns.d/tank.c0ffee42.jsonl"


def line(number: int) -> bytes:
    return b'{"id":"p-%016x","set":{"text":"%d"}}\n' % (number, number)


@pytest.fixture
def file(tmp_path: Path) -> Iterator[Path]:
    (tmp_path / "clan/patterns.d").mkdir(parents=True)
    return tmp_path / "clan" / SHARD


@pytest.fixture
def follower(tmp_path: Path) -> Follower:
    return Follower(Store(Disk(tmp_path), tmp_path / "clan", tmp_path / "base"))


def news(follower: Follower) -> list[int]:
    return [int(entry.id[2:], 16) for _, _, entry in follower.news()]


def test_each_line_is_news_once(file: Path, follower: Follower):
    assert news(follower) == []
    file.write_bytes(line(1) + line(2))
    assert news(follower) == [1, 2]
    assert news(follower) == []
    with file.open("ab") as grown:
        grown.write(line(3))
    assert news(follower) == [3]


def test_a_line_that_is_still_being_written_comes_when_it_is_whole(file: Path, follower: Follower):
    for end in range(len(line(2))):
        file.write_bytes(line(1) + line(2)[:end])
        assert news(follower) in ([1], [], [1, 2], [2])
    file.write_bytes(line(1) + line(2) + line(3))
    assert {2, 3} <= set(news(follower))
    assert news(follower) == []


def test_a_last_line_without_an_end_is_read(file: Path, follower: Follower):
    file.write_bytes(line(1) + line(2)[:-1])
    assert news(follower) == [1, 2]
    with file.open("ab") as grown:
        grown.write(b"\n" + line(3))
    assert 3 in news(follower)


def test_a_file_that_was_replaced_is_read_anew(file: Path, follower: Follower):
    same = b"".join(map(line, range(10, 20)))
    file.write_bytes(line(1) + same)
    assert news(follower) == [1, *range(10, 20)]
    other = file.with_name("other")
    other.write_bytes(line(7) + same + line(3))  # the same at the place where the reading ended
    other.rename(file)
    assert news(follower) == [7, *range(10, 20), 3]


def test_a_file_that_was_rewritten_in_its_place_is_read_anew(file: Path, follower: Follower):
    file.write_bytes(line(1) + line(2))
    assert news(follower) == [1, 2]
    with file.open("r+b") as same:
        same.write(line(5) + line(6) + line(7))
    assert news(follower) == [5, 6, 7]
    with file.open("r+b") as same:
        same.truncate(len(line(5)))
    assert news(follower) == [5]


def test_a_file_that_went_and_came_back_is_read_anew(file: Path, follower: Follower):
    file.write_bytes(line(1))
    assert news(follower) == [1]
    file.unlink()
    assert news(follower) == []
    file.write_bytes(line(1))
    assert news(follower) == [1]


def test_all_is_read_anew_when_asked_for(file: Path, follower: Follower):
    file.write_bytes(line(1))
    assert news(follower) == [1]
    follower.forget()
    assert news(follower) == [1]


def test_rubbish_is_passed_over_and_large_files_come_in_blocks(
    file: Path, follower: Follower, monkeypatch: pytest.MonkeyPatch
):
    monkeypatch.setattr(following, "_READ_BYTES", 64)
    file.write_bytes(b"\xef\xbb\xbf" + b"".join(line(n) + b"rubbish\n\xff\n" for n in range(50)))
    assert news(follower) == list(range(50))
    with file.open("ab") as grown:
        grown.write(b"x" * 100_000 + b"\n" + line(50))
    assert news(follower) == [50]
    assert news(follower) == []
