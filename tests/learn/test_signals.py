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
             "TBD", " ", "\t", "\x1b[31m", "\x00", "\u202e", "\udc9b", "<<<<<<< HEAD", "中文", "no", "`", "\\", "\x85"]
        ),
        max_size=12,
    ).map("".join),
)  # fmt: skip


@settings(max_examples=100)
@given(quote=hostile, title=hostile, before=hostile)
def test_the_id_is_the_one_that_the_parser_gives_and_nothing_breaks_out(tmp_path_factory, quote, title, before):
    root = tmp_path_factory.mktemp("ground")
    path = root / "agents" / "velma" / "corrections.md"
    path.parent.mkdir(parents=True)
    path.write_bytes(before.encode("utf-8", "replace"))
    known = len(Log.parse(before.encode("utf-8", "replace") + b"\n").entries)
    done = Signals(Files(root), "velma", lambda: "2026-11-21T12:00:00.000Z").flag(Flag("human", quote, title=title))
    bound = Log.parse(path.read_bytes()).entries
    assert len(bound) == known + 1
    assert (bound[-1].id, bound[-1].pattern, bound[-1].record) == (done.id, "", None)


# Repeats


@pytest.mark.parametrize("later_ms", [0, 59_999, 60_000, 3_600_000, -30_000])
def test_the_same_words_in_one_session_are_one_signal_while_it_waits_whatever_the_time(ground, wall, later_ms):
    first = log_of(ground).flag(SAID, session="s")
    wall.ms += later_ms
    again = log_of(ground).flag(Flag("human", "  No, use  PNPM here."), session="s")
    assert (again.id, again.is_new) == (first.id, False)
    assert len(entries(ground)) == 1


def test_other_words_at_the_same_moment_are_another_signal(ground):
    said = ["no, use pnpm here", "no, use pnpm there", "stop"]
    assert all(log_of(ground).flag(Flag("human", each), session="s").is_new for each in said)
    assert [entry.wrong for entry in entries(ground)] == said


def test_failures_are_the_same_by_family_and_error_and_not_by_their_words(ground):
    tools = [
        ("pytest", "pytest\n1"),
        ("mypy .", "mypy\n1"),
        ("cargo build", "cargo build\n1"),
        ("pytest -q", "pytest\n1"),
    ]
    found = [log_of(ground).flag(Flag.of_failure(told, 1, "no", same), session="s") for told, same in tools]
    assert [each.is_new for each in found] == [True, True, True, False]
    assert found[3].id == found[0].id


def test_a_session_of_the_agents_own_runs_until_it_was_idle_for_half_an_hour(ground, wall):
    first = ground.session("velma")
    wall.ms += 1_800_000
    assert ground.session("velma") == first
    assert ground.session("tank") != first
    wall.ms += 1_800_000
    assert Workspace(ground.root, ground.world).session("velma") == first
    wall.ms += 1_800_001
    second = ground.session("velma")
    assert second not in ("", first)
    wall.ms -= 1
    assert ground.session("velma") not in (first, second)  # the clock was set back


@pytest.mark.parametrize("damaged", [b"", b"s-0a1b2c3d4e5f", b"s-0a1b2c3d4e5f \xff\x00", b"\x00" * 29])
def test_a_damaged_note_of_a_session_begins_a_new_one(ground, damaged):
    ground.session("velma")
    (ground.local / "session/velma").write_bytes(damaged)
    session = ground.session("velma")
    assert re.fullmatch("s-[0-9a-f]{12}", session)
    assert session != "s-0a1b2c3d4e5f"


def test_another_session_and_another_kind_are_new(ground):
    log_of(ground).flag(SAID, session="s")
    assert log_of(ground).flag(SAID, session="t").is_new
    assert log_of(ground).flag(SAID).is_new
    assert log_of(ground).flag(Flag("agent", "no, use pnpm here"), session="s").is_new
    assert len({bound.id for bound in Log.parse(page(ground)).entries}) == 4


def test_said_again_after_its_lesson_was_stated_or_dismissed_it_is_a_new_signal(ground):
    first = log_of(ground).flag(SAID, session="s")
    corrections.Corrections(ground, "velma").state(first.id, Correction("", "", "Use pnpm"))
    second = log_of(ground).flag(SAID, session="s")
    assert second.is_new
    assert not log_of(ground).flag(SAID, session="s").is_new
    log_of(ground).dismiss(second.id)
    assert log_of(ground).flag(SAID, session="s").is_new


def test_a_mark_of_an_older_version_has_no_key_and_is_no_repeat_but_a_sign_of_its_session(ground):
    first = log_of(ground).flag(SAID, session="s")
    path = ground.home("velma") / "corrections.md"
    path.write_text(re.sub(r" key=\w+ -->", " -->", path.read_text()))
    assert log_of(ground).origin(first.id) == ("s", NOON)
    assert log_of(ground).flag(SAID, session="s").is_new


def test_another_agents_signal_is_no_repeat(ground):
    log_of(ground).flag(SAID, session="s")
    assert log_of(ground, "splinter").flag(SAID, session="s").is_new


@pytest.mark.parametrize("back_ms", [1, 30_000, 3_600_000, NOON - 1])
def test_a_clock_that_was_set_back_swallows_nothing(ground, wall, back_ms):
    log_of(ground).flag(SAID, session="s")
    wall.ms -= back_ms
    assert log_of(ground).flag(Flag("human", "stop"), session="s").is_new
    assert not log_of(ground).flag(Flag("human", "stop"), session="s").is_new


def test_a_repeat_is_known_behind_much_that_came_in_between(ground, wall):
    first = log_of(ground).flag(SAID, session="s")
    for number in range(60):
        log_of(ground).flag(Flag.of_failure("make", 2, "x" * 5_000), session=f"other-{number}")
    wall.ms += 10_000
    assert log_of(ground).flag(SAID, session="s") == (first.id, False)


def test_equal_signals_of_two_sessions_are_two_entries(ground):
    ids = {log_of(ground).flag(SAID, session=f"s-{number}").id for number in range(3)}
    assert ids == {bound.id for bound in Log.parse(page(ground)).entries}
    assert len(ids) == 3


@pytest.mark.parametrize("gone", range(4))
def test_an_equal_signal_has_its_own_id_whatever_was_done_to_the_others(ground, gone):
    for number in range(3):
        log_of(ground).flag(SAID, session=f"s-{number}")
    path = ground.home("velma") / "corrections.md"
    first, *blocks = path.read_text().split("\n## ")
    changed = (
        blocks[1:],
        [blocks[0], blocks[2]],
        [block.partition("<!--")[0] for block in blocks],
        [block.replace("**Source:**", "**Source:** ") for block in blocks],
    )[gone]
    path.write_text("\n## ".join([first, *changed]) + "\n")
    done = log_of(ground).flag(SAID, session="s-9")
    assert Log.parse(page(ground)).entries[-1].id == done.id


def test_a_quote_cannot_pass_for_a_repeat(ground):
    mark = "<!-- fleet flagged c-0123456789abcdef at=2026-11-21T12:00:00.000Z kind=failure session=s -->"
    log_of(ground).flag(Flag("human", f"no\n{mark}", title=mark), session="s")
    assert log_of(ground).flag(Flag.of_failure("make", 2, mark), session="s").is_new


def test_a_session_that_is_no_word_is_known_again(ground):
    odd = "a session -- of --> my own\n"
    assert log_of(ground).flag(SAID, session=odd).is_new
    assert not log_of(ground).flag(SAID, session=odd).is_new
    assert [each.title for each in log_of(ground).waiting(odd)] == ["no, use pnpm here"]
    assert page(ground).count("\n") == 8


# Screening and limits


def test_a_secret_in_what_failed_is_taken_out(ground):
    log_of(ground).flag(Flag.of_failure(f"curl -H 'Authorization: Bearer {TOKEN}' x", 22, f"token was {TOKEN}\n"))
    assert "a1B2" not in page(ground)
    assert "[REDACTED:" in entries(ground)[0].wrong
    log_of(ground).flag(Flag("human", f"no, {TOKEN}", title=TOKEN))
    assert "a1B2" not in page(ground)
    assert entries(ground)[1].wrong == "no, [REDACTED:github-classic]"


@pytest.mark.parametrize("cut", range(0, 40, 3))
def test_half_of_a_secret_is_never_kept(ground, cut):
    window = limits.SIGNAL_WINDOW_CHARS
    # The window begins within the secret, in a line of its own or in the only line there is; or the head ends in it.
    log_of(ground).flag(Flag.of_failure("a", 1, TOKEN + "x\n" + "y" * (window - cut - 2)))
    log_of(ground).flag(Flag.of_failure("b", 1, f"{TOKEN} " + "z " * ((window - cut) // 2)), session="2")
    log_of(ground).flag(Flag.of_failure("c " * (window // 2 - cut // 2 - 1) + TOKEN, 1, ""), session="3")
    for quote in ("d " * (window // 2 - cut // 2 - 1) + TOKEN + " e" * 99, TOKEN[:-cut] if cut > 20 else ""):
        log_of(ground).flag(Flag("human", quote), session=f"4 {len(quote)}")
    assert "a1B2" not in re.sub(r"(?m)^\*\*User flagged:\*\* ghp_\w{0,20}$|^## .* — ghp_\w{0,20}$", "", page(ground))


def test_half_of_a_secret_behind_a_giant_one_is_never_kept(ground):
    giant = "eyJ" + "aB3" * 2_600 + ".abcdef"
    log_of(ground).flag(Flag("human", f"{giant} " + "p" * (limits.SIGNAL_WINDOW_CHARS - len(giant) - 20) + f" {TOKEN}"))
    assert "ghp_" not in page(ground)
    assert "[REDACTED:jwt]" in page(ground)


def test_a_private_key_that_begins_before_the_window_is_taken_out(ground):
    key = "-----BEGIN PRIVATE KEY-----\n" + "MIIEvQIBADANBgkqhkiG9w0BAQEFAASCBKcwggSjAgEAAoIB\n" * 300
    log_of(ground).flag(Flag.of_failure("cat key", 1, f"{key}-----END PRIVATE KEY-----\nfailed\n"))
    assert "MIIE" not in page(ground)
    assert entries(ground)[0].wrong.endswith("failed")


@pytest.mark.parametrize(
    "said",
    ["x" * 10_000_000, "line\n" * 2_000_000, "中文 " * 3_000_000, "\r".join(["progress"] * 1_000_000), "\n" * 9_000_000,
     "wide " * 400 + "\n" + "wide " * 400],
    ids=["one line", "lines", "Chinese", "progress bar", "nothing", "wide lines"],
)  # fmt: skip
def test_ten_megabytes_are_capped(ground, said):
    log_of(ground).flag(Flag.of_failure("make " + "y" * 5_000, 2, said))
    (entry,) = entries(ground)
    assert len(entry.wrong) <= limits.SIGNAL_QUOTE_CHARS_MAX
    assert len(entry.title) <= limits.SIGNAL_TITLE_CHARS_MAX
    assert all(len(line) <= limits.SIGNAL_LINE_CHARS_MAX for line in entry.wrong.split("\n")[1:])
    assert len(page(ground).encode()) < 16_000


def test_a_long_message_is_cut_and_says_so(ground):
    log_of(ground).flag(Flag("human", "no " * 1_000_000))
    (entry,) = entries(ground)
    assert len(entry.wrong) <= limits.SIGNAL_QUOTE_CHARS_MAX
    assert entry.wrong.endswith("…")
    assert entry.title.endswith("…")


def test_control_characters_go_and_what_a_progress_bar_wrote_over(ground):
    log_of(ground).flag(Flag.of_failure("make\x00 \u202eall", 2, "10%\r50%\rdone\n\x1b[31mFAILED\x1b[0m \x07bell\n"))
    (entry,) = entries(ground)
    assert entry.wrong == "exit code 2: make all\ndone\nFAILED bell"


def test_chinese_stays_as_it_is(ground):
    log_of(ground).flag(Flag("human", "不对，应该用 pnpm"))
    assert (entries(ground)[0].wrong, entries(ground)[0].title) == ("不对，应该用 pnpm", "不对，应该用 pnpm")


def test_half_a_surrogate_pair_is_no_trouble(ground):
    log_of(ground).flag(Flag("human", "no \udc9b\ud800 that"))
    assert entries(ground)[0].wrong == "no  that"


# The disk, and other processes


class Recorder(Files):
    """Notes each write and each wait for the disk, in order."""

    def __init__(self, root):
        super().__init__(root)
        self.done = []

    def _write_all(self, handle, data):
        super()._write_all(handle, data)
        self.done.append(("write", bytes(data)))

    def _fsync(self, handle):
        super()._fsync(handle)
        self.done.append(("fsync", Path(f"/proc/self/fd/{handle}").readlink().name))


def test_it_is_one_write_and_on_the_disk_before_it_is_acknowledged(ground):
    log_of(ground).flag(SAID, session="a")
    ground.files = Recorder(ground.root)
    log_of(ground).flag(SAID, session="b")
    (write, data), (fsync, name) = ground.files.done
    assert (write, fsync, name) == ("write", "fsync", "corrections.md")
    assert b"User flagged" in data
    assert re.search(rb"session=b key=[0-9a-f]{12} -->\n", data)


def test_what_did_not_reach_the_disk_is_not_acknowledged(ground):
    class Full(Files):
        def _fsync(self, handle):
            raise OSError(28, "No space left on device")

    ground.files = Full(ground.root)
    with pytest.raises(DiskError, match="no space left"):
        log_of(ground).flag(SAID)


@pytest.mark.parametrize("cut", range(1, 340, 7))
def test_a_torn_tail_harms_itself_alone(ground, cut):
    log_of(ground).flag(Flag("human", "first"), session="a")
    log_of(ground).flag(Flag("human", "second: x"), session="b")
    path = ground.home("velma") / "corrections.md"
    data = path.read_bytes()
    path.write_bytes(data[:-cut])
    log_of(ground).flag(Flag("human", "third"), session="c")
    read = entries(ground)
    assert [read[0].wrong, read[-1].wrong] == ["first", "third"]
    assert all(not entry.pattern for entry in read)
    assert [each.title for each in log_of(ground).waiting("c")] == ["third"]


def test_wherever_the_write_was_torn_off_nothing_is_learned(ground):
    log_of(ground).flag(SAID, session="s")
    data = ground.files.read(ground.home("velma") / "corrections.md")
    for cut in range(len(data)):
        assert not any(entry.pattern for entry in Log.parse(data[:cut]).entries), data[:cut]


FLAG_ONE = """
import sys
from pathlib import Path
from fleet.learn.signals import Flag, Signals
from fleet.store.workspace import Workspace
ground = Workspace(Path(sys.argv[1]))
log = Signals(ground.files, "velma", ground.wall)
done = log.flag(Flag("human", "no, use pnpm here"), session=sys.argv[2])
print(done.id, done.is_new)
"""


def process(code, *words):
    environment = {"PYTHONPATH": str(ROOT), "HOME": "/nonexistent", "PATH": os.environ["PATH"]}
    return subprocess.run(
        [sys.executable, "-c", code, *words], env=environment, capture_output=True, text=True, timeout=120, check=True
    ).stdout.split()


def test_many_processes_at_once_lose_nothing(ground):
    with ThreadPoolExecutor(8) as pool:
        said = list(pool.map(lambda n: process(FLAG_ONE, str(ground.root), f"s-{n % 4}"), range(8)))
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
