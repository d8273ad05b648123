"""A file that stays open is written to only for as long as its path leads to it."""

import os
import threading
from pathlib import Path

import pytest

from fleet.keep import disk as disks
from fleet.keep.disk import Disk
from fleet.keep.errors import DiskError


@pytest.fixture
def disk(tmp_path):
    made = Disk(tmp_path)
    yield made
    made.close()


@pytest.fixture
def opened(monkeypatch):
    """Names of what was opened for writing."""
    found, real = [], os.open

    def note(path, flags, *rest, **more):
        if flags & (os.O_RDWR | os.O_WRONLY):
            found.append(Path(path).name)
        return real(path, flags, *rest, **more)

    monkeypatch.setattr(os, "open", note)
    return found


def handles():
    return len(list(Path("/dev/fd").iterdir()))


def three_lines(disk, path):
    for number in range(3):
        disk.append(path, b"%d\n" % number)


def test_a_log_is_opened_twice_however_often_it_is_written_to(disk, tmp_path, opened):
    three_lines(disk, tmp_path / "log")
    three_lines(disk, str(tmp_path / "log"))
    assert opened == ["log", "log", "log"]  # asked for, made, and opened to stay open
    assert (tmp_path / "log").read_bytes() == b"0\n1\n2\n0\n1\n2\n"


@pytest.mark.parametrize("how", ["replaced", "removed", "linked", "folder"])
def test_what_lies_there_now_is_written_to(disk, tmp_path, how):
    folder, path = tmp_path / "in", tmp_path / "in" / "log"
    three_lines(disk, path)
    elsewhere = tmp_path / "elsewhere"
    if how == "replaced":
        elsewhere.write_bytes(b"by an editor\n")
        elsewhere.replace(path)
    elif how == "removed":
        path.unlink()
    elif how == "linked":
        path.rename(elsewhere)
        path.symlink_to(elsewhere)
    else:
        folder.rename(elsewhere)
        folder.mkdir()
    if how == "linked":
        with pytest.raises(DiskError, match="symbolic link"):
            disk.append(path, b"next\n")
        assert elsewhere.read_bytes() == b"0\n1\n2\n"
        return
    disk.append(path, b"next\n")
    assert path.read_bytes() == (b"by an editor\nnext\n" if how == "replaced" else b"next\n")


def test_a_folder_that_became_a_link_to_another_one_is_refused(disk, tmp_path):
    path = tmp_path / "in" / "log"
    three_lines(disk, path)
    (tmp_path / "in").rename(tmp_path / "before")
    (tmp_path / "other").mkdir()
    (tmp_path / "other" / "log").write_bytes(b"somebody's own\n")
    (tmp_path / "in").symlink_to(tmp_path / "other")
    with pytest.raises(DiskError, match="is a link"):
        disk.append(path, b"next\n")
    assert (tmp_path / "other" / "log").read_bytes() == b"somebody's own\n"


def test_what_an_editor_left_without_a_line_end_is_closed_first(disk, tmp_path):
    path = tmp_path / "log"
    three_lines(disk, path)
    path.write_bytes(b"by hand")
    disk.append(path, b"next\n")
    assert path.read_bytes() == b"by hand\nnext\n"


def test_a_note_is_written_into_the_file_that_lies_there(disk, tmp_path):
    path = tmp_path / "note"
    for number in range(3):
        disk.note(path, b"%d" % number)
    path.rename(tmp_path / "before")
    disk.note(path, b"new")
    assert (path.read_bytes(), (tmp_path / "before").read_bytes()) == (b"new", b"2")


def test_a_file_that_could_not_be_written_to_is_opened_anew(disk, tmp_path, opened, monkeypatch):
    path = tmp_path / "log"
    three_lines(disk, path)
    opened.clear()

    def fails(handle):
        raise OSError(5, "Input/output error")

    with monkeypatch.context() as broken:
        broken.setattr(os, "fsync", fails)
        with pytest.raises(DiskError):
            disk.append(path, b"lost\n")
    disk.append(path, b"next\n")
    assert path.read_bytes() == b"0\n1\n2\nnext\n"
    assert opened == ["log"]


def test_few_files_stay_open_and_none_when_all_is_done(disk, tmp_path):
    before = handles()
    for name in range(100):
        for _ in range(3):
            disk.append(tmp_path / f"log-{name}", b"line\n")
            disk.note(tmp_path / f"note-{name}", b"note")
    assert handles() - before <= 16
    disk.close()
    assert handles() == before
    disk.append(tmp_path / "log-0", b"again\n")
    assert (tmp_path / "log-0").read_bytes() == b"line\n" * 3 + b"again\n"


def test_threads_that_write_to_many_files_write_to_their_own(disk, tmp_path):
    def write(number):
        for _ in range(40):
            for name in range(12):
                disk.append(tmp_path / f"{number}-{name}", b"%d-%d\n" % (number, name), is_durable=False)

    threads = [threading.Thread(target=write, args=(number,)) for number in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    for number in range(4):
        for name in range(12):
            assert (tmp_path / f"{number}-{name}").read_bytes() == b"%d-%d\n" % (number, name) * 40


@pytest.mark.parametrize("has_advice", [True, False])
def test_what_is_done_meanwhile_is_done_before_the_disk_has_it(disk, tmp_path, monkeypatch, has_advice):
    told, real = [], os.fsync
    monkeypatch.setattr(disks, "_HAS_ADVICE", has_advice and disks._HAS_ADVICE)
    monkeypatch.setattr(os, "fsync", lambda handle: told.append("synced") or real(handle))
    path = tmp_path / "log"
    three_lines(disk, path)
    told.clear()
    disk.append(path, b"next\n", meanwhile=lambda: told.append(path.read_bytes()))
    assert told == [b"0\n1\n2\nnext\n", "synced"]
