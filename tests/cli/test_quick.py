"""The quick way and the parser's way are one: the same options, the same parameters, and errors from the parser."""

import inspect
import os
import subprocess
import sys

import pytest
import typer

from fleet.cli import acts, quick
from fleet.cli.app import app

DECLARED = typer.main.get_command(app).commands


@pytest.mark.parametrize("name", sorted(quick.COMMANDS))
def test_the_table_says_what_is_declared(name):
    declared, table = DECLARED[name].params, quick.COMMANDS[name]
    options = {option: param.name for param in declared for option in param.opts if option not in ("-h", "--help")}
    assert table.options == options
    assert {o for o in options if o in table.flags} == {o for p in declared if getattr(p, "is_flag", 0) for o in p.opts}
    assert set(table.required) == {param.name for param in declared if param.required}
    assert table.lists == {option for param in declared if param.multiple for option in param.opts}
    assert table.numbers == {o for p in declared if isinstance(p.type, typer._click.types.IntRange) for o in p.opts}


@pytest.mark.parametrize("name", sorted(quick.COMMANDS))
def test_what_is_called_takes_what_is_given(name):
    takes = inspect.signature(getattr(acts, name)).parameters
    assert set(quick.COMMANDS[name].options.values()) <= set(takes)
    defaults = {param.name: param.default for param in DECLARED[name].params if not param.required}
    for param, value in takes.items():
        if value.default is not inspect.Parameter.empty and param in defaults:
            assert (value.default or None) == (defaults[param] or None), param


@pytest.mark.parametrize(
    ("words", "given"),
    [
        (["start"], {}),
        (["start", "--json", "--agent", "velma"], {"as_json": True, "agent": "velma"}),
        (["start", "--agent=velma"], {"agent": "velma"}),
        (["gossip", "-n", "5"], {"count": 5}),
        (["correct", "--wrong", "a", "--right", "b", "--pattern", "c d", "--tag", "x", "--tag", "y"],
         {"wrong": "a", "right": "b", "pattern": "c d", "tag": ["x", "y"]}),
        (["correct", "--wrong=-a", "--right=", "--pattern", ""], {"wrong": "-a", "right": "", "pattern": ""}),
    ],
)  # fmt: skip
def test_plain_words_are_read(words, given):
    assert quick.parsed(quick.COMMANDS[words[0]], words[1:]) == given


@pytest.mark.parametrize(
    "words",
    [
        [],
        ["status"],
        ["--agent", "velma", "start"],
        ["start", "--help"],
        ["start", "-h"],
        ["start", "now"],
        ["start", "--json=yes"],
        ["start", "--agent"],
        ["start", "--agent", "--json"],
        ["start", "--agen", "velma"],
        ["start", "--"],
        ["gossip", "-n", "0"],
        ["gossip", "-n", "-3"],
        ["gossip", "-n5"],
        ["gossip", "--count", "many"],
        ["gossip", "--count", "٣"],
        ["correct", "--wrong", "a", "--right", "b"],
        ["correct", "--wrong", "-a", "--right", "b", "--pattern", "c"],
    ],
)
def test_anything_else_is_the_parsers(words):
    assert quick.call(words) is None


def test_both_ways_print_the_same(stage):
    stage.run("one", "init", "--agent", "velma")
    quickly = stage.run("one", "correct", "--wrong", "a", "--right", "b", "--pattern", "c", "--json").stdout
    parsed = stage.run(
        "one", "--dir", ".", "correct", "--wrong", "a", "--right", "b", "--pattern", "c", "--json"
    ).stdout
    assert quickly.replace('"seen":1', '"seen":2') == parsed


def test_the_parser_is_not_imported_for_plain_words(stage):
    stage.run("one", "init", "--agent", "velma")
    asked = [sys.executable, "-X", "importtime", "-m", "fleet", "gossip"]
    done = subprocess.run(
        asked, cwd=stage.folder / "one", env=stage.environment(), capture_output=True, text=True, check=True
    )
    assert "fleet.cli.acts" in done.stderr
    heavy_ones = ("typer", "rapidfuzz", "fleet.share", "subprocess", "dataclasses", "inspect", "tomllib", "_hashlib")
    for heavy in (*heavy_ones, "sqlite3"):
        assert f" {heavy}\n" not in done.stderr


@pytest.mark.parametrize("words", [[], ["--agent", "velma"], ["--dir", "."], ["--session", "s1", "--agent", "velma"]])
def test_a_ready_start_is_printed_as_it_would_be_made(stage, words):
    stage.run("one", "init", "--agent", "velma")
    stage.correct("one", "Say 日本 and a bell \x07 quietly")
    made = stage.run("one", "start", *words).stdout.splitlines()
    ready = stage.run("one", "start", *words).stdout.splitlines()
    assert ready[1:-1] == made[1:-1]
    assert ready[0] == ready[-1] != made[0]
    assert "日本" in "".join(ready)


def test_a_start_that_cannot_be_printed_at_once_says_what_is_wrong(stage):
    stage.run("one", "init", "--agent", "velma")
    stage.run("one", "start")
    assert "no fleet workspace" in stage.run("one", "start", "--dir", "nowhere", expect=1).stderr
    assert "cannot be an agent" in stage.run("one", "start", "--agent", "No One", expect=2).stderr
    (stage.folder / "one/fleet.toml").write_text("[nonsense")
    assert "not valid TOML" in stage.run("one", "start", expect=2).stderr


def test_nobody_who_stops_reading_a_ready_start_hears_of_it(stage):
    stage.run("one", "init", "--agent", "velma")
    stage.run("one", "start")
    reader, writer = os.pipe()
    os.close(reader)
    try:
        done = subprocess.run(
            [sys.executable, "-u", "-m", "fleet", "start"],
            cwd=stage.folder / "one",
            env=stage.environment(),
            stdout=writer,
            stderr=subprocess.PIPE,
            check=False,
        )
    finally:
        os.close(writer)
    assert (done.returncode, done.stderr) == (0, b"")
