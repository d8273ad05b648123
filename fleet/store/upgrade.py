"""Converter of a workspace that fleet 0.1 made, and of its lines. Nothing else reads the lines of that version.

The lines go through ``model.version_1``, one by one, so two machines of a clan convert in any order and what they have
joins without doubling. What is no line of fleet 0.1 stays byte for byte.
"""

import json
import shutil
import sqlite3
from base64 import b64decode
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from contextlib import closing, suppress
from pathlib import Path
from typing import Any

from crdt import clock
from fleet.model import line, names, pattern
from fleet.model.line import BadLineError, Line
from fleet.model.version_1 import converted
from fleet.store import backup, consent, lines
from fleet.store.ingest import clan_sources
from fleet.store.lines import PATTERNS
from fleet.store.tree import FORMAT, FORMAT_NUMBER, FORMAT_TEXT
from fleet.store.workspace import VERSION_1_FILES, Workspace

BACKUP = "upgrade-backup"


def _number(data: bytes) -> int:
    """Return the format's number that ``.fleet-format`` names; 1 where there is no such file."""
    text = data.decode("ascii", "replace").strip()
    return int(text) if text.isdigit() and len(text) < 9 else 1


# --- files ----------------------------------------------------------------------------------------------------------


def _converted_file(path: str, data: bytes) -> tuple[bytes, int]:
    """Return a file of patterns with its old lines converted, and how many they are.

    An edition is joined and sorted, and behind it stands what is no line of this version; a shard goes line by line.
    """
    rows = [(raw, converted(raw)) for _, raw in lines.Read().raw_lines([data], path)]
    count = sum(made is not None for _, made in rows)
    if not count:
        return data, 0
    if "/" in path:
        written = [each for raw, made in rows for each in (line.split(made) if made is not None else [raw])]
    else:
        known = [(raw, made or _line(raw)) for raw, made in rows]
        joined = _joined(found for _, found in known if found is not None)
        written = [raw for each in sorted(joined) for raw in line.split(joined[each])]
        written += [raw for raw, found in known if found is None]
    return b"".join(raw + b"\n" for raw in written), count


def _joined(found: Iterable[Line]) -> dict[str, Line]:
    """Return lines by their id, those of one id joined."""
    joined: dict[str, Line] = {}
    for each in found:
        joined[each.id] = line.join(joined[each.id], each) if each.id in joined else each
    return joined


def _line(raw: bytes) -> Line | None:
    with suppress(BadLineError):
        found = line.decode(raw)
        return found if isinstance(found, Line) else None
    return None


def converted_tree(files: Mapping[str, bytes]) -> dict[str, bytes]:
    """Return what of a branch changes when its lines are converted; nothing where that is done already."""
    news: dict[str, bytes] = {}
    for path, data in files.items():
        if lines.Kind.of(path) is PATTERNS:
            made, count = _converted_file(path, data)
            news |= {path: made} if count else {}
    if files and (news or _number(files.get(FORMAT, b"")) < FORMAT_NUMBER):
        news[FORMAT] = FORMAT_TEXT
    return news


# --- a workspace ----------------------------------------------------------------------------------------------------


def upgrade(workspace: Workspace) -> list[str] | None:
    """Convert what fleet 0.1 left in a workspace, its lines and what only this machine knows.

    The old files are copied first. Each file is replaced whole, and ``finish`` writes the format's number last: after a
    crash the next run goes on, and twice is as good as once. The caller holds the locks of a sync and of writing.

    Returns:
        What was done, a sentence each; None where there is nothing to do.

    Raises:
        DiskError: something could not be written; what was not converted yet is as it was.
    """
    if not _is_unfinished(workspace):
        return None
    done: list[str] = []
    # What was fetched has the old lines, and files here are healed from it: it is unknown until the next fetch.
    workspace.tree.move("")
    clan, count = _converted_clan(workspace)
    records = _records(clan.values()) if count else {}
    private = {each: record for each, record in records.items() if pattern.fold(record).scope == "private"}
    if count or any((workspace.local / name).exists() for name in VERSION_1_FILES):
        _keep_a_copy(workspace, done)
    if count:
        # Notes first: what is private stands somewhere at any moment.
        for path, data in (_notes(workspace, private.values()) | _without_private(workspace, clan, private)).items():
            if data:
                workspace.files.replace(path, data)
            else:
                workspace.files.remove(path)
        done.append(f"{_counted(count, 'line')} converted in {_counted(len(clan), 'file')} of clan-learnings")
    if private:
        told = f"moved to {workspace.place}/*/notes.jsonl, which nothing shared reads"
        done.append(f"{_counted(len(private), 'private lesson')} {told}")
    _convert_local(workspace)
    done.append("kept in .fleet/local.db: what only this machine knew")
    return done


def _counted(number: int, what: str) -> str:
    return f"{number:,} {what}{'' if number == 1 else 's'}"


def _is_unfinished(workspace: Workspace) -> bool:
    """Tell whether an upgrade has anything to do: also where only a line of fleet 0.1 came in."""
    if _number(_read(workspace.clan / FORMAT)) < FORMAT_NUMBER:
        return True
    sources = (source for source in clan_sources(workspace.clan) if source.kind is PATTERNS)
    return any(_converted_file(each.path, workspace.files.read(each.file))[1] for each in sources)


def finish(workspace: Workspace, done: list[str]) -> None:
    """Remove what fleet 0.1 derived, and note that this workspace is converted: the last step of an upgrade."""
    removed = [name for name in ("ready", *VERSION_1_FILES) if _remove(workspace.local / name)]
    removed += [path.name for path in sorted(workspace.local.glob("state.*db*")) if _remove(path)]
    if removed:
        done.append(f"removed from .fleet, since it is made anew or was converted: {', '.join(removed)}")
    _release(workspace)
    workspace.files.replace(workspace.clan / FORMAT, FORMAT_TEXT)


def _release(workspace: Workspace) -> None:
    """Take out of quarantine what was only of fleet 0.1: a hook may have read it before it was converted."""
    path = workspace.local / "quarantine" / "refused.jsonl"
    rows = _read(path).splitlines(keepends=True)
    kept = [row for row in rows if not _is_of_version_1(row)]
    if len(kept) < len(rows):
        workspace.files.replace(path, b"".join(kept))


def _is_of_version_1(row: bytes) -> bool:
    """Tell whether a row of the quarantine holds a line of fleet 0.1."""
    try:
        return converted(b64decode(json.loads(row)["bytes"])) is not None
    except (ValueError, KeyError, TypeError):
        return False


def _converted_clan(workspace: Workspace) -> tuple[dict[str, bytes], int]:
    clan, total = {}, 0
    for source in clan_sources(workspace.clan):
        if source.kind is PATTERNS:
            clan[source.path], count = _converted_file(source.path, workspace.files.read(source.file))
            total += count
    return clan, total


def _records(contents: Iterable[bytes]) -> dict[str, Line]:
    read = (entry for data in contents for _, entry in lines.Read().entries(PATTERNS, [data], ""))
    return _joined(entry for entry in read if isinstance(entry, Line))


def _notes(workspace: Workspace, private: Iterable[Line]) -> dict[Path, bytes]:
    """Return the notes of each agent here with the private lessons that it logged; nobody's are the default agent's."""
    here = workspace.agents_here()
    fallback = workspace.replicas().default_agent or next(iter(here), "")
    found: dict[Path, bytes] = {}
    for record in sorted(private, key=lambda each: each.id):
        for owner in sorted(pattern.fold(record).loggers & set(here) or {fallback}):
            path = workspace.notes_file(owner)
            known = found.get(path, workspace.files.read(path))
            rows = [raw for raw in line.split(record) if raw not in known.split(b"\n")]
            gap = b"" if not known or known.endswith(b"\n") else b"\n"
            found[path] = known + gap + b"".join(raw + b"\n" for raw in rows)
    return found


def _without_private(workspace: Workspace, clan: Mapping[str, bytes], private: Mapping[str, Line]) -> dict[Path, bytes]:
    """Return the clan's files without private lessons, but for what the clan already has of them: in the edition."""
    if not private:
        return {workspace.clan / path: data for path, data in clan.items()}
    base = (s for s in clan_sources(workspace.local / "base") if s.kind is PATTERNS)
    shared = _records(_converted_file(each.path, _read(each.file))[0] for each in base)
    rest = [raw for each in sorted(shared.keys() & private.keys()) for raw in line.split(shared[each])]
    files = dict(clan) if "patterns.jsonl" in clan or not rest else {"patterns.jsonl": b"", **clan}
    return {
        workspace.clan / path: _without(data, private.keys(), [] if "/" in path else rest)
        for path, data in files.items()
    }


def _without(data: bytes, private: Collection[str], shared: list[bytes]) -> bytes:
    kept = [(raw, _line(raw)) for _, raw in lines.Read().raw_lines([data], "")]
    kept = [(raw, found) for raw, found in kept if found is None or found.id not in private]
    if shared:
        kept += [(raw, _line(raw)) for raw in shared]
        kept.sort(key=lambda each: each[1].id if each[1] is not None else "~")
    return b"".join(raw + b"\n" for raw, _ in kept)


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
    for name in ("consent", "paused", "replica.toml", "clock", "state.db", "state.db-wal", "shown"):
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


def _convert_local(workspace: Workspace) -> None:
    """Put consent, pause, sessions, showings and marks into the local database."""
    state, meta = workspace.state, _meta(workspace)
    said = _read(workspace.local / "consent").decode("utf-8", "replace").split()
    if not said and "confirmed" in meta:
        said = ["agreed", *meta["confirmed"].split()]
    elif not said and "left" in meta:
        said = ["left", meta["left"]]
    if said[:1] == ["agreed"] and len(said) == 3 and said[1] == workspace.world.machine():
        state.agree(consent.REMOTE, said[2], workspace.wall())
    elif said[:1] == ["left"]:
        state.put(left=said[-1])
    if (pause := workspace.local / "paused").exists():
        until = _read(pause).decode("ascii", "replace").strip()
        state.pause(until if clock.is_stamp(until) else "")
    rows: list[Sequence[Any]] = [["value", "last_sync", meta["last_sync"]]] if "last_sync" in meta else []
    for agent in workspace.agents_here():
        rows += [["exposure", agent, each, "", *rest] for each, *rest in _shown_to(workspace.local / "shown", agent)]
    backup.join_local(state, rows)


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


def _shown_to(folder: Path, agent: str) -> list[tuple[str, int, int, int, str, int, bool]]:
    """Return what was shown to an agent: pattern, first and last time, number, replica, its total, is it sent."""
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
