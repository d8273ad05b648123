"""Content of a push: the lines that the fetched tree lacks, and the edition when one is due.

Decided here and done by ``sync``. New content is always made of the fetched tree, never of the files here: so what is
pushed depends on no local policy, and a line that is held back here never leaves by another way. The gate, which live
sync asks as well, holds every line back that has a secret or an invisible character in it, or that is private.
"""

import hashlib
import json
from collections.abc import Iterable, Sequence
from contextlib import suppress
from functools import cached_property
from typing import NamedTuple

import msgspec

from fleet.model import line as codec
from fleet.model import names
from fleet.model.discovery import Discovery
from fleet.model.line import Carried, Line
from fleet.model.pattern import fold
from fleet.share.remote import Files
from fleet.store.lines import DISCOVERIES, KINDS, PATTERNS, Entry, Kind, Read
from fleet.store.tree import ATTRIBUTES, FORMAT, FORMAT_TEXT, MEMBERS, Members, Paths, TreeGoneError
from fleet.store.workspace import Workspace
from fleet.text import screening
from fleet.text.screening import for_terminal

ATTRIBUTES_TEXT = b"*.jsonl merge=union -text\n*.md merge=union\n*.toml merge=union\n"
_SUBJECT_CHARS_MAX = 72
_STRIPPED = "stripped"  # where the local database keeps up to which tree purged values were looked for


class _Withheld(NamedTuple):
    """A line that stays on this machine, and why."""

    path: str
    raw: bytes
    reason: str


class Outgoing(msgspec.Struct):
    """Content of a push.

    Attributes:
        files: whole new content of each path that changes.
        lines: the lines in them that the remote does not have, by path.
        entries: the same, as records.
        withheld: lines that the gate holds back.
        purges: whether the tree may hold purged values, so that its page must be made anew as well.
        stripped: names the purge marks that were looked for in the tree; "" for none.
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
        """Subject line of a push: what was learned or found, by which agents, and how much more.

        Its words are those of the lines that go out, which the gate has seen.
        """
        stems = (path.rpartition("/")[2].removesuffix(".jsonl") for path, lines in self.lines.items() if lines)
        who = ", ".join(sorted({names.agent_of(stem) for stem in stems if names.is_replica(stem)})) or "fleet"
        learned = [text for each in self.entries if isinstance(each, Line) and (text := _text_of(each))]
        found = [
            each.problem or each.solution for each in self.entries if isinstance(each, Discovery) and not each.retracts
        ]
        said = [f"learned: {text}" for text in learned] + [f"found: {text}" for text in found]
        if not said:
            return f"{who}: {self.count:,} {'line' if self.count == 1 else 'lines'}"
        first = said[0] if len(said[0]) <= _SUBJECT_CHARS_MAX else said[0][: _SUBJECT_CHARS_MAX - 1].rstrip() + "…"
        more = f" (and {len(said) - 1:,} more)" if len(said) > 1 else ""
        return f"{who} {for_terminal(first)}{more}"


def _text_of(line: Line) -> str:
    """Return the words of a lesson that a line tells for the first time."""
    return next((str(told["text"]) for told in line.wordings() if "text" in told), "")


class Outbox:
    """Outbox of a workspace, going by the tree as last fetched. The caller holds the write lock to push it."""

    def __init__(self, workspace: Workspace) -> None:
        self._workspace = workspace
        self._tree = workspace.tree

    @cached_property
    def _paths(self) -> Paths:
        return self._tree.paths(self._tree.head())

    def plan(self, *, drop_alone: bool = False) -> Outgoing:
        """Return what to push on the fetched tree: what it lacks, without what its own edition covers anyway.

        With ``drop_alone``, what may be dropped is worth a push of its own, even when no line goes out.
        """
        with self._workspace.snapshot():
            out = self.waiting()
            changed = self._strip_purged(out)
        if out.lines or drop_alone:
            changed |= self._drop_covered(changed, always=drop_alone)
        for path, lines in out.lines.items():
            data = changed[path] if path in changed else self._content(path)
            changed[path] = data + (b"\n" if data and not data.endswith(b"\n") else b"") + _joined(lines)
        out.files |= changed
        if out.files:
            out.files |= self._format_files()
        return out

    def waiting(self) -> Outgoing:
        """Return what waits to go out, and what is held back: the lines of the next push, and the members."""
        out = Outgoing()
        self._add_lines(out)
        with suppress(TreeGoneError):
            self._add_members(out)
        return out

    def _add_lines(self, out: Outgoing) -> None:
        """Add what rows have and the tree lacks, each to its writer's shard, as far as the gate lets it pass."""
        # In a folder that was moved or copied nobody has a new id before the first write; what waits still waits.
        mine = self._workspace.current_replicas() or self._workspace.former_replicas()
        found = self._workspace.db.outgoing() if mine else []
        taken_back = self._workspace.db.taken_back(self._workspace.policy().mine)
        for entry in found:
            if not isinstance(entry, Carried) and entry.id in taken_back:
                continue
            # Nothing of a record leaves that is private, also what does not say so itself.
            is_private = isinstance(entry, Line) and fold(entry).scope == "private"
            for path, part in _by_shard(entry, mine):
                why = [PRIVATE] if is_private else gate(part)
                raws = (
                    codec.split(part)
                    if isinstance(part, Line)
                    else [part.raw if isinstance(part, Carried) else DISCOVERIES.encode(part)]
                )
                if why:
                    out.withheld += [_Withheld(path, raw, "; ".join(why)) for raw in raws]
                else:
                    out.lines.setdefault(path, []).extend(raws)
                    out.entries.append(part)

    def _add_members(self, out: Outgoing) -> None:
        named = Members.parse(self._workspace.files.read(self._workspace.clan / MEMBERS))
        if named and named != Members.parse(self._content(MEMBERS)):
            data = named.render()
            if why := gate_texts([data.decode()]):
                out.withheld.append(_Withheld(MEMBERS, data, "; ".join(why)))
            else:
                out.files[MEMBERS] = data

    def _content(self, path: str) -> bytes:
        return self._tree.read(self._paths[path].oid) if path in self._paths else b""

    def _format_files(self) -> Files:
        """Return the files that say how the tree is merged and which format its lines have, where they are not so."""
        wanted = {ATTRIBUTES: ATTRIBUTES_TEXT, FORMAT: FORMAT_TEXT}
        return {path: data for path, data in wanted.items() if self._content(path) != data}

    # --- what leaves the tree ---------------------------------------------------------------------------------------

    def _strip_purged(self, out: Outgoing) -> Files:
        """Return each file of the tree that holds what a purge mark covers, without it.

        A tree is looked through once: what was clean under the same marks is not read again.
        """
        workspace, tree = self._workspace, self._tree
        ids = workspace.db.purged_ids()
        if not ids:
            return {}
        marks = hashlib.blake2b("\n".join(ids).encode(), digest_size=8)
        for each in ids:
            record = workspace.patterns.line(each)
            if record is not None:
                marks.update(repr((sorted(record.purges().items()), sorted(record.purged_carried()))).encode())
        out.stripped = marks.hexdigest()
        before, _, known = workspace.state.get(_STRIPPED).partition(" ")
        clean = tree.paths(before) if known == out.stripped and tree.descends(tree.head(), before) else {}
        found = {}
        for path, blob in self._paths.items():
            kind = Kind.of(path)
            if kind is not None and clean.get(path) != blob:
                data = tree.read(blob.oid)
                if (left := workspace.db.stripped(kind, data)) != data:
                    found[path] = left
        out.purges = known != out.stripped or bool(found)
        return found

    def note_stripped(self, out: Outgoing) -> None:
        """Note that the fetched tree holds nothing that the marks known now cover."""
        if out.stripped:
            self._workspace.state.put(**{_STRIPPED: f"{self._tree.head()} {out.stripped}"})

    @cached_property
    def _is_small(self) -> bool:
        size = sum(blob.size for path, blob in self._paths.items() if Kind.of(path))
        return size < self._workspace.config.keep.edition_always_bytes

    def _is_heavy(self, kind: Kind) -> bool:
        """Tell whether the shards are worth being gone through: in a small clan always, else as they outgrow a share.

        So the cost of an edition, and of dropping what it covers, stays constant by line.
        """
        shards = sum(blob.size for path, blob in self._paths.items() if path.startswith(f"{kind.name}.d/"))
        most = self._workspace.config.keep.edition_uncovered_share * self._size(kind)
        return self._is_small or shards > most

    def _drop_covered(self, changed: Files, *, always: bool) -> Files:
        """Return each shard of the tree that has lines which the tree's own edition covers, without them.

        Never by an edition that was not fetched: a line goes only where what covers it is known to stay.
        """
        found = {}
        for kind in KINDS:
            if kind.edition in self._paths and (always or self._is_heavy(kind)):
                for path, (data, kept) in self._uncovered(kind, changed).items():
                    if len(kept) < len(data):
                        found[path] = kept
        return found

    def _uncovered(self, kind: Kind, changed: Files) -> dict[str, tuple[bytes, bytes]]:
        """Return each shard's content, and those of its lines that the tree's edition does not cover."""

        def content(path: str) -> bytes:
            return changed[path] if path in changed else self._content(path)

        shards = {path: content(path) for path in self._paths if path.startswith(f"{kind.name}.d/")}
        if not any(shards.values()):
            return {}
        ids = {entry.id for path, data in shards.items() for _, entry in Read().entries(kind, [data], path)}
        whole = _Edition(kind, content(kind.edition), ids)
        return {path: (data, whole.uncovered(data, path)) for path, data in shards.items()}

    # --- editions ---------------------------------------------------------------------------------------------------

    def edition(self, *, always: bool) -> Files:
        """Return the files of a new edition, made of what the fetched tree says, to be pushed as a commit of its own.

        None when none is due, unless ``always``. Below a size it is due whenever the tree's edition is not the join of
        the tree; above, when a good part of the tree is not covered by it.
        """
        files: Files = {}
        for kind in KINDS:
            if always or self._is_due(kind):
                data = self._workspace.db.edition(kind)
                if data and (len(data) != self._size(kind) or data != self._content(kind.edition)):
                    files[kind.edition] = data
        return files | self._format_files() if files else files

    def _size(self, kind: Kind) -> int:
        return self._paths[kind.edition].size if kind.edition in self._paths else 0

    def _is_due(self, kind: Kind) -> bool:
        if self._is_small or not self._is_heavy(kind):
            return self._is_small
        share = self._workspace.config.keep.edition_uncovered_share
        looked = f"{share} " + " ".join(blob.oid for path, blob in sorted(self._paths.items()) if Kind.of(path) is kind)
        mark = hashlib.blake2b(looked.encode(), digest_size=16).hexdigest()
        if self._workspace.db.noted(f"not due: {kind.name}") == mark:
            return False
        if sum(len(kept) for _, kept in self._uncovered(kind, {}).values()) > share * self._size(kind):
            return True
        self._workspace.db.note(f"not due: {kind.name}", mark)  # what is there is gone through once
        return False


def _by_shard(entry: Entry, mine: Sequence[str]) -> list[tuple[str, Entry]]:
    """Return the parts of an entry with the path of the shard that each goes to.

    What others wrote, and the remote lost, goes to a shard of ours: nobody else writes into theirs.
    """
    if isinstance(entry, Line):
        parts = entry.by_writer()
        return [(PATTERNS.shard(who if who in mine else mine[0]), part) for who, part in parts.items()]
    if isinstance(entry, Discovery):
        return [(DISCOVERIES.shard(entry.by if entry.by in mine else mine[0]), entry)]
    kind = DISCOVERIES if entry.id.startswith("d-") else PATTERNS
    return [(kind.shard(mine[0]), entry)]


def _joined(lines: Iterable[bytes]) -> bytes:
    return b"".join(raw + b"\n" for raw in lines)


class _Edition:
    """An edition, joined by itself, as far as it is about some ids."""

    def __init__(self, kind: Kind, data: bytes, ids: set[str]) -> None:
        self._kind = kind
        self._records: dict[str, Line] = {}
        self._told: dict[str, bytes] = {}
        self._carried: set[bytes] = set()
        wanted = {each.encode() for each in ids}
        # Most lines are about other ids, and those need not be read to know that.
        some = (raw for _, raw in Read().raw_lines([data], kind.edition) if _id_in(raw) in wanted)
        for raw, entry in Read().entries(kind, [b"\n".join(some)], kind.edition):
            if isinstance(entry, Line):
                known = self._records.get(entry.id)
                self._records[entry.id] = entry if known is None else codec.join(known, entry)
            elif isinstance(entry, Discovery):
                self._told[entry.id] = Discovery.join(self._told.get(entry.id), DISCOVERIES.encode(entry))
            else:
                self._carried.add(raw)

    def uncovered(self, data: bytes, path: str) -> bytes:
        """Return the lines of a shard that it does not cover; what cannot be read is covered by nothing."""
        covered = {raw for raw, entry in Read().entries(self._kind, [data], path) if self._covers(raw, entry)}
        kept = [raw for raw in data.split(b"\n") if raw.strip() and raw.removesuffix(b"\r") not in covered]
        return _joined(kept) if covered else data

    def _covers(self, raw: bytes, entry: Entry) -> bool:
        if isinstance(entry, Line):
            return entry.id in self._records and codec.covers(self._records[entry.id], entry)
        if isinstance(entry, Discovery):
            told = self._told.get(entry.id)
            return Discovery.join(told, DISCOVERIES.encode(entry)) == told
        return raw in self._carried


def _id_in(raw: bytes) -> bytes:
    at = raw.find(b'"id":"')
    return raw[at + 6 : at + 24] if at >= 0 else b""


# --- the gate -------------------------------------------------------------------------------------------------------

PRIVATE = "scope is private"


def gate(entry: Entry) -> list[str]:
    """Return why an entry must not be sent; empty when it may go."""
    if isinstance(entry, Line):
        said = [*entry.items()]
        if ("scope", "private") in said:
            return [PRIVATE]
        return gate_texts([text for pair in said for text in screening.texts_in(pair)])
    if isinstance(entry, Discovery):
        return gate_texts([entry.problem, entry.solution, entry.context, entry.type, entry.confidence, *entry.tags])
    # Decoded, since JSON's escapes would hide a secret; and as it stands, since a newer version may read it so.
    found = json.loads(entry.raw)
    if _says_private(found):
        return [PRIVATE]
    return gate_texts([*screening.texts_in(found), entry.raw.decode("utf-8", "replace")])


def gate_texts(texts: list[str]) -> list[str]:
    """Return why texts must not be sent."""
    if screening.is_harmless("\n".join(texts)):  # at one glance, and so is each of them
        return []
    kinds = sorted({kind for text in texts for kind in screening.screen(text).secrets})
    found = [f"holds a secret ({', '.join(kinds)})"] if kinds else []
    if any(screening.strip_controls(text) != text for text in texts):
        found.append("holds control or invisible characters")
    return found


def _says_private(value: object) -> bool:
    """Tell whether some object in a newer version's line says private, whatever it stands in."""
    if isinstance(value, dict):
        scope = value.get("scope")
        is_edit = isinstance(scope, list) and "private" in scope
        return scope == "private" or is_edit or any(_says_private(inner) for inner in value.values())
    return isinstance(value, list) and any(_says_private(inner) for inner in value)
