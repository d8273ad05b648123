"""Use cases of records: what each pass that reflected did, with the lines of the transcript that it was drawn from."""

import json
from collections.abc import Iterator
from itertools import islice
from pathlib import Path
from typing import NamedTuple
from urllib.parse import urlsplit

from fleet.model.errors import NoError
from fleet.reflect.records import Pass, Record, Records
from fleet.share import notices
from fleet.share.notices import Notice
from fleet.store.workspace import Workspace
from fleet.text.screening import one_line, screen

COMPLETE = "reflection.complete"
"""Name of the event that a pass has come to its end."""
_TRANSCRIPTS = (".jsonl", ".json")
_LINES_MAX = 40
_LINE_CHARS_MAX = 600
_LINE_BYTES_MAX = 4 * 1024 * 1024


class Drawn(NamedTuple):
    """One line of a transcript that something was drawn from: its number, and its words."""

    number: int
    text: str


def complete(workspace: Workspace, agent: str, record: Record) -> Record:
    """Write down what a pass did, durable before this returns, and tell whoever listens; return the record.

    Raises:
        DiskError: it is not there; nobody was told.
    """
    done = Records(workspace, agent).append(record)
    told = {"agent": agent, "saved": done.saved, "told": done.told()} | as_found(done, with_raw=False)
    notices.send(workspace, Notice(COMPLETE, f"{agent}: {done.kind} {done.outcome or 'done'}", done.told(), told))
    return done


def listed(workspace: Workspace, agent: str, since: str = "") -> list[Pass]:
    """Return an agent's passes, the newest first; those from a day on."""
    return [each for each in reversed(Records(workspace, agent).passes()) if each.record.at >= since]


def waiting(workspace: Workspace, agent: str) -> list[Record]:
    """Return the sessions that were deferred and have not been reflected on since."""
    return Records(workspace, agent).deferred()


def show(workspace: Workspace, agent: str, number: int) -> tuple[Pass, list[Drawn]]:
    """Return one pass, and what it was drawn from.

    Raises:
        NoError: there is no pass of that number.
    """
    found = next((each for each in Records(workspace, agent).passes() if each.number == number), None)
    if found is None:
        raise NoError(f"{agent} has no record {number}; `fleet records` lists them")
    return found, list(islice(_drawn(found.record), _LINES_MAX))


def unagreed(workspace: Workspace) -> str:
    """Return the host of the webhook that is named and that nobody on this machine agreed to; "" for none."""
    url = notices.webhook(workspace)
    return urlsplit(url).hostname or url[:40] if url and not notices.is_agreed(workspace) else ""


def agree(workspace: Workspace) -> None:
    """Note a person's yes to the webhook that is named.

    Raises:
        UsageError: messages may not go there.
    """
    notices.agree(workspace)


def as_found(record: Record, *, with_raw: bool = True) -> dict[str, object]:
    """Return a record as JSON shows it: the fields of the file, each there."""
    names = [each for each in record.__struct_fields__ if with_raw or each != "raw"]
    found: dict[str, object] = {name: getattr(record, name) for name in names}
    writers = [{name: getattr(each, name) for name in each.__struct_fields__} for each in record.writers]
    return found | {"writers": writers}


def _drawn(record: Record) -> Iterator[Drawn]:
    """Yield the lines of the transcript that a record names, screened. A transcript that is gone has none."""
    wanted = set(record.drawn)
    path = Path(record.transcript).expanduser() if record.transcript else None
    if not wanted or path is None or path.suffix not in _TRANSCRIPTS or not path.is_file():
        return
    with path.open("rb") as file:
        for number in range(1, max(wanted) + 1):
            raw = file.readline(_LINE_BYTES_MAX)
            if not raw:
                return
            if number in wanted:
                yield Drawn(number, one_line(screen(_said(raw)).text)[:_LINE_CHARS_MAX])


def _said(raw: bytes) -> str:
    """Return the texts in a line of JSON, else the line itself."""
    try:
        return " ".join(_texts(json.loads(raw)))
    except (ValueError, RecursionError):
        return raw.decode("utf-8", "replace")


_SAYING = ("text", "content", "message", "output", "command", "file_path", "input", "payload", "arguments", "parts")


def _texts(found: object) -> Iterator[str]:
    if isinstance(found, str):
        yield found
    elif isinstance(found, list):
        for each in found:
            yield from _texts(each)
    elif isinstance(found, dict):
        for name in _SAYING:
            if name in found:
                yield from _texts(found[name])
