"""What agents type when they are stuck, and when they hand over: mutations, the journal, what is open."""

from typing import TYPE_CHECKING, Annotated

import typer

from fleet.cli import desk, options

if TYPE_CHECKING:
    from fleet.keep.index import Index
    from fleet.keep.workspace import Workspace
    from fleet.learn.mutations import Declared, Open, Proposal
    from fleet.recall.search import Answer

ORACLE = "M7"
ORACLE_HITS = 5
ORACLE_WORDS_MAX = 12
ORACLE_WORD_CHARS_MIN = 4


def register(app: typer.Typer) -> None:
    """Add the commands of this module."""
    app.command()(mutate)
    app.command()(journal)
    app.command()(handover)


def mutate(
    code: Annotated[str, typer.Argument(metavar="CODE", help="M1 to M8, or a name; --list says which for what.")] = "",
    failed: Annotated[str, typer.Option("--failed", metavar="T", help="What did not work.")] = "",
    switch: Annotated[str, typer.Option("--switch", metavar="T", help="What you do instead.")] = "",
    why: Annotated[str, typer.Option("--why", metavar="T", help="Why that should work.")] = "",
    listed: Annotated[bool, typer.Option("--list", help="Show the eight strategies.")] = False,
    proposed: Annotated[bool, typer.Option("--proposed", help="Show what worked and is no lesson yet.")] = False,
    drop: Annotated[str, typer.Option("--drop", metavar="ID", help="Propose this one no more.")] = "",
    worked: Annotated[bool, typer.Option("--worked", help="Say that the last one declared has worked.")] = False,
    session: options.Session = "",
    agent: options.Agent = "",
    directory: options.Directory = "",
    as_json: options.Json = False,
) -> None:
    """Declare another strategy when stuck: written into the journal, and opens a stopped command for one more try."""
    from fleet.keep.errors import UsageError
    from fleet.learn import mutations

    if sum((bool(code), listed, proposed, bool(drop), worked)) != 1:
        raise UsageError(
            'say which mutation, such as fleet mutate M5 --failed "..." --switch "..." --why "...", or one of --list, '
            "--proposed, --drop ID and --worked. Nothing was written"
        )
    with desk.opened(directory) as workspace:
        if listed:
            _list(workspace, as_json=as_json)
            return
        who, named = desk.agent_in(workspace, agent), desk.session_named(session)
        if proposed:
            _show_proposals(mutations.proposals(workspace, who), as_json=as_json)
        elif drop:
            dropped = mutations.drop(workspace, who, drop)
            _tell({"dropped": dropped.id}, f"{dropped.id} is proposed no more", as_json=as_json)
        elif worked:
            event = mutations.worked(workspace, who, named, "")
            text = f"{event['code']} ({event['name']}) worked: recorded, and proposed as a lesson"
            _tell({"worked": event["id"]}, f"{text}. `fleet mutate --proposed` has the command", as_json=as_json)
        else:
            # Asked before it is declared: else the declaration itself would be the best answer.
            is_oracle = bool(failed) and mutations.find(workspace, code).code == ORACLE
            known = _ask_the_oracle(workspace, failed) if is_oracle else None
            declared = mutations.declare(workspace, who, named, code, failed, switch, why)
            _show_declared(workspace, declared, known, as_json=as_json)


def _list(workspace: "Workspace", *, as_json: bool) -> None:
    from fleet.learn import mutations

    known = mutations.strategies(workspace)
    rows = [{"code": s.code, "name": s.name, "when": s.when, "example": s.example} for s in known]
    text = "\n".join(f"{s.code} {s.name}: {s.when}\n   e.g. {s.example}" for s in known)
    _tell({"mutations": desk.cleaned(rows)}, text, as_json=as_json)


def _show_declared(workspace: "Workspace", declared: "Declared", known: "Answer | None", *, as_json: bool) -> None:
    if as_json:
        told: dict[str, object] = {
            "id": declared.id,
            "code": declared.strategy.code,
            "name": declared.strategy.name,
            "journal": declared.path.relative_to(workspace.root).as_posix(),
            "opened": list(declared.opened),
        }
        if known is not None:
            told["known"] = [{"kind": hit.kind, "where": hit.id or hit.where, "text": hit.text} for hit in known.hits]
        desk.say_json(desk.cleaned(told))
    else:
        desk.say(declared.block)
        opened = f"; one more try is open: {', '.join(declared.opened)}" if declared.opened else ""
        desk.say(desk.cleaned(f"\nin {declared.path.relative_to(workspace.root)}{opened}"))
        desk.say("when it has worked and nobody noticed: fleet mutate --worked")
        if known is not None:
            _show_known(known)
    if declared.secrets:
        desk.note(f"a secret was taken out ({', '.join(declared.secrets)}); if it was a real one, rotate it")


def _show_known(known: "Answer") -> None:
    from fleet.recall.search import render

    desk.say("\nwhat is known about it:" if known.hits else "\nnothing is known about it: fleet search WORDS looks on")
    if known.hits:
        desk.say(render(known))


def _ask_the_oracle(workspace: "Workspace", failed: str) -> "Answer":
    """Return what ``fleet search`` finds: for all of it, else what has most of its words."""
    from fleet.cli.search import pages
    from fleet.keep import indexing, view
    from fleet.recall import search as recall

    if view.is_far_behind(workspace):
        desk.note("what is known about it was not looked for: the search index has to be made first, by `fleet sync`")
        return recall.Answer()
    words = dict.fromkeys(word.strip(".,;:!?()[]'\"`") for word in failed.split())
    long = sorted((word for word in words if len(word) >= ORACLE_WORD_CHARS_MIN), key=len, reverse=True)

    def ask(tables: "Index") -> "Answer":
        whole = recall.search(tables, failed, limit=ORACLE_HITS) if recall.terms(failed) else recall.Answer()
        if whole.hits:
            return whole
        found: dict[tuple[str, str], list[recall.Hit]] = {}
        for word in long[:ORACLE_WORDS_MAX]:
            for hit in recall.search(tables, f'"{word}"', limit=ORACLE_HITS * 2).hits:
                found.setdefault((hit.id, hit.where), []).append(hit)
        best = sorted(found.values(), key=len, reverse=True)  # stable: of equals, what the longer words found
        return recall.Answer(tuple(hits[0] for hits in best[:ORACLE_HITS]), len(best) > ORACLE_HITS, bool(best))

    return indexing.answer(workspace, pages(workspace), ask)


def _show_proposals(found: "list[Proposal]", *, as_json: bool) -> None:
    rows = desk.cleaned([each._asdict() for each in found])
    text = "\n".join(
        f"{each.id} {each.code} ({each.name}) worked on: {each.failed}\n  {desk.cleaned(each.command)}"
        for each in found
    )
    _tell({"proposals": rows}, text or "no mutation waits to become a lesson", as_json=as_json)


def journal(
    title: Annotated[str, typer.Option("--title", metavar="T", help="What you worked on.")],
    intent: Annotated[str, typer.Option("--intent", metavar="T", help="What it is for.")] = "",
    approach: Annotated[str, typer.Option("--approach", metavar="T", help="How.")] = "",
    failed: Annotated[list[str] | None, typer.Option("--failed", metavar="T", help="Did not work; repeats.")] = None,
    after: Annotated[
        list[str] | None, typer.Option("--next", metavar="T", help="What was done then, or is next; repeats.")
    ] = None,
    ok: Annotated[list[str] | None, typer.Option("--ok", metavar="T", help="Worked; repeats.")] = None,
    state: Annotated[str, typer.Option("--state", metavar="T", help="How it stands now.")] = "",
    agent: options.Agent = "",
    session: options.Session = "",  # noqa: ARG001 - hosts pass it; a journal belongs to a branch
    directory: options.Directory = "",
    as_json: options.Json = False,
) -> None:
    """Add an entry to the journal of this branch: durable before this returns."""
    from fleet.learn.journal import Entry, write

    told = Entry(title, intent, approach, failed or (), after or (), ok or (), state)
    with desk.opened(directory) as workspace:
        written = write(workspace, desk.agent_in(workspace, agent), told)
        where = written.path.relative_to(workspace.root).as_posix()
        _tell(
            {"journal": where, "branch": desk.cleaned(written.branch)},
            desk.cleaned(f"in {where}, the journal of {written.branch}"),
            as_json=as_json,
        )
        if written.secrets:
            desk.note(f"a secret was taken out ({', '.join(written.secrets)}); if it was a real one, rotate it")


def handover(
    agent: options.Agent = "",
    session: options.Session = "",
    directory: options.Directory = "",
    as_json: options.Json = False,
) -> None:
    """Show the end of this branch's journal, and what is open."""
    from fleet.learn import corrections, mutations
    from fleet.learn import journal as log

    with desk.opened(directory) as workspace:
        who = desk.agent_in(workspace, agent)
        path, branch = log.of_branch(workspace, who)
        lines = log.last_lines(workspace, who)
        attempts = mutations.open_attempts(workspace, who, desk.session_named(session))
        unfilled = corrections.unfilled(workspace, who)
        proposed = mutations.proposals(workspace, who)
        where = path.relative_to(workspace.root).as_posix()
        if as_json:
            told = {
                "agent": who,
                "branch": branch,
                "journal": where,
                "lines": lines,
                "open": {
                    "attempts": [_as_attempt(each) for each in attempts],
                    "unfilled": unfilled,
                    "proposals": [each._asdict() for each in proposed],
                },
            }
            desk.say_json(desk.cleaned(told))
            return
        head = f"{where}, the journal of {branch}" if lines else f"no journal of {branch} yet ({where})"
        open_rows = [*map(_as_row, attempts), *_unfilled(unfilled, who), *map(_as_proposal, proposed)]
        rows = [
            head,
            "",
            *lines,
            *([""] if lines else []),
            *(["open:", *open_rows] if open_rows else ["nothing is open"]),
        ]
        desk.say(desk.cleaned("\n".join(rows)))


def _as_attempt(each: "Open") -> dict[str, object]:
    return {
        "session": each.session,
        "family": each.family,
        "command": each.command,
        "error": each.said,
        "failures": each.times,
        "closed": each.is_closed,
    }


def _as_row(each: "Open") -> str:
    door = "; the same, unchanged, is stopped: fleet mutate --list" if each.is_closed else ""
    return f"- `{each.command}` failed, {desk.counted(each.times, 'time')} in a row: {each.said}{door}"


def _unfilled(count: int, agent: str) -> list[str]:
    if not count:
        return []
    return [f"- {desk.counted(count, 'correction')} without a pattern yet, in agents/{agent}/corrections.md"]


def _as_proposal(each: "Proposal") -> str:
    return f"- {each.code} ({each.name}) worked, and is no lesson yet: {each.command}"


def _tell(found: dict[str, object], text: str, *, as_json: bool) -> None:
    if as_json:
        desk.say_json(found)
    else:
        desk.say(text)
