"""Record of one lesson: a map from writer to that writer's column, with its join and its JSON lines.

A line is a record or a part of one, in one schema: a delta, and a state when it is complete. The join goes column by
column and key by key, and never drops what another writer stated:

* ``add``: the larger stamp. ``rem``: per writer the larger stamp. Together an OR-Set (``pattern.fold``).
* ``n``, ``parts``: per name, and per hash, the larger number. G-Counters; a part is a count without an owner. The parts
  of ``seen.undone`` and the like say which occurrences of this column are undone: those with an odd number (``fold``).
* ``first``: a first wording, without a stamp: the larger canonical bytes. The reserved ``at``, the time at which the
  writer first saw the lesson, is no wording: the smaller time.
* ``set``: an edit, ``[stamp, value]``: the later, and between equal stamps the larger canonical bytes.
* ``over``: a mark on an edit from the future that this writer replaced: per writer and field the later stamp. The fold
  leaves out what it covers.
* ``purge``: a mark on a purged value, joined as ``over``. The join itself drops what a mark covers: an edit whose stamp
  is not later than the mark, and any first wording, since it has no stamp. The key ``carried``, in place of a writer,
  has the hashes of purged carried lines; every machine deletes those (``purged_carried``).
* Parts that a newer version invented (``Column.unknown``): the larger canonical bytes.

Values are compared as canonical bytes, never decoded: in Python ``1 == True``, in other languages not. A ``Line`` and
its columns never change after they are made, since joins share them.

Bytes become records here and nowhere else. ``decode`` returns a ``Line`` or a ``Carried``, or raises ``BadLineError``,
which a reader of files turns into a ``Refused``. Encoding is canonical: one record has one form. JSON readers differ
about equal keys, NaN, large integers and lone surrogates, so a line with any of these is refused.
"""

import hashlib
import json
import re
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping
from functools import lru_cache
from itertools import chain
from typing import Annotated, Any, Literal, TypeVar

import msgspec

from crdt import clock
from fleet.model import limits, names
from fleet.model.names import PREFIX

AT = "at"
"""Reserved name among first wordings: when the writer first saw the lesson, if that is before its newest add."""
UNDONE = ".undone"
"""Suffix of a counter's name: its parts say which of the writer's occurrences are undone, those with an odd number."""
CARRIED = "carried"
"""Key among purge marks that is no writer: its value has the hashes of purged carried lines."""

Total = Annotated[int, msgspec.Meta(ge=1, le=limits.INTEGER_MAX)]


class Column(msgspec.Struct, kw_only=True, omit_defaults=True, forbid_unknown_fields=True, gc=False):
    """Column: all that one writer stated of one lesson. The attributes are sorted, as they are encoded.

    ``unknown`` has the parts of a newer version by name; they are encoded beside the others.
    """

    add: str = ""
    first: dict[str, Any] = {}
    n: dict[str, Total] = {}
    over: dict[str, dict[str, str]] = {}
    parts: dict[str, dict[str, Total]] = {}
    purge: dict[str, dict[str, str]] = {}
    rem: dict[str, str] = {}
    set: dict[str, tuple[str, Any]] = {}
    unknown: dict[str, Any] = {}

    def first_seen(self) -> str:
        """Return the stamp at which its writer first saw the lesson; "" for none."""
        at: str = self.first.get(AT, "")
        return min(at, self.add) if at and self.add else at or self.add

    def joined(self, theirs: "Column") -> "Column":
        """Return the join with another column of the same writer: this one, with what the other adds laid over."""
        news = theirs.difference(self)
        return Column(
            add=news.add or self.add,
            first=self.first | news.first,
            unknown=self.unknown | news.unknown,
            n=self.n | news.n,
            over=_laid_over(self.over, news.over),
            parts=_laid_over(self.parts, news.parts),
            purge=_laid_over(self.purge, news.purge),
            rem=self.rem | news.rem,
            set=self.set | news.set,
        )

    def difference(self, base: "Column") -> "Column":
        """Return what this column has and another of the same writer lacks."""
        firsts, unknowns, edits = base.first, base.unknown, base.set
        return Column(
            add=self.add if self.add > base.add else "",
            first={f: v for f, v in self.first.items() if f not in firsts or _is_better(f, v, firsts[f])},
            n={name: total for name, total in self.n.items() if total > base.n.get(name, 0)},
            over=_larger(self.over, base.over, ""),
            parts=_larger(self.parts, base.parts, 0),
            purge=_larger(self.purge, base.purge, ""),
            rem={writer: stamp for writer, stamp in self.rem.items() if stamp > base.rem.get(writer, "")},
            set={f: edit for f, edit in self.set.items() if f not in edits or _is_later(edit, edits[f])},
            unknown={n: v for n, v in self.unknown.items() if n not in unknowns or _is_larger(v, unknowns[n])},
        )


class Line(msgspec.Struct, omit_defaults=True, forbid_unknown_fields=True, gc=False):
    """One lesson, by its id (``p-`` and 16 hex digits), or a change to one: writer to column."""

    id: str
    w: dict[str, Column] = {}

    def by_writer(self) -> "dict[str, Line]":
        """Return one line for each writer, sorted by writer."""
        return {writer: Line(self.id, {writer: column}) for writer, column in sorted(self.w.items())}

    def values(self) -> Iterator[tuple[str, Any]]:
        """Yield (field, value) of every wording and edit of all writers: all values that purge marks can cover."""
        for column in self.w.values():
            yield from column.first.items()
            yield from ((field, value) for field, (_, value) in column.set.items())

    def items(self) -> Iterator[tuple[str, Any]]:
        """Yield (name, value) of every wording, edit and unknown part of all writers.

        Names of counters, and of fields that a mark names, come with None: a name may be as secret as a value.
        """
        yield from self.values()
        for column in self.w.values():
            yield from column.unknown.items()
            yield from ((name, None) for name in (*column.n, *column.parts))
            for marks in (column.over, column.purge):
                yield from ((field, None) for fields in marks.values() for field in fields)

    def is_empty(self) -> bool:
        """Return whether a line has no column."""
        return not self.w

    def is_logged(self) -> bool:
        """Return whether a line has occurrences of its lesson, undone ones included."""
        return any("seen" in column.n or "seen" in column.parts for column in self.w.values())

    def add_of(self, writer: str) -> str:
        """Return a writer's newest add, "" for none."""
        return self.w.get(writer, NOTHING).add

    def total_of(self, writer: str, name: str) -> int:
        """Return a writer's own total of a counter."""
        return self.w.get(writer, NOTHING).n.get(name, 0)

    def part(self, name: str, hash: str) -> int:  # noqa: A002 - the record's own word
        """Return a count without an owner, whether undone or not; 0 for none."""
        return max((column.parts.get(name, {}).get(hash, 0) for column in self.w.values()), default=0)

    def undo_count(self, writer: str, name: str, key: str) -> int:
        """Return how often a writer undid or redid an occurrence: odd for one that is undone."""
        return self.w.get(writer, NOTHING).parts.get(f"{name}{UNDONE}", {}).get(key, 0)

    def counted_up_to(self, writer: str) -> str:
        """Return the largest stamp among a writer's add and all removes of its adds; "" for neither.

        The writer's totals include all that it logged up to that stamp: a remove copies an add that somebody has seen.
        """
        return max([self.w.get(writer, NOTHING).add, *(column.rem.get(writer, "") for column in self.w.values())])

    def has_removed(self, writer: str, before: "Line | None") -> bool:
        """Return whether a writer removed or retired a lesson that its column in an earlier line did not."""
        column = self.w.get(writer, NOTHING)
        earlier = before.w.get(writer, NOTHING) if before is not None else NOTHING
        if any(stamp > earlier.rem.get(target, "") for target, stamp in column.rem.items()):
            return True
        edit = column.set.get("state")
        return edit is not None and edit[1] == "retired" and edit != earlier.set.get("state")

    def marks(self, part: Literal["over", "purge"]) -> dict[tuple[str, str], str]:
        """Return the marks of a part on values: the largest stamp by (writer, field), whoever set it."""
        marks: dict[tuple[str, str], str] = {}
        for column in self.w.values():
            for writer, fields in getattr(column, part).items():
                for field, stamp in fields.items() if writer != CARRIED else ():
                    marks[writer, field] = max(stamp, marks.get((writer, field), ""))
        return marks

    def purger(self, writer: str, field: str, stamp: str) -> str:
        """Return who purged a writer's values of a field with a mark later than a stamp; "" for nobody."""
        marks = ((by, column.purge.get(writer, {}).get(field, "")) for by, column in sorted(self.w.items()))
        return next((by for by, until in marks if until > stamp), "")

    def purged_carried(self) -> set[str]:
        """Return the hashes of the carried lines that were purged with this record."""
        return {hash_ for column in self.w.values() for hash_ in column.purge.get(CARRIED, ())}

    def split_column(self, writer: str, parts: Iterable[str]) -> "tuple[Line, Line | None]":
        """Return a line without some parts of one writer's column, and a line of those parts; None for no such part."""
        column = self.w.get(writer, NOTHING)
        taken = Column(**{part: getattr(column, part) for part in parts})
        if taken == NOTHING:
            return self, None
        rest = msgspec.structs.replace(column, **{part: getattr(NOTHING, part) for part in parts})
        columns = {**self.w, writer: rest}
        if rest == NOTHING:
            del columns[writer]
        return Line(self.id, columns), Line(self.id, {writer: taken})

    def without_field(self, field: str) -> "Line":
        """Return a line without the wordings, edits and marks of a field."""

        def rest(values: dict[str, Any]) -> dict[str, Any]:
            return {name: value for name, value in values.items() if name != field}

        columns: dict[str, Column] = {}
        for writer, column in self.w.items():
            over = {other: fields for other, marks in column.over.items() if (fields := rest(marks))}
            columns[writer] = msgspec.structs.replace(column, first=rest(column.first), set=rest(column.set), over=over)
        return Line(self.id, {writer: column for writer, column in columns.items() if column != NOTHING})

    def chosen(self, is_chosen: Callable[[str, Any], bool]) -> "Line":
        """Return a line with only those wordings and edits for which ``is_chosen(field, value)`` is true."""
        columns: dict[str, Column] = {}
        for writer, column in self.w.items():
            first = {field: value for field, value in column.first.items() if is_chosen(field, value)}
            edits = {field: edit for field, edit in column.set.items() if is_chosen(field, edit[1])}
            columns |= {writer: Column(first=first, set=edits)} if first or edits else {}
        return Line(self.id, columns)

    def without_purged(self, marked: "Line") -> "Line":
        """Return a line without the values that marks in another line cover."""
        return Line(self.id, _without_purged(self.w, marked.marks("purge")))

    def repeated_edits(self, marked: "Line", writers: Collection[str]) -> "Line":
        """Return edits of some writers that repeat an edit of one of them which a mark in another line purges."""
        marks = {key: stamp for key, stamp in marked.marks("purge").items() if key[0] in writers}
        columns: dict[str, Column] = {}
        for (writer, field), stamp in marks.items():
            purged = self.w.get(writer, NOTHING).set.get(field, ("~", None))
            for other in self.w.keys() & writers if purged[0] <= stamp else ():
                edit = self.w[other].set.get(field)
                if edit is None or edit[0] <= marks.get((other, field), ""):
                    continue
                if canonical(edit[1]) == canonical(purged[1]):
                    columns[other] = columns.get(other, NOTHING).joined(Column(set={field: edit}))
        return Line(self.id, columns)

    def without(self, part: "Line") -> "Line":
        """Return a line without those wordings and edits that another line has too: same writer, field and value."""
        columns: dict[str, Column] = {}
        for writer, column in self.w.items():
            theirs = part.w.get(writer, NOTHING)
            first = {field: value for field, value in column.first.items() if theirs.first.get(field, NOTHING) != value}
            edits = {field: edit for field, edit in column.set.items() if theirs.set.get(field) != edit}
            columns[writer] = msgspec.structs.replace(column, first=first, set=edits)
        return Line(self.id, columns)

    def unaware_wordings(self, writers: Collection[str], redacted: str) -> "Line":
        """Return some writers' first wordings of purged fields, which they wrote without knowing of the purge.

        Only the purge of a whole lesson counts: its writer retires the lesson too, or puts ``redacted`` in place of the
        text. Other marks cover single values, and other writers' words stay.
        """
        columns = [column for column in self.w.values() if column.purge]
        columns_of_purgers = [each for each in columns if each.rem or redacted in (v for _, v in each.set.values())]
        fields = {field for column in columns_of_purgers for marks in column.purge.values() for field in marks}
        own = {writer: Column(first=self.w[writer].first) for writer in self.w.keys() & writers}
        return Line(self.id, own).chosen(lambda field, _: field in fields)

    def stamps(self) -> list[str]:
        """Return every stamp in a line, including those of removes and marks, unordered and with duplicates."""
        stamps = [column.add for column in self.w.values() if column.add]
        for column in self.w.values():
            if column.set or column.rem or column.over or column.purge:
                stamps += [stamp for stamp, _ in column.set.values()]
                stamps += chain(*map(dict.values, (column.rem, *column.over.values(), *column.purge.values())))
        return stamps

    def newest_stamps(self, cut: str = "~") -> dict[str, str]:
        """Return each writer's largest stamp of an add or edit that is within the cut; "" if all are beyond the cut."""
        newest: dict[str, str] = {}
        for writer, column in self.w.items():
            if column.add or column.set:
                newest[writer] = column.add if column.add <= cut else ""
            for stamp, _ in column.set.values():
                if newest[writer] < stamp <= cut:
                    newest[writer] = stamp
        return newest

    def wording_writers(self) -> dict[str, str]:
        """Return the writer of each field's winning first wording: the largest bytes, then who saw the lesson first."""
        winners: dict[str, str] = {}
        worded = [(column.first_seen() or "~", writer) for writer, column in self.w.items() if column.first]
        for _, writer in sorted(worded):
            for field, value in self.w[writer].first.items():
                if field not in winners or _is_larger(value, self.w[winners[field]].first[field]):
                    winners[field] = writer
        return winners

    def shown(self, by: str, edited: Mapping[str, tuple[str, str]]) -> "Line":
        """Return a line with only the words that a lesson shows, each as its writer's, and its first sight.

        ``by``: the writer that saw it first. ``edited``: (stamp, writer) of the fields whose edits are shown.
        """
        writers, columns = {**self.wording_writers(), AT: by}, dict[str, Column]()
        for writer, column in self.w.items():
            first = {AT: column.first_seen(), **column.first}
            columns[writer] = Column(
                first={field: value for field, value in first.items() if writers.get(field) == writer},
                set={field: edit for field, edit in column.set.items() if edited.get(field) == (edit[0], writer)},
            )
        return Line(self.id, {writer: column for writer, column in columns.items() if column != NOTHING})

    def wordings(self) -> list[dict[str, Any]]:
        """Return the first wordings of each writer, field to value."""
        return [column.first for _, column in sorted(self.w.items()) if column.first]


class Carried(msgspec.Struct, frozen=True):
    """Line of a newer version: kept and passed on byte for byte, never folded."""

    id: str
    raw: bytes

    @property
    def hash(self) -> str:
        """16 hex digits of BLAKE2b over its bytes, by which a purge mark refers to it."""
        return hashlib.blake2b(self.raw, digest_size=8).hexdigest()


class Refused(msgspec.Struct, frozen=True):
    """Line that cannot be used. Its bytes go to quarantine; the good lines beside it are joined."""

    path: str
    number: int
    reason: str
    raw: bytes


NOTHING = Column()
"""Column of a writer that stated nothing."""
_KNOWN_PARTS = frozenset(Column.__struct_fields__) - {"unknown"}
_CUT_ORDER = ("add", "first", "unknown", "n", "over", "parts", "purge", "rem", "set")
"""Order of the pieces of a column that is too long for a line: it belongs to the canonical form and never changes."""
_NESTED = frozenset({"over", "parts", "purge"})
_KNOWN_KEYS = frozenset({"id", "v", "w"})
_VERSION = 2
_VERSION_1_KEYS = frozenset({"add", "at", "by", "id", "n", "rem", "set", "v", "when"})
_NAMES_MAX = 4096  # size of the caches of checked names: most lines have the same writers and fields

_HASH = re.compile(r"[0-9a-f]{16}", re.ASCII)

_encoder = msgspec.json.Encoder(order="deterministic")
_decoder = msgspec.json.Decoder(Line)


# --- strict JSON ----------------------------------------------------------------------------------------------------


class BadLineError(ValueError):
    """Reason why a line is refused. A reader of files turns it into a ``Refused``: a peer's fault is a value."""


def canonical(value: object) -> bytes:
    """Return the canonical bytes of a value: sorted keys, no blanks, UTF-8."""
    return _encoder.encode(value)


@lru_cache(maxsize=_NAMES_MAX)
def _check_name(name: str) -> None:
    """Check the name of a counter, a field, or an unknown part: not empty, not too long, printable."""
    if not 0 < len(name) <= limits.NAME_CHARS_MAX or not name.isprintable():
        raise BadLineError(f"a name must have 1 to {limits.NAME_CHARS_MAX} printable characters: {name[:40]!r}")


def check_value(field: str, value: object) -> None:
    """Check a field's value; raise ``BadLineError`` if it is too long, too deep, or rounded by another reader."""
    if type(value) is str:
        # A character takes at most four bytes, so only long texts have to be encoded.
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
    if type(value) is str:
        check_value(field, value)
    elif isinstance(value, int) and abs(value) > limits.INTEGER_MAX:
        raise BadLineError(f"'{field}' holds an integer beyond 2^53, which other readers round")
    elif isinstance(value, dict):
        for key, inner in value.items():
            _check_depth(field, key, depth + 1)
            _check_depth(key if depth < 0 else field, inner, depth + 1)  # below 0 the key may be the field's name
    elif isinstance(value, list):
        for inner in value:
            _check_depth(field, inner, depth + 1)


_LINE_DEPTH = -5
"""Depth of the line's own object, so that a value in line, ``w``, column, ``set``, [stamp, value] is at depth 0."""


def strict_object(raw: bytes, bytes_max: int = limits.LINE_BYTES_MAX) -> dict[str, Any]:
    """Parse one JSON object that every reader parses alike and can write back; raise ``BadLineError`` for any other."""
    if len(raw) > bytes_max:
        raise BadLineError(f"longer than {bytes_max} bytes")
    try:
        parsed = _STRICT.decode(raw.decode())
    except UnicodeDecodeError as why:
        raise BadLineError("not UTF-8") from why
    except RecursionError as why:
        raise BadLineError(f"nested deeper than {limits.DEPTH_MAX}") from why
    except BadLineError:
        raise
    except ValueError as why:
        raise BadLineError(f"not JSON: {why}") from why
    if not isinstance(parsed, dict):
        raise BadLineError("not a JSON object")
    try:
        canonical(parsed)
    except (UnicodeEncodeError, msgspec.MsgspecError, RecursionError, ValueError) as why:
        raise BadLineError("holds text that cannot be written back, such as half a surrogate pair") from why
    _check_depth("line", {key: value for key, value in parsed.items() if not isinstance(value, str)}, _LINE_DEPTH)
    return parsed


def _no_equal_keys(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    unique = dict(pairs)
    if len(unique) != len(pairs):
        raise BadLineError("the same key twice: readers differ about which counts")
    return unique


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


_STRICT = json.JSONDecoder(
    object_pairs_hook=_no_equal_keys,
    parse_constant=_no_constant,
    parse_int=_bounded_integer,
    parse_float=_finite_float,
)

# --- bytes to records -----------------------------------------------------------------------------------------------


def decode(raw: bytes, bytes_max: int = limits.LINE_BYTES_MAX) -> Line | Carried:
    """Decode one line, by default of a file; raise ``BadLineError`` with the reason why it cannot be used."""
    return _decode_canonical(raw, bytes_max) or _decode_strictly(raw, bytes_max)


def _decode_canonical(raw: bytes, bytes_max: int) -> Line | None:
    """Decode a line that is canonical and within all limits, as nearly all are; None for any other.

    A decoder keeps the last of two equal keys, where another reader may keep the first: only a line that encodes to the
    same bytes is accepted here. Lines with empty maps or unknown names are decoded strictly.
    """
    if len(raw) > bytes_max or b"{}" in raw:
        return None
    try:
        line = _decoder.decode(raw)
        rare = [column for column in line.w.values() if column.purge or column.unknown]
        if _encoder.encode(line) != raw or any(column.unknown for column in rare):
            return None
        _check(line)
    except (msgspec.MsgspecError, RecursionError, UnicodeDecodeError, BadLineError):
        return None
    return Line(line.id, _without_purged(line.w, line.marks("purge"))) if rare else line


def _decode_strictly(raw: bytes, bytes_max: int = limits.LINE_BYTES_MAX) -> Line | Carried:
    """Decode one line with every check; distinguish a line of a newer version from a broken one."""
    parsed = strict_object(raw, bytes_max)
    if _has_version_1_keys(parsed):
        raise BadLineError("written by fleet 0.1: run `fleet upgrade`")
    if carried := as_carried(parsed, raw, PREFIX, _KNOWN_KEYS):
        return carried
    columns = parsed.get("w", {})
    if not isinstance(columns, dict):
        raise BadLineError("'w' is no object")
    line = Line(parsed["id"], {writer: _as_column(writer, value) for writer, value in columns.items()})
    _check(line)
    return Line(line.id, _without_purged(line.w, line.marks("purge")))


def _has_version_1_keys(parsed: dict[str, Any]) -> bool:
    return _VERSION_1_KEYS.issuperset(parsed) and len(parsed.keys() - {"id", "v"}) > 0


def is_version_1(raw: bytes) -> bool:
    """Return whether this is a line of fleet 0.1, by its keys."""
    try:
        parsed = json.loads(raw)
    except (ValueError, RecursionError):
        return False
    return (
        isinstance(parsed, dict)
        and str(parsed.get("id", "")).startswith(PREFIX)
        and _has_version_1_keys(parsed)
        and parsed.get("v", 1) == 1
    )


def _as_column(writer: str, parsed: object) -> Column:
    """Return a column from JSON, without counts of 0 and empty maps: they are not canonical."""
    if not isinstance(parsed, dict):
        raise BadLineError(f"the column of {writer[:60]!r} is no object")
    known = {part: _without_empty(part, value) for part, value in parsed.items() if part in _KNOWN_PARTS}
    try:
        column = msgspec.convert(known, Column)
    except msgspec.ValidationError as why:
        raise BadLineError(str(why)) from why
    column.unknown = {part: value for part, value in parsed.items() if part not in _KNOWN_PARTS}
    return column


def _without_empty(part: str, value: Any) -> Any:
    if not isinstance(value, dict):
        return value
    if part == "n":
        return _without_zeros(value)
    if part == "parts":
        value = {name: _without_zeros(counts) for name, counts in value.items()}
    if part in _NESTED:
        return {name: inner for name, inner in value.items() if inner != {}}
    return value


def _without_zeros(counts: Any) -> Any:
    if not isinstance(counts, dict):
        return counts
    return {name: count for name, count in counts.items() if type(count) is not int or count != 0}


def as_carried(parsed: dict[str, Any], raw: bytes, prefix: str, known: frozenset[str]) -> Carried | None:
    """Return a newer version's line as carried, known by its ``v``, keys or id prefix; None for one of this version.

    Raises ``BadLineError`` if the line has no valid id, by which carried lines are stored.
    """
    line_id = parsed.get("id")
    if not isinstance(line_id, str) or not names.is_id(line_id):
        raise BadLineError("no valid id")
    version = parsed.get("v", _VERSION)
    is_ours = type(version) is int and version == _VERSION
    if is_ours and line_id.startswith(prefix) and known.issuperset(parsed):
        return None
    if b"\n" in raw or b"\r" in raw:  # written byte for byte, it would be read as two lines
        raise BadLineError("a newer version's line with a line break in it")
    return Carried(line_id, raw)


def _check(line: Line) -> None:
    """Check what the types do not express: the bounds of names, stamps and values."""
    if not line.id.startswith(PREFIX) or not names.is_id(line.id):
        raise BadLineError("no valid pattern id")
    for writer, column in line.w.items():
        _check_writer(writer)
        _check_column(column)
        if column.over or column.parts or column.purge or column.unknown:
            _check_rare_parts(column)


def _check_column(column: Column) -> None:
    if column.add:
        _check_stamp(column.add)
    for field, value in column.first.items():
        _check_name(field)
        check_value(field, value)
        if field == AT:
            _check_stamp(value)
    for name in column.n:
        _check_name(name)
    for writer, stamp in column.rem.items():
        _check_writer(writer)
        _check_stamp(stamp)
    for field, (stamp, value) in column.set.items():
        _check_name(field)
        check_value(field, value)
        _check_stamp(stamp)


def _check_rare_parts(column: Column) -> None:
    for writer, fields in column.over.items():
        _check_writer(writer)
        for field, stamp in fields.items():
            _check_name(field)
            _check_stamp(stamp)
    for name, counts in column.parts.items():
        _check_name(name)
        for hash_ in counts:
            _check_hash(hash_)
    for writer, fields in column.purge.items():
        if writer != CARRIED:
            _check_writer(writer)
        for field, stamp in fields.items():
            _check_hash(field) if writer == CARRIED else _check_name(field)
            if stamp != clock.ZERO:
                _check_stamp(stamp)
    for name, value in column.unknown.items():
        _check_name(name)
        check_value(name, value)


@lru_cache(maxsize=_NAMES_MAX)
def _check_writer(name: str) -> None:
    if not names.is_replica(name):
        raise BadLineError(f"no replica: {name[:60]!r}")


def _check_stamp(stamp: object) -> None:
    if not isinstance(stamp, str) or not clock.is_stamp(stamp):
        raise BadLineError(f"no stamp: {str(stamp)[:60]!r}")


def _check_hash(text: str) -> None:
    if not _HASH.fullmatch(text):
        raise BadLineError(f"no hash of 16 hex digits: {text[:60]!r}")


# --- records to bytes -----------------------------------------------------------------------------------------------


def encode(line: Line) -> bytes:
    """Return the canonical bytes of a line, of any length, without a newline."""
    for column in line.w.values():  # a loop is faster than any(), and every stored row passes here
        if column.unknown:
            return canonical({"id": line.id, "w": {writer: _as_json(each) for writer, each in line.w.items()}})
    return _encoder.encode(line)


def _as_json(column: Column) -> dict[str, Any]:
    return {part: value for part in _KNOWN_PARTS if (value := getattr(column, part))} | column.unknown


def split(line: Line) -> list[bytes]:
    """Return the canonical bytes of a record, in several lines of its id if one would be too long.

    The lines are in writer order; a column that fits a line stays whole, any other is cut between its keys. Thousands
    of replicas may confirm one lesson.
    """
    raw = encode(line)
    if len(raw) <= limits.LINE_BYTES_MAX:
        return [raw]
    return [encode(Line(line.id, columns)) for columns in _packed(len(encode(Line(line.id, {"": NOTHING}))), line.w)]


def _packed(overhead: int, columns: dict[str, Column]) -> Iterator[dict[str, Column]]:
    """Fill lines with neighbouring pieces while they fit. Sizes are upper bounds: pieces of one column share bytes."""
    packed: dict[str, Column] = {}
    size = overhead
    for writer, piece in _pieces(columns, limits.LINE_BYTES_MAX - overhead):
        piece_size = _size(writer, piece)
        if packed and size + piece_size > limits.LINE_BYTES_MAX:
            yield packed
            packed, size = {}, overhead
        packed[writer] = packed[writer].joined(piece) if writer in packed else piece
        size += piece_size
    yield packed


def _pieces(columns: dict[str, Column], room: int) -> Iterator[tuple[str, Column]]:
    for writer, column in sorted(columns.items()):
        if _size(writer, column) <= room:
            yield writer, column
        else:
            for piece in _cut(column):
                yield writer, piece


def _size(writer: str, column: Column) -> int:
    """Return the size of a column among others: ``"writer":{...},``."""
    return len(canonical({writer: _as_json(column)}))


def _cut(column: Column) -> Iterator[Column]:
    """Yield a column key by key."""
    for part in _CUT_ORDER:
        value = getattr(column, part)
        pieces: Iterable[Any] = ({key: value[key]} for key in sorted(value))
        if part == "add":
            pieces = filter(None, [value])
        elif part in _NESTED:
            pieces = ({name: {key: value[name][key]}} for name in sorted(value) for key in sorted(value[name]))
        yield from (Column(**{part: piece}) for piece in pieces)


# --- join -----------------------------------------------------------------------------------------------------------

_S = TypeVar("_S", str, int)


def join(mine: Line, *others: Line) -> Line:
    """Return the join of lines of one id: commutative, associative, idempotent. None of them is changed."""
    if not others:
        return mine
    columns = dict(mine.w)
    for writer, column in chain.from_iterable(each.w.items() for each in others):
        own = columns.get(writer)
        if own is None:
            columns[writer] = column
        elif own is not column and canonical(own) != canonical(column):
            columns[writer] = own.joined(column)
    joined = Line(mine.id, columns)
    marks = joined.marks("purge")
    return Line(mine.id, _without_purged(columns, marks)) if marks else joined


def joined(lines: Iterable[Line]) -> dict[str, Line]:
    """Return the joins of lines, by id."""
    by_id: dict[str, list[Line]] = {}
    for line in lines:
        by_id.setdefault(line.id, []).append(line)
    return {id_: join(*parts) for id_, parts in by_id.items()}


def _laid_over(nested: dict[str, dict[str, _S]], news: dict[str, dict[str, _S]]) -> dict[str, dict[str, _S]]:
    return nested | {name: nested.get(name, {}) | inner for name, inner in news.items()}


def _is_larger(value: object, than: object) -> bool:
    """Return whether a value's canonical bytes are the larger ones. Equal texts are not encoded."""
    if type(value) is str and type(than) is str and value == than:
        return False
    return canonical(value) > canonical(than)


def _is_better(field: str, value: Any, than: Any) -> bool:
    """Return whether a first wording replaces another of the same writer."""
    return bool(value < than) if field == AT else _is_larger(value, than)


def _is_later(edit: tuple[str, Any], than: tuple[str, Any]) -> bool:
    """Return whether an edit replaces another of the same writer. Values are encoded only to break a tie."""
    return edit[0] > than[0] or (edit[0] == than[0] and _is_larger(edit[1], than[1]))


# --- purge marks ----------------------------------------------------------------------------------------------------


def _without_purged(columns: dict[str, Column], marks: dict[tuple[str, str], str]) -> dict[str, Column]:
    """Return the columns without the values that marks cover; columns that become empty are dropped."""
    marked = {writer for writer, _ in marks}
    rest = {w: _without_marked(w, column, marks) if w in marked else column for w, column in columns.items()}
    return {writer: column for writer, column in rest.items() if column != NOTHING}


def _without_marked(writer: str, column: Column, marks: dict[tuple[str, str], str]) -> Column:
    return msgspec.structs.replace(
        column,
        first={field: value for field, value in column.first.items() if (writer, field) not in marks},
        set={field: edit for field, edit in column.set.items() if edit[0] > marks.get((writer, field), "")},
    )


# --- difference -----------------------------------------------------------------------------------------------------


def covers(line: Line, part: Line) -> bool:
    """Return whether joining ``part`` leaves ``line`` as it is."""
    return difference(part, line) is None


def difference(line: Line, base: Line | None) -> Line | None:
    """Return what joining ``line`` adds to ``base``: the smallest delta, key by key; None for nothing.

    ``join(base, difference(line, base)) == join(base, line)``. Values that a mark in ``base`` covers are left out.
    """
    if base is None:
        return line if line.w else None
    columns: dict[str, Column] = {}
    for writer, column in line.w.items():
        column_base = base.w.get(writer)
        if column_base is not column:
            columns[writer] = column if column_base is None else column.difference(column_base)
    columns = {writer: column for writer, column in columns.items() if column != NOTHING}
    if columns:
        columns = _without_purged(columns, base.marks("purge"))
    return Line(line.id, columns) if columns else None


def _larger(nested: dict[str, dict[str, _S]], known: dict[str, dict[str, _S]], least: _S) -> dict[str, dict[str, _S]]:
    """Return the stamps, or counts, in maps of maps that are larger than the known ones."""
    larger = {
        name: {key: value for key, value in inner.items() if value > known.get(name, {}).get(key, least)}
        for name, inner in nested.items()
    }
    return {name: inner for name, inner in larger.items() if inner}
