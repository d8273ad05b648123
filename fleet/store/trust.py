"""Trust on this machine, in the local database: blocked writers, and parts of columns that wait for a decision.

It affects only folds (``model.pattern.Policy``): joins and pushes do not depend on it.
"""

import json
from collections import defaultdict
from collections.abc import Container, Iterable, Mapping, Sequence
from contextlib import suppress
from hashlib import blake2b
from typing import NamedTuple

from crdt.clock import Stamp
from fleet.model import limits
from fleet.model import line as codec
from fleet.model.errors import DiskError, FleetError
from fleet.model.line import Line
from fleet.model.pattern import IS_BLOCKED, IS_HELD, Policy, is_blocked
from fleet.model.withheld import BULK, NEWCOMERS, OWN, Held, Withheld
from fleet.store.database import DECIDED, Local
from fleet.text.screening import counted

_BLOCKED, _EARLIER, _BROUGHT = "blocked", "earlier", "brought"
_PURGED = "purged"
_LEFT = "-left"  # suffix of a kind: a person decided to leave it out, and is not asked again
_HELD = (BULK, f"{BULK}{_LEFT}", OWN, f"{OWN}{_LEFT}")


class _BlockedWriter(NamedTuple):
    """A replica or agent that folds here leave out: since which stamp ("" for all), and when that was decided."""

    name: str
    since: Stamp
    at: Stamp


class Trust:
    """Decisions made here, in the local database."""

    def __init__(self, state: Local) -> None:
        self._state = state
        self._policy = Policy()

    def policy(self, mine: frozenset[str]) -> Policy:
        """Return the policy of folds without its cut; raise ``FleetError`` if the local database cannot be read."""
        plain = Policy.of(mine, self._state.get(DECIDED))
        if plain.mark != self._policy.mark:
            try:
                self._policy = self._load(plain)
            except FleetError:  # its mark lets rows stay as folded, without blocked writers; the next call reads again
                return plain
        return self._policy

    def _load(self, plain: Policy) -> Policy:
        blocked = self.blocked()
        withheld: dict[str, dict[str, str]] = defaultdict(dict)
        versions = dict(plain.versions)
        for _, name, id_, value, _ in self._rows(*_HELD):
            withheld[id_][name] = value
            key = f"{IS_HELD} {id_}"
            versions[key] = blake2b(f"{versions.get(key, '')} {name} {value}".encode(), digest_size=8).hexdigest()
        earlier: dict[str, list[str]] = defaultdict(list)
        for _, _, id_, value, _ in self._rows(_EARLIER):
            earlier[id_].append(value)
        versions |= {f"{IS_BLOCKED} {writer.name}": f"{writer.since} {writer.at}" for writer in blocked}
        return plain._replace(
            blocked={writer.name: writer.since for writer in blocked},
            earlier={id_: _line(id_, texts) for id_, texts in earlier.items()},
            withheld={id_: _parts(id_, texts) for id_, texts in withheld.items()},
            versions=versions,
        )

    # --- blocked ----------------------------------------------------------------------------------------------------

    def blocked(self) -> list[_BlockedWriter]:
        """Return the blocked replicas and agents, by name."""
        return [_BlockedWriter(name, value, at) for _, name, _, value, at in self._rows(_BLOCKED)]

    def block(self, name: str, since: Stamp, earlier: Iterable[Line], at: Stamp) -> None:
        """Leave a replica or agent out of folds since a stamp, "" for always; columns in ``earlier`` still count."""
        rows = [(_EARLIER, name, each.id, codec.encode(each).decode(), at) for each in earlier]
        self._change(_all_about(name), [(_BLOCKED, name, "", since, at), *rows])

    def unblock(self, name: str) -> None:
        """Let a name's columns count again."""
        self._change(_all_about(name), [])

    # --- left out ---------------------------------------------------------------------------------------------------

    def held(self) -> list[Held]:
        """Return the parts that are left out, asked about or not, by kind, writer and lesson."""
        parts = (
            Held.decode(kind.removesuffix(_LEFT), writer, each, value, is_asked=not kind.endswith(_LEFT))
            for kind, writer, each, value, _ in self._rows(*_HELD)
        )
        return [each for each in parts if each.group]

    def asked(self) -> list[Held]:
        """Return the parts that a person is asked about; those of blocked writers are left out anyhow."""
        return [each for each in self._unblocked(self.held()) if each.is_asked]

    def _unblocked(self, parts: Iterable[Held]) -> list[Held]:
        blocked = {each.name for each in self.blocked()}
        return [each for each in parts if not is_blocked(each.writer, blocked)]

    def sentences(self, parts: Iterable[Held] | None = None) -> list[str]:
        """Return the questions to a person, a sentence for each kind and group, with what to do about it."""
        ids_by_group: dict[tuple[str, str], set[str]] = {}
        for part in self.asked() if parts is None else self._unblocked(parts):
            ids_by_group.setdefault((part.kind, part.group), set()).add(part.id)
        return [_sentence(kind, group, len(ids)) for (kind, group), ids in sorted(ids_by_group.items())]

    def note_purged(self, purged: Mapping[str, int]) -> None:
        """Note the groups that purged words, with the number of lessons, until a person is told."""
        if purged:
            with self._state.transaction() as connection:
                known = self.purged()
                # The larger number counts, since a failed transaction is repeated and notes its purges twice.
                most = {each: max(known.get(each, 0), number) for each, number in purged.items()}
                row = (_PURGED, json.dumps(known | most))
                connection.execute("INSERT OR REPLACE INTO value VALUES (?, ?)", row)

    def purged(self, *, forget: bool = False) -> dict[str, int]:
        """Return what ``note_purged`` noted; ``forget``: delete it, since a person is told now."""
        noted = self._state.get(_PURGED)
        if noted and forget:
            with self._state.transaction() as connection:  # what another process noted since stays
                connection.execute("DELETE FROM value WHERE key = ? AND value = ?", (_PURGED, noted))
        with suppress(ValueError):
            return dict(json.loads(noted or "{}"))
        return {}

    @staticmethod
    def purge_sentences(purged: Mapping[str, int], mine: Container[str]) -> list[str]:
        """Return a sentence for each group that purged words of so many lessons; ``mine``: the replicas here."""
        return [_purge_sentence(group, number, is_own=group in mine) for group, number in purged.items()]

    def withhold(self, parts: Iterable[Held], at: Stamp) -> None:
        """Leave parts out until a person decides."""
        rows = [(each.kind, each.writer, each.id, each.encode(), at) for each in parts]
        self._change([(f"{kind}{_LEFT}", name, each) for kind, name, each, *_ in rows], rows)

    def decide(self, kind: str, group: str, *, is_taken: bool) -> list[Held]:
        """Take in the parts of a kind and group, or leave them out for good; return them."""
        parts = [part for part in self.held() if (part.kind, part.group) == (kind, group)]
        keys = [(name, part.writer, part.id) for part in parts for name in (kind, f"{kind}{_LEFT}")]
        rows = [(f"{kind}{_LEFT}", part.writer, part.id, part.encode(), "") for part in (() if is_taken else parts)]
        self._change(keys, rows)
        return parts

    def ask_again(self, kind: str, group: str) -> list[Held]:
        """Ask again about the parts that were left out for good; return them."""
        parts = [each for each in self.held() if (each.kind, each.group, each.is_asked) == (kind, group, False)]
        self.withhold(parts, "")
        return parts

    # --- how a column came ------------------------------------------------------------------------------------------

    def brought(self) -> dict[tuple[str, str], str]:
        """Return (lesson, writer) to the writer in whose file that column came, where that is somebody else."""
        return {(each, name): value for _, name, each, value, _ in self._rows(_BROUGHT)}

    def note_brought(self, owners: Mapping[tuple[str, str], str], at: Stamp) -> None:
        """Note in whose files columns came. The first that is noted stays."""
        known = self.brought()
        room = max(limits.BROUGHT_MAX - len(known), 0)
        rows = [(_BROUGHT, key[1], key[0], owner, at) for key, owner in owners.items() if key not in known]
        if news := rows[:room]:
            with self._state.transaction() as connection:  # no fold depends on it: nothing is decided
                connection.executemany(_PUT.format("IGNORE"), news)

    # --- rows -------------------------------------------------------------------------------------------------------

    def _rows(self, *kinds: str) -> list[tuple[str, str, str, str, str]]:
        query = f"SELECT kind, name, id, value, at FROM trust WHERE kind IN ({', '.join('?' * len(kinds))})"  # noqa: S608
        try:
            return self._state.rows(f"{query} ORDER BY kind, name, id", *kinds)
        except DiskError as why:
            if "no such table" not in str(why):
                raise  # "no decisions" would let in writers whom a person blocked
            return []  # read-only, and of an earlier version

    def _change(self, gone: Sequence[tuple[str, str, str]], rows: Sequence[tuple[str, ...]]) -> None:
        """Delete rows, by kind, name and id, and insert others: a decision, by which folds change."""
        with self._state.transaction() as connection:
            connection.executemany("DELETE FROM trust WHERE kind = ? AND name = ? AND id GLOB ?", gone)
            connection.executemany(_PUT.format("REPLACE"), rows)
            mark = int(self._state.get(DECIDED) or 0) + 1
            connection.execute("INSERT OR REPLACE INTO value VALUES (?, ?)", (DECIDED, str(mark)))


_PUT = "INSERT OR {} INTO trust VALUES (?, ?, ?, ?, ?)"


def _all_about(name: str) -> list[tuple[str, str, str]]:
    return [(_BLOCKED, name, "*"), (_EARLIER, name, "*")]


def _sentence(kind: str, group: str, number: int) -> str:
    lessons = counted(number, "lesson or discovery", "lessons or discoveries")
    if kind == OWN:
        return (
            f"{lessons} came with words or counts under {group}, a name of this folder, which were never written here: "
            "they are left out until you decide. `fleet review` asks"
        )
    return (
        f"{_who(group)} would retire or edit {lessons} of others at once: that is left out here until you decide. "
        "`fleet review` asks"
    )


def _purge_sentence(group: str, number: int, *, is_own: bool) -> str:
    gone = "secrets perhaps: no fleet brings them back. If it was wrong, a commit of the clan's branch before that has "
    gone += "them, as has a backup"
    if is_own:
        lessons = counted(number, "lesson")
        return f"words of {lessons} were purged under {group}, a name of this folder, and never here, {gone}"
    others = f"{_who(group)} purged words of {number:,} lessons of others, {gone}"
    return f"{others}, and `fleet block` leaves out what else they wrote"


def _who(group: str) -> str:
    return "writers of whom nothing was known" if group == NEWCOMERS else group


def _line(id_: str, texts: Iterable[str]) -> Line:
    """Return the line of a lesson, joined of its columns; one that cannot be read is passed over."""
    joined = Line(id_)
    for text in texts:
        with suppress(ValueError):
            line = codec.decode(text.encode(), limits.RECORD_BYTES_MAX)
            joined = codec.join(joined, line) if isinstance(line, Line) and line.id == id_ else joined
    return joined


def _parts(id_: str, texts: Mapping[str, str]) -> Mapping[str, Withheld]:
    return {writer: Held.decode("", writer, id_, text).part for writer, text in texts.items()}
