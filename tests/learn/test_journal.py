"""The journal and the mutations in it: one journal a branch, in the format that others read; nothing lost or leaked."""

import json
import os
import re
import shlex
import subprocess
from pathlib import Path

import pytest

from fleet.app import learning
from fleet.learn import journal
from fleet.learn.attempts import AttemptLog
from fleet.learn.corrections_md import Correction
from fleet.learn.journal import Journal
from fleet.model.errors import NoError, RefusedError, UsageError
from fleet.store import config
from fleet.store.workspace import Workspace, World

NOON_MS = 1_773_757_800_000  # 2026-03-17 14:30Z
AGENT = "tank"
SECRET = "ghp_" + "a1B2" * 9


def opened(root: Path) -> Workspace:
    numbers = iter(range(1, 1_000))
    world = World(wall_ms=lambda: NOON_MS, entropy=lambda size: next(numbers).to_bytes(size, "big"), durable=False)
    return Workspace(root, world)


@pytest.fixture
def workspace(tmp_path):
    (tmp_path / "fleet.toml").write_text(config.render("", "fleet"))
    found = opened(tmp_path)
    yield found
    found.close()


def on_branch(root: Path, head: str) -> None:
    for name in ("objects", "refs"):
        (root / ".git" / name).mkdir(parents=True, exist_ok=True)
    (root / ".git" / "HEAD").write_text(head)


def text_of(path: Path) -> str:
    return path.read_text(encoding="utf-8")


def fail(workspace, times=1, command="pytest -q", session="s-1"):
    for _ in range(times):
        AttemptLog(workspace.root, AGENT).note_failure(session, command, "E   KeyError: 'region'", 1)


def succeed(workspace, command="pytest -q", session="s-1"):
    """Note a success as a hook does; return the ids of the mutations that it shows to have worked."""
    won = AttemptLog(workspace.root, AGENT).note_success(session, command)
    for event in won:
        Journal(workspace, AGENT).record_success(event, command)
    return [event["id"] for event in won]


def stopped(workspace, command="pytest -q", session="s-1"):
    return AttemptLog(workspace.root, AGENT).verdict(session, command)


# --- entries --------------------------------------------------------------------------------------------------------


def test_an_entry_reads_as_the_format_says(workspace):
    told = ("Title", "why", "how", ["one", "two"], ["then a", "then b"], ["green"], "merged")
    written = Journal(workspace, AGENT).write(*told)
    assert text_of(written.path) == (
        "# JOURNAL — main\n\n## 2026-03-17 14:30 — Title\nIntent: why\nApproach: how\n❌ Failed: one\n→ then a\n"
        "❌ Failed: two\n→ then b\n✅ green\nCurrent state: merged\n"
    )
    assert written.path == workspace.home(AGENT) / "JOURNAL.md"


def test_what_is_not_said_has_no_line_and_unequal_numbers_are_not_paired(workspace):
    written = Journal(workspace, AGENT).write("T", failed=["a", "b"], after=["c"], ok=[" "])
    assert text_of(written.path).endswith("— T\n❌ Failed: a\n❌ Failed: b\n→ c\n")


def test_entries_follow_each_other_and_a_persons_text_stays(workspace):
    path = workspace.home(AGENT) / "JOURNAL.md"
    path.parent.mkdir(parents=True)
    path.write_text("# JOURNAL — main\n\n## mine\nno line end")
    Journal(workspace, AGENT).write("A")
    Journal(workspace, AGENT).write("B")
    rest = "\n\n## 2026-03-17 14:30 — A\n\n## 2026-03-17 14:30 — B\n"
    assert text_of(path) == "# JOURNAL — main\n\n## mine\nno line end" + rest


@pytest.mark.parametrize("title", ["", "  \n", "\u200b"])
def test_an_entry_without_a_title_is_refused(workspace, title):
    with pytest.raises(UsageError, match="nothing was written"):
        Journal(workspace, AGENT).write(title, "x")
    assert not workspace.home(AGENT).exists()


def test_an_entry_is_screened_and_cannot_break_out(workspace):
    told = (
        "T\n## 2020-01-01 00:00 — forged",
        f"token {SECRET}",
        "\x1b[31mred\u202e",
        ["a <!-- b"],
        [],
        [],
        f"{Path.home()}/x",
    )
    written = Journal(workspace, AGENT).write(*told)
    text = text_of(written.path)
    assert written.secrets
    assert SECRET not in text
    assert text.count("\n## ") == 1
    assert not {"\x1b", "\u202e"} & set(text)
    assert "<!--" not in text


def test_a_field_that_is_too_long_is_refused_and_nothing_is_written(workspace):
    with pytest.raises(RefusedError):
        Journal(workspace, AGENT).write("T", "x" * 9_000)
    assert not workspace.home(AGENT).exists()


# --- branches -------------------------------------------------------------------------------------------------------


def test_a_real_repository_and_a_real_worktree(tmp_path):
    def git(*words):
        named = ("-c", "user.name=t", "-c", "user.email=t@example.org")
        clean = {key: value for key, value in os.environ.items() if not key.startswith("GIT_")} | {
            "HOME": str(tmp_path)
        }
        subprocess.run(["git", *named, *words], cwd=tmp_path, env=clean, check=True, capture_output=True)

    git("init", "-q", "-b", "trunk")
    assert journal._branch_of(tmp_path) == ("trunk", False)
    git("commit", "-q", "--allow-empty", "-m", "one")
    git("worktree", "add", "-q", "-b", "side/way", "tree")
    assert journal._branch_of(tmp_path / "tree") == ("side/way", False)
    git("checkout", "-q", "--detach")
    assert journal._branch_of(tmp_path) == ("trunk", True)
    git("worktree", "add", "-q", "--detach", "detached")
    assert len(journal._branch_of(tmp_path / "detached")[0]) == 7, "no branch was ever checked out there"


def test_each_branch_has_its_journal_and_the_first_one_the_usual_name(workspace):
    on_branch(workspace.root, "ref: refs/heads/feature/x\n")
    first = Journal(workspace, AGENT).write("A")
    on_branch(workspace.root, "ref: refs/heads/main\n")
    second = Journal(workspace, AGENT).write("B")
    on_branch(workspace.root, "ref: refs/heads/feature/x\n")
    third = Journal(workspace, AGENT).write("C")
    assert first.path == third.path == workspace.home(AGENT) / "JOURNAL.md"
    assert second.path == workspace.home(AGENT) / "journals" / "main.md"
    assert text_of(first.path).startswith("# JOURNAL — feature/x\n")
    assert text_of(second.path).startswith("# JOURNAL — main\n")
    assert [path.name for path in Journal(workspace, AGENT).all()] == ["JOURNAL.md", "main.md"]


def test_a_journal_without_a_heading_belongs_to_every_branch(workspace):
    path = workspace.home(AGENT) / "JOURNAL.md"
    path.parent.mkdir(parents=True)
    path.write_text("notes\n")
    on_branch(workspace.root, "ref: refs/heads/x\n")
    assert Journal(workspace, AGENT).of_branch() == (path, "x")


def test_no_two_branches_share_a_file_and_none_leaves_its_folder():
    names = ["a/b", "a-b", "A-b", "a_b", "../../etc", "..", ".", "", "x" * 300, "x" * 301, "größe", "grosse", "CON"]
    slugs = [journal._slug(name) for name in names]
    assert len(set(slugs)) == len(names)
    assert all("/" not in slug and slug.strip(".") and len(slug) < 80 for slug in slugs)
    assert journal._slug("main") == "main"


def test_links_are_no_journals(workspace, tmp_path_factory):
    outside = tmp_path_factory.mktemp("outside")
    (outside / "a.md").write_text("# x\n")
    workspace.home(AGENT).mkdir(parents=True)
    (workspace.home(AGENT) / "journals").symlink_to(outside)
    (workspace.home(AGENT) / "JOURNAL.md").symlink_to(outside / "a.md")
    assert Journal(workspace, AGENT).all() == []


def test_a_handover_shows_the_last_fifty_lines_fit_to_leave(workspace):
    path = workspace.home(AGENT) / "JOURNAL.md"
    path.parent.mkdir(parents=True)
    rows = [f"line {number}" for number in range(200)]
    path.write_text("\n".join([*rows, f"token {SECRET} \x1b[31m"]) + "\n\n")
    lines = Journal(workspace, AGENT).last_lines()
    assert len(lines) == 50
    assert lines[0] == "line 151"
    assert SECRET not in lines[-1]
    assert "\x1b" not in lines[-1]


# --- mutations ------------------------------------------------------------------------------------------------------

SEED_BLOCK = """\
## MUTATION: M5 (Reduce Scope)
Failed 3x on: getting the full pipeline working end-to-end
Switching to: build just the ingestion step in isolation
Rationale: problem is too large to debug whole — find the
           minimal failing case, then expand
"""
SEED = (
    "getting the full pipeline working end-to-end",
    "build just the ingestion step in isolation",
    "problem is too large to debug whole — find the minimal failing case, then expand",
)


def declare(workspace, code="M5", session="", texts=SEED):
    return Journal(workspace, AGENT).declare(session, code, *texts)


def test_a_declaration_is_the_block_of_the_format(workspace):
    fail(workspace, 3)
    declared = declare(workspace)
    assert text_of(declared.path) == "# JOURNAL — main\n\n" + SEED_BLOCK
    assert declared.block + "\n" == SEED_BLOCK


def test_a_declaration_tells_no_count_that_nobody_counted(workspace):
    assert "\nFailed on: getting" in declare(workspace).block


def test_a_declaration_has_the_count_of_what_it_names_or_of_a_closed_door(workspace):
    texts = ("the weather api times out", *SEED[1:])
    fail(workspace, 2, "make foo")
    assert "\nFailed on: the weather" in declare(workspace, texts=texts).block, "nothing of this was counted"
    assert "\nFailed 2x on: make foo, " in declare(workspace, texts=("make foo, twice", *SEED[1:])).block
    fail(workspace, 5)
    assert "\nFailed 2x on: make foo, " in declare(workspace, texts=("make foo, twice", *SEED[1:])).block
    assert "\nFailed 5x on: the weather" in declare(workspace, texts=texts).block, "it is the way out of that door"


def test_a_declaration_opens_the_door_once(workspace):
    fail(workspace, 3)
    assert stopped(workspace)
    assert declare(workspace).opened == ("pytest -q",)
    assert stopped(workspace) is None
    fail(workspace)
    assert stopped(workspace)
    assert "Failed 4x on: " in declare(workspace).block
    assert stopped(workspace) is None


def by_hand(workspace, block=SEED_BLOCK, name="JOURNAL.md"):
    path = workspace.home(AGENT) / name
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text((path.read_text() if path.exists() else "# JOURNAL — main\n") + "\n" + block)


@pytest.mark.parametrize("name", ["JOURNAL.md", "journals/topic.md"])
def test_a_declaration_by_hand_opens_the_door_once_like_the_command(workspace, name):
    by_hand(workspace, name=name)  # an old one opens nothing
    fail(workspace, 3)
    assert stopped(workspace)
    by_hand(workspace, SEED_BLOCK.replace("ingestion", "export"), name)
    assert stopped(workspace) is None
    fail(workspace)
    assert stopped(workspace)


@pytest.mark.parametrize("words", range(965, 1_000, 8))
def test_of_a_secret_at_the_limit_of_a_declaration_by_hand_no_half_is_kept(workspace, words):
    fail(workspace, 3)
    by_hand(workspace, SEED_BLOCK.replace("Rationale: ", f"Rationale: {'a ' * (words // 2)}ghp_{'a1B2' * 9} "))
    assert stopped(workspace) is None
    (won,) = AttemptLog(workspace.root, AGENT).note_success("s-1", "pytest -q")
    assert won["why"].startswith("a a a ")
    assert "a1B2" not in json.dumps(won)


@pytest.mark.parametrize("mark", ["**{}:**", "- {}:", "- **{}**:", "* _{}:_"])
def test_a_declaration_by_hand_may_emphasise_or_list_its_labels(workspace, mark):
    fail(workspace, 3)
    labels = ("Failed 3x on", "Switching to", "Rationale")
    by_hand(workspace, "## MUTATION: M5\n" + "".join(f"{mark.format(each)} words of {each}\n" for each in labels))
    assert stopped(workspace) is None
    (won,) = AttemptLog(workspace.root, AGENT).note_success("s-1", "pytest -q")
    Journal(workspace, AGENT).record_success(won, "pytest -q")
    (proposal,) = Journal(workspace, AGENT).proposals()
    assert (proposal.failed, proposal.switch, proposal.why) == tuple(f"words of {each}" for each in labels)


def test_the_block_that_the_message_asks_for_opens_the_door(workspace):
    fail(workspace, 3)
    head, *labels = re.findall(r"`(## MUTATION: M5|[A-Z][a-z ]+:)`", journal.message(stopped(workspace)))
    assert len(labels) == 3
    by_hand(workspace, "\n".join([head, *(f"{label} something else" for label in labels)]))
    assert stopped(workspace) is None


def test_what_was_declared_by_hand_and_worked_is_proposed(workspace):
    fail(workspace, 3)
    by_hand(workspace)
    assert stopped(workspace) is None
    (won,) = AttemptLog(workspace.root, AGENT).note_success("s-1", "pytest -q")
    Journal(workspace, AGENT).record_success(won, "pytest -q")
    (proposal,) = Journal(workspace, AGENT).proposals()
    assert (proposal.code, proposal.failed, proposal.switch, proposal.why) == ("M5", *SEED)


@pytest.mark.parametrize(
    "block",
    [
        SEED_BLOCK.partition("Rationale")[0],
        SEED_BLOCK.replace("MUTATION: M5", "MUTATION: M9"),
        SEED_BLOCK.replace("## MUTATION", "## Thoughts on MUTATION"),
        f"```\n{SEED_BLOCK}```\n",
        SEED_BLOCK.replace("Switching to: build just the ingestion step in isolation", "Switching to:"),
        "## MUTATION:\n",
        "## MUTATION: M5" * 9_000,
    ],
)
def test_what_is_no_whole_declaration_opens_nothing(workspace, block):
    fail(workspace, 3)
    by_hand(workspace, block)
    assert stopped(workspace)


def test_a_journal_that_cannot_be_read_opens_nothing_and_fails_nothing(workspace, tmp_path_factory):
    fail(workspace, 3)
    elsewhere = tmp_path_factory.mktemp("elsewhere") / "JOURNAL.md"
    elsewhere.write_text(SEED_BLOCK)
    workspace.home(AGENT).mkdir(parents=True, exist_ok=True)
    (workspace.home(AGENT) / "JOURNAL.md").symlink_to(elsewhere)
    assert stopped(workspace)


def test_no_secret_of_a_declaration_by_hand_gets_into_the_log(workspace):
    fail(workspace, 3)
    by_hand(workspace, SEED_BLOCK.replace("pipeline", "ghp_" + "a1B2" * 9))
    assert stopped(workspace) is None
    assert "a1B2" not in (workspace.root / ".fleet" / "attempts" / f"{AGENT}.json").read_text()


def test_a_declaration_in_one_session_leaves_others_closed(workspace):
    fail(workspace, 3)
    declare(workspace, session="s-2")
    assert stopped(workspace)
    declare(workspace, session="s-1")
    assert stopped(workspace) is None


@pytest.mark.parametrize("texts", [("", "b", "c"), ("a", " ", "c"), ("a", "b", "\u200b")])
def test_a_declaration_needs_all_three(workspace, texts):
    fail(workspace, 3)
    with pytest.raises(UsageError, match="nothing was written"):
        declare(workspace, texts=texts)
    assert stopped(workspace)
    assert not workspace.home(AGENT).exists()


@pytest.mark.parametrize("said", ["m5", " M5 ", "reduce scope"])
def test_a_mutation_is_found_by_code_or_name(workspace, said):
    assert Journal(workspace, AGENT).strategy(said).code == "M5"


@pytest.mark.parametrize("said", ["M9", "M0", "", "scope"])
def test_an_unknown_mutation_is_refused(workspace, said):
    with pytest.raises(UsageError, match="M1 to M8"):
        declare(workspace, said)


def test_names_are_the_fleets_own_and_both_are_stored(tmp_path):
    (tmp_path / "fleet.toml").write_text('[attempts]\nnames = { M4 = "Change the tool" }\n')
    found = opened(tmp_path)
    declared = declare(found, "change the tool")
    assert "## MUTATION: M4 (Change the tool)\n" in text_of(declared.path)
    event = AttemptLog(found.root, AGENT).state().declared[declared.id]
    assert (event["code"], event["name"]) == ("M4", "Change the tool")


def test_there_are_eight_each_with_all_it_takes():
    assert [each.code for each in journal.STRATEGIES] == [f"M{number}" for number in range(1, 9)]
    assert [each.name for each in journal.STRATEGIES] == [
        "Fallback Dependency",
        "Extreme Debug Logging",
        "Hardcode & Isolate",
        "Switch Libraries",
        "Reduce Scope",
        "Invert the Approach",
        "Ask the Oracle",
        "Read the Error",
    ]
    assert all(each.when and each.example for each in journal.STRATEGIES)


def test_a_success_after_a_mutation_is_recorded_and_proposed(workspace):
    fail(workspace, 3)
    declared = declare(workspace)
    assert Journal(workspace, AGENT).proposals() == []
    assert succeed(workspace, "ls") == []
    assert succeed(workspace, "pytest tests/one.py") == [declared.id]
    assert "✅ M5 (Reduce Scope) worked on: getting the full" in text_of(declared.path)
    [proposal] = Journal(workspace, AGENT).proposals()
    assert (proposal.id, proposal.code, proposal.switch) == (declared.id, "M5", SEED[1])
    assert succeed(workspace, "pytest tests/one.py") == []
    assert text_of(declared.path).count("✅") == 1


def test_a_success_after_another_error_in_between_still_counts(workspace):
    fail(workspace, 3)
    declared = declare(workspace)
    AttemptLog(workspace.root, AGENT).note_failure("s-1", "pytest -q", "E   another: error", 1)
    assert succeed(workspace, "pytest -q") == [declared.id]


def test_only_the_last_strategy_worked_by_word_or_by_a_success(workspace):
    fail(workspace, 3)
    declare(workspace, session="")
    fail(workspace)
    by_hand(workspace, "## MUTATION: M2\nFailed on: pytest\nSwitching to: printing\nRationale: it is silent\n")
    assert stopped(workspace) is None
    event = Journal(workspace, AGENT).worked("", "")
    assert (event["code"], event["name"]) == ("M2", "Extreme Debug Logging")
    assert "✅ M2 (Extreme Debug Logging) worked" in text_of(workspace.home(AGENT) / "JOURNAL.md")
    with pytest.raises(NoError):
        Journal(workspace, AGENT).worked("", "")
    assert [each.name for each in Journal(workspace, AGENT).proposals()] == ["Extreme Debug Logging"]


def test_a_success_shows_the_last_strategy_alone_to_have_worked(workspace):
    fail(workspace, 3)
    declare(workspace)
    fail(workspace)
    last = declare(workspace)
    assert succeed(workspace) == [last.id]


def test_a_strategy_for_other_failures_stays_declared(workspace):
    fail(workspace, 3)
    declared = declare(workspace)
    succeed(workspace, "npm test")
    fail(workspace, 3, "npm run build", "s-2")
    declare(workspace, session="s-2")
    assert succeed(workspace) == [declared.id]


def test_a_success_without_a_mutation_proposes_nothing(workspace):
    fail(workspace, 3)
    assert succeed(workspace, "pytest -q") == []
    assert Journal(workspace, AGENT).proposals() == []
    assert not workspace.home(AGENT).exists()


def test_the_proposals_command_logs_it_and_then_it_is_proposed_no_more(workspace):
    fail(workspace, 3)
    declare(workspace, texts=('it\'s "odd"; `x` $(y)', "a & b", "c"))
    succeed(workspace, "pytest -q")
    [proposal] = Journal(workspace, AGENT).proposals()
    words = shlex.split(proposal.command)
    assert words[:2] == ["fleet", "correct"]
    told = dict(zip(words[2::2], words[3::2], strict=True))
    assert told["--wrong"] == 'it\'s "odd"; `x` $(y)'
    learning.correct(
        workspace,
        AGENT,
        Correction(told["--wrong"], told["--right"], told["--pattern"], source=told["--source"]),
    )
    assert Journal(workspace, AGENT).proposals() == []


def test_an_agent_can_say_that_it_worked(workspace):
    with pytest.raises(NoError):
        Journal(workspace, AGENT).worked("", "")
    declared = declare(workspace)
    assert Journal(workspace, AGENT).worked("", f"seen {SECRET}")["id"] == declared.id
    assert SECRET not in text_of(declared.path)
    with pytest.raises(NoError):
        Journal(workspace, AGENT).worked("", "")


def test_no_secret_gets_into_the_journal_the_log_or_a_proposal(workspace):
    declared = declare(workspace, texts=(f"a {SECRET}", f"b {SECRET}", f"c {SECRET}"))
    Journal(workspace, AGENT).worked("", "")
    log = workspace.local / "attempts" / f"{AGENT}.json"
    assert SECRET not in text_of(declared.path) + log.read_text() + str(Journal(workspace, AGENT).proposals())
    assert declared.secrets


def test_what_is_open(workspace):
    fail(workspace, 3)
    fail(workspace, 1, "cargo test", "s-2")
    found = Journal(workspace, AGENT).open_attempts()
    assert [(each["family"], each["failures"], each["closed"]) for each in found] == [
        ("cargo test", 1, False),
        ("pytest", 3, True),
    ]
    assert [each["family"] for each in Journal(workspace, AGENT).open_attempts("s-1")] == ["pytest"]
    declare(workspace)
    assert not any(each["closed"] for each in Journal(workspace, AGENT).open_attempts())
