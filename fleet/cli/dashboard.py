"""Output of ``fleet`` alone: a dashboard of the workspace here, or how to begin where there is none."""

import sys
from datetime import datetime
from pathlib import Path
from typing import Any

from fleet.app import dashboard
from fleet.cli import output
from fleet.cli.output import NoWorkspaceError
from fleet.text.screening import counted

_SHOWN = 5
_LABEL = 10

_WELCOME = Path(__file__).with_name("data") / "welcome.txt"


def show(*, as_json: bool) -> None:
    """Print the dashboard. What is new is new until a person has seen it on a terminal.

    Raises:
        NoError: the workspace that was named is none; or there is none, and JSON was asked for.
    """
    try:
        opened = output.opened()
        is_seen = sys.stdout.isatty() and not as_json
        with opened as workspace:
            found = dashboard.look(workspace, output.agent_in(workspace, or_guest=True), is_seen=is_seen)
            if as_json:
                output.say_json(found)
                return
            for label, text, style in _rows(found, workspace.world.wall_ms()):
                output.say_row((f"{label:<{_LABEL}}", "bold"), (text, style))
    except NoWorkspaceError:
        if as_json:
            raise
        output.say(_WELCOME.read_text("utf-8").rstrip())


def _rows(found: dict[str, Any], now_ms: int) -> list[tuple[str, str, str]]:
    """Return rows of a label, what is said, and how it looks. Little is said where nothing is up."""
    known = found["known"]
    lessons, entries = counted(known["lessons"], "lesson"), counted(known["discoveries"], "discovery", "discoveries")
    rows = [("fleet", f"{found['agent'] or 'no agent yet'}: {lessons}, {entries}", "")]
    rows += _labelled("new", _new(found, now_ms), "green")
    rows += _labelled("promoted", [f"{each['text']} ({each['agent']}, {each['id']})" for each in found["promoted"]], "")
    rows += _labelled("waits", _waits(found["waits"]), "yellow")
    online = [
        f"{each['agent']}, since {output.when(each['since'])}" + (f", on {each['on']}" if each["on"] else "")
        for each in found["online"]
    ]
    rows += _labelled("online", online, "")
    rows += _labelled("silent", found["silent"], "yellow")
    if found["paused"]:
        rows.append(("paused", f"nothing is shared {found['paused']}: fleet resume", "yellow"))
    fired = found["hooks"]["fired"]
    waiting = "installed: the next session calls them" if found["hooks"]["installed"] else "none has fired here yet"
    hooks = f"fired {_ago(fired, now_ms)} ({found['hooks']['event']})" if fired else waiting
    if len(rows) > 1 or not fired:
        rows.append(("hooks", hooks, ""))
    else:
        rows.append(("", f"nothing new, nothing waits; hooks {hooks}", "dim"))
    if found["next"]["command"]:
        rows.append(("next", f"{found['next']['command']}   {found['next']['why']}", "bold"))
    return rows


def _labelled(label: str, told: list[str], style: str) -> list[tuple[str, str, str]]:
    """Return a row for each thing that is told, the label before the first, and how many more there are."""
    rows = [(label if not at else "", text, style) for at, text in enumerate(told[:_SHOWN])]
    return [*rows, *([("", f"and {len(told) - _SHOWN:,} more", style)] if len(told) > _SHOWN else [])]


def _new(found: dict[str, Any], now_ms: int) -> list[str]:
    lessons, entries = found["new"]["lessons"], found["new"]["discoveries"]
    if not lessons and not entries:
        return []
    first = sum(each["is_first"] for each in lessons)
    told = [
        counted(first, "lesson") if first else "",
        f"{counted(len(lessons) - first, 'lesson')} met or changed again" if len(lessons) > first else "",
        counted(len(entries), "discovery", "discoveries") if entries else "",
    ]
    rows = [f"{', '.join(filter(None, told))} since you looked {_ago(found['looked'], now_ms)}"]
    rows += [f"{each['id']}  {each['text']} ({each['by']})" for each in [*entries, *lessons][: _SHOWN - 1]]
    more = len(lessons) + len(entries) - (_SHOWN - 1)
    return [*rows[:-1], f"{rows[-1]}; and {more:,} more: fleet patterns"] if more > 0 else rows


def _waits(waits: dict[str, Any]) -> list[str]:
    rows, decisions = [], waits["decisions"]
    if decisions["number"]:
        rows.append(output.decisions_waiting(decisions))
    if waits["contradictions"]:
        rows.append(f"{counted(waits['contradictions'], 'pair')} of lessons that contradict each other: fleet review")
    if waits["to_state"]:
        rows.append(f"{counted(waits['to_state'], 'correction')} without a lesson: fleet learn --waiting")
    if waits["pairs"]:
        rows.append(f"{counted(waits['pairs'], 'pair')} of lessons that may be one: fleet review")
    return rows + [f"{each}: fleet review" for each in waits["left_out"]]


def _ago(stamp: str, now_ms: int) -> str:
    """Return how long ago a stamp was, as a person says it."""
    passed_s = now_ms // 1000 - int(datetime.fromisoformat(f"{stamp[:19]}Z").timestamp())
    for unit, size_s in (("day", 86_400), ("hour", 3_600), ("minute", 60)):
        if (number := passed_s // size_s) > 0:
            return f"{counted(number, unit)} ago"
    return "just now"
