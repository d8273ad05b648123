"""Faults of a remote, consent to one, and the gate: what `fleet sync` does in a bad world.

``Bench`` is what the command-line tests of this folder stand on.
"""

import io
import json
import os
import random
import re
import shutil
import subprocess
import time
from pathlib import Path

import pytest

from fleet.app import sharing
from fleet.learn import corrections
from fleet.learn.corrections_md import Correction
from fleet.model.names import pattern_id
from fleet.share.remote import RemoteUnavailable
from fleet.store import replica
from fleet.store.workspace import Workspace
from tests.cli.conftest import Stage
from tests.memory_remote import MemoryRemote, MemoryServer

LESSON = "Always use awk over sed for user-provided input substitution"
TOKEN = "gh" + "p_" + "a1B2c3" * 6
SLOT = "zerocool.00000001"
STAMP = "2026-11-20T00:00:00.000Z-0000"


class Bench(Stage):
    """A stage that knows its way about the files of its workspaces and of its repository."""

    def status(self, where: str) -> dict:
        """Return what ``fleet status --json`` says."""
        return json.loads(self.run(where, "status", "--json").stdout)

    def sync(self, *where: str) -> None:
        """Sync workspaces one after the other."""
        for each in where:
            self.run(each, "sync")

    def clan(self, where: str) -> Path:
        """Return the folder of a workspace's shared files."""
        return self.folder / where / "clan-learnings"

    def shard(self, where: str, agent: str = "") -> Path:
        """Return where an agent's present replica appends its lines."""
        return self.clan(where) / "patterns.d" / f"{self.replica(where, agent)}.jsonl"

    def replica(self, where: str, agent: str = "") -> str:
        """Return an agent's present replica."""
        return self.status_of(where, agent)["replica"]

    def status_of(self, where: str, agent: str = "") -> dict:
        """Return what ``fleet status --json`` says to an agent."""
        return json.loads(self.run(where, "status", "--json", "--agent", agent).stdout)

    def by_hand(self, path: Path, *lines: bytes) -> None:
        """Append lines to a file as another tool would."""
        path.parent.mkdir(parents=True, exist_ok=True)
        with path.open("ab") as file:
            file.write(b"".join(line + b"\n" for line in lines))

    def tree(self, *only: str) -> dict[str, bytes]:
        """Return the files of the branch in the bare repository, or those of them that are named."""
        listed = self.git("ls-tree", "-r", "fleet", *only, where="clan.git").splitlines()
        kinds = {name: about.split()[1:] for about, _, name in (row.partition("\t") for row in listed)}
        asked = "".join(f"{blob}\n" for kind, blob in kinds.values() if kind == "blob")
        told = io.BytesIO(self._git_bytes("cat-file", "--batch", given=asked.encode()))
        found = {}
        for name in (name for name, (kind, _) in kinds.items() if kind == "blob"):
            found[name] = told.read(int(told.readline().split()[2]))
            told.readline()
        return found

    def blob(self, path: str) -> bytes:
        """Return one file of the branch."""
        return self._git_bytes("cat-file", "blob", f"fleet:{path}")

    def _git_bytes(self, *words: str, given: bytes = b"") -> bytes:
        done = subprocess.run(
            ["git", *words], cwd=self.remote, env=self.environment(), input=given, capture_output=True, check=True
        )
        return done.stdout

    def push_tree(self, entries: dict[str, tuple[str, bytes]], *, on: str = "fleet", by: str = "a") -> None:
        """Make a commit of (mode, content) by path on top of a branch, or of nothing, with git's own plumbing."""
        head = self.git("rev-parse", "--verify", on, where="clan.git").strip() if on else ""
        script = [f"commit refs/heads/fleet\ncommitter {by} <{by}@localhost> 1795219200 +0000\ndata 0\n".encode()]
        if head:
            script.append(f"from {head}\n".encode())
        for path, (mode, data) in entries.items():
            if not mode:
                script.append(b"D %b\n" % path.encode())
            elif mode == "160000":
                script.append(b"M 160000 %b %b\n" % (data, path.encode()))
            else:
                script.append(b"M %b inline %b\ndata %d\n%b\n" % (mode.encode(), path.encode(), len(data), data))
        if not on:
            self.git("update-ref", "-d", "refs/heads/fleet", where="clan.git")
        subprocess.run(
            ["git", "fast-import", "--quiet", "--force"],
            cwd=self.remote,
            env=self.environment(),
            input=b"".join(script),
            capture_output=True,
            check=True,
        )


def line(text: str, slot: str = SLOT, pattern: str = "", set: dict[str, object] | None = None) -> bytes:  # noqa: A002
    """Return a shard line as another tool would write it: a first wording, and more of them in ``set``."""
    said = {"add": STAMP, "n": {"seen": 1}, "first": {"text": text, **(set or {})}}
    found = {"id": pattern or pattern_id(text), "w": {slot: said}}
    return json.dumps(found, sort_keys=True, separators=(",", ":"), ensure_ascii=False).encode()


def seen(record: dict) -> dict[str, int]:
    """Return the totals in a line, by replica."""
    return {writer: said["n"]["seen"] for writer, said in record["w"].items() if "seen" in said.get("n", {})}


@pytest.fixture
def bench(tmp_path):
    return Bench(tmp_path)


# --- 11: the reply is lost ------------------------------------------------------------------------------------------


def test_a_retry_after_a_lost_reply_counts_nothing_twice(tmp_path):
    (tmp_path / "fleet.toml").write_text("")
    server = MemoryServer()
    workspace = Workspace(tmp_path)
    rng = random.Random(1)
    corrections.Corrections(workspace, "velma").log(Correction("w", "r", LESSON))
    for _ in range(3):
        server.drops_next_reply = True
        with pytest.raises(RemoteUnavailable):
            sharing.sync_with(workspace, MemoryRemote(server, workspace.tree), rng=rng, sleep=lambda _: None)
        corrections.Corrections(workspace, "velma").log(Correction("w", "r", LESSON))
    done = sharing.sync_with(workspace, MemoryRemote(server, workspace.tree), rng=rng, sleep=lambda _: None)
    assert not done.is_partial
    assert [r.name for r in workspace.replicas().replicas] == [workspace.current_replicas()[0]], "taken for a clone"
    [found] = [json.loads(raw) for raw in server.tree()["patterns.jsonl"].splitlines()]
    assert sum(seen(found).values()) == 4
    workspace.close()


def test_a_push_whose_answer_is_lost_on_the_way_is_told_and_goes_through_the_next_time(bench):
    bench.join("velma")
    bench.correct("velma", LESSON)
    deaf = bench.folder / "bin/git"
    deaf.parent.mkdir()
    deaf.write_text(
        f'#!/bin/sh\n"{shutil.which("git")}" "$@" || exit $?\n'
        'case " $* " in *" push "*) echo "fatal: the remote end hung up unexpectedly" >&2; exit 128;; esac\n'
    )
    deaf.chmod(0o755)
    # What git said of the push is gone as well: only its exit code is left.
    deaf.write_text(deaf.read_text().replace('"$@" ||', '"$@" >"$0.out" || { cat "$0.out"; false; } ||'))
    deaf.write_text(deaf.read_text().replace("exit 128;; esac", 'exit 128;; esac; cat "$0.out"'))
    path = f"{deaf.parent}:{os.environ['PATH']}"
    done = bench.run("velma", "sync", PATH=path, expect=5)
    assert "nothing is lost" in done.stderr
    assert bench.git("rev-parse", "fleet", where="clan.git"), "it had arrived"
    bench.correct("velma", LESSON)
    bench.sync("velma", "velma")
    assert bench.seen("velma") == {LESSON: 2}
    [found] = bench.edition()
    assert found.totals["seen"] == {bench.replica("velma"): 2}


# --- 12: the remote went back ---------------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def grown(tmp_path_factory):
    made = Bench(tmp_path_factory.mktemp("two"))
    for agent in ("velma", "tank"):
        made.join(agent)
    for number in range(3):
        for agent in ("velma", "tank"):
            made.correct(agent, f"lesson {number}")
            made.correct(agent, f"lesson {number} of {agent}")
            made.run(agent, "discover", "--problem", f"problem {number} of {agent}", "--solution", "s")
            made.sync(agent)
    made.sync("velma", "tank")
    made.keep()
    return made


@pytest.fixture
def two(grown):
    """Velma and tank, who both know nine lessons, and six findings, that both have sent."""
    grown.again()
    return grown


def rewound(bench):
    root = bench.git("rev-list", "--max-parents=0", "fleet", where="clan.git").strip()
    bench.git("update-ref", "refs/heads/fleet", root, where="clan.git")


def made_anew(bench):
    shutil.rmtree(bench.remote)
    bench.git("init", "--quiet", "--bare", str(bench.remote))


def unrelated(bench):
    bench.push_tree({"patterns.jsonl": ("100644", line("from another history") + b"\n")}, on="")


def deleted(bench):
    bench.git("update-ref", "-d", "refs/heads/fleet", where="clan.git")


def emptied(bench):
    bench.push_tree(dict.fromkeys(bench.tree(), ("", b"")))


@pytest.mark.parametrize("harm", [rewound, made_anew, unrelated, deleted, emptied], ids=lambda harm: harm.__name__)
def test_what_the_remote_lost_is_pushed_again_with_a_warning_and_counts_as_before(two, harm):
    before = two.seen("velma")
    assert len(before) == 9
    replicas = [two.replica(agent) for agent in ("velma", "tank")]
    harm(two)
    told = two.run("velma", "sync").stderr
    assert "sent again" in told
    assert harm is emptied or "warning" in told, "an ordinary commit that takes lines out rewrites no history"
    two.sync("tank", "velma")
    extra = {"from another history": 1} if harm is unrelated else {}
    for agent in ("velma", "tank"):
        assert two.seen(agent) == before | extra
    assert [two.replica(agent) for agent in ("velma", "tank")] == replicas, "our own old lines are no clone's"
    held = {json.loads(raw)["id"] for path, data in two.tree().items() for raw in data.splitlines() if b'"p-' in raw}
    assert len(held) == 9 + len(extra)
    findings = b"".join(
        data for path, data in two.tree().items() if path.startswith("discoveries") and path != "discoveries.md"
    )
    assert len({json.loads(raw)["id"] for raw in findings.splitlines()}) == 6
    two.join("newcomer")
    two.sync("newcomer")
    assert two.seen("newcomer") == before | extra, "the remote alone has everything again"


def test_a_retired_lesson_stays_retired_when_the_remote_forgets_that(bench):
    for agent in ("velma", "tank"):
        bench.join(agent)
    pattern = bench.correct("velma", LESSON)
    bench.sync("velma", "tank")
    older = bench.git("rev-parse", "fleet", where="clan.git").strip()
    bench.run("tank", "retire", pattern)
    bench.sync("tank", "velma")
    bench.git("update-ref", "refs/heads/fleet", older, where="clan.git")
    bench.sync("velma", "tank", "velma")
    for agent in ("velma", "tank"):
        assert bench.seen(agent) == {}


# --- 26, 27: no, and no answer --------------------------------------------------------------------------------------


def test_a_hook_that_refuses_is_reported_and_the_queue_stays(bench):
    bench.join("velma")
    bench.correct("velma", LESSON)
    hook = bench.remote / "hooks/pre-receive"
    hook.parent.mkdir(exist_ok=True)
    hook.write_text("#!/bin/sh\necho 'only on weekdays' >&2\nexit 1\n")
    hook.chmod(0o755)
    done = bench.run("velma", "sync", expect=3)
    assert "only on weekdays" in done.stderr
    assert not done.stdout.startswith("synced")
    assert bench.status("velma")["waiting"]["lines"] == 1
    assert bench.seen("velma") == {LESSON: 1}
    hook.unlink()
    bench.sync("velma")
    assert bench.status("velma")["waiting"]["lines"] == 0
    assert [found.text for found in bench.edition()] == [LESSON]


def test_without_the_remote_lessons_wait_here_and_go_out_when_it_is_back(bench):
    bench.join("velma")
    bench.remote.rename(bench.folder / "elsewhere.git")
    bench.correct("velma", LESSON)
    bench.run("velma", "discover", "--problem", "p", "--solution", "s")
    done = bench.run("velma", "sync", expect=5)
    assert "nothing is lost" in done.stderr
    assert not done.stdout
    found = bench.status("velma")
    assert found["waiting"]["lines"] == 2
    assert set(found["waiting"]["paths"]) == {
        f"{kind}.d/{found['replica']}.jsonl" for kind in ("patterns", "discoveries")
    }
    assert f"patterns.d/{found['replica']}.jsonl" in bench.run("velma", "status").stdout
    assert bench.seen("velma") == {LESSON: 1}
    (bench.folder / "elsewhere.git").rename(bench.remote)
    bench.sync("velma")
    assert bench.status("velma")["waiting"]["lines"] == 0
    assert [found.text for found in bench.edition()] == [LESSON]


# --- nobody agreed --------------------------------------------------------------------------------------------------


def refs(bench) -> str:
    return bench.git("for-each-ref", where="clan.git")


def test_an_origin_that_was_guessed_gets_nothing_before_somebody_agrees_once(bench):
    bench.git("init", "--quiet", "--bare", str(bench.remote))
    bench.git("init", "--quiet", "project")
    bench.git("remote", "add", "origin", str(bench.remote), where="project")
    bench.run("project", "init", "--agent", "velma")
    bench.correct("project", LESSON)
    for _ in range(2):
        done = bench.run("project", "sync", expect=2)
        assert "nobody has agreed" in done.stderr
        assert str(bench.remote) in done.stderr
    assert refs(bench) == ""
    assert bench.status("project")["waiting"]["lines"] == 1
    bench.run("project", "sync", "--yes")
    assert "refs/heads/fleet" in refs(bench)
    bench.correct("project", "Another lesson")
    bench.run("project", "sync")
    assert len(bench.edition()) == 2


def test_an_agreement_is_about_one_address_and_no_other(bench):
    bench.git("init", "--quiet", "--bare", str(bench.remote))
    bench.git("init", "--quiet", "--bare", "other.git")
    bench.git("init", "--quiet", "project")
    bench.git("remote", "add", "origin", str(bench.folder / "other.git"), where="project")
    bench.run("project", "init", "--agent", "velma")
    bench.run("project", "sync", "--yes")
    bench.correct("project", LESSON)
    bench.git("remote", "set-url", "origin", str(bench.remote), where="project")
    bench.run("project", "sync", expect=2)
    assert refs(bench) == ""


def test_a_remote_that_a_cloned_repository_names_needs_agreement_as_well(bench):
    bench.join("mallory")
    shutil.rmtree(bench.folder / "mallory/.fleet")
    bench.run("mallory", "init", "--agent", "velma")
    bench.correct("mallory", LESSON)
    done = bench.run("mallory", "sync", expect=2)
    assert "somebody else" in done.stderr
    assert refs(bench) == ""
    bench.run("mallory", "sync", "--yes")
    bench.run("mallory", "sync")
    assert "refs/heads/fleet" in refs(bench)


def test_an_agreement_that_came_with_a_cloned_repository_is_none(bench, monkeypatch):
    with monkeypatch.context() as elsewhere:
        elsewhere.setattr(replica, "_machine_id", lambda: "the machine of mallory")
        replica.machine_fingerprint.cache_clear()
        bench.join("mallory")
    replica.machine_fingerprint.cache_clear()
    bench.correct("mallory", LESSON)
    bench.run("mallory", "sync", expect=2)
    assert refs(bench) == ""


# --- the gate -------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("harm", "reason"),
    [
        ({"correct": f"export GITHUB_TOKEN={TOKEN}"}, "secret"),
        ({"evidence": {"log": [TOKEN]}}, "secret"),
        ({"correct": TOKEN[:8] + "\u200b" + TOKEN[8:]}, "secret"),
        ({"correct": "hidden \U000e0041 tags"}, "invisible"),
        ({"correct": "red \x1b[31m"}, "control"),
        ({"scope": "private"}, "private"),
    ],
    ids=["secret", "nested", "split", "tags", "escape", "private"],
)
def test_what_the_gate_holds_back_stays_here_and_good_lines_beside_it_go(bench, harm, reason):
    bench.join("velma")
    bench.correct("velma", LESSON)
    bad = line("This one must not leave", set=harm)
    bench.by_hand(bench.shard("velma"), bad, line("A good neighbour"))
    dry = bench.run("velma", "sync", "--dry-run", expect=3)
    assert reason in dry.stderr
    refused = pattern_id("This one must not leave")
    assert f"stays here: a line of patterns.d/{bench.replica('velma')}.jsonl, {refused}: " in dry.stderr
    assert "must not leave" not in dry.stdout
    assert "A good neighbour" in dry.stdout
    assert refs(bench) == ""
    done = bench.run("velma", "sync", expect=3)
    assert "held back" in done.stderr
    for words in (dry.stdout, dry.stderr, done.stdout, done.stderr):
        assert TOKEN not in words
    sent = bench.git("log", "-p", "--all", where="clan.git")
    assert "A good neighbour" in sent
    assert LESSON in sent
    assert "must not leave" not in sent
    assert TOKEN not in sent
    assert bad in bench.shard("velma").read_bytes().splitlines(), "it waits here"
    assert bench.status("velma")["withheld"][0]["reason"]
    assert bench.status("velma")["withheld"][0]["id"] == refused
    assert refused in bench.run("velma", "status").stdout
    bench.run("velma", "sync", expect=3)
    assert "must not leave" not in bench.git("log", "-p", "--all", where="clan.git")


def test_a_secret_put_straight_into_the_edition_stays_here(bench):
    bench.join("velma")
    bench.correct("velma", LESSON)
    bench.sync("velma")
    bad = line("This one must not leave", set={"correct": TOKEN})
    bench.by_hand(bench.clan("velma") / "patterns.jsonl", bad, line("A good neighbour"))
    bench.run("velma", "sync", expect=3)
    sent = bench.git("log", "-p", "--all", where="clan.git")
    assert "A good neighbour" in sent
    assert "must not leave" not in sent


def test_a_secret_in_a_discovery_that_was_put_in_by_hand_stays_here(bench):
    bench.join("velma")
    bench.run("velma", "discover", "--problem", "a good finding", "--solution", "s")
    shard = bench.clan("velma") / f"discoveries.d/{bench.replica('velma')}.jsonl"
    bad = {"at": STAMP, "by": SLOT, "id": "d-91be02c4aa107d3e", "problem": "must not leave", "solution": TOKEN}
    bench.by_hand(shard, json.dumps(bad, sort_keys=True, separators=(",", ":")).encode())
    bench.run("velma", "sync", expect=3)
    sent = bench.git("log", "-p", "--all", where="clan.git")
    assert "a good finding" in sent
    assert "must not leave" not in sent
    assert TOKEN not in bench.run("velma", "gossip").stdout


def test_nothing_of_a_private_lesson_leaves_with_a_later_line_about_it(bench):
    bench.join("velma")
    secret = "The staging door code is written under the mat"
    bench.run("velma", "init")
    bench.by_hand(
        bench.clan("velma") / f"patterns.d/{bench.replica('velma')}.jsonl", line(secret, set={"scope": "private"})
    )
    bench.run("velma", "correct", "--wrong", "w", "--right", "look under the mat", "--pattern", secret)
    bench.run("velma", "sync", expect=3)
    assert "under the mat" not in (bench.git("log", "-p", "--all", where="clan.git") if refs(bench) else "")


def test_what_a_newer_version_calls_private_or_hides_in_escapes_stays_here(bench):
    bench.join("velma")
    bench.correct("velma", LESSON)
    escaped = "".join(f"\\u{ord(letter):04x}" for letter in TOKEN)
    bench.by_hand(
        bench.shard("velma"),
        b'{"id":"p-3f9c1a2b7d4e5f60","v":3,"scope":"private","text":"must not leave"}',
        b'{"id":"p-3f9c1a2b7d4e5f61","v":3,"set":{"scope":"private","text":"must not leave"}}',
        b'{"id":"p-3f9c1a2b7d4e5f62","v":3,"text":"must not leave %b"}' % escaped.encode(),
        b'{"id":"p-3f9c1a2b7d4e5f63","v":3,"text":"may leave"}',
    )
    bench.run("velma", "sync", expect=3)
    sent = bench.git("log", "-p", "--all", where="clan.git")
    assert "may leave" in sent
    assert "must not leave" not in sent


def test_a_secret_in_the_list_of_members_stays_here(bench):
    bench.join("velma")
    bench.correct("velma", LESSON)
    (bench.clan("velma") / "members.toml").write_text(f'[velma]\nname = "{TOKEN}"\n')
    bench.run("velma", "sync", expect=3)
    assert TOKEN not in bench.git("log", "-p", "--all", where="clan.git")
    (bench.clan("velma") / "members.toml").write_text('[velma]\nname = "Velma"\n')
    bench.sync("velma")
    assert b"Velma" in bench.blob("members.toml")


def test_dry_run_prints_what_was_put_straight_into_the_edition_too(bench):
    bench.join("velma")
    bench.correct("velma", LESSON)
    bench.sync("velma")
    bench.by_hand(bench.clan("velma") / "patterns.jsonl", line("by hand"))
    assert "by hand" in bench.run("velma", "sync", "--dry-run").stdout
    assert bench.status("velma")["waiting"]["lines"] == 1
    assert "1 line out" in bench.run("velma", "sync").stdout
    assert bench.status("velma")["waiting"]["lines"] == 0


# --- what is pushed depends on no machine's own view -----------------------------------------------------------------


def lessons_of(page: bytes) -> set[str]:
    return set(re.findall("p-[0-9a-f]{16}", page.decode()))


def test_the_page_of_the_branch_lists_what_the_pages_here_do_and_a_merged_set_once(bench):
    for agent in ("velma", "tank"):
        bench.join(agent)
        for number in range(3):
            bench.correct(agent, f"lesson {number}")
        bench.correct(agent, f"lesson of {agent}")
        bench.sync(agent)
    one, other = (bench.correct("velma", f"lesson {number}") for number in (1, 2))
    bench.run("velma", "merge", one, other, "--force")
    bench.run("velma", "sync")
    page = bench.blob("patterns.md")
    assert b"**4 lessons**" in page
    assert len(lessons_of(page)) == 4
    bench.sync("tank")
    for agent in ("velma", "tank"):
        assert lessons_of((bench.clan(agent) / "patterns.md").read_bytes()) == lessons_of(page)


def test_machines_whose_clocks_differ_push_nothing_against_each_other(bench):
    for agent in ("velma", "tank"):
        bench.join(agent)
        bench.correct(agent, LESSON)
        bench.sync(agent)
    for hours in (0, 30, -30, 0):
        bench.now_ms = int(time.time() * 1000) + hours * 3_600_000
        bench.run("velma", "edit", "p-", "--set", f"category=of {hours}", expect=None)
        bench.run("velma", "sync", expect=None)
    bench.sync("tank")
    head = bench.git("rev-parse", "fleet", where="clan.git")
    for hours in (30, -30, 0, 48):
        bench.now_ms = int(time.time() * 1000) + hours * 3_600_000
        for agent in ("velma", "tank"):
            bench.run(agent, "sync", expect=None)
    assert bench.git("rev-parse", "fleet", where="clan.git") == head


# --- what became of the files here ----------------------------------------------------------------------------------


@pytest.mark.parametrize("harm", ["deleted", "an older copy", "one line"])
def test_files_that_lost_lines_here_are_put_back_and_it_is_said(bench, harm):
    for agent in ("velma", "tank"):
        bench.join(agent)
        bench.correct(agent, f"lesson of {agent}")
    bench.sync("velma")
    older = bench.folder / "older"
    shutil.copytree(bench.clan("velma"), older)
    bench.sync("tank", "velma")
    known, head = bench.seen("velma"), bench.git("rev-parse", "fleet", where="clan.git")
    if harm == "one line":
        edition = bench.clan("velma") / "patterns.jsonl"
        edition.write_bytes(edition.read_bytes().splitlines(keepends=True)[0])
    else:
        shutil.rmtree(bench.clan("velma"))
        if harm == "an older copy":
            shutil.copytree(older, bench.clan("velma"))
    done = bench.run("velma", "sync")
    assert not done.stdout.startswith("synced")
    assert "put back" in done.stderr
    assert "fleet retire" in done.stderr
    assert bench.seen("velma") == known
    assert (bench.clan("velma") / "patterns.jsonl").read_bytes() == bench.blob("patterns.jsonl")
    assert bench.git("rev-parse", "fleet", where="clan.git") == head
    assert bench.run("velma", "sync").stdout.startswith("synced")


def test_a_branch_of_a_newer_format_is_left_alone_with_a_lasting_exit_code(bench):
    bench.join("velma")
    bench.correct("velma", LESSON)
    bench.sync("velma")
    bench.push_tree({".fleet-format": ("100644", b"3\n")})
    head = bench.git("rev-parse", "fleet", where="clan.git")
    bench.correct("velma", "Something new")
    for _ in range(2):
        done = bench.run("velma", "sync", expect=3)
        assert "upgrade fleet" in done.stderr
        assert bench.git("rev-parse", "fleet", where="clan.git") == head
    assert bench.seen("velma") == {LESSON: 1, "Something new": 1}


@pytest.mark.parametrize("number", [b"", b"-1\n", b"\x1b[2J", b"two", b"9" * 100_000], ids=ascii)
def test_a_format_that_is_no_number_stops_nobody_and_is_put_right_by_the_next_push(bench, number):
    bench.join("velma")
    bench.correct("velma", LESSON)
    bench.sync("velma")
    bench.push_tree({".fleet-format": ("100644", number)})
    bench.correct("velma", "Something new")
    bench.sync("velma")
    assert bench.blob(".fleet-format") == b"2\n"


def test_a_branch_with_lines_of_version_1_asks_for_an_upgrade(bench):
    bench.join("velma")
    bench.correct("velma", LESSON)
    old = {"id": "p-3f9c1a2b7d4e5f60", "add": {SLOT: STAMP}, "by": SLOT, "n": {"seen": {SLOT: 1}}, "set": {"text": "t"}}
    bench.push_tree({"patterns.jsonl": ("100644", json.dumps(old).encode() + b"\n")}, on="")
    done = bench.run("velma", "sync", expect=1)
    assert "fleet upgrade" in done.stderr
    assert list(bench.tree()) == ["patterns.jsonl"]


@pytest.mark.parametrize("is_empty", [True, False])
def test_a_remote_of_the_other_hash_is_as_good_as_any(bench, is_empty):
    bench.git("init", "--quiet", "--bare", "--object-format=sha256", str(bench.remote))
    for agent in ("velma", "tank"):
        bench.join(agent)
        bench.correct(agent, LESSON)
        if not is_empty and agent == "velma":
            bench.sync("velma")
    bench.sync("velma", "tank", "velma")
    assert bench.seen("velma") == bench.seen("tank") == {LESSON: 2}
    assert len(bench.git("rev-parse", "fleet", where="clan.git").strip()) == 64
