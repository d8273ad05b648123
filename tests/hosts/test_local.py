"""Small files of the hooks: marks, and what a session has been told, without asking any file for its time."""

import json
import os
from concurrent.futures import ThreadPoolExecutor

import pytest

from fleet import hook as entry
from fleet.hosts import local
from fleet.hosts.local import LocalFolder
from fleet.model.errors import DiskError
from fleet.recall.ready import Ready
from fleet.store.files import Files
from fleet.store.git import Bare
from fleet.store.workspace import Workspace

DAY_MS = 86_400_000


def test_a_mark_tells_when(tmp_path, monkeypatch):
    assert LocalFolder(str(tmp_path)).marked_ms("asked") == 0
    monkeypatch.setattr(local, "now_ms", lambda: 1_800_000_000_123)
    LocalFolder(str(tmp_path)).mark("fired", "Stop", word="claude-code")
    assert LocalFolder(str(tmp_path)).fired() == {"Stop": 1_800_000_000_123}
    (tmp_path / ".fleet/fired/Stop").write_text("claude-code\n")  # of an older version
    assert LocalFolder(str(tmp_path)).fired() == {}


def test_a_workspace_that_was_taken_away_is_made_again_by_nobody_who_notes_something(tmp_path):
    root = tmp_path / "gone"
    assert not LocalFolder(str(root)).mark("fired", "Stop", word="claude-code")
    LocalFolder(str(root)).log("sidecar.log", "synced", "")
    Ready(str(root), "velma").note_seen("7")
    with pytest.raises(OSError, match="gone"), Bare(root / ".fleet/git", 1).locked():
        pass
    with pytest.raises(DiskError, match="gone"):
        Files(root).replace(root / "clan-learnings/patterns.md", b"")
    assert not root.exists()


def test_hooks_that_set_one_mark_at_once_have_all_set_it(tmp_path):
    folder = LocalFolder(str(tmp_path))
    folder.mark("fired", "PostToolUse", word="claude-code")

    def marks(_: int) -> bool:
        return all(folder.mark("fired", "PostToolUse", word="claude-code") for _ in range(500))

    with ThreadPoolExecutor(4) as pool:
        assert all(pool.map(marks, range(4)))


def test_a_session_that_two_hooks_note_at_once_keeps_its_transcript(tmp_path, monkeypatch):
    folder, path, write = LocalFolder(str(tmp_path)), str(tmp_path / "s.jsonl"), os.write
    folder.bind()

    def late(handle: int, data: bytes) -> int:
        monkeypatch.setattr(os, "write", write)
        folder.hear("s", "claude-code", "tank", path, has_ended=True)
        return write(handle, data)

    monkeypatch.setattr(os, "write", late)
    folder.hear("s", "claude-code", "tank", path, has_ended=False)
    assert [each.path for each in folder.heard()] == [path]


def test_sessions_that_nobody_heard_of_for_a_week_are_forgotten(tmp_path, monkeypatch):
    root, now = str(tmp_path), 1_800_000_000_000
    for session, days in (("old", 8), ("lively", 8), ("lively", 1), ("new", 0)):
        monkeypatch.setattr(local, "now_ms", lambda days=days: now - days * DAY_MS)
        local.SessionNotes(root, session).add("flag c-1")
    (tmp_path / ".fleet/told/broken").write_text("no line of ours\n")
    monkeypatch.setattr(local, "now_ms", lambda: now)
    LocalFolder(root).prune()
    assert sorted(path.name for path in (tmp_path / ".fleet/told").iterdir()) == ["lively", "new"]
    assert local.SessionNotes(root, "lively").all() == ["flag c-1", "flag c-1"]


def test_a_commit_is_new_once_though_it_was_made_while_the_reflog_was_read(tmp_path):
    log, found = tmp_path / ".git/logs/HEAD", []
    log.parent.mkdir(parents=True)
    log.touch()
    for number in range(3):
        reflog = local.Reflog(str(tmp_path), str(tmp_path))
        with log.open("a") as file:
            file.write(f"0 1 A <a@x> 1 +0000\tcommit: number {number}\n")
        found += reflog.commits()
    assert found == [("commit", "number 0"), ("commit", "number 1")]


def test_a_hostile_sessions_id_names_no_file_elsewhere(tmp_path):
    for session in ("../../etc/passwd", "", "a" * 500, "\u202e"):
        told = local.SessionNotes(str(tmp_path), session)
        told.add("stop once")
        assert told.all() == ["stop once"]
    assert len(list((tmp_path / ".fleet/told").iterdir())) == 4


def test_a_signal_waits_for_the_lock_that_every_command_takes(place, monkeypatch):
    from fleet.app import flagging
    from fleet.hosts.local import Call
    from fleet.hosts.payloads import Payload

    monkeypatch.setattr(flagging, "_LOCK_WAIT_S", 0.1)
    data = b'{"prompt": "No, that is wrong. You should have used pnpm, not npm."}'
    call, payload = (
        Call("UserPromptSubmit", str(place.folder), "tank", "s"),
        Payload.parse("UserPromptSubmit", data, {}),
    )
    workspace = Workspace(place.folder)
    with workspace.log_lock("tank"):
        assert "could not log" in flagging.Flagging(call).on_prompt(payload).warning
    workspace.close()
    assert place.entries() == ""
    assert "fleet learn c-" in flagging.Flagging(call).on_prompt(payload).context


@pytest.mark.parametrize("event", ["UserPromptSubmit", "Stop", "SessionStart", "PostToolUseFailure"])
def test_only_a_tool_call_is_ever_blocked(event, place, monkeypatch, capfd):
    """Exit 2 would block a person's prompt, whoever says so."""
    from fleet.app import events

    told = {"prompt": "No, wrong", "tool_input": {"command": "make"}, "error": "x", "cwd": str(place.folder)}
    monkeypatch.setattr(entry, "_read", json.dumps(told).encode)
    monkeypatch.setattr(entry, "_has_work", lambda *_: True)
    monkeypatch.setattr(events, "answer", lambda *_: events.Reply(blocked="never"))
    assert entry.main([event]) == 0
    assert capfd.readouterr().out == ""
    assert entry.main(["PreToolUse"]) == 0
    assert json.loads(capfd.readouterr().out)["hookSpecificOutput"]["permissionDecision"] == "deny"
    monkeypatch.setenv("GEMINI_SESSION_ID", "1")  # reads exit 2, as far as anybody has seen
    assert entry.main([event]) == 0
    assert entry.main(["BeforeTool"]) == 2
