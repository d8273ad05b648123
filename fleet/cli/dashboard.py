"""Commands whose output is read first: ``fleet start`` for an agent; for a person ``fleet`` alone, or a welcome."""

import sys
from datetime import datetime
from pathlib import Path
from typing import Any

from fleet.app import dashboard, reflecting, starting
from fleet.cli import output
from fleet.cli.output import NoWorkspaceError
from fleet.text.screening import counted

_SHOWN = 5
_LABEL = 10

_SENDS = {"sidecar": "the sidecar sends them", "hooks": "the end of a session sends them"}

_WELCOME = Path(__file__).with_name("data") / "welcome.txt"

app = output.commands()


@app.command("start")
def _start() -> None:
    """Print what an agent reads when its session starts."""
    with output.acting(or_guest=True) as (workspace, who):
        context = starting.SessionStart(workspace, who).text(output.chosen.session_named())
        output.show({"context": context}, context)


def show() -> None:
    """Print the dashboard. What is new is new until a person has seen it on a terminal.

    Raises:
        NoError: the workspace that was named is none; or there is none, and JSON was asked for.
    """
    try:
        is_seen = sys.stdout.isatty() and not output.chosen.as_json
        with output.acting(or_guest=True) as (workspace, who):
            document = dashboard.overview(workspace, who, is_seen=is_seen)
            rows = _rows(document, workspace.doubt, workspace.world.wall_ms(), is_seen=is_seen)
            output.show(document, [((f"{label:<{_LABEL}}", "bold"), (text, style)) for label, text, style in rows])
    except NoWorkspaceError:
        if output.chosen.as_json:
            raise
        output.echo(_WELCOME.read_text("utf-8").rstrip())


def _rows(state: dict[str, Any], doubt: str, now_ms: int, *, is_seen: bool) -> list[tuple[str, str, str]]:
    """Return rows of a label, a text and its style; few where there is nothing to report."""
    known = state["known"]
    lessons, entries = counted(known["lessons"], "lesson"), counted(known["discoveries"], "discovery")
    rows = [("fleet", f"{state['agent'] or 'no agent yet'}: {lessons}, {entries}", "")]
    rows += _labelled("new", _new(state, now_ms, is_seen=is_seen), "green")
    rows += _labelled("promoted", [f"{each['text']} ({each['agent']}, {each['id']})" for each in state["promoted"]], "")
    rows += _labelled("pending", _pending(state, doubt), "yellow")
    online = [
        f"{each['agent']}, since {output.when(each['since'])}" + (f", on {each['on']}" if each["on"] else "")
        for each in state["online"]
    ]
    rows += _labelled("online", online, "")
    rows += _labelled("warning", state["silent"], "yellow")
    if state["paused"]:
        end = "" if "fleet resume" in state["paused"] else ", or `fleet resume`"
        rows.append(("paused", f"nothing is shared {state['paused']}{end}", "yellow"))
    fired = state["hooks"]["fired"]
    waiting = "installed: the next session calls them" if state["hooks"]["installed"] else "none has fired here yet"
    hooks = f"fired {_ago(fired, now_ms)} ({state['hooks']['event']})" if fired else waiting
    if len(rows) > 1 or not fired:
        rows.append(("hooks", hooks, ""))
    else:
        rows.append(("", f"nothing new, nothing pending; hooks {hooks}", "dim"))
    if state["next"]["command"]:
        rows.append(("next", f"{state['next']['command']}   {state['next']['why']}", "bold"))
    return rows


def _labelled(label: str, texts: list[str], style: str) -> list[tuple[str, str, str]]:
    """Return a row for each text, the label before the first, and how many more there are."""
    rows = [("" if index else label, text, style) for index, text in enumerate(texts[:_SHOWN])]
    return [*rows, *([("", f"and {len(texts) - _SHOWN:,} more", style)] if len(texts) > _SHOWN else [])]


def _new(state: dict[str, Any], now_ms: int, *, is_seen: bool) -> list[str]:
    lessons, entries = state["new"]["lessons"], state["new"]["discoveries"]
    if not lessons and not entries:
        return []
    total = max(len(lessons), state["new"]["lessons_total"])
    # Which of the lessons that are not shown are new is not known.
    first = total if total > len(lessons) else sum(each["is_first"] for each in lessons)
    counts = [
        f"{counted(first, 'lesson')}{' new or changed' if total > len(lessons) else ''}" if first else "",
        f"{counted(total - first, 'lesson')} met or changed again" if total > first else "",
        counted(len(entries), "discovery") if entries else "",
    ]
    since = f" since you looked {_ago(state['looked'], now_ms)}" if is_seen else ", not yet seen on a terminal"
    rows = [f"{', '.join(filter(None, counts))}{since}"]
    rows += [f"{each['id']}  {each['text']} ({each['by']})" for each in [*entries, *lessons][: _SHOWN - 1]]
    more = total + len(entries) - (_SHOWN - 1)
    return [*rows[:-1], f"{rows[-1]}; and {more:,} more: fleet patterns"] if more > 0 else rows


def _pending(state: dict[str, Any], doubt: str) -> list[str]:
    pending, rows = state["waits"], []
    decisions = pending["decisions"]
    if decisions["number"]:
        rows.append(output.pending_decisions(decisions))
    rows += reflecting.to_review(pending["contradictions"], pending["pairs"], decisions["kinds"])
    if number := pending["to_state"]:
        rows.append(f"{counted(number, 'correction')} without a lesson: fleet learn --waiting")
    rows += pending["left_out"]  # each names `fleet review`
    by_hand = "fleet resume" if state["paused"] else "fleet sync"
    most = "at most " if doubt else ""
    lines = f"{most}{counted(pending['lines'], 'line')} to go out: {_SENDS.get(pending['sent_by'], by_hand)}"
    return [*rows, *([lines] if pending["lines"] else [])]


def _ago(stamp: str, now_ms: int) -> str:
    """Return how long ago a stamp was, in the largest unit that fits."""
    passed_s = now_ms // 1000 - int(datetime.fromisoformat(f"{stamp[:19]}Z").timestamp())
    for unit, size_s in (("day", 86_400), ("hour", 3_600), ("minute", 60)):
        if (number := passed_s // size_s) > 0:
            return f"{counted(number, unit)} ago"
    return "just now"
