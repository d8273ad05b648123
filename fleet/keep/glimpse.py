"""A notebook and findings of which only what is asked for is in memory: joined from where the lines of an id stand.

The search index knows where that is, and which records come first. What asks for everything still gets everything: it
is loaded then, and from there on these are a notebook and findings like any other.
"""

import sqlite3
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import suppress
from typing import TypeVar

from fleet.keep import bulk, merging, places
from fleet.keep.damage import ODD, TROUBLE, UNUSABLE, is_damage
from fleet.keep.discoveries import Discovery, Findings
from fleet.keep.index import PARAMETERS_MAX, Index
from fleet.keep.line import Carried, Line
from fleet.keep.normal import normalise
from fleet.keep.notebook import MERGED_INTO, Notebook, Order, Records, is_listed, merged_into, text
from fleet.keep.places import Joined, Reader
from fleet.keep.sources import Sources, is_current

T = TypeVar("T")

Region = Mapping[str, int]
"""How much of each file counts: its first so many bytes. A file that is not named counts for nothing."""


class MovedError(Exception):
    """A line is not where the index saw it: somebody replaced the file meanwhile."""


UNANSWERED: tuple[type[Exception], ...] = (MovedError, OSError, *TROUBLE, *ODD)
"""Why the files must be read after all."""


class View:
    """Asks the index of one workspace, which was brought up to date before.

    Args:
        index: the open index.
        sources: what it was made of.
        unindexed: lines that it lacks (``appended``). Who asks joins them.
        mend: sees to it that a damaged index is made anew, and says so.
    """

    def __init__(
        self,
        index: Index,
        sources: Sources,
        unindexed: Sequence[Line] = (),
        mend: Callable[[Exception], object] = bool,
    ) -> None:
        self.index = index
        self.unindexed = unindexed
        self._sources = sources
        self._reader = Reader(sources)
        self._mend = mend
        self._is_mended = False
        self._newest_by = self._pairs("SELECT replica, stamp FROM search_newest")

    def close(self) -> None:
        """Let go of the files."""
        self._reader.close()

    def joined(self, key: str, region: Region | None = None) -> Joined:
        """Join all lines that speak of an id, or those of them that stand in a region.

        Raises:
            MovedError: a line has gone from its place.
        """
        return self.prefetch([key], region)[key]

    def prefetch(self, keys: Sequence[str], region: Region | None = None) -> dict[str, Joined]:
        """Join all lines that speak of several ids.

        Raises:
            MovedError: a line has gone from its place.
        """
        cut = self._sources.cut
        made = {key: Joined(Notebook(cut), Findings(cut)) for key in keys}
        for start in range(0, len(keys), PARAMETERS_MAX):
            for place in places.places(self.index, keys[start : start + PARAMETERS_MAX]):
                if region is not None and place.at + place.length > region.get(place.path, 0):
                    continue
                if not self._reader.join(place, made[place.key]):
                    raise MovedError(place.path)
        return made

    def raws(self, keys: Sequence[str], region: Region | None = None) -> list[bytes]:
        """Return all lines that speak of several ids, as they stand there.

        Raises:
            MovedError: a line has gone from its place.
        """
        found = []
        for start in range(0, len(keys), PARAMETERS_MAX):
            for place in places.places(self.index, keys[start : start + PARAMETERS_MAX]):
                if region is not None and place.at + place.length > region.get(place.path, 0):
                    continue
                raw = self._reader.still(place)
                if raw is None:
                    raise MovedError(place.path)
                found.append(raw)
        return found

    def newest_by(self) -> dict[str, str]:
        """Return the newest stamp of each replica."""
        return dict(self._newest_by)

    def failed(self, why: Exception) -> None:
        """Take note that a question was not answered: whoever asked reads the files, and damage is mended, once."""
        with suppress(*UNUSABLE):  # busy, or nothing can be written here: the next one mends it
            if isinstance(why, MovedError):  # of an index that is up to date, no file was replaced
                is_damaged = is_current(self.index, self._sources)
            else:
                is_damaged = not isinstance(why, OSError) and is_damage(why)
            if is_damaged and not self._is_mended:
                self._is_mended = True
                self._mend(why)

    def _pairs(self, asked: str) -> dict[str, str]:
        found = dict(self.index.connection.execute(asked))
        if not all(isinstance(each, str) for pair in found.items() for each in pair):
            raise sqlite3.DatabaseError("no text where there was text")  # SQLite itself looks at no value
        return found

    def alike(self, normalised: str) -> list[str]:
        """Return the ids of records whose text was edited and may read like this, smallest first."""
        asked = "SELECT ref FROM search_doc WHERE alike = ? AND alike != '' ORDER BY ref"
        return [str(row[0]) for row in self.index.connection.execute(asked, (places.mark_of(normalised),))]

    def pointing(self) -> dict[str, str]:
        """Return which record is merged into which."""
        return self._pairs("SELECT ref, points_to FROM search_doc WHERE points_to != ''")

    def timed(self) -> list[str]:
        """Return the ids of patterns that are in and have a trigger, sorted."""
        asked = "SELECT ref FROM search_doc WHERE is_timed = 1 AND gone = 0 ORDER BY ref"
        return [str(row[0]) for row in self.index.connection.execute(asked)]

    def beginning(self, prefix: str) -> list[str]:
        """Return the ids of patterns that begin so, sorted."""
        asked = "SELECT ref FROM search_doc WHERE ref >= ? AND ref < ? AND ref != '' AND kind = 'pattern' ORDER BY ref"
        return [str(row[0]) for row in self.index.connection.execute(asked, (prefix, prefix + "~"))]

    def ranked(self, order: Order, count: int) -> list[str]:
        """Return the ids of the best patterns that are in, each record by itself."""
        seen = "published DESC, seen DESC, ref"
        where, by = ("", seen) if order == "sight" else ("AND withdrawn = 0", _EVIDENCE)
        asked = f"SELECT ref FROM search_doc WHERE kind = 'pattern' AND gone = 0 {where} ORDER BY {by} LIMIT ?"  # noqa: S608
        return [str(row[0]) for row in self.index.connection.execute(asked, (count,))]

    def count(self, order: Order) -> int:
        """Return how many patterns are in, each record by itself."""
        asked = f"SELECT {order} FROM search_tally"  # noqa: S608
        return int(self.index.connection.execute(asked).fetchone()[0])

    def count_discoveries(self) -> int:
        """Return how many discoveries there are that are not retracted."""
        asked = "SELECT COUNT(*) FROM search_doc WHERE kind = 'discovery' AND gone = 0"
        return int(self.index.connection.execute(asked).fetchone()[0])

    def newest_discoveries(self, count: int) -> list[str]:
        """Return the ids of the newest discoveries that are not retracted, newest first."""
        asked = "SELECT ref FROM search_doc WHERE kind = 'discovery' AND gone = 0 ORDER BY at DESC, ref DESC LIMIT ?"
        return [str(row[0]) for row in self.index.connection.execute(asked, (max(count, 0),))]


_EVIDENCE = "published DESC, witnesses DESC, sessions DESC, seen DESC, ref"


class AskedRecords(Records):
    """Records that are joined when they are asked for. Whoever goes over all of them loads all of them."""

    def __init__(self, fetch: Callable[[str], None], fill: Callable[[], None]) -> None:
        super().__init__()
        self._fetch = fetch
        self._fill = fill
        self._asked: set[str] = set()

    def _ask(self, pattern_id: str) -> None:
        if pattern_id not in self._asked:
            self._asked.add(pattern_id)  # before: joining asks whether the record is known
            if not dict.__contains__(self, pattern_id):
                self._fetch(pattern_id)

    def is_new(self, pattern_id: str) -> bool:
        """Tell whether nobody asked for this one yet, and note that somebody does now."""
        is_new = pattern_id not in self._asked and not dict.__contains__(self, pattern_id)
        self._asked.add(pattern_id)
        return is_new

    def __contains__(self, pattern_id: object) -> bool:
        self._ask(str(pattern_id))
        return dict.__contains__(self, pattern_id)

    def __getitem__(self, pattern_id: str) -> Line:
        self._ask(pattern_id)
        return super().__getitem__(pattern_id)

    def __iter__(self) -> Iterator[str]:
        self._fill()
        return dict.__iter__(self)

    def __len__(self) -> int:
        self._fill()
        return dict.__len__(self)

    def keys(self):  # type: ignore[no-untyped-def]
        """Return all ids."""
        self._fill()
        return dict.keys(self)

    def passing(self) -> Iterator[Line]:
        """Yield all records for one look."""
        self._fill()
        return super().passing()

    def raws(self) -> Iterator[bytes]:
        """Yield the canonical bytes of the records that nobody has asked for yet."""
        self._fill()
        return super().raws()

    def raw(self, pattern_id: str) -> bytes | None:
        """Return the canonical bytes of a record that nobody has asked for yet."""
        self._ask(pattern_id)
        return super().raw(pattern_id)


class Glimpse(Notebook):
    """A notebook of which only what is asked for is in memory.

    Args:
        cut: parts with a later stamp are held.
        view: where records come from.
        everything: loads the whole notebook, for whoever needs it after all.
        region: which part of the files counts; all of them unless told.
    """

    def __init__(self, cut: str, view: View, everything: Callable[[], Notebook], region: Region | None = None) -> None:
        super().__init__(cut)
        self.view: View | None = view
        self._everything = everything
        self._region = region
        self._added: list[Line | Carried] = []
        self._records = AskedRecords(self._fetch, self._fill)
        self.patterns = self._records
        self.newest_by = view.newest_by()
        if view.unindexed:
            self.ask_for([line.id for line in view.unindexed])
            self.add_all(view.unindexed)

    @property
    def index(self) -> Index | None:
        """The search index behind this notebook."""
        return self.view.index if self.view is not None else None

    def unindexed(self) -> set[str]:
        """Return the ids of the records of which the index does not know all."""
        return {entry.id for entry in self._added} if self.view is not None else set()

    def best(self, order: Order, count: int) -> tuple[list[Line], int] | None:
        """Return the records among which the best lessons are, merged ones as one, and how many lessons there are."""
        if self.view is None or self._added:  # the index knows nothing of what was joined since
            return None
        groups = merging.groups(self.pointing())
        grouped = {member for group in groups for member in group}
        ranked = self._asked(lambda view: (view.ranked(order, count + len(grouped)), view.count(order)))
        if ranked is None:
            return None
        refs, total = [ref for ref in ranked[0] if ref not in grouped], ranked[1]
        self.ask_for([*refs, *grouped])
        if (lines := self._named(refs)) is None:
            return None
        for group in groups:
            members = [self.patterns[member] for member in group if member in self.patterns]
            total -= sum(is_listed(line, order) for line in members)
            if members and is_listed(united := merging.united_of(members), order):
                lines.append(united)
                total += 1
        return (lines, total) if self.view is not None else None

    def _asked(self, question: Callable[[View], T]) -> T | None:
        """Ask the index; None where everything is loaded, since it did not answer or before."""
        try:
            return question(self.view) if self.view is not None else None
        except UNANSWERED as why:
            self._give_up(why)
            return None

    def _named(self, refs: Sequence[str]) -> list[Line] | None:
        """Return the records that the index named; None if one is none of ours, so that it can be believed nothing."""
        lines = [self.patterns[ref] for ref in refs if ref in self.patterns]
        if len(lines) == len(refs):
            return lines
        self._give_up(sqlite3.DatabaseError("it names a lesson that is not there"))
        return None

    def _give_up(self, why: Exception) -> None:
        """Load everything: the index did not answer, and is mended if it is damaged."""
        if self.view is not None:
            self.view.failed(why)
        self._fill()

    def add(self, entry: Line | Carried) -> None:
        """Join one line."""
        self._added.append(entry)
        super().add(entry)

    def _fetch(self, pattern_id: str) -> None:
        if self.view is None:
            return
        try:
            joined = self.view.joined(pattern_id, self._region)
        except UNANSWERED as why:
            self._give_up(why)
            return
        if (line := joined.notebook.get(pattern_id)) is not None:
            super().add(line)
            self.held |= joined.notebook.held

    def ask_for(self, pattern_ids: Sequence[str]) -> None:
        """Fetch many records at once."""
        if self.view is None:
            return
        asked = [each for each in pattern_ids if self._records.is_new(each)]
        try:
            if not asked or self._has_taken(self.view.raws(asked, self._region)):
                return
            found = self.view.prefetch(asked, self._region)
        except UNANSWERED as why:
            self._give_up(why)
            return
        for pattern_id, joined in found.items():
            if (line := joined.notebook.get(pattern_id)) is not None:
                super().add(line)

    def _has_taken(self, raws: list[bytes]) -> bool:
        """Join lines if all are plain: checked at once, and bytes until somebody asks for their record."""
        found = bulk.sound(b"\n".join(raws), raws, self.newest_by) if raws else None
        if found is None or max(found.newest_by.values(), default="") > self.cut:
            return False
        self.add_sound(found)
        return True

    def _fill(self) -> None:
        """Load everything: from here on this is a notebook like any other."""
        if self.view is None:
            return
        self.view = None
        whole = self._everything()
        whole.add_all(self._added)
        dict.clear(self.patterns)
        dict.update(self.patterns, dict.items(whole.patterns))
        self.held, self.carried, self.newest_by = whole.held, whole.carried, whole.newest_by

    def covers(self, entry: Line | Carried) -> bool:
        """Tell whether joining this line would change nothing, held parts included."""
        if isinstance(entry, Carried):
            self._fill()
        return super().covers(entry)

    def reading_alike(self, normalised: str) -> Iterator[Line]:
        """Yield the records whose text was edited and may read like this."""
        if (alike := self._asked(lambda view: view.alike(normalised))) is None:
            yield from super().reading_alike(normalised)
            return
        edited = [entry.id for entry in self._added if isinstance(entry, Line) and "text" in entry.when]
        for pattern_id in dict.fromkeys([*alike, *edited]):
            line = self.patterns[pattern_id]
            if "text" in line.when and normalise(text(line)) == normalised:
                yield line

    def with_key(self, key: bytes) -> list[str]:
        """Return the ids of records in whose bytes a key stands, and of all that are decoded."""
        self._fill()
        return super().with_key(key)

    def pointing(self) -> dict[str, str]:
        """Return which record is merged into which."""
        if (found := self._asked(View.pointing)) is None:
            return super().pointing()
        for entry in self._added:
            if isinstance(entry, Line) and MERGED_INTO in entry.set:
                found.pop(entry.id, None)
                if into := merged_into(self.patterns[entry.id]):
                    found[entry.id] = into
        return found

    def timed(self) -> list[Line]:
        """Return the records that are in and have a trigger."""
        refs = None if self._added else self._asked(View.timed)
        if refs is None:
            return super().timed()
        self.ask_for(refs)
        lines = self._named(refs)
        return super().timed() if lines is None else lines

    def beginning(self, prefix: str) -> list[str]:
        """Return the ids that begin so, sorted."""
        if (found := self._asked(lambda view: view.beginning(prefix))) is None:
            return super().beginning(prefix)
        added = {entry.id for entry in self._added if isinstance(entry, Line) and entry.id.startswith(prefix)}
        return sorted({*found, *added})

    def edition(self) -> bytes:
        """Return the canonical bytes of everything here."""
        self._fill()
        return super().edition()


class GlimpsedFindings(Findings):
    """Discoveries of which only what is asked for is in memory.

    Args:
        cut: a discovery stamped later is kept and passed on, but not shown yet.
        view: where they come from.
        everything: loads all of them.
        region: which part of the files counts.
    """

    def __init__(self, cut: str, view: View, everything: Callable[[], Findings], region: Region | None = None) -> None:
        super().__init__(cut)
        self.view: View | None = view
        self._everything = everything
        self._region = region
        self._added: list[Discovery | Carried] = []

    def add(self, entry: Discovery | Carried) -> None:
        """Join one line."""
        if self.view is not None:
            self.fill()
        super().add(entry)

    def fill(self) -> None:
        """Load all of them: from here on these are findings like any other."""
        if self.view is None:
            return
        self.view = None
        whole = self._everything()
        self.lines, self.entries, self.carried = whole.lines, whole.entries, whole.carried

    def _give_up(self, why: Exception) -> None:
        """Load all of them: the index did not answer, and is mended if it is damaged."""
        if self.view is not None:
            self.view.failed(why)
        self.fill()

    def covers(self, entry: Discovery | Carried) -> bool:
        """Tell whether joining this line would change nothing."""
        if self.view is None or isinstance(entry, Carried):
            self.fill()
            return super().covers(entry)
        try:
            # A retraction is found under what it retracts.
            return self.view.joined(entry.retracts or entry.id, self._region).findings.covers(entry)
        except UNANSWERED as why:
            self._give_up(why)
        return super().covers(entry)

    def get(self, entry_id: str) -> Discovery | None:
        """Return one entry."""
        if self.view is not None:
            try:
                return self.view.joined(entry_id, self._region).findings.get(entry_id)
            except UNANSWERED as why:
                self._give_up(why)
        return super().get(entry_id)

    def newest(self, count: int) -> list[Discovery]:
        """Return the newest discoveries of the whole clan, oldest of them first, as ``tail`` would."""
        if self.view is not None and self._region is None:
            try:
                refs = self.view.newest_discoveries(count)
                found = [self.view.joined(ref).findings.entries.get(ref) for ref in reversed(refs)]
                if None not in found:
                    return [each for each in found if each is not None]
                self._give_up(sqlite3.DatabaseError("it names a discovery that is not there"))
            except UNANSWERED as why:
                self._give_up(why)
        self.fill()
        return super().newest(count)

    def count(self) -> int:
        """Return how many discoveries there are to show."""
        if self.view is not None and self._region is None:
            try:
                return self.view.count_discoveries()
            except UNANSWERED as why:
                self._give_up(why)
        self.fill()
        return super().count()

    def held(self) -> int:
        """Return how many are stamped beyond the cut."""
        return super().held()  # none, as long as the view serves: it is plain

    def edition(self) -> bytes:
        """Return the canonical bytes of everything here."""
        self.fill()
        return super().edition()
