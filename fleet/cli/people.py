"""What people type: read the clan's lessons, retire one, bring one back, take in what others wrote."""

import heapq
import sys
from collections.abc import Container
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from fleet.cli import desk, options
from fleet.keep.line import Line

if TYPE_CHECKING:
    from fleet.keep.notebook import Notebook

EXIT_NO = 1
EXIT_REFUSED = 3
ON_A_TERMINAL = 100
"""So many lessons a person is shown who asked for no number of them; whoever pipes gets all."""


def register(app: typer.Typer) -> None:
    """Add the commands of this module."""
    app.command()(patterns)
    app.command()(show)
    app.command()(retire)
    app.command()(restore)
    app.command("import")(import_)


def patterns(
    everything: Annotated[bool, typer.Option("--all", help="Retired ones and each merged record, too.")] = False,
    count: Annotated[
        int | None,
        typer.Option("-n", "--count", min=1, help=f"The first so many. On a terminal {ON_A_TERMINAL} unless told."),
    ] = None,
    as_json: options.Json = False,
    directory: options.Directory = "",
) -> None:
    """List the clan's lessons. Merged ones are one lesson, under the smallest of their ids."""
    from fleet.keep import notebook as notes
    from fleet.keep.store import without_cyclic_collection
    from fleet.keep.view import glance
    from fleet.recall.lessons import by_sight, not_working

    if count is None and not as_json and sys.stdout.isatty():
        count = ON_A_TERMINAL
    with desk.opened(directory) as workspace, without_cyclic_collection():
        held = workspace.load() if count is None or everything else glance(workspace)
        listed, total, merged_into = _listed(held.notebook, count, everything=everything)
        if as_json:
            found = [as_found(line, merged_into) for line in sorted(listed, key=lambda line: line.id)]
            desk.say_json({"patterns": found, "refused": held.read.count})
            return
        for line in sorted(listed, key=by_sight):
            gone = "" if notes.is_present(line) else "  (retired)"
            if line.id in merged_into:
                gone += f"  (merged into {merged_into[line.id]})"
            if why := not_working(line):
                gone += f"  (not working: {why})"
            desk.say(f"{line.id}  {notes.count(line, 'seen'):>3}x  {desk.fit(notes.text(line))}{gone}")
        if total > len(listed):
            desk.note(f"{total - len(listed):,} more: -n {total} lists all of them, `fleet search` looks for some")
        if not listed:
            desk.say("no lessons yet. `fleet correct --wrong ... --right ... --pattern ...` logs the first")
        if held.read.count:
            desk.note(f"{desk.counted(held.read.count, 'line')} could not be read; `fleet status` tells why")


def _listed(notebook: "Notebook", count: int | None, *, everything: bool) -> tuple[list[Line], int, dict[str, str]]:
    """Return the lessons to list, how many there are, and under which id a record is shown if that is another's."""
    from fleet.keep import merging, view
    from fleet.recall.lessons import by_sight

    if everything:
        every = list(merging.everything(notebook))
        lines, merged_into = [line for line, _ in every], {line.id: into for line, into in every if into}
        return heapq.nsmallest(count or len(lines), lines, key=by_sight), len(lines), merged_into
    if count is None:
        lines = list(merging.shown(notebook))
        return lines, len(lines), {}
    lines, total = view.best(notebook, "sight", count)
    return heapq.nsmallest(count, lines, key=by_sight), total, {}


def as_found(line: Line, merged_into: Container[str] = ()) -> dict[str, Any]:
    """Return a pattern as ``--json`` shows it: the same on every machine that has the same lines."""
    from fleet.keep import notebook as notes

    tags = line.set.get("tags")
    state = desk.fit(notes.as_text(line.set.get("state"))) or "candidate" if notes.is_present(line) else "retired"
    return {
        "id": line.id,
        "text": desk.fit(notes.text(line)),
        "correct": desk.fit(notes.as_text(line.set.get("correct"))),
        "category": desk.fit(notes.as_text(line.set.get("category"))),
        "tags": [desk.fit(tag) for tag in tags if isinstance(tag, str)] if isinstance(tags, list) else [],
        "seen": notes.count(line, "seen"),
        "sessions": notes.count(line, "sessions"),
        "agents": notes.agents(line),
        "state": "merged" if line.id in merged_into else state,
        "first": line.at,
        "last": notes.last_seen(line),
        **_use(line),
    }


def _use(line: Line) -> dict[str, Any]:
    """Return what became of a lesson where it was read; nothing for one that nobody has told or noted anything of."""
    from fleet.keep import notebook as notes
    from fleet.recall.lessons import not_working

    counters = {counter: notes.count(line, counter) for counter in ("shown", "relapsed", "helped", "hurt")}
    return counters | {"not_working": not_working(line)} if any(counters.values()) else {}


def show(pattern: options.PatternId, as_json: options.Json = False, directory: options.Directory = "") -> None:
    """Show all that is known of one lesson."""
    from fleet.keep import merging
    from fleet.keep import notebook as notes
    from fleet.keep.view import glance

    with desk.opened(directory) as workspace:
        notebook = glance(workspace).notebook
        asked = desk.find(notebook, pattern)
        line, members = merging.whole(notebook, asked.id), merging.group_of(notebook, asked.id)
        found = as_found(line)
        if as_json:
            desk.say_json(found | ({"merged": members} if len(members) > 1 else {}))
            return
        if line.id != asked.id:
            desk.say(f"{asked.id} is merged into:")
        desk.say(f"{found['id']}  {found['state']}\n{found['text']}")
        for label, key in (("right", "correct"), ("category", "category")):
            if found[key]:
                desk.say(f"  {label + ':':<10}{found[key]}")
        if found["tags"]:
            desk.say(f"  {'tags:':<10}{', '.join(found['tags'])}")
        desk.say(
            f"  {'seen:':<10}{desk.counted(found['seen'], 'time')} in {desk.counted(found['sessions'], 'session')}"
        )
        for replica, total in sorted(line.n.get("seen", {}).items()):
            desk.say(f"  {'':<10}{total} by {replica}, last {line.add.get(replica, 'unknown')[:16]}Z")
        if found.get("not_working"):
            desk.say(f"  not working: {found['not_working']}")
        desk.say(f"  {'first:':<10}{_when(line.at)}{' by ' + line.by if line.by else ''}")
        others = {field for field in line.set if field not in ("text", "correct", "category", "tags", "state")}
        for field in sorted(field for field in others if not field.startswith("agent.")):
            desk.say(f"  {field + ':':<10}{desk.fit(str(line.set[field]))}")
        for field, (stamp, writer) in sorted(line.when.items()):
            desk.say(f"  {field} was set {stamp[:16]}Z by {writer}")
        for member in members:
            if member != line.id:
                desk.say(f"  merged:   {member} {desk.fit(notes.text(notebook.patterns[member]))}")
        if not notes.is_present(line):
            desk.say(f"  `fleet restore {line.id}` brings it back")


def _when(stamp: str) -> str:
    return f"{stamp[:10]} {stamp[11:16]}Z" if stamp > "2000" else "at an unknown time"


def retire(pattern: options.PatternId, agent: options.Agent = "", directory: options.Directory = "") -> None:
    """Retire a lesson. Confirmations that this machine has not seen survive it; `fleet restore` undoes it.

    A discovery (d-...) is taken back for good.
    """
    from fleet.cli import remembering
    from fleet.keep import edits
    from fleet.keep import notebook as notes
    from fleet.keep.view import glance
    from fleet.learn import corrections

    with desk.opened(directory) as workspace:
        if pattern.startswith("d-"):
            from fleet.learn.discoveries import retract

            entry = retract(workspace, desk.agent_in(workspace, agent), pattern)
            desk.say(f"{entry.id} taken back, for good: {desk.fit(entry.problem or entry.solution)}")
            return
        line, others = _changed(workspace, desk.agent_in(workspace, agent), pattern, edits.retired, wanted=True)
        also = f", with {', '.join(others)}, which is merged with it" if others else ""
        desk.say(f"{line.id} retired{also}: {desk.fit(notes.text(line))}\n`fleet restore {line.id}` brings it back")
        notebook = glance(workspace).notebook
        for named in corrections.agents_here(workspace):
            remembering.take_out_retired(workspace, named, notebook)


def restore(pattern: options.PatternId, agent: options.Agent = "", directory: options.Directory = "") -> None:
    """Bring a retired lesson back, with its history."""
    from fleet.keep import edits
    from fleet.keep import notebook as notes

    with desk.opened(directory) as workspace:
        line, others = _changed(workspace, desk.agent_in(workspace, agent), pattern, edits.restored, wanted=False)
        also = f", with {', '.join(others)}, which is merged with it" if others else ""
        desk.say(f"{line.id} is back{also}: {desk.fit(notes.text(line))}")


def _changed(workspace: Any, agent: str, pattern: str, change: Any, *, wanted: bool) -> tuple[Line, list[str]]:
    """Make one edit to a lesson that is in, or is not, as wanted; return it, and which other records changed with it.

    An id of a merged set means the whole of it: a lesson is in while any of its records is.
    """
    from fleet.keep import merging
    from fleet.keep import notebook as notes
    from fleet.keep.errors import NoError
    from fleet.keep.reading import PATTERNS
    from fleet.learn import corrections

    # What the logs owe goes first: an add that is still owed must not undo this edit later.
    held = corrections.settle_all(workspace)
    with workspace.writing(agent) as writer:
        line = merging.whole(held.notebook, desk.find(held.notebook, pattern).id)
        if notes.is_present(line) is not wanted:
            raise NoError(f"{line.id} is {'retired already' if wanted else 'not retired'}; nothing was changed")
        members = [held.notebook.patterns[member] for member in merging.group_of(held.notebook, line.id)]
        changing = [member for member in members if notes.is_present(member) is wanted]
        writer.append(PATTERNS, [change(member, writer.name, writer.tick()) for member in changing])
    return line, [member.id for member in changing if member.id != line.id]


def import_(
    paths: Annotated[list[Path], typer.Argument(metavar="PATH...", exists=True, help="Files, or folders of them.")],
    agent: options.Agent = "",
    directory: options.Directory = "",
    as_json: options.Json = False,
) -> None:
    """Take in what other tools wrote. Lessons, discoveries and corrections; doing it twice changes nothing."""
    from fleet.cli.progress import each, patient
    from fleet.keep import view
    from fleet.learn.importing import files_in, import_files

    with desk.opened(directory) as workspace:
        files = list(files_in(paths))
        with each("Importing", len(files)) as step:
            done = import_files(workspace, desk.agent_in(workspace, agent), files, lambda path: step(path.name))
        with patient(workspace):
            view.opened(workspace)  # what came in is indexed now, and not before somebody's next command
        if as_json:
            desk.say_json(
                {
                    "patterns": done.patterns,
                    "patterns_new": done.patterns_new,
                    "discoveries": done.discoveries,
                    "discoveries_new": done.discoveries_new,
                    "skipped": dict(sorted(done.skipped.items())),
                    "refused": len(done.refused),
                }
            )
        else:
            desk.say(
                f"{desk.counted(done.patterns, 'lesson')} read, {done.patterns_new:,} new; "
                f"{desk.counted(done.discoveries, 'discovery', 'discoveries')} read, {done.discoveries_new:,} new"
            )
            for reason, number in sorted(done.skipped.items()):
                desk.say(f"{number:,} left out: {reason}")
        if done.redacted:
            desk.note(f"a secret was taken out of {desk.counted(done.redacted, 'record')}")
        for refused in done.refused[:10]:
            desk.note(f"{refused.path}, line {refused.number}: {refused.reason}")
        if done.refused:
            desk.note(f"{desk.counted(len(done.refused), 'bad line')} kept in .fleet/quarantine/; the others are in")
            raise typer.Exit(EXIT_REFUSED)
