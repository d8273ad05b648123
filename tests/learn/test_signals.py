"""A signal is in the log before anybody answers: once, screened, capped, cheap, and it counts for nothing yet."""

import os
import re
import subprocess
import sys
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from fleet.learn import corrections, corrections_md, counting
from fleet.learn.corrections_md import Correction, Log
from fleet.learn.counting import CountedLog
from fleet.learn.signals import Flag, Signals
from fleet.model import limits
from fleet.model.errors import DiskError, NoError, UsageError
from fleet.store.files import Files
from fleet.store.workspace import Workspace, World

ROOT = Path(__file__).resolve().parents[2]
NOON = 1_795_262_400_000  # 2026-11-21 12:00:00 UTC
TOKEN = "ghp_" + "a1B2" * 9
SAID = Flag("human", "no, use pnpm here")


class Wall:
    """A clock that a test holds."""

    def __init__(self, ms=NOON):
        self.ms = ms

    def __call__(self):
        return self.ms


@pytest.fixture
def wall():
    return Wall()


@pytest.fixture
def ground(tmp_path, wall):
    (tmp_path / "fleet.toml").write_text("")
    return Workspace(tmp_path, World(wall_ms=wall, durable=False))


def log_of(ground, agent="velma"):
    return Signals(ground.files, agent, ground.wall)


def page(ground):
    return ground.files.read(ground.home("velma") / "corrections.md").decode("utf-8", "replace")


def entries(ground):
    return Log.parse(page(ground)).entries


# The entry


def test_a_persons_signal_is_an_auto_detected_entry(ground):
    done = log_of(ground).flag(Flag("human", "no, use pnpm here\nnot npm", confidence="medium"), session="s-1")
    assert done.is_new
    assert page(ground) == (
        "# Corrections — velma\n"
        "\n"
        "## 2026-11-21 12:00Z — no, use pnpm here\n"
        "**User flagged:** no, use pnpm here\n"
        "    not npm\n"
        "**Signal:** correction (confidence=medium)\n"
        "**Source:** auto-detected (a person)\n"
        "**Pattern:** _to be inferred at promotion time_\n"
        f"<!-- fleet flagged {done.id} at=2026-11-21T12:00:00.000Z kind=human session=s-1 "
        "key=7e01a2a6548d -->\n"
    )
    (entry,) = entries(ground)
    assert (entry.auto, entry.pattern, entry.record) == (True, "", None)
    assert entry.wrong == "no, use pnpm here\nnot npm"


def test_a_secret_by_its_name_in_the_command_is_in_no_part_of_the_entry(ground):
    value = "Xk29sLq0" + "PzR77aWm"
    words = f"no, {value} opens the production database"
    log_of(ground).flag(Flag("human", f"{words}\n(Refused Bash: DB_PASSWORD={value} mysql)", title=words))
    assert value not in page(ground)
    assert entries(ground)[0].title == "no, [REDACTED:env-secret] opens the production database"


@pytest.mark.parametrize(
    ("told", "source", "heard"),
    [
        (Flag("human", "no"), "auto-detected (a person)", "correction"),
        (Flag("agent", "no", agent="splinter"), "auto-detected (splinter)", "correction"),
        (Flag("agent", "no", agent="../../x"), "auto-detected (another agent)", "correction"),
        (Flag.of_failure("make", 2, "no"), "auto-detected (a failed command)", "failure"),
    ],
)  # fmt: skip
def test_each_kind_says_where_it_comes_from(ground, told, source, heard):
    log_of(ground).flag(told)
    (entry,) = entries(ground)
    assert (entry.source, entry.signal, entry.auto) == (source, f"{heard} (confidence=strong)", True)
    assert "no" in entry.wrong


def test_a_failure_keeps_command_exit_code_and_last_lines(ground):
    said = "\n".join(f"line {number}" for number in range(100))
    log_of(ground).flag(Flag.of_failure("pytest -q tests", 1, said))
    (entry,) = entries(ground)
    assert entry.title == "pytest -q tests: exit code 1"
    first, *rest = entry.wrong.split("\n")
    assert first == "exit code 1: pytest -q tests"
    assert rest == [f"line {number}" for number in range(100 - limits.SIGNAL_LINES_MAX, 100)]


@pytest.mark.parametrize("before", ["word " * 4_000, "{" * 20_000])
def test_of_an_output_of_one_long_line_the_end_is_kept(ground, before):
    log_of(ground).flag(Flag.of_failure("make", 2, before + '"error":"ECONNREFUSED"}'))
    (entry,) = entries(ground)
    assert entry.wrong.endswith('"error":"ECONNREFUSED"}')


def test_a_failure_without_an_exit_code_or_output_is_one_too(ground):
    log_of(ground).flag(Flag.of_failure("make", None, ""))
    (entry,) = entries(ground)
    assert (entry.title, entry.wrong) == ("make: failed", "failed: make")


def test_a_signal_counts_for_nothing(ground, wall):
    log_of(ground).flag(SAID, session="s")
    with ground.writing("velma") as writer:
        assert counting.reconcile(writer) == 0
    assert len(CountedLog(ground, "velma").to_state()) == 1
    assert not list(ground.patterns.records())


hostile = st.one_of(
    st.text(max_size=200),
    st.lists(
        st.sampled_from(
            ["## x", "**Pattern:** evil", "<!--", "-->", "<!-- fleet flagged ", "```", "---", "\n", "\r\n", "\u2028",
             "TBD", " ", "\t", "\x1b[31m", "\x00", "\u202e", "\udc9b", "        said = list(pool.map(lambda n: process(FLAG_ONE, str(ground.root), f"s-{n % 4}"), range(8)))
    ids = {bound.id for bound in Log.parse(page(ground)).entries}
    # Two of each session, one after the other: the second is a repeat.
    assert {entry for entry, _ in said} == ids
    assert len(ids) == sum(is_new == "True" for _, is_new in said) == page(ground).count("## ") == 4
    assert len(log_of(ground).waiting()) == len(ids)


def test_a_signal_opens_no_database_and_parses_no_log(ground, monkeypatch):
    log_of(ground).flag(SAID, session="a")
    monkeypatch.setattr(corrections_md.Log, "parse", lambda known: pytest.fail("the log was parsed"))
    assert log_of(ground).flag(SAID, session="b").is_new
    assert not list((ground.root / ".fleet").glob("*.db*"))


def test_nothing_is_written_where_nobody_may_write(ground, monkeypatch):
    register = ground.root / ".fleet" / "replica.toml"
    register.parent.mkdir()
    register.write_text('# Who writes\ndefault_agent = "velma"\nephemeral = true\n')
    with pytest.raises(UsageError, match="only read"):
        log_of(ground).flag(SAID)
    assert page(ground) == ""
    monkeypatch.setenv("FLEET_REPLICA", "velma.0a1b2c3d")
    assert log_of(ground).flag(SAID).is_new


def test_a_link_in_the_place_of_the_log_is_not_written_through(ground):
    (ground.root / "elsewhere").write_text("")
    ground.home("velma").mkdir(parents=True)
    (ground.home("velma") / "corrections.md").symlink_to(ground.root / "elsewhere")
    with pytest.raises(DiskError):
        log_of(ground).flag(SAID)
    assert (ground.root / "elsewhere").read_text() == ""


# What waits


def test_what_waits_is_told_by_session_and_in_order(ground, wall):
    for number, session in enumerate(("a", "b", "a")):
        wall.ms += 61_000
        log_of(ground).flag(Flag("human", f"no {number}"), session=session)
    assert [each.title for each in log_of(ground).waiting()] == ["no 0", "no 1", "no 2"]
    assert [each.title for each in log_of(ground).waiting("a")] == ["no 0", "no 2"]
    assert log_of(ground).waiting("c") == log_of(ground, "splinter").waiting() == []


def test_a_failed_command_is_asked_about_by_nobody_but_its_own_session(ground):
    log_of(ground).flag(Flag.of_failure("make", 2, "no"), session="s")
    assert log_of(ground).waiting() == log_of(ground).waiting("s") == []
    assert [each.title for each in log_of(ground).waiting(everything=True)] == ["make: exit code 2"]
    assert len(CountedLog(ground, "velma").to_state()) == 0


def test_what_is_old_is_not_asked_about_any_more_and_stays(ground, wall):
    old = log_of(ground).flag(SAID, session="s")
    wall.ms += 7 * 86_400_000 + 1
    log_of(ground).flag(Flag("human", "stop"), session="t")
    assert [each.title for each in log_of(ground).waiting(days=7)] == ["stop"]
    assert [len(CountedLog(ground, "velma").to_state(days)) for days in (7, 0)] == [1, 2]
    assert next(each.id for each in log_of(ground).waiting(everything=True)) == old.id
    assert corrections.Corrections(ground, "velma").state(old.id, Correction("", "", "Use pnpm")).seen == 1


def test_what_is_dismissed_is_not_asked_about_and_can_still_be_stated(ground):
    log_of(ground).flag(SAID, session="s")
    other = log_of(ground).flag(Flag("human", "stop"), session="s")
    before = page(ground)
    assert [each.id for each in log_of(ground).dismiss(other.id[2:9])] == [other.id]
    assert page(ground).startswith(before)
    assert [each.title for each in log_of(ground).waiting("s")] == ["no, use pnpm here"]
    assert len(log_of(ground).dismiss("")) == 1
    assert log_of(ground).waiting() == log_of(ground).dismiss("") == []
    assert len(CountedLog(ground, "velma").to_state()) == 0
    assert corrections.Corrections(ground, "velma").state(other.id, Correction("", "", "Stop when told")).seen == 1


@pytest.mark.parametrize("prefix", ["c-ffff", "zz", "c-"])
def test_what_cannot_be_dismissed_is_told_and_nothing_is_written(ground, prefix):
    log_of(ground).flag(SAID, session="s")
    log_of(ground).flag(Flag("human", "stop"), session="s")
    before = page(ground)
    with pytest.raises(NoError, match="nothing was changed"):
        log_of(ground).dismiss(prefix)
    assert page(ground) == before


def test_an_entry_that_a_person_filled_in_by_hand_waits_no_more(ground):
    log_of(ground).flag(SAID, session="s")
    path = ground.home("velma") / "corrections.md"
    path.write_text(path.read_text().replace(corrections_md.TO_BE_INFERRED, "Use pnpm"))
    assert log_of(ground).waiting() == log_of(ground).waiting("s") == []


def test_a_session_that_owes_nothing_is_told_without_parsing(ground, monkeypatch):
    log_of(ground).flag(SAID, session="s")
    monkeypatch.setattr(corrections_md.Log, "parse", lambda known: pytest.fail("the log was parsed"))
    assert log_of(ground).waiting("another") == []


def test_nobody_is_asked_for_a_bare_heading_which_is_read_as_any_page_is(ground):
    path = ground.home("velma") / "corrections.md"
    path.parent.mkdir(parents=True)
    path.write_text("# Corrections\n\n## Call the user Stevie\n\nAlways.\n")
    assert log_of(ground).waiting() == []
    assert [each.title for each in log_of(ground).waiting(everything=True)] == ["Call the user Stevie"]


@pytest.mark.parametrize(
    ("again", "is_new"),
    [
        ("No, don't use npm; use pnpm!", False),
        ("no - don't use npm ... use pnpm.", False),
        ("no, don't use --npm, use pnpm", True),
        ("no, don't use .npm, use pnpm", True),
    ],
)
def test_the_same_words_punctuated_otherwise_are_one_signal(ground, again, is_new):
    log_of(ground).flag(Flag("human", "no, don't use npm, use pnpm"), session="s-1")
    assert log_of(ground).flag(Flag("human", again), session="s-1").is_new is is_new


@pytest.mark.parametrize("words", ["use pnpm", "no, use pnpm here. npm breaks the lockfile"])
def test_a_refusal_whose_words_an_entry_of_its_session_states_waits_no_more(ground, words):
    refused = Flag("human", f"{words}\n(Refused Bash: npm install)", title=words, signal_class="rejection")
    log = log_of(ground)
    log.flag(refused, session="s-1")
    other = log.flag(refused, session="s-2").id
    told = corrections.Correction("refused Bash npm install", "", words, source="session-end reflection, person t-0a")
    corrections.Corrections(ground, "velma").log(told, session="s-1")
    assert [each.id for each in log.waiting()] == [other]
    assert log.waiting("s-1") == []
    assert len(log.waiting(everything=True)) == 2
    log.flag(Flag("human", f"{words}, and so on", signal_class="rejection"), session="s-1")
    assert len(log.waiting()) == 2
