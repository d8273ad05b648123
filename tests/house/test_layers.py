"""Who may import whom: cli, hook, serve -> app -> verbs -> store -> model, text -> crdt."""

import ast
import sys

import pytest

from tests.house.counts import Module, cycles, imported, sources

VERBS = {"fleet.learn", "fleet.share", "fleet.recall", "fleet.reflect"}
FACES = {"fleet.cli", "fleet.hook", "fleet.serve"}
PURE = {"crdt", "fleet.model"}
STORE = {*PURE, "fleet.text", "fleet.store"}
APP = {*STORE, *VERBS, "fleet.hosts", "fleet.app"}
BELOW = {
    "crdt": {"crdt"},
    "fleet.model": PURE,
    "fleet.text": {*PURE, "fleet.text"},
    "fleet.store": STORE,
    **{verb: {*STORE, verb} for verb in VERBS},
    "fleet.hosts": {*STORE, "fleet.hosts"},
    "fleet.app": APP,
    **{face: {*APP, face} for face in FACES},
    "fleet": {*APP, *FACES},
}
THIRD_PARTY = {
    "crdt": {"pycrdt"},  # in one module alone, see below
    "fleet.model": {"msgspec"},
    "fleet.text": {"markdown_it", "msgspec", "rapidfuzz"},
    "fleet.store": {"msgspec"},
    "fleet.learn": {"msgspec"},
    "fleet.share": {"anyio", "msgspec", "websockets"},
    "fleet.recall": {"msgspec"},
    "fleet.reflect": {"anthropic", "honcho", "msgspec", "openai"},  # three extras, in one module alone
    "fleet.hosts": set(),
    "fleet.app": {"msgspec"},
    "fleet.hook": set(),
    "fleet.cli": {"anyio", "msgspec", "rich", "typer", "websockets"},
    "fleet.serve": {"anyio", "msgspec", "watchfiles", "websockets"},
}
STARTS = {
    "fleet.cli.main": {"fleet.hook"},
    "fleet.cli.setup": {"fleet.hook"},
    "fleet.cli.live": {"fleet.serve"},
    "fleet.cli.serve": {"fleet.serve"},
}
"""Commands that start another face, and do nothing else with it."""
MODULES = sources()


def layer_of(module: str) -> str:
    """Return the layer that a module belongs to."""
    parts = module.split(".")
    if parts[0] == "crdt":
        return "crdt"
    return ".".join(parts[:2]) if ".".join(parts[:2]) in BELOW else "fleet"


def violations(module: str, others: set[str]) -> list[str]:
    """Return the imports that this module may not make. The package itself has the version and the release date."""
    allowed = {*BELOW[layer_of(module)], *STARTS.get(module, ()), "fleet"}
    return [f"{module} imports {name}" for name in sorted(others) if layer_of(name) not in allowed]


def joined_verbs(module: str, others: set[str]) -> set[str]:
    """Return the verbs that a module brings together though it is no use case."""
    found = {layer_of(name) for name in others} & VERBS
    return found if len(found) > 1 and layer_of(module) != "fleet.app" else set()


def tops(module: Module) -> set[str]:
    """Return the packages that a module imports, wherever in it."""
    found = set()
    for node in ast.walk(module.tree):
        if isinstance(node, ast.Import):
            found |= {alias.name.split(".")[0] for alias in node.names}
        elif isinstance(node, ast.ImportFrom):
            assert node.level == 0, f"{module.name}: relative import"
            found.add((node.module or "").split(".")[0])
    return found


def importing(package: str) -> set[str]:
    """Return the modules that import a package."""
    return {module.name for module in MODULES.values() if package in tops(module)}


def test_imports_point_one_way():
    for name, module in MODULES.items():
        others = imported(module, MODULES)
        assert not violations(name, others)
        assert not joined_verbs(name, others), f"only app/ joins verbs, and {name} does"


def test_each_layer_uses_only_its_libraries():
    for name, module in MODULES.items():
        foreign = tops(module) - {"crdt", "fleet"} - sys.stdlib_module_names
        assert foreign <= THIRD_PARTY.get(layer_of(name), set()), f"{name} imports {foreign}"


def test_no_modules_and_no_folders_import_each_other():
    edges = {module.name: imported(module, MODULES) for module in MODULES.values()}
    assert not cycles(edges)
    folders: dict[str, set[str]] = {}
    for name, others in edges.items():
        folders.setdefault(layer_of(name), set()).update({layer_of(other) for other in others} - {layer_of(name)})
    folders.pop(
        "fleet"
    )  # the package's name and version are known everywhere, and its __main__ starts the command line
    assert not cycles(folders)


def test_only_the_document_knows_its_library():
    assert importing("pycrdt") <= {"crdt.doc"}


def test_only_the_reflectors_know_whom_they_ask():
    assert {*importing("anthropic"), *importing("openai"), *importing("honcho")} == {"fleet.reflect.reflection"}


def test_only_live_sync_knows_sockets():
    elsewhere = {name for name in importing("websockets") if layer_of(name) != "fleet.serve"}
    assert all(name.startswith("fleet.share.live") for name in elsewhere)


def test_nothing_above_the_store_opens_a_database():
    # In memory it is no database but SQLite's stemmer: the words of a text are to be those of the full-text index.
    texts = {module.name: module.text.replace('sqlite3.connect(":memory:")', "") for module in MODULES.values()}
    opening = {name for name, text in texts.items() if "sqlite3.connect(" in text}
    assert {layer_of(name) for name in opening} <= {"fleet.store"}, opening


def test_nothing_in_our_own_processes_is_replaced_or_left_early():
    for module in MODULES.values():
        for word in ("os._exit", "_ncallbacks", "_rust_notify", "_completion_classes", "sys.modules["):
            assert word not in module.text, f"{module.name}: {word}"


def test_the_inner_shape_of_a_line_is_known_in_the_model_alone():
    for name in (name for name in MODULES if layer_of(name) not in ("crdt", "fleet.model")):
        for node in ast.walk(MODULES[name].tree):
            assert not (isinstance(node, ast.Attribute) and node.attr == "w"), f"{name}, line {node.lineno}: .w"
            if isinstance(node, ast.ImportFrom) and node.module == "fleet.model.line":
                assert "Column" not in {alias.name for alias in node.names}, f"{name} imports Column"


def test_crdt_touches_no_file_and_no_clock_of_its_own():
    for module in MODULES.values():
        if layer_of(module.name) == "crdt":
            assert not tops(module) & {"time", "os", "pathlib", "random", "io", "logging"}, module.name


@pytest.mark.parametrize(
    ("module", "other"),
    [
        ("fleet.recall.wording", "fleet.share.git"),
        ("crdt.lww", "fleet.model.line"),
        ("fleet.model.line", "fleet.store.files"),
        ("fleet.store.workspace", "fleet.learn.corrections"),
        ("fleet.learn.corrections", "fleet.app.learning"),
        ("fleet.app.learning", "fleet.cli.output"),
        ("fleet.serve.sidecar", "fleet.cli.output"),
        ("fleet.cli.lessons", "fleet.hook"),
    ],
)
def test_the_rule_would_tell(module, other):
    assert violations(module, {other})


def test_two_verbs_in_one_module_would_be_told():
    both = {"fleet.learn.corrections", "fleet.reflect.promotion"}
    assert joined_verbs("fleet.cli.lessons", both)
    assert not joined_verbs("fleet.app.learning", both)
