"""Fault 23 of FAULTS: links to a file, to a folder, to nothing, and in a loop. Nothing outside the root is written.

What a link in the place of each folder and file does is in ``test_attacks_files``; here are the links that lead nowhere
or round in a circle, those in places that only long use brings about, and the links that are fine.
"""

import os
from pathlib import Path

import pytest

from fleet.store.database import SCHEMA_NUMBER
from fleet.store.files import Files
from fleet.store.ingest import clan_sources
from tests import commands
from tests.faults.test_sync import LESSON, SLOT, Bench, line

COMMANDS = {
    "correct": ("correct", "--wrong", "w", "--right", "r", "--pattern", "Another lesson"),
    "discover": ("discover", "--problem", "p", "--solution", "s"),
    "sync": ("sync",),
    "compact": ("compact",),
    "retire": ("retire", "{id}"),
    "patterns": ("patterns",),
    "start": ("start",),
    "gossip": ("gossip",),
    "search": ("search", "awk"),
    "status": ("status",),
}
PLACES = [
    "agents/velma",
    "agents/velma/corrections.md",
    "clan-learnings",
    "clan-learnings/patterns.d",
    "clan-learnings/patterns.d/{replica}.jsonl",
    "clan-learnings/patterns.jsonl",
    "clan-learnings/patterns.md",
    "clan-learnings/discoveries.d/{replica}.jsonl",
    "clan-learnings/members.toml",
    ".fleet/clock",
    ".fleet/generation",
    ".fleet/git",
    ".fleet/local.db",
    ".fleet/locks/write.lock",
    ".fleet/quarantine",
    ".fleet/replica.toml",
    f".fleet/state-{SCHEMA_NUMBER}.db",
]


@pytest.fixture(scope="module")
def clan(tmp_path_factory: pytest.TempPathFactory) -> Bench:
    bench = Bench(tmp_path_factory.mktemp("clan"))
    bench.join("velma")
    bench.correct("velma", LESSON)
    bench.run("velma", "discover", "--problem", "p", "--solution", "a way")
    bench.sync("velma")
    bench.correct("velma", LESSON)
    (bench.folder / "outside").mkdir()
    (bench.folder / "aside").mkdir()
    bench.keep("velma", "clan.git", "outside", "aside")
    return bench


@pytest.fixture
def bench(clan: Bench) -> Bench:
    clan.again()
    return clan


def everything(folder: Path) -> dict[str, bytes | None]:
    return {
        str(path.relative_to(folder)): path.read_bytes() if path.is_file() and not path.is_symlink() else None
        for path in folder.rglob("*")
    }


def link_in_place_of(bench: Bench, place: str, kind: str) -> tuple[Path, Path]:
    """Put a link there; return it and what stood there before, which lies aside."""
    path = bench.folder / "velma" / place.replace("{replica}", bench.replica("velma"))
    aside = bench.folder / "aside/it"
    if path.exists():
        path.rename(aside)
    path.parent.mkdir(parents=True, exist_ok=True)
    outside = bench.folder / "outside"
    target = {
        "to nothing": outside / "nothing",
        "to itself": path,
        "in a circle": path.with_name("round"),
        "to the root": bench.folder / "velma",
        "to a device": Path("/dev/null"),
    }[kind]
    path.symlink_to(target)
    if kind == "in a circle":
        target.symlink_to(path)
    return path, aside


KINDS = ["to nothing", "to itself", "in a circle", "to the root", "to a device"]
# Each place with a link to nothing, through which a file could be made; every second with one of the others in turn.
LINKS = [(place, "to nothing") for place in PLACES]
LINKS += [(place, KINDS[1 + at % 4]) for at, place in enumerate(PLACES[1::2])]


@pytest.mark.parametrize(("place", "kind"), LINKS)
def test_a_link_that_leads_nowhere_or_round_is_told_or_taken_for_nothing_and_writes_nothing_outside(bench, place, kind):
    pattern = bench.patterns("velma")["patterns"][0]["id"]
    path, aside = link_in_place_of(bench, place, kind)
    before = everything(bench.folder / "outside")
    for words in COMMANDS.values():
        done = bench.run("velma", *(word.replace("{id}", pattern) for word in words), expect=None)
        assert everything(bench.folder / "outside") == before, words
        if done.returncode:
            assert done.stderr.startswith(("fleet: ", "Usage")), words
    assert not (bench.folder / "outside/nothing").exists()
    # With the link gone and what stood there back again, everything is as it was, and what was acknowledged is in.
    if path.is_symlink():
        path.unlink()
    path.with_name("round").unlink(missing_ok=True)
    if aside.exists() and not path.exists():
        aside.rename(path)
    bench.run("velma", "sync", expect=None)
    # A database of before knows nothing of what was written meanwhile under our name: that is asked.
    bench.run("velma", "review", "--answer", f"own:{bench.replica('velma')}=take", expect=None)
    bench.run("velma", "sync")
    found = {p["text"]: p["seen"] for p in bench.patterns("velma", "--all")["patterns"]}
    assert found[LESSON] == 2


@pytest.mark.parametrize("kind", ["to nothing", "to itself"])
def test_a_link_in_the_place_of_a_file_that_is_about_to_be_written_is_not_followed(bench, kind, monkeypatch):
    """Files that are replaced are written under another name first, which may be there."""
    monkeypatch.setattr(os, "urandom", bytes)
    clan = bench.clan("velma")
    for name in ("patterns.jsonl", "patterns.md", "discoveries.jsonl"):
        temporary = clan / f".{name}.00000000.tmp"
        temporary.symlink_to(bench.folder / "outside/nothing" if kind == "to nothing" else temporary)
    bench.run("velma", "sync", expect=None)
    assert list((bench.folder / "outside").iterdir()) == []
    for path in clan.glob(".*.tmp"):
        path.unlink()
    bench.run("velma", "sync")
    assert bench.seen("velma") == {LESSON: 2}


@pytest.mark.parametrize("kind", ["a file", "a folder", "nothing", "itself"])
def test_a_shard_of_somebody_else_that_is_a_link_is_not_read_and_not_emptied(bench, kind):
    outside = bench.folder / "outside/victim.jsonl"
    outside.write_bytes(line("from outside") + b"\n")
    path = bench.clan("velma") / f"patterns.d/{SLOT}.jsonl"
    path.symlink_to(
        {
            "a file": outside,
            "a folder": outside.parent,
            "nothing": outside.parent / "nothing",
            "itself": path,
        }[kind]
    )
    bench.run("velma", "sync", expect=None)
    bench.run("velma", "compact", expect=None)
    assert bench.seen("velma") == {LESSON: 2}
    assert outside.read_bytes() == line("from outside") + b"\n"
    assert "from outside" not in bench.git("log", "-p", "--all", where="clan.git")


def test_a_workspace_that_is_reached_through_a_link_is_the_same_workspace(bench):
    (bench.folder / "shortcut").symlink_to("velma")
    assert bench.replica("shortcut") == bench.replica("velma")
    bench.correct("shortcut", LESSON)
    bench.run("shortcut", "sync")
    assert bench.seen("velma") == bench.seen("shortcut") == {LESSON: 3}
    assert len(list((bench.clan("velma") / "patterns.d").glob("*"))) <= 1


def test_a_folder_that_loops_beside_the_workspace_and_in_it_holds_nobody_up(bench):
    inner = bench.folder / "velma/agents/loop"
    inner.symlink_to(bench.folder / "velma/agents")
    (bench.clan("velma") / "again").symlink_to(bench.clan("velma"))
    for words in (("sync",), ("patterns",), ("search", "awk"), ("start",), ("status",), ("doctor",)):
        bench.run("velma", *words, expect=None)
    assert bench.seen("velma") == {LESSON: 2}
    assert "again" not in bench.git("ls-tree", "-r", "--name-only", "fleet", where="clan.git")


def test_a_folder_of_shards_that_is_a_link_holds_none_of_them(tmp_path: Path):
    (tmp_path / "clan").mkdir()
    (tmp_path / "elsewhere").mkdir()
    (tmp_path / "elsewhere" / f"{SLOT}.jsonl").write_bytes(line(LESSON) + b"\n")
    folder = tmp_path / "clan/patterns.d"
    folder.symlink_to(tmp_path / "elsewhere")
    assert clan_sources(tmp_path / "clan") == []
    folder.unlink()
    (tmp_path / "elsewhere").rename(folder)
    assert [source.path for source in clan_sources(tmp_path / "clan")] == [f"patterns.d/{SLOT}.jsonl"]


@pytest.mark.parametrize("is_link", [False, True])
def test_what_is_written_is_never_in_a_file_that_somebody_made_before(tmp_path: Path, is_link: bool, monkeypatch):
    """Where a file is there under the name that one is written first, its maker would own what stands in it."""
    monkeypatch.setattr(os, "urandom", bytes)
    guessed, mine = tmp_path / ".memory.md.00000000.tmp", tmp_path / "memory.md"
    guessed.write_text("another's")
    kept = guessed.open("rb")
    if is_link:
        os.link(guessed, tmp_path / "another's own")
    with kept:
        Files(tmp_path).write(mine, [b"mine"])
        assert (mine.read_bytes(), kept.read()) == (b"mine", b"another's")
    assert not guessed.exists()


def test_a_pipe_in_the_place_of_an_empty_file_is_replaced(tmp_path: Path):
    os.mkfifo(tmp_path / "page.md")
    assert Files(tmp_path).replace(tmp_path / "page.md", b"")
    assert (tmp_path / "page.md").is_file()


def test_a_search_waits_for_no_pipe(bench: Bench):
    log = bench.folder / "velma/agents/velma/corrections.md"
    log.unlink()
    os.mkfifo(log)
    assert LESSON in bench.run("velma", "search", "awk").stdout


@pytest.mark.parametrize("place", ["HEAD", "config", "shallow", "packed-refs", "refs/fleet/fetched", "objects/pack/*"])
def test_no_command_waits_for_a_pipe_in_fleets_own_repository_and_a_sync_names_it(bench: Bench, place: str):
    repository = bench.folder / "velma/.fleet/git"
    for pipe in (*repository.glob(place),) or (repository / place,):
        pipe.unlink(missing_ok=True)
        os.mkfifo(pipe)
    for words in (COMMANDS["correct"], ("patterns",), ("doctor",), ("sync",)):
        done = commands.run(words, bench.folder / "velma", bench.environment(), timeout_s=20)
        assert "Traceback" not in done.stderr
    if place != "refs/fleet/fetched":  # which a command replaces
        assert done.returncode != 0
        assert "as fleet made it" in done.stderr
        assert "move it away" in done.stderr
        repository.rename(bench.folder / "velma/aside")
    bench.sync("velma")
    assert {LESSON: 2, "Another lesson": 1}.items() <= bench.seen("velma").items()


def test_no_command_waits_for_a_pipe_beside_fleets_own_repository(bench: Bench):
    os.mkfifo(bench.folder / "velma/.fleet/git.held")
    done = commands.run(("sync",), bench.folder / "velma", bench.environment(), timeout_s=20)
    assert done.returncode == 0


@pytest.mark.parametrize("is_named", [False, True])
def test_a_folder_whose_state_is_anothers_is_no_workspace(clan: Bench, tmp_path: Path, is_named: bool):
    """A repository of links would show a session in it what another workspace on this machine knows."""
    (tmp_path / "fleet.toml").write_text("")
    for name in (".fleet", "agents", "clan-learnings"):
        (tmp_path / name).symlink_to(clan.folder / "velma" / name)
    words = ["search", "awk", *(["--dir", str(tmp_path)] if is_named else [])]
    done = commands.here(words, tmp_path, os.environ | {"HOME": str(tmp_path)})
    assert done.returncode != 0
    assert LESSON not in done.stdout


def test_a_workspace_whose_own_folder_is_a_link_is_named_with_the_link(bench: Bench):
    own = bench.folder / "velma/.fleet"
    own.rename(bench.folder / "elsewhere")
    own.symlink_to(bench.folder / "elsewhere")
    told = bench.run("velma", "status", expect=1).stderr
    assert ".fleet is a link" in told
    assert "there is no fleet.toml" not in told


@pytest.mark.parametrize(
    ("place", "kind"),
    [
        *(("clan-learnings/patterns.d/mallory.0000000f.jsonl", kind) for kind in ("a link", "a pipe", "a folder")),
        *(("agents/velma/corrections.md", kind) for kind in ("a link", "a pipe")),  # of a folder the status fails
    ],
)
def test_what_stands_in_the_place_of_a_plain_file_is_in_the_status(bench: Bench, kind: str, place: str):
    path = bench.folder / "velma" / place
    path.unlink(missing_ok=True)
    if kind == "a pipe":
        os.mkfifo(path)
    elif kind == "a folder":
        path.mkdir()
    else:
        path.symlink_to("/etc/hosts")
    assert [each["path"] for each in bench.status("velma")["held_files"]] == [place]
    assert place in bench.run("velma", "status").stdout


def test_a_link_in_the_place_of_the_homes_is_in_the_status(bench: Bench):
    homes = bench.folder / "velma/agents"
    homes.rename(bench.folder / "the homes")
    homes.symlink_to(bench.folder / "the homes")
    assert "agents" in [each["path"] for each in bench.status("velma")["held_files"]]


def test_a_shard_of_the_branch_with_an_x_bit_stays_in_the_status_with_what_to_do(bench: Bench):
    path = "patterns.d/mallory.0000000f.jsonl"
    bench.push_tree({path: ("100755", line("from a Windows disk") + b"\n")})
    assert "1 file is held" in bench.run("velma", "sync", expect=3).stderr
    bench.run("velma", "sync")
    [held] = bench.status("velma")["held_files"]
    assert held["path"] == path
    assert "chmod=-x" in held["reason"]
    bench.push_tree({path: ("100644", line("from a Windows disk") + b"\n")})
    bench.run("velma", "sync")
    assert bench.status("velma")["held_files"] == []
    assert "from a Windows disk" in bench.seen("velma")


def test_a_shard_of_the_branch_with_another_name_is_told_once_and_stays_in_the_status(bench: Bench):
    names = ("tank.jsonl", "Tank.c0ffee42.jsonl", "x/tank.c0ffee42.jsonl")
    paths = {f"{kind}.d/{name}" for kind in ("patterns", "discoveries") for name in names}
    bench.push_tree({path: ("100644", line("by a foreign program") + b"\n") for path in paths})
    assert "6 files are held" in bench.run("velma", "sync", expect=3).stderr
    told = bench.run("velma", "sync").stderr
    assert {path for path in paths if path in told} == set()
    held = {each["path"]: each["reason"] for each in bench.status("velma")["held_files"]}
    assert held.keys() == paths
    assert all("<agent>.<8 hex digits>.jsonl" in reason for reason in held.values())
    bench.correct("velma", "Another lesson")
    bench.sync("velma")
    assert paths <= bench.tree().keys()


def test_a_shard_here_with_another_name_is_in_the_status(bench: Bench):
    bench.by_hand(bench.clan("velma") / "patterns.d/tank.jsonl", line("by a foreign program"))
    assert [each["path"] for each in bench.status("velma")["held_files"]] == ["clan-learnings/patterns.d/tank.jsonl"]
