"""Strict JSON: what every peer reads alike and could write back, and the one canonical form of a value.

JSON readers differ about equal keys, NaN, large integers and lone surrogates. Whatever they differ about is refused.
"""

import json
from typing import Any

import msgspec

from fleet.model import limits

_encoder = msgspec.json.Encoder(order="deterministic")


class BadLineError(ValueError):
    """Reason for which one line is refused. A reader of files makes a ``Refused`` of it: a peer's fault is a value."""


def canonical(value: object) -> bytes:
    """Return the canonical bytes of a value: sorted keys, no blanks, UTF-8."""
    return _encoder.encode(value)


def check_name(name: str) -> None:
    """Check the name of a counter, a field, or an open part.

    Raises:
        BadLineError: empty, too long, or not printable.
    """
    if not 0 < len(name) <= limits.NAME_CHARS_MAX or not name.isprintable():
        raise BadLineError(f"a name must have 1 to {limits.NAME_CHARS_MAX} printable characters: {name[:40]!r}")


def check_value(field: str, value: object) -> None:
    """Check one field's value against the limits.

    Raises:
        BadLineError: too long, too deep, or a number that another peer would round.
    """
    if type(value) is str:
        # A character takes at most four bytes: only long texts need to be encoded to know.
        if len(value) * 4 > limits.TEXT_BYTES_MAX and len(value.encode()) > limits.TEXT_BYTES_MAX:
            raise BadLineError(f"'{field}' is longer than {limits.TEXT_BYTES_MAX} bytes")
        return
    if isinstance(value, list | dict) and len(canonical(value)) > limits.VALUE_BYTES_MAX:
        raise BadLineError(f"'{field}' is longer than {limits.VALUE_BYTES_MAX} bytes")
    if field == "tags" and isinstance(value, list) and len(value) > limits.TAGS_MAX:
        raise BadLineError(f"more than {limits.TAGS_MAX} tags")
    _check_depth(field, value, 0)


def _check_depth(field: str, value: object, depth: int) -> None:
    if depth > limits.DEPTH_MAX:
        raise BadLineError(f"'{field}' is nested deeper than {limits.DEPTH_MAX}")
    if isinstance(value, int) and abs(value) > limits.INTEGER_MAX:
        raise BadLineError(f"'{field}' holds an integer beyond 2^53, which other readers round")
    if isinstance(value, dict):
        for key, inner in value.items():
            _check_depth(field, key, depth + 1)
            _check_depth(key if depth < 0 else field, inner, depth + 1)  # above the fields: the reason names the field
    elif isinstance(value, list):
        for inner in value:
            _check_depth(field, inner, depth + 1)
    elif type(value) is str:
        check_value(field, value)


_LINE_DEPTH = -5
"""Depth at which a line's own object is counted: line, ``w``, column, ``set``, [stamp, value], then the value at 0."""


def strict_object(raw: bytes, bytes_max: int = limits.LINE_BYTES_MAX) -> dict[str, Any]:
    """Read one JSON object that every peer would read alike and could write back.

    Raises:
        BadLineError: not JSON, not an object, or JSON that readers differ about: equal keys, NaN, giant numbers,
            lone surrogates.
    """
    if len(raw) > bytes_max:
        raise BadLineError(f"longer than {bytes_max} bytes")
    try:
        found = json.loads(
            raw.decode(),
            object_pairs_hook=_no_equal_keys,
            parse_constant=_no_constant,
            parse_int=_bounded_integer,
            parse_float=_finite_float,
        )
    except UnicodeDecodeError as why:
        raise BadLineError("not UTF-8") from why
    except RecursionError as why:
        raise BadLineError(f"nested deeper than {limits.DEPTH_MAX}") from why
    except BadLineError:
        raise
    except ValueError as why:
        raise BadLineError(f"not JSON: {why}") from why
    if not isinstance(found, dict):
        raise BadLineError("not a JSON object")
    try:
        canonical(found)
    except (UnicodeEncodeError, msgspec.MsgspecError, RecursionError, ValueError) as why:
        raise BadLineError("holds text that cannot be written back, such as half a surrogate pair") from why
    _check_depth("line", {key: value for key, value in found.items() if not isinstance(value, str)}, _LINE_DEPTH)
    return found


def _no_equal_keys(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    found = dict(pairs)
    if len(found) != len(pairs):
        raise BadLineError("the same key twice: readers differ about which counts")
    return found


def _no_constant(name: str) -> object:
    raise BadLineError(f"{name} is not JSON")


def _bounded_integer(digits: str) -> int:
    if len(digits) > 17 or abs(int(digits)) > limits.INTEGER_MAX:
        raise BadLineError("an integer beyond 2^53, which other readers round")
    return int(digits)


def _finite_float(digits: str) -> float:
    number = float(digits)
    if number in (float("inf"), float("-inf")):
        raise BadLineError("a number too large for any reader")
    return number
