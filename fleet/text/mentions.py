"""Commands, files and tools that a text names, as the trigger of a lesson that was given none.

Careful rather than complete: a lesson that is shown at the wrong step is noise at each. In a code span anything counts
that is built like a command or a path. In plain words only what cannot well be anything else does: a program followed
by one of its own commands (``git push``, ``data/commands.txt``), the name of a test runner, a path, a file whose ending
tells. Programs that only look or move about (``ls``, ``cat``, ``sed``) count with an option of theirs alone.
"""

import re
from collections.abc import Iterator
from itertools import pairwise
from pathlib import Path

TRIGGERS_MAX = 4
"""A text that names more steps than that is about none of them."""
_CHARS_MAX = 4_000
_WORDS_MAX = 6

_DATA = Path(__file__).with_name("data")
_COMMANDS = frozenset(_DATA.joinpath("commands.txt").read_text(encoding="utf-8").splitlines())
_PROGRAMS = frozenset(command.partition(" ")[0] for command in _COMMANDS) | {"gradlew", "mvnw"}
_ALONE = frozenset(
    str.split("pytest unittest mypy pyright pylint flake8 eslint tsc vitest jest ctest rspec rubocop phpunit cmake")
)
"""Programs that do one thing, under names that are no other words."""
_GENERIC = frozenset(
    str.split(
        "awk cat cd chmod chown cp curl cut date echo env export find grep head kill less ls ln mkdir mv printf ps pwd "
        "rg rm sed sleep sort tail tar tee touch tr wc wget which xargs python python3 node bash sh sudo ssh scp jq"
    )
)
_RUNNERS = frozenset({"run", "exec", "mod", "compose", "tool", "pr", "-m"})
"""Words behind which the command that matters begins."""

_PIECES = re.compile(r"&&|\|\||[;|]")
_SPAN = re.compile(r"`([^`\n]{1,200})`")
_PLAIN = re.compile(r"[a-z][\w.:-]{0,40}", re.ASCII)
_OPTION = re.compile(r"--?[A-Za-z][\w-]{0,40}", re.ASCII)
_WORD = re.compile(r"[\w@./*+-]+", re.ASCII)
_TOOL = re.compile(r"mcp__\w{1,60}__\w{1,60}", re.ASCII)
_TELLING = "py|pyi|ts|tsx|jsx|rs|go|rb|java|kt|swift|cs|php|sh|sql|toml|yaml|yml|md|mdx|lock|proto|tf|ipynb|gradle|vue"
_ENDING = re.compile(rf"(?:{_TELLING})", re.ASCII)
_ANY_ENDING = re.compile(rf"(?:{_TELLING}|c|h|cc|cpp|hpp|js|mjs|cjs|json|jsonl|ini|cfg|conf|xml|html|css|scss|bash)")
_PATH = re.compile(
    r"(?P<path>(?:[\w@.*+-]{1,60}/){0,8}(?P<name>[\w@*+-][\w@.*+-]{0,60})\.(?P<ending>\w{1,8}))(?::\d+)*"
)
_NAMED = frozenset(
    str.split(
        "Makefile Dockerfile Jenkinsfile Gemfile Rakefile Procfile CODEOWNERS .gitignore .gitattributes .dockerignore "
        ".env .npmrc .editorconfig go.mod go.sum package.json package-lock.json tsconfig.json requirements.txt "
        "CMakeLists.txt docker-compose.yml"
    )
)
_SINGLE = _ALONE | _NAMED
_NO_FILES = re.compile(r"(?i:node|next|vue|nuxt|three|chart|express|alpine|ember|backbone|d3)\.(?:js|ts)")


def trigger(given: str, *texts: str) -> str:
    """Return the trigger of a lesson: the one that it was given, else what its texts name; "" for neither."""
    if given:
        return given
    found: dict[str, None] = {}
    for text in texts:
        found.update(dict.fromkeys(_named(text[:_CHARS_MAX])))
    return ", ".join(found) if len(found) <= TRIGGERS_MAX else ""


def _named(text: str) -> Iterator[str]:
    """Yield an entry for each command, file and tool that a text names; those in code spans come first."""
    for span in _SPAN.findall(text):
        for piece in _PIECES.split(span):
            yield from _in_code(piece.strip())
    words = [word.rstrip(".-") for word in _WORD.findall(_SPAN.sub(" @ ", text) if "`" in text else text)]
    if _PROGRAMS.isdisjoint(words) and not any("." in word or "_" in word or word in _SINGLE for word in words):
        return  # as most: this is asked of every lesson that comes in
    for word, following in pairwise([*words, ""]):
        if f"{word} {following}" in _COMMANDS:
            yield f"Bash:{word} {following}*"
        elif word in _ALONE:
            yield f"Bash:{word}*"
        elif _TOOL.fullmatch(word):
            yield word
        elif path := _file(word, _ENDING):
            yield path


def _in_code(span: str) -> Iterator[str]:
    words = span.removeprefix("$ ").split()[:_WORDS_MAX]
    while words and (words[0] == "sudo" or ("=" in words[0] and words[0].partition("=")[0].isidentifier())):
        words = words[1:]
    if not words:
        return
    if len(words) == 1 and _TOOL.fullmatch(words[0]):
        yield words[0]
    elif len(words) == 1 and (path := _file(words[0], _ANY_ENDING)):
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


def _file(word: str, ending: re.Pattern[str]) -> str:
    """Return the entry of a file, "" for what is no path, or might as well be something else."""
    word = word.removeprefix("./")
    if word.rpartition("/")[2] in _NAMED:
        return f"Edit:{word.lstrip('/')}"
    found = _PATH.fullmatch(word)
    if found is None or _NO_FILES.fullmatch(word) or not ending.fullmatch(found["ending"]):
        return ""
    path = found["path"].removeprefix("**/")
    return f"Edit:{path}" if path.count("*") <= 2 and ".." not in path else ""


def _escaped(word: str) -> str:
    return word.replace("[", "[[]")
