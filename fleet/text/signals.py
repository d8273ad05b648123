"""Detection of corrections: phrases in a message, weighed and added up. A table and a few features, nothing learned.

Only the sender's own words count (:mod:`fleet.text.prompts`), and within them the phrases of ``data/phrases.toml``. A
phrase is worth 3 (strong), 2 (medium) or 1 (weak) points, and

* nothing, when it is negated in its clause (25 characters back: "not wrong");
* 1 less, when it is not strong and its sentence asks, or describes a case ("if it is wrong"), or the message opens with
  a task's word ("add", "can you").

Weak phrases count in a short message only, and there only together with another or as its first words. Points of
different phrases add up: 3 make a strong signal, 2 a medium one, 1 a weak one. A message that opens with an exclusion
("no problem") is none, unless a strong phrase follows. The kind is the first of frustration, knowledge, correction that
was heard; only where these together miss the minimum does praise come back, as ``validation``, which corrects nothing.

A short message that the phrases leave below medium, and that does not praise, is weighed once more by *signs*: how it
opens, a question that holds its answer, what was expected. Signs add up, tasks and questions take away, and where they
are worth enough together they make a medium signal, never a strong one.

Phrases are looked for as plain text, so time is linear in the message and no phrase of a configuration can change that.
"""

import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from functools import cache, lru_cache
from itertools import islice
from pathlib import Path
from typing import Any, NamedTuple, Protocol

from fleet.text.prompts import LANGUAGES, LEVELS, SAID_CHARS_MAX, Event, Objection, Prompt, words_of

PRECEDENCE = ("frustration", "knowledge", "correction", "validation")
"""Kinds of signals; where a message holds several, the first of these is told."""
PRAISE = "validation"

_GUARD_CHARS = 25
"""A negation so far before a phrase turns it round."""
_SHORT_CHARS = 160
"""Weak phrases count in messages up to here."""
EXCERPT_CHARS_MAX = 240
_SAYING_WORDS = 5
"""A sentence of fewer words may only say that something is wrong ("No, again:"); what is right comes behind it."""
_SENTENCE_CHARS = 300
"""So far to either side of a phrase its sentence is looked for."""
_OPENING_CHARS_MAX = 2_000
"""The first word is looked for so far."""
_HITS_MAX = 40
"""Of one phrase only so many places are looked at."""
_GERUND = "*ing"
"""At the end of a phrase: any word that ends so."""
_LETTER = r"[^\W\u2e80-\U0010ffff]"
"""A part of a word, in scripts that set words apart by spaces."""
_WORD_OR_MARK = r"[^\W_](?:[\w']*\w)?|[^\w\s]"
"""A word, or a mark."""
_WEIGHED_MAX = 500
"""So many words and marks of a message are weighed at most."""
_ENDS = ".!?;:\n。！？；：…"
_BREAKS = frozenset(_ENDS + ",，、()（）")
_MARKS = " .,!\n。！，、"
_QUESTION = ("?", "？", "吗", "呢", "か", "の？")


class _Settings(Protocol):
    """Section ``[triggers]`` of ``fleet.toml``."""

    off: bool
    languages: Any
    strong: list[str]
    medium: list[str]
    weak: list[str]
    exclusions: list[str]
    without: list[str]

    @property
    def minimum(self) -> str:
        """The least confidence that counts: weak, medium or strong."""


class _Signal(NamedTuple):
    """A sign of a correction in a message.

    Attributes:
        kind: frustration, knowledge, correction or validation; the last is praise and no correction.
        confidence: strong, medium or weak.
        excerpt: the sentence around it, and what follows where that says too little, in the sender's words; at most
            ``EXCERPT_CHARS_MAX`` characters.
        sender: "" for the person, else the name of the agent that the host says wrote it.
    """

    kind: str
    confidence: str
    phrase: str
    excerpt: str
    sender: str = ""


_Words = Mapping[str, Sequence[str]]
"""The lists of one language in ``data/phrases.toml``, of which some change what a phrase is worth."""


class _Phrase(NamedTuple):
    """A row of the table.

    Attributes:
        text: what is looked for, in lower case.
        cue: its longest word: where that is missing, so is the phrase. "" for scripts without spaces.
        where: "^" for the first words of a message, "~" for the start of a sentence, else "".
        is_gerund: a word that ends in "ing" must go on from it.
        kind: one of ``PRECEDENCE``.
        points: 1 to 3.
        words: of its language; none for a person's own.
    """

    text: str
    cue: str
    where: str
    is_gerund: bool
    kind: str
    points: int
    words: _Words


_Wording = tuple[frozenset[str], ...]
"""Words in a row: in each place any of these."""


class _Signs(NamedTuple):
    """Signs of an objection in one language, with their weights.

    Attributes:
        enough: together they must be worth so much.
        words: so many words a message has at least, and at most.
        each: what a sign is worth, and its wordings.
    """

    enough: int
    words: tuple[int, int]
    each: tuple[tuple[int, tuple[_Wording, ...]], ...]


class _Table(NamedTuple):
    """Everything that is looked for, for one configuration."""

    phrases: tuple[_Phrase, ...]
    exclusions: tuple[str, ...]
    hidden: tuple[tuple[str, str], ...]
    signs: tuple[_Signs, ...]


class _Hit(NamedTuple):
    """A phrase in a message, and what it is worth there."""

    phrase: _Phrase
    start: int
    points: int

    @property
    def end(self) -> int:
        return self.start + len(self.phrase.text)


def detect(message: str, settings: _Settings | None = None) -> _Signal | None:
    """Return the correction, or the praise, that a message holds, or None.

    ``settings``: ``[triggers]`` of ``fleet.toml``; None means the defaults.
    """
    if settings is not None and settings.off:
        return None
    sender, said = Prompt(message).own_words()
    minimum = LEVELS.index(settings.minimum if settings is not None else "medium") + 1
    hits = _hear(_lower(said), _table_of(settings))
    praise = [hit for hit in hits if hit.phrase.kind == PRAISE]
    for heard in ([hit for hit in hits if hit not in praise], praise):
        points = min(3, sum(hit.points for hit in heard))
        if points >= minimum:
            top = max(heard, key=lambda hit: (hit.points, -hit.start))
            clear = [hit for hit in heard if hit.points > 1] or heard
            kind = min((hit.phrase.kind for hit in clear), key=PRECEDENCE.index)
            return _Signal(kind, LEVELS[points - 1], top.phrase.text.strip(), _excerpt(said, top), sender)
    return None


# The table.


@cache
def _phrase_lists() -> dict[str, Any]:
    """Return the content of ``data/phrases.toml``."""
    import tomllib  # 2 ms, which a hook that logs a failure need not take

    with Path(__file__).with_name("data").joinpath("phrases.toml").open("rb") as file:
        return tomllib.load(file)


def _table_of(settings: _Settings | None) -> _Table:
    """Return the table for ``[triggers]``; None means the defaults."""
    if settings is None:
        return _table(LANGUAGES, ((), (), ()), (), ())
    own = tuple(tuple(each) for each in (settings.weak, settings.medium, settings.strong))
    return _table(tuple(settings.languages), own, tuple(settings.exclusions), tuple(settings.without))


@lru_cache(maxsize=4)
def _table(
    languages: tuple[str, ...],
    own: tuple[tuple[str, ...], ...],
    exclusions: tuple[str, ...],
    without: tuple[str, ...],
) -> _Table:
    known = [_phrase_lists()[name] for name in languages if name in LANGUAGES]
    rows = [
        _row(text, kind, level, lists)
        for lists in known
        for kind in PRECEDENCE
        for level, texts in lists[kind].items()
        for text in texts
    ]
    dropped = {_lower(text.strip()).lstrip("^~").removesuffix(_GERUND) for text in without}
    rows = [row for row in rows if row.text not in dropped]
    rows += [
        _row(_lower(each.strip()), "correction", level, {})
        for level, said in zip(LEVELS, own, strict=False)
        for each in said
    ]
    excluded = {text for lists in known for text in lists["exclusions"]}
    excluded |= {_lower(text.strip()) for text in exclusions if text.strip()}
    alike = excluded.union(*(lists["lookalikes"] for lists in known))
    return _Table(
        phrases=tuple(row for row in rows if row.text),
        exclusions=tuple(sorted(excluded, key=_longest_first)),
        hidden=tuple((text, _cue_of(text)) for text in sorted(alike, key=_longest_first)),
        signs=tuple(_signs_of(lists["signs"]) for lists in known if "signs" in lists and "signs" not in dropped),
    )


def _signs_of(told: Mapping[str, Any]) -> _Signs:
    each = []
    for row in told["each"].replace("\n ", " | ").splitlines():  # a row that begins with a blank goes on
        if row and not row.startswith("#"):
            worth, _, said = row.partition(" ")
            wordings = tuple(tuple(frozenset(slot.split("/")) for slot in one.split()) for one in said.split("|"))
            each.append((int(worth), wordings))
    return _Signs(told["enough"], tuple(told["words"]), tuple(each))


def _longest_first(text: str) -> tuple[int, str]:
    return -len(text), text


def _row(text: str, kind: str, level: str, words: _Words) -> _Phrase:
    where = text[:1] if text[:1] in ("^", "~") else ""
    bare = text[len(where) :]
    text = bare.removesuffix(_GERUND).replace("*", "")  # messages come without Markdown's emphasis
    return _Phrase(text, _cue_of(text), where, bare.endswith(_GERUND), kind, LEVELS.index(level) + 1, words)


def _cue_of(text: str) -> str:
    return max(words_of(text), key=len, default="")


def _lower(text: str) -> str:
    """Lower case of the same length, so that places are those of the original."""
    changed = text.lower()
    return changed if len(changed) == len(text) else "".join(c.lower() if len(c.lower()) == 1 else c for c in text)


# The search.


def _hear(low: str, table: _Table) -> list[_Hit]:
    """Return the phrases of a message that count, each once, none within another."""
    is_excluded = _begins(low, table.exclusions)
    words = {"", *words_of(low)}
    for text, cue in table.hidden:
        if cue in words and text in low:
            low = _whole(text).sub(lambda found: "\x00" * len(found[0]), low, count=_HITS_MAX)
    opening = _opening(low)
    hits = [
        hit
        for phrase in table.phrases
        if phrase.cue in words and phrase.text in low
        for hit in [_best(low, phrase, opening)]
        if hit
    ]
    if is_excluded:
        hits = [hit for hit in hits if hit.phrase.points == 3 or hit.phrase.kind == PRAISE]
    heard = _counting(_apart(hits), low, opening)
    if is_excluded or sum(hit.points for hit in heard) > 1 or any(hit.phrase.kind == PRAISE for hit in hits):
        return heard
    return next(([hit] for signs in table.signs if (hit := _weigh(low, opening, signs))), heard)


def _weigh(low: str, opening: int, signs: _Signs) -> _Hit | None:
    """Return a hit at the sign that says most in a message, where all of them together say enough."""
    found = [(each.start(), each[0]) for each in islice(re.finditer(_WORD_OR_MARK, low), _WEIGHED_MAX)]
    if not signs.words[0] <= sum(word[0].isalnum() for _, word in found) <= signs.words[1]:
        return None
    found.insert(sum(start < opening for start, _ in found), (opening, "~"))
    words = [word for _, word in found]
    met = [
        (worth, found[max(ends)][0])
        for worth, wordings in signs.each
        if max(ends := [_end_of(each, words) for each in wordings]) >= 0
    ]
    if sum(worth for worth, _ in met) < signs.enough:
        return None
    return _Hit(_Phrase("", "", "", is_gerund=False, kind="correction", points=2, words={}), max(met)[1], 2)


def _end_of(wording: _Wording, words: Sequence[str]) -> int:
    """Return where a wording ends that stands in a message; -1 where it does not."""
    last = len(wording) - 1
    for at in range(last, len(words)):
        if words[at] in wording[last] and all(words[at - last + n] in slot for n, slot in enumerate(wording)):
            return at
    return -1


def _best(low: str, phrase: _Phrase, opening: int) -> _Hit | None:
    """Return the first place where a phrase is worth most."""
    found = (_Hit(phrase, start, _worth(low, phrase, start)) for start in _places(low, phrase, opening))
    best = max(found, key=lambda hit: hit.points, default=None)
    return best if best and best.points else None


def _places(low: str, phrase: _Phrase, opening: int) -> Iterator[int]:
    pattern = _whole(phrase.text, is_gerund=phrase.is_gerund)
    met = pattern.finditer(low) if phrase.where != "^" else filter(None, [pattern.match(low, opening)])
    for at in (each.start() for each in islice(met, _HITS_MAX)):
        if phrase.where != "~" or at == opening or (" \n" + low[:at].rstrip(" "))[-1] in _ENDS:
            yield at


def _worth(low: str, phrase: _Phrase, start: int) -> int:
    end, words = start + len(phrase.text), phrase.words
    if phrase.kind != PRAISE and _is_negated(low, start, end, words):
        return 0
    if phrase.points == 3 or phrase.kind == PRAISE:
        return phrase.points
    begin, over = _sentence(low, start, end)
    is_bare = len(phrase.text) <= 5 and low.strip(_MARKS) == phrase.text.strip(_MARKS)  # an answer, most likely
    less = is_bare + _asks(low[begin:over], words) + _has(low[begin:start], words.get("supposing", ()))
    return max(0, phrase.points - less - (phrase.where != "^" and _is_task(low, words)))


def _is_task(low: str, words: _Words) -> bool:
    return _begins(low, words.get("tasks", ())) or any(word in low for word in words.get("tasks_within", ()))


def _is_negated(low: str, start: int, end: int, words: _Words) -> bool:
    floor = max(0, start - _GUARD_CHARS)
    begin = max([floor, *(at + 1 for at in range(floor, start) if low[at] in _BREAKS)])
    before = low[begin:start]
    for negator in words.get("negators", ()):
        found = _whole(negator).search(before) if negator in before else None
        if found and not (negator == "no" and not before[: found.start()].strip()):  # else it is an answer
            return True
    return low.startswith(tuple(words.get("negated_after", ())), end)


def _asks(sentence: str, words: _Words) -> bool:
    is_marked = sentence.rstrip().endswith(_QUESTION)
    asking = words.get("asking", ())
    return _begins(sentence, [word for word in asking if is_marked or " " in word]) if asking else is_marked


def _apart(hits: list[_Hit]) -> list[_Hit]:
    """Of phrases that overlap keep the one worth more, then the longer."""
    kept: list[_Hit] = []
    for hit in sorted(hits, key=lambda hit: (-hit.points, -len(hit.phrase.text), hit.start)):
        if all(hit.end <= other.start or other.end <= hit.start for other in kept):
            kept.append(hit)
    return kept


def _counting(hits: list[_Hit], low: str, opening: int) -> list[_Hit]:
    """Drop weak phrases that stand alone or in a long message."""
    weak = [hit for hit in hits if hit.phrase.points == 1 and hit.phrase.kind != PRAISE]
    firm = [hit for hit in hits if hit not in weak]
    if len(low) > _SHORT_CHARS:
        return firm
    is_together = sum(hit.phrase.kind != PRAISE for hit in hits) > 1
    return firm + [hit for hit in weak if is_together or hit.start == opening]


# Text.


@lru_cache(maxsize=2_000)
def _whole(text: str, *, is_gerund: bool = False) -> re.Pattern[str]:
    """Return the pattern of a text as whole words; in scripts without spaces everything is whole."""
    before = rf"(?<!{_LETTER})" if re.match(_LETTER, text) else ""
    after = rf"(?!{_LETTER})" if re.match(_LETTER, text[-1:]) else ""
    return re.compile(f"{before}{re.escape(text)}{after}" + rf"(?={_LETTER}{{2,21}}ing(?!{_LETTER}))" * is_gerund)


def _has(text: str, words: Iterable[str]) -> bool:
    return any(word in text and _whole(word).search(text) for word in words)


def _begins(low: str, texts: Iterable[str]) -> bool:
    """Tell whether a text opens with one of these, after fillers."""
    opening = _opening(low)
    return any(low.startswith(text, opening) and _whole(text).match(low, opening) for text in texts)


def _opening(low: str) -> int:
    """Return where the first telling word begins: after fillers such as "ok" or "hmm"."""
    at = 0
    for _ in range(8):
        while at < min(len(low), _OPENING_CHARS_MAX) and not low[at].isalnum() and low[at] != "·":
            at += 1
        end = at
        while end < len(low) and (low[end].isalnum() or low[end] == "'") and end - at < 16:
            end += 1
        word = low[at:end]
        if not word or (word not in _phrase_lists()["fillers"] and not set(word) <= set("uhm")):
            return at
        at = end
    return at


def _sentence(low: str, start: int, end: int) -> tuple[int, int]:
    """Return the bounds of the sentence around a phrase."""
    floor, roof = max(0, start - _SENTENCE_CHARS), min(len(low), end + _SENTENCE_CHARS)
    begin = max([floor, *(low.rfind(mark, floor, start) + 1 for mark in _ENDS)])
    over = min([roof, *(at for mark in _ENDS if (at := low.find(mark, end, roof)) >= 0)])
    return begin, min(len(low), over + 1)


def _excerpt(said: str, hit: _Hit) -> str:
    begin, over = _sentence(said, hit.start, min(hit.end, len(said)))
    floor = max(0, hit.start - EXCERPT_CHARS_MAX // 2)
    while begin > floor and _is_within_a_word(said, begin):
        begin, _ = _sentence(said, begin - 1, begin - 1)
    begin, roof = max(begin, floor), min(len(said), begin + EXCERPT_CHARS_MAX)
    while over < roof and _is_within_a_word(said, over):
        _, over = _sentence(said, over, over)
    while over < roof and _word_count(said[begin:over]) < _SAYING_WORDS:
        _, over = _sentence(said, over, over)
    return said[begin : min(over, begin + EXCERPT_CHARS_MAX)].replace("·", "…").strip()


def _is_within_a_word(said: str, at: int) -> bool:
    """Tell whether a dot before this place ends no sentence, as in ``main.go``."""
    return said[at - 1 : at] == "." and said[at : at + 1].isalnum()


def _word_count(text: str) -> int:
    """Return the number of words; where no blanks are written, two signs are one."""
    return len(text.split()) + sum(sign >= "\u2e80" for sign in text) // 2


# --- refusals ---------------------------------------------------------------------------------------------------------

_GO_ON = frozenset(str.split("sorry ok okay yes yeah please go on ahead continue proceed resume keep going carry and"))
_GO_ON_WORDS_MAX = 6


def objections(found: Iterable[Event], prompt: str = "") -> tuple[list[Objection], Objection | None]:
    """Return what a person objected to, and what still waits for its words: the next reading has to begin there.

    A refusal without words, and a stopped turn, get those of the next prompt; unless it only says to go on, was typed
    by nobody, or is the prompt before it, mended before the agent had done anything.

    ``prompt``: what was typed after them; "" for nothing yet.
    """
    done: list[Objection] = []
    waits: Objection | None = None
    calls: dict[str, Event] = {}
    before, last = "", None
    for event in (*found, *([Event("prompt", text=prompt)] if prompt.strip() else ())):
        if event.kind == "call":
            calls[event.id] = last = event
        elif event.kind == "refused" and event.text:
            done.append(Objection("rejection", event, calls.get(event.id)))
        elif event.kind == "refused" and waits is None:  # of calls refused together, the first one stands for all
            waits = Objection("rejection", event, calls.get(event.id))
        elif event.kind == "stopped" and waits is None:
            waits = Objection("interruption", event, last)
        elif event.kind == "prompt":
            if waits is not None and _objects(event.text, mended="" if last is not None else before):
                waits.words = event.text.strip()[:SAID_CHARS_MAX]
                done.append(waits)
            waits, before, last = None, event.text, None
    return done, waits


def _objects(said: str, mended: str) -> bool:
    """Tell a prompt that says something from one that says to go on, that a host wrote, or that is a mended one."""
    words = _telling_words(said)
    if not words or not Prompt(said).is_typed or (len(words) <= _GO_ON_WORDS_MAX and _GO_ON.issuperset(words)):
        return False
    known = _telling_words(mended)
    return not known or 10 * len(known & words) < 7 * len(known)


def _telling_words(said: str) -> set[str]:
    return set("".join([char if char.isalnum() else " " for char in said.lower()[:SAID_CHARS_MAX]]).split())
