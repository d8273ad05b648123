"""Text processing of lessons and messages, pure: secrets, likeness, signs of a correction, Markdown, shell, dates.

Nothing here does I/O but for reading the data files beside it.
"""


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
