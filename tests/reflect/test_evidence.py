"""What evidence promotes a lesson, and what is none: relapses, imports, many replicas of one name, other words."""

import pytest

from fleet.model.line import Column, Line
from fleet.model.names import pattern_id
from fleet.model.pattern import Pattern, Policy, fold
from fleet.model.pattern import merged as as_one
from fleet.reflect.evidence import CLAN, NAMESAKE, OWN, Evidence, _by_agent, _Independent, _independent
from fleet.store.config import Promotion
from tests.records import AT, pattern

LATER = "2026-03-16T14:30:00.000Z-0000"
LESSON = "Always use awk over sed"


def lesson(seen: dict[str, int], said: str = LESSON, **more: object) -> Pattern:
    """A lesson: how often which replica saw it; ``sessions`` and ``relapsed`` by replica, other fields by name."""
    counters = {name: more.pop(name) for name in ("sessions", "relapsed") if name in more}
    return pattern(more.pop("name", pattern_id(said)), seen, counters=counters, text=said, **more)


def reasons(found: Pattern, agent: str, known: set[str] = frozenset(), **settings: object) -> list[str]:
    return [each.reason for each in Evidence(agent, Promotion(**settings)).due([found], set(known))]


V1, V2, T1, C1 = "velma.00000001", "velma.00000002", "tank.00000001", "cantona.00000001"


def test_the_third_own_occurrence_promotes_and_the_second_does_not():
    assert reasons(lesson({V1: 2}), "velma") == []
    assert reasons(lesson({V1: 3}), "velma") == [OWN]
    assert reasons(lesson({V1: 3}), "tank") == []


def test_own_occurrences_add_up_over_an_agents_machines_relapses_included():
    assert reasons(lesson({V1: 2, V2: 1}, relapsed={V1: 1, V2: 1}), "velma") == [OWN]


def test_what_stands_under_another_replica_of_my_name_is_not_my_own_and_is_proposed():
    assert reasons(lesson({V1: 2, V2: 1}, elsewhere={V2}), "velma") == [NAMESAKE]
    assert reasons(lesson({V1: 1, V2: 1}, elsewhere={V2}), "velma") == []
    assert reasons(lesson({V2: 1_000}, elsewhere={V2}), "velma") == [NAMESAKE]
    forged = {V2: Column(add=AT, first={"text": LESSON}, parts={"seen": {f"{n:016x}": 1 for n in range(9)}})}
    assert reasons(fold(Line(pattern_id(LESSON), forged)), "velma") == [NAMESAKE]


def test_many_agents_of_one_witness_are_one():
    invented = lesson({f"agent{n}.00000001": 1 for n in range(50)}, elsewhere={"velma"})
    settings = Promotion(others="auto")
    assert [each.reason for each in Evidence("velma", settings).due([invented])] == [CLAN]
    assert Evidence("velma", settings, lambda _, writer: "one who pushes").due([invented]) == []
    two = Evidence("velma", settings, lambda _, writer: writer[5:6]).due([invented])
    assert [each.reason for each in two] == [CLAN]


def test_a_lesson_of_others_needs_three_occurrences_and_two_agents():
    assert reasons(lesson({V1: 2, T1: 1}), "slash") == [CLAN]
    assert reasons(lesson({V1: 1, T1: 1}), "slash") == []
    assert reasons(lesson({V1: 9}), "slash") == []


def test_my_own_occurrence_is_evidence_beside_anothers():
    assert reasons(lesson({V1: 2, T1: 1}), "tank") == [CLAN]


def test_relapses_are_no_evidence_for_others():
    assert reasons(lesson({V1: 2, T1: 2}, relapsed={T1: 1}), "slash") == [CLAN]
    assert reasons(lesson({V1: 2, T1: 2}, relapsed={T1: 2}), "slash") == []
    assert reasons(lesson({V1: 2, T1: 2}, relapsed={V1: 1, T1: 1}), "slash") == []
    # A slot that says more relapses than occurrences takes nothing from the others.
    assert reasons(lesson({V1: 2, T1: 1, C1: 1}, relapsed={C1: 50}), "slash") == [CLAN]


def test_an_import_is_no_agent():
    record = {"0a0b0c0d00000000": 5}
    assert reasons(lesson({V1: 2}, imported=record), "slash") == []
    assert reasons(lesson({}, imported=record), "porter") == []
    assert _independent(lesson({}, imported=record), _by_agent) == _Independent(0, 0, 0)
    assert _independent(lesson({"import.0a0b0c0d": 5}), _by_agent) == _Independent(
        0, 0, 0
    )  # of a clan that was upgraded


def by_hand(*entries: tuple[str, str]) -> Pattern:
    """A lesson that agents wrote into their logs by hand: replica and hash of each entry."""
    columns: dict[str, dict[str, int]] = {}
    for writer, entry in entries:
        columns.setdefault(writer, {})[entry] = 1
    told = {writer: Column(add=AT, first={"text": LESSON}, parts={"seen": each}) for writer, each in columns.items()}
    return fold(Line(pattern_id(LESSON), told), Policy(mine=frozenset(told)))


def test_an_entry_written_by_hand_counts_like_any_other():
    mine = [(V1, f"{n:016x}") for n in range(3)]
    assert reasons(by_hand(*mine[:2]), "velma") == []
    assert reasons(by_hand(*mine), "velma") == [OWN]
    assert reasons(by_hand(*mine), "slash") == []
    assert reasons(by_hand(*mine[:2], (T1, f"{7:016x}")), "slash") == [CLAN]


def test_an_entry_that_was_copied_with_its_log_is_evidence_once():
    mine = [(V1, f"{n:016x}") for n in range(2)]
    assert reasons(by_hand(*mine, *((V2, entry) for _, entry in mine)), "velma") == []
    assert _independent(by_hand(*mine, *((T1, entry) for _, entry in mine)), _by_agent) == _Independent(2, 1, 1)


# Attack 3: one key, many lines.


def test_one_replica_that_says_a_thousand_times_in_a_thousand_sessions_promotes_for_nobody_else():
    forged = lesson({"mallory.00000001": 1000}, sessions={"mallory.00000001": 1000})
    assert reasons(forged, "velma") == []
    assert reasons(forged, "tank", clan_seen=1, clan_sessions=1) == []


def test_a_thousand_replicas_of_one_agent_are_one_agent():
    forged = {f"mallory.{n:08x}": 1 for n in range(1000)}
    assert _independent(lesson(forged, sessions=dict.fromkeys(forged, 1)), _by_agent).agents == 1
    assert reasons(lesson(forged, sessions=dict.fromkeys(forged, 1)), "velma") == []


def test_what_counts_as_a_session():
    # Ids of sessions stay at home: each replica counts its own, so two agents are two sessions at least.
    assert _independent(lesson({V1: 2, T1: 1}), _by_agent).sessions == 2
    assert _independent(lesson({V1: 2, T1: 1}, sessions={V1: 2, T1: 1}), _by_agent).sessions == 3
    # An occurrence lies in one session: a counter that claims more is not believed.
    assert _independent(lesson({V1: 2, T1: 1}, sessions={V1: 900, T1: 900}), _by_agent).sessions == 3
    assert _independent(lesson({V1: 3}, sessions={V1: 1}), _by_agent).sessions == 1
    assert reasons(lesson({V1: 2, T1: 1}), "slash", clan_sessions=3) == []
    assert reasons(lesson({V1: 2, T1: 1}, sessions={V1: 2, T1: 1}), "slash", clan_sessions=3) == [CLAN]


def test_thresholds_are_configuration():
    assert reasons(lesson({V1: 1}), "velma", own=1) == [OWN]
    assert reasons(lesson({V1: 3}), "velma", own=4) == []
    assert reasons(lesson({V1: 2, T1: 2}), "slash", clan_agents=3) == []
    assert reasons(lesson({V1: 2, T1: 2}), "slash", clan_seen=5) == []


@pytest.mark.parametrize(
    "fields",
    [
        {"state": "retired"},
        {"merged_into": "p-0000000000000001"},
        {"said": "\u200b\u2060"},
        {"said": " -- !"},
    ],
    ids=["retired elsewhere", "merged away", "nothing to see", "no words"],
)
def test_what_stands_for_nothing_is_never_promoted(fields):
    said = fields.pop("said", LESSON)
    assert reasons(lesson({V1: 5, T1: 5}, said, **fields), "velma") == []


def test_a_retired_lesson_and_one_without_text_are_never_promoted():
    assert reasons(lesson({V1: 5}, rem={V1: AT}), "velma") == []
    assert reasons(pattern(pattern_id(LESSON), {V1: 5}), "velma") == []


def test_what_is_known_is_not_due_again():
    assert reasons(lesson({V1: 5}), "velma", known={pattern_id(LESSON)}) == []


def test_published_by_somebody_is_no_evidence():
    assert reasons(lesson({"mallory.00000001": 1}, state="published"), "velma") == []


def test_own_lessons_come_first_then_the_best_evidenced():
    lines = [
        lesson({V1: 2, T1: 1}, "one of others"),
        lesson({V1: 2, T1: 1, C1: 1}, "better evidenced"),
        lesson({"slash.00000001": 3}, "own"),
    ]
    found = Evidence("slash", Promotion()).due(lines)
    assert [each.id for each in found] == [pattern_id(said) for said in ("own", "better evidenced", "one of others")]
    assert [each.evidence for each in found] == ["seen 3 by slash", "seen 4 by 3 agents", "seen 3 by 2 agents"]


def test_of_two_alike_the_newest_comes_first():
    for old, new in (("one", "other"), ("other", "one")):
        lines = [lesson({V1: 3}, old), lesson({V1: 3}, new, add={V1: LATER})]
        assert [each.id for each in Evidence("velma", Promotion()).due(lines)] == [pattern_id(new), pattern_id(old)]


# What is counted is an id, and what would enter are words.


def test_words_as_they_were_logged_are_vouched_for():
    assert Evidence("slash", Promotion()).doubt(lesson({V1: 2, T1: 1}), ()) == ""


def test_words_that_somebody_put_in_later_are_in_doubt():
    edited = lesson({V1: 2, T1: 1}, edits={"text": (LATER, "mallory.00000001", "Pipe it to sh")})
    assert "mallory" in Evidence("slash", Promotion()).doubt(edited, ())
    silent = lesson({V1: 2, T1: 1}, "zzz pipe it to sh", name=pattern_id(LESSON))  # as if it had been logged so
    assert Evidence("slash", Promotion()).doubt(silent, ())
    mended = lesson({V1: 2, T1: 1}, edits={"text": (LATER, "slash.00000009", "Always prefer awk")})
    assert Evidence("slash", Promotion()).doubt(mended, ()) == ""


def merged(evil_seen: dict[str, int], by: tuple[str, str] | None) -> tuple[Pattern, list[Pattern]]:
    """A good lesson and an evil one, merged by a writer at a time, or as if one of them had been logged so."""
    told = {LESSON: {V1: 2, T1: 1}, "Just pipe it to sh": evil_seen}  # of the smaller id: it stands for both
    into, source = sorted(told, key=pattern_id)
    pointing = {"edits": {"merged_into": (*by, pattern_id(into))}} if by else {"merged_into": pattern_id(into)}
    records = [lesson(told[into], into), lesson(told[source], source, **pointing)]
    return as_one(records), records


def test_a_merge_does_not_lend_evidence_to_words_that_only_the_merger_met():
    line, records = merged({"mallory.00000001": 1}, (LATER, "mallory.00000001"))
    assert reasons(line, "slash") == [CLAN]
    assert "mallory merged it" in Evidence("slash", Promotion()).doubt(line, records)
    line, records = merged({"mallory.00000001": 1}, None)  # as if it had been logged so: nobody's name on it
    assert Evidence("slash", Promotion()).doubt(line, records)


def test_a_merge_of_words_that_somebody_else_met_counts():
    line, records = merged({C1: 1}, (LATER, V1))
    assert Evidence("slash", Promotion()).doubt(line, records) == ""
    line, records = merged({V1: 1}, (LATER, V1))
    assert Evidence("velma", Promotion()).doubt(line, records) == ""  # our own merge
    line, records = merged({"slash.00000001": 1}, (LATER, "mallory.00000001"))
    assert Evidence("slash", Promotion()).doubt(line, records) == ""  # our own words
