"""What agents type: log a correction, log a discovery, read at the start of a session."""

from typing import Annotated

import typer

from fleet.cli import desk, options


def register(app: typer.Typer) -> None:
    """Add the commands of this module."""
    app.command()(correct)
    app.command()(discover)
    app.command()(gossip)
    app.command()(start)


def correct(
    wrong: Annotated[str, typer.Option("--wrong", help="What went wrong.")],
    right: Annotated[str, typer.Option("--right", help="The correct approach.")],
    pattern: Annotated[str, typer.Option("--pattern", help="The lesson, so that it helps elsewhere.")],
    title: Annotated[str, typer.Option("--title", help="A heading; else the beginning of --wrong.")] = "",
    source: Annotated[str, typer.Option("--source", help="Who or what told: a person, a build, yourself.")] = "",
    told_by: Annotated[str, typer.Option("--from", metavar="AGENT", help="The agent that corrected you.")] = "",
    same: Annotated[str, typer.Option("--same", metavar="ID", help="Count it as this existing pattern.")] = "",
    category: Annotated[str, typer.Option("--category", help="What it is about: one word or two.")] = "",
    tag: Annotated[list[str] | None, typer.Option("--tag", help="May be given several times.")] = None,
    session: options.Session = "",
    agent: options.Agent = "",
    directory: options.Directory = "",
    as_json: options.Json = False,
) -> None:
    """Log one correction: durable before this returns."""
    from fleet.keep import names
    from fleet.keep.errors import UsageError
    from fleet.learn.corrections import Correction
    from fleet.learn.corrections import correct as log

    if told_by and not names.is_agent(told_by):
        raise UsageError(f"--from {told_by[:40]!r} is no agent's name; nothing was logged")
    with desk.opened(directory) as workspace:
        if same:
            same = desk.find(workspace.load().notebook, same).id
        heard = " — ".join(filter(None, [told_by, source]))
        told = Correction(wrong, right, pattern, title, heard, category, tuple(tag or ()))
        logged = log(workspace, desk.agent_in(workspace, agent), told, session=desk.session_named(session), same=same)
        if as_json:
            near = [{"id": n.id, "text": n.text, "score": n.score, "verdict": n.verdict} for n in logged.near]
            known = {"near": desk.cleaned(near)} if near else {}
            desk.say_json({"id": logged.id, "seen": logged.seen, "text": logged.text} | known)
        else:
            desk.say(f"{logged.id} seen {desk.counted(logged.seen, 'time')}: {logged.text}")
            for close in logged.near:
                desk.say(_as_near(logged.id, close.id, desk.cleaned(close.text), is_same=close.verdict == "same"))
        if logged.secrets:
            desk.note(f"a secret was taken out ({', '.join(logged.secrets)}); if it was a real one, rotate it")


def _as_near(logged: str, pattern: str, text: str, *, is_same: bool) -> str:
    if not is_same:
        return f"  differs from {pattern}: {text}"
    return f"  close to {pattern}: {text} (same lesson? fleet merge {pattern} {logged}; next time say --same {pattern})"


def discover(
    problem: Annotated[str, typer.Option("--problem", help="What was found.")],
    solution: Annotated[str, typer.Option("--solution", help="What to do about it.")],
    context: Annotated[str, typer.Option("--context", help="Where it holds.")] = "",
    type_: Annotated[
        str, typer.Option("--type", metavar="TYPE", help="discovery, gotcha, tip or workaround.")
    ] = "discovery",
    confidence: Annotated[str, typer.Option("--confidence", metavar="LEVEL", help="low, medium or high.")] = "medium",
    minutes: Annotated[int | None, typer.Option("--minutes", help="What it cost; a workaround needs over 15.")] = None,
    tag: Annotated[list[str] | None, typer.Option("--tag", help="May be given several times.")] = None,
    agent: options.Agent = "",
    directory: options.Directory = "",
    as_json: options.Json = False,
) -> None:
    """Log a non-obvious finding for the whole clan. No routine fixes, no secrets."""
    from fleet.learn.discoveries import Finding
    from fleet.learn.discoveries import discover as log

    with desk.opened(directory) as workspace:
        told = Finding(problem, solution, context, type_, confidence, minutes, tag or [])
        entry, is_new = log(workspace, desk.agent_in(workspace, agent), told)
        if as_json:
            desk.say_json({"id": entry.id, "new": is_new})
        else:
            desk.say(f"{entry.id} {'logged' if is_new else 'is known already'}: {entry.problem}")


def gossip(
    count: Annotated[int, typer.Option("-n", "--count", min=1, help="How many.")] = 20,
    as_json: options.Json = False,
    directory: options.Directory = "",
) -> None:
    """Show the newest discoveries of the whole clan."""
    from fleet.recall.gossip import render_gossip

    with desk.opened(directory) as workspace:
        findings = workspace.load().findings
        if as_json:
            desk.say_json({"discoveries": [_as_found(entry) for entry in reversed(findings.newest(count))]})
        else:
            desk.say(render_gossip(findings, count, members=desk.emoji_of(workspace)).rstrip())


def _as_found(entry: object) -> object:
    import msgspec

    return desk.cleaned(msgspec.to_builtins(entry))


def start(
    as_json: options.Json = False,
    agent: options.Agent = "",
    session: options.Session = "",  # noqa: ARG001 - hosts pass it; what was shown when is kept from a later version on
    directory: options.Directory = "",
) -> None:
    """Print what an agent reads when its session starts."""
    from fleet.cli.wiring import session_start

    with desk.opened(directory) as workspace:
        context = session_start(workspace, desk.agent_in(workspace, agent))
        if as_json:
            desk.say_json({"context": context})
        else:
            desk.say(context)
