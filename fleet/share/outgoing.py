"""Content of a push: the lines that the fetched tree lacks, and the edition when one is due.

This module decides the content; ``exchange`` pushes it. New content is made from the fetched tree, never from the files
here, so that it depends on no local policy, and a line that is held back cannot leave another way. The gate, which live
sync uses too, holds back every line that is private or contains a secret or an invisible character.
"""

import hashlib
import json
from collections.abc import Mapping, Sequence
from contextlib import suppress
from functools import cached_property
from itertools import chain
from typing import NamedTuple

import msgspec

from fleet.model import names
from fleet.model.discovery import Discovery
from fleet.model.line import Carried, Line, is_version_1
from fleet.model.pattern import fold
from fleet.share.remote import Files
from fleet.store.lines import KINDS, Entry, Kind, LineReader, joined_entries, missing_of, name_of, raws_of
from fleet.store.tree import ATTRIBUTES, FORMAT, FORMAT_TEXT, MEMBERS, Members, Paths, TreeGoneError
from fleet.store.workspace import Workspace
from fleet.text import screening
from fleet.text.screening import counted, for_terminal, listed, shortened

ATTRIBUTES_TEXT = b"*.jsonl merge=union -text\n*.md merge=union\n*.toml merge=union\n"
_SUBJECT_CHARS_MAX = 72
_STRIPPED = "stripped"  # key in the local database of the last tree that was searched for purged values


class _Withheld(NamedTuple):
    """A line that stays on this machine, why, and the id of its lesson or discovery; "" for none."""

    path: str
    reason: str
    id: str = ""

    def __str__(self) -> str:
        return f"{self.path}{f', {self.id}' * bool(self.id)}: {self.reason}"


class Outgoing(msgspec.Struct):
    """Content of a push.

    Attributes:
        files: the new content of each path that changes.
        lines: the lines in these files that the remote does not have, by path.
        withheld: lines that the gate holds back.
        purges: True if the tree may have purged values, so that its pages are rendered again, too.
        stripped: hash of the purge marks whose values the tree was searched for; "" for none.
    """

    files: Files = msgspec.field(default_factory=dict)
    lines: dict[str, list[bytes]] = msgspec.field(default_factory=dict)
    entries: list[Entry] = msgspec.field(default_factory=list)
    withheld: list[_Withheld] = msgspec.field(default_factory=list)
    purges: bool = False
    stripped: str = ""

    @property
    def count(self) -> int:
        """Number of lines that go out."""
        return sum(len(lines) for lines in self.lines.values())

    @property
    def subject(self) -> str:
        """Subject line of the commit: agents, the first lesson or discovery, and the number of others.

        It quotes only lines that have passed the gate.
        """
        # The writers count, not the owners of the shards: another replica sends lessons of live sync, and lost ones.
        parts = [entry for entry in self.entries if isinstance(entry, Line)]
        findings = [entry for entry in self.entries if isinstance(entry, Discovery)]
        writers = {*chain.from_iterable(part.by_writer() for part in parts), *(finding.by for finding in findings)}
        agents = listed(sorted({names.agent_of(name) for name in writers if names.is_replica(name)})) or "fleet"
        # A lesson that was retired before it was ever sent was not learned.
        lessons = [p for p in parts if fold(p).is_present or not any(p.has_removed(w, None) for w in p.by_writer())]
        learned = [next((fields["text"] for fields in part.wordings() if "text" in fields), "") for part in lessons]
        shown = [finding for finding in findings if not finding.retracts]
        phrases = [f"learned: {text}" for text in learned if text]
        phrases += [f"found: {finding.problem or finding.solution}" for finding in shown]
        if not phrases:
            return f"{agents}: {counted(self.count, 'line')}" if self.count else "fleet: compact"  # lines only left
        more = f" (and {len(phrases) - 1:,} more)" if len(phrases) > 1 else ""
        return f"{agents} {for_terminal(shortened(phrases[0], _SUBJECT_CHARS_MAX))}{more}"


class Outbox:
    """Outbox of a workspace, relative to the fetched tree. The caller holds the write lock."""

    def __init__(self, workspace: Workspace) -> None:
        self._workspace = workspace
        self._tree = workspace.tree

    @cached_property
    def _paths(self) -> Paths:
        return self._tree.paths(self._tree.head())

    def plan(self, *, drop_alone: bool = False) -> Outgoing:
        """Return the content of the next push: lines are added that the tree lacks, or dropped that its edition covers.

        With ``drop_alone``, covered lines are dropped even if no line is added.
        """
        with self._workspace.snapshot():
            out = self.waiting()
            self._strip_purged(out)
        if out.lines or drop_alone:
            self._drop_covered(out.files, always=drop_alone)
        for path, lines in out.lines.items():
            data = self._content(path, out.files)
            gap = b"\n" if data and not data.endswith(b"\n") else b""
            out.files[path] = data + gap + b"".join(raw + b"\n" for raw in lines)
        if out.files:
            out.files |= self._format_files()
        return out

    def waiting(self) -> Outgoing:
        """Return the lines and members that the tree lacks, and the lines among them that are held back."""
        out = Outgoing()
        self._add_lines(out)
        with suppress(TreeGoneError):
            self._add_members(out)
        return out

    def _add_lines(self, out: Outgoing) -> None:
        """Add the lines that the tree lacks, each to its writer's shard, if they pass the gate."""
        # In a folder that was moved or copied, agents get a new replica only with their first write.
        mine = self._workspace.current_replicas() or self._workspace.former_replicas()
        found = self._workspace.db.outgoing() if mine else []
        undone_unsent = self._workspace.db.undone_unsent()
        for entry in found:
            if not isinstance(entry, Carried) and entry.id in undone_unsent:
                continue
            # No part of a private record may leave, even if the part itself does not have the scope.
            is_private = isinstance(entry, Line) and fold(entry).scope == "private"
            for path, part in _by_shard(entry, mine):
                reasons = [PRIVATE] if is_private else gate(part)
                raws = raws_of(part)
                if reasons:
                    out.withheld += [_Withheld(path, "; ".join(reasons), entry.id) for _ in raws]
                else:
                    out.lines.setdefault(path, []).extend(raws)
                    out.entries.append(part)

    def _add_members(self, out: Outgoing) -> None:
        named = Members.parse(self._workspace.files.read(self._workspace.clan / MEMBERS))
        if named and named != Members.parse(self._content(MEMBERS)):
            data = named.render()
            if reasons := gate_texts([data.decode()]):
                out.withheld.append(_Withheld(MEMBERS, "; ".join(reasons)))
            else:
                out.files[MEMBERS] = data

    def _content(self, path: str, changed: Mapping[str, bytes] = {}) -> bytes:
        """Return the content of a path in the tree, or in ``changed`` if it is there."""
        if path in changed:
            return changed[path]
        return self._tree.read(self._paths[path].oid) if path in self._paths else b""

    def _format_files(self) -> Files:
        """Return ``.gitattributes`` and the format file, if they differ from the tree's."""
        texts = {ATTRIBUTES: ATTRIBUTES_TEXT, FORMAT: FORMAT_TEXT}
        return {path: data for path, data in texts.items() if self._content(path) != data}

    # --- lines that leave the tree ----------------------------------------------------------------------------------

    def _strip_purged(self, out: Outgoing) -> None:
        """Add the files of the tree that have purged values, without these values.

        A file that was already searched for the same marks is not read again.
        """
        workspace, tree = self._workspace, self._tree
        ids = workspace.db.purged_ids()
        if not ids:
            return
        marks = hashlib.blake2b("\n".join(ids).encode(), digest_size=8)
        for each in ids:
            record = workspace.patterns.line(each)
            if record is not None:
                marks.update(repr((sorted(record.marks("purge").items()), sorted(record.purged_carried()))).encode())
        out.stripped = marks.hexdigest()
        checked_head, _, checked_marks = workspace.state.get(_STRIPPED).partition(" ")
        is_checked = checked_marks == out.stripped and tree.descends(tree.head(), checked_head)
        clean = tree.paths(checked_head) if is_checked else {}
        stripped: Files = {}
        for path, blob in self._paths.items():
            kind = Kind.of(path)
            if kind is not None and clean.get(path) != blob:
                data = tree.read(blob.oid)
                if (rest := workspace.db.stripped(kind, data)) != data:
                    stripped[path] = rest
        out.purges = checked_marks != out.stripped or bool(stripped)
        out.files |= stripped

    def note_stripped(self, out: Outgoing) -> None:
        """Record that the fetched tree has no value that the present marks cover."""
        if out.stripped:
            self._workspace.state.put(**{_STRIPPED: f"{self._tree.head()} {out.stripped}"})

    @cached_property
    def _is_small(self) -> bool:
        size = sum(blob.size for path, blob in self._paths.items() if Kind.of(path))
        return size < self._workspace.config.keep.edition_always_bytes

    def _is_heavy(self, kind: Kind) -> bool:
        """Return whether the shards are worth reading: always in a small clan, else once they exceed a share.

        So editions, and dropping the lines that they cover, have a constant amortised cost for each line.
        """
        shards = sum(blob.size for path, blob in self._paths.items() if path.startswith(f"{kind.name}.d/"))
        bytes_max = self._workspace.config.keep.edition_uncovered_share * self._size(kind)
        return self._is_small or shards > bytes_max

    def _drop_covered(self, changed: Files, *, always: bool) -> None:
        """Drop the lines of shards that the tree's edition covers.

        Only the fetched edition counts: its lines are known to be on the remote when those of the shards go.
        """
        for kind in KINDS:
            if kind.edition in self._paths and (always or self._is_heavy(kind)):
                uncovered = self._uncovered(kind, changed).items()
                changed |= {path: kept for path, (data, kept) in uncovered if len(kept) < len(data)}

    def _uncovered(self, kind: Kind, changed: Files) -> dict[str, tuple[bytes, bytes]]:
        """Return each shard's content, and the part of it that the tree's edition does not cover."""
        paths = [path for path in self._paths if path.startswith(f"{kind.name}.d/")]
        shards = {path: self._content(path, changed) for path in paths}
        if not any(shards.values()):
            return {}
        ids = {entry.id for path, data in shards.items() for _, entry in LineReader().entries(kind, [data], path)}
        edition = _entries_under(ids, kind, self._content(kind.edition, changed))
        return {path: (data, _without_covered(kind, data, path, edition)) for path, data in shards.items()}

    # --- editions ---------------------------------------------------------------------------------------------------

    def edition(self, *, always: bool) -> Files:
        """Return the files of a new edition, the join of the fetched tree, to be pushed as a commit of its own.

        No files when none is due, unless ``always``. In a small clan it is due whenever the tree's edition is not the
        join of the tree; in others, when it does not cover a given share of the tree.
        """
        files: Files = {}
        for kind in KINDS:
            if always or self._is_due(kind):
                data, old = self._workspace.db.edition(kind), self._content(kind.edition)
                if any(is_version_1(raw) for raw in old.split(b"\n") if raw and b'"w"' not in raw):
                    self._workspace.warn(
                        "the branch has lines of fleet 0.1 again, and no new edition replaces them. Nothing is lost: "
                        "run `fleet upgrade` once"
                    )
                elif data and data != old:
                    files[kind.edition] = data
        return files | self._format_files() if files else files

    def _size(self, kind: Kind) -> int:
        return self._paths[kind.edition].size if kind.edition in self._paths else 0

    def _is_due(self, kind: Kind) -> bool:
        if self._is_small or not self._is_heavy(kind):
            return self._is_small
        share = self._workspace.config.keep.edition_uncovered_share
        oids = " ".join(blob.oid for path, blob in sorted(self._paths.items()) if Kind.of(path) is kind)
        mark = hashlib.blake2b(f"{share} {oids}".encode(), digest_size=16).hexdigest()
        if self._workspace.db.noted(f"not due: {kind.name}") == mark:
            return False
        if sum(len(kept) for _, kept in self._uncovered(kind, {}).values()) > share * self._size(kind):
            return True
        self._workspace.db.note(f"not due: {kind.name}", mark)  # so that the same files are not read again
        return False


def _by_shard(entry: Entry, mine: Sequence[str]) -> list[tuple[str, Entry]]:
    """Return the parts of an entry, each with the path of its shard.

    Lines of others that the remote lost go to a shard of ours: only its owner writes a shard.
    """
    kind, parts = Kind.of_id(entry.id), dict[str, Entry]()
    if isinstance(entry, Line):
        parts |= entry.by_writer()
    else:
        parts[entry.by if isinstance(entry, Discovery) else ""] = entry
    return [(kind.shard(writer if writer in mine else mine[0]), part) for writer, part in parts.items()]


def _entries_under(ids: set[str], kind: Kind, edition: bytes) -> dict[str, Entry]:
    """Return the entries of an edition with some ids, joined, by name."""
    wanted_ids = {each.encode() for each in ids}
    # Most lines have other ids, and need not be parsed.
    some = (raw for _, raw in LineReader().raw_lines([edition], kind.edition) if _id_in(raw) in wanted_ids)
    entries: dict[str, Entry] = {}
    for _, entry in LineReader().entries(kind, [b"\n".join(some)], kind.edition):
        name = name_of(entry)
        entries[name] = joined_entries(entries.get(name), entry) or entry
    return entries


def _without_covered(kind: Kind, data: bytes, path: str, edition: Mapping[str, Entry]) -> bytes:
    """Return a shard without the lines that an edition covers; unreadable lines are never covered."""
    entries = LineReader().entries(kind, [data], path)
    covered = {raw for raw, entry in entries if missing_of(edition.get(name_of(entry)), entry) is None}
    kept = [raw for raw in data.split(b"\n") if raw.strip() and raw.removesuffix(b"\r") not in covered]
    return b"".join(raw + b"\n" for raw in kept) if covered else data


def _id_in(raw: bytes) -> bytes:
    start = raw.find(b'"id":"')
    return raw[start + 6 : start + 24] if start >= 0 else b""


# --- the gate -------------------------------------------------------------------------------------------------------

PRIVATE = "scope is private"


def gate(entry: Entry) -> list[str]:
    """Return the reasons why an entry must not be sent; [] if it may."""
    if isinstance(entry, Line):
        items = [*entry.items()]
        if ("scope", "private") in items:
            return [PRIVATE]
        return gate_texts([text for item in items for text in screening.texts_in(item)])
    if isinstance(entry, Discovery):
        return gate_texts([entry.problem, entry.solution, entry.context, entry.type, entry.confidence, *entry.tags])
    # Decoded, since JSON's escapes would hide a secret; and raw, since a newer version may use the raw text.
    value = json.loads(entry.raw)
    if _is_private(value):
        return [PRIVATE]
    return gate_texts([*screening.texts_in(value), entry.raw.decode("utf-8", "replace")])


def gate_texts(texts: list[str]) -> list[str]:
    """Return the reasons why texts must not be sent; [] if they may."""
    if screening.is_harmless("\n".join(texts)):  # then each text is harmless, too
        return []
    kinds = sorted({kind for text in texts for kind in screening.screen(text).secrets})
    found = [f"holds a secret ({', '.join(kinds)})"] if kinds else []
    if any(screening.strip_controls(text) != text for text in texts):
        found.append("holds control or invisible characters")
    return found


def _is_private(value: object) -> bool:
    """Return whether an object in a newer version's line has a private scope, at any depth."""
    if isinstance(value, dict):
        scope = value.get("scope")
        is_edit = isinstance(scope, list) and "private" in scope
        return scope == "private" or is_edit or any(_is_private(inner) for inner in value.values())
    return isinstance(value, list) and any(_is_private(inner) for inner in value)
