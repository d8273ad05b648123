"""Work of a host's events that nobody waits for: a process of its own does it, started by the hook, and logs it."""

import json
from collections.abc import Iterable

from fleet.app import consolidating, session_end, sharing, starting
from fleet.app.hearing import PROMOTED, counted, opened
from fleet.app.session_end import Reflected
from fleet.hosts import local
from fleet.hosts.calls import GUEST, Call
from fleet.hosts.local import LocalFolder
from fleet.model.errors import BusyError

_TEXT_CHARS_MAX = 120


def make_ready(call: Call) -> str:
    """Ask the clan for news, and make ready what the next session starts with; return what the log says of it."""
    with opened(call) as workspace:
        with call.guarded("the clan was not asked for news"):
            came = sharing.fetch(workspace, call.agent)
            if came.patterns_in or came.discoveries_in:
                call.told.note(f"came {came.patterns_in + came.discoveries_in}")
        try:
            with workspace.files.lock(workspace.local / "locks" / "ready.lock", 0):
                size = len(starting.session_start(workspace, call.agent, may_tidy=True).text)
        except BusyError:
            return "another process is making the next session's start ready"
    return f"the next session's start is ready: {size:,} characters"


def work_at_the_end(call: Call) -> str:
    """Settle, promote, and sync when somebody here has agreed to a remote; return what the log says of it."""
    with call.guarded("old sessions are still remembered"):
        LocalFolder(call.root).prune()
    if call.agent == GUEST:
        _close_session(call, ())
        return "nothing was sent: no agent is named here, see `fleet init --agent NAME`"
    reflected: list[Reflected] = []
    with opened(call) as workspace, call.guarded("the session was not reflected on"):
        reflected += session_end.reflect_due(workspace, only=call.session)
        for came in reflected:
            call.log(f"reflected on {came.session}: {came.told()}")
    _close_session(call, reflected)
    with opened(call) as workspace:
        if workspace.config.hook.sync_at_end:
            done = sharing.exchange(workspace, call.agent)
            why = done.why
        else:
            done, why = None, "[hook] sync_at_end is false in fleet.toml"
        promoted = sharing.settle(workspace, call.agent).promoted if why or done is None else done.promoted
        for text in promoted:
            local.Told(call.root, f"{PROMOTED}-{call.agent}").note(f"{PROMOTED} {json.dumps(text[:_TEXT_CHARS_MAX])}")
        with call.guarded("the next session's start is not ready"):
            starting.session_start(workspace, call.agent)
    if done is None or why:
        return f"settled; nothing was sent: {why}"
    part = ", in part" if done.is_partial else ""
    return f"synced{part}: {counted(done.out, 'line')} out, {counted(done.patterns_in, 'lesson')} in"


def _close_session(call: Call, reflected: Iterable[Reflected]) -> None:
    """Log what the session did, and suggest, promote and consolidate what has come up in several."""
    with call.guarded("what this session did is in no daily log"):
        plans = (each.plan for each in reflected if each.session == call.session)
        said = next((plan.reflection for plan in plans if plan is not None), None)
        with opened(call) as workspace:
            if told := consolidating.close_session(workspace, call.agent, call.session, said).told():
                call.log(told)
