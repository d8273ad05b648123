"""Agent hosts as a use case: fleet's hooks put into their settings and taken out, and where they are switched on."""

import os
import subprocess
import tempfile
import time
from collections.abc import Callable, Iterator
from contextlib import suppress
from pathlib import Path
from shutil import which
from typing import Any, NamedTuple

from fleet.hosts import install as settings
from fleet.hosts import local
from fleet.hosts.answers import CONTEXT_CHARS_MAX
from fleet.model.errors import FleetError, UsageError
from fleet.store.doctor import Finding
from fleet.store.workspace import Workspace

CLAUDE_CODE = "claude-code"
CLIENT = "claude"
TWICE_DAYS = 7
_CLIENT_S = 10.0
_DAY_MS = 86_400_000


class Changed(NamedTuple):
    """A settings file with another content, written or only worked out.

    Attributes:
        path: the file, as a person names it.
        before: its bytes.
        after: what they are, or would be; the same where nothing changes.
    """

    path: Path
    before: bytes
    after: bytes

    @property
    def is_other(self) -> bool:
        """Whether there is any difference."""
        return self.before != self.after


def check_host(host: str) -> None:
    """Check that a host is one that can be set up.

    Raises:
        UsageError: it is not.
    """
    if host != CLAUDE_CODE:
        raise UsageError(f"{host[:40]!r} is no host that fleet can set up: {CLAUDE_CODE}. Nothing was changed")


def install(path: Path, *, dry_run: bool = False) -> Changed:
    """Put our hooks into a settings file, beside all that stands in it.

    Raises:
        RefusedError: it is not what it should be; nothing was changed.
    """
    return _change(path, settings.with_hooks, dry_run=dry_run)


def uninstall(path: Path, *, dry_run: bool = False) -> Changed:
    """Take our hooks out of a settings file, and nothing else; a file that was ours alone goes.

    Raises:
        RefusedError: it is not what it should be; nothing was changed.
    """
    return _change(path, settings.without_hooks, dry_run=dry_run)


def project_settings(root: Path) -> Path:
    """Return a project's settings file."""
    return root / ".claude" / "settings.json"


def user_settings() -> Path:
    """Return a person's own settings file."""
    named = os.environ.get("CLAUDE_CONFIG_DIR", "")
    return (Path(named) if named else Path.home() / ".claude") / "settings.json"


def callers(root: Path | None, but: Path | None = None) -> tuple[list[str], set[str]]:
    """Return where fleet's hooks are switched on, in words, and which events some of these places lack.

    Args:
        root: of the workspace, where there is one.
        but: a settings file whose hooks are not asked for.

    Raises:
        FleetError, OSError: a settings file cannot be read.
    """
    places = {user_settings(): "user's"}
    if root is not None:
        project = project_settings(root)
        places = {project: "project's", project.with_name("settings.local.json"): "project's local"} | places
    where: list[str] = []
    missing: set[str] = set()
    for path, name in places.items():
        told = settings.parse(path.read_bytes() if path.exists() else b"", str(path))
        if path != but and (found := settings.installed(told)):
            where.append(f"the {name} settings")
            missing.update(event for event in settings.MATCHERS if event not in found)
        if settings.has_plugin(told):
            where.append(f"the plugin in the {name} settings")
    return where, missing


def findings(workspace: Workspace, agent: str, context: Callable[[str], str]) -> Iterator[Finding]:
    """Yield what ``fleet doctor`` tells about agent hosts: the client, its hooks, when they fired, what they show.

    Args:
        workspace: where.
        agent: whose session start is measured; "" for the default agent's.
        context: returns what an agent's session starts with.
    """
    yield _client()
    yield _hooks(workspace)
    yield _fired(workspace)
    yield _context(agent or workspace.replicas().default_agent, context)


def _change(path: Path, change: Callable[[dict[str, Any]], dict[str, Any]], *, dry_run: bool) -> Changed:
    # Many keep their own settings elsewhere, and a link to them here: the file it points to is the one to write.
    real = Path(os.path.realpath(path))
    before = real.read_bytes() if real.exists() else b""
    found = settings.parse(before, str(path))
    wanted = change(found)
    if wanted == found:
        return Changed(path, before, before)
    is_ours = not wanted and before == settings.render(settings.with_hooks({}), b"")
    after = b"" if is_ours else settings.render(wanted, before)
    if not dry_run:
        if after:
            _replace(real, after)
        else:
            real.unlink()  # we made it, and nobody has touched it since
    return Changed(path, before, after)


def _replace(path: Path, data: bytes) -> None:
    """Write a file anew, atomically, for the same readers as before: settings may hold keys."""
    path.parent.mkdir(parents=True, exist_ok=True)
    mode = path.stat().st_mode & 0o777 if path.exists() else 0o644
    handle, temporary = tempfile.mkstemp(prefix=f".{path.name}.", suffix=".tmp", dir=path.parent)
    try:
        with os.fdopen(handle, "wb") as file:
            os.fchmod(handle, mode)
            file.write(data)
            file.flush()
            os.fsync(handle)
        Path(temporary).replace(path)
    except BaseException:
        with suppress(OSError):
            Path(temporary).unlink()
        raise


def _client() -> Finding:
    path = which(CLIENT)
    if path is None:
        return Finding("client", "note", "Claude Code is not on the PATH", "nothing, where another host is used")
    try:
        done = subprocess.run(
            [path, "--version"], stdin=subprocess.DEVNULL, capture_output=True, timeout=_CLIENT_S, check=False
        )
    except (OSError, subprocess.TimeoutExpired) as why:
        return Finding("client", "note", f"Claude Code does not tell its version ({type(why).__name__})")
    told = done.stdout.decode("utf-8", "replace").strip().split("\n")[0][:80]
    return Finding("client", "ok", f"Claude Code {told or 'of no version'}")


def _hooks(workspace: Workspace) -> Finding:
    try:
        where, missing = callers(workspace.root)
    except (FleetError, OSError) as why:
        return Finding("hooks", "warning", str(why), "whether fleet is called is not known", "mend that file")
    if not where:
        do = f"`fleet install {CLAUDE_CODE}` sets them up"
        return Finding("hooks", "note", "no settings call fleet", "nothing runs by itself in Claude Code", do)
    if missing:
        what = f"the settings call fleet, but not for {', '.join(sorted(missing))}"
        return Finding("hooks", "warning", what, "a part of the loop does not run", f"`fleet install {CLAUDE_CODE}`")
    twice_ms = local.marked_ms(str(workspace.root), local.TWICE)
    is_twice = 0 < twice_ms and workspace.world.wall_ms() - twice_ms < TWICE_DAYS * _DAY_MS
    if len(where) > 1 or is_twice:
        # A plugin that was named on the command line stands in no settings: that it called is all there is to see.
        told = f", and twice for one start on {_day(twice_ms)}" if is_twice else ""
        means = "every call takes twice the time; nothing is shown or counted twice"
        do = (
            f"keep one: `fleet uninstall {CLAUDE_CODE}` takes the settings' part out, /plugin or --plugin-dir the other"
        )
        return Finding("hooks", "note", f"called by {' and '.join(where)}{told}", means, do)
    if which("fleet") is None:
        do = "`uv tool install` or pipx puts it there"
        return Finding("hooks", "warning", "the settings call fleet, and it is not on the PATH", "hooks do nothing", do)
    return Finding("hooks", "ok", f"called by {where[0]}")


def _fired(workspace: Workspace) -> Finding:
    marks = local.fired(str(workspace.root))
    if not marks:
        return Finding("fired", "note", "no hook has fired here yet")
    newest = max(marks, key=lambda name: marks[name])
    at = time.strftime("%Y-%m-%d %H:%MZ", time.gmtime(marks[newest] / 1000))
    return Finding("fired", "ok", f"last {newest}, {at}; what went wrong stands in .fleet/log")


def _day(at_ms: int) -> str:
    return time.strftime("%Y-%m-%d", time.gmtime(at_ms / 1000))


def _context(agent: str, context: Callable[[str], str]) -> Finding:
    if not agent:
        return Finding("context", "note", "no agent is named here yet", "", "`fleet init --agent NAME`")
    size = len(context(agent))
    what = f"{agent} starts a session with {size:,} characters"
    if size > CONTEXT_CHARS_MAX:
        means = f"hosts cut at 10,000; the hook sends {CONTEXT_CHARS_MAX:,} of them"
        return Finding("context", "warning", what, means, "lower start_chars in fleet.toml")
    return Finding("context", "ok", what)
