"""The gate at the way out: what must not leave this machine stays, with the reason."""

import json
from collections.abc import Collection, Iterator

from fleet.keep import screening
from fleet.keep.discoveries import Discovery
from fleet.keep.line import Line
from fleet.keep.reading import Entry

PRIVATE = "scope is private"


def reasons(entry: Entry, private: Collection[str] = ()) -> list[str]:
    """Return why an entry must not be sent; empty when it may go.

    Args:
        entry: the line.
        private: ids of which nothing may leave, whatever the line itself says.
    """
    if entry.id in private:
        return [PRIVATE]
    if isinstance(entry, Line):
        if is_private(entry.set):
            return [PRIVATE]
        texts = [*_texts(entry.set), *entry.n]
    elif isinstance(entry, Discovery):
        texts = [entry.problem, entry.solution, entry.context, entry.type, entry.confidence, *entry.tags]
    else:
        # Decoded, since JSON's escapes would hide a secret; and as it stands, since a newer version may read it so.
        found = json.loads(entry.raw)
        if is_private(found) or is_private(found.get("set")):
            return [PRIVATE]
        texts = [*_texts(found), entry.raw.decode("utf-8", "replace")]
    return in_texts(texts)


def is_private(fields: object) -> bool:
    """Tell whether fields say that what they belong to never leaves."""
    return isinstance(fields, dict) and fields.get("scope") == "private"


def in_texts(texts: list[str]) -> list[str]:
    """Return why texts must not be sent."""
    kinds = sorted({kind for text in texts for kind in screening.secret_kinds(text)})
    found = [f"holds a secret ({', '.join(kinds)})"] if kinds else []
    if any(screening.strip_controls(text) != text for text in texts):
        found.append("holds control or invisible characters")
    return found


def _texts(value: object) -> Iterator[str]:
    if isinstance(value, str):
        yield value
    elif isinstance(value, dict):
        for key, inner in value.items():
            yield from _texts(key)
            yield from _texts(inner)
    elif isinstance(value, list):
        for inner in value:
            yield from _texts(inner)
