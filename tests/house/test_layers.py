"""Who may import whom: cli, serve, hook -> learn | share | recall | reflect -> keep -> crdt (DESIGN, section 1)."""

import ast
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
VERBS = {"fleet.learn", "fleet.share", "fleet.recall", "fleet.reflect"}
BELOW = {
    "crdt": {"crdt"},
    "fleet.keep": {"crdt", "fleet.keep"},
    **{verb: {"crdt", "fleet.keep", verb} for verb in VERBS},
    "fleet.hosts": {"crdt", "fleet.keep", "fleet.hosts"},
    "fleet.cli": {"crdt", "fleet.keep", "fleet.hosts", "fleet.serve", "fleet.cli", *VERBS},
    "fleet.serve": {"crdt", "fleet.keep", "fleet.hosts", "fleet.serve", *VERBS},
    "fleet": {"crdt", "fleet.keep", "fleet.hosts", "fleet.cli", "fleet.serve", *VERBS},
}
THIRD_PARTY = {
    "crdt": {"pycrdt"},  # in crdt.doc alone, see below
    "fleet.keep": {"msgspec", "rapidfuzz"},
    "fleet.learn": {"msgspec"},
    "fleet.share": {"anyio", "msgspec", "websockets"},
    "fleet.recall": set(),
    "fleet.reflect": set(),
    "fleet.cli": {"anyio", "msgspec", "rich", "typer", "websockets"},
    "fleet.serve": {"anyio", "msgspec", "watchfiles", "websockets"},
}
MODULES = sorted([*(ROOT / "crdt").rglob("*.py"), *(ROOT / "fleet").rglob("*.py")])


def layer_of(module: str) -> str:
    """Return the layer that a module belongs to."""
    parts = module.split(".")
    if parts[0] == "crdt":
        return "crdt"
    return ".".join(parts[:2]) if len(parts) > 1 and ".".join(parts[:2]) in BELOW else "fleet"


def imported(path: Path) -> set[str]:
    """Return the modules that a file imports, wherever in it."""
    found = set()
    for node in ast.walk(ast.parse(path.read_text())):
        if isinstance(node, ast.Import):
            found |= {alias.name for alias in node.names}
        elif isinstance(node, ast.ImportFrom):
            assert node.level == 0, f"{path}: relative import"
            found |= {node.module, *(f"{node.module}.{alias.name}" for alias in node.names)}
    return found


def violations(module: str, names: set[str]) -> list[str]:
    """Return the imports that this module may not make."""
    layer = layer_of(module)
    wrong = []
    for name in names:
        if name.split(".")[0] in ("crdt", "fleet"):
            other = layer_of(name)
            if other == "fleet":
                continue  # the package itself: its version and release date
            if other not in BELOW[layer]:
                wrong.append(f"{module} imports {name}")
    return wrong


@pytest.mark.parametrize("path", MODULES, ids=lambda path: str(path.relative_to(ROOT)))
def test_imports_point_one_way(path):
    module = ".".join(path.relative_to(ROOT).with_suffix("").parts).removesuffix(".__init__")
    assert not violations(module, imported(path))


@pytest.mark.parametrize("path", MODULES, ids=lambda path: str(path.relative_to(ROOT)))
def test_each_layer_uses_only_its_libraries(path):
    import sys

    module = ".".join(path.relative_to(ROOT).with_suffix("").parts).removesuffix(".__init__")
    tops = {name.split(".")[0] for name in imported(path)} - {"crdt", "fleet"} - sys.stdlib_module_names
    assert tops <= THIRD_PARTY.get(layer_of(module), set()), f"{module} imports {tops}"


def test_only_the_document_knows_its_library():
    knowing = [path.name for path in MODULES if any(name.split(".")[0] == "pycrdt" for name in imported(path))]
    assert set(knowing) <= {"doc.py"}


def test_only_live_sync_knows_sockets():
    knowing = [path for path in MODULES if any(name.split(".")[0] == "websockets" for name in imported(path))]
    elsewhere = {path.name for path in knowing if path.parent.name != "serve"}
    assert elsewhere <= {"live.py", "liveremote.py"}
    assert all(path.parent.name in ("serve", "share") for path in knowing)


def test_crdt_touches_no_file_and_no_clock_of_its_own():
    for path in sorted((ROOT / "crdt").rglob("*.py")):
        assert not imported(path) & {"time", "os", "pathlib", "random", "io", "logging"}, path


@pytest.mark.parametrize(
    ("module", "names"),
    [
        ("fleet.recall.page", {"fleet.share.git"}),
        ("crdt.lww", {"fleet.keep.line"}),
        ("fleet.keep.store", {"fleet.learn.entries"}),
        ("fleet.learn.entries", {"fleet.cli.desk"}),
        ("fleet.serve.tick", {"fleet.cli.wiring"}),
    ],
)
def test_the_rule_would_tell(module, names):
    assert violations(module, names)
