"""Use cases of pages: ``patterns.md`` here, under this machine's policy, and the pages that the branch holds.

Those of the branch are made of its lines alone: whatever is installed, blocked or configured on a machine, the same
tree gives the same pages. Their lessons are grouped by merges and by words, never by an embedding.
"""

import json
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from functools import reduce
from hashlib import blake2b
from itertools import chain, groupby

from fleet import __version__
from fleet.app import reflecting
from fleet.model import limits, names
from fleet.model import line as codec
from fleet.model.discovery import Discovery
from fleet.model.line import Line
from fleet.model.pattern import Merges, Pattern, fold, merged
from fleet.recall.wording import Pages, Share
from fleet.reflect.clusters import Clusters, Weighing
from fleet.share.remote import Files
from fleet.store.lines import DISCOVERIES, PATTERNS, Read
from fleet.store.query import ranked
from fleet.store.tree import (
    DISCOVERIES_PAGE,
    FORMAT,
    FORMAT_TEXT,
    FRONT_PAGE,
    MEMBERS,
    PAGE,
    Members,
)
from fleet.store.workspace import Workspace
from fleet.text.similarity import Compared

_SPARE = 2
"""So many times the lessons of a page are looked at: behind the first wordings of clusters others move up."""
_BEST_MAX = _SPARE * limits.PAGE_LESSONS_MAX
_NEWEST_MAX = 20
_RENDERED = "page"
"""Key of the note on what the page here was made of, and of its own hash: a person may have edited it since."""


def rendered_page(workspace: Workspace) -> bytes:
    """Return ``patterns.md`` as it reads here: the best lessons, and how many more there are."""
    count, patterns = workspace.config.recall.page_lessons, workspace.patterns
    with workspace.snapshot():
        found = reflecting.current_clusters(workspace)
        spare = sum(map(len, found.groups)) + 2 * len(found.opposed)  # so many at most stand under or apart from others
        best = patterns.best("sight", min(count + spare, _SPARE * count))
        inside = {each.id for each in best}
        more = (patterns.lesson(group[0]) for group in found.groups if inside.isdisjoint(group))
        best += [each for each in more if each is not None]  # all wordings together may be among the best
        return _page(best, found, patterns.lesson, patterns.count() - _inside(found), workspace.emoji(), count)


def write_page(workspace: Workspace) -> bool:
    """Render ``patterns.md`` here where it is not that of this generation; tell whether it is another one now."""
    file = workspace.clan / PAGE
    now, noted, data = _cache_key(workspace), workspace.db.noted(_RENDERED), workspace.files.read(file)
    if noted != f"{now} {_hash(data)}":
        data = rendered_page(workspace)
    with workspace.locked():
        workspace.files.replace(workspace.clan / FORMAT, FORMAT_TEXT)  # gone where the folder was deleted
        is_other = workspace.files.replace(file, data, is_durable=False)
    if noted != (told := f"{now} {_hash(data)}"):
        workspace.db.note(_RENDERED, told)
    return is_other


def _cache_key(workspace: Workspace) -> str:
    """Return the hash of what ``patterns.md`` is made of: a generation, and what is set and decided beside the rows."""
    set_here = [workspace.config.recall.page_lessons, sorted(workspace.emoji().items()), __version__]
    return _hash(json.dumps([Weighing(workspace).cache_key(), set_here]).encode())


def _hash(data: bytes) -> str:
    return blake2b(data, digest_size=8).hexdigest()


def everything(workspace: Workspace) -> str:
    """Return a page with every lesson and every discovery of the clan."""
    lessons, found = list(workspace.patterns.lessons()), workspace.discoveries.shown()
    return Pages(workspace.emoji()).everything(lessons, found)


def _page(
    best: Sequence[Pattern],
    found: Clusters,
    look: Callable[[str], Pattern | None],
    total: int,
    members: Mapping[str, str],
    count: int,
) -> bytes:
    shown, opposed = found.grouped(best, look), _opposed(found, look)
    page = Pages(members).lessons(
        [each.lesson for each in shown],
        lessons_max=count,
        total=total - len({each.id for pair in opposed for each in pair}),
        wordings={each.lesson.id: each.wordings[1:] for each in shown},
        opposed=opposed,
    )
    return page.encode()


def _inside(found: Clusters) -> int:
    """Return how many wordings stand under others."""
    return sum(len(group) - 1 for group in found.groups)


def _opposed(found: Clusters, look: Callable[[str], Pattern | None]) -> list[tuple[Pattern, Pattern]]:
    pairs = ((look(one), look(other)) for one, other, *_ in found.opposed)
    return [(one, other) for one, other in pairs if one is not None and other is not None]


# --- of the branch ----------------------------------------------------------------------------------------------------


def of_branch(read: Callable[[str], bytes], known: Compared | None = None) -> Files:
    """Return the pages of a branch, made of its own files alone: ``read`` returns one, ``b""`` where nothing is.

    ``known``: how texts compare that were compared before.
    """
    lessons, told = read(PATTERNS.edition), read(DISCOVERIES.edition)
    if not lessons and not told:
        return {}
    members = Members.parse(read(MEMBERS)).emoji
    clan = _Clan(lessons)
    found = _discoveries(told)
    best = {each.id: each for each in clan.best}
    words = {each.id: each.text for each in clan.best if each.state != "retired"}
    alike = Clusters.among(words, best.get, known=known)
    total = clan.total - _inside(alike)
    pages: Files = {}
    if lessons:
        pages[PAGE] = _page(clan.best, alike, best.get, total, members, limits.PAGE_LESSONS_MAX)
    if told:
        pages[DISCOVERIES_PAGE] = Pages(members).discoveries(found).encode()
    opposed, shares = _opposed(alike, best.get), _shares(clan, found)
    pages[FRONT_PAGE] = Pages(members).front(clan.newest, found, shares, total=total, opposed=opposed).encode()
    return pages


class _Clan:
    """Lessons of an edition, merged records as one. Holds few of them at a time.

    Attributes:
        best: the best lessons, twice as many as a page shows.
        newest: those that were logged last, newest first.
        total: how many are listed.
        logged: agent to how many of them it logged.
        last: agent to the newest stamp of the lessons that it logged first.
    """

    def __init__(self, lessons: bytes) -> None:
        self.total = 0
        self.logged = Counter[str]()
        self.last: dict[str, str] = {}
        self.best: list[Pattern] = []
        self.newest: list[Pattern] = []
        for each in _whole(lessons):
            self.total += 1
            self.logged.update(each.loggers)
            agent = names.agent_of(each.by)
            self.last[agent] = max(each.at, self.last.get(agent, ""))
            self.best.append(each)
            self.newest.append(each)
            if len(self.best) > 4 * _BEST_MAX:
                self._trim()
        self._trim()

    def _trim(self) -> None:
        self.best = ranked(self.best, "sight")[:_BEST_MAX]
        self.newest = sorted(self.newest, key=lambda each: (each.at, each.id), reverse=True)[:_NEWEST_MAX]


def _whole(lessons: bytes) -> Iterator[Pattern]:
    """Yield the listed lessons of an edition, merged records as one: these are all that it holds."""
    has_merged = b'"merged_into"' in lessons
    pointing = {each.id: each.merged_into for each in _folded(lessons) if each.merged_into} if has_merged else {}
    sets = Merges(pointing).groups()
    inside: dict[str, Pattern | None] = dict.fromkeys(member for group in sets for member in group)
    for each in _folded(lessons):
        if each.id in inside:
            inside[each.id] = each
        elif each.is_listed:
            yield each
    found = ([known for one in group if (known := inside[one])] for group in sets)
    yield from (whole for here in found if here and (whole := merged(here)).is_listed)


def _folded(lessons: bytes) -> Iterator[Pattern]:
    """Yield the records of an edition, folded without any policy."""
    found = (entry for _, entry in Read().entries(PATTERNS, [lessons], ""))
    records = (entry for entry in found if isinstance(entry, Line))
    for _, parts in groupby(records, key=lambda record: record.id):  # a long one stands on several lines
        yield fold(reduce(codec.join, parts))


def _discoveries(told: bytes) -> list[Discovery]:
    """Return the discoveries of an edition that nobody retracted."""
    found = [entry for _, entry in Read().entries(DISCOVERIES, [told], "") if isinstance(entry, Discovery)]
    retracted = {each.retracts for each in found}
    return [each for each in found if not each.retracts and each.id not in retracted]


def _shares(clan: _Clan, discoveries: Sequence[Discovery]) -> dict[str, Share]:
    last = dict(clan.last)
    told = Counter[str]()
    for each in discoveries:
        agent = names.agent_of(each.by)
        told[agent] += 1
        last[agent] = max(each.at, last.get(agent, ""))
    agents = chain((agent for agent, number in clan.logged.items() if number > 0), told)
    return {agent: Share(clan.logged[agent], told[agent], last.get(agent, "")) for agent in agents if agent}
