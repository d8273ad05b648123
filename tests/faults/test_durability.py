"""Written, fsynced, and only then acknowledged; and what the disk refuses is never acknowledged (faults 1, 4, 5, 6)."""

import errno
import fcntl
import os
import stat
from pathlib import Path

import pytest

from fleet.learn.corrections import Corrections
from fleet.learn.corrections_md import Correction
from fleet.learn.counting import CountedLog
from fleet.model.errors import DiskError
from fleet.store import config
from fleet.store.database import Local
from fleet.store.files import Files
from fleet.store.workspace import Workspace

LESSON = Correction("w", "r", "A lesson")


@pytest.fixture
def workspace(tmp_path):
    (tmp_path / "fleet.toml").write_text(config.render("", "fleet"))
    return Workspace(tmp_path)


@pytest.fixture
def calls(monkeypatch):
    """Record writes, fsyncs and renames, each with the file that it is about."""
    made = []

    def named(handle):
        return Path(f"/proc/self/fd/{handle}").readlink().name

    for name in ("write", "fsync"):
        real = getattr(os, name)

        def noted(handle, *rest, real=real, name=name):
            made.append((name, named(handle)))
            return real(handle, *rest)

        monkeypatch.setattr(os, name, noted)
    real_replace = os.replace
    monkeypatch.setattr(os, "replace", lambda *paths: (made.append(("rename", "")), real_replace(*paths))[1])
    return made


needs_proc = pytest.mark.skipif(not Path("/proc/self/fd").is_dir(), reason="no /proc to name open files by")


@needs_proc
def test_a_correction_is_on_the_disk_before_it_is_acknowledged(workspace, calls):
    Corrections(workspace, "velma").log(LESSON, session="s")
    log = [name for name, file in calls if file == "corrections.md"]
    assert log == ["write", "fsync"], "one write(2), then fsync"
    folders = [file for name, file in calls if name == "fsync"]
    assert "velma" in folders, "the folder of a new file is synced too"


@needs_proc
def test_a_page_is_synced_before_it_takes_the_old_one_s_place(tmp_path, calls):
    Files(tmp_path).replace(tmp_path / "page", b"text")
    steps = [name for name, _ in calls]
    assert steps == ["write", "fsync", "fsync"] or steps == ["write", "fsync", "rename", "fsync"]


@pytest.mark.parametrize("broken", ["write", "fsync"])
@pytest.mark.parametrize("number", [errno.EIO, errno.ENOSPC])
def test_what_the_disk_refuses_is_not_acknowledged_and_harms_nothing(workspace, monkeypatch, broken, number):
    Corrections(workspace, "velma").log(LESSON, session="s")
    before = CountedLog(workspace, "velma").log_file().read_bytes()

    def refuse(*_):
        raise OSError(number, os.strerror(number))

    with monkeypatch.context() as patch:
        patch.setattr(os, broken, refuse)
        with pytest.raises(DiskError) as told:
            Corrections(workspace, "velma").log(Correction("w", "r", "Another lesson"), session="s")
    assert str(told.value)
    assert CountedLog(workspace, "velma").log_file().read_bytes().startswith(before)
    # When there is room again, everything goes on, and nothing is counted twice.
    logged = Corrections(workspace, "velma").log(LESSON, session="s")
    assert logged.seen == 2


def test_a_replacement_that_fails_leaves_the_old_page_whole(tmp_path, monkeypatch):
    disk = Files(tmp_path)
    disk.replace(tmp_path / "page", b"old")

    def refuse(*_):
        raise OSError(errno.ENOSPC, "full")

    for broken in ("write", "fsync"):
        with monkeypatch.context() as patch:
            patch.setattr(os, broken, refuse)
            with pytest.raises(DiskError):
                disk.replace(tmp_path / "page", b"new text")
        assert (tmp_path / "page").read_bytes() == b"old"
        assert [path.name for path in tmp_path.iterdir()] == ["page"], "nothing is left behind"


@pytest.mark.parametrize(("number", "is_logged"), [(errno.EINVAL, True), (errno.EBADF, True), (errno.EIO, False)])
def test_a_folder_that_cannot_be_synced_has_the_line_that_is_acknowledged_and_no_other(
    workspace, monkeypatch, number, is_logged
):
    (workspace.root / "agents/velma").mkdir(parents=True)
    fsync = os.fsync

    def refuse(handle):
        if stat.S_ISDIR(os.fstat(handle).st_mode):
            raise OSError(number, os.strerror(number))
        fsync(handle)

    with monkeypatch.context() as patch:
        patch.setattr(os, "fsync", refuse)
        if is_logged:
            workspace.files.append(workspace.home("velma") / "corrections.md", b"a line\n")
        for _ in range(0 if is_logged else 2):  # again, now that the empty file is there
            with pytest.raises(DiskError):
                workspace.files.append(workspace.home("velma") / "corrections.md", b"a line\n")
    assert (workspace.home("velma") / "corrections.md").read_bytes() == (b"a line\n" if is_logged else b"")


def test_a_file_system_without_permissions_takes_files_all_the_same(tmp_path, monkeypatch):
    def refuse(*_):
        raise PermissionError(errno.EPERM, "Operation not permitted")  # as a Windows disk answers inside WSL

    monkeypatch.setattr(os, "fchmod", refuse)
    Files(tmp_path).write(tmp_path / "page", [b"text"], mode=0o600)
    assert (tmp_path / "page").stat().st_mode & 0o777 == 0o600


def test_where_fsync_leaves_data_in_the_drives_cache_the_drive_is_asked_too(tmp_path, monkeypatch):
    asked = []

    def full_fsync(handle, command):
        asked.append(command)
        if stat.S_ISDIR(os.fstat(handle).st_mode):
            raise OSError(errno.ENOTSUP, "Operation not supported")

    monkeypatch.setattr(fcntl, "F_FULLFSYNC", 51, raising=False)  # macOS's
    monkeypatch.setattr(fcntl, "fcntl", full_fsync)
    monkeypatch.setattr(os, "fsync", lambda _: asked.append("fsync"))
    Files(tmp_path).append(tmp_path / "log", b"a line\n")
    assert asked == [51, 51, "fsync"]
    [(is_full,)] = Local(tmp_path / "local.db").connection().execute("PRAGMA fullfsync")
    assert is_full


def test_a_disk_without_locks_is_named_with_a_way_out(workspace, monkeypatch):
    Corrections(workspace, "velma").log(LESSON, session="s")

    def refuse(*_):
        raise OSError(errno.ENOLCK, "No locks available")

    monkeypatch.setattr(fcntl, "flock", refuse)
    with pytest.raises(DiskError, match=r"log-velma\.lock cannot be locked \(No locks available\).* local disk"):
        Corrections(workspace, "velma").log(LESSON, session="s")
    assert [each.count("seen") for each in workspace.patterns.lessons()] == [1], "what only reads works"
