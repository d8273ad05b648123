"""Text processing of lessons and messages, pure: secrets, likeness, signs of a correction, Markdown, shell, dates.

Nothing here does I/O but for reading the data files beside it.
"""

TYPE_CHECKING = False
if TYPE_CHECKING:  # as in `typing`, without the milliseconds of its import
    from typing import Any


def sections(name: str) -> dict[str, list[str]]:
    """Return the rows of a list in ``data`` by section, "" before the first.

    ``# `` begins a comment; ``␣`` is a blank, which an editor would take from the end of a row.
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
