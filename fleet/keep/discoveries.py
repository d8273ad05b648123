"""Discoveries: a grow-only log of flat, immutable lines.

The join is union by id; of two lines with one id the smaller canonical bytes stay. A retraction is a line of its own,
and what is retracted stays so.
"""

import msgspec

from crdt import clock
from fleet.keep import limits, names
from fleet.keep import line as codec
from fleet.keep.digests import blake2b
from fleet.keep.line import BadLineError, Carried

PREFIX = "d-"
TYPES = ("discovery", "gotcha", "tip", "workaround")
CONFIDENCES = ("low", "medium", "high")


class Discovery(msgspec.Struct, kw_only=True, omit_defaults=True, forbid_unknown_fields=True, gc=False, frozen=True):
    """One non-obvious finding, or the retraction of one."""

    at: str = clock.ZERO
    by: str = ""
    confidence: str = ""
    context: str = ""
    id: str
    minutes: int | None = None
    problem: str = ""
    retracts: str = ""
    solution: str = ""
    tags: tuple[str, ...] = ()
    type: str = ""


_TEXTS = ("confidence", "context", "problem", "solution", "type")
KNOWN_KEYS = frozenset(Discovery.__struct_fields__) | {"v"}
_decoder = msgspec.json.Decoder(Discovery)


def discovery_id(type_: str, context: str, problem: str, solution: str) -> str:
    """Return ``d-`` and 16 hex digits of BLAKE2b over what makes a finding itself."""
    return PREFIX + _digest([type_, context, problem, solution])


def retraction_id(target: str) -> str:
    """Return the id of the retraction of a discovery: one a target, whoever retracts it."""
    return PREFIX + _digest(["retracts", target])


def _digest(parts: list[str]) -> str:
    return blake2b(codec.encode_value(parts), digest_size=8).hexdigest()


def decode(raw: bytes) -> Discovery | Carried:
    """Read one line.

    Raises:
        BadLineError: it cannot be used, and why.
    """
    found = codec.strict_object(raw)
    if carried := codec.as_carried(found, raw, PREFIX, KNOWN_KEYS):
        return carried
    found.pop("v", None)
    try:
        entry = msgspec.convert(found, Discovery)
    except msgspec.ValidationError as why:
        raise BadLineError(str(why)) from why
    _check(entry)
    return entry


def _check(entry: Discovery) -> None:
    if entry.at != clock.ZERO and not clock.is_stamp(entry.at):
        raise BadLineError("'at' is no stamp")
    if entry.by and not names.is_replica(entry.by):
        raise BadLineError("'by' is no replica")
    if entry.retracts and not names.is_id(entry.retracts):
        raise BadLineError("'retracts' is no id")
    if not entry.retracts and not (entry.problem or entry.solution):
        raise BadLineError("neither 'problem' nor 'solution'")
    for field in _TEXTS:
        codec.check_value(field, getattr(entry, field))
    codec.check_value("tags", list(entry.tags))
    if entry.minutes is not None and not 0 <= entry.minutes <= limits.INTEGER_MAX:
        raise BadLineError("'minutes' is out of range")


def decode_block(block: bytes) -> list[Discovery] | None:
    """Read many lines at once, or None when one of them needs a closer look."""
    try:
        return _decoder.decode_lines(block)
    except (msgspec.MsgspecError, RecursionError, UnicodeDecodeError):
        return None


def is_sound(entry: Discovery, raw: bytes) -> bool:
    """Tell whether a decoded discovery is what its bytes say, in canonical form and within all limits."""
    if len(raw) > limits.LINE_BYTES_MAX or encode(entry) != raw or not entry.id.startswith(PREFIX):
        return False
    if entry.at == clock.ZERO and entry.at is not clock.ZERO:
        return False  # the encoder omits the default object only, and a written "0" is another one
    try:
        _check(entry)
    except BadLineError:
        return False
    return names.is_id(entry.id)


def encode(entry: Discovery) -> bytes:
    """Return the canonical bytes of a discovery, without a newline."""
    return codec.encode_value(entry)


class Findings:
    """The join of all discovery lines.

    Args:
        cut: a discovery stamped later is kept and passed on, but not shown yet.
    """

    def __init__(self, cut: str = "~") -> None:
        self.cut = cut
        self.lines: dict[str, bytes] = {}
        self.entries: dict[str, Discovery] = {}
        self.carried: dict[bytes, str] = {}

    def add(self, entry: Discovery | Carried) -> None:
        """Join one line. Any order, any number of times."""
        if isinstance(entry, Carried):
            self.carried[entry.raw] = entry.id
            return
        raw = encode(entry)
        known = self.lines.get(entry.id)
        if known is not None and known <= raw:
            return
        self.lines[entry.id] = raw
        self.entries[entry.id] = entry

    def covers(self, entry: Discovery | Carried) -> bool:
        """Tell whether joining this line would change nothing."""
        if isinstance(entry, Carried):
            return entry.raw in self.carried
        return entry.id in self.lines and self.lines[entry.id] <= encode(entry)

    def get(self, entry_id: str) -> Discovery | None:
        """Return one entry."""
        return self.entries.get(entry_id)

    def newest(self, count: int) -> list[Discovery]:
        """Return the newest discoveries of the whole clan, oldest of them first, as ``tail`` would."""
        shown = sorted(self._shown(), key=lambda entry: (entry.at, entry.id))
        return shown[-count:] if count > 0 else []

    def count(self) -> int:
        """Return how many discoveries there are to show."""
        return len(self._shown())

    def _shown(self) -> list[Discovery]:
        retracted = self.retracted()
        return [e for e in self.entries.values() if not e.retracts and e.id not in retracted and e.at <= self.cut]

    def retracted(self) -> set[str]:
        """Return the ids of what was retracted, read from the joined entries: the order of arrival is nothing."""
        return {entry.retracts for entry in self.entries.values() if entry.retracts}

    def held(self) -> int:
        """Return how many are stamped beyond the cut."""
        return sum(entry.at > self.cut for entry in self.entries.values())

    def edition(self) -> bytes:
        """Return the canonical bytes of everything here, sorted by (at, id)."""
        keyed = [((entry.at, entry.id), self.lines[entry.id]) for entry in self.entries.values()]
        keyed += [(("~", line_id), raw) for raw, line_id in self.carried.items()]
        return b"".join(raw + b"\n" for _, raw in sorted(keyed))
