"""Derivation of a lesson's trigger from the commands, files and tools in its text, for a lesson without one.

Precision comes before recall, since a lesson shown at the wrong step is noise each time. In a code span, everything
counts that has the form of a command or a path. Plain words count only if they hardly mean anything else: a program
with one of its own commands (``git push``), a test runner, a path, a file with a known extension, a path called a
folder. Programs that only read or change directory (``ls``, ``sed``) count with an option, or with a noun of theirs ("a
sed expression"); in code that the text warns of, with any word after them. After "run", a code span is a command
whatever its program, and a script stands for its run, from any folder; after another verb, for an edit of it.

Wrong steps have priority: those after "never", "instead of" and the like, and the code before "fails". There the lesson
is needed, and a guard may stop them. The steps of the right way count only if no wrong one is named.
"""

import re
from collections.abc import Iterator
from fnmatch import fnmatchcase
from itertools import pairwise

from fleet.text import sections

TRIGGERS_MAX = 4
"""A text with more steps than that is about none of them."""
_CHARS_MAX = 4_000
_WORDS_MAX = 6

_COMMANDS = frozenset(sections("commands.txt")[""])
_PROGRAMS = frozenset(command.partition(" ")[0] for command in _COMMANDS) | {"gradlew", "mvnw"}
_KNOWN = sections("mentions.txt")
_WORDS_OF = {name: frozenset(words.split()) for name, words in (row.split(":") for row in _KNOWN[""])}
_ALONE = _WORDS_OF["alone"]
"""Programs with a single purpose, and a name that is no other word."""
_GENERIC = _WORDS_OF["generic"]

# Expressions are texts, which `re` compiles at the first use and caches: few processes need any.
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
_SCRIPT_ENDINGS, _INTERPRETERS = _WORDS_OF["scripts"], _WORDS_OF["interpreters"]
_SCRIPT = re.compile(r"(?:[\w@.+-]{1,60}/){0,8}(?P<name>[\w@+-][\w@.+-]{0,60})", re.ASCII)
_ARGUMENT = re.compile(r"[\w@.:/=+-]{1,60}", re.ASCII)
_SINGLE = _ALONE | _NAMED
_WRITTEN_FOR, _WRITTEN = _WORDS_OF["written_for"], _WORDS_OF["written"]
_TELLING = _PROGRAMS | _SINGLE | _WRITTEN_FOR
_TELLING_BYTES = frozenset(map(str.encode, _TELLING))
_BUILT = re.compile(r"[`_/.-](?:(?<![.-])|(?=[\w@*+]))", re.ASCII)
"""A code span, or a mark within a word."""
_FILE_MARKS = frozenset("./_")
_BLANKS = bytes(char if chr(char).isalnum() or chr(char) in "_@*+" else ord(" ") for char in range(128)).ljust(256)
"""Table that makes a blank of each ASCII character between words."""
_FOLDERS = r"[\w@+-][\w@.+-]{0,60}(?:/[\w@.+-]{1,60}){1,8}"
_FOLDER = rf"(?ai)\b(?:folder|directory)\s`({_FOLDERS})/?`|(?<![\w/.])({_FOLDERS})/?`?\s(?:folder|directory)\b"
"""A path called a folder. After that word it must be a code span, since "directory structure/tree" is none."""
_NO_FILES = r"(?i:node|next|vue|nuxt|three|chart|express|alpine|ember|backbone|d3)\.(?:js|ts)"
_WARNING = tuple(_KNOWN["warning"])
_WRONG, _PREFERRED, _VERB, _DID, _RIGHT, _CLAUSE, _AFTER_PROGRAM = (
    "\n".join(_KNOWN[name]).replace("{doing}", "|".join(_KNOWN["doing"]))
    for name in ("wrong", "preferred", "verb", "did", "right", "clause", "after-program")
)
_PREFERRED_CHARS_MAX = 120
_VERB_CHARS_MAX = 40
_JOINED = r"\s(?:or|and|nor)\s"


def trigger(explicit: str, text: str, correct: str = "", wrong: str = "", *, step: str = "") -> str:
    """Return the trigger of a lesson: the given one, else one derived from its words; "" for neither.

    The derived one has the wrong steps, of ``wrong`` and those that the words warn of; without those that the right way
    has too, unless no others are left. If there is no wrong step, it has all steps in the words; of ``correct`` only if
    the words warn of nothing. ``step``, which was refused or failed, is added.
    """
    if explicit or not _may_have_step(text, correct, wrong):
        return explicit or step
    warned = _warned(text, correct, wrong)
    # The words warn of a step that is unknown: a step of the right way must not take its place.
    warns = not warned and any(True for part in (text, correct) for _ in _warnings(part[:_CHARS_MAX]))
    right = "" if warns else correct
    derived = _listed(_without_right(warned, text, correct) or warned or _all_steps(text, right))
    return ", ".join(filter(None, (derived, step)))


def guardable(explicit: str, text: str, correct: str = "", wrong: str = "") -> str:
    """Return the steps that a guard may stop: the trigger without steps of the right way; "" for none."""
    if explicit:
        return explicit
    right = _right_commands(text, correct)
    return _listed(
        _without_right(_warned(text, correct, wrong), text, correct)
        or [step for step in _all_steps(text, correct) if not _fits(step, right)]
    )


def _may_have_step(text: str, correct: str, wrong: str) -> bool:
    """Return whether words may name a step at all: most do not, and every lesson that comes in is checked."""
    joined = f"{text[:_CHARS_MAX]}\n{correct[:_CHARS_MAX]}\n{wrong}"
    words = joined.encode("ascii", "replace").translate(_BLANKS).split()
    return _BUILT.search(joined) is not None or not _TELLING_BYTES.isdisjoint(words)


def _words(text: str) -> list[str]:
    return [word.rstrip(".-") for word in _WORD.findall(text)]


def _listed(steps: list[str]) -> str:
    return ", ".join(steps) if len(steps) <= TRIGGERS_MAX else ""


def _all_steps(*texts: str) -> list[str]:
    return list(dict.fromkeys(step for text in texts for step in _steps_in(text[:_CHARS_MAX])))


def _warned(text: str, correct: str, wrong: str) -> list[str]:
    """Return the wrong steps: those of ``wrong``, and those that the words warn of."""
    verb = re.match(_DID, wrong) if wrong else None  # most lessons name nothing that went wrong
    steps = dict.fromkeys(_steps_at(wrong, verb.end(), is_clear=True) if verb else ())
    for part in (text[:_CHARS_MAX], correct[:_CHARS_MAX]):
        for warning in _warnings(part):
            steps |= dict.fromkeys(_steps_at(part, warning.end(), is_clear=bool(warning["clear"])))
    return list(steps)


def _without_right(steps: list[str], text: str, correct: str) -> list[str]:
    """Return wrong steps without any that the right way takes, too."""
    if not steps:
        return []
    right = [*_commands(_without_warnings(text)), *_commands(_without_warnings(correct))]
    return [step for step in steps if not _fits(step, right)]


def _warnings(text: str) -> Iterator[re.Match[str]]:
    low = text.lower()
    if not any(word in low for word in _WARNING):  # most texts have none, and every lesson that comes in is checked
        return
    for each in re.finditer(_WRONG, text):
        before = text[max(0, each.start() - _PREFERRED_CHARS_MAX) : each.start()]
        if not each["over"] or re.search(_PREFERRED, before):  # "over" may also belong to "iterate over"
            yield each


def _verb(before: str) -> str:
    """Return "run" or "edit" if the text before a step ends with such a verb, else ""."""
    match = re.search(_VERB, before[-_VERB_CHARS_MAX:])
    return match.lastgroup or "" if match else ""


def _right_commands(text: str, correct: str) -> list[str]:
    """Return the commands and files of the right way: those in ``correct``, and those after "use" and the like."""
    clause, ends = re.compile(_CLAUSE), [match.end() for match in re.finditer(_RIGHT, text[:_CHARS_MAX])]
    clauses = [found[0] for end in ends if (found := clause.match(text, end)) and next(_steps_at(text, end), "")]
    return [command for part in (correct, *clauses) for command in _commands(_without_warnings(part))]


def _fits(step: str, commands: list[str]) -> bool:
    pattern = step.partition(":")[2] or step
    end = " " if pattern.endswith(" *") else ""
    return any(fnmatchcase(f"{command}{end}", pattern) for command in commands)


def _without_warnings(text: str) -> str:
    """Return the text without the clauses that warn of a step."""
    pieces, position = list[str](), 0
    for warning in _warnings(text[:_CHARS_MAX]):
        clause = re.compile(_CLAUSE).match(text, warning.end())
        if clause and next(_steps_at(text, warning.end(), is_clear=bool(warning["clear"])), ""):
            pieces.append(text[position : warning.start()])
            position = clause.end()
    return ". ".join([*pieces, text[position:_CHARS_MAX]])


def _commands(text: str) -> list[str]:
    """Return the commands of a text as they would be typed: the code spans, and the words from each program on."""
    commands = [piece.strip() for span in _SPAN.findall(text) for piece in re.split(_PIECES, span)]
    words = _words(_SPAN.sub(" @ ", text))
    for index, word in enumerate(words):
        if word in _PROGRAMS or word in _SINGLE or _BUILT.search(word):
            commands += [word, " ".join(words[index : index + _WORDS_MAX])]
    return [*commands, *(" ".join(_from_script(command.split())) for command in commands if command)]


def _steps_at(text: str, start: int, *, is_clear: bool = False) -> Iterator[str]:
    """Yield the steps at the start of a clause: ``npm install``, or several with "or" between."""
    clause, verb = re.compile(_CLAUSE).match(text, start), _verb(text[:start])
    for item in re.split(_JOINED, clause[0])[:TRIGGERS_MAX] if clause else ():
        span = _SPAN.match(item)
        steps = list(_warned_code(span[1], verb, text) if span else _warned_words(item, verb, is_clear=is_clear))
        if not steps:
            return
        yield from steps


def _warned_code(span: str, verb: str, text: str) -> Iterator[str]:
    for piece in re.split(_PIECES, span):
        words = piece.split()[:_WORDS_MAX]
        if len(words) == 1 and _is_program(words[0]):
            yield from _whole_program(words[0])
        elif len(words) == 1 and _is_run(words[0], verb, text):
            yield f"Bash:{words[0]} *"
        elif steps := list(_in_code(piece, verb)):
            yield from (narrow for step in steps for narrow in _narrowed(step, words))
        elif len(words) > 1 and words[0] in _GENERIC and _ARGUMENT.fullmatch(words[1]):
            yield f"Bash:{words[0]} {words[1]}*"


def _is_run(word: str, verb: str, text: str) -> bool:
    """Return whether a word in code is a program: it comes after "run", or the text also has it with an option."""
    return _PLAIN.fullmatch(word) is not None and "." not in word and (verb == "run" or f"`{word} -" in text)


def _warned_words(item: str, verb: str, *, is_clear: bool) -> Iterator[str]:
    words = [word.rstrip(".") for word in item.split()[:_WORDS_MAX]]
    first, following = [*words, "", ""][:2]
    if f"{first} {following}" in _COMMANDS:
        yield from _narrowed(f"Bash:{first} {following}*", words)
    elif first in _ALONE:
        yield from _narrowed(f"Bash:{first}*", words)
    elif _is_program(first):
        if re.match(_AFTER_PROGRAM, following) and (is_clear or first not in _WORDS_OF["english"]):
            yield from _whole_program(first)
    elif _TOOL.fullmatch(first):
        yield first
    elif path := _file(first, _ENDINGS, verb):
        yield path


def _is_program(word: str) -> bool:
    return word in _PROGRAMS or word.replace("-", " ", 1) in _COMMANDS


def _whole_program(name: str) -> tuple[str, str]:
    return f"Bash:{name}", f"Bash:{name} *"


def _narrowed(step: str, words: list[str]) -> tuple[str, ...]:
    """Return a wrong step with its option: without it, the same command may be right."""
    options = [word for word in words if _OPTION.fullmatch(word) and word not in step]
    step_of_any = f"{step.removesuffix('*').rstrip()}*"
    return (f"{step_of_any} {options[0]}", f"{step_of_any} {options[0]} *") if options and step[-1] == "*" else (step,)


def _steps_in(text: str) -> Iterator[str]:
    """Yield a step for each command, file and tool in a text; those in code spans come first."""
    for span in _SPAN.finditer(text):
        for piece in re.split(_PIECES, span[1]):
            yield from _in_code(piece, _verb(text[: span.start()]))
    if "folder" in text or "directory" in text:
        for match in re.finditer(_FOLDER, text):
            yield f"Edit:{match[1] or match[2]}/*"
    words = _words(_SPAN.sub(" @ ", text))
    if _TELLING.isdisjoint(words) and _FILE_MARKS.isdisjoint(" ".join(words)):
        return  # a mark within a word is mostly a hyphen, and every lesson that comes in is checked
    for index, (word, following) in enumerate(pairwise([*words, ""])):
        if f"{word} {following}" in _COMMANDS:
            yield f"Bash:{word} {following}*"
        elif word in _ALONE:
            yield f"Bash:{word}*"
        elif word in _WRITTEN_FOR and following in _WRITTEN:
            yield f"Bash:{word} *"
        elif _TOOL.fullmatch(word):
            yield word
        elif path := _file(word, _ENDINGS, _verb(" ".join([*words[max(0, index - 3) : index], ""]))):
            yield path


def _in_code(span: str, verb: str) -> Iterator[str]:
    words = span.removeprefix("$ ").split()[:_WORDS_MAX]
    while words and (words[0] == "sudo" or ("=" in words[0] and words[0].partition("=")[0].isidentifier())):
        words = words[1:]
    if not words:
        return
    if len(words) == 1 and _TOOL.fullmatch(words[0]):
        yield words[0]
    elif len(words) == 1 and (path := _file(words[0], _ALL_ENDINGS, verb)):
        yield path
    elif command := _command(words) or _run(words, verb):
        yield f"Bash:{command}"


def _command(words: list[str]) -> str:
    """Return the pattern of a command in code, "" if it is none."""
    program, options = words[0].removeprefix("./"), [word for word in words[1:] if _OPTION.fullmatch(word)]
    if not _PLAIN.fullmatch(program) or "." in program:
        return ""
    if program in _GENERIC:
        if "-m" in options[:1] and len(words) > 2:
            return f"{program} -m {words[2]}*" if _PLAIN.fullmatch(words[2]) else ""
        return f"{program}*{options[0]}*" if options else ""
    plain = [word for word in words[1:] if _PLAIN.fullmatch(word)]
    if program in _PROGRAMS:
        subcommand = plain[: 2 if plain[:1] and plain[0] in _WORDS_OF["runners"] else 1]
        return f"{words[0]} {' '.join(subcommand)}*" if subcommand and words[1] == subcommand[0] else ""
    if program in _ALONE:
        return f"{program}*"
    return f"{words[0]} {words[1]}*" if options and words[1] in (*plain, *options) else ""


def _run(words: list[str], verb: str) -> str:
    """Return the pattern of a script with arguments, or after "run" that of any program; "" for neither."""
    name, *others = _from_script(words)
    is_script = len(words) > 1 and (name.rpartition(".")[2] in _SCRIPT_ENDINGS or words[0].startswith("./"))
    is_program = verb == "run" and words[0] not in _GENERIC and words[0][0] != "/" and "." not in name
    if not (is_script or is_program) or not _PLAIN.fullmatch(name):
        return ""
    is_subcommand = others and _PLAIN.fullmatch(others[0]) and "." not in others[0]
    return f"{name} {others[0]}*" if is_subcommand else f"{name} *"


def _from_script(words: list[str]) -> list[str]:
    """Return the words of a command without the path of its program, and without the interpreter of a script."""
    if words[0] in _INTERPRETERS and words[1:2] and words[1].rpartition(".")[2] in _SCRIPT_ENDINGS:
        words = words[1:]
    return [words[0].rpartition("/")[2], *words[1:]]


def _file(word: str, endings: frozenset[str], verb: str) -> str:
    """Return the step of editing a file or of running a script; "" for a word that is surely or perhaps no path."""
    is_here, word = word.startswith("./"), word.removeprefix("./")
    if word.rpartition("/")[2] in _NAMED:
        return f"Edit:{word.lstrip('/')}"
    is_script = word.rpartition(".")[2] in _SCRIPT_ENDINGS
    if (is_here + is_script + (verb == "run")) >= 2 and verb != "edit" and (script := _SCRIPT.fullmatch(word)):
        return f"Bash:{script['name']} *"
    match = re.fullmatch(_PATH, word) if "." in word else None
    if match is None or re.fullmatch(_NO_FILES, word) or match["ending"] not in endings:
        return ""
    path = match["path"].removeprefix("**/")
    return f"Edit:{path}" if path.count("*") <= 2 and ".." not in path else ""
