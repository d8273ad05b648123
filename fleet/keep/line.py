"""The line: one JSON object that is a delta and, when it is complete, a state (DESIGN, section 3).

Bytes become records here and nowhere else. Reading gives ``Line``, ``Carried`` or ``Refused``, never an exception: a
peer's fault is a value. Writing is canonical: the same record gives the same bytes everywhere.
"""

import json
from collections.abc import Iterable, Iterator, Sequence
from typing import Annotated, Any, NamedTuple

import msgspec

from crdt import clock, gcounter, lww, orset
from fleet.keep import limits, names

Total = Annotated[int, msgspec.Meta(ge=1, le=limits.INTEGER_MAX)]

NO_EVIDENCE = (clock.ZERO, "")
"""Stamp and writer of a field as first logged: any edit beats it."""


class Line(msgspec.Struct, kw_only=True, omit_defaults=True, forbid_unknown_fields=True, gc=False):
    """One pattern, or a change to one. The attributes stand in the order in which they are written: sorted.

    Attributes:
        add: OR-Set adds, replica to stamp.
        at: when first, the smallest of all lines joined.
        by: by whom first.
        id: ``p-`` and 16 hex digits.
        n: G-Counters by name, each replica to its own total.
        rem: OR-Set removes, replica to the add stamp that was seen.
        set: LWW-Registers by field.
        when: (stamp, writer) of each field that was set after it was first logged.
    """

    add: dict[str, str] = {}
    at: str = clock.ZERO
    by: str = ""
    id: str
    n: dict[str, dict[str, Total]] = {}
    rem: dict[str, str] = {}
    set: dict[str, Any] = {}
    when: dict[str, tuple[str, str]] = {}


Whole = Annotated[int, msgspec.Meta(ge=-limits.INTEGER_MAX, le=limits.INTEGER_MAX)]
FewTexts = Annotated[list[str], msgspec.Meta(max_length=limits.TAGS_MAX)]


class Plain(Line, kw_only=True, omit_defaults=True, forbid_unknown_fields=True, gc=False):
    """A line whose values are as most are: the decoder itself sees to it that none needs ``check_value``.

    Only in a short line: a text or a list there is as short.
    """

    set: dict[str, str | bool | Whole | FewTexts] = {}


class Carried(NamedTuple):
    """A line of a newer version: kept and passed on byte for byte, never folded."""

    id: str
    raw: bytes


class Refused(NamedTuple):
    """A line that cannot be used. Its bytes go to quarantine, the good lines beside it join."""

    path: str
    number: int
    reason: str
    raw: bytes


class BadLineError(ValueError):
    """Why one line is refused. Stays inside this module: callers get ``Refused``."""


KNOWN_KEYS = frozenset(Line.__struct_fields__) | {"v"}
_encoder = msgspec.json.Encoder(order="deterministic")
_decoder = msgspec.json.Decoder(Line)
_plain_decoder = msgspec.json.Decoder(Plain)
_id_decoder = msgspec.json.Decoder(msgspec.defstruct("_Named", [("id", str)]))
_good_names: set[str] = set()
_TOTALS_A_PIECE = 64  # counter names are open: one replica's totals alone may outgrow a line


def encode_value(value: object) -> bytes:
    """Return the canonical bytes of one value."""
    return _encoder.encode(value)


def encode_lines(lines: Sequence[Line]) -> bytes:
    """Return the canonical bytes of lines, a newline after each."""
    return _encoder.encode_lines(lines)


def encode(line: Line) -> bytes:
    """Return the canonical bytes of a line, without a newline."""
    return _encoder.encode(line)


def decode(raw: bytes) -> Line | Carried:
    """Read one line.

    Raises:
        BadLineError: it cannot be used, and why.
    """
    line = decode_fast(raw)
    return line if line is not None else decode_slowly(raw)


def has_id(raw: bytes) -> bool:
    """Tell at little cost whether these bytes can be a line of any version at all."""
    try:
        _id_decoder.decode(raw)
    except (msgspec.MsgspecError, RecursionError, UnicodeDecodeError):
        return False
    return True


def decode_fast(raw: bytes) -> Line | None:
    """Read one canonical line; None sends the caller to ``decode_slowly``, which knows why or what else."""
    try:
        line = _decoder.decode(raw)
    except (msgspec.MsgspecError, RecursionError, UnicodeDecodeError):
        return None
    return line if is_sound(line, raw) else None


def decode_trusted(raw: bytes) -> Line:
    """Read one canonical line that this machine has checked before."""
    return _decoder.decode(raw)


def decode_trusted_block(block: bytes) -> list[Line]:
    """Read many canonical lines that this machine has checked before."""
    return _decoder.decode_lines(block)


def decode_block(block: bytes) -> list[Line] | None:
    """Read many lines at once, or None when one of them needs a closer look."""
    try:
        return _decoder.decode_lines(block)
    except (msgspec.MsgspecError, RecursionError, UnicodeDecodeError):
        return None


def decode_plain_block(block: bytes) -> list[Plain] | None:
    """Read many lines at once, or None when one of them is not plain."""
    try:
        return _plain_decoder.decode_lines(block)
    except (msgspec.MsgspecError, RecursionError, UnicodeDecodeError):
        return None


def is_sound(line: Line, raw: bytes) -> bool:
    """Tell whether a decoded line is what its bytes say, within all limits, in its one canonical form.

    A decoder keeps the last of two equal keys, where another peer might keep the first: what does not encode to the
    very bytes it came from is looked at again, slowly.
    """
    if line.at == clock.ZERO:
        line.at = clock.ZERO  # the encoder omits the default object only, and a written "0" is another one
    if len(raw) > limits.LINE_BYTES_MAX or _encoder.encode(line) != raw:
        return False
    try:
        check(line)
    except BadLineError:
        return False
    return all(line.n.values()) and NO_EVIDENCE not in line.when.values()


def check(line: Line) -> None:
    """Check what the types do not say.

    Raises:
        BadLineError: a name, stamp or value is out of bounds.
    """
    if not line.id.startswith("p-") or not names.is_id(line.id):
        raise BadLineError("no valid pattern id")
    if line.at != clock.ZERO and not clock.is_stamp(line.at):
        raise BadLineError("'at' is no stamp")
    if line.by and not names.is_replica(line.by):
        raise BadLineError("'by' is no replica")
    for slots in (line.add, line.rem):
        for replica, stamp in slots.items():
            _check_slot(replica, stamp)
    for name, counts in line.n.items():
        check_name(name)
        for replica in counts:
            if not names.is_replica(replica):
                raise BadLineError(f"'n.{name}' has a slot that is no replica's")
    for field, value in line.set.items():
        check_name(field)
        check_value(field, value)
    for field, (stamp, writer) in line.when.items():
        if field not in line.set:
            raise BadLineError(f"'when' names {field[:40]!r}, which 'set' does not hold")
        if (stamp, writer) != NO_EVIDENCE:
            _check_slot(writer, stamp)


def _check_slot(replica: str, stamp: str) -> None:
    if not names.is_replica(replica):
        raise BadLineError(f"no replica: {replica[:60]!r}")
    if not clock.is_stamp(stamp):
        raise BadLineError(f"no stamp: {stamp[:60]!r}")


def check_name(name: str) -> None:
    """Check the name of a counter or a field.

    Raises:
        BadLineError: empty, too long, or not printable.
    """
    if name in _good_names:
        return
    if not 0 < len(name) <= limits.NAME_CHARS_MAX or not name.isprintable():
        raise BadLineError(f"a name must have 1 to {limits.NAME_CHARS_MAX} printable characters: {name[:40]!r}")
    if len(_good_names) < 10_000:
        _good_names.add(name)


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
    if isinstance(value, list | dict) and len(encode_value(value)) > limits.VALUE_BYTES_MAX:
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


def decode_slowly(raw: bytes) -> Line | Carried:
    """Read one line with every check, telling a newer version's line from a broken one.

    Raises:
        BadLineError: it cannot be used, and why.
    """
    found = strict_object(raw)
    if carried := as_carried(found, raw, "p-", KNOWN_KEYS):
        return carried
    found.pop("v", None)
    try:
        line = msgspec.convert(_without_zeros(found), Line)
    except msgspec.ValidationError as why:
        raise BadLineError(str(why)) from why
    check(line)
    line.n = {name: counts for name, counts in line.n.items() if counts}
    line.when = {field: evidence for field, evidence in line.when.items() if evidence != NO_EVIDENCE}
    return line


def _without_zeros(found: dict[str, Any]) -> dict[str, Any]:
    """A slot that counts 0 says nothing; in canonical form it is not there."""
    counters = found.get("n")
    if not isinstance(counters, dict):
        return found
    kept = {
        name: {r: total for r, total in counts.items() if type(total) is not int or total != 0}
        if isinstance(counts, dict)
        else counts
        for name, counts in counters.items()
    }
    return {**found, "n": kept}


def as_carried(found: dict[str, Any], raw: bytes, prefix: str, known: frozenset[str]) -> Carried | None:
    """Return the line as carried when it says that a newer version wrote it: another ``v``, key, or id prefix.

    Raises:
        BadLineError: it has no valid id to be carried under.
    """
    line_id = found.get("id")
    if not isinstance(line_id, str) or not names.is_id(line_id):
        raise BadLineError("no valid id")
    version = found.get("v", 1)
    is_version_1 = type(version) is int and version == 1
    if is_version_1 and line_id.startswith(prefix) and known.issuperset(found):
        return None
    if b"\n" in raw or b"\r" in raw:  # byte for byte, it would read back as other lines
        raise BadLineError("a newer version's line with a line break in it")
    return Carried(line_id, raw)


def strict_object(raw: bytes) -> dict[str, Any]:
    """Read one JSON object that every peer would read alike and could write back.

    Raises:
        BadLineError: not JSON, not an object, or JSON that readers differ about: equal keys, NaN, giant numbers,
            lone surrogates.
    """
    if len(raw) > limits.LINE_BYTES_MAX:
        raise BadLineError(f"longer than {limits.LINE_BYTES_MAX} bytes")
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
        _encoder.encode(found)
    except (UnicodeEncodeError, msgspec.MsgspecError, RecursionError, ValueError) as why:
        raise BadLineError("holds text that cannot be written back, such as half a surrogate pair") from why
    _check_depth("line", {key: value for key, value in found.items() if not isinstance(value, str)}, -2)
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


def join(mine: Line, theirs: Line) -> Line:
    """Return the join of two lines of one id: commutative, associative, idempotent."""
    fields, when = _join_fields(mine, theirs)
    first = min((mine.at, mine.by), (theirs.at, theirs.by))
    counters = dict(mine.n)
    for name, counts in theirs.n.items():
        known = counters.get(name)
        if known != counts:  # most parts are equal, and equal counters need no look at their slots
            counters[name] = gcounter.join(known, counts) if known else counts
    return Line(
        id=mine.id,
        at=first[0],
        by=first[1],
        add=mine.add if mine.add == theirs.add else orset.join(mine.add, theirs.add),
        rem=mine.rem if mine.rem == theirs.rem else orset.join(mine.rem, theirs.rem),
        n=counters,
        set=fields,
        when=when,
    )


def _join_fields(mine: Line, theirs: Line) -> tuple[dict[str, Any], dict[str, tuple[str, str]]]:
    fields, when = dict(mine.set), dict(mine.when)
    my_when, their_when = mine.when, theirs.when
    for field, value in theirs.set.items():
        known = fields.get(field)
        if type(value) is str and value == known and their_when.get(field) == my_when.get(field):
            continue  # as most are: nothing needs to be asked
        if field in fields and not _wins(theirs, mine, field):
            continue
        fields[field] = value
        if field in their_when:
            when[field] = their_when[field]
        else:
            when.pop(field, None)
    return fields, when


def register(line: Line, field: str) -> lww.Register:
    """Return one field as the register that it is."""
    stamp, writer = line.when.get(field, NO_EVIDENCE)
    return lww.Register(stamp, writer, encode_value(line.set[field]))


def _wins(theirs: Line, mine: Line, field: str) -> bool:
    """Tell whether their value of a field replaces mine. Bytes are made only to break a tie."""
    their_evidence, my_evidence = theirs.when.get(field, NO_EVIDENCE), mine.when.get(field, NO_EVIDENCE)
    if their_evidence != my_evidence:
        return their_evidence > my_evidence
    if _are_same_texts(mine.set[field], theirs.set[field]):
        return False  # as most are: no bytes need to be made of them
    return not lww.covers(register(mine, field), register(theirs, field))


def _are_same_texts(one: object, other: object) -> bool:
    """Tell whether two values are one text, or one list of texts. Of others ``==`` says too much: of 1 and true."""
    if type(one) is list:
        return one == other and {str}.issuperset(map(type, one))
    return type(one) is str and one == other


def covers(whole: Line, part: Line) -> bool:
    """Tell whether joining ``part`` would leave ``whole`` as it is."""
    return (
        (whole.at, whole.by) <= (part.at, part.by)
        and orset.covers(whole.add, part.add)
        and orset.covers(whole.rem, part.rem)
        and all(gcounter.covers(whole.n.get(name, {}), counts) for name, counts in part.n.items())
        and all(field in whole.set and not _wins(part, whole, field) for field in part.set)
    )


def split(line: Line) -> list[bytes]:
    """Return the canonical bytes of a joined record, as several lines of its id when one would be too long.

    Fields first, then slots in replica order, each line repeating ``at`` and ``by``: thousands of replicas may
    confirm one lesson.
    """
    whole = encode(line)
    if len(whole) <= limits.LINE_BYTES_MAX:
        return [whole]
    return [encode(part) for part in _packed(line, list(_pieces(line)))]


def _pieces(line: Line) -> Iterator[Line]:
    for field in sorted(line.set):
        when = {field: line.when[field]} if field in line.when else {}
        yield Line(id=line.id, at=line.at, by=line.by, set={field: line.set[field]}, when=when)
    counted = {replica for counts in line.n.values() for replica in counts}
    for replica in sorted(counted | set(line.add) | set(line.rem)):
        totals = [(name, {replica: counts[replica]}) for name, counts in sorted(line.n.items()) if replica in counts]
        yield Line(
            id=line.id,
            at=line.at,
            by=line.by,
            add={replica: line.add[replica]} if replica in line.add else {},
            rem={replica: line.rem[replica]} if replica in line.rem else {},
            n=dict(totals[:_TOTALS_A_PIECE]),
        )
        for start in range(_TOTALS_A_PIECE, len(totals), _TOTALS_A_PIECE):
            yield Line(id=line.id, at=line.at, by=line.by, n=dict(totals[start : start + _TOTALS_A_PIECE]))


def _packed(line: Line, pieces: Iterable[Line]) -> Iterator[Line]:
    """Join neighbouring pieces while they fit. Sizes are added up: joining can only share bytes, never add any."""
    room = limits.LINE_BYTES_MAX
    packed: Line | None = None
    size = 0
    for piece in pieces:
        piece_size = len(encode(piece))
        is_other_kind = packed is not None and bool(packed.set) != bool(piece.set)
        if packed is not None and (size + piece_size > room or is_other_kind):
            yield packed
            packed, size = None, 0
        if packed is None:
            packed = Line(id=line.id, at=line.at, by=line.by)
        _pour(packed, piece)
        size += piece_size
    if packed is not None:
        yield packed


def _pour(into: Line, piece: Line) -> None:
    """Add a piece that shares no key with what is there."""
    into.add.update(piece.add)
    into.rem.update(piece.rem)
    into.set.update(piece.set)
    into.when.update(piece.when)
    for name, counts in piece.n.items():
        into.n.setdefault(name, {}).update(counts)
