"""Converter of a workspace that fleet 0.1 made, and of its lines. Nothing else reads the lines of that version.

The lines go through ``model.version_1``, one by one, so two machines of a clan convert in any order and what they have
joins without doubling. Anything that is no line of fleet 0.1 stays byte for byte.
"""

import shutil
from collections.abc import Collection, Iterable, Mapping
from pathlib import Path

from crdt import clock
from fleet.model import line, pattern
from fleet.model.errors import RefusedError
from fleet.model.line import Line
from fleet.model.version_1 import converted
from fleet.store import consent
from fleet.store.ingest import clan_sources
from fleet.store.lines import PATTERNS, Kind, LineReader, lesson_lines
from fleet.store.tree import FORMAT, FORMAT_NUMBER, FORMAT_TEXT
from fleet.store.workspace import VERSION_1_FILES, Workspace
from fleet.text.screening import counted

BACKUP = "upgrade-backup"


def _number(data: bytes) -> int:
    """Return the number of the format in ``.fleet-format``; 1 without such a file."""
    text = data.decode("ascii", "replace").strip()
    return int(text) if text.isdigit() and len(text) < 9 else 1


# --- files ----------------------------------------------------------------------------------------------------------


def _converted_file(path: str, data: bytes) -> tuple[bytes, int]:
    """Return a file of patterns with its old lines converted, each by itself, and their number."""
    rows = [(raw, converted(raw)) for _, raw in LineReader().raw_lines([data], path)]
    count = sum(new is not None for _, new in rows)
    if not count:
        return data, 0
    written = [piece for raw, new in rows for piece in (line.split(new) if new is not None else [raw])]
    return b"".join(raw + b"\n" for raw in written), count


def converted_tree(files: Mapping[str, bytes]) -> dict[str, bytes]:
    """Return the files of a branch that change when its lines are converted; none if they are converted already.

    Raises ``RefusedError`` for a branch of a newer format.
    """
    changed: dict[str, bytes] = {}
    if (number := _number(files.get(FORMAT, b""))) > FORMAT_NUMBER:
        raise RefusedError(f"its lines have the format {number}, and this fleet writes {FORMAT_NUMBER}")
    for path, data in files.items():
        if Kind.of(path) is PATTERNS:
            new, count = _converted_file(path, data)
            changed |= {path: new} if count else {}
    if files and (changed or number < FORMAT_NUMBER):
        changed[FORMAT] = FORMAT_TEXT
    return changed


# --- a workspace ----------------------------------------------------------------------------------------------------


def upgrade(workspace: Workspace) -> list[str] | None:
    """Convert the lines and the local state that fleet 0.1 left in a workspace.

    The old files are copied first. Each file is replaced atomically, and ``finish`` writes the format's number last, so
    the next run continues after a crash, and a second run changes nothing. The caller holds the sync and write locks.

    Returns a sentence for each step; None if there is nothing to do.
    """
    clan, count = _converted_clan(workspace)
    if not count and _number(workspace.files.read(workspace.clan / FORMAT)) >= FORMAT_NUMBER:
        return None
    done: list[str] = []
    # The fetched tree has the old lines, which would come back to the files here: it is unset until the next fetch.
    workspace.tree.move("")
    records = line.joined(entry for data in clan.values() for entry in lesson_lines([data])) if count else {}
    private = {id_: record for id_, record in records.items() if pattern.fold(record).scope == "private"}
    if count or any((workspace.local / name).exists() for name in VERSION_1_FILES):
        _keep_a_copy(workspace, done)
    if count:
        # Notes first, so that a private lesson is in some file at any moment.
        shared = {workspace.clan / path: _without(data, private) for path, data in clan.items()}
        for path, data in (_notes(workspace, private.values()) | shared).items():
            if data:
                workspace.files.replace(path, data)
            else:
                workspace.files.remove(path)
        done.append(f"{counted(count, 'line')} converted in {counted(len(clan), 'file')} of clan-learnings")
    if private:
        where = f"{workspace.place}/*/notes.jsonl, which nothing shared reads"
        done.append(f"{counted(len(private), 'private lesson')} moved to {where}")
    _convert_local(workspace)
    done.append("kept in .fleet/local.db: consent and pause")
    return done


def finish(workspace: Workspace, done: list[str]) -> None:
    """Remove the derived files of fleet 0.1 and write the format's number: the last step of an upgrade."""
    removed = [name for name in ("ready", *VERSION_1_FILES) if _remove(workspace.local / name)]
    removed += [path.name for path in sorted(workspace.local.glob("state.*db*")) if _remove(path)]
    if removed:
        done.append(f"removed from .fleet, since it is made anew or was converted: {', '.join(removed)}")
    # A hook may have put lines of fleet 0.1 into quarantine before they were converted.
    refused = workspace.local / "quarantine" / "refused.jsonl"
    rows = workspace.files.read(refused).splitlines(keepends=True)
    rest = [row for row in rows if b"written by fleet 0.1" not in row]  # the reason
    if len(rest) < len(rows):
        workspace.files.replace(refused, b"".join(rest))
    workspace.files.replace(workspace.clan / FORMAT, FORMAT_TEXT)


def _converted_clan(workspace: Workspace) -> tuple[dict[str, bytes], int]:
    clan, total = {}, 0
    for source in clan_sources(workspace.clan):
        if source.kind is PATTERNS:
            clan[source.path], count = _converted_file(source.path, workspace.files.read(source.file))
            total += count
    return clan, total


def _notes(workspace: Workspace, private: Iterable[Line]) -> dict[Path, bytes]:
    """Return the agents' private files with the private lessons that they logged; the default agent gets the others."""
    here = workspace.agents_here()
    fallback = workspace.default_agent() or next(iter(here), "")
    notes: dict[Path, bytes] = {}
    for record in sorted(private, key=lambda record: record.id):
        for owner in sorted(pattern.fold(record).loggers & set(here) or {fallback}):
            path = workspace.notes_file(owner)
            known = notes.get(path, workspace.files.read(path))
            rows = [raw for raw in line.split(record) if raw not in known.split(b"\n")]
            gap = b"" if not known or known.endswith(b"\n") else b"\n"
            notes[path] = known + gap + b"".join(raw + b"\n" for raw in rows)
    return notes


def _without(data: bytes, private: Collection[str]) -> bytes:
    """Return a file without private lessons. The clan's parts of them come back with its tree."""
    reader = LineReader()
    rows = [(raw, reader.entry(PATTERNS, raw, "", number)) for number, raw in reader.raw_lines([data], "")]
    return b"".join(raw + b"\n" for raw, entry in rows if not isinstance(entry, Line) or entry.id not in private)


def _keep_a_copy(workspace: Workspace, done: list[str]) -> None:
    """Copy the old files, unless an earlier run did."""
    target = workspace.local / BACKUP
    if target.exists():
        done.append(f"the old files lie in .fleet/{BACKUP} since the first run")
        return
    fresh = workspace.local / f"{BACKUP}.new"
    _remove(fresh)
    workspace.files.folder(fresh)
    if workspace.clan.is_dir():  # or a link to one: it is not written through, and may be a folder the next time
        shutil.copytree(workspace.clan, fresh / "clan-learnings", symlinks=True)
    for name in ("consent", "paused", "replica.toml", "clock", "state.db", "state.db-wal", "shown"):
        source = workspace.local / name
        if source.is_dir() and not source.is_symlink():
            shutil.copytree(source, fresh / source.name, symlinks=True)
        elif source.is_file() and not source.is_symlink():
            shutil.copy2(source, fresh)
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


# --- local state ----------------------------------------------------------------------------------------------------


def _convert_local(workspace: Workspace) -> None:
    """Move consent and pause to the local database. The records of fleet 0.1 on showings and syncs are dropped."""
    state = workspace.state
    answer = workspace.files.read(workspace.local / "consent").decode("utf-8", "replace").split()
    if answer[:1] == ["agreed"] and len(answer) == 3 and answer[1] == workspace.world.machine():
        state.agree(consent.REMOTE, answer[2], workspace.wall())
    elif answer[:1] == ["left"]:
        state.put(left=answer[-1])
    if (pause := workspace.local / "paused").exists():
        until = workspace.files.read(pause).decode("ascii", "replace").strip()
        state.pause(until if clock.is_stamp(until) else "")
