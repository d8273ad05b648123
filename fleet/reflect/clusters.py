"""Clusters: lessons that say the same in other words, grouped while evidence is weighed.

A cluster is a view: records and ids stay as they are. Its representative is the most-used wording, but wordings that
were logged here come first. Two wordings say the same if their words (with embeddings, also their meaning) are close
and no difference matters; this holds for every two wordings of a cluster (complete link). A person or an agent decides
on likely pairs, on opposites, and on close pairs whose right ways have no word in common.

The same lessons in any order give the same clusters: all are compared at once, at most ``LESSONS_MAX`` (docs/adr/0019).
Statements of several sessions are grouped alike (``Recurrence``).
"""

import json
from collections import Counter
from collections.abc import Callable, Collection, Container, Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from functools import cache
from hashlib import blake2b
from itertools import combinations, islice
from typing import Any, NamedTuple

import msgspec

from fleet import __version__
from fleet.model.errors import FleetError
from fleet.model.names import agent_of, normalise, pattern_id
from fleet.model.pattern import REDACTED, Pattern, merged
from fleet.reflect.observations import Statement, category_of, is_directive, without_label
from fleet.store.database import TROUBLE, get_meta, set_meta
from fleet.store.query import Patterns
from fleet.store.semantic import EMBEDDED, Embeddings
from fleet.store.workspace import Workspace
from fleet.text.screening import one_line, readable, shortened
from fleet.text.similarity import NEAR_MIN, TURNS, ParsedText, is_stop

LESSONS_MAX = 2_000
MEMBERS_MAX = 24
"""Greatest number of wordings in a cluster: a flood of them is no better evidence."""
JOIN_MIN = 0.65
"""Least closeness of two wordings that say the same, if no difference matters."""
NEARLY_MIN = 0.45
"""The same, if their meaning is close, too. Texts that are less close are neither one lesson nor opposites."""
MEANING_MIN = 0.75
"""Least cosine of texts whose meaning is close."""
COUNTED_MIN = 0.85
"""Least closeness at which a lesson that no agent stated counts as a known one. High: that is final, and for all."""
LIKELY_MIN = 0.55
"""Least closeness of a pair that a person is asked about."""
ASKED_MAX = 50
"""Greatest number of pairs that are kept for a review, the closest first."""

PARTNERS_MAX = 20
"""Greatest number of texts that each of many is compared with."""
_POSTINGS_MAX = 1_000
"""Greatest number of postings that are read to find the partners of a text."""

_META, _COMPARED = "clusters 4", "compared 4"  # counted on when texts are compared in another way
_KEEP_WAIT_S = 1.0
_SHOWN_CHARS = 160

_Lookup = Callable[[Iterable[str]], Mapping[str, Pattern]]
"""Function that returns the lessons of some ids, by their ids; all at once, since each may be of many records."""


# --- pairs among many texts ------------------------------------------------------------------------------------------


class Closeness(NamedTuple):
    """Closeness of two texts.

    Attributes:
        score: of their words, 0 to 1.
        differs: their differences, of ``DIFFERENCES``.
        is_doubtful: one may say another thing (``ParsedText.is_doubtful``).
        is_part: one says more, which may be a condition.
        is_turned: they contradict each other: they have the same words, except for one word or two opposites.
    """

    score: float
    differs: tuple[str, ...]
    is_doubtful: bool
    is_part: bool
    is_turned: bool


class Comparison(msgspec.Struct):
    """Result of a comparison: closeness by the hashes of two texts, in their order; None for texts that are not close.

    It depends on the texts alone, and is valid for one version of fleet, since another one may compare otherwise.
    """

    close: dict[str, Closeness | None] = {}
    version: str = __version__


def alike(
    texts: Sequence[str],
    also: Iterable[tuple[int, int]] = (),
    least: float = NEAR_MIN,
    last: Comparison | None = None,
) -> list[tuple[int, int, Closeness]]:
    """Return the pairs among texts that share enough of their words, by their indexes, in their order.

    A text is compared with the ``PARTNERS_MAX`` that share most of its words: texts that are all alike cost no more
    than others. The same texts in the same order give the same pairs.

    ``also``: pairs to be compared whatever their words are, each as (smaller index, larger).
    ``least``: least score of the other pairs, those that share a third of the words of one.
    ``last``: the last comparison, with the same ``least``: its pairs are not compared again. It is updated to this one.
    """
    names = [blake2b(text.encode("utf-8", "surrogatepass"), digest_size=16).hexdigest() for text in texts]
    wordings, last, forced = ParsedText.of(texts), last or Comparison(), frozenset(also)
    known, last.close, pairs = last.close, {}, list[tuple[int, int, Closeness]]()
    for one, other in sorted({*_partners([each.stems for each in wordings]), *forced}):
        is_forced = (one, other) in forced
        two = f"{names[one]} {names[other]}{' forced' if is_forced else ''}"
        if two not in known:
            known[two] = _closeness(wordings[one], wordings[other], 0.0 if is_forced else least)
        last.close[two] = known[two]
        if (close := known[two]) is not None:
            pairs.append((one, other, close))
    return pairs


def _closeness(mine: ParsedText, theirs: ParsedText, least: float) -> Closeness | None:
    score = mine.score(theirs, least)
    if score < least:
        return None
    differs = mine.differences(theirs)
    return Closeness(score, differs, mine.is_doubtful(theirs), mine.is_part(theirs), _is_turned(mine, theirs, differs))


def _is_turned(mine: ParsedText, theirs: ParsedText, differs: tuple[str, ...]) -> bool:
    if not differs or not TURNS.issuperset(differs):
        return False
    only = len(mine.stems - theirs.stems), len(theirs.stems - mine.stems)
    return sum(only) <= 1 or ("opposite" in differs and max(only) <= 1)


def _partners(texts: Sequence[frozenset[str]]) -> Iterator[tuple[int, int]]:
    """Yield the pairs of texts, given as stems, that share a third of one, at most ``PARTNERS_MAX`` for each."""
    postings: dict[str, list[int]] = {}
    for index, stems in enumerate(texts):
        for stem in stems:
            postings.setdefault(stem, []).append(index)

    @cache
    def closest(stems: frozenset[str]) -> list[int]:
        """Return the texts that share most stems, of equals the first: one more, since one is the text itself."""
        read, enough = list[int](), -(-len(stems) // 3)
        for stem in sorted(stems, key=lambda stem: (len(postings[stem]), stem)):  # the rarest weigh most
            read += postings[stem][: _POSTINGS_MAX - len(read)]
        shared = (count * len(texts) - index for index, count in Counter(read).items() if count >= enough)
        return [-rank % len(texts) for rank in sorted(shared, reverse=True)[: PARTNERS_MAX + 1]]

    for index, stems in enumerate(texts):
        pairs = ((min(index, other), max(index, other)) for other in closest(stems) if other != index)
        yield from islice(pairs, PARTNERS_MAX)


# --- clusters ---------------------------------------------------------------------------------------------------------


class _Pair(NamedTuple):
    """Pair of lessons by their ids, the smaller first, with their closeness and differences."""

    one: str
    other: str
    score: float
    differs: tuple[str, ...] = ()

    @property
    def ids(self) -> tuple[str, str]:
        return self.one, self.other


class Clusters(NamedTuple):
    """Result of comparing lessons: the ids of each cluster of two or more, its representative first, and pairs.

    ``likely``: pairs that may be one lesson, ``opposed``: that say the opposite of each other; the closest first.
    """

    groups: tuple[tuple[str, ...], ...] = ()
    likely: tuple[_Pair, ...] = ()
    opposed: tuple[_Pair, ...] = ()

    @classmethod
    def among(
        cls,
        words: Mapping[str, str],
        lookup: _Lookup,
        cosines: Mapping[tuple[str, str], float] = {},
        apart: Collection[tuple[str, str]] = frozenset(),
        last: Comparison | None = None,
        more: Iterable[tuple[str, str]] = (),
    ) -> "Clusters":
        """Return the clusters of lessons, and the pairs for a review.

        ``words``: texts of the lessons by id, each merged set as one.
        ``lookup``: returns lessons by their ids; called for the lessons of pairs that surely say the same.
        ``apart``: pairs of ids, the smaller first, that a person keeps apart.
        ``last``: the last comparison, which is updated to this one.
        ``more``: further wordings of merged sets, each with the id by which the set is in ``words``.
        """
        ids = sorted(words)
        number = {each: index for index, each in enumerate(ids)}
        named = [*((each, words[each]) for each in ids), *sorted(more)]
        also = [(number[one], number[other]) for one, other in cosines if one in number and other in number]
        sure, likely, opposed = list[_Pair](), list[_Pair](), list[_Pair]()
        for one, other, close in alike([text for _, text in named], also, NEARLY_MIN, last=last):
            two = named[one][0], named[other][0]
            pair = _Pair(min(two), max(two), close.score, close.differs)
            if pair.one == pair.other or pair.ids in apart:
                continue
            if close.is_turned:
                opposed.append(pair)
            elif _say_the_same(close, cosines.get(pair.ids, 0.0)):
                sure.append(pair)
            elif not close.differs and (close.score >= LIKELY_MIN or cosines.get(pair.ids, 0.0) >= MEANING_MIN):
                likely.append(pair)
        turned = _closest(opposed)
        joined = _closest(sure, but={each.ids for each in turned})
        lessons = lookup(sorted({each for pair in joined for each in pair.ids}))
        ways = _ways(lessons)
        # Agents word the right way of one lesson in many ways, but seldom without a word in common.
        groups = _complete_link([each for each in joined if not _are_apart(*map(ways.get, each.ids))])
        together = {ids for group in groups for ids in combinations(sorted(group), 2)}
        pairs_left = _closest([*joined, *likely], but=together | {each.ids for each in turned})
        members = ([lessons[each] for each in group if each in lessons] for group in groups)
        ranked = tuple(sorted(tuple(each.id for each in sorted(group, key=_rank)) for group in members))
        return cls(ranked, tuple(pairs_left[:ASKED_MAX]), tuple(turned[:ASKED_MAX]))

    @staticmethod
    def as_one(members: Sequence[Pattern], agent: str = "") -> Pattern:
        """Return a cluster as one lesson: its evidence added up, in the most-used wording.

        For an agent's memory that is the most-used wording that it logged itself.
        """
        return merged(members, next((each for each in members if agent and each.seen_by(agent)), members[0]))

    def of(self, pattern_id: str) -> tuple[str, ...]:
        """Return the ids of a lesson's cluster: its own alone, when there is none."""
        return next((group for group in self.groups if pattern_id in group), (pattern_id,))

    def opposites(self, ids: Collection[str]) -> tuple[str, ...]:
        """Return the ids of the lessons that say the opposite of one of these, the closest first."""
        return tuple(dict.fromkeys(b if a in ids else a for a, b, *_ in self.opposed if a in ids or b in ids))

    def grouped(self, lessons: Collection[Pattern], lookup: _Lookup) -> "list[Wordings]":
        """Return lessons with each cluster as one, in the place of the first of its wordings."""
        groups = {each: group for group in self.groups for each in group}
        known = lookup({other for lesson in lessons for other in groups.get(lesson.id, ())})
        grouped_ids, result = set[str](), list[Wordings]()
        for lesson in lessons:
            if lesson.id in grouped_ids:
                continue
            lessons_of = (known.get(other) if other != lesson.id else lesson for other in groups.get(lesson.id, ()))
            wordings = sorted((one for one in lessons_of if one is not None and one.is_listed), key=_rank)
            grouped_ids |= {one.id for one in wordings}
            against = self.opposites([one.id for one in wordings or [lesson]])
            shown = self.as_one(wordings) if len(wordings) > 1 else lesson
            result.append(Wordings(shown, tuple(wordings) if len(wordings) > 1 else (), against))
        return result


NOT_COMPARED = Clusters()
"""Clusters of lessons that were never compared."""


def same_text_among(texts: Sequence[str], text: str) -> int | None:
    """Return the number of the text that surely says the same as another one, by words alone, or None."""
    *others, mine = ParsedText.of([*texts, text])
    compared = [_closeness(each, mine, COUNTED_MIN) for each in others]
    sure = [(each.score, -number) for number, each in enumerate(compared) if each and _say_the_same(each, 0.0)]
    return -max(sure)[1] if sure else None


def _closest(pairs: Iterable[_Pair], but: Collection[tuple[str, str]] = ()) -> list[_Pair]:
    """Return pairs, the closest first, each two lessons once: merged ones may be close in several wordings."""
    closest: dict[tuple[str, str], _Pair] = {}
    for each in sorted(pairs, key=lambda each: (-each.score, each.ids)):
        if each.ids not in but:
            closest.setdefault(each.ids, each)
    return list(closest.values())


def _say_the_same(close: Closeness, cosine: float) -> bool:
    """Return whether two texts say the same: by their words, or by fewer of them and their meaning."""
    is_other = close.differs or close.is_doubtful or close.is_part
    return not is_other and (close.score >= JOIN_MIN or (close.score >= NEARLY_MIN and cosine >= MEANING_MIN))


def _ways(lessons: Mapping[str, Pattern]) -> dict[str, frozenset[str]]:
    """Return the words of the right way of each lesson that has one."""
    ways = {each: lesson.correct for each, lesson in lessons.items() if lesson.correct}
    return {each: text.stems for each, text in zip(ways, ParsedText.of([*ways.values()]), strict=True)}


def _are_apart(one: frozenset[str] | None, other: frozenset[str] | None) -> bool:
    """Return whether two right ways have no word in common; False if one of them is not known."""
    return bool(one and other and one.isdisjoint(other))


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


def _rank(lesson: Pattern) -> tuple[bool, int, str, str]:
    """Return the sort key of a wording: those logged here first, then the most used, of equals the oldest.

    Otherwise anybody who may push could replace the words of a lesson that was logged here.
    """
    return lesson.mine.isdisjoint(lesson.adds), -lesson.count("seen"), lesson.at, lesson.id


class Wordings(NamedTuple):
    """Lesson as it is shown: its first wording with the evidence of all, its wordings, and its opposites.

    ``wordings``: in the order of ``_rank``; none of a lesson with a single one.
    """

    lesson: Pattern
    wordings: tuple[Pattern, ...] = ()
    opposites: tuple[str, ...] = ()

    @property
    def ids(self) -> set[str]:
        """The ids of all wordings."""
        return {self.lesson.id, *(each.id for each in self.wordings)}


# --- the cache ------------------------------------------------------------------------------------------------------


_APART = "two lessons"
"""Kind under which ``local.db`` keeps the pairs that a person here keeps apart."""
_HOLDS = "holds"
"""Kind of the pairs of which a person here decided that the first holds, and retired the second."""


class Weighing:
    """Cache of a clan's clusters, valid for one generation, and the pairs that somebody here keeps apart."""

    def __init__(self, workspace: Workspace) -> None:
        self._workspace = workspace

    def decided(self) -> set[tuple[str, str]]:
        """Return the pairs that a person keeps apart, on this machine alone."""
        pairs = (value.partition(" ") for value in self._workspace.state.agreed(_APART))
        return {(one, other) for one, _, other in pairs}

    def keep_apart(self, pairs: Iterable[tuple[str, str]]) -> None:
        """Keep pairs apart: they are never grouped here, and never asked about again."""
        for pair in pairs:
            self._workspace.state.agree(_APART, " ".join(sorted(pair)), self._workspace.wall())

    def forget_apart(self, pair: tuple[str, str]) -> None:
        """Revoke that a pair is kept apart."""
        self._workspace.state.disagree(_APART, " ".join(sorted(pair)))

    def keep_first(self, kept: str, retired: str) -> None:
        """Note a person's decision here that the first of two contradicting lessons holds."""
        self._workspace.state.agree(_HOLDS, f"{kept} {retired}", self._workspace.wall())

    def overruled(self, *, forget: bool = False) -> list[str]:
        """Return a sentence for each lesson that holds by a decision here, and that others retired all the same."""
        state, sentences = self._workspace.state, list[str]()
        for pair in state.agreed(_HOLDS):
            lessons = self._workspace.patterns.lessons_of(pair.split())
            kept, other = map(lessons.get, pair.split())
            if kept is None or any(each.is_present for each in lessons.values()):
                continue
            is_answered = other is None or other.retired_by in other.mine  # not where the answer was taken back since
            if is_answered and kept.retired_by not in kept.mine and kept.text != REDACTED:
                sentences.append(
                    f"{kept.id} was to hold, by a person's answer here, and {agent_of(kept.retired_by)} retired "
                    f"it: {shortened(readable(kept.text), _SHOWN_CHARS)}. `fleet restore {kept.id}` brings it back"
                )
            if forget:
                state.disagree(_HOLDS, pair)
        return sentences

    def cache_key(self) -> list[Any]:
        """Return the key of the clusters: the generation, the state of the embeddings, and the pairs kept apart."""
        keys = ("generation", EMBEDDED)
        generation, embedded = self._workspace.db.ask(lambda db: [get_meta(db, key) for key in keys])
        return [int(generation), embedded, sorted(self.decided())]

    def clusters(self, own: Callable[[], Iterable[str]] = tuple) -> Clusters:
        """Return the current clusters of the clan's lessons; they are computed only if their key has changed.

        ``own``: returns ids of the lessons that the agents here logged, newest first; only called in a large clan.
        """
        patterns = self._workspace.patterns
        with self._workspace.db.snapshot():
            key = self.cache_key()
            digest = blake2b(json.dumps(key).encode(), digest_size=8).hexdigest()
            cached_digest, clusters = self._last()
            if cached_digest == digest:
                return clusters
            words, comparison = _words_of(patterns, own), self.compared()
            cosines = Embeddings(self._workspace).alike(list(words), LIKELY_MIN, PARTNERS_MAX)
            more = islice(_merged_words(patterns, words), LESSONS_MAX)
            clusters = Clusters.among(words, patterns.lessons_of, cosines, frozenset(key[2]), comparison, more)
        with suppress(FleetError, *TROUBLE), self._workspace.db.database.transaction(_KEEP_WAIT_S) as writing:
            set_meta(writing, _META, msgspec.json.encode((digest, clusters)).decode())
            set_meta(writing, _COMPARED, msgspec.json.encode(comparison).decode())
        return clusters

    def compared(self) -> Comparison:
        """Return the comparison behind the last clusters: its texts are not compared again."""
        with suppress(msgspec.MsgspecError):
            last = msgspec.json.decode(self._workspace.db.noted(_COMPARED), type=Comparison)
            return last if last.version == __version__ else Comparison()
        return Comparison()

    def last_clusters(self) -> Clusters:
        """Return the cached clusters, perhaps of an earlier generation, without the pairs that are kept apart since."""
        clusters, decided = self._last()[1], self.decided()
        opposed, likely = (
            tuple(each for each in pairs if each.ids not in decided) for pairs in (clusters.opposed, clusters.likely)
        )
        return clusters._replace(opposed=opposed, likely=likely)

    def _last(self) -> tuple[str, Clusters]:
        """Return the cached clusters, and the digest of their key."""
        with suppress(msgspec.DecodeError):
            return msgspec.json.decode(self._workspace.db.noted(_META), type=tuple[str, Clusters])
        return "", NOT_COMPARED  # nothing is cached, or by another version

    def contradicted(self) -> dict[str, tuple[str, ...]]:
        """Return for each contradicted lesson, in any wording, the ids of those that contradict it, as last compared.

        A pair is left out if one of its lessons was retired since: somebody may have decided it.
        """
        clusters, against = self.last_clusters(), dict[str, tuple[str, ...]]()
        lessons = self._workspace.patterns.lessons_of({each for pair in clusters.opposed for each in pair.ids})
        standing = {each for each, one in lessons.items() if one.is_listed and one.state != "retired"}
        for a, b in (pair.ids for pair in clusters.opposed if standing.issuperset(pair.ids)):
            for one, other in ((a, b), (b, a)):
                against |= {each: tuple(dict.fromkeys((*against.get(each, ()), other))) for each in clusters.of(one)}
        return against


def _words_of(patterns: Patterns, own: Callable[[], Iterable[str]]) -> dict[str, str]:
    """Return the texts of the lessons that are compared: all, or of a large clan the own newest and the best."""
    best = patterns.best_texts(LESSONS_MAX)
    if len(best) < LESSONS_MAX:
        return best
    lessons = patterns.lessons_of(islice(own(), LESSONS_MAX // 2)).values()
    texts = {each.id: each.text if each.is_listed and each.state != "retired" else "" for each in lessons}
    return {each: text for each, text in islice((texts | best).items(), LESSONS_MAX) if text}


def _merged_words(patterns: Patterns, words: Mapping[str, str]) -> Iterator[tuple[str, str]]:
    """Yield the other wordings of merged sets, with the id that stands for the set.

    A merge may give a record the words of another one. In that case its own words are those that it was logged with.
    """
    groups = patterns.groups()
    sets = {each: groups[each] for each in words if each in groups}
    records = patterns.some([member for group in sets.values() for member in group])
    by_id = {each.id: each for each in records}
    for id_, group in sets.items():
        members = [by_id[each] for each in group if each in by_id and by_id[each].is_listed]
        times = Counter(each.text for each in members)
        for each in members:
            line = patterns.line(each.id) if times[each.text] > 1 else None
            logged = (one_line(str(first.get("text", ""))) for first in (line.wordings() if line is not None else ()))
            text = next((one for one in logged if pattern_id(one) == each.id), each.text)
            if text and text != words[id_]:
                yield id_, text


SESSIONS_MIN = 3
"""Least number of separate sessions of a recurrence that is suggested for AGENTS.md."""
TEXTS_MAX = 3_000
"""Greatest number of wordings that are compared, the newest."""
_WORDS_MIN = 2


class Recurrence(NamedTuple):
    """Statements that say the same, the oldest first, and the keys of their separate sessions, by time.

    ``text``: the most-used wording, the oldest of equals; ``others``: the other wordings.
    """

    text: str
    others: tuple[str, ...]
    statements: tuple[Statement, ...]
    sessions: tuple[str, ...]

    @property
    def category(self) -> str:
        """Gotcha, Pattern or Boundary."""
        return category_of(self.text, (each.kind for each in self.statements))

    @property
    def is_directive(self) -> bool:
        """True where any wording is a directive."""
        return any(is_directive(each) for each in (self.text, *self.others))

    @staticmethod
    def id_of(text: str) -> str:
        """Return the id of a wording: the same for any letter case and marks."""
        return blake2b(_plain(text).encode("utf-8", "replace"), digest_size=4).hexdigest()

    @staticmethod
    def separate_sessions(statements: Sequence[Statement]) -> tuple[str, ...]:
        """Return the keys of the separate sessions of statements, by time.

        Sessions without an id count as one a day; as none on the day of a session with an id, which may be the same.
        """
        by_time, days = sorted(statements, key=_by_time), {each.at[:10] for each in statements if each.is_known}
        first = {each.at[:10]: each.session for each in reversed(by_time) if not each.is_known}
        counted = {session for day, session in first.items() if day not in days}
        return tuple(dict.fromkeys(each.session for each in by_time if each.is_known or each.session in counted))

    @classmethod
    def among(
        cls, statements: Iterable[Statement], known: Sequence[str] = (), compared: Callable[[str], str] = str
    ) -> "tuple[list[Recurrence], dict[int, list[Statement]]]":
        """Return the recurrences of whole statements, and the statements that repeat a known text, by its index.

        ``compared``: returns the part of a text that is compared.
        """
        places: dict[str, list[Statement]] = {}
        for statement in statements:
            if not statement.is_cut and _is_telling(text := _plain(compared(statement.text))):
                places.setdefault(text, []).append(statement)
        by_age = sorted(places, key=lambda text: (max(each.at for each in places[text]), text), reverse=True)
        newest = set(by_age[:TEXTS_MAX])
        anchors: dict[str, int] = {}
        for number, each_known in enumerate(known):
            anchors.setdefault(_plain(compared(each_known)), number)
        recurrences, matched = list[Recurrence](), dict[int, list[Statement]]()
        for group in _in_like_words(sorted({*newest, *anchors}), anchors):
            everything = sorted((each for text in group if text in newest for each in places[text]), key=_by_time)
            pointed = min((anchors[text] for text in group if text in anchors), default=None)
            if pointed is not None:
                matched.setdefault(pointed, []).extend(everything)
            else:
                recurrences.append(_recurrence(everything))
        recurrences.sort(key=lambda each: (-len(each.sessions), each.statements[0].at, each.text))
        return recurrences, matched


def _recurrence(statements: list[Statement]) -> Recurrence:
    texts = [without_label(each.text) for each in statements]
    text, *others = (each for each, _ in Counter(texts).most_common())  # of equals the first
    return Recurrence(text, tuple(others), tuple(statements), Recurrence.separate_sessions(statements))


def _by_time(each: Statement) -> tuple[str, str, str]:
    return each.at, each.session, each.text


def _plain(text: str) -> str:
    return normalise(without_label(text))


def _is_telling(text: str) -> bool:
    words = [word for word in text.split() if not is_stop(word)]
    return len(words) >= _WORDS_MIN or (len(words) == 1 and len(text) > len(words[0]) + 3) or not text.isascii()


def _in_like_words(texts: Sequence[str], known: Container[str]) -> list[list[str]]:
    """Return groups of texts that say the same, by words alone; a known one may say more."""
    sure: list[_Pair] = []
    for one, other, close in alike(texts, least=JOIN_MIN):
        is_part = close.is_part and texts[one] not in known and texts[other] not in known
        if _say_the_same(close._replace(is_part=is_part), 0.0):
            sure.append(_Pair(texts[one], texts[other], close.score))
    groups = _complete_link(_closest(sure))
    inside = set().union(*groups)
    return sorted([sorted(group) for group in groups] + [[text] for text in texts if text not in inside])
