"""What a person may set on a lesson, and how the words of a command line become a field's value.

An edit is a last-writer-wins register with a stamp and a writer; a field as first logged has stamp ``0``, so any edit
beats it everywhere (DESIGN, section 3).
"""

import re
from collections.abc import Sequence
from typing import Any, NamedTuple

import msgspec

from fleet.keep import edits, limits
from fleet.keep import line as codec
from fleet.keep.errors import RefusedError, UsageError
from fleet.keep.line import BadLineError, Line
from fleet.keep.normal import normalise, pattern_id
from fleet.keep.notebook import Notebook, is_present, text
from fleet.keep.reading import PATTERNS
from fleet.keep.workspace import Writer
from fleet.learn import drafts

STATES = ("candidate", "published")
"""What ``state`` may be set to; out is no state but a remove."""

_WORDS = frozenset({"category", "correct", "scope", "state", "text", "title"})  # never read as JSON
_RESERVED = {
    "merged_into": "`fleet merge A B` sets it, `fleet unmerge A` clears it",
    "id": "an id is computed once, from the first text, and never again",
    "v": "it says which version wrote a line",
}
_ATTRIBUTION = re.compile(r"agent\.[0-9a-f]{8}", re.ASCII)
_NAME = re.compile(r"[a-z][a-z0-9_.-]*", re.ASCII)


class Change(NamedTuple):
    """One field, its new value, and the kinds of secrets that were taken out of it."""

    field: str
    value: Any
    secrets: tuple[str, ...] = ()


def parse(said: str) -> Change:
    """Read ``field=value``, screened and held to the limits.

    A value is text. For fields that are not words by nature it is JSON when it parses as a list, a number or a boolean;
    ``tags`` is a list, or words between commas.

    Raises:
        UsageError: no ``field=value``, a field that is not set this way, or a value that it cannot have.
        RefusedError: beyond a limit.
    """
    field, equals, given = said.partition("=")
    field = field.strip()
    if not equals or not field:
        raise UsageError(f"--set takes field=value, not {said[:60]!r}. Nothing was changed")
    _check_name(field)
    change = _tags(given) if field == "tags" else _screened(field, given if field in _WORDS else _as_json(given))
    _check_meaning(change)
    try:
        codec.check_value(field, change.value)
    except BadLineError as why:
        raise RefusedError(f"{why}; nothing was changed. Say it shorter") from why
    return change


def _check_name(field: str) -> None:
    if why := _RESERVED.get(field):
        raise UsageError(f"'{field}' is not edited: {why}. Nothing was changed")
    if _ATTRIBUTION.fullmatch(field):
        raise UsageError(f"'{field}' tells who logged an imported record, and is not edited. Nothing was changed")
    if len(field) > limits.NAME_CHARS_MAX or not _NAME.fullmatch(field):
        raise UsageError(
            f"{field[:60]!r} cannot be a field's name: up to {limits.NAME_CHARS_MAX} of a-z, 0-9, '.', '_' and '-'. "
            "Nothing was changed"
        )


def _as_json(given: str) -> Any:
    try:
        found = msgspec.json.decode(given.encode("utf-8", "surrogateescape"))
    except (msgspec.MsgspecError, RecursionError, ValueError):
        return given
    return found if isinstance(found, list | int | float) else given


def _tags(given: str) -> Change:
    found = _as_json(given)
    listed = found if isinstance(found, list) else given.split(",")
    if not all(isinstance(tag, str) for tag in listed):
        raise UsageError("tags are words: --set tags=ci,arm64, or a JSON list of texts. Nothing was changed")
    screened = [drafts.enter("set tags", tag) for tag in listed]
    words = sorted({tag.text.replace(",", " ") for tag in screened if tag.text})
    return Change("tags", words, _kinds(screened))


def _screened(field: str, value: Any) -> Change:
    """Clean every text in a value. A lesson is one line, and so is all that the page shows."""
    met: list[drafts.Text] = []

    def clean(inner: Any, depth: int) -> Any:
        if depth > limits.DEPTH_MAX:
            raise RefusedError(f"'{field}' is nested deeper than {limits.DEPTH_MAX}; nothing was changed")
        if isinstance(inner, str):
            met.append(drafts.enter(f"set {field}", inner))
            return met[-1].text
        if isinstance(inner, list):
            return [clean(each, depth + 1) for each in inner]
        if isinstance(inner, dict):
            return {clean(key, depth + 1): clean(each, depth + 1) for key, each in inner.items()}
        return inner

    return Change(field, clean(value, 0), _kinds(met))


def _kinds(met: Sequence[drafts.Text]) -> tuple[str, ...]:
    return tuple(sorted({kind for each in met for kind in each.secrets}))


def _check_meaning(change: Change) -> None:
    field, value = change.field, change.value
    if field == "text" and not normalise(value).strip("*_`~#-=|<>[](){}.,;:!?'\" "):
        raise UsageError("a lesson needs a text with words in it; `fleet retire` takes one out. Nothing was changed")
    if field == "state" and value not in STATES:
        raise UsageError(
            f"state is {' or '.join(STATES)}, not {value[:40]!r}; `fleet retire` takes one out. Nothing was changed"
        )
    is_number = isinstance(value, int | float) and not isinstance(value, bool)
    if field == "importance" and not (is_number and 0 <= value <= 1):
        raise UsageError("importance is a number from 0 to 1. Nothing was changed")


def apply(writer: Writer, line: Line, changes: Sequence[Change]) -> list[Line]:
    """Write the changes that change something to the writer's shard, durable; return their deltas.

    The caller has admitted every stamp it read, so that ours is larger than the one of any value it has seen.
    """
    wanted = [c for c in changes if c.field not in line.set or _differs(line.set[c.field], c.value)]
    if not wanted:
        return []
    stamp = writer.tick()
    deltas = [edits.field_set(line, change.field, change.value, writer.name, stamp) for change in wanted]
    writer.append(PATTERNS, deltas)
    return deltas


def _differs(old: Any, new: Any) -> bool:
    """Compared as canonical bytes: ``1`` is not ``true``."""
    return codec.encode_value(old) != codec.encode_value(new)


def twins(changes: Sequence[Change], line: Line, notebook: Notebook) -> list[str]:
    """Return the ids of other lessons that read like the new text: two records of one lesson, for a person to merge."""
    said = next((normalise(change.value) for change in changes if change.field == "text"), "")
    if not said:
        return []
    # A lesson that was never edited has its id from its words.
    first = notebook.get(pattern_id(said))
    others = [*([first] if first is not None and normalise(text(first)) == said else []), *notebook.reading_alike(said)]
    return sorted({other.id for other in others if other.id != line.id and is_present(other)})


def history(line: Line) -> dict[str, dict[str, Any]]:
    """Return each field's value, and when and by whom it was set; both are None for a field as first logged."""
    return {
        field: {
            "value": line.set[field],
            "at": line.when[field][0] if field in line.when else None,
            "by": line.when[field][1] if field in line.when else None,
        }
        for field in sorted(line.set)
    }
