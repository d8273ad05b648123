"""Parser of shell commands and of what they print: family, builds, commands that only look, fingerprints of errors.

No shell is built here. A command is cut at ``&&``, ``||``, ``;``, ``|`` and line ends that stand outside quotes, and
each piece loses what stands around the program: assignments, ``sudo``, ``timeout 60``, ``npx``, ``uv run``, a path.
Anything goes in; what cannot be understood has its first word for a family.

Two runs of one failure differ in times, addresses, temporary paths, counts and line numbers; those are folded in its
fingerprint. Names are kept, in quotes or not: ``No module named 'a'`` and ``No module named 'b'`` are two errors, and
whoever installs one module after the other makes progress. Every expression is linear, and no line is longer than
``_LINE_CHARS_MAX``.
"""

import re
import shlex
from collections.abc import Iterable, Iterator
from contextlib import suppress
from itertools import islice
from typing import NamedTuple

from fleet.text import sections

_KNOWN = sections("shell.txt")
_ERRORS = sections("errors.txt")

BUILDS = tuple(_KNOWN["builds"])
"""Commands that are builds and tests, unless ``fleet.toml`` says otherwise.

A command is one of them when its words begin like this, after wrappers such as ``sudo`` or ``npx`` are taken off:
``npm run build`` is ``npm build``; ``python -m pytest`` is ``pytest``; ``./gradlew test`` is ``gradle test``.
"""

_COMMAND_CHARS_MAX = 8 * 1024
_PIECES_MAX = 64
_SHELL_DEPTH_MAX = 3
_WORD_CHARS_MAX = 60

_MARKS = ";|&<>\n"
_GROUPED = "(){}!"
_RUN_WORDS = frozenset({"run", "run-script"})
_NOWHERE = ("/dev/null", "&1", "&2", "/dev/stderr", "/dev/stdout")


class _Wrapper(NamedTuple):
    """Surroundings of a program: its own words besides options, its options with a value, words that must follow."""

    more: int
    valued: tuple[str, ...]
    needed: tuple[str, ...]


def _wrappers(rows: Iterable[str]) -> dict[str, _Wrapper]:
    found = {}
    for row in rows:
        head, _, valued = row.partition(":")
        name, *words = head.split()
        found[name] = _Wrapper(words.count("+"), tuple(valued.split()), tuple(word for word in words if word != "+"))
    return found


def _words(section: str) -> frozenset[str]:
    return frozenset(" ".join(_KNOWN[section]).split())


_WRAPPERS = _wrappers(_KNOWN["wrappers"])
_SAME = dict(row.split() for row in _KNOWN["same"])
_SHELLS, _PYTHONS, _KEYWORDS, _MANY = _words("shells"), _words("pythons"), _words("keywords"), _words("many")
_SCRIPTS, _RUNNERS, _TAKE_VALUE, _SETUP = _words("scripts"), _words("runners"), _words("take-value"), _words("setup")
_FINDERS, _ON_EACH = _words("finders"), _words("on-each")
_LOOK, _GIT_LOOKS, _CHANGING_WORDS = _words("look"), _words("git-looks"), _words("changing")

_PLAIN = r"[A-Za-z0-9_./:,@%+=-]++|'[^'\x00-\x1f\x7f]*+'|\"(?:[^\"\\$`\x00-\x1f\x7f]|\\[\"\\$`])*+\""
_SUBCOMMAND = r"(?a)[A-Za-z][\w:-]*"
_SIMPLE = rf" *(?:(?!=)(?:{_PLAIN})++(?: ++(?:\\\n *+)*+|$))++"


class Command:
    """A command line, as far as it tells what it does.

    Attributes:
        family: ``pytest`` for ``cd x && python -m pytest -q``, ``npm test`` for ``npm t``. Of several commands, of the
            first that is a build or a test by default; else of the first that does not merely prepare.
        programs: words of each simple command in it, the program first, without its path and what wraps it.
        waits: whether it lets time pass before it looks, as a poll does.
    """

    def __init__(self, line: str) -> None:
        self._line = line
        self.programs = pieces = list(_programs(line))
        by_default = [words for words in pieces if _is_any(words, BUILDS)]
        chosen = by_default or [words for words in pieces if words[0] not in _SETUP] or pieces or [[]]
        self._words = chosen[0] or [""]
        self.family = _named(chosen[0])
        self.waits = any(words[0] in ("sleep", "wait") for words in pieces)

    @property
    def plain_words(self) -> list[str]:
        """The words of one simple command that every shell takes as they stand; [] for anything else.

        No pipe, second command, redirection, expansion, pattern or comment, and no line end but one that a backslash
        takes back; what is not known to be plain is not.
        """
        return shlex.split(self._line.replace("\\\n", " ")) if re.fullmatch(_SIMPLE, self._line) else []

    @property
    def trigger(self) -> str:
        """Trigger of a lesson that it taught, ``Bash:git push *``; "" for a command of which little is known.

        Known are builds, and commands of programs that have several. The others may be about anything, or be private.
        """
        program, words = self._words[0], self._words[1 : 3 if self._words[1:2] == ["run"] else 2]
        if program not in _MANY:
            return f"Bash:{program} *" if self.is_build() and self.family == program else ""
        named = " ".join(word for word in words if re.fullmatch(_SUBCOMMAND, word))
        return f"Bash:{program} {named} *" if named and not self.only_looks else ""

    @property
    def only_looks(self) -> bool:
        """True where it changes nothing that another one could depend on: it reads, prints or checks."""
        return bool(self.programs) and not _writes(self._line) and all(map(_looks, self.programs))

    def is_build(self, builds: Iterable[str] | None = None) -> bool:
        """Tell whether any part of it builds or tests, by ``[attempts] builds`` or by default."""
        known = BUILDS if builds is None else tuple(builds)
        return any(_is_any(words, known) for words in self.programs)

    def outcome(self, printed: str, *, is_error: bool, builds: Iterable[str] | None = None) -> bool | None:
        """Return whether it did what it should; None where nobody can tell.

        Its exit code says so, unless something masks it, as in ``make test | tail``: of a build or a test what it
        printed may say so then, and of another command an error still is one.

        ``is_error``: the whole line ended with another code than 0.
        """
        if not _is_masked(self._line[:_COMMAND_CHARS_MAX], 0):
            return not is_error
        if self.is_build(builds):
            return _told_outcome(printed)
        return False if is_error else None


def _is_masked(command: str, depth: int) -> bool:
    """Tell whether the exit code of a command line is not that of the command that it is about.

    A pipe behind it, another command behind it that runs in any case, ``||``, ``!`` or ``&``: then the code is unknown.
    """
    pieces = list(islice(_marked_pieces(command), _PIECES_MAX))
    words = [_unwrapped(piece) for piece, _ in pieces]
    named = [at for at, each in enumerate(words) if each and each[0] not in _SETUP]
    about = [at for at in named if _is_any(words[at], BUILDS)] or named[:1]
    marks = [mark.strip("\n") or (mark and ";") for _, mark in pieces]
    return any(_is_masked_at(pieces[at][0][0], at, words, marks, depth) for at in about)


def _is_masked_at(first: str, at: int, words: list[list[str]], marks: list[str], depth: int) -> bool:
    """Tell whether the code of one piece is lost in what stands around it."""
    inner = _inner(words[at]) if words[at][0] in _SHELLS and depth < _SHELL_DEPTH_MAX else ""
    if first in ("!", "if", "while", "until") or (inner and _is_masked(inner, depth + 1)):
        return True
    before = [each for each in words[:at] if each[:1] == ["set"]]
    stops = any(_sets(each, "e", "errexit") for each in before)
    in_pipe = not any(_sets(each, "", "pipefail") for each in before)
    for mark, after in zip(marks[at:], range(at + 1, len(words) + 1), strict=False):
        behind = [each for each in words[after:] if each]
        if mark == "&" or (in_pipe and mark in ("|", "|&")):
            return True
        in_pipe = in_pipe and mark in ("|", "|&")
        if not behind or behind[0] == ["exit", "$?"]:
            return False
        if mark == "||" or (mark.startswith(";") and not stops):
            return behind[-1][0] != "exit" or behind[-1][1:] == ["0"]
    return False


def _sets(words: list[str], letter: str, option: str) -> bool:
    short = any(word.startswith("-") and letter and letter in word[1:] for word in words[1:])
    return short or option in words


def _programs(command: str, depth: int = 0) -> Iterator[list[str]]:
    """Yield the words of each simple command in a command line, the program first and without what wraps it."""
    for piece, _ in islice(_marked_pieces(command[:_COMMAND_CHARS_MAX]), _PIECES_MAX):
        words = _unwrapped(piece)
        if not words:
            continue
        if words[0] in _SHELLS and depth < _SHELL_DEPTH_MAX and (inner := _inner(words)):
            yield from _programs(inner, depth + 1)
        else:
            yield words
            if words[0] in _FINDERS:
                yield from _found_and_run(words, depth)


def _found_and_run(words: list[str], depth: int) -> Iterator[list[str]]:
    """Yield what ``find`` runs on each file that it finds; it removes one as ``rm`` does."""
    if "-delete" in words:
        yield ["rm"]
    at = next((at for at, word in enumerate(words) if word in _ON_EACH), len(words))
    if words[at + 1 :] and depth < _SHELL_DEPTH_MAX:
        yield from _programs(shlex.join(words[at + 1 :]), depth + 1)


def _marked_pieces(command: str) -> Iterator[tuple[list[str], str]]:
    """Yield each piece of a command line, its words and the mark behind it.

    Redirections and here-documents are no words.
    """
    reader = shlex.shlex(command, posix=True, punctuation_chars=_MARKS)
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
            _skip_redirection(reader, token)
        else:
            yield words, token
            words = []
    yield words, ""


def _skip_redirection(reader: shlex.shlex, sign: str) -> None:
    """Read a redirection's target away, and the here-document whose mark it is."""
    with suppress(ValueError):
        mark = reader.get_token()
        if sign == "<<" and mark is not None:
            while (row := str(reader.instream.readline())) and row.strip() != mark.lstrip("-"):
                pass


def _unwrapped(words: list[str]) -> list[str]:
    """Take off what stands around the program; name the program by its last part."""
    while words:
        first = words[0].strip(_GROUPED)
        if not first or first in _KEYWORDS or _is_assignment(first):
            words = words[1:]
            continue
        program = first.rpartition("/")[2] or first
        program = _SAME.get(program, program)
        words = [program, *words[1:]]
        if program.rstrip("0123456789.") in _PYTHONS or program in _PYTHONS:
            module = _module(words)
            if not module:
                return ["python", *words[1:]]
            words = module
        elif program in _WRAPPERS and (inner := _inside(words)) is not None:
            words = inner
        else:
            return words
    return []


def _is_assignment(word: str) -> bool:
    name, equals, _ = word.partition("=")
    return bool(equals) and name.isidentifier()


def _module(words: list[str]) -> list[str]:
    """Return what ``python -m`` runs, with its words; [] when it runs something else."""
    for at, word in enumerate(words[1:], 1):
        if word == "-m":
            return words[at + 1 :]
        if not word.startswith("-") or word == "-c":
            return []
    return []


def _inside(words: list[str]) -> list[str] | None:
    """Return the words of the command that a wrapper runs, or None when it wraps nothing here."""
    more, valued, needed = _WRAPPERS[words[0]]
    at = 1
    wanted = list(needed)
    while at < len(words):
        word = words[at]
        if word == "--":
            at += 1
            break
        if word.startswith("-"):
            at += 2 if word in valued else 1
        elif wanted and word == wanted[0]:
            wanted.pop(0)
            at += 1
        elif not wanted and (more or _is_assignment(word)):
            more -= not _is_assignment(word)
            at += 1
        else:
            break
    return None if wanted or at >= len(words) else words[at:]


def _inner(words: list[str]) -> str:
    """Return what ``bash -c`` is given, or the script as a command of its own; "" when there is neither."""
    for at, word in enumerate(words[1:], 1):
        if word.startswith("-"):
            if "c" in word[1:] and not word.startswith("--"):
                return words[at + 1] if at + 1 < len(words) else ""
            continue
        return "" if any(char in word for char in " \t\n;|&<>'\"\\") else word
    return ""


def _named(words: list[str]) -> str:
    """Return a family's name."""
    if not words:
        return ""
    program = words[0][:_WORD_CHARS_MAX]
    plain = _plain_words(words)
    if program in _SCRIPTS and "-c" not in words and "-e" not in words:
        return " ".join([program, *(word.rpartition("/")[2][:_WORD_CHARS_MAX] for word in plain[1:2])])
    if program not in _MANY:
        return program
    second = [word[:_WORD_CHARS_MAX] for word in plain[1:2] if "=" not in word]
    return " ".join([program, *second])


def _plain_words(words: list[str]) -> list[str]:
    """Return the program and the words that are no options, without ``run`` where the script is what matters."""
    plain, at = [words[0]], 1
    while at < len(words):
        word = words[at]
        at += 2 if word in _TAKE_VALUE else 1
        if word.startswith(("-", "+")) or word.isdigit():
            continue
        if len(plain) == 1 and words[0] in _RUNNERS:
            if word in _RUN_WORDS:
                continue
            word = _SAME.get(word, word)
        plain.append(word)
    return plain


def _is_any(words: list[str], builds: Iterable[str]) -> bool:
    plain = _plain_words(words)
    return any(_is_like(words, plain, build) for build in builds if build.split())


def _is_like(words: list[str], plain: list[str], build: str) -> bool:
    wanted = _unwrapped(build.split()) or build.split()
    if wanted[0] != words[0]:
        return False
    options = [word for word in wanted[1:] if word.startswith("-")]
    rest = _plain_words([word for word in wanted if not word.startswith("-")])
    has_words = len(plain) >= len(rest) and all(map(_is_word, plain, rest))
    return has_words and all(option in words for option in options)


def _is_word(word: str, wanted: str) -> bool:
    return word == wanted or word.startswith(f"{wanted}:")  # npm run test:unit


def _looks(words: list[str]) -> bool:
    if any(word in _CHANGING_WORDS or word.startswith("-i.") for word in words):
        return False
    if words[0] == "git":
        return _plain_words(words)[1:2] != [] and _plain_words(words)[1] in _GIT_LOOKS
    return words[0] in _LOOK


def _writes(command: str) -> bool:
    """Tell whether a command writes a file by redirection, quotes or not: a doubt counts as a yes."""
    rest = command[:_COMMAND_CHARS_MAX]
    if len(command) > _COMMAND_CHARS_MAX or "tee " in rest or "xargs" in rest or "$(" in rest or "`" in rest:
        return True
    at = rest.find(">")
    while at >= 0:
        target = rest[at + 1 :].lstrip(">| \t")
        if not target.startswith(_NOWHERE):
            return True
        at = rest.find(">", at + 1)
    return False


# Errors.

_TAIL_CHARS = 16 * 1024
_LINE_CHARS_MAX = 300
_LINES_LOOKED_AT = 200
_LINES_KEPT = 4

_TELLING = tuple(_ERRORS["telling"])
_NOISE = re.compile("|".join(_ERRORS["noise"]), re.IGNORECASE)
_FOLDS = tuple(
    (re.compile(each), instead.strip()) for each, _, instead in (row.rpartition(" =>") for row in _ERRORS["folds"])
)
_BAD, _GOOD, _WEAKLY_BAD = (f"(?m){'|'.join(_ERRORS[each])}" for each in ("bad", "good", "weakly-bad"))
_CODE = (
    r"(?i)\W*(?:\w+ )?(?:exit(?:ed)?|rc|ret|status|code)\w*(?:[ _]?(?:with|code|status))*\W{0,4}(?P<code>\d{1,3})\W*"
)


def _told_outcome(printed: str) -> bool | None:
    """Return what the output of a build or a test says of it: a code at its end, its summary, else its errors."""
    rows = [row[:_LINE_CHARS_MAX].rstrip() for row in printed[-_TAIL_CHARS:].splitlines()[-_LINES_LOOKED_AT:]]
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
    """What a failed command printed, as far as it tells what went wrong."""

    def __init__(self, printed: str) -> None:
        self._lines = _telling_lines(printed)

    @property
    def fingerprint(self) -> str:
        """The part that is the same from one run to the next: its last telling lines, folded."""
        return "\n".join(dict.fromkeys(_folded(line) for line in self._lines))

    @property
    def line(self) -> str:
        """The line that a person is shown, or "": rather what went wrong than how often it did."""
        lines = self._lines
        return next((line for line in reversed(lines) if not _counts(line)), lines[-1] if lines else "")


def _telling_lines(error: str) -> list[str]:
    """Return the last lines that say what went wrong; where none does, the last lines that say anything.

    Of a huge output only the last ``_TAIL_CHARS`` are looked at: what went wrong stands at the end.
    """
    rows = [row[:_LINE_CHARS_MAX].strip() for row in error[-_TAIL_CHARS:].splitlines()[-_LINES_LOOKED_AT:]]
    rows = [row for row in rows if row and not _NOISE.fullmatch(row)]
    telling = [row for row in rows if _tells(row)]
    return (telling or rows)[-_LINES_KEPT:]


def _counts(line: str) -> bool:
    """Tell whether a line is a summary such as ``1 failed, 3 passed in 0.12s``."""
    return (
        line.lstrip("=-# ")[:1].isdigit()
        or "test result:" in line
        or line.lower().startswith(("tests:", "failed tests"))
    )


def _tells(row: str) -> bool:
    lower = row.lower()
    return any(word in lower for word in _TELLING)


def _folded(line: str) -> str:
    for pattern, instead in _FOLDS:
        line = pattern.sub(instead, line)
    return " ".join(line.split())
