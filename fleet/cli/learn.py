"""What agents type once a signal was logged: state what it teaches."""

from typing import TYPE_CHECKING, Annotated

import typer

from fleet.cli import desk, options

if TYPE_CHECKING:
    from fleet.keep.workspace import Workspace


def register(app: typer.Typer) -> None:
    """Add the command of this module."""
    app.command()(learn)


def learn(
    correction: Annotated[
        str, typer.Argument(metavar="[ID]", help="A correction's id, c-...; a unique beginning is enough.")
    ] = "",
    pattern: Annotated[str, typer.Option("--pattern", help="The lesson, so that it helps elsewhere.")] = "",
    right: Annotated[str, typer.Option("--right", help="The correct approach.")] = "",
    same: Annotated[str, typer.Option("--same", metavar="ID", help="Count it as this existing pattern.")] = "",
    waiting: Annotated[bool, typer.Option("--waiting", help="List what waits for its lesson.")] = False,
    session: options.Session = "",
    agent: options.Agent = "",
    directory: options.Directory = "",
    as_json: options.Json = False,
) -> None:
    """State what a logged signal teaches: from then on it counts like any correction."""
    from fleet.cli.acts import promoted_at_once, say_logged
    from fleet.keep.errors import UsageError
    from fleet.keep.view import glance
    from fleet.learn import filling

    with desk.opened(directory) as workspace:
        who = desk.agent_in(workspace, agent)
        if waiting:
            if correction or pattern or right or same:
                raise UsageError("--waiting lists, and takes nothing else; nothing was logged")
            # Only a session that is named here narrows the list: what another one left behind waits, too.
            _list(workspace, who, session, as_json=as_json)
            return
        if not correction:
            raise UsageError("name the correction: `fleet learn --waiting` lists those that wait for their lesson")
        if not pattern and not same:
            raise UsageError(
                "state the lesson: --pattern '...', or --same ID when it is known already. Nothing was logged"
            )
        if same:
            same = desk.find(glance(workspace).notebook, same).id
        session = desk.session_named(session)
        done = filling.fill(workspace, who, correction, pattern, right, same=same, session=session)
        more = {"entry": done.entry}
        if promoted := promoted_at_once(workspace, who, done.logged):
            more["promoted"] = promoted
        say_logged(done.logged, more, as_json=as_json)


def _list(workspace: "Workspace", agent: str, session: str, *, as_json: bool) -> None:
    from fleet.learn import signals

    found = signals.waiting(workspace, agent, session)
    if as_json:
        desk.say_json({"waiting": [desk.cleaned({"id": w.id, "when": w.when, "title": w.title}) for w in found]})
        return
    for each in found:
        desk.say(f"{each.id}  {each.when or 'no date':<17}  {desk.cleaned(each.title)}")
    if found:
        desk.note(f'state each: fleet learn {found[0].id} --pattern "..."')
    else:
        desk.say("no correction waits for its lesson")
