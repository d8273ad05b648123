"""Detection of corrections in messages, by a sum of weighted phrases. A table and a few features, nothing learned.

Only the sender's own words count (:mod:`fleet.text.prompts`), and within them the phrases of ``data/phrases.toml``. A
phrase is worth 3 (strong), 2 (medium) or 1 (weak) points; nothing when it is negated in its clause; 1 less when it is
not strong and its sentence is a question or a condition, or the message opens with the word of a task ("add"). Weak
phrases count in a short message only, and there only together with another or as its first words. Points of different
phrases add up to the same three levels. A message that opens with an exclusion ("no problem") is no signal, unless a
strong phrase follows. The kind is the first of frustration, knowledge and correction among the phrases. Praise gives
no points; it only keeps what overlaps it from being taken for a correction.

A short message that is below medium and has no praise is also weighed by *signs*: its opening, a question with its own
answer, an expectation. Signs of tasks and questions have negative weights. The result is a medium signal at most.

Phrases are matched as plain text: time is linear in the message, whatever phrases a configuration adds.
"""

import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from functools import cache, lru_cache, partial
from itertools import islice
from typing import Any, NamedTuple

from fleet.text import apostrophed, tables
from fleet.text.prompts import EVENT_CHARS_MAX, LANGUAGES, LEVELS, Event, Objection, Prompt, words_of

PRECEDENCE = ("frustration", "knowledge", "correction")
"""Kinds of signals; of several in one message the first of these is returned."""
_PRAISE = "validation"
"""Kind of the phrases that are praise, and no correction."""

_NEGATION_CHARS = 25
_SHORT_CHARS = 160
"""Greatest length of a message in which weak phrases count."""
EXCERPT_CHARS_MAX = 240
_SENTENCE_WORDS_MIN = 5
"""A shorter sentence may only object ("No, again:"); the right way follows it."""
_SENTENCE_CHARS = 300
"""Greatest distance from a phrase to the ends of its sentence."""
_OPENING_CHARS_MAX = 2_000
_HITS_MAX = 40
"""Greatest number of matches of one phrase."""
_GERUND = "*ing"
"""End of a phrase that stands for any word with this ending."""
_LETTER = r"[^\W\u2e80-\U0010ffff]"
"""A part of a word, in scripts with spaces between words."""
_LEXEME = r"[^\W_](?:[\w']*\w)?|[^\w\s]"
_TOKENS_MAX = 500
_ENDS = ".!?;:\n。！？；：…"
_BREAKS = frozenset(_ENDS + ",，、()（）")
_MARKS = " .,!\n。！，、"
_QUESTION = ("?", "？", "吗", "呢", "か", "の？")


class _Signal(NamedTuple):
    """Signal of a correction in a message.

    Attributes:
        kind: frustration, knowledge or correction.
        confidence: strong, medium or weak.
        excerpt: the sentence around the phrase, with the next one where it is short or ends in a colon, in the sender's
            words; at most ``EXCERPT_CHARS_MAX`` characters.
        sender: "" for the person, else the name of the agent that sent it, as the host gives it.
    """

    kind: str
    confidence: str
    phrase: str
    excerpt: str
    sender: str = ""


_Words = Mapping[str, Sequence[str]]
"""The lists of one language in ``data/phrases.toml``."""


class _Phrase(NamedTuple):
    """Row of the table, in lower case.

    Attributes:
        words: the lists of its language; none for a person's own phrase.
        where: "^" for the first words of a message, "~" for the start of a sentence, else "".
        is_gerund: a word with the ending "ing" must continue it.
        kind: one of ``PRECEDENCE``, or praise.
        points: 1 to 3.
        cue: its longest word, as a prefilter; "" for scripts without spaces.
    """

    text: str
    words: _Words
    where: str = ""
    is_gerund: bool = False
    kind: str = "correction"
    points: int = 2
    cue: str = ""


_Wording = tuple[frozenset[str], ...]
"""Alternatives for each word of a sequence."""


class _Signs(NamedTuple):
    """Signs of an objection in one language: the weight of each, and its wordings.

    ``words``: least and greatest number of words of a message; ``enough``: least sum of the weights.
    """

    enough: int
    words: tuple[int, int]
    weighted: tuple[tuple[int, tuple[_Wording, ...]], ...]


class _Table(NamedTuple):
    """Phrases, exclusions and signs of one configuration."""

    phrases: tuple[_Phrase, ...]
    exclusions: tuple[str, ...]
    hidden: tuple[tuple[str, str], ...]
    signs: tuple[_Signs, ...]


class _Hit(NamedTuple):
    """Match of a phrase in a message, with its points there."""

    phrase: _Phrase
    start: int
    points: int

    @property
    def end(self) -> int:
        return self.start + len(self.phrase.text)


def detect(message: str, settings: Any = None) -> _Signal | None:
    """Return the correction in a message; None for none.

    ``settings``: ``[triggers]`` of ``fleet.toml``; None means the defaults.
    """
    if settings is not None and settings.off:
        return None
    sender, text = Prompt(message).own_words()
    minimum = LEVELS.index(settings.minimum if settings is not None else "medium") + 1
    hits = _hits(_lower(text), _table_of(settings))
    points = min(3, sum(hit.points for hit in hits))
    if points < minimum:
        return None
    top = max(hits, key=lambda hit: (hit.points, -hit.start))
    clear = [hit for hit in hits if hit.points > 1] or hits
    kind = min((hit.phrase.kind for hit in clear), key=PRECEDENCE.index)
    return _Signal(kind, LEVELS[points - 1], top.phrase.text.strip(), _excerpt(text, top), sender)


# The table.


_phrase_lists = cache(partial(tables, "phrases.toml"))


def _table_of(settings: Any) -> _Table:
    """Return the table for ``[triggers]``; None means the defaults."""
    if settings is None:
        return _table(LANGUAGES)
    own = tuple(tuple(phrases) for phrases in (settings.weak, settings.medium, settings.strong))
    return _table(tuple(settings.languages), own, tuple(settings.exclusions), tuple(settings.without))


@lru_cache(maxsize=4)
def _table(
    languages: tuple[str, ...],
    own: tuple[tuple[str, ...], ...] = (),
    exclusions: tuple[str, ...] = (),
    without: tuple[str, ...] = (),
) -> _Table:
    known = [_phrase_lists()[name] for name in languages if name in LANGUAGES]
    rows = [
        _row(text, kind, level, lists)
        for lists in known
        for kind in (*PRECEDENCE, _PRAISE)
        for level, texts in lists[kind].items()
        for text in texts
    ]
    dropped = set(map(_bare, without))
    rows = [row for row in rows if row.text not in dropped]
    rows += [
        _row(_own(text), "correction", level, {}) for level, texts in zip(LEVELS, own, strict=False) for text in texts
    ]
    excluded = {text for lists in known for text in lists["exclusions"]}
    excluded |= {_own(text) for text in exclusions if text.strip()}
    alike = excluded.union(*(lists["lookalikes"] for lists in known))
    return _Table(
        phrases=tuple(row for row in rows if row.text),
        exclusions=tuple(sorted(excluded, key=_longest_first)),
        hidden=tuple((text, _cue_of(text)) for text in sorted(alike, key=_longest_first)),
        signs=tuple(_signs_of(lists["signs"]) for lists in known if "signs" in lists and "signs" not in dropped),
    )


def _bare(text: str) -> str:
    return _own(text).lstrip("^~").removesuffix(_GERUND)


def _signs_of(section: Mapping[str, Any]) -> _Signs:
    signs = []
    for row in section["each"].replace("\n ", " | ").splitlines():  # a blank at its start continues a row
        if row and not row.startswith("#"):
            weight, _, texts = row.partition(" ")
            wordings = tuple(tuple(frozenset(slot.split("/")) for slot in text.split()) for text in texts.split("|"))
            signs.append((int(weight), wordings))
    return _Signs(section["enough"], tuple(section["words"]), tuple(signs))


def _longest_first(text: str) -> tuple[int, str]:
    return -len(text), text


def _row(row: str, kind: str, level: str, words: _Words) -> _Phrase:
    where = row[:1] if row[:1] in ("^", "~") else ""
    text = row[len(where) :].removesuffix(_GERUND).replace("*", "")  # messages come without Markdown's emphasis
    return _Phrase(text, words, where, row.endswith(_GERUND), kind, LEVELS.index(level) + 1, _cue_of(text))


def _cue_of(text: str) -> str:
    return max(words_of(text), key=len, default="")


def _own(text: str) -> str:
    """Return a configured phrase in the form in which messages are searched."""
    return _lower(apostrophed(text.strip()))


def _lower(text: str) -> str:
    """Return a text in lower case, with the same length: positions stay valid."""
    changed = text.lower()
    return changed if len(changed) == len(text) else "".join(c.lower() if len(c.lower()) == 1 else c for c in text)


# The search.


def _hits(low: str, table: _Table) -> list[_Hit]:
    """Return the phrases of a message that count, each once, none within another, and no praise."""
    is_excluded = _begins(low, table.exclusions)
    words = {"", *words_of(low)}
    for text, cue in table.hidden:
        if cue in words and text in low:
            low = _whole(text).sub(lambda match: "\x00" * len(match[0]), low, count=_HITS_MAX)
    opening = _opening(low)
    hits = [
        hit
        for phrase in table.phrases
        if phrase.cue in words and phrase.text in low
        for hit in [_best(low, phrase, opening)]
        if hit
    ]
    if is_excluded:
        hits = [hit for hit in hits if hit.phrase.points == 3]
    apart = _without_overlaps(hits)
    counted = _counting([hit for hit in apart if hit.phrase.kind != _PRAISE], low, opening)
    if is_excluded or sum(hit.points for hit in counted) > 1 or any(hit.phrase.kind == _PRAISE for hit in hits):
        return counted
    return next(([hit] for signs in table.signs if (hit := _sign(low, opening, signs))), counted)


def _sign(low: str, opening: int, signs: _Signs) -> _Hit | None:
    """Return a hit at the sign with the greatest weight, if the weights of all signs add up to enough."""
    tokens = [(match.start(), match[0]) for match in islice(re.finditer(_LEXEME, low), _TOKENS_MAX)]
    if not signs.words[0] <= sum(token[0].isalnum() for _, token in tokens) <= signs.words[1]:
        return None
    tokens.insert(sum(start < opening for start, _ in tokens), (opening, "~"))
    words = [token for _, token in tokens]
    matches = [
        (weight, tokens[max(ends)][0])
        for weight, wordings in signs.weighted
        if max(ends := [_end_of(wording, words) for wording in wordings]) >= 0
    ]
    if sum(weight for weight, _ in matches) < signs.enough:
        return None
    return _Hit(_Phrase("", {}), max(matches)[1], 2)


def _end_of(wording: _Wording, words: Sequence[str]) -> int:
    """Return the index of the last word of a wording in a message; -1 where there is none."""
    last = len(wording) - 1
    for end in range(last, len(words)):
        if words[end] in wording[last] and all(words[end - last + n] in slot for n, slot in enumerate(wording)):
            return end
    return -1


def _best(low: str, phrase: _Phrase, opening: int) -> _Hit | None:
    """Return the match of a phrase with most points, of equal ones the first; None for no points."""
    hits = (_Hit(phrase, start, _points(low, phrase, start)) for start in _starts(low, phrase, opening))
    best = max(hits, key=lambda hit: hit.points, default=None)
    return best if best and best.points else None


def _starts(low: str, phrase: _Phrase, opening: int) -> Iterator[int]:
    pattern = _whole(phrase.text, is_gerund=phrase.is_gerund)
    matches = pattern.finditer(low) if phrase.where != "^" else filter(None, [pattern.match(low, opening)])
    for start in (match.start() for match in islice(matches, _HITS_MAX)):
        if phrase.where != "~" or start == opening or (" \n" + low[:start].rstrip(" "))[-1] in _ENDS:
            yield start


def _points(low: str, phrase: _Phrase, start: int) -> int:
    end, words = start + len(phrase.text), phrase.words
    if _is_negated(low, start, end, words):
        return 0
    if phrase.points == 3:
        return phrase.points
    begin, stop = _sentence(low, start, end)
    is_bare = len(phrase.text) <= 5 and low.strip(_MARKS) == phrase.text.strip(_MARKS)  # an answer, most likely
    before = low[begin:start]
    penalty = is_bare + _asks(low[begin:stop], words)
    penalty += any(word in before and _whole(word).search(before) for word in words.get("supposing", ()))
    is_task = _begins(low, words.get("tasks", ())) or any(word in low for word in words.get("tasks_within", ()))
    return max(0, phrase.points - penalty - (phrase.where != "^" and is_task))


def _is_negated(low: str, start: int, end: int, words: _Words) -> bool:
    floor = max(0, start - _NEGATION_CHARS)
    begin = max([floor, *(position + 1 for position in range(floor, start) if low[position] in _BREAKS)])
    before = low[begin:start]
    for negator in words.get("negators", ()):
        match = _whole(negator).search(before) if negator in before else None
        if match and not (negator == "no" and not before[: match.start()].strip()):  # a first "no" is an answer
            return True
    return low.startswith(tuple(words.get("negated_after", ())), end)


def _asks(sentence: str, words: _Words) -> bool:
    is_marked = sentence.rstrip().endswith(_QUESTION)
    asking = words.get("asking", ())
    return _begins(sentence, [word for word in asking if is_marked or " " in word]) if asking else is_marked


def _without_overlaps(hits: list[_Hit]) -> list[_Hit]:
    """Return the hits without overlaps: the one with more points stays, then the longer."""
    chosen: list[_Hit] = []
    for hit in sorted(hits, key=lambda hit: (-hit.points, -len(hit.phrase.text), hit.start)):
        if all(hit.end <= other.start or other.end <= hit.start for other in chosen):
            chosen.append(hit)
    return chosen


def _counting(hits: list[_Hit], low: str, opening: int) -> list[_Hit]:
    """Return the hits without weak phrases that are alone or in a long message."""
    weak = [hit for hit in hits if hit.phrase.points == 1]
    firm = [hit for hit in hits if hit not in weak]
    if len(low) > _SHORT_CHARS:
        return firm
    return firm + [hit for hit in weak if len(hits) > 1 or hit.start == opening]


# Text.


@lru_cache(maxsize=2_000)
def _whole(text: str, *, is_gerund: bool = False) -> re.Pattern[str]:
    """Return the pattern of a text as whole words; scripts without spaces have no word ends."""
    before = rf"(?<!{_LETTER})" if re.match(_LETTER, text) else ""
    after = rf"(?!{_LETTER})" if re.match(_LETTER, text[-1:]) else ""
    return re.compile(f"{before}{re.escape(text)}{after}" + rf"(?={_LETTER}{{2,21}}ing(?!{_LETTER}))" * is_gerund)


def _begins(low: str, texts: Iterable[str]) -> bool:
    """Return whether a text opens with one of these, after fillers."""
    opening = _opening(low)
    return any(low.startswith(text, opening) and _whole(text).match(low, opening) for text in texts)


def _opening(low: str) -> int:
    """Return the position of the first word after fillers such as "ok" or "hmm"."""
    start = 0
    for _ in range(8):
        while start < min(len(low), _OPENING_CHARS_MAX) and not low[start].isalnum() and low[start] != "·":
            start += 1
        end = start
        while end < len(low) and (low[end].isalnum() or low[end] == "'") and end - start < 16:
            end += 1
        word = low[start:end]
        if not word or (word not in _phrase_lists()["fillers"] and not set(word) <= set("uhm")):
            return start
        start = end
    return start


def _sentence(low: str, start: int, end: int) -> tuple[int, int]:
    floor, roof = max(0, start - _SENTENCE_CHARS), min(len(low), end + _SENTENCE_CHARS)
    begin = max([floor, *(low.rfind(mark, floor, start) + 1 for mark in _ENDS)])
    stop = min([roof, *(position for mark in _ENDS if (position := low.find(mark, end, roof)) >= 0)])
    return begin, min(len(low), stop + 1)


def _excerpt(text: str, hit: _Hit) -> str:
    begin, stop = _sentence(text, hit.start, min(hit.end, len(text)))
    floor = max(0, hit.start - EXCERPT_CHARS_MAX // 2)
    while begin > floor and _is_within_a_word(text, begin):
        begin, _ = _sentence(text, begin - 1, begin - 1)
    begin, roof = max(begin, floor), min(len(text), begin + EXCERPT_CHARS_MAX)
    while stop < roof and (
        text[stop - 1] == ":" or _is_within_a_word(text, stop) or _word_count(text[begin:stop]) < _SENTENCE_WORDS_MIN
    ):
        _, stop = _sentence(text, stop, stop)
    return text[begin : min(stop, begin + EXCERPT_CHARS_MAX)].replace("·", "…").strip()


def _is_within_a_word(text: str, position: int) -> bool:
    """Return whether the dot before a position ends no sentence, as in ``main.go``, ``../a`` and the dots "..."."""
    return text[position - 1 : position] == "." and re.match(r"[\w./]", text[position : position + 1]) is not None


def _word_count(text: str) -> int:
    """Return the number of words; in scripts without spaces two characters are one."""
    return len(text.split()) + sum(char >= "\u2e80" for char in text) // 2


# --- refusals ---------------------------------------------------------------------------------------------------------

_GO_ON = frozenset(str.split("sorry ok okay yes yeah please go on ahead continue proceed resume keep going carry and"))
_GO_ON_WORDS_MAX = 6


def objections(events: Iterable[Event], prompt: str = "") -> tuple[list[Objection], Objection | None]:
    """Return a person's objections, and the pending one without words yet, where the next reading has to begin.

    A refusal without words, and a stopped turn, get the words of the next prompt; unless that only says to go on, was
    not typed, or corrects the prompt before it while the agent had done nothing.

    ``prompt``: the next prompt; "" for none yet.
    """
    complete: list[Objection] = []
    pending: Objection | None = None
    calls: dict[str, Event] = {}
    before, last = "", None
    for event in (*events, *([Event("prompt", text=prompt)] if prompt.strip() else ())):
        if event.kind == "call":
            calls[event.id] = last = event
        elif event.kind == "refused" and event.text:
            complete.append(Objection("rejection", event, calls.get(event.id)))
        elif event.kind == "refused" and pending is None:  # of calls refused together, the first one stands for all
            pending = Objection("rejection", event, calls.get(event.id))
        elif event.kind == "stopped" and pending is None:
            pending = Objection("interruption", event, last)
        elif event.kind == "prompt":
            if pending is not None and _is_objection(event.text, before="" if last is not None else before):
                pending.words = event.text.strip()[:EVENT_CHARS_MAX]
                complete.append(pending)
            pending, before, last = None, event.text, None
    return complete, pending


def _is_objection(prompt: str, before: str) -> bool:
    """Return whether a prompt objects: it is typed, does not only say to go on, and is no edit of the one before."""
    words = _word_set(prompt)
    if not words or not Prompt(prompt).is_typed or (len(words) <= _GO_ON_WORDS_MAX and _GO_ON.issuperset(words)):
        return False
    known = _word_set(before)
    return not known or 10 * len(known & words) < 7 * len(known)


def _word_set(text: str) -> set[str]:
    return set("".join([char if char.isalnum() else " " for char in text.lower()[:EVENT_CHARS_MAX]]).split())
