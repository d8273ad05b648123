"""Discoveries: a grow-only set of flat, immutable lines.

The join is union by id. Of two lines with the same id, the line whose words hash to that id wins, so that nobody can
put other words under it; between equals, the smaller canonical bytes. A retraction is a line too, and cannot be undone.
"""

import hashlib
import json
import unicodedata

import msgspec

from crdt import clock
from fleet.model import limits, names
from fleet.model.line import BadLineError, Carried, as_carried, canonical, check_value, strict_object

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

    def joined(self, other: "Discovery") -> "Discovery":
        """Return the join with another line of this id: the one whose words hash to it, then the smaller bytes."""
        return min(self, other, key=lambda entry: (entry.id != entry.own_id(), encode(entry)))

    @staticmethod
    def join(known: bytes | None, raw: bytes) -> bytes:
        """Return the join of two lines of one id, all as canonical bytes; ``known`` is None if there is no line yet."""
        if known is None or known == raw:
            return raw
        one, other = (entry for entry in map(decode, (known, raw)) if isinstance(entry, Discovery))
        return encode(one.joined(other))

    def own_id(self) -> str:
        """Return the id that is the hash of its words, or of what it retracts."""
        words = (self.type, self.context, self.problem, self.solution)
        return retraction_id(self.retracts) if self.retracts else discovery_id(*words)

    def imported_by(self, author: str) -> str:
        """Return the replica name that every importer computes from the line: its author, and a hash of its words."""
        words = (
            " ".join(unicodedata.normalize("NFC", each).split()) for each in (self.problem, self.context, self.solution)
        )
        text = json.dumps(["finding", *words, clock.ms_of(self.at) or None], separators=(",", ":"))
        return f"{author}.{hashlib.blake2b(text.encode(), digest_size=4).hexdigest()}"

    def is_imported(self) -> bool:
        """Return whether the line was imported, so that its author need not be a writer of this clan."""
        return self.by == self.imported_by(names.agent_of(self.by))


_TEXTS = ("confidence", "context", "problem", "solution", "type")
_KNOWN_KEYS = frozenset(Discovery.__struct_fields__) | {"v"}


def discovery_id(type_: str, context: str, problem: str, solution: str) -> str:
    """Return ``d-`` and 16 hex digits of BLAKE2b over the words that identify a discovery."""
    return PREFIX + _digest([type_, context, problem, solution])


def retraction_id(target: str) -> str:
    """Return the id of the retraction of a discovery: one for each target, whoever retracts it."""
    return PREFIX + _digest(["retracts", target])


def _digest(parts: list[str]) -> str:
    return hashlib.blake2b(canonical(parts), digest_size=8).hexdigest()


def decode(raw: bytes) -> Discovery | Carried:
    """Return the discovery in a line, or a newer version's line as carried; raise ``BadLineError`` for a broken one."""
    parsed = strict_object(raw)
    if carried := as_carried(parsed, raw, PREFIX, _KNOWN_KEYS):
        return carried
    parsed.pop("v", None)
    if parsed.get("at") == clock.ZERO:
        del parsed["at"]
    try:
        entry = msgspec.convert(parsed, Discovery)
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
        check_value(field, getattr(entry, field))
    check_value("tags", list(entry.tags))
    if entry.minutes is not None and not 0 <= entry.minutes <= limits.INTEGER_MAX:
        raise BadLineError("'minutes' is out of range")


def encode(entry: Discovery) -> bytes:
    """Return the canonical bytes of a discovery, without a newline."""
    return canonical(entry)
