"""Agent hosts: ``fleet install``, ``fleet uninstall``, ``fleet hook``, and what the doctor looks at about them."""

import os
import time
from collections.abc import Callable, Iterator
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from fleet.cli import desk, options
from fleet.hosts.told import TWICE

if TYPE_CHECKING:
    from fleet.keep.checkup import Finding
    from fleet.keep.workspace import Workspace

CLAUDE_CODE = "claude-code"
CLIENT = "claude"
TWICE_DAYS = 7
_CLIENT_S = 10.0

Host = Annotated[str, typer.Argument(metavar="HOST", help=f"The agent host: {CLAUDE_CODE}.")]
Project = Annotated[bool, typer.Option("--project", help="This workspace's .claude/settings.json; the default.")]
User = Annotated[bool, typer.Option("--user", help="Your own settings.json: every project that is a workspace.")]
DryRun = Annotated[bool, typer.Option("--dry-run", help="Print what would change; change nothing.")]


def register(app: typer.Typer) -> None:
    """Add the commands of this module."""
    app.command()(install)
    app.command()(uninstall)
    app.command()(hook)


def install(
    host: Host,
    project: Project = False,
    user: User = False,
    dry_run: DryRun = False,
    plugin_dir: Annotated[
        bool, typer.Option("--plugin-dir", help="Print where the plugin lies, for hosts that load one; change nothing.")
    ] = False,
    directory: options.Directory = "",
) -> None:
    """Set up an agent host, so that the loop runs by itself. Doing it twice changes nothing."""
    import shutil

    from fleet.hosts import settings

    _check_host(host)
    if plugin_dir:
        print(plugin_folder())
        return
    path = _path(project=project, user=user, directory=directory)
    if not _change(path, settings.with_hooks, dry_run=dry_run):
        desk.say(f"{path} calls fleet already; nothing was changed")
    elif not dry_run:
        desk.say(f"{path} calls fleet now, from the next session on; `fleet uninstall {host}` takes that out again")
    _note_others(path, directory)
    if shutil.which("fleet") is None:
        desk.note(
            "`fleet` is not on the PATH: until it is, the hooks do nothing. `uv tool install` or pipx puts it there"
        )


def _note_others(path: Path, directory: str) -> None:
    """Say where fleet is switched on beside this file: one place is enough."""
    from fleet.keep.errors import FleetError, NoError
    from fleet.keep.workspace import find_root

    try:
        root = find_root(directory or desk.chosen.directory, os.environ, Path.cwd())
    except NoError:
        root = None
    with suppress(FleetError, OSError):  # the doctor tells of a settings file that cannot be read
        if others := _callers(root, but=path)[0]:
            desk.note(f"fleet is called by {' and '.join(others)}, too: one place is enough, keep the one you want")


def uninstall(
    host: Host,
    project: Project = False,
    user: User = False,
    dry_run: DryRun = False,
    directory: options.Directory = "",
) -> None:
    """Take fleet's hooks out of a host's settings, and nothing else. No lesson is touched."""
    from fleet.hosts import settings

    _check_host(host)
    path = _path(project=project, user=user, directory=directory)
    if not _change(path, settings.without_hooks, dry_run=dry_run):
        desk.say(f"{path} does not call fleet; nothing was changed")
    elif not dry_run:
        desk.say(f"{path} does not call fleet any more; what was learned stays where it is")


def hook(event: Annotated[str, typer.Argument(metavar="EVENT", help="SessionStart, PreToolUse, ...")]) -> None:
    """Answer a host's hook: its payload on stdin. Hosts call this; exits 0 whatever happens, or 2 to block a tool."""
    from fleet.hook import main

    raise typer.Exit(main([event]))


def plugin_folder() -> Path:
    """Return the folder of the plugin in Claude's layout, which Codex and Copilot load, too."""
    import fleet.hosts

    return Path(fleet.hosts.__file__).parent / "claude_code"


def _check_host(host: str) -> None:
    from fleet.keep.errors import UsageError

    if host != CLAUDE_CODE:
        raise UsageError(f"{host[:40]!r} is no host that fleet can set up: {CLAUDE_CODE}. Nothing was changed")


def _path(*, project: bool, user: bool, directory: str) -> Path:
    """Return the settings file that was chosen.

    Raises:
        UsageError: both were.
        NoError: there is no workspace here.
    """
    from fleet.keep.errors import UsageError
    from fleet.keep.workspace import find_root

    if project and user:
        raise UsageError("--project or --user, not both. Nothing was changed")
    if user:
        return user_settings()
    return project_settings(find_root(directory or desk.chosen.directory, os.environ, Path.cwd()))


def project_settings(root: Path) -> Path:
    """Return a project's settings file."""
    return root / ".claude" / "settings.json"


def user_settings() -> Path:
    """Return a person's own settings file."""
    named = os.environ.get("CLAUDE_CONFIG_DIR", "")
    return (Path(named) if named else Path.home() / ".claude") / "settings.json"


def _change(path: Path, change: Callable[[dict[str, Any]], dict[str, Any]], *, dry_run: bool) -> bool:
    """Change a settings file, or print the difference; tell whether there is any.

    Raises:
        RefusedError: it is not what it should be; nothing was changed.
    """
    from fleet.hosts import settings

    # Many keep their own settings elsewhere, and a link to them here: the file it points to is the one to write.
    real = Path(os.path.realpath(path))
    before = real.read_bytes() if real.exists() else b""
    found = settings.parse(before, str(path))
    wanted = change(found)
    if wanted == found:
        return False
    is_ours = not wanted and before == settings.render(settings.with_hooks({}), b"")
    after = b"" if is_ours else settings.render(wanted, before)
    if dry_run:
        _print_difference(path, before, after)
    elif after:
        _replace(real, after)
    else:
        real.unlink()  # we made it, and nobody has touched it since
    return True


def _replace(path: Path, data: bytes) -> None:
    """Write a file anew, atomically, for the same readers as before: settings may hold keys."""
    import tempfile

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


def _print_difference(path: Path, before: bytes, after: bytes) -> None:
    import difflib

    old, new = before.decode("utf-8-sig").splitlines(), after.decode("utf-8-sig").splitlines()
    for line in difflib.unified_diff(old, new, str(path), str(path), lineterm=""):
        desk.say(line)
    desk.note("nothing was changed")


def findings(workspace: "Workspace") -> Iterator["Finding"]:
    """Yield what ``fleet doctor`` tells about agent hosts: the client, its hooks, when they fired, what they show."""
    yield _client()
    yield _hooks(workspace)
    yield _fired(workspace)
    yield _context(workspace)


def _client() -> "Finding":
    import shutil
    import subprocess

    from fleet.keep.checkup import Finding

    path = shutil.which(CLIENT)
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


def _hooks(workspace: "Workspace") -> "Finding":
    import shutil

    from fleet.keep.checkup import Finding
    from fleet.keep.errors import FleetError

    try:
        where, missing = _callers(workspace.root)
    except (FleetError, OSError) as why:
        return Finding("hooks", "warning", str(why), "whether fleet is called is not known", "mend that file")
    if not where:
        do = f"`fleet install {CLAUDE_CODE}` sets them up"
        return Finding("hooks", "note", "no settings call fleet", "nothing runs by itself in Claude Code", do)
    if missing:
        what = f"the settings call fleet, but not for {', '.join(sorted(missing))}"
        return Finding("hooks", "warning", what, "a part of the loop does not run", f"`fleet install {CLAUDE_CODE}`")
    twice_s = _when_twice(workspace)
    if len(where) > 1 or twice_s:
        # A plugin that was named on the command line stands in no settings: that it called is all there is to see.
        told = time.strftime(", and twice for one start on %Y-%m-%d", time.gmtime(twice_s)) if twice_s else ""
        means = "every call takes twice the time; nothing is shown or counted twice"
        do = (
            f"keep one: `fleet uninstall {CLAUDE_CODE}` takes the settings' part out, /plugin or --plugin-dir the other"
        )
        return Finding("hooks", "note", f"called by {' and '.join(where)}{told}", means, do)
    if shutil.which("fleet") is None:
        do = "`uv tool install` or pipx puts it there"
        return Finding("hooks", "warning", "the settings call fleet, and it is not on the PATH", "hooks do nothing", do)
    return Finding("hooks", "ok", f"called by {where[0]}")


def _callers(root: Path | None, but: Path | None = None) -> tuple[list[str], set[str]]:
    """Return where fleet's hooks are switched on, in words, and which events some of these places lack.

    Args:
        root: of the workspace, where there is one.
        but: a settings file whose hooks are not asked for.

    Raises:
        FleetError, OSError: a settings file cannot be read.
    """
    from fleet.hosts import settings

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


def _when_twice(workspace: "Workspace") -> float:
    """Return when one start was told of twice last, seconds since 1970; 0.0 where it was not lately."""
    try:
        at_s = (workspace.local / TWICE).stat().st_mtime
    except OSError:
        return 0.0
    return at_s if time.time() - at_s < TWICE_DAYS * 86_400 else 0.0


def _fired(workspace: "Workspace") -> "Finding":
    from fleet.keep.checkup import Finding

    folder = workspace.local / "fired"
    marks = {path.name: path.stat().st_mtime for path in folder.iterdir()} if folder.is_dir() else {}
    if not marks:
        return Finding("fired", "note", "no hook has fired here yet")
    newest = max(marks, key=lambda name: marks[name])
    at = time.strftime("%Y-%m-%d %H:%MZ", time.gmtime(marks[newest]))
    return Finding("fired", "ok", f"last {newest}, {at}; what went wrong stands in .fleet/log")


def _context(workspace: "Workspace") -> "Finding":
    from fleet.cli import starting
    from fleet.hosts.answers import CONTEXT_CHARS_MAX
    from fleet.keep.checkup import Finding
    from fleet.recall import ready

    agent = os.environ.get("FLEET_AGENT", "") or workspace.replicas().default_agent
    if not agent:
        return Finding("context", "note", "no agent is named here yet", "", "`fleet init --agent NAME`")
    agent = workspace.agent(agent)
    size = len(ready.text(str(workspace.root), agent) or starting.session_start(workspace, agent))
    what = f"{agent} starts a session with {size:,} characters"
    if size > CONTEXT_CHARS_MAX:
        means = f"hosts cut at 10,000; the hook sends {CONTEXT_CHARS_MAX:,} of them"
        return Finding("context", "warning", what, means, "lower start_chars in fleet.toml")
    return Finding("context", "ok", what)
