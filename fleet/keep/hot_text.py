"""What of ``memory.md`` an agent reads: the HOT tier as it enters a session's context, and what its limit counts."""

from fleet.keep.screening import for_terminal, redact, screen

OPEN, CLOSE = "<!--", "-->"


def hot(text: str) -> str:
    """Return the HOT part: a person's notes and the managed block alike, screened, without HTML comments.

    Line by line as it stands otherwise; how long it is, is for the caller to judge.
    """
    seen = redact(_without_comments(screen(text).text))  # again, since a comment may have split a secret
    return "\n".join(row.rstrip() for row in for_terminal(seen).split("\n")).strip("\n")


def opens_comment(text: str) -> bool:
    """Tell whether a comment that begins in this text does not end in it: what follows may be taken for its inside."""
    at = 0
    while (begin := text.find(OPEN, at)) >= 0:
        end = text.find(CLOSE, begin + len(OPEN))
        if end < 0:
            return True
        at = end + len(CLOSE)
    return False


def _without_comments(text: str) -> str:
    """Return the text without comments. One that never ends is none: nothing is lost to a forgotten ``-->``.

    By hand, since a pattern would look for the end once for every beginning, minutes for a file of ``<!--``.
    """
    kept: list[str] = []
    at = 0
    while (begin := text.find(OPEN, at)) >= 0 and (end := text.find(CLOSE, begin + len(OPEN))) >= 0:
        end += len(CLOSE)
        row, rest = text.rfind("\n", at, begin) + 1 or at, text.find("\n", end) + 1 or len(text)
        if not text[row:begin].strip() and not text[end:rest].strip() and (row == 0 or text[row - 1] == "\n"):
            kept.append(text[at:row])  # it had its lines to itself: they go with it
            at = rest
        else:
            kept.append(text[at:begin] + " ")  # what stood around it must not close up into something new
            at = end
    return "".join(kept) + text[at:]
