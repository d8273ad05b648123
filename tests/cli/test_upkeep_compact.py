"""``fleet compact``: the edition is the join of all, and the shards lose what it covers; nothing else changes."""

import json

import pytest


@pytest.fixture
def big(stage):
    """Two agents whose clan is above the size at which every sync writes an edition."""
    for agent in ("velma", "tank"):
        stage.join(agent)
        config = stage.folder / agent / "fleet.toml"
        config.write_text(
            config.read_text().replace(
                "[keep]\n", "[keep]\nedition_always_bytes = 1\nedition_uncovered_share = 1000.0\n"
            )
        )
    for agent in ("velma", "tank"):
        stage.correct(agent, f"a lesson of {agent}")
        stage.run(agent, "sync")
    return stage


def tree(stage):
    listed = stage.git("ls-tree", "-r", "--name-only", "fleet", where="clan.git").split()
    return {path: stage.git("show", f"fleet:{path}", where="clan.git") for path in listed}


def test_a_compaction_writes_the_edition_and_empties_every_shard_it_covers(big):
    big.run("velma", "sync")
    for agent in ("velma", "tank"):
        big.correct(agent, "seen by both")
    big.run("tank", "sync")
    before = tree(big)
    assert any("tank" in path for path in before)
    seen = {"a lesson of velma": 1, "a lesson of tank": 1, "seen by both": 2}
    done = json.loads(big.run("velma", "compact", "--json").stdout)
    after = tree(big)
    assert [path for path in after if path.startswith("patterns.d/")] == []
    assert {each.text for each in big.edition()} == seen.keys()
    assert done["edition"]
    assert done["sent"] == 1
    big.run("tank", "sync")
    assert big.seen("velma") == big.seen("tank") == seen
    assert not list((big.folder / "tank/clan-learnings/patterns.d").glob("*")), "what the edition covers goes there too"


def test_a_second_compaction_makes_no_commit(big):
    big.run("velma", "compact")
    head = big.git("rev-parse", "fleet", where="clan.git")
    assert "whole already" in big.run("velma", "compact").stdout
    big.run("tank", "compact")
    assert big.git("rev-parse", "fleet", where="clan.git") == head


def test_lines_go_first_and_the_edition_is_a_commit_of_its_own(big):
    big.run("velma", "compact")
    big.correct("velma", "one more")
    big.run("velma", "compact")
    listed = big.git("log", "--format=", "--name-only", "-3", "fleet", where="clan.git").split()
    shard = next(path for path in listed if path.startswith("patterns.d/"))
    assert listed == [shard, "README.md", "patterns.jsonl", "patterns.md", shard], (
        "newest first: dropped, edition, line"
    )


def test_without_a_remote_the_edition_is_written_and_the_shards_stay(stage):
    stage.run("alone", "init", "--agent", "velma")
    config = stage.folder / "alone/fleet.toml"
    config.write_text(config.read_text().replace("[keep]\n", "[keep]\nedition_always_bytes = 1\n"))
    stage.correct("alone", "a lesson")
    stage.run("alone", "sync")
    clan = stage.folder / "alone/clan-learnings"
    assert not (clan / "patterns.jsonl").exists()
    assert "no remote is named" in stage.run("alone", "compact").stdout
    assert len((clan / "patterns.jsonl").read_text().splitlines()) == 1
    assert list((clan / "patterns.d").glob("*.jsonl"))
    assert stage.seen("alone") == {"a lesson": 1}


def test_a_remote_that_does_not_answer_loses_nothing(big):
    big.correct("velma", "one more")
    before = {p: p.read_bytes() for p in (big.folder / "velma/clan-learnings").rglob("*") if p.is_file()}
    big.remote.rename(big.folder / "away.git")
    assert "not sent yet" in big.run("velma", "compact", expect=5).stderr
    assert {p: p.read_bytes() for p in before} == before
    (big.folder / "away.git").rename(big.remote)
    big.run("velma", "compact")
    assert {each.text for each in big.edition()} == {"a lesson of velma", "a lesson of tank", "one more"}


def test_a_clock_that_ran_ahead_keeps_nobody_from_compacting(big):
    (big.folder / "velma/.fleet/clock").write_text(f"{'2099-01-01T00:00:00.000Z-0000':<29}\n")
    done = big.run("velma", "correct", "--wrong", "w", "--right", "r", "--pattern", "one more")
    assert "ran ahead" in done.stderr
    big.run("velma", "compact")
    assert "one more" in {each.text for each in big.edition()}
    big.run("tank", "sync")
    assert big.seen("tank")["one more"] == 1


def test_a_commit_names_whose_lesson_it_is_whoever_sends_it(stage):
    for agent in ("velma", "tank"):
        stage.join(agent)
    stage.correct("velma", "Pin every version")
    for agent in ("velma", "tank"):
        stage.run(agent, "sync")
    stage.git("update-ref", "-d", "refs/heads/fleet", where="clan.git")
    stage.run("tank", "sync")
    subjects = stage.git("log", "--format=%s", "fleet", where="clan.git").splitlines()
    assert "velma learned: Pin every version" in subjects
    assert not [each for each in subjects if "tank" in each], subjects


def test_a_commit_that_only_takes_covered_lines_away_is_called_so(stage):
    for agent in ("velma", "tank"):
        stage.join(agent)
    for agent, text in (("tank", "Quote every path"), ("velma", "Pin every version")):
        stage.correct(agent, text)
        stage.run(agent, "sync")
    stage.run("velma", "compact")
    subjects = stage.git("log", "--format=%s", "fleet", where="clan.git").splitlines()
    assert "tank learned: Quote every path" in subjects
    assert not [each for each in subjects if "0 lines" in each], subjects
