"""Digest of a session for a reflector: its transcript, screened, within a budget of tokens.

The first and the last tenth are whole; between them rows are chosen by their kind, the output of tools last. The digest
counts what it leaves out. Every row has the number of its line in the transcript. All of it is untrusted text: nothing
here acts on it, and host frames in it are made inert.

``Support`` checks the statements of a reflector against the session (docs/adr/0021). Their quotation must be part of
what a person typed, or of a failure that was fixed, and their own words must be closer to these than to a text that was
only read. They must name nothing that is in neither, and must not reverse what a person said.
"""

import re
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import NamedTuple

from fleet.reflect.reflection import FAILURE, PERSON, Lesson
from fleet.text import screening, shell
from fleet.text.advice import pattern
from fleet.text.prompts import Event, Prompt, is_letter
from fleet.text.similarity import CHARS_MAX, TURNS, ParsedText, is_stop

TOKENS_MAX = 24_000
_EDGE_SHARE = 0.1
_EDGE_BUDGET_SHARE = 0.3
"""Share of the budget for the first tenth, and for the last one."""
_HEAD_TOKENS = 120
_WHOLE_CHARS_MAX = 6_000
_RANKS = {
    "person": ("words of the person", 2_000),
    "refused": ("refusals", 2_000),
    "failed": ("failures", 800),
    "solved": ("calls that worked after a failure", 800),
    "concluded": ("conclusions of the agent", 800),
    "agent": ("other words of the agent", 800),
    "call": ("calls", 300),
    "host": ("messages of the host", 300),
    "output": ("outputs of tools", 400),
}
"""Kinds of rows, the most telling first: the plural name, and the characters kept of one."""


class Digest(NamedTuple):
    """Text for a reflector: rows of ``[line] who: what``, and a sentence about what did not fit, or ""."""

    text: str
    tokens: int
    left_out: str

    @classmethod
    def of(cls, events: Sequence[Event], tokens_max: int = TOKENS_MAX) -> "Digest":
        """Return the digest of a session."""
        rows, ranks = _rows(events), list(_RANKS)
        places = [ranks.index(row.rank) for row in rows]
        edge = max(1, round(len(rows) * _EDGE_SHARE)) if rows else 0
        room, kept = tokens_max - _HEAD_TOKENS, dict[int, str]()
        for part in (range(edge), range(max(edge, len(rows) - edge), len(rows))):
            ranked = sorted(part, key=lambda number: places[number])
            room -= _take(rows, ranked, int(tokens_max * _EDGE_BUDGET_SHARE), kept, is_whole=True)
        between = (number for number in range(len(rows)) if number not in kept)
        # The newest first: the result of a session is near its end.
        _take(rows, sorted(between, key=lambda number: (places[number], -number)), room, kept, is_whole=False)
        left_out = Counter(row.rank for number, row in enumerate(rows) if number not in kept)
        counts = ", ".join(f"{left_out[rank]:,} {_RANKS[rank][0]}" for rank in _RANKS if left_out[rank])
        summary = f"Left out for want of room: {counts}." if counts else ""
        text = "\n".join([*(kept[number] for number in sorted(kept)), *filter(None, [summary])])
        return cls(text, _tokens(text), summary)


class _Row(NamedTuple):
    rank: str
    label: str
    text: str
    line: int


def _tokens(text: str) -> int:
    """Return the approximate tokens of a text: one for four ASCII characters, one for each other."""
    plain = len(text.encode("ascii", "ignore"))
    return plain // 4 + len(text) - plain + 1


def _take(rows: Sequence[_Row], wanted: Sequence[int], room: int, kept: dict[int, str], *, is_whole: bool) -> int:
    """Keep the rows that fit, in this order; return the room that they take."""
    taken = 0
    for number in wanted:
        if room - taken < 8:
            break
        row = rows[number]
        text = _shown(row, _WHOLE_CHARS_MAX if is_whole else _RANKS[row.rank][1])
        if taken + _tokens(text) < room:
            kept[number] = text
            taken += _tokens(text) + 1
    return taken


def _shown(row: _Row, chars_max: int) -> str:
    """Return a row as text, screened first, then cut."""
    clean = screening.screen(row.text, home=str(Path.home())).text
    text = "\n    ".join(line.rstrip() for line in clean.strip().split("\n") if line.strip())
    if len(text) > chars_max:
        text = f"{text[: chars_max * 2 // 3].rstrip()} […] {text[-chars_max // 3 :].lstrip()}"
    return f"[{row.line}] {row.label}: {screening.inert(text)}".rstrip(": ")


def _rows(events: Sequence[Event]) -> list[_Row]:
    rows: list[_Row] = []
    calls: dict[str, Event] = {}
    failing: set[str] = set()
    for event in events:
        if event.kind == "prompt":
            _conclude(rows)
            who = "person" if Prompt(event.text).is_typed else "host"
            rows.append(_Row(who, who, event.text, event.line))
        elif event.kind == "said":
            rows.append(_Row("agent", "agent", event.text, event.line))
        elif event.kind == "call":
            calls[event.id] = event
            rows.append(_Row("call", f"call {event.tool}", event.about, event.line))
        elif event.kind in ("refused", "stopped"):
            who = "person" if _is_persons(event, calls) else "call"
            rows.append(_Row("refused", f"{who} {event.kind}", _objected(event, calls), event.line))
        elif event.kind == "result":
            rows.append(_result(event, calls.get(event.id), failing))
    _conclude(rows)
    return rows


def _conclude(rows: list[_Row]) -> None:
    """Rank the agent's last words before a person speaks as its conclusion."""
    if rows and rows[-1].rank == "agent":
        rows[-1] = rows[-1]._replace(rank="concluded")


def _is_persons(event: Event, calls: Mapping[str, Event]) -> bool:
    """Return whether the words of a refusal, if any, are a person's, and not perhaps those of a tool's server."""
    return not event.text or (event.id in calls and not calls[event.id].is_mcp)


def _objected(event: Event, calls: Mapping[str, Event]) -> str:
    call = calls.get(event.id)
    about = f"`{call.tool} {call.about}`" if call is not None else ""
    return " ".join(filter(None, [about, f"saying: {event.text}" if event.text else ""]))


def _result(event: Event, call: Event | None, failing: set[str]) -> _Row:
    command = call.about if call is not None and call.tool == "Bash" else ""
    what = f"{call.tool} {call.about}" if call is not None else ""
    family = shell.Command(command).family if command else what
    if not event.is_ok:
        failing.add(family)
        return _Row("failed", "failed", f"`{what}`\n{event.text}", event.line)
    if family in failing:
        failing.discard(family)
        return _Row("solved", "worked now", f"`{what}`\n{event.text[-200:]}", event.line)
    return _Row("output", "output", event.text, event.line)


_QUOTE_WORDS_MIN = 3
_LESSON_SHARE_MIN = 0.34
"""Share of a lesson's words that its quotation, or the commands around it, must have."""
_NOTE_SHARE_MIN = 0.5
_READ_SHARE_MAX = 0.6
"""Share of a statement's words from which on it may be copied from a text that was only read."""
_WINDOW_WORDS = 60
_SENTENCE = re.compile(rf"(?:[^.!?。！？\n]|[.!?](?=\S)){{1,{CHARS_MAX}}}")
_CLOSEST_MAX = 20
_INSIDE_MAX = 40
_pattern = partial(pattern, str(Path(__file__).with_name("data") / "rules.toml"))
_BLOCK = re.compile(
    r"```.*?(?:```|\Z)|<([a-z]+[-_][\w-]{0,40})\b[^<>]{0,400}>.*?(?:</\1>|\Z)|<([a-z]\w{0,40})\b[^<>]{0,400}>.*?</\2>",
    re.DOTALL | re.IGNORECASE,
)
_ENDS_PASTE = re.compile(r"^(?:-{3,}|={3,})\s*$")


class Support:
    """Check of statements against one session: its texts by their origin (typed, done, failed, only read)."""

    def __init__(self, events: Sequence[Event]) -> None:
        typed, read, done = list[str](), list[str](), list[str]()
        calls = {each.id: each for each in events if each.kind == "call"}
        for event in events:
            if event.kind == "prompt" and Prompt(event.text).is_typed:
                typed.append(unpasted(event.text))
                theirs = set(typed[-1].split())
                read.append("\n".join(row for row in event.text.split("\n") if not theirs.issuperset(row.split())))
            elif event.kind == "prompt":
                read.append(event.text)
            elif event.kind == "refused":
                (typed if _is_persons(event, calls) else read).append(event.text)
            elif event.kind == "call":
                done.append(f"{event.tool} {event.about}")
        ran = list(runs(events))
        failed = [(call, result) for call, result in ran if not result.is_ok]
        of_failures = {id(result) for _, result in failed}
        read += [each.text for each in events if each.kind == "result" and id(each) not in of_failures]
        self._mended = list(_mended(ran))
        text = "\n".join(typed)
        self._typed, self._done = _flat(text), _flat("\n".join(done))
        self._typed_stems = {*_stems(text)}
        self._known = self._typed_stems.union(_stems(self._done))
        self._sentences = [(each, {*_stems(each)}) for each in _SENTENCE.findall(text)]
        self._read = [window for text in read for window in _windows(text)]
        self._printed = [window for _, result in failed for window in _windows(result.text)]

    def of(self, lesson: Lesson) -> str:
        """Return why a lesson is not supported; "" where it is."""
        quote, source, places = _flat(lesson.quote), lesson.quote, self._read
        if lesson.by == PERSON:
            if len(quote.split()) < _QUOTE_WORDS_MIN or quote not in self._typed:
                return "no person said what it quotes"
            context, places = {*_stems(lesson.quote)}, [*self._read, *self._printed]
        elif lesson.by == FAILURE:
            failure = next((text for text in self._mended if quote and quote in _flat(text)), "")
            if not failure:
                return "no command failed with what it quotes and worked later"
            if wants_to_be_obeyed(lesson.quote):
                return "what the command printed wants to be obeyed"
            context = {*_stems(failure), *self._known}
            source = "\n".join([source, *(row for row in failure.split("\n") if quote in _flat(row))])
        else:
            return "nothing in the session is quoted for it"
        if _share({*_stems(lesson.text)}, context) < _LESSON_SHARE_MIN:
            return "what it quotes is about something else"
        doubts = (self._doubt(each, source, places, context) for each in (lesson.text, lesson.right))
        return next(filter(None, doubts), "")

    def of_note(self, note: str) -> str:
        """Return why a note is not supported; "" where it is."""
        if _share({*_stems(note)}, self._known) < _NOTE_SHARE_MIN:
            return "it says what no person said and no command did"
        return self._doubt(note, "", [*self._read, *self._printed], set())

    def _doubt(self, statement: str, source: str, places: Sequence[set[str]], context: set[str]) -> str:
        """Return why the words of a statement are not those of a person, a command or its source; "" otherwise."""
        if _pattern("tells_password").search(statement):
            return "it may tell a password, which the whole clan would read"
        known = f" {self._typed} {self._done} {_flat(source)} "
        if unknown := next((each for each in _names(statement) if f" {_flat(each)} " not in known), ""):
            return f"it names {unknown[:80]}, which no person said and no command had"
        if any(self._is_turned(each) for each in _SENTENCE.findall(statement)):
            return "it may say the opposite of what a person said"
        return self._only_read({*_stems(statement)}, places, self._known | context)

    def _is_turned(self, statement: str) -> bool:
        """Return whether the person's sentences that have most of a statement's words all say the opposite."""
        words = {*_stems(statement)}
        shares = [_share(words, stems) for _, stems in self._sentences]
        most = max(shares, default=0.0)
        if most < _NOTE_SHARE_MIN:
            return False
        closest = [each for (each, _), share in zip(self._sentences, shares, strict=True) if share == most]
        mine, *others = ParsedText.of([statement, *closest[-_CLOSEST_MAX:]])
        return all(TURNS.intersection(mine.differences(other)) for other in others)

    def _only_read(self, words: set[str], places: Iterable[set[str]], known: set[str]) -> str:
        """Return a reason if a statement, or what it adds to known words, was only read somewhere; else ""."""
        own, added = _share(words, self._typed_stems), words - known
        for place in places:
            share = _share(words, place)
            is_added = len(added) > 1 and share >= _READ_SHARE_MAX and _share(added, place) > _READ_SHARE_MAX
            if is_added or share > max(own, _READ_SHARE_MAX):
                return "it is what a document or a tool's output says"
        return ""


def wants_to_be_obeyed(text: str) -> bool:
    """Return whether a command's output reads as an order rather than as an error."""
    return _pattern("obeyed").search(text) is not None


def unpasted(prompt: str) -> str:
    """Return the person's own words in a prompt, up to a paste or the paragraph that announces one.

    Another agent's message, code in fences, quoted lines and a host's text are left out.
    """
    if Prompt(prompt).own_words()[0]:
        return ""
    own: list[str] = []
    for number, paragraph in enumerate(re.split(r"\n\s*\n", _BLOCK.sub("", prompt))):
        head, *rest = paragraph.split("\n")
        if _ENDS_PASTE.match(head):
            break
        if rest and number == 0 and _pattern("introduces").search(head):
            own.append(head)
            break
        own.append(paragraph)
        if _pattern("introduces").search(paragraph):
            break
    return "\n".join(line for line in "\n\n".join(own).split("\n") if not line.lstrip().startswith(">"))


def runs(events: Iterable[Event]) -> Iterator[tuple[Event, Event]]:
    """Yield the shell commands with their results, in the order in which they ended."""
    calls: dict[str, Event] = {}
    for event in events:
        if event.kind == "call" and event.tool == "Bash":
            calls[event.id] = event
        elif event.kind == "result" and event.id in calls:
            yield calls[event.id], event


def _mended(ran: Iterable[tuple[Event, Event]]) -> Iterator[str]:
    """Yield the commands that failed, each with its output, once one of their family succeeds."""
    failing: dict[str, list[str]] = {}
    for call, result in ran:
        family = shell.Command(call.about).family
        if result.is_ok:
            yield from failing.pop(family, ())
        else:
            failing.setdefault(family, []).append(f"{call.about}\n{result.text}")


def _windows(text: str) -> Iterator[set[str]]:
    """Yield overlapping windows of the words of a text."""
    words = list(_stems(text))
    step = _WINDOW_WORDS // 2
    for index in range(0, max(1, len(words) - step), step):
        yield set(words[index : index + _WINDOW_WORDS])


def _names(text: str) -> Iterator[str]:
    """Yield the hosts, paths, figures and other names of a text, except those that it warns of."""
    text = text.rpartition(" ")[0] if text.endswith("…") else text
    yield from (each for each in _flat(text).split() if any(map(str.isdigit, each)))
    for parsed in ParsedText.of(_SENTENCE.findall(text)):
        named = (each.text for each in parsed.words if each.is_exact and not each.is_negated and _flat(each.text))
        for name in named:  # which may be a part of a word: `mmQp` of `mmQp2`
            is_whole = re.search(rf"(?<!\w){re.escape(name)}(?!\w)", text, re.IGNORECASE)
            inside = rf"\w{{0,{_INSIDE_MAX}}}{re.escape(name)}\w{{0,{_INSIDE_MAX}}}"
            yield from [name] if is_whole else re.findall(inside, text, re.IGNORECASE) or [name]


def _share(words: set[str], among: Iterable[str]) -> float:
    return len(words.intersection(among)) / len(words) if words else 0.0


def _flat(text: str) -> str:
    """Return the words of a text, without its punctuation and line breaks."""
    return " ".join(re.findall(r"\w+", text.lower()))


def _stems(text: str) -> Iterator[str]:
    """Yield the prefixes of the words of a text, without stop words; of scripts without spaces, each bigram."""
    for word in re.findall(r"\w+", text.lower()):
        if word.isascii() or all(map(is_letter, word)):
            if len(word) > 2 and not is_stop(word):
                yield word[:6]
        else:
            yield from (word[index : index + 2] for index in range(max(1, len(word) - 1)))
