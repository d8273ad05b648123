"""Pure text processing of lessons and messages: secrets, similarity, signs of a correction, Markdown, shell, dates.

The only I/O is reading the data files beside it.
"""

from itertools import groupby

TYPE_CHECKING = False
if TYPE_CHECKING:  # as in `typing`, without the milliseconds of its import
    from typing import Any


_SHORTENED = (
    "don't doesn't didn't isn't aren't wasn't weren't ain't haven't hasn't hadn't can't couldn't won't wouldn't "
    "shouldn't mustn't needn't that's what's there's here's who's you're they're you've we've they've i've"
)
"""Words that without their apostrophe are no other word, unlike ``it's`` (``its``) and ``we're`` (``were``)."""
_APOSTROPHE_AT = {word.replace("'", ""): word.index("'") for word in _SHORTENED.split()}


def apostrophed(text: str) -> str:
    """Return a text with straight apostrophes, also in words that were typed without: ``dont`` becomes ``don't``.

    Every text that is searched for phrases passes through it, and every phrase that a person adds.
    """
    runs = ("".join(run) for _, run in groupby(text.replace("’", "'"), str.isalpha))
    return "".join([f"{run[:at]}'{run[at:]}" if (at := _APOSTROPHE_AT.get(run.lower())) else run for run in runs])


def sections(name: str) -> dict[str, list[str]]:
    """Return the rows of a list in ``data`` by section, "" before the first.

    ``# `` begins a comment; ``␣`` stands for a blank, since editors remove one from the end of a row.
    """
    rows: list[str] = []
    parsed = {"": rows}
    with open(f"{__file__.rpartition('/')[0]}/data/{name}", encoding="utf-8") as file:  # noqa: PTH123 - hooks read one
        for row in file.read().splitlines():
            if row.startswith("[") and row.endswith("]"):
                rows = parsed.setdefault(row[1:-1], [])
            elif row and not row.startswith("# "):
                rows.append(row.replace("␣", " "))
    return parsed


def tables(path: str) -> "dict[str, Any]":
    """Return a TOML file of words and expressions, by its path or its name in ``data``."""
    import tomllib  # 2 ms, which a hook that logs a failure need not take

    with open(path if "/" in path else f"{__file__.rpartition('/')[0]}/data/{path}", "rb") as file:  # noqa: PTH123
        return tomllib.load(file)
