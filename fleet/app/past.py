"""Lessons from past sessions: what people refused and corrected there, and what failed until something mended it.

With ``[hook] auto_memory`` also what the host's own memory of the project keeps as feedback.

A proposal is what somebody said, or what a command said, in one line; nothing here words a lesson anew, and nothing is
logged that was not accepted. They are ranked: what lays down how something is done comes before what only asks.
"""

import os
import re
from collections.abc import Iterable, Iterator, Sequence
from hashlib import blake2b
from pathlib import Path
from typing import NamedTuple

from fleet.app import learning
from fleet.app.learning import Correction, Logged
from fleet.hosts import transcripts
from fleet.hosts.transcripts import Event
from fleet.model.errors import UsageError
from fleet.model.names import normalise
from fleet.store.workspace import Workspace
from fleet.text import dates, screening, shell
from fleet.text.prompts import is_typed
from fleet.text.signals import PRAISE, detect

_TEXT_CHARS_MAX = 300
_ABOUT_CHARS_MAX = 160
_ERROR_WORDS_MIN = 4
_WORDS_MIN, _WORDS_MAX = 5, 50
_MEMORY_BYTES_MAX = 64 * 1024
_WORTH = {"rejection": 3, "interruption": 1, "strong": 3, "medium": 1, "failure": 2, "memory": 6}
_RULES = re.compile(
    r"\b(?:never|always|should|must|instead|rather|don'?t|do not|doesn'?t|not|only|no longer|we (?:use|have|need|want)|"
    r"i want|has to|have to|make sure|wrong|incorrect|without|before)\b|不|应该|nicht|sollte|muss",
    re.IGNORECASE,
)
_ASKS = re.compile(
    r"(?:(?:and|but|so|hmm+|wondering now|ok|ah|wait|please|also)\W+)*(?:what|why|how|can|could|do|does|did|is|are|any|"
    r"where|which|who|when|would|should we|should i|given|let'?s|explain|show|tell|i mean|maybe)\b",
    re.IGNORECASE,
)


_ORDERS = re.compile(r"(?:(?:no|please)\W+)*(?:don'?t|do not|never|always|use|prefer|keep|avoid|only)\b", re.IGNORECASE)
_REPORTS = re.compile(
    r"(?:(?:ah|ok|hmm+|but)\W+)*(?:i(?:'ve| have)? (?:just|actually|got|did|now|messed|see)|lol|still|this is still)\b",
    re.IGNORECASE,
)
_PASTES = re.compile(r"```|\d+ [+-]|https?://|\w{8}-\w{4}-\w{4}")


class Proposal(NamedTuple):
    """A lesson that a past session may teach.

    Attributes:
        id: ``t-`` and 8 hex, the same whenever the session is read.
        kind: rejection, interruption, correction, failure or memory.
        text: of the lesson, in the words of who said it.
        wrong: what was refused, done or failing.
        session: the host's id of it.
        at: when.
        times: how often it happened.
        worth: by which it is ranked.
    """

    id: str
    kind: str
    text: str
    wrong: str
    session: str
    at: str
    times: int
    worth: int


class Past(NamedTuple):
    """Proposals from past sessions, best first, with the number of sessions, and what could not be read."""

    proposals: list[Proposal]
    sessions: int
    troubles: list[str]


def proposals(workspace: Workspace, agent: str, paths: Sequence[Path], days: float) -> Past:
    """Return what the host's past sessions of this project propose and was not accepted yet.

    Args:
        workspace: of the project.
        agent: whose log tells what was accepted.
        paths: transcripts, or folders of them; none: those that the host keeps of this project.
        days: how far back.
    """
    root = os.fspath(workspace.root)
    home = os.environ.get("CLAUDE_CONFIG_DIR") or os.fspath(Path.home() / ".claude")
    folders = [Path(each) for each in transcripts.folders(root, home)]
    files = [
        file for path in (paths or folders) for file in ([path] if path.is_file() else sorted(path.glob("*.jsonl")))
    ]
    since_ms = workspace.world.wall_ms() - days * 86_400_000
    sessions: list[tuple[str, list[Event]]] = []
    troubles: list[str] = []
    for file in files:
        part = transcripts.read(os.fspath(file))
        if part.trouble:
            troubles.append(f"{file.name} {part.trouble}")
        if paths or transcripts.is_below(part.data, root):
            found = [each for each in transcripts.events(part.data) if (dates.to_ms(each.at) or 0) >= since_ms]
            if found:
                sessions.append((file.stem, found))
    logged = workspace.files.read(workspace.home(agent) / "corrections.md")
    kept = [each for folder in folders for each in _remembered(folder / "memory")]
    ranked = [*(kept if workspace.config.hook.auto_memory else ()), *propose(sessions)]
    return Past([each for each in ranked if each.id.encode() not in logged], len(sessions), troubles)


def _remembered(folder: Path) -> Iterator[Proposal]:
    """Yield what the client's own memory keeps as feedback: a file a fact, its kind and what it is in its head."""
    for path in sorted(folder.glob("*.md")) if not folder.is_symlink() else ():
        if path.is_symlink() or not path.is_file():
            continue
        with path.open("rb") as file:
            page = file.read(_MEMORY_BYTES_MAX).decode("utf-8", "replace")
        _, _, rest = page.partition("---\n")
        head, _, body = rest.partition("\n---")
        fields = {
            key.strip(): value.strip(" \"'") for key, _, value in (row.partition(":") for row in head.splitlines())
        }
        said = fields.get("description") or next((row for row in body.splitlines() if row.strip()), "")
        if page.startswith("---\n") and fields.get("type") == "feedback" and said:
            yield _proposal("", "memory", said, fields.get("name", path.stem), "", _WORTH["memory"])


def propose(sessions: Iterable[tuple[str, Iterable[Event]]]) -> list[Proposal]:
    """Return what sessions propose, best first; of what was said alike in several, one, with how often."""
    found: dict[str, Proposal] = {}
    for session, told in sessions:
        events = list(told)
        for each in (*_objected(session, events), *_failed(session, events)):
            key = normalise(each.text)
            known = found.get(key)
            if known is None:
                found[key] = each
            elif known.session != each.session:
                found[key] = known._replace(times=known.times + each.times, worth=known.worth + 1)
    return sorted(found.values(), key=lambda each: (-each.worth, each.at, each.id))


def _objected(session: str, events: list[Event]) -> Iterator[Proposal]:
    objections, _ = transcripts.objections(events)
    for each in objections:
        about = " ".join(filter(None, ["refused" if each.kind == "rejection" else "stopped", each.tool, each.about]))
        yield _proposal(session, each.kind, each.words, about, each.at, _WORTH[each.kind])
    told = {each.words for each in objections}
    last = ""
    for event in events:
        if event.kind == "call":
            last = f"{event.tool} {event.about}"
        elif event.kind == "prompt" and event.text.strip() not in told and is_typed(event.text):
            told.add(event.text.strip())
            signal = detect(event.text)
            if signal is not None and signal.kind != PRAISE:
                said = event.text if len(event.text) <= _TEXT_CHARS_MAX else signal.excerpt
                yield _proposal(session, "correction", said, f"after {last}", event.at, _WORTH[signal.confidence])


def _failed(session: str, events: list[Event]) -> Iterator[Proposal]:
    """Yield the builds that failed alike more than once, with what was done before they passed."""
    calls: dict[str, Event] = {}
    red: dict[str, dict[str, list[str]]] = {}
    last = ""
    for event in events:
        if event.kind == "call":
            calls[event.id] = event
            if event.tool != "Bash":
                last = f"{event.tool} {event.about}" if event.tool in ("Edit", "Write", "MultiEdit") else last
        call = calls.get(event.id)
        if event.kind != "result" or call is None or call.tool != "Bash":
            continue
        family = shell.family(call.about)
        is_ok = shell.outcome(call.about, event.text, is_error=not event.is_ok)
        if not shell.is_build(call.about):
            last = f"`{call.about}`" if is_ok and not shell.only_looks(call.about) else last
        elif is_ok is False:
            line = shell.error_line(event.text)
            red.setdefault(family, {}).setdefault(shell.error_fingerprint(event.text), []).append(line)
        elif is_ok:
            for lines in red.pop(family, {}).values():
                if len(lines) > 1 and len(re.findall(r"[A-Za-z]{2,}", lines[-1])) >= _ERROR_WORDS_MIN and last:
                    text = f"`{family}` fails with: {lines[-1]} — it passed after {last}"
                    yield _proposal(
                        session, "failure", text, f"{call.about}: {lines[-1]}", event.at, _WORTH["failure"], len(lines)
                    )


def _proposal(session: str, kind: str, said: str, about: str, at: str, worth: int, times: int = 1) -> Proposal:
    text, wrong = _line(said, _TEXT_CHARS_MAX), _line(about, _ABOUT_CHARS_MAX)
    words = len(text.split())
    if kind not in ("failure", "memory"):
        asks = text.endswith(("?", "？")) or _ASKS.match(text) is not None
        worth += 2 * (_RULES.search(text) is not None) + 2 * (_ORDERS.match(text) is not None) - 4 * asks
        worth -= 2 * (_REPORTS.match(text) is not None) + 2 * (_PASTES.search(text) is not None)
        worth -= 2 * (words < _WORDS_MIN) + (words > _WORDS_MAX)
    name = blake2b(f"{session}\0{kind}\0{normalise(text)}".encode("utf-8", "surrogatepass"), digest_size=4).hexdigest()
    return Proposal(f"t-{name}", kind, text, wrong, session, at, times, worth)


def _line(said: str, chars_max: int) -> str:
    clean = screening.one_line(screening.screen(said[: 8 * chars_max], home=str(Path.home())).text)
    return clean if len(clean) <= chars_max else f"{clean[: chars_max - 1].rstrip()}…"


def chosen(found: Sequence[Proposal], wanted: str) -> list[Proposal]:
    """Return the proposals that are named: by numbers from 1 or ids, with commas between, or all.

    Raises:
        UsageError: a word that names none.
    """
    if wanted.strip() == "all":
        return list(found)
    by_name = {str(number): each for number, each in enumerate(found, 1)} | {each.id: each for each in found}
    words = [word.strip() for word in wanted.split(",") if word.strip()]
    if unknown := next((word for word in words if word not in by_name), ""):
        raise UsageError(
            f"{unknown[:40]!r} is no proposal; nothing was logged. Name numbers or ids of the table, or all"
        )
    return list({by_name[word].id: by_name[word] for word in words}.values())


def accept(workspace: Workspace, agent: str, each: Proposal) -> Logged:
    """Log a proposal as a correction of its own session."""
    told = Correction(each.wrong, each.text, each.text, source=f"past session, {each.kind} {each.id}")
    return learning.correct(workspace, agent, told, session=each.session)
