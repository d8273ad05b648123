"""Commands of upkeep: import, export, backup, upgrade, purge, status, and the checks of ``fleet doctor``."""

import shlex
import sys
from collections.abc import Iterator, Mapping
from pathlib import Path
from shutil import which
from typing import Annotated, Any

import typer

from fleet.app import doctor, moving, pages, reflecting
from fleet.cli import output
from fleet.cli.output import EXIT_NO, EXIT_REFUSED, argument, echo, flag, note, option
from fleet.learn import importer
from fleet.learn.importer import ImportResult, Piece
from fleet.model.errors import UsageError
from fleet.model.names import GUEST
from fleet.model.pattern import PRIVATE
from fleet.store.homes import CONFIG
from fleet.store.workspace import Workspace
from fleet.text.screening import counted, listed

_REFUSED_SHOWN = 10
_LESSON_SHOWN = 110
_CATEGORY_SHOWN = 18
_SHOWN = 20
_LABEL = 12
_LEVELS = {"ok": "green", "note": "dim", "warning": "yellow", "error": "red"}

app = output.commands()


@app.command("import")
def _import(
    paths: Annotated[list[Path] | None, argument("PATH...", "Files, or folders of them.", exists=True)] = None,
    from_transcripts: Annotated[
        bool, flag("--transcripts", "Propose lessons from this project's past sessions, or those in PATH.")
    ] = False,
    days: Annotated[float, typer.Option("--days", min=0, help="Days that --transcripts looks back.")] = 30,
    accepted: Annotated[str, option("--accept", "N[,N]|all", "Log these proposals, by number or id.")] = "",
    dry_run: Annotated[bool, flag("--dry-run", "Only show what would be taken, and what not.")] = False,
    verbose: Annotated[bool, flag("--verbose", "-v", "Name every piece left out, and why.")] = False,
) -> None:
    """Take in what people and other tools wrote: lessons.md, LEARNINGS.md, CLAUDE.md, .cursorrules, JSON lines.

    Doing it twice changes nothing. Of a project's folder, the files that are about lessons by their name are read.
    """
    if not from_transcripts and (accepted or not paths):
        raise UsageError(
            "name what to import: PATH..., files or folders of them, or --transcripts. Nothing was changed"
        )
    with output.opened() as workspace:
        if from_transcripts:
            who, numbers = output.agent_in(workspace), "" if dry_run else accepted
            _propose(workspace, who, paths or [], days, numbers, asks=not dry_run)
            return
        files = importer.files_in(workspace, paths or [])
        if dry_run:
            imported = importer.ImportResult.preview(files)
        else:
            who = output.agent_in(workspace)
            with output.progress("Importing", len(files)) as step:
                imported = moving.import_files(workspace, who, files, lambda path: step(path.name))
    _show_import(imported, paths or [], is_dry=dry_run, is_verbose=verbose)


def _show_import(imported: ImportResult, named: list[Path], *, is_dry: bool, is_verbose: bool) -> None:
    """Show what was taken and what was not; exit with 3 for a bad line, with 1 where a named file gave nothing."""
    output.show(_import_as_json(imported, is_dry=is_dry), _import_rows(imported, is_dry=is_dry, is_verbose=is_verbose))
    if imported.redacted:
        note(f"a secret was taken out of {counted(imported.redacted, 'record')}")
    empty = [path for path in map(str, named) if imported.files.get(path) == 0]
    if gave_nothing := bool(empty) or not imported.files:
        note(f"nothing was taken from {', '.join(empty) or 'there: no file of a known kind'}")
    if not is_verbose and any(each.reason for each in imported.pieces):
        words = shlex.join(["fleet", "import", "--dry-run", "--verbose", *map(str, named)])
        output.hint(f"`{words}` names each piece that was left out, with file, line and reason")
    refused = [f"{each.path}, line {each.number}: {each.reason}" for each in imported.refused]
    others = "the others are in" if imported.patterns + imported.discoveries else "nothing was taken"
    _note_refused([] if is_dry else refused, "bad line", others)
    if gave_nothing:
        raise typer.Exit(EXIT_REFUSED if refused else EXIT_NO)


def _import_as_json(imported: ImportResult, *, is_dry: bool) -> dict[str, Any]:
    same = ("patterns", "patterns_new", "retired", "discoveries", "discoveries_new", "files")
    document = {name: getattr(imported, name) for name in same} | {"refused": len(imported.refused)}
    document |= {"skipped": dict(sorted(imported.skipped.items()))}
    document |= {"left": [_piece_as_json(each, "reason") for each in imported.pieces if each.reason]}
    taken = [_piece_as_json(each, "category") for each in imported.pieces if not each.reason]
    return document | ({"taken": taken} if is_dry else {})


def _piece_as_json(piece: Piece, why: str) -> dict[str, Any]:
    return {name: getattr(piece, name) for name in ("path", "line", "text", why)}


def _import_rows(imported: ImportResult, *, is_dry: bool, is_verbose: bool) -> Iterator[str]:
    lessons, entries = counted(imported.patterns, "lesson"), counted(imported.discoveries, "discovery")
    if is_dry:
        taken = [each for each in imported.pieces if not each.reason]
        width = max((len(f"{each.path}:{each.line}") for each in taken), default=0)
        for each in taken:
            category = output.cleaned(each.category)[:_CATEGORY_SHOWN]
            yield _piece_row(each, f"  {category:<{_CATEGORY_SHOWN}}  ", width)
        files = counted(sum(map(bool, imported.files.values())), "file")
        yield f"{lessons} and {entries} would be taken from {files}; nothing was written"
    else:
        new = sum(each.startswith("p-") for each in imported.stated)
        again = f" and {more:,} counted for known ones" if (more := imported.patterns_new - new) else ""
        yield f"{lessons} read, {new:,} new{again}; {entries} read, {imported.discoveries_new:,} new"
    yield from (f"{number:,} left out: {reason}" for reason, number in sorted(imported.skipped.items()))
    yield from (_piece_row(each, f": {each.reason}: ") for each in imported.pieces if is_verbose and each.reason)


def _piece_row(piece: Piece, between: str, width: int = 0) -> str:
    place = f"{piece.path}:{piece.line}"
    return f"{place:<{width}}{between}{output.cleaned(piece.text)[:_LESSON_SHOWN]}"


def _propose(workspace: Workspace, agent: str, paths: list[Path], days: float, accepted: str, *, asks: bool) -> None:
    """Show what past sessions propose, and log what is accepted of it, by the option or at the terminal."""
    offer = moving.proposals(workspace, agent, paths, days)
    for trouble in offer.troubles:
        note(f"a transcript was left out, or a part of it: {trouble}")
    proposals = [{"number": number, **each._asdict()} for number, each in offer.new.items()]
    if not output.chosen.as_json:
        for row in _proposal_rows(proposals, offer.sessions, offer.known):
            echo(row)
        if offer.older and (paths or not offer.sessions):
            are = counted(offer.older, "session has", "sessions have")
            note(f"{are} nothing of the last {days:g} days: `--days` looks further back")
        elif not offer.sessions and not paths:
            note("no session of this project was found on this machine: `fleet import --transcripts PATH` reads a file")
        if asks and not accepted and proposals and sys.stdin.isatty():
            accepted = typer.prompt("Which to log? Numbers with commas between, all, or nothing", default="", err=True)
    logged = moving.accept(workspace, agent, offer, accepted)
    logged_ids = [{"proposal": each.id, "id": lesson.id, "seen": lesson.seen} for each, lesson in logged]
    rows = [f"{lesson.id} seen {counted(lesson.seen, 'time')}: {lesson.text}" for _, lesson in logged]
    document = {"sessions": offer.sessions, "older": offer.older, "proposals": proposals, "known": offer.known}
    output.show(document | {"retired": offer.retired, "logged": logged_ids}, rows)
    if proposals and not logged:
        how = "`--accept N,N` or `--accept all` logs; `fleet edit` words a lesson better afterwards"
        output.hint(f"nothing was logged{': what was named is known already' if accepted else ''}. {how}")


def _proposal_rows(proposals: list[dict[str, Any]], sessions: int, known: int) -> Iterator[str]:
    for proposal in proposals:
        times = f", {proposal['times']} times" if proposal["times"] > 1 else ""
        about = f": {proposal['wrong']}" if proposal["wrong"] else ""
        yield f"{proposal['number']:>3}  {proposal['kind']:<12} {proposal['text']}"
        yield f"                  {proposal['id']}, {proposal['at'][:10] or 'no date'}{times}{about}"
    more = f"; {known:,} more known already" if known else ""
    yield f"{counted(len(proposals), 'proposal')} from {counted(sessions, 'session')}{more}"


def _note_refused(refused: list[str], what: str, hint: str) -> None:
    """Print a note of what was refused, and exit with the code for that."""
    for reason in refused[:_REFUSED_SHOWN]:
        note(reason)
    if refused:
        note(f"{counted(len(refused), what)} kept in .fleet/quarantine/; {hint}")
        raise typer.Exit(EXIT_REFUSED)


@app.command("export")
def _export(
    as_page: Annotated[bool, flag("--md", "One Markdown page for people.")] = False,
) -> None:
    """Print everything this machine knows: all lessons, retired ones too, and all discoveries; JSON without --md.

    Private lessons are left out, and counted on stderr; a fleet backup has them.
    """
    if output.chosen.as_json and as_page:
        raise UsageError("--json and --md are two forms of one export: name one of them")
    with output.opened() as workspace:
        if as_page:
            echo(pages.everything(workspace).rstrip("\n"), as_is=True)
        else:
            parts = moving.export(workspace)
            with workspace.snapshot():
                output.chosen.put(_as_json(parts))
        _note_private(workspace)


def _note_private(workspace: Workspace) -> None:
    records = (each for agent in workspace.agents_with_notes() for each in workspace.notes(agent).records())
    if number := sum(each.scope == PRIVATE for each in records):
        note(f"left out: {counted(number, 'private lesson')}; no export has any, and `fleet backup` has all")


def _as_json(parts: Mapping[str, Any]) -> str:
    """Return one line of JSON; the items of an iterator are encoded one by one."""
    encoded = {
        name: f"[{','.join(map(output.as_json, value))}]" if isinstance(value, Iterator) else output.as_json(value)
        for name, value in parts.items()
    }
    return "{" + ",".join(f'"{name}":{text}' for name, text in encoded.items()) + "}"


@app.command("backup")
def _backup(
    target: Annotated[Path, argument("FILE", "A .tar.gz file to write.")],
    yes: Annotated[bool, flag("--yes", "-y", "Replace a file that is there.")] = False,
) -> None:
    """Write a backup file. It holds all that can neither be fetched nor computed again."""
    with output.opened() as workspace:
        backup = moving.backup(workspace, target, overwrite=yes)
        text = f"{counted(backup.files, 'file')} in {target}, {backup.size:,} bytes; only you can read it"
        output.show(backup._asdict(), text)
        for path in backup.left:
            note(f"left out, since it is no plain file, too large or oddly named: {path}")
        if backup.left:
            raise typer.Exit(EXIT_REFUSED)


@app.command("restore-backup")
def _restore_backup(
    source: Annotated[Path, argument("FILE", "Made by fleet backup.", exists=True, dir_okay=False)],
    yes: output.Yes = False,
) -> bool:
    """Join a backup into the workspace here. Nothing newer is overwritten; an empty folder becomes a workspace."""
    root = output.chosen.root_to_be()
    question = f"Join {source} into {root}? Nothing that is there will be overwritten."
    moving.prepare(root, source, lambda: output.confirm(question, yes=yes))
    with output.opened() as workspace:
        result = moving.restore_backup(workspace, source)
        parts = ((result.lines, "line"), (result.entries, "correction"), (len(result.files), "file"))
        restored = " and ".join(counted(number, one) for number, one in parts if number)
        rows = [f"{restored} came back" if restored else "no line, correction or file of it was missing here"]
        rows += [f"another version is here; the one of the backup lies beside it: {path}" for path in result.beside]
        refused = [f"not taken: {each.path}: {each.reason}" for each in result.refused]
        document = {"lines": result.lines, "entries": result.entries, "files": result.files, "beside": result.beside}
        output.show(document | {"refused": refused}, rows)
        _note_refused(refused, "part", "all else is restored")
        return bool(restored or result.beside)


@app.command("upgrade")
def _upgrade(yes: output.Confirmed = False) -> bool:
    """Convert a workspace that fleet 0.1 made, and its branch. Once; doing it again changes nothing."""
    with output.opened(of_any_version=True) as workspace:
        messages, code = moving.upgrade(workspace, yes=yes)
        output.show({"did": messages}, messages)
        if code:
            raise typer.Exit(code)
        return workspace.files.written > 0


@app.command("purge")
def _purge(
    wanted: Annotated[str, argument("ID", "Of a lesson or a discovery; a beginning is enough.", "id")],
    yes: output.Yes = False,
) -> None:
    """Overwrite a secret that already went out. Reaches as far as a sync does, and shows what is left to do."""
    question = "Overwrite every text of {} for the whole clan? This cannot be undone."
    with output.opened() as workspace:
        who = output.agent_in(workspace)
        purged = moving.purge(
            workspace, who, wanted, lambda id_: output.confirm(question.format(id_), yes=yes), yes=yes
        )
        places = [{"path": path, "line": line} for path, line in purged.remains]
        document = {
            "id": purged.id,
            "shared": not purged.why_not,
            "why_not": purged.why_not,
            "others": purged.others,
            "remains": places,
        }
        head = f"{purged.id} is {'taken back' if purged.id.startswith('d-') else 'overwritten and retired'}"
        if purged.others:
            head += f"; what others merged with it keeps its own words ({listed(purged.others)})"
        output.show(document, [head, *purged.advice(workspace)])
        if purged.is_refused:
            raise typer.Exit(EXIT_REFUSED)


# --- status and doctor ----------------------------------------------------------------------------------------------


@app.command("status")
def _status() -> None:
    """Show the state of this workspace: outgoing lines, pending decisions, quarantine, replicas of the clan."""
    with output.acting(or_guest=True) as (workspace, who):
        status = doctor.status(workspace, who)
        output.show(status, _status_rows(status, workspace))


def _status_rows(status: dict[str, Any], workspace: Workspace) -> Iterator[output.Row]:
    sections = (*_sections(status, workspace), *_decisions(status), *_left_out(status), _replicas(status))
    for label, *lines in sections:
        for index, line in enumerate(filter(None, lines)):
            yield (f"{'' if index else label:<{_LABEL}}", "bold"), (line, "")


def _sections(status: dict[str, Any], workspace: Workspace) -> Iterator[tuple[str, ...]]:
    """Yield a label and its lines; an empty line is not shown."""
    replica = f" ({status['replica']})" if status["replica"] else ""
    yield "workspace", status["workspace"]
    unnamed = ": nobody is named here, what is logged stays here; fleet init --agent NAME"
    yield "agent", f"{status['agent']}{replica}{unnamed if status['agent'] == GUEST else ''}"
    remote = f"{status['remote']}, branch {status['branch']}" if status["remote"] else ""
    is_read = workspace.config.is_read
    unknown = "none named; works offline" if is_read else f"{CONFIG} cannot be used as it is, and may name one"
    yield "remote", remote or unknown
    yield "last sync", output.when(status["last_sync"]) or _no_sync(status)
    yield "failed", status["sync_failed"]
    yield "stale", status["stale"]
    yield "paused", status["paused"] and f"{status['paused']}: nothing is shared"
    known = counted(status["discoveries"], "discovery")
    yield "known", f"{counted(status['patterns'], 'lesson')}, {known}"
    paths = (f"{number} in {path}" for path, number in status["waiting"]["paths"].items())
    doubt = workspace.doubt if which("git") else "without git, what the clan has is not known"
    unsure = f" at most: {doubt}" if doubt else ""
    yield "to go out", f"{counted(status['waiting']['lines'], 'line')}{unsure}", *paths
    yield "clock", status["clock"] and f"{status['clock']}; set it, best by NTP"
    if memory := status["memory"]:
        size = f"{memory['chars']:,} of {memory['chars_max']:,} characters"
        waits = [
            f"waits: {each['text']} ({each['evidence']}; {each['id']}): {each['why']}" for each in memory["waiting"]
        ]
        yield "memory", f"{counted(len(memory['lessons']), 'lesson')}, {size}", memory["trouble"], *_first(waits)


def _decisions(status: dict[str, Any]) -> Iterator[tuple[str, ...]]:
    """Yield the decisions of a person here, and what waits for one."""
    trust, review, inbox = status["trust"], status["review"], status["inbox"]
    for block in trust["blocked"]:
        since = f" since {output.when(block['since'])}" if block["since"] else ""
        yield "blocked", f"{block['name']}{since}: `fleet unblock {block['name']}` undoes it"
    yield "left out", *(f"{each['told']}: fleet review" for each in trust["waiting"])
    yield "review", *reflecting.to_review(review["contradictions"], review["pairs"], inbox["kinds"])
    yield "inbox", output.pending_decisions(inbox) if inbox["number"] else ""
    for guard in status["guards"]:
        until = f" until {guard['until']}" if guard["until"] else ""
        yield "guard", f"{guard['decision']} at {guard['trigger']}{until}: {guard['lesson'] or guard['id']}"


def _left_out(status: dict[str, Any]) -> Iterator[tuple[str, ...]]:
    """Yield what is not counted, not read, or not sent, and why."""
    for key, one, what in (
        ("unfilled", "correction", "without a lesson: fleet learn --waiting"),
        ("held", "line", "with an edit of over a day ahead: `fleet edit` replaces it"),
        ("carried", "line", "carried for a newer version"),
        ("refused", "line", "unreadable in the files as they are"),
    ):
        yield key, f"{counted(status[key], one)} {what}" if status[key] else ""
    for pattern in status["edited"]:
        way = f"`fleet edit {pattern} --set text=... --set right=...` words its lesson anew"
        yield "edited", f"an entry since it was counted; {way}"
    if left := status["not_taken"]:
        shown = [f"line {each['line']}: {each['reason']}: {each['text']}" for each in left]
        yield "not taken", f"{counted(len(left), 'piece')} of {left[0]['path']}, for these reasons:", *_first(shown)
    for line in status["withheld"]:
        of_lesson = f", {line['id']}" if line["id"] else ""
        yield "stays here", f"a line of {line['path']}{of_lesson}: {line['reason']}"
    if kept := status["quarantined"]:
        shown = [f"{each['path']}, line {each['line']}: {each['reason']}" for each in kept]
        yield "quarantine", f"{counted(len(kept), 'line')} in .fleet/quarantine/refused.jsonl", *_first(shown)
    if kept := status["held_files"]:
        shown = [f"{each['path']}: {each['reason']}" for each in kept]
        yield "held files", f"{counted(len(kept), 'file')} of the clan: not read, and not dropped", *_first(shown)


def _replicas(status: dict[str, Any]) -> tuple[str, ...]:
    rows = [f"{each['replica']:<24} {output.when(each['last']):<18} {each['where']}" for each in status["replicas"]]
    return "replicas", f"{counted(len(rows), 'replica')} seen", *rows


def _first(rows: list[str]) -> list[str]:
    more = len(rows) - _SHOWN
    return [*rows[:_SHOWN], f"and {more:,} more: --json names them" if more > 0 else ""]


def _no_sync(status: dict[str, Any]) -> str:
    """Return why there was no sync yet: an empty clan and one that was never asked look alike."""
    if status["fetched"]:
        return f"never; fetched {output.when(status['fetched'])}, and nothing was sent"
    first = "`fleet init --agent NAME`, then " if status["agent"] == GUEST else ""
    asks = f"never: what the clan knows is not here yet; {first}`fleet sync` asks"
    return asks if status["remote"] else "never"


@app.command("doctor")
def _doctor(
    fix: Annotated[bool, flag("--fix", "Mend what can be mended without losing anything.")] = False,
) -> None:
    """Check this workspace. Shows each fault, what it means and what to do; exits with 1 if there is one."""
    with output.opened() as workspace:
        with output.progress("Looking"):
            named = output.chosen.agent_named()
            worst, findings = doctor.examine(workspace, named and workspace.agent(named, or_guest=True), fix=fix)
        shown = {each.what for each in findings}
        workspace.warnings = [each for each in workspace.warnings if each not in shown]
        document = {"worst": worst, "findings": [each._asdict() for each in findings]}
        output.show(document, (row for each in findings for row in _finding_rows(each)))
    if worst in ("warning", "error"):
        raise typer.Exit(EXIT_NO)


def _finding_rows(finding: Any) -> Iterator[output.Row]:
    level, style = ("mended", "green") if finding.fixed else (finding.level, _LEVELS.get(finding.level, ""))
    yield (f"{level:<8}", style), (f"{finding.check + ':':<12}", ""), (finding.what, "")
    for part in (finding.means, finding.do) if finding.level != "ok" else ():
        if part:
            yield (f"{'':<20}", ""), (part, "")
