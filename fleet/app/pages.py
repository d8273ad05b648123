"""Use cases of pages: ``patterns.md`` here, under this machine's policy, and the pages of the branch.

The pages of the branch depend on its lines alone: the same tree gives the same pages, whatever is installed, blocked or
configured on a machine. Their lessons are grouped by merges and by words, never by an embedding.
"""

from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from itertools import chain, groupby

from fleet.app import reflecting
from fleet.model import limits, names
from fleet.model import line as codec
from fleet.model.discovery import Discovery
from fleet.model.pattern import Merges, Pattern, fold, merged
from fleet.recall.wording import Pages, Share
from fleet.reflect.clusters import Clusters, Comparison, Wordings
from fleet.share.remote import Files
from fleet.store.lines import DISCOVERIES, PATTERNS, LineReader, lesson_lines
from fleet.store.query import ranked
from fleet.store.tree import DISCOVERIES_PAGE, FORMAT, FORMAT_TEXT, FRONT_PAGE, MEMBERS, PAGE, Members
from fleet.store.workspace import Workspace

_SPARE = 2
"""Factor of lessons that are read for a page: clusters show as one lesson, so that others move up."""
_BEST_MAX = _SPARE * limits.PAGE_LESSONS_MAX
_NEWEST_MAX = 20


def rendered_page(workspace: Workspace) -> bytes:
    """Return ``patterns.md`` of this machine: the best lessons, and the number of others."""
    count, patterns = workspace.config.recall.page_lessons, workspace.patterns
    with workspace.snapshot():
        clusters = reflecting.current_clusters(workspace)
        spare = sum(map(len, clusters.groups)) + 2 * len(clusters.opposed)  # at most so many have no item of their own
        best = patterns.best("sight", min(count + spare, _SPARE * count))
        best_ids = {each.id for each in best}
        others = [group[0] for group in clusters.groups if best_ids.isdisjoint(group)]
        best += patterns.lessons_of(others).values()  # a cluster as a whole may be among the best
        shown, opposed = clusters.grouped(best, patterns.lessons_of), _opposed(clusters, patterns.lessons_of)
        total = patterns.count() - _inside(clusters)
        return _page(shown, Pages(workspace.emoji()), opposed, total=total, count=count)


def write_page(workspace: Workspace) -> bool:
    """Render ``patterns.md`` here; return whether it changed."""
    data = rendered_page(workspace)
    with workspace.locked():
        workspace.files.replace(workspace.clan / FORMAT, FORMAT_TEXT)  # missing where the folder was deleted
        return workspace.files.replace(workspace.clan / PAGE, data, is_durable=False)


def everything(workspace: Workspace) -> str:
    """Return a page with every lesson and every discovery of the clan."""
    lessons, discoveries = list(workspace.patterns.lessons()), workspace.discoveries.shown()
    return Pages(workspace.emoji()).everything(lessons, discoveries)


def _page(
    shown: Sequence[Wordings], pages: Pages, opposed: Sequence[tuple[Pattern, Pattern]], *, total: int, count: int
) -> bytes:
    lessons, wordings = [each.lesson for each in shown], {each.lesson.id: each.wordings[1:] for each in shown}
    return pages.lessons(lessons, lessons_max=count, total=total, wordings=wordings, opposed=opposed).encode()


def _inside(clusters: Clusters) -> int:
    """Return the number of wordings that are shown below others."""
    return sum(len(group) - 1 for group in clusters.groups)


def _opposed(clusters: Clusters, lookup: Callable[[list[str]], Mapping[str, Pattern]]) -> list[tuple[Pattern, Pattern]]:
    """Return the pairs of contradicting lessons; two clusters are one pair, whichever of their wordings contradict."""
    two_clusters = dict.fromkeys(tuple(sorted((clusters.of(a), clusters.of(b)))) for a, b, *_ in clusters.opposed)
    lessons = lookup([id_ for two in two_clusters for ids in two for id_ in ids])
    found = ([[lessons[id_] for id_ in ids if id_ in lessons] for ids in two] for two in two_clusters)
    return [(Clusters.as_one(a), Clusters.as_one(b)) for a, b in found if a and b]


# --- of the branch ----------------------------------------------------------------------------------------------------


def of_branch(read: Callable[[str], bytes], comparisons: Comparison | None = None) -> Files:
    """Return the pages of a branch, made of its files alone: ``read`` returns the file at a path, ``b""`` for none.

    ``comparisons``: the results of earlier comparisons of texts.
    """
    lessons, log = read(PATTERNS.edition), read(DISCOVERIES.edition)
    if not lessons and not log:
        return {}
    rendered = Pages(Members.parse(read(MEMBERS)).emoji)
    clan = _Clan(lessons)
    discoveries = _discoveries(log)
    best = {each.id: each for each in clan.best}
    texts = {each.id: each.text for each in clan.best if each.state != "retired"}
    clusters = Clusters.among(texts, lambda _: best, last=comparisons)
    total, opposed = clan.total - _inside(clusters), _opposed(clusters, lambda _: best)
    pages: Files = {}
    if lessons:
        shown = clusters.grouped(clan.best, lambda _: best)
        pages[PAGE] = _page(shown, rendered, opposed, total=total, count=limits.PAGE_LESSONS_MAX)
    if log:
        pages[DISCOVERIES_PAGE] = rendered.discoveries(discoveries).encode()
    shares = _shares(clan, clusters, discoveries)
    newest = [each.lesson for each in clusters.grouped(clan.newest, lambda _: best)]
    pages[FRONT_PAGE] = rendered.front(newest, discoveries, shares, total=total, opposed=opposed).encode()
    return pages


class _Clan:
    """Summary of an edition's lessons, with merged records as one. Only a few lessons are in memory at a time.

    Attributes:
        best: the best lessons, twice as many as a page shows.
        logged: number of lessons that an agent logged or imported, by agent; each wording of a cluster is one here.
        last: newest stamp of the lessons that an agent logged first, by agent.
    """

    def __init__(self, lessons: bytes) -> None:
        self.total = 0
        self.logged = Counter[str]()
        self.last: dict[str, str] = {}
        self.best: list[Pattern] = []
        self.newest: list[Pattern] = []
        for lesson in _listed(lessons):
            self.total += 1
            self.logged.update(lesson.agents())
            agent = names.agent_of(lesson.by)
            self.last[agent] = max(lesson.at, self.last.get(agent, ""))
            self.best.append(lesson)
            self.newest.append(lesson)
            if len(self.best) > 4 * _BEST_MAX:
                self._trim()
        self._trim()

    def _trim(self) -> None:
        self.best = ranked(self.best, "sight")[:_BEST_MAX]
        self.newest = sorted(self.newest, key=lambda each: (each.at, each.id), reverse=True)[:_NEWEST_MAX]


def _listed(lessons: bytes) -> Iterator[Pattern]:
    """Yield the listed lessons of an edition, merged records as one."""
    has_merged = b'"merged_into"' in lessons
    targets = {each.id: each.merged_into for each in _folded(lessons) if each.merged_into} if has_merged else {}
    sets = Merges(targets).groups()
    members: dict[str, Pattern | None] = dict.fromkeys(member for group in sets for member in group)
    for lesson in _folded(lessons):
        if lesson.id in members:
            members[lesson.id] = lesson
        elif lesson.is_listed:
            yield lesson
    groups = ([member_lesson for member in group if (member_lesson := members[member])] for group in sets)
    yield from (lesson for group in groups if group and (lesson := merged(group)).is_listed)


def _folded(lessons: bytes) -> Iterator[Pattern]:
    """Yield the records of an edition, folded without any policy."""
    for _, parts in groupby(lesson_lines([lessons]), key=lambda line: line.id):  # a long record is on several lines
        yield fold(codec.join(*parts))


def _discoveries(log: bytes) -> list[Discovery]:
    """Return the discoveries of an edition that are not retracted."""
    entries = [entry for _, entry in LineReader().entries(DISCOVERIES, [log], "") if isinstance(entry, Discovery)]
    retracted = {each.retracts for each in entries}
    return [each for each in entries if not each.retracts and each.id not in retracted]


def _shares(clan: _Clan, clusters: Clusters, discoveries: Sequence[Discovery]) -> dict[str, Share]:
    last, by_id, logged = dict(clan.last), {each.id: each for each in clan.best}, Counter(clan.logged)
    for group in clusters.groups:
        wordings = Counter(agent for each in group for agent in by_id[each].agents())
        logged.subtract({agent: number - 1 for agent, number in wordings.items()})
    counts = Counter[str]()
    for discovery in discoveries:
        agent = names.agent_of(discovery.by)
        counts[agent] += 1
        last[agent] = max(discovery.at, last.get(agent, ""))
    agents = chain((agent for agent, number in logged.items() if number > 0), counts)
    return {agent: Share(logged[agent], counts[agent], last.get(agent, "")) for agent in agents if agent}
