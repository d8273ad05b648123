"""What the commands do that agents and hosts type many times an hour, without what it takes to parse a command line.

``agents.py`` declares them for people: help, completion, errors. ``quick.py`` calls them straight from words that are
as they should be, since the parser takes longer to import than all of this takes to run.
"""

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from fleet.cli import desk

if TYPE_CHECKING:
    from fleet.keep.workspace import Workspace
    from fleet.learn.corrections import Logged


def correct(
    wrong: str,
    right: str,
    pattern: str,
    *,
    title: str = "",
    source: str = "",
    told_by: str = "",
    same: str = "",
    category: str = "",
    tag: Sequence[str] | None = None,
    session: str = "",
    agent: str = "",
    directory: str = "",
    as_json: bool = False,
) -> None:
    """Log one correction: durable before this returns."""
    from fleet.keep import names
    from fleet.keep.errors import UsageError
    from fleet.keep.view import glance
    from fleet.learn.corrections import Correction
    from fleet.learn.corrections import correct as log

    if told_by and not names.is_agent(told_by):
        raise UsageError(f"--from {told_by[:40]!r} is no agent's name; nothing was logged")
    with desk.opened(directory) as workspace:
        if same:
            same = desk.find(glance(workspace).notebook, same).id
        heard = " — ".join(filter(None, [told_by, source]))
        told = Correction(wrong, right, pattern, title, heard, category, tuple(tag or ()))
        named = desk.agent_in(workspace, agent)
        logged = log(workspace, named, told, session=desk.session_named(session), same=same)
        more: dict[str, Any] = {"echo": True} if logged.is_echo else {}
        if not logged.is_echo and (promoted := promoted_at_once(workspace, named, logged)):
            more["promoted"] = promoted
        say_logged(logged, more, as_json=as_json)


def promoted_at_once(workspace: "Workspace", agent: str, logged: "Logged") -> str:
    """Promote the lesson at once if this was the occurrence that it takes; return where it stands now, or ""."""
    settings = workspace.config.promotion
    if logged.seen < min(settings.own, settings.clan_seen):
        return ""
    from fleet.cli.remembering import promote_one

    return promote_one(workspace, agent, logged.id)


def say_logged(logged: "Logged", more: dict[str, Any], *, as_json: bool) -> None:
    """Tell what became of a correction, and which other patterns are close to it."""
    if as_json:
        near = [{"id": n.id, "text": n.text, "score": n.score, "verdict": n.verdict} for n in logged.near]
        known = {"near": desk.cleaned(near)} if near else {}
        desk.say_json({"id": logged.id, "seen": logged.seen, "text": logged.text} | more | known)
    else:
        desk.say(f"{logged.id} seen {desk.counted(logged.seen, 'time')}: {logged.text}")
        if logged.is_echo:
            desk.say("  an echo: this only repeats a lesson that you were shown. It counts for nothing")
        if "promoted" in more:
            desk.say(f"  promoted: it stands in {more['promoted']} from now on, and every session starts with it")
        for close in logged.near:
            desk.say(_as_near(logged.id, close.id, desk.cleaned(close.text), is_same=close.verdict == "same"))
    if logged.secrets:
        desk.note(f"a secret was taken out ({', '.join(logged.secrets)}); if it was a real one, rotate it")


def _as_near(logged: str, pattern: str, text: str, *, is_same: bool) -> str:
    if not is_same:
        return f"  differs from {pattern}: {text}"
    return f"  close to {pattern}: {text} (same lesson? fleet merge {pattern} {logged}; next time say --same {pattern})"


def sync(*, dry_run: bool = False, yes: bool = False, agent: str = "", directory: str = "") -> None:
    """Pull, join, push and render."""
    from fleet.cli import syncing

    syncing.sync(dry_run=dry_run, yes=yes, agent=agent, directory=directory)


def gossip(count: int = 20, *, as_json: bool = False, directory: str = "") -> None:
    """Show the newest discoveries of the whole clan."""
    from fleet.keep import view
    from fleet.recall.gossip import render_gossip

    with desk.opened(directory) as workspace:
        findings = view.findings(workspace)
        if as_json:
            desk.say_json({"discoveries": [_as_found(entry) for entry in reversed(findings.newest(count))]})
        else:
            desk.say(render_gossip(findings, count, members=desk.emoji_of(workspace)).rstrip())


def _as_found(entry: object) -> object:
    import msgspec

    return desk.cleaned(msgspec.to_builtins(entry))


def start(*, as_json: bool = False, agent: str = "", session: str = "", directory: str = "") -> None:
    """Print what an agent reads when its session starts. In a named session, what it was shown is remembered."""
    from fleet.recall import ready

    with desk.opened(directory) as workspace:
        named = desk.agent_in(workspace, agent)
        context = ready.text(str(workspace.root), named)
        if context is None:
            from fleet.cli.starting import session_start

            context = session_start(workspace, named, may_tidy=True)
        if told := desk.session_named(session):
            from fleet.keep import shown

            shown.note(workspace.root, named, told, ready.ids(context), workspace.world.wall_ms())
        if as_json:
            desk.say_json({"context": context})
        else:
            desk.say(context)
