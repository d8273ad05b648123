"""What the forms of a word share, and the tables of words by what they share: made once, and kept in ``stems``.

To stem 1,700 words takes longer than to compare a lesson with forty others, so no command does it. After a change of
``vocabulary`` or of the rules here, ``python -m fleet.keep.stemming > fleet/keep/stems.py``; a test tells if it is due.
"""

from collections.abc import Iterable, Mapping, Sequence
from functools import lru_cache

_IRREGULAR = {
    "built": "build", "broken": "break", "broke": "break", "bought": "buy", "caught": "catch", "chosen": "choose",
    "chose": "choose", "done": "do", "fed": "feed", "found": "find", "gave": "give", "given": "give", "held": "hold",
    "kept": "keep", "known": "know", "knew": "know", "led": "lead", "left": "left", "lost": "lose", "made": "make",
    "met": "meet", "ran": "run", "rewritten": "rewrite", "rewrote": "rewrite", "said": "say", "saw": "see",
    "seen": "see", "sent": "send", "shown": "show", "stood": "stand", "taken": "take", "took": "take",
    "thrown": "throw", "threw": "throw", "told": "tell", "thought": "think", "written": "write", "wrote": "write",
    "indices": "index", "indexes": "index", "data": "data", "children": "child", "people": "person", "hidden": "hide",
    "this": "this", "does": "does", "process": "process", "always": "always", "less": "less", "unless": "unless",
    "https": "https", "tls": "tls", "dns": "dns", "css": "css", "is": "is", "as": "as", "us": "us", "its": "its",
    "was": "was", "has": "has", "during": "during", "string": "string", "nothing": "nothing", "something": "something",
    "thing": "thing", "need": "need", "needed": "need", "needless": "need", "embed": "embed", "shared": "shared",
    "red": "red", "only": "only", "early": "early", "apply": "apply", "applying": "apply", "rely": "rely",
    "speed": "speed", "seed": "seed", "exceed": "exceed", "ring": "ring", "bring": "bring", "king": "king",
    "used": "use", "using": "use", "uses": "use", "use": "use", "lies": "lie", "ties": "tie", "axes": "axis",
}  # fmt: skip


@lru_cache(maxsize=20_000)
def stem(word: str) -> str:
    """Return what the forms of an English word share, roughly: ``quotes``, ``quoted`` and ``quoting`` give ``quot``."""
    word = word.casefold().replace("’", "'").removesuffix("'s").replace("'", "")
    if word in _IRREGULAR:
        word = _IRREGULAR[word]
    elif len(word) > 3:
        word = _without_ending(word)
    return word.removesuffix("e") if len(word) > 3 else word


def _without_ending(word: str) -> str:
    if word.endswith("ies") and len(word) > 4:
        word = word[:-3] + "y"
    elif word.endswith(("sses", "xes", "ches", "shes")):
        word = word[:-2]
    elif word.endswith("s") and not word.endswith(("ss", "us", "is")):
        word = word[:-1]
    if word.endswith("ibly"):
        return word[:-1] + "e"
    for ending, least in (("ment", 9), ("ation", 9), ("ing", 6), ("ied", 5), ("ed", 5), ("ly", 6)):
        if word.endswith(ending) and len(word) >= least:
            rest = word[: -len(ending)]
            if ending == "ation":
                return rest + "at"
            if ending == "ied":
                return rest + "y"
            doubled = len(rest) > 3 and rest[-1] == rest[-2] and rest[-1] not in "lsz"
            return rest[:-1] if doubled and ending in ("ing", "ed") else rest
    return word


def groups(rows: Sequence[str]) -> dict[str, tuple[int, ...]]:
    """Return stem to the numbers of the rows in which a word with it stands."""
    found: dict[str, set[int]] = {}
    for number, row in enumerate(rows):
        for word in row.split():
            found.setdefault(stem(word), set()).add(number)
    return {word: tuple(sorted(numbers)) for word, numbers in found.items()}


def axes(pairs: Sequence[tuple[str, str]]) -> dict[str, tuple[tuple[int, int], ...]]:
    """Return stem to the numbers of the pairs of opposites in which a word with it stands, and at which pole."""
    found: dict[str, dict[int, int]] = {}
    for number, (these, those) in enumerate(pairs):
        for row, pole in ((these, 1), (those, -1)):
            for word in row.split():
                found.setdefault(stem(word), {})[number] = pole
    return {word: tuple(poles.items()) for word, poles in found.items()}


def tables() -> dict[str, tuple[str, object]]:
    """Return what ``stems`` holds: name to type and value."""
    from fleet.keep import vocabulary as words

    stop = {*map(stem, words.STOP), *words.CJK_STOP}
    phrases = {tuple(map(stem, phrase)): tuple(meant.split()) for phrase, meant in words.PHRASES.items()}
    return {
        "GROUPS": ("dict[str, tuple[int, ...]]", groups(words.SYNONYMS)),
        "AXES": ("dict[str, tuple[tuple[int, int], ...]]", axes(words.OPPOSITES)),
        "STOP": ("frozenset[str]", stop),
        "SMALL_GROUPS": ("dict[str, tuple[int, ...]]", groups(words.SMALL_SYNONYMS)),
        "CONNECTORS": ("frozenset[str]", set(map(stem, words.CONNECTORS))),
        "SMALL_AXES": ("dict[str, tuple[tuple[int, int], ...]]", axes(words.SMALL_OPPOSITES)),
        "LIGHT": ("frozenset[str]", {*map(stem, words.LIGHT), *words.CJK_LIGHT} - stop),
        "CHOOSING": ("frozenset[str]", set(map(stem, words.CHOOSING))),
        "NEGATIVE_VERBS": ("frozenset[str]", set(map(stem, words.NEGATIVE_VERBS))),
        "PERMITTING": ("frozenset[str]", set(map(stem, words.PERMITTING))),
        "TOOLS": ("frozenset[str]", {*map(stem, words.TOOLS), *words.TOOLS}),
        "PHRASES": ("dict[tuple[str, ...], tuple[str, ...]]", phrases),
    }


def render(found: Mapping[str, tuple[str, object]]) -> str:
    """Return the text of ``stems``."""
    head = '"""Words by what their forms share: made of ``vocabulary`` by ``stemming``, and not to be edited."""\n'
    head += "\n# ruff: noqa: E501 - some letters count as two\n"
    return "\n".join([head, *(_table(name, kind, value) for name, (kind, value) in found.items())])


def _table(name: str, kind: str, value: object) -> str:
    import textwrap

    if isinstance(value, dict):
        rows, opening, end = [f"{key!r}: {each!r}" for key, each in value.items()], "{", "}"
    else:
        rows, opening, end = sorted(map(repr, value if isinstance(value, Iterable) else ())), "frozenset((", "))"
    glued = ", ".join(row.replace(" ", "\0") for row in rows)  # no line ends within an entry
    body = textwrap.fill(glued, 116, break_long_words=False, break_on_hyphens=False).replace("\0", " ")
    body = textwrap.indent(body.replace("'", '"'), "    ")
    return f"{name}: {kind} = {opening}\n{body},\n{end}  # fmt: skip\n"


if __name__ == "__main__":
    import sys

    sys.stdout.write(render(tables()))
