"""Attack 8 of FAULTS: rollback and freeze. An old state of the remote is replayed, or served for ever.

Nothing goes back, a warning says whose lines the remote no longer had, and a remote that has shown nothing new of
anybody else for `[share] stale_days` days is told of, in `fleet sync` and in `fleet status`.
"""

import json
import shutil

import pytest

from fleet.model.discovery import Discovery, discovery_id, encode
from tests.faults.test_sync import Bench

DAY_MS = 86_400_000
NOON_MS = 1_795_219_200_000  # 2026-11-21


@pytest.fixture(scope="module")
def made(tmp_path_factory):
    bench = Bench(tmp_path_factory.mktemp("clan"))
    bench.now_ms = NOON_MS
    for agent in ("velma", "tank", "slash"):
        bench.join(agent)
        bench.correct(agent, f"the lesson of {agent}")
        bench.sync(agent)
    bench.sync("velma", "tank", "slash")
    bench.keep()
    return bench


@pytest.fixture
def clan(made):
    """Three agents who have read each other, at a time that the test decides."""
    made.again()
    made.now_ms = NOON_MS
    return made


# --- rollback -------------------------------------------------------------------------------------------------------


def replayed(bench):
    """The ref points to an old commit again."""
    old = bench.git("rev-list", "--max-parents=0", "fleet", where="clan.git").strip()
    bench.git("update-ref", "refs/heads/fleet", old, where="clan.git")


def replayed_as_new(bench):
    """The old content comes as the newest commit, as `git revert` makes one: no history was rewritten."""
    old = bench.git("rev-list", "--max-parents=0", "fleet", where="clan.git").strip()
    head = bench.git("rev-parse", "fleet", where="clan.git").strip()
    who = ("-c", "user.name=a", "-c", "user.email=a@localhost")
    made = bench.git(*who, "commit-tree", f"{old}^{{tree}}", "-p", head, "-m", "Revert", where="clan.git").strip()
    bench.git("update-ref", "refs/heads/fleet", made, where="clan.git")


@pytest.mark.parametrize("attack", [replayed, replayed_as_new], ids=lambda attack: attack.__name__)
def test_an_old_ref_that_is_replayed_takes_nothing_back_and_a_warning_says_whose_lines_were_missing(clan, attack):
    before = clan.seen("velma")
    attack(clan)
    told = clan.run("velma", "sync").stderr
    assert "the remote was set back" in told
    for agent in ("slash", "tank"):
        assert clan.replica(agent) in told
    assert clan.seen("velma") == before
    clan.sync("tank", "slash")
    assert {found.text for found in clan.edition()} == before.keys()


def test_a_remote_that_is_replayed_again_and_again_is_told_of_each_time(clan):
    for _ in range(3):
        replayed(clan)
        assert "the remote was set back" in clan.run("velma", "sync").stderr


def test_who_is_only_new_or_only_waited_here_is_no_rollback(clan):
    clan.correct("velma", "another lesson")
    clan.correct("tank", "the lesson of velma")
    clan.join("dade")
    for agent in ("velma", "tank", "dade", "velma", "tank"):
        assert "set back" not in clan.run(agent, "sync").stderr
    clan.run("velma", "compact")
    for agent in ("tank", "dade", "velma"):
        assert "set back" not in clan.run(agent, "sync").stderr


def test_what_was_seen_is_remembered_when_the_database_is_lost(clan):
    for found in (clan.folder / "velma/.fleet").glob("state-*.db*"):
        found.unlink()
    clan.run("velma", "sync")
    replayed(clan)
    assert clan.replica("tank") in clan.run("velma", "sync").stderr


# --- freeze ---------------------------------------------------------------------------------------------------------


def frozen(bench):
    """Whoever stands between serves the copy of today from now on, and takes what it is given."""
    shutil.copytree(bench.remote, bench.folder / "mirror.git")
    for agent in ("velma", "tank"):
        toml = bench.folder / agent / "fleet.toml"
        where = "mirror.git" if agent == "velma" else "clan.git"
        toml.write_text(toml.read_text().replace("clan.git", where))


def days_later(bench, days: int) -> None:
    bench.now_ms = NOON_MS + days * DAY_MS


def test_a_frozen_remote_is_told_of_in_sync_and_in_status(clan):
    frozen(clan)
    for day in (5, 10, 14):
        days_later(clan, day)
        clan.correct("tank", f"a lesson of day {day}")
        clan.sync("tank")
        told = clan.run("velma", "sync", "--yes").stderr
        assert ("nothing new from anybody else" in told) == (day >= 14)
    assert "for 14 days" in told
    assert "2026-11-21" in told
    assert "nothing new from anybody else" in clan.status("velma")["stale"]
    assert "stale " in clan.run("velma", "status").stdout
    assert clan.status("tank")["stale"], "slash and velma are silent for tank as well"


def test_who_hears_of_others_is_not_stale(clan):
    for day in (7, 14, 21):
        days_later(clan, day)
        clan.correct("tank", f"a lesson of day {day}")
        clan.sync("tank")
        assert "nothing new" not in clan.run("velma", "sync").stderr
    assert clan.status("velma")["stale"] == ""


def test_who_does_not_sync_or_is_alone_is_not_warned_of_a_frozen_remote(clan, tmp_path):
    days_later(clan, 60)
    assert clan.status("velma")["stale"] == "", "the last sync was 60 days ago: that is what status says"
    (tmp_path / "alone").mkdir()
    alone = Bench(tmp_path / "alone")
    alone.now_ms = NOON_MS
    alone.join("zerocool")
    alone.correct("zerocool", "a lesson")
    alone.sync("zerocool")
    days_later(alone, 60)
    assert "nothing new" not in alone.run("zerocool", "sync").stderr


def test_a_finding_without_author_or_time_stops_no_sync_and_is_nobodys(tmp_path):
    bench = Bench(tmp_path)
    bench.join("velma")
    bench.correct("velma", "a lesson")
    bench.sync("velma")
    nameless = Discovery(id=discovery_id("", "", "Who found it?", ""), problem="Who found it?")
    dateless = Discovery(id=discovery_id("", "", "And when?", ""), problem="And when?", by="slash.5e1f0a77")
    data = b"".join(encode(each) + b"\n" for each in (nameless, dateless))
    bench.push_tree({"discoveries.d/slash.5e1f0a77.jsonl": ("100644", data)})
    bench.sync("velma")
    status = bench.status("velma")
    assert status["stale"] == ""
    assert "" not in {each["replica"] for each in status["replicas"]}
    replayed(bench)
    assert "up to 0Z" not in bench.run("velma", "sync").stderr


def test_who_imports_what_others_found_long_ago_is_alone_all_the_same(tmp_path):
    bench = Bench(tmp_path)
    bench.now_ms = NOON_MS
    bench.join("velma")
    found = {"type": "gotcha", "problem": "p", "solution": "s", "agent": "tank", "timestamp": "2025-01-01T00:00:00Z"}
    (tmp_path / "velma/discoveries.jsonl").write_text(json.dumps(found) + "\n")
    bench.run("velma", "import", "discoveries.jsonl")
    for _ in range(2):
        assert "nothing new" not in bench.run("velma", "sync").stderr
    assert [each["replica"] for each in bench.status("velma")["replicas"]] == [bench.replica("velma")]
    bench.run("velma", "compact")
    bench.join("zerocool")
    assert bench.status("zerocool")["replicas"] == [], "nor does an import in an edition"


def test_who_found_something_is_a_replica_where_an_edition_is_all_that_is_known(tmp_path):
    bench = Bench(tmp_path)
    bench.join("velma")
    bench.correct("velma", "Quote every path")
    bench.run("velma", "discover", "--problem", "what broke", "--solution", "s")
    bench.sync("velma")
    bench.run("velma", "compact")

    def answers() -> tuple[object, ...]:
        return bench.status("velma")["replicas"], json.loads(bench.run("velma", "--json").stdout)["last"]

    before = answers()
    for file in (tmp_path / "velma/.fleet").glob("state-*"):
        file.unlink()
    assert answers() == before
    bench.join("tank")
    assert [each["last"] for each in bench.status("tank")["replicas"]] == [before[0][0]["last"]]


def test_who_only_finds_things_is_heard_of(clan):
    for day in (7, 14, 21):
        days_later(clan, day)
        clan.run("tank", "discover", "--problem", f"what broke on day {day}", "--solution", "s")
        clan.sync("tank")
        assert "nothing new" not in clan.run("velma", "sync").stderr


def test_how_long_is_too_long_is_configured(clan):
    toml = clan.folder / "velma/fleet.toml"
    text = toml.read_text()
    for days, is_told in ((3, True), (0, False)):
        toml.write_text(text.replace("[share]\n", f"[share]\nstale_days = {days}\n"))
        days_later(clan, 4)
        assert ("nothing new from anybody else" in clan.run("velma", "sync").stderr) == is_told
