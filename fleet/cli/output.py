"""Common parts of all commands: workspace and agent, common options, and output that is safe to print."""

import difflib
import json
import os
import re
import shutil
import sys
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import contextmanager, suppress
from functools import lru_cache
from pathlib import Path
from sqlite3 import Error
from typing import Annotated, Any, TextIO
from unicodedata import category, east_asian_width

import msgspec
import typer

from crdt import clock
from fleet.model import names
from fleet.model.errors import FleetError, NoError, UsageError
from fleet.store.homes import CONFIG, is_root, root_around
from fleet.store.runs import Runs
from fleet.store.workspace import Workspace, check_version
from fleet.text import screening
from fleet.text.screening import counted, listed

COMPLETING = "_FLEET_COMPLETE"
"""The environment variable with which a shell's completion script asks ``fleet`` itself."""

STYLES = {"bold": "1", "dim": "2", "red": "31", "green": "32", "yellow": "33"}
Part = tuple[str, str]
"""A text and its style: a name in ``STYLES``, or ""."""
Row = tuple[Part, ...]
WIDTH_MAX = 120
_ROOM_MIN = 20
_WIDE = "\u1100-\u115f\u2e80-\ua4cf\uac00-\ud7a3\uf900-\ufaff\ufe30-\ufe6f\uff01-\uff60\U0001f300-\U0003fffd"
_OPENING = "(\\[（［｛〈《「『【〔“‘"
_COMMAND = rf"[^\s`{_WIDE}]*`[^`\n{_WIDE}]{{1,40}}`[^\s{_WIDE}]*"
_WORDS = rf"(\s*)([{_OPENING}]*[{_WIDE}][^\s\w{_OPENING}]*|{_COMMAND}|[^\s{_WIDE}]+)"
"""A word with the blanks before it, a short command in backquotes as one; each wide letter, since those stand without
blanks, with its punctuation."""

_TIME_CHARS = 24
"""Length of the time in a stamp: what follows is ``-`` and the counter."""

EXIT_NO = 1
EXIT_REFUSED = 3

# --- completion in a shell --------------------------------------------------------------------------------------------

Offer = tuple[str, str]
"""A word that completes a value, and its description, which some shells show."""
Complete = Callable[[str], list[Offer]]
_Offers = str | Iterable[str] | Callable[..., Iterable[str] | list[Offer]]
"""Source of the words that complete a value: a key of ``COMPLETE``, the words themselves, or a function."""

_OFFERED_MAX = 100
# A shell's completion script evaluates what it is offered, and a peer may have written it. zsh expands `$(...)` between
# double quotes; bash puts the word on the line as it is; brackets are markup for typer.
_PLAIN_WORD = r"[\w.@%+,/:-]+"
_PLAIN_TEXT = str.maketrans("'\"[]", "’”()", "\\$`")


def completing(ask: Callable[[Workspace, str], Iterable[Offer]]) -> Complete:
    """Return a function for a shell's completion. It never fails or prints, and offers nothing that a shell runs."""

    def complete(incomplete: str) -> list[Offer]:
        try:
            with opened() as workspace:
                offers = [offer for offer in ask(workspace, incomplete) if offer[0].startswith(incomplete)]
                workspace.warnings.clear()
                return [_inert(offer) for offer in offers if re.fullmatch(_PLAIN_WORD, offer[0])][:_OFFERED_MAX]
        except (FleetError, OSError, Error):  # a message would stand in the middle of the line that is being typed
            return []

    return complete


def _inert(offer: Offer) -> Offer:
    """Return an offer with its text on one line, without what a shell expands and what ends a quotation."""
    return offer[0], screening.one_line(cleaned(offer[1])).translate(_PLAIN_TEXT)


def _offer_lessons(workspace: Workspace, beginning: str) -> Iterable[Offer]:
    """Return lessons; retired ones only where the beginning of an id was typed."""
    lessons, is_named = workspace.patterns, len(beginning) > len("p-")
    ids = lessons.beginning(beginning)[:_OFFERED_MAX] if is_named else []
    offered = lessons.some(ids) if is_named else lessons.best("sight", _OFFERED_MAX)
    return [(each.id, each.text) for each in offered]


def _offer_ids(workspace: Workspace, beginning: str) -> Iterable[Offer]:
    entries = workspace.discoveries.newest(_OFFERED_MAX)[::-1]
    return [*_offer_lessons(workspace, beginning), *((each.id, each.problem) for each in entries)]


def _offer_tags(workspace: Workspace, _: str) -> Iterable[Offer]:
    tags = [tag for each in workspace.patterns.best("sight", _OFFERED_MAX) for tag in each.tags]
    return _sorted(*tags, *(tag for each in workspace.discoveries.newest(_OFFERED_MAX) for tag in each.tags))


def _sorted(*words: str) -> list[Offer]:
    return [(each, "") for each in sorted({*words} - {""})]


COMPLETE = {
    "lesson": completing(_offer_lessons),
    "retired": completing(lambda on, _: [(each.id, each.text) for each in on.patterns.retired(_OFFERED_MAX)]),
    "id": completing(_offer_ids),
    "agent": completing(lambda on, _: _sorted(*on.agents_here(), *map(names.agent_of, on.db.newest_by()))),
    "category": completing(lambda on, _: _sorted(*(each.category for each in on.patterns.best("sight", _OFFERED_MAX)))),
    "tag": completing(_offer_tags),
}
"""Completions of arguments and of the values of options, by the kind of the value."""


# --- options ----------------------------------------------------------------------------------------------------------


def option(name: str, metavar: str, what: str, offers: _Offers = (), **more: Any) -> Any:
    """Return an option of a command that takes a value; ``more``: as typer has it."""
    return typer.Option(name, metavar=metavar, help=what, **_completion(offers), **more)


def flag(*names_and_what: str) -> Any:
    """Return an option of a command that takes no value, from its names and, last, its help."""
    *names, what = names_and_what
    return typer.Option(*names, help=what)


def argument(metavar: str, what: str, offers: _Offers = (), **more: Any) -> Any:
    """Return an argument of a command; ``more``: as typer has it."""
    return typer.Argument(metavar=metavar, help=what, **_completion(offers), **more)


def _completion(offers: _Offers) -> dict[str, Any]:
    if isinstance(offers, str):
        return {"autocompletion": COMPLETE[offers]}
    if callable(offers):
        return {"autocompletion": offers}
    return {"autocompletion": lambda: [*offers]} if offers else {}


DryRun = Annotated[bool, flag("--dry-run", "Show what would change; change nothing.")]
Yes = Annotated[bool, flag("--yes", "-y", "Do not ask.")]
Confirmed = Annotated[bool, flag("--yes", "-y", "Confirm a remote that was guessed.")]

_UNSAFE_IN_JSON = "[\x7f-\x9f\u200e\u200f\u2028-\u202e\u2066-\u2069\ud800-\udfff\U000e0000-\U000e0fff]"


class NoWorkspaceError(NoError):
    """No workspace was named, and there is none around."""


class _Chosen(msgspec.Struct):
    """Options that all commands share, before the command or, with precedence, behind it; and the answer's state."""

    directory: str = ""
    agent: str = ""
    session: str = ""
    as_json: bool = False
    """The answer is one JSON document instead of text."""
    owes_json: bool = False
    """One JSON document was asked for, and is not printed yet."""
    has_changed: bool = False
    """The command changed something here."""
    has_written: bool = False
    """The command wrote something durable, which may be a part of what it was to do."""
    unwritten: str = ""
    """Why the answer cannot be written, as on a full disk; the command goes on to its end all the same."""

    def put(self, *rows: str) -> None:
        """Print rows to stdout; without rows, flush it."""
        try:
            print(*rows, sep="\n") if rows else sys.stdout.flush()
        except OSError as why:
            os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
            if isinstance(why, BrokenPipeError):  # as in `fleet patterns | head`, which is no error
                raise typer.Exit from why
            self.unwritten = why.strerror or str(why)

    def root(self) -> Path:
        """Return the workspace's root: ``--dir``, else ``FLEET_DIR``, else the one around the folder that we are in.

        Raises:
            NoError: there is none.
        """
        if root := self.root_named():
            if not is_root(str(root)):
                raise NoError(f"{root} is no fleet workspace: it has no {CONFIG}. Run `fleet init` there")
            return root
        start = Path.cwd()
        if found := root_around(str(start)):
            return Path(found)
        if linked := next((each for each in (start, *start.parents) if (each / ".fleet").is_symlink()), None):
            raise NoError(f"{linked}/.fleet is a link, and none is followed. Nothing is lost: put the folder there")
        raise NoWorkspaceError(f"there is no {CONFIG} in {start} or above. Run `fleet init` in your project's folder")

    def root_to_be(self) -> Path:
        """Return the folder in which a command would make a workspace: a named one, the one around, or this one."""
        return self.root_named() or Path(root_around(str(Path.cwd())) or Path.cwd())

    def root_named(self) -> Path | None:
        """Return the workspace that ``--dir`` or ``FLEET_DIR`` names, None for neither."""
        named = self.directory or os.environ.get("FLEET_DIR", "")
        return Path(os.path.expanduser(named)).absolute() if named else None  # noqa: PTH111 - `~nosuchuser` raises in pathlib

    def agent_named(self) -> str:
        """Return the agent that the command or the environment names, "" if neither does."""
        return self.agent or os.environ.get("FLEET_AGENT", "")

    def session_named(self) -> str:
        """Return the session that was named: ``--session``, else ``FLEET_SESSION``, else Claude Code's own variable."""
        variables = (os.environ.get(name, "") for name in ("FLEET_SESSION", "CLAUDE_CODE_SESSION_ID"))
        named = self.session or next(filter(None, variables), "")
        return named.encode(errors="replace").decode()  # bytes that are no UTF-8 arrive as lone surrogates

    def painted(self, text: str, style: str) -> str:
        """Return a text in one of ``STYLES`` if the terminal shows colours and ``NO_COLOR`` is not set."""
        has_colours = sys.stdout.isatty() and not os.environ.get("NO_COLOR") and os.environ.get("TERM", "") != "dumb"
        code = STYLES.get(style, "") if text.strip() and has_colours else ""
        return f"\x1b[{code}m{text}\x1b[0m" if code else text

    def note_given(self, command: str, began: str) -> None:
        """Note a command that leaves no run, so that a bare ``fleet undo`` does not take back an earlier one instead.

        The commands of a schedule (``FLEET_SCHEDULED=1``) are not noted. ``began``: the stamp of its start.
        """
        self.has_changed = True
        if os.environ.get("FLEET_SCHEDULED") == "1":
            return
        with suppress(FleetError, OSError):  # the command is done, and a missing note is no reason to fail
            workspace = Workspace(self.root())
            Runs(workspace).note_unrecorded(command, began, self.agent_named())
            workspace.close()


chosen = _Chosen()


def commands() -> typer.Typer:
    """Return an empty set of commands for a module of this folder."""
    return typer.Typer(rich_markup_mode=None, add_completion=False)


@contextmanager
def opened(*, of_any_version: bool = False) -> Iterator[Workspace]:
    """Open the workspace for one command; afterwards print its reports and warnings.

    Raises:
        NoError: there is none here, or it is of another version and ``of_any_version`` is not set.
    """
    root = chosen.root()
    if not of_any_version:
        check_version(root)
    workspace = Workspace(root)
    try:
        if workspace.files_in_old_homes():
            from fleet.learn import restore

            restore.bring(workspace)
        yield workspace
    finally:
        for message in (*workspace.reports, *(f"warning: {each}" for each in workspace.warnings)):
            note(message)
        chosen.has_changed |= workspace.has_changed
        chosen.has_written = workspace.files.written > 0
        workspace.close()


@contextmanager
def acting(*, or_guest: bool = False, is_old: bool = False) -> Iterator[tuple[Workspace, str]]:
    """Open the workspace for one command of an agent; yield it, and the agent that ``agent_in`` returns."""
    with opened() as workspace:
        yield workspace, agent_in(workspace, or_guest=or_guest, is_old=is_old)


def agent_in(workspace: Workspace, *, or_guest: bool = False, is_old: bool = False) -> str:
    """Return the agent to act as: ``--agent``, else ``FLEET_AGENT``, else the stored one, else a guest if it may.

    A new name that is spelt like one that is known here is asked about; where nobody can be asked, a note names both,
    so that nothing that is logged is lost.

    ``is_old``: a name that was typed must be one that is known here; raises ``NoError`` for another one.
    """
    named = chosen.agent_named()
    who = workspace.agent(named, or_guest=or_guest)
    known_agents = workspace.agents_here()
    is_known = not named or who in known_agents or workspace.home(who).exists()
    if is_old and chosen.agent and not is_known:
        raise NoError(f"there is no agent {who} here, but {listed(known_agents) or 'none yet'}. Nothing was changed")
    similar = "" if is_known else next(iter(difflib.get_close_matches(who, known_agents, n=1, cutoff=0.8)), "")
    if similar and sys.stdin.isatty():
        confirm(f"{who} is no member here. Make it one? ({similar} is: did you mean that?)", yes=False)
    elif similar:
        note(f"{who} is new here, and {similar} is not: if that was meant, pass `--agent {similar}` from now on")
    return who


def echo(text: str, *, as_is: bool = False) -> None:
    """Print a text to stdout, cleaned; to stderr where one JSON document is still to come on stdout.

    ``as_is``: the text is meant to be copied, so that its lines are not wrapped on a terminal.
    """
    if chosen.owes_json:
        note(text)
    else:
        chosen.put(cleaned(text) if as_is else _fitted(cleaned(text), sys.stdout))


def _fitted(text: str, stream: TextIO) -> str:
    """Return a text with its lines wrapped at words into the terminal; as it is for a pipe."""
    if not stream.isatty():
        return text
    width = shutil.get_terminal_size().columns
    return "\n".join(_wrapped(line, width, len(line) - len(line.lstrip(" ")) + 2) for line in text.split("\n"))


def _wrapped(line: str, width: int, hang: int = 0) -> str:
    """Return a line in rows of at most ``width`` columns, broken at blanks and between wide letters."""
    if _columns(line) <= width:
        return line
    rows = [""]
    for blanks, word in re.findall(_WORDS, line):
        if rows[-1].strip() and _columns(rows[-1] + blanks + word) > width:
            rows.append(" " * hang + word)
        else:
            rows[-1] += blanks + word
    return "\n".join(rows)


def _columns(text: str) -> int:
    """Return how many columns of a terminal a text takes: a wide letter two, a mark above or below another none."""
    if text.isascii():
        return len(text)
    return sum(1 + (east_asian_width(each) in "WF") - (category(each) in ("Mn", "Me")) for each in text)


def echo_row(*parts: Part, is_own: bool = False) -> None:
    """Print a row of texts with their styles, cleaned. ``is_own``: it is from a page of fleet's own, and printed as is.

    On a terminal the last text is wrapped into a column of its own, and styles are colours; into a pipe a row is one
    plain line.
    """
    shown = [(text if is_own else cleaned(text), style) for text, style in parts]
    (last, style), hang = shown[-1], sum(_columns(text) for text, _ in shown[:-1])
    if sys.stdout.isatty() and (room := shutil.get_terminal_size().columns - hang) >= _ROOM_MIN:
        shown[-1] = (_wrapped(last, room).replace("\n", f"\n{' ' * hang}"), style)
    chosen.put("".join(chosen.painted(text, style) for text, style in shown))


def headline(line: str) -> Row:
    """Return a line of a listing as a row: bold, unless it is indented below another one."""
    return ((line, "" if line.startswith(" ") else "bold"),)


def note(text: str) -> None:
    """Print to stderr, safe for a terminal, without secrets."""
    with suppress(OSError):  # the command goes on
        text = screening.for_terminal(screening.inert(screening.redact(text)))
        print(_fitted(f"fleet: {text}", sys.stderr), file=sys.stderr)


def hint(text: str) -> None:
    """Print a note to whoever reads text; a reader of JSON has the same in the document."""
    if not chosen.as_json:
        note(text)


def show(document: Any, rows: str | Iterable[str | Row] = ()) -> None:
    """Print one answer in the form that was asked for: the JSON document, or the text or its rows."""
    if chosen.as_json:
        echo_json(document)
        return
    for row in [rows] if isinstance(rows, str) else rows:
        if isinstance(row, str):
            echo(row)
        else:
            echo_row(*row)


def note_secrets(kinds: tuple[str, ...]) -> None:
    """Print a note that names the kinds of secrets that were taken out of what was given, if any were."""
    if kinds:
        note(f"a secret was taken out ({', '.join(kinds)}); if it was a real one, rotate it")


def echo_json(document: Any) -> None:
    """Print one JSON document, cleaned."""
    chosen.owes_json = False
    chosen.put(as_json(document))


def as_json(value: Any) -> str:
    """Return a value, cleaned, as one line of JSON that is safe on a terminal."""
    text = json.dumps(_timed(cleaned(value)), ensure_ascii=False, separators=(",", ":"))
    return re.sub(_UNSAFE_IN_JSON, lambda char: json.dumps(char[0])[1:-1], text)


def _timed(value: Any) -> Any:
    """Return a value with each stamp as a time of RFC 3339, and its logical counter, where it has one, beside it."""
    if isinstance(value, str):
        return value[:_TIME_CHARS] if clock.is_stamp(value) else value
    if isinstance(value, Mapping):
        counters = {
            f"{key}_counter": int(stamp[_TIME_CHARS + 1 :], 16)
            for key, stamp in value.items()
            if isinstance(stamp, str) and clock.is_stamp(stamp) and not stamp.endswith("-0000")
        }
        # The columns of an exported record stay as they are: they can be joined again, and a time is no stamp there.
        return {key: each if key == "w" else _timed(each) for key, each in value.items()} | counters
    return [_timed(each) for each in value] if isinstance(value, list | tuple) else value


def cleaned(value: Any) -> Any:
    """Return a value with every text in it without secrets, and safe for a terminal and for a model that reads it.

    Whatever is printed goes through here: others may have written anything.
    """
    if isinstance(value, str):
        return _cleaned(value)
    if isinstance(value, bytes):  # a line that the gate let pass, which has screened each text in it
        return screening.inert(value.decode("utf-8", "backslashreplace"))
    if isinstance(value, Mapping):
        return {cleaned(key): cleaned(each) for key, each in value.items()}
    return [cleaned(each) for each in value] if isinstance(value, list | tuple) else value


@lru_cache(maxsize=256)  # names of fields, agents and kinds stand in every row of a long list
def _cleaned(text: str) -> str:
    return screening.inert(screening.screen(text).text)


def pending_decisions(inbox: Mapping[str, Any]) -> str:
    """Return how many decisions wait for a person, since when, and of which kinds."""
    kinds = ", ".join(counted(number, kind) for kind, number in inbox["kinds"].items())
    return f"{counted(inbox['number'], 'decision')} since {inbox['since']} ({kinds}): fleet inbox"


def when(stamp: str) -> str:
    """Return a stamp as a person reads it, to the minute; "" for none."""
    return f"{stamp[:16].replace('T', ' ')}Z" if stamp else ""


def confirm(question: str, *, yes: bool) -> None:
    """Ask a person before what cannot be undone, unless ``--yes`` was given; raise ``UsageError`` without a yes."""
    if is_agreed(question, yes=yes):
        return
    if can_ask():
        raise UsageError("nothing was changed")
    raise UsageError(f"{question} No terminal to ask on, so nothing was changed. Pass --yes if you are sure")


def is_agreed(question: str, *, yes: bool = False, default: bool = False) -> bool:
    """Ask a person, unless ``--yes`` was given; without a terminal to ask on, return ``default``."""
    if yes or not can_ask():
        return yes or default
    return typer.confirm(cleaned(question), default=default)


def can_ask() -> bool:
    """Return whether a person is there to answer a question."""
    return sys.stdin.isatty() and not chosen.owes_json


@contextmanager
def progress(what: str, total: int | None = None) -> Iterator[Callable[[str], None]]:
    """Draw a spinner, or a bar of ``total`` steps, on stderr while the block runs; on a terminal only.

    The block calls the step with each thing that it works on, and asks nothing: the bar would paint over a question.
    """
    if not sys.stderr.isatty() or os.environ.get("TERM", "") == "dumb":
        yield lambda _: None
        return
    from rich.console import Console
    from rich.progress import Progress

    with Progress(console=Console(stderr=True), transient=True) as bar:
        task = bar.add_task(what, total=total)
        yield lambda name: bar.update(task, advance=1, description=f"{what} {name[:40]}")
