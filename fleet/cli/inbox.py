"""Commands about what waits for a person's decision, and about whose word counts: inbox, review, block."""

import os
import sys
import termios
import tty
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Annotated, Any

import typer

from fleet.app import inbox, reviewing
from fleet.app.inbox import Listing
from fleet.app.reviewing import Asked, Changes, Waiting
from fleet.cli import output
from fleet.model.errors import FleetError, UsageError
from fleet.reflect.inbox import KINDS, PAIRS, Decision, Entry, Inboxes
from fleet.store.workspace import Workspace
from fleet.text.screening import counted, one_line

app = output.commands()

_APPROVE, _REJECT = "approve", "reject"
_CAUGHT_UP = "all caught up: nothing waits for a decision"
_DIFF_LINES = 12
_EVIDENCE_MAX = 10
_ROW_CHARS_MAX = 500
_END = frozenset(("q", "\x03", "\x04", "\x1b"))
_KEYS = {"y": (_APPROVE, ""), "n": (_REJECT, "")}
_HOLDS = {"1": (_APPROVE, "first"), "2": (_APPROVE, "second"), "b": (_REJECT, "")}
_QUESTION = "  y yes   n no   d the whole diff   space later   u undo   q quit"
_WHICH = "  1 the first holds   2 the second   b both, each in its own context   space later   u undo   q quit"


@app.command("inbox")
def _inbox(
    action: Annotated[
        str,
        typer.Argument(
            metavar="[approve|reject]",
            help="Without it: what waits, a key each.",
            autocompletion=lambda: [_APPROVE, _REJECT],
        ),
    ] = "",
    ids: Annotated[
        list[str] | None,
        typer.Argument(
            metavar="[ID...]",
            help="Of items; i-...",
            autocompletion=output.completing(
                lambda workspace, _: [(each.item.id, each.item.title) for each in Inboxes(workspace).waiting()]
            ),
        ),
    ] = None,
    kind: Annotated[
        str,
        typer.Option(
            "--all",
            metavar="KIND",
            help="All that wait of a kind; 'every': of all.",
            autocompletion=lambda: ["every", *KINDS],
        ),
    ] = "",
    why: Annotated[str, typer.Option("--why", help="Why not; whoever proposes it again is told.")] = "",
    answer: Annotated[str, typer.Option("--answer", help="Of a contradiction: which holds, first or second.")] = "",
    agent: output.Agent = "",
    as_json: output.Json = False,
) -> None:
    """Decide what waits for you: skills, promotions, pairs, observations. Each is shown with evidence and diff."""
    with output.opened() as workspace:
        if not action:
            shown = inbox.listing(workspace, "" if kind == "every" else kind, agent, count=0 if kind else 7)
            _show(workspace, shown, agent, as_json=as_json)
            return
        if action not in (_APPROVE, _REJECT) or bool(ids) == bool(kind):
            raise UsageError(
                "say `fleet inbox`, `fleet inbox approve ID`, `fleet inbox reject ID --why ...`, or one of them with "
                "--all KIND; nothing was changed"
            )
        who = output.agent_in(workspace, agent)
        every = () if ids else inbox.listing(workspace, "" if kind == "every" else kind, count=0).entries
        wanted = ids or [each.item.id for each in every]
        done, failed = list[Decision](), list[FleetError]()
        for each in wanted:
            try:
                decide = inbox.approve if action == _APPROVE else inbox.reject
                done.append(decide(workspace, who, each, answer or why))
            except FleetError as no:
                if ids and len(ids) == 1:
                    raise
                failed.append(no)
        _tell(done, failed, as_json=as_json)
        if failed:
            raise typer.Exit(failed[0].exit_code)


def _tell(done: list[Decision], failed: list[FleetError], *, as_json: bool) -> None:
    found = [{"id": each.id, "said": each.outcome, "did": each.did, "run": each.run} for each in done]
    rows = [] if done or failed else [_CAUGHT_UP]
    for each in done:
        undo = f"; `fleet undo {each.run}` takes it back" if each.run and "` undoes it" not in each.did else ""
        rows.append(f"{each.id} {each.outcome}: {each.did}{undo}")
    output.tell({"decided": found, "failed": [str(each) for each in failed]}, rows, as_json=as_json)
    for no in [] if as_json else failed:
        output.note(str(no))


def _show(workspace: Workspace, shown: Listing, agent: str, *, as_json: bool) -> None:
    if as_json:
        rows = [_as_json(workspace, each) for each in shown.entries]
        expired = [each.item.id for each in shown.expired]
        output.say_json({"waiting": rows, "total": shown.total, "since": shown.since, "expired": expired})
        return
    for each in shown.expired:
        output.say(f"dropped, since nobody decided it by {each.last_day()}: {_head(each)}")
    if not shown.entries:
        output.say(_CAUGHT_UP)
    elif sys.stdin.isatty() and sys.stdout.isatty():
        _decide_each(workspace, output.agent_in(workspace, agent), list(shown.entries))
    else:
        for each in shown.entries:
            output.say("\n".join(_rows(workspace, each)))
        more = f"; {shown.total - len(shown.entries):,} more wait" if shown.total > len(shown.entries) else ""
        first = shown.entries[0].item.id
        output.note(f"decide each: fleet inbox approve {first}, or fleet inbox reject {first} --why ...{more}")


def _as_json(workspace: Workspace, entry: Entry) -> dict[str, object]:
    said = {name: getattr(entry.item, name) for name in ("id", "kind", "title", "evidence", "weight", "run", "session")}
    found = {"agent": entry.agent, "diff": inbox.diff_of(workspace, entry)}
    return said | found | {"since": entry.item.at, "until": entry.last_day()}


def _head(entry: Entry) -> str:
    return f"{entry.item.id}  {entry.item.kind} for {entry.agent}, since {entry.item.at[:10]}: {entry.item.title}"


def _rows(workspace: Workspace, entry: Entry, diff_lines: int = _DIFF_LINES) -> list[str]:
    """Return what a person needs for a decision: what it is, what speaks for it, what it changes, until when."""
    rows = [_head(entry), *(f"    · {one_line(each)}" for each in entry.item.evidence[:_EVIDENCE_MAX])]
    diff = [f"    {row}" for row in inbox.diff_of(workspace, entry).splitlines()]
    rows += diff[:diff_lines]
    if len(diff) > diff_lines:
        rows.append(f"    ... {len(diff) - diff_lines:,} more lines")
    if day := entry.last_day():
        rows.append(f"    dropped after {day}, if nobody decides it")
    return [str(output.cleaned(row))[:_ROW_CHARS_MAX] for row in rows]


@contextmanager
def _key_by_key() -> Iterator[None]:
    """Let the terminal hand over each key without a line end; one that was pressed early is kept."""
    before = termios.tcgetattr(sys.stdin)
    tty.setcbreak(sys.stdin, termios.TCSADRAIN)
    try:
        yield
    finally:
        termios.tcsetattr(sys.stdin, termios.TCSADRAIN, before)


def _read_key() -> str:
    """Return the key that a person presses; the end of the input quits."""
    return os.read(sys.stdin.fileno(), 1).decode("latin-1").lower() or "q"


@_key_by_key()
def _decide_each(workspace: Workspace, agent: str, entries: list[Entry]) -> None:
    """Ask about one after the other, a key each. What was decided stays, whenever they stop."""
    done: list[tuple[int, Decision]] = []
    at, diff_lines = 0, _DIFF_LINES
    while at < len(entries):
        entry = entries[at]
        keys, question = (_HOLDS, _WHICH) if entry.item.kind == "contradiction" else (_KEYS, _QUESTION)
        output.say("\n".join([f"{at + 1} of {len(entries):,}", *_rows(workspace, entry, diff_lines), question]))
        pressed, diff_lines = _read_key(), _DIFF_LINES
        if pressed in _END:
            break
        if pressed == "u" and done:
            at, last = done.pop()
            output.say(f"  {inbox.undo(workspace, last)}")
        elif pressed == "d":
            diff_lines = 10_000
        elif pressed in keys:
            action, answer = keys[pressed]
            try:
                decide = inbox.approve if action == _APPROVE else inbox.reject
                done.append((at, decide(workspace, agent, entry.item.id, answer)))
                output.say(f"  {done[-1][1].did}")
            except FleetError as no:  # not true any more, or changed just now
                output.say(f"  {no}")
            at += 1
        elif pressed in (" ", "\r", "\n"):
            at += 1
    output.say(f"{counted(len(done), 'decision')} made")
    if not Inboxes(workspace).waiting():
        output.say(_CAUGHT_UP)


# --- pairs of lessons -------------------------------------------------------------------------------------------------


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
            done = [_answered(workspace, who, each) for each in answers]
            output.tell({"answered": done}, [each["told"] for each in done], as_json=as_json)
            return
        pairs, held = reviewing.asked(workspace), reviewing.waiting(workspace)
        if as_json:
            told = [*(each.as_json() for each in held), *map(_pair_as_json, pairs)]
            output.say_json({"pairs": told})
            return
        for each in held:
            output.say("\n".join(_held_rows(each)))
        if held and not pairs:
            return
        if pairs and sys.stdin.isatty() and sys.stdout.isatty():
            shown = [each for each in inbox.listing(workspace, count=0).entries if each.item.kind in PAIRS]
            _decide_each(workspace, output.agent_in(workspace, agent), shown)
        else:
            _list(pairs)


def _answered(workspace: Workspace, agent: str, given: str) -> dict[str, str]:
    pair, separator, said = given.partition("=")
    if not separator:
        raise UsageError(f"--answer takes PAIR=ANSWER, not {given[:80]!r}")
    named, told = reviewing.answer(workspace, agent, pair, said)
    return {"pair": named, "said": said, "told": told}


def _pair_as_json(asked: Asked) -> dict[str, Any]:
    lessons = [{"id": each.id, "text": each.text, "seen": each.count("seen")} for each in (asked.one, asked.other)]
    found = {"pair": asked.pair, "kind": asked.kind, "lessons": lessons, "differs": list(asked.differs)}
    return found | {"answers": list(reviewing.ANSWERS[asked.kind])}


def _held_rows(held: Waiting) -> list[str]:
    """Return a question about what is left out here, as it is answered by its name."""
    shown = held.lessons[: reviewing.SHOWN_MAX]
    more = len(held.lessons) - len(shown)
    return [
        f"{held.name}  {held.summary}",
        *(f"  {each}  {text}" for each, text in shown),
        *([f"  and {more:,} more: --json"] if more else []),
        f"  left out here until you say: fleet review --answer {held.name}={'|'.join(reviewing.ANSWERS_TO_LEFT_OUT)}",
    ]


def _list(pairs: list[Asked]) -> None:
    for each in pairs:
        output.say("\n".join([f"{each.pair}  {each.kind}", *each.rows()]))
    if pairs:
        said = "|".join(reviewing.ANSWERS[pairs[0].kind])
        output.note(f"answer each: fleet review --answer {pairs[0].pair}={said}")
    else:
        output.say("no pair waits for an answer")


# --- blocking ---------------------------------------------------------------------------------------------------------

Name = Annotated[str, typer.Argument(metavar="AGENT|REPLICA", help="An agent, or one replica: <agent>.<8 hex digits>.")]


@app.command("block")
def _block(
    name: Name,
    since: Annotated[
        str, typer.Option("--since", metavar="TIME", help="What the branch held before still counts: 2026-11-20.")
    ] = "",
    dry_run: output.DryRun = False,
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
        output.tell(_block_as_json(done, dry_run=dry_run), _block_rows(done, dry_run=dry_run), as_json=as_json)


@app.command("unblock")
def _unblock(name: Name, as_json: output.Json = False) -> None:
    """Let a writer count again that was blocked here."""
    with output.opened() as workspace:
        done = reviewing.unblock(workspace, name)
        told = (
            f"{name} counts again: {counted(len(done.gone), 'lesson')} back, {len(done.other):,} read or count "
            f"otherwise, {counted(done.discoveries, 'discovery', 'discoveries')}"
        )
        output.tell(_block_as_json(done, dry_run=False), told, as_json=as_json)


def _block_rows(done: Changes, *, dry_run: bool) -> list[str]:
    since = f" since {done.since[:16]}Z" if done.since else ""
    found = counted(done.discoveries, "discovery", "discoveries")
    rows = [
        f"{done.name} would be blocked here{since}; nothing was changed"
        if dry_run
        else f"{done.name} is blocked here{since}; `fleet unblock {done.name}` undoes it",
        f"  {counted(len(done.gone), 'lesson')} out, {len(done.other):,} read or count otherwise, {found} out",
        *(f"    {each}  {text}" for each, text in list(done.gone.items())[: reviewing.SHOWN_MAX]),
    ]
    if (more := len(done.gone) - reviewing.SHOWN_MAX) > 0:
        rows.append(f"    and {more:,} more: --json")
    verb = "would leave" if dry_run else "left"
    rows += [f"  {verb} {agent}'s memory.md: {row}" for agent, _, row in done.left]
    rows += [
        f"  stays in {agent}'s memory.md by a person's yes: {row}\n    `fleet demote {each}` takes it out"
        for agent, each, row in done.kept
    ]
    if done.retired:
        rows.append(f"  {counted(len(done.retired), 'lesson')} retired for everybody; the next `fleet sync` says so")
    return rows


def _block_as_json(done: Changes, *, dry_run: bool) -> dict[str, Any]:
    found = {"dry_run": dry_run, "lessons": [{"id": each, "text": text} for each, text in done.gone.items()]}
    kept = [{"agent": agent, "id": each, "row": row} for agent, each, row in done.kept]
    same = {name: getattr(done, name) for name in ("name", "since", "discoveries", "retired")}
    left = [each._asdict() for each in done.left]
    return found | same | {"changed": done.other, "left": left, "approved": kept}
