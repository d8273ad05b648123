"""Dashboard: the state that ``fleet`` alone shows; who is online is read from the sidecar's last note."""

import json
from collections.abc import Iterator
from contextlib import suppress
from typing import Any

from crdt import clock
from fleet.app import finding
from fleet.app.reflecting import current_clusters
from fleet.app.starting import is_unasked
from fleet.hosts.install import Calls
from fleet.hosts.local import LocalFolder
from fleet.learn.counting import CountedLog
from fleet.model import names
from fleet.model.discovery import Discovery
from fleet.model.errors import BusyError, FleetError
from fleet.model.pattern import Pattern
from fleet.recall.wording import LOG_A_CORRECTION
from fleet.reflect.clusters import Clusters
from fleet.reflect.exposure import Exposures
from fleet.reflect.inbox import Inbox
from fleet.reflect.promotion import AgentMemory
from fleet.share.git import Address, Repository
from fleet.share.outgoing import Outbox
from fleet.store import consent
from fleet.store.workspace import ONLINE, Workspace
from fleet.text.screening import readable

_SILENT_DAYS = 3
"""Days without anything logged, shown or synced after which the dashboard says so."""
_NEW_MAX = 100
"""Greatest number of new lessons that are shown; all are counted."""

_DAY_MS = 86_400_000
_ONLINE_MS = 60_000
"""Time for which the sidecar's note of who is online is valid."""
_ONLINE_BYTES_MAX = 1024 * 1024


def overview(workspace: Workspace, agent: str, *, is_seen: bool) -> dict[str, Any]:
    """Return what ``fleet`` alone shows, as in ``--json``. ``is_seen``: a person sees it, so it is not new any more."""
    with workspace.snapshot():  # what comes meanwhile is new the next time
        state = _state(workspace, agent)
        if is_seen:
            with suppress(FleetError):  # in a read-only workspace the same is shown again
                workspace.state.note_look(workspace.patterns.generation, workspace.wall())
    command, why = _next(state)
    return state | {"next": {"command": command, "why": why}}


def _is_agreed(workspace: Workspace) -> bool:
    """Return whether somebody here agreed to the remote that is named now; an ``origin`` may have moved since."""
    share = workspace.config.share
    named = share.remote or (workspace.state.agreed(consent.REMOTE) and Repository(workspace.root).origin())
    return bool(named) and workspace.state.agrees(consent.REMOTE, share.consented(Address(named).bare))


def _state(workspace: Workspace, agent: str) -> dict[str, Any]:
    number, at = workspace.state.last_look()
    generation, since = (int(number), at) if number.isdigit() and clock.is_stamp(at) else (0, "")
    marks = LocalFolder(str(workspace.root)).fired()
    last_fired = max(marks, key=lambda name: marks[name], default="")
    compared = current_clusters(workspace)
    last, is_installed = _last(workspace), bool(Calls.installed(workspace.root))
    silent_ms = workspace.world.wall_ms() - marks.get(last_fired, 0)
    is_agreed, paused = _is_agreed(workspace), workspace.state.paused(workspace.wall())
    has_hooks = is_installed or silent_ms < _SILENT_DAYS * _DAY_MS
    sender = _sender(workspace, has_hooks=has_hooks) if is_agreed and not paused else ""
    return {
        "workspace": str(workspace.root),
        "agent": "" if workspace.is_guest(agent) else agent,
        "known": {"lessons": finding.counted(workspace, compared), "discoveries": workspace.discoveries.count()},
        "looked": since,
        "new": _news_since(workspace, compared, generation, since),
        "promoted": list(_promoted(workspace, since)) if since else [],
        "waits": _pending(workspace, compared) | {"sent_by": sender},
        "online": _online_now(workspace),
        "hooks": {"event": last_fired, "fired": clock.moment(marks.get(last_fired, 0)), "installed": is_installed},
        "remote": workspace.is_in_a_clan,
        "agreed": is_agreed,
        "paused": paused,
        "last": {kind: clock.moment(at_ms) for kind, at_ms in last.items()},
        "silent": _silent(workspace, last),
    }


def _news_since(workspace: Workspace, compared: Clusters, generation: int, since: str) -> dict[str, Any]:
    """Return the lessons and discoveries that came or occurred again since a person's last look; none at the first."""
    wordings = workspace.patterns.since(generation, _NEW_MAX) if since else []
    lessons = [each.lesson for each in compared.grouped(wordings, workspace.patterns.lessons_of)]
    total = workspace.patterns.count_since(generation) if since else 0
    ids = workspace.discoveries.changed(generation) if since else []
    retracted = workspace.discoveries.retracted()
    entries = (workspace.discoveries.get(each) for each in ids if each not in retracted)
    new = sorted((each for each in entries if each and not each.retracts), key=lambda each: each.at, reverse=True)
    return {
        "lessons": [
            _row(each, readable(each.text))
            | {"seen": each.count("seen"), "is_first": each.at > since or each.count("seen") == 1}
            for each in lessons
        ],
        "lessons_total": total - (len(wordings) - len(lessons)),
        "discoveries": [_row(each, readable(each.problem) or readable(each.solution)) for each in new],
    }


def _row(each: Pattern | Discovery, text: str) -> dict[str, Any]:
    return {"id": each.id, "text": text, "by": names.agent_of(each.by)}


def _promoted(workspace: Workspace, since: str) -> Iterator[dict[str, str]]:
    """Yield the lessons that entered memories of the agents here since a person looked."""
    for agent in workspace.agents_here():
        for id_, lesson in workspace.patterns.lessons_of(AgentMemory(workspace, agent).standing().lessons).items():
            if lesson.edited.get("state", ("", ""))[0] > since:
                yield {"agent": agent, "id": id_, "text": readable(lesson.text)}


def _pending(workspace: Workspace, compared: Clusters) -> dict[str, Any]:
    agents, decisions = workspace.agents_here(), Inbox(workspace).count()
    is_asked = not {"merge", "contradiction"}.isdisjoint(decisions.kinds)
    left_out = [] if is_asked else workspace.trust.sentences()
    return {
        "to_state": sum(len(CountedLog(workspace, agent).to_state()) for agent in agents),
        "pairs": len(compared.likely),
        "contradictions": len(compared.opposed),
        "left_out": left_out,
        "decisions": decisions._asdict(),
        "lines": Outbox(workspace).waiting().count if workspace.is_in_a_clan else 0,
    }


def _sender(workspace: Workspace, *, has_hooks: bool) -> str:
    """Return what sends the lines that wait, if a person does not: ``sidecar``, ``hooks``; "" for nothing."""
    for lock in workspace.local.glob("locks/sidecar-*.lock"):
        try:
            with workspace.files.lock(lock, 0.0):
                pass
        except BusyError:  # a running sidecar holds it
            return "sidecar"
        except FleetError:  # a read-only workspace, in which no lock can be tried
            continue
    return "hooks" if has_hooks and workspace.config.hook.sync_at_end else ""


def _online_now(workspace: Workspace) -> list[dict[str, str]]:
    """Return the others in the live room, as the sidecar here noted them a moment ago."""
    raw = LocalFolder(str(workspace.root)).read(ONLINE, bytes_max=_ONLINE_BYTES_MAX)
    try:
        online = json.loads(raw or b"{}")
        if not 0 <= workspace.world.wall_ms() - int(online.get("at_ms", 0)) < _ONLINE_MS:
            return []
        own = {each.name for each in workspace.replicas().replicas}
        return [
            {"agent": readable(agent), "since": readable(since), "on": readable(on)}
            for agent, replica, since, on in online["online"]
            if replica not in own
        ]
    except (ValueError, KeyError, TypeError, AttributeError, RecursionError):
        return []


def _last(workspace: Workspace) -> dict[str, int]:
    """Return the times of the last log entry, exposure and sync, milliseconds since 1970; 0 for never."""
    newest = workspace.db.newest_by()
    mine = [newest.get(each.name, "") for each in workspace.replicas().replicas]
    synced = max(workspace.state.get("last_sync"), workspace.state.get("fetched"))
    unstated = [CountedLog(workspace, agent).last_ms() for agent in (*workspace.agents_here(), names.GUEST)]
    return {
        "logged": max(clock.ms_of(max(mine, default="")), *unstated),
        "shown": max(Exposures(workspace.state).last_ms(), clock.ms_of(workspace.state.get("started"))),
        "synced": clock.ms_of(synced),
    }


def _silent(workspace: Workspace, last: dict[str, int]) -> list[str]:
    """Return messages: the last sync failed, or nothing was logged, shown or synced for days."""
    now_ms = workspace.world.wall_ms()
    since_ms = min((clock.ms_of(each.minted) for each in workspace.replicas().replicas if each.minted), default=now_ms)
    days = {kind: (now_ms - max(at_ms, since_ms)) // _DAY_MS for kind, at_ms in last.items()}
    kinds = [kind for kind in days if days[kind] >= _SILENT_DAYS and (kind != "synced" or workspace.is_in_a_clan)]
    silent = [f"nothing was {' or '.join(kinds)} for {min(days[each] for each in kinds)} days"] if kinds else []
    failed = workspace.state.get("sync_failed").partition(";")[0].partition(". ")[0]
    if failed:
        return [f"the last sync failed: {failed}", *silent]
    return ["never synced: what the clan knows is not here yet", *silent] if is_unasked(workspace) else silent


def _next(state: dict[str, Any]) -> tuple[str, str]:
    """Return the command to run next, and why; "" for none."""
    waits, silent = state["waits"], " ".join(state["silent"])
    can_sync = not state["paused"]
    left_out = waits["contradictions"] or waits["left_out"]
    has_hooks = state["hooks"]["event"] or state["hooks"]["installed"]
    steps = (
        (not state["agent"], "fleet init --agent NAME", "no agent is named here yet"),
        (waits["decisions"]["number"], "fleet inbox", "decisions wait for you"),
        (left_out, "fleet review", "lessons contradict each other, or were left out"),
        (waits["to_state"], "fleet learn --waiting", "corrections without a lesson are not counted"),
        (waits["pairs"], "fleet review", "lessons may say the same"),
        (can_sync and "sync" in silent, "fleet sync", "exchanges lessons with the clan"),
        (can_sync and waits["lines"] and not waits["sent_by"], "fleet sync", "sends what was logged here to the clan"),
        (not has_hooks, "fleet install claude-code", "the loop runs by itself, from the next session on"),
        (not state["known"]["lessons"], LOG_A_CORRECTION, "logs the first lesson"),
        (not state["remote"], "fleet init --remote URL", "shares the lessons with the clan"),
        ("shown" in silent, "fleet doctor", "looks for why nothing is shown"),
    )
    return next(((command, why) for is_due, command, why in steps if is_due), ("", ""))
