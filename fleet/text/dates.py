"""Dates: the parser of times in whatever form a foreign record gives them, and relative phrases made absolute.

The grammar of phrases ("yesterday", "3 days ago", "last Tuesday") is closed: what is not in ``data/dates.toml`` stays
as it is, and so does what stands in code, quotes, links and titles, or only looks like a phrase ("today's standard",
"finished in 5 days"). A phrase that stays costs little, a wrong date is a lie: in doubt it stays.
"""

import math
import re
from bisect import bisect_right
from collections.abc import Iterator, Mapping, Sequence
from datetime import UTC, datetime, timedelta, timezone
from functools import cache
from itertools import pairwise
from pathlib import Path
from string import ascii_lowercase, ascii_uppercase
from typing import Any, NamedTuple

from fleet.text import markdown

WHEN = (
    r"(?ai:(?P<year>\d{4})[-/.](?P<month>\d{1,2})[-/.](?P<day>\d{1,2})(?!\d)"
    r"(?:(?:T|,?[ \t]{1,8})(?P<hour>\d{1,2}):(?P<minute>\d{2})(?!\d)"
    r"(?::(?P<second>\d{2})(?:[.,](?P<fraction>\d{1,9}))?)?"
    r"(?:[ \t]{0,8}(?P<zone>Z(?:-[0-9a-f]{4})?|UTC|GMT|[+-]\d{2}:?\d{2})(?!\w))?)?)"
)
"""A date, with or without time and zone. ``Z-0000`` is a fleet stamp's end."""

_NUMBER = r"(?a)\d{9,16}(?:\.\d{1,9})?"
_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
_MS = timedelta(milliseconds=1)
_CHARS_MAX = 64
_FIRST_MS = (datetime(2000, 1, 1, tzinfo=UTC) - _EPOCH) // _MS
_END_MS = (datetime(2101, 1, 1, tzinfo=UTC) - _EPOCH) // _MS
_SECONDS_MAX = _END_MS / 1000  # no time of this century is as small in ms as the last of the next is in seconds


def to_ms(value: object) -> int | None:
    """Return milliseconds since 1970, or None when it is unreadable, before 2000 or after 2100.

    Takes ISO 8601 and its looser relatives (single digits, a blank for the ``T``, ``UTC``), UTC where no zone is
    given; or a number since 1970, seconds or milliseconds by its size, also as text.
    """
    if isinstance(value, str):
        return _from_text(value.strip())
    if isinstance(value, bool) or not isinstance(value, int | float) or not math.isfinite(value):
        return None
    return _in_range(round(value * 1000) if abs(value) < _SECONDS_MAX else round(value))


def _from_text(text: str) -> int | None:
    if len(text) > _CHARS_MAX:
        return None
    if re.fullmatch(_NUMBER, text):
        return to_ms(float(text))
    found = re.fullmatch(WHEN, text)
    try:
        moment = _moment(found) if found else datetime.fromisoformat(text)
        moment = moment if moment.tzinfo else moment.replace(tzinfo=UTC)
        return _in_range((moment - _EPOCH) // _MS)
    except (ValueError, OverflowError):
        return None


def _moment(found: re.Match[str]) -> datetime:
    fraction = (found["fraction"] or "").ljust(6, "0")[:6]
    clock = (int(found[part] or 0) for part in ("year", "month", "day", "hour", "minute", "second"))
    return datetime(*clock, int(fraction), tzinfo=_zone(found["zone"]))  # type: ignore[misc, arg-type]


def _zone(text: str | None) -> timezone:
    if text is None or text[0] not in "+-":
        return UTC
    away = timedelta(hours=int(text[1:3]), minutes=int(text[-2:]))
    return timezone(-away if text[0] == "-" else away)


def _in_range(ms: int) -> int | None:
    return ms if _FIRST_MS <= ms < _END_MS else None


# --- relative phrases -------------------------------------------------------------------------------------------------

_CLOCK_UNITS = {"minute": timedelta(minutes=1), "hour": timedelta(hours=1)}
_DAYS = {"day": 1, "week": 7, "fortnight": 14}
_YEARS = range(1970, 2201)
_WEEK = 7
_MONTHS = 12

# Texts are compiled by `re` when one is used first, and kept: few processes need any.
_PROTECTED = r"""(?isx)
      (?P<ticks>`+)(?:(?!(?P=ticks)).){1,2000}?(?P=ticks)(?!`)       # code
    | !?\[[^\]\n]{0,400}\](?:\([^)\n]{0,800}\)|\[[^\]\n]{0,200}\])?     # links, and what may become one
    | <[^<>\n]{1,400}>
    | \b[a-z][a-z0-9+.-]{1,12}://\S+ | \bwww\.\S+
    | "[^"\n]{1,600}" | “[^”]{1,600}” | «[^»]{1,600}» | „[^“”]{1,600}[“”] | ‘[^’\n]{1,300}’(?!\w)
    | (?<![\w'])'[^'\n]{1,300}'(?![\w'])
    """
_LITERAL_ROW = r"\s{0,3}(?:\#{1,6}\s|>)|(?: {4}|\t)(?!\s*(?:[-*+]|\d+[.)])\s)"
_SENTENCE_END = r"[.!?;](?=\s|$)|\n"
_SENTENCE_BEGINS = r"(?:^|[.!?:;(]|\n|[-*+—–]|\d[.)])[\s*_]*$"
_TITLE_WORD = r"\s[A-Z][a-z]"
_OPTION = r"(?i)(?:^|\s)--?[a-z][\w-]*[ =]$"
_QUANTITY = r"(?i)\d\s*(?:[-–—~]|to|or|and)\s*$|[\w.]\s*(?:[–—]|-)$"
_WORD = r"[^\W\d_]+(?:['’][^\W\d_]+)?"
_PAST = r"\w{2,}ed"
_NEAR_CHARS = 40
_SENTENCE_CHARS = 400
_LOWER = str.maketrans(ascii_uppercase, ascii_lowercase)  # keeps every letter's place, as lower() does not


class _Phrase(NamedTuple):
    """Meaning of a phrase, as ``data/dates.toml`` says."""

    unit: str = ""
    by: int | str = 0
    start: int = 0
    weekday: str = ""
    added: bool = False
    only: str = ""


class _Language(NamedTuple):
    """The content of ``data/dates.toml``, ready to be looked for. ``hint`` finds nothing where no phrase can be."""

    hint: re.Pattern[str]
    pattern: re.Pattern[str]
    phrases: Sequence[_Phrase]
    numbers: Mapping[str, int]
    units: Mapping[str, str]
    weekdays: Mapping[str, int]
    is_date: re.Pattern[str]
    after_phrases: re.Pattern[str]
    joined: re.Pattern[str]
    counted: re.Pattern[str]
    words: Mapping[str, frozenset[str]]


class _Found(NamedTuple):
    """A phrase in a text: where, what it means, and what it names."""

    start: int
    end: int
    phrase: _Phrase
    said: str
    number: int
    unit: str
    weekday: int | None


def absolutize(text: str, at: datetime, *, keep_words: bool = False) -> str:
    """Return a text with its relative dates made absolute; the text itself where there is none.

    The date stands for the phrase; where that would read wrong ("yesterday's build", "this morning") the words stay and
    the date is added, which ``keep_words`` asks for everywhere. Days and weeks become a day, months a month, years a
    year, hours and minutes a time with its zone. A text that was made absolute stays as it is when it is read again.

    ``at``: when it was written, in the time zone of its writer.
    ``keep_words``: every date is added behind its phrase.
    """
    if not _language().hint.search(text):
        return text
    pieces, done = [], 0
    for found in _phrases(text):
        date = _date_of(found, at)
        if not date:
            continue
        is_added = keep_words or _is_added(found, text)
        end = _possessive_end(text, found.end)
        pieces += [text[done : found.start], f"{text[found.start : end]} ({date})" if is_added else date]
        done = end if is_added else found.end
    return "".join([*pieces, text[done:]]) if pieces else text


# --- which phrases say when -------------------------------------------------------------------------------------------


def _phrases(text: str) -> Iterator[_Found]:
    """Yield the phrases of a text that say when something was or will be."""
    language, hidden = _language(), _hidden(text)
    starts = [start for start, _ in hidden]

    def is_hidden(at: int) -> bool:
        place = bisect_right(starts, at) - 1
        return place >= 0 and at < hidden[place][1]

    lowered = text.translate(_LOWER)
    met = [_read(found) for found in language.pattern.finditer(lowered) if not is_hidden(found.start())]
    good = [each for each in met if not _is_apart(each, text)]
    listed = {
        each
        for one, other in pairwise(met)
        if language.joined.fullmatch(text, one.end, other.start)
        for each in (one, other)
    }
    refused = {_sentence(text, each.start) for each in {*met} - {*good} if each.said in language.words["day_words"]}
    for each in good:
        in_doubt = each.said in language.words["day_words"] and _sentence(text, each.start) in refused
        if each not in listed and not in_doubt:
            yield each


def _hidden(text: str) -> list[tuple[int, int]]:
    """Return where code, quotes, links, headings and comments stand, in order."""
    spans, at = [], 0
    literal = (
        {row.number for row in markdown.rows(text) if row.is_code or row.comments}
        if "\n" in text or "<!--" in text
        else ()
    )
    for number, line in enumerate(text.split("\n"), 1):
        if number in literal or re.match(_LITERAL_ROW, line):
            spans.append((at, at + len(line) + 1))
        at += len(line) + 1
    spans += [found.span() for found in re.finditer(_PROTECTED, text)]
    joined: list[tuple[int, int]] = []
    for start, end in sorted(spans):
        if joined and start < joined[-1][1]:
            joined[-1] = (joined[-1][0], max(joined[-1][1], end))
        else:
            joined.append((start, end))
    return joined


def _read(found: re.Match[str]) -> _Found:
    language, at = _language(), int(str(found.lastgroup)[1:])
    phrase, groups = language.phrases[at], found.groupdict()
    said, unit, weekday = (groups.get(f"{slot}{at}", "") for slot in "nuw")
    number = int(said) if said.isdigit() else sum(language.numbers[word] for word in re.split(r"[\s-]+", said) if word)
    unit = phrase.unit or language.units.get(unit, "")
    return _Found(*found.span(), phrase, " ".join(found[0].split()), number, unit, language.weekdays.get(weekday))


def _is_apart(found: _Found, text: str) -> bool:
    """Tell whether a phrase only looks like one, as far as the words around it tell."""
    language, end = _language(), _possessive_end(text, found.end)
    words = language.words
    before, after = text[max(found.start - _NEAR_CHARS, 0) : found.start], text[end : end + _NEAR_CHARS]
    last = [word.lower() for word in re.findall(_WORD, before)]
    following = [word.lower() for word in re.findall(_WORD, after)]
    is_next = after[:1] in (" ", "\t", "\n")
    previous = last[-1] if last and before[-1:].isspace() and before.rstrip()[-1:].isalpha() else ""
    if previous in words["before"] or (previous in words["before_spans"] and found.said.split()[0] in words["spans"]):
        return True
    if re.search(_OPTION, before) or _is_title(found, text, before):
        return True
    if is_next and (bool(words["after"] & {*following[:1]}) or language.after_phrases.match(after)):
        return True
    if language.is_date.match(after) or (found.said in words["generic_days"] and previous in words["generic_before"]):
        return True
    if found.phrase.by == "-n" and is_next and following[:1] and following[0] in words["day_words"]:
        return True
    if (found.phrase.by in ("n", "-n")) and (re.search(_QUANTITY, before) or language.counted.search(before)):
        return True
    if end != found.end:
        return found.said in words["day_words"] and words["dated"].isdisjoint(following[:2])
    return bool(found.phrase.only) and not _says_when(found, text)


def _is_title(found: _Found, text: str, before: str) -> bool:
    """Tell whether a phrase is written as names of things are: with capitals where a sentence has none."""
    said = text[found.start : found.end]
    if said.isupper() or not said[:1].isupper() or found.phrase.weekday == "week":
        return False
    return not re.search(_SENTENCE_BEGINS, before) or (found.weekday is None and bool(re.search(_TITLE_WORD, said)))


def _says_when(found: _Found, text: str) -> bool:
    """Tell whether a sentence tells what happened or will: else "today" is nowadays, "in 3 days" how long it takes."""
    start, end = _sentence(text, found.start)
    before, after = (
        [word.lower() for word in re.findall(_WORD, part)]
        for part in (text[start : found.start], text[found.end : end])
    )
    words = _language().words
    if found.phrase.only == "planned":
        said, is_order = {*before, *after}, not words["come"].isdisjoint(before[:1])
        is_one = found.unit not in _CLOCK_UNITS and words["some"].isdisjoint(before[:1])
        comes = (said & words["comes"] and is_one) or (said & words["come"] and (is_order or said & words["will"]))
        return not said & words["never"] and bool(comes or said & words["planned"])
    if not before:  # "Today I merged", and not "Today, distributed systems"
        return not words["subjects"].isdisjoint(after[:1]) and any(_is_past(after[: at + 1]) for at in range(1, 5))
    return any(_is_past(before[: at + 1]) for at in range(len(before)))


def _is_past(said: Sequence[str]) -> bool:
    """Tell whether the last of some words says what happened."""
    words = _language().words
    return said[-1] in words["told"] or bool(re.fullmatch(_PAST, said[-1]) and words["now"].isdisjoint(said[-3:-1]))


def _sentence(text: str, at: int) -> tuple[int, int]:
    """Return where the sentence around a place begins and ends."""
    first, last = max(at - _SENTENCE_CHARS, 0), min(at + _SENTENCE_CHARS, len(text))
    ends = [found.end() for found in re.compile(_SENTENCE_END).finditer(text, first, at)]
    following = re.compile(_SENTENCE_END).search(text, at, last)
    return (ends[-1] if ends else first), (following.start() if following else last)


def _possessive_end(text: str, end: int) -> int:
    return end + 2 if text[end : end + 2].lower() in ("'s", "’s") and not text[end + 2 : end + 3].isalnum() else end


def _is_added(found: _Found, text: str) -> bool:
    """Tell whether the date alone would read wrong."""
    if found.phrase.added or _possessive_end(text, found.end) != found.end:
        return True
    last = re.findall(_WORD, text[max(found.start - _NEAR_CHARS, 0) : found.start].lower())
    return not _language().words["around"].isdisjoint(last[-1:])


# --- the date of a phrase ---------------------------------------------------------------------------------------------


def _date_of(found: _Found, at: datetime) -> str:
    """Return the date that a phrase means; "" where it cannot be told."""
    phrase = found.phrase
    by = {"n": found.number, "-n": -found.number}.get(phrase.by, 0) if isinstance(phrase.by, str) else phrase.by
    try:
        if found.weekday is not None:
            return _weekday(found, at, by)
        return _moved(at + timedelta(days=phrase.start), found.unit, by)
    except (OverflowError, ValueError):
        return ""


def _weekday(found: _Found, at: datetime, by: int) -> str:
    ahead = (int(found.weekday or 0) - at.weekday()) % _WEEK
    how = found.phrase.weekday
    if how == "before":
        return _moved(at, "day", ahead - _WEEK)
    if how == "this":
        return _moved(at, "day", ahead)
    if how == "week":
        return _moved(at, "day", int(found.weekday or 0) - at.weekday() + by * _WEEK)
    if how == "agreed" and at.weekday() + (ahead or _WEEK) < _WEEK:
        return ""  # said on a Monday, "next Friday" is this week's for some and next week's for others
    return _moved(at + timedelta(days=ahead or _WEEK), found.unit or "day", by)


def _moved(at: datetime, unit: str, by: int) -> str:
    """Return the date so many units away, as exact as the unit is."""
    if unit in _CLOCK_UNITS:
        moment = (at.astimezone(UTC) + by * _CLOCK_UNITS[unit]).astimezone(at.tzinfo)
        said = moment.isoformat(timespec="minutes").replace("+00:00", "Z")
    elif unit in _DAYS:
        moment = at + timedelta(days=by * _DAYS[unit])
        said = moment.strftime("%Y-%m-%d")
    else:
        months = at.year * _MONTHS + at.month - 1 + by * (_MONTHS if unit == "year" else 1)
        moment = at.replace(year=months // _MONTHS, month=months % _MONTHS + 1, day=1)
        said = moment.strftime("%Y" if unit == "year" else "%Y-%m")
    return said if moment.year in _YEARS else ""


# --- the grammar ------------------------------------------------------------------------------------------------------


@cache
def _language() -> _Language:
    import tomllib  # 2 ms, which a hook that logs a failure need not take

    with Path(__file__).with_name("data").joinpath("dates.toml").open("rb") as file:
        raw = tomllib.load(file)["en"]
    numbers = {word: int(value) for word, _, value in (each.partition("=") for each in raw["numbers"].split())}
    units = {word: unit for unit, words in raw["units"].items() for word in words.split()}
    weekdays = {word: day for day, word in enumerate(raw["weekdays"].split())}
    tens = [word for word, value in numbers.items() if value >= 20]
    ones = [word for word, value in numbers.items() if value < 10]
    slots = {
        "n": rf"[0-9]{{1,4}}|(?:{'|'.join(tens)})[ -](?:{'|'.join(ones)})|{_any(numbers)}",
        "unit": _any(units),
        "weekday": _any(weekdays),
    }
    said = sorted(raw["phrases"], key=lambda each: (-len(each.split()), each))
    alternatives = [rf"(?P<p{at}>{_alternative(each, at, slots)})" for at, each in enumerate(said)]
    months = f"(?:{_any(raw['months'].split())})[a-z]*\\.?"
    lists = {key: value for key, value in raw.items() if isinstance(value, str)} | raw["only"]
    return _Language(
        hint=re.compile(rf"\b(?:{raw['hint']})\b", re.IGNORECASE),
        pattern=re.compile(
            rf"\b(?<![\w@{{=/\\#$.\-+~<:%,])(?:{'|'.join(alternatives)})(?![\w@=/\\}}(\[]|-\w|[.:]\w|\s*:?=)"
        ),
        phrases=[_Phrase(**raw["phrases"][each]) for each in said],
        numbers=numbers,
        units=units,
        weekdays=weekdays,
        is_date=re.compile(
            r"\s*,?\s*(?:on\s+)?\(?\s*(?:\d{4}-\d\d|\d{4}\)|\d{1,2}[./]\d{1,2}\b|"
            rf"{months} \d|\d{{1,2}}(?:st|nd|rd|th)? {months})",
            re.IGNORECASE,
        ),
        after_phrases=re.compile(rf"\s+(?:{raw['after_phrases']})\b", re.IGNORECASE),
        joined=re.compile(rf"(?:\s*(?:[,/&–]|\b(?:{_any(raw['joined'].split())})\b))*\s*", re.IGNORECASE),
        counted=re.compile(rf"\b(?:{_any(units)}|{_any(numbers)}),?\s+(?:and|or|to)?\s*$", re.IGNORECASE),
        words={key: frozenset(value.split()) for key, value in lists.items()},
    )


def _alternative(phrase: str, at: int, slots: Mapping[str, str]) -> str:
    """Return the expression of one phrase; its slots are named ``n3``, ``u3``, ``w3``, and itself ``p3``."""
    found = phrase.replace("(", "(?:").replace(" ", r"[ \t]+").replace(r")?[ \t]+", ")?")
    for name, inner in slots.items():
        found = found.replace(f"{{{name}}}", rf"(?P<{name[0]}{at}>{inner})")
    return found


def _any(words: Any) -> str:
    return "|".join(sorted(map(re.escape, words), key=lambda word: (-len(word), word)))
