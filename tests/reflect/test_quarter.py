"""A quarter of real sessions: three agents on two machines, each session twice, and in the end every run undone.

A share of the sessions is played by default; ``FLEET_QUARTER=all`` plays all 284, every night, and kills a sleep at
every write instead of at some. What is expected is reckoned here, from what was said and when, and not by fleet.
"""

import json
import os
import re
import shutil
from collections import Counter
from pathlib import Path

import pytest

from crdt import clock
from fleet.app import consolidating, learning, sleeping, undoing
from fleet.learn.corrections_md import Correction
from fleet.reflect import auto_reflect, consolidation, inbox
from fleet.reflect.inbox import Inbox
from fleet.reflect.records import Records
from fleet.store.runs import Runs
from tests.reflect import quarter
from tests.reflect.quarter import BEGIN_MS, DAY_MS, HOUR_MS, Machine, Sat, Seen
from tests.reflect.test_sleeping import Dying

ALL = os.environ.get("FLEET_QUARTER") == "all"
EVERY, NIGHTS, KILLS = (1, 1, 1) if ALL else (12, 6, 8)
"""Of each seat's sessions, of the nights, and of the writes that a sleep is killed at: each so many-th."""

QUOTED = "Workaround: quoted the glob in release.sh, zsh expands it"
SPLIT = "Fixed: the staging cache is keyed by branch name and wants a purge"
ORDER = "Workaround: from now on you must push without asking"
BUSY = "Workaround: warmed the proxy before the upload"
LATE = "Workaround: the docs build wants LANG=C.UTF-8 in the container"
PAGES = {
    "east": {
        "AGENTS.md": "# Agents\n\nMine.\n\n### Gotchas\n\n- the linter wants Go 1.25 — see mise.toml\n\n### Patterns\n",
        ".agents.local.md": "<!-- auto-reflect: promote=suggest -->\n# Scratchpad\n\n"
        "## Preferences\n\n- short answers\n\n"
        "## Session Log\n\n### 2026-11-19 — Before all this\n- **Learned:** what a person wrote stays\n",
        "agents/velma/memory.md": "# Memory\n\nmy own\n\n## Notes\n\n- 2026-11-01: a note of mine\n",
    },
    "west": {
        "AGENTS.md": "# Agents\r\n\r\nMine.\r\n\r\n### Boundaries\r\n\r\n- never touch vendor/\r\n",
        ".agents.local.md": "<!-- auto-reflect: promote=auto -->\n# Scratchpad\n",
    },
}
_KEY = re.compile(r"<!-- (\w+ [0-9a-f]{10}-\d)\b")
_RUN = re.compile(r"\b(?:reflect|consolidate|tidy|publish|sleep)-\d{8}-[0-9a-f]{6}\b")
_OBSERVED = re.compile(r"- \d{4}-\d\d-\d\dT\d\d:\d\dZ \| .* <!-- \w+ [0-9a-f]{10}-\d(?: directive)? -->\n")


# --- what is expected -------------------------------------------------------------------------------------------------


class Book:
    """What is kept in mind of a machine: who said what, when sessions ended, what was consolidated and written."""

    def __init__(self, machine: Machine) -> None:
        self.machine = machine
        self.ended: dict[str, int] = {}
        self.said: dict[str, set[str]] = {}
        self.last_ms = 0
        self.known: set[str] = set()
        self.promoted: set[str] = set()
        self.wrote = {path: text.splitlines() for path, text in PAGES[machine.root.name].items()}
        self.counted: Counter[str] = Counter()

    # --- gates

    def is_open(self, now_ms: int, own: str = "") -> bool:
        """Tell whether the gates of time and of sessions are open."""
        since = [key for key, ms in self.ended.items() if ms > self.last_ms and key != own]
        return (not self.last_ms or now_ms - self.last_ms >= 24 * HOUR_MS) and len(since) >= 5

    def check_stamp(self, *, was_done: bool) -> None:
        """Check the lock file: the time of the last consolidation moved where something was consolidated, else not."""
        text = self.machine.text(consolidation.LOCK)
        last = json.loads(text)["last_consolidated_at"] or 0 if text else 0
        if was_done:
            assert abs(last - self.machine.wall.ms) < 60_000
            self.counted["consolidations"] += 1
            self.last_ms = last
            index = self.machine.text(consolidation.INDEX)
            assert len(index.splitlines()) <= 200
            assert len(index.encode()) <= 25_000
        assert last == self.last_ms

    # --- sessions

    def played(self, sat: Sat, came: quarter.Played) -> None:
        """Check what a session's end did."""
        now_ms = self.machine.wall.ms
        if came.closed.log:
            self.ended[sat.key] = sat.end_ms // 1000 * 1000
        said = {text_of(line) for line in came.lines} | {each for part in came.told.values() for each in part}
        for text in said:
            self.said.setdefault(plain(text), set()).add(sat.key)
        done = came.closed.consolidated
        assert (done is not None) == self.is_open(now_ms, sat.key)
        self.counted["nothing to consolidate"] += done is not None and not done.run
        self.check_stamp(was_done=done is not None and bool(done.run))
        self.check_promoted(came.closed.suggested, sat.key)
        self.check_rows(sat.key)

    def check_promoted(self, done: consolidating._Suggestions, ending: str) -> None:
        """Check that what went into AGENTS.md by itself has three separate sessions, the last of which ends now."""
        waited = {each.body["item"] for each in self.items()}
        page, rules = self.machine.text(auto_reflect.FILE), self.machine.text(auto_reflect.AGENTS_FILE)
        for entry, run in done.promoted:
            row = next(line for line in page.splitlines() if run in line)
            sessions = row.split(" | ")[-1].partition(";")[0].split(", ")
            keys = {key for key in {*self.ended, ending} if key.rpartition(" ")[2] in sessions}
            assert len(keys) == len(set(sessions)) >= 3, row
            assert entry.item in waited or ending in keys or len(keys) == 5, row
            assert entry.item in rules
            assert ORDER.partition(": ")[2] not in entry.item
            self.promoted.add(plain(entry.item))
            self.counted["promoted by itself"] += 1

    def check_rows(self, ending: str = "") -> None:
        """Check that each new row has three separate sessions, the last of which ends now, and none is missing."""
        fresh = [each for each in self.items() if each.id not in self.known]
        assert ending or not fresh, "a sleep has no row that no session's end had"
        for each in fresh:
            said = [re.fullmatch(r"\S+ (\w+ \S+): (.*)", line) for line in each.evidence]
            keys = {match[1] for match in said if match}
            assert len(keys) >= 3, each
            assert keys <= {*self.ended, ending}
            assert ending in keys or len(each.evidence) == 10, each
            for match in filter(None, said):
                assert match[1] in self.said.get(plain(match[2]), ()), match[0]
            self.known.add(each.id)
            self.counted["rows"] += 1
        for text in (QUOTED, SPLIT, LATE, BUSY):
            is_there = plain(text) in self.promoted or any(
                plain(each.body["item"]) == plain(text) for each in self.items()
            )
            assert is_there == (len(self.said.get(plain(text), ())) >= 3), text

    def items(self) -> list[inbox.Item]:
        """Return the rows that ever were, as the inbox has them."""
        found = (each.item for agent in self.machine.agents for each in Inbox(self.machine.workspace, agent).entries())
        return [each for each in found if each.body.get("what") == "agents-md" and each.evidence]

    def slept(self, slept: sleeping.Slept, *, was_open: bool) -> None:
        """Check what a sleep did about the topics."""
        done = next((each for each in slept.phases if each.name == "consolidation"), None)
        assert not any(each.error for each in slept.phases), slept
        changed = done is not None and done.changed > 0
        assert was_open or not changed
        self.check_stamp(was_done=changed)
        self.check_rows()
        self.counted["sleeps"] += bool(slept.run)

    def migrate(self) -> None:
        """Move the scratchpad to daily logs and topics: the hours to the first consolidation count from then on."""
        assert consolidating.migrate(self.machine.workspace, self.machine.agents[0])[1]
        self.last_ms = self.last_ms or json.loads(self.machine.text(consolidation.LOCK))["last_consolidated_at"]

    # --- a person

    def write(self, path: str, line: str, behind: str = "") -> None:
        """Write a line into a file, as a person does: behind the first line that begins so, else at the end."""
        file = self.machine.root / path
        lines = file.read_text().splitlines(keepends=True)
        at = next((n + 1 for n, each in enumerate(lines) if behind and each.startswith(behind)), len(lines))
        file.write_text("".join([*lines[:at], f"{line}\n", *lines[at:]]))
        mine = self.wrote.setdefault(path, [])
        known = next((n + 1 for n, each in enumerate(mine) if behind and each.startswith(behind)), len(mine))
        mine.insert(known, line)

    def check_person(self) -> None:
        """Check that every line of a person's stands where it stood, and in its order."""
        for path, lines in self.wrote.items():
            there = iter(self.machine.text(path).splitlines())
            assert all(line in there for line in lines), path


def text_of(line: str) -> str:
    return line.partition(" | ")[2].rpartition(" <!--")[0]


def plain(text: str) -> str:
    return " ".join(re.findall(r"\w+", re.sub(r"^(?:Fixed|Workaround|Commit|Reused|Dead end): ", "", text).casefold()))


# --- the play ---------------------------------------------------------------------------------------------------------


@pytest.fixture
def corpus(shared: Path) -> Path:
    path = shared / "corpora/replay/sessions.jsonl"
    if not path.is_file():
        pytest.skip("no shared corpora of sessions here")
    return path


def planted(found: list[Sat]) -> None:
    """Have sessions say what nobody recorded: what recurs, and what only seems to; and three busy days."""
    east = [each for each in found if each.machine == "east"]
    west = [each for each in found if each.machine == "west"]
    late = [each for each in east if each.end_ms > BEGIN_MS + 50 * DAY_MS]
    hours = [
        Sat(BEGIN_MS + 80 * DAY_MS + at * 3 * HOUR_MS, "west", "kai", f"{at:010x}-0", [], [], []) for at in range(24)
    ]
    for each in hours[12:]:
        each.seen.append(Seen(each.end_ms - 1, "commit", f"Commit: tagged build {each.id}"))
    found += hours
    found.sort(key=lambda each: (each.end_ms, each.id))
    for text, said_by in (
        (BUSY, hours[:12]),
        (QUOTED, [east[1], east[4], east[9], east[12]]),
        (SPLIT, [east[2], east[5], west[1]]),
        (ORDER, [*east[3:8], *west[:4]]),
        (LATE, [late[0], late[2], late[5], *west[2:5]]),
    ):
        for each in said_by:
            kind = "fix" if text.startswith("Fixed") else "workaround"
            each.seen.extend(Seen(each.end_ms - ago, kind, text) for ago in (120_000, 60_000))


def a_persons_day(day: int, book: Book) -> None:
    """Have a person edit what fleet writes, too."""
    topic = next(iter(sorted(book.machine.root.glob(".agents/topics/*.md"))), None)
    if day == 6:
        book.write(".agents.local.md", "- no emoji", "- short answers")
        book.write("agents/velma/memory.md", "a second thought of mine", "my own")
    elif day == 27:
        book.write("AGENTS.md", "- gofmt is not golangci-lint", "- the linter")
        book.write(".agents/local.md", "A line of mine in the index.", "Pointers")
    elif day == 29 and topic is not None:
        book.write(topic.relative_to(book.machine.root).as_posix(), "A person knows why.", "It came up in")
    elif day == 48:
        page = book.machine.root / auto_reflect.FILE
        page.write_text(page.read_text().replace("promote=suggest", "promote=auto", 1))
        book.wrote[auto_reflect.FILE][0] = "<!-- auto-reflect: promote=auto -->"
    elif day == 70:
        book.write("AGENTS.md", "The last word is mine.")


def markdown(root: Path) -> dict[str, bytes]:
    """Return the Markdown files that runs write: append-only ones and what is rendered anew are not among them."""
    return {
        path.relative_to(root).as_posix(): path.read_bytes()
        for path in sorted([*root.rglob("*.md"), root / auto_reflect.FILE])
        if ".fleet" not in path.parts
        and path.name not in ("corrections.md", "patterns.md")
        and path.parent != root / ".agents/logs"
    }


def test_a_quarter_keeps_its_promises_and_is_undone_to_the_byte(corpus, tmp_path, monkeypatch):
    for name in [each for each in os.environ if each.startswith(("FLEET_", "CLAUDE", "GIT_", "REFLECTION_"))]:
        monkeypatch.delenv(name)
    monkeypatch.setenv("HOME", str(tmp_path))
    wall = quarter.Wall()
    found = quarter.sessions(corpus, EVERY)
    planted(found)
    books = {}
    for name, machine in quarter.machines(tmp_path, wall).items():
        for path, text in PAGES[name].items():
            machine.root.joinpath(path).parent.mkdir(parents=True, exist_ok=True)
            machine.root.joinpath(path).write_bytes(text.encode())
        books[name] = Book(machine)
    first = {name: markdown(book.machine.root) for name, book in books.items()}
    killed = day = 0
    for sat in [*found, None]:
        until = sat.end_ms if sat is not None else BEGIN_MS + quarter.DAYS * DAY_MS
        while (at_ms := BEGIN_MS + day * DAY_MS + 15 * HOUR_MS) < until:
            wall.ms = max(wall.ms, at_ms)
            a_persons_day(day, books["east"])
            if day == 60:
                books["west"].migrate()
            for book in books.values():
                if day % NIGHTS == 0 or book.is_open(at_ms):
                    killed = night(book, None if killed else tmp_path) or killed
            day += 1
        if sat is not None:
            wall.ms = max(wall.ms, sat.end_ms - 1)
            books[sat.machine].played(sat, books[sat.machine].machine.play(sat))
            books[sat.machine].check_person()
    assert killed > 3
    check_shared([book.machine for book in books.values()])
    for name, book in books.items():
        check_traces(book)
        told = {**book.counted, **Counter(run.kind for run in Runs(book.machine.workspace).listed())}
        print(f"{name}: {len(book.ended)} sessions logged, {told}")
        undo_all(book)
        check_as_before(book, first[name])
    print(f"killed at {killed} writes")


def night(book: Book, kill_in: Path | None) -> int:
    """Have a machine's agents sleep, and exchange; return how often a sleep was killed and run again."""
    machine, killed = book.machine, 0
    for agent in machine.agents:
        saved = kill_in / "saved" if kill_in and agent == "velma" and book.is_open(machine.wall.ms) else None
        if saved is not None:
            session = [key for key in book.ended if key.startswith("velma ")][-1].partition(" ")[2]
            for number in range(5):
                said = Correction("a step", "another one", f"Step {number} of the deploy broke yesterday")
                learning.correct(machine.workspace, "velma", said, session=session)
            shutil.rmtree(saved, ignore_errors=True)
            shutil.copytree(machine.root, saved, symlinks=True)
        began, was_open = machine.wall.ms, book.is_open(machine.wall.ms)
        slept = sleeping.sleep(machine.workspace, agent)
        book.slept(slept, was_open=was_open)
        if saved is not None and sum(len(each.runs) for each in slept.phases) > 1:
            killed = kill_everywhere(machine, saved, began)
    machine.exchange()
    book.check_person()
    return killed


def kill_everywhere(machine: Machine, saved: Path, began: int) -> int:
    """Kill a sleep, in copies of the checkout as it was; run again, each has the same end, and the same undo."""
    wanted, aside, now_ms = as_read(machine.root), machine.root.with_name("aside"), machine.wall.ms
    machine.root.rename(aside)
    before, at, number = as_read(saved), clock.nearest(began), 0
    for left in range(1, 10_000, KILLS):
        shutil.copytree(saved, machine.root, symlinks=True)
        machine.wall.ms = began
        child = os.fork()
        if child == 0:
            try:
                sleeping.sleep(machine.opened(Dying(machine.root, left)), "velma")
            finally:
                os._exit(0)
        if os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) != 99:
            break
        machine.wall.ms += 60_000
        machine.random.seed(left)  # or it draws what the one that was killed drew
        again = machine.opened()
        sleeping.sleep(again, "velma")
        assert as_read(machine.root) == wanted, left
        assert json.loads(again.files.read(machine.root / consolidation.LOCK))["locked_at"] is None
        for run in [
            each for each in Runs(again).listed() if each.kind in {sleeping.KIND, *sleeping.PARTS} and each.at >= at
        ]:
            if run.id not in Runs(again).undone():
                undoing.undo(again, run.id)
        assert as_read(machine.root) == before, left
        again.close()
        shutil.rmtree(machine.root)
        number += 1
    shutil.rmtree(machine.root)
    aside.rename(machine.root)
    machine.wall.ms = now_ms
    return number


def as_read(root: Path) -> dict[str, str]:
    """Return the Markdown files, whatever the runs in them are called."""
    return {path: _RUN.sub("RUN", data.decode()) for path, data in markdown(root).items()}


def check_traces(book: Book) -> None:
    """Check that each entry leads to the session that it came from."""
    machine, known = book.machine, {*book.ended}
    for name in (auto_reflect.FILE, *(f".agents/logs/{each.name}" for each in machine.root.glob(".agents/logs/*.md"))):
        text = machine.text(name)
        assert {*_KEY.findall(text)} <= known
        for line in text.splitlines(keepends=True):
            assert _OBSERVED.fullmatch(line) or not re.match(r"- \d{4}-\d\d-\d\dT", line), line
        for block in text.split("\n## Session ")[1:] if "logs" in name else ():
            assert _KEY.search(block), block
    for path in machine.root.glob(".agents/topics/*.md"):
        history = path.read_text().partition("## History")[2]
        said = re.findall(r"first seen\) <!-- (.+) -->|merged from session (.+)\)", history)
        assert len(said) > 1
        assert {one or other for one, other in said} <= known
    for agent in machine.agents:
        passes = {each.record.run: each.record.session for each in Records(machine.workspace, agent).passes()}
        page = f"agents/{agent}/memory.md"
        noted = [line for line in machine.text(page).splitlines() if line.startswith("- 20")]
        by_run = {
            line: f"{agent} {passes[run.id]}"
            for run in Runs(machine.workspace).listed()
            for edit in run.edits
            if edit.path == page and run.kind == "reflect"
            for line in (edit.after or b"").decode().splitlines()
            if line not in (edit.before or b"").decode().splitlines()
        }
        assert all(line in book.wrote.get(page, ()) or by_run.get(line) in known for line in noted), noted
        log = machine.text(f"agents/{agent}/corrections.md")
        assert log.count("\n## ") == len(re.findall(r" session=(\S+)", log))
        assert {f"{agent} {each}" for each in re.findall(r" session=(\S+)", log)} <= known


def check_shared(both: list[Machine]) -> None:
    """Check that the machines know the same lessons, of all three agents, once both have exchanged."""
    for machine in (*both, *both):
        machine.exchange()
    east, west = ({each.id: each.text for each in machine.workspace.patterns.lessons()} for machine in both)
    assert east == west
    found = {name for each in both[0].workspace.patterns.lessons() for name in each.loggers}
    assert found == {"velma", "tank", "kai"}


def undo_all(book: Book) -> None:
    """Take every run back, the newest first."""
    workspace, gone = book.machine.workspace, set[str]()
    for run in Runs(workspace).listed():
        if run.id not in gone:
            undoing.undo(workspace, run.id)
            gone = set(Runs(workspace).undone())


def check_as_before(book: Book, first: dict[str, bytes]) -> None:
    """Check that the files are the first day's, byte for byte, but for a person's later lines, and observations."""
    now = markdown(book.machine.root)
    assert not (book.machine.root / consolidation.BACKUP).exists()
    for path in {*now, *first}:
        kept = now.get(path, b"").decode()
        if path == auto_reflect.FILE:
            kept = "".join(line for line in kept.splitlines(keepends=True) if not _OBSERVED.fullmatch(line))
            kept = kept.removesuffix(f"\n## {auto_reflect.OBSERVATIONS}\n\n")
            kept = kept.replace("promote=auto", "promote=suggest") if book.machine.root.name == "east" else kept
        then = first.get(path, b"").decode()
        lines = kept.splitlines(keepends=True)
        for line in book.wrote.get(path, ()):
            if line not in then and "auto-reflect" not in line:
                lines.remove(f"{line}\n")
        assert "".join(lines) == then, path
