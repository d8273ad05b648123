"""Commands about what was done here: ``fleet records`` shows passes that reflected, ``fleet undo`` takes a run back."""

import re
from pathlib import Path
from typing import Annotated

import typer

from fleet.app import session_end, undoing
from fleet.app.undoing import Undone
from fleet.cli import output
from fleet.model.errors import NoError, UsageError
from fleet.reflect.records import Pass, Record, Records
from fleet.store.runs import Run
from fleet.text.screening import one_line

app = output.commands()

_SHOW = "show"
_LISTED = 20
_DAY = re.compile(r"[0-9]{4}-[0-9]{2}(?:-[0-9]{2})?")


@app.command("records")
def _records(
    action: Annotated[str, typer.Argument(metavar="[show]", help="Without it: the newest passes.")] = "",
    number: Annotated[int, typer.Argument(metavar="[N]", help="The number of one, as the list has it.")] = 0,
    since: Annotated[str, typer.Option("--since", metavar="DATE", help="From this day on, YYYY-MM-DD.")] = "",
    agent: output.Agent = "",
    as_json: output.Json = False,
) -> None:
    """Show what each reflection and each night's tidying did, what it cost, and why it saved nothing."""
    if since and not _DAY.fullmatch(since):
        raise UsageError(f"--since takes a day, such as 2026-11-20, not {since[:40]!r}")
    if action not in ("", _SHOW) or (action == _SHOW) != (number > 0):
        raise UsageError("say `fleet records`, or `fleet records show N`")
    with output.opened() as workspace:
        who = output.agent_in(workspace, agent, or_guest=True)
        passes = Records(workspace, who).passes()
        if number:
            if number > len(passes):
                raise NoError(f"{who} has no record {number}; `fleet records` lists them")
            _tell(passes[number - 1], as_json=as_json)
            return
        found = [each for each in reversed(passes) if each.record.at >= since]
        waits = Records(workspace, who).deferred()
        deferred = [{"session": each.session, "at": each.at, "why": each.why} for each in waits]
        told = {"records": [_as_json(each) for each in found], "deferred": deferred}
        output.tell(told, _listed(found, waits, since), as_json=as_json)


def _as_json(found: Pass) -> dict[str, object]:
    record = found.record
    more = {"number": found.number, "usd": found.usd, "undone": found.undone, "saved": record.saved}
    return record.as_found(with_raw=False) | more | {"told": record.summary()}


def _listed(found: list[Pass], waits: list[Record], since: str) -> list[str]:
    rows = [_row(each) for each in (found if since else found[:_LISTED])]
    if len(found) > _LISTED and not since:
        rows.append(f"and {len(found) - _LISTED:,} older; --since DATE lists them")
    rows += [f"deferred: session {late.session or '?'}, since {late.at[:10]}: {late.why}" for late in waits]
    return rows or ["no session was reflected on yet"]


def _row(found: Pass) -> str:
    record = found.record
    by = " ".join(filter(None, (record.reflector, record.model)))
    what = f"{record.kind} {record.outcome}".strip() + (f" by {by}" if by else "")
    state = f"  (undone {output.when(found.undone)})" if found.undone else ""
    cost = "cost not known" if found.usd is None else f"${found.usd:.2f}"
    return f"{found.number:>4}  {output.when(record.at)}  {what}, {cost}: {record.summary()}{state}"


def _tell(found: Pass, *, as_json: bool) -> None:
    record, drawn = found.record, session_end.drawn(found.record)
    lines = [{"line": at, "text": text} for at, text in drawn]
    tokens = f"{record.tokens_in:,} tokens read, {record.tokens_out:,} written, {record.duration_s:.1f} s"
    rows = [_row(found), f"  run {record.run}, session {record.session or '?'} of {record.host or '?'}; {tokens}"]
    rows += [f"  left out: {record.left_out}"] if record.left_out else []
    rows += [f"  {record.why}"] if record.why and record.why not in record.summary() else []
    for each in record.writers:
        ids = f": {', '.join(each.ids)}" if each.ids else ""
        rows.append(f"  {each.name}: {each.count}{ids}{f'; failed: {each.error}' if each.error else ''}")
        rows += [f"    not {why}" for why in each.skipped]
    if record.drawn:
        is_there = Path(record.transcript).expanduser().is_file()
        how = ":" if drawn else ", which has none of those lines any more" if is_there else ", which is gone"
        rows.append(f"  drawn from {record.transcript}{how}")
        rows += [f"    {at:>6}  {text}" for at, text in drawn]
    rows += ["  answer:", *(f"    {row}" for row in record.raw.splitlines())] if record.raw else []
    output.tell(_as_json(found) | {"raw": record.raw, "drawn_lines": lines}, rows, as_json=as_json)


@app.command("undo")
def _undo(
    run: Annotated[
        str | None,
        typer.Argument(
            metavar="[RUN]",
            help="A run's id; none: the last command here.",
            autocompletion=output.completing(
                lambda workspace, _: [(each.id, each.summary) for each, _ in undoing.listed(workspace)]
            ),
        ),
    ] = None,
    listing: Annotated[bool, typer.Option("--list", help="List the runs that can be taken back.")] = False,
    everything: Annotated[bool, typer.Option("--all", help="With --list: all of them.")] = False,
    as_json: output.Json = False,
) -> None:
    """Take back the last command, or any run of fleet's own. What a person wrote since stays; undo it to redo."""
    if listing and run is not None:
        raise UsageError("--list lists, and takes nothing else; nothing was changed")
    with output.opened() as workspace:
        if listing:
            found = undoing.listed(workspace)
            shown = found if everything else found[:_LISTED]
            _list_runs(shown, [undoing.about(workspace, each) for each, _ in shown], len(found), as_json=as_json)
            return
        with output.waiting("Taking back"):
            done = undoing.undo(workspace, run)
        told = done._asdict() | {"run": done.run.id, "kind": done.run.kind, "told": done.run.summary}
        output.tell(told, _undone_rows(done), as_json=as_json)


def _list_runs(found: list[tuple[Run, str]], about: list[str], total: int, *, as_json: bool) -> None:
    runs, rows = [], []
    for (each, undone_by), text in zip(found, about, strict=True):
        known = {"id": each.id, "kind": each.kind, "agent": each.agent, "at": each.at, "told": each.summary}
        runs.append(known | {"about": text, "files": [edit.path for edit in each.edits], "undone_by": undone_by})
        said = ": ".join(filter(None, (each.summary, one_line(text))))
        rows.append(f"{each.id:<26}  {output.when(each.at)}  {said}{undone_by and f'  (taken back by {undone_by})'}")
    rows += [f"and {total - len(found):,} older; --all lists them"] if total > len(found) else []
    output.tell({"runs": runs, "total": total}, rows or "no run is noted here yet", as_json=as_json)


def _undone_rows(done: Undone) -> list[str]:
    head = f"{done.run.id}: {done.run.summary or done.run.kind}"
    rows = [f"taken back: {head}"]
    rows += [f"  {path} is as it was" for path in done.restored]
    rows += [f"  {path} keeps what was written since; the run's own lines are out" for path in done.merged]
    rows += _some([f"  {each}" for each in done.did])
    rows += _some([f"  left: {each}" for each in done.left])
    if not any(each.startswith("d-") for each in done.run.lessons):  # a discovery does not come back
        rows.append(f"`fleet undo {done.undone_by}` does it again")
    return rows


def _some(rows: list[str]) -> list[str]:
    more = len(rows) - _LISTED
    return [*rows[:_LISTED], f"  ... and {more:,} more: --json names them"] if more > 0 else rows
