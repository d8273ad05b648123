"""Evidence: the rules that make a lesson permanent, over records, and who vouches for them.

One way leads into an agent's memory without a person: its *own* third occurrence, relapses included, since an agent
that makes a mistake again although it had read the lesson needs the lesson most. Its own is what was logged in this
folder; what stands under another replica of its name may be anybody's.

A lesson of *others* is proposed by independent evidence, and enters by a person's yes, or, with ``[promotion] others =
"auto"``, at once. An occurrence that came after the lesson had been shown says that the lesson is read, not that it is
true, so relapses count nothing there; nor do imported records, which are no agent. Many replicas of one machine, or of
one who pushes, are one witness.

What is counted is a record, and what enters a memory is its words. So the words must be those that were counted:
``doubt`` says when somebody may have put other words in their place.

Witnesses: lines are not signed, so a name proves nothing. What git tells is who committed to a writer's file (fleet
commits under a word that stands for its machine), and in whose file a column came. Writers that share one of these are
one witness, and so are the writers of this folder, and all those of whom nothing is known. Whoever pushes may invent
commit authors, too: this tells careless floods from evidence, and is no proof.
"""

import json
from collections import defaultdict
from collections.abc import Callable, Collection, Iterable, Sequence
from contextlib import suppress
from itertools import islice
from typing import NamedTuple

from fleet.model import names
from fleet.model.names import normalise, pattern_id
from fleet.model.pattern import Merges, Pattern
from fleet.store.config import Promotion
from fleet.store.tree import TreeGoneError
from fleet.store.workspace import Workspace
from fleet.text.screening import counted, readable

Witness = Callable[[str, str], str]
"""Voucher for what a writer says of a lesson, given its id and the writer: a name that stands for one person."""

OWN, CLAN, PERSON = "own", "clan", "person"
RETIRED = "retired"

_PUSHERS = "pushers"
_HERE, _UNKNOWN = "here", "unknown"
_FOLDER = "patterns.d"
_NO_WORDS = "*_`~#-=|<>[](){}.,;:!?'\" "
_DUE_MAX = 50


class Due(NamedTuple):
    """A lesson that belongs into an agent's memory.

    Attributes:
        text: its words, fit to be shown.
        reason: ``own``, ``clan`` or ``person``.
        evidence: what speaks for it now, in words.
    """

    id: str
    text: str
    reason: str
    evidence: str


class _Independent(NamedTuple):
    """Evidence for a lesson apart from those who had read it.

    Attributes:
        agents: of how many agents. Many replicas of one agent are one, and so are the agents of one witness.
        sessions: in how many sessions. Counted by each replica, since session ids never travel; an agent without any
            counts one, and none counts more than its occurrences.
    """

    seen: int
    agents: int
    sessions: int


def _by_agent(_: str, writer: str) -> str:
    """Return the agent of a writer: each agent vouches for what is said in its name."""
    return names.agent_of(writer)


class Evidence:
    """Evidence for lessons, as one agent's memory takes it.

    Args:
        settings: the thresholds.
        witness: who vouches for what a writer says; by default each agent for what is said in its name.
    """

    def __init__(self, agent: str, settings: Promotion, witness: Witness | None = None) -> None:
        self._agent = agent
        self._settings = settings
        self._witness = witness or _by_agent

    def due(self, patterns: Iterable[Pattern], known: Collection[str] = ()) -> list[Due]:
        """Return what belongs into this agent's memory and is not there: its own first, then the best-evidenced.

        ``patterns``: lessons, each merged set as one.
        ``known``: ids that are in that memory, or were and were taken out.

        Returns:
            At most 50: no memory holds more, and the others are due again when there is room. Of two alike the newest
            comes first.
        """
        found: list[tuple[tuple[int, int, int], Pattern, str, str]] = []
        for pattern in sorted(patterns, key=lambda pattern: (pattern.last_seen, pattern.id), reverse=True):
            if pattern.id in known or pattern.count("seen") < self._settings.least_seen:
                continue
            own, others = pattern.seen_by(self._agent), _independent(pattern, self._witness)
            if own >= self._settings.own:
                found.append(((0, -own, 0), pattern, OWN, f"seen {own:,} by {self._agent}"))
            elif _is_enough(others, self._settings):
                evidence = f"seen {others.seen:,} by {counted(others.agents, 'agent')}"
                found.append(((1, -others.agents, -others.seen), pattern, CLAN, evidence))
        found.sort(key=lambda each: each[0])
        # Screening is dear, and is left to those that have the numbers.
        standing = ((each, why, evidence) for _, each, why, evidence in found if self.admits(each))
        return [Due(each.id, readable(each.text), why, evidence) for each, why, evidence in islice(standing, _DUE_MAX)]

    def doubt(self, pattern: Pattern, records: Sequence[Pattern]) -> str:
        """Return why the counts do not vouch for the words of a lesson, or "".

        An id is the hash of the words that were counted. Other words under it were set later, and a merge gives one
        record the counts of another: each takes a single writer. So words that this agent set here are its own affair.
        What others merged in must have been met by this agent here, where it counts as its own; any other by an agent
        other than those who merged it in.

        ``records``: the set's own records; none when it is not merged.
        """
        mine = {writer for writer in pattern.mine if names.agent_of(writer) == self._agent}
        editor = _editor(pattern, "text")
        if pattern_id(pattern.text) != pattern.id and editor not in mine:
            return f"its words were changed{f' by {names.agent_of(editor)}' if editor else ''} after they were logged"
        mergers = {_editor(record, "merged_into") for record in records if record.merged_into}
        shown = next((record for record in records if record.id == pattern.id), pattern)
        if not mergers - mine or shown.seen_by(self._agent):
            return ""
        who = {names.agent_of(writer) for writer in mergers if writer}
        relapsed = shown.totals.get("relapsed", {})
        met = {
            names.agent_of(writer)
            for writer, total in shown.totals.get("seen", {}).items()
            if total > relapsed.get(writer, 0)
        } | {names.agent_of(writer) for writer in shown.by_hand}
        # A merge without a writer may be anybody's: then nobody but ourselves is known to be somebody else.
        if pattern.seen_by(self._agent) or "" in mergers or not met - who:
            return (
                f"{' and '.join(sorted(who)) or 'somebody'} merged it, and nobody else is known to have met these words"
            )
        return ""

    def doubt_of_wording(self, words: Pattern) -> str:
        """Return why evidence that was met in other words does not vouch for these, or "".

        Whoever words a lesson like a known one would else put words of its own under the evidence of others.

        ``words``: the lesson whose words would enter, with its own evidence alone.
        """
        if words.seen_by(self._agent) or _independent(words, self._witness).agents >= self._settings.clan_agents:
            return ""
        return f"these words are {' and '.join(words.agents()) or 'nobody'}'s alone, and others said it in other ones"

    @staticmethod
    def admits(pattern: Pattern) -> bool:
        """Return whether a lesson can stand in a memory at all: it is present, stands for itself, and has words."""
        if not pattern.is_present or pattern.state == RETIRED or pattern.merged_into:
            return False
        return bool(normalise(readable(pattern.text)).strip(_NO_WORDS))


def _independent(pattern: Pattern, witness: Witness) -> _Independent:
    """Return the evidence that does not lean on the lesson itself."""
    vouching: dict[str, str] = {}
    relapsed, met_in = pattern.totals.get("relapsed", {}), pattern.totals.get("sessions", {})
    seen: dict[str, int] = defaultdict(int)
    sessions: dict[str, int] = defaultdict(int)
    for writer, total in pattern.totals.get("seen", {}).items():
        agent, fresh = names.agent_of(writer), total - relapsed.get(writer, 0)
        if fresh > 0 and names.is_agent(agent):
            vouching.setdefault(witness(pattern.id, writer), agent)
            seen[agent] += fresh
            sessions[agent] += min(met_in.get(writer, 0), fresh)
    counted_entries: set[str] = set()
    for writer, entries in sorted(pattern.by_hand.items()):
        # An entry in the logs of two agents was copied from one to the other: it is evidence once.
        if fresh := sum(number for entry, number in entries.items() if entry not in counted_entries):
            vouching.setdefault(witness(pattern.id, writer), names.agent_of(writer))
            seen[names.agent_of(writer)] += fresh
        counted_entries |= entries.keys()
    agents = min(len(seen), len(vouching))
    return _Independent(sum(seen.values()), agents, sum(max(1, sessions[agent]) for agent in seen))


def _is_enough(found: _Independent, settings: Promotion) -> bool:
    pairs = zip(found, (settings.clan_seen, settings.clan_agents, settings.clan_sessions), strict=True)
    return all(number >= least for number, least in pairs)


def _editor(pattern: Pattern, field: str) -> str:
    """Return the writer that set a field, "" for a field as first logged."""
    return pattern.edited[field][1] if field in pattern.edited else ""


class Witnesses:
    """Groups of writers, by the people who committed to their files: looked up once for each fetched tree."""

    def __init__(self, workspace: Workspace) -> None:
        self._workspace = workspace

    def witness(self) -> Witness:
        """Return who vouches for what a writer says. Looked for where others' evidence may be enough alone."""
        if self._workspace.config.promotion.others != "auto":
            return _by_agent
        groups, brought = self.look_up(), self._workspace.trust.brought()
        return lambda each, writer: groups.get(brought.get((each, writer), writer), _UNKNOWN)

    def look_up(self) -> dict[str, str]:
        """Return writer to the name of its group, as of the fetched tree."""
        return _grouped(self._pushers(), self._workspace.mine())

    def last_groups(self) -> dict[str, str]:
        """Return the same as of the tree that was looked through last: for who cannot wait."""
        return _grouped(self._known_pushers()[1], self._workspace.mine())

    def _pushers(self) -> dict[str, set[str]]:
        """Return who committed to each writer's file; nothing where the history is not here.

        Where the tree's history goes on from the one that was looked through last, only what came since is.
        """
        head, (since, known) = self._workspace.tree.head(), self._known_pushers()
        if since and since == head:
            return known
        news = self._pushers_since(since)
        if news is None and since:
            known, news = {}, self._pushers_since("")
        if news is None:
            return {}
        for path, who in news.items():
            if names.is_replica(writer := path.removeprefix(f"{_FOLDER}/").removesuffix(".jsonl")):
                known[writer] = known.get(writer, set()) | who
        by_writer = {writer: sorted(who) for writer, who in known.items()}
        self._workspace.db.note(_PUSHERS, json.dumps([head, by_writer]))
        return known

    def _pushers_since(self, since: str) -> dict[str, set[str]] | None:
        """Return who committed to each file behind a commit; None where the history does not go on from there."""
        with suppress(TreeGoneError):
            return self._workspace.tree.pushers(_FOLDER, since)
        return None

    def _known_pushers(self) -> tuple[str, dict[str, set[str]]]:
        """Return a commit, and who had committed to each writer's file up to it; "" and nothing for none."""
        try:
            head, found = json.loads(self._workspace.db.noted(_PUSHERS) or "[]")
            return str(head), {str(writer): set(map(str, who)) for writer, who in found.items()}
        except (ValueError, TypeError, AttributeError):
            return "", {}


def _grouped(pushers: dict[str, set[str]], mine: Iterable[str]) -> dict[str, str]:
    """Return writer to the name of its group: all whose files one person committed to are one, and so are ours."""
    pairs = [(f"w {writer}", f"a {author}") for writer, who in pushers.items() for author in who]
    groups = Merges.connected([*pairs, *((f"w {writer}", _HERE) for writer in mine)])
    return {each.removeprefix("w "): group[0] for group in groups for each in group if each.startswith("w ")}
