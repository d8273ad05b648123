"""Evidence: the rules by which records make a lesson permanent, and the witnesses of what writers say.

Only an agent's *own* third occurrence, logged in this folder, enters its memory without a person. Relapses count there,
since an agent that repeats a mistake whose lesson it had read needs the lesson most. If replicas of the agent's name
elsewhere are needed for the third one, the lesson is only proposed, since lines are not signed. A lesson of *others* is
proposed on independent evidence (docs/adr/0020). Relapses do not count there, since they show that a lesson is read and
not that it is true; neither do imported records, which are no agent's.

Witnesses: git knows the committers of a writer's file, and the file in which a column arrived. Writers that share one
of these are one witness; so are all writers of this folder, and all unknown ones. Both can be forged: this tells
careless floods from evidence, and proves nothing.
"""

from collections import Counter
from collections.abc import Callable, Collection, Iterable, Sequence
from contextlib import suppress
from functools import cached_property
from itertools import islice
from typing import NamedTuple

import msgspec

from fleet.model import names
from fleet.model.names import normalise, pattern_id
from fleet.model.pattern import REDACTED, Merges, Pattern
from fleet.store import consent, git
from fleet.store.config import Promotion
from fleet.store.tree import TreeGoneError
from fleet.store.workspace import Workspace
from fleet.text.screening import counted, readable

Witness = Callable[[str, str], str]
"""Function from a lesson's id and a writer to the witness of that writer's words, a name that stands for one person."""

OWN, CLAN, NAMESAKE, PERSON = "own", "clan", "namesake", "person"
RETIRED = "retired"

_PUSHERS = "pushers"
_HERE, _UNKNOWN = "here", "unknown"
_FOLDER = "patterns.d"
_NO_WORDS = "*_`~#-=|<>[](){}.,;:!?'\" "
_DUE_MAX = 50


class Due(NamedTuple):
    """Lesson that is due for an agent's memory, its words fit to be shown.

    ``reason``: ``own``, ``clan``, ``namesake`` or ``person``; ``right``: the right way that a person took in with it.
    """

    id: str
    text: str
    reason: str
    evidence: str
    right: str = ""


class _Independent(NamedTuple):
    """Evidence for a lesson without relapses: its occurrences, and the number of agents and of sessions."""

    seen: int
    agents: int
    sessions: int


def _by_agent(_: str, writer: str) -> str:
    """Return the agent of a writer as its witness."""
    return names.agent_of(writer)


class Evidence:
    """Rules by which lessons are due for one agent's memory; ``settings``: the thresholds."""

    def __init__(self, agent: str, settings: Promotion, witness: Witness = _by_agent) -> None:
        self._agent = agent
        self._settings = settings
        self._witness = witness

    def due(self, patterns: Iterable[Pattern], known: Collection[str] = ()) -> list[Due]:
        """Return at most 50 lessons that are due: the own ones first, then the best-evidenced, of equals the newest.

        ``patterns``: lessons, each merged set as one.
        ``known``: ids that are in that memory, or were and were taken out.
        """
        candidates: list[tuple[tuple[int, int, int], Pattern, str, str]] = []
        for pattern in sorted(patterns, key=lambda pattern: (pattern.last_seen, pattern.id), reverse=True):
            if pattern.id in known or pattern.count("seen") < self._settings.least_seen:
                continue
            own, others = pattern.seen_by(self._agent), _independent(pattern, self._witness)
            named = pattern.seen_by(self._agent, anywhere=True)
            if own >= self._settings.own:
                candidates.append(((0, -own, 0), pattern, OWN, f"seen {own:,} by {self._agent}"))
            elif _is_enough(others, self._settings):
                evidence = f"seen {others.seen:,} by {counted(others.agents, 'agent')}"
                candidates.append(((1, -others.agents, -others.seen), pattern, CLAN, evidence))
            elif named >= self._settings.own:
                evidence = f"seen {named:,} by {self._agent}, {own:,} of them here"
                candidates.append(((1, -others.agents, -others.seen), pattern, NAMESAKE, evidence))
        candidates.sort(key=lambda each: each[0])
        # Screening is slow, so only lessons with enough evidence are screened.
        admitted = ((each, why, evidence) for _, each, why, evidence in candidates if self.admits(each))
        return [Due(each.id, readable(each.text), why, evidence) for each, why, evidence in islice(admitted, _DUE_MAX)]

    def is_lost(self, before: Pattern, after: Pattern) -> bool:
        """Return whether a lesson that was listed, or due, no longer is after a change of its record."""
        if not after.is_listed:
            return before.is_listed
        return bool(self.due([before])) and not self.due([after])

    def doubt(self, pattern: Pattern, records: Sequence[Pattern]) -> str:
        """Return why the words of a lesson may not be those that were counted, or "".

        A lesson's id is the hash of the words that were counted. A single writer can set other words later, or merge
        the record with another one, so that the counts of both add up. Words that this agent set here are accepted,
        unless it only removed a secret from another's words. A lesson that others merged must have been met by this
        agent here, or by an agent that did not merge it.

        ``records``: the set's own records; none when it is not merged.
        """
        mine = {writer for writer in pattern.mine if names.agent_of(writer) == self._agent}
        editor = _editor(pattern, "text")
        if pattern_id(pattern.text) != pattern.id and (editor not in mine or "text" in pattern.words.redacted):
            return f"its words were changed{f' by {names.agent_of(editor)}' if editor else ''} after they were logged"
        mergers = {_editor(record, "merged_into") for record in records if record.merged_into}
        shown = next((record for record in records if record.id == pattern.id), pattern)
        if not mergers - mine or shown.seen_by(self._agent):
            return ""
        by = {names.agent_of(writer) for writer in mergers if writer}
        relapsed, seen = shown.totals.get("relapsed", {}), shown.totals.get("seen", {})
        writers = [writer for writer, total in seen.items() if total > relapsed.get(writer, 0)]
        met = {names.agent_of(writer) for writer in (*writers, *shown.by_hand)}
        # A merge without a writer may be anybody's, so no other agent is known to be independent of it.
        if pattern.seen_by(self._agent) or "" in mergers or not met - by:
            merger = " and ".join(sorted(by)) or "somebody"
            return f"{merger} merged it, and nobody else is known to have met these words"
        return ""

    def doubt_of_wording(self, words: Pattern) -> str:
        """Return why evidence in other wordings does not count for this one, or "".

        Otherwise a writer, by a lesson that resembles a known one, could put its words under the evidence of others.

        ``words``: the lesson whose words would enter, with its own evidence alone.
        """
        if words.seen_by(self._agent) or _independent(words, self._witness).agents >= self._settings.clan_agents:
            return ""
        return f"these words are {' and '.join(words.agents()) or 'nobody'}'s alone, and others said it in other ones"

    @staticmethod
    def admits(pattern: Pattern) -> bool:
        """Return whether a memory may hold a lesson: it is present, merged into no other, and has words, not purged."""
        if not pattern.is_present or pattern.state == RETIRED or pattern.merged_into:
            return False
        return pattern.text != REDACTED and bool(normalise(readable(pattern.text)).strip(_NO_WORDS))


def _independent(pattern: Pattern, witness: Witness) -> _Independent:
    """Return the evidence without relapses.

    Replicas of one agent count as one, and so do agents of one witness. Each replica counts its own sessions, since
    their ids are never sent: an agent has at least one session, and no more of them than occurrences.
    """
    witnesses = set[str]()
    relapsed, met_in = pattern.totals.get("relapsed", {}), pattern.totals.get("sessions", {})
    counts, sessions = Counter[str](), Counter[str]()
    for writer, total in pattern.totals.get("seen", {}).items():
        agent, count = names.agent_of(writer), total - relapsed.get(writer, 0)
        if count > 0 and names.is_agent(agent):
            witnesses.add(witness(pattern.id, writer))
            counts[agent] += count
            sessions[agent] += min(met_in.get(writer, 0), count)
    counted_entries: set[str] = set()
    for writer, entries in sorted(pattern.by_hand.items()):
        # An entry in the logs of two agents was copied from one to the other: it is evidence once.
        if count := sum(number for entry, number in entries.items() if entry not in counted_entries):
            witnesses.add(witness(pattern.id, writer))
            counts[names.agent_of(writer)] += count
        counted_entries |= entries.keys()
    agents = min(len(counts), len(witnesses))
    return _Independent(counts.total(), agents, sum(max(1, sessions[agent]) for agent in counts))


def _is_enough(evidence: _Independent, settings: Promotion) -> bool:
    pairs = zip(evidence, (settings.clan_seen, settings.clan_agents, settings.clan_sessions), strict=True)
    return all(number >= least for number, least in pairs)


def _editor(pattern: Pattern, field: str) -> str:
    """Return the writer that set a field, "" for a field as first logged."""
    return pattern.edited[field][1] if field in pattern.edited else ""


class Witnesses:
    """Groups of writers by the committers of their files, looked up once for each fetched tree."""

    def __init__(self, workspace: Workspace) -> None:
        self._workspace = workspace

    @cached_property
    def are_enough(self) -> bool:
        """True if others' evidence is enough alone: ``fleet.toml`` says so and, if git tracks it, a person here agreed.

        A file that git tracks came with the repository, or the next pull may change it: anybody may have written it.
        """
        workspace = self._workspace
        if workspace.config.promotion.others != "auto":
            return False
        if workspace.state.agrees(consent.OTHERS, self._consented()):
            return True
        if not workspace.is_in_git():
            return True
        # git is asked for untracked files: if it refuses or is missing, the file is taken for a tracked one.
        return bool(git.output(workspace.root.resolve(), "ls-files", "--others", "--", workspace.config_file.name))

    def agree(self) -> None:
        """Record a yes here to what ``fleet.toml`` says of others' evidence; withdraw it where it says "suggest"."""
        self._workspace.state.disagree(consent.OTHERS)
        if self._workspace.config.promotion.others == "auto":
            self._workspace.state.agree(consent.OTHERS, self._consented(), self._workspace.wall())

    def _consented(self) -> str:
        settings = self._workspace.config.promotion
        return f"{settings.clan_seen} {settings.clan_agents} {settings.clan_sessions}"

    def witness(self) -> Witness:
        """Return the function of witnesses. They are looked up only if others' evidence may be enough alone."""
        if self._workspace.config.promotion.others != "auto":
            return _by_agent
        groups, brought = self.look_up(), self._workspace.trust.brought()
        return lambda each, writer: groups.get(brought.get((each, writer), writer), _UNKNOWN)

    def look_up(self) -> dict[str, str]:
        """Return the name of each writer's group, as of the fetched tree."""
        return self._grouped(self._pushers())

    def last_groups(self) -> dict[str, str]:
        """Return the groups as they were looked up last, for a caller that cannot wait."""
        return self._grouped(self._known_pushers()[1])

    def _grouped(self, pushers: dict[str, set[str]]) -> dict[str, str]:
        """Return the name of each writer's group: writers that share a committer are one, and so are ours."""
        pairs = [(f"w {writer}", f"a {author}") for writer, who in pushers.items() for author in who]
        groups = Merges.connected([*pairs, *((f"w {writer}", _HERE) for writer in self._workspace.mine())])
        return {each.removeprefix("w "): group[0] for group in groups for each in group if each.startswith("w ")}

    def _pushers(self) -> dict[str, set[str]]:
        """Return the committers of each writer's file; none where the history is not here.

        Where the history continues the one that was read last, only the new commits are read.
        """
        head, (since, known) = self._workspace.tree.head(), self._known_pushers()
        if since and since == head:
            return known
        for start in dict.fromkeys((since, "")):
            with suppress(TreeGoneError):
                if (news := self._workspace.tree.pushers(_FOLDER, start)) is not None:
                    break
            known, news = {}, None  # a history that cannot be read in time is not tried again: writers stay unknown
        for path, authors in (news or {}).items():
            if names.is_replica(writer := path.removeprefix(f"{_FOLDER}/").removesuffix(".jsonl")):
                known[writer] = known.get(writer, set()) | authors
        self._workspace.db.note(_PUSHERS, msgspec.json.encode((head, known)).decode())
        return known

    def _known_pushers(self) -> tuple[str, dict[str, set[str]]]:
        """Return the commit that was read last, and the committers of each writer's file up to it."""
        with suppress(msgspec.DecodeError):
            return msgspec.json.decode(self._workspace.db.noted(_PUSHERS), type=tuple[str, dict[str, set[str]]])
        return "", {}
