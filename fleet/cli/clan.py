"""Commands about a clan: make a workspace, sync it, see how it stands, keep its files in order."""

import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Annotated, Any

import typer

from fleet.app import doctor, finding, moving, pages, reflecting, setup, sharing, starting
from fleet.app.sharing import ConsentNeededError, Synced
from fleet.cli import output
from fleet.cli.output import EXIT_NO, EXIT_REFUSED, note, say
from fleet.hosts import install
from fleet.hosts.payloads import CLAUDE_CODE
from fleet.model.errors import FleetError, UsageError
from fleet.share.git import Address, Repository
from fleet.share.notices import Notices
from fleet.share.outgoing import Outgoing
from fleet.store import config, homes
from fleet.store.semantic import Embeddings
from fleet.store.tree import PAGE
from fleet.store.workspace import Workspace, check_version
from fleet.text.screening import counted

_SHOWN = 20
_FILES_SHOWN = 5
_LABEL = 12
_LEVELS = {"ok": "green", "note": "dim", "warning": "yellow", "error": "red"}


app = output.commands()


@app.command("init")
def _init(
    agent: output.Agent = "",
    remote: Annotated[
        str, typer.Option("--remote", metavar="URL", help="The clan's git remote; 'origin': this project's own.")
    ] = "",
    branch: Annotated[str, typer.Option("--branch", help="Its branch; 'fleet' unless told otherwise.")] = "",
    author: Annotated[
        str, typer.Option("--author", metavar="WHO", help="Who commits there: git, none, or 'Name <address>'.")
    ] = "",
    take_in: Annotated[
        bool | None, typer.Option("--take-in/--no-take-in", help="Take in CLAUDE.md, lessons.md and their like here.")
    ] = None,
    host: Annotated[
        str, typer.Option("--install", metavar="HOST", help="Install an agent host too: claude-code, or none.")
    ] = "",
    yes: Annotated[
        bool, typer.Option("--yes", "-y", help="Answer yes, but to what --author, --take-in and --install say.")
    ] = False,
    home: Annotated[
        str, typer.Option("--home", metavar="FOLDER", help="Folder of the agents' own files, if not agents.")
    ] = "",
    ephemeral: Annotated[
        bool, typer.Option("--ephemeral", help="For a short-lived job: reads, or writes as FLEET_REPLICA.")
    ] = False,
) -> None:
    """Make a workspace here, or join the one that is here. Doing it twice changes nothing.

    On a terminal it asks one thing after the other; a flag is an answer.
    """
    root = output.chosen.root_to_be()
    check_version(root)
    if host not in ("", "none"):
        install.check_host(host)
    named = output.chosen.agent_named(agent)
    if _is_asked() and not ephemeral:
        named = named or _ask_agent(root)
        remote = remote or _ask_remote(root)
    if remote == "origin" and not (remote := Repository(root).origin() or ""):
        raise UsageError("no git repository around this folder has an origin: --remote URL. Nothing was made")
    for about, question in setup.doubts(root, remote, branch).items():
        # A script that names another remote means it: it is told, and can be undone.
        output.confirm(question, yes=yes or (about == "remote" and not sys.stdin.isatty()))
    made = setup.found(root, named, remote, branch, home or _another_home(root), ephemeral=ephemeral)
    workspace, done = made.workspace, made.done
    if local := config.ignore(workspace.files, config.IGNORED_LOCAL):
        done.append(f".gitignore: {', '.join(local)}")
    places, own = f"{workspace.place}/ and clan-learnings/", setup.own_ignores(workspace)
    question = f"Keep what fleet writes in {places} out of this folder's own git commits?"
    is_new = bool(config.ignore(workspace.files, own, dry_run=True))
    # Without a terminal the careful answer holds: `git add .` publishes nothing that nobody asked for.
    if is_new and (yes or not sys.stdin.isatty() or typer.confirm(question, default=True)):
        added = config.ignore(workspace.files, own)
        done.append(f".gitignore: {len(added)} single files of {places}, which fleet writes")
    for line in done:
        say(line)
    _offer_author(workspace, author)
    _offer_embedding(workspace, yes=yes, is_new=made.is_new)
    _offer_webhook(workspace, yes=yes)
    if not (remote or workspace.config.share.remote or workspace.state.agreed("remote")):
        say("no remote is named: fleet works offline until `fleet init --remote URL`, or an origin is confirmed")
    elif starting.is_unasked(workspace):
        _tell_found(workspace)
    if not ephemeral:
        who = workspace.agent(named)
        _offer_files(workspace, who, take_in=take_in)
        _offer_host(workspace, host)
        _tell_next(workspace)
    for warning in workspace.warnings:
        note(f"warning: {warning}")
    workspace.close()


def _another_home(root: Path) -> str:
    """Return another folder for the agents' files where the usual one is the project's, "" where it is not."""
    if not (proposed := setup.proposed_home(root)):
        return ""
    if _is_asked():
        told = f"git tracks files of the project's own in {homes.DEFAULT}/. Folder for the agents' files"
        return str(typer.prompt(told, default=proposed)).strip()
    say(f"{homes.DEFAULT}/ holds files of the project's own: what fleet keeps for each agent goes into {proposed}/")
    return proposed


def _is_asked() -> bool:
    """Return True where a person sits at a terminal and answers."""
    return sys.stdin.isatty() and sys.stdout.isatty()


def _ask_agent(root: Path) -> str:
    """Return the name for the agent that works here; "" where one is stored."""
    if (root / ".fleet/replica.toml").exists():
        return ""
    return str(typer.prompt("Name of the agent that works here", default="agent")).strip()


def _ask_remote(root: Path) -> str:
    """Return the remote that a person wants to share through; "" for none, or where one is named."""
    if config.load(root / config.FILE_NAME).share.remote:
        return ""
    if (found := Repository(root).origin()) and typer.confirm(
        f"Share lessons through {Address(found).redacted}, on a branch `fleet` of its own?", default=True
    ):
        return found
    return str(typer.prompt("Git remote to share lessons through (empty: none for now)", default="")).strip()


def _offer_author(workspace: Workspace, named: str) -> None:
    """Settle once in whose name commits are made; where nobody is asked it is nobody's."""
    share = workspace.config.share
    is_settled = share.author or workspace.state.get("author_asked")
    if not named and _is_asked() and share.remote and not is_settled:
        if not (known := Repository(workspace.root).identity()):
            return
        is_named = typer.confirm(f"Commit lessons as {known}? Everybody who reads the branch sees it", default=True)
        named = "git" if is_named else "none"
    if named:
        who = sharing.Membership(workspace).name_author(named)
        say(f"commits are made as {who}" if who else "commits bear no person's name")


def _offer_files(workspace: Workspace, agent: str, *, take_in: bool | None) -> None:
    """Take in what lies here: the files of a project that hold lessons; of past sessions, say what they propose."""
    if take_in is None and (not _is_asked() or workspace.state.get("files_asked")):
        return
    workspace.state.put(files_asked=workspace.wall())
    there = moving.lying_here(workspace) if take_in is not False else None
    if there and (kept := [Path(path) for path, number in there.files.items() if number]):
        told = ", ".join(each.relative_to(workspace.root).as_posix() for each in kept[:_FILES_SHOWN])
        more = f" and {len(kept) - _FILES_SHOWN} more" if len(kept) > _FILES_SHOWN else ""
        lessons = counted(there.patterns + there.discoveries, "lesson")
        if take_in or typer.confirm(f"Take in {lessons} from {told}{more}?", default=True):
            done = moving.import_files(workspace, agent, kept)
            say(f"took in {counted(done.patterns_new + done.discoveries_new, 'new lesson')} from {told}{more}")
    if found := moving.proposals(workspace, agent, [], 30)[0]:
        say(f"past sessions propose {counted(len(found), 'lesson')}: `fleet import --transcripts` shows them")


def _offer_host(workspace: Workspace, host: str) -> None:
    file = install.SettingsFile.of(workspace.root)
    is_settled = workspace.state.get("host_asked") or install.callers(workspace.root)[0]
    if not host and _is_asked() and not is_settled:
        workspace.state.put(host_asked=workspace.wall())
        told = f"Let Claude Code call fleet by itself ({file.path.relative_to(workspace.root)})?"
        host = CLAUDE_CODE if typer.confirm(told, default=True) else "none"
    if host in ("", "none"):
        return
    changed = any(each.is_other for each in file.install())
    say(f"{file.path} calls fleet {'now, from the next session on' if changed else 'already'}")


def _tell_next(workspace: Workspace) -> None:
    """Name the two commands that come next."""
    is_called = bool(install.callers(workspace.root)[0])
    first = (
        "`fleet start` shows what a session starts with"
        if is_called
        else "`fleet install claude-code` lets each session start with what is known"
    )
    say(f'next: {first}; `fleet correct --wrong "..." --right "..." --pattern "..."` logs what was learned')


def _tell_found(workspace: Workspace) -> None:
    """Ask the clan what it knows, and say what to do next. Without an answer the workspace stands all the same."""
    try:
        with output.waiting("Fetching"):
            done = sharing.fetch(workspace, workspace.agent())
    except FleetError as why:
        note(f"the clan's lessons are not here yet: {why}")
        return
    if done.why:
        note(f"the clan's lessons are not here yet: {done.why}")
        return
    lessons, found = finding.counted(workspace), workspace.discoveries.count()
    if workspace.tree.head() and (lessons or found):
        agents = {each for lesson in workspace.patterns.lessons() for each in lesson.agents()}
        whose = f" from {counted(len(agents), 'agent')}" if agents else ""
        say(f"{done.remote} knows {counted(lessons, 'lesson')}{whose} and {counted(found, 'discovery', 'discoveries')}")
    else:
        say(f"{done.remote} answers, and knows nothing yet")


def _offer_embedding(workspace: Workspace, *, yes: bool, is_new: bool) -> None:
    found = Embeddings(workspace)
    state, what = found.state, found.hint
    if state == "missing" and is_new:
        say(f"optional: lessons are also found by what they mean, with the extra `semantic`; {what}")
    question = f"Send the clan's lessons to {what}, so that they are found by what they mean?"
    if state == "unagreed" and _is_agreed(question, yes=yes):
        found.agree()
        say(f"lessons are embedded by {what}")


def _offer_webhook(workspace: Workspace, *, yes: bool) -> None:
    if not (host := Notices(workspace).unagreed()):
        return
    if not _is_agreed(f"Send a message to {host} whenever a reflection is done or something waits for you?", yes=yes):
        say(f"{host} gets no messages until somebody agrees to it here: `fleet init` asks on a terminal")
        return
    try:
        Notices(workspace).agree()
        say(f"messages go to {host}")
    except UsageError as why:
        note(f"[notify] webhook: {why}")


def _is_agreed(question: str, *, yes: bool) -> bool:
    return yes or (sys.stdin.isatty() and typer.confirm(question, default=False))


# --- sync -----------------------------------------------------------------------------------------------------------


@app.command("sync")
def _sync(
    dry_run: Annotated[bool, typer.Option("--dry-run", help="Print every outgoing line; send nothing.")] = False,
    yes: output.Confirmed = False,
    agent: output.Agent = "",
) -> None:
    """Pull, join, push and render. Afterwards this machine and the clan have the same lessons."""
    with output.opened() as workspace:
        who = output.agent_in(workspace, agent)
        if dry_run:
            _tell_outgoing(sharing.dry_run(workspace, who))
            return
        if _is_paused(workspace, "synced"):
            return
        with output.waiting("Syncing"):
            done = _synced(workspace, who, yes=yes)
        _tell_synced(done)
        for line in reflecting.to_review(reflecting.weighed(workspace)):
            output.say(line)
        if done.is_partial or (done.why and not done.remote):
            raise typer.Exit(EXIT_REFUSED)


def _synced(workspace: Workspace, agent: str, *, yes: bool, compact: bool = False) -> Synced:
    """Sync; where nobody has agreed to the remote yet, ask a person and do it again."""
    try:
        return sharing.sync(workspace, agent, yes=yes, compact=compact)
    except ConsentNeededError as needed:
        if not sys.stdin.isatty():
            raise
        if not typer.confirm(f"Share this clan's lessons with {needed.shown} ({needed.origin})?", default=False):
            raise UsageError("nothing was sent. Name another remote with `fleet init --remote URL`") from needed
        return sharing.sync(workspace, agent, yes=True, compact=compact)


def _is_paused(workspace: Workspace, done: str) -> bool:
    """Tell whether sharing is paused here, and say so: what was asked for was not done."""
    held = workspace.state.paused(workspace.wall())
    if held:
        say(f"not {done}: sharing is paused {held}. Everything is kept here; `fleet resume` ends the pause")
    return held is not None


def _tell_outgoing(out: Outgoing) -> None:
    # The lines alone on stdout, as they would go out: `fleet sync --dry-run | jq .id`.
    for path, lines in out.lines.items():
        note(f"{path}: {counted(len(lines), 'line')}")
        for raw in lines:
            say(raw.decode("utf-8", "backslashreplace"))
    for each in out.withheld:
        note(f"stays here: a line of {each.path} {each.reason}")
    note(f"{counted(out.count, 'line')} would go out; nothing was sent")
    if out.withheld:
        raise typer.Exit(EXIT_REFUSED)


def _tell_synced(done: Synced) -> None:
    if not done.remote and done.why:
        say(f"nothing was sent: {done.why}. All is kept here; mend the file, and `fleet sync` again")
    elif not done.remote:
        say("nothing was sent: no remote is named. All is kept here; `fleet init --remote URL` names one")
    else:
        verb = "exchanged, in part," if done.is_partial else "put back and synced" if done.put_back else "synced"
        came = [counted(done.patterns_in, "lesson")] if done.patterns_in else []
        came += [counted(done.discoveries_in, "discovery", "discoveries")] if done.discoveries_in else []
        told = f"{' and '.join(came)} new or changed in" if came else "nothing new came in"
        say(f"{verb} with {done.remote}: {counted(done.out, 'line')} out; {told}")
    for number, what in (
        (done.withheld, "held back here by the gate: `fleet sync --dry-run` tells why"),
        (done.held, "stamped more than a day ahead of this machine's clock: left out here until it gets there"),
        (done.carried, "carried for a newer version of fleet"),
        (done.refused - done.refused_before, "could not be read and went to quarantine: `fleet status` tells why"),
        (done.refused_before, "told before still cannot be read, and do no harm: `fleet status` lists them"),
        (done.left_out, "with words of others left out here until you decide: `fleet review`"),
        (done.lost, "had been lost by the remote and were sent again: its history was rewritten or reverted"),
    ):
        if number:
            note(f"{counted(number, 'line')} {what}")
    if done.put_back:
        note(
            f"{counted(len(done.put_back), 'file')} here lacked lines that the clan's tree holds: deleted, or an older "
            f"copy came back; they were put back ({', '.join(done.put_back[:3])}). To take a lesson out: `fleet retire`"
        )
    if done.edition:
        say("wrote a new edition of patterns.jsonl and patterns.md")
    for text in done.promoted:
        say(f"promoted into memory.md: {text}")


@app.command("compact")
def _compact(yes: output.Confirmed = False, agent: output.Agent = "", as_json: output.Json = False) -> None:
    """Write a whole edition now. Drops from the shards what it covers, and syncs at the same time."""
    with output.opened() as workspace:
        who = output.agent_in(workspace, agent)
        if _is_paused(workspace, "compacted"):
            return
        with output.waiting("Compacting"):
            done = _synced(workspace, who, yes=yes, compact=True)
        told = "wrote a new edition" if done.edition else "the edition is whole already"
        if not done.remote:
            told += "\nthe shards stay as they are: no remote is named that would hold what they say"
        output.tell({"edition": done.edition, "sent": done.out}, told, as_json=as_json)
        if done.is_partial:
            note("something was held back or could not be read: `fleet status` tells what and why")
            raise typer.Exit(EXIT_REFUSED)


@app.command("render-patterns")
def _render_patterns(as_json: output.Json = False) -> None:
    """Write patterns.md anew, without a sync: what other fleets call it."""
    with output.opened() as workspace:
        pages.write_page(workspace)
        path = str(workspace.clan / PAGE)
        output.tell({"page": path}, f"wrote {path}", as_json=as_json)


@app.command("pause")
def _pause(
    minutes: Annotated[
        int | None, typer.Option("--minutes", min=1, max=527_040, help="It ends by itself after so many.")
    ] = None,
) -> None:
    """Share nothing until `fleet resume`. Logging and reading go on; what is logged waits here."""
    with output.opened() as workspace:
        held = sharing.Membership(workspace).pause(minutes)
        say(f"sharing is paused {held}; lessons are still logged, and wait here")


@app.command("resume")
def _resume() -> None:
    """End a pause. Nothing is sent by this itself."""
    with output.opened() as workspace:
        was_paused = workspace.state.paused(workspace.wall()) is not None
        workspace.state.resume()
        say("sharing goes on with the next `fleet sync`" if was_paused else "sharing was not paused")


@app.command("leave")
def _leave(yes: output.Yes = False) -> None:
    """Take this machine out of the clan. It forgets the remote and keeps every line it has."""
    with output.opened() as workspace:
        for line in sharing.Membership(workspace).what_stays():
            say(line)
        output.confirm("Leave?", yes=yes)
        for line in sharing.Membership(workspace).leave():
            say(line)


# --- how it stands --------------------------------------------------------------------------------------------------


@app.command("status")
def _status(as_json: output.Json = False, agent: output.Agent = "") -> None:
    """Tell how this workspace stands. What waits to go out, what was quarantined and why, who is in the clan."""
    with output.opened() as workspace:
        who = output.agent_in(workspace, agent, or_guest=True)
        found = doctor.status(workspace, who)
        if as_json:
            output.say_json(found)
        else:
            for label, lines in _sections(found):
                for at, line in enumerate(filter(None, lines)):
                    output.say_row((f"{'' if at else label:<{_LABEL}}", "bold"), (line, ""))


def _sections(found: dict[str, Any]) -> Iterator[tuple[str, list[str]]]:
    """Yield what stands behind each label; an empty line, or nothing, is not shown."""
    replica = f" ({found['replica']})" if found["replica"] else ""
    yield "workspace", [found["workspace"]]
    yield "agent", [f"{found['agent'] or 'none yet: fleet init --agent NAME'}{replica}"]
    yield "remote", [f"{found['remote']}, branch {found['branch']}" if found["remote"] else "none named; works offline"]
    yield "last sync", [output.when(found["last_sync"]) or _never(found)]
    yield "failed", [found["sync_failed"]]
    yield "stale", [found["stale"]]
    yield "paused", [f"{found['paused']}: nothing is shared" if found["paused"] else ""]
    known = counted(found["discoveries"], "discovery", "discoveries")
    yield "known", [f"{counted(found['patterns'], 'lesson')}, {known}"]
    waiting = found["waiting"]
    below = [f"{number} in {path}" for path, number in waiting["paths"].items()]
    yield "to go out", [counted(waiting["lines"], "line"), *below]
    yield "clock", [found["clock"], "set it, best by NTP"] if found["clock"] else []
    yield "memory", _memory_lines(found["memory"])
    yield from _decisions(found)
    yield from _kept_back(found)
    rows = [f"{each['replica']:<24} {output.when(each['last']):<18} {each['where']}" for each in found["replicas"]]
    yield "replicas", [f"{counted(len(rows), 'replica')} seen", *rows]


def _decisions(found: dict[str, Any]) -> Iterator[tuple[str, list[str]]]:
    """Yield what a person has decided here, and what waits for that."""
    trust, review, waits = found["trust"], found["review"], found["inbox"]
    for each in trust["blocked"]:
        since = f" since {output.when(each['since'])}" if each["since"] else ""
        yield "blocked", [f"{each['name']}{since}: `fleet unblock {each['name']}` undoes it"]
    yield "left out", [f"{each['told']}: fleet review" for each in trust["waiting"]]
    opposed, pairs = review["contradictions"], review["pairs"]
    yield "review", [f"{counted(opposed, 'pair')} of lessons contradict each other" if opposed else ""]
    yield "review", [f"{counted(pairs, 'pair')} may be one lesson: fleet review" if pairs else ""]
    if waits["number"]:
        yield "inbox", [output.decisions_waiting(waits)]
    for each in found["guards"]:
        yield "guard", [f"{each['decision']} at {each['trigger']}: {each['lesson'] or each['id']}"]


def _kept_back(found: dict[str, Any]) -> Iterator[tuple[str, list[str]]]:
    """Yield what is not counted, not read, or not sent, and why."""
    for key, what in (
        ("unfilled", "without a pattern yet"),
        ("held", "held: stamped over a day ahead"),
        ("carried", "carried for a newer version"),
        ("refused", "unreadable in the files as they are"),
    ):
        yield key, [f"{counted(found[key], 'line')} {what}" if found[key] else ""]
    for each in found["edited"]:
        how = f"`fleet edit {each} --set text=...` says its lesson otherwise"
        yield "edited", [f"an entry since it was counted; {how}"]
    if left := found["not_taken"]:
        shown = [f"line {each['line']}: {each['reason']}: {each['text']}" for each in left[:_SHOWN]]
        pieces = counted(len(left), "piece")
        yield "not taken", [f"{pieces} of {left[0]['path']}, which say nothing to do or to heed", *shown]
    for each in found["withheld"]:
        yield "stays here", [f"a line of {each['path']} {each['reason']}"]
    if kept := found["quarantined"]:
        shown = [f"{each['path']}, line {each['line']}: {each['reason']}" for each in kept[:_SHOWN]]
        yield "quarantine", [f"{counted(len(kept), 'line')} in .fleet/quarantine/refused.jsonl", *shown]
    if kept := found["held_files"]:
        shown = [f"{each['path']}: {each['reason']}" for each in kept[:_SHOWN]]
        yield "held files", [f"{counted(len(kept), 'file')} of the clan's tree: not read, and not dropped", *shown]


def _never(found: dict[str, Any]) -> str:
    """Say why nothing of the clan may be known here: an empty clan and one that nobody asked look alike."""
    if found["fetched"]:
        return f"never; fetched {output.when(found['fetched'])}, and nothing was sent"
    return "never: what the clan knows is not here yet; `fleet sync` asks" if found["remote"] else "never"


def _memory_lines(memory: dict[str, Any]) -> list[str]:
    """Return how full the memory is, and what waits."""
    if not memory:
        return []
    size, waiting = f"{memory['chars']:,} of {memory['chars_max']:,} characters", memory["waiting"]
    lines = [f"{counted(len(memory['lessons']), 'lesson')}, {size}", memory["trouble"]]
    lines += [f"waits: {one['text']} ({one['evidence']}; {one['id']}): {one['why']}" for one in waiting[:_SHOWN]]
    return [*lines, f"and {len(waiting) - _SHOWN:,} more wait" if len(waiting) > _SHOWN else ""]


@app.command("doctor")
def _doctor(
    fix: Annotated[bool, typer.Option("--fix", help="Mend what can be mended without losing anything.")] = False,
    online: Annotated[bool, typer.Option("--online", help="Ask the remote whether it answers, too.")] = False,
    as_json: output.Json = False,
) -> None:
    """Look for what is wrong here. Tells what it means and what to do; exits with 1 if anything is."""
    with output.opened() as workspace:
        worst, found = doctor.examine(workspace, output.chosen.agent_named(), fix=fix, online=online)
        told = {each.what for each in found}
        workspace.warnings = [each for each in workspace.warnings if each not in told]
        if as_json:
            output.say_json({"worst": worst, "findings": [each._asdict() for each in found]})
        else:
            for each in found:
                level, style = ("mended", "green") if each.fixed else (each.level, _LEVELS.get(each.level, ""))
                output.say_row((f"{level:<8}", style), (f"{each.check + ':':<12}", ""), (each.what, ""))
                for part in (each.means, each.do) if each.level != "ok" else ():
                    if part:
                        output.say_row((f"{'':<20}", ""), (part, ""))
    if worst in ("warning", "error"):
        raise typer.Exit(EXIT_NO)
