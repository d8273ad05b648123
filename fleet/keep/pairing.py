"""Which words of two lessons mean the same."""

from collections.abc import Callable, Sequence

from fleet.keep import ratios
from fleet.keep.stems import TOOLS
from fleet.keep.wording import Token

Pairs = Sequence[tuple[Token, Token]]

_ALIKE_FROM = 5  # shorter words that differ by a letter are other words: form, from
_ALIKE_PERCENT = 86


def alike(one: Token, other: Token) -> bool:
    """Tell whether two tokens mean the same: the same stem, a common group of synonyms, or a slip of the pen."""
    if one.stem == other.stem or ((groups := one.groups) and not groups.isdisjoint(other.groups)):
        return True
    if one.exact or other.exact:
        return one.stem.casefold() == other.stem.casefold() and not (one.is_flag or other.is_flag)
    if one.stem[:1] != other.stem[:1]:  # as most are
        return False
    longer, shorter = max(len(one.stem), len(other.stem)), min(len(one.stem), len(other.stem))
    if shorter < _ALIKE_FROM or shorter / longer < 0.6 or _are_names(one, other):
        return False
    if longer - shorter <= 4 and (one.stem.startswith(other.stem) or other.stem.startswith(one.stem)):
        return True
    return ratios.ratio(one.stem, other.stem) >= _ALIKE_PERCENT


def _are_names(one: Token, other: Token) -> bool:
    return one.stem in TOOLS or other.stem in TOOLS


def pairing(mine: list[Token], theirs: list[Token]) -> list[tuple[Token, Token]]:
    """Return each token of mine with one of theirs that means the same.

    What agrees in more goes first: a name with a name, a word that is both said and denied with itself, the same stem
    before a synonym.
    """
    pairs: list[tuple[Token, Token]] = []
    known = {token.stem for token in theirs}
    free = list(theirs)
    rest = [token for token in mine if token.stem in known]
    for fits in (_same_in_all, _same_in_kind, _same_stem):
        rest = _paired(rest, free, fits, pairs)
    left = {id(token) for token in rest}
    _paired([token for token in mine if token.stem not in known or id(token) in left], free, alike, pairs)
    return pairs


def _paired(
    rest: list[Token], free: list[Token], fits: Callable[[Token, Token], bool], pairs: list[tuple[Token, Token]]
) -> list[Token]:
    """Pair what fits, the first with the first; return the tokens that found none. What did is ``free`` no more."""
    left = []
    for token in rest:
        for at, other in enumerate(free):
            if fits(token, other):
                pairs.append((token, free.pop(at)))
                break
        else:
            left.append(token)
    return left


def _same_in_all(one: Token, other: Token) -> bool:
    return _same_in_kind(one, other) and one.sign == other.sign


def _same_in_kind(one: Token, other: Token) -> bool:
    return one.stem == other.stem and one.exact == other.exact


def _same_stem(one: Token, other: Token) -> bool:
    return one.stem == other.stem
