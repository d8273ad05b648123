"""Signals: entries of ``corrections.md`` whose pattern is still to be inferred, durable before the next reply.

An objection or a failed command is logged at once, but does not count until its lesson is stated
(``Corrections.state``). A hook does this while its host waits, so nothing here opens a database.

A comment is written after each entry, in the same write: ``<!-- fleet flagged c-<16 hex> at=... kind=... session=...
key=... -->``. By it, repetitions are recognised, and the session that has yet to state the lesson. ``key`` is a hash of
the normalised words, or for a failed command of its family and normalised error, without the time.
"""

from __future__ import annotations

import os
import re
from collections import defaultdict
from collections.abc import Callable, Iterable, Iterator
from contextlib import AbstractContextManager
from hashlib import blake2b
from pathlib import Path
from typing import Literal, NamedTuple

from crdt import clock
from fleet.learn import corrections_md
from fleet.learn.corrections_md import Correction, Draft, Entry, Log
from fleet.model import limits, names
from fleet.model.errors import UsageError
from fleet.store import homes
from fleet.store.files import Files
from fleet.text import dates, screening

Kind = Literal["human", "agent", "failure"]

_TAIL_BYTES = 256 * 1024  # of the log's end that is searched for a repeat: a hundred of the largest signals
_MOMENT_CHARS = 24  # of a stamp without its counter
_SOURCES: dict[Kind, str] = {"human": "a person", "agent": "another agent", "failure": "a failed command"}
_MARK = (
    rb"<!-- fleet flagged (?P<id>c-[0-9a-f]{16}) at=(?P<at>\S{24}) kind=(?P<kind>[a-z]+) session=(?P<session>\S*?)"
    rb"(?: key=(?P<key>[0-9a-f]{12}))? -->"
)
_RECORD = rb"<!-- fleet (c-[0-9a-f]{16}) p-"
_DISMISSED = rb"<!-- fleet dismissed (c-[0-9a-f]{16}) "
_SHOWN_CHARS_MAX = 300
_REFUSED = re.compile(r"\n\((?:Refused|Stopped)\b[^\n]*\)\s*$")
"""Line after the words of a refusal that names the refused call."""


class Flag(NamedTuple):
    """A signal as it was detected, unscreened.

    Attributes:
        quote: the words of the objection, or what failed and how.
        title: one line; "" for the beginning of the quote.
        confidence: strong, medium or weak.
        signal_class: correction, frustration, knowledge, failure, ...
        agent: the agent that objected, if the kind is ``agent``.
        sameness: text by which repetitions are recognised; "" for the quote.
        trigger: trigger of the lesson: the command that was refused, or failed.
    """

    kind: Kind
    quote: str
    title: str = ""
    confidence: str = "strong"
    signal_class: str = "correction"
    agent: str = ""
    sameness: str = ""
    trigger: str = ""

    @classmethod
    def of_failure(cls, command: str, exit_code: int | None, last_lines: str, sameness: str = "") -> Flag:
        """Return the signal of a failed command: the command, how it ended, and the last lines of its output."""
        shown = _capped(command, limits.SIGNAL_COMMAND_CHARS_MAX)
        ended = "failed" if exit_code is None else f"exit code {exit_code}"
        first = _first_line(shown, limits.SIGNAL_TITLE_CHARS_MAX - len(ended) - 2)
        head = f"{ended}: {shown}"
        lines = _last_lines(last_lines, limits.SIGNAL_QUOTE_CHARS_MAX - len(head) - 1)
        return cls(
            kind="failure",
            quote=f"{head}\n{lines}".strip(),
            title=f"{first}: {ended}",
            signal_class="failure",
            sameness=sameness,
        )


class _SignalResult(NamedTuple):
    """Id of a signal's entry. If the signal is not new, it is that of the entry it repeats, and nothing was written."""

    id: str
    is_new: bool


class Waiting(NamedTuple):
    """An entry whose lesson is still to be stated.

    ``is_failure``: it is of a failed command, about which only its session is asked. ``is_dismissed``: nobody is asked.
    """

    id: str
    title: str
    when: str
    wrong: str
    is_failure: bool = False
    is_dismissed: bool = False

    @property
    def at(self) -> str:
        """Its time as a stamp; "" if that is unreadable."""
        ms = dates.to_ms(self.when)
        return "" if ms is None else clock.pack(ms)

    def shown(self) -> str:
        """Return the person's words as one line if the title is a part of them, else the title.

        The words after the title mostly say what should be done. Of a long message, those before the title are cut.
        """
        title, words = screening.one_line(self.title).removesuffix("…"), re.sub(_REFUSED, "", self.wrong)
        words = screening.readable(words)
        begin = words.find(screening.readable(title))
        if not title or begin < 0:
            return screening.readable(self.title)
        if begin + len(title) > _SHOWN_CHARS_MAX:
            words = f"…{words[begin:]}"
        return screening.shortened(words, _SHOWN_CHARS_MAX)


class _Mark(NamedTuple):
    id: str
    at: str
    kind: str
    session: str
    key: str

    def render(self) -> str:
        key = f" key={self.key}" if self.key else ""
        return f"<!-- fleet flagged {self.id} at={self.at} kind={self.kind} session={self.session}{key} -->\n"


class Signals:
    """Signals in an agent's log.

    ``wall``: returns the wall clock as a stamp.
    """

    def __init__(self, files: Files, agent: str, wall: Callable[[], str]) -> None:
        self._files, self._agent, self._wall = files, agent, wall
        self._path = files.root / files.homes / agent / corrections_md.FILE_NAME

    def flag(self, signal: Flag, *, session: str = "", wait_s: float = limits.LOCK_WAIT_S) -> _SignalResult:
        """Log one signal, durable before this returns. It counts for nothing until its lesson is stated.

        A signal of the same kind with the same words, or the same failure, in the same session is not written again as
        long as the lesson of the first one is not stated. After that, it is a new signal.

        Raises:
            UsageError: the workspace is read-only.
            BusyError: another process holds the lock; nothing was written.
            DiskError: it did not reach the disk.
        """
        if homes.Homes(self._files.root).is_read_only():
            raise UsageError(
                "this workspace is only read here, and no replica was lent to it: the signal was not logged"
            )
        title, wrong, source = _screen_flag(signal)
        word = corrections_md.session_word(session) if session else ""
        sameness = names.normalise(signal.sameness or _words(wrong)).encode("utf-8", "surrogatepass")
        identity = (str(signal.kind), word, blake2b(sameness, digest_size=6).hexdigest())
        with self._lock(wait_s):
            page = self._read()
            for mark in _marks(page[-_TAIL_BYTES:]):
                if (mark.kind, mark.session, mark.key) == identity and not _is_settled(page, mark.id):
                    return _SignalResult(mark.id, is_new=False)
            now = self._wall()[:_MOMENT_CHARS]
            when = f"{now[:10]} {now[11:16]}Z"
            class_ = f"{signal.signal_class} (confidence={signal.confidence})"
            trigger, label = _screen(signal.trigger), _label(signal.kind)
            correction = Correction(wrong, title=title, source=source, trigger=trigger)
            entry = self._log(page, Draft(correction, when, class_, label), _Mark("", now, *identity))
        return _SignalResult(entry, is_new=True)

    def ask_again(self, entry: str) -> str:
        """Log a copy of an entry whose lesson was stated and undone, so that another lesson can be stated for it.

        Return the id of the copy, new or not; "" if the entry itself has its lesson.
        """
        with self._lock():
            page = self._read()
            log = Log.parse(page)
            original = _counted_as(entry, log)
            if original is None or all(each.id != entry for each in log.statements):
                return ""
            if copy := self.copy_of(entry):
                return copy
            # Without its record no statement counts, so the entry is parsed as it was before its lesson was stated.
            unstated = Log.parse(page.replace(f"<!-- fleet {entry} p-".encode(), b"<!-- "))
            own = next(each for each in unstated.entries if each.line == original.line)
            mark = next((each for each in _marks(page) if each.id == entry), None)
            fields = {name: getattr(own, name) for name in Correction._fields if name != "pattern"}
            draft = Draft(Correction(**fields), own.when, own.signal, _label(mark.kind if mark is not None else ""))
            return self._log(page, draft, mark)

    def copy_of(self, entry: str) -> str:
        """Return the id of a counted entry's copy that is still without a lesson (``ask_again``); "" for none."""
        page = self._read()
        original = _counted_as(entry, log := Log.parse(page))
        for copy in log.entries if original is not None else ():
            is_open = copy.record is None and not copy.pattern and not _is_settled(page, copy.id)
            if is_open and original is not None and (copy.title, copy.wrong) == (original.title, original.wrong):
                return copy.id
        return ""

    def _log(self, page: bytes, draft: Draft, mark: _Mark | None) -> str:
        """Append an entry to the log, with its mark if there is one; return its id."""
        entry = draft.id_in(page)
        comment = mark._replace(id=entry).render() if mark is not None else ""
        self._files.append(self._path, f"{draft.appended_to(page, self._agent)}{comment}".encode())
        return entry

    def waiting(self, session: str = "", *, days: float = 0.0, everything: bool = False) -> list[Waiting]:
        """Return the entries whose lesson may be asked for, in file order.

        Left out are failed commands (only their own session is asked about them), dismissed entries, entries whose
        words are the lesson of another entry of the session, and entries without a field of this format. The log is not
        parsed if no entry of the session is without a lesson.

        ``session``: only entries that were flagged in this session; "" for any.
        ``days``: leave out older entries; 0 for no limit of age.
        ``everything``: return every entry without a lesson, of any kind and age.
        """
        page = self._read()
        marks = {mark.id: mark for mark in _marks(page)}
        if session:
            word = corrections_md.session_word(session)
            counted = {match[1].decode() for match in re.finditer(_RECORD, page)}
            marks = {each: mark for each, mark in marks.items() if mark.session == word and each not in counted}
            if not marks:
                return []
        dismissed = {match[1].decode() for match in re.finditer(_DISMISSED, page)}
        oldest_ms = clock.unpack(self._wall())[0] - days * 86_400_000 if days else 0
        log, waiting = Log.parse(page).entries, []
        counted_in = _by_session(log)
        for entry in log:
            mark = marks.get(entry.id)
            if entry.record is not None or entry.pattern or (session and mark is None):
                continue
            kind, when = (mark.kind, mark.at) if mark is not None else ("", entry.when)
            flagged_ms = dates.to_ms(when) if when else None
            is_over = (
                kind == "failure"
                or entry.id in dismissed
                or (mark is not None and any(_is_restated(entry, each) for each in counted_in[mark.session]))
                or (entry.is_bare and not entry.wrong)
                or (flagged_ms is not None and flagged_ms < oldest_ms)
            )
            if everything or not is_over:
                title = entry.title or _first_line(entry.wrong or entry.right)
                is_dismissed = entry.id in dismissed
                is_failure = kind == "failure" and not is_dismissed
                waiting.append(Waiting(entry.id, title, entry.when, entry.wrong, is_failure, is_dismissed))
        return waiting

    def heard(self) -> dict[str, set[str]]:
        """Return the normalised words of all entries by session, whether pending, stated or dismissed."""
        page, heard = self._read(), defaultdict[str, set[str]](set)
        marks = {mark.id: mark.session for mark in _marks(page)}
        for entry in Log.parse(page).entries:
            session = marks.get(entry.id) or (entry.record.session if entry.record is not None else "")
            heard[session] |= {*_wordings(entry), names.normalise(entry.pattern)} if session else set()
        return heard

    def dismiss(self, prefix: str) -> list[Waiting]:
        """Stop asking for the lesson of an entry, or with ``prefix`` "" of all that are pending; return them.

        Failed commands are among them. The lesson of each can still be stated.

        Raises:
            NoError: no id of a pending entry begins with the prefix, or several do.
            DiskError: it did not reach the disk.
        """
        id_prefix = prefix if prefix.startswith("c-") or not prefix else f"c-{prefix}"
        with self._lock():
            asked = {each.id for each in self.waiting()}
            candidates = self.waiting(everything=True)
            if not prefix:
                candidates = [each for each in candidates if each.is_failure or each.id in asked]
            chosen = [each for each in candidates if each.id.startswith(id_prefix)]
            if prefix:
                none = f"no correction without a lesson begins with {prefix[:40]!r}; nothing was changed"
                shown = {each.id: each.shown() for each in chosen}
                names.only(shown, prefix, f"{none}. `fleet learn --waiting --all` lists them")
            now = self._wall()[:_MOMENT_CHARS]
            page = self._read()
            new = [each for each in chosen if f"<!-- fleet dismissed {each.id} ".encode() not in page]
            marks = "".join(f"<!-- fleet dismissed {each.id} at={now} -->\n" for each in new)
            if marks:
                self._files.append(self._path, f"\n{marks}".encode())
        return chosen

    def origin(self, entry: str) -> tuple[str, int | None]:
        """Return session and time (ms since 1970) of a signal; "" and None if unknown."""
        mark = next((mark for mark in _marks(self._read()) if mark.id == entry), None)
        return (mark.session, dates.to_ms(mark.at)) if mark is not None else ("", None)

    def _lock(self, wait_s: float = limits.LOCK_WAIT_S) -> AbstractContextManager[None]:
        """Hold the lock of the log that every command takes; if its file is not writable, lock the log itself.

        So a signal can be logged from a sandbox in which ``.fleet`` is read-only.
        """
        lock = self._files.root / ".fleet" / "locks" / f"log-{self._agent}.lock"
        present = next(path for path in (lock, *lock.parents) if os.path.lexists(path))
        return self._files.lock(lock if os.access(present, os.W_OK) else self._path, wait_s)

    def _read(self) -> bytes:
        return self._files.page(self._path)


def _marks(data: bytes) -> Iterator[_Mark]:
    for match in re.finditer(_MARK, data):
        yield _Mark(*(part.decode("utf-8", "replace") for part in match.groups(b"")))


def _label(kind: str) -> str:
    return "User flagged" if kind in {"human", "agent"} else "What I got wrong"


def _counted_as(entry: str, log: Log) -> Entry | None:
    return next((each for each in log.entries if each.record is not None and each.record.id == entry), None)


def _is_settled(page: bytes, entry: str) -> bool:
    return f"<!-- fleet {entry} p-".encode() in page or f"<!-- fleet dismissed {entry} ".encode() in page


def _by_session(log: Iterable[Entry]) -> dict[str, list[Entry]]:
    """Return the counted entries by the session of the mistake, without those that have none."""
    by_session: dict[str, list[Entry]] = defaultdict(list)
    for entry in log:
        if entry.record is not None and entry.record.session:
            by_session[entry.record.session].append(entry)
    return by_session


def _is_restated(signal: Entry, counted: Entry) -> bool:
    """Return whether a counted entry has the words, or the title, of a signal as its lesson: it was logged again."""
    lesson = "" if counted.is_undone else names.normalise(counted.pattern)
    words, title = _wordings(signal)
    is_cut = counted.pattern.endswith("…") and words.startswith(lesson)
    return bool(lesson) and (is_cut or lesson in (words, title))


def _wordings(signal: Entry) -> tuple[str, str]:
    """Return the words of a signal, without the line on what was refused, and its title, both normalised."""
    return names.normalise(signal.wrong.rpartition("\n(")[0] or signal.wrong), names.normalise(signal.title)


def _words(text: str) -> str:
    """Return a text without punctuation around its words; ``--json``, ``.env`` and ``C#`` stay as they are."""
    words = (word.lstrip("\"'“‘(").rstrip(".,;:!?…\"'”’)") for word in text.split())
    return " ".join(word for word in words if word.strip("-–—"))


def _screen_flag(signal: Flag) -> tuple[str, str, str]:
    """Return title, quote and source, screened."""
    quote = _capped(signal.quote, limits.SIGNAL_QUOTE_CHARS_MAX)
    # The title is a part of the quote: a value that the quote's context shows to be a secret may stand alone in it.
    is_part = "[REDACTED:" in quote and signal.quote.lstrip().startswith(signal.title.strip())
    title = _capped("" if is_part else signal.title, limits.SIGNAL_TITLE_CHARS_MAX)
    kind = signal.agent if signal.kind == "agent" and names.is_agent(signal.agent) else _SOURCES[signal.kind]
    title = screening.one_line(title) or _first_line(quote) or "a signal without words"
    return title, quote, f"auto-detected ({kind})"


def _capped(text: str, chars_max: int) -> str:
    """Return a text screened, then cut with an ellipsis: in this order, since half of a secret is not recognised."""
    window = text[: limits.SIGNAL_WINDOW_CHARS]
    if len(window) < len(text):
        window = " ".join(window.rsplit(None, 1)[:-1]) or window  # its last word may be the half of a secret
    clean = "\n".join(line.rstrip() for line in _screen(window).split("\n")).strip()
    if len(clean) > chars_max or len(text) > len(window):
        clean = clean[: chars_max - 1].rstrip() + "…"
    return clean


def _screen(text: str) -> str:
    return screening.screen(text, home=str(Path.home())).text


def _last_lines(output: str, chars_max: int) -> str:
    """Return the last lines of a command's output, screened, as many as fit."""
    window = output[-limits.SIGNAL_WINDOW_CHARS :]
    earlier = output[-limits.SIGNAL_WINDOW_CHARS - screening.KEY_BLOCK_CHARS_MAX : -limits.SIGNAL_WINDOW_CHARS]
    if "PRIVATE KEY" in earlier:
        window = earlier + window  # a key is recognised by its beginning
    is_cut = len(window) < len(output)
    if is_cut:  # the first line or word lost its beginning, and so perhaps the beginning of a secret
        window = window.partition("\n")[2] or window.partition(" ")[2] or window
    # Of a progress bar, only the last state is kept.
    clean = _screen("\n".join(line.rstrip("\r").rpartition("\r")[2] for line in window.split("\n")))
    lines = [line.rstrip() for line in clean.split("\n") if line.strip()]
    kept: list[str] = []
    for line in reversed(lines[-limits.SIGNAL_LINES_MAX :]):
        short = _cut_line(line, is_torn=is_cut and len(lines) == 1)
        chars_max -= len(short) + 1
        if chars_max < 0:
            break
        kept.append(short)
    return "\n".join(reversed(kept))


def _cut_line(line: str, *, is_torn: bool) -> str:
    """Return a long line cut at its end; a torn one at its beginning, where half a secret might be."""
    room = limits.SIGNAL_LINE_CHARS_MAX
    return "…" + line[-(room - 1) :] if is_torn else screening.shortened(line, room)


def _first_line(text: str, chars_max: int = limits.SIGNAL_TITLE_CHARS_MAX) -> str:
    return screening.shortened(text.split("\n", 1)[0].strip(), chars_max)
