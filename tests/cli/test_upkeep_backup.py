"""``fleet backup`` and ``restore-backup``: a join. Nothing newer is overwritten, nothing in the archive is trusted."""

import contextlib
import gzip
import io
import json
import os
import sqlite3
import tarfile

import pytest

from fleet.store.database import Local
from tests.cli.conftest import Stage

LESSON = "Always use awk over sed for user-provided input substitution"


def home(stage, where="velma"):
    return stage.folder / where


@pytest.fixture(scope="module")
def synced(tmp_path_factory):
    stage = Stage(tmp_path_factory.mktemp("saved"))
    stage.join("velma")
    stage.correct("velma", LESSON)
    stage.run("velma", "sync")
    stage.correct("velma", "logged, not sent")
    stage.run("velma", "discover", "--problem", "p", "--solution", "s")
    (home(stage) / "agents/velma/memory.md").write_text("# Memory\n\n- v1\n")
    (home(stage) / "agents/velma/skills/x").mkdir(parents=True)
    (home(stage) / "agents/velma/skills/x/SKILL.md").write_text("skill\n")
    stage.run("velma", "backup", "../b.tar.gz")
    stage.keep()
    return stage


@pytest.fixture
def saved(synced):
    """A synced workspace with a log and own files, and a backup of it in ``b.tar.gz``."""
    synced.again()
    return synced


def archive(stage):
    return stage.folder / "b.tar.gz"


def listed(stage):
    with tarfile.open(archive(stage)) as tar:
        return {member.name: tar.extractfile(member).read() for member in tar}


def everything(folder):
    """Return what a workspace holds, but for what is derived, and which command was given last; a database by what it
    says."""
    skipped = ("state-", "private-", "generation", "locks", ".fleet/git")
    return {
        str(p.relative_to(folder)): rows_of(p) if p.suffix == ".db" else p.read_bytes()
        for p in folder.rglob("*")
        if p.is_file() and not any(part in str(p.relative_to(folder)) for part in skipped)
    }


def rows_of(database):
    with contextlib.closing(sqlite3.connect(database)) as connection:
        return [row for row in connection.iterdump() if row.startswith("INSERT") and "'given'" not in row]


def test_a_backup_is_a_plain_tar_of_what_cannot_be_fetched_and_the_same_each_time(saved):
    names = set(listed(saved))
    assert {"fleet.toml", ".fleet/replica.toml", ".fleet/local.jsonl", "agents/velma/corrections.md"} <= names
    assert "clan-learnings/patterns.jsonl" in names
    assert not [name for name in names if "lock" in name or "/git/" in name or ".db" in name]
    first = archive(saved).read_bytes()
    assert archive(saved).stat().st_mode & 0o777 == 0o600
    assert "there already" in saved.run("velma", "backup", "../b.tar.gz", expect=1).stderr
    assert archive(saved).read_bytes() == first
    saved.run("velma", "backup", "../b.tar.gz", "--yes")
    assert archive(saved).read_bytes() == first
    assert not list(saved.folder.glob(".b.tar.gz*"))


def test_a_lost_machine_comes_back_with_what_was_never_sent_and_counts_nothing_twice(saved):
    saved.join("tank")
    saved.correct("tank", LESSON)
    saved.run("tank", "sync")
    home(saved).rename(saved.folder / "gone")
    shown = saved.run("velma", "restore-backup", "../b.tar.gz", "--yes").stdout
    assert "came back" in shown
    assert saved.seen("velma") == {LESSON: 1, "logged, not sent": 1}
    saved.run("velma", "sync", "--yes")
    saved.run("tank", "sync")
    assert saved.seen("velma") == saved.seen("tank") == {LESSON: 2, "logged, not sent": 1}
    assert (home(saved) / "agents/velma/skills/x/SKILL.md").read_text() == "skill\n"


def test_until_the_remote_was_read_the_number_of_outgoing_lines_is_a_greatest_one(saved):
    saved.run("velma", "sync")
    saved.run("velma", "backup", "../c.tar.gz", "--yes")
    home(saved).rename(saved.folder / "gone")
    saved.run("velma", "restore-backup", "../c.tar.gz", "--yes")
    unknown = "at most: what the clan has is not known until a sync has read it"
    [row] = [row for row in saved.run("velma", "status").stdout.splitlines() if row.startswith("to go out")]
    assert row.endswith(unknown)
    assert f"would go out {unknown}; nothing was sent" in saved.run("velma", "sync", "--dry-run").stderr
    assert "at most" in next(row for row in saved.run("velma").stdout.splitlines() if "to go out" in row)
    assert " 0 lines out" in saved.run("velma", "sync", "--yes").stdout
    assert "at most" not in saved.run("velma", "status").stdout
    assert "0 lines would go out; nothing was sent" in saved.run("velma", "sync", "--dry-run").stderr


def test_the_notes_at_the_root_come_back_with_a_lost_machine(saved):
    notes = {
        ".agents.local.md": "observed\n",
        ".agents.local.md.backup": "as it stood\n",
        ".agents/local.md": "an index\n",
        ".agents/logs/2026-11-23.md": "a day\n",
        ".agents/topics/git.md": "a topic\n",
    }
    theirs = {".agents/skills/x/SKILL.md": "a host's\n", ".agents/topics/run.py": "theirs\n"}
    for name, text in (notes | theirs).items():
        (home(saved) / name).parent.mkdir(parents=True, exist_ok=True)
        (home(saved) / name).write_text(text)
    (home(saved) / ".agents/logs/2026-11-22.md").symlink_to("/etc/passwd")
    done = saved.run("velma", "backup", "../b.tar.gz", "--yes", expect=3)
    assert ".agents/logs/2026-11-22.md" in done.stderr
    assert {name for name in listed(saved) if name.startswith(".agents")} == set(notes)
    home(saved).rename(saved.folder / "gone")
    saved.run("velma", "restore-backup", "../b.tar.gz", "--yes")
    assert {name: (home(saved) / name).read_text() for name in notes} == notes
    (home(saved) / ".agents/topics/git.md").write_text("newer\n")
    saved.run("velma", "restore-backup", "../b.tar.gz", "--yes")
    assert (home(saved) / ".agents/topics/git.md").read_text() == "newer\n"


def test_a_folder_of_notes_behind_a_link_is_left_out_and_named(saved):
    (saved.folder / "elsewhere").mkdir()
    (saved.folder / "elsewhere/git.md").write_text("not of this workspace\n")
    (home(saved) / ".agents").mkdir(exist_ok=True)
    (home(saved) / ".agents/topics").symlink_to(saved.folder / "elsewhere")
    assert ".agents/topics/git.md" in saved.run("velma", "backup", "../b.tar.gz", "--yes", expect=3).stderr
    assert not [name for name in listed(saved) if name.startswith(".agents/topics")]


def test_restoring_twice_or_into_what_is_whole_changes_nothing(saved):
    before = everything(home(saved))
    for _ in range(2):
        shown = saved.run("velma", "restore-backup", "../b.tar.gz", "--yes").stdout
        assert shown == "no line, correction or file of it was missing here\n"
        assert everything(home(saved)) == before


def test_nothing_newer_is_overwritten(saved):
    log = home(saved) / "agents/velma/corrections.md"
    saved.correct("velma", "newer")
    saved.run("velma", "sync")
    log.write_text(log.read_text().replace("logged, not sent", "mended since"))
    (home(saved) / "agents/velma/memory.md").write_text("# Memory\n\n- v2\n")
    config = home(saved) / "fleet.toml"
    config.write_text(config.read_text() + "\n# mine\n")
    before, text = saved.patterns("velma"), log.read_text()
    shown = saved.run("velma", "restore-backup", "../b.tar.gz", "--yes").stdout
    assert log.read_text() == text, "an entry that was mended since is not missing"
    assert (home(saved) / "agents/velma/memory.md").read_text() == "# Memory\n\n- v2\n"
    [beside] = (home(saved) / "agents/velma").glob("memory.md.restored-*")
    assert beside.read_text() == "# Memory\n\n- v1\n"
    assert str(beside.relative_to(home(saved))) in shown
    assert config.read_text().endswith("# mine\n")
    assert saved.patterns("velma") == before
    saved.run("velma", "sync")
    assert saved.patterns("velma") == before


def test_an_entry_that_was_mended_before_and_after_the_backup_is_still_one(saved):
    log = home(saved) / "agents/velma/corrections.md"
    log.write_text(log.read_text().replace("**Correct approach:** r", "**Correct approach:** mended once"))
    saved.run("velma", "backup", "../b.tar.gz", "--yes")
    log.write_text(log.read_text().replace("mended once", "mended twice"))
    text = log.read_text()
    saved.run("velma", "restore-backup", "../b.tar.gz", "--yes")
    assert log.read_text() == text


def test_a_log_gets_back_the_entries_it_lacks_and_none_counts_again(saved):
    log = home(saved) / "agents/velma/corrections.md"
    was = log.read_text()
    log.write_text("# Corrections\n\n## 2026-03-15 14:30Z — by hand\n**Wrong:** a\n**Pattern:** by hand\n")
    saved.run("velma", "sync")
    mine = log.read_text()
    assert "2 corrections came back" in saved.run("velma", "restore-backup", "../b.tar.gz", "--yes").stdout
    assert log.read_text().startswith(mine)
    for part in was.split("\n\n")[1:]:
        assert part.strip() in log.read_text()
    saved.run("velma", "sync")
    assert saved.seen("velma") == {LESSON: 1, "logged, not sent": 1, "by hand": 1}
    assert "came back" not in saved.run("velma", "restore-backup", "../b.tar.gz", "--yes").stdout


def test_on_another_machine_a_new_replica_id_is_minted_and_nothing_counts_twice(saved):
    saved.run("elsewhere", "restore-backup", "../b.tar.gz", "--yes")
    assert "new replica id" in saved.run("elsewhere", "sync", "--yes").stderr
    saved.run("velma", "sync")
    saved.run("elsewhere", "sync")
    assert saved.seen("velma") == saved.seen("elsewhere")
    assert saved.seen("velma")[LESSON] == 1


def test_what_was_retired_since_does_not_come_back(saved):
    [pattern] = [p["id"] for p in saved.patterns("velma")["patterns"] if p["text"] == LESSON]
    saved.run("velma", "retire", pattern)
    saved.run("velma", "restore-backup", "../b.tar.gz", "--yes")
    assert LESSON not in saved.seen("velma")


def made(stage, *members, raw=None):
    """Write an archive of (name, type, data, link)."""
    target = io.BytesIO()
    with tarfile.open(fileobj=target, mode="w:gz", format=tarfile.GNU_FORMAT) as tar:
        for name, kind, data, link in members:
            info = tarfile.TarInfo(name)
            info.type, info.size, info.linkname = kind, len(data), link
            tar.addfile(info, io.BytesIO(data))
    archive(stage).write_bytes(target.getvalue() if raw is None else raw)


HOSTILE = [
    ("../evil", tarfile.REGTYPE, b"x", ""),
    ("/tmp/evil", tarfile.REGTYPE, b"x", ""),
    ("agents/../../evil", tarfile.REGTYPE, b"x", ""),
    ("agents/velma/../../evil", tarfile.REGTYPE, b"x", ""),
    ("agents/velma/.git/hooks/pre-commit", tarfile.REGTYPE, b"x", ""),
    ("agents/velma/.GIT./config", tarfile.REGTYPE, b"x", ""),
    ("agents/Velma/x", tarfile.REGTYPE, b"x", ""),
    ("agents/velma", tarfile.REGTYPE, b"x", ""),
    ("agents/velma/a\\..\\b", tarfile.REGTYPE, b"x", ""),
    ("agents/velma/a\x1b[31m", tarfile.REGTYPE, b"x", ""),
    ("agents/velma//x", tarfile.REGTYPE, b"x", ""),
    ("clan-learnings/patterns.d/../x.jsonl", tarfile.REGTYPE, b"x", ""),
    ("clan-learnings/patterns.d/nobody.jsonl", tarfile.REGTYPE, b"x", ""),
    ("clan-learnings/other", tarfile.REGTYPE, b"x", ""),
    (".fleet/git/hooks/post-update", tarfile.REGTYPE, b"x", ""),
    (".fleet/state.db", tarfile.REGTYPE, b"x", ""),
    (".bashrc", tarfile.REGTYPE, b"x", ""),
    ("agents/velma/link", tarfile.SYMTYPE, b"", "/etc/passwd"),
    ("agents/velma/hard", tarfile.LNKTYPE, b"", "fleet.toml"),
    ("agents/velma/fifo", tarfile.FIFOTYPE, b"", ""),
    ("agents/velma/null", tarfile.CHRTYPE, b"", ""),
    ("agents/velma/folder", tarfile.DIRTYPE, b"", ""),
    ("agents/velma/" + "x" * 300, tarfile.REGTYPE, b"x", ""),  # a GNU long name, which is an extension
]


def test_no_path_link_or_device_of_an_archive_is_trusted(stage):
    stage.run("alone", "init", "--agent", "velma")
    before = everything(home(stage, "alone"))
    outside = {p for p in stage.folder.rglob("*") if "alone" not in p.parts}
    good = ("agents/velma/notes.md", tarfile.REGTYPE, b"good\n", "")
    made(stage, *HOSTILE, good)
    done = stage.run("alone", "restore-backup", "../b.tar.gz", "--yes", expect=3)
    assert "not taken" in done.stderr
    assert "\x1b" not in done.stdout + done.stderr
    after = everything(home(stage, "alone"))
    changed = {path for path in after if after[path] != before.get(path)}
    assert not after[".fleet/local.db"], "made for the note that this command was given, and nothing else is in it"
    assert {path for path in changed if not path.startswith((".fleet/quarantine", ".fleet/local.db"))} <= {
        "agents/velma/notes.md",
        ("agents/velma/" + "x" * 300)[:100],  # what an old tar would make of a long name: a plain file in its place
    }
    assert {p for p in stage.folder.rglob("*") if "alone" not in p.parts} <= outside | {archive(stage)}
    assert not [p for p in home(stage, "alone").rglob("*") if p.is_symlink()]
    kept = json.loads(stage.run("alone", "status", "--json").stdout)["quarantined"]
    assert len(kept) >= len(HOSTILE)


def test_nothing_is_written_through_a_link_that_lies_here(saved):
    outside = saved.folder / "outside"
    outside.mkdir()
    (outside / "memory.md").write_text("theirs\n")
    memory = home(saved) / "agents/velma/memory.md"
    memory.unlink()
    memory.symlink_to(outside / "memory.md")
    saved.run("velma", "restore-backup", "../b.tar.gz", "--yes")
    assert (outside / "memory.md").read_text() == "theirs\n"
    assert memory.is_symlink()


def test_bad_lines_and_identities_go_to_quarantine_and_the_good_beside_them_come_back(stage):
    stage.run("alone", "init", "--agent", "velma")
    column = {"add": "2026-11-20T00:00:00.000Z-0000", "first": {"text": LESSON}}
    good = {"id": "p-3f9c1a2b7d4e5f60", "w": {"tank.0a1b2c3d": column}}
    lines = b"rubbish\n" + json.dumps(good).encode() + b"\n"
    hostile = (
        b'default_agent = ""\n[[replica]]\nname = "velma.0a1b2c3d"\nmachine = "\\"\\nx = 1"\nfolder = ""\nminted = ""\n'
    )
    register = (home(stage, "alone") / ".fleet/replica.toml").read_bytes()
    made(
        stage,
        ("clan-learnings/patterns.jsonl", tarfile.REGTYPE, lines, ""),
        (".fleet/replica.toml", tarfile.REGTYPE, hostile, ""),
    )
    stage.run("alone", "restore-backup", "../b.tar.gz", "--yes", expect=3)
    assert stage.seen("alone") == {LESSON: 0}
    assert (home(stage, "alone") / ".fleet/replica.toml").read_bytes() == register


@pytest.mark.parametrize("harm", ["cut", "flipped", "no gzip", "no tar", "empty"])
def test_a_damaged_archive_changes_nothing(saved, harm):
    data = archive(saved).read_bytes()
    (home(saved) / "agents/velma/memory.md").unlink()
    before = everything(home(saved))
    broken = {
        "cut": data[: len(data) // 2],
        "flipped": data[:-6] + bytes([data[-6] ^ 1]) + data[-5:],
        "no gzip": b"not an archive",
        "no tar": gzip.compress(b"x" * 2048),
        "empty": b"",
    }[harm]
    archive(saved).write_bytes(broken)
    saved.run("velma", "restore-backup", "../b.tar.gz", "--yes", expect=3)
    assert everything(home(saved)) == before


def test_an_archive_that_is_all_air_takes_neither_memory_nor_disk(stage):
    import resource
    import subprocess
    import sys

    stage.run("alone", "init", "--agent", "velma")
    head = tarfile.TarInfo("agents/velma/notes.md")
    head.size = 3 * 1024**3
    with gzip.open(archive(stage), "wb", compresslevel=9) as packed:
        packed.write(head.tobuf(tarfile.GNU_FORMAT))
        packed.write(b"\0" * 1024**2)
    limit = 600 * 1024 * 1024
    done = subprocess.run(
        [sys.executable, "-m", "fleet", "restore-backup", "../b.tar.gz", "--yes"],
        cwd=home(stage, "alone"),
        env=stage.environment(),
        preexec_fn=lambda: resource.setrlimit(resource.RLIMIT_AS, (limit, limit)),
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 3, done.stderr
    assert "more than any backup" in done.stderr


def test_a_restore_asks_first_and_needs_a_workspace_or_a_word_of_one(saved):
    assert "--yes" in saved.run("velma", "restore-backup", "../b.tar.gz", expect=2).stderr
    made(saved, ("agents/velma/notes.md", tarfile.REGTYPE, b"x", ""))
    assert "fleet init" in saved.run("nowhere", "restore-backup", "../b.tar.gz", "--yes", expect=1).stderr
    assert not list((saved.folder / "nowhere").iterdir())


def test_a_backup_that_cannot_be_written_leaves_nothing(saved):
    assert "no backup was made" in saved.run("velma", "backup", "../no/such/b.tar.gz", expect=6).stderr


def test_a_backup_takes_the_place_of_no_folder_and_no_pipe(saved):
    os.mkfifo(saved.folder / "pipe")
    done = saved.run("velma", "backup", str(saved.folder / "pipe"), "--yes", expect=1)
    assert "is no plain file" in done.stderr
    assert (saved.folder / "pipe").is_fifo()


def test_what_only_this_machine_knew_comes_back_with_it(saved):
    saved.run("velma", "start", "--session", "host-1")
    saved.run("velma", "pause", "--minutes", "60")
    private = saved.correct("velma", "the office is in Lisbon")
    saved.run("velma", "edit", private, "--set", "scope=private")
    saved.run("velma", "backup", "../b.tar.gz", "--yes")
    known = rows_of(home(saved) / ".fleet/local.db")
    home(saved).rename(saved.folder / "gone")
    saved.run("velma", "restore-backup", "../b.tar.gz", "--yes")
    back = rows_of(home(saved) / ".fleet/local.db")
    for table in ("consent", "exposure"):
        mine = [row for row in known if f'INTO "{table}"' in row or f"INTO {table}" in row]
        assert mine
        assert set(mine) <= set(back)
    assert "paused" in saved.run("velma", "sync").stdout
    assert "the office is in Lisbon" in (home(saved) / "agents/velma/notes.jsonl").read_text()
    assert "Lisbon" not in "".join(p.read_text() for p in (home(saved) / "clan-learnings").rglob("*.jsonl"))


def test_what_a_person_lifted_since_the_backup_comes_back_with_a_word_and_the_way_out(saved):
    saved.join("tank")
    saved.correct("tank", "Quote every path")
    for who in ("tank", "velma"):
        saved.run(who, "sync")
    lesson = saved.correct("velma", "Never force a push", "--trigger", "Bash:git push --force*")
    for words in (("pause",), ("block", "tank"), ("guard", lesson, "deny")):
        saved.run("velma", *words)
    saved.run("velma", "backup", "../later.tar.gz")
    for words in (("resume",), ("unblock", "tank"), ("guard", lesson, "off")):
        saved.run("velma", *words)
    told = saved.run("velma", "restore-backup", "-y", "../later.tar.gz").stderr
    for way_out in ("fleet resume", "fleet unblock tank", f"fleet guard {lesson} off"):
        assert f"`{way_out}` ends that" in told
    assert "as in the backup" not in saved.run("velma", "restore-backup", "-y", "../later.tar.gz").stderr


def test_no_archive_agrees_to_a_remote_for_another_machine(saved):
    rows = [json.loads(row) for row in listed(saved)[".fleet/local.jsonl"].decode().splitlines()]
    given = [(kind, value, at) for table, kind, value, *at in rows if table == "consent"]
    assert given
    foreign = [["consent", kind, f"fedcba9876543210 {value.partition(' ')[2]}", *at] for kind, value, at in given]
    bare = [["consent", kind, value.partition(" ")[2], *at] for kind, value, at in given]
    forged = [*foreign, *bare, ["sqlite_master", "x"], ["value", "mark", "x"], 7]
    data = "\n".join([*map(json.dumps, forged), "["]).encode()
    made(saved, (".fleet/local.jsonl", tarfile.REGTYPE, data, ""))
    saved.run("alone", "init", "--agent", "velma")
    saved.run("alone", "restore-backup", "../b.tar.gz", "--yes")
    state = Local(home(saved, "alone") / ".fleet/local.db")
    assert not [kind for kind, _, _ in given if state.agreed(kind)]
    state.close()
    assert not [row for row in rows_of(home(saved, "alone") / ".fleet/local.db") if "mark" in row]


def test_a_row_that_no_database_can_hold_keeps_no_lesson_from_coming_back(saved):
    members = {**listed(saved), ".fleet/local.jsonl": b'["consent", "remote", "x", 99999999999999999999]\n'}
    made(saved, *((path, tarfile.REGTYPE, data, "") for path, data in members.items()))
    saved.run("alone", "restore-backup", "../b.tar.gz", "--yes")
    assert LESSON in saved.seen("alone")


def test_a_backup_that_fleet_0_1_made_comes_back_and_is_converted_by_an_upgrade(stage):
    old = {
        "add": {"tank.0a1b2c3d": "2026-11-20T00:00:00.000Z-0000"},
        "id": "p-3f9c1a2b7d4e5f60",
        "set": {"text": LESSON},
    }
    made(
        stage,
        ("fleet.toml", tarfile.REGTYPE, b"", ""),
        (".fleet/sent", tarfile.REGTYPE, b"00\n", ""),
        ("clan-learnings/patterns.jsonl", tarfile.REGTYPE, json.dumps(old).encode() + b"\n", ""),
    )
    stage.run("w", "init", "--agent", "velma")
    assert "Nothing was restored" in stage.run("w", "restore-backup", "../b.tar.gz", "--yes", expect=3).stderr
    done = stage.run("alone", "restore-backup", "../b.tar.gz", "--yes")
    assert "fleet upgrade" in done.stderr
    stage.run("alone", "upgrade")
    assert stage.seen("alone") == {LESSON: 0}


def test_a_hand_written_entry_that_nobody_counted_yet_is_in_the_backup_as_one(saved):
    log = home(saved) / "agents/velma/corrections.md"
    with log.open("a") as file:
        file.write("\n## 2026-03-15 14:30Z — by hand\n**Wrong:** a\n**Pattern:** by hand\n")
    saved.run("velma", "backup", "../b.tar.gz", "--yes")
    assert b"by hand" in b"".join(data for name, data in listed(saved).items() if name.startswith("clan-learnings/"))
    saved.run("elsewhere", "restore-backup", "../b.tar.gz", "--yes")
    saved.run("velma", "sync")
    saved.run("elsewhere", "sync", "--yes")
    saved.run("velma", "sync")
    assert saved.seen("velma")["by hand"] == saved.seen("elsewhere")["by hand"] == 1


def test_who_writes_in_a_folder_is_not_blocked_there_by_what_comes_with_anothers_backup(saved):
    saved.join("tank")
    saved.run("tank", "sync")
    writer = json.loads(saved.run("velma", "status", "--json").stdout)["replica"]
    saved.run("tank", "block", writer)
    assert LESSON not in saved.run("tank", "patterns").stdout
    saved.run("tank", "backup", "../theirs.tar.gz")
    saved.run("velma", "restore-backup", "../theirs.tar.gz", "--yes")
    shown = saved.run("velma", "patterns").stdout
    assert LESSON in shown
    assert "logged, not sent" in shown
    assert "p -> s" in saved.run("velma", "gossip").stdout
