"""``fleet purge``: overwrite a secret that already went out, and tell what no program can do about it."""

from dataclasses import dataclass
from typing import Any

from fleet.cli import desk, remembering, starting, syncing, wiring
from fleet.keep.damage import TROUBLE, is_damage
from fleet.keep.errors import FleetError
from fleet.keep.index import Index
from fleet.keep.workspace import Workspace
from fleet.learn import corrections, redaction
from fleet.learn import discoveries as found_out
from fleet.share.tree import PAGE

SHOWN_MAX = 40


@dataclass(slots=True)
class Purged:
    """What a purge did.

    Attributes:
        id: of the lesson or discovery.
        shared: whether the remote's newest tree was compacted after it.
        why_not: why it was not.
        remains: where the texts still stand here.
    """

    id: str
    shared: bool
    why_not: str
    remains: list[redaction.Place]

    def as_json(self) -> dict[str, Any]:
        """Return it for ``--json``."""
        places = [{"path": place.path, "line": place.line} for place in self.remains]
        return {"id": self.id, "shared": self.shared, "why_not": self.why_not, "remains": places}


def purge(workspace: Workspace, agent: str, wanted: str, *, yes: bool) -> Purged:
    """Overwrite a lesson, or take a discovery back, and bring that to the remote if there is one.

    Raises:
        NoError: there is no such id.
        DiskError: nothing was acknowledged.
    """
    purged, texts = _take_out(workspace, agent, wanted)
    remembering.forget(workspace, purged)
    for named in corrections.agents_here(workspace):
        starting.session_start(workspace, named)  # what lies ready holds the old words
    with workspace.locked():
        workspace.store.write(PAGE, wiring.page(workspace, workspace.load().notebook))
    shared, why_not = _share(workspace, yes=yes)
    _forget_in_search(workspace)
    return Purged(purged, shared, why_not, redaction.remains(workspace, workspace.load(), purged, texts))


def _forget_in_search(workspace: Workspace) -> None:
    """Throw the search index away, freed pages too: it holds the old words, and is made anew by the next search."""
    connection = workspace.state.connection()
    try:
        Index(connection).drop()
        connection.execute("VACUUM")
        connection.execute("PRAGMA wal_checkpoint(TRUNCATE)")
    except TROUBLE as why:
        if not is_damage(why):
            raise
        workspace.state.put_aside(why)
        workspace.warn("the damaged database that was put aside may still hold the purged words")


def _take_out(workspace: Workspace, agent: str, wanted: str) -> tuple[str, list[str]]:
    if wanted.startswith("d-"):
        findings = workspace.load().findings
        entry = found_out.find(findings, wanted)
        if entry.id not in findings.retracted():
            found_out.retract(workspace, agent, entry.id)
        with workspace.locked():
            redaction.forget_unsent(workspace, entry.id)
        return entry.id, [entry.context, entry.problem, entry.solution, *entry.tags]
    # What the logs owe goes first: the redaction is newer than all that was read, and covers it.
    held = corrections.settle_all(workspace)
    with workspace.writing(agent) as writer:
        line = desk.find(held.notebook, wanted)
        return line.id, redaction.redact(writer, line)


def _share(workspace: Workspace, *, yes: bool) -> tuple[bool, str]:
    """Compact: the remote's newest tree then has the redaction, and nothing that it beats."""
    from fleet.keep import pause

    if held := pause.current(workspace):
        return False, f"sharing is paused {held}"
    if wrong := workspace.timekeeper.reading().wrong:
        return False, wrong
    try:
        remote = syncing.clan_remote(workspace, yes=yes)
        if remote is None:
            return False, "no remote is named"
        with workspace.disk.lock(workspace.local / "locks" / "sync.lock"):
            wiring.sync(workspace, remote, compact=True)
    except FleetError as why:
        return False, str(why)
    return True, ""


def advice(workspace: Workspace, purged: Purged) -> list[str]:
    """Return what a person has to do now, most urgent first."""
    rows = [
        "1. Rotate it. Whoever could read the clan's remote may have it: make a new key or password where the old one",
        "   was issued, revoke the old one there, and look at what it was used for.",
    ]
    if purged.id.startswith("d-"):
        rows.append(
            "   A discovery's line is immutable: it is shown to nobody any more, but it stays in the clan's files, and "
            "machines that have it would send it again. Rotating is the only cure."
        )
    if not purged.shared:
        rows.append(f"2. It has not reached the clan yet ({purged.why_not}). `fleet compact` brings it there.")
    else:
        rows.append("2. The clan's newest files have the redaction; every machine takes it in with its next sync.")
    if places := purged.remains:
        rows.append("3. It still stands here, in files that are yours, or until the next compaction; mend by hand:")
        rows += [f"     {p.path}{f', line {p.line}' if p.line else ''}" for p in places[:SHOWN_MAX]]
        if len(places) > SHOWN_MAX:
            rows.append(f"     and {len(places) - SHOWN_MAX} more: --json lists all")
    else:
        rows.append("3. No file of this workspace holds it any more, but .fleet/git and this disk's backups may.")
    return rows + _rewriting(workspace)


def _rewriting(workspace: Workspace) -> list[str]:
    from fleet.share.git import redact_url

    share = workspace.config.share
    if not share.remote:
        return []
    return [
        "4. The remote's git history still holds it. These commands, which fleet does not run, begin that history anew",
        f"   from its newest files. WARNING: every earlier commit of branch {share.branch} is gone for good.",
        "   Let every machine sync first; keep a copy of the repository; ask whoever runs it. No lesson is lost by it:",
        f"     git clone --single-branch --branch {share.branch} {redact_url(share.remote)} rewrite && cd rewrite",
        "     git checkout --orphan clean && git commit -m 'Begin anew without a purged secret'",
        f"     git push --force-with-lease={share.branch} origin clean:{share.branch}",
        "   Then ask the host to collect garbage: forks, pull requests, caches and old clones keep the old commits.",
        "   Each machine keeps them in .fleet/git as well, which `fleet sync` makes anew once it was moved away.",
    ]
