"""Support of what a reflector says: whether a person said so, or a command failed and then worked.

What a document says, or a tool's output, supports nothing: it may have been written so that an agent remembers it.
A statement is supported where its quotation stands in what a person typed (or in a failure that was mended), and its
own words are those of the person or of the commands, not rather those of something that was only read. In doubt it is
not supported, and waits for a person.
"""

import re
from collections.abc import Iterable, Iterator, Sequence

from fleet.reflect.digest import Told
from fleet.reflect.reflection import FAILURE, PERSON, Lesson
from fleet.text import shell
from fleet.text.prompts import is_letter, is_typed, own_words
from fleet.text.similarity import is_stop

_QUOTE_WORDS_MIN = 3
_LESSON_SHARE_MIN = 0.34
"""So much of a lesson's words stand in its quotation, or in the commands around it."""
_NOTE_SHARE_MIN = 0.5
_READ_SHARE_MAX = 0.6
"""A statement of which more stands in one place that was only read is what that place says."""
_WINDOW_WORDS = 60
_INTRODUCES = re.compile(
    r"(?::|\b(?:below|following|attached|document|ticket|issue|page|readme|file|e-?mail|text|log|output|article)\b.{0,40})\s*$",
    re.IGNORECASE,
)
_BLOCK = re.compile(
    r"```.*?(?:```|\Z)|<([a-z]+[-_][\w-]{0,40})\b[^<>]{0,400}>.*?(?:</\1>|\Z)|<([a-z]\w{0,40})\b[^<>]{0,400}>.*?</\2>",
    re.DOTALL | re.IGNORECASE,
)
_TOLD_TO = re.compile(
    r"\b(?:remember|from now on|always|never|ignore (?:all|any|previous)|instructions?|rule|assistant|agents?|memory|"
    r"lesson)\b",
    re.IGNORECASE,
)
"""What a failing command that only fails does not say, and a text that wants to be obeyed does."""
_ENDS_PASTE = re.compile(r"^(?:-{3,}|={3,})\s*$")


class Support:
    """What a session supports, read once.

    Args:
        events: of the session, in order.
    """

    def __init__(self, events: Sequence[Told]) -> None:
        said: list[str] = []
        read: list[str] = []
        done: list[str] = []
        failed: list[str] = []
        self._failed: list[tuple[str, str]] = []
        calls: dict[str, Told] = {}
        for event in events:
            if event.kind == "prompt" and is_typed(event.text):
                said.append(unpasted(event.text))
                read.append(_pasted(event.text, said[-1]))
            elif event.kind == "prompt":
                read.append(event.text)
            elif event.kind == "refused":
                said.append(event.text)
            elif event.kind == "call":
                calls[event.id] = event
                done.append(f"{event.tool} {event.about}")
            elif event.kind == "result":
                call = calls.get(event.id)
                if event.is_ok or call is None or call.tool != "Bash":
                    read.append(event.text)
                else:
                    failed.append(event.text)
                    self._failed.append((shell.family(call.about), f"{call.about}\n{event.text}"))
        self._mended = _mended(events)
        self._said = "\n".join(said)
        self._said_flat = _flat(self._said)
        self._known = {*_stems(self._said), *_stems("\n".join(done))}
        self._read = [window for text in read for window in _windows(text)]
        self._printed = [window for text in failed for window in _windows(text)]

    def of(self, lesson: Lesson) -> str:
        """Return why a lesson is not supported; "" where it is."""
        words = set(_stems(lesson.text))
        if lesson.by == PERSON:
            quote = _flat(lesson.quote)
            if len(quote.split()) < _QUOTE_WORDS_MIN or quote not in self._said_flat:
                return "no person said what it quotes"
            near = {*_stems(lesson.quote)}
        elif lesson.by == FAILURE:
            quote = _flat(lesson.quote)
            told = next(
                (text for family, text in self._failed if family in self._mended and quote and quote in _flat(text)),
                "",
            )
            if not told:
                return "no command failed with what it quotes and worked later"
            if wants_to_be_obeyed(lesson.quote):
                return "what the command printed wants to be obeyed"
            near = {*_stems(told), *self._known}
        else:
            return "nothing in the session is quoted for it"
        if _share(words, near) < _LESSON_SHARE_MIN:
            return "what it quotes is about something else"
        return self._only_read(words, self._read if lesson.by == FAILURE else [*self._read, *self._printed])

    def of_note(self, note: str) -> str:
        """Return why a note is not supported; "" where it is."""
        words = set(_stems(note))
        if _share(words, self._known) < _NOTE_SHARE_MIN:
            return "it says what no person said and no command did"
        return self._only_read(words, [*self._read, *self._printed])

    def _only_read(self, words: set[str], places: Iterable[set[str]]) -> str:
        """Return that a statement is rather what something says that was only read, "" where it is not."""
        own = _share(words, set(_stems(self._said)))
        most = max((_share(words, window) for window in places), default=0.0)
        return "it is what a document or a tool's output says" if most > max(own, _READ_SHARE_MAX) else ""


def wants_to_be_obeyed(text: str) -> bool:
    """Tell whether a command's output reads as an order rather than as an error."""
    return _TOLD_TO.search(text) is not None


def unpasted(prompt: str) -> str:
    """Return a prompt up to what was pasted into it; a paragraph that announces something is the last of theirs.

    Another agent's message, code in fences, quoted lines and what a host put in are not theirs either.
    """
    if own_words(prompt)[0]:
        return ""
    kept: list[str] = []
    for number, paragraph in enumerate(re.split(r"\n\s*\n", _BLOCK.sub("", prompt))):
        head, *rest = paragraph.split("\n")
        if _ENDS_PASTE.match(head):
            break
        if rest and number == 0 and _INTRODUCES.search(head):
            kept.append(head)
            break
        kept.append(paragraph)
        if _INTRODUCES.search(paragraph):
            break
    return "\n".join(line for line in "\n\n".join(kept).split("\n") if not line.lstrip().startswith(">"))


def _pasted(prompt: str, theirs: str) -> str:
    known = set(theirs.split())
    return "\n".join(line for line in prompt.split("\n") if not known.issuperset(line.split()))


def _mended(events: Iterable[Told]) -> set[str]:
    """Return the families of commands that failed and worked later."""
    calls: dict[str, str] = {}
    failing: set[str] = set()
    mended: set[str] = set()
    for event in events:
        if event.kind == "call" and event.tool == "Bash":
            calls[event.id] = shell.family(event.about)
        elif event.kind == "result" and event.id in calls:
            family = calls[event.id]
            if not event.is_ok:
                failing.add(family)
            elif family in failing:
                mended.add(family)
    return mended


def _windows(text: str) -> Iterator[set[str]]:
    """Yield the words of a text, so many at a time, each half of them twice."""
    words = list(_stems(text))
    step = _WINDOW_WORDS // 2
    for at in range(0, max(1, len(words) - step), step):
        yield set(words[at : at + _WINDOW_WORDS])


def _share(words: set[str], among: Iterable[str]) -> float:
    return len(words.intersection(among)) / len(words) if words else 0.0


def _flat(text: str) -> str:
    """Return the words of a text alone: how it is set, quoted or broken into lines says nothing."""
    return " ".join(re.findall(r"\w+", text.lower()))


def _stems(text: str) -> Iterator[str]:
    """Yield the telling words of a text by their beginnings; of scripts without spaces, each pair of signs."""
    for word in re.findall(r"\w+", text.lower()):
        if word.isascii() or all(map(is_letter, word)):
            if len(word) > 2 and not is_stop(word):
                yield word[:6]
        else:
            yield from (word[at : at + 2] for at in range(max(1, len(word) - 1)))
