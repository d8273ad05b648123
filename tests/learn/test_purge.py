"""``fleet purge``: the values are gone from every place that fleet writes, whatever anybody's clock says."""

import base64
import json
import shutil
import subprocess

import pytest

from fleet.app import learning, lessons, moving, sharing, starting
from fleet.learn.attempts import AttemptLog
from fleet.learn.corrections_md import Correction
from fleet.model.names import pattern_id
from fleet.store import config
from fleet.store.database import SCHEMA_NUMBER
from fleet.store.workspace import Workspace, World

DAY_MS = 86_400_000
DAY_1_MS = 1_795_000_000_000
# No shape of a token: what the border does not know is what has to be purged.
SECRET = "the door code is four eight fifteen sixteen"
OTHER = "Pin the compiler version in CI"


class Clan:
    """Some workspaces around a bare repository, at a time of the test's choosing."""

    def __init__(self, folder):
        self.folder = folder
        self.now_ms = DAY_1_MS
        self.remote = folder / "clan.git"
        subprocess.run(["git", "init", "-q", "--bare", "--template=", str(self.remote)], check=True)
        self.open()

    def open(self):
        self.spaces = {agent: self.opened(agent, number) for number, agent in enumerate(("velma", "tank"))}

    def close(self):
        for each in self.spaces.values():
            each.close()

    def opened(self, agent, number):
        root = self.folder / agent
        root.mkdir(exist_ok=True)
        (root / "fleet.toml").write_text(config.render(str(self.remote), "fleet"))
        world = World(wall_ms=self.wall_ms, machine=lambda: f"machine{number}", lent=lambda: "", durable=False)
        return Workspace(root, world)

    def wall_ms(self):
        self.now_ms += 10
        return self.now_ms

    def __getitem__(self, agent):
        return self.spaces[agent]

    def correct(self, agent, pattern, right="r"):
        return learning.correct(self[agent], agent, Correction("w", right, pattern)).id

    def sync(self, *agents):
        for agent in agents:
            sharing.sync(self[agent], agent, yes=True)

    def purge(self, agent, wanted):
        return moving.purge(self[agent], agent, wanted, yes=True)

    def git(self, *words):
        return subprocess.run(["git", *words], cwd=self.remote, capture_output=True, text=True, check=True).stdout

    def tip(self):
        names = self.git("ls-tree", "-r", "--name-only", "fleet").split()
        return "".join(self.git("show", f"fleet:{name}") for name in names)

    def objects(self, agent):
        """Return every object of fleet's own repository, unpacked."""
        folder = self[agent].local / "git"
        words = ["git", "--git-dir", str(folder), "cat-file", "--batch-all-objects", "--batch"]
        return subprocess.run(words, capture_output=True, check=True).stdout

    def holders(self, agent):
        """Return where the secret stands on a machine, people's own files apart; git's objects are unpacked."""
        root = self[agent].root
        self[agent].close()
        found = [
            path.relative_to(root).as_posix()
            for path in sorted(root.rglob("*"))
            if path.is_file() and SECRET.encode() in path.read_bytes()
        ]
        found = [path for path in found if not path.startswith("agents/")]
        return found + [".fleet/git"] * (SECRET.encode() in self.objects(agent))


@pytest.fixture
def clan(tmp_path):
    made = Clan(tmp_path)
    yield made
    made.close()


@pytest.fixture(scope="module")
def made(tmp_path_factory):
    """The clan of ``leaked``, and beside it a copy of its folder as it was."""
    clan = Clan(tmp_path_factory.mktemp("leaked"))
    for agent in ("velma", "tank"):
        clan.pattern = clan.correct(agent, SECRET)
        clan.correct(agent, OTHER)
        clan.sync(agent)
    clan.sync("velma")
    assert SECRET in clan.tip()
    clan.close()
    shutil.copytree(clan.folder, clan.folder.with_name("leaked-kept"), symlinks=True)
    return clan


@pytest.fixture
def leaked(made):
    """A lesson with a secret, logged by velma and confirmed by tank; a day goes by in which nobody writes a word."""
    for path in made.folder.iterdir():
        shutil.rmtree(path)
    shutil.copytree(made.folder.with_name("leaked-kept"), made.folder, symlinks=True, dirs_exist_ok=True)
    made.open()
    made.now_ms = DAY_1_MS + 3 * DAY_MS
    yield made
    made.close()


@pytest.mark.parametrize(("named", "is_first"), [("secret", False), ("other", True)])
def test_a_purge_covers_all_records_that_are_one_lesson_with_the_one_that_is_named(leaked, is_first, named):
    ids = {"secret": leaked.pattern, "other": leaked.correct("velma", OTHER)}
    pair = [ids["secret"], ids["other"]] if is_first else [ids["other"], ids["secret"]]
    lessons.merge(leaked["velma"], "velma", *pair, force=True)
    leaked.sync("velma")
    done = leaked.purge("velma", ids[named])
    assert SECRET not in leaked.tip()
    assert leaked.holders("velma") == []
    assert {path for path, _ in done.remains} == {"agents/velma/corrections.md"}


def test_what_others_merged_with_it_keeps_its_own_words(leaked):
    other = leaked.correct("velma", OTHER)
    leaked.sync("velma", "tank")
    lessons.merge(leaked["tank"], "tank", leaked.pattern, other, force=True)
    leaked.sync("tank", "velma")
    assert leaked.purge("velma", leaked.pattern).others == [other]
    assert SECRET not in leaked.tip()
    assert OTHER in leaked.tip()
    assert leaked.holders("velma") == []


def test_who_merges_by_a_first_wording_stops_no_purge(leaked):
    other = {"id": pattern_id(OTHER), "w": {"mallory.0badcafe": {"first": {"merged_into": leaked.pattern}}}}
    shard = leaked["velma"].clan / "patterns.d/mallory.0badcafe.jsonl"
    shard.write_text(json.dumps(other, separators=(",", ":")) + "\n")
    assert leaked.purge("velma", leaked.pattern).others == [pattern_id(OTHER)]
    assert SECRET not in leaked.tip()


def test_where_nobody_else_wrote_for_days_a_purge_is_one_all_the_same(leaked):
    done = leaked.purge("velma", leaked.pattern)
    assert not done.why_not
    assert SECRET not in leaked.tip()
    assert leaked.holders("velma") == []
    assert {path for path, _ in done.remains} == {"agents/velma/corrections.md"}


@pytest.mark.parametrize("after", [["sync", "sync", "compact"], ["compact"]])
def test_it_stays_so_after_syncs_and_a_compaction(leaked, after):
    leaked.purge("velma", leaked.pattern)
    for what in after:
        sharing.sync(leaked["velma"], "velma", compact=what == "compact")
    assert SECRET not in leaked.tip()
    assert leaked.holders("velma") == []
    leaked.sync("tank")
    assert SECRET not in leaked.tip()
    assert [each for each in leaked.holders("tank") if each != ".fleet/git"] == []
    for agent in ("velma", "tank"):
        found = leaked[agent].patterns.get(leaked.pattern)
        assert (found.text, found.count("seen"), found.is_present) == ("[REDACTED:purged]", 2, False)
        assert leaked[agent].patterns.same_text(OTHER) != leaked.pattern


def test_without_an_answer_from_the_remote_the_next_sync_brings_it(leaked):
    away = leaked.remote.with_name("away.git")
    leaked.remote.rename(away)
    done = leaked.purge("velma", leaked.pattern)
    assert done.why_not
    told = {path.partition(",")[0] for path, _ in done.remains}
    assert (
        set(leaked.holders("velma"))
        <= told
        == {".fleet/git", f".fleet/state-{SCHEMA_NUMBER}.db", "agents/velma/corrections.md"}
    )
    away.rename(leaked.remote)
    leaked.sync("velma")
    assert SECRET not in leaked.tip()
    assert leaked.holders("velma") == [".fleet/git"], "the history that was fetched before"
    leaked.purge("velma", leaked.pattern)
    assert leaked.holders("velma") == []


def test_a_repository_without_its_history_goes_on_fetching_and_pushing(leaked):
    leaked.purge("velma", leaked.pattern)
    leaked.correct("tank", "after the purge, by tank")
    leaked.sync("tank")
    leaked.correct("velma", "after the purge, by velma")
    leaked.sync("velma", "tank", "velma")
    for agent in ("velma", "tank"):
        texts = {each.text for each in leaked[agent].patterns.lessons()}
        assert texts == {OTHER, "after the purge, by tank", "after the purge, by velma"}
    assert SECRET not in leaked.tip()
    assert leaked.holders("velma") == []


def test_an_honest_later_edit_lives_and_a_stale_copy_does_not_come_back(leaked):
    lessons.edit(leaked["tank"], "tank", leaked.pattern, ["category=doors"])
    old = {path: path.read_bytes() for path in leaked["tank"].clan.rglob("*") if path.is_file()}
    leaked.purge("velma", leaked.pattern)
    leaked.sync("tank", "velma")
    assert leaked["velma"].patterns.get(leaked.pattern).category == "doors"
    leaked["tank"].close()
    for path, data in old.items():  # a checkout puts the old files back
        path.parent.mkdir(exist_ok=True)
        path.write_bytes(data)
    leaked.sync("tank", "velma", "tank")
    assert SECRET not in leaked.tip()
    assert [each for each in leaked.holders("tank") if each != ".fleet/git"] == []


@pytest.mark.parametrize("has_heard", [False, True])
def test_who_said_the_words_before_and_logs_them_again_does_not_bring_them_back(leaked, has_heard):
    leaked.purge("velma", leaked.pattern)
    if has_heard:
        leaked.sync("tank")
    leaked.correct("tank", SECRET)
    leaked.sync("tank", "velma", "tank")
    for agent in ("velma", "tank"):
        found = leaked[agent].patterns.get(leaked.pattern)
        assert (found.text, found.count("seen")) == ("[REDACTED:purged]", 3)
    assert SECRET not in leaked.tip()
    sharing.sync(leaked["tank"], "tank", compact=True)
    assert SECRET not in leaked.tip()


def test_every_writers_value_goes_edits_of_the_future_too(clan):
    lesson = clan.correct("velma", "harmless words", right=SECRET)
    clan.sync("velma", "tank")
    clan.now_ms += 5 * DAY_MS  # tank's clock runs ahead
    lessons.edit(clan["tank"], "tank", lesson, [f"category={SECRET}"])
    clan.sync("tank")
    clan.now_ms -= 5 * DAY_MS
    clan.sync("velma")
    assert clan["velma"].db.future_ids() == [lesson]
    clan.purge("velma", lesson)
    assert SECRET not in clan.tip()
    assert clan.holders("velma") == []
    clan.now_ms += 6 * DAY_MS
    found = clan["velma"].patterns.get(lesson)
    assert SECRET not in json.dumps(found.fields)


def test_a_private_lesson_leaves_its_notes_too(clan):
    lesson = clan.correct("velma", SECRET)
    lessons.edit(clan["velma"], "velma", lesson, ["scope=private"])
    notes = clan["velma"].notes_file("velma")
    assert SECRET in notes.read_text()
    clan.purge("velma", lesson)
    assert SECRET not in notes.read_text()
    assert clan["velma"].notes("velma").get(lesson).text == "[REDACTED:purged]"
    clan.sync("velma")
    assert clan.holders("velma") == []


def test_a_line_of_a_newer_version_that_holds_it_goes_and_another_stays(clan):
    lesson = clan.correct("velma", SECRET)
    clan.sync("velma")
    shard = clan["velma"].clan / "patterns.d/tank.0a1b2c3d.jsonl"
    shard.parent.mkdir(exist_ok=True)
    rows = [{"id": lesson, "next": {"words": f"so: {SECRET}"}}, {"id": lesson, "next": "harmless"}]
    shard.write_text("".join(json.dumps(row) + "\n" for row in rows))
    clan.sync("velma", "tank")
    assert len(clan["tank"].db.carried()) == 2
    clan.purge("velma", lesson)
    clan.sync("tank", "velma")
    assert SECRET not in clan.tip()
    assert "harmless" in clan.tip()
    for agent in ("velma", "tank"):
        assert [json.loads(each.raw)["next"] for each in clan[agent].db.carried(lesson)] == ["harmless"]
        assert [each for each in clan.holders(agent) if each != ".fleet/git"] == []


def test_nothing_that_fleet_keeps_for_itself_holds_it(leaked):
    space = leaked["velma"]
    starting.SessionStart(space, "velma").make()
    (space.clan / "patterns.d").mkdir(exist_ok=True)
    (space.clan / "patterns.d/tank.0a1b2c3d.jsonl").write_text(f'{{"id":"p-1","set":"{SECRET}"}}\n')
    space.db.refresh()
    assert any(SECRET.encode() in kept.raw for kept in space.quarantine.all())
    (space.clan / "patterns.d/tank.0a1b2c3d.jsonl").unlink()
    AttemptLog(space.root, "velma").note_failure("s", f"echo {SECRET}", f"error: {SECRET}", 1)
    backup = space.local / "upgrade-backup/clan-learnings/patterns.jsonl"
    backup.parent.mkdir(parents=True)
    backup.write_text(json.dumps({"id": leaked.pattern, "set": {"text": SECRET}}) + "\n")
    refused = {"at": "", "path": "x", "line": 1, "reason": "r", "bytes": base64.b64encode(b"harmless").decode()}
    space.files.append(space.local / "quarantine/refused.jsonl", json.dumps(refused).encode() + b"\n")
    assert {each.partition("/")[2].partition("/")[0] for each in leaked.holders("velma") if "/" in each} >= {
        *("ready", "attempts", "upgrade-backup", "git"),
    }
    leaked.purge("velma", leaked.pattern)
    assert leaked.holders("velma") == []
    kept = [kept.raw for kept in space.quarantine.all()]
    assert kept == [b"harmless"]
    assert json.loads(backup.read_text())["set"]["text"] == "[REDACTED:purged]"


def test_a_copy_beside_a_file_of_fleets_own_is_told(leaked):
    copies = [".fleet/gitlog.txt", ".fleet/local.db.bak", ".fleet/replica.toml.orig"]
    for copy in copies:
        (leaked["velma"].root / copy).write_text(SECRET)
    assert {path for path, _ in leaked.purge("velma", leaked.pattern).remains}.issuperset(copies)


def test_a_purge_twice_is_one(leaked):
    first = leaked.purge("velma", leaked.pattern)
    before = leaked.tip()
    assert leaked.purge("velma", leaked.pattern).remains == first.remains, "what stands in a log is told again"
    leaked.sync("velma", "tank", "velma")
    assert SECRET not in leaked.tip()
    assert leaked["velma"].patterns.get(leaked.pattern).count("seen") == 2
    assert "[REDACTED:purged]" in before


# --- a peer's secret, dropped by whoever sees it first --------------------------------------------------------------

TOKEN = "gh" + "p_" + "a1B2c3D4e5F6g7H8i9J0" * 2


def push_raw(clan, count):
    """Push lines with a token as somebody does whose fleet screens nothing."""
    work = clan.folder / "raw"
    subprocess.run(["git", "clone", "-q", "-b", "fleet", str(clan.remote), str(work)], check=True)
    shard = work / "patterns.d/mallory.0badcafe.jsonl"
    shard.parent.mkdir(exist_ok=True)
    rows = [
        {
            "id": f"p-{n:016x}",
            "w": {"mallory.0badcafe": {"add": "2026-01-02T00:00:00.000Z-0000", "first": {"text": text}}},
        }
        for n, text in enumerate([f"Push {n} with {TOKEN}{n}" for n in range(count)])
    ]
    shard.write_text("".join(json.dumps(row, separators=(",", ":"), sort_keys=True) + "\n" for row in rows))
    who = ("-c", "user.name=m", "-c", "user.email=m@localhost")
    for words in (["add", "-A"], [*who, "commit", "-q", "-m", "raw"], ["push", "-q", "origin", "fleet"]):
        subprocess.run(["git", *words], cwd=work, check=True)


def test_many_are_dropped_by_and_by_and_none_is_forgotten(tmp_path, monkeypatch):
    monkeypatch.setattr("fleet.learn.purge.SECRETS_AT_ONCE_MAX", 2)
    monkeypatch.setattr("fleet.app.sharing._SCREENED_MAX", 3)
    clan = Clan(tmp_path)
    clan.correct("velma", OTHER)
    clan.sync("velma", "tank")
    push_raw(clan, 5)
    left = [clan.tip().count(TOKEN)]
    for _ in range(4):
        clan.sync("velma")
        left.append(clan.tip().count(TOKEN))
    assert left[0] == 5
    assert left[-1] == 0, left
    clan.sync("tank")
    texts = {each.text for each in clan["tank"].patterns.some([f"p-{n:016x}" for n in range(5)])}
    assert texts == {f"Push {n} with [REDACTED:github-classic]" for n in range(5)}
    clan.correct("tank", "Read the log first")
    clan.sync("tank", "velma")
    said = [each.partition(" came with a secret") for each in clan["velma"].warnings]
    named = [id_ for before, found, _ in said if found for id_ in before.split(", ")]
    assert sorted(named) == [f"p-{n:016x}" for n in range(5)], "each was said once"


def test_many_that_come_at_once_are_told_in_one_line(tmp_path):
    clan = Clan(tmp_path)
    clan.correct("velma", OTHER)
    clan.sync("velma")
    push_raw(clan, 7)
    clan.sync("velma")
    [said] = [each for each in clan["velma"].warnings if "came with a secret" in each]
    assert f"p-{4:016x} and 2 more came with a secret as it stands (github-classic)" in said
