"""Commands for when something went wrong: log a correction, state a lesson, log a discovery."""

from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from typing import TYPE_CHECKING, Annotated, Any

import msgspec
import typer

from fleet.app import learning
from fleet.cli import output
from fleet.cli.output import argument, flag, option
from fleet.learn.corrections import Corrections, LogResult
from fleet.learn.corrections_md import Correction
from fleet.learn.inputs import Text
from fleet.model import names
from fleet.model.discovery import TYPES, Discovery
from fleet.model.errors import FleetError, UsageError
from fleet.store.workspace import Workspace
from fleet.text.screening import counted, one_line, shortened
from fleet.text.similarity import Near

if TYPE_CHECKING:
    from fleet.learn.signals import Waiting

_AS_GUEST = (
    f"nobody is named here, so this is logged as {names.GUEST}'s: it stays on this machine, and counts and is shown "
    "once `fleet init --agent NAME` names an agent, who takes it over"
)
_NONE_WAITS = "no correction waits for its lesson"
_STATE_IT = "state the lesson: --pattern '...', or --same ID when it is known already. Nothing was logged"
_WHOLE = 'fleet correct --wrong "..." --right "..." --pattern "..."'
_WHOLE_OF_KNOWN = 'fleet correct --wrong "..." --right "..." --same {}'
_NEAR_CHARS_MAX = 160
_ASK_FOR_MORE = (
    "this reads like a routine fix, which anybody would find; is there more to it? If not, `fleet retire {id} --yes` "
    "takes it back, so that what took long to find out stands out"
)

app = output.commands()


def _unstated(workspace: Workspace, _: str) -> list[output.Offer]:
    waiting = [each for agent in workspace.agents_here() for each in Corrections(workspace, agent).signals.waiting()]
    return [(each.id, each.title) for each in waiting]


_IDS = output.completing(_unstated)
Pattern = Annotated[str, option("--pattern", "TEXT", "The lesson, worded so that it helps elsewhere.")]
Same = Annotated[str, option("--same", "ID", "Count it as this lesson.", "lesson")]
Trigger = Annotated[
    str, option("--trigger", "STEP", "The step before which it is shown: 'Bash:git push*', 'Edit:*.sql'.")
]
Tag = Annotated[list[str] | None, option("--tag", "TEXT", "A tag; may be repeated.", "tag")]


def _check_no_dash(**given: str | None) -> None:
    """Refuse a text that is only a dash: other programs would read one from stdin."""
    if name := next((name for name, text in given.items() if (text or "").strip() == "-"), ""):
        raise UsageError(
            f"--{name} is only a dash: no text is read from stdin. Nothing was logged. Give the words themselves, "
            f'or those of a file by the shell: --{name} "$(cat FILE)"'
        )


@app.command("correct", context_settings={"allow_extra_args": True})
def _correct(
    context: typer.Context,
    wrong: Annotated[str | None, option("--wrong", "TEXT", "What went wrong. Required.")] = None,
    right: Annotated[str | None, option("--right", "TEXT", "The correct approach. Required.")] = None,
    pattern: Pattern = "",
    title: Annotated[str, option("--title", "TEXT", "A heading; else the beginning of --wrong.")] = "",
    source: Annotated[str, option("--source", "TEXT", "Who or what corrected you: a person, a build, yourself.")] = "",
    corrected_by: Annotated[str, option("--from", "AGENT", "The agent that corrected you.")] = "",
    same: Same = "",
    category: Annotated[str, option("--category", "TEXT", "Its subject, in one or two words.", "category")] = "",
    tag: Tag = None,
    trigger: Trigger = "",
) -> None:
    """Log one correction. It is on the disk when the command ends."""
    _check_no_dash(wrong=wrong, right=right, pattern=pattern, title=title)
    missing = [name for name, value in (("--wrong", wrong), ("--right", right)) if not (value or "").strip()]
    missing += [] if pattern or same else ["--pattern (or --same ID, when the lesson is known already)"]
    if context.args or wrong is None or right is None or missing:
        words = " ".join(context.args)
        stray = [f"{words[:60]!r} belongs to no option"] if words else []
        lacks = [f"missing: {', '.join(missing)}"] if missing else []
        whole = _WHOLE_OF_KNOWN.format(same) if same and not pattern else _WHOLE
        raise UsageError(f"{'; '.join([*stray, *lacks])}. Nothing was logged. The whole command:\n  {whole}")
    if corrected_by and not names.is_agent(corrected_by):
        raise UsageError(f"--from {corrected_by[:40]!r} is no agent's name; nothing was logged")
    sources = " — ".join(filter(None, [corrected_by, source]))
    correction = Correction(wrong, right, pattern, title, sources, category, tuple(tag or ()), trigger)
    with _logging() as (workspace, who):
        session = output.chosen.session_named()
        logged = learning.correct(workspace, who, correction, session=session, same=same)
        _show_logged(workspace, logged, {}, same, pattern)


@app.command("discover")
def _discover(
    problem: Annotated[str, option("--problem", "TEXT", "What was found.")],
    solution: Annotated[str, option("--solution", "TEXT", "What to do about it.")],
    context: Annotated[str, option("--context", "TEXT", "Where it holds.")] = "",
    type_: Annotated[str, option("--type", "TYPE", "discovery, gotcha, tip or workaround.", TYPES)] = "discovery",
    confidence: Annotated[str, option("--confidence", "LEVEL", "low, medium or high.")] = "medium",
    minutes: Annotated[int | None, option("--minutes", "INTEGER", "What it cost; a workaround needs over 15.")] = None,
    tag: Tag = None,
) -> None:
    """Log a non-obvious finding for the whole clan. No routine fixes, no secrets."""
    _check_no_dash(problem=problem, solution=solution, context=context)
    words = {"problem": problem, "solution": solution, "context": context, "type": type_, "confidence": confidence}
    finding = Discovery(id="", **words, minutes=minutes, tags=tuple(tag or ()))
    with _logging() as (workspace, who):
        entry, is_new = learning.discover(workspace, who, finding, output.chosen.session_named())
        advice = _ASK_FOR_MORE.format(id=entry.id) if is_new and Text(entry.solution).is_routine() else ""
        text = f"{entry.id} {'logged' if is_new else 'is known already'}: {entry.problem}"
        document = {"id": entry.id, "new": is_new} | ({"advice": advice} if advice else {})
        output.show(document, "\n  ".join(filter(None, [text, advice])))


@app.command("learn")
def _learn(
    correction: Annotated[str, argument("[ID]", "A correction's id, c-...; a unique beginning is enough.", _IDS)] = "",
    pattern: Pattern = "",
    right: Annotated[str, option("--right", "TEXT", "The correct approach.")] = "",
    trigger: Trigger = "",
    same: Same = "",
    waiting: Annotated[bool, flag("--waiting", "List what waits for its lesson.")] = False,
    dismiss: Annotated[bool, flag("--dismiss", "Stop asking for its lesson; the entry stays.")] = False,
    every: Annotated[
        bool, flag("--all", "With --dismiss: all that wait, and failed builds. With --waiting: whatever has no lesson.")
    ] = False,
) -> None:
    """State the lesson of a logged signal: from then on it counts like any correction."""
    _check_no_dash(pattern=pattern, right=right)
    with output.acting(or_guest=True) as (workspace, who):
        if waiting:
            if correction or pattern or right or trigger or same or dismiss:
                raise UsageError("--waiting lists, and takes nothing else; nothing was logged")
            # Only --session narrows the list, and no variable does: what earlier sessions left behind waits, too.
            whatever = Corrections(workspace, who).signals.waiting(output.chosen.session, everything=True)
            asked = Corrections(workspace, who).signals.waiting(output.chosen.session)
            _show_waiting(whatever if every else asked, 0 if every else sum(each.is_failure for each in whatever))
            return
        if dismiss:
            if pattern or right or trigger or same or bool(correction) == every:
                raise UsageError("--dismiss takes an ID, or --all, and nothing else; nothing was changed")
            dismissed = Corrections(workspace, who).signals.dismiss(correction)
            failures = sum(each.is_failure for each in dismissed)
            shown = [{"id": each.id, "title": each.title} for each in dismissed]
            rows = [f"{each.id} is not asked about any more: {each.title}" for each in dismissed]
            if failures and every:
                rest = counted(len(dismissed) - failures, "correction")
                rows.append(f"in all {rest} and {counted(failures, 'failed build')}")
            output.show({"dismissed": shown, **({"failures": failures} if failures else {})}, rows or _NONE_WAITS)
            return
        if not correction:
            raise UsageError("name the correction: `fleet learn --waiting` lists those that wait for their lesson")
        if not pattern and not same:
            raise UsageError(_STATE_IT)
        taught, session = Correction("", right, pattern, trigger=trigger), output.chosen.session_named()
        done = learning.state_lesson(workspace, who, correction, taught, same=same, session=session)
        _show_logged(workspace, done, {"entry": done.entry}, same, pattern)


def _show_waiting(waiting: "list[Waiting]", failures: int) -> None:
    """Show entries without a lesson, and the number of the failed builds that are not among them."""
    document: dict[str, Any] = {
        "waiting": [{"id": each.id, "when": each.at, "title": each.title, "wrong": each.wrong} for each in waiting],
        **({"failures": failures} if failures else {}),
    }
    marked = [(each, "dismissed: " if each.is_dismissed else "") for each in waiting]
    rows = [f"{each.id}  {each.when or 'no date':<17}  {mark}{each.shown()}" for each, mark in marked] or [_NONE_WAITS]
    more = f"{counted(failures, 'failed build')} more: `fleet learn --waiting --all`"
    output.show(document, [*rows, *([more] if failures else [])])
    if first := next((each for each in waiting if not each.is_dismissed), None):
        output.hint(f'state each: fleet learn {first.id} --pattern "..."')


def _show_logged(workspace: Workspace, logged: LogResult, more: Mapping[str, Any], same: str, own: str) -> None:
    """Show the outcome of a correction and, unless it was logged as the ``same`` as a lesson, the nearest lessons.

    ``own``: the words that were given for the lesson; if the lesson has others, they stay in the log alone.
    """
    found = [] if same else logged.near
    authors = _authors(workspace, found)
    near = [msgspec.structs.asdict(each) | {"who": authors.get(each.id, "")} for each in found]
    whole = logged.whole if logged.whole > logged.seen else 0
    optional = {"echo": logged.is_echo, "promoted": logged.promoted, "advice": logged.advice, "near": near}
    optional |= {"was_retired_by": logged.retired_by, "whole": whole}
    document = {"id": logged.id, "seen": logged.seen, "text": logged.text, **more}
    in_all = f" ({whole:,} in all wordings)" if whole else ""
    rows = [f"{logged.id} seen {counted(logged.seen, 'time')}{in_all}: {logged.text}"]
    if logged.is_echo:
        rows.append(
            "  an echo: this only repeats a lesson that you were shown, or that was logged. It counts for nothing"
        )
    if logged.retired_by:
        who = names.agent_of(logged.retired_by)
        rows.append(f"  it was retired by {who}, and is back; `fleet retire {logged.id}` retires it again")
    if logged.promoted:
        rows.append(f"  promoted: it stands in {logged.promoted} from now on, and every session starts with it")
    rows += [f"  {logged.advice}"] if logged.advice else []
    others = {id_: who for id_, who in authors.items() if who not in workspace.agents_here()}
    rows += [_near_row(logged.id, each, others.get(each.id, "")) for each in found]
    output.show(document | {name: value for name, value in optional.items() if value}, rows)
    if whole and found:
        from fleet.app import reflecting  # what a first occurrence does not need

        grouped = reflecting.current_clusters(workspace).of(logged.id)
        if other := next((each.id for each in found if each.id in grouped), ""):
            output.hint(f"two lessons? `fleet review --answer {logged.id}:{other}=different` counts them apart")
    if same and own and names.normalise(own) != names.normalise(logged.text):
        output.hint(f"--pattern stays in the log alone: `fleet edit {logged.id} --set text=...` words the lesson anew")
    if right := shortened(one_line(logged.other_right), _NEAR_CHARS_MAX):
        output.hint(f"--right stays in the log alone: `fleet edit {logged.id} --set right=...` replaces {right!r}")
    if was := next((str(before) for name, before, _ in logged.changed if name == "correct" and before), ""):
        output.hint(f"--right replaces {shortened(one_line(was), _NEAR_CHARS_MAX)!r}: `fleet undo` puts that back")
    output.note_secrets(logged.secrets)


def _authors(workspace: Workspace, near: Sequence[Near]) -> dict[str, str]:
    """Return by id the agent that worded each lesson: the last one that set its text, else its author."""
    lessons = workspace.patterns.lessons_of([each.id for each in near]) if near else {}
    by = {id_: lesson.edited.get("text", ("", ""))[1] or lesson.by for id_, lesson in lessons.items()}
    return {id_: one_line(names.agent_of(writer)) for id_, writer in by.items()}


def _near_row(logged: str, near: Near, who: str) -> str:
    pattern, text = near.id, f"{shortened(one_line(near.text), _NEAR_CHARS_MAX)} ({f'{who}; ' if who else ''}"
    if near.differs:
        return f"  close to {pattern}: {text}differs in {', '.join(near.differs)})"
    return f"  close to {pattern}: {text}same lesson? fleet merge {pattern} {logged}; next time add --same {pattern})"


@contextmanager
def _logging() -> Iterator[tuple[Workspace, str]]:
    """Open the workspace for one command that logs; yield it, and the agent to log as."""
    with output.opened(of_any_version=True) as workspace:
        who, remark = _agent_to_log(workspace)
        yield workspace, who
        if remark:  # it says that something was logged, which is true only now
            workspace.warn(remark)


def _agent_to_log(workspace: Workspace) -> tuple[str, str]:
    """Return the agent to log as, and a remark. Without an agent that is the guest; a wrong ``--agent`` raises.

    If only the lease is wrong, it is the default agent, whose log counts once the lease is mended.
    """
    try:
        who = output.agent_in(workspace, or_guest=True)
        here = workspace.agents_here()
        if workspace.is_guest(who):
            return who, _AS_GUEST
        is_first = bool(here) and who not in here
        return who, f"{who} logs here for the first time (so far: {', '.join(here)})" if is_first else ""
    except FleetError as why:
        if output.chosen.agent:
            raise
        with suppress(FleetError):
            if (default := workspace.default_agent()) and not output.chosen.agent_named():
                return default, ""
        return names.GUEST, f"logged as {names.GUEST}'s, and `fleet init` hands it over once this is mended: {why}"
