"""The commands by name. Each is imported when it is called, so that one command imports one module of these."""

import functools
import importlib
import itertools
import os
import signal
import sys
from collections.abc import Callable, Mapping
from contextlib import suppress
from pathlib import Path
from typing import Annotated, Any

import typer
from typer.core import TyperGroup, TyperOption

from crdt import clock
from fleet.cli.output import COMPLETE, COMPLETING, EXIT_REFUSED, WIDTH_MAX, chosen, commands, echo_json, note
from fleet.model.errors import DiskError, FleetError, UsageError
from fleet.store.workspace import World
from fleet.text import tables

EXIT_INTERRUPTED = 130
_EXIT_UNAVAILABLE = 5
ALL = "fleet.all"
"""Key in a context's ``meta`` of the group whose commands are to be listed, or "all"; "" for the first screen."""

_DATA = Path(__file__).with_name("data")

_GROUPED: dict[str, dict[str, dict[str, Any]]] = tables(str(_DATA / "commands.toml"))
TRAITS = {name: traits for rows in _GROUPED.values() for name, traits in rows.items()}
GROUPS = {group: [name for name in rows if " " not in name] for group, rows in _GROUPED.items()}
MODULES = {name: str(TRAITS[name]["module"]) for names in GROUPS.values() for name in names}
FIRST = [name for name, traits in TRAITS.items() if "first" in traits]
"""The commands of the first screen, ``fleet --help``."""
_ONLY_SHOW = ("dry_run", "check", "listed", "proposed", "plugin_dir")
"""Parameters with which a command changes nothing."""


def _choose(ctx: Any, option: Any, value: Any) -> None:
    """Store the value of an option. If it is not given behind the command, its value from before the command stays."""
    setattr(chosen, option.name, value or (getattr(chosen, option.name) if ctx.parent else ""))
    if option is _JSON and value:  # behind a `--` that is the value of an option, it is found by parsing alone
        chosen.owes_json = True


def _common(name: str, flag: str, text: str, **more: Any) -> TyperOption:
    """Return an option that all commands have."""
    return TyperOption(param_decls=[name, flag], help=text, callback=_choose, expose_value=False, **more)


_AGENT = _common(
    *("agent", "--agent", "Agent to act as; else FLEET_AGENT, else the stored default."),
    metavar="NAME",
    autocompletion=lambda _, __, incomplete: COMPLETE["agent"](incomplete),
)
_SESSION = _common("session", "--session", "The host's session; else FLEET_SESSION.", metavar="ID")
_DIRECTORY = _common(
    *("directory", "--dir", "Workspace; else FLEET_DIR, else the nearest fleet.toml upward."),
    metavar="DIR",
    is_eager=True,
)
_JSON = _common("as_json", "--json", "One JSON document instead of text.", is_flag=True, default=False)

_SENTENCE_CHARS_MAX = 300
_MESSAGE_CHARS_MAX = 1_000
"""Limit of an error's message, which may repeat an argument: more than half a dozen of the longest sentences."""


class _Commands(TyperGroup):
    """Group of all commands, each of which is imported when it is needed (click's lazy group)."""

    def __init__(self, **settings: Any) -> None:
        super().__init__(**settings)
        self.params[:0] = [_DIRECTORY, _AGENT, _SESSION]

    def list_commands(self, ctx: Any) -> list[str]:  # noqa: ARG002 - click's signature
        return list(MODULES)

    def get_command(self, ctx: Any, cmd_name: str) -> Any:
        if cmd_name not in MODULES:
            for name in MODULES:  # so that the error can name the nearest
                self.get_command(ctx, name)
            return None
        if cmd_name not in self.commands:
            self.commands[cmd_name] = _converted(cmd_name)
        return self.commands[cmd_name]

    def format_commands(self, ctx: Any, formatter: Any) -> None:
        group_asked = ctx.meta.get(ALL, "")
        for group, names in GROUPS.items():
            shown = [name for name in names if group_asked in ("all", group) or (not group_asked and name in FIRST)]
            listed = [(name, self.get_command(ctx, name)) for name in shown]
            if listed:
                with formatter.section(chosen.painted(group.capitalize(), "bold")):
                    rows = [(name, command.get_short_help_str(_SENTENCE_CHARS_MAX)) for name, command in listed]
                    formatter.write_dl(rows)
        if not group_asked:
            more = len(MODULES) - len(FIRST)
            formatter.write_paragraph()
            formatter.write_text(
                f"`fleet` alone shows what is new and what is pending. `fleet help all` lists {more} more commands, "
                "`fleet help COMMAND` shows one, and `fleet help TOPIC` prints a page of the documentation."
            )

    def invoke(self, ctx: Any) -> Any:
        try:
            if signal.getsignal(signal.SIGINT) is signal.SIG_DFL:  # as the entry point left it
                signal.signal(signal.SIGINT, signal.default_int_handler)
            return super().invoke(ctx)
        except KeyboardInterrupt as stop:  # the parser would exit without a message
            raise typer.Abort from stop


def _module(name: str) -> Any:
    return importlib.import_module(f"fleet.cli.{name}")


def _converted(name: str) -> Any:
    """Return a command, or a group of commands, for the parser, without the other commands of its module."""
    app, alone = _module(MODULES[name]).app, commands()
    alone.registered_commands = [each for each in app.registered_commands if each.name == name]
    alone.registered_groups = [each for each in app.registered_groups if each.typer_instance.info.name == name]
    command = typer.main.get_group(alone).commands[name]
    _complete(command, name)
    for inner, each in getattr(command, "commands", {}).items():
        _complete(each, f"{name} {inner}")
    return command


def _complete(command: Any, name: str) -> None:
    """Give a command its examples, the options that nearly all commands have, and its note for undo."""
    command.epilog, traits = _epilog(name), TRAITS.get(name, {})
    for option, is_taken in (
        (_SESSION, "session" in traits),
        (_AGENT, "no-agent" not in traits),
        (_JSON, "no-json" not in traits),
        (_DIRECTORY, "no-dir" not in traits),
    ):
        if is_taken and option not in command.params:
            command.params.append(option)
    if "no-run" in traits:
        command.callback = _noting(command.callback, name, traits["no-run"])


def _noting(act: Callable[..., Any], name: str, options: Mapping[str, str]) -> Callable[..., Any]:
    """Return a command's function that also notes the command for undo, unless it returns False: nothing changed.

    ``options``: by parameter, the options of which one must be given for a change; none: the command always changes.
    """

    @functools.wraps(act)
    def act_and_note(**arguments: Any) -> None:
        command, began = _change_by(name, options, arguments), clock.nearest(World().wall_ms())
        has_changed = False
        try:
            has_changed = act(**arguments) is not False
        except typer.Exit as left:
            has_changed = left.exit_code in (0, EXIT_REFUSED, _EXIT_UNAVAILABLE)  # at least in part
            raise
        except DiskError:
            has_changed = chosen.has_written
            raise
        finally:
            if command and has_changed:
                chosen.note_given(command, began)

    return act_and_note


def _change_by(name: str, options: Mapping[str, str], arguments: Mapping[str, Any]) -> str:
    """Return a command with the option by which it changes something; "" if it only shows something."""
    given: dict[str, Any] = {"agent": chosen.agent, **arguments}
    if given.get("host") == "none":
        del given["host"]
    changing = [option for parameter, option in options.items() if given.get(parameter)]
    if any(arguments.get(each) for each in _ONLY_SHOW) or (options and not changing):
        return ""
    return " ".join(["fleet", name, *changing[:1]])


def _epilog(name: str) -> str:
    """Return the text below the help of a command, which has its examples."""
    prefix = ["fleet", *name.split()]
    rows = _DATA.joinpath("examples.txt").read_text("utf-8").splitlines()
    examples = [f"  {row}" for row in rows if row.split()[: len(prefix)] == prefix]
    return "\n".join(["\b", "Example:" if len(examples) == 1 else "Examples:", *examples]) if examples else ""


app = typer.Typer(
    cls=_Commands,
    name="fleet",
    invoke_without_command=True,
    add_completion=False,
    pretty_exceptions_enable=False,
    rich_markup_mode=None,
    context_settings={"help_option_names": ["-h", "--help"], "max_content_width": WIDTH_MAX},
    epilog="Exit codes: 0 ok, 1 no, 2 usage, 3 refused or quarantined, 4 busy, 5 remote unavailable, 6 other error, "
    "130 interrupted.",
)


@app.callback()
def _before(
    ctx: typer.Context,
    version: Annotated[bool, typer.Option("--version", help="Show the version and exit.")] = False,
    as_json: Annotated[
        bool, typer.Option("--json", help="Without a command: what `fleet` alone shows, as JSON.")
    ] = False,
) -> None:
    """Every correction one agent gets becomes knowledge for all of them."""
    chosen.as_json = as_json
    if version:
        chosen.put(_module("help").version())
        raise typer.Exit
    if ctx.invoked_subcommand is None:
        _module("dashboard").show()
    elif as_json:
        raise UsageError("--json goes behind the whole command, as in `fleet patterns --json`. Nothing was done")


def run(words: list[str]) -> int:
    """Parse the words and run the command; return its exit code. An answer that cannot be written is an error."""
    for stream in (sys.stdout, sys.stderr):
        reconfigure = getattr(stream, "reconfigure", None)
        if reconfigure is not None:  # a C locale must not stop an emoji, or a lesson in Chinese
            reconfigure(encoding="utf-8", errors="backslashreplace")
    chosen.owes_json = "--json" in itertools.takewhile(lambda word: word != "--", words)
    code = _run(words)
    with suppress(typer.Exit):
        chosen.put()
    if not chosen.unwritten:
        return code
    note(f"the answer cannot be written ({chosen.unwritten}){'; what was given is done' * chosen.has_changed}")
    return code if chosen.has_changed else code or FleetError.exit_code


def _run(words: list[str]) -> int:
    try:
        if COMPLETING in os.environ:
            typer.main.get_install_completion_arguments()  # registers the shells that typer knows
        return app(words, prog_name="fleet", standalone_mode=False) or 0
    except FleetError as why:
        return _failed(f"{why}{why.again}", why.exit_code)
    except typer.Abort:
        return _failed("interrupted; nothing that was logged is lost", EXIT_INTERRUPTED)
    except SystemExit as left:  # after a completion
        return left.code if isinstance(left.code, int) else FleetError.exit_code
    except OSError as why:
        about = why.filename or "a file, or the folder that this was started in"
        return _failed(f"{about}: {why.strerror or why}. Nothing that was logged is lost", FleetError.exit_code)
    except Exception as why:  # noqa: BLE001 - the last resort: a person never sees a stack trace
        misused: Any = why if hasattr(why, "format_message") else None
        return _unexpected(why) if misused is None else _failed(misused.message, misused.exit_code, misused)


def _failed(why: str, code: int, misused: Any = None) -> int:
    """Print why the command failed, on stdout, too, where a JSON document is owed; return ``code``.

    ``misused``: the parser's own error, which is printed with the command's usage.
    """
    if len(why) > _MESSAGE_CHARS_MAX:  # it repeats a huge argument; its beginning says what happened, its end the rest
        why = f"{why[: _MESSAGE_CHARS_MAX // 2]} ... {why[-_MESSAGE_CHARS_MAX // 2 :]}"
    if misused is None:
        note(why)
    else:
        misused.message = why
        misused.show()
        why = misused.format_message()
    if chosen.owes_json:
        echo_json({"error": why, "exit_code": code})
    return code


def _unexpected(why: Exception) -> int:
    if os.environ.get("FLEET_DEBUG") == "1":
        raise why
    message = (
        f"an error in fleet itself ({type(why).__name__}: {why}). Nothing that was logged is lost; "
        "please report it with the output of the same command under FLEET_DEBUG=1"
    )
    return _failed(message, FleetError.exit_code)
