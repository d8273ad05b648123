"""Agent hosts, shells and settings: ``fleet install``, ``uninstall``, ``hook``, ``completion`` and ``config``."""

import difflib
import sys
from collections.abc import Sequence
from contextlib import suppress
from shutil import which
from typing import Annotated

import typer
from typer.completion import get_completion_script  # type: ignore[attr-defined]

from fleet import hook
from fleet.app import session_end, setup
from fleet.cli import output
from fleet.hosts import install
from fleet.hosts.install import Changed, SettingsFile
from fleet.hosts.payloads import CLAUDE_CODE
from fleet.model.errors import NoError, UsageError
from fleet.store import config

SHELLS = ("bash", "zsh", "fish")

Host = Annotated[
    str, typer.Argument(metavar="HOST", help=f"The agent host: {CLAUDE_CODE}.", autocompletion=lambda: [CLAUDE_CODE])
]
Project = Annotated[bool, typer.Option("--project", help="This workspace's .claude/settings.json; the default.")]
User = Annotated[bool, typer.Option("--user", help="Your own settings.json: every project that is a workspace.")]

app = output.commands()

_VALUE_CHARS_MAX = 100


@app.command("install")
def _install(
    host: Host,
    project: Project = False,
    user: User = False,
    dry_run: output.DryRun = False,
    plugin_dir: Annotated[
        bool, typer.Option("--plugin-dir", help="Print where the plugin lies, for hosts that load one; change nothing.")
    ] = False,
) -> None:
    """Set up an agent host, so that the loop runs by itself. Doing it twice changes nothing."""
    install.check_host(host)
    if plugin_dir:
        print(install.plugin_folder())
        return
    file = _file(project=project, user=user)
    _tell(
        file.install(dry_run=dry_run),
        f"{file.path} calls fleet now, from the next session on; `fleet uninstall {host}` takes that out again",
        f"{file.path} calls fleet already; nothing was changed",
        dry_run=dry_run,
    )
    if not dry_run:
        _ask_to_reflect(host)
    if which("fleet") is None:
        output.note(
            "`fleet` is not on the PATH: until it is, the hooks do nothing. `uv tool install` or pipx puts it there"
        )


@app.command("uninstall")
def _uninstall(host: Host, project: Project = False, user: User = False, dry_run: output.DryRun = False) -> None:
    """Take fleet's hooks, skill and slash commands out, and nothing else. No lesson is touched."""
    install.check_host(host)
    file = _file(project=project, user=user)
    _tell(
        file.uninstall(dry_run=dry_run),
        f"{file.path} does not call fleet any more; what was learned stays where it is",
        f"{file.path} does not call fleet; nothing was changed",
        dry_run=dry_run,
    )


@app.command("hook")
def _hook(event: Annotated[str, typer.Argument(metavar="EVENT", help="SessionStart, PreToolUse, ...")]) -> None:
    """Answer a host's hook: its payload on stdin. Hosts call this; exits 0 whatever happens, or 2 to block a tool."""
    raise typer.Exit(hook.main([event]))


@app.command("completion")
def _completion(
    shell: Annotated[str, typer.Argument(metavar="SHELL", help="bash, zsh or fish.", autocompletion=lambda: SHELLS)],
) -> None:
    """Print a completion script. In bash: `source <(fleet completion bash)`, best in ~/.bashrc."""
    # Printed, never installed: a shell's files are a person's.
    if shell not in SHELLS:
        raise UsageError(f"there is a script for {', '.join(SHELLS)}, not for {shell[:40]!r}")
    output.say(get_completion_script(prog_name="fleet", complete_var=output.COMPLETING, shell=shell))


def _file(*, project: bool, user: bool) -> SettingsFile:
    """Return the settings file that was chosen.

    Raises:
        UsageError: both were.
        NoError: there is no workspace here.
    """
    if project and user:
        raise UsageError("--project or --user, not both. Nothing was changed")
    return SettingsFile.of(None if user else output.chosen.root())


def _ask_to_reflect(host: str) -> None:
    """Ask once whether the host's own model may look back on sessions, naming what that may cost."""
    client = {"claude-code": "claude", "codex": "codex", "gemini": "gemini"}.get(host, "")
    with suppress(NoError), output.opened() as workspace:
        if not client or not session_end.Choice(workspace).is_open:
            return
        cap = session_end.Choice(workspace).settings
        told = (
            f"When a session ends, fleet writes down what it taught, by rules of its own, for nothing. {client}'s own "
            f"model would find more, for at most ${cap.max_usd:g} a session and ${cap.daily_usd:g} a day; it is given "
            "the session, screened"
        )
        if not sys.stdin.isatty():
            output.note(f"{told}. A person says yes with `fleet reflect --use {client}`")
            return
        is_yes = typer.confirm(f"{told}. May it?", default=False)
        session_end.Choice(workspace).choose(client if is_yes else session_end.RULES)


def _tell(done: Sequence[Changed], new: str, old: str, *, dry_run: bool) -> None:
    """Tell what became of the settings, the first of these files, and of the pages beside them."""
    if dry_run:
        for each in done:
            old_lines, new_lines = (data.decode("utf-8-sig").splitlines() for data in (each.before, each.after))
            for line in difflib.unified_diff(old_lines, new_lines, str(each.path), str(each.path), lineterm=""):
                output.say(line)
        output.note("nothing was changed")
        return
    output.say(new if any(each.is_other for each in done) else old)
    for each in done[1:]:
        if each.is_theirs:
            output.note(f"{each.path} is not as fleet wrote it: it was left alone")
        elif each.is_other:
            output.say(f"{'wrote' if each.after else 'took out'} {each.path}")


# --- settings ---------------------------------------------------------------------------------------------------------


@app.command("config")
def _config(
    action: Annotated[
        str, typer.Argument(metavar="[get|set]", help="None: list all.", autocompletion=lambda: ["get", "set"])
    ] = "",
    name: Annotated[
        str,
        typer.Argument(
            metavar="[KEY]",
            help="A setting, section.key; or, to get, a section.",
            autocompletion=lambda incomplete: [each for each in config.find("") if each.startswith(incomplete)],
        ),
    ] = "",
    value: Annotated[str, typer.Argument(metavar="[VALUE]", help='Text, or TOML: 3, true, ["a", "b"].')] = "",
    as_json: output.Json = False,
) -> None:
    """Show the settings of fleet.toml, or set one. Comments, and all else in the file, stay as they are."""
    if (action, bool(name)) not in {("", False), ("get", True), ("set", True)} or (value and action != "set"):
        told = "`fleet config` lists the settings; `fleet config get KEY`, or `set KEY VALUE`"
        raise UsageError(f"{told}. Nothing was changed")
    with output.opened() as workspace:
        if action == "set":
            ((name, found),) = setup.configure(workspace, {name: value}).items()
            output.tell({"name": name, "value": found}, f"{name} = {config.as_toml(found)}", as_json=as_json)
            return
        wanted = config.find(name)
        shown = [each for each in config.settings(workspace.config_file) if each.name in wanted]
        if as_json:
            output.say_json({"settings": [each._asdict() for each in shown]})
            return
        if [name] == wanted:
            for each in shown:
                output.say(each.value if isinstance(each.value, str) else config.as_toml(each.value))
            return
        for each in shown:
            told = output.cleaned("not set" if each.value is None else config.as_toml(each.value))
            cut = told if len(told) <= _VALUE_CHARS_MAX else f"{told[:_VALUE_CHARS_MAX]}..."
            output.say_row((f"{each.name:<32} ", "bold" if each.is_set else ""), (cut, "" if each.is_set else "dim"))
