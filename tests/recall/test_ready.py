"""The text that a session starts with lies ready, and is never older than what it was made of."""

import json
import os
import re
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path

import pytest

from fleet.app import starting
from fleet.app.finding import find
from fleet.app.starting import SessionStart
from fleet.learn.attempts import AttemptLog
from fleet.learn.corrections import Corrections
from fleet.learn.corrections_md import Correction
from fleet.model import limits
from fleet.model import line as codec
from fleet.model.discovery import Discovery
from fleet.model.line import Line
from fleet.model.names import pattern_id
from fleet.recall.ready import Ready
from fleet.recall.triggers import TABLE_MAX
from fleet.reflect.exposure import Exposures
from fleet.store import config
from fleet.store.lines import DISCOVERIES, PATTERNS
from fleet.store.workspace import Workspace, World
from tests.records import AT, line, mint

ROOT = Path(__file__).resolve().parents[2]
NEWS = {
    "patterns.jsonl": (PATTERNS, line("p-0000000000000001", {"tank.00000001": 1}, text="news of tank")),
    "patterns.d/tank.00000001.jsonl": (PATTERNS, line("p-0000000000000001", {"tank.00000001": 1}, text="news of tank")),
    "discoveries.d/tank.00000001.jsonl": (
        DISCOVERIES,
        Discovery(id="d-0000000000000001", at=AT, by="tank.00000001", problem="news of tank"),
    ),
}


@pytest.fixture
def workspace(tmp_path):
    (tmp_path / config.FILE_NAME).write_text(config.render("", "fleet"))
    made = Workspace(tmp_path, World(durable=False))
    made.files.replace(made.home("velma") / "memory.md", b"- remembered\n")
    Corrections(made, "velma").log(Correction("w", "r", "the first lesson"), session="s")
    yield made
    made.close()


def text(workspace) -> str | None:
    made = Ready(str(workspace.root), "velma").start()
    return None if made is None else made.text


def bare(context: str) -> str:
    return re.sub("fleet-[0-9a-f]{16}", "MARK", context)


def write(workspace: Workspace, path: str, *lines: Line) -> None:
    """Write as another program would."""
    kind, news = NEWS[path]
    file = workspace.clan / path
    file.parent.mkdir(parents=True, exist_ok=True)
    with file.open("ab") as handle:
        handle.write(b"".join(kind.encode(each) + b"\n" for each in lines or (news,)))


def test_it_is_what_was_made_under_another_delimiter(workspace):
    assert text(workspace) is None
    made = SessionStart(workspace, "velma").make().text
    first, second = text(workspace), text(workspace)
    assert bare(first) == bare(second) == bare(made)
    assert "the first lesson" in first
    assert "- remembered" in first
    assert len({context.splitlines()[0] for context in (made, first, second)}) == 3
    assert all(context.splitlines()[0] == context.splitlines()[-2] for context in (first, second))


@pytest.mark.parametrize(
    "path",
    [
        "agents/velma/memory.md",
        "agents/velma/corrections.md",
        "agents/velma/JOURNAL.md",
        "agents/velma/notes.jsonl",
        "agents/velma/inbox.jsonl",
        "clan-learnings/members.toml",
        "fleet.toml",
        ".fleet/promotion/velma.json",
        ".fleet/attempts/velma.won",
        ".fleet/seen/velma",
        ".git/HEAD",
    ],
)
def test_it_is_none_once_a_file_is_another(workspace, path):
    SessionStart(workspace, "velma").make()
    assert text(workspace)
    file = workspace.root / path
    file.parent.mkdir(parents=True, exist_ok=True)
    with file.open("ab") as handle:
        handle.write(b"\n")
    assert text(workspace) is None
    SessionStart(workspace, "velma").make()
    assert text(workspace)


@pytest.mark.parametrize("path", NEWS)
def test_it_is_none_once_a_refresh_found_other_records(workspace, path):
    SessionStart(workspace, "velma").make()
    write(workspace, path)
    workspace.db.refresh()
    assert text(workspace) is None
    assert "news of tank" in SessionStart(workspace, "velma").make().text
    assert "news of tank" in text(workspace)


@pytest.mark.parametrize("path", NEWS)
def test_whoever_asks_for_the_start_has_what_was_written_without_a_word(workspace, path):
    assert "news" not in starting.SessionStart(workspace, "velma").text()
    write(workspace, path)
    assert starting.SessionStart(workspace, "velma").cached() is None
    assert "news of tank" in starting.SessionStart(workspace, "velma").text()
    assert starting.SessionStart(workspace, "velma").cached() is not None


def test_a_line_that_says_nothing_new_makes_nothing_anew(workspace):
    write(workspace, "patterns.jsonl")
    SessionStart(workspace, "velma").make()
    write(workspace, "patterns.d/tank.00000001.jsonl")
    workspace.db.refresh()
    assert text(workspace)


def test_a_lost_database_is_no_older_than_another(workspace):
    """Deleted, it counts its generations anew: none of them may be taken for one of before."""
    before = SessionStart(workspace, "velma").make().text
    workspace.close()
    for file in (workspace.root / ".fleet").glob("state-*"):
        file.unlink()
    fresh = Workspace(workspace.root, World(durable=False))
    write(fresh, "patterns.jsonl")
    try:
        fresh.db.refresh()
        assert text(fresh) is None
        assert bare(SessionStart(fresh, "velma").make().text) != bare(before)
    finally:
        fresh.close()


def test_a_mutation_that_worked_is_noticed_and_a_failure_changes_nothing(workspace):
    from fleet.learn.journal import Journal

    SessionStart(workspace, "velma").make()
    AttemptLog(str(workspace.root), "velma").note_failure("s", "ls nowhere", "no such file", 1)
    assert text(workspace)
    Journal(workspace, "velma").record_success(
        {"id": "m-0000000000000001", "code": "M1", "name": "n", "failed": "f"}, ""
    )
    assert text(workspace) is None
    assert "worked and is no lesson yet" in SessionStart(workspace, "velma").make().text


def test_a_file_that_went_away_is_noticed(workspace):
    SessionStart(workspace, "velma").make()
    (workspace.home("velma") / "memory.md").unlink()
    assert text(workspace) is None
    assert Ready(str(workspace.root), "velma").is_stale()


def test_what_is_written_while_it_is_made_is_not_missed(workspace, monkeypatch):
    """A lesson that arrives while the text is made: no text without it counts as up to date."""
    render = starting.session_context

    def late(**words):
        Corrections(workspace, "velma").log(Correction("w", "r", "a lesson in between"), session="s")
        return render(**words)

    monkeypatch.setattr(starting, "session_context", late)
    assert "in between" not in SessionStart(workspace, "velma").make().text
    workspace.db.refresh()
    assert text(workspace) is None


@pytest.mark.parametrize(
    "data",
    [b"", b"{}\nx", b"[]\nx", b"rubbish", b'{"files":{},"delimiter":3}\nx', b"\xff\xfe\n", b"[" * 9_000 + b"\nx"],
)
def test_a_damaged_file_is_none(workspace, data):
    SessionStart(workspace, "velma").make()
    for name in (Ready("", "velma").start_file, Ready("", "velma").triggers_file):
        (workspace.root / name).write_bytes(data)
    assert text(workspace) is None
    assert Ready(str(workspace.root), "velma").is_stale()
    assert not isinstance(Ready(str(workspace.root), "velma").rows(), str)


def test_a_head_that_names_other_files_is_none(workspace):
    SessionStart(workspace, "velma").make()
    file = workspace.root / Ready("", "velma").start_file
    head, _, made = file.read_text().partition("\n")
    told = json.loads(head)
    del told["files"]["agents/velma/memory.md"]
    file.write_text(f"{json.dumps(told)}\n{made}")
    assert text(workspace) is None


def test_a_foreign_delimiter_never_stands_in_the_text(workspace):
    SessionStart(workspace, "velma").make()
    file = workspace.root / Ready("", "velma").start_file
    delimiter = json.loads(file.read_text().splitlines()[0])["delimiter"]
    assert file.read_text().count(delimiter) == 5  # in the head, and at the two ends of text and news


def test_a_folder_that_cannot_be_written_is_no_obstacle(workspace):
    (workspace.root / Ready("", "velma").start_file).mkdir(parents=True)  # a folder where the file belongs
    assert "the first lesson" in SessionStart(workspace, "velma").make().text


def test_no_link_is_followed(workspace, tmp_path):
    """A hostile repository may hold a ``.fleet`` of its own."""
    SessionStart(workspace, "velma").make()
    file = workspace.root / Ready("", "velma").start_file
    file.rename(tmp_path / "elsewhere")
    file.symlink_to(tmp_path / "elsewhere")
    assert text(workspace) is None


def test_the_table_of_triggers_is_each_agents_own_and_empty_when_there_is_none(workspace):
    shared = line("p-0000000000000001", {"tank.00000001": 1}, text="Pull first", trigger="Bash:git push*")
    private = line("p-0000000000000002", {"velma.00000001": 1}, text="Mine", trigger="Bash:make*", scope="private")
    write(workspace, "patterns.jsonl", shared)
    workspace.notes_file("velma").write_bytes(PATTERNS.encode(private) + b"\n")
    for agent in ("velma", "slash"):
        SessionStart(workspace, agent).make()
    root = str(workspace.root)
    assert [row[0] for row in Ready(root, "velma").rows()] == [shared.id, private.id]
    assert [row[0] for row in Ready(root, "slash").rows()] == [shared.id]
    out = line(shared.id, {}, rem={"tank.00000001": AT})
    write(workspace, "patterns.jsonl", out)
    SessionStart(workspace, "slash").make()
    assert Ready(root, "slash").rows() == []
    assert not Ready(root, "slash").has_rows()


def lessons(writer: str, said: Sequence[tuple[str, int, dict[str, object]]]) -> list[Line]:
    return [line(pattern_id(text), {writer: seen}, text=text, **more) for text, seen, more in said]


def table(workspace: Workspace) -> list[tuple[str, str]]:
    SessionStart(workspace, "velma").make()
    return [(row[2].split(" (")[0].lstrip("- "), row[1]) for row in Ready(str(workspace.root), "velma").rows()]


def test_the_table_of_triggers_holds_what_stands_and_has_one_best_first(workspace):
    said = [
        ("Pull first", 1, {"trigger": "Bash:git push*"}),
        ("Seen often", 5, {"trigger": "Bash"}),
        ("Retired", 1, {"trigger": "Bash", "rem": {"tank.00000001": AT}}),
        ("No step", 1, {}),
        ("A number", 1, {"trigger": 7}),
        ("No trigger", 1, {"trigger": "not a trigger"}),
        ("Pull before `git push`", 9, {}),
    ]
    write(workspace, "patterns.jsonl", *lessons("tank.00000001", said))
    assert table(workspace) == [
        ("Seen often", "Bash"),
        ("Pull first", "Bash:git push*"),
        ("Pull before `git push`", "Bash:git push*"),
    ]


def test_lessons_logged_here_and_those_of_others_take_turns_in_the_table_of_triggers(workspace):
    """So whoever pushes a flood of lessons for every step crowds out none that was logged here."""
    mint(workspace, "velma.00000001")
    own = [("Own one", 1, {"trigger": "Bash:make*"}), ("Own: pull before `git push`", 1, {})]
    flood = [(f"Flood {n}", 9, {"trigger": "*:*"}) for n in range(TABLE_MAX + 1)]
    write(workspace, "patterns.jsonl", *lessons("velma.00000001", own), *lessons("tank.00000001", flood))
    found = table(workspace)
    assert len(found) == TABLE_MAX
    assert [each.split()[0].strip(":") for each, _ in found[:5]] == ["Own", "Flood", "Own", "Flood", "Flood"]


def test_a_private_lesson_is_told_to_its_agent_alone(workspace):
    private = line("p-0000000000000002", {"velma.00000001": 9}, text="Mine alone", scope="private")
    workspace.notes_file("velma").write_bytes(PATTERNS.encode(private) + b"\n")
    assert "Mine alone" in SessionStart(workspace, "velma").make().text
    assert "Mine alone" not in SessionStart(workspace, "slash").make().text


def told(workspace, *agents: str) -> None:
    """Do as a hook does once it has shown what lies ready."""
    for agent in agents:
        Ready(str(workspace.root), agent).note_seen(str(workspace.patterns.generation))


def test_what_is_new_is_new_once_and_a_start_without_news_makes_nothing_anew(workspace):
    first = SessionStart(workspace, "velma").make()
    assert "New since your last session:\n- the first lesson" in first.text
    assert "the first lesson" in first.news
    assert first.new_ids == first.ids
    told(workspace, "velma")
    assert text(workspace) is None
    second = SessionStart(workspace, "velma").make()
    assert (second.news, second.new_ids) == ("", [])
    assert "the first lesson" not in second.text
    assert "1 lesson left out" in second.text
    assert text(workspace)
    told(workspace, "velma")
    assert text(workspace)


def test_what_was_shown_at_another_moment_is_not_new_when_it_changes(workspace):
    told(workspace, "velma")
    write(workspace, "patterns.jsonl")
    Exposures(workspace.state).note("velma", "s", ["p-0000000000000001"], 1)
    assert "news of tank" not in SessionStart(workspace, "velma").make().text
    assert "news of tank" in SessionStart(workspace, "slash").make().text


def shown_in_a_session(workspace, session: str, word: str) -> set[str]:
    """Return the numbers that stand behind a word in what a session starts with."""
    return set(re.findall(rf"{word} number (\d+)", SessionStart(workspace, "velma").text(session)))


def test_a_new_lesson_without_room_is_news_to_the_next_start(workspace):
    workspace.files.replace(workspace.home("velma") / "memory.md", b"- a rule of my own about this code base\n" * 400)
    texts = [f"lesson number {n} {'of some length ' * 20}" for n in range(20)]
    write(workspace, "patterns.jsonl", *(line(pattern_id(each), {"tank.00000001": 1}, text=each) for each in texts))
    turns = [shown_in_a_session(workspace, f"s{n}", "lesson") for n in range(10)]
    assert turns[0]
    assert sum(map(len, turns)) == len(set.union(*turns)) == 20
    assert turns[-1] == set()
    assert text(workspace)


def test_the_twenty_newest_discoveries_come_before_one_that_was_shown(workspace):
    entries = [
        Discovery(
            id=f"d-{n:016x}",
            at=f"2026-11-20T22:30:00.{n:03}Z-0000",
            by="tank.00000001",
            problem=f"fact number {n} {'x' * 30}",
        )
        for n in range(25)
    ]
    write(workspace, "discoveries.d/tank.00000001.jsonl", *entries)
    turns = [shown_in_a_session(workspace, f"s{n}", "fact") for n in range(4)]
    newest = {str(n) for n in range(5, 25)}
    assert turns[0] < newest
    assert turns[1] > newest - turns[0]
    assert turns[2] == turns[3] == turns[0]


def test_each_agent_has_news_of_its_own(workspace):
    told(workspace, "velma", "slash")
    write(workspace, "patterns.jsonl")
    told(workspace, "slash")
    assert "news of tank" in SessionStart(workspace, "velma").make().news
    assert SessionStart(workspace, "slash").make().news == ""


def test_a_lesson_has_no_place_unless_it_is_new_or_published_or_about_what_is_changed_here(workspace):
    once = line("p-0000000000000001", {"tank.00000001": 1}, text="Regenerate after `src/api.ts` is edited")
    twice = line("p-0000000000000002", {"tank.00000001": 1, "slash.00000001": 1}, text="Seen by two")
    edits = {"state": (AT, next(iter(workspace.mine())), "published")}
    published = line("p-0000000000000003", {"tank.00000001": 1}, text="Promoted", edits=edits)
    theirs = line("p-0000000000000004", {"tank.00000001": 1}, text="Pushed forward", state="published")
    write(workspace, "patterns.jsonl", once, twice, theirs)
    shard = workspace.clan / f"patterns.d/{next(iter(workspace.mine()))}.jsonl"
    shard.write_bytes(shard.read_bytes() + codec.encode(published) + b"\n")
    told(workspace, "velma")
    context = SessionStart(workspace, "velma").make().text
    assert "Pushed forward" not in context  # by a word of somebody else's
    assert ["Regenerate" in context, "Seen by two" in context, "Promoted" in context] == [False, False, True]

    def git(*words: str) -> None:
        who = ("-c", "user.name=x", "-c", "user.email=x@example.org")
        subprocess.run(["git", *who, *words], cwd=workspace.root, check=True, capture_output=True)

    git("init", "-q")
    (workspace.root / "src").mkdir()
    (workspace.root / "src/api.ts").write_text("a")
    git("add", "src")
    git("commit", "-qm", "x")
    assert "Regenerate" not in SessionStart(workspace, "velma").make().text
    (workspace.root / "src/api.ts").write_text("b")
    assert "Regenerate" in SessionStart(workspace, "velma").make().text


def test_a_lesson_about_a_command_that_failed_here_has_a_place(workspace):
    write(workspace, "patterns.jsonl", line("p-0000000000000001", {"tank.00000001": 1}, text="`make lint` needs node"))
    told(workspace, "velma")
    assert "needs node" not in SessionStart(workspace, "velma").make().text
    AttemptLog(str(workspace.root), "velma").note_failure("s", "cd web && make lint", "node: not found", 127)
    assert "needs node" in SessionStart(workspace, "velma").make().text


def test_of_lessons_about_commands_that_failed_here_the_three_best_have_a_place_and_the_rest_is_counted(workspace):
    lessons = [
        line(f"p-{n:016x}", {"tank.00000001": n}, text=f"Lesson {n} about `make step{n}`", add={"tank.00000001": AT})
        for n in range(1, 6)
    ]
    write(workspace, "patterns.jsonl", *lessons)
    told(workspace, "velma")
    for n in range(1, 6):
        AttemptLog(str(workspace.root), "velma").note_failure("s", f"make step{n}", "not found", 1)
    context = SessionStart(workspace, "velma").make().text
    assert re.findall(r"Lesson (\d)", context) == ["5", "4", "3"]
    assert "3 lessons left out; `fleet patterns`" in context  # one is `told` alone


def test_of_many_lessons_the_newest_are_shown_and_the_room_is_kept(workspace):
    stamps = [f"2026-03-{1 + n // 24:02}T{n % 24:02}:00:00.000Z-0000" for n in range(93)]
    lessons = [
        line(f"p-{(n * 7919) % 4093:016x}", {"tank.00000001": 1}, add={"tank.00000001": at}, text=f"Lesson {n:03}")
        for n, at in enumerate(stamps)
    ]
    write(workspace, "patterns.jsonl", *lessons)
    context = SessionStart(workspace, "velma").make().text
    assert all(f"Lesson {n:03}" in context for n in range(83, 93))
    assert len(context) < limits.START_REST_CHARS_MAX + 500


def test_ids_are_short_and_every_one_is_unique_and_long_enough(workspace):
    alike = line("p-1234567800000000", {"tank.00000001": 1}, text="One"), line("p-1234567900000000", {}, text="Other")
    write(workspace, "patterns.jsonl", *alike, line("p-abcdef0000000000", {"tank.00000001": 1}, text="Else"))
    context = SessionStart(workspace, "velma").make().text
    assert "- One (tank; p-12345678)" in context
    assert "- Else (tank; p-abcdef)" in context
    assert find(workspace, "p-12345678").text == "One"


@pytest.mark.parametrize("content", [b"", b"rubbish", b"9" * 70, b"-1", b"\xff"])
def test_a_damaged_note_of_what_was_told_costs_a_repetition_at_most(workspace, content):
    told(workspace, "velma")
    (workspace.root / Ready("", "velma").seen_file).write_bytes(content)
    assert "the first lesson" in SessionStart(workspace, "velma").make().text


def test_reading_it_takes_no_library():
    code = (
        "import sys; before = set(sys.modules); import fleet.recall.ready; "
        "print(sorted({m.split('.')[0] for m in set(sys.modules) - before} - set(sys.stdlib_module_names)), "
        "'pathlib' in set(sys.modules) - before, 're' in set(sys.modules) - before)"
    )
    environment = {**os.environ, "PYTHONPATH": str(ROOT)}
    done = subprocess.run([sys.executable, "-c", code], env=environment, capture_output=True, text=True, check=True)
    assert done.stdout.startswith("['fleet'] False"), done.stdout


def test_a_lesson_that_the_name_of_the_branch_is_about_is_among_the_relevant_ones(workspace):
    others = [f"Never rely on the {word} of a build" for word in ("order", "clock", "locale", "umask", "shell", "home")]
    for pattern in ("Write the header row of the CSV exporter only once", "Keep five retries of a payment", *others):
        Corrections(workspace, "velma").log(Correction("w", "r", pattern), session="s")
    SessionStart(workspace, "velma").text("s")  # no longer new
    head = workspace.root / ".git/HEAD"
    head.parent.mkdir()
    assert "CSV exporter" not in SessionStart(workspace, "velma").text()
    head.write_text("ref: refs/heads/feature/csv-exporter\n")
    shown = SessionStart(workspace, "velma").text()
    assert "CSV exporter" in shown
    assert "retries" not in shown
    for other in ("ref: refs/heads/main\n", "0f3a9c0d1e2b3a4c5d6e7f8091a2b3c4d5e6f708\n", ""):
        head.write_text(other)
        assert "CSV exporter" not in SessionStart(workspace, "velma").text(), other


def test_the_name_of_the_branch_is_known_where_git_keeps_refs_in_tables(workspace):
    made = subprocess.run(
        ["git", "init", "-q", "--ref-format=reftable", str(workspace.root)], capture_output=True, check=False
    )
    if made.returncode:
        pytest.skip("git here keeps no refs in tables")
    others = [f"Never rely on the {word} of a build" for word in ("order", "clock", "locale", "umask", "shell", "home")]
    for pattern in ("Write the header row of the CSV exporter only once", *others):
        Corrections(workspace, "velma").log(Correction("w", "r", pattern), session="s")
    SessionStart(workspace, "velma").text("s")  # no longer new
    for branch, is_about in (("main", False), ("feature/csv-exporter", True), ("main", False)):
        git = ("git", "-C", str(workspace.root), "symbolic-ref", "HEAD", f"refs/heads/{branch}")
        subprocess.run(git, check=True)
        assert ("CSV exporter" in SessionStart(workspace, "velma").text()) == is_about, branch
