"""Changing a lesson by hand: ``fleet edit``, and taking a discovery back."""

from typing import TYPE_CHECKING, Annotated, Any

import typer

from fleet.cli import desk, options

if TYPE_CHECKING:
    from fleet.keep.line import Line


def register(app: typer.Typer) -> None:
    """Add the commands of this module."""
    app.command()(edit)


def edit(
    pattern: options.PatternId,
    said: Annotated[
        list[str] | None, typer.Option("--set", metavar="FIELD=VALUE", help="May be given several times.")
    ] = None,
    agent: options.Agent = "",
    as_json: options.Json = False,
    directory: options.Directory = "",
) -> None:
    """Set fields of a lesson. Without --set: show who set what, and when."""
    from fleet.keep.view import glance
    from fleet.learn import corrections, editing

    changes = [editing.parse(each) for each in said or []]
    _check_triggers(changes)
    with desk.opened(directory) as workspace:
        if not changes:
            _tell(desk.find(glance(workspace).notebook, pattern), as_json=as_json)
            return
        # What the logs owe goes first: the stamp of this edit is then larger than all that was read.
        held = corrections.settle_all(workspace)
        with workspace.writing(desk.agent_in(workspace, agent)) as writer:
            line = desk.find(held.notebook, pattern)
            done = editing.apply(writer, line, changes)
        held.notebook.add_all(done)
        after = held.notebook.patterns[line.id]
        if as_json:
            _tell(after, as_json=True)
        else:
            told = ", ".join(sorted({field for delta in done for field in delta.set}))
            desk.say(f"{line.id} {f'edited: {told}' if told else 'says that already; nothing was changed'}")
        _note_what_follows(changes, editing.twins(changes, line, held.notebook))


def _check_triggers(changes: Any) -> None:
    """A trigger that fits nothing would never show the lesson, and nobody would know why."""
    from fleet.keep.errors import UsageError
    from fleet.recall import moments

    for change in changes:
        if change.field == "trigger" and change.value and not moments.parse(str(change.value)):
            raise UsageError(
                f"trigger={str(change.value)[:80]!r} fits no command and no edit; nothing was changed. Say for example "
                "trigger='Bash:git push*', 'Edit:*.sql' or 'mcp__github__*', several with commas between"
            )


def _note_what_follows(changes: Any, twins: list[str]) -> None:
    kinds = sorted({kind for change in changes for kind in change.secrets})
    if kinds:
        desk.note(f"a secret was taken out ({', '.join(kinds)}); if it was a real one, rotate it")
    if twins:
        desk.note(f"reads like {', '.join(twins[:5])} now; `fleet merge` makes them one")
    if any((change.field, change.value) == ("scope", "private") for change in changes):
        desk.note("nothing more of it leaves this machine; what was sent before stays with the clan")


def _tell(line: "Line", *, as_json: bool) -> None:
    from fleet.keep import screening
    from fleet.learn.editing import history

    fields = desk.cleaned(history(line))
    if as_json:
        desk.say_json({"id": line.id, "fields": fields})
        return
    desk.say(line.id)
    for field, told in fields.items():
        value = told["value"] if isinstance(told["value"], str) else desk.as_json(told["value"])
        when = f"set {told['at'][:16].replace('T', ' ')}Z by {told['by']}" if told["at"] else "as first logged"
        desk.say(f"  {field + ':':<12}{screening.one_line(value)}\n  {'':<12}{when}")
