"""What a person decides about an agent's memory: ``fleet promote``, ``fleet demote``."""

from typing import TYPE_CHECKING, Annotated, Any

import typer

from fleet.cli import desk, options

if TYPE_CHECKING:
    from fleet.keep.notebook import Notebook
    from fleet.keep.workspace import Workspace
    from fleet.reflect.promoting import Standing

WAITING_SHOWN = 20
LEFT_SHOWN = 5


def register(app: typer.Typer) -> None:
    """Add the commands of this module."""
    app.command()(promote)
    app.command()(demote)


def promote(
    pattern: options.PatternId,
    instead_of: Annotated[
        list[str] | None,
        typer.Option("--instead-of", metavar="ID", help="A lesson that leaves the memory for it; may be repeated."),
    ] = None,
    agent: options.Agent = "",
    as_json: options.Json = False,
    directory: options.Directory = "",
) -> None:
    """Take a lesson into an agent's memory, which it reads at the start of every session."""
    from fleet.keep import merging
    from fleet.keep.notebook import as_text
    from fleet.learn import corrections
    from fleet.reflect import promoting

    with desk.opened(directory) as workspace:
        # What the logs owe goes first: the stamp of this edit is then larger than all that was read.
        held = corrections.settle_all(workspace)
        with workspace.writing(desk.agent_in(workspace, agent)) as writer:
            inside = promoting.standing(workspace, writer.agent).lessons
            leaving = [_in_memory(prefix, inside) for prefix in instead_of or []]
            line = merging.whole(held.notebook, desk.find(held.notebook, pattern).id)
            done = promoting.promote(
                writer,
                line,
                promoting.records_of(held.notebook),
                right=as_text(line.set.get("correct")),
                instead_of=leaving,
            )
            held.notebook.add_all(done.lines)
        [promoted] = done.promoted
        stands = promoting.standing(workspace, writer.agent)
        if as_json:
            told = {"id": promoted.id, "promoted": True, "reason": promoted.reason, "evidence": promoted.evidence}
            desk.say_json(told | {"instead_of": leaving, "memory": desk.cleaned(as_found(stands))})
            return
        desk.say(f"{promoted.id} is in {writer.agent}'s memory: {desk.cleaned(promoted.text)}")
        if leaving:
            desk.say(f"instead of {', '.join(leaving)}")
        desk.say(f"`fleet demote {promoted.id}` takes it out again")


def demote(
    pattern: options.PatternId,
    agent: options.Agent = "",
    as_json: options.Json = False,
    directory: options.Directory = "",
) -> None:
    """Take a lesson out of an agent's memory. It does not come back by itself; `fleet promote` brings it back."""
    from fleet.keep import merging
    from fleet.keep.errors import NoError
    from fleet.learn import corrections
    from fleet.reflect import promoting

    with desk.opened(directory) as workspace:
        held = corrections.settle_all(workspace)
        with workspace.writing(desk.agent_in(workspace, agent)) as writer:
            inside = promoting.standing(workspace, writer.agent).lessons
            try:
                first = _in_memory(pattern, inside)  # a memory may hold a lesson that this clan does not know
            except NoError:
                first = desk.find(held.notebook, pattern).id
            done = promoting.demote(
                writer, list(dict.fromkeys([first, *merging.group_of(held.notebook, first)])), held.notebook.get
            )
            held.notebook.add_all(done.lines)
        if as_json:
            stands = promoting.standing(workspace, writer.agent)
            desk.say_json({"id": first, "demoted": True, "memory": desk.cleaned(as_found(stands))})
        else:
            desk.say(
                f"{first} is out of {writer.agent}'s memory, and stays out\n`fleet promote {first}` brings it back"
            )


def _in_memory(prefix: str, inside: "tuple[str, ...]") -> str:
    """Return the lesson of a memory that the beginning of an id names."""
    from fleet.keep.errors import NoError

    wanted = prefix if prefix.startswith("p-") else f"p-{prefix}"
    found = [each for each in inside if each.startswith(wanted)] if len(wanted) > len("p-") else []
    if len(found) == 1:
        return found[0]
    if found:
        raise NoError(f"{prefix[:40]} is not unique: {', '.join(found[:5])}. Give more of the id")
    listed = f"it holds {', '.join(inside)}" if inside else "it holds no lesson"
    raise NoError(f"no lesson in memory.md begins with {prefix[:40]!r}: {listed}. Nothing was changed")


def standing(workspace: "Workspace", agent: str, notebook: "Notebook") -> dict[str, Any]:
    """Return how an agent's memory stands, as ``fleet status --json`` shows it."""
    from fleet.cli.remembering import lesson_of
    from fleet.reflect import promoting, retiring

    lesson = lesson_of(notebook)
    left = [each._asdict() for each in retiring.left(workspace, agent) if retiring.is_retired(lesson(each.id))]
    return as_found(promoting.standing(workspace, agent)) | {"left": left}


def as_found(stands: "Standing") -> dict[str, Any]:
    """Return how a memory stands, as JSON shows it."""
    return {
        "chars": stands.chars,
        "chars_max": stands.chars_max,
        "lessons": list(stands.lessons),
        "waiting": [each._asdict() for each in stands.waiting],
        "trouble": stands.trouble,
    }


def as_lines(memory: dict[str, Any]) -> list[str]:
    """Return the same for a person."""
    if not memory:
        return []
    size = f"{memory['chars']:,} of {memory['chars_max']:,} characters"
    lines = [f"memory      {desk.counted(len(memory['lessons']), 'lesson')}, {size}"]
    if memory["trouble"]:
        lines.append(f"            {memory['trouble']}")
    lines += [
        f"            waits: {one['text']} ({one['evidence']}; {one['id']}): {one['why']}"
        for one in memory["waiting"][:WAITING_SHOWN]
    ]
    if (more := len(memory["waiting"]) - WAITING_SHOWN) > 0:
        lines.append(f"            and {more:,} more wait")
    return lines + _left(memory["left"])


def _left(left: list[dict[str, str]]) -> list[str]:
    """Say what the clan took out, newest first, and how to keep it."""
    lines = [
        f"            left {each['at'][:10]}: {each['text']} ({each['id']})" for each in left[: -LEFT_SHOWN - 1 : -1]
    ]
    if (more := len(left) - LEFT_SHOWN) > 0:
        lines.append(f"            and {more:,} more left: --json")
    if lines:
        first = left[-1]["id"]
        lines.append(
            f"            The clan retired what left. `fleet restore {first}`, then `fleet promote {first}`, keeps it "
            "for all; your own words under ## Notes stay for this agent"
        )
    return lines
