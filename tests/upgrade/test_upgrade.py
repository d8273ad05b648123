"""``fleet upgrade``: a workspace and a branch of fleet 0.1 keep every lesson, count, state, discovery and memory.

``data/`` holds what fleet 0.1 wrote: a workspace of velma's, the clan's branch, and what ``fleet export`` said there.
"""

import json
import os
import shutil
import subprocess
from pathlib import Path

import msgspec
import pytest

from fleet.app import learning, moving, sharing
from fleet.learn.corrections_md import Correction
from fleet.model import pattern
from fleet.model.errors import NoError
from fleet.model.line import BadLineError, Line, decode, encode, join
from fleet.model.version_1 import converted
from fleet.share.git import GitRemote
from fleet.store import consent, replica, upgrade
from fleet.store.workspace import Workspace, World, check_version
from tests import commands

ROOT = Path(__file__).resolve().parents[2]
DATA = Path(__file__).parent / "data"
EXPORT = json.loads((DATA / "velma-export.json").read_text("utf-8"))
MACHINE = replica.machine_fingerprint()
MIRROR = b"""\
# This repository is fleet's own: a copy of the clan's branch, made anew when it is gone. Do not edit: fleet does not
# run git on a repository with another configuration, since that could name programs to run.
[core]
\trepositoryformatversion = 0
\tfilemode = true
\tbare = true
"""
NOW_MS = 1_795_353_000_000  # some seconds after the last line


def git(folder, *words, text=None):
    who = ("-c", "user.name=t", "-c", "user.email=t@localhost")
    done = subprocess.run(["git", *who, *words], cwd=folder, input=text, capture_output=True, text=True, check=True)
    return done.stdout


@pytest.fixture
def remote(tmp_path):
    """A bare repository with the clan's branch as fleet 0.1 left it."""
    work = tmp_path / "work"
    shutil.copytree(DATA / "branch", work)
    git(work, "init", "-q", "-b", "fleet")
    git(work, "add", "-A")
    git(work, "commit", "-q", "-m", "fleet 0.1")
    git(tmp_path, "clone", "-q", "--bare", str(work), "clan.git")
    return tmp_path / "clan.git"


def old_workspace(root, remote):
    """Make velma's workspace of fleet 0.1, its database too."""
    shutil.copytree(DATA / "velma", root)
    (root / "dot-fleet").rename(root / ".fleet")
    words = {"@REMOTE@": str(remote), "@MACHINE@": MACHINE, "@FOLDER@": replica.folder_fingerprint(root)}
    for name in ("fleet.toml", ".fleet/consent", ".fleet/replica.toml"):
        text = (root / name).read_text()
        for mark, value in words.items():
            text = text.replace(mark, value)
        (root / name).write_text(text)
    mirror = root / ".fleet/git"
    git(root, "clone", "-q", "--bare", str(remote), str(mirror))
    git(mirror, "update-ref", "refs/fleet/fetched", "fleet")
    git(mirror, "update-ref", "-d", "refs/heads/fleet")
    (mirror / "packed-refs").unlink(missing_ok=True)
    (mirror / "config").write_bytes(MIRROR)
    (root / ".fleet/state.db").write_bytes(b"derived")
    return root


def opened(root):
    world = World(wall_ms=lambda: NOW_MS, machine=lambda: MACHINE, lent=lambda: "", durable=False)
    return Workspace(root, world)


@pytest.fixture
def workspace(tmp_path, remote):
    found = opened(old_workspace(tmp_path / "velma", remote))
    yield found
    found.close()


def needs_upgrade(root):
    try:
        check_version(root)
    except NoError:
        return True
    return False


def as_known(found: dict) -> dict:
    """Return what the export of fleet 0.1 says of a lesson."""
    return {key: found[key] for key in ("id", "text", "correct", "category", "tags", "seen", "sessions", "agents")}


def known_here(workspace):
    """Return id to what is known here, private lessons too."""
    found = {}
    for source in (workspace.patterns, workspace.notes("velma")):
        for each in source.records():
            found[each.id] = {
                "id": each.id,
                "text": each.text,
                "correct": each.correct,
                "category": each.category,
                "tags": each.tags,
                "seen": each.count("seen"),
                "sessions": each.count("sessions"),
                "agents": each.agents(),
            }
    return found


def old_lines(root):
    """Return the lines of fleet 0.1 that stand in the clan's files."""
    found = [raw for path in (root / "clan-learnings").rglob("*.jsonl") for raw in path.read_bytes().splitlines()]
    return [raw for raw in found if converted(raw) is not None]


def files_of(root):
    return {
        path.relative_to(root).as_posix(): path.read_bytes()
        for path in sorted(root.rglob("*"))
        if path.is_file() and not {"git", "locks", "upgrade-backup"} & set(path.relative_to(root).parts)
    }


# --- a workspace ----------------------------------------------------------------------------------------------------


def test_every_lesson_count_state_and_discovery_is_kept(workspace):
    assert needs_upgrade(workspace.root)
    home = workspace.home("velma")
    own = {name: (home / name).read_bytes() for name in ("memory.md", "JOURNAL.md", "corrections.md")}
    moving.upgrade(workspace)
    assert not needs_upgrade(workspace.root)
    assert known_here(workspace) == {each["id"]: as_known(each) for each in EXPORT["patterns"]}
    for each in EXPORT["patterns"]:
        source = workspace.notes("velma") if each["text"].startswith("A private") else workspace.patterns
        mine, record = source.get(each["id"]), each["record"]
        state = "retired" if not mine.is_present else mine.state or "candidate"
        assert (state, mine.at, mine.last_seen) == (each["state"], each["first"], each["last"])
        assert mine.fields == record["set"], "the value from the future waits, all else is as it was"
        assert mine.merged_into == record["set"].get("merged_into", "")
    assert json.loads(msgspec.json.encode(workspace.discoveries.shown())) == [
        {key: value for key, value in each.items() if key != "retracted"}
        for each in EXPORT["discoveries"]
        if not each["retracted"]
    ]
    assert sorted(workspace.discoveries.retracted()) == EXPORT["retractions"]
    assert {name: (home / name).read_bytes() for name in own} == own


def test_a_value_from_the_future_waits_and_is_not_lost(workspace):
    moving.upgrade(workspace)
    [late] = workspace.db.future_ids()
    assert late == EXPORT["held"][0]["id"]
    assert pattern.fold(workspace.patterns.line(late)).category == "from the future"
    assert workspace.patterns.get(late).category == "ci"


def test_lines_that_cannot_be_read_and_lines_of_a_newer_version_stay_byte_for_byte(workspace):
    moving.upgrade(workspace)
    shard = (workspace.clan / "patterns.d/velma.b45040ff.jsonl").read_bytes().splitlines()
    assert b"this line cannot be read" in shard
    assert EXPORT["carried"][0].encode() in shard
    assert len(workspace.db.carried()) == 1
    assert len(workspace.db.refused()) == 1


def test_what_is_private_moves_to_the_agents_notes_and_stands_nowhere_else(workspace):
    moving.upgrade(workspace)
    holders = {path for path, data in files_of(workspace.root).items() if b"A private thing" in data}
    assert {path for path in holders if not path.startswith(".fleet/private-")} == {
        "agents/velma/corrections.md",
        "agents/velma/notes.jsonl",
    }
    sharing.update_here(workspace, "velma")
    holders = {path for path, data in files_of(workspace.root).items() if b"A private thing" in data}
    assert not [path for path in holders if path.startswith("clan-learnings")], (
        "nor does counting the log bring it back"
    )


def test_counting_the_log_afterwards_counts_nothing_again(workspace):
    moving.upgrade(workspace)
    before = known_here(workspace)
    sharing.update_here(workspace, "velma")
    assert known_here(workspace) == before


def test_what_only_this_machine_knew_is_in_the_local_database(workspace, remote):
    (workspace.local / "paused").write_text("\n")
    moving.upgrade(workspace)
    assert workspace.state.agrees("remote", remote)
    assert workspace.state.paused(workspace.wall())


def test_a_consent_that_was_given_on_another_machine_is_none_here(tmp_path, remote):
    root = old_workspace(tmp_path / "velma", remote)
    consent = root / ".fleet/consent"
    consent.write_text(consent.read_text().replace(MACHINE, "fedcba9876543210"))
    workspace = opened(root)
    assert "`fleet upgrade --yes`" in moving.upgrade(workspace)[0][-1]
    assert workspace.state.agreed("remote") == []


def test_doing_it_twice_changes_nothing_and_the_old_files_are_kept(workspace):
    before = files_of(workspace.root)
    moving.upgrade(workspace)
    first = files_of(workspace.root)
    told, _ = moving.upgrade(workspace)
    assert files_of(workspace.root) == first
    assert "have this version's format already" in told[0]
    backup = workspace.local / upgrade.BACKUP
    for path, data in before.items():
        if path.startswith("clan-learnings/"):
            assert (backup / path).read_bytes() == data
    for name in ("base", "state.db", "consent", "shown", "sessions", "settled"):
        assert not (workspace.local / name).exists()


class Killed(BaseException):
    """The machine went off."""


@pytest.mark.parametrize("at", range(1, 14))
def test_killed_at_any_write_the_next_run_ends_as_one_that_was_not(tmp_path, remote, monkeypatch, at):
    root = old_workspace(tmp_path / "velma", remote)
    whole = old_workspace(tmp_path / "whole", remote)
    for name in (".fleet/replica.toml",):
        shutil.copy(root / name, whole / name)
    moving.upgrade(opened(whole))
    broken = opened(root)
    count = 0

    def counted(act):
        def done(*words, **more):
            nonlocal count
            count += 1
            if count == at:
                raise Killed
            return act(*words, **more)

        return done

    for name in ("replace", "append", "remove"):
        monkeypatch.setattr(broken.files, name, counted(getattr(broken.files, name)))
    monkeypatch.setattr(sharing.Membership, "remote", lambda *_, **__: None)
    try:
        moving.upgrade(broken)
    except Killed:
        broken.close()
        assert not (root / "clan-learnings/.fleet-format").exists(), "it is taken for a whole one"
    again = opened(root)
    moving.upgrade(again)
    for path, data in files_of(whole).items():
        if path.startswith(("clan-learnings", "agents")):
            assert (root / path).read_bytes() == data, path
    assert again.state.agreed("remote") == opened(whole).state.agreed("remote")


def test_a_workspace_of_this_version_needs_no_upgrade(tmp_path):
    (tmp_path / "fleet.toml").write_text("")
    assert not needs_upgrade(tmp_path)
    line = {"id": "p-3f9c1a2b7d4e5f60", "w": {"tank.0a1b2c3d": {"first": {"text": "x"}}}}
    (tmp_path / "clan-learnings").mkdir()
    (tmp_path / "clan-learnings/patterns.jsonl").write_text(json.dumps(line) + "\n")
    assert not needs_upgrade(tmp_path)
    old = {"id": "p-3f9c1a2b7d4e5f60", "set": {"text": "x"}}
    (tmp_path / "clan-learnings/patterns.jsonl").write_text(json.dumps(old) + "\n")
    assert needs_upgrade(tmp_path)


# --- a clan ---------------------------------------------------------------------------------------------------------


def branch(remote):
    names = git(remote, "ls-tree", "-r", "--name-only", "fleet").split()
    return {name: git(remote, "show", f"fleet:{name}") for name in names}


def test_the_branch_is_converted_once_and_a_sync_goes_on_from_there(workspace, remote):
    before = files_of(workspace.root)
    for act in (sharing.sync, sharing.sync_if_agreed, sharing.update_here):
        with pytest.raises(NoError, match="fleet upgrade"):
            act(workspace, "velma")
    assert {path: data for path, data in files_of(workspace.root).items() if path in before} == before
    told, _ = moving.upgrade(workspace)
    assert any("branch was converted" in row for row in told)
    shown = branch(remote)
    assert shown[".fleet-format"] == "2\n"
    assert all('"w":' in row for row in shown["patterns.jsonl"].splitlines())
    head = git(remote, "rev-parse", "fleet")
    moving.upgrade(workspace)
    assert git(remote, "rev-parse", "fleet") == head
    before = known_here(workspace)
    assert sharing.sync(workspace, "velma").put_back == (), "nothing is healed from the tree that was fetched before"
    assert old_lines(workspace.root) == []
    assert known_here(workspace) == before
    assert "Not sent before the upgrade" in "".join(branch(remote).values())
    assert "A private thing" not in git(remote, "log", "-p", "fleet")
    head = git(remote, "rev-parse", "fleet")
    sharing.sync(workspace, "velma")
    assert git(remote, "rev-parse", "fleet") == head, "nothing is sent twice"


@pytest.mark.parametrize("first", ["velma", "other"])
def test_two_machines_upgrade_in_any_order_and_nothing_doubles(tmp_path, remote, first):
    """The other machine knows the branch, and its own edition of it, as of before."""
    spaces = {"velma": opened(old_workspace(tmp_path / "velma", remote))}
    other = old_workspace(tmp_path / "other", remote)
    text = (other / ".fleet/replica.toml").read_text().replace("velma", "tank").replace("b45040ff", "6f01daa4")
    (other / ".fleet/replica.toml").write_text(text)
    shutil.rmtree(other / "agents")
    shutil.rmtree(other / "clan-learnings")
    shutil.copytree(DATA / "branch", other / "clan-learnings")
    spaces["other"] = opened(other)
    for name in sorted(spaces, key=lambda name: name != first):
        moving.upgrade(spaces[name])
        sharing.sync(spaces[name], "velma" if name == "velma" else "tank")
    for name in ("velma", "other", "velma"):
        sharing.sync(spaces[name], "velma" if name == "velma" else "tank")
    wanted = {each["id"]: as_known(each) for each in EXPORT["patterns"]}
    assert known_here(spaces["velma"]) == wanted
    assert old_lines(spaces["velma"].root) == old_lines(spaces["other"].root) == []
    private = next(each["id"] for each in EXPORT["patterns"] if each["text"].startswith("A private"))
    shared = {each: known for each, known in wanted.items() if each != private}
    assert {each.id: each.count("seen") for each in spaces["other"].patterns.records()} == {
        each: known["seen"] for each, known in shared.items()
    }
    rows = [row for row in branch(remote)["patterns.jsonl"].splitlines() if row not in EXPORT["carried"]]
    assert len(rows) == len({json.loads(row)["id"] for row in rows})


def test_while_the_branch_is_converted_others_may_write_here(workspace, remote, monkeypatch):
    fetched, fetch = [], GitRemote.fetch

    def fetch_slowly(self, since):
        with Workspace(workspace.root).locked(0.1):  # a remote that never answers kept a `fleet retire` out
            fetched.append(since)
        return fetch(self, since)

    monkeypatch.setattr(GitRemote, "fetch", fetch_slowly)
    assert any("branch was converted" in row for row in moving.upgrade(workspace)[0])
    assert fetched == [""]


def test_an_upgrade_that_agrees_to_another_remote_does_not_wait_for_itself(workspace, remote, monkeypatch):
    moving.upgrade(workspace)
    workspace.state.agree(consent.REMOTE, "/the/clan/before", workspace.wall(), alone=True)
    monkeypatch.setattr(Workspace.locked, "__defaults__", (0.1,))
    assert any("branch has this version's format already" in row for row in moving.upgrade(workspace, yes=True)[0])
    assert workspace.state.agreed(consent.REMOTE) == [str(remote)]


@pytest.mark.parametrize("path", ["patterns.d/tank.6f01daa4.jsonl", "patterns.jsonl"])
def test_a_machine_that_was_not_upgraded_pushes_once_more_and_nothing_of_it_is_lost(workspace, remote, tmp_path, path):
    moving.upgrade(workspace)
    sharing.sync(workspace, "velma")
    late = {
        "add": {"tank.6f01daa4": "2026-11-22T13:30:00.000Z-0000"},
        "at": "2026-11-22T13:30:00.000Z-0000",
        "by": "tank.6f01daa4",
        "id": "p-3f9c1a2b7d4e5f60",
        "n": {"seen": {"tank.6f01daa4": 1}},
        "set": {"text": "pushed by fleet 0.1 after the upgrade"},
    }
    git(tmp_path, "clone", "-q", "-b", "fleet", str(remote), "old")
    (tmp_path / "old/patterns.d").mkdir(exist_ok=True)
    with (tmp_path / "old" / path).open("a") as file:
        file.write(json.dumps(late) + "\n")
    git(tmp_path / "old", "add", "-A")
    git(tmp_path / "old", "commit", "-q", "-m", "fleet 0.1")
    git(tmp_path / "old", "push", "-q", "origin", "fleet")
    learning.correct(workspace, "velma", Correction("w", "r", "Quote every path"), session="s")
    sharing.sync(workspace, "velma")
    assert workspace.patterns.get("p-3f9c1a2b7d4e5f60") is None
    moving.upgrade(workspace)
    sharing.sync(workspace, "velma")
    assert workspace.patterns.get("p-3f9c1a2b7d4e5f60").count("seen") == 1
    assert not workspace.db.refused(), "what stands in the quarantine need not stand in a file, too"
    assert b"this line cannot be read" in {each.raw for each in workspace.quarantine.all()}
    rows = [row for name, text in branch(remote).items() if name.startswith("patterns") for row in text.splitlines()]
    assert any("pushed by fleet 0.1" in row and '"w":' in row for row in rows)
    assert not any("pushed by fleet 0.1" in row and '"by":' in row for row in rows)
    assert old_lines(workspace.root) == []


# --- lines ----------------------------------------------------------------------------------------------------------


def test_the_parts_of_a_line_go_to_who_said_them():
    made = converted(
        json.dumps(
            {
                "add": {
                    "tank.c0ffee42": "2026-11-21T00:00:00.000Z-0000",
                    "import.9cd194bd": "1970-01-01T00:00:00.000Z-0000",
                },
                "at": "1970-01-01T00:00:00.000Z-0000",
                "by": "import.9cd194bd",
                "id": "p-3f9c1a2b7d4e5f60",
                "n": {"seen": {"tank.c0ffee42": 2, "import.9cd194bd": 3}},
                "rem": {"tank.c0ffee42": "2026-11-21T00:00:00.000Z-0000"},
                "set": {"text": "x", "category": "c"},
                "when": {"category": ["2026-11-22T00:00:00.000Z-0000", "velma.09ab12cd"]},
            }
        ).encode()
    )
    assert json.loads(encode(made)) == {
        "id": "p-3f9c1a2b7d4e5f60",
        "w": {
            "import.9cd194bd": {
                "add": "1970-01-01T00:00:00.000Z-0000",
                "first": {"agent.9cd194bd": "", "at": "1970-01-01T00:00:00.000Z-0000", "text": "x"},
                "parts": {"seen": {"9cd194bd00000000": 3}},
                "rem": {"tank.c0ffee42": "2026-11-21T00:00:00.000Z-0000"},
            },
            "tank.c0ffee42": {"add": "2026-11-21T00:00:00.000Z-0000", "n": {"seen": 2}},
            "velma.09ab12cd": {"set": {"category": ["2026-11-22T00:00:00.000Z-0000", "c"]}},
        },
    }
    folded = pattern.fold(made)
    assert (folded.count("seen"), folded.agents(), folded.witnesses()) == (5, ["import", "tank"], 1)
    assert folded.is_present, "the import was not removed"
    assert decode(encode(made)) == made


def test_converted_in_pieces_or_whole_a_record_is_the_same():
    rows = [raw for raw in (DATA / "branch/patterns.jsonl").read_bytes().splitlines() if b"ee3229f9e5ce4319" in raw]
    [whole] = map(converted, rows)
    old = json.loads(rows[0])
    pieces = [
        {key: old[key] for key in ("id", "at", "by", "set", "when")},
        {key: old[key] for key in ("id", "at", "by", "add")},
        {key: old[key] for key in ("id", "at", "by", "n")},
    ]
    joined = Line(old["id"])
    for piece in [*reversed(pieces), *pieces]:
        joined = join(joined, converted(json.dumps(piece).encode()))
    assert joined == whole


@pytest.mark.parametrize(
    "raw",
    [
        b"rubbish",
        b"[]",
        b'{"id":"p-3f9c1a2b7d4e5f60"}',
        b'{"id":"p-3f9c1a2b7d4e5f60","w":{}}',
        b'{"id":"p-3f9c1a2b7d4e5f60","set":{"text":"x"},"sig":"y"}',
        b'{"id":"p-3f9c1a2b7d4e5f60","set":{"text":"x"},"v":3}',
        b'{"id":"p-3f9c1a2b7d4e5f60","add":{"nobody":"2026-11-21T00:00:00.000Z-0000"}}',
        b'{"id":"p-3f9c1a2b7d4e5f60","n":{"seen":{"tank.c0ffee42":-1}}}',
        b'{"id":"p-3f9c1a2b7d4e5f60","set":{"text":"x","text":"y"}}',
        b'{"id":"d-3f9c1a2b7d4e5f60","problem":"x"}',
    ],
)
def test_what_is_no_line_of_fleet_0_1_or_was_refused_by_it_is_not_converted(raw):
    assert converted(raw) is None


def test_no_other_reader_takes_a_line_of_fleet_0_1():
    with pytest.raises(BadLineError, match="fleet upgrade"):
        decode(b'{"id":"p-3f9c1a2b7d4e5f60","set":{"text":"x"}}')


def test_a_line_that_grows_beyond_the_limit_is_split(tmp_path):
    replicas = [f"agent-{number}.{number:08x}" for number in range(1200)]
    old = {
        "add": dict.fromkeys(replicas, "2026-11-21T00:00:00.000Z-0000"),
        "id": "p-3f9c1a2b7d4e5f60",
        "set": {"text": "x"},
    }
    raw = json.dumps(old, separators=(",", ":")).encode()
    assert len(raw) < 64 * 1024
    rows = upgrade.converted_tree({"patterns.jsonl": raw + b"\n"})["patterns.jsonl"].splitlines()
    assert len(rows) > 1
    assert max(map(len, rows)) <= 64 * 1024
    joined = Line(old["id"])
    for row in rows:
        joined = join(joined, decode(row))
    assert len(pattern.fold(joined).live) == 1200


# --- the command line -----------------------------------------------------------------------------------------------


def environment(folder):
    kept = {name: value for name, value in os.environ.items() if not name.startswith(("FLEET_", "GIT_"))}
    return kept | {"PYTHONPATH": str(ROOT), "HOME": str(folder.parent), "GIT_CONFIG_NOSYSTEM": "1"}


def fleet(folder, *words):
    return commands.here(words, folder, environment(folder))


def hook(folder, event, **payload):
    """Return what a hook answers in a session of Claude Code."""
    data = json.dumps({"session_id": "s", "cwd": str(folder), **payload}).encode()
    return commands.hook([event], folder, environment(folder), data).stdout.decode()


def test_an_upgrade_that_a_linked_folder_stops_has_copied_the_old_files_for_the_next_one(tmp_path, remote):
    root = old_workspace(tmp_path / "velma", remote)
    before = {path: data for path, data in files_of(root).items() if path.startswith("clan-learnings/")}
    (root / "clan-learnings").rename(root / "elsewhere")
    (root / "clan-learnings").symlink_to("elsewhere")
    assert "written through" in fleet(root, "upgrade", "--yes").stderr
    (root / "clan-learnings").unlink()
    (root / "elsewhere").rename(root / "clan-learnings")
    assert fleet(root, "upgrade", "--yes").returncode == 0
    copied = files_of(root / ".fleet/upgrade-backup")
    assert {path: data for path, data in copied.items() if path.startswith("clan-learnings/")} == before


def test_every_command_names_the_way_out_and_the_upgrade_tells_what_it_did(tmp_path, remote):
    root = old_workspace(tmp_path / "velma", remote)
    before = files_of(root)
    for words in (("patterns",), ("sync", "--yes"), ("search", "awk")):
        done = fleet(root, *words)
        assert done.returncode != 0
        assert "fleet upgrade" in done.stderr
    assert {path: data for path, data in files_of(root).items() if path.startswith("clan")} == {
        path: data for path, data in before.items() if path.startswith("clan")
    }
    done = fleet(root, "upgrade", "--yes")
    assert done.returncode == 0, done.stderr
    for part in ("11 lines converted in 2 files", "1 private lesson moved", "upgrade-backup", "branch was converted"):
        assert part in done.stdout
    assert "Use awk over sed" in fleet(root, "patterns").stdout
    assert fleet(root, "sync").returncode in (0, 3), "3: a line cannot be read, as before"


def test_an_upgrade_that_left_the_branch_as_it_was_says_so_with_its_exit_code(tmp_path, remote):
    root, away = old_workspace(tmp_path / "velma", remote), remote.with_name("away.git")
    (root / ".fleet/consent").unlink()
    unasked = fleet(root, "upgrade")
    assert unasked.returncode == 3
    assert "nobody on this machine has agreed to it" in unasked.stdout
    fleet(root, "pause")
    paused = fleet(root, "upgrade", "--yes")
    assert paused.returncode == 1
    assert "branch was not converted: sharing is paused" in paused.stdout
    fleet(root, "resume")
    remote.rename(away)
    unreached = fleet(root, "upgrade", "--yes", "--json")
    assert unreached.returncode == 5
    assert "was not converted" in json.loads(unreached.stdout)["did"][-1]
    away.rename(remote)
    for said in ("branch was converted", "format already"):
        done = fleet(root, "upgrade", "--yes")
        assert done.returncode == 0
        assert said in done.stdout


def test_an_upgrade_says_of_a_branch_of_a_newer_format_that_the_fleet_here_is_too_old(tmp_path, remote):
    root = old_workspace(tmp_path / "velma", remote)
    work = tmp_path / "work"
    (work / ".fleet-format").write_text("3\n")
    git(work, "add", "-A")
    git(work, "commit", "-q", "-m", "by a newer fleet")
    git(work, "push", "-q", str(remote), "fleet")
    before = branch(remote)
    done = fleet(root, "upgrade", "--yes")
    assert done.returncode == 3
    assert "the format 3" in done.stdout
    assert branch(remote) == before


def test_a_correction_is_logged_whatever_waits_for_an_upgrade(tmp_path, remote):
    root = old_workspace(tmp_path / "velma", remote)
    before = files_of(root)
    said = ("correct", "--wrong", "w", "--right", "r", "--pattern", "logged before the upgrade")
    for words in (said, ("discover", "--problem", "found before the upgrade", "--solution", "s", "--json")):
        done = fleet(root, *words)
        assert done.returncode == 0, done.stderr
        assert done.stderr.count("fleet upgrade") == 1
    assert "logged before the upgrade" in (root / "agents/velma/corrections.md").read_text()
    now = files_of(root)
    assert {path: data for path, data in now.items() if path.startswith("clan")} == {
        path: data for path, data in before.items() if path.startswith("clan")
    }
    assert not list((root / ".fleet").glob("state-*.db")), "what 0.1 wrote is read by the upgrade alone"
    assert fleet(root, "upgrade", "--yes").returncode == 0
    shown = json.loads(fleet(root, "patterns", "--json").stdout)["patterns"]
    found = {each["text"]: each["seen"] for each in shown}
    assert found["logged before the upgrade"] == 1
    assert found["Use awk over sed for user input"] == 3
    fleet(root, "sync")
    told = json.loads(fleet(root, "gossip", "--json").stdout)["discoveries"]
    assert "found before the upgrade" in [each["problem"] for each in told]


def test_a_session_that_starts_before_the_upgrade_leaves_nothing_behind(tmp_path, remote):
    root = old_workspace(tmp_path / "velma", remote)
    hook(root, "SessionStart", source="startup")
    hook(root, "UserPromptSubmit", prompt="no, don't use npm here, use pnpm")
    fleet(root, "upgrade")
    kept = json.loads(fleet(root, "status", "--json").stdout)["quarantined"]
    assert [each["reason"] for each in kept if "fleet 0.1" in each["reason"]] == []
    assert "fleet upgrade" not in hook(root, "SessionStart", source="clear")
    assert "use pnpm" in fleet(root, "learn", "--waiting").stdout


# --- before it ------------------------------------------------------------------------------------------------------


def test_until_the_upgrade_a_start_names_it_and_nothing_is_asked_for_that_would_fail(tmp_path, remote):
    root = old_workspace(tmp_path / "velma", remote)
    environment = {"HOME": str(tmp_path), "PATH": os.environ["PATH"], "PYTHONPATH": str(ROOT)}

    def said(event: str, **more: str) -> dict:
        payload = {"hook_event_name": event, "session_id": "s", "cwd": str(root), **more}
        done = commands.hook([event], root, environment, json.dumps(payload).encode())
        return json.loads(done.stdout or "{}")

    def asked(*, is_due: bool) -> None:
        answer = said("UserPromptSubmit", prompt=f"No, that is wrong. You should have used {is_due} here.")
        assert "fleet logged a correction" in answer["systemMessage"]
        assert ("fleet learn" in json.dumps(answer)) == is_due

    for source in ("startup", "clear"):  # the second one's text is cached
        start = said("SessionStart", source=source)
        assert "`fleet upgrade`" in start["systemMessage"]
        assert "`fleet upgrade`" in start["hookSpecificOutput"]["additionalContext"]
        assert "fleet sync" not in json.dumps(start)
    asked(is_due=False)
    assert said("Stop") == {}
    assert "fleet learn" not in json.dumps(said("SessionStart", source="compact"))
    commands.run(["upgrade"], root, environment)
    asked(is_due=True)
    assert "decision" in said("Stop")
    assert "fleet 0.1" not in json.dumps(said("SessionStart", source="resume"))
