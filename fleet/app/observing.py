"""Observations: lines of the scratchpad, or of the daily log once it was migrated, about what happened in a session.

A host waits for its hook, so this needs only files, a lock and the clock, and no workspace. A hook observes commits in
git's reflog, commands that succeed again, and lessons whose command was run after they were shown.
"""

import re
import time
from contextlib import suppress
from pathlib import Path
from typing import NamedTuple

from fleet.hosts import local
from fleet.hosts.local import Call, Reflog
from fleet.model.errors import FleetError, RefusedError, UsageError
from fleet.reflect import auto_reflect, observations
from fleet.reflect.auto_reflect import DailyLog, Scratchpad
from fleet.reflect.observations import Whose
from fleet.store import config, homes
from fleet.store.files import Files
from fleet.store.homes import CONFIG

TYPE_CHECKING = False
if TYPE_CHECKING:  # a hook that notes a commit needs no workspace
    from fleet.store.workspace import Workspace

LOCK_WAIT_S = 5.0
PAGE_BYTES_MAX = 4 * 1024 * 1024
COMMITTED = frozenset(("commit", "commit (initial)", "commit (merge)", "cherry-pick"))
"""Actions of the reflog that make a commit here; an amended one is the same commit again."""
_REVERT = 'Revert "'
_SPAN = re.compile(r"`([^`\n]{3,120})`")
_DENIED = r"(?i)\b(?:never|don'?t|do not|not|avoid|instead of|rather than|without|no)\W{1,3}(?:\w{1,30}\W{1,3}){0,3}$"


class _WrittenObservation(NamedTuple):
    """Observation that was written, and its file; whether it was cut to one line, and reads as a directive."""

    path: str
    line: str
    is_cut: bool
    is_directive: bool


def observe(root: Path, agent: str, session: str, kind: str, text: str, at_ms: int = 0) -> _WrittenObservation:
    """Write an observation of a kind of ``observations.KINDS``, of now or of ``at_ms``; durable when this returns.

    Raises:
        UsageError: no such kind, no words, or a read-only workspace.
        RefusedError: the file is a link, or far too long.
        DiskError: it did not reach the disk.
    """
    if (kind_name := re.sub(r"[\s_]+", "-", kind.strip().casefold())) not in observations.KINDS:
        raise UsageError(f"KIND is one of {', '.join(observations.KINDS)}, not {kind[:40]!r}; nothing was written")
    if not observations.clean(text):
        raise UsageError("TEXT has no words in it; nothing was written. Say what happened, in one line")
    if homes.Homes(root).is_read_only():
        raise UsageError("this workspace is ephemeral: it is only read. Nothing was written")
    for name in (auto_reflect.FILE, ".agents", auto_reflect.LOGS):
        if (root / name).is_symlink():
            raise RefusedError(f"{name} is a link, which fleet writes through nowhere; nothing was written")
    now_ms = at_ms or local.now_ms()
    line, is_cut = Whose.of(agent, session).line(now_ms, kind_name, text)
    files, locks = Files(root), root / local.FOLDER / "locks"
    # A run compares and replaces these files under the second lock; under the first one runs are planned.
    until_s = time.monotonic() + LOCK_WAIT_S  # for both: a host ends a hook after 10 s
    with (
        files.lock(locks / "scratchpad.lock", LOCK_WAIT_S),
        files.lock(locks / "runs.lock", max(0.0, until_s - time.monotonic())),
    ):
        before = files.read(root / auto_reflect.FILE)
        if len(before) > PAGE_BYTES_MAX:
            raise RefusedError(f"{auto_reflect.FILE} is larger than {PAGE_BYTES_MAX:,} bytes; nothing was written")
        if not before:
            keep_ignored(files)
        pad, day = Scratchpad(before.decode("utf-8", "surrogateescape")), observations.minute(now_ms)[:10]
        path, added = auto_reflect.FILE, ""
        if pad.is_daily():
            path = DailyLog(day).path
            log = DailyLog(day, files.read(root / path).decode("utf-8", "surrogateescape"))
            added = log.appended_observation(Whose.of(agent, session, now_ms), line)
        files.append(root / path, (added or pad.appended_observation(line)).encode("utf-8", "surrogateescape"))
    return _WrittenObservation(path, line, is_cut, observations.is_directive(text))


def keep_ignored(files: Files) -> None:
    """Have the project's git ignore the scratchpad's files, which an earlier fleet did not do."""
    if (files.root / ".git").exists() or (files.root / ".gitignore").exists():
        config.ignore(files, config.IGNORED_LOCAL)


def try_observe(workspace: "Workspace", agent: str, session: str, kind: str, text: str) -> None:
    """Write an observation about another command; an error is only a warning, since that command has succeeded."""
    with workspace.warned(f"it is not noted in {auto_reflect.FILE}"):
        named = session_of(workspace, agent, session)
        if workspace.config.hook.observe and not homes.Homes(workspace.root).is_read_only():
            observe(workspace.root, agent, named, kind, text, workspace.world.wall_ms())


def session_of(workspace: "Workspace", agent: str, session: str) -> str:
    """Return the named session, else the agent's own; "" where that cannot be noted."""
    if session:
        return session
    with suppress(FleetError):
        return workspace.session(agent)
    return ""


# --- hooks ----------------------------------------------------------------------------------------------------------


def note_commits(call: Call, cwd: str) -> None:
    """Write an observation for each new commit in the reflog; a revert is a dead end."""
    for action, subject in Reflog(call.root, cwd or call.root).commits():
        if action in COMMITTED or action == "revert":
            is_revert = action == "revert" or subject.startswith(_REVERT)
            title = subject.removeprefix(_REVERT).removesuffix('"')
            note(call, "dead-end", f"reverted {title!r}") if is_revert else note(call, "commit", f"Commit: {subject}")


def note(call: Call, kind: str, text: str) -> None:
    """Write an observation of a hook, unless ``[hook] observe`` is off."""
    if not call.sets("hook") or config.load(Path(call.root) / CONFIG).hook.observe:
        observe(Path(call.root), call.agent, call.session, kind, text)


def recommends(row: str, command: str) -> bool:
    """Return whether a lesson recommends a command: it has the command as code, with no negation before it."""
    ran = " ".join(command.split())
    for match in _SPAN.finditer(row):
        code = " ".join(match[1].split())
        if (" " in code or "-" in code) and code in ran and not re.search(_DENIED, row[: match.start()]):
            return True
    return False
