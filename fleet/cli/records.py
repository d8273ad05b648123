"""Commands about what was done here: ``fleet records`` shows passes that reflected, ``fleet undo`` takes a run back."""

from pathlib import Path
from typing import Annotated

from fleet.app import finding, session_end, undoing
from fleet.app.undoing import Undone
from fleet.cli import output
from fleet.cli.output import argument, flag, option
from fleet.model.errors import NoError, UsageError
from fleet.reflect.records import Pass, Record, Records
from fleet.store.runs import Run
from fleet.text.screening import one_line, shortened

app = output.commands()

_SHOW = "show"
_GONE = 3
_LISTED = 20
_SUBJECT_CHARS = 120


@app.command("records")
def _records(
    action: Annotated[str, argument("[show]", "Show one pass; without it: list the newest.")] = "",
    number: Annotated[int, argument("[N]", "Its number in the list.")] = 0,
    since: Annotated[str, option("--since", "DATE", "From this day on, YYYY-MM-DD.")] = "",
) -> None:
    """Show what each reflection and each night's tidying did, what it cost, and why it saved nothing."""
    first = finding.first_stamp(since)
    if action not in ("", _SHOW) or (action == _SHOW) != (number > 0):
        raise UsageError("usage: `fleet records`, or `fleet records show N`")
    with output.acting(or_guest=True) as (workspace, who):
        passes = Records(workspace, who).passes()
        if number:
            if number > len(passes):
                raise NoError(f"{who} has no record {number}; `fleet records` lists them")
            _show(passes[number - 1])
            return
        recent = [each for each in reversed(passes) if each.record.at >= first]
        deferred, interrupted = Records(workspace, who).deferred(), Records(workspace, who).interrupted()
        document = {
            "records": [_as_json(each) for each in recent],
            "deferred": [{"session": each.session, "at": each.at, "why": each.why} for each in deferred],
            "interrupted": [{"session": each.session, "at": each.at, "usd": each.usd} for each in interrupted],
        }
        output.show(document, _listed(recent, deferred, interrupted, since))


def _as_json(pass_: Pass) -> dict[str, object]:
    record = pass_.record
    more = {"number": pass_.number, "usd": pass_.usd, "undone": pass_.undone, "saved": record.saved}
    return record.as_json(with_raw=False) | more | {"told": record.summary()}


def _listed(passes: list[Pass], deferred: list[Record], interrupted: list[Record], since: str) -> list[str]:
    rows = [_row(each) for each in (passes if since else passes[:_LISTED])]
    if len(passes) > _LISTED and not since:
        rows.append(f"and {len(passes) - _LISTED:,} older; --since DATE lists them")
    rows += [f"deferred: session {late.session or '?'}, since {late.at[:10]}: {late.why}" for late in deferred]
    rows += [
        f"not finished: session {each.session or '?'}, since {output.when(each.at)}, ${each.usd or 0.0:.2f} reserved: "
        "another process works on it, or it was killed and the next `fleet sleep` goes on"
        for each in interrupted
    ]
    return rows or ["no session was reflected on yet"]


def _row(pass_: Pass) -> str:
    record = pass_.record
    by = " ".join(filter(None, (record.reflector, record.model)))
    what = f"{record.kind} {record.outcome}".strip() + (f" by {by}" if by else "")
    state = f"  (undone {output.when(pass_.undone)})" if pass_.undone else ""
    cost = f", ${pass_.usd:.2f}" if pass_.usd is not None else ", cost not known" if record.kind == "reflection" else ""
    return f"{pass_.number:>4}  {output.when(record.at)}  {what}{cost}: {record.summary()}{state}"


def _show(pass_: Pass) -> None:
    record, drawn = pass_.record, session_end.cited_lines(pass_.record)
    tokens = f"{record.tokens_in:,} tokens read, {record.tokens_out:,} written, {record.duration_s:.1f} s"
    rows = [_row(pass_), f"  run {record.run}, session {record.session or '?'} of {record.host or '?'}; {tokens}"]
    rows += [f"  left out: {record.left_out}"] if record.left_out else []
    rows += [f"  {record.why}"] if record.why and record.why not in record.summary() else []
    for writer in record.writers:
        ids = f": {', '.join(writer.ids)}" if writer.ids else ""
        rows.append(f"  {writer.name}: {writer.count}{ids}{f'; failed: {writer.error}' if writer.error else ''}")
        rows += [f"    not {why}" for why in writer.skipped]
    if record.drawn:
        is_there = Path(record.transcript).expanduser().is_file()
        how = ":" if drawn else ", which has none of those lines any more" if is_there else ", which is gone"
        rows.append(f"  drawn from {record.transcript}{how}")
        rows += [f"    {number:>6}  {text}" for number, text in drawn]
    rows += ["  answer:", *(f"    {row}" for row in record.raw.splitlines())] if record.raw else []
    lines = [{"line": number, "text": text} for number, text in drawn]
    output.show(_as_json(pass_) | {"raw": record.raw, "drawn_lines": lines}, rows)


@app.command("undo")
def _undo(
    run: Annotated[
        str | None,
        argument(
            "[RUN]",
            "A run's id; none: the last command here.",
            autocompletion=output.completing(
                lambda workspace, _: [(each.id, each.summary) for each, _ in undoing.listed(workspace)]
            ),
        ),
    ] = None,
    is_listing: Annotated[bool, flag("--list", "List the runs that can be taken back.")] = False,
    everything: Annotated[bool, flag("--all", "With --list: all of them.")] = False,
) -> None:
    """Take back the last command, or any run of fleet's own. What a person wrote since stays; undo it to redo."""
    if (is_listing and run is not None) or (everything and not is_listing):
        raise UsageError("--list takes no run, and --all belongs to --list; nothing was changed")
    with output.opened() as workspace:
        if is_listing:
            runs = undoing.listed(workspace)
            listed = runs if everything else runs[:_LISTED]
            _list_runs(listed, [undoing.subject_text(workspace, run) for run, _ in listed], len(runs))
            return
        with output.progress("Taking back"):
            undone = undoing.undo(workspace, run)
        document = undone._asdict() | {"run": undone.run.id, "kind": undone.run.kind, "told": undone.run.summary}
        output.show(document, _undone_rows(undone))


def _list_runs(runs: list[tuple[Run, str]], subjects: list[str], total: int) -> None:
    documents, rows = [], []
    for (run, undone_by), subject in zip(runs, subjects, strict=True):
        document = {name: getattr(run, name) for name in ("id", "kind", "agent", "at")}
        files = [edit.path for edit in run.edits]
        documents.append(document | {"told": run.summary, "about": subject, "files": files, "undone_by": undone_by})
        text = ": ".join(filter(None, (run.summary, shortened(one_line(subject), _SUBJECT_CHARS))))
        rows.append(f"{run.id:<26}  {output.when(run.at)}  {text}{undone_by and f'  (taken back by {undone_by})'}")
    rows += [f"and {total - len(runs):,} older; --all lists them"] if total > len(runs) else []
    output.show({"runs": documents, "total": total}, rows or "no run is noted here yet")


def _undone_rows(undone: Undone) -> list[str]:
    rows = [f"taken back: {undone.run.id}: {undone.run.summary or undone.run.kind}"]
    rows += [f"  {path} is as it was" for path in undone.restored]
    rows += [f"  {path} keeps what was written since; the run's own lines are out" for path in undone.merged]
    rows += _some([f"  {each}" for each in undone.did])
    rows += _some([f"  left: {each}" for each in undone.left])
    stated = undone.run.lessons
    gone = [each for each in stated if each.startswith("d-")]  # a discovery does not come back
    if len(gone) < len(stated) or undone.run.fields or not gone:
        but = f"all but {', '.join(gone[:_GONE])}{', ...' * (len(gone) > _GONE)}" if gone else "it"
        rows.append(f"`fleet undo {undone.undone_by}` redoes {but}")
    return rows


def _some(rows: list[str]) -> list[str]:
    more = len(rows) - _LISTED
    return [*rows[:_LISTED], f"  ... and {more:,} more: --json names them"] if more > 0 else rows
