"""The phrases of one configuration, ready to be looked for: fleet's own of the chosen languages, and a person's."""

from functools import lru_cache
from typing import TYPE_CHECKING, NamedTuple

from fleet.learn import phrases as known
from fleet.learn.triggers import LANGUAGES, LEVELS, words_of

if TYPE_CHECKING:
    from fleet.keep.config import Triggers

GERUND = "*ing"
"""At the end of a phrase: any word that ends so."""


class Phrase(NamedTuple):
    """A row of the table: ``where`` is "^" (first words), "~" (start of a sentence) or ""; see :func:`cue_of`."""

    text: str
    cue: str
    where: str
    is_gerund: bool
    kind: str
    points: int
    language: str


class Language(NamedTuple):
    """The words of one language that change what a phrase is worth."""

    negators: tuple[str, ...]
    negated_after: tuple[str, ...]
    tasks: tuple[str, ...]
    tasks_within: tuple[str, ...]
    asking: tuple[str, ...]
    supposing: tuple[str, ...]


class Table(NamedTuple):
    """Everything that is looked for, for one configuration."""

    phrases: tuple[Phrase, ...]
    exclusions: tuple[str, ...]
    hidden: tuple[tuple[str, str], ...]
    languages: dict[str, Language]


def table_of(settings: "Triggers | None") -> Table:
    """Return the table for ``[triggers]``; None means the defaults. The last few are kept."""
    if settings is None:
        return _table(LANGUAGES, (), (), (), (), ())
    own = (tuple(each) for each in (settings.strong, settings.medium, settings.weak))
    return _table(tuple(settings.languages), *own, tuple(settings.exclusions), tuple(settings.without))


@lru_cache(maxsize=4)
def _table(
    languages: tuple[str, ...],
    strong: tuple[str, ...],
    medium: tuple[str, ...],
    weak: tuple[str, ...],
    exclusions: tuple[str, ...],
    without: tuple[str, ...],
) -> Table:
    chosen = [language for language in languages if language in known.PHRASES]
    rows = [
        _row(text, kind, level, language)
        for language in chosen
        for kind, levels in known.PHRASES[language].items()
        for level, texts in levels.items()
        for text in texts.split("|")
    ]
    dropped = {lower(text.strip()).lstrip("^~").removesuffix(GERUND) for text in without}
    rows = [row for row in rows if row.text not in dropped]
    for level, own in (("strong", strong), ("medium", medium), ("weak", weak)):
        rows += [_row(lower(text.strip()), "correction", level, "") for text in own if text.strip()]
    excluded = {text for language in chosen for text in known.EXCLUSIONS[language].split("|")}
    excluded |= {lower(text.strip()) for text in exclusions if text.strip()}
    alike = {text for language in chosen for text in known.LOOKALIKES[language].split("|")} | excluded
    return Table(
        phrases=tuple(row for row in rows if row.text),
        exclusions=tuple(sorted(excluded, key=lambda text: (-len(text), text))),
        hidden=tuple((text, cue_of(text)) for text in sorted(alike, key=lambda text: (-len(text), text))),
        languages={language: _language(language) for language in chosen}
        | {"": Language(*[()] * len(Language._fields))},
    )


def _row(text: str, kind: str, level: str, language: str) -> Phrase:
    where = text[0] if text[0] in "^~" else ""
    bare = text[len(where) :]
    text = bare.removesuffix(GERUND).replace("*", "")  # messages come without Markdown's emphasis
    return Phrase(text, cue_of(text), where, bare.endswith(GERUND), kind, LEVELS.index(level) + 1, language)


def cue_of(text: str) -> str:
    """Return the longest word of a text: where it is missing, so is the text. "" for scripts without spaces."""
    return max(words_of(text), key=len, default="")


def _language(name: str) -> Language:
    tables = (known.NEGATORS, known.NEGATED_AFTER, known.TASKS, known.TASKS_WITHIN, known.ASKING, known.SUPPOSING)
    return Language(*(tuple(word for word in table.get(name, "").split("|") if word) for table in tables))


def lower(text: str) -> str:
    """Lower case of the same length, so that places are those of the original."""
    changed = text.lower()
    return changed if len(changed) == len(text) else "".join(c.lower() if len(c.lower()) == 1 else c for c in text)
