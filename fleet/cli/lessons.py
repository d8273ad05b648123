"""Commands about lessons and memories: read them, change them, rate them, and show whether they help."""

import shutil
import sys
from collections.abc import Iterable, Iterator
from typing import Annotated, Any

import msgspec
import typer

from crdt import clock
from fleet.app import finding, lessons, reflecting, reviewing, starting
from fleet.cli import output
from fleet.cli.output import argument, flag, option
from fleet.model.discovery import TYPES
from fleet.model.edits import PUBLISHED
from fleet.model.errors import FleetError, UsageError
from fleet.model.names import FIELDS, LABELS
from fleet.model.pattern import REDACTED, Pattern
from fleet.recall.wording import LOG_A_CORRECTION, Renderer, not_working
from fleet.store.runs import Runs
from fleet.store.workspace import Workspace
from fleet.text.dates import to_ms
from fleet.text.screening import counted, listed, one_line, readable

_LISTED = 100
"""Lessons that ``fleet patterns`` lists on a terminal without ``-n``; into a pipe it lists all of them."""

_WIDTH_PIPED = 100
_A_LESSON = "A lesson's id; a unique beginning is enough."
_UNKNOWN = "at an unknown time"

_Lesson = Annotated[str, argument("ID", _A_LESSON, "lesson")]
_Tag = Annotated[str, option("--tag", "WORD", "Only those with this tag.", "tag")]
_By = Annotated[str, option("--agent", "NAME", "Only those that this agent logged.", "agent")]
_Since = Annotated[str, option("--since", "DATE", "Only those seen since that day; 3d: since three days ago.")]

app = output.commands()


# --- reading --------------------------------------------------------------------------------------------------------


@app.command("gossip")
def _gossip(
    count: Annotated[int, typer.Option("-n", "--count", min=1, max=10**9, help="The most to show.")] = 20,
    type_: Annotated[str, option("--type", "TYPE", "Only those of this type.", TYPES)] = "",
    tag: _Tag = "",
    by: _By = "",
    since: _Since = "",
) -> None:
    """Show the newest discoveries of the whole clan."""
    if type_ and type_ not in TYPES:
        raise UsageError(f"--type must be one of {', '.join(TYPES)}, not {type_[:40]!r}")
    with output.opened() as workspace:
        filters = finding.ListFilter(type_, tag, by, finding.first_stamp(since))
        entries = filters.discoveries(workspace, count)
        lines = Renderer(workspace.emoji()).gossip(entries).rstrip().splitlines()
        if not entries and any(filters):
            lines = ["no discovery is like that; without the filters there may be some"]
        output.show({"discoveries": msgspec.to_builtins(entries)}, map(output.headline, lines))


@app.command("patterns")
def _patterns(
    everything: Annotated[bool, flag("--all", "Retired ones and each merged record, too.")] = False,
    count: Annotated[
        int | None, typer.Option("-n", "--count", min=1, max=10**9, help=f"The most to list; on a terminal {_LISTED}.")
    ] = None,
    category: Annotated[str, option("--category", "NAME", "Only those of this category.", "category")] = "",
    tag: _Tag = "",
    by: _By = "",
    since: _Since = "",
) -> None:
    """List the clan's lessons. Merged ones are one lesson, and so are those that say the same in other words."""
    if count is None and not output.chosen.as_json and sys.stdout.isatty():
        count = _LISTED
    with output.opened() as workspace:
        filters = finding.ListFilter(category, tag, by, finding.first_stamp(since))
        listing = filters.lessons(workspace, count, reflecting.current_clusters(workspace), everything=everything)
        if output.chosen.as_json:
            output.echo_json(listing.as_json())
            return
        authors = Renderer()
        output.show({}, (row for each, into in listing.lessons for row in _rows(each, into, authors)))
        if (more := listing.total - len(listing.lessons)) > 0:
            output.note(f"{more:,} more: -n {listing.total} lists all of them, `fleet search` looks for some")
        if not listing.lessons:
            output.echo(_why_none(workspace, filters))
        if listing.refused:
            output.note(f"{counted(listing.refused, 'line')} could not be read; `fleet status` shows why")


def _why_none(workspace: Workspace, filters: finding.ListFilter) -> str:
    """Return why no lesson is listed."""
    if any(filters):
        return "no lesson is like that; without the filters there may be some"
    if next(workspace.patterns.records(), None) is not None:
        return "no lesson stands: all were retired or purged (`fleet patterns --all`) or left out here (`fleet status`)"
    if starting.is_unasked(workspace) and workspace.agents_here():
        return "no lessons are here yet; `fleet sync` asks the clan for what it knows"
    return f"no lessons yet. `{LOG_A_CORRECTION}` logs the first"


def _rows(grouped: Any, into: str, authors: Renderer) -> Iterator[output.Row]:
    """Yield the rows of a lesson: its own, its other wordings, and the lessons that contradict it."""
    yield _row(grouped.lesson, into, authors)
    for other in grouped.wordings[1:]:
        text = f"also worded: {other.text} ({other.id})"
        yield (f"{'':<18}  {other.count('seen'):>3}x  ", ""), (text, "dim")
    for opposite in grouped.opposites:
        yield (f"{'':<26}", ""), (f"contradicts {opposite}: `fleet review` decides", "yellow")


def _row(lesson: Pattern, into: str, authors: Renderer) -> output.Row:
    why, is_retired = not_working(lesson), not lesson.is_present or lesson.state == "retired"
    credits_ = "; ".join(filter(None, [authors.author(lesson.by), authors.edits(lesson)]))
    remarks = (
        credits_,
        "retired" if is_retired else "",
        f"merged into {into}" if into else "",
        f"not working: {why}" if why else "",
    )
    text = "  ".join([lesson.text, *(f"({remark})" for remark in remarks if remark)])
    style = "red" if why else "dim" if is_retired or into else ""
    return (f"{lesson.id}  ", "dim"), (f"{lesson.count('seen'):>3}x  ", "bold"), (text, style)


@app.command("show")
def _show(
    pattern: Annotated[
        str, argument("ID", "The id of a lesson, discovery or correction; a unique beginning is enough.", "id")
    ],
) -> None:
    """Show everything about one lesson, one discovery (d-...), or one logged correction (c-...)."""
    with output.opened() as workspace:
        if pattern.startswith("c-"):
            fields = lessons.show_correction(workspace, pattern)
            ms = to_ms(fields["when"])
            output.show(fields | {"when": "" if ms is None else clock.pack(ms)}, _correction_rows(fields))
            return
        if pattern.startswith("d-"):
            fields = lessons.show_discovery(workspace, pattern)
            output.show(fields, _discovery_rows(fields))
            return
        id_, lesson, others, inside = lessons.show(workspace, pattern)
        [cluster] = reflecting.current_clusters(workspace).grouped([lesson], workspace.patterns.lessons_of)
        fields = finding.lesson_as_json(lesson, is_whole=True, wordings=cluster.wordings)
        is_kept = bool(inside) and fields["state"] != PUBLISHED
        kept = f" for the clan; stands in the memory of {listed(inside)} here" if is_kept else ""
        rows = [f"{id_} is merged into:"] if lesson.id != id_ else []
        rows += [
            f"{lesson.id}  {fields['state']}{kept}\n{fields['text']}",
            *_labelled(_lesson_rows(lesson, fields, others, cluster)),
        ]
        way_back = "its words were purged" if lesson.text == REDACTED else f"`fleet restore {lesson.id}` brings it back"
        rows += [] if lesson.is_present else [f"  {way_back}"]
        output.show(fields | ({"merged": sorted(each.id for each in (lesson, *others))} if others else {}), rows)


def _discovery_rows(entry: dict[str, Any]) -> list[str]:
    head = f"{entry['id']}  {entry['type']}{'  (taken back)' if entry['retracted'] else ''}\n{entry['problem']}"
    rows = [(field, str(entry[field] or "")) for field in ("solution", "context", "confidence", "minutes")]
    when = f"{output.when(entry['at'])} by {entry['by']}"
    return [head, *_labelled([*rows, ("tags", ", ".join(entry["tags"])), ("found", when)])]


def _correction_rows(entry: dict[str, Any]) -> list[str]:
    state = "counted" if entry["lesson"] else "taken back" if entry["undone"] else "without a lesson"
    head, when = f"{entry['id']}  {state}\n{entry['wrong'] or entry['title']}", entry["when"] or _UNKNOWN
    rows = [(name, entry[name]) for name in ("right", "pattern", "source", "lesson")]
    return [head, *_labelled([*rows, ("logged", f"{when} by {entry['agent']}")])]


def _labelled(rows: Iterable[tuple[str, str]]) -> list[str]:
    return [f"  {label + ': ' if label else '':<12}{text}" for label, text in rows if text]


def _lesson_rows(
    lesson: Pattern, fields: dict[str, Any], others: list[Pattern], cluster: Any
) -> Iterator[tuple[str, str]]:
    """Yield labels and texts of a lesson's fields: how often it was seen and by whom, and who set what."""
    yield from ((each.label, fields[each.name]) for each in FIELDS[1:] if each.shown == "text")
    yield "tags", ", ".join(fields["tags"])
    most = "at most " if others else ""  # each record counts its own sessions, and one may be in both
    yield "seen", f"{counted(fields['seen'], 'time')} in {most}{counted(fields['sessions'], 'session')}"
    for replica, total in sorted(lesson.totals.get("seen", {}).items()):
        yield "", f"{total} by {replica}, last {_when(lesson, lesson.adds.get(replica, ''))}"
    parts = sum(lesson.parts.get("seen", {}).values())
    yield "", f"{parts} written by hand, imported, a guest's, or counted while it was private" if parts else ""
    if fields.get("trigger"):
        how = f"; guessed from its words: fleet edit {lesson.id} --set trigger=..." if fields["trigger_derived"] else ""
        yield "trigger", f"{fields['trigger']}{how}"
    yield "not working", fields.get("not_working", "")
    yield "retired", f"by {lesson.retired_by}" if lesson.retired_by else ""
    yield "first", f"{_when(lesson, lesson.at)}{' by ' + lesson.by if lesson.by else ''}"
    for field, value in fields["fields"].items():
        if not field.startswith("agent."):
            yield field, str(value)
    for field, (stamp, by) in sorted(lesson.edited.items()):
        kept = "kept by a merge" if others else "put back"
        how = kept if field in lesson.words.kept else "redacted" if field in lesson.words.redacted else "set"
        yield "", f"{LABELS.get(field, field)} was {how} {output.when(stamp)} by {by}"
    yield from (("merged", f"{each.id} {each.text}") for each in others)
    if cluster.wordings:
        times = counted(cluster.lesson.count("seen"), "time")
        yield "wordings", f"seen {times} in {len(cluster.wordings)} that say the same; the others:"
    for each in cluster.wordings:
        yield "", f"{each.count('seen'):>3}x  {each.text} ({each.id})" if each.id != lesson.id else ""


def _when(lesson: Pattern, stamp: str) -> str:
    """Return a stamp as a person reads it; a wrong clock's, in the future or long ago, is an unknown time."""
    return output.when(stamp) if "2000" < stamp <= lesson.cut else _UNKNOWN


# --- changing -------------------------------------------------------------------------------------------------------


@app.command("retire")
def _retire(
    ids: Annotated[list[str], argument("ID...", "Ids of lessons; unique beginnings are enough.", "id")],
    yes: output.Yes = False,
) -> None:
    """Retire lessons. Confirmations that this machine has not seen survive it; `fleet restore` undoes it.

    A discovery (d-...) is taken back for good: you are asked before, or pass --yes.
    """
    with output.acting() as (workspace, who):
        if len(ids) == 1:
            output.show(*_retire_one(workspace, who, ids[0], yes=yes))
            return
        retired, failed = list[tuple[dict[str, Any], str]](), list[FleetError]()
        with Runs(workspace).together(who, "retire"):
            for id_ in ids:
                try:
                    retired.append(_retire_one(workspace, who, id_, yes=yes))
                except FleetError as why:
                    failed.append(why)
        document = {"retired": [each for each, _ in retired], "failed": [str(each) for each in failed]}
        output.show(document, (text for _, text in retired))
        for error in failed:
            output.hint(str(error))
        if failed:
            raise typer.Exit(failed[0].exit_code)


def _retire_one(workspace: Workspace, who: str, id_: str, *, yes: bool) -> tuple[dict[str, Any], str]:
    """Retire a lesson, or take a discovery back; return what is printed of it, as JSON and as text."""
    if id_.startswith("d-"):
        shown = lessons.show_discovery(workspace, id_, is_read=False)
        output.confirm(f"Take back for good: {shown['problem'] or shown['solution']}?", yes=yes)
        entry = lessons.retract(workspace, who, id_)
        text = f"{entry.id} taken back, for good: {entry.problem or entry.solution}"
        return {"id": entry.id, "retracted": True}, text
    retired = lessons.retire(workspace, who, id_)
    id_ = retired.pattern.id
    text = f"{id_} retired{_also(retired.others)}: {retired.pattern.text}\n`fleet restore {id_}` brings it back"
    return retired.as_json(), text


@app.command("restore")
def _restore(
    pattern: Annotated[str, argument("[ID]", _A_LESSON, "retired")] = "",
    everything: Annotated[bool, flag("--all", "All that one writer removed; with --removed-by.")] = False,
    removed_by: Annotated[str, option("--removed-by", "AGENT|REPLICA", "Whose removes are taken back.")] = "",
    since: Annotated[str, option("--since", "TIME", "Only those that the branch did not hold then: 2026-11-20.")] = "",
) -> None:
    """Bring a retired lesson back, with its history; or all lessons that one writer removed."""
    if everything != bool(removed_by) or everything == bool(pattern) or (since and not everything):
        raise UsageError(
            "name one lesson: fleet restore ID; or all of a writer's: fleet restore --all --removed-by NAME"
        )
    with output.acting() as (workspace, who):
        if everything:
            lessons_back = reviewing.restore_all(workspace, who, removed_by, since=since)
            rows = [f"{counted(len(lessons_back), 'lesson')} back that {removed_by} had removed"]
            rows += [f"  {each}  {text}" for each, text in lessons_back]
            output.show({"restored": [{"id": each, "text": text} for each, text in lessons_back]}, rows)
            return
        restored = lessons.restore(workspace, who, pattern)
        lesson, others = restored.pattern, restored.others
        output.show(restored.as_json(), f"{lesson.id} is back{_also(others)}: {lesson.text}")


def _also(others: list[str]) -> str:
    return f", with {', '.join(others)}, which is merged with it" if others else ""


@app.command("edit")
def _edit(
    pattern: _Lesson,
    assignments: Annotated[
        list[str] | None, option("--set", "FIELD=VALUE", "A field and its value; may be repeated. Lists: tags=ci,git.")
    ] = None,
) -> None:
    """Set fields of a lesson. Without --set: show who set what, and when."""
    with output.opened() as workspace:
        if not assignments:
            _show_history(lessons.show(workspace, pattern)[1])
            return
        lesson, changed, secrets = lessons.edit(workspace, output.agent_in(workspace), pattern, assignments)
        names = ", ".join(LABELS.get(each, each) for each in changed)
        text = f"edited: {names}" if names else "says that already; nothing was changed"
        output.show({"id": lesson.id, "fields": lessons.history(lesson)}, f"{lesson.id} {text}")
        output.note_secrets(secrets)


def _show_history(lesson: Pattern) -> None:
    fields, rows = lessons.history(lesson), [lesson.id]
    for field, edit in fields.items():
        value = edit["value"] if isinstance(edit["value"], str) else output.as_json(edit["value"])
        when = f"set {output.when(edit['at'])} by {edit['by']}" if edit["at"] else "as first logged"
        rows.append(f"  {LABELS.get(field, field) + ':':<12}{one_line(value)}\n  {'':<12}{when}")
    output.show({"id": lesson.id, "fields": fields}, rows)


@app.command("merge")
def _merge(
    one: Annotated[str, argument("A", _A_LESSON, "lesson")],
    other: Annotated[str, argument("B", "The id of the same lesson in other words.", "lesson")],
    force: Annotated[bool, flag("--force", "Merge even if the two texts seem to differ in meaning.")] = False,
) -> None:
    """Make two patterns one lesson. Both records are kept, counts add up, `fleet unmerge` undoes it."""
    with output.acting() as (workspace, who):
        merged = lessons.merge(workspace, who, one, other, force=force)
        seen, others = merged.pattern.count("seen"), ", ".join(merged.others)
        more = f" ({merged.whole:,} in all wordings)" if merged.whole > seen else ""
        rows = [f"{merged.pattern.id} seen {counted(seen, 'time')}{more}, with {others}: {merged.pattern.text}"]
        rows += [
            f"  promoted: it stands in {each} from now on, and every session starts with it" for each in merged.promoted
        ]
        output.show(merged.as_json(), [*rows, f"`fleet unmerge {merged.changed}` undoes it"])


@app.command("unmerge")
def _unmerge(pattern: _Lesson) -> None:
    """Undo a merge. Either of the two ids will do."""
    with output.acting() as (workspace, who):
        record = lessons.unmerge(workspace, who, pattern)
        stays = f"; still merged with {', '.join(record.others)}" if record.others else ""
        seen = counted(record.pattern.count("seen"), "time")
        text = f"{record.changed} is a lesson of its own again{stays}, seen {seen}: {record.pattern.text}"
        output.show(record.as_json(), text)


@app.command("feedback")
def _feedback(
    pattern: _Lesson,
    helped: Annotated[bool, flag("--helped", "The lesson kept you from a mistake.")] = False,
    hurt: Annotated[bool, flag("--hurt", "The lesson led you astray.")] = False,
) -> None:
    """Count that a lesson helped, or hurt. One that hurts more often than it helps is shown as not working."""
    if helped == hurt:
        raise UsageError("give one of --helped and --hurt; nothing was counted")
    with output.acting() as (workspace, who):
        named = output.chosen.session_named()
        lesson = lessons.feedback(workspace, who, pattern, is_helped=helped, session=named)
        totals = {name: lesson.count(name) for name in ("helped", "hurt", "shown", "relapsed")}
        why = not_working(lesson)
        rows = [f"{lesson.id} helped {totals['helped']:,}, hurt {totals['hurt']:,}: {lesson.text}"]
        advice = f"`fleet edit {lesson.id} --set text=...` words it better, `fleet retire {lesson.id}` takes it out"
        rows += [f"  not working: {why}. {advice}"] if why else []
        output.show({"id": lesson.id, **totals, "not_working": why}, rows)


@app.command("guard")
def _guard(
    pattern: Annotated[str, argument("[ID]", "A lesson's id; none: list the guards.", "lesson")] = "",
    decision: Annotated[str, argument("ask|deny|off", "The decision at its step from now on.")] = "",
    until: Annotated[str, option("--until", "DATE", "The last day of the guard, YYYY-MM-DD.")] = "",
) -> None:
    """Have a lesson stop its step, or ask a person first; a host that cannot ask stops it. It holds here alone."""
    with output.opened() as workspace:
        guards = starting.Guards(workspace)
        if pattern and decision == "off":
            if until:
                raise UsageError("--until goes with ask or deny: off holds from now on. Nothing was changed")
            lifted = guards.lift(pattern)
            output.show({"lifted": [lifted]}, f"{lifted} guards nothing any more")
            return
        shown = [guards.decide(pattern, decision, until)] if pattern else guards.all()
        rows = [
            f"{each.decision:<5} {each.until or 'no end':<11} {each.trigger}: "
            f"{each.lesson or each.id + ' is retired or gone, and guards nothing'}"
            for each in shown
        ]
        output.show({"guards": [each._asdict() for each in guards.all()]}, rows or "no lesson guards anything here")


# --- memories ---------------------------------------------------------------------------------------------------------


@app.command("promote")
def _promote(pattern: _Lesson) -> None:
    """Take a lesson into an agent's memory, which it reads at the start of every session."""
    with output.acting(is_old=True) as (workspace, who):
        promoted, memory = reflecting.promote(workspace, who, pattern)
        document = {"id": promoted.id, "promoted": True, "reason": promoted.reason, "evidence": promoted.evidence}
        document |= {"right": promoted.right, "memory": memory.as_json()}
        right = f" — right: {promoted.right}" if promoted.right else ""
        rows = [f"{promoted.id} is in {who}'s memory: {promoted.text}{right} ({promoted.evidence})"]
        output.show(document, [*rows, f"`fleet demote {promoted.id}` takes it out again"])


@app.command("demote")
def _demote(pattern: _Lesson) -> None:
    """Take a lesson out of an agent's memory. It does not come back by itself; `fleet promote` brings it back."""
    with output.acting(is_old=True) as (workspace, who):
        demoted, memory = reflecting.demote(workspace, who, pattern)
        text = (
            f"{demoted} is out of {who}'s memory, and stays out: sessions no longer start with it. `fleet patterns` "
            f"and `fleet search` find it\n`fleet promote {demoted}` brings it back"
        )
        output.show({"id": demoted, "demoted": True, "memory": memory.as_json()}, text)


@app.command("stats")
def _stats() -> None:
    """Show whether the fleet learns: corrections per week, relapses, lessons that do not work."""
    with output.opened() as workspace:
        totals, (decided, days) = reflecting.stats(workspace), reflecting.decisions(workspace)
        whose = ", ".join(workspace.agents_here()) or "none yet"
        # A pipe has one width everywhere.
        columns = shutil.get_terminal_size().columns if sys.stdout.isatty() else _WIDTH_PIPED
        rows = [f"Agents here: {whose}\n", totals.render(min(columns, output.WIDTH_MAX), readable)]
        rows += [f"\nInbox: {counted(decided, 'decision')}, each after {days:g} days in the median"] if decided else []
        output.show(totals.as_json() | {"decisions": {"number": decided, "median_days": days}}, rows)
