"""Commands about lessons and memories: read them, change them, say what they did, and whether it helps."""

import shutil
import sys
from collections.abc import Iterable, Iterator
from typing import Annotated, Any

import msgspec
import typer

from fleet.app import finding, learning, lessons, reflecting, reviewing, starting
from fleet.cli import output
from fleet.model.discovery import TYPES
from fleet.model.errors import UsageError
from fleet.model.pattern import Pattern
from fleet.recall.wording import Renderer, not_working
from fleet.text.screening import counted, one_line, readable

_ON_A_TERMINAL = 100
"""So many lessons a person is shown who asked for no number of them; into a pipe all of them go."""

_WIDTH_PIPED = 100
_UNKNOWN = "at an unknown time"
_SHOWN_FIRST = frozenset({"text", "correct", "category", "tags", "state", "trigger"})

_Category = Annotated[str, typer.Option("--category", metavar="NAME", help="Only those of this category.")]
_Type = Annotated[
    str, typer.Option("--type", metavar="TYPE", help="Only those of this type.", autocompletion=lambda: TYPES)
]
_Tag = Annotated[str, typer.Option("--tag", metavar="WORD", help="Only those with this tag.")]
_By = Annotated[str, typer.Option("--agent", metavar="NAME", help="Only those that this agent logged.")]
_Since = Annotated[str, typer.Option("--since", metavar="DATE", help="Only those met since that day.")]

app = output.commands()


# --- reading --------------------------------------------------------------------------------------------------------


@app.command("gossip")
def _gossip(
    count: Annotated[int, typer.Option("-n", "--count", min=1, help="How many.")] = 20,
    type_: _Type = "",
    tag: _Tag = "",
    by: _By = "",
    since: _Since = "",
    as_json: output.Json = False,
) -> None:
    """Show the newest discoveries of the whole clan."""
    if type_ and type_ not in TYPES:
        raise UsageError(f"--type must be one of {', '.join(TYPES)}, not {type_[:40]!r}")
    with output.opened() as workspace:
        wanted = finding.Wanted(type_, tag, by, since)
        found = wanted.discoveries(workspace, count)
        if as_json:
            output.say_json({"discoveries": msgspec.to_builtins(found)})
        elif not found and any(wanted):
            output.say("no discovery is like that; without the filters there may be some")
        else:
            for row in Renderer(workspace.emoji()).gossip(found).rstrip().splitlines():
                output.say_row((row, "" if row.startswith(" ") else "bold"))


@app.command("patterns")
def _patterns(
    everything: Annotated[bool, typer.Option("--all", help="Retired ones and each merged record, too.")] = False,
    count: Annotated[
        int | None, typer.Option("-n", "--count", min=1, help=f"The first so many; on a terminal {_ON_A_TERMINAL}.")
    ] = None,
    category: _Category = "",
    tag: _Tag = "",
    by: _By = "",
    since: _Since = "",
    as_json: output.Json = False,
) -> None:
    """List the clan's lessons. Merged ones are one lesson, and so are those that say the same in other words."""
    if count is None and not as_json and sys.stdout.isatty():
        count = _ON_A_TERMINAL
    with output.opened() as workspace:
        wanted, clusters = finding.Wanted(category, tag, by, since), reflecting.current_clusters(workspace)
        found = wanted.lessons(workspace, count, clusters, everything=everything)
        if as_json:
            output.say_json(found.as_found())
            return
        for each, into in found.lessons:
            _tell_lesson(each, into)
        if (more := found.total - len(found.lessons)) > 0:
            output.note(f"{more:,} more: -n {found.total} lists all of them, `fleet search` looks for some")
        if not found.lessons:
            is_retired = not everything and next(workspace.patterns.records(), None) is not None
            new = "unasked" if starting.is_unasked(workspace) else "new"
            output.say(_NONE["narrowed" if any(wanted) else "retired" if is_retired else new])
        if found.refused:
            output.note(f"{counted(found.refused, 'line')} could not be read; `fleet status` tells why")


_NONE = {
    "narrowed": "no lesson is like that; without the filters there may be some",
    "retired": "no lesson stands: all were retired, or merged. `fleet patterns --all` lists them",
    "unasked": "no lessons are here yet; `fleet sync` asks the clan for what it knows",
    "new": "no lessons yet. `fleet correct --wrong ... --right ... --pattern ...` logs the first",
}


def _tell_lesson(each: Any, into: str) -> None:
    output.say_row(*_as_row(each.lesson, into))
    for other in each.wordings[1:]:
        said = f"also said: {other.text} ({other.id})"
        output.say_row((f"{'':<18}  {other.count('seen'):>3}x  ", ""), (said, "dim"))
    for against in each.opposites:
        output.say_row((f"{'':<26}", ""), (f"contradicts {against}: `fleet review` decides", "yellow"))


def _as_row(each: Pattern, into: str) -> tuple[tuple[str, str], ...]:
    gone = "" if each.is_present else "  (retired)"
    if into:
        gone += f"  (merged into {into})"
    if why := not_working(each):
        gone += f"  (not working: {why})"
    told = "; ".join(filter(None, [Renderer().author(each.by), Renderer().edits(each)]))
    filed = f"  ({told})" if told else ""
    said = f"{each.text}{filed}{gone}"
    style = "red" if why else "" if each.is_present and not into else "dim"
    return (f"{each.id}  ", "dim"), (f"{each.count('seen'):>3}x  ", "bold"), (said, style)


@app.command("show")
def _show(
    pattern: Annotated[
        str, output.id_of("ID", "The id of a lesson, discovery or correction; a unique beginning is enough.")
    ],
    as_json: output.Json = False,
) -> None:
    """Show all that is known of one lesson, of one discovery (d-...), or of one correction that was logged (c-...)."""
    with output.opened() as workspace:
        if pattern.startswith("c-"):
            found = lessons.show_correction(workspace, pattern)
            output.tell(found, _correction_rows(found), as_json=as_json)
            return
        if pattern.startswith("d-"):
            found = lessons.show_discovery(workspace, pattern)
            output.tell(found, _discovery_rows(found), as_json=as_json)
            return
        asked, lesson, others = lessons.show(workspace, pattern)
        found = finding.lesson_as_json(lesson, is_whole=True)
        rows = [f"{asked} is merged into:"] if lesson.id != asked else []
        rows += [f"{lesson.id}  {found['state']}\n{found['text']}", *_labelled(_as_rows(lesson, found, others))]
        rows += [] if lesson.is_present else [f"  `fleet restore {lesson.id}` brings it back"]
        merged = {"merged": sorted(each.id for each in (lesson, *others))} if others else {}
        output.tell(found | merged, rows, as_json=as_json)


def _discovery_rows(found: dict[str, Any]) -> list[str]:
    head = f"{found['id']}  {found['type']}{'  (taken back)' if found['retracted'] else ''}\n{found['problem']}"
    rows = [(field, str(found[field] or "")) for field in ("solution", "context", "confidence", "minutes")]
    when = f"{output.when(found['at'])} by {found['by']}"
    return [head, *_labelled([*rows, ("tags", ", ".join(found["tags"])), ("found", when)])]


def _correction_rows(found: dict[str, Any]) -> list[str]:
    stands = "counted" if found["lesson"] else "taken back" if found["undone"] else "without a lesson"
    head, when = f"{found['id']}  {stands}\n{found['wrong'] or found['title']}", found["when"] or _UNKNOWN
    rows = [(name, found[name]) for name in ("right", "pattern", "source", "lesson")]
    return [head, *_labelled([*rows, ("logged", f"{when} by {found['agent']}")])]


def _labelled(rows: Iterable[tuple[str, str]]) -> list[str]:
    """Return rows with what there is behind each label."""
    return [f"  {label + ': ' if label else '':<12}{text}" for label, text in rows if text]


def _as_rows(lesson: Pattern, found: dict[str, Any], others: list[Pattern]) -> Iterator[tuple[str, str]]:
    """Yield what is known of a lesson behind its texts: how often it was seen and by whom, and who set what."""
    yield "right", found["correct"]
    yield "category", found["category"]
    yield "tags", ", ".join(found["tags"])
    yield "seen", f"{counted(found['seen'], 'time')} in {counted(found['sessions'], 'session')}"
    for replica, total in sorted(lesson.totals.get("seen", {}).items()):
        yield "", f"{total} by {replica}, last {output.when(lesson.adds.get(replica, '')) or _UNKNOWN}"
    parts = sum(lesson.parts.get("seen", {}).values())
    yield "", f"{parts} written by hand, imported, or counted while it was private" if parts else ""
    if found.get("trigger"):
        how = "; derived from its words: --set trigger=... says better" if found["trigger_derived"] else ""
        yield "before", f"{found['trigger']}{how}"
    yield "not working", found.get("not_working", "")
    when = output.when(lesson.at) if lesson.at > "2000" else _UNKNOWN
    yield "first", f"{when}{' by ' + lesson.by if lesson.by else ''}"
    for field in sorted(lesson.fields.keys() - _SHOWN_FIRST):
        if not field.startswith("agent."):
            yield field, str(lesson.fields[field])
    for field, (stamp, by) in sorted(lesson.edited.items()):
        how = "kept by a merge" if field in lesson.kept else "set"
        yield "", f"{field} was {how} {output.when(stamp)} by {by}"
    for each in others:
        yield "merged", f"{each.id} {each.text}"


# --- changing -------------------------------------------------------------------------------------------------------


@app.command("retire")
def _retire(
    pattern: output.PatternId, yes: output.Yes = False, agent: output.Agent = "", as_json: output.Json = False
) -> None:
    """Retire a lesson. Confirmations that this machine has not seen survive it; `fleet restore` undoes it.

    A discovery (d-...) is taken back for good: you are asked before, or pass --yes.
    """
    with output.opened() as workspace:
        who = output.agent_in(workspace, agent)
        if pattern.startswith("d-"):
            found = lessons.show_discovery(workspace, pattern)
            output.confirm(f"Take back for good: {found['problem'] or found['solution']}?", yes=yes)
            entry = learning.retract(workspace, who, pattern)
            told = f"{entry.id} taken back, for good: {entry.problem or entry.solution}"
            output.tell({"id": entry.id, "retracted": True}, told, as_json=as_json)
            return
        done = lessons.retire(workspace, who, pattern)
        id_ = done.pattern.id
        told = f"{id_} retired{_also(done.others)}: {done.pattern.text}\n`fleet restore {id_}` brings it back"
        output.tell(done.as_found(), told, as_json=as_json)


@app.command("restore")
def _restore(
    pattern: Annotated[str, output.id_of("[ID]")] = "",
    everything: Annotated[bool, typer.Option("--all", help="All that one writer removed; with --removed-by.")] = False,
    removed_by: Annotated[
        str, typer.Option("--removed-by", metavar="AGENT|REPLICA", help="Whose removes are taken back.")
    ] = "",
    since: Annotated[
        str, typer.Option("--since", metavar="TIME", help="Only those that the branch did not hold then: 2026-11-20.")
    ] = "",
    agent: output.Agent = "",
    as_json: output.Json = False,
) -> None:
    """Bring a retired lesson back, with its history; or all that one writer removed."""
    if everything != bool(removed_by) or everything == bool(pattern) or (since and not everything):
        raise UsageError(
            "name one lesson: fleet restore ID; or all of a writer's: fleet restore --all --removed-by NAME"
        )
    with output.opened() as workspace:
        if everything:
            back = reviewing.restore_all(workspace, output.agent_in(workspace, agent), removed_by, since=since)
            rows = [f"{counted(len(back), 'lesson')} back that {removed_by} had removed"]
            rows += [f"  {each}  {text}" for each, text in back]
            output.tell({"restored": [{"id": each, "text": text} for each, text in back]}, rows, as_json=as_json)
            return
        done = lessons.restore(workspace, output.agent_in(workspace, agent), pattern)
        told = f"{done.pattern.id} is back{_also(done.others)}: {done.pattern.text}"
        output.tell(done.as_found(), told, as_json=as_json)


def _also(others: list[str]) -> str:
    return f", with {', '.join(others)}, which is merged with it" if others else ""


@app.command("edit")
def _edit(
    pattern: output.PatternId,
    said: Annotated[
        list[str] | None, typer.Option("--set", metavar="FIELD=VALUE", help="May be repeated; lists: tags=ci,git.")
    ] = None,
    agent: output.Agent = "",
    as_json: output.Json = False,
) -> None:
    """Set fields of a lesson. Without --set: show who set what, and when."""
    with output.opened() as workspace:
        if not said:
            _tell_history(*lessons.history(workspace, pattern), as_json=as_json)
            return
        done = lessons.edit(workspace, output.agent_in(workspace, agent), pattern, said)
        told = f"edited: {', '.join(done.changed)}" if done.changed else "says that already; nothing was changed"
        output.tell({"id": done.id, "fields": done.fields}, f"{done.id} {told}", as_json=as_json)
        output.tell_secrets(done.secrets)
        if done.twins:
            output.note(f"reads like {', '.join(done.twins[:5])} now; `fleet merge` makes them one")
        if done.is_in_memory:
            output.note(f"the memory has it as it was: fleet demote {done.id} && fleet promote {done.id}")
        if done.is_private:
            output.note("nothing more of it leaves this machine; what was sent before stays with the clan")


def _tell_history(pattern: str, fields: dict[str, Any], *, as_json: bool) -> None:
    rows = [pattern]
    for field, told in fields.items():
        value = told["value"] if isinstance(told["value"], str) else output.as_json(told["value"])
        when = f"set {output.when(told['at'])} by {told['by']}" if told["at"] else "as first logged"
        rows.append(f"  {field + ':':<12}{one_line(value)}\n  {'':<12}{when}")
    output.tell({"id": pattern, "fields": fields}, rows, as_json=as_json)


@app.command("merge")
def _merge(
    one: Annotated[str, output.id_of("A")],
    other: Annotated[str, output.id_of("B", "The id of the same lesson in other words.")],
    force: Annotated[
        bool, typer.Option("--force", help="Also if the two texts seem to differ in what they say.")
    ] = False,
    agent: output.Agent = "",
    as_json: output.Json = False,
) -> None:
    """Make two patterns one lesson. Both records are kept, counts add up, `fleet unmerge` undoes it."""
    with output.opened() as workspace:
        done = lessons.merge(workspace, output.agent_in(workspace, agent), one, other, force=force)
        seen, others = counted(done.pattern.count("seen"), "time"), ", ".join(done.others)
        told = f"{done.pattern.id} seen {seen}, with {others}: {done.pattern.text}"
        output.tell(done.as_found(), f"{told}\n`fleet unmerge {done.changed}` undoes it", as_json=as_json)


@app.command("unmerge")
def _unmerge(pattern: output.PatternId, agent: output.Agent = "", as_json: output.Json = False) -> None:
    """Undo a merge. Either of the two ids will do."""
    with output.opened() as workspace:
        done = lessons.unmerge(workspace, output.agent_in(workspace, agent), pattern)
        stays = f"; still merged with {', '.join(done.others)}" if done.others else ""
        seen = counted(done.pattern.count("seen"), "time")
        told = f"{done.changed} is a lesson of its own again{stays}, seen {seen}: {done.pattern.text}"
        output.tell(done.as_found(), told, as_json=as_json)


@app.command("feedback")
def _feedback(
    pattern: output.PatternId,
    helped: Annotated[bool, typer.Option("--helped", help="The lesson kept you from a mistake.")] = False,
    hurt: Annotated[bool, typer.Option("--hurt", help="The lesson led you astray.")] = False,
    session: output.Session = "",
    agent: output.Agent = "",
    as_json: output.Json = False,
) -> None:
    """Say that a lesson helped, or hurt: what hurts more often than it helps is shown as not working."""
    if helped == hurt:
        raise UsageError("say one of --helped and --hurt; nothing was counted")
    with output.opened() as workspace:
        who, named = output.agent_in(workspace, agent), output.chosen.session_named(session)
        lesson = lessons.feedback(workspace, who, pattern, is_helped=helped, session=named)
        totals = {name: lesson.count(name) for name in ("helped", "hurt", "shown", "relapsed")}
        why = not_working(lesson)
        rows = [f"{lesson.id} helped {totals['helped']:,}, hurt {totals['hurt']:,}: {lesson.text}"]
        if why:
            rows.append(
                f"  not working: {why}. `fleet edit {lesson.id} --set text=...` words it better, "
                f"`fleet retire {lesson.id}` takes it out"
            )
        output.tell({"id": lesson.id, **totals, "not_working": why}, rows, as_json=as_json)


@app.command("guard")
def _guard(
    pattern: Annotated[str, output.id_of("[ID]", "A lesson's id; none: list the guards.")] = "",
    decision: Annotated[str, typer.Argument(metavar="ask|deny|off", help="What its step needs from now on.")] = "",
    until: Annotated[str, typer.Option("--until", metavar="DATE", help="The last day of it, YYYY-MM-DD.")] = "",
    as_json: output.Json = False,
) -> None:
    """Let a lesson stop the step that it is about, or put it to a person. Decided here, and for this machine alone."""
    with output.opened() as workspace:
        if pattern and decision == "off":
            gone = starting.Guards(workspace).lift(pattern)
            output.tell({"lifted": gone}, f"{', '.join(gone)} guards nothing any more", as_json=as_json)
            return
        if pattern:
            starting.Guards(workspace).decide(pattern, decision, until)
        found = [each._asdict() for each in starting.Guards(workspace).all()]
        rows = [
            f"{each['decision']:<5} {each['until'] or 'no end':<11} {each['trigger']}: "
            f"{each['lesson'] or each['id'] + ' is retired or gone, and guards nothing'}"
            for each in found
        ] or ["no lesson guards anything here"]
        output.tell({"guards": found}, rows, as_json=as_json)


# --- memories ---------------------------------------------------------------------------------------------------------


@app.command("start")
def _start(as_json: output.Json = False, agent: output.Agent = "", session: output.Session = "") -> None:
    """Print what an agent reads when its session starts."""
    with output.opened() as workspace:
        who = output.agent_in(workspace, agent, or_guest=True)
        context = starting.SessionStart(workspace, who).text(output.chosen.session_named(session))
        output.tell({"context": context}, context, as_json=as_json)


@app.command("promote")
def _promote(
    pattern: output.PatternId,
    instead_of: Annotated[
        list[str] | None,
        typer.Option("--instead-of", metavar="ID", help="A lesson that leaves the memory for it; may be repeated."),
    ] = None,
    agent: output.Agent = "",
    as_json: output.Json = False,
) -> None:
    """Take a lesson into an agent's memory, which it reads at the start of every session."""
    with output.opened() as workspace:
        who = output.agent_in(workspace, agent)
        done = reflecting.promote(workspace, who, pattern, instead_of=instead_of or [])
        found = {"id": done.id, "promoted": True, "reason": done.reason, "evidence": done.evidence}
        found |= {"instead_of": list(done.left), "memory": done.memory.as_found()}
        rows = [f"{done.id} is in {who}'s memory: {done.text}"]
        rows += [f"instead of {', '.join(done.left)}"] if done.left else []
        output.tell(found, [*rows, f"`fleet demote {done.id}` takes it out again"], as_json=as_json)


@app.command("demote")
def _demote(pattern: output.PatternId, agent: output.Agent = "", as_json: output.Json = False) -> None:
    """Take a lesson out of an agent's memory. It does not come back by itself; `fleet promote` brings it back."""
    with output.opened() as workspace:
        who = output.agent_in(workspace, agent)
        done = reflecting.demote(workspace, who, pattern)
        told = (
            f"{done.id} is out of {who}'s memory, and stays out: sessions no longer start with it. `fleet patterns`"
            f" and `fleet search` find it\n`fleet promote {done.id}` brings it back"
        )
        output.tell({"id": done.id, "demoted": True, "memory": done.memory.as_found()}, told, as_json=as_json)


@app.command("stats")
def _stats(as_json: output.Json = False) -> None:
    """Show whether the fleet learns: corrections per week, relapses, lessons that do not work."""
    with output.opened() as workspace:
        found, (decided, days) = reflecting.stats(workspace), reflecting.decisions(workspace)
        if as_json:
            output.say_json(found.as_found() | {"decisions": {"number": decided, "median_days": days}})
            return
        whose = ", ".join(workspace.agents_here()) or "nobody yet"
        output.say(f"Of the whole clan, as this machine knows it (agents here: {whose})\n")
        # Into a pipe it is as wide everywhere.
        columns = shutil.get_terminal_size().columns if sys.stdout.isatty() else _WIDTH_PIPED
        output.say(found.render(min(columns, output.WIDTH_MAX), readable))
        if decided:
            output.say(f"\nInbox: {counted(decided, 'decision')}, each after {days:g} days in the median")
