"""One module alone knows where the agents' homes are: whatever else names the place asks it."""

import ast
import re

from fleet.app import inbox as decisions
from fleet.learn import corrections_md, discoveries, journal
from fleet.reflect import inbox, memory_md, records
from fleet.store import homes
from tests.house.counts import sources

PLACE = re.compile(r"(?<![\w.-])agents(/|$)")
KNOWS = "fleet.store.homes"
WORDS = {"fleet.app.finding", "fleet.store.rows"}
"""Modules that say the word by itself and mean no place: a column, a key."""


def texts(tree: ast.AST) -> list[str]:
    """Return the texts in a module but for its docstrings."""
    bare = {id(node.value) for node in ast.walk(tree) if isinstance(node, ast.Expr)}
    found = (node for node in ast.walk(tree) if isinstance(node, ast.Constant) and id(node) not in bare)
    return [node.value for node in found if isinstance(node.value, str)]


def named(text: str) -> bool:
    """Tell whether a text is that place, or a path in it."""
    return text == "agents" or any(match[1] for match in PLACE.finditer(text))


def test_no_module_but_one_has_the_place_of_the_homes():
    modules = {name: module for name, module in sources().items() if "agents" in module.text}
    knowing = {name for name, module in modules.items() if any(map(named, texts(module.tree)))}
    assert knowing == {KNOWS, *WORDS}
    for name in WORDS:
        assert not any(PLACE.search(each) and each != "agents" for each in texts(modules[name].tree) if "/" in each)


def test_the_look_for_it_finds_it():
    said = 'x = root / "agents" / name\ny = f"see agents/{name}/memory.md"\nz = ".agents/logs"\n'
    assert sorted(each for each in texts(ast.parse(said)) if named(each)) == ["agents", "see agents/"]


def test_what_fleet_writes_into_a_home_moves_with_it():
    named = (corrections_md.FILE_NAME, discoveries.WAITING, journal.FILE_NAME, inbox.FILE_NAME, memory_md.FILE_NAME)
    named += (records.FILE_NAME, memory_md.USER_MODEL, memory_md.CHECKS, decisions.USER_FILE, "notes.jsonl")
    assert all(homes.is_own([name]) for name in (*named, "archive-2026-11-23.md", journal.FOLDER, "skills"))
    assert not any(homes.is_own([name]) for name in ("__init__.py", "README.md", "archive.md", "agent.md"))
