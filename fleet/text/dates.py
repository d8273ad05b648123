"""Parser of the dates of foreign records, and conversion of relative phrases to absolute dates.

The grammar of phrases ("yesterday", "3 days ago", "last Tuesday") is closed: only phrases of ``data/dates.toml`` are
converted, and none in code, quotes, links and titles, or that only looks like a date ("today's standard", "finished in
5 days"). A wrong date is worse than a phrase that stays: in doubt it stays.
"""

import re
from collections.abc import Iterator, Mapping, Sequence
from datetime import UTC, datetime, timedelta
from functools import cache
from itertools import pairwise
from string import ascii_lowercase, ascii_uppercase
from typing import Any, NamedTuple

from fleet.text import markdown, tables

_NUMBER = r"(?a)\d{9,16}(?:\.\d{1,9})?"
_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
_MS = timedelta(milliseconds=1)
_CHARS_MAX = 64
_FIRST_MS = (datetime(2000, 1, 1, tzinfo=UTC) - _EPOCH) // _MS
_END_MS = (datetime(2101, 1, 1, tzinfo=UTC) - _EPOCH) // _MS
_SECONDS_MAX = _END_MS / 1000  # a larger number is in milliseconds: those of 2000 are more than the seconds of 2101


def to_ms(value: object) -> int | None:
    """Return a time in milliseconds since 1970, or None when it is unreadable, before 2000 or after 2100.

    Accepted are ISO 8601 and looser forms (single digits, a blank for the ``T``, ``UTC``), in UTC where no zone is
    given; or a number since 1970, seconds or milliseconds by its size, also as text.
    """
    if isinstance(value, str):
        return _from_text(value.strip())
    if isinstance(value, bool) or not isinstance(value, int | float) or not abs(value) < _END_MS:
        return None
    return _in_range(round(value * 1000) if abs(value) < _SECONDS_MAX else round(value))


def _from_text(text: str) -> int | None:
    if len(text) > _CHARS_MAX:
        return None
    if re.fullmatch(_NUMBER, text):
        return to_ms(float(text))
    if match := re.fullmatch(markdown.WHEN, text):
        year, month, day, hour, minute, second, fraction, zone = match.groups("0")
        clock = f"{hour:0>2}:{minute:0>2}:{second:0>2}.{fraction}{zone if zone[0] in '+-' else 'Z'}"
        text = f"{year}-{month:0>2}-{day:0>2}T{clock}"
    try:
        moment = datetime.fromisoformat(text)
        moment = moment if moment.tzinfo else moment.replace(tzinfo=UTC)
        return _in_range((moment - _EPOCH) // _MS)
    except (ValueError, OverflowError):
        return None


def _in_range(ms: int) -> int | None:
    return ms if _FIRST_MS <= ms < _END_MS else None


# --- relative phrases -------------------------------------------------------------------------------------------------

_CLOCK_UNITS = {"minute": timedelta(minutes=1), "hour": timedelta(hours=1)}
_DAYS = {"day": 1, "week": 7, "fortnight": 14}
_YEARS = range(1970, 2201)
_WEEK = 7
_MONTHS = 12
_WORD = r"[^\W\d_]+(?:['’][^\W\d_]+)?"
_NEAR_CHARS = 40
_SENTENCE_CHARS = 400
_LOWER = str.maketrans(ascii_uppercase, ascii_lowercase)  # keeps the length of a text, as lower() does not


class _Phrase(NamedTuple):
    """Meaning of a phrase, a row of ``data/dates.toml``."""

    unit: str = ""
    by: int | str = 0
    start: int = 0
    weekday: str = ""
    added: bool = False
    only: str = ""


class _Language(NamedTuple):
    """Grammar of ``data/dates.toml``, compiled. A text in which its expression ``hint`` finds nothing has no phrase."""

    pattern: re.Pattern[str]
    phrases: Sequence[_Phrase]
    numbers: Mapping[str, int]
    units: Mapping[str, str]
    weekdays: Mapping[str, int]
    expressions: Mapping[str, re.Pattern[str]]
    words: Mapping[str, frozenset[str]]


class _Match(NamedTuple):
    """Match of a phrase: its span, its meaning, its text, and the values of its slots."""

    start: int
    end: int
    phrase: _Phrase
    text: str
    number: int
    unit: str
    weekday: int | None


def absolutize(text: str, written: datetime, *, keep_words: bool = False) -> str:
    """Return a text with absolute dates for its relative ones, each as exact as its phrase. Idempotent.

    The date replaces the phrase. If that would read wrong ("yesterday's build", "this morning"), or with
    ``keep_words``, the words stay and the date is added.

    ``written``: when the text was written, in the time zone of its writer.
    """
    if not _language().expressions["hint"].search(text):
        return text
    pieces, position = [], 0
    for match in _matches(text):
        date = _date_of(match, written)
        if not date:
            continue
        is_added = keep_words or _is_added(match, text)
        end = _possessive_end(text, match.end)
        pieces += [text[position : match.start], f"{text[match.start : end]} ({date})" if is_added else date]
        position = end if is_added else match.end
    return "".join([*pieces, text[position:]])


# --- phrases that are dates -------------------------------------------------------------------------------------------


def _matches(text: str) -> Iterator[_Match]:
    """Yield the phrases of a text that date something."""
    language, hidden = _language(), _hidden(text)
    lowered = text.translate(_LOWER)
    matches = [_parsed(match) for match in language.pattern.finditer(lowered) if not hidden[match.start()]]
    listed = {
        match
        for pair in pairwise(matches)
        if language.expressions["joined"].fullmatch(text, pair[0].end, pair[1].start)
        for match in pair
    }
    matches = [match for match in matches if match not in listed and _is_date(match, text)]
    undated = {match for match in matches if not _is_dated_sentence(match, text)}
    rules = {_sentence(text, match.start) for match in undated if match.phrase.only in ("happened", "coming")}
    yield from (match for match in matches if match not in undated and _sentence(text, match.start) not in rules)


def _hidden(text: str) -> bytearray:
    """Return for each character whether it is in code, a quote, a link or a heading."""
    hidden, start = bytearray(len(text) + 1), 0
    code = {row.number for row in markdown.rows(text) if row.is_code}
    for number, line in enumerate(text.split("\n"), 1):
        if number in code or _language().expressions["literal_row"].match(line):
            hidden[start : start + len(line) + 1] = b"\1" * (len(line) + 1)
        start += len(line) + 1
    for match in _language().expressions["protected"].finditer(text):
        hidden[match.start() : match.end()] = b"\1" * len(match[0])
    return hidden


def _parsed(match: re.Match[str]) -> _Match:
    language, index = _language(), int(str(match.lastgroup)[1:])
    phrase, groups = language.phrases[index], match.groupdict()
    number, unit, weekday = (groups.get(f"{slot}{index}", "") for slot in "nuw")
    words = re.split(r"[\s-]+", number)
    value = int(number) if number.isdigit() else sum(language.numbers[word] for word in words if word)
    unit = phrase.unit or language.units.get(unit, "")
    return _Match(*match.span(), phrase, " ".join(match[0].split()), value, unit, language.weekdays.get(weekday))


def _is_date(match: _Match, text: str) -> bool:
    """Return whether a phrase dates something, judged by the words around it."""
    expressions, words, end = _language().expressions, _language().words, _possessive_end(text, match.end)
    before, after = text[max(match.start - _NEAR_CHARS, 0) : match.start], text[end : end + _NEAR_CHARS]
    preceding, following = _words_of(before), _words_of(after)
    previous = preceding[-1] if preceding and re.search(r"[^\W\d_]\s+$", before) else ""
    if previous in words["before"] or (match.text in words["generic_days"] and previous in words["generic_before"]):
        return False
    is_span = match.text.split()[0] in words["spans"]
    unlike = ["option", "talk", "of_weekday"]
    unlike += ["owned"] if is_span else []
    unlike += ["quantity", "counted"] if match.phrase.by in ("n", "-n") else []
    if any(expressions[each].search(before) for each in unlike) or (is_span and previous in words["before_spans"]):
        return False
    has_other = any(expressions[each].match(after) for each in ("dated_after", "after_phrases"))
    if has_other or words["after"] & {*following[:1]} or _is_title(match, text, before):
        return False
    if end != match.end:
        is_name = match.text in words["day_words"] or match.phrase.by == "n"  # "today's date", "30 days from today's"
        return not is_name or not words["dated"].isdisjoint(following[:2])
    return True


def _words_of(text: str) -> list[str]:
    return [word.lower() for word in re.findall(_WORD, text)]


def _is_title(match: _Match, text: str, before: str) -> bool:
    """Return whether a phrase has a capital where a sentence has none, as in the name of a thing."""
    phrase = text[match.start : match.end]
    if phrase.isupper() or not phrase[:1].isupper() or match.phrase.weekday == "week":
        return False
    return not _language().expressions["sentence_begins"].search(before)


def _is_dated_sentence(match: _Match, text: str) -> bool:
    """Return whether a sentence tells of the past or of a plan: else "today" is nowadays, "in 3 days" a duration.

    "Yesterday" and "tomorrow" are then relative to any day, as in a rule; alone, or after "since", they are dates.
    """
    start, end = _sentence(text, match.start)
    before, after = _words_of(text[start : match.start]), _words_of(text[match.end : end])
    words, sentence = _language().words, {*before, *after}
    if match.phrase.weekday == "this" and _past_verbs(before, after) - words["coming"]:
        return False  # the Friday that "we met this Friday" means is over
    if not match.phrase.only or _possessive_end(text, match.end) != match.end:
        return True
    if match.phrase.only in ("happened", "coming"):
        if not sentence or _language().expressions["anchored"].search(text, start, match.start):
            return True
        if match.phrase.only == "happened":
            return bool(_past_verbs(before, after))
        is_coming = sentence & (words["coming"] | words["comes"]) or before[-1:] == ["is"]
        return bool(is_coming) and not sentence & words["rule"]
    if match.phrase.only == "ahead":
        return _is_ahead(before, after)
    if match.phrase.only == "planned":
        is_order = not words["come"].isdisjoint(before[:1])
        is_one = match.unit not in _CLOCK_UNITS and words["some"].isdisjoint(before[:1])
        is_one = is_one and not sentence & words["lasting"]
        will = sentence & words["will"] if before[:2] != ["let's", "encrypt"] else set()
        is_event = (sentence & words["comes"] and is_one) or (sentence & words["come"] and (is_order or will))
        return not sentence & words["never"] and bool(is_event or sentence & words["planned"])
    if not before:  # "Today I merged", and not "Today, distributed systems"
        return not words["subjects"].isdisjoint(after[:1]) and any(_is_past(after[: end + 1]) for end in range(1, 5))
    return any(_is_past(before[: end + 1]) for end in range(len(before)))


def _is_ahead(before: Sequence[str], after: Sequence[str]) -> bool:
    """Return whether a sentence announces one event, and neither sets a value nor tells of the past."""
    words, sentence = _language().words, {*before, *after}
    is_value = not words["values"].isdisjoint(before[-1:]) or not words["some"].isdisjoint(before[:1])
    if is_value or sentence & (words["rule"] | words["lasting"]) or _past_verbs(before, after) - words["coming"]:
        return False
    return bool(sentence & (words["coming"] | words["comes"] | words["ahead"]))


def _past_verbs(*parts: Sequence[str]) -> set[str]:
    """Return the verbs in the parts of a sentence that tell of the past."""
    return {each[end] for each in parts for end in range(len(each)) if _is_past(each[: end + 1], "happened")}


def _is_past(words: Sequence[str], verbs: str = "past") -> bool:
    """Return whether the last of some words is a verb of the past, of the named list or by its form."""
    lists = _language().words
    if verbs == "past" and words[-1] in lists["past"]:
        return True
    if words[-1] in lists["either"] and not lists["persons"].isdisjoint(words[-2:-1]):
        return True
    is_verb = words[-1] in lists[verbs] or _language().expressions["past"].fullmatch(words[-1])
    return bool(is_verb and lists["now"].isdisjoint(words[-3:-1]))


def _sentence(text: str, position: int) -> tuple[int, int]:
    first, last = max(position - _SENTENCE_CHARS, 0), min(position + _SENTENCE_CHARS, len(text))
    sentence_end = _language().expressions["sentence_end"]
    ends = [match.end() for match in sentence_end.finditer(text, first, position)]
    following = sentence_end.search(text, position, last)
    return (ends[-1] if ends else first), (following.start() if following else last)


def _possessive_end(text: str, end: int) -> int:
    return end + 2 if text[end : end + 2] in ("'s", "’s") else end


def _is_added(match: _Match, text: str) -> bool:
    """Return whether the date alone would read wrong."""
    if match.phrase.added or _possessive_end(text, match.end) != match.end:
        return True
    preceding = _words_of(text[max(match.start - _NEAR_CHARS, 0) : match.start])
    words = _language().words
    is_part = preceding[-1:] == ["of"] and not words["parts"].isdisjoint(preceding[-2:])  # "at the end of last week"
    return is_part or not words["around"].isdisjoint(preceding[-1:])


# --- the date of a phrase ---------------------------------------------------------------------------------------------


def _date_of(match: _Match, written: datetime) -> str:
    """Return the date of a phrase; "" where it is ambiguous or out of range."""
    phrase = match.phrase
    by = {"n": match.number, "-n": -match.number}.get(phrase.by, 0) if isinstance(phrase.by, str) else phrase.by
    try:
        if match.weekday is not None:
            return _weekday(match, match.weekday, written, by)
        return _shifted(written + timedelta(days=phrase.start), match.unit, by)
    except (OverflowError, ValueError):
        return ""


def _weekday(match: _Match, weekday: int, written: datetime, by: int) -> str:
    ahead = (weekday - written.weekday()) % _WEEK
    rule = match.phrase.weekday
    if rule == "before":
        return _shifted(written, "day", ahead - _WEEK)
    if rule == "this":
        return _shifted(written, "day", ahead)
    if rule == "week":
        return _shifted(written, "day", weekday - written.weekday() + by * _WEEK)
    if rule == "agreed" and written.weekday() + (ahead or _WEEK) < _WEEK:
        return ""  # on a Monday, "next Friday" is this week's for some and next week's for others
    return _shifted(written + timedelta(days=ahead or _WEEK), match.unit or "day", by)


def _shifted(moment: datetime, unit: str, by: int) -> str:
    """Return the date ``by`` units away, as exact as the unit is."""
    if unit in _CLOCK_UNITS:
        date = (moment.astimezone(UTC) + by * _CLOCK_UNITS[unit]).astimezone(moment.tzinfo)
        text = date.isoformat(timespec="minutes").replace("+00:00", "Z")
    elif unit in _DAYS:
        date = moment + timedelta(days=by * _DAYS[unit])
        text = date.strftime("%Y-%m-%d")
    else:
        months = moment.year * _MONTHS + moment.month - 1 + by * (_MONTHS if unit == "year" else 1)
        date = moment.replace(year=months // _MONTHS, month=months % _MONTHS + 1, day=1)
        text = date.strftime("%Y" if unit == "year" else "%Y-%m")
    return text if date.year in _YEARS else ""


# --- the grammar ------------------------------------------------------------------------------------------------------


@cache
def _language() -> _Language:
    grammar = tables("dates.toml")
    raw = grammar["en"]
    numbers = {word: int(value) for word, _, value in (phrase.partition("=") for phrase in raw["numbers"].split())}
    units = {word: unit for unit, words in raw["units"].items() for word in words.split()}
    weekdays = {word: day for day, word in enumerate(raw["weekdays"].split())}
    tens = [word for word, value in numbers.items() if value >= 20]
    ones = [word for word, value in numbers.items() if value < 10]
    slots = {
        "n": rf"[0-9]{{1,4}}|(?:{'|'.join(tens)})[ -](?:{'|'.join(ones)})|{_any(numbers)}",
        "unit": _any(units),
        "weekday": _any(weekdays),
    }
    phrases = sorted(raw["phrases"], key=lambda phrase: (-len(phrase.split()), phrase))
    alternatives = [rf"(?P<p{index}>{_alternative(phrase, index, slots)})" for index, phrase in enumerate(phrases)]
    expressions = grammar["expressions"] | raw["expressions"]
    slots |= {"number": _any(numbers), "month": _any(raw["months"].split()), "day": _any(day[:3] for day in weekdays)}
    for name, inner in slots.items():
        expressions = {key: value.replace(f"{{{name}}}", inner) for key, value in expressions.items()}
    lists = {key: value for key, value in raw.items() if isinstance(value, str)} | raw["only"]
    return _Language(
        pattern=re.compile(
            rf"\b(?<![\w@{{=/\\#$.\-+~<:%,])(?:{'|'.join(alternatives)})(?![\w@=/\\}}(\[]|-\w|[.:]\w|\s*:?=)"
        ),
        phrases=[_Phrase(**raw["phrases"][phrase]) for phrase in phrases],
        numbers=numbers,
        units=units,
        weekdays=weekdays,
        expressions={name: re.compile(expression) for name, expression in expressions.items()},
        words={key: frozenset(value.split()) for key, value in lists.items()},
    )


def _alternative(phrase: str, index: int, slots: Mapping[str, str]) -> str:
    """Return the expression of a phrase; the groups of its slots are named ``n3``, ``u3``, ``w3``."""
    expression = phrase.replace("(", "(?:").replace(" ", r"[ \t]+").replace(r")?[ \t]+", ")?")
    for name, inner in slots.items():
        expression = expression.replace(f"{{{name}}}", rf"(?P<{name[0]}{index}>{inner})")
    return expression


def _any(words: Any) -> str:
    return "|".join(sorted(map(re.escape, words), key=lambda word: (-len(word), word)))
