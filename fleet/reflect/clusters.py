"""Clusters: lessons that say the same in other words, grouped while evidence is weighed.

Records and ids stay as they are: a cluster is a view, and the most-used wording speaks for it. Two wordings belong
together when their words, and where lessons have embeddings their meaning, are close and nothing differs that matters;
a cluster holds only wordings of which every two do (complete link). What is likely and not certain, and what says the
opposite, is for a person or an agent to decide.

The same lessons in any order give the same clusters. They are compared all at once, at most ``LESSONS_MAX``, so the
cost has a bound: of a larger clan the agents' own newest lessons and the best-evidenced ones.

What several sessions said is grouped alike (``Recurrence``). They are told apart by id. Where a page does not name
them, those of one day are counted by the time that lies between observations or by the entries of the log, whichever
are more, and not at all on a day of a session that is named: the same session may have written both.
"""

import json
from collections import Counter
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from contextlib import suppress
from hashlib import blake2b
from itertools import combinations, islice
from typing import Any, NamedTuple

from fleet.model.errors import FleetError
from fleet.model.names import normalise
from fleet.model.pattern import Pattern, merged
from fleet.reflect.observations import Statement, category_of, is_directive, without_label
from fleet.store.database import TROUBLE, get_meta, set_meta
from fleet.store.query import Patterns
from fleet.store.semantic import EMBEDDED, Embeddings
from fleet.store.workspace import Workspace
from fleet.text.similarity import PARTNERS_MAX, Alike, Compared, alike, is_stop

LESSONS_MAX = 2_000
MEMBERS_MAX = 24
"""A cluster holds at most so many wordings: a flood of them is no better evidence."""
JOIN_MIN = 0.65
"""Closeness from which on two wordings say the same, where nothing differs that matters."""
NEARLY_MIN = 0.45
"""The same where their meaning is close, too."""
MEANING_MIN = 0.75
"""Cosine from which on meaning is that close."""
COUNTED_MIN = 0.85
"""Closeness from which on a lesson that no agent stated is counted for a known one: that is told to all, for good."""
LIKELY_MIN = 0.55
"""Closeness from which on somebody is asked."""
ASKED_MAX = 50
"""So many pairs are kept for a review, the closest first."""

_META, _COMPARED = "clusters", "compared"
_KEEP_WAIT_S = 1.0


class _Pair(NamedTuple):
    """Two lessons by their ids, the smaller first, how close they are, and what differs between them."""

    one: str
    other: str
    score: float
    differs: tuple[str, ...] = ()

    @property
    def ids(self) -> tuple[str, str]:
        """Both ids."""
        return self.one, self.other


class Clusters(NamedTuple):
    """Result of comparing lessons.

    Attributes:
        groups: ids of the lessons of each cluster of two or more, the one that speaks for it first.
        likely: pairs that may be one lesson, the closest first.
        opposed: pairs that say the opposite of each other, the closest first.
    """

    groups: tuple[tuple[str, ...], ...] = ()
    likely: tuple[_Pair, ...] = ()
    opposed: tuple[_Pair, ...] = ()

    @classmethod
    def among(
        cls,
        words: Mapping[str, str],
        look: Callable[[str], Pattern | None],
        cosines: Mapping[tuple[str, str], float] = {},
        apart: Collection[tuple[str, str]] = frozenset(),
        known: Compared | None = None,
    ) -> "Clusters":
        """Return the clusters of lessons, and the pairs that somebody should look at.

        ``words``: of the lessons by their ids, each merged set as one.
        ``look``: returns a lesson; asked of those in clusters alone.
        ``apart``: pairs of ids, the smaller first, of which somebody said that they are two lessons.
        ``known``: what was compared before; afterwards what is compared now.
        """
        ids = sorted(words)
        number = {each: at for at, each in enumerate(ids)}
        also = [(number[one], number[other]) for one, other in cosines if one in number and other in number]
        sure, likely, opposed = list[_Pair](), list[_Pair](), list[_Pair]()
        for each in alike([words[each] for each in ids], also, known=known):
            pair = _Pair(ids[each.one], ids[each.other], each.score, each.differs)
            if pair.ids in apart:
                continue
            if each.is_turned:
                opposed.append(pair)
            elif _say_the_same(each, cosines.get(pair.ids, 0.0)):
                sure.append(pair)
            elif not each.differs and (each.score >= LIKELY_MIN or cosines.get(pair.ids, 0.0) >= MEANING_MIN):
                likely.append(pair)
        groups = _complete_link(sorted(sure, key=_closest_first))
        together = {ids for group in groups for ids in combinations(sorted(group), 2)}
        asked = sorted((each for each in (*sure, *likely) if each.ids not in together), key=_closest_first)
        spoken = tuple(sorted(_ranked_ids(group, look) for group in groups))
        return cls(spoken, tuple(asked[:ASKED_MAX]), tuple(sorted(opposed, key=_closest_first)[:ASKED_MAX]))

    @staticmethod
    def spoken_for(members: Sequence[Pattern], agent: str = "") -> Pattern:
        """Return a cluster as one lesson: its evidence added up, in the words that are used most.

        For an agent's memory that is the most used of the words that it logged itself: what others say they count for
        nothing there.
        """
        own = (each for each in members if agent and each.seen_by(agent))
        return merged(members, next(own, members[0]))

    def of(self, pattern_id: str) -> tuple[str, ...]:
        """Return the ids of the cluster that a lesson belongs to: its own alone, when there is none."""
        return next((group for group in self.groups if pattern_id in group), (pattern_id,))

    def opposite(self, ids: Collection[str]) -> str:
        """Return the id of a lesson that says the opposite of one of these, "" for none."""
        return next((b if a in ids else a for a, b, *_ in self.opposed if a in ids or b in ids), "")

    def grouped(self, lessons: Iterable[Pattern], look: Callable[[str], Pattern | None]) -> "list[Wordings]":
        """Return lessons with each cluster as one, where the first of its wordings stood."""
        opposites: dict[str, tuple[str, ...]] = {}
        for one, other, *_ in self.opposed:
            opposites[one] = (*opposites.get(one, ()), other)
            opposites[other] = (*opposites.get(other, ()), one)
        groups = {each: group for group in self.groups for each in group}
        done, found = set[str](), list[Wordings]()
        for each in lessons:
            if each.id in done:
                continue
            known = (look(other) if other != each.id else each for other in groups.get(each.id, ()))
            wordings = sorted((one for one in known if one is not None and one.is_listed), key=_rank)
            done |= {one.id for one in wordings}
            against = dict.fromkeys(other for one in wordings or [each] for other in opposites.get(one.id, ()))
            whole = self.spoken_for(wordings) if len(wordings) > 1 else each
            found.append(Wordings(whole, tuple(wordings) if len(wordings) > 1 else (), tuple(against)))
        return found


NOT_COMPARED = Clusters()
"""Of lessons that nobody compared."""


def same_text_among(texts: Sequence[str], text: str) -> int | None:
    """Return the number of the text that surely says the same as another one, by their words; None for none."""
    pairs = alike((*texts, text), least=COUNTED_MIN, among=tuple((at, len(texts)) for at in range(len(texts))))
    sure = [each for each in pairs if _say_the_same(each, 0.0)]
    return max(sure, key=lambda each: (each.score, -each.one)).one if sure else None


def _closest_first(pair: _Pair) -> tuple[float, str, str]:
    return -pair.score, pair.one, pair.other


def _say_the_same(pair: Alike, cosine: float) -> bool:
    """Return whether two texts say the same: by their words, or by fewer of them and their meaning."""
    if pair.differs or pair.is_replaced:
        return False
    return pair.score >= JOIN_MIN or (pair.score >= NEARLY_MIN and cosine >= MEANING_MIN)


def _complete_link(pairs: Sequence[_Pair]) -> list[set[str]]:
    """Return the groups by complete link, the closest pairs first: each two of a group are among the pairs."""
    joined = {each.ids for each in pairs}
    group_of: dict[str, set[str]] = {}
    for one, other, *_ in pairs:
        mine, theirs = group_of.get(one, {one}), group_of.get(other, {other})
        if mine is theirs or len(mine) + len(theirs) > MEMBERS_MAX:
            continue
        if all((min(a, b), max(a, b)) in joined for a in mine for b in theirs):
            mine = mine | theirs
            group_of |= dict.fromkeys(mine, mine)
    return list({id(group): group for group in group_of.values()}.values())


def _ranked_ids(group: Iterable[str], look: Callable[[str], Pattern | None]) -> tuple[str, ...]:
    """Return the ids of a cluster, the one that speaks for it first."""
    found = (lesson for each in group if (lesson := look(each)) is not None)
    return tuple(each.id for each in sorted(found, key=_rank))


def _rank(lesson: Pattern) -> tuple[int, str, str]:
    """Return the place of a wording in its cluster: the most used first, of equals the one that was there first."""
    return -lesson.count("seen"), lesson.at, lesson.id


class Wordings(NamedTuple):
    """A lesson as it is shown, the wordings that it was said in, and those lessons that say the opposite.

    Attributes:
        lesson: the most used wording, with the evidence of all.
        wordings: the lessons of its cluster, the most used first; none of a lesson that was said in one way.
    """

    lesson: Pattern
    wordings: tuple[Pattern, ...] = ()
    opposites: tuple[str, ...] = ()

    @property
    def ids(self) -> set[str]:
        """The ids of all wordings."""
        return {self.lesson.id, *(each.id for each in self.wordings)}


# --- kept with the generation that they were made at ------------------------------------------------------------------


_APART = "two lessons"
"""The kind under which ``local.db`` keeps, of a pair, that somebody here said it is two lessons."""


class Weighing:
    """Cache of a clan's clusters, valid for one generation, and the pairs that somebody here keeps apart."""

    def __init__(self, workspace: Workspace) -> None:
        self._workspace = workspace

    def decided(self) -> set[tuple[str, str]]:
        """Return the pairs of which somebody here said that they are two lessons.

        It is asked of no machine but this.
        """
        pairs = (value.split() for value in self._workspace.state.agreed(_APART))
        return {(pair[0], pair[1]) for pair in pairs if len(pair) == 2}

    def keep_apart(self, pairs: Iterable[tuple[str, str]]) -> None:
        """Remember of pairs that they are two lessons: they are never grouped here, and nobody here is asked again."""
        for pair in pairs:
            self._workspace.state.agree(_APART, " ".join(sorted(pair)), self._workspace.wall())

    def forget_apart(self, pair: tuple[str, str]) -> None:
        """Take back that two lessons are two."""
        self._workspace.state.disagree(_APART, " ".join(sorted(pair)))

    def cache_key(self) -> list[Any]:
        """Return what the clusters are made of: a generation, what is embedded, and what was decided."""
        return self._asked()[0]

    def _asked(self) -> tuple[list[Any], str]:
        """Return what the clusters are made of, and those that are kept."""
        keys = ("generation", EMBEDDED, _META)
        generation, embedded, kept = self._workspace.db.ask(lambda it: [get_meta(it, key) for key in keys])
        return [int(generation), embedded, sorted(self.decided())], kept

    def clusters(self, own: Callable[[], Iterable[str]] = tuple) -> Clusters:
        """Return the clusters of the clan's lessons as of now.

        They are made anew when a lesson, an embedding or a decision is another one than when they were made last.

        ``own``: returns ids of the lessons that the agents here logged, newest first; asked in a large clan alone.
        """
        patterns = self._workspace.patterns
        with self._workspace.db.snapshot():
            made_of, kept = self._asked()
            mark = blake2b(json.dumps(made_of).encode(), digest_size=8).hexdigest()
            kept_mark, found = _read(kept)
            if kept_mark == mark:
                return found
            words, known = _words_of(patterns, own), self.compared()
            cosines = Embeddings(self._workspace).alike(list(words), LIKELY_MIN, PARTNERS_MAX)
            found = Clusters.among(words, patterns.lesson, cosines, frozenset(made_of[2]), known)
        with suppress(FleetError, *TROUBLE), self._workspace.db.database.transaction(_KEEP_WAIT_S) as writing:
            set_meta(writing, _META, json.dumps([mark, found]))
            set_meta(writing, _COMPARED, known.encoded())
        return found

    def compared(self) -> Compared:
        """Return the comparison that the last clusters were made of: texts that were in it are not compared again."""
        return Compared.decoded(self._workspace.db.noted(_COMPARED))

    def last_clusters(self) -> Clusters:
        """Return the clusters as they were made last, of an earlier generation perhaps: for who cannot wait."""
        return _read(self._workspace.db.noted(_META))[1]


def _read(kept: str) -> tuple[str, Clusters]:
    """Return the clusters that were kept, and the mark of what they were made of."""
    try:
        mark, (groups, *pairs) = json.loads(kept or "[]")
        likely, opposed = (tuple(_Pair(a, b, score, tuple(d)) for a, b, score, d in each) for each in pairs)
        return str(mark), Clusters(tuple(map(tuple, groups)), likely, opposed)
    except (ValueError, TypeError):
        return "", NOT_COMPARED  # none were made yet, or by another version


def _words_of(patterns: Patterns, own: Callable[[], Iterable[str]]) -> dict[str, str]:
    """Return id and words of the lessons that are compared: all, or of a large clan the own newest and the best."""
    best = patterns.worded(LESSONS_MAX)
    if len(best) < LESSONS_MAX:
        return best
    found, grouped = dict[str, str](), patterns.groups()
    for each in islice(own(), LESSONS_MAX // 2):
        if (lesson := patterns.lesson(each) if each in grouped else patterns.get(each)) is not None:
            found[lesson.id] = lesson.text if lesson.is_listed and lesson.state != "retired" else ""
    some = list((found | best).items())[:LESSONS_MAX]
    return {each: text for each, text in some if text}


SESSIONS_MIN = 3
"""In so many separate sessions something must have come up to be suggested for AGENTS.md."""
TEXTS_MAX = 3_000
"""So many wordings are compared, the newest."""
_WORDS_MIN = 2


class Recurrence(NamedTuple):
    """One thing in all its wordings.

    Attributes:
        text: the wording that was used most, the oldest of equals.
        statements: every place where it was said, the oldest first.
        sessions: the keys of its separate sessions, in the order of time.
    """

    text: str
    others: tuple[str, ...]
    statements: tuple[Statement, ...]
    sessions: tuple[str, ...]

    @property
    def ids(self) -> tuple[str, ...]:
        """Ids of its wordings: the same in whatever letter case and with whatever marks."""
        return tuple(dict.fromkeys(self.id_of(each) for each in (self.text, *self.others)))

    @property
    def days(self) -> tuple[str, ...]:
        """The days on which it was said."""
        return tuple(sorted({each.at[:10] for each in self.statements}))

    @property
    def category(self) -> str:
        """Gotcha, Pattern or Boundary."""
        return category_of(self.text, (each.kind for each in self.statements))

    @property
    def is_directive(self) -> bool:
        """True where any wording wants an agent to do something."""
        return any(is_directive(each) for each in (self.text, *self.others))

    @staticmethod
    def id_of(text: str) -> str:
        """Return the id of a wording."""
        return blake2b(_plain(text).encode("utf-8", "replace"), digest_size=4).hexdigest()

    @classmethod
    def among(
        cls, statements: Iterable[Statement], known: Sequence[str] = (), compared: Callable[[str], str] = str
    ) -> "tuple[list[Recurrence], dict[int, list[Statement]]]":
        """Return all that was said, each thing once; apart from it what says the same as a known text, by number.

        ``compared``: returns what of a text is compared.
        """
        places: dict[str, list[Statement]] = {}
        for each in statements:
            if _is_telling(text := _plain(compared(each.text))):
                places.setdefault(text, []).append(each)
        by_age = sorted(places, key=lambda text: (max(each.at for each in places[text]), text), reverse=True)
        newest = set(by_age[:TEXTS_MAX])
        anchors: dict[str, int] = {}
        for number, each_known in enumerate(known):
            anchors.setdefault(_plain(compared(each_known)), number)
        matched: dict[int, list[Statement]] = {}
        found: list[Recurrence] = []
        for group in _in_like_words(sorted({*newest, *anchors})):
            everything = sorted((each for text in group if text in newest for each in places[text]), key=_by_time)
            pointed = min((anchors[text] for text in group if text in anchors), default=None)
            if pointed is not None:
                matched.setdefault(pointed, []).extend(everything)
            else:
                found.append(_recurrence(everything))
        found.sort(key=lambda each: (-len(each.sessions), each.statements[0].at, each.text))
        return found, matched


def _recurrence(statements: list[Statement]) -> Recurrence:
    texts = [without_label(each.text) for each in statements]
    counted = Counter(texts)
    first = {text: at for at, text in reversed(list(enumerate(texts)))}
    order = sorted(counted, key=lambda text: (-counted[text], first[text]))
    return Recurrence(order[0], tuple(order[1:]), tuple(statements), _separate_sessions(statements))


def _by_time(each: Statement) -> tuple[str, str, str]:
    return each.at, each.session, each.text


def _separate_sessions(statements: Sequence[Statement]) -> tuple[str, ...]:
    """Return the keys of the separate sessions that said something, in the order of time."""
    known = {each.session for each in statements if each.is_known}
    days = {each.at[:10] for each in statements if each.is_known}
    unnamed: dict[str, dict[str, set[str]]] = {}
    for each in statements:
        if not each.is_known and each.at[:10] not in days:
            way = each.session.partition(" ")[0]
            unnamed.setdefault(each.at[:10], {}).setdefault(way, set()).add(each.session)
    counted = known | {
        one for ways in unnamed.values() for one in max(ways.values(), key=lambda each: (len(each), min(each)))
    }
    return tuple(dict.fromkeys(each.session for each in sorted(statements, key=_by_time) if each.session in counted))


def _plain(text: str) -> str:
    return normalise(without_label(text))


def _is_telling(text: str) -> bool:
    found = [word for word in text.split() if not is_stop(word)]
    return len(found) >= _WORDS_MIN or (len(found) == 1 and len(text) > len(found[0]) + 3) or not text.isascii()


def _in_like_words(texts: Sequence[str]) -> list[list[str]]:
    """Return texts with those together that say the same in other words, by their words alone."""
    close = alike(tuple(texts), least=JOIN_MIN)
    sure = [_Pair(texts[each.one], texts[each.other], each.score) for each in close if _say_the_same(each, 0.0)]
    groups = _complete_link(sorted(sure, key=_closest_first))
    inside = set().union(*groups)
    return sorted([sorted(group) for group in groups] + [[text] for text in texts if text not in inside])
