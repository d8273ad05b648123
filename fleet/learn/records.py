"""The comment that trails a counted entry: ``<!-- fleet c-<16 hex> p-<16 hex> replica=... at=... session=... -->``."""

import re

import msgspec

from crdt import clock
from fleet.keep import names
from fleet.keep.lazily import compiled

_TOKEN = compiled(r"(?P<key>[a-z][a-z0-9_-]{0,31})=(?P<value>\S*)", re.ASCII)
_CORRECTION_ID = compiled(r"c-[0-9a-f]{16}", re.ASCII)
_QUOTED = compiled(r"(?:%[0-9a-fA-F]{2})+")
_UNQUOTED = compiled(r"[^A-Za-z0-9._:@/+-]")
_PLAIN = compiled(
    rf" fleet {_CORRECTION_ID.pattern} {names.ID.pattern} replica={names.REPLICA.pattern} at=\S{{29}}"
    r" session=[A-Za-z0-9._:@/+-]* ",
    re.ASCII,
)
"""A record with nothing to quote. It has as many blanks as parts, so that no part can hold one."""


class Record(msgspec.Struct, frozen=True):
    """The trailing comment that says an entry was counted: which, as what, by whom, when, in which session."""

    id: str
    pattern: str
    replica: str
    at: str
    session: str
    extra: tuple[tuple[str, str], ...] = ()
    line: int = 0


def read_record(comment: str, line: int) -> Record | None:
    """Read the inside of a comment as a record; None for any other comment, and for a broken record."""
    words = comment.split()
    if len(words) < 4 or words[0] != "fleet" or not _CORRECTION_ID.fullmatch(words[1]) or not names.is_id(words[2]):
        return None
    said = [(found["key"], _unquote(found["value"])) for word in words[3:] if (found := _TOKEN.fullmatch(word))]
    known = dict(reversed(said))  # the first of two equal keys counts
    replica, at = known.get("replica", ""), known.get("at", "")
    if not names.is_replica(replica) or not clock.is_stamp(at):
        return None
    extra = tuple((key, value) for key, value in said if key not in {"replica", "at", "session"})
    return Record(words[1], words[2], replica, at, known.get("session", ""), extra, line)


def records_of(pattern: str, page: bytes) -> list[Record]:
    """Return the records of one pattern, in file order, without reading the rest of the page.

    Also those in a code fence, which do not count: who asks must not take them for news.
    """
    found: list[Record] = []
    wanted, at = pattern.encode(), 0
    while (at := page.find(wanted, at)) >= 0:
        start, end = page.rfind(b"\n", 0, at) + 1, page.find(b"\n", at)
        end = len(page) if end < 0 else end
        for piece in page[start:end].decode("utf-8", "replace").split("<!--")[1:]:
            record = read_record(piece.partition("-->")[0], 0)
            if record is not None and record.pattern == pattern:
                found.append(record)
        at = end
    return found


def format_record(record: Record) -> str:
    """Write a record as the comment that trails its entry, without a newline. Its ``line`` is not written.

    Raises:
        ValueError: an id, replica, stamp or key that would not read back.
    """
    if not record.extra:  # as most have none: whatever has this form needs no quotes, and reads back as it is
        text = f" fleet {record.id} {record.pattern} replica={record.replica} at={record.at} session={record.session} "
        if _PLAIN.fullmatch(text) and clock.is_stamp(record.at):
            return f"<!--{text}-->"
    pairs = [("replica", record.replica), ("at", record.at), ("session", record.session), *record.extra]
    said = " ".join(f"{key}={_quote(value)}" for key, value in pairs)
    text = f" fleet {record.id} {record.pattern} {said} "
    if read_record(text, record.line) != record:
        raise ValueError(f"no record that would read back: {text.strip()[:200]!r}")
    return f"<!--{text}-->"


def _quote(text: str) -> str:
    """Percent-encode what could end a word or the comment, as host session ids may hold anything."""
    return _UNQUOTED.sub(lambda found: "".join(f"%{byte:02X}" for byte in found[0].encode("utf-8", "replace")), text)


def _unquote(text: str) -> str:
    return _QUOTED.sub(lambda found: bytes.fromhex(found[0].replace("%", "")).decode("utf-8", "replace"), text)
