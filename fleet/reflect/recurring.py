"""Recurrence: what several separate sessions said, in whatever words, and of which category it is. Pure.

Sessions are told apart by their ids. Where a page does not name them, those of one day are counted by the time that
lies between observations or by the entries of the log, whichever are more, and not at all on a day of a session that
is named: the same session may have written both.
"""

from collections import Counter
from collections.abc import Iterable, Sequence
from hashlib import blake2b
from typing import NamedTuple

from fleet.model.names import normalise
from fleet.reflect import clusters
from fleet.reflect.observations import Said, category_of, is_directive, without_label
from fleet.text.similarity import is_stop

SESSIONS_MIN = 3
"""In so many separate sessions something must have come up to be suggested for AGENTS.md."""
TEXTS_MAX = 3_000
"""So many wordings are compared, the newest."""
_WORDS_MIN = 2
_PREFIX_SHARE = 0.55
"""Two texts that may say the same share one of so many of their rarest words."""


class Recurrence(NamedTuple):
    """One thing in all its wordings.

    Attributes:
        text: the wording that was used most, the oldest of equals.
        others: the other wordings.
        said: every place where it was said, the oldest first.
        sessions: the keys of its separate sessions, in the order of time.
    """

    text: str
    others: tuple[str, ...]
    said: tuple[Said, ...]
    sessions: tuple[str, ...]

    @property
    def ids(self) -> tuple[str, ...]:
        """Ids of its wordings: the same in whatever letter case and with whatever marks."""
        return tuple(dict.fromkeys(text_id(each) for each in (self.text, *self.others)))

    @property
    def days(self) -> tuple[str, ...]:
        """The days on which it was said."""
        return tuple(sorted({each.at[:10] for each in self.said}))

    @property
    def category(self) -> str:
        """Gotcha, Pattern or Boundary."""
        return category_of(self.text, (each.kind for each in self.said))

    @property
    def is_directive(self) -> bool:
        """Whether any wording wants an agent to do something."""
        return any(is_directive(each) for each in (self.text, *self.others))


def text_id(text: str) -> str:
    """Return the id of a wording."""
    return blake2b(_plain(text).encode("utf-8", "replace"), digest_size=4).hexdigest()


def recurring(said: Iterable[Said], least: int = SESSIONS_MIN, known: Sequence[str] = ()) -> list[Recurrence]:
    """Return what came up in at least so many separate sessions, the one of most sessions first.

    Args:
        said: what sessions said.
        least: separate sessions.
        known: texts of what is known already: what says the same as one of them is left out.
    """
    return [each for each in grouped(said, known)[0] if len(each.sessions) >= least]


def grouped(said: Iterable[Said], known: Sequence[str] = ()) -> tuple[list[Recurrence], dict[int, list[Said]]]:
    """Return everything that was said, each thing once; apart from it what says the same as a known text, by number."""
    places: dict[str, list[Said]] = {}
    for each in said:
        if _is_telling(text := _plain(each.text)):
            places.setdefault(text, []).append(each)
    newest = sorted(places, key=lambda text: (max(each.at for each in places[text]), text), reverse=True)[:TEXTS_MAX]
    texts = sorted(newest)
    anchors = [_plain(each) for each in known]
    groups = _say_the_same([*texts, *anchors])
    matched: dict[int, list[Said]] = {}
    found: list[Recurrence] = []
    for group in groups:
        members = [texts[at] for at in group if at < len(texts)]
        pointed = [at - len(texts) for at in group if at >= len(texts)]
        everything = sorted((each for text in members for each in places[text]), key=_by_time)
        if pointed:
            matched.setdefault(pointed[0], []).extend(everything)
        elif members:
            found.append(_recurrence(everything))
    found.sort(key=lambda each: (-len(each.sessions), each.said[0].at, each.text))
    return found, matched


def _recurrence(said: list[Said]) -> Recurrence:
    spoken = [without_label(each.text) for each in said]
    counted = Counter(spoken)
    first = {text: at for at, text in reversed(list(enumerate(spoken)))}
    order = sorted(counted, key=lambda text: (-counted[text], first[text]))
    return Recurrence(order[0], tuple(order[1:]), tuple(said), separate(said))


def _by_time(each: Said) -> tuple[str, str, str]:
    return each.at, each.session, each.text


def separate(said: Sequence[Said]) -> tuple[str, ...]:
    """Return the keys of the separate sessions that said something, in the order of time."""
    known = {each.session for each in said if each.is_known}
    days = {each.at[:10] for each in said if each.is_known}
    unnamed: dict[str, dict[str, set[str]]] = {}
    for each in said:
        if not each.is_known and each.at[:10] not in days:
            way = each.session.partition(" ")[0]
            unnamed.setdefault(each.at[:10], {}).setdefault(way, set()).add(each.session)
    counted = known | {
        one for ways in unnamed.values() for one in max(ways.values(), key=lambda each: (len(each), min(each)))
    }
    return tuple(dict.fromkeys(each.session for each in sorted(said, key=_by_time) if each.session in counted))


def _plain(text: str) -> str:
    return normalise(without_label(text))


def _is_telling(text: str) -> bool:
    found = [word for word in text.split() if not is_stop(word)]
    return len(found) >= _WORDS_MIN or (len(found) == 1 and len(text) > len(found[0]) + 3) or not text.isascii()


def _say_the_same(texts: list[str]) -> list[list[int]]:
    """Return all texts by their numbers, those that say the same together.

    Compared are those alone of which another one shares a rare word: what two like texts must (prefix filtering,
    Chaudhuri, Ganti and Kaushik, 2006). Most of what sessions say is said once.
    """
    by_text: dict[str, list[int]] = {}
    for at, text in enumerate(texts):
        by_text.setdefault(text, []).append(at)
    distinct = list(by_text)
    asked = _with_a_partner(distinct)
    together = clusters.texts_grouped([distinct[at] for at in asked])
    groups = [[asked[at] for at in group] for group in together]
    inside = {at for group in groups for at in group}
    groups += [[at] for at in range(len(distinct)) if at not in inside]
    return [sorted(number for at in group for number in by_text[distinct[at]]) for group in groups]


def _with_a_partner(texts: list[str]) -> list[int]:
    """Return the numbers of the texts that share enough rare words with another one to say the same, perhaps."""
    told = [{_stem(word) for word in text.casefold().split() if not is_stop(word)} for text in texts]
    often = Counter(stem for each in told for stem in each)
    holders: dict[str, list[int]] = {}
    for at, stems in enumerate(told):
        ordered = sorted(stems, key=lambda stem: (often[stem], stem))
        for stem in ordered[: max(1, round(len(ordered) * _PREFIX_SHARE) + 1)]:
            holders.setdefault(stem, []).append(at)
    return sorted({at for each in holders.values() if len(each) > 1 for at in each})


def _stem(word: str) -> str:
    """Return the beginning of a word, by which its forms are alike: coarse, since it only decides what is compared."""
    return word.strip(".,;:!?()[]{}\"'`*_")[:5]
