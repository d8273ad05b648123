"""``fleet config``: the settings of ``fleet.toml``, read and set."""

from typing import Annotated

import typer

from fleet.app import setup
from fleet.cli import output
from fleet.model.errors import UsageError
from fleet.store import config

app = output.commands()

_VALUE_CHARS_MAX = 100


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
            autocompletion=lambda incomplete: [each for each in config.names() if each.startswith(incomplete)],
        ),
    ] = "",
    value: Annotated[str, typer.Argument(metavar="[VALUE]", help='Text, or TOML: 3, true, ["a", "b"].')] = "",
    changed: Annotated[bool, typer.Option("--changed", help="Only those that fleet.toml sets.")] = False,
    as_json: output.Json = False,
    directory: output.Directory = "",
) -> None:
    """Show the settings of fleet.toml, or set one. Comments, and all else in the file, stay as they are."""
    if action not in ("", "get", "set") or (action == "get" and (not name or value)):
        known = action in {*config.names(), *(each.partition(".")[0] for each in config.names())}
        meant = f"`fleet config {f'set {action} {name}' if name else f'get {action}'}`" if known else ""
        told = f"Did you mean {meant}?" if meant else "`fleet config`, `fleet config get KEY` or `set KEY VALUE`."
        raise UsageError(f"`fleet config` has no action {action[:40]!r}. {told} Nothing was changed")
    with output.opened(directory) as workspace:
        if action == "set":
            if not name:
                raise UsageError(
                    "`fleet config set KEY VALUE` sets one; `fleet config` lists them. Nothing was changed"
                )
            setting = setup.configure(workspace, name, value)
            told = f"{setting.name} = {config.as_toml(setting.value)}"
            output.tell({"name": setting.name, "value": setting.value}, output.cleaned(told), as_json=as_json)
            return
        found = config.settings(workspace.config_file)
        if name and name not in {each.name.partition(".")[0] for each in found}:
            wanted = ".".join(config.find(name))
            found = [each for each in found if each.name == wanted]
            if not as_json:
                value_shown = found[0].value
                output.say(output.cleaned(value_shown if isinstance(value_shown, str) else config.as_toml(value_shown)))
                return
        found = [each for each in found if not name or each.name.startswith(f"{name.partition('.')[0]}.")]
        found = [each for each in found if each.is_set or not changed]
        if as_json:
            output.say_json({"settings": output.cleaned([each._asdict() for each in found])})
            return
        for each in found:
            shown = "not set" if each.value is None else output.cleaned(config.as_toml(each.value))
            cut = shown if len(shown) <= _VALUE_CHARS_MAX else f"{shown[:_VALUE_CHARS_MAX]}..."
            output.say_row((f"{each.name:<32} ", "bold" if each.is_set else ""), (cut, "" if each.is_set else "dim"))
