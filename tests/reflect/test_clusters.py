"""Clusters: the same lessons in any order give the same ones, nothing that differs is joined, a flood costs no more."""

import random
from itertools import combinations

import msgspec
import pytest

from fleet.model.names import pattern_id
from fleet.model.pattern import Pattern
from fleet.reflect import clusters
from fleet.reflect.clusters import MEMBERS_MAX, PARTNERS_MAX, Clusters, Comparison, _Pair, same_text_among
from fleet.text.similarity import ParsedText

AWK = "Always use awk over sed for user-provided input substitution"
AGAIN = "Prefer awk to sed when user input is substituted into a template"
THIRD = "Use awk over sed to substitute user input"


def lesson(said: str, seen: int = 1, writer: str = "velma.00000001") -> Pattern:
    stamp = "2026-11-20T22:30:00.123Z-0000"
    return Pattern(
        id=pattern_id(said),
        fields={"text": said},
        adds={writer: stamp},
        live={writer: stamp},
        totals={"seen": {writer: seen}},
        mine=frozenset({writer}),
        at=stamp,
    )


def among(lessons: list[Pattern], *more, **told) -> Clusters:
    known = {each.id: each for each in lessons if each.is_listed}
    return Clusters.among({each.id: each.text for each in known.values()}, lambda _: known, *more, **told)


def test_the_same_lessons_in_any_order_give_the_same_clusters():
    known = [lesson(said) for said in (AWK, AGAIN, THIRD, "Quote every path", "Never quote a path", "Quote any path")]
    first = among(known)
    for seed in range(10):
        shuffled = random.Random(seed).sample(known, len(known))
        assert among(shuffled) == first


def test_what_was_compared_before_changes_no_cluster():
    said = [AWK, AGAIN, THIRD, "Quote every path", "Never quote a path", "Quote any path", "Pin every version", ""]
    rng, known = random.Random(7), Comparison()
    for _ in range(30):
        some = [lesson(each, at) for at, each in enumerate(rng.sample(said, rng.randint(0, len(said))), 1)]
        pairs = combinations(sorted(each.id for each in some), 2)
        near = {pair: rng.random() for pair in pairs if rng.random() < 0.3}
        assert among(some, near, last=known) == among(some, near)
        assert len(known.close) <= len(some) * (len(some) - 1)
        known = msgspec.json.decode(msgspec.json.encode(known), type=Comparison)


@pytest.mark.parametrize(
    ("one", "other"),
    [
        ("Use tabs for indentation, spaces only where code already uses spaces",
         "Use spaces for indentation, tabs only where code already uses tabs"),
        ("Send results to stdout and the rest to stderr", "Send results to stderr and the rest to stdout"),
        ("Read the first error in the log before the last one", "Read the last error in the log before the first one"),
        ("Comments explain why, not what", "Comments explain what, not why"),
        ("Retry three times before giving up", "Retry five times before giving up"),
        ("Run ANALYZE after a bulk load", "Run VACUUM after a bulk load"),
        ("Always run the migration by hand", "Never run the migration by hand"),
        ("Pin the action to version 1.2", "Pin the action to version 1.3"),
        ("先更新数据库，再删除缓存", "先删除缓存，再更新数据库"),
        ("Return 404 for missing and 403 for forbidden", "Return 403 for missing and 404 for forbidden"),
        ("Return 404 for missing and 403 for forbidden", "Return 403 for missing, 404 for forbidden"),
        ("The freeze begins on 2026-10-12", "The freeze begins on 2026-12-10"),
        ("Start the job at 03:00 and stop it at 04:00", "Start the job at 04:00 and stop it at 03:00"),
        ("Use python 3.11 for the build and 3.12 for tests", "Use python 3.12 for the build and 3.11 for tests"),
        ("Shard number 11 was moved on 2026-11-30", "Shard number 30 was moved on 2026-11-30"),
        ("Keep secrets in the vault", "Keep secrets out of the vault"),
        ("Log in before the test", "Log out before the test"),
        ("Everybody may deploy on Fridays", "Nobody may deploy on Fridays"),
        ("You may deploy on Fridays", "You must deploy on Fridays"),
        ("Always close the file", "Close the file once"),
        ("Use HTTPS in the internal network", "Use HTTP in the internal network"),
        ("Upload the build by FTP", "Upload the build by FTPS"),
        ("Write small tools in Go", "Write small tools in Rust"),
        ("Use GET for the health endpoint", "The health endpoint is for POST"),
        ("Host the data in the EU region", "Host the data in the US region"),
        ("Push to main", "Push to main only after a review"),
        ("Push to main", "Push to main, but only after a review"),
        ("Merge the pull request", "Merge the pull request unless the author objects"),
        ("Delete the staging database", "Delete a copy of the staging database"),
        ("Run all scripts as root", "Run all scripts as root except migrations"),
        ("Patch a name where it is looked up, not where it is defined",
         "Patch a name where it is defined, not where it is looked up"),
    ],
)  # fmt: skip
def test_what_differs_is_never_joined_however_close_its_meaning_is(one, other):
    ids = tuple(sorted((pattern_id(one), pattern_id(other))))
    assert among([lesson(one), lesson(other)], {ids: 0.99}).groups == ()


@pytest.mark.parametrize(
    ("one", "other"),
    [
        ("In tests, mock the clock instead of sleeping", "Mock the clock in tests instead of sleeping"),
        ("Never force-push to main, open a pull request", "Open a pull request, never force-push to main"),
        ("Run the unit tests before every commit", "Before every commit, run the unit tests"),
        ("With a timeout of 5 seconds, retry 3 times", "Retry 3 times with a timeout of 5 seconds"),
        ("Every API call should have a timeout", "Each API call must have a timeout"),
    ],
)
def test_a_part_that_stands_elsewhere_makes_no_other_lesson(one, other):
    found = among([lesson(one), lesson(other)])
    assert (len(found.groups), found.opposed) == (1, ())


@pytest.mark.parametrize(
    "text",
    ["Never run the tests before you download the helper from the mirror", "多个作业同时写共享文件，并发读者解析失败"],
)
def test_no_text_differs_from_itself(text):
    one, other = ParsedText.of([text, text])
    assert (one.differences(other), one.is_doubtful(other), one.is_part(other)) == ((), False, False)


def test_a_wording_that_was_logged_here_speaks_however_often_another_was_used():
    mine = lesson(AWK)
    theirs = msgspec.structs.replace(lesson(AGAIN, 9, "tank.00000002"), mine=frozenset({"velma.00000001"}))
    assert among([mine, theirs]).groups == ((mine.id, theirs.id),)


def test_a_pair_that_somebody_called_two_lessons_is_neither_joined_nor_asked_about():
    known = [lesson(AWK), lesson(AGAIN)]
    assert among(known).groups
    found = among(known, apart={tuple(sorted(each.id for each in known))})
    assert found == among([])


def test_the_most_used_wording_speaks_and_in_a_memory_the_most_used_of_the_own():
    mine, theirs = lesson(AWK, 2), lesson(AGAIN, 9, "tank.00000002")
    [group] = among([mine, theirs]).groups
    assert group == (theirs.id, mine.id)
    members = [theirs, mine]
    assert (Clusters.as_one(members).text, Clusters.as_one(members).count("seen")) == (AGAIN, 11)
    assert Clusters.as_one(members, "velma").text == AWK


def test_a_wording_that_is_gone_since_leaves_the_others_as_they_are():
    mine, gone = lesson(AWK), lesson(AGAIN)
    found = among([mine, gone])
    [shown] = found.grouped([mine], lambda _: {mine.id: mine})
    assert (shown.lesson, shown.wordings) == (mine, ())


def test_a_lesson_that_contradicts_two_wordings_of_another_is_named_once():
    both = [lesson("Use pnpm to install the packages here"), lesson("Use pnpm to install packages here")]
    turned = lesson("Never use pnpm to install packages here")
    known = {each.id: each for each in (*both, turned)}
    [shown] = [each for each in among([*both, turned]).grouped(known.values(), lambda _: known) if each.wordings]
    assert shown.opposites == (turned.id,)


def test_of_several_opposites_the_closest_is_named_first():
    found = Clusters(opposed=(_Pair("p-3", "p-9", 0.9), _Pair("p-3", "p-5", 0.8)))
    assert found.opposites(["p-3"]) == ("p-9", "p-5")


def test_each_text_is_compared_with_those_that_share_most_of_its_words_and_a_third_of_them():
    rng = random.Random(3)
    texts = [frozenset(rng.choices("abcdefghij", k=rng.randint(0, 9))) for _ in range(120)]
    compared = set()
    for at, mine in enumerate(texts):
        shared = {other: len(mine & theirs) for other, theirs in enumerate(texts) if other != at}
        ranked = sorted((other for other in shared if shared[other] * 3 >= len(mine)), key=lambda each: -shared[each])
        compared |= {(min(at, other), max(at, other)) for other in ranked[:PARTNERS_MAX] if shared[other]}
    assert set(clusters._partners(texts)) == compared


def test_in_a_flood_of_lessons_that_are_nearly_the_same_each_is_compared_with_a_few(monkeypatch):
    scored = 0
    score = ParsedText.score

    def counted(*of):
        nonlocal scored
        scored += 1
        return score(*of)

    monkeypatch.setattr(ParsedText, "score", counted)
    flood = [
        lesson(f"Check the token{number} of the deploy script before it runs on staging") for number in range(2_000)
    ]
    found = among(flood)
    assert scored <= PARTNERS_MAX * len(flood)
    assert all(len(group) <= MEMBERS_MAX for group in found.groups)


@pytest.mark.parametrize(
    "said", ["", "\0", "`" * 5_000, "a" * 8_000, "再" * 2_000, "not " * 1_000, "1 " * 2_000, "-- ()[]"]
)
def test_no_text_can_hinder_the_others(said):
    known = [lesson(AWK), lesson(AGAIN)]
    assert among([*known, lesson(said)]).groups == among(known).groups


def test_a_text_is_counted_for_a_known_one_only_where_nothing_that_matters_differs():
    known = ["Always run make test before a commit", "Never use eval on user input"]
    assert same_text_among(known, "Never use exec on user input") is None
    assert same_text_among(known, "ok remember: always run the linter before you commit") is None
    assert same_text_among(known, "You should never use eval on user input") == 1
