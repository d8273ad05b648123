"""How a workspace stands: the content of ``fleet status``."""

from typing import Any

from fleet.cli import desk, reflect
from fleet.keep import consent, names, view
from fleet.keep.reading import KINDS
from fleet.keep.store import Held
from fleet.keep.workspace import Workspace

QUARANTINED_SHOWN = 20


def standing(workspace: Workspace, agent: str) -> dict[str, Any]:
    """Return everything that ``fleet status --json`` shows."""
    from fleet.keep import pause
    from fleet.learn import corrections
    from fleet.share import freshness, tree

    held = view.glance(workspace)
    reading = workspace.timekeeper.reading()
    out = tree.outgoing(workspace, tree.load_base(workspace), may_drop=False)
    quarantined = [
        {"at": kept.at, "path": kept.path, "line": kept.number, "reason": kept.reason, "bytes": len(kept.raw)}
        for kept in workspace.quarantine.all()
    ]
    here = workspace.replicas()
    return {
        "workspace": str(workspace.root),
        "agent": agent,
        "replica": next((r.name for r in reversed(here.replicas) if r.agent == agent), ""),
        "remote": _remote_shown(workspace),
        "branch": workspace.config.share.branch,
        "last_sync": workspace.state.get("last_sync"),
        "stale": freshness.stale(workspace),
        "paused": str(pause.current(workspace) or ""),
        "clock": reading.wrong,
        "patterns": view.best(held.notebook, "sight", 0)[1],
        "discoveries": held.findings.count(),
        "waiting": {"lines": out.count, "paths": {path: len(lines) for path, lines in sorted(out.lines.items())}},
        "withheld": [{"path": w.path, "reason": w.reason} for w in out.withheld],
        "unfilled": corrections.unfilled(workspace, agent) if agent else 0,
        "memory": desk.cleaned(reflect.standing(workspace, agent, held.notebook)) if agent else {},
        "refused": held.read.count,
        "quarantined": quarantined,
        "held": len(held.notebook.held) + held.findings.held(),
        "carried": len(held.notebook.carried) + len(held.findings.carried),
        "replicas": _replicas(workspace, held),
    }


def _remote_shown(workspace: Workspace) -> str:
    from fleet.share.git import guess_remote, redact_url

    if consent.has_left(workspace):
        return ""
    url = workspace.config.share.remote or guess_remote(workspace.root) or ""
    return redact_url(url) if url else ""


def _replicas(workspace: Workspace, held: Held) -> list[dict[str, str]]:
    """Who has written a lesson that is here, or has a file here, and the newest stamp of each."""
    here = {replica.name for replica in workspace.replicas().replicas}
    newest = {name: stamp for name, stamp in held.notebook.newest_by.items() if names.agent_of(name) != names.IMPORT}
    for kind in KINDS:
        for path in workspace.store.paths(kind):
            if path != kind.edition:
                newest.setdefault(path.rpartition("/")[2].removesuffix(".jsonl"), "")
    return [
        {"replica": name, "last": stamp, "where": "here" if name in here else "elsewhere"}
        for name, stamp in sorted(newest.items())
    ]


def _known(found: dict[str, Any]) -> str:
    findings = desk.counted(found["discoveries"], "discovery", "discoveries")
    return f"{desk.counted(found['patterns'], 'lesson')}, {findings}"


def _clock(found: dict[str, Any]) -> list[str]:
    if not found["clock"]:
        return []
    editions = {kind.edition for kind in KINDS}
    count = sum(number for path, number in found["waiting"]["paths"].items() if path in editions)
    waits = f". Until then, {desk.counted(count, 'line')} wait{'s' * (count == 1)} here" if count else ""
    return [
        f"clock       {found['clock']}",
        f"            set it, best by NTP, and run `fleet sync`: no edition is written before that{waits}",
    ]


def as_text(found: dict[str, Any]) -> str:
    """Return the same for a person."""
    remote = f"{found['remote']}, branch {found['branch']}" if found["remote"] else "none named; works offline"
    lines = [
        f"workspace   {found['workspace']}",
        f"agent       {found['agent'] or 'none yet: fleet init --agent NAME'}"
        + (f" ({found['replica']})" if found["replica"] else ""),
        f"remote      {remote}",
        f"last sync   {found['last_sync'][:16].replace('T', ' ') + 'Z' if found['last_sync'] else 'never'}",
        *([f"stale       {found['stale']}"] if found["stale"] else []),
        *([f"paused      {found['paused']}: nothing is shared"] if found["paused"] else []),
        f"known       {_known(found)}",
        f"to go out   {desk.counted(found['waiting']['lines'], 'line')}",
    ]
    lines += [f"            {number} in {path}" for path, number in found["waiting"]["paths"].items()]
    lines += _clock(found)
    lines += reflect.as_lines(found["memory"])
    for key, label in (
        ("unfilled", "without a pattern yet"),
        ("held", "held: stamped over a day ahead"),
        ("carried", "carried for a newer version"),
        ("refused", "unreadable in the files as they are"),
    ):
        if found[key]:
            lines.append(f"{key:<12}{desk.counted(found[key], 'line')} {label}")
    lines += [f"stays here  a line of {w['path']} {w['reason']}" for w in found["withheld"]]
    if found["quarantined"]:
        lines.append(
            f"quarantine  {desk.counted(len(found['quarantined']), 'line')} in .fleet/quarantine/refused.jsonl"
        )
        lines += [
            f"            {q['path']}, line {q['line']}: {q['reason']}"
            for q in found["quarantined"][:QUARANTINED_SHOWN]
        ]
    lines.append(f"replicas    {desk.counted(len(found['replicas']), 'replica')} seen")
    lines += [
        f"            {r['replica']:<24} {r['last'][:16].replace('T', ' ') + 'Z' if r['last'] else '':<18} {r['where']}"
        for r in found["replicas"]
    ]
    return "\n".join(lines)
