"""Hybrid logical clock: wall time that never goes back and orders causes before effects.

Source: Kulkarni, Demirbas, Madappa, Avva and Leone, "Logical Physical Clocks" (OPODIS 2014). A reading is kept as text
that sorts as it orders, ``2026-11-20T22:30:00.123Z-0000``: UTC to the millisecond, then a counter of four hex digits.
"""

import re
from datetime import date, datetime, timedelta

Stamp = str

ZERO: Stamp = "0"
"""Stamp for "no stamp". It sorts before every real one."""

COUNTER_MAX = 0xFFFF
MS_MAX = 253_402_300_799_999  # 9999-12-31T23:59:59.999Z, the last millisecond that the text can hold

_NAIVE_EPOCH = datetime(1970, 1, 1)  # without a zone: every reading is in UTC, as the "Z" in its text says
_FIRST_DATE = "1970"
_SHAPE = re.compile(r"\d{4}-\d\d-\d\dT(?:[01]\d|2[0-3]):[0-5]\d:[0-5]\d\.\d{3}Z-[0-9a-f]{4}", re.ASCII)


def pack(ms: int, counter: int = 0) -> Stamp:
    """Return milliseconds since 1970 and a 16-bit counter as text; raise ``OverflowError`` where they do not fit."""
    if not (0 <= ms <= MS_MAX and 0 <= counter <= COUNTER_MAX):
        raise OverflowError(f"no stamp can say {ms} ms, counter {counter}")
    moment = _NAIVE_EPOCH + timedelta(milliseconds=ms)
    return f"{moment.isoformat(timespec='milliseconds')}Z-{counter:04x}"


def nearest(ms: int) -> Stamp:
    """Return the stamp of a time in milliseconds since 1970, clamped to the range that stamps can express."""
    return pack(min(max(ms, 0), MS_MAX))


def moment(ms: int) -> str:
    """Return a time in milliseconds since 1970 as text; "" for 0, which means unknown, and for one out of range."""
    return f"{pack(ms)[:19]}Z" if 0 < ms <= MS_MAX else ""


def ticked(wall_ms: int, last: Stamp) -> Stamp:
    """Return the next stamp: the wall clock's reading, or the successor of ``last`` if the reading is not larger.

    Raises ``OverflowError`` if ``last`` is the largest stamp, so a caller must never admit that one from a peer.
    """
    wall = nearest(wall_ms)
    return wall if wall > last else after(last)


def unpack(stamp: Stamp) -> tuple[int, int]:
    """Return a stamp as (milliseconds since 1970, counter); (0, 0) for ``ZERO``, ``ValueError`` for any other text."""
    if stamp == ZERO:
        return 0, 0
    if not is_stamp(stamp):
        raise ValueError(f"not a stamp: {stamp[:40]!r}")
    moment = datetime.fromisoformat(stamp[:23])
    return (moment - _NAIVE_EPOCH) // timedelta(milliseconds=1), int(stamp[25:], 16)


def ms_of(text: str) -> int:
    """Return the milliseconds since 1970 of a stamp; 0 for any other text."""
    return unpack(text)[0] if is_stamp(text) else 0


def is_stamp(text: str) -> bool:
    """Return whether the text is a stamp in its one valid form; False for ``ZERO``, which stands for no stamp."""
    if _SHAPE.fullmatch(text) is None or text < _FIRST_DATE:  # before 1970, `pack` refuses the negative milliseconds
        return False
    try:
        date.fromisoformat(text[:10])
    except ValueError:
        return False
    return True


def shifted(stamp: Stamp, ms: int) -> Stamp:
    """Return the stamp moved by a number of milliseconds, clamped to what the text can express."""
    start_ms, counter = unpack(stamp)
    return pack(min(max(start_ms + ms, 0), MS_MAX), counter)


def after(stamp: Stamp) -> Stamp:
    """Return the next larger stamp: counter + 1, else the next millisecond; raise ``OverflowError`` for the largest."""
    ms, counter = unpack(stamp)
    return pack(ms, counter + 1) if counter < COUNTER_MAX else pack(ms + 1)
