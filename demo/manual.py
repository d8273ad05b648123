"""Writer of the manual page ``docs/fleet.1``, from the definitions of the commands: ``python demo/manual.py``."""

import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

import typer.main

from fleet import __version__
from fleet.cli import commands
from fleet.cli.help import topics

EXIT_CODES = (
    "0 ok, 1 no, 2 usage, 3 refused or quarantined, 4 busy, 5 remote unavailable, 6 other error, 130 interrupted."
)
ENVIRONMENT = (
    ("FLEET_DIR", "The workspace, where --dir names none."),
    ("FLEET_AGENT", "The agent, where --agent names none."),
    ("FLEET_SESSION", "The session, where --session names none."),
    ("FLEET_REPLICA", "The replica that a short-lived job is lent, <agent>.<8 hex digits>."),
    ("FLEET_SCHEDULED", "1: a schedule gives this command, and no person: a bare fleet undo passes it over."),
    ("FLEET_DISABLED", "1: nothing is read, logged or sent."),
    ("FLEET_DEBUG", "1: an error in fleet itself shows its stack."),
    ("NO_COLOR", "Anything: no colours."),
)


def escaped(text: str) -> str:
    """Return a line of text as roff that prints it."""
    text = text.replace("\\", "\\e").replace("-", "\\-")
    return f"\\&{text}" if text[:1] in (".", "'") else text


def told(option: Any) -> Iterator[str]:
    """Yield the entry of an option or an argument."""
    if option.param_type_name == "argument":
        name = option.metavar or option.name.upper()
    else:
        name = ", ".join([*option.opts, *option.secondary_opts])
        name += "" if option.is_flag or option.count else f" {option.metavar or 'VALUE'}"
    yield from (".TP", f"\\fB{escaped(name)}\\fR", escaped(" ".join((option.help or "").split())))


def section(name: str, command: Any, mark: str = ".SS") -> Iterator[str]:
    """Yield what the page says of a command, and of the commands of a group."""
    yield f"{mark} {escaped(name)}"
    yield from (escaped(row) for row in " ".join((command.help or "").split()).split("\n"))
    for option in command.params:
        if not getattr(option, "hidden", False):
            yield from told(option)
    inner = getattr(command, "commands", {})
    for each in inner:
        yield from section(f"{name} {each}", inner[each])
    examples = [row.strip() for row in (command.epilog or "").splitlines() if row.startswith("  ")]
    if examples:
        yield from (".PP", "Example:" if len(examples) == 1 else "Examples:", ".PP", ".nf", ".RS")
        yield from map(escaped, examples)
        yield from (".RE", ".fi")


def page() -> str:
    """Return the manual page."""
    group: Any = typer.main.get_command(commands.app)
    rows = [f'.TH FLEET 1 "" "fleet {__version__}" "fleet"', ".SH NAME", "fleet \\- " + escaped(group.help.rstrip("."))]
    rows += [".SH SYNOPSIS", ".B fleet", "[OPTIONS] [COMMAND [ARGS]...]", ".SH DESCRIPTION"]
    rows += [escaped("fleet alone shows what is new in the workspace here, what waits for you, and what to do next.")]
    rows += [".SH OPTIONS", *(row for option in group.params for row in told(option))]
    for name, names in commands.GROUPS.items():
        rows.append(f'.SH "COMMANDS: {name.upper()}"')
        for each in names:
            rows += section(each, group.get_command(None, each))
    rows += [".SH EXIT STATUS", escaped(EXIT_CODES), ".SH ENVIRONMENT"]
    for name, what in ENVIRONMENT:
        rows += [".TP", f"\\fB{name}\\fR", escaped(what)]
    rows += [".SH SEE ALSO", escaped(f"fleet help TOPIC, with one of: {', '.join(topics())}.")]
    return "\n".join(rows) + "\n"


if __name__ == "__main__":
    sys.stdout.write(page())
