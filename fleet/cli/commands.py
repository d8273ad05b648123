"""The commands by name. Each is imported when it is called, so that one command imports one module of these."""

import importlib
import os
import sys
from typing import Annotated, Any

import typer
from typer.core import TyperGroup

from fleet import __version__
from fleet.cli.output import COMPLETING, Agent, Directory, Session, chosen, note
from fleet.model.errors import FleetError

EXIT_INTERRUPTED = 130

MODULES = {
    "correct": "corrections",
    "discover": "corrections",
    "gossip": "lessons",
    "start": "lessons",
    "learn": "corrections",
    "mutate": "journal",
    "journal": "journal",
    "handover": "journal",
    "observe": "consolidation",
    "consolidate": "consolidation",
    "migrate": "consolidation",
    "patterns": "lessons",
    "show": "lessons",
    "tidy": "sleep",
    "sleep": "sleep",
    "retire": "lessons",
    "restore": "lessons",
    "import": "moving",
    "search": "journal",
    "stats": "lessons",
    "feedback": "lessons",
    "guard": "lessons",
    "edit": "lessons",
    "merge": "lessons",
    "unmerge": "lessons",
    "reflect": "reflection",
    "done": "reflection",
    "review": "review",
    "inbox": "inbox",
    "records": "records",
    "block": "trust",
    "unblock": "trust",
    "undo": "undo",
    "promote": "lessons",
    "demote": "lessons",
    "init": "clan",
    "sync": "clan",
    "status": "clan",
    "compact": "clan",
    "render-patterns": "clan",
    "doctor": "clan",
    "pause": "clan",
    "resume": "clan",
    "export": "moving",
    "backup": "moving",
    "restore-backup": "moving",
    "upgrade": "moving",
    "purge": "moving",
    "leave": "clan",
    "install": "hosts",
    "uninstall": "hosts",
    "hook": "hosts",
    "poll": "serve",
    "who": "live",
    "completion": "hosts",
    "sidecar": "serve",
    "live": "live",
}
"""Command to module of this folder, in the order of ``fleet --help``."""


class _Commands(TyperGroup):
    """The group of all commands: click's lazy group, which asks for a command when it is wanted."""

    def list_commands(self, ctx: Any) -> list[str]:  # noqa: ARG002 - click's signature
        return list(MODULES)

    def get_command(self, ctx: Any, cmd_name: str) -> Any:
        if cmd_name not in MODULES:
            for name in MODULES:  # so that the error can name the nearest
                self.get_command(ctx, name)
            return None
        if cmd_name not in self.commands:
            module = importlib.import_module(f"fleet.cli.{MODULES[cmd_name]}")
            self.commands.update(typer.main.get_group(module.app).commands)
        return self.commands[cmd_name]

    def invoke(self, ctx: Any) -> Any:
        try:
            return super().invoke(ctx)
        except typer.BadParameter as why:
            raise _naming_all(why) from None
        except KeyboardInterrupt as stop:  # here, since the parser would leave without a word
            raise _InterruptedError("interrupted; what was acknowledged is kept") from stop
        except BrokenPipeError as gone:  # here, since the parser would leave with a code that says "no"
            raise _NobodyReadsError from gone


def _naming_all(why: typer.BadParameter) -> typer.BadParameter:
    """Return a complaint that one option is missing as one that names all that are: what was given is parsed first."""
    if not why.message and why.ctx is not None and why.param in (params := why.ctx.command.params):
        missing = [f"'{each.opts[0]}'" for each in params if each.required and each.name not in why.ctx.params]
        if all(each.startswith("'-") for each in missing):
            why.param_hint = " and ".join(filter(None, (", ".join(missing[:-1]), missing[-1])))
    return why


class _InterruptedError(FleetError):
    exit_code = EXIT_INTERRUPTED


class _NobodyReadsError(Exception):
    """The reader of our output has gone, as in ``fleet patterns | head``."""


app = typer.Typer(
    cls=_Commands,
    name="fleet",
    no_args_is_help=True,
    add_completion=False,
    pretty_exceptions_enable=False,
    rich_markup_mode=None,
    context_settings={"help_option_names": ["-h", "--help"]},
    help="Every correction one agent gets becomes knowledge for all of them.",
    epilog="Exit codes: 0 ok, 1 no, 2 usage, 3 refused or quarantined, 4 busy, 5 remote unavailable, 6 other error.",
)


def _show_version(wanted: bool) -> None:
    if wanted:
        print(f"fleet {__version__}")
        raise typer.Exit


@app.callback()
def _before(
    directory: Directory = "",
    agent: Agent = "",
    session: Session = "",
    version: Annotated[  # noqa: ARG001 - read by its callback
        bool, typer.Option("--version", callback=_show_version, is_eager=True, help="Show the version and exit.")
    ] = False,
) -> None:
    """Every correction one agent gets becomes knowledge for all of them."""
    chosen.directory, chosen.agent, chosen.session = directory, agent, session


def run(words: list[str]) -> int:
    """Parse the words and run the command; return its exit code.

    Raises:
        BrokenPipeError: nobody reads our output any more.
    """
    for stream in (sys.stdout, sys.stderr):
        reconfigure = getattr(stream, "reconfigure", None)
        if reconfigure is not None:  # a C locale must not stop an emoji, or a lesson in Chinese
            reconfigure(encoding="utf-8", errors="backslashreplace")
    try:
        if COMPLETING in os.environ:
            typer.main.get_install_completion_arguments()  # registers the shells that typer knows
        app(words, prog_name="fleet")
    except FleetError as why:
        note(str(why))
        return why.exit_code
    except SystemExit as left:
        return left.code if isinstance(left.code, int) else FleetError.exit_code
    except _NobodyReadsError:
        raise BrokenPipeError from None
    except OSError as why:
        note(f"{why.filename or 'a file'}: {why.strerror or why}. What was acknowledged is kept")
        return FleetError.exit_code
    except Exception as why:  # noqa: BLE001 - the last resort: a person never sees a stack trace
        return _unexpected(why)
    return 0


def _unexpected(why: Exception) -> int:
    if os.environ.get("FLEET_DEBUG") == "1":
        raise why
    note(
        f"an error in fleet itself ({type(why).__name__}: {why}). What was acknowledged is kept; "
        "please report it with the output of the same command under FLEET_DEBUG=1"
    )
    return FleetError.exit_code
