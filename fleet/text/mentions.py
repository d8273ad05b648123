"""Commands, files and tools that a text names, as the trigger of a lesson that was given none.

Careful rather than complete: a lesson that is shown at the wrong step is noise at each. In a code span anything counts
that is built like a command or a path. In plain words only what cannot well be anything else does: a program followed
by one of its own commands (``git push``, ``data/commands.txt``), the name of a test runner, a path, a file whose ending
tells, what is called a folder. Programs that only look or move about (``ls``, ``cat``, ``sed``) count with an option of
theirs alone, or where what is written for them is named: "a sed expression".

What went wrong comes first: the step behind "never", "not" or "instead of" is the one at which a lesson is wanted, and
the one that a guard may stop. What the right way names is asked only where nothing names a wrong one.
"""

import re
from collections.abc import Iterator
from fnmatch import fnmatchcase
from itertools import pairwise

from fleet.text import sections

TRIGGERS_MAX = 4
"""A text that names more steps than that is about none of them."""
_CHARS_MAX = 4_000
_WORDS_MAX = 6

_COMMANDS = frozenset(sections("commands.txt")[""])
_PROGRAMS = frozenset(command.partition(" ")[0] for command in _COMMANDS) | {"gradlew", "mvnw"}
_WORDS_OF = {name: frozenset(words.split()) for name, words in (row.split(":") for row in sections("mentions.txt")[""])}
_ALONE = _WORDS_OF["alone"]
"""Programs that do one thing, under names that are no other words."""
_GENERIC = _WORDS_OF["generic"]
_RUNNERS = frozenset({"run", "exec", "mod", "compose", "tool", "pr", "-m"})
"""Words behind which the command that matters begins."""

# Texts are compiled by `re` when one is used first, and kept: few processes need any.
_PIECES = r"&&|\|\||[;|]"
_SPAN = re.compile(r"`([^`\n]{1,200})`")
_PLAIN = re.compile(r"[a-z][\w.:-]{0,40}", re.ASCII)
_OPTION = re.compile(r"--?[A-Za-z][\w-]{0,40}", re.ASCII)
_WORD = re.compile(r"[\w@./*+-]+", re.ASCII)
_TOOL = re.compile(r"mcp__\w{1,60}__\w{1,60}", re.ASCII)
_ENDINGS = _WORDS_OF["endings"]
_ALL_ENDINGS = _ENDINGS | _WORDS_OF["other_endings"]
_PATH = r"(?P<path>(?:[\w@.*+-]{1,60}/){0,8}(?P<name>[\w@*+-][\w@.*+-]{0,60})\.(?P<ending>\w{1,8}))(?::\d+)*"
_NAMED = _WORDS_OF["named"]
_SINGLE = _ALONE | _NAMED
_WRITTEN_FOR, _WRITTEN = _WORDS_OF["written_for"], _WORDS_OF["written"]
_TELLING = _PROGRAMS | _SINGLE | _WRITTEN_FOR
_TELLING_BYTES = frozenset(map(str.encode, _TELLING))
_BUILT = re.compile(r"[`_/.-](?:(?<![.-])|(?=[\w@*+]))", re.ASCII)
"""A code span, or a mark within a word."""
_BLANKS = bytes(char if chr(char).isalnum() or chr(char) in "_@*+" else ord(" ") for char in range(128)).ljust(256)
"""Table that makes a blank of each ASCII character that stands between words."""
_FOLDERS = r"[\w@+-][\w@.+-]{0,60}(?:/[\w@.+-]{1,60}){1,8}"
_FOLDER = rf"(?ai)\b(?:folder|directory)\s`({_FOLDERS})/?`|(?<![\w/.])({_FOLDERS})/?`?\s(?:folder|directory)\b"
"""Path that is called a folder: behind that word in a code span alone, since "directory structure/tree" is none."""
_ENGLISH = frozenset(str.split("brew bundle composer go helm make next rails rake swift turbo"))
"""Programs whose names are words: "never make ..." names none, "don't use make" does."""
_NO_FILES = r"(?i:node|next|vue|nuxt|three|chart|express|alpine|ember|backbone|d3)\.(?:js|ts)"


_WARNING = ("never", "not", "n't", "n’t", "avoid", "stop", "instead of", "rather than", "no longer")
# What somebody did, or must not do: the step itself follows, with at most one word before it.
_DOING = (
    r"(?:using|use|running|run|calling|call|executing|execute|typing|type|editing|edit|touching|touch|changing|change)"
)
_WRONG = rf"""(?ix)(?<!\w)(?:
      (?P<clear>instead\ of|rather\ than
        |(?:(?:do|must|should|may|can)(?:\ not|n['’]?t)|cannot|never|avoid|stop|no\ longer)
        (?:\ ever)?(?=\ {_DOING}\ ))
    | (?:(?<!\bis\ )(?<!\bare\ )(?<!\bwas\ )(?<!\bdoes\ )(?<!\bdid\ )(?<!\bif\ )(?<!\bor\ )(?<!\bwhy\ )not|never|avoid)
    )\s(?:{_DOING}\s)?(?:(?:the|plain|bare|raw|a)\s)?"""
_DID = rf"(?i)(?:(?:i|we|it|the agent)\s)?(?:(?:just|only)\s)?(?:(?:ran|used|called|typed|tried|{_DOING})\s)?"
_RIGHT = r"(?i)(?<!\w)(?:use|using|run|running|prefer|call|calling|type|always|instead|without)\s"
_CLAUSE = r"""(?ix)(?:[\w-]{1,40}\ run(?=\ ))?(?:`[^`\n]{1,200}` | (?![,;:!?](?:\s|$)|\.(?:\s|$)|[—()]
      |\s(?:but|before|without|until|unless|when|while|after|if|because|since|so|use|run|prefer)\s)[^`\n]){0,240}"""
_JOINED = r"\s(?:or|and|nor)\s"
_AFTER_PROGRAM = r"(?i)(?:|here|in|for|on|at|to|with|directly|by|from|again|anymore|anywhere|ever)$"


def trigger(given: str, text: str, correct: str = "", wrong: str = "") -> str:
    """Return the trigger of a lesson: the one that it was given, else what its words name; "" for neither.

    The step that went wrong is the trigger: the command of ``wrong``, or the one that the words warn of. Where none
    is named, it is whatever the words name.
    """
    if given or not _may_name(text, correct, wrong):
        return given
    return _listed(_warned(text, correct, wrong) or _all_named(text, correct))


def guardable(given: str, text: str, correct: str = "", wrong: str = "") -> str:
    """Return the steps that a guard may stop: the trigger without any that the right way itself takes; "" for none."""
    if given:
        return given
    said = _said_right(text, correct)
    return _listed(
        _warned(text, correct, wrong) or [each for each in _all_named(text, correct) if not _fits(each, said)]
    )


def _may_name(text: str, correct: str, wrong: str) -> bool:
    """Tell whether words may name a step at all: most do not, and this is asked of every lesson that comes in."""
    said = f"{text[:_CHARS_MAX]}\n{correct[:_CHARS_MAX]}\n{wrong}"
    words = said.encode("ascii", "replace").translate(_BLANKS).split()
    return _BUILT.search(said) is not None or not _TELLING_BYTES.isdisjoint(words)


def _listed(found: list[str]) -> str:
    return ", ".join(found) if len(found) <= TRIGGERS_MAX else ""


def _all_named(*texts: str) -> list[str]:
    return list(dict.fromkeys(entry for text in texts if text for entry in _named(text[:_CHARS_MAX])))


def _warned(text: str, correct: str, wrong: str) -> list[str]:
    """Return the entries of the steps that went wrong, without any that the right way takes, too."""
    found: dict[str, None] = {}
    if wrong:
        done = re.match(_DID, wrong)
        found.update(dict.fromkeys(_steps(wrong, done.end() if done else 0, is_clear=True)))
    for part in filter(None, (text[:_CHARS_MAX], correct[:_CHARS_MAX])):
        for warned in _warnings(part):
            found.update(dict.fromkeys(_steps(part, warned.end(), is_clear=bool(warned["clear"]))))
    if not found:
        return []
    said = [*_commands(_without_warned(text)), *_commands(_without_warned(correct))]
    return [entry for entry in found if not _fits(entry, said)]


def _warnings(text: str) -> Iterator[re.Match[str]]:
    low = text.lower()
    if any(word in low for word in _WARNING):  # most have none: this is asked of every lesson that comes in
        yield from re.finditer(_WRONG, text)


def _said_right(text: str, correct: str) -> list[str]:
    """Return the commands and files that the right way takes: what ``correct`` names, and what the words call for."""
    calls = [text[found.end() :] for found in re.finditer(_RIGHT, text[:_CHARS_MAX])]
    called = [clause[0] for each in calls if (clause := re.match(_CLAUSE, each)) and next(_steps(each, 0), "")]
    return [command for part in (correct, *called) for command in _commands(_without_warned(part))]


def _fits(entry: str, commands: list[str]) -> bool:
    pattern = entry.partition(":")[2] or entry
    return any(fnmatchcase(command, pattern) for command in commands)


def _without_warned(text: str) -> str:
    """Return the text without the clauses that warn of a step."""
    kept, done = list[str](), 0
    for warned in _warnings(text[:_CHARS_MAX]):
        clause = re.compile(_CLAUSE).match(text, warned.end())
        if warned.start() >= done and clause and next(_steps(text, warned.end(), is_clear=bool(warned["clear"])), ""):
            kept.append(text[done : warned.start()])
            done = clause.end()
    return ". ".join([*kept, text[done:_CHARS_MAX]])


def _commands(text: str) -> list[str]:
    """Return what a text names as it would be typed: the pieces of code spans, and the words from each program on."""
    found = [piece.strip() for span in _SPAN.findall(text) for piece in re.split(_PIECES, span)]
    words = [word.rstrip(".-") for word in _WORD.findall(_SPAN.sub(" @ ", text))]
    for at, word in enumerate(words):
        if word in _PROGRAMS or word in _SINGLE or "." in word or "_" in word or "-" in word:
            found += [word, " ".join(words[at : at + _WORDS_MAX])]
    return found


def _steps(text: str, at: int, *, is_clear: bool = False) -> Iterator[str]:
    """Yield an entry for each step that stands right here: ``npm install``, or several with "or" between."""
    clause = re.compile(_CLAUSE).match(text, at)
    for item in re.split(_JOINED, clause[0])[:TRIGGERS_MAX] if clause else ():
        span = _SPAN.match(item)
        found = list(_warned_code(span[1]) if span else _warned_words(item, is_clear=is_clear))
        if not found:
            return
        yield from found


def _warned_code(span: str) -> Iterator[str]:
    for piece in re.split(_PIECES, span):
        words = piece.split()[:_WORDS_MAX]
        if len(words) == 1 and _is_program(words[0]):
            yield from _whole_program(words[0])
        else:
            yield from (each for entry in _in_code(piece.strip()) for each in _sharp(entry, words))


def _warned_words(item: str, *, is_clear: bool) -> Iterator[str]:
    words = [word.rstrip(".") for word in item.split()[:_WORDS_MAX]]
    first, following = [*words, "", ""][:2]
    if f"{first} {following}" in _COMMANDS:
        yield from _sharp(f"Bash:{first} {following}*", words)
    elif first in _ALONE:
        yield from _sharp(f"Bash:{first}*", words)
    elif _is_program(first):
        if re.match(_AFTER_PROGRAM, following) and (is_clear or first not in _ENGLISH):
            yield from _whole_program(first)
    elif _TOOL.fullmatch(first):
        yield first
    elif path := _file(first, _ENDINGS):
        yield path


def _is_program(word: str) -> bool:
    return word in _PROGRAMS or word.replace("-", " ", 1) in _COMMANDS


def _whole_program(name: str) -> tuple[str, str]:
    return f"Bash:{name}", f"Bash:{name} *"


def _sharp(entry: str, words: list[str]) -> tuple[str, ...]:
    """Return the entry of a step that is wrong with an option: without it, the same command may be right."""
    if entry.startswith("Edit:") or words[0] in _GENERIC or not entry.endswith("*"):
        return (entry,)
    options = [_escaped(word) for word in words if _OPTION.fullmatch(word) and word not in entry]
    return (f"{entry} {options[0]}", f"{entry} {options[0]} *") if options else (entry,)


def _named(text: str) -> Iterator[str]:
    """Yield an entry for each command, file and tool that a text names; those in code spans come first."""
    for span in _SPAN.findall(text):
        for piece in re.split(_PIECES, span):
            yield from _in_code(piece.strip())
    if "folder" in text or "directory" in text:
        for found in re.finditer(_FOLDER, text):
            yield f"Edit:{found[1] or found[2]}/*"
    words = [word.rstrip(".-") for word in _WORD.findall(_SPAN.sub(" @ ", text) if "`" in text else text)]
    said = " ".join(words)
    if "." not in said and "_" not in said and _TELLING.isdisjoint(words):
        return
    for word, following in pairwise([*words, ""]):
        if f"{word} {following}" in _COMMANDS:
            yield f"Bash:{word} {following}*"
        elif word in _ALONE:
            yield f"Bash:{word}*"
        elif word in _WRITTEN_FOR and following in _WRITTEN:
            yield f"Bash:{word} *"
        elif _TOOL.fullmatch(word):
            yield word
        elif path := _file(word, _ENDINGS):
            yield path


def _in_code(span: str) -> Iterator[str]:
    words = span.removeprefix("$ ").split()[:_WORDS_MAX]
    while words and (words[0] == "sudo" or ("=" in words[0] and words[0].partition("=")[0].isidentifier())):
        words = words[1:]
    if not words:
        return
    if len(words) == 1 and _TOOL.fullmatch(words[0]):
        yield words[0]
    elif len(words) == 1 and (path := _file(words[0], _ALL_ENDINGS)):
        yield path
    elif command := _command(words):
        yield f"Bash:{command}"


def _command(words: list[str]) -> str:
    """Return the pattern of a command in code, "" for what is none."""
    program, options = words[0].removeprefix("./"), [word for word in words[1:] if _OPTION.fullmatch(word)]
    if not _PLAIN.fullmatch(program) or "." in program:
        return ""
    if program in _GENERIC:
        if "-m" in options[:1] and len(words) > 2:
            return f"{program} -m {words[2]}*" if _PLAIN.fullmatch(words[2]) else ""
        return f"{program}*{_escaped(options[0])}*" if options else ""
    plain = [word for word in words[1:] if _PLAIN.fullmatch(word)]
    if program in _PROGRAMS:
        kept = plain[: 2 if plain[:1] and plain[0] in _RUNNERS else 1]
        return f"{words[0]} {' '.join(kept)}*" if kept and words[1] == kept[0] else ""
    if program in _ALONE:
        return f"{program}*"
    return f"{words[0]} {words[1]}*" if options and words[1] in (*plain, *options) else ""


def _file(word: str, endings: frozenset[str]) -> str:
    """Return the entry of a file, "" for what is no path, or might as well be something else."""
    word = word.removeprefix("./")
    if word.rpartition("/")[2] in _NAMED:
        return f"Edit:{word.lstrip('/')}"
    found = re.fullmatch(_PATH, word) if "." in word else None
    if found is None or re.fullmatch(_NO_FILES, word) or found["ending"] not in endings:
        return ""
    path = found["path"].removeprefix("**/")
    return f"Edit:{path}" if path.count("*") <= 2 and ".." not in path else ""


def _escaped(word: str) -> str:
    return word.replace("[", "[[]")
