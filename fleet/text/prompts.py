"""Prompt as a host gives it: its sender, the sender's own words, and a prefilter for signals.

Quotations, pasted text and what the host adds are masked: a masked block becomes a line break, a masked piece within a
line ``·``, so that the words before and after it never become neighbours. Cost is linear. A hook runs the prefilter on
every prompt, so this module imports next to nothing, and reads one small file.
"""

import re

from fleet.text import apostrophed, sections

LANGUAGES = ("en", "de", "es", "fr", "zh", "ja")
LEVELS = ("weak", "medium", "strong")

_PIECE_CHARS = 16 * 1024
"""Length of the beginning and the end of a message, of which alone a longer message is read."""
_UNSPACED_FROM = 0x2E80  # scripts from here on are written without spaces
_HIDDEN = "·"
_TAG = r"<((?=[^\W\d_])[\w-]+)(?:\s[^>]{0,1000}+)?>"
_IMAGE = r"\[Image #[0-9]+\] ?"
_BLOCKS_MAX = 100
"""Greatest number of ``<name>...</name>`` blocks in one message: each costs a search of its own."""
_QUOTE_CHARS_MAX = 598
EVENT_CHARS_MAX = 8_000
_NAME_CHARS_MAX = 32

_KNOWN = sections("prompts.txt")
_CUES = frozenset(cue for row in _KNOWN["cues"] for cue in row.split())
_CUES_UNSPACED = tuple(cue for cue in _CUES if ord(cue[0]) >= _UNSPACED_FROM)
"""Cues of languages without blanks between words: parts of phrases, not words."""
_HOST_MADE, _LOG_STARTS, _EXCEPTIONS = (tuple(_KNOWN[name]) for name in ("host-made", "log-starts", "exceptions"))
_QUOTES = tuple(row.split() for row in _KNOWN["quotes"])


class Event:
    """Event of a transcript.

    Attributes:
        kind: prompt, said (by the agent), call, result, refused or stopped.
        id: id of the call that is made, ends or is refused; else of the line.
        text: typed or printed text, or the words of a refusal.
        about: the command, the path, or the most telling argument of the call.
        at: its time, as the client writes it.
        offset, line: position of its line in bytes, and its number from 1; 0 if only a part of the file was read.
    """

    def __init__(
        self, kind: str, name: str = "", text: str = "", *, tool: str = "", about: str = "", is_ok: bool = True
    ) -> None:
        self.kind, self.id, self.tool, self.about, self.is_ok = kind, name, tool, about, is_ok
        self.text = _without_images(text) if kind in ("prompt", "refused") else text
        self.at, self.offset, self.line = "", 0, 0

    @property
    def is_mcp(self) -> bool:
        """True for a call of an MCP server's tool: the server writes all of its result, words of a refusal included."""
        return self.tool.startswith("mcp__")


class Objection:
    """Call that a person refused, or turn that a person stopped, with the words of the refusal or of the next prompt.

    Attributes:
        id: id of the call, or of the line of a stopped turn.
        tool: tool of the refused call, or of the last call before the stop; "" for none.
        at, offset, line: as in an event; the offset is the call's, if there is one.
        is_mcp: its words are in the result of an MCP server's tool, which may have made up the refusal.
    """

    def __init__(self, kind: str, event: Event, call: Event | None) -> None:
        self.kind, self.id, self.words, self.at, self.line = kind, event.id, event.text, event.at, event.line
        self.tool, self.about = (call.tool, call.about) if call is not None else ("", "")
        self.offset = call.offset if call is not None else event.offset
        self.is_mcp = bool(event.text) and call is not None and call.is_mcp

    @property
    def step(self) -> str:
        """The step that was refused or stopped, in words."""
        verb = "refused" if self.kind == "rejection" else "stopped"
        return " ".join(filter(None, [verb, self.tool, self.about]))

    @property
    def refused(self) -> str:
        """The refused command; "" for any other call, and for a stop, whose words are mostly about another command."""
        return self.about if (self.kind, self.tool) == ("rejection", "Bash") else ""


class Session:
    """Events of one transcript.

    Attributes:
        host: the client's name, as in ``hosts.payloads``.
        id: the host's id of the session, else the file's name.
        cwd: working directory at its start, or "".
        events: in order, with their line numbers.
        digest: 16 hex digits of a hash of the content, which changes when the session goes on.
        trouble: what was not read, and why; "" if all was read.
    """

    def __init__(self, path: str = "", name: str = "", host: str = "") -> None:
        self.path, self.host, self.id, self.cwd = path, host, name, ""
        self.events: list[Event] = []
        self.lines, self.digest, self.trouble = 0, "", ""


class Prompt:
    """Message as a host gives it."""

    def __init__(self, text: str) -> None:
        self.text = _without_images(text)

    def might_signal(self) -> bool:
        """Return whether ``signals.detect`` could return a signal with the default phrases; in doubt, True.

        Every phrase has at least one cue.
        """
        lower = apostrophed(_cut(self.text).lower())
        if not _CUES.isdisjoint(words_of(lower)):
            return True
        return not lower.isascii() and any(cue in lower for cue in _CUES_UNSPACED)

    @property
    def is_typed(self) -> bool:
        """True for a prompt of which a person typed at least a part."""
        sender, body = _addressed(_cut(self.text))
        return not sender and not body.lstrip().startswith(_HOST_MADE) and bool(_blocks(body).strip(f" \n{_HIDDEN}"))

    def own_words(self) -> tuple[str, str]:
        """Return its sender and the sender's own words.

        The words have their lines, single spaces and their apostrophes; everything else is masked. The sender is ""
        for a person, else the name of an agent, as the host gives it.
        """
        sender, body = _addressed(_cut(self.text))
        if body.lstrip().startswith(_HOST_MADE):
            return sender, ""
        masked = _lines(_blocks(body))
        for left, right in (("`", "`"), *_QUOTES):
            masked = _pairs(masked, left, right)
        lines = [" ".join(line.split()) for line in apostrophed(masked.replace("*", "")).split("\n")]
        return sender, "\n".join(line for line in lines if line)


def words_of(text: str) -> list[str]:
    """Return the words of a text, in scripts with spaces between them."""
    plain = text.replace("*", "")  # Markdown's emphasis may stand within a word
    return "".join([char if is_letter(char) else " " for char in plain]).split()


def is_letter(char: str) -> bool:
    """Return whether a character is a part of a word, in scripts with spaces between words."""
    return ord(char) < _UNSPACED_FROM and (char.isalnum() or char == "_")


def _addressed(message: str) -> tuple[str, str]:
    """Return the sender of a message, "" for a person, and its body."""
    body = message.lstrip()
    for announcement in _KNOWN["announcements"]:
        body = body.removeprefix(announcement).lstrip()
    for tag, *attributes in map(str.split, _KNOWN["envelopes"]):
        if body.startswith((f"<{tag} ", f"<{tag}>")):
            head, _, tail = body[len(tag) + 1 :].partition(">")
            named = (head.partition(f' {name}="')[2].partition('"')[0].strip() for name in attributes)
            return _agent_name(next(filter(None, named), "agent")), tail.partition(f"</{tag}>")[0]
    for prefix in _KNOWN["prefixes"]:
        name, is_closed, tail = body[len(prefix) : len(prefix) + 100].partition("]")
        if body.startswith(prefix) and is_closed and name.strip() and "\n" not in name:
            return _agent_name(name), body[len(prefix) + len(name) + 1 :]
    return "", message


def _agent_name(text: str) -> str:
    """Return the valid agent's name closest to a given one."""
    name = re.sub("[^a-z0-9_]+", "-", text.strip().lower()[:200])
    return name.strip("-_")[:_NAME_CHARS_MAX] or "agent"


def _without_images(text: str) -> str:
    """Return a message without the marks of pasted images, ``[Image #1]``; unchanged if nothing else would be left."""
    return (re.sub(_IMAGE, "", text).strip() or text) if "[Image #" in text else text


def _cut(message: str) -> str:
    """Return the message, or its beginning and its end when it is too long."""
    if len(message) <= 2 * _PIECE_CHARS:
        return message
    is_in_fence = message.count("```", _PIECE_CHARS, len(message) - _PIECE_CHARS) % 2 == 1
    return "\n".join([message[:_PIECE_CHARS], *["```"] * is_in_fence, message[-_PIECE_CHARS:]])


def _blocks(text: str) -> str:
    """Mask ``<name ...>...</name>``; without an end mark, a name with a hyphen, as hosts use them, masks the rest."""
    pieces, position = [], 0
    for _ in range(_BLOCKS_MAX):
        if not (tag := re.compile(_TAG).search(text, position)):
            break
        name, closer = tag[1], text.find(f"</{tag[1]}>", tag.end())
        pieces += [text[position : tag.start()], "\n" if "-" in name else f" {_HIDDEN} "]
        position = closer + len(name) + 3 if closer >= 0 else len(text) if "-" in name else tag.end()
    return "".join([*pieces, text[position:]])


def _lines(text: str) -> str:
    """Mask fenced code, indented code, quoted lines and what looks like the output of a tool."""
    unmasked, fence = [], ""
    for line in text.split("\n"):
        bare = line.strip()
        if bare.startswith(("```", "~~~")) and bare.count(bare[:3]) == 1:
            fence = "" if fence == bare[:3] else fence or bare[:3]
            unmasked.append("")
        elif fence or line.startswith(("    ", "\t", ">")) or bare.startswith(">") or _is_output(bare):
            unmasked.append("")
        else:
            unmasked.append(line)
    return "\n".join(unmasked)


def _is_output(bare: str) -> bool:
    first, _, rest = bare.partition(" ")
    is_position = first.count(":") >= 2 and any(c.isdigit() for c in first) and bool(rest)  # file.py:12:5: error
    return bare.startswith(_LOG_STARTS) or first.endswith(_EXCEPTIONS) or is_position


def _pairs(text: str, left: str, right: str) -> str:
    """Mask the text between two quotation marks, or backticks, with the marks."""
    if right not in text:
        return text
    return re.sub(rf"{left}(?:(?!\n\n)[^{right}]){{0,{_QUOTE_CHARS_MAX}}}+{right}", f" {_HIDDEN} ", text)
