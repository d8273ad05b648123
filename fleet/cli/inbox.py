"""Commands for a person's decisions: the inbox, pairs of lessons to review, runs to take back, writers to block."""

import os
import sys
import termios
import tty
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from typing import Annotated, Any

import typer

from fleet.app import inbox, reviewing, undoing
from fleet.app.finding import lesson_as_json
from fleet.app.inbox import Listing
from fleet.app.reviewing import Changes, Pair, Question
from fleet.app.undoing import History, Undone
from fleet.cli import output
from fleet.cli.output import argument, flag, option
from fleet.model.errors import DiskError, FleetError, UsageError
from fleet.reflect.inbox import KINDS, PAIRS, Decision, Entry, Inbox
from fleet.store.runs import Run
from fleet.store.workspace import Workspace
from fleet.text.screening import counted, listed, one_line, shortened

app = output.commands()

_APPROVE, _REJECT = "approve", "reject"
_DECIDE = {_APPROVE: inbox.approve, _REJECT: inbox.reject}
_KINDS = ("every", *KINDS)
_ITEMS = output.completing(lambda on, _: [(each.item.id, each.item.title) for each in Inbox(on).waiting()])
_RUNS = output.completing(lambda on, _: [(each.id, each.summary) for each, _ in History(on).listed()])
_CAUGHT_UP = "all caught up: nothing waits for a decision"
_DIFF_LINES = 12
_EVIDENCE_MAX = 10
_ROW_CHARS_MAX = 500
_LISTED = 20
_SUBJECT_CHARS = 120
_END = frozenset(("q", "\x03", "\x04", "\x1b"))
_KEYS = {"y": (_APPROVE, ""), "n": (_REJECT, "")}
_HOLDS = {"1": (_APPROVE, "first"), "2": (_APPROVE, "second"), "b": (_REJECT, "")}
_QUESTION = "  y yes   n no   space later   u undo   q quit"
_QUESTION_OF_A_PART = "  y yes   n no   d the whole diff   space later   u undo   q quit"
_WHICH = "  1 the first holds   2 the second   b both, each in its own context   space later   u undo   q quit"


@app.command("inbox")
def _inbox(
    action: Annotated[str, argument("[approve|reject]", "Without it: ask about each item that waits.", _DECIDE)] = "",
    ids: Annotated[list[str] | None, argument("[ID...]", "Ids of items, i-...", _ITEMS)] = None,
    kind: Annotated[str, option("--all", "KIND", "All items of a kind; 'every': of every kind.", _KINDS)] = "",
    why: Annotated[str, option("--why", "TEXT", "Why it is rejected; shown to whoever proposes it again.")] = "",
    answer: Annotated[str, option("--answer", "TEXT", "Which lesson of a contradiction holds: first, second.")] = "",
) -> None:
    """Decide what needs your yes: skills, promotions, pairs, observations. Each is shown with evidence and diff."""
    with output.opened() as workspace:
        of_kind, whose = "" if kind == "every" else kind, output.chosen.agent
        if not action:
            _show(workspace, inbox.listing(workspace, of_kind, whose, count=0 if kind else 7))
            return
        if action not in _DECIDE or bool(ids) == bool(kind):
            raise UsageError(
                "name the items: `fleet inbox approve ID`, `fleet inbox reject ID --why ...`, or one of them with "
                "--all KIND; `fleet inbox` lists what waits. Nothing was changed"
            )
        if answer if action == _REJECT else why:
            raise UsageError(
                "--answer goes with approve, and --why with reject: `fleet inbox approve ID --answer first` retires a "
                "second lesson, and `fleet inbox reject ID` keeps both. Nothing was changed"
            )
        who = output.agent_in(workspace)
        item_ids = ids or [each.item.id for each in inbox.listing(workspace, of_kind, whose, count=0).entries]
        decisions, failed = list[Decision](), list[FleetError]()
        for id_ in item_ids:
            try:
                decisions.append(_DECIDE[action](workspace, who, id_, answer or why))
            except FleetError as error:
                if ids and len(ids) == 1:
                    raise
                failed.append(error)
        _show_decided(decisions, failed)
        if failed:
            raise typer.Exit(failed[0].exit_code)


def _show_decided(decisions: list[Decision], failed: list[FleetError]) -> None:
    decided = [{"id": each.id, "said": each.outcome, "did": each.did, "run": each.run} for each in decisions]
    rows = [] if decisions or failed else [_CAUGHT_UP]
    for decision in decisions:
        run, did = decision.run, decision.did[:_ROW_CHARS_MAX]
        undo = f"; `fleet undo {run}` takes it back" if run and "` undoes it" not in did else ""
        rows.append(f"{decision.id} {decision.outcome}: {did}{undo}")
    output.show({"decided": decided, "failed": [str(each) for each in failed]}, rows)
    for error in failed:
        output.hint(str(error))


def _show(workspace: Workspace, listing: Listing) -> None:
    if output.chosen.as_json:
        items = [_as_json(workspace, each) for each in listing.entries]
        expired = [each.item.id for each in listing.expired]
        dropped = [each.dropped() for each in listing.expired]
        document = {"waiting": items, "total": listing.total, "since": listing.since}
        output.echo_json(document | {"expired": expired, "dropped": dropped})
        return
    for entry in listing.expired:
        output.echo(f"dropped, since nobody decided it in time: {entry.item.id}  {entry.dropped()}")
        _note_shown(workspace, entry)
    if not listing.entries:
        left = f"{counted(listing.to_state, 'correction')} without a lesson: fleet learn --waiting"
        if not workspace.agents_here() and (pairs := len(reviewing.undecided_pairs(workspace))):  # nobody has an inbox
            output.echo(
                f"no agent is named here, so nobody has an inbox; {counted(pairs, 'pair')} of lessons: fleet review"
            )
        else:
            output.echo(f"nothing waits for a decision; {left}" if listing.to_state else _CAUGHT_UP)
    elif sys.stdin.isatty() and sys.stdout.isatty():
        _decide_each(workspace, output.agent_in(workspace), list(listing.entries))
    else:
        for entry in listing.entries:
            output.echo("\n".join(_rows(workspace, _note_shown(workspace, entry))))
        more = f"; {listing.total - len(listing.entries):,} more wait" if listing.total > len(listing.entries) else ""
        first = listing.entries[0].item
        yes = f"{first.id} --answer first|second" if first.kind == "contradiction" else first.id
        output.note(f"decide each: fleet inbox approve {yes}, or fleet inbox reject {first.id} --why ...{more}")


def _note_shown(workspace: Workspace, entry: Entry) -> Entry:
    """Note that a person is shown an item, and return it with its last day. A pipe does not count: agents read it."""
    if sys.stdout.isatty() and not workspace.is_read_only:
        with suppress(DiskError):
            Inbox(workspace).show([entry])
            return entry._replace(shown=entry.shown or workspace.wall())
    return entry


def _as_json(workspace: Workspace, entry: Entry) -> dict[str, object]:
    item = {name: getattr(entry.item, name) for name in ("id", "kind", "title", "evidence", "weight", "run", "session")}
    more = {"agent": entry.agent, "diff": inbox.diff_of(workspace, entry)}
    return item | more | {"since": entry.item.at, "until": entry.last_day()}


def _rows(workspace: Workspace, entry: Entry, diff_lines: int = _DIFF_LINES) -> list[str]:
    """Return what a person needs for a decision: the item, its evidence, its diff, and its last day."""
    item = entry.item
    rows = [f"{item.id}  {item.kind} for {entry.agent}, since {item.at[:10]}: {item.title}"]
    rows += [f"    · {one_line(each)}" for each in item.evidence[:_EVIDENCE_MAX]]
    diff = [f"    {row}" for row in inbox.diff_of(workspace, entry).splitlines()]
    rows += diff[:diff_lines]
    if len(diff) > diff_lines:
        rows.append(f"    ... {counted(len(diff) - diff_lines, 'more line')}")
    if day := entry.last_day():
        rows.append(f"    dropped after {day}, if nobody decides it or edits the draft")
    return [str(output.cleaned(row))[:_ROW_CHARS_MAX] for row in rows]


@contextmanager
def _key_by_key() -> Iterator[None]:
    """Let the terminal hand over each key at once, without a line end; keys that were pressed early are kept."""
    before = termios.tcgetattr(sys.stdin)
    tty.setcbreak(sys.stdin, termios.TCSADRAIN)
    try:
        yield
    finally:
        termios.tcsetattr(sys.stdin, termios.TCSADRAIN, before)


@_key_by_key()
def _decide_each(workspace: Workspace, agent: str, entries: list[Entry]) -> None:
    """Ask about each item in turn, a key for each. Decisions that were made stay when the person quits."""
    decisions: list[tuple[int, Decision]] = []
    index, diff_lines = 0, _DIFF_LINES
    while index < len(entries):
        entry = entries[index] = _note_shown(workspace, entries[index])
        is_cut = len(inbox.diff_of(workspace, entry).splitlines()) > diff_lines
        keys, question = _KEYS, _QUESTION_OF_A_PART if is_cut else _QUESTION
        if entry.item.kind == "contradiction":
            keys, question = _HOLDS, _WHICH
        output.echo("\n".join([f"{index + 1} of {len(entries):,}", *_rows(workspace, entry, diff_lines), question]))
        pressed = os.read(sys.stdin.fileno(), 1).decode("latin-1").lower() or "q"  # at the end of the input
        diff_lines = _DIFF_LINES
        if pressed in _END:
            break
        if pressed == "u" and decisions:
            index, last = decisions.pop()
            output.echo(f"  {inbox.undo(workspace, last)}")
            entries[index] = entries[index]._replace(shown="")  # it waits again, as one that was never shown
        elif pressed == "d":
            diff_lines = 10_000
        elif pressed in keys:
            action, answer = keys[pressed]
            try:
                decisions.append((index, _DECIDE[action](workspace, agent, entry.item.id, answer)))
                output.echo(f"  {decisions[-1][1].did}")
            except FleetError as error:  # the item is outdated, or was changed just now
                output.echo(f"  {error}")
            index += 1
        elif pressed in (" ", "\r", "\n"):
            index += 1
        else:
            output.echo(f"  {pressed!r} answers nothing here")
    output.echo(f"{counted(len(decisions), 'decision')} made")
    if not Inbox(workspace).waiting():
        output.echo(_CAUGHT_UP)


# --- pairs of lessons -------------------------------------------------------------------------------------------------


@app.command("review")
def _review(
    answers: Annotated[
        list[str] | None,
        option(
            "--answer",
            "PAIR=ANSWER",
            "same or different; of a contradiction first, second, both or same; of what others did take, leave "
            "or ask again. May be repeated.",
        ),
    ] = None,
) -> None:
    """Decide pairs of lessons: whether two close ones are one, and which of two contradicting ones holds."""
    with output.opened() as workspace:
        if answers:
            who = output.agent_in(workspace)
            answered = [_answered(workspace, who, each) for each in answers]
            output.show({"answered": answered}, [each["told"] for each in answered])
            return
        pairs, left_out = reviewing.undecided_pairs(workspace), reviewing.questions(workspace)
        questions = [*(each.as_json() for each in left_out), *map(_pair_as_json, pairs)]
        output.show({"pairs": questions}, ("\n".join(_left_out_rows(each)) for each in left_out))
        if output.chosen.as_json or (left_out and not pairs):
            return
        if pairs and sys.stdin.isatty() and sys.stdout.isatty():
            shown = [each for each in inbox.listing(workspace, count=0).entries if each.item.kind in PAIRS]
            _decide_each(workspace, output.agent_in(workspace), shown)
        else:
            _list(pairs)


def _answered(workspace: Workspace, agent: str, argument: str) -> dict[str, str]:
    pair, separator, answer = argument.partition("=")
    if not separator:
        raise UsageError(f"--answer takes PAIR=ANSWER, not {argument[:80]!r}")
    with workspace.lock("decide"):
        name, message = reviewing.answer(workspace, agent, pair, answer)
    return {"pair": name, "said": answer, "told": message}


def _pair_as_json(pair: Pair) -> dict[str, Any]:
    shown = (lesson_as_json(each) for each in (pair.one, pair.other))
    lessons = [{name: each[name] for name in ("id", "text", "seen", "who", "changed")} for each in shown]
    document = {"pair": pair.name, "kind": pair.kind, "lessons": lessons, "differs": list(pair.differs)}
    return document | {"answers": list(reviewing.ANSWERS[pair.kind])}


def _left_out_rows(question: Question) -> list[str]:
    """Return the rows of a question about what is left out here, with the command that answers it."""
    answers = "|".join(reviewing.ANSWERS_TO_LEFT_OUT)
    return [
        f"{question.name}  {question.summary}",
        *_some([f"  {each.id}  {each.in_one_line()}" for each in question.lessons], reviewing.SHOWN_MAX),
        f"  left out here until you answer: fleet review --answer {question.name}={answers}",
    ]


def _list(pairs: list[Pair]) -> None:
    for pair in pairs:
        rows = (f"  {number}  {row}" for number, row in enumerate(pair.rows(), 1))
        output.echo("\n".join([f"{pair.name}  {pair.kind}", *rows]))
    if pairs:
        answers = "|".join(reviewing.ANSWERS[pairs[0].kind])
        output.note(f"answer each: fleet review --answer {pairs[0].name}={answers}")
    else:
        output.echo("no pair waits for an answer")


# --- taking back ------------------------------------------------------------------------------------------------------


@app.command("undo")
def _undo(
    run: Annotated[
        str | None, argument("[RUN]", "A run's id; none: the last command here, of the agent that is named.", _RUNS)
    ] = None,
    is_listing: Annotated[bool, flag("--list", "List the runs that can be taken back.")] = False,
    everything: Annotated[bool, flag("--all", "With --list: all of them.")] = False,
) -> None:
    """Take back the last command, or any run of fleet's own. What a person wrote since stays; undo it to redo."""
    if (is_listing and run is not None) or (everything and not is_listing):
        raise UsageError("--list takes no run, and --all belongs to --list; nothing was changed")
    with output.opened() as workspace:
        if is_listing:
            _list_runs(workspace, everything=everything)
            return
        named = (
            run if run is not None else _agreed(workspace, History(workspace).last_command(output.chosen.agent_named()))
        )
        with output.progress("Taking back"):
            undone = undoing.undo(workspace, named)
        document = undone._asdict() | {"run": undone.run.id, "kind": undone.run.kind, "told": undone.run.summary}
        output.show(document, _undone_rows(undone))


def _agreed(workspace: Workspace, last: Run) -> str:
    """Return the id of the last command's run. If its undo takes a discovery back for good, a person must agree."""
    if gone := [each for each in last.lessons if each.startswith("d-")]:
        is_alone = len(gone) == len(last.lessons) == 1
        what = one_line(History(workspace).subject(last)) if is_alone else ""
        what = what or counted(len(gone), "discovery", "discoveries")
        question = f"Take back for good: {shortened(what, _SUBJECT_CHARS)}?"
        if not output.can_ask():
            named = f"`fleet undo {last.id}` takes it back"
            raise UsageError(f"{question} No terminal to ask on, so nothing was changed. {named}")
        output.confirm(question, yes=False)
    return last.id


def _list_runs(workspace: Workspace, *, everything: bool) -> None:
    runs, documents, rows = History(workspace).listed(), [], []
    for run, undone_by in runs if everything else runs[:_LISTED]:
        subject = History(workspace).subject(run)
        document = {name: getattr(run, name) for name in ("id", "kind", "agent", "at")}
        files = [edit.path for edit in run.edits]
        documents.append(document | {"told": run.summary, "about": subject, "files": files, "undone_by": undone_by})
        text = ": ".join(filter(None, (run.summary, shortened(one_line(subject), _SUBJECT_CHARS))))
        who = run.agent not in ("", workspace.default_agent()) and f" ({run.agent})"
        rows.append(
            f"{run.id:<26}  {output.when(run.at)}  {text}{who or ''}{undone_by and f'  (taken back by {undone_by})'}"
        )
    rows += [f"and {len(runs) - len(documents):,} older; --all lists them"] if len(runs) > len(documents) else []
    output.show({"runs": documents, "total": len(runs)}, rows or "no run is noted here yet")


def _undone_rows(undone: Undone) -> list[str]:
    rows = [f"taken back: {undone.run.id}: {undone.run.summary or undone.run.kind}"]
    rows += [f"  {path} is as it was" for path in undone.restored]
    rows += [f"  {path} keeps what was written since; the run's own lines are out" for path in undone.merged]
    rows += _some([f"  {each}" for each in undone.did])
    rows += _some([f"  left: {each}" for each in undone.left])
    stated = undone.run.lessons
    gone = [each for each in stated if each.startswith("d-")]  # a discovery does not come back
    if len(gone) < len(stated) or undone.run.fields or not gone:
        but = f"all but {listed(gone)}" if gone else "it"
        rows.append(f"`fleet undo {undone.undone_by}` redoes {but}")
    return rows


def _some(rows: list[str], most: int = _LISTED) -> list[str]:
    more = len(rows) - most
    return [*rows[:most], f"  ... and {more:,} more: --json names them"] if more > 0 else rows


# --- blocking ---------------------------------------------------------------------------------------------------------

Name = Annotated[str, argument("AGENT|REPLICA", "An agent, or one replica: <agent>.<8 hex digits>.")]


@app.command("block")
def _block(
    name: Name,
    since: Annotated[str, option("--since", "TIME", "What the branch held before still counts: 2026-11-20.")] = "",
    dry_run: output.DryRun = False,
    retire: Annotated[
        bool, flag("--retire", "Retire for the whole clan, too, what that writer alone had said.")
    ] = False,
) -> None:
    """Leave a writer's lessons, counts, edits and removes out here. Memories and pages follow at once.

    Nothing that is pushed changes, and `fleet unblock` undoes it. What a person had approved stays, and is listed.
    """
    with output.acting() as (workspace, who):
        changes = reviewing.block(workspace, who, name, since=since, dry_run=dry_run, retire=retire)
        output.show(_block_as_json(changes, dry_run=dry_run), _block_rows(changes, dry_run=dry_run))


@app.command("unblock")
def _unblock(name: Name) -> None:
    """Count again what a blocked writer wrote."""
    with output.opened() as workspace:
        changes = reviewing.unblock(workspace, name)
        text = (
            f"{name} counts again; back: {counted(len(changes.gone), 'lesson')}, "
            f"{counted(changes.discoveries, 'discovery', 'discoveries')}; changed: {len(changes.other):,}"
        )
        output.show(_block_as_json(changes, dry_run=False), text)


def _block_rows(changes: Changes, *, dry_run: bool) -> list[str]:
    since = f" since {changes.since[:16]}Z" if changes.since else ""
    entries = counted(changes.discoveries, "discovery")
    rows = [
        f"{changes.name} would be blocked here{since}; nothing was changed"
        if dry_run
        else f"{changes.name} is blocked here{since}; `fleet unblock {changes.name}` undoes it",
        f"  left out: {counted(len(changes.gone), 'lesson')}, {entries}; changed: {len(changes.other):,}",
        *_some([f"    {each}  {text}" for each, text in changes.gone.items()], reviewing.SHOWN_MAX),
        *_some([f"    {each.id}  {each.in_one_line()}" for each in changes.differences], reviewing.SHOWN_MAX),
    ]
    rows += [f"  {'would leave' if dry_run else 'left'} {agent}'s memory.md: {row}" for agent, _, row in changes.left]
    rows += [
        f"  stays in {agent}'s memory.md by a person's yes: {row}\n    `fleet demote {each}` takes it out"
        + f"; `fleet promote {each}` then takes it in as it reads without {changes.name}" * (each not in changes.gone)
        for agent, each, row in changes.kept
    ]
    if changes.retired:
        how = "would be retired for everybody" if dry_run else "retired for everybody; the next `fleet sync` says so"
        rows.append(f"  {counted(len(changes.retired), 'lesson')} {how}")
    return rows


def _block_as_json(changes: Changes, *, dry_run: bool) -> dict[str, Any]:
    lessons = [{"id": id_, "text": text} for id_, text in changes.gone.items()]
    same = {name: getattr(changes, name) for name in ("name", "since", "discoveries", "retired")}
    parts: dict[str, Any] = {"differences": changes.differences, "left": changes.left, "approved": changes.kept}
    document = {"dry_run": dry_run, "lessons": lessons, **same, "changed": changes.other}
    return document | {name: [each._asdict() for each in part] for name, part in parts.items()}
