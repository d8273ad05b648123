"""Words that weigh little, and turn round what is meant: up and down, keep and release, whenever and unless.

Wherever lessons are compared they are left out, since most lessons have them. So they are looked at here alone, and
only in lessons that are the same otherwise.
"""

from fleet.keep import stems
from fleet.keep.pairing import Pairs, alike
from fleet.keep.vocabulary import SAID_EITHER_WAY
from fleet.keep.wording import Token, Wording


def is_turned(mine: Wording, theirs: Wording, pairs: Pairs) -> bool:
    """Tell whether the texts are the same but for one word that weighs little, and turns round what is meant.

    In the same place any other one turns it; where the order is another, those that are known to.
    """
    return _is_turned_in_place(mine, theirs) or _is_turned_elsewhere(mine, theirs, pairs)


def _is_turned_elsewhere(mine: Wording, theirs: Wording, pairs: Pairs) -> bool:
    paired = {id(token) for pair in pairs for token in pair}
    small: list[list[str]] = []
    for wording in (mine, theirs):
        words = [token for token in wording.tokens if not token.exact]
        if not all(id(t) in paired or t.is_stop or t.is_light or _may_turn(t.stem) for t in words):
            return False
        small.append([token.stem for token in words] + wording.openers)
    one, other = (set(filter(_may_turn, each)) for each in small)
    if "time" in mine.relations.keys() & theirs.relations.keys():  # then that is compared, whatever the words for it
        one, other = one - stems.CONNECTORS, other - stems.CONNECTORS
    return any(_turns(these, those) for these in one - other for those in other - one)


def _may_turn(stem: str) -> bool:
    return stem in stems.SMALL_AXES or stem in stems.CONNECTORS


def _turns(one: str, other: str) -> bool:
    if one in stems.CONNECTORS and other in stems.CONNECTORS:
        return not _are_small_synonyms(one, other)
    poles = dict(stems.SMALL_AXES.get(other, ()))
    return any(poles.get(axis) == -pole for axis, pole in stems.SMALL_AXES.get(one, ()))


def _is_turned_in_place(mine: Wording, theirs: Wording) -> bool:
    one, other = told(mine), told(theirs)
    while one and other and alike(one[-1], other[-1]):
        one, other = one[:-1], other[:-1]
    start = next((at for at, pair in enumerate(zip(one, other, strict=False)) if not alike(*pair)), None)
    if start is None:
        return not one and not other and _openers_differ(mine, theirs)
    if len(one) != start + 1 or len(other) != start + 1 or one[start].exact or other[start].exact:
        return False
    return not _are_small_synonyms(one[start].stem, other[start].stem)


def told(wording: Wording) -> list[Token]:
    """Return the tokens without those of which one text may have more than the other, and mean the same."""
    return [token for token in wording.tokens if token.exact or token.surface.casefold() not in SAID_EITHER_WAY]


def _openers_differ(mine: Wording, theirs: Wording) -> bool:
    if len(mine.openers) != len(theirs.openers):
        return False
    pairs = zip(mine.openers, theirs.openers, strict=True)
    return not all(one == other or _are_small_synonyms(one, other) for one, other in pairs)


def _are_small_synonyms(one: str, other: str) -> bool:
    return not set(stems.SMALL_GROUPS.get(one, ())).isdisjoint(stems.SMALL_GROUPS.get(other, ()))
