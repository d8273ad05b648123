"""Judgement of a text's form: a lesson that only tells what happened, a discovery that is a routine fix. Pure.

Careful: it only ever asks for better words, of what is logged already, and a rule that is taken for a story costs an
agent a turn. So one word of a rule is enough to be one, whatever else is told. Its words are in ``data/telling.toml``.
"""

import re
import tomllib
from functools import cache
from pathlib import Path
from typing import NamedTuple

ASK_FOR_THE_RULE = (
    "this tells what happened; what holds the next time, elsewhere too? Say that as a rule: fleet edit {id} --set "
    "text='...'"
)
"""Answer to a lesson that only tells what happened."""
ASK_FOR_MORE = (
    "this reads like a routine fix, which anybody would find; is there more to it? If not, `fleet retire {id}` takes "
    "it back, so that what took long to find out stands out"
)
"""Answer to a discovery that is a routine fix."""

_WORD = re.compile(r"[a-z]+(?:['’][a-z]+)?")
_CODE = re.compile(r"`[^`]*`")
_FIRST_WORDS_MAX = 6
"""So far into a text is looked for who did what."""
_ED_CHARS_MIN = 5


class _Lists(NamedTuple):
    """The content of ``data/telling.toml``."""

    tellers: frozenset[str]
    between: frozenset[str]
    pasts: frozenset[str]
    bare_pasts: frozenset[str]
    objects: frozenset[str]
    rules: frozenset[str]
    tellers_unspaced: tuple[str, ...]
    over_unspaced: tuple[str, ...]
    rules_unspaced: tuple[str, ...]
    routine: tuple[str, ...]
    routine_words_max: int


@cache
def _lists() -> _Lists:
    with Path(__file__).with_name("data").joinpath("telling.toml").open("rb") as file:
        raw = tomllib.load(file)
    return _Lists(
        tellers=frozenset(raw["tellers"].split()),
        between=frozenset(raw["between"].split()),
        pasts=frozenset(raw["pasts"].split()),
        bare_pasts=frozenset(raw["bare_pasts"].split()),
        objects=frozenset(raw["objects"].split()),
        rules=frozenset(raw["rules"].split()),
        tellers_unspaced=tuple(raw["tellers_unspaced"].split()),
        over_unspaced=tuple(raw["over_unspaced"].split()),
        rules_unspaced=tuple(raw["rules_unspaced"].split()),
        routine=tuple(raw["routine"]),
        routine_words_max=raw["routine_words_max"],
    )


def tells_what_happened(text: str) -> bool:
    """Tell whether a lesson says what somebody did, and nothing that holds the next time."""
    lists = _lists()
    words = [word.replace("’", "'") for word in _WORD.findall(_CODE.sub(" x ", text).casefold())]
    if lists.rules.intersection(words):
        return False
    return _did(words) or _did_unspaced(text)


def _did(words: list[str]) -> bool:
    """Tell whether the words begin with what somebody did: "I just used", or "Used the wrong"."""
    lists = _lists()
    telling = [word for word in words[:_FIRST_WORDS_MAX] if word not in lists.between]
    if not telling:
        return False
    first, second, *_ = [*telling, ""]
    if first in lists.tellers:
        return second in lists.pasts or (second.endswith("ed") and len(second) >= _ED_CHARS_MIN)
    return first in lists.bare_pasts and second in lists.objects


def _did_unspaced(text: str) -> bool:
    """Return the same for a language without blanks between words."""
    lists = _lists()
    said = text.strip()
    if not said.startswith(lists.tellers_unspaced) or any(word in said for word in lists.rules_unspaced):
        return False
    return any(word in said for word in lists.over_unspaced)


def is_routine(solution: str) -> bool:
    """Tell whether the solution of a discovery is one that anybody would have found, and nothing more."""
    lists = _lists()
    said = " ".join(solution.casefold().split()).rstrip(".!。！")
    return len(said.split()) <= lists.routine_words_max and said.startswith(lists.routine)
