"""The gate at the way out: what must not leave this machine stays, with the reason."""

from collections.abc import Iterator

from fleet.keep import screening
from fleet.keep.discoveries import Discovery
from fleet.keep.line import Line
from fleet.keep.reading import Entry


def reasons(entry: Entry) -> list[str]:
    """Return why an entry must not be sent; empty when it may go."""
    if isinstance(entry, Line):
        if entry.set.get("scope") == "private":
            return ["scope is private"]
        texts = list(_texts(entry.set))
    elif isinstance(entry, Discovery):
        texts = [entry.problem, entry.solution, entry.context, entry.type, entry.confidence, *entry.tags]
    else:
        texts = [entry.raw.decode("utf-8", "replace")]
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
