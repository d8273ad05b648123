"""What is written to ``corrections.md``, and the id it will be known by. Kept apart from reading: a hook has no time.

Three kinds of text: a correction, a signal whose pattern is still to be inferred, and the lesson that was drawn from
one later. Each value stands on its line; its further lines are indented by four blanks, where neither Markdown nor the
reader sees a heading, a field, a fence or a rule, and comment marks in it are escaped.
"""

import unicodedata
from collections.abc import Iterable, Mapping
from json.encoder import encode_basestring_ascii

from fleet.keep.digests import blake2b
from fleet.keep.lazily import compiled
from fleet.learn import markdown

INDENT = "    "
DASH = "—"
TO_BE_INFERRED = "_to be inferred at promotion time_"
"""What stands where the pattern of a signal will be: the wording of the format's other writers."""

_LINE_ENDS = compiled(r"\s*[\r\n]+\s*")


def fold(text: str) -> str:
    """Return the text as it is compared: NFC, each run of white space one blank."""
    return " ".join((text if text.isascii() else unicodedata.normalize("NFC", text)).split())


def content(*, when: str, title: str, wrong: str, right: str, source: str, pattern: str) -> str:
    """Return the canonical text that an entry's id is the hash of."""
    return content_of([fold(part) for part in (when, title, wrong, right, source, pattern)])


def content_of(folded: Iterable[str]) -> str:
    """Return the canonical text of parts that are folded already: a JSON list of them.

    ASCII, so that it has bytes to hash even where the text holds half a surrogate pair.
    """
    return f"[{','.join(map(encode_basestring_ascii, folded))}]"


def entry_id(content: str, ordinal: int) -> str:
    """Return ``c-`` and 16 hex digits for the n-th entry with this content."""
    return "c-" + blake2b(f"{content}\0{ordinal}".encode(), digest_size=8).hexdigest()


def entry_ids(contents: Iterable[str]) -> list[str]:
    """Return each entry's id: the content's hash, and which of several equal entries it is."""
    times: dict[str, int] = {}
    ids = []
    for each in contents:
        ordinal = times.get(each, 0)
        ids.append(entry_id(each, ordinal))
        times[each] = ordinal + 1
    return ids


def format_signal(*, when: str, title: str, label: str, wrong: str, heard: str, source: str) -> str:
    """Write the entry of a signal, newline at its end: whoever read it has not said yet what it teaches.

    Args:
        when: a date that a heading can hold.
        title: one line.
        label: of ``wrong``: "User flagged" or "What I got wrong".
        wrong: what was said, or what failed.
        heard: of which kind the signal is, and how sure that is.
        source: begins with "auto-detected".
    """
    fields = {label: wrong, "Signal": heard, "Source": source, "Pattern": TO_BE_INFERRED}
    return format_block(f"## {when} {DASH} {format_title(title)}".rstrip(), fields)


def format_block(heading: str, fields: Mapping[str, str]) -> str:
    """Write a heading and the fields below it, newline at the end."""
    lines = [heading, *(f"**{label}:** {format_value(value)}".rstrip() for label, value in fields.items())]
    return "\n".join(lines) + "\n"


def format_title(title: str) -> str:
    """Return the title as one line, comment marks escaped."""
    return markdown.escape(_LINE_ENDS.sub(" ", title).strip())


def format_value(value: str) -> str:
    """Indent a value's further lines, which makes them plain text whatever they hold, and escape comment marks."""
    lines = markdown.escape(value.replace("\r\n", "\n").replace("\r", "\n").strip()).split("\n")
    return "\n".join(INDENT + line if number and line.strip() else line for number, line in enumerate(lines))
