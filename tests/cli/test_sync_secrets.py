"""A certain secret that somebody's line carries raw: whoever sees it first drops it for everybody, and says so.

No literal here looks like a real secret: each is put together at run time.
"""

import json

import pytest

from tests.cli.conftest import Stage

TOKEN = "gh" + "p_" + "a1B2c3D4e5F6g7H8i9J0" * 2
PASSWORD = "q8W7" + "e6R5t4Y3u2"
ID = "p-00000000000000aa"
STRANGER = "mallory.0badcafe"


def push(stage, column=None, *, lesson=ID, row=None, **fields):
    """Push a line with first wordings, or a column, as somebody does whose fleet screens nothing."""
    stage.git("clone", "--quiet", "--branch", "fleet", str(stage.remote), "raw")
    at = "2026-01-02T00:00:00.000Z-0000"
    row = row or {"id": lesson, "w": {STRANGER: {"add": at, "n": {"seen": 1}, **(column or {"first": fields})}}}
    shard = stage.folder / f"raw/patterns.d/{STRANGER}.jsonl"
    shard.parent.mkdir(exist_ok=True)
    shard.write_text(json.dumps(row, separators=(",", ":"), sort_keys=True) + "\n")
    stage.git("add", "-A", where="raw")
    stage.git("-c", "user.name=m", "-c", "user.email=m@localhost", "commit", "--quiet", "-m", "raw", where="raw")
    stage.git("push", "--quiet", "origin", "fleet", where="raw")


def tip(stage):
    names = stage.git("ls-tree", "-r", "--name-only", "fleet", where="clan.git").split()
    return "".join(stage.git("show", f"fleet:{name}", where="clan.git") for name in names)


@pytest.fixture(scope="module")
def made(tmp_path_factory):
    stage = Stage(tmp_path_factory.mktemp("clan"))
    for agent in ("velma", "tank"):
        stage.join(agent)
        stage.correct(agent, f"harmless, by {agent}")
        stage.run(agent, "sync")
    stage.keep()
    return stage


@pytest.fixture
def clan(made):
    made.again()
    return made


def test_whoever_sees_it_first_drops_it_for_everybody_and_says_so(clan):
    push(clan, text=f"Push with {TOKEN} to the mirror")
    assert TOKEN in tip(clan)
    said = clan.run("velma", "sync")
    assert ID in said.stderr
    assert "github-classic" in said.stderr
    assert "rotate" in said.stderr
    assert TOKEN not in tip(clan), "the branch's newest tree no longer holds it"
    assert TOKEN not in said.stdout + said.stderr
    quiet = clan.run("tank", "sync")
    assert ID not in quiet.stderr, "who comes later has nothing to drop"
    for agent in ("velma", "tank"):
        assert clan.run(agent, "sync").stdout.count(" 0 lines out") == 1, "and there it ends"
        known = {p["id"]: p for p in clan.patterns(agent)["patterns"]}
        assert known[ID]["text"] == "Push with [REDACTED:github-classic] to the mirror"
        assert known[ID]["seen"] == 1


@pytest.mark.parametrize(
    ("before", "secret", "after", "kind"),
    [
        ("curl 'https://example.org/items?api_key=", "q8W7e6" + "R5t4Y3u2I1", "&page=2'", "env-secret"),
        ("mail by smtp://bot@example.org:", "q8W7e6" + "R5t4", "@smtp.example.org works", "url-credentials"),
        ("open /login?next=x%26token%3D", TOKEN, "%26x", "github-classic"),
        ("the key is ", "LS0tLS1C" + "RUdJTiBPUEVOU1NIIFBSSVZBVEUg" + "a1B2" * 20, " in CI", "private-key"),
    ],
)
def test_one_within_an_address_or_in_base64_leaves_no_machine(clan, before, secret, after, kind):
    said = clan.run("velma", "correct", "--wrong", "x", "--right", "y", "--pattern", f"{before}{secret}{after}")
    assert f"{before}[REDACTED:{kind}]{after}" in said.stdout
    clan.run("velma", "sync")
    assert f"{before}[REDACTED:{kind}]" in tip(clan)
    assert secret not in tip(clan)


@pytest.mark.parametrize(
    ("before", "secret", "after"),
    [
        ("password: ", "Geheim" + "123!", ""),
        ("password=", "Summer" + "2026!", " opens it"),
        ("DB password: ", "Winter" + "2025?", ""),
        ("password: '", "Super" + "Admin1!", "'"),
        ("run sshpass -p ", "Kq83" + "Super", " ssh root@h"),
        ("run curl -u admin:", "Hunter2" + "SuperPass", " https://h"),
    ],
)
def test_a_password_with_its_sign_at_the_end_or_a_word_in_it_leaves_no_machine(clan, before, secret, after):
    said = clan.run("velma", "correct", "--wrong", "x", "--right", "y", "--pattern", f"{before}{secret}{after}")
    assert f"{before}[REDACTED:env-secret]{after}" in said.stdout
    clan.run("velma", "sync")
    assert f"{before}[REDACTED:env-secret]" in tip(clan)
    assert secret not in tip(clan)


def test_whoever_dropped_it_is_named_as_who_redacted_it_and_not_as_who_edited_it(clan):
    push(clan, text=f"Push with {TOKEN} to the mirror", correct=f"use {TOKEN[::-1]} or {TOKEN}")
    clan.run("velma", "sync")
    clan.run("tank", "sync")
    for agent in ("velma", "tank"):
        for words in (("patterns",), ("start",)):
            row = next(row for row in clan.run(agent, *words).stdout.splitlines() if "to the mirror" in row)
            assert "text and right: redacted by velma" in row, words
        assert "text was redacted" in clan.run(agent, "show", ID).stdout
    clan.run("velma", "edit", ID, "--set", "right=ask the owner")
    row = next(row for row in clan.run("velma", "patterns").stdout.splitlines() if "to the mirror" in row)
    assert "text: redacted by velma; right: edited by velma" in row


def test_only_the_words_with_the_secret_go_and_no_stranger_speaks_in_others_names(clan):
    wanted = clan.correct("tank", "harmless, by velma")  # unsent
    push(clan, lesson=wanted, text=f"run tools/fix.sh as root, with {TOKEN}", correct=f"tools/fix.sh {TOKEN}")
    assert wanted in clan.run("velma", "sync").stderr
    assert TOKEN not in tip(clan)
    for agent in ("velma", "tank"):
        for session in "abc":
            clan.correct(agent, "harmless, by velma", FLEET_SESSION=session)
        clan.run(agent, "sync")
        known = {p["id"]: p for p in clan.patterns(agent)["patterns"]}
        assert known[wanted]["text"] == "harmless, by velma"
        assert "harmless, by velma" in (clan.folder / agent / f"agents/{agent}/memory.md").read_text()
        for words in (("start",), ("show", wanted), ("patterns",)):
            assert "fix.sh" not in clan.run(agent, *words).stdout, words


def test_a_secret_forged_into_an_authors_edit_takes_no_first_words_of_theirs(clan):
    clan.run("velma", "sync")
    wanted = next(p for p in clan.patterns("velma")["patterns"] if p["text"] == "harmless, by tank")
    stamp = "2026-02-02T00:00:00.000Z-0000"
    theirs = json.loads(clan.run("tank", "status", "--json").stdout)["replica"]
    forged = {"id": wanted["id"], "w": {theirs: {"set": {"text": [stamp, f"run {TOKEN}"]}}}}
    push(clan, lesson=wanted["id"], row=forged)
    clan.run("velma", "sync")
    clan.run("tank", "sync", expect=None)
    assert TOKEN not in tip(clan)
    for agent in ("velma", "tank"):
        assert wanted["id"] in {p["id"] for p in clan.patterns(agent)["patterns"] if p["text"] == wanted["text"]}, agent


def test_a_redaction_of_words_that_are_a_strangers_alone_enters_no_memory(clan):
    push(clan, text=f"run tools/fix.sh as root, with {TOKEN}")
    clan.run("velma", "sync")
    for session in "abc":
        clan.run("velma", "correct", "--wrong", "w", "--right", "r", "--same", ID, FLEET_SESSION=session)
    memory = clan.folder / "velma/agents/velma/memory.md"
    assert not memory.exists() or "fix.sh" not in memory.read_text()
    assert "were changed" in clan.run("velma", "status").stdout + clan.run("velma", "inbox").stdout


def test_it_comes_back_with_an_old_clone_and_is_dropped_by_the_same_mark(clan):
    push(clan, text=f"Push with {TOKEN} to the mirror")
    clan.run("velma", "sync")
    shard = clan.folder / f"raw/patterns.d/{STRANGER}.jsonl"
    old = shard.read_bytes()
    clan.git("pull", "--quiet", "origin", "fleet", where="raw")
    shard.parent.mkdir(exist_ok=True)
    shard.write_bytes(old)
    clan.git("add", "-A", where="raw")
    clan.git("-c", "user.name=m", "-c", "user.email=m@localhost", "commit", "--quiet", "-m", "again", where="raw")
    clan.git("push", "--quiet", "origin", "fleet", where="raw")
    assert TOKEN in tip(clan)
    clan.run("tank", "sync")
    assert TOKEN not in tip(clan)


def test_a_doubtful_one_is_masked_wherever_it_is_shown_and_stays_what_it_is(clan):
    push(clan, text=f"Log in with password = '{PASSWORD}'")
    assert ID not in clan.run("velma", "sync").stderr
    assert PASSWORD in tip(clan), "a mark cannot be taken back, and this may be no secret"
    for words in (("patterns",), ("patterns", "--json"), ("search", "log in"), ("show", ID), ("start",), ("sync",)):
        done = clan.run("velma", *words, expect=None)
        assert PASSWORD not in done.stdout + done.stderr, words
    assert PASSWORD not in (clan.folder / "velma/clan-learnings/patterns.md").read_text()


@pytest.mark.parametrize(
    "column",
    [
        pytest.param({"first": {"text": "Push to the mirror"}, "newer": {"with": TOKEN}}, id="in-a-newer-part"),
        pytest.param({"first": {"text": "Push to the mirror", f"with {TOKEN}": TOKEN}}, id="in-a-name"),
    ],
)
def test_one_that_no_mark_can_drop_is_masked_and_keeps_nobody_busy(clan, column):
    push(clan, column)
    for agent in ("velma", "tank", "velma", "tank"):
        said = clan.run(agent, "sync")
        assert "dropped for everybody" not in said.stderr
    assert said.stdout.count(" 0 lines out") == 1
    for words in (("show", ID), ("show", ID, "--json"), ("export",), ("start",)):
        assert TOKEN not in clan.run("velma", *words).stdout, words


def test_one_in_a_discovery_is_masked(clan):
    key = f"-----BEGIN RSA PRIVATE KEY-----\n{'Zq9xK2mL' * 24}\n-----END RSA PRIVATE KEY-----"
    clan.git("clone", "--quiet", "--branch", "fleet", str(clan.remote), "raw")
    shard = clan.folder / f"raw/discoveries.d/{STRANGER}.jsonl"
    shard.parent.mkdir(exist_ok=True)
    fields = ({"problem": f"log in with {TOKEN}"}, {"problem": "the key", "solution": key}, {"problem": "harmless"})
    rows = [{"id": f"d-{n:016x}", "at": "2026-01-02T00:00:00.000Z-0000", "by": STRANGER} for n in range(len(fields))]
    ids = [row["id"] for row in rows]
    shard.write_text("".join(json.dumps(row | each) + "\n" for row, each in zip(rows, fields, strict=True)))
    clan.git("add", "-A", where="raw")
    clan.git("-c", "user.name=m", "-c", "user.email=m@localhost", "commit", "--quiet", "-m", "raw", where="raw")
    clan.git("push", "--quiet", "origin", "fleet", where="raw")
    done, shown = clan.run("velma", "sync"), clan.run("velma", "gossip").stdout
    assert all(each in shown for each in ids)
    assert not any(secret in done.stdout + done.stderr + shown for secret in (TOKEN, "Zq9xK2mL"))


@pytest.mark.parametrize("right", ["export DEPLOY_TOKEN=tulip", "API_TOKEN=s3", "DB_PASS=rosebud1"])
def test_a_dry_run_prints_each_line_as_it_goes_out(clan, right):
    """As one text, a value would begin behind a name in one field and end in the next one."""
    clan.run(
        "velma", "correct", "--wrong", "w", "--right", right, "--pattern", "Never commit a lock file of another tool"
    )
    [line] = clan.run("velma", "sync", "--dry-run").stdout.splitlines()
    [[same]] = json.loads(clan.run("velma", "sync", "--dry-run", "--json").stdout)["lines"].values()
    clan.run("velma", "sync")
    assert same == line
    assert line in tip(clan).splitlines()
