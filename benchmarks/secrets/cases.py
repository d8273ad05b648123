"""The public cases of three scanners, read from their checkouts as facts about what secrets look like.

Nothing of theirs is run, and nothing is kept here: the sources are parsed. Gitleaks tells its cases in Go, with samples
that are drawn from an expression; they are drawn here likewise, from a seed that is the expression itself.
"""

import ast
import hashlib
import itertools
import random
import re
import textwrap
from collections.abc import Callable, Iterator
from pathlib import Path
from re import _constants, _parser  # type: ignore[attr-defined]
from typing import Any, NamedTuple


class Case(NamedTuple):
    """A text of a scanner's own tests, and whether that scanner says that a secret is in it."""

    source: str
    rule: str
    text: str
    is_secret: bool
    secrets: tuple[str, ...] = ()
    """What is secret in it, where the test says so."""

    @property
    def is_read(self) -> bool:
        """Whether its rule belongs to the half that was read while fleet's rules were written."""
        return hashlib.sha256(f"{self.source}/{self.rule}".encode()).digest()[0] % 2 == 0


# --- Go ---------------------------------------------------------------------------------------------------------------

_GO = re.compile(
    r"""(?P<blank>[ \t\r\n]+|//[^\n]*|/\*.*?\*/)|(?P<raw>`[^`]*`)|(?P<string>"(?:[^"\\\n]|\\.)*")
    |(?P<rune>'(?:[^'\\]|\\.)+')|(?P<name>[A-Za-z_]\w*)|(?P<number>[0-9][\w.]*)|(?P<sign>:=|\.\.\.|[^\w\s])""",
    re.VERBOSE | re.DOTALL,
)
_GO_ESCAPE = re.compile(r"\\(?:x([0-9a-fA-F]{2})|u([0-9a-fA-F]{4})|([abfnrtv\\'\"]))")
_SIMPLE = {"a": "\a", "b": "\b", "f": "\f", "n": "\n", "r": "\r", "t": "\t", "v": "\v"}


class UnreadableError(Exception):
    """An expression that says more than a constant text."""


class Go:
    """A Go source as tokens, and what its constant expressions come to."""

    def __init__(self, text: str, functions: dict[str, Callable[..., Any]], known: dict[str, Any]) -> None:
        self.tokens = [(found.lastgroup, found[0]) for found in _GO.finditer(text) if found.lastgroup != "blank"]
        self.functions = functions
        self.known = known

    def bind(self) -> None:
        """Remember what each name is given, as far as it is constant; the last of several counts."""
        for at in range(len(self.tokens) - 1):
            kind, name = self.tokens[at]
            if kind == "name" and self.tokens[at + 1][1] in {":=", "="}:
                self.put(name, at + 2)

    def put(self, name: str, at: int) -> None:
        """Remember what a name is given here."""
        try:
            self.known[name] = self.expression(at)[0]
        except UnreadableError:
            self.known.pop(name, None)

    def expression(self, at: int) -> tuple[Any, int]:
        """Return the value of the expression that begins here, and where it ends."""
        value, at = self._term(at)
        while self._is(at, "+"):
            more, at = self._term(at + 1)
            if not isinstance(value, str) or not isinstance(more, str):
                raise UnreadableError
            value += more
        return value, at

    def _is(self, at: int, sign: str) -> bool:
        return at < len(self.tokens) and self.tokens[at] == ("sign", sign)

    def _term(self, at: int) -> tuple[Any, int]:
        if at >= len(self.tokens):
            raise UnreadableError
        kind, text = self.tokens[at]
        if kind == "raw":
            return text[1:-1].replace("\r", ""), at + 1
        if kind == "string":
            return _unescaped(text[1:-1]), at + 1
        if kind == "number" and text.isdigit():
            return int(text), at + 1
        if text == "(":
            value, at = self.expression(at + 1)
            return value, self._past(at, ")")
        if text == "[":
            return self._list(at)
        if text == "map":
            while not self._is(at, "{"):
                at += 1
            return self._items(at, keyed=True)
        if kind == "name":
            return self._named(at)
        raise UnreadableError

    def _past(self, at: int, sign: str) -> int:
        if not self._is(at, sign):
            raise UnreadableError
        return at + 1

    def _list(self, at: int) -> tuple[Any, int]:
        words = [text for _, text in self.tokens[at : at + 4]]
        if words[:4] == ["[", "]", "string", "{"]:
            return self._items(at + 3, keyed=False)
        if words[:4] == ["[", "]", "byte", "("]:
            value, end = self.expression(at + 4)
            return value, self._past(end, ")")
        raise UnreadableError

    def _items(self, at: int, *, keyed: bool) -> tuple[list[Any], int]:
        at, values = at + 1, []
        while not self._is(at, "}"):
            value, at = self.expression(at)
            if keyed:
                value, at = self.expression(self._past(at, ":"))
            values.append(value)
            at += self._is(at, ",")
        return values, at + 1

    def _named(self, at: int) -> tuple[Any, int]:
        path = [self.tokens[at][1]]
        at += 1
        while self._is(at, ".") and self.tokens[at + 1][0] == "name":
            path.append(self.tokens[at + 1][1])
            at += 2
        if not self._is(at, "("):
            if path == ["nil"]:
                return [], at
            if len(path) == 1 and path[0] in self.known:
                return self.known[path[0]], at
            raise UnreadableError
        given, at = self._arguments(at)
        function = self.functions.get(".".join(path))
        if function is None:
            raise UnreadableError
        try:
            return function(*given), at
        except (TypeError, ValueError, IndexError) as why:
            raise UnreadableError from why

    def _arguments(self, at: int) -> tuple[list[Any], int]:
        at, given = at + 1, []
        while not self._is(at, ")"):
            value, at = self.expression(at)
            if self._is(at, "..."):
                given += value
                at += 1
            else:
                given.append(value)
            at += self._is(at, ",")
        return given, at + 1


def _unescaped(text: str) -> str:
    def plain(found: re.Match[str]) -> str:
        code = found[1] or found[2]
        return chr(int(code, 16)) if code else _SIMPLE.get(found[3], found[3])

    return _GO_ESCAPE.sub(plain, text)


def _sprintf(form: str, *given: Any) -> str:
    values = iter(given)
    return re.sub(r"%[-+#0-9.]*[svdqx]", lambda _: str(next(values)), form).replace("%%", "%")


# --- samples of an expression -----------------------------------------------------------------------------------------

_ANY = [chr(code) for code in range(33, 127)]


def drawn(expression: str) -> str:
    """Return a text that the expression matches, the same one each time; ``*`` and ``+`` once, as gitleaks draws."""
    chance = random.Random(expression)
    return "".join(_drawn(_parser.parse(python_expression(expression)), chance))


def _drawn(pattern: Any, chance: random.Random) -> Iterator[str]:
    for what, value in pattern:
        if what is _constants.LITERAL:
            yield chr(value)
        elif what is _constants.ANY:
            yield chance.choice(_ANY)
        elif what is _constants.IN:
            yield chance.choice(_letters(value))
        elif what in (_constants.MAX_REPEAT, _constants.MIN_REPEAT):
            low, high, inner = value
            for _ in range(chance.randint(low, max(low, 1) if high is _constants.MAXREPEAT else high)):
                yield from _drawn(inner, chance)
        elif what is _constants.BRANCH:
            yield from _drawn(chance.choice(value[1]), chance)
        elif what is _constants.SUBPATTERN:
            yield from _drawn(value[-1], chance)
        elif what is not _constants.AT:
            raise ValueError(what)


def _letters(members: Any) -> list[str]:
    classes = {
        _constants.CATEGORY_DIGIT: "0123456789",
        _constants.CATEGORY_WORD: "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789_",
        _constants.CATEGORY_SPACE: " ",
    }
    found: list[str] = []
    is_negated = False
    for what, value in members:
        if what is _constants.NEGATE:
            is_negated = True
        elif what is _constants.LITERAL:
            found.append(chr(value))
        elif what is _constants.RANGE:
            found += map(chr, range(value[0], value[1] + 1))
        elif what is _constants.CATEGORY:
            found += classes[value]
    return [letter for letter in _ANY if letter not in found] if is_negated else found


def python_expression(expression: str) -> str:
    """Return an expression of RE2 as one of Python: flags amid it hold to the end of their group."""
    for name, letters in (("alnum", "A-Za-z0-9"), ("alpha", "A-Za-z"), ("digit", "0-9"), ("xdigit", "A-Fa-f0-9")):
        expression = expression.replace(f"[:{name}:]", letters)
    expression = expression.replace(r"\z", r"\Z")
    flags = re.compile(r"\(\?(-?[ims]+)\)")
    while found := flags.search(expression):
        rest = expression[found.end() :]
        end = _group_end(rest)
        expression = f"{expression[: found.start()]}(?{found[1]}:{rest[:end]}){rest[end:]}"
    return expression


def _group_end(text: str) -> int:
    depth, at, in_class = 0, 0, False
    while at < len(text):
        letter = text[at]
        if letter == "\\":
            at += 1
        elif in_class:
            in_class = letter != "]"
        elif letter == "[":
            in_class = True
            at += text.startswith("[^]", at) * 2 + text.startswith("[]", at)
        elif letter == "(":
            depth += 1
        elif letter == ")":
            if not depth:
                return at
            depth -= 1
        at += 1
    return len(text)


# --- gitleaks ---------------------------------------------------------------------------------------------------------


def _samples(folder: Path) -> Callable[[str, str], list[str]]:
    """Return the function that puts a secret into each form in which gitleaks writes one."""
    source = (folder / "utils" / "generate.go").read_text("utf-8").partition("samples := ")[2]
    forms = Go(source.partition("replacer")[0], {}, {}).expression(0)[0]

    def samples(name: str, secret: str) -> list[str]:
        return [form.replace("{i}", name).replace("{I}", name.upper()).replace("{s}", secret) for form in forms]

    return samples


def gitleaks(checkout: Path) -> Iterator[Case]:
    """Yield the cases by which gitleaks validates its rules: the unit is a file of rules."""
    folder = checkout / "cmd" / "generate" / "config"
    sized = {
        "Numeric": "[0-9]",
        "Hex": "[a-f0-9]",
        "AlphaNumeric": "[a-z0-9]",
        "AlphaNumericExtendedShort": "[a-z0-9_-]",
    }
    sized |= {"AlphaNumericExtended": r"[a-z0-9=_\-]", "AlphaNumericExtendedLong": r"[a-z0-9\/=_\+\-]"}
    uuid = "-".join(f"[0-9a-f]{{{size}}}" for size in (8, 4, 4, 4, 12))
    functions: dict[str, Callable[..., Any]] = {
        "utils.GenerateSampleSecrets": _samples(folder),
        "utils.GenerateSampleSecret": lambda name, secret: f'{name}_api_token = "{secret}"',
        "utils.Hex8_4_4_4_12": lambda: uuid,
        "secrets.NewSecret": drawn,
        "fmt.Sprintf": _sprintf,
        "append": lambda first, *more: [*first, *more],
        "strings.ToUpper": str.upper,
        "strings.ToLower": str.lower,
        "strings.Repeat": lambda text, times: text * times,
        "regexp.MustCompile": lambda text: text,
    }
    functions |= {f"utils.{name}": lambda size, of=of: f"{of}{{{size}}}" for name, of in sized.items()}
    for file in sorted((folder / "rules").glob("*.go")):
        go = Go(file.read_text("utf-8"), functions, {})
        yield from _validated(go, file.stem)


def _validated(go: Go, rule: str) -> Iterator[Case]:
    """Yield what is handed to each call of Validate, with the names as they are bound there."""
    for at in range(len(go.tokens) - 1):
        kind, name = go.tokens[at]
        if kind == "name" and go.tokens[at + 1][1] in {":=", "="}:
            go.put(name, at + 2)
        elif name in {"Validate", "ValidateWithPaths"} and go.tokens[at + 1][1] == "(":
            after = at + 2
            while not go._is(after, ","):
                after += 1
            for is_secret in (True, False):
                try:
                    texts, end = go.expression(after + 1)
                except UnreadableError:
                    end = after + 2
                    while not (go._is(end, ",") or go._is(end, ")")):
                        end += 1
                    texts = []
                yield from (Case("gitleaks", rule, text, is_secret) for text in texts if isinstance(text, str))
                after = end
                if not go._is(after, ","):
                    break


# --- trufflehog -------------------------------------------------------------------------------------------------------


def trufflehog(checkout: Path) -> Iterator[Case]:
    """Yield the cases of trufflehog's detectors that need no network: the unit is a folder."""
    folder = checkout / "pkg" / "detectors"
    functions: dict[str, Callable[..., Any]] = {
        "fmt.Sprintf": _sprintf,
        "strings.ToUpper": str.upper,
        "strings.ToLower": str.lower,
        "strings.Repeat": lambda text, times: text * times,
    }
    for file in sorted(folder.rglob("*_test.go")):
        if "integration" in file.name:
            continue
        go = Go(file.read_text("utf-8"), functions, {})
        go.bind()
        rule, text = file.parent.relative_to(folder).as_posix(), None
        for at in range(len(go.tokens) - 2):
            word = go.tokens[at][1]
            if word in {"input", "want"} and go._is(at + 1, ":"):
                try:
                    value = go.expression(at + 2)[0]
                except UnreadableError:
                    value = None
                if word == "input":
                    text = value
                elif isinstance(text, str) and isinstance(value, list):
                    yield Case("trufflehog", rule, text, bool(value), tuple(value))
                    text = None


# --- detect-secrets ---------------------------------------------------------------------------------------------------

_EXPECTED = re.compile(r"assert (?:not |len\(\w+\) == 0|\w+ == \[\])")


def detect_secrets(checkout: Path) -> Iterator[Case]:
    """Yield the cases of detect-secrets' plugins, from the decorators of their tests: the unit is a file."""
    for file in sorted((checkout / "tests" / "plugins").glob("*_test.py")):
        source = file.read_text("utf-8")
        tree = ast.parse(source)
        known: dict[str, Any] = {}
        for node in tree.body:
            if isinstance(node, ast.Assign) and isinstance(node.targets[0], ast.Name):
                try:
                    known[node.targets[0].id] = _constant(node.value, known)
                except UnreadableError:
                    continue
        told = {name: value for name, value in known.items() if name.endswith("_TEST_CASES")}
        for text, expected in itertools.chain.from_iterable(told.values()):
            yield Case(
                "detect-secrets", file.stem, text, bool(expected), (expected,) if isinstance(expected, str) else ()
            )
        for owner, test in _tests(tree):
            for text, is_secret in _parametrized(owner, test, known, ast.get_source_segment(source, test) or ""):
                yield Case("detect-secrets", file.stem, text, is_secret)


def _tests(tree: ast.Module) -> Iterator[tuple[list[ast.expr], ast.FunctionDef]]:
    for node in tree.body:
        if isinstance(node, ast.FunctionDef):
            yield [], node
        elif isinstance(node, ast.ClassDef):
            yield from ((node.decorator_list, inner) for inner in node.body if isinstance(inner, ast.FunctionDef))


def _parametrized(
    outer: list[ast.expr], test: ast.FunctionDef, known: dict[str, Any], source: str
) -> Iterator[tuple[str, bool]]:
    tables = []
    for decorator in (*outer, *test.decorator_list):
        if isinstance(decorator, ast.Call) and ast.unparse(decorator.func) == "pytest.mark.parametrize":
            try:
                names, rows = (_constant(given, known) for given in decorator.args[:2])
            except (UnreadableError, ValueError):
                return
            listed = [name.strip() for name in names.split(",")] if isinstance(names, str) else list(names)
            tables.append([dict(zip(listed, row if len(listed) > 1 else [row], strict=False)) for row in rows])
    calls = ("analyze_line", "analyze_string", "scan_line", "scan_file")
    if not tables or not any(call in source for call in calls):
        return
    for chosen in itertools.product(*tables):
        row = {name: value for table in chosen for name, value in table.items()}
        texts = [
            name for name in row if name in ("payload", "line", "content", "format", "file_content", "text", "token")
        ]
        texts = texts or [name for name in row if isinstance(row[name], str) and name not in ("secret", "non_secret")]
        if not texts or not isinstance(row[texts[0]], str):
            continue
        text = row[texts[0]]
        if texts[0] == "format":
            text = text.format(**{name: value for name, value in row.items() if name != "format"})
        verdicts = [value for name, value in row.items() if re.search("flag|caught|expected|num_|is_|should", name)]
        yield text, bool(verdicts[0]) if verdicts else not _EXPECTED.search(source)


def _constant(node: ast.expr, known: dict[str, Any]) -> Any:
    """Return what an expression of texts comes to; the name of anything else."""
    match node:
        case ast.Constant():
            return node.value
        case ast.Tuple() | ast.List():
            return [_constant(each, known) for each in node.elts]
        case ast.Name():
            return known.get(node.id, node.id)
        case ast.Dict() | ast.UnaryOp():
            return ast.unparse(node)
        case ast.BinOp(op=ast.Add()):
            return _constant(node.left, known) + _constant(node.right, known)
        case ast.BinOp(op=ast.Mult()):
            return _constant(node.left, known) * _constant(node.right, known)
        case ast.JoinedStr():
            parts = (each.value if isinstance(each, ast.FormattedValue) else each for each in node.values)
            return "".join(str(_constant(each, known)) for each in parts)
        case ast.Subscript():
            return _constant(node.value, known)
        case ast.Call(func=ast.Attribute(attr="format") as called):
            given = [_constant(each, known) for each in node.args]
            return _constant(called.value, known).format(
                *given, **{each.arg: _constant(each.value, known) for each in node.keywords if each.arg}
            )
        case ast.Call(func=ast.Attribute(attr="dedent")):
            return textwrap.dedent(_constant(node.args[0], known))
        case ast.Call(func=ast.Attribute(attr=name)) if name in ("encode", "decode", "strip"):
            return _constant(node.func.value, known)  # type: ignore[attr-defined]
    raise UnreadableError(ast.unparse(node))
