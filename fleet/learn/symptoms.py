"""How a failure reads: what makes two errors the same one, and the line of it that a person is shown.

Two runs of one failure differ in times, addresses, temporary paths, counts and line numbers; those are folded. Names
are kept, in quotes or not: ``No module named 'a'`` and ``No module named 'b'`` are two errors, and whoever installs one
module after the other makes progress. Every expression is linear, and no line is longer than ``LINE_CHARS_MAX``.
"""

from __future__ import annotations

TYPE_CHECKING = False
if TYPE_CHECKING:
    import re

TAIL_CHARS = 16 * 1024
LINE_CHARS_MAX = 300
LINES_LOOKED_AT = 200
LINES_KEPT = 4

_TELLING = (
    *(
        "error",
        "exception",
        "fatal",
        "fail",
        "panic",
        "cannot",
        "can't",
        "could not",
        "couldn't",
        "not found",
        "no such",
    ),
    *("undefined", "unresolved", "unexpected", "denied", "refused", "timed out", "timeout", "unreachable", "missing"),
    *("invalid", "unknown", "segmentation", "killed", "abort", "expected", "assert", "conflict", "mismatch", "unable"),
    *("unsupported", "no module", "no rule", "not recognized", "does not exist", "already in use", "错误", "失败"),
)
_NOISE = (
    r"[-=_*~#.\s]*",  # rules and boxes
    r"[-=\s]*short test summary info[-=\s]*",
    r"exit code:? \d+",
    r"command failed with exit code \d+\.?",
    r"make(?:\[\d+\])?: \*\*\* \[.*",
    r"npm (?:err!|error) (?:a complete log of this run|code |errno |path |command |lifecycle).*",
    r"error command failed\.?.*",
    r"\s*at .{1,200}:\d+:\d+\)?",  # frames of a stack
    r'\s*file "[^"]{1,200}", line \d+.*',
)
# In this order: a path may hold digits, a time is made of numbers.
_FOLDS = (
    (r"\x1b\[[0-9;:?]{0,32}[A-Za-z]", ""),
    (r"[‘’‚‛`´]", "'"),
    (r"[“”„«»]", '"'),
    (r"\b[a-z][a-z0-9+.-]{1,15}://[^\s'\"<>()]{1,250}", "<url>"),
    (r"(?:(?<=[\s'\"(\[=,:])|^)(?:~|\.{1,2}|[A-Za-z]:)?[/\\][^\s'\":,;()\[\]<>|]{1,250}", "<path>"),
    (r"(?:(?<=[\s'\"(\[=,])|^)(?:[\w.@+-]{1,100}[/\\]){1,20}[\w.@+-]{1,100}", "<path>"),
    (r"\b\d{4}-\d{2}-\d{2}(?:[T ]\d{2}:\d{2}(?::\d{2}(?:[.,]\d{1,9})?)?)?(?:Z|[+-]\d{2}:?\d{2})?", "<time>"),
    (r"\b\d{1,2}:\d{2}(?::\d{2})?(?:[.,]\d{1,9})?\b", "<time>"),
    (r"\b0x[0-9a-fA-F]{1,64}\b", "<hex>"),
    (r"\b(?=[0-9a-f-]{0,35}\d)[0-9a-f]{8}(?:-[0-9a-f]{4}){3}-[0-9a-f]{12}\b", "<hex>"),
    (r"\b(?=\d{0,63}[a-f])(?=[a-f]{0,63}\d)[0-9a-f]{7,64}\b", "<hex>"),
    (r"\b\d[\d_,.]{0,40} ?(?:ms|s|sec|secs|seconds?|m|min|mins|minutes?|h|ns|us|µs)\b", "<duration>"),
    (r"[-+]?\b\d[\d_]{0,40}(?:[.,]\d{1,40}){0,4}(?:[eE][-+]?\d{1,4})?", "<n>"),
    (r"\s+", " "),
)

_compiled: list[tuple[re.Pattern[str], str]] = []
_noise: list[re.Pattern[str]] = []


def normalised(error: str) -> str:
    """Return what stays the same from one run of a failure to the next: its last telling lines, folded."""
    return "\n".join(dict.fromkeys(_folded(line) for line in telling_lines(error)))


def telling_lines(error: str) -> list[str]:
    """Return the last lines that say what went wrong; where none does, the last lines that say anything.

    Of a huge output only the last ``TAIL_CHARS`` are looked at: what went wrong stands at the end.
    """
    _compile()
    rows = [row[:LINE_CHARS_MAX].strip() for row in error[-TAIL_CHARS:].splitlines()[-LINES_LOOKED_AT:]]
    rows = [row for row in rows if row and not any(noise.fullmatch(row) for noise in _noise)]
    telling = [row for row in rows if _tells(row)]
    return (telling or rows)[-LINES_KEPT:]


def last_line(error: str) -> str:
    """Return the line that a person is shown, or "": rather what went wrong than how often it did."""
    lines = telling_lines(error)
    return next((line for line in reversed(lines) if not _counts(line)), lines[-1] if lines else "")


def _counts(line: str) -> bool:
    """Tell whether a line is a summary such as ``1 failed, 3 passed in 0.12s``."""
    return (
        line.lstrip("=-# ")[:1].isdigit()
        or "test result:" in line
        or line.lower().startswith(("tests:", "failed tests"))
    )


def _tells(row: str) -> bool:
    lower = row.lower()
    return any(word in lower for word in _TELLING)


def _folded(line: str) -> str:
    _compile()
    for pattern, instead in _compiled:
        line = pattern.sub(instead, line)
    return line.strip()


def _compile() -> None:
    """Late, and once: a hook that finds nothing to do never gets here."""
    if _compiled:
        return
    import re

    _noise.extend(re.compile(text, re.IGNORECASE) for text in _NOISE)
    _compiled.extend((re.compile(text), instead) for text, instead in _FOLDS)
