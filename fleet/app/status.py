"""How a workspace stands, and what it knows: ``fleet status``, ``fleet patterns``, ``fleet doctor``."""

import platform
import re
from collections.abc import Iterator
from shutil import which
from typing import Any

from fleet.app import finding, guarding, reflecting, reviewing, searching, session_end, setup, sharing, starting
from fleet.learn import counting, importer
from fleet.model.errors import FleetError
from fleet.reflect import inbox
from fleet.share import outgoing, policy
from fleet.share.git import redact_url
from fleet.store import config, doctor, git
from fleet.store.doctor import Finding
from fleet.store.ingest import clan_sources
from fleet.store.workspace import Workspace

GIT_WANTED = (2, 36)
"""From here on git knows ``core.fsync``: after a power cut its objects are whole."""


# --- the workspace --------------------------------------------------------------------------------------------------


def status(workspace: Workspace, agent: str) -> dict[str, Any]:
    """Return everything that ``fleet status --json`` shows."""
    out = outgoing.waiting(workspace)
    quarantined = [
        {"at": kept.at, "path": kept.path, "line": kept.number, "reason": kept.reason, "bytes": len(kept.raw)}
        for kept in workspace.quarantine.all()
    ]
    return {
        "workspace": str(workspace.root),
        "agent": agent,
        "replica": next((r.name for r in reversed(workspace.replicas().replicas) if r.agent == agent), ""),
        "remote": sharing.remote_shown(workspace),
        "branch": workspace.config.share.branch,
        "last_sync": workspace.state.get("last_sync"),
        "fetched": workspace.state.get("fetched"),
        "stale": policy.stale(workspace),
        "paused": str(workspace.state.paused(workspace.wall()) or ""),
        "clock": workspace.clock.wrong(),
        "patterns": finding.counted(workspace),
        "discoveries": workspace.discoveries.count(),
        "waiting": {"lines": out.count, "paths": {path: len(lines) for path, lines in sorted(out.lines.items())}},
        "withheld": [{"path": each.path, "reason": each.reason} for each in out.withheld],
        "unfilled": counting.unfilled(workspace, agent) if agent else 0,
        "edited": [each.pattern for each in counting.edited(workspace, agent)] if agent else [],
        "not_taken": [
            {"path": each.path, "line": each.line, "reason": each.left, "text": each.text}
            for each in (importer.left_in_log(workspace, agent) if agent else [])
        ],
        "memory": reflecting.standing(workspace, agent) if agent else {},
        "review": _review(workspace),
        "inbox": inbox.count(workspace, inbox.agents(workspace))._asdict(),
        "trust": reviewing.standing(workspace),
        "guards": [each._asdict() for each in guarding.guards(workspace)],
        "refused": workspace.db.refused_count(),
        "quarantined": quarantined,
        "held": len(workspace.db.late()),
        "carried": workspace.db.carried_count(),
        "held_files": [{"path": path, "reason": why} for path, why in sorted(workspace.tree.held().items())],
        "replicas": _replicas(workspace),
    }


def _review(workspace: Workspace) -> dict[str, int]:
    found = reflecting.weighed(workspace)
    return {"pairs": len(found.likely), "contradictions": len(found.opposed)}


def _replicas(workspace: Workspace) -> list[dict[str, str]]:
    """Return who has written a lesson that is here, or has a file here, and the newest stamp of each."""
    here = {each.name for each in workspace.replicas().replicas}
    newest = workspace.db.newest_by()
    for source in clan_sources(workspace.clan):
        if source.path != source.kind.edition:
            newest.setdefault(source.file.stem, "")
    return [
        {"replica": name, "last": stamp, "where": "here" if name in here else "elsewhere"}
        for name, stamp in sorted(newest.items())
    ]


# --- the doctor -----------------------------------------------------------------------------------------------------


def examine(workspace: Workspace, agent: str, *, fix: bool = False, online: bool = False) -> list[Finding]:
    """Return everything that was found. A check that cannot be made is a finding, too.

    Args:
        workspace: where.
        agent: whose session start is measured; "" for the default agent's.
        fix: mend what can be mended without losing anything.
        online: ask the remote whether it answers, too.
    """
    found = [*_python(), *_git(workspace), *_made(doctor.databases(workspace, fix=fix))]
    if any(each.check == "state" and each.level == "error" and not each.fixed for each in found):
        return found  # any question to a damaged database makes it anew, and looking mends nothing
    for check in (
        *doctor.checks(workspace, fix=fix),
        _ignores(workspace, fix=fix),
        _log(workspace),
        _kept_back(workspace),
        _embedding(workspace),
        setup.findings(workspace, agent, lambda each: starting.session_start(workspace, each).text),
        session_end.findings(workspace, agent),
    ):
        found += _made(check)
    if online:
        found += _online(workspace)
    return found


def _made(check: Iterator[Finding]) -> list[Finding]:
    """Make one check. What it found before it failed stays."""
    found = []
    try:
        for each in check:
            found.append(each)  # noqa: PERF402
    except (FleetError, OSError) as why:
        found.append(
            Finding(
                "checkup",
                "error",
                f"one check could not be made: {why}",
                "what it would have found is not known",
                "mend the findings above first, then run `fleet doctor` again",
            )
        )
    return found


def _python() -> Iterator[Finding]:
    yield Finding("python", "ok", f"Python {platform.python_version()}")


def _git(workspace: Workspace) -> Iterator[Finding]:
    if which("git") is None:
        needed = bool(workspace.config.share.remote)
        yield Finding(
            "git",
            "error" if needed else "note",
            "git is not installed, or not on the PATH",
            "logging and reading work; nothing can be shared",
            "install git",
        )
        return
    said = git.said(workspace.root, "--version", wait_s=20.0)
    version = tuple(map(int, re.findall(r"\d+", said)[:2]))
    if version < GIT_WANTED:
        yield Finding(
            "git",
            "note",
            f"{said} is older than {'.'.join(map(str, GIT_WANTED))}",
            "after a power cut the local copy of the remote may have to be fetched anew; fleet does that by itself",
            "a newer git makes it rarer",
        )
    else:
        yield Finding("git", "ok", said)


def _ignores(workspace: Workspace, *, fix: bool) -> Iterator[Finding]:
    if not git.said(workspace.root, "rev-parse", "--show-toplevel", wait_s=20.0):
        return
    tracked = setup.tracked(workspace)
    if local := [path for path in tracked if path.startswith(".fleet/")]:
        yield Finding(
            "ignore",
            "warning",
            f"git tracks {', '.join(local[:3])}",
            "this machine's own state would travel with the project",
            f"`git rm --cached -- {' '.join(local[:3])}` takes it out of the next commit; the file itself stays here",
        )
    has_scratchpad = any((workspace.root / name).exists() for name in (".agents.local.md", ".agents"))
    wanted = config.IGNORED_LOCAL if has_scratchpad else config.IGNORED_LOCAL[:1]
    if missing := config.not_ignored(workspace.root, wanted):
        if fix:
            config.ignore(workspace.files, wanted)
        yield Finding(
            "ignore",
            "warning",
            f".gitignore lacks {', '.join(missing)}",
            "`git add .` would take this machine's own state along",
            "`fleet doctor --fix` adds it",
            fix,
        )
    if own := [path for path in tracked if not path.startswith(".fleet/")]:
        yield Finding(
            "ignore",
            "note",
            f"git tracks {', '.join(own[:3])}{f' and {len(own) - 3} more' if len(own) > 3 else ''}, written by fleet",
            "whoever can read the project can read what went wrong here",
            "nothing, if that is meant; these files alone, and not their folder, are fleet's",
        )
    if hidden := setup.hidden_folders(workspace.root):
        yield Finding(
            "ignore",
            "note",
            f".gitignore hides all of {' and '.join(hidden)}, as an earlier fleet wanted it",
            "files of the project's own in there are not committed",
            "take that line out of .gitignore; `fleet init` then names fleet's own files, one by one",
        )


def _log(workspace: Workspace) -> Iterator[Finding]:
    for agent in workspace.agents_here():
        log = workspace.own_path(agent, "corrections.md")
        if number := counting.unfilled(workspace, agent):
            yield Finding(
                "unfilled",
                "note",
                f"{number:,} correction{'s' * (number != 1)} of {agent} without a pattern",
                "they count for nothing until the lesson is stated",
                f"state it in {log}",
            )
        if edited := counting.edited(workspace, agent):
            yield Finding(
                "edited",
                "note",
                f"{len(edited):,} entr{'y' if len(edited) == 1 else 'ies'} of {log} read "
                "otherwise than when they were counted",
                f"each counts once, as before, and its lesson still reads as it did; first: {edited[0].pattern}",
                f"`fleet edit {edited[0].pattern} --set text=...` says that lesson otherwise, for the whole clan",
            )


def _kept_back(workspace: Workspace) -> Iterator[Finding]:
    withheld = outgoing.waiting(workspace).withheld
    if withheld:
        yield Finding(
            "withheld",
            "warning",
            f"{len(withheld):,} line{'s' * (len(withheld) != 1)} may not leave; first {withheld[0].path}: "
            f"{withheld[0].reason}",
            "the clan does not get them",
            "`fleet edit ID --set field=value` says it without the secret; `fleet sync --dry-run` tells of each",
        )


def _embedding(workspace: Workspace) -> Iterator[Finding]:
    found = searching.embedding(workspace)
    if found.state == "unagreed":
        what = f"fleet.toml names {redact_url(found.what)} for embeddings, and nobody on this machine agreed to that"
        yield Finding("semantic", "note", what, "lessons are found by their words alone", "`fleet init` asks")
    elif found.state == "missing":
        what = "no embedding is installed: lessons are found by their words, and not by what they mean"
        yield Finding("semantic", "note", what, "half of all rewordings of a lesson are not noticed", found.what)
    else:
        yield Finding("semantic", "ok", f"search by meaning is {found.state}")


def _online(workspace: Workspace) -> Iterator[Finding]:
    try:
        remote = sharing.clan_remote(workspace)
        if remote is None:
            yield Finding("remote", "note", "no remote is named", "fleet works offline", "`fleet init --remote URL`")
            return
        remote.fetch(workspace.tree.head())
    except FleetError as why:
        yield Finding("remote", "error", str(why), "what waits here goes out with a later sync", "see above")
        return
    yield Finding("remote", "ok", f"{remote.name} answers")
