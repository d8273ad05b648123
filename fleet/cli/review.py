"""Commands about which words count: pairs of lessons (``fleet review``), and writers who are blocked here."""

import sys
from typing import Annotated, Any

import typer

from fleet.app import inbox, reviewing
from fleet.app.reviewing import Answered, Asked, Changes, Waiting
from fleet.cli import output
from fleet.cli.inbox import decide_each
from fleet.cli.output import counted
from fleet.model.errors import UsageError
from fleet.model.pattern import Pattern
from fleet.recall.wording import author, edits
from fleet.reflect.inbox import PAIRS
from fleet.store.workspace import Workspace

app = output.commands()


@app.command("review")
def _review(
    answers: Annotated[
        list[str] | None,
        typer.Option(
            "--answer",
            metavar="PAIR=ANSWER",
            help="same or different; of a contradiction first, second or both; of what others did take, leave "
            "or ask again. May be repeated.",
        ),
    ] = None,
    agent: output.Agent = "",
    as_json: output.Json = False,
) -> None:
    """Decide which close lessons are one, and which of two that contradict each other holds: a key for each pair."""
    with output.opened() as workspace:
        if answers:
            who = output.agent_in(workspace, agent)
            _tell_answered([_answered(workspace, who, each) for each in answers], as_json=as_json)
            return
        pairs, held = reviewing.asked(workspace), reviewing.waiting(workspace)
        if as_json:
            told = [*map(reviewing.as_json, held), *map(_as_json, pairs)]
            output.say_json({"pairs": output.cleaned(told)})
            return
        for each in held:
            output.say("\n".join(_held_rows(each)))
        if held and not pairs:
            return
        if pairs and sys.stdin.isatty() and sys.stdout.isatty():
            shown = inbox.listing(workspace, count=0).entries
            decide_each(
                workspace, output.agent_in(workspace, agent), [each for each in shown if each.item.kind in PAIRS]
            )
        else:
            _list(pairs)


def _answered(workspace: Workspace, agent: str, given: str) -> Answered:
    pair, separator, said = given.partition("=")
    if not separator:
        raise UsageError(f"--answer takes PAIR=ANSWER, not {given[:80]!r}")
    return reviewing.answer(workspace, agent, pair, said)


def _tell_answered(done: list[Answered], *, as_json: bool) -> None:
    if as_json:
        output.say_json({"answered": [each._asdict() for each in done]})
        return
    for each in done:
        output.say(each.told)


def _as_json(asked: Asked) -> dict[str, object]:
    lessons = [{"id": each.id, "text": each.text, "seen": each.count("seen")} for each in (asked.one, asked.other)]
    return {
        "pair": asked.pair,
        "kind": asked.kind,
        "lessons": lessons,
        "differs": list(asked.differs),
        "answers": list(reviewing.ANSWERS[asked.kind]),
    }


def _held_rows(held: Waiting) -> list[str]:
    """Return a question about what is left out here, as it is answered by its name."""
    shown = held.lessons[: reviewing.SHOWN_MAX]
    more = len(held.lessons) - len(shown)
    return [
        f"{held.name}  {held.told}",
        *(f"  {each}  {output.cleaned(text)}" for each, text in shown),
        *([f"  and {more:,} more: --json"] if more else []),
        f"  left out here until you say: fleet review --answer {held.name}={'|'.join(reviewing.ANSWERS_TO_LEFT_OUT)}",
    ]


def _list(pairs: list[Asked]) -> None:
    for each in pairs:
        output.say("\n".join([f"{each.pair}  {each.kind}", *_rows(each)]))
    if pairs:
        said = "|".join(reviewing.ANSWERS[pairs[0].kind])
        output.note(f"answer each: fleet review --answer {pairs[0].pair}={said}")
    else:
        output.say("no pair waits for an answer")


def _rows(asked: Asked) -> list[str]:
    return [
        f"  {number}  {output.cleaned(each.text)}  ({_filed(each)}; {each.id})"
        for number, each in enumerate((asked.one, asked.other), 1)
    ]


def _filed(each: Pattern) -> str:
    told = [author(each.by, {}), f"seen {each.count('seen'):,}", edits(each, {})]
    return str(output.cleaned(", ".join(filter(None, told))))


# --- blocking ---------------------------------------------------------------------------------------------------------

Name = Annotated[str, typer.Argument(metavar="AGENT|REPLICA", help="An agent, or one replica: <agent>.<8 hex digits>.")]


@app.command("block")
def _block(
    name: Name,
    since: Annotated[
        str, typer.Option("--since", metavar="TIME", help="What the branch held before still counts: 2026-11-20.")
    ] = "",
    dry_run: Annotated[bool, typer.Option("--dry-run", help="Show what would change; change nothing.")] = False,
    retire: Annotated[
        bool, typer.Option("--retire", help="Retire for the whole clan, too, what that writer alone had said.")
    ] = False,
    agent: output.Agent = "",
    as_json: output.Json = False,
) -> None:
    """Leave out here what a writer said: lessons, counts, edits, removes. Memories and pages follow at once.

    Nothing that is pushed changes, and `fleet unblock` undoes it. What a person had approved stays, and is listed.
    """
    with output.opened() as workspace:
        who = output.agent_in(workspace, agent)
        done = reviewing.block(workspace, who, name, since=since, dry_run=dry_run, retire=retire)
        if as_json:
            output.say_json(output.cleaned(_block_as_json(done, dry_run=dry_run)))
            return
        for row in _block_rows(done, dry_run=dry_run):
            output.say(row)


@app.command("unblock")
def _unblock(name: Name, as_json: output.Json = False) -> None:
    """Let a writer count again that was blocked here."""
    with output.opened() as workspace:
        done = reviewing.unblock(workspace, name)
        if as_json:
            output.say_json(output.cleaned(_block_as_json(done, dry_run=False)))
            return
        output.say(
            f"{name} counts again: {counted(len(done.gone), 'lesson')} back, {len(done.other):,} read or count "
            f"otherwise, {counted(done.discoveries, 'discovery', 'discoveries')}"
        )


def _block_rows(done: Changes, *, dry_run: bool) -> list[str]:
    since = f" since {done.since[:16]}Z" if done.since else ""
    rows = [
        f"{done.name} would be blocked here{since}; nothing was changed"
        if dry_run
        else f"{done.name} is blocked here{since}; `fleet unblock {done.name}` undoes it",
        _sum_of(done),
        *(f"    {each}  {output.cleaned(text)}" for each, text in list(done.gone.items())[: reviewing.SHOWN_MAX]),
    ]
    if (more := len(done.gone) - reviewing.SHOWN_MAX) > 0:
        rows.append(f"    and {more:,} more: --json")
    verb = "would leave" if dry_run else "left"
    rows += [f"  {verb} {agent}'s memory.md: {output.cleaned(row)}" for agent, _, row in done.left]
    rows += [
        f"  stays in {agent}'s memory.md by a person's yes: {output.cleaned(row)}\n"
        f"    `fleet demote {each}` takes it out"
        for agent, each, row in done.kept
    ]
    if done.retired:
        rows.append(f"  {counted(len(done.retired), 'lesson')} retired for everybody; the next `fleet sync` says so")
    return rows


def _sum_of(done: Changes) -> str:
    found = counted(done.discoveries, "discovery", "discoveries")
    return f"  {counted(len(done.gone), 'lesson')} out, {len(done.other):,} read or count otherwise, {found} out"


def _block_as_json(done: Changes, *, dry_run: bool) -> dict[str, Any]:
    return {
        "name": done.name,
        "since": done.since,
        "dry_run": dry_run,
        "lessons": [{"id": each, "text": text} for each, text in done.gone.items()],
        "changed": done.other,
        "discoveries": done.discoveries,
        "left": [{"agent": agent, "id": each, "row": row} for agent, each, row in done.left],
        "approved": [{"agent": agent, "id": each, "row": row} for agent, each, row in done.kept],
        "retired": list(done.retired),
    }
