"""How many lessons have a word is kept for words that many have: always the number that counting them would give."""

import random
import sqlite3

import pytest

from fleet.keep import matching, often
from fleet.keep.index import PATTERN, Doc, Index

WORDS = [
    "token",
    "tokens",
    "cache",
    "caching",
    "Überprüfe",
    "uber",
    "naïve",
    "naive",
    "проверка",
    "проверки",
    "检查缓存",
    "密钥",
    "log",
    "logs",
    "v1.2",
    "e\u0301tat",
]


@pytest.fixture(autouse=True)
def _few_are_many(monkeypatch):
    monkeypatch.setattr(often, "OFTEN_MIN", 5)
    monkeypatch.setattr(often, "DOCUMENTS_MIN", 20)


def index_of(lessons) -> Index:
    index = Index(sqlite3.connect(":memory:", isolation_level=None))
    index.prepare()
    put(index, dict(enumerate(lessons)))
    return index


def put(index: Index, lessons: dict[int, str], gone=()) -> None:
    refs = [f"p-{number:03}" for number in (*lessons, *gone)]
    docs = [Doc(PATTERN, f"p-{number:03}", "", 0, said, "", "velma", "") for number, said in lessons.items()]
    with index.transaction():
        index.replace_refs(docs, refs)


def recount(index: Index) -> None:
    with index.transaction():
        often.recount(index.connection)


def kept(index: Index) -> dict[str, int]:
    return dict(index.connection.execute("SELECT beginning, documents FROM search_often"))


def some(rng: random.Random, count: int) -> list[str]:
    return [" ".join(rng.choices(WORDS, k=3)) for _ in range(count)]


@pytest.mark.parametrize("seed", range(8))
def test_what_is_kept_is_what_counting_gives_whatever_comes_and_goes(seed):
    rng = random.Random(seed)
    index = index_of(some(rng, 40))
    recount(index)
    before = kept(index)
    assert {"toke", "cach", "log", "пров"} <= before.keys(), f"seed {seed}"
    for _ in range(10):
        told = dict(zip(rng.sample(range(60), 6), some(rng, 6), strict=True))
        put(index, told, gone=[number for number in rng.sample(range(60), 3) if number not in told])
        assert kept(index) == {word: matching._count(index, word) for word in before}, f"seed {seed}"
    assert kept(index) != before


def test_a_page_that_changes_is_followed():
    index = index_of(["token cache log"] * 30)
    recount(index)
    sections = [Doc("journal", "", "agents/velma/JOURNAL.md", line, "token", "", "velma", "") for line in (1, 5)]
    for docs, wanted in ((sections, 32), (sections[:1], 31), ([], 30)):
        with index.transaction():
            index.replace_page("agents/velma/JOURNAL.md", docs)
        assert kept(index)["toke"] == wanted


def test_what_was_not_done_is_not_counted():
    index = index_of(["token cache log"] * 30)
    recount(index)
    index.connection.execute("BEGIN IMMEDIATE")
    index.replace_refs([], ["p-001"])
    assert kept(index)["toke"] == 29
    index.connection.rollback()
    assert kept(index)["toke"] == 30 == matching._count(index, "toke")


def test_what_few_lessons_have_or_nobody_would_look_for_is_not_kept():
    index = index_of([f"deployments at night{number}" for number in range(30)])
    recount(index)
    found = kept(index)
    assert found["deplo"] == found["deploym"] == 30  # two thirds of "deploy" and "deployment" and their forms
    assert found["nigh"] == 30
    assert found.keys().isdisjoint({"at", "deployments", "night1", "d"})


def test_it_is_counted_anew_once_there_are_twice_as_many():
    index = index_of(["token cache"] * 19)
    assert not often.is_due(index.connection)
    put(index, {19: "token cache"})
    assert often.is_due(index.connection)
    recount(index)
    assert not often.is_due(index.connection)
    put(index, dict.fromkeys(range(20, 39), "another secret"))
    assert not often.is_due(index.connection)
    assert "secr" not in kept(index)
    put(index, {39: "another secret"})
    assert often.is_due(index.connection)
    recount(index)
    assert kept(index)["secr"] == 20


@pytest.mark.parametrize("seed", range(4))
def test_candidates_and_weights_are_the_same_with_and_without_it(seed, monkeypatch):
    monkeypatch.setattr(matching, "COMMON_MIN", 30)
    rng = random.Random(seed)
    index = index_of(some(rng, 150))
    texts = some(rng, 10)
    counted = [matching.indexed(text, index).texts for text in texts]
    recount(index)
    asked, count = [], matching._count
    monkeypatch.setattr(matching, "_count", lambda tables, word: (asked.append(word), count(tables, word))[1])
    assert [matching.indexed(text, index).texts for text in texts] == counted, f"seed {seed}"
    assert "toke" not in asked
