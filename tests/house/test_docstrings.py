"""Everything public says in one line what it is. Ruff checks the form; this checks that nothing is left out."""

import ast
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]


def bare(tree: ast.Module, name: str) -> list[str]:
    """Return what is public in a module and has no docstring."""
    found = [] if ast.get_docstring(tree) else [name]
    stack = [(tree, name)]
    while stack:
        node, path = stack.pop()
        for child in ast.iter_child_nodes(node):
            if isinstance(child, ast.ClassDef | ast.FunctionDef | ast.AsyncFunctionDef) and not child.name.startswith(
                "_"
            ):
                where = f"{path}.{child.name}"
                if not ast.get_docstring(child):
                    found.append(where)
                if isinstance(child, ast.ClassDef):
                    stack.append((child, where))
    return found


def test_all_that_is_public_has_a_docstring():
    modules = [*(ROOT / "crdt").rglob("*.py"), *(ROOT / "fleet").rglob("*.py")]
    assert len(modules) > 20
    assert not [name for path in sorted(modules) for name in bare(ast.parse(path.read_text()), path.stem)]


def test_a_missing_docstring_would_be_found():
    assert bare(ast.parse('"""m"""\ndef public():\n    return 1\n'), "m") == ["m.public"]
