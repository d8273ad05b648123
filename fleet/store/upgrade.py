"""Converter of a workspace that fleet 0.1 made, and of its lines. Nothing else reads the lines of that version.

The lines go through ``model.version_1``, one by one, so two machines of a clan convert in any order and what they have
joins without doubling. What is no line of fleet 0.1 stays byte for byte.
"""

import json
import shutil
import sqlite3
from collections.abc import Iterable, Iterator, Mapping
from contextlib import closing, suppress
from functools import partial
from pathlib import Path
from typing import Any, NamedTuple

from crdt import clock
from fleet.model import line, names, pattern
from fleet.model.line import BadLineError, Line
from fleet.model.version_1 import converted
from fleet.store import consent, lines
from fleet.store.ingest import clan_sources
from fleet.store.lines import PATTERNS
from fleet.store.tree import FORMAT, FORMAT_NUMBER, FORMAT_TEXT
from fleet.store.workspace import VERSION_1_FILES, Workspace

BACKUP = "upgrade-backup"


class _Upgraded(NamedTuple):
    """Account of an upgrade.

    Attributes:
        refused: how many lines could not be read before, and stay as they are.
        exposures: agent to the rows that ``reflect.exposure`` takes.
    """

    lines: int
    private: int
    refused: int
    done: list[str]
    exposures: dict[str, list[tuple[str, int, int, int, str, int, bool]]]


def _number(data: bytes) -> int:
    """Return the format's number that ``.fleet-format`` names; 1 where there is no such file."""
    text = data.decode("ascii", "replace").strip()
    return int(text) if text.isdigit() and len(text) < 9 else 1


# --- files ----------------------------------------------------------------------------------------------------------


class _Converted(NamedTuple):
    """Content of a line file after its conversion, and how many of its lines were converted, or cannot be read."""

    data: bytes
    lines: int
    refused: int


def _converted_file(path: str, data: bytes) -> _Converted:
    """Return a file of patterns with its old lines converted: an edition joined and sorted, a shard line by line."""
    read = lines.Read()
    done, rows = 0, []
    for _, raw in lines.raw_lines([data], path, read):
        made = converted(raw)
        done += made is not None
        rows.append((raw, made))
    if not done:
        return _Converted(data, 0, 0)
    written = _joined(rows) if "/" not in path else [each for raw, made in rows for each in _written(raw, made)]
    refused = sum(made is None and _is_refused(raw) for raw, made in rows) + read.count
    return _Converted(b"".join(raw + b"\n" for raw in written), done, refused)


def _written(raw: bytes, made: Line | None) -> list[bytes]:
    return [raw] if made is None else line.split(made)


def _joined(rows: list[tuple[bytes, Line | None]]) -> list[bytes]:
    """Return the lines of an edition: one record an id, sorted, and behind them what is no line of this version."""
    joined: dict[str, Line] = {}
    rest = []
    for raw, made in rows:
        found = made or _line(raw)
        if found is None:
            rest.append(raw)
        else:
            joined[found.id] = line.join(joined[found.id], found) if found.id in joined else found
    return [*(raw for each in sorted(joined) for raw in line.split(joined[each])), *rest]


def _line(raw: bytes) -> Line | None:
    with suppress(BadLineError):
        found = line.decode(raw)
        return found if isinstance(found, Line) else None
    return None


def _is_refused(raw: bytes) -> bool:
    try:
        line.decode(raw)
    except BadLineError:
        return True
    return False


def converted_tree(files: Mapping[str, bytes]) -> dict[str, bytes]:
    """Return what of a branch changes when its lines are converted; nothing where that is done already."""
    news = {}
    for path, data in files.items():
        if lines.kind_of(path) is PATTERNS and (made := _converted_file(path, data)).lines:
            news[path] = made.data
    if files and (news or _number(files.get(FORMAT, b"")) < FORMAT_NUMBER):
        news[FORMAT] = FORMAT_TEXT
    return news


# --- a workspace ----------------------------------------------------------------------------------------------------


def upgrade(workspace: Workspace) -> _Upgraded | None:
    """Convert what fleet 0.1 left in a workspace, its lines and what only this machine knows; None for nothing.

    The old files are copied first. Each file is replaced whole, and the format's number is written last: after a crash
    the next run goes on, and twice is as good as once. The caller holds the locks of a sync and of writing.

    Raises:
        DiskError: something could not be written; what was not converted yet is as it was.
    """
    if not _is_unfinished(workspace):
        return None
    done: list[str] = []
    # What was fetched has the old lines, and files here are healed from it: it is unknown until the next fetch.
    workspace.tree.move("")
    plans = _plan(workspace)
    is_old = any((workspace.local / name).exists() for name in VERSION_1_FILES)
    if plans.lines or is_old:
        _keep_a_copy(workspace, done)
    for path, data in plans.files.items():
        _put(workspace, workspace.root / path, data)
    if plans.lines:
        count = sum(path.startswith("clan-learnings/patterns") for path in plans.files)
        done.append(f"{_counted(plans.lines, 'line')} converted in {_counted(count, 'file')} of clan-learnings")
    if plans.private:
        told = f"moved to {workspace.place}/*/notes.jsonl, which nothing shared reads"
        done.append(f"{_counted(plans.private, 'private lesson')} {told}")
    if plans.refused:
        done.append(f"{_counted(plans.refused, 'line')} that could not be read before: as they were")
    exposures = _shown(workspace)
    _convert_local(workspace, done)
    return _Upgraded(plans.lines, plans.private, plans.refused, done, exposures)


def _counted(number: int, what: str) -> str:
    return f"{number:,} {what}{'' if number == 1 else 's'}"


def _is_unfinished(workspace: Workspace) -> bool:
    """Tell whether an upgrade has anything to do: also where only a line of fleet 0.1 came in."""
    if _number(_read(workspace.clan / FORMAT)) < FORMAT_NUMBER:
        return True
    sources = (source for source in clan_sources(workspace.clan) if source.kind is PATTERNS)
    return any(_converted_file(each.path, workspace.files.read(each.file)).lines for each in sources)


def finish(workspace: Workspace, done: list[str]) -> None:
    """Remove what fleet 0.1 derived, and note that this workspace is converted: the last step of an upgrade."""
    removed = [name for name in ("ready", *VERSION_1_FILES) if _remove(workspace.local / name)]
    removed += [path.name for path in sorted(workspace.local.glob("state.*db*")) if _remove(path)]
    if removed:
        done.append(f"removed from .fleet, since it is made anew or was converted: {', '.join(removed)}")
    workspace.files.replace(workspace.clan / FORMAT, FORMAT_TEXT)


class _Plan(NamedTuple):
    """New content by path below the root, in the order in which it is written, and the counts to be told."""

    files: dict[str, bytes]
    lines: int
    private: int
    refused: int


def _plan(workspace: Workspace) -> _Plan:
    clan: dict[str, bytes] = {}
    count = refused = 0
    for source in clan_sources(workspace.clan):
        if source.kind is PATTERNS:
            made = _converted_file(source.path, workspace.files.read(source.file))
            clan[source.path] = made.data
            count += made.lines
            refused += made.refused
    if not count:
        return _Plan({}, 0, 0, 0)
    records = _records(clan.values())
    private = {each for each, record in records.items() if pattern.fold(record).scope == "private"}
    files = _notes(workspace, [records[each] for each in sorted(private)])
    if private:
        shared = _shared(workspace, private)
        clan = {path: _without(data, private, shared if "/" not in path else {}) for path, data in clan.items()}
        if shared and "patterns.jsonl" not in clan:
            clan["patterns.jsonl"] = _without(b"", private, shared)
    files |= {f"clan-learnings/{path}": data for path, data in clan.items()}
    return _Plan(files, count, len(private), refused)


def _records(contents: Iterable[bytes]) -> dict[str, Line]:
    records: dict[str, Line] = {}
    for data in contents:
        for _, entry in lines.entries(PATTERNS, [data], "", lines.Read()):
            if isinstance(entry, Line):
                records[entry.id] = line.join(records[entry.id], entry) if entry.id in records else entry
    return records


def _notes(workspace: Workspace, private: list[Line]) -> dict[str, bytes]:
    """Return the notes of each agent here with the private lessons that it logged; nobody's are the default agent's."""
    here = workspace.agents_here()
    fallback = workspace.replicas().default_agent or next(iter(here), "")
    added: dict[str, list[bytes]] = {}
    for record in private:
        owners = pattern.fold(record).loggers & set(here) or {fallback}
        for owner in sorted(owners):
            added.setdefault(owner, []).extend(line.split(record))
    found = {}
    for agent, rows in added.items():
        known = workspace.files.read(workspace.notes_file(agent))
        there = set(known.split(b"\n"))
        more = b"".join(raw + b"\n" for raw in rows if raw not in there)
        gap = b"" if not known or known.endswith(b"\n") else b"\n"
        found[workspace.notes_file(agent).relative_to(workspace.root).as_posix()] = known + gap + more
    return found


def _shared(workspace: Workspace, private: set[str]) -> dict[str, Line]:
    """Return what the clan already has of private lessons: that stays among its lines."""
    base = workspace.local / "base"
    found = _records(_converted_file(s.path, _read(s.file)).data for s in clan_sources(base) if s.kind is PATTERNS)
    return {each: record for each, record in found.items() if each in private}


def _without(data: bytes, private: set[str], shared: dict[str, Line]) -> bytes:
    """Return a file without private lessons, but for what is shared already."""
    kept: list[tuple[str, bytes]] = []
    for _, raw in lines.raw_lines([data], "", lines.Read()):
        found = _line(raw)
        if found is None or found.id not in private:
            kept.append((found.id if found is not None else "~", raw))
    kept += [(each, raw) for each, record in shared.items() for raw in line.split(record)]
    if shared:
        kept.sort(key=lambda item: item[0])
    return b"".join(raw + b"\n" for _, raw in kept)


def _put(workspace: Workspace, path: Path, data: bytes) -> None:
    if data:
        workspace.files.replace(path, data)
    else:
        workspace.files.remove(path)


def _keep_a_copy(workspace: Workspace, done: list[str]) -> None:
    """Copy the old files once. A copy that is there is of the first run, and stays."""
    target = workspace.local / BACKUP
    if target.exists():
        done.append(f"the old files lie in .fleet/{BACKUP} since the first run")
        return
    fresh = workspace.local / f"{BACKUP}.new"
    _remove(fresh)
    workspace.files.folder(fresh)
    if workspace.clan.is_dir():
        shutil.copytree(workspace.clan, fresh / "clan-learnings", symlinks=True)
    for name in ("consent", "paused", "replica.toml", "clock", "state.db", "state.db-wal", "shown", "sessions"):
        source = workspace.local / name
        if source.is_dir() and not source.is_symlink():
            shutil.copytree(source, fresh / name, symlinks=True)
        elif source.is_file() and not source.is_symlink():
            shutil.copy2(source, fresh / name)
    fresh.rename(target)
    done.append(f"the old files were copied to .fleet/{BACKUP}")


def _remove(path: Path) -> bool:
    if path.is_dir() and not path.is_symlink():
        shutil.rmtree(path)
    elif path.is_symlink() or path.exists():
        path.unlink()
    else:
        return False
    return True


# --- what only this machine knows -----------------------------------------------------------------------------------


def _convert_local(workspace: Workspace, done: list[str]) -> None:
    """Put consent, pause, sessions and marks into the local database."""
    state, meta, told = workspace.state, _meta(workspace), []
    said = _read(workspace.local / "consent").decode("utf-8", "replace").split()
    if not said and "confirmed" in meta:
        said = ["agreed", *meta["confirmed"].split()]
    elif not said and "left" in meta:
        said = ["left", meta["left"]]
    if said[:1] == ["agreed"] and len(said) == 3 and said[1] == workspace.world.machine():
        state.agree(consent.REMOTE, said[2], workspace.wall())
        told.append("your consent to the remote")
    elif said[:1] == ["left"]:
        state.put(left=said[-1])
        told.append("that this machine left its clan")
    if (pause := workspace.local / "paused").exists():
        until = _read(pause).decode("ascii", "replace").strip()
        state.pause(until if clock.is_stamp(until) else "")
        told.append("the pause")
    kept = {key: meta[key] for key in ("last_sync", "pulled", "seen_by") if key in meta and not state.get(key)}
    state.put(**kept)
    for agent in workspace.agents_here():
        session, _, last_ms = _read(workspace.local / "sessions" / agent).decode("ascii", "replace").partition(" ")
        if session and last_ms.strip().isdigit():
            state.session(agent, int(last_ms), 0, partial(str, session))
            told.append(f"the session of {agent}")
    if told:
        done.append(f"kept in .fleet/local.db: {', '.join(told)}")


def _meta(workspace: Workspace) -> dict[str, str]:
    """Return the values in the database of fleet 0.1; none where it is missing or damaged."""
    path = workspace.local / "state.db"
    if not path.is_file() or path.is_symlink():
        return {}
    try:
        with closing(sqlite3.connect(path)) as connection:
            found = connection.execute("SELECT key, value FROM meta").fetchall()
    except sqlite3.Error as why:
        workspace.warn(f"{path} cannot be read ({why}): the time of the last sync was not kept")
        return {}
    return {str(key): str(value) for key, value in found if value}


def _shown(workspace: Workspace) -> dict[str, list[tuple[str, int, int, int, str, int, bool]]]:
    """Return what was shown to each agent, as rows of the table of exposures."""
    folder = workspace.local / "shown"
    agents = {path.name.partition(".")[0] for path in folder.glob("*.json*")} if folder.is_dir() else set()
    return {agent: rows for agent in sorted(agents) if names.is_agent(agent) and (rows := _shown_to(folder, agent))}


def _shown_to(folder: Path, agent: str) -> list[tuple[str, int, int, int, str, int, bool]]:
    totals, when = _object(folder / f"{agent}.json"), _object(folder / f"{agent}.when.json")
    through, unsaid = str(totals.get("through", "")), totals.get("unsaid") or []
    counted: dict[str, tuple[str, int]] = {}
    number_of: dict[str, int] = {}
    for replica, mine in (totals.get("shown") or {}).items():
        for each, total in mine.items():
            counted[each] = max((counted.get(each, ("", 0)), (replica, int(total))), key=lambda pair: pair[1])
            number_of[each] = number_of.get(each, 0) + int(total)
    rows = []
    for each, (replica, total) in sorted(counted.items()):
        spans = [tuple(span) for span in (when.get("spans") or {}).get(each, []) if len(span) == 3]
        if missing := number_of[each] - sum(span[2] for span in spans):
            first_ms = int((totals.get("first") or {}).get(each, 0))
            spans = [(first_ms, max(first_ms, *(span[0] for span in spans), first_ms), missing), *spans]
        rows += [(each, *span, replica, total, each not in unsaid) for span in spans if span[2] > 0]
    for path in sorted(folder.glob(f"{agent}.????-??-??.jsonl")):
        if path.name.split(".")[1] > through:
            rows += [(each, at, at, 1, "", 0, False) for at, ids in _notes_of(path) for each in ids]
    return rows


def _notes_of(path: Path) -> Iterator[tuple[int, list[str]]]:
    for raw in _read(path).split(b"\n"):
        with suppress(ValueError, KeyError, TypeError):
            told = json.loads(raw)
            yield int(told["at"]), [each for each in told["ids"] if isinstance(each, str) and names.is_id(each)]


def _object(path: Path) -> dict[str, Any]:
    with suppress(ValueError):
        found = json.loads(_read(path) or b"{}")
        return found if isinstance(found, dict) else {}
    return {}


def _read(path: Path) -> bytes:
    if path.is_symlink():
        return b""
    with suppress(OSError):
        return path.read_bytes()
    return b""
