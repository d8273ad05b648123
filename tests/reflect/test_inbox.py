"""The inbox: the same thing waits once, what was rejected stays out, and nothing is dropped that nobody saw."""

import pytest

from fleet.app import inbox as deciding
from fleet.app import learning, undoing
from fleet.learn.corrections_md import Correction
from fleet.model.errors import NoError
from fleet.reflect import inbox, memory_md
from fleet.reflect.inbox import Decision, Inbox, Item
from fleet.store import config
from fleet.store.runs import Runs
from fleet.store.workspace import Workspace, World
from fleet.text.similarity import Near

DAY = 86_400_000
NOW = 1_795_219_200_000  # 2026-11-21T00:00:00Z
TOKEN = "gh" + "p_" + "a1B2c3" * 6


class Clock:
    now = NOW

    def __call__(self) -> int:
        return self.now


@pytest.fixture
def clock():
    return Clock()


@pytest.fixture
def w(tmp_path, clock):
    (tmp_path / config.FILE_NAME).write_text("")
    workspace = Workspace(tmp_path, World(wall_ms=clock, durable=False))
    yield workspace
    workspace.close()


def put(w: Workspace, title: str, kind: str = "skill", **more) -> inbox._Put:
    return Inbox(w, "velma").put([Item(kind=kind, title=title, **more)])[0]


def waits(w: Workspace) -> list[str]:
    return [each.item.title for each in Inbox(w, "velma").waiting()]


def decide(w: Workspace, id_: str, said: str, **more) -> None:
    Inbox(w, "velma").decide([Decision(id=id_, outcome=said, **more)])


def test_the_same_thing_waits_once_whoever_puts_it_in_and_in_whatever_words(w):
    first = put(w, "Run the migrations before the tests")
    assert first.is_new
    for again in ("Run the migrations before the tests.", "Before the tests, run the migrations"):
        done = put(w, again)
        assert (done.id, done.is_new) == (first.id, False)
        assert first.id in done.why
    assert waits(w) == ["Run the migrations before the tests"]


def test_a_decision_names_its_own_run_though_the_clock_was_set_back_since_the_last_one(w, monkeypatch):
    learning.correct(w, "velma", Correction("w", "r", "Never force a push"), session="s")
    listed = Runs.listed
    [earlier] = [each.id for each in listed(Runs(w))]
    monkeypatch.setattr(Runs, "listed", lambda self: sorted(listed(self), key=lambda run: run.id != earlier))
    body = {"pattern": "Quote every path", "wrong": "w", "right": "r"}
    decision = deciding.approve(w, "velma", put(w, "Quote every path", "candidate", key="quote", body=body).id)
    assert decision.run not in ("", earlier)
    undoing.undo(w, decision.run)
    assert {each.text for each in w.patterns.records() if each.is_present} == {"Never force a push"}


def test_a_decision_names_its_own_run_though_another_process_logs_meanwhile(w, tmp_path, monkeypatch):
    correct = learning.correct

    def correct_twice(*given, **more):
        logged, other = correct(*given, **more), Workspace(tmp_path, w.world)
        correct(other, "velma", Correction("w", "r", "Never force a push"))
        other.close()
        return logged

    monkeypatch.setattr(learning, "correct", correct_twice)
    body = {"pattern": "Quote every path", "wrong": "w", "right": "r"}
    decision = deciding.approve(w, "velma", put(w, "Quote every path", "candidate", key="quote", body=body).id)
    undoing.undo(w, decision.run)
    assert {each.text for each in w.patterns.records() if each.is_present} == {"Never force a push"}


@pytest.mark.parametrize(
    ("kind", "name", "page", "method", "body"),
    [
        ("candidate", "memory.md", memory_md.Notes, "with_more", {"what": "note"}),
        ("candidate", "user-model.md", memory_md.UserModel, "with_observed", {"what": "person", "peer": "dev1"}),
        ("persona", "USER.md", Near, "same", {}),
    ],
)
def test_what_a_person_writes_while_a_note_is_taken_in_stays(w, monkeypatch, kind, name, page, method, body):
    item, file = put(w, "Quote every path", kind, body={"note": "Quote every path", **body}), w.home("velma") / name
    real, times = getattr(page, method), iter(range(9))

    def written_meanwhile(*given):
        if next(times) == 1:  # the first is the check
            file.write_text("my own line\n")
        return real(*given)

    monkeypatch.setattr(page, method, written_meanwhile)
    with pytest.raises(NoError, match="was changed just now; nothing was done"):
        deciding.approve(w, "velma", item.id)
    assert file.read_text() == "my own line\n"


@pytest.mark.parametrize(
    "again",
    [
        "Run the migrations before the tests",
        "run the migrations before the tests.",
        "Before the tests run the migrations",
        "Always run the migrations before running the tests",
        "Run migrations first, before the tests",
    ],
)
def test_what_was_rejected_does_not_come_back_in_other_words(w, again):
    first = put(w, "Run the migrations before the tests")
    decide(w, first.id, "rejected", why="we have no database")
    done = put(w, again)
    assert not done.is_new
    assert "we have no database" in done.why
    assert waits(w) == []


@pytest.mark.parametrize(
    "other",
    [
        "Run the migrations after the tests",
        "Never run the migrations before the tests",
        "Run the linter before a push",
        "Pin the version of every action",
    ],
)
def test_what_says_something_else_than_what_was_rejected_comes_in(w, other):
    decide(w, put(w, "Run the migrations before the tests").id, "rejected")
    assert put(w, other).is_new


def test_a_lesson_a_note_and_facts_about_two_persons_of_the_same_words_all_wait(w):
    note = {"note": "The mainframe reboots at midnight"}
    bodies = [{}, {"what": "note", **note}, *({"what": "person", "peer": peer, **note} for peer in ("ann", "bob"))]
    items = [
        Item(kind="candidate", title=f"{body.get('peer', '')} {note['note']}", body=body, run="reflect-1")
        for body in bodies
    ]
    assert [each.is_new for each in Inbox(w, "velma").put(items)] == [True] * 4
    assert len(waits(w)) == 4


def test_of_two_that_are_alike_in_one_reflection_the_second_is_not_counted_as_put_in(w):
    titles = ("Prefers dark mode in the terminal", "Prefers dark mode in a terminal")
    items = [Item(kind="persona", title=title, body={"note": title}, run="reflect-1") for title in titles]
    for _ in "a crash", "and again":
        first, second = Inbox(w, "velma").put(items)
        assert (first.is_new, second.is_new) == (True, False)
        assert first.id in second.why
    assert waits(w) == [titles[0]]


def test_an_answer_that_is_given_meanwhile_is_not_replaced_by_what_nobody_answered(w, clock):
    item = put(w, "Quote every path", until="2026-11-22")
    Inbox(w).show(Inbox(w).waiting())
    clock.now += 30 * DAY

    [overdue] = Inbox(w).overdue()
    decide(w, overdue.item.id, "rejected", why="we do not", run="decide-1")
    decide(w, item.id, "expired", why="its last day was 2026-11-28")
    decide(w, item.id, "elsewhere", why="it was decided there")
    [entry] = Inbox(w, "velma").entries()
    assert (entry.decision.outcome, entry.decision.why, entry.decision.run) == ("rejected", "we do not", "decide-1")


def test_a_no_to_a_plan_is_none_to_that_of_another_day_and_one_plan_waits_at_a_time(w):
    def planned(day: str) -> inbox._Put:
        title = "Tidying would change 2 of 5 notes of velma"
        return put(w, title, "plan", key=f"tidy velma 2026-11-{day}", body={"what": "tidy"})

    first = planned("21")
    assert planned("22").id == first.id
    decide(w, first.id, "rejected")
    assert not planned("21").is_new
    assert planned("22").is_new


def test_of_another_kind_the_same_words_are_another_thing(w):
    decide(w, put(w, "Prefers short answers", "persona").id, "rejected")
    assert put(w, "Prefers short answers", "candidate").is_new


@pytest.mark.parametrize("said", ["expired", "withdrawn", "elsewhere", "reopened"])
def test_what_nobody_said_no_to_may_come_again(w, said):
    first = put(w, "Run the migrations before the tests")
    decide(w, first.id, said)
    done = put(w, "Run the migrations before the tests")
    assert done.is_new == (said != "reopened")
    assert waits(w) == ["Run the migrations before the tests"]


def test_a_pair_that_is_asked_about_again_waits_again_whatever_was_said_before(w):
    first = put(w, "one lesson? a / b", "merge", key="p-1:p-2")
    decide(w, first.id, "rejected")
    assert put(w, "one lesson? a / b", "merge", key="p-1:p-2").is_new


def test_two_lessons_that_wait_for_a_memory_both_wait_however_alike_they_sound(w):
    said = "take into the memory: pin the version of every"
    for number, word in enumerate(("action", "image")):
        assert put(w, f"{said} {word}", "promotion", key=f"p-{number}", body={"lesson": f"p-{number}"}).is_new


def test_the_best_evidenced_comes_first_then_the_oldest(w, clock):
    put(w, "Pin the version of every action", weight=1)
    clock.now += 1000
    put(w, "Quote every variable", weight=3)
    put(w, "Never force push to main", weight=1)
    assert waits(w) == ["Quote every variable", "Pin the version of every action", "Never force push to main"]


def test_what_nobody_was_shown_never_expires_and_what_was_has_a_week(w, clock):
    put(w, "Run the migrations before the tests", until="2026-11-22")
    clock.now += 30 * DAY
    assert Inbox(w).overdue() == []
    Inbox(w).show(Inbox(w, "velma").waiting())
    clock.now += 7 * DAY
    assert Inbox(w).overdue() == []
    clock.now += DAY
    [overdue] = Inbox(w).overdue()
    assert overdue.item.title == "Run the migrations before the tests"
    decide(w, overdue.item.id, "expired")
    assert waits(w) == []
    assert Inbox(w).overdue() == []


def test_to_look_at_what_waits_waits_for_no_answer_that_is_being_given(w):
    w.writer("velma")
    put(w, "Run the migrations before the tests")
    with w.lock("decide"):  # flock: this process would wait for itself as well
        assert [each.item.title for each in deciding.listing(w).entries] == ["Run the migrations before the tests"]


def test_a_second_look_writes_nothing(w):
    put(w, "Run the migrations before the tests")
    Inbox(w).show(Inbox(w, "velma").waiting())
    before = (w.home("velma") / inbox.FILE_NAME).read_bytes()
    Inbox(w).show(Inbox(w, "velma").waiting())
    assert (w.home("velma") / inbox.FILE_NAME).read_bytes() == before


def test_it_tells_how_many_wait_since_when_and_how_long_decisions_take(w, clock):
    assert Inbox(w, "velma").count().summary() == ""
    ids = [put(w, title).id for title in ("Quote every variable", "Pin the version of every action", "Lint first")]
    clock.now += 2 * DAY
    put(w, "Prefers short answers", "persona")
    found = Inbox(w, "velma").count()
    assert (found.number, found.since, found.kinds) == (4, "2026-11-21", {"skill": 3, "persona": 1})
    assert "4 things wait" in found.summary()
    assert "(3 skills, 1 persona)" in found.summary()
    decide(w, ids[0], "approved")
    clock.now += 2 * DAY
    decide(w, ids[1], "rejected")
    clock.now += 6 * DAY
    decide(w, ids[2], "elsewhere")
    assert Inbox(w, "velma").days_to_decide() == (3, 4.0)


def test_no_secret_is_kept_in_it(w):
    put(w, "Use the token", body={"note": f"it is {TOKEN}", "more": [{"deep": TOKEN}]}, evidence=(TOKEN,))
    said = (w.home("velma") / inbox.FILE_NAME).read_text()
    assert TOKEN not in said
    assert said.count("[REDACTED:") == 3


@pytest.mark.parametrize(
    "spoil", [b'{"line":"item","kind":"sk', b"\xff\xfe\n", b"[[[[\n", b'{"line":"later","id":"i-1"}\n', b'{"line":1}\n']
)
def test_a_spoiled_line_harms_no_other(w, spoil):
    first = put(w, "Quote every variable")
    with (w.home("velma") / inbox.FILE_NAME).open("ab") as file:
        file.write(spoil)
    put(w, "Pin the version of every action")
    decide(w, first.id, "rejected")
    assert waits(w) == ["Pin the version of every action"]


def test_all_that_a_run_put_in_is_withdrawn_by_one_write(w, monkeypatch):
    for title in ("Quote every variable", "Pin the version of every action"):
        put(w, title, run="reflection-1")
    made, decided = list[int](), Inbox.decide
    monkeypatch.setattr(Inbox, "decide", lambda box, by: (made.append(len(by)), decided(box, by))[1])
    assert len(Inbox(w).undo("reflection-1", "undone")) == 2
    assert made == [2]


def test_an_undone_run_takes_out_what_it_put_in_and_brings_back_what_was_decided_by_it(w):
    put(w, "Quote every variable", run="reflection-1")
    mine = put(w, "Pin the version of every action").id
    decide(w, mine, "approved", run="decide-1")
    Inbox(w).undo("reflection-1", "undone")
    assert waits(w) == []
    Inbox(w).undo("reflection-1", "again", again=True)
    assert waits(w) == ["Quote every variable"]
    Inbox(w).undo("decide-1", "undone")
    assert len(waits(w)) == 2
    Inbox(w).undo("decide-1", "again", again=True)
    assert waits(w) == ["Quote every variable"]
