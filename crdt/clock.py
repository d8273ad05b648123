"""Hybrid logical clock: wall time that never goes back and orders causes before effects.

Source: Kulkarni, Demirbas, Madappa, Avva and Leone, "Logical Physical Clocks" (OPODIS 2014). A reading is kept as text
that sorts as it orders, ``2026-11-20T22:30:00.123Z-0000``: UTC to the millisecond, then a counter of four hex digits.
"""

import re
import sys
from collections.abc import Sequence
from datetime import datetime, timedelta
from functools import lru_cache

Stamp = str

ZERO: Stamp = "0"
"""The stamp of what has none. It sorts before every real one."""

STAMP_LENGTH = 29
COUNTER_MAX = 0xFFFF
MS_MAX = 253_402_300_799_999  # 9999-12-31T23:59:59.999Z, the last millisecond that the text can hold

_NAIVE_EPOCH = datetime(1970, 1, 1)  # every reading is UTC, the zone stands in the text
_TIME = r"T(?:[01]\d|2[0-3]):[0-5]\d:[0-5]\d\.\d{3}Z-[0-9a-f]{4}"
_SHAPE = re.compile(r"(?P<date>\d{4}-\d\d-\d\d)" + _TIME, re.ASCII)
_SHAPES = re.compile(r"(?:\d{4}-\d\d-\d\d" + _TIME + ")*+", re.ASCII)  # possessive: no way back is remembered
_dates_seen: set[str] = set()  # a calendar check costs 1 µs and a log repeats few dates
_DATES_SEEN_MAX = 100_000

# Many stamps at once: behind a gap of three, each fills four words of eight bytes, the second of which says the hour.
_GAP = "\n\n\n"
_RECORD = len(_GAP) + STAMP_LENGTH
_OUTLINE = f"{_GAP}0000-00-00T00:00:00.000Z-0000".encode()
_DIGITS_AS_0 = bytes.maketrans(b"123456789", b"0" * 9)
_MILLENNIUM, _MINUTE_TENS, _SECOND_TENS = (len(_GAP) + place for place in (0, 14, 17))
_hours_seen: set[int] = set()  # no more than a leap year has


def pack(ms: int, counter: int = 0) -> Stamp:
    """Write a reading as text.

    Args:
        ms: milliseconds since 1970, 0 to ``MS_MAX``.
        counter: 0 to 65535.

    Raises:
        OverflowError: the reading does not fit the text.
    """
    if not (0 <= ms <= MS_MAX and 0 <= counter <= COUNTER_MAX):
        raise OverflowError(f"no stamp can say {ms} ms, counter {counter}")
    minutes, ms = divmod(ms, 60_000)
    return f"{_minute(minutes)}{ms // 1000:02d}.{ms % 1000:03d}Z-{counter:04x}"


@lru_cache(maxsize=256)
def _minute(minutes: int) -> str:
    """Return the text of a minute since 1970, up to its seconds: whoever asks for a stamp asks for its like soon."""
    return (_NAIVE_EPOCH + timedelta(minutes=minutes)).isoformat()[:17]


def nearest(ms: int) -> Stamp:
    """Write a reading as text; one that the text cannot say, as the nearest that it can."""
    return pack(min(max(ms, 0), MS_MAX))


def ticked(wall_ms: int, last: Stamp) -> Stamp:
    """Issue the next stamp: what the wall clock says, else the smallest that is larger than the last.

    Args:
        wall_ms: what the wall clock says, milliseconds since 1970.
        last: the largest stamp issued or admitted so far.

    Raises:
        OverflowError: there is none: a caller must never admit what it cannot exceed.
    """
    wall = nearest(wall_ms)
    return wall if wall > last else after(last)


def unpack(stamp: Stamp) -> tuple[int, int]:
    """Read a stamp back as (milliseconds since 1970, counter); ``ZERO`` is (0, 0).

    Raises:
        ValueError: the text is no stamp.
    """
    if stamp == ZERO:
        return 0, 0
    if not is_stamp(stamp):
        raise ValueError(f"not a stamp: {stamp[:40]!r}")
    moment = datetime.fromisoformat(stamp[:23])
    return (moment - _NAIVE_EPOCH) // timedelta(milliseconds=1), int(stamp[25:], 16)


def is_stamp(text: str) -> bool:
    """Tell whether the text is a stamp in its one valid form. ``ZERO`` is none: it is only ever implied."""
    found = _SHAPE.fullmatch(text)
    if found is None:
        return False
    date = found["date"]
    if date in _dates_seen:
        return True
    if date < "1970":  # no reading is earlier, and `after` could not exceed it
        return False
    try:
        datetime.fromisoformat(date)
    except ValueError:
        return False
    if len(_dates_seen) < _DATES_SEEN_MAX:
        _dates_seen.add(date)
    return True


def are_stamps(texts: Sequence[str]) -> bool:
    """Tell whether all texts are stamps, in a tenth of the time that asking of each takes."""
    if _are_usual(texts):
        return True
    if not {STAMP_LENGTH}.issuperset(map(len, texts)) or _SHAPES.fullmatch("".join(texts)) is None:
        return False
    return all(is_stamp(f"{date}T00:00:00.000Z-0000") for date in {text[:10] for text in texts})


def _are_usual(texts: Sequence[str]) -> bool:
    """Tell whether all are stamps as most are: since the year 2000, on no leap day, with decimal digits alone.

    A few passes over the bytes of all of them: to look at each one, even by one expression, takes three times as long.
    """
    joined = _GAP + _GAP.join(texts)
    if not joined.isascii():
        return False
    data = joined.encode()
    # As many line ends as gaps hold, each in its place: so none is within a text, and none reaches over a gap.
    if data.translate(_DIGITS_AS_0) != _OUTLINE * len(texts):
        return False
    tens = data[_MINUTE_TENS::_RECORD] + data[_SECOND_TENS::_RECORD]
    if tens.translate(None, b"012345") or data[_MILLENNIUM::_RECORD].translate(None, b"2"):
        return False
    hours = set(memoryview(data).cast("Q")[1::4].tolist())
    return all(map(_is_usual_hour, hours - _hours_seen))


def _is_usual_hour(word: int) -> bool:
    """Tell of eight bytes, month to hour, whether every year has that hour. Remembers, since few are met."""
    hour = word.to_bytes(8, sys.byteorder).decode()
    if hour.startswith("02-29") or not is_stamp(f"2000-{hour}:00:00.000Z-0000"):
        return False
    _hours_seen.add(word)
    return True


def shifted(stamp: Stamp, ms: int) -> Stamp:
    """Return the stamp moved by so many milliseconds, kept within what the text can say."""
    at, counter = unpack(stamp)
    return pack(min(max(at + ms, 0), MS_MAX), counter)


def after(stamp: Stamp) -> Stamp:
    """Return the smallest reading that is larger. The counter carries into the milliseconds.

    Raises:
        OverflowError: there is none.
    """
    ms, counter = unpack(stamp)
    return pack(ms, counter + 1) if counter < COUNTER_MAX else pack(ms + 1)
