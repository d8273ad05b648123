"""Commands of reflection and housekeeping: reflect on sessions, tidy, sleep, merge daily logs, and what each did."""

from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path
from typing import Annotated, Any

import msgspec
import typer

from fleet.app import consolidating, finding, session_end, sleeping, tidying
from fleet.app.consolidating import ConsolidationResult
from fleet.app.session_end import ReflectResult
from fleet.app.sleeping import Phase, Slept
from fleet.app.tidying import TidyResult
from fleet.app.writing import Plan
from fleet.cli import output, serve
from fleet.cli.output import EXIT_NO, EXIT_REFUSED, argument, echo, flag, note, option
from fleet.model.errors import BusyError, NoError, UsageError
from fleet.reflect import consolidation
from fleet.reflect.auto_reflect import READY
from fleet.reflect.consolidation import Gates
from fleet.reflect.housekeeping import DreamReport, Mode
from fleet.reflect.records import Pass, Record, Records
from fleet.store.workspace import Workspace
from fleet.text.screening import counted, for_terminal

app = output.commands()

_ROWS = 40
_PASSES = 20
_REPORT_CHARS_MAX = 256 * 1024


@app.command("reflect")
def _reflect(
    transcript: Annotated[Path | None, option("--transcript", "PATH", "Of the session, of any host.")] = None,
    last: Annotated[bool, flag("--last", "The newest session of this project.")] = False,
    since: Annotated[str, option("--all-since", "DAYS", "All sessions of the last days: 7d.")] = "",
    dry_run: Annotated[bool, flag("--dry-run", "Show what would be read and written, and what it may cost.")] = False,
    use: Annotated[str, option("--use", "NAME", "Reflector here from now on: claude, codex, gemini, or rules.")] = "",
    agrees: Annotated[bool, flag("--agree", "Agree that the reflector of fleet.toml may be asked.")] = False,
) -> bool:
    """Reflect on a session: write its lessons, notes and a skill where they belong. `fleet undo` takes it back."""
    wanted = output.chosen.session
    with output.acting() as (workspace, who):
        has_chosen, named = bool(use) or agrees, sum(map(bool, (transcript and not since, wanted, last, since)))
        if named > 1 or not (named or has_chosen):
            ways = "--last, --transcript PATH, --session ID, or --all-since 7d"
            raise UsageError(f"name a session in one way: {ways}. Nothing was done")
        if has_chosen:
            document = _choose(workspace, use, agrees=agrees)
            if not named:
                output.show(document)
                return True
        if transcript is not None and not (transcript.exists() if since else transcript.is_file()):
            raise UsageError(f"{transcript} is no file; nothing was done")
        if since:
            paths = [transcript] if transcript else []
            return _all(workspace, who, _days(since), paths, dry_run=dry_run) or has_chosen
        path = transcript or session_end.transcript_of(workspace, wanted)
        return _show([session_end.reflect(workspace, who, path, dry_run=dry_run, by_hand=True)]) or has_chosen


@app.command("done")
def _done() -> None:
    """End this session: reflect on it now, and add a block to the day's log. `/done` runs this."""
    with output.acting() as (workspace, who):
        if closing := session_end.done(workspace, who, output.chosen.session_named(), _show):
            note(closing)


def _choose(workspace: Workspace, use: str, *, agrees: bool) -> dict[str, object]:
    """Choose the reflector, or agree to the named one, and print that; return the outcome as a JSON document."""
    choice, agreed = session_end.Choice(workspace), list[str]()
    if use:
        choice.choose(use)
        limits = choice.settings
        costs = f", for at most ${limits.max_usd:g} a session and ${limits.daily_usd:g} a day" if use != "rules" else ""
        echo(f"{use} reflects on this machine from now on{costs}")
        if costs and (trouble := session_end.Choice(workspace).trouble):
            note(f"{trouble}: until that is mended, sessions wait")
    if agrees:
        agreed = choice.agree()
        echo(f"agreed: {for_terminal('; '.join(agreed))}" if agreed else "nothing waits for a yes")
    now = session_end.Choice(workspace)
    return {"reflector": now.named, "agreed": agreed, "trouble": now.trouble}


def _days(text: str) -> float:
    with suppress(ValueError):
        if (days := float(text.strip().removesuffix("d"))) > 0:
            return days
    raise UsageError(f"--all-since {text[:20]!r}: a number of days belongs there, such as 7d")


def _all(workspace: Workspace, agent: str, days: float, paths: list[Path], *, dry_run: bool) -> bool:
    history = session_end.history(workspace, agent, days, paths)
    for trouble in history.troubles:
        note(for_terminal(trouble))
    number, tokens = counted(len(history.waiting), "session"), sum(each.tokens for each in history.waiting)
    choice = session_end.Choice(workspace)
    by = "rules, since nobody here agreed to the reflector" if choice.unagreed() else choice.named
    cost = f"about {tokens:,} tokens, at most ${history.usd:.2f} with {by}"
    summary = f"{number} to reflect on, {history.done:,} reflected on earlier; {cost}"
    if dry_run:
        rows = [{"session": each.session, "at": each.at, "tokens": each.tokens} for each in history.waiting]
        output.show({"sessions": rows, "done": history.done, "tokens": tokens, "usd": history.usd}, summary)
        return False
    echo(summary)
    results: list[ReflectResult] = []
    with output.progress("Reflecting", len(history.waiting)) as step:
        for reflected in session_end.reflect_all(workspace, agent, history.waiting):
            results.append(reflected)
            step(reflected.session[:36])
    return _show(results, none="nothing was left to reflect on")


def _show(results: list[ReflectResult], none: str = "") -> bool:
    """Show what was reflected on; return whether any of it was saved."""
    rows = [none] if none and not results else [for_terminal(row) for each in results for row in _rows(each)]
    output.show([_as_json(each) for each in results], rows)
    # A pass that saved nothing has its reason in its row.
    saved = [each.record for each in results if each.record is not None and each.record.saved]
    for why in filter(None, dict.fromkeys(each.why for each in saved)):
        output.hint(for_terminal(why))
    return bool(saved)


def _rows(reflected: ReflectResult) -> Iterator[str]:
    record, plan = reflected.record, reflected.plan
    if record is None or plan is None or record.run:
        yield f"{reflected.session}: {reflected.summary()}"
    else:
        yield from _dry_rows(reflected.session, record, plan)
    if record is not None and record.run:
        undo = f"`fleet undo {record.run}` takes it back, " if record.saved else ""
        yield f"  {record.run}: {undo}`fleet records` shows it"


def _dry_rows(session: str, record: Record, plan: Plan) -> Iterator[str]:
    yield (
        f"{session} ({record.host}): {record.reflector} would read about {record.tokens_in:,} tokens, for at most "
        f"${record.usd or 0:.2f}. {record.left_out}".rstrip()
    )
    if record.why:
        yield f"  {record.why}"
    rows = [f"  lesson: {each.lesson.text}{f' (again {each.same})' if each.same else ''}" for each in plan.lessons]
    rows += [f"  file: {each.path}" for each in plan.edits]
    rows += [f"  waits in the inbox: {each.kind}: {each.title}" for each in plan.items]
    yield from ["by the rules alone, this would be kept:", *rows] if rows else ["  by the rules: nothing to keep"]


def _as_json(reflected: ReflectResult) -> dict[str, object]:
    document: dict[str, object] = {"session": reflected.session, "told": reflected.summary()}
    document["deferred"] = reflected.is_deferred
    if reflected.record is not None:
        document["record"] = reflected.record.as_json()
    if (plan := reflected.plan) is not None:
        planned = [(each.lesson, each.same) for each in plan.lessons]
        document["lessons"] = [{"text": one.text, "by": one.by, "line": one.line, "same": id_} for one, id_ in planned]
        document["files"] = [each.path for each in plan.edits]
        document["inbox"] = [{"kind": each.kind, "title": each.title} for each in plan.items]
    return document


# --- tidying, and sleep -----------------------------------------------------------------------------------------------


@app.command("tidy")
def _tidy(
    mode: Annotated[
        str, option("--mode", "MODE", "coordinated: when there is enough to do; always: now.")
    ] = Mode.COORDINATED.value,
    dry_run: output.DryRun = False,
    report: Annotated[
        typer.FileText | None,
        option("--report", "FILE", "The host's own organization report; - reads it from stdin.", errors="replace"),
    ] = None,
) -> bool:
    """Put an agent's notebook in order: dates, duplicates, contradictions, what is stale."""
    if mode not in set(Mode):
        raise UsageError(f"--mode is {' or '.join(Mode)}, not {mode[:40]!r}; nothing was changed")
    text = report.read(_REPORT_CHARS_MAX) if report else ""
    with output.acting() as (workspace, who):
        tidied = tidying.tidy(workspace, who, Mode(mode), dry_run=dry_run, report=text)
        if report is not None and tidied.report.dream_report_ingested is None:
            why = "was read before" if DreamReport.parse(text) else "has no `## Organization Report`"
            note(f"the report {why}, and counts for nothing")
        output.show(_tidied_as_json(tidied), _tidied_rows(tidied, dry_run=dry_run))
    has_read = tidied.report.dream_report_ingested is not None
    return bool(tidied.run or tidied.pending or tidied.report.dreamed_accepted or has_read)


def _tidied_as_json(tidied: TidyResult) -> dict[str, Any]:
    report: dict[str, Any] = msgspec.to_builtins(tidied.report)
    changes = [msgspec.to_builtins(each._asdict()) for each in tidied.plan.changes]
    report |= {"run": tidied.run, "waits": tidied.pending, "left": tidied.left, "changes": changes}
    return report | {"contradictions": tidied.plan.contradictions}


def _tidied_rows(tidied: TidyResult, *, dry_run: bool) -> list[str]:
    rows = [tidied.report.summary()]
    if tidied.report.dream_report_ingested is not None:
        host = tidied.report.dream_report_ingested
        counts = f"{host.consolidated:,} consolidated, {host.removed:,} removed, {host.reindexed:,} reindexed"
        rows.append(f"the host's own report: {counts}")
    if tidied.report.dreamed_accepted:
        rows.append(f"{counted(tidied.report.dreamed_accepted, 'fact')} of the host's memory: fleet inbox")
    if dry_run or tidied.left:
        diff = tidied.plan.diff()
        rows += diff[:_ROWS]
        rows += [f"... and {counted(len(diff) - _ROWS, 'line')} more: --json has all"] if len(diff) > _ROWS else []
    for one, other in tidied.plan.contradictions:
        rows.append(f"{one} and {other} contradict each other: fleet review, or fleet retire")
    if tidied.left:
        return [*rows, f"that is more than a run changes by itself; nothing was changed. {tidied.left}"]
    return rows + _ending(tidied.run, dry_run=dry_run)


def _ending(run: str, *, dry_run: bool) -> list[str]:
    """Return the last row: that a dry run changed nothing, or what takes a run back."""
    return ["nothing was changed"] if dry_run else [f"`fleet undo {run}` takes it back"] if run else []


@app.command("sleep")
def _sleep(
    dry_run: output.DryRun = False,
    only: Annotated[
        list[str] | None, option("--only", "PHASE", f"One phase, may be repeated: {', '.join(sleeping.PHASES)}.")
    ] = None,
    install_timer: Annotated[
        bool, flag("--install-timer", "Let systemd sleep once a day; with --dry-run, show the units.")
    ] = False,
    remove_timer: Annotated[bool, flag("--remove-timer", "Remove that timer.")] = False,
) -> bool:
    """Reflect, consolidate, tidy, publish, compact and render what waits, as one run."""
    if install_timer and remove_timer:
        raise UsageError("--install-timer or --remove-timer, not both; nothing was changed")
    with output.acting() as (workspace, who):
        if install_timer or remove_timer:
            serve.change_timer(workspace, who, remove=remove_timer, dry_run=dry_run)
            return True
        slept = sleeping.sleep(workspace, who, dry_run=dry_run, only=[*filter(None, only or ())])
        document = {"run": slept.run, "changed": slept.changed, "phases": msgspec.to_builtins(slept.phases)}
        output.show(document, _slept_rows(slept, dry_run=dry_run))
    if any(each.error for each in slept.phases):
        raise typer.Exit(EXIT_REFUSED)
    return slept.has_changed


def _slept_rows(slept: Slept, *, dry_run: bool) -> list[str]:
    rows = [row for phase in slept.phases for row in _phase_rows(phase, dry_run=dry_run)]
    if not slept.phases:
        return ["nothing to do"]
    if slept.changed and not slept.run and not dry_run:
        return [*rows, "nothing of it needs taking back"]
    return rows + _ending(slept.run, dry_run=dry_run or not slept.run)


def _phase_rows(phase: Phase, *, dry_run: bool) -> list[str]:
    verb = "would change" if dry_run else "changed"
    result = f"{verb} {phase.changed:,}: {phase.summary}" if phase.changed else (phase.error or "nothing to change")
    rows = [f"{phase.name:<14} read {phase.read or 'nothing'}; {result}"]
    rows += [f"    {row}" for row in phase.diff[:_ROWS]]
    rows += [f"    left: {why}" for why in phase.left]
    return rows


# --- topics ---------------------------------------------------------------------------------------------------------


@app.command("consolidate")
def _consolidate(
    check: Annotated[
        bool, flag("--check", "Only show whether the gates are open: exit 0, or 1; 3: not known.")
    ] = False,
    force: Annotated[bool, flag("--force", "Pass the gates of time and sessions; never a live lock.")] = False,
    dry_run: output.DryRun = False,
    days: Annotated[int | None, option("--days", "N", "Days of logs to read.", min=1, max=366)] = None,
) -> bool:
    """Merge what recurs in the daily logs into topics, and bring the index .agents/local.md up to date."""
    if check:
        try:
            output.chosen.root()
        except NoError as why:  # its exit code would say that a gate is closed
            raise UsageError(str(why)) from why
    with output.acting() as (workspace, who):
        named = output.chosen.session_named()
        if check:
            _show_gates(consolidating.check(workspace, who, named))
            return False
        result = consolidating.consolidate(workspace, who, session=named, force=force, dry_run=dry_run, days=days)
        _show_consolidated(result, dry_run=dry_run, force=force)
    if result.plan is None:
        if result.gates.holder:
            raise BusyError(f"the lock is held by {result.gates.holder}; nothing was done")
        raise typer.Exit(EXIT_NO)
    return bool(result.run)


def _show_gates(gates: Gates) -> None:
    """Show the gates; exit 0 where all are open, 1 where one is closed, 3 where that is not known."""
    document = {"open": gates.is_open, "hours": None if gates.hours is None else round(gates.hours, 2)}
    document |= {name: getattr(gates, name) for name in ("sessions", "holder", "trouble")}
    output.show(document, f"{'open' if gates.is_open else 'closed'}: {gates.summary()}")
    if gates.trouble:
        note(f".agents/.consolidation-lock {gates.trouble}; `fleet consolidate --force` writes it anew")
        raise typer.Exit(EXIT_REFUSED)
    if not gates.is_open:
        raise typer.Exit(EXIT_NO)


def _show_consolidated(result: ConsolidationResult, *, dry_run: bool, force: bool) -> None:
    plan = result.plan or consolidation.Plan({}, {})
    rows = [f"{name}: {summary}" for name, summary in plan.phases.items()]
    rows += ["", result.diff, ""] if dry_run and result.diff else [result.summary()]
    if dry_run and not force and not result.gates.is_open:
        rows.append(f"a gate is closed, so that without --force nothing is done: {result.gates.summary()}")
    rows += _ending(result.run, dry_run=dry_run)
    document = {"changed": bool(result.run), "run": result.run, "dry_run": dry_run, "gates": result.gates.summary()}
    document |= {"files": sorted(plan.files), "added": plan.added, "merged": plan.merged, "flagged": plan.flagged}
    phases = [{"phase": name, "told": summary} for name, summary in plan.phases.items()]
    output.show(document | {"phases": phases}, rows)


@app.command("migrate")
def _migrate(
    dry_run: output.DryRun = False,
    agents_md: Annotated[
        bool, flag("--agents-md", "Name the daily log in AGENTS.md, too, where it names the old file.")
    ] = False,
) -> bool:
    """Move a monolithic .agents.local.md to daily logs, topics and an index; the old file is kept beside it."""
    with output.acting() as (workspace, who):
        files, run, diff = consolidating.migrate(workspace, who, dry_run=dry_run, with_agents_md=agents_md)
        rows = [*files, *filter(None, [diff])]
        rows += _ending(run, dry_run=dry_run) if rows else []
        rows = rows or [f"nothing to migrate: the scratchpad holds the directive and {READY} alone"]
        output.show({"files": files, "run": run, "diff": diff, "dry_run": dry_run}, rows)
        return bool(run)


# --- what it came to --------------------------------------------------------------------------------------------------


@app.command("records")
def _records(
    action: Annotated[str, argument("[show]", "Show one pass; without it: list the newest.")] = "",
    number: Annotated[int, argument("[N]", "Its number in the list.")] = 0,
    since: Annotated[str, option("--since", "DATE", "From this day on, YYYY-MM-DD.")] = "",
) -> None:
    """Show what each reflection and each night's tidying did, what it cost, and why it saved nothing."""
    first = finding.first_stamp(since)
    if action not in ("", "show") or (action == "show") != (number > 0):
        raise UsageError("usage: `fleet records`, or `fleet records show N`")
    with output.acting(or_guest=True) as (workspace, who):
        passes = Records(workspace, who).passes()
        if number:
            if number > len(passes):
                raise NoError(f"{who} has no record {number}; `fleet records` lists them")
            _show_pass(passes[number - 1])
            return
        recent = [each for each in reversed(passes) if each.record.at >= first]
        deferred, interrupted = Records(workspace, who).deferred(), Records(workspace, who).interrupted()
        document = {
            "records": [_pass_as_json(each) for each in recent],
            "deferred": [{"session": each.session, "at": each.at, "why": each.why} for each in deferred],
            "interrupted": [{"session": each.session, "at": each.at, "usd": each.usd} for each in interrupted],
        }
        output.show(document, _listed(recent, deferred, interrupted, since))


def _pass_as_json(pass_: Pass) -> dict[str, object]:
    record = pass_.record
    more = {"number": pass_.number, "usd": pass_.usd, "undone": pass_.undone, "saved": record.saved}
    return record.as_json(with_raw=False) | more | {"told": record.summary()}


def _listed(passes: list[Pass], deferred: list[Record], interrupted: list[Record], since: str) -> list[str]:
    rows = [_row(each) for each in (passes if since else passes[:_PASSES])]
    if len(passes) > _PASSES and not since:
        rows.append(f"and {len(passes) - _PASSES:,} older; --since DATE lists them")
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


def _show_pass(pass_: Pass) -> None:
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
    output.show(_pass_as_json(pass_) | {"raw": record.raw, "drawn_lines": lines}, rows)
