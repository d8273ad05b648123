"""The counts of the house: how many ideas a newcomer meets, each beside its limit. ``make house`` prints them.

Plain ``ast`` over the sources, and one real trace of ``fleet correct``. They count ideas, not spelling: a name that is
used outside its module is public however it is written, and an import by ``importlib``, by ``__getattr__`` or from a
string is a late import.
"""

import ast
import json
import os
import re
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
PACKAGES = ("crdt", "fleet")

MODULES_MAX = 150
LINES_MAX = 30_000
PUBLIC_NAMES_MAX = 640
LATE_IMPORTS_MAX = 80
CYCLES_MAX = 0
STAT_MODULES_MAX = 2
ENTERED_MAX = 20
VAGUE_NAMES_MAX = 40

SHOWN_MAX = 8
WIDTH = 42

HELD = {
    "lines": 47_706,
    "modules entered by `fleet correct`": 31,
}
"""Where the aim is not reached: what it came to, above which the check fails. A ratchet: from here they fall. The lines
count what was built on the house that the aim was measured for, too: the border, reflection, sleep, import, undo."""

STAT = re.compile(r"\b(?:st_[mc]time(?:_ns)?|st_ino|get[mc]time)\b")
"""A file's times of change and its inode, by ``os.stat`` or ``os.path``."""
IMPORTERS = frozenset({"import_module", "__import__", "resolve_name", "exec", "eval", "run_module", "run_path"})
VAGUE = frozenset({"say", "saying", "says", "said", "tell", "telling", "tells", "told"})
"""Words that once named parameters, messages, tables and rows alike: a name should say which it is."""
FUNCTIONS = (ast.FunctionDef, ast.AsyncFunctionDef)
CORRECT = ("correct", "--wrong", "w", "--right", "r", "--pattern", "Quote every variable in a shell script", "--json")
LATER = ("correct", "--wrong", "w", "--right", "r", "--pattern", "Pin the version of every action", "--json")


@dataclass
class Module:
    """One source file.

    Attributes:
        name: dotted, as it is imported.
        text: the source.
    """

    name: str
    text: str

    @cached_property
    def tree(self) -> ast.Module:
        """The source, parsed: not before it is asked for, since each worker of the tests collects all of them."""
        return ast.parse(self.text)


def sources(root: Path = ROOT) -> dict[str, Module]:
    """Return every module of the packages by its name."""
    found = {}
    for path in sorted(path for package in PACKAGES for path in (root / package).rglob("*.py")):
        name = ".".join(path.relative_to(root).with_suffix("").parts).removesuffix(".__init__")
        found[name] = Module(name, path.read_text("utf-8"))
    return found


def imported(module: Module, known: dict[str, Module]) -> set[str]:
    """Return the modules of ours that a module imports, wherever in it, for type checking too."""
    found = set()
    for node in ast.walk(module.tree):
        if isinstance(node, ast.Import):
            found |= {alias.name for alias in node.names}
        elif isinstance(node, ast.ImportFrom) and node.module:
            whole = {f"{node.module}.{alias.name}" for alias in node.names}
            found |= whole & known.keys()
            if whole - known.keys():
                found.add(node.module)
    return found & known.keys() - {module.name}


def late_imports(module: Module) -> list[int]:
    """Return the lines of imports that run inside a function, or that are no import statement."""
    inside = {
        node
        for function in ast.walk(module.tree)
        if isinstance(function, (*FUNCTIONS, ast.Lambda))
        for node in ast.walk(function)
        if isinstance(node, ast.Import | ast.ImportFrom)
    }
    importers = IMPORTERS | {
        alias.asname
        for node in ast.walk(module.tree)
        if isinstance(node, ast.ImportFrom)
        for alias in node.names
        if alias.asname and alias.name in IMPORTERS
    }
    odd = {
        node
        for node in ast.walk(module.tree)
        if (isinstance(node, ast.Call) and _called(node.func) in importers)
        or (isinstance(node, FUNCTIONS) and node.name == "__getattr__")
    }
    return sorted(node.lineno for node in inside | odd)


def _called(function: ast.expr) -> str:
    if isinstance(function, ast.Attribute):
        # A pattern has a method of that name, and so has a model.
        return function.attr if function.attr not in ("exec", "eval") else ""
    return function.id if isinstance(function, ast.Name) else ""


def names(module: Module) -> set[str]:
    """Return the functions and classes at a module's top level."""
    return {node.name for node in module.tree.body if isinstance(node, (*FUNCTIONS, ast.ClassDef))}


def public_names(known: dict[str, Module]) -> set[str]:
    """Return all names that others may use, or do use though an underscore asks them not to."""
    found = {f"{module.name}.{name}" for module in known.values() for name in names(module) if name[0] != "_"}
    return found | {name for module in known.values() for name in _borrowed(module, known)}


def _borrowed(module: Module, known: dict[str, Module]) -> Iterator[str]:
    """Yield what a module takes of others' private names, by an import or as an attribute."""
    aliases = {}
    for node in ast.walk(module.tree):
        if isinstance(node, ast.ImportFrom) and node.module:
            for alias in node.names:
                if (whole := f"{node.module}.{alias.name}") in known:
                    aliases[alias.asname or alias.name] = whole
                elif node.module in known and _is_private(alias.name, known[node.module]):
                    yield whole
        elif isinstance(node, ast.Import):
            aliases |= {alias.asname: alias.name for alias in node.names if alias.asname and alias.name in known}
    for node in ast.walk(module.tree):
        if isinstance(node, ast.Attribute):
            of = ast.unparse(node.value)
            other = known.get(aliases.get(of, of))
            if other is not None and other is not module and _is_private(node.attr, other):
                yield f"{other.name}.{node.attr}"


def vague_names(module: Module) -> list[str]:
    """Return the identifiers of a module, one for each use, that have a word of ``VAGUE`` in them."""
    found = []
    for node in ast.walk(module.tree):
        if isinstance(node, (*FUNCTIONS, ast.ClassDef)):
            found.append(node.name)
        elif isinstance(node, ast.Name):
            found.append(node.id)
        elif isinstance(node, ast.Attribute):
            found.append(node.attr)
        elif isinstance(node, ast.arg | ast.keyword):
            found.append(node.arg or "")
    return [name for name in found if VAGUE.intersection(name.lower().split("_"))]


def _is_private(name: str, module: Module) -> bool:
    return name.startswith("_") and name in names(module)


def cycles(edges: dict[str, set[str]]) -> list[list[str]]:
    """Return the sets of modules that import each other, directly or round several corners (Tarjan 1972)."""
    index: dict[str, int] = {}
    low: dict[str, int] = {}
    stack: list[str] = []
    found: list[list[str]] = []

    def visit(node: str) -> None:
        index[node] = low[node] = len(index)
        stack.append(node)
        for other in sorted(edges.get(node, ())):
            if other not in index:
                visit(other)
                low[node] = min(low[node], low[other])
            elif other in stack:
                low[node] = min(low[node], index[other])
        if low[node] == index[node]:
            at = stack.index(node)
            if len(stack) - at > 1:
                found.append(sorted(stack[at:]))
            del stack[at:]

    for node in sorted(edges):
        if node not in index:
            visit(node)
    return found


def entered(words: tuple[str, ...], folder: Path) -> dict[str, set[str]]:
    """Return the modules in which a function ran while a command did, and which, traced in a process of its own."""
    noted = folder.with_suffix(".trace")
    kept = {name: value for name, value in os.environ.items() if not name.startswith("FLEET_")}
    done = subprocess.run(
        [sys.executable, __file__, "--trace", str(noted), *words],
        cwd=folder,
        env=kept | {"PYTHONPATH": str(ROOT), "HOME": str(folder)},
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
        check=False,
    )
    if done.returncode:
        raise SystemExit(f"fleet {words[0]} failed, and was not counted: {done.stdout}{done.stderr}")
    return {name: set(functions) for name, functions in json.loads(noted.read_text()).items()}


def entered_by_correct() -> dict[str, set[str]]:
    """Return the modules that ``fleet correct`` enters, with the functions: a first lesson, then another one."""
    with tempfile.TemporaryDirectory() as made:
        folder = Path(made) / "w"
        folder.mkdir()
        entered(("init", "--agent", "velma"), folder)
        first, later = entered(CORRECT, folder), entered(LATER, folder)
        return {name: first.get(name, set()) | later.get(name, set()) for name in first | later}


def trace(noted: Path, words: list[str]) -> None:
    """Run a command and note in a file which modules of ours it entered."""
    import threading  # only a traced process pays for it

    ran: dict[str, set[str]] = {}

    def watch(frame: object, event: str, _: object) -> None:
        code = getattr(frame, "f_code", None)
        # A function has locals of its own and fast ones; a module's and a class's body have not.
        if event == "call" and code is not None and code.co_flags & 0x3 == 0x3:
            ran.setdefault(code.co_filename, set()).add(code.co_qualname)

    sys.path[0] = str(ROOT)
    sys.argv = ["fleet", *words]
    threading.setprofile(watch)
    sys.setprofile(watch)
    try:
        from fleet.cli.main import main

        main()
    finally:
        sys.setprofile(None)
        found = {}
        for file, functions in ran.items():
            if any(file.startswith(f"{ROOT}{os.sep}{package}{os.sep}") for package in PACKAGES):
                parts = Path(file).relative_to(ROOT).with_suffix("").parts
                found[".".join(parts).removesuffix(".__init__")] = sorted(functions)
        noted.write_text(json.dumps(found))


@dataclass(frozen=True)
class Count:
    """One figure with its limit, and what it counted where that helps to find it."""

    what: str
    found: int
    limit: int
    which: tuple[str, ...] = ()

    @property
    def is_within(self) -> bool:
        """Whether the aim is reached."""
        return self.found <= self.limit

    @property
    def is_held(self) -> bool:
        """Whether it is no more than it came to before."""
        return self.found <= max(self.limit, HELD.get(self.what, 0))


def counts(known: dict[str, Module]) -> list[Count]:
    """Return every count that the sources alone tell."""
    late = {module.name: len(late_imports(module)) for module in known.values()}
    looking = sorted(module.name for module in known.values() if STAT.search(module.text))
    circles = cycles({module.name: imported(module, known) for module in known.values()})
    vague = [name for module in known.values() for name in vague_names(module)]
    by_late = sorted((name for name in late if late[name]), key=lambda name: -late[name])
    return [
        Count("modules", len(known), MODULES_MAX),
        Count("lines", sum(len(module.text.splitlines()) for module in known.values()), LINES_MAX),
        Count("public names", len(public_names(known)), PUBLIC_NAMES_MAX),
        Count(
            "imports inside functions",
            sum(late.values()),
            LATE_IMPORTS_MAX,
            tuple(f"{late[name]} in {name}" for name in by_late),
        ),
        Count("import cycles", len(circles), CYCLES_MAX, tuple(", ".join(circle) for circle in circles)),
        Count("uses of a name that says nothing", len(vague), VAGUE_NAMES_MAX, tuple(sorted(set(vague)))),
        Count("modules that look at mtime, ctime or inode", len(looking), STAT_MODULES_MAX, tuple(looking)),
    ]


def main() -> int:
    """Print every count beside its aim; return 1 if one is above what it came to before."""
    found = counts(sources())
    _show(found)
    ran = entered_by_correct()
    which = tuple(f"{name}: {', '.join(sorted(ran[name])[:SHOWN_MAX])}" for name in sorted(ran))
    found.append(Count("modules entered by `fleet correct`", len(ran), ENTERED_MAX, which))
    _show(found[-1:])
    return 0 if all(count.is_held for count in found) else 1


def _show(found: list[Count]) -> None:
    for count in found:
        above = "" if count.is_within else "  above its aim" if count.is_held else "  ABOVE WHAT IT WAS"
        print(f"{count.what:<{WIDTH}}  {count.found:>7,}  at most {count.limit:>6,}{above}", flush=True)
        if not count.is_held or "--all" in sys.argv:
            for which in count.which:
                print(f"    {which}")


if __name__ == "__main__":
    if sys.argv[1:2] == ["--trace"]:
        trace(Path(sys.argv[2]), sys.argv[3:])
    else:
        sys.exit(main())
