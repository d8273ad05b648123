"""Parser of shell commands and of their output: family, builds, read-only commands, fingerprints of errors.

No shell is implemented here. A command is split at ``&&``, ``||``, ``;``, ``|`` and line ends outside quotes, and each
piece loses the wrappers of its program: assignments, ``sudo``, ``timeout 60``, ``npx``, ``uv run``, a path. Any text is
accepted; the family of an unknown command is its first word.

Two runs of one failure differ in times, addresses, temporary paths, counts and line numbers; the fingerprint has
placeholders for these. Names stay: ``No module named 'a'`` and ``... 'b'`` are two errors. Every expression is linear.
"""

import re
import shlex
from collections.abc import Iterable, Iterator
from contextlib import suppress
from functools import cached_property
from itertools import dropwhile, islice, takewhile

from fleet.text import sections

_KNOWN = sections("shell.txt")
_ERRORS = sections("errors.txt")

BUILDS = tuple(_KNOWN["builds"])
"""Commands that are builds and tests, unless ``fleet.toml`` says otherwise.

A command is one of them when its words begin with these, after wrappers such as ``sudo`` or ``npx`` are removed:
``npm run build`` is ``npm build``; ``python -m pytest`` is ``pytest``; ``./gradlew test`` is ``gradle test``.
"""

_COMMAND_CHARS_MAX = 8 * 1024
_PIECES_MAX = 64
_SHELL_DEPTH_MAX = 3
_WORD_CHARS_MAX = 60

_MARKS = ";|&<>\n"
_GROUPED = "(){}!"
_RUN_WORDS = frozenset({"run", "run-script"})
_GROUPS = (["run"], ["compose"], ["mod"], ["pr"])  # words after which the subcommand proper follows
_NOWHERE = ("/dev/null", "&1", "&2", "/dev/stderr", "/dev/stdout")


_Wrapper = tuple[int, list[str], list[str]]
"""Wrapper of a program: the number of its own words, its options with a value, its required words."""


def _wrappers(rows: Iterable[str]) -> dict[str, list[_Wrapper]]:
    wrappers: dict[str, list[_Wrapper]] = {}
    for row in rows:
        head, _, valued = row.partition(":")
        name, *words = head.split()
        needed = [word for word in words if word != "+"]
        wrappers.setdefault(name, []).append((words.count("+"), valued.split(), needed))
    return wrappers


def _words(section: str) -> frozenset[str]:
    return frozenset(" ".join(_KNOWN[section]).split())


_WRAPPERS = _wrappers(_KNOWN["wrappers"])
_SAME = dict(row.split() for row in _KNOWN["same"])
_SHELLS, _PYTHONS, _KEYWORDS, _MANY = _words("shells"), _words("pythons"), _words("keywords"), _words("many")
_SCRIPTS, _RUNNERS, _TAKE_VALUE, _SETUP = _words("scripts"), _words("runners"), _words("take-value"), _words("setup")
_FINDERS, _ON_EACH, _LEADING, _PRINTERS = (_words(name) for name in ("finders", "on-each", "leading", "printers"))
_LOOK, _GIT_LOOKS, _CHANGING_WORDS = _words("look"), _words("git-looks"), _words("changing")
_GIT_LISTS = [row.split() for row in _KNOWN["git-lists"]]

_READ_COMMANDS = _SHELLS | {"ssh"}
_READING = _SCRIPTS | {"source", "."}
"""Programs that run a script."""
_DOCUMENT = r"(?<!<)<<(-?)[ \t]*+['\"\\]?([\w.+-]++)"

_UNREAD = r"(?s)(\\\n|(?<![^\s;&|()])#[^\n]*+)|'[^']*+'|\"(?:[^\"\\]|\\.)*+\"|\\."
_PLAIN = r"[A-Za-z0-9_./:,@%+=-]++|'[^'\x00-\x1f\x7f]*+'|\"(?:[^\"\\$`\x00-\x1f\x7f]|\\[\"\\$`])*+\""
_SUBCOMMAND = r"(?a)[A-Za-z][\w:-]*"
_SIMPLE = rf" *(?:(?!=)(?:{_PLAIN})++(?: ++(?:\\\n *+)*+|$))++"


class Command:
    """Parsed command line.

    Attributes:
        line: the command line without comments, continuations, and bodies of here-documents that no shell reads.
        waits: whether it sleeps, as a poll does.
    """

    def __init__(self, line: str) -> None:
        self._typed = _without_documents(line)
        self.line = _without_comments(self._typed)
        self._commands = list(_programs(self.line))
        self._programs = [words for words, is_wrapper in self._commands if not is_wrapper]
        self.waits = any(words[0] in ("sleep", "wait") for words in self._programs)

    @cached_property
    def _words(self) -> list[str]:
        by_default = [words for words in self._programs if _is_any(words, _BUILDS)]
        chosen = by_default or [words for words in self._programs if words[0] not in _SETUP] or self._programs or [[]]
        return chosen[0]

    @property
    def family(self) -> str:
        """``pytest`` for ``cd x && python -m pytest -q``, ``npm test`` for ``npm t``.

        Of several commands, it is that of the first that is a build or a test by default; else of the first that is
        more than preparation.
        """
        return _named(self._words) if self._words else ""

    @property
    def plain_words(self) -> list[str]:
        """The words of a single simple command that is the same in every shell; [] for any other.

        It has no pipe, redirection, expansion, pattern or comment, and no line end except after a backslash; unknown
        syntax is not plain.
        """
        return shlex.split(self._typed.replace("\\\n", " ")) if re.fullmatch(_SIMPLE, self._typed) else []

    @property
    def lines(self) -> list[str]:
        """Each simple command in it, and what each wrapper runs, without path and options before a subcommand.

        Of ``python tools/x.py`` also ``x.py``.
        """
        scripts = filter(None, (_script_in(words) for words, _ in self._commands))
        return [" ".join(_from_subcommand(words)) for words, _ in self._commands] + [*map(" ".join, scripts)]

    @property
    def trigger(self) -> str:
        """Trigger of a lesson about it, ``Bash:git push *``; "" for a command that is no build and has no subcommand.

        Other commands may be about anything, or be private.
        """
        program, words = "".join(self._words[:1]), self._words[1 : 3 if self._words[1:2] in _GROUPS else 2]
        if program not in _MANY:
            return f"Bash:{program} *" if self.is_build() and self.family == program else ""
        subcommand = " ".join(word for word in words if re.fullmatch(_SUBCOMMAND, word))
        return f"Bash:{program} {subcommand} *" if subcommand and not self.is_read_only else ""

    @property
    def is_read_only(self) -> bool:
        """True for a command that only reads, prints or checks: no other command depends on what it changes."""
        return bool(self._programs) and not _writes(self.line) and all(map(_is_read_only, self._programs))

    def is_build(self, builds: Iterable[str] | None = None) -> bool:
        """Return whether any part of it builds or tests, by ``[attempts] builds`` or by default."""
        known = _BUILDS if builds is None else _known(builds)
        return any(_is_any(words, known) for words in self._programs)

    def outcome(self, output: str, *, is_error: bool, builds: Iterable[str] | None = None) -> bool | None:
        """Return whether it succeeded; None if that is unknown.

        The exit code decides, unless it is masked, as in ``make test | tail``: then the output of a build or a test
        decides, and any other command with an error has failed. It is unknown if a command only asked too early, as
        ``gh pr checks`` about a pending build.

        ``is_error``: the whole line ended with another code than 0.
        """
        if is_error and not self.is_build(builds) and _is_early(output[-_TAIL_CHARS:].lower()):
            return None
        if not _is_masked(self.line[:_COMMAND_CHARS_MAX], 0):
            return not is_error
        if self.is_build(builds):
            return _outcome_in(output)
        return False if is_error else None


def _is_masked(command: str, depth: int) -> bool:
    """Return whether the exit code of a command line is not that of its main command.

    The code is unknown in a pipe, before another command that runs in any case, and with ``||``, ``!`` or ``&``.
    """
    pieces = list(islice(_pieces(command), _PIECES_MAX))
    words = [_unwrapped(piece) for piece, _ in pieces]
    actual = [index for index, piece in enumerate(words) if piece and piece[0] not in _SETUP]
    main = [index for index in actual if _is_any(words[index], _BUILDS)] or actual[:1]
    operators = [operator.strip("\n") or (operator and ";") for _, operator in pieces]
    return any(_is_masked_at(pieces[index][0][0], index, words, operators, depth) for index in main)


def _is_masked_at(first: str, index: int, words: list[list[str]], operators: list[str], depth: int) -> bool:
    """Return whether the exit code of a piece is lost in those around it."""
    inner = _inner(words[index]) if words[index][0] in _SHELLS and depth < _SHELL_DEPTH_MAX else ""
    if first in ("!", "if", "while", "until") or (inner and _is_masked(inner, depth + 1)):
        return True
    options = [piece for piece in words[:index] if piece[:1] == ["set"]]
    stops = any(re.fullmatch(r"-.*e.*|errexit", word) for piece in options for word in piece[1:])
    in_pipe = not any("pipefail" in piece for piece in options)
    for operator, after in zip(operators[index:], range(index + 1, len(words) + 1), strict=False):
        behind = [piece for piece in words[after:] if piece]
        if operator == "&" or (in_pipe and operator in ("|", "|&")):
            return True
        in_pipe = in_pipe and operator in ("|", "|&")
        if not behind or behind[0] == ["exit", "$?"]:
            return False
        if operator == "||" or (operator.startswith(";") and not stops):
            return behind[-1][0] != "exit" or behind[-1][1:] == ["0"]
    return False


def _programs(command: str, depth: int = 0) -> Iterator[tuple[list[str], bool]]:
    """Yield the words of each simple command in a command line, the program first, and whether it wraps the next."""
    before = ""
    for piece, operator in islice(_pieces(command[:_COMMAND_CHARS_MAX]), _PIECES_MAX):
        stages = _stages(piece)
        if not stages:
            continue
        yield from ((stage, True) for stage in stages[:-1])
        words = stages[-1]
        inner = (_inner(words) or before) if words[0] in _SHELLS else " ".join(words) if " " in words[0] else ""
        before = " ".join(words[1:]) if words[0] in _PRINTERS and operator == "|" else ""
        if inner and depth < _SHELL_DEPTH_MAX:
            yield from _programs(inner, depth + 1)
        else:
            yield words, False
            if words[0] in _FINDERS:
                yield from _run_by_find(words, depth)


def _run_by_find(words: list[str], depth: int) -> Iterator[tuple[list[str], bool]]:
    """Yield the command that ``find`` runs on each file; ``-delete`` is ``rm``."""
    if "-delete" in words:
        yield ["rm"], False
    index = next((index for index, word in enumerate(words) if word in _ON_EACH), len(words))
    if words[index + 1 :] and depth < _SHELL_DEPTH_MAX:
        yield from _programs(shlex.join(words[index + 1 :]), depth + 1)


def _pieces(command: str) -> Iterator[tuple[list[str], str]]:
    """Yield the words of each piece of a command line, and the operator after it.

    Redirections are no words.
    """
    reader = shlex.shlex(_without_comments(command), posix=True, punctuation_chars=_MARKS)
    reader.whitespace, reader.commenters, reader.whitespace_split = " \t\r", "", True
    words: list[str] = []
    is_cut_off = False
    while not is_cut_off:
        try:
            token = reader.get_token()
        except ValueError:  # a quote that is never closed: the rest is one word
            token, is_cut_off = reader.token, True
        if token is None:
            break
        if not token or token.strip(_MARKS):
            words.append(token)
        elif "<" in token or ">" in token:
            with suppress(ValueError):  # its target
                reader.get_token()
        else:
            yield words, token
            words = []
    yield words, ""


def _without_comments(command: str) -> str:
    """Return a command line without comments, in which a quote would begin a word, and without escaped line ends."""
    return re.sub(_UNREAD, lambda match: "" if match[1] else match[0], command)


def _without_documents(command: str) -> str:
    """Return a command line without the bodies of its here-documents; bodies that a shell reads stay, as commands.

    A document in quotes counts, too, as in ``-m "$(cat <<'EOF'``; one without an end mark does not. An indented mark
    ends it only if no mark follows that a shell accepts, since it may belong to a script within the document.
    """
    rows = command.split("\n")
    last = {row.strip(): number for number, row in enumerate(rows)}
    taken = {dash: {_mark_in(row, dash): number for number, row in enumerate(rows)} for dash in ("", "-")}
    kept, marks, is_run = list[str](), list[tuple[str, str]](), False
    for number, row in enumerate(rows):
        dash, mark = marks[0] if marks else ("", "")
        if marks and row.strip() == mark and (_mark_in(row, dash) == mark or taken[dash].get(mark, 0) < number):
            marks.pop(0)
        elif not marks or is_run:
            kept.append(row)
        if not marks and "<<" in row:
            marks = [each for each in re.findall(_DOCUMENT, row) if last.get(each[1], 0) > number]
            is_run = any(words[0] in _READ_COMMANDS for words, is_wrapper in _programs(row) if not is_wrapper)
    return "\n".join(kept)


def _mark_in(row: str, dash: str) -> str:
    """Return a row as a shell compares it with the mark of a here-document: for ``<<-`` without leading tabs."""
    return row.rstrip().lstrip("\t" * len(dash))


def _unwrapped(words: list[str]) -> list[str]:
    """Return the words without wrappers, and without the path of the program."""
    return next(reversed(_stages(words)), [])


def _stages(words: list[str]) -> list[list[str]]:
    """Return the words without the path of the program, then without one wrapper after the other."""
    stages: list[list[str]] = []
    while words:
        first = words[0].strip(_GROUPED)
        if not first or first in _KEYWORDS or _is_assignment(first):
            words = words[1:]
            continue
        program = first.rpartition("/")[2] or first
        program = _SAME.get(program, program)
        words = [program, *words[1:]]
        stages.append(words)
        if program.rstrip("0123456789.") in _PYTHONS or program in _PYTHONS:
            module = _module(words)
            if not module:
                return [*stages[:-1], ["python", *words[1:]]]
            words = module
        elif inner := next(filter(None, (_inside(words, each) for each in _WRAPPERS.get(program, ()))), None):
            words = inner
            if " " in words[0]:  # a command line as one word, as ssh takes it
                return [*stages, words]
        else:
            break
    return stages


def _is_assignment(word: str) -> bool:
    name, equals, _ = word.partition("=")
    return bool(equals) and name.isidentifier()


def _module(words: list[str]) -> list[str]:
    """Return the module and words of ``python -m``; [] for any other run."""
    rest = [*dropwhile(lambda word: word.startswith("-") and word not in ("-m", "-c"), words[1:])]
    return rest[1:] if rest[:1] == ["-m"] else []


def _inside(words: list[str], wrapper: _Wrapper) -> list[str] | None:
    """Return the words of the command that a wrapper runs; None when it runs none."""
    more, valued, required = wrapper
    missing, index = list(required), 1
    while index < len(words):
        word = words[index]
        if word.startswith("-"):
            index += 2 if word in valued else 1
        elif missing and word == missing[0]:
            missing.pop(0)
            index += 1
        elif not missing and (more or _is_assignment(word)):
            more -= not _is_assignment(word)
            index += 1
        else:
            break
    return None if missing or index >= len(words) else words[index:]


def _script_in(words: list[str]) -> list[str]:
    """Return the script that an interpreter or ``source`` runs, without its path, and its arguments; [] for none."""
    script, *arguments = [*dropwhile(lambda word: word.startswith("-"), words[1:]), ""]
    name = script.rpartition("/")[2]
    is_script = words[0] in _READING and "." in name and " " not in name
    return [name, *filter(None, arguments)] if is_script else []


def _inner(words: list[str]) -> str:
    """Return the command of ``bash -c`` or ``su USER -c``, or the script as a command; "" for neither."""
    for index, word in enumerate(words[1:], 1):
        if re.fullmatch(r"-\w*c\w*", word):
            return " ".join(words[index + 1 : index + 2])
        if not (word.startswith("-") or words[0] == "su" or re.fullmatch(r"-\w*[oO]", words[index - 1])):
            return "" if any(char in word for char in " \t\n;|&<>'\"\\") else word  # -o has a value, su a user
    return ""


def _named(words: list[str]) -> str:
    program, second = words[0], _plain_words(words)[1:2]
    if program in _SCRIPTS and "-c" not in words and "-e" not in words:
        second = [word.rpartition("/")[2] for word in second]
    else:
        second = [word for word in second if program in _MANY and "=" not in word]
    return " ".join(word[:_WORD_CHARS_MAX] for word in (program, *second))


def _from_subcommand(words: list[str]) -> list[str]:
    """Return the words without the options between a program and its subcommand: ``git push`` for ``git -C x push``."""
    index = 1
    while words[0] in _MANY and index < len(words) - 1 and words[index].startswith("-"):
        index += 2 if words[index] in _LEADING | _TAKE_VALUE else 1
    return [words[0], *words[index:]]


def _plain_words(words: list[str]) -> list[str]:
    """Return the program and the words that are no options, without the ``run`` before a script."""
    plain, index = [words[0]], 1
    while index < len(words):
        word = words[index]
        index += 2 if word in _TAKE_VALUE else 1
        if word.startswith(("-", "+")) or word.isdigit():
            continue
        if len(plain) == 1 and words[0] in _RUNNERS:
            if word in _RUN_WORDS:
                continue
            word = _SAME.get(word, word)
        plain.append(word)
    return plain


def _known(builds: Iterable[str]) -> list[list[str]]:
    """Return the words of each command that is a build, without wrappers."""
    return [_unwrapped(words) or words for build in builds if (words := build.split())]


_BUILDS = _known(BUILDS)


def _is_any(words: list[str], builds: list[list[str]]) -> bool:
    plain = _plain_words(words)
    return any(_is_like(words, plain, known) for known in builds if known[0] == words[0])


def _is_like(words: list[str], plain: list[str], known: list[str]) -> bool:
    options = [word for word in known[1:] if word.startswith("-")]
    rest = _plain_words([word for word in known if not word.startswith("-")])
    is_long = len(plain) >= len(rest) and all(option in words for option in options)
    return is_long and all(f"{word}:".startswith(f"{known}:") for word, known in zip(plain, rest, strict=False))


def _is_read_only(words: list[str]) -> bool:
    if any(word in _CHANGING_WORDS or word.startswith("-i.") for word in words):
        return False
    if words[0] != "git":
        return words[0] in _LOOK
    name, *rest = _from_subcommand(words)[1:] or [""]
    rows = [row for known, *row in _GIT_LISTS if known == name]
    options = {word for row in rows if "*" not in row for word in row}
    first = rest[: len([*takewhile(options.__contains__, rest)]) + 1]
    lists = bool(rows) and ({*rest} <= options or any(row[0] in first for row in rows if "*" in row))
    return name in _GIT_LOOKS or lists


def _writes(command: str) -> bool:
    """Return whether a command may write a file, by redirection (in quotes, too) or through another program."""
    if len(command) > _COMMAND_CHARS_MAX or any(part in command for part in ("tee ", "xargs", "$(", "`")):
        return True
    targets = (target.lstrip("| \t") for target in re.split(">+", command)[1:])
    return any(not target.startswith(_NOWHERE) for target in targets)


# Errors.

_TAIL_CHARS = 16 * 1024
_LINE_CHARS_MAX = 300
_LINES_READ = 200
_LINES_KEPT = 4

_ERROR_WORDS = tuple(_ERRORS["telling"])
_NOISE = re.compile("|".join(_ERRORS["noise"]), re.IGNORECASE)
_FOLDS = tuple(
    (re.compile(pattern), instead.strip())
    for pattern, _, instead in (row.rpartition(" =>") for row in _ERRORS["folds"])
)
_SUMMARY = r"[-=# ]*+\d|.*test result:|(?i:tests:|failed tests)"
_BAD, _GOOD, _WEAKLY_BAD = (f"(?m){'|'.join(_ERRORS[section])}" for section in ("bad", "good", "weakly-bad"))
_EARLY = f"(?i){'|'.join(_ERRORS['early'])}"
_CODE = (
    r"(?i)\W*(?:\w+ )?(?:exit(?:ed)?|rc|ret|status|code)\w*(?:[ _]?(?:with|code|status))*\W{0,4}(?P<code>\d{1,3})\W*"
)


def _is_early(output: str) -> bool:
    """Return whether an output only says that something is not done yet, and names no error."""
    return re.search(_EARLY, output) is not None and not any(word in output for word in _ERROR_WORDS)


def _outcome_in(output: str) -> bool | None:
    """Return the outcome of a build or a test by its output: a code at its end, its summary, else its errors."""
    rows = _last_rows(output)
    codes = [found["code"] for row in rows[-_LINES_KEPT:] if (found := re.fullmatch(_CODE, row))]
    if codes:
        return int(codes[-1]) == 0
    text = "\n".join(rows)
    if re.search(_BAD, text):
        return False
    if re.search(_GOOD, text):
        return True
    return False if re.search(_WEAKLY_BAD, text) else None


class Failure:
    """Error in the output of a failed command: its last lines with an error, else its last lines without noise."""

    def __init__(self, output: str) -> None:
        rows = [row for row in map(str.strip, _last_rows(output)) if row and not _NOISE.fullmatch(row)]
        errors = [row for row in rows if any(word in row.lower() for word in _ERROR_WORDS)]
        self._lines = (errors or rows)[-_LINES_KEPT:]

    @property
    def fingerprint(self) -> str:
        """The part that is the same in every run: its lines, with placeholders for what differs."""
        text = "\n".join(self._lines)
        for pattern, instead in _FOLDS:
            text = pattern.sub(instead, text)
        return "\n".join(dict.fromkeys(" ".join(line.split()) for line in text.split("\n")))

    @property
    def line(self) -> str:
        """The line to show to people, preferably an error and no summary; "" for none."""
        lines = self._lines
        return next((line for line in reversed(lines) if not re.match(_SUMMARY, line)), lines[-1] if lines else "")


def _last_rows(output: str) -> list[str]:
    """Return the last lines of an output, which have the errors."""
    return [row[:_LINE_CHARS_MAX].rstrip() for row in output[-_TAIL_CHARS:].splitlines()[-_LINES_READ:]]
