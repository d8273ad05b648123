"""Parser of dates and times in whatever form a foreign record gives them."""

import math
import re
from datetime import UTC, datetime, timedelta, timezone

WHEN = re.compile(
    r"(?P<year>\d{4})[-/.](?P<month>\d{1,2})[-/.](?P<day>\d{1,2})(?!\d)"
    r"(?:(?:T|,?[ \t]{1,8})(?P<hour>\d{1,2}):(?P<minute>\d{2})(?!\d)"
    r"(?::(?P<second>\d{2})(?:[.,](?P<fraction>\d{1,9}))?)?"
    r"(?:[ \t]{0,8}(?P<zone>Z(?:-[0-9a-f]{4})?|UTC|GMT|[+-]\d{2}:?\d{2})(?!\w))?)?",
    re.ASCII | re.IGNORECASE,
)
"""A date, with or without time and zone. ``Z-0000`` is a fleet stamp's end."""

_NUMBER = re.compile(r"\d{9,16}(?:\.\d{1,9})?", re.ASCII)
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
    if _NUMBER.fullmatch(text):
        return to_ms(float(text))
    found = WHEN.fullmatch(text)
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
