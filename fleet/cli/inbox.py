"""Command about everything that waits for a person's decision: ``fleet inbox``."""

import os
import sys
import termios
import tty
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Annotated

import typer

from fleet.app import inbox
from fleet.app.inbox import Listing
from fleet.cli import output
from fleet.model.errors import FleetError, UsageError
from fleet.reflect.inbox import KINDS, Decision, Entry, Inboxes
from fleet.store.workspace import Workspace
from fleet.text.screening import one_line

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
            autocompletion=output.completing(lambda workspace, _: _offers(workspace)),
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
        wanted = ids or _all_of(workspace, kind)
        done, failed = list[Decision](), list[FleetError]()
        for each in wanted:
            try:
                done.append(_decide(workspace, who, each, action, answer or why))
            except FleetError as no:
                if ids and len(ids) == 1:
                    raise
                failed.append(no)
        _tell(done, failed, as_json=as_json)
        if failed:
            raise typer.Exit(failed[0].exit_code)


def _offers(workspace: Workspace) -> list[output.Offer]:
    found = Inboxes(workspace).waiting()
    return [(each.item.id, output.cleaned(each.item.title)) for each in found]


def _all_of(workspace: Workspace, kind: str) -> list[str]:
    found = inbox.listing(workspace, "" if kind == "every" else kind, count=0)
    return [each.item.id for each in found.entries]


def _decide(workspace: Workspace, agent: str, prefix: str, action: str, more: str) -> Decision:
    if action == _APPROVE:
        return inbox.approve(workspace, agent, prefix, more)
    return inbox.reject(workspace, agent, prefix, more)


def _tell(done: list[Decision], failed: list[FleetError], *, as_json: bool) -> None:
    if as_json:
        rows = [{"id": each.id, "said": each.said, "did": each.did, "run": each.run} for each in done]
        output.say_json({"decided": output.cleaned(rows), "failed": output.cleaned([str(each) for each in failed])})
        return
    for each in done:
        undo = f"; `fleet undo {each.run}` takes it back" if each.run else ""
        output.say(output.cleaned(f"{each.id} {each.said}: {each.did}{undo}"))
    for no in failed:
        output.note(str(no))
    if not done and not failed:
        output.say(_CAUGHT_UP)


def _show(workspace: Workspace, shown: Listing, agent: str, *, as_json: bool) -> None:
    if as_json:
        rows = [_as_json(workspace, each) for each in shown.entries]
        output.say_json(
            output.cleaned({"waiting": rows, "total": shown.total, "since": shown.since})
            | {"expired": [each.item.id for each in shown.expired]}
        )
        return
    for each in shown.expired:
        output.say(output.cleaned(f"dropped, since nobody decided it by {each.last_day()}: {_head(each)}"))
    if not shown.entries:
        output.say(_CAUGHT_UP)
    elif sys.stdin.isatty() and sys.stdout.isatty():
        decide_each(workspace, output.agent_in(workspace, agent), list(shown.entries))
    else:
        for each in shown.entries:
            output.say("\n".join(_rows(workspace, each)))
        more = f"; {shown.total - len(shown.entries):,} more wait" if shown.total > len(shown.entries) else ""
        first = shown.entries[0].item.id
        output.note(f"decide each: fleet inbox approve {first}, or fleet inbox reject {first} --why ...{more}")


def _as_json(workspace: Workspace, entry: Entry) -> dict[str, object]:
    item = entry.item
    return {
        "id": item.id,
        "kind": item.kind,
        "agent": entry.agent,
        "title": item.title,
        "evidence": list(item.evidence),
        "weight": item.weight,
        "diff": inbox.diff_of(workspace, entry),
        "since": item.at,
        "until": entry.last_day(),
        "run": item.run,
        "session": item.session,
    }


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
def decide_each(workspace: Workspace, agent: str, entries: list[Entry]) -> None:
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
            output.say(f"  {output.cleaned(inbox.undo(workspace, last))}")
        elif pressed == "d":
            diff_lines = 10_000
        elif pressed in keys:
            action, answer = keys[pressed]
            try:
                done.append((at, _decide(workspace, agent, entry.item.id, action, answer)))
                output.say(f"  {output.cleaned(done[-1][1].did)}")
            except FleetError as no:  # not true any more, or changed just now
                output.say(f"  {output.cleaned(str(no))}")
            at += 1
        elif pressed in (" ", "\r", "\n"):
            at += 1
    output.say(f"{output.counted(len(done), 'decision')} made")
    if not Inboxes(workspace).waiting():
        output.say(_CAUGHT_UP)
