"""Commands for agents that work, are stuck, or hand over: search, mutations, the journal, observations."""

from contextlib import suppress
from typing import Annotated, Any

import typer

from fleet.app import observing, searching
from fleet.app.searching import Answer
from fleet.cli import output
from fleet.cli.output import argument, flag, option
from fleet.learn.journal import Declaration, Journal, Proposal
from fleet.model import names
from fleet.model.errors import DiskError, UsageError
from fleet.store.workspace import Workspace
from fleet.text.screening import counted, readable

app = output.commands()

_KINDS = ("pattern", "discovery", "correction", "journal")
_EVENTS = ("commit", "fix", "reuse", "dead-end", "workaround")
_CODES = output.completing(lambda on, _: [(each.code, each.name) for each in Journal(on, names.GUEST).strategies()])


# A word such as -D is searched for. A word that is an option of this command needs "--" before it.
@app.command("search", context_settings={"ignore_unknown_options": True})
def _search(
    words: Annotated[
        list[str],
        argument("WORDS...", 'All of them are searched for; "in quotes" as a phrase. Put -- before a word like -n.'),
    ],
    count: Annotated[int, typer.Option("-n", "--count", min=1, max=10**9, help="The most to show.")] = 20,
    kind: Annotated[
        list[str] | None,
        option("--kind", "KIND", "Only pattern, discovery, correction or journal. May be repeated.", _KINDS),
    ] = None,
    by: Annotated[str, option("--agent", "NAME", "Only what this agent wrote.", "agent")] = "",
    since: Annotated[str, option("--since", "DATE", "Only entries of this day or later; 3d: of the last three.")] = "",
    everything: Annotated[bool, flag("--all", "Retired lessons too.")] = False,
    of_a_list: Annotated[str | None, typer.Option("--category", "--tag", "--type", hidden=True)] = None,
) -> None:
    """Search lessons, discoveries, corrections and journals."""
    if of_a_list is not None:
        raise UsageError(
            "`fleet search` has no --category, --tag and --type: `fleet patterns` and `fleet gossip` have. "
            "To look for such a word, put -- before all words"
        )
    query = " ".join(words)
    with output.opened() as workspace:
        agent = ""
        with suppress(DiskError):  # a search is noted with its agent where the disk can be read
            agent = output.agent_in(workspace, or_guest=True)
        with output.progress("Searching"):
            answer = searching.search(
                workspace,
                query,
                kinds=tuple(kind or ()),
                everything=everything,
                limit=count,
                agent=agent,
                by=by,
                since=since,
            )
        _show_hits(answer, query, count)
    if not answer.hits:
        raise typer.Exit(output.EXIT_NO)


def _show_hits(answer: Answer, query: str, count: int) -> None:
    text = readable(query)
    if answer.hits and answer.is_near:
        output.hint(f"nothing has all words of {text[:80]!r}; nearest:")
    results = [hit._asdict() for hit in answer.hits]
    document = {"results": results, "query": text, "exact": not answer.is_near, "more": answer.is_more}
    output.show(document, map(output.headline, answer.rendered().splitlines() if answer.hits else ()))
    if not answer.hits:
        way = "Try fewer or shorter words; --all looks at retired lessons too"
        if names.is_id(query.strip()):
            way = f"Search looks for words: `fleet show {query.strip()}` looks up an id"
        output.note(f"nothing is known about {text[:80]!r}. {way}")
    if answer.is_more:
        output.hint(f"there are more: -n {count * 5} shows them")


@app.command("mutate")
def _mutate(
    code: Annotated[str, argument("CODE", "M1 to M8, or a name; --list shows them.", _CODES)] = "",
    failed: Annotated[str, option("--failed", "T", "What did not work.")] = "",
    switch: Annotated[str, option("--switch", "T", "What you do instead.")] = "",
    why: Annotated[str, option("--why", "T", "Why that should work.")] = "",
    listed: Annotated[bool, flag("--list", "Show the eight strategies.")] = False,
    proposed: Annotated[bool, flag("--proposed", "Show what worked and is no lesson yet.")] = False,
    worked: Annotated[bool, flag("--worked", "The last declared one has worked.")] = False,
) -> None:
    """Declare another strategy when stuck: it goes into the journal, and allows a stopped command one more try."""
    if sum((bool(code), listed, proposed, worked)) != 1:
        raise UsageError(
            'name a mutation, such as fleet mutate M5 --failed "..." --switch "..." --why "...", or one of --list, '
            "--proposed and --worked. Nothing was written"
        )
    with output.acting(or_guest=True) as (workspace, who):
        named = output.chosen.session_named()
        if listed:
            rows = [each._asdict() for each in Journal(workspace, who).strategies()]
            shown = ["{code} {name}: {when}\n   e.g. {example}".format(**each) for each in rows]
            output.show({"mutations": rows}, shown)
        elif proposed:
            _show_proposals(Journal(workspace, who).proposals())
        elif worked:
            event = Journal(workspace, who).worked(named, "")
            text = f"{event['code']} ({event['name']}) worked: recorded, and proposed as a lesson"
            ways = "`fleet mutate --proposed` has the command; the next `fleet sleep` logs it by itself"
            output.show({"worked": event["id"]}, f"{text}. {ways}")
        else:
            declared, known = searching.declare(workspace, who, named, code, failed, switch, why)
            _show_declared(workspace, declared, known)


def _show_declared(workspace: Workspace, declared: Declaration, known: Answer | None) -> None:
    path = declared.path.relative_to(workspace.root).as_posix()
    opened = f"; one more try is open: {', '.join(declared.opened)}" if declared.opened else ""
    rows = [declared.block, f"\nin {path}{opened}", "when it has worked and nobody noticed: fleet mutate --worked"]
    document: dict[str, Any] = {"id": declared.id, "code": declared.strategy.code, "name": declared.strategy.name}
    document |= {"journal": path, "opened": list(declared.opened)}
    if known is not None:
        document["known"] = [{"kind": hit.kind, "where": hit.id or hit.where, "text": hit.text} for hit in known.hits]
        none = "nothing is known about it: fleet search WORDS looks on"
        rows.append(f"\nwhat is known about it:\n{known.rendered()}" if known.hits else f"\n{none}")
    output.show(document, rows)
    output.note_secrets(declared.secrets)


def _show_proposals(proposals: list[Proposal]) -> None:
    rows = [f"{each.id} {each.code} ({each.name}) worked on: {each.failed}\n  {each.command}" for each in proposals]
    output.show({"proposals": [each._asdict() for each in proposals]}, rows or "no mutation waits to become a lesson")


@app.command("journal")
def _journal(
    title: Annotated[str, option("--title", "T", "What you worked on.")],
    intent: Annotated[str, option("--intent", "T", "What it is for.")] = "",
    approach: Annotated[str, option("--approach", "T", "How you went about it.")] = "",
    failed: Annotated[list[str] | None, option("--failed", "T", "What failed; repeats.")] = None,
    after: Annotated[list[str] | None, option("--next", "T", "What was done then, or is next; repeats.")] = None,
    ok: Annotated[list[str] | None, option("--ok", "T", "What worked; repeats.")] = None,
    state: Annotated[str, option("--state", "T", "The state now.")] = "",
) -> None:
    """Add an entry to this branch's journal. It is on the disk when the command ends."""
    with output.acting(or_guest=True) as (workspace, who):
        written = Journal(workspace, who).write(title, intent, approach, failed or (), after or (), ok or (), state)
        path = written.path.relative_to(workspace.root).as_posix()
        output.show({"journal": path, "branch": written.branch}, f"in {path}, the journal of {written.branch}")
        output.note_secrets(written.secrets)


@app.command("handover")
def _handover() -> None:
    """Show the end of this branch's journal, and what is open."""
    with output.acting(or_guest=True) as (workspace, who):
        handover = searching.handover(workspace, who, output.chosen.session_named())
        output.show(handover, _handover_rows(handover, workspace.own_path(who, "corrections.md")))


def _handover_rows(handover: dict[str, Any], log: str) -> list[str]:
    path, branch, lines, pending = handover["journal"], handover["branch"], handover["lines"], handover["open"]
    head = f"{path}, the journal of {branch}" if lines else f"no journal of {branch} yet ({path})"
    rows = [*map(_failed_row, pending["attempts"])]
    if pending["unfilled"]:
        unstated = counted(pending["unfilled"], "correction")
        rows.append(f"- {unstated} without a lesson: fleet learn --waiting, or in {log}")
    rows += [
        f"- {each['code']} ({each['name']}) worked, and is no lesson yet: {each['command']}"
        for each in pending["proposals"]
    ]
    return [head, "", *lines, *([""] if lines else []), *(["open:", *rows] if rows else ["nothing is open"])]


def _failed_row(attempt: dict[str, Any]) -> str:
    closed = "; the same, unchanged, is stopped: fleet mutate --list" if attempt["closed"] else ""
    times = counted(attempt["failures"], "time")
    return f"- `{attempt['command']}` failed, {times} in a row: {attempt['error']}{closed}"


@app.command("observe")
def _observe(
    kind: Annotated[str, argument("KIND", "commit, fix, reuse, dead-end or workaround.", _EVENTS)],
    text: Annotated[list[str], argument("TEXT...", "What happened, in one line.")],
) -> None:
    """Note an event of this session as a line of .agents.local.md: durable before this returns."""
    if kind.casefold() == "dead" and text[:1] and text[0].casefold() == "end":
        kind, text = "dead-end", text[1:]
    with output.acting(or_guest=True) as (workspace, who):
        named = observing.session_of(workspace, who, output.chosen.session_named())
        done = observing.observe(workspace.root, who, named, kind, " ".join(text), workspace.world.wall_ms())
        document = {"path": done.path, "line": done.line, "cut": done.is_cut, "directive": done.is_directive}
        output.show(document, f"in {done.path}: {done.line}")
    if done.is_cut:
        output.note("cut to one line of under 120 characters, so it counts for no rule and no topic: say it shorter")
    if done.is_directive:
        output.note("this reads as a directive: it is kept as data, and never promoted by itself")
