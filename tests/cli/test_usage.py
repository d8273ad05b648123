"""Wrong usage, other locales and zones, a second ``init``, damaged local files: clear words, the right exit code."""

import json
import os
import re
import sqlite3
import subprocess
import sys
from datetime import UTC, datetime
from pathlib import Path

import pytest
import typer.main

from fleet import __version__
from fleet.cli.commands import MODULES, app
from fleet.learn.signals import Flag
from fleet.model.names import pattern_id
from fleet.store.ingest import Ingest
from tests.cli.test_learn import flagged
from tests.faults.test_sync import Bench

LESSON = "Always use awk over sed"
GROUP = typer.main.get_command(app)
COMMANDS = {name: GROUP.get_command(None, name) for name in MODULES}
CORRECT = ("correct", "--wrong", "w", "--right", "r", "--pattern", LESSON)
DISCOVER = ("discover", "--problem", "p", "--solution", "s")


@pytest.fixture
def bench(tmp_path):
    return Bench(tmp_path)


@pytest.fixture
def w(bench):
    bench.run("w", "init", "--agent", "velma")
    return "w"


def files(folder) -> dict:
    """Return path to bytes of a folder, SQLite's passing files aside."""
    found = (path for path in folder.rglob("*") if path.is_file() and not path.name.endswith(("-wal", "-shm")))
    return {path.relative_to(folder): path.read_bytes() for path in found}


def real(bench, where: str, *words: object, **env: str):
    """Run a process of its own; bytes in, bytes out."""
    return subprocess.run(
        [sys.executable, "-m", "fleet", *words],
        cwd=bench.folder / where,
        env=bench.environment(**env),
        stdin=subprocess.DEVNULL,
        capture_output=True,
        timeout=60,
        check=False,
    )


def test_an_export_asks_a_few_times_whether_anything_came_and_not_once_a_lesson(bench, w, monkeypatch):
    for number in range(30):
        bench.run(w, *CORRECT[:-1], f"Lesson of number {number * 7}")
    asked: list[object] = []
    refresh = Ingest.refresh
    monkeypatch.setattr(Ingest, "refresh", lambda self, *more: (asked.append(self), refresh(self, *more))[1])
    assert len(json.loads(bench.run(w, "export").stdout)["patterns"]) == 30
    assert 0 < len(asked) < 20


def test_each_command_answers_in_json_but_for_those_that_print_a_page_or_a_script():
    without = {"help", "completion", "hook", "live", "sidecar"}
    lacking = {name for name, each in COMMANDS.items() if not any("--json" in option.opts for option in each.params)}
    assert lacking == without


def test_what_is_no_plain_file_is_said_to_be_none_and_nobody_waits_for_it(bench, w):
    os.mkfifo(bench.folder / w / "pipe.md")
    for words, code in (
        (("import", "pipe.md"), 3),
        (("import", "/dev/null"), 3),
        (("restore-backup", "pipe.md", "--yes"), 3),
        (("import", "--transcripts", "pipe.md"), 0),
        (("reflect", "--transcript", "pipe.md"), 2),
        (("backup", "pipe.md", "--yes"), 1),
    ):
        done = bench.run(w, *words, expect=code)
        assert "no plain file" in done.stderr or "no file" in done.stderr or "stays" in done.stderr
    assert (bench.folder / w / "pipe.md").is_fifo()


def test_nobody_is_asked_about_a_backup_that_cannot_be_read(bench, w):
    (bench.folder / w / "b.tar.gz").write_bytes(b"no backup")
    done = bench.run(w, "restore-backup", "b.tar.gz", expect=3)
    assert "damaged" in done.stderr
    assert "Join" not in done.stderr


@pytest.mark.parametrize(
    ("buffered", "as_json"),
    [({"PYTHONUNBUFFERED": ""}, ["--json"]), ({"PYTHONUNBUFFERED": "1"}, [])],
    ids=["json at the end", "text at once"],
)
def test_a_command_whose_answer_cannot_be_written_is_done_all_the_same_and_no_second_try_doubles_it(
    bench, w, buffered, as_json
):
    def unheard(*words: str) -> tuple[int, str]:
        command = [sys.executable, "-m", "fleet", *words, *as_json]
        environment = bench.environment(**buffered)
        with Path("/dev/full").open("wb") as full:
            done = subprocess.run(
                command, cwd=bench.folder / w, env=environment, stdout=full, stderr=subprocess.PIPE, check=False
            )
        return done.returncode, done.stderr.decode()

    for words in (CORRECT, DISCOVER, ("feedback", pattern_id(LESSON), "--helped"), ("undo",)):
        code, told = unheard(*words)
        refused = words == ("undo",)  # the feedback stands
        assert code == (1 if refused else 0), told
        assert refused or "what was given is done" in told
    assert json.loads(bench.run(w, "show", pattern_id(LESSON), "--json").stdout)["seen"] == 1
    with Path("/dev/full").open("wb") as full:  # nor can anything be told
        command = [sys.executable, "-m", "fleet", *CORRECT, *as_json]
        streams = {"stdout": full, "stderr": full}
        done = subprocess.run(command, cwd=bench.folder / w, env=bench.environment(**buffered), check=False, **streams)
    assert done.returncode == 0
    for words in (("patterns",), ("learn", "--waiting"), ("export",)):
        code, told = unheard(*words)
        assert code == 6, "what only shows has not shown it"
        assert "the answer cannot be written" in told
        assert "done" not in told


@pytest.mark.parametrize(
    ("words", "code", "told"),
    [
        (("show", "p-0000000000000000"), 1, "no lesson has an id that begins with"),
        (("promote", "d-0000"), 1, "and this takes no discovery (`fleet gossip`)"),
        (("retire", "c-0000"), 1, "and this takes no correction"),
        (("show", "i-0000"), 1, "and this takes nothing of the inbox (`fleet inbox`)"),
        (("sync", "--dry"), 2, "No such option: --dry"),
        (("import", "."), 1, ""),
        (("edit",), 2, "Missing argument"),
        (("patterns", "--since", "--"), 2, "'--'"),
        (("sleep", "--install-timer", "--remove-timer"), 2, "not both"),
        (("guard", "p-0000000000000000", "off", "--until", "2030-01-01"), 2, "--until goes with"),
    ],
)
def test_a_command_that_is_asked_for_json_and_fails_says_so_in_json(bench, w, words, code, told):
    done = bench.run(w, *words, "--json", expect=code)
    found = json.loads(done.stdout)
    if told:
        assert found["exit_code"] == code
        assert told in found["error"]
        assert told in done.stderr
    assert told not in bench.run(w, *words, expect=code).stdout or not told
    bench.run(w, "search", "--", "--json", expect=1)


def test_a_fleet_that_is_turned_off_answers_who_asked_for_json(bench, w):
    for words, word in ((("patterns",), "1"), (CORRECT, "1"), (CORRECT, "true"), (CORRECT, "YES"), (CORRECT, "on")):
        assert json.loads(bench.run(w, *words, "--json", FLEET_DISABLED=word).stdout) == {"disabled": True}
    assert bench.run(w, "patterns", "--json", FLEET_DISABLED="0").stdout == '{"patterns":[],"refused":0}\n'
    assert bench.run(w, "patterns", FLEET_DISABLED="1").stdout == ""


def test_a_fleet_that_is_turned_off_explains_itself_and_logs_nothing(bench, w):
    for words in (("help",), ("help", "hook"), ("--help",), ("--version",), ("sync", "--help")):
        assert "turned off" not in (done := bench.run(w, *words, FLEET_DISABLED="1")).stderr
        assert done.stdout
    bench.run(w, *CORRECT[:-1], "--help", FLEET_DISABLED="1")
    assert bench.run(w, "patterns", "--json").stdout == '{"patterns":[],"refused":0}\n'


def test_what_is_told_on_the_way_to_a_document_is_on_stderr(bench):
    done = bench.run("new", "init", "--agent", "velma", "--json")
    assert json.loads(done.stdout)["agent"] == "velma"
    assert "velma is the default agent here" in done.stderr
    done = bench.run("new", "install", "claude-code", "--dry-run", "--json")
    assert str(bench.folder / "new/.claude/settings.json") in json.loads(done.stdout)["changed"]
    assert "+++" in done.stderr
    assert not (bench.folder / "new/.claude").exists()


def test_one_document_is_printed_also_where_there_is_no_workspace_or_a_lock_is_held(bench, w):
    found = json.loads(bench.run("elsewhere", "patterns", "--json", expect=1).stdout)
    assert "fleet init" in found["error"]
    lock = bench.folder / w / ".agents/.consolidation-lock"
    lock.parent.mkdir()
    lock.write_text('{"locked_by": "tank", "locked_at": 99999999999999}\n')
    done = bench.run(w, "consolidate", "--json", expect=None)
    assert json.loads(done.stdout)["changed"] is False
    assert done.returncode


@pytest.fixture(scope="module")
def untouched(tmp_path_factory):
    """A workspace in which nothing is ever written."""
    made = Bench(tmp_path_factory.mktemp("untouched"))
    made.run("w", "init", "--agent", "velma")
    return made


# --- wrong usage ----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("words", "code", "told"),
    [
        (["nonsense"], 2, "nonsense"),
        (["patterns", "--nonsense"], 2, "--nonsense"),
        (["--nonsense"], 2, "--nonsense"),
        (["correct", "--wrong", "w", "--right", "r"], 2, "--pattern"),
        (["correct", "--pattern", LESSON], 2, "missing: --wrong, --right. Nothing was logged"),
        (["discover"], 2, "Missing option '--problem'"),
        ([*CORRECT, "--pattern", ""], 2, "Nothing was logged"),
        ([*CORRECT, "--pattern", " \n\t"], 2, "no words"),
        ([*CORRECT, "--pattern", "...!"], 2, "no words"),
        ([*CORRECT, "--pattern", "**"], 2, "no words"),
        ([*CORRECT, "--pattern", "\u200b\u200b"], 2, "no words"),
        ([*CORRECT, "extra"], 2, "extra"),
        ([*CORRECT, "--pattern", "x" * 8193], 3, "8193 bytes"),
        ([*CORRECT, "--wrong", "é" * 4097], 3, "8194 bytes"),
        ([*CORRECT, *("--tag", "t") * 33], 2, "32 tags"),
        ([*CORRECT, "--same", "p-3f9c"], 1, "no lesson has an id"),
        ([*CORRECT, "--from", "Not An Agent"], 2, "--from"),
        ([*DISCOVER, "--type", "workaround"], 2, "--minutes above 15"),
        ([*DISCOVER, "--type", "workaround", "--minutes", "15"], 2, "--minutes above 15"),
        ([*DISCOVER, "--type", "workaround", "--minutes", "-20"], 2, "--minutes"),
        ([*DISCOVER, "--minutes", "many"], 2, "--minutes"),
        ([*DISCOVER, "--type", "rumour"], 2, "rumour"),
        ([*DISCOVER, "--confidence", "certain"], 2, "--confidence"),
        ([*DISCOVER, "--problem", ""], 2, "--problem"),
        ([*DISCOVER, "--context", "x" * 8193], 3, "8193 bytes"),
        ([*DISCOVER, *("--tag", "t") * 33], 2, "32 tags"),
        (["gossip", "-n", "0"], 2, "0"),
        (["gossip", "-n", "some"], 2, "some"),
        (["gossip", "-n", str(2**63)], 2, "not in the range"),
        (["patterns", "-n", str(2**63)], 2, "not in the range"),
        (["search", "lesson", "-n", str(2**63)], 2, "not in the range"),
        (["show"], 2, "ID"),
        (["show", "p-3f9c"], 1, "no lesson has an id"),
        (["show", ""], 1, "no lesson has an id"),
        (["retire", "p-"], 1, "no lesson has an id"),
        (["restore", "p-3f9c"], 1, "no lesson has an id"),
        (["import"], 2, "PATH"),
        (["init", "--agent", "Not An Agent"], 2, "cannot be an agent's name"),
    ],
    ids=lambda value: " ".join(value)[:60] if isinstance(value, list) else "",
)
def test_wrong_usage_is_told_and_changes_nothing(untouched, words, code, told):
    folder = untouched.folder / "w"
    before = files(folder)
    done = untouched.run("w", *words, expect=code)
    assert told in done.stderr
    assert done.stdout == ""
    after = files(folder)
    for path in before.keys() | after.keys():
        if path.parts[0] in {"agents", "clan-learnings"} or path.suffix == ".toml":
            assert before.get(path) == after.get(path), path


def test_what_is_just_within_a_limit_is_taken(bench, w):
    bench.run(w, *CORRECT, "--pattern", "x" * 8192, "--wrong", "é" * 4096, *("--tag", "t") * 32)
    bench.run(w, *DISCOVER, "--type", "workaround", "--minutes", "16", *("--tag", "t") * 32)
    assert len(bench.patterns(w)["patterns"]) == 1


@pytest.mark.parametrize("command", COMMANDS)
def test_without_a_workspace_every_command_but_init_says_no(bench, command):
    words = {
        "correct": CORRECT,
        "discover": DISCOVER,
        "import": ("import", "."),
        "mutate": ("mutate", "--proposed"),
        **{name: (name, "p-1") for name in ("show", "retire", "restore")},
    }.get(command, (command,))
    done = bench.run("nowhere", *words, expect=None)
    if hasattr(COMMANDS[command], "commands") or command == "help":
        return  # a group tells of its commands, and help of all
    if command == "init":
        assert done.returncode == 0
        return
    if all(not each.required for each in COMMANDS[command].params) or len(words) > 1:
        assert done.returncode == 1, done.stderr
        assert "fleet init" in done.stderr
        assert list((bench.folder / "nowhere").iterdir()) == []


def test_a_workspace_is_found_upward_by_option_and_by_environment(bench, w):
    deep = bench.folder / w / "a/b"
    deep.mkdir(parents=True)
    bench.run("w/a/b", *CORRECT)
    assert bench.seen("w/a/b") == {LESSON: 1}
    for where, words, env in (
        ("elsewhere", ["--dir", str(bench.folder / w)], {}),
        ("elsewhere", [], {"FLEET_DIR": str(bench.folder / w)}),
        ("elsewhere", ["--dir", "../w"], {"FLEET_DIR": "/nowhere"}),
    ):
        found = bench.run(where, "patterns", "--json", *words, **env)
        assert len(json.loads(found.stdout)["patterns"]) == 1
    before = bench.run("elsewhere", "--dir", "../w", "patterns", "--json")
    assert len(json.loads(before.stdout)["patterns"]) == 1


def test_version_and_bare_call(bench):
    told = bench.run(".", "--version").stdout
    commit = r"commit [0-9a-f]{12,}, " if (Path(__file__).parents[2] / ".git").exists() else ""
    assert re.fullmatch(rf"fleet {re.escape(__version__)} \({commit}Python 3\.\d+\.\d+\S*\)\n", told)
    done = bench.run(".")
    assert "There is no workspace" in done.stdout
    assert "fleet init --agent NAME" in done.stdout
    assert list(bench.folder.iterdir()) == []


@pytest.mark.parametrize("command", COMMANDS)
def test_the_help_of_a_command_tells_of_all_its_options(bench, command):
    shown = " ".join(bench.run(".", command, "--help").stdout.split())
    assert " ".join(COMMANDS[command].help.split()) in shown
    for option in COMMANDS[command].params:
        if option.param_type_name == "argument" or option.hidden:  # such a one is refused, and named by the refusal
            continue
        assert option.help, f"{option.name} says nothing of itself"
        for name in option.opts:
            assert re.search(rf"(?<![\w-]){re.escape(name)}(?![\w-])", shown), name


def test_the_help_of_all_tells_the_exit_codes(bench):
    shown = " ".join(bench.run(".", "--help").stdout.split())
    for code, word in enumerate(["ok", "no", "usage", "refused", "busy", "remote unavailable", "other error"]):
        assert f"{code} {word}" in shown


# --- locales and time zones -----------------------------------------------------------------------------------------

WORDS = "İSTANBUL I ı ß ǅ naïve 中文 🎯 Überprüfe"


@pytest.mark.parametrize(
    "env",
    [
        {"LC_ALL": "C"},
        {"LC_ALL": "POSIX", "PYTHONUTF8": "0", "PYTHONCOERCECLOCALE": "0"},
        {"LC_ALL": "tr_TR.UTF-8", "LANG": "tr_TR.UTF-8"},
        {"LC_ALL": "C", "PYTHONIOENCODING": "ascii"},
    ],
    ids=lambda env: " ".join(env.values()),
)
def test_whatever_the_locale_a_lesson_has_the_same_id_and_reads_the_same(bench, w, env):
    done = real(bench, w, *CORRECT, "--pattern", WORDS.encode(), **env)
    assert done.returncode == 0, done.stderr
    shown = real(bench, w, "patterns", "--json", **env)
    [found] = json.loads(shown.stdout.decode("utf-8"))["patterns"]
    if "PYTHONUTF8" not in env:
        assert found["id"] == pattern_id(WORDS)
        assert found["text"] == WORDS
        assert WORDS in real(bench, w, "patterns", **env).stdout.decode("utf-8")
        assert WORDS in (bench.folder / w / "agents/velma/corrections.md").read_text("utf-8")


def test_an_argument_that_is_no_utf_8_is_no_crash(bench, w):
    done = real(bench, w, *CORRECT, "--pattern", b"caf\xe9 \xff\xfe crashes")
    assert done.returncode in (0, 2, 3)
    assert b"error in fleet itself" not in done.stderr
    assert b"Traceback" not in done.stderr
    real(bench, w, "patterns").stdout.decode("utf-8")


def test_the_doctor_says_what_is_wrong_with_a_name_that_can_be_no_agents(bench, w):
    assert "'../x' cannot be an agent's name" in bench.run(w, "doctor", FLEET_AGENT="../x", expect=2).stderr


def test_what_is_refused_of_a_file_whose_name_is_no_utf_8_is_kept_once(bench, w):
    name = os.fsdecode(b"records\xff.jsonl")
    (bench.folder / w / name).write_text('{"title": "Read the log first"}\n{"title": \n')
    for _ in range(2):
        bench.run(w, "import", name, expect=None)
    kept = (bench.folder / w / ".fleet/quarantine/refused.jsonl").read_text().splitlines()
    assert [json.loads(row)["path"] for row in kept] == ["records?.jsonl"]


def test_a_session_whose_name_is_no_utf_8_starts_like_any_other(bench, w):
    bench.run(w, *CORRECT)
    assert LESSON in bench.run(w, "start", FLEET_SESSION=os.fsdecode(b"b\xff")).stdout


@pytest.mark.parametrize("zone", ["Pacific/Kiritimati", "America/Los_Angeles", "UTC", "Nonsense/Zone"])
def test_a_heading_is_in_utc_in_whatever_zone_the_machine_is(bench, w, zone):
    before = datetime.now(UTC)
    bench.run(w, *CORRECT, TZ=zone)
    after = datetime.now(UTC)
    log = (bench.folder / w / "agents/velma/corrections.md").read_text()
    [when] = re.findall(r"(?m)^## (\d{4}-\d\d-\d\d \d\d:\d\d)Z", log)
    assert before.strftime("%Y-%m-%d %H:%M") <= when <= after.strftime("%Y-%m-%d %H:%M")
    [at] = re.findall(r" at=(\S{16})", log)
    assert at == when.replace(" ", "T") or before.minute != after.minute


# --- a workspace of fleet 0.1 ---------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "words", [("patterns",), ("learn", "--waiting"), ("sync",), ("start",), ("status",), ("doctor",), ("init",)]
)
def test_a_workspace_of_an_earlier_version_says_what_to_run_and_is_left_alone(bench, words):
    folder = bench.folder / "old"
    (folder / "clan-learnings").mkdir(parents=True)
    (folder / "fleet.toml").write_text("[share]\n")
    line = {"add": {"velma.00000001": "2026-11-20T00:00:00.000Z-0000"}, "at": "2026-11-20T00:00:00.000Z-0000"}
    line |= {"by": "velma.00000001", "id": "p-3f9c1a2b7d4e5f60", "n": {"seen": {"velma.00000001": 1}}}
    (folder / "clan-learnings/patterns.jsonl").write_text(json.dumps(line | {"set": {"text": LESSON}}) + "\n")
    before = files(folder)
    done = bench.run("old", *words, expect=1)
    assert "made by fleet 0.1; run `fleet upgrade`" in done.stderr
    assert done.stdout == ""
    assert files(folder) == before


# --- init -----------------------------------------------------------------------------------------------------------


def test_a_second_init_changes_nothing(bench):
    bench.join("velma")
    bench.correct("velma", LESSON)
    before = files(bench.folder / "velma")
    for words in (
        ["init"],
        ["init", "--agent", "velma"],
        ["init", "--agent", "velma", "--remote", str(bench.remote), "--branch", "fleet", "--yes"],
    ):
        bench.run("velma", *words)
        assert files(bench.folder / "velma") == before, words


def test_init_names_another_remote_and_leaves_the_rest_of_the_file_alone(bench):
    bench.join("velma")
    config = bench.folder / "velma/fleet.toml"
    config.write_text("# mine\n" + config.read_text() + "# end\n")
    before = config.read_text()
    bench.run("velma", "init", "--remote", "/tmp/elsewhere.git", "--branch", "other", "--yes", expect=5)
    after = config.read_text()
    assert after == before.replace(str(bench.remote), "/tmp/elsewhere.git").replace(
        'branch = "fleet"', 'branch = "other"'
    )


@pytest.mark.parametrize("text", ["", "*.pyc", "*.pyc\n", "# mine\r\n*.pyc\r\n", "/.fleet/\n"], ids=repr)
def test_init_adds_to_a_gitignore_and_git_add_takes_nothing_of_ours(bench, text):
    bench.git("init", "--quiet", "project")
    ignore = bench.folder / "project/.gitignore"
    if text:
        ignore.write_bytes(text.encode())
    (bench.folder / "project/main.py").write_text("")
    bench.run("project", "init", "--agent", "velma")
    bench.correct("project", LESSON)
    bench.run("project", "sync", expect=None)
    assert ignore.read_bytes().startswith(text.encode())
    once = ignore.read_bytes()
    bench.run("project", "init")
    assert ignore.read_bytes() == once
    bench.git("add", ".", where="project")
    staged = bench.git("diff", "--cached", "--name-only", where="project").split()
    assert set(staged) == {".gitignore", "fleet.toml", "main.py"}


# --- a reader that goes ---------------------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def talkative(tmp_path_factory):
    """A workspace with more to say than a pipe holds."""
    bench = Bench(tmp_path_factory.mktemp("talkative"))
    bench.run("w", "init", "--agent", "velma")
    text = "".join(json.dumps({"title": f"lesson {number} " + "x" * 500}) + "\n" for number in range(400))
    (bench.folder / "records.jsonl").write_text(text)
    bench.run("w", "import", str(bench.folder / "records.jsonl"))
    return bench


@pytest.mark.parametrize(
    ("words", "reads"),
    [(["patterns"], 0), (["patterns"], 64), (["patterns", "--json"], 64), (["status"], 0), (["--help"], 0)],
)
def test_a_reader_that_goes_away_is_no_error_to_talk_about(talkative, words, reads):
    out, into = os.pipe()
    with subprocess.Popen(
        [sys.executable, "-m", "fleet", *words],
        cwd=talkative.folder / "w",
        env=talkative.environment(),
        stdin=subprocess.DEVNULL,
        stdout=into,
        stderr=subprocess.PIPE,
    ) as process:
        os.close(into)
        if reads:
            assert os.read(out, reads)
        os.close(out)
        assert process.stderr is not None
        assert process.stderr.read() == b""


# --- damaged local files --------------------------------------------------------------------------------------------


@pytest.mark.parametrize("harm", [b"rubbish", b"\xff\xfe\x00", b"[[replica]]\nname = 7\n", b'default_agent = "velma'])
def test_a_damaged_identity_is_told_and_its_advice_loses_nothing(bench, harm):
    bench.join("velma")
    bench.correct("velma", LESSON)
    bench.sync("velma")
    bench.correct("velma", "Not sent yet")
    path = bench.folder / "velma/.fleet/replica.toml"
    path.write_bytes(harm)
    again = ("correct", "--wrong", "another time", *CORRECT[3:])  # an entry of its own in any minute
    for words, code in ((again, 0), (("sync",), 6), (("status",), 6), ((), 6)):  # what is logged is logged first
        done = bench.run("velma", *words, expect=code)
        assert "replica.toml is damaged" in done.stderr
        assert "No lesson is lost" in done.stderr
    assert path.read_bytes() == harm, "nothing is guessed"
    assert bench.seen("velma") == {LESSON: 1, "Not sent yet": 1}
    path.rename(path.with_suffix(".old"))
    bench.run("velma", "init", "--agent", "velma")
    bench.sync("velma")
    bench.correct("velma", LESSON)
    bench.sync("velma")
    assert {p["text"]: p["seen"] for p in bench.patterns("velma")["patterns"]} == {LESSON: 3, "Not sent yet": 1}
    assert {each.text: each.count("seen") for each in bench.edition()} == bench.seen("velma")


@pytest.mark.parametrize(
    ("harm", "told"),
    [
        (b"[share", "cannot be read"),
        (b"\xff\xfe", "cannot be read"),
        (b"[share]\nremotes = 'x'\n", "remotes"),
        (b"[share]\nattempts = 'many'\n", "attempts"),
        (b"[nonsense]\n", "nonsense"),
        (b"[promotion]\nmode = 'sometimes'\n", "mode"),
    ],
    ids=["torn", "binary", "unknown key", "wrong type", "unknown table", "wrong word"],
)
def test_a_damaged_configuration_is_told_and_costs_no_correction(bench, harm, told):
    bench.join("velma")
    bench.correct("velma", LESSON)
    config = bench.folder / "velma/fleet.toml"
    good = config.read_bytes()
    config.write_bytes(harm)
    for words in (CORRECT, ("patterns",), ("status",), ("start",), ("search", "awk")):
        done = bench.run("velma", *words)
        assert "fleet.toml" in done.stderr
        assert told in done.stderr
    assert config.read_bytes() == harm
    found = json.loads(bench.run("velma", "doctor", "--json", expect=1).stdout)["findings"]
    assert [told in each["what"] for each in found if each["check"] == "config"] == [True]
    shown = bench.run("velma", "doctor", expect=1)
    assert told not in shown.stderr, "told once, among what was found"
    assert "" not in shown.stdout.splitlines()
    config.write_bytes(good)
    bench.sync("velma")
    assert bench.seen("velma") == {LESSON: 2}


def test_a_sync_says_plainly_that_nothing_came(bench):
    for agent in ("velma", "tank"):
        bench.join(agent)
    bench.correct("velma", LESSON)
    assert "1 line out; nothing new came in" in bench.run("velma", "sync").stdout
    assert "0 lines out; 1 lesson new or changed in" in bench.run("tank", "sync").stdout
    bench.run("velma", *DISCOVER)
    bench.correct("velma", "Another lesson")
    bench.sync("velma")
    assert "1 lesson and 1 discovery new or changed in" in bench.run("tank", "sync").stdout
    assert "0 lines out; nothing new came in" in bench.run("tank", "sync").stdout


def test_a_time_that_no_line_tells_is_called_unknown(bench):
    bench.join("velma")
    folder = bench.folder / "velma/clan-learnings/patterns.d"
    folder.mkdir()
    column = '{"first":{"text":"Pin the base image"},"n":{"seen":2}}'
    (folder / "tank.00000001.jsonl").write_text(f'{{"id":"p-00000000000000a1","w":{{"tank.00000001":{column}}}}}\n')
    shown = bench.run("velma", "show", "p-00000000000000a1").stdout
    assert "2 by tank.00000001, last at an unknown time\n" in shown
    assert "unknownZ" not in shown


@pytest.mark.parametrize("harm", [b"[share", b"\xff\xfe"])
def test_init_changes_no_file_that_it_cannot_read(bench, harm):
    bench.join("velma")
    config = bench.folder / "velma/fleet.toml"
    config.write_bytes(harm)
    assert "Nothing was changed" in bench.run("velma", "init", "--remote", "/x", expect=2).stderr
    assert config.read_bytes() == harm


def test_one_good_key_beside_a_bad_one_holds(bench, w):
    config = bench.folder / w / "fleet.toml"
    config.write_text("[recall]\nstart_char = 5\nsession_idle_minutes = 7\ndiscoveries = 1\n")
    bench.run(w, *DISCOVER)
    bench.run(w, *DISCOVER, "--problem", "another")
    shown = bench.run(w, "start")
    assert "start_char" in shown.stderr
    assert shown.stdout.count("another") == 1
    assert "1 more" in shown.stdout or " p" not in shown.stdout.partition("another")[2]


def no_database(path):
    path.write_bytes(b"this is no database, and never was one\n" * 50)


def an_empty_one(path):
    path.write_bytes(b"")


def bad_pages(path):
    data = bytearray(path.read_bytes())
    for start in range(4096, len(data), 4096):
        data[start : start + 4096] = b"\xff" * 4096
    path.write_bytes(data)


@pytest.mark.parametrize("harm", [no_database, an_empty_one, bad_pages], ids=lambda h: h.__name__)
def test_a_damaged_database_costs_no_lesson_and_no_count(bench, harm):
    for agent in ("velma", "tank"):
        bench.join(agent)
    bench.correct("velma", LESSON)
    bench.sync("velma", "tank")
    bench.correct("velma", "Not sent yet")
    path = database(bench, "velma")
    with sqlite3.connect(path) as connection:
        connection.execute("PRAGMA wal_checkpoint(TRUNCATE)")
    connection.close()
    for beside in ("-wal", "-shm"):
        path.with_name(path.name + beside).unlink(missing_ok=True)
    harm(path)
    if harm is bad_pages:  # seen only when such a page is read
        done = bench.run("velma", "status")
        assert "was damaged" in done.stderr
        assert "nothing is lost" in done.stderr
    bench.correct("velma", LESSON)
    bench.run("velma", "status")
    bench.run("velma", "sync")
    bench.sync("tank", "velma")
    assert bench.seen("velma") == bench.seen("tank") == {LESSON: 2, "Not sent yet": 1}


def database(bench, where: str):
    """Return the path of the database that holds the clan's lessons."""
    [path] = (bench.folder / where / ".fleet").glob("state-*.db")
    return path


def test_a_database_of_a_newer_fleet_is_left_alone(bench):
    bench.join("velma")
    path = bench.folder / "velma/.fleet/state-99.db"
    path.write_bytes(b"of a newer version")
    bench.run("velma", *CORRECT)
    bench.sync("velma")
    assert path.read_bytes() == b"of a newer version"


def test_a_lost_or_damaged_clock_issues_no_stamp_twice(bench, w):
    for number, harm in enumerate([b"rubbish", b"", b"9" * 60, b"\xff" * 60]):
        bench.correct(w, LESSON)
        (bench.folder / w / ".fleet/clock").write_bytes(harm)
        bench.correct(w, f"lesson {number}")
    assert bench.seen(w) == {LESSON: 4, **{f"lesson {number}": 1 for number in range(4)}}
    stamps = re.findall(r" at=(\S+)", (bench.folder / w / "agents/velma/corrections.md").read_text())
    assert stamps == sorted(set(stamps))


def test_a_command_in_a_folder_that_was_removed_says_which_it_is(bench):
    gone = bench.folder / "gone"
    gone.mkdir()
    command = f"cd {gone} && rmdir {gone} && {sys.executable} -m fleet patterns"
    done = subprocess.run(["sh", "-c", command], env=bench.environment(), capture_output=True, text=True, check=False)
    assert done.returncode == 6
    assert "the folder that this was started in: No such file or directory" in done.stderr


@pytest.mark.parametrize("words", [("show",), ("retire",), ("edit",), ("guard", "deny"), ("feedback", "--helped")])
@pytest.mark.parametrize("kind", ["p-", "d-"])
def test_an_id_of_bytes_that_are_no_text_is_not_found_and_harms_no_database(stage, words, kind):
    velma = stage.join("velma")
    stage.correct(velma, "Quote every path")
    done = stage.run(velma, words[0], f"{kind}\udcff", *words[1:], expect=1)
    assert "made anew" not in done.stderr
    assert "begins with" in done.stderr


@pytest.mark.parametrize(
    ("typed", "kept"),
    [(b"Quote caf\xe9 paths", "Quote caf\ufffd paths"), ("Über die Brücke".encode(), "Über die Brücke")],
)
def test_bytes_that_the_locale_cannot_read_leave_no_gap_in_a_lesson(stage, typed, kept):
    velma = stage.join("velma")
    command = [sys.executable, "-m", "fleet", "correct", "--wrong", "w", "--right", "r", "--pattern", typed]
    plain = stage.environment() | {"LC_ALL": "C", "PYTHONUTF8": "0", "PYTHONCOERCECLOCALE": "0"}
    subprocess.run(command, cwd=stage.folder / velma, env=plain, capture_output=True, check=True)
    assert [each["text"] for each in stage.patterns(velma)["patterns"]] == [kept]


def test_lessons_by_hand_in_a_log_that_is_no_utf_8_wait_and_are_named_and_none_is_shared_mangled(stage):
    velma = stage.join("velma")
    log = stage.folder / velma / "agents/velma/corrections.md"
    rows = [
        "# Corrections\n",
        "## 2026-11-20 10:00Z - names\n**What I got wrong:** w\n**Pattern:** Encode the café name before it is sent\n",
        "## 2026-11-20 11:00Z - ü\n**What I got wrong:** w\n**Correct approach:** ü\n**Pattern:** Quote paths\n",
        "## 2026-11-20 12:00Z - plain\n**What I got wrong:** w\n**Pattern:** Pin the version of every action\n",
        "- Always check naïve times in a test before they are compared\n",
    ]
    log.parent.mkdir(parents=True, exist_ok=True)
    log.write_bytes(latin := "\n".join(rows).encode("latin-1"))
    told = stage.run(velma, "sync", expect=None).stderr
    assert log.read_bytes().startswith(latin)
    left = json.loads(stage.run(velma, "status", "--json").stdout)["not_taken"]
    assert [each["line"] for each in left] == [3, 7, 16]
    assert all("no UTF-8" in each["reason"] and f"{each['line']}: {each['reason']}" in told for each in left)
    assert {each["text"] for each in stage.patterns(velma)["patterns"]} == {"Pin the version of every action"}
    log.write_bytes(log.read_bytes().decode("latin-1").encode())
    stage.run(velma, "sync")
    tank = stage.join("tank")
    texts = {each["text"] for each in stage.patterns(tank)["patterns"]}
    assert {"Encode the café name before it is sent", "Quote paths"} <= texts
    assert any("naïve" in each for each in texts)
    assert not any("\ufffd" in each for each in texts)


@pytest.mark.parametrize("count", [1, 2])
def test_a_kind_without_an_id_names_those_that_begin_so_and_changes_nothing(stage, count):
    velma = stage.join("velma")
    for number in range(count):
        lesson = stage.correct(velma, f"Run `make check{number}`, never `git push --force`")
        stage.run(velma, "edit", lesson, "--set", "trigger=Bash:git push*")
        stage.run(velma, "guard", lesson, "ask")
        stage.run(velma, "discover", "--problem", f"p{number}", "--solution", "s")
        flagged(stage, velma, Flag("human", f"no, use pnpm {number}"), session=str(number))

    def known() -> list[str]:
        shown = [("patterns", "--all"), ("gossip",), ("guard",), ("learn", "--waiting"), ("status",)]
        return [stage.run(velma, *words, "--json").stdout for words in shown]

    before = known()
    lessons = [
        "show ?",
        "edit ? --set text=x",
        "retire ?",
        "restore ?",
        "unmerge ?",
        "feedback ? --helped",
        "promote ?",
    ]
    lessons += ["demote ?", "guard ? deny", "guard ? off", "purge ? --yes"]
    others = {"d-": ["show ?", "retire ?"], "c-": ["show ?", "learn ? --pattern x", "learn --dismiss ?"]}
    for kind, commands in {"p-": lessons, **others}.items():
        for command in commands:
            done = stage.run(velma, *command.replace("?", kind).split(), expect=1)
            assert f"{kind!r} is not enough of an id:\n  {kind}" in done.stderr, command
            is_read = command.startswith("show")
            assert ("Give more of it; nothing was changed" in done.stderr) is not is_read, command
            assert re.search(r"  .-[0-9a-f]{16}  (Run `make|p\d|no, use)", done.stderr) or command.startswith(
                ("demote", "guard ? off")
            ), command
    assert known() == before


@pytest.mark.parametrize(
    ("words", "begins", "ends"),
    [
        (("?",), "No such command 'xxx", "xxx'."),
        (("show", "--?"), "No such option: --xxx", "xxx"),
        (
            ("discover", "--problem", "p", "--solution", "s", "--minutes", "?"),
            "Invalid value for '--minutes'",
            "valid int.",
        ),
        (("status", "--dir", "?"), "/xxx", "Run `fleet init` there"),
        (("import", "?"), "Invalid value for 'PATH...'", "does not exist."),
        (("backup", "?"), "/xxx", "is lost"),
    ],
)
def test_an_error_does_not_repeat_a_huge_argument_in_full(bench, w, words, begins, ends):
    done = bench.run(w, *[word.replace("?", "x" * 50_000) for word in words], "--json", expect=None)
    told = json.loads(done.stdout)["error"]
    assert done.returncode
    assert begins in told
    assert told.endswith(ends)
    assert max(len(told), len(done.stderr)) < 2_000
