"""What sets two similar lessons apart: a negation, a number, a name, an opposite, an order, one exchanged word.

A list of opposites is never complete, so the last two rules need none: texts of the same words in another order, and
texts that are alike but for a word or two, are taken to differ unless the words are known to mean the same. To call two
lessons different by mistake costs a look; to offer an opposite as the same would cost the lesson.
"""

from itertools import product

from fleet.keep.pairing import Pairs, alike, pairing
from fleet.keep.smallwords import is_turned, told
from fleet.keep.stems import TOOLS as _TOOLS
from fleet.keep.wording import Quantity, Token, Wording

_ADVERB_FROM = 5  # only, rely

EXCHANGED_MAX = 4
EXCHANGED_SHARE_MAX = 0.5


def difference(mine: Wording, theirs: Wording, pairs: Pairs) -> str:
    """Return what makes two similar lessons say different things; "" when nothing is seen.

    Args:
        mine: one lesson.
        theirs: the other.
        pairs: the tokens that they share, from ``pairing``.
    """
    if numbers_differ(mine, theirs):
        return "number"
    if names_differ(mine, theirs, pairs):
        return "name"
    if is_negated(mine, theirs, pairs):
        return "negation"
    if is_opposed(mine, theirs):
        return "opposite"
    if is_swapped(mine, theirs, pairs):
        return "order"
    exchanged = is_exchanged(mine, theirs, pairs) or is_exchanged_elsewhere(mine, theirs, pairs)
    return "word" if exchanged or is_turned(mine, theirs, pairs) else ""


def numbers_differ(mine: Wording, theirs: Wording) -> bool:
    """Tell whether the texts name different numbers, or the same ones in another order."""
    one, other = _counted(mine), _counted(theirs)
    if mine.bounds and theirs.bounds and mine.bounds.isdisjoint(theirs.bounds):
        return True
    if not _same_numbers(sorted(one), sorted(other)):
        rest_mine, rest_theirs = _without(one, other), _without(other, one)
        # "one retry" against "1 retry"
        if all(q.value == "1" for q in rest_mine) and len(rest_mine) <= theirs.weak_ones and not rest_theirs:
            return False
        return not (all(q.value == "1" for q in rest_theirs) and len(rest_theirs) <= mine.weak_ones and not rest_mine)
    return not _same_numbers(one, other) and _clauses(mine) == _clauses(theirs)


def _counted(wording: Wording) -> list[Quantity]:
    return list(dict.fromkeys(wording.quantities))


def _same_numbers(one: list[Quantity], other: list[Quantity]) -> bool:
    return len(one) == len(other) and all(map(_is_same_number, one, other))


def _is_same_number(one: Quantity, other: Quantity) -> bool:
    return one.value == other.value and (one.unit == other.unit or "" in (one.unit, other.unit))


def _without(one: list[Quantity], other: list[Quantity]) -> list[Quantity]:
    return [quantity for quantity in one if not any(_is_same_number(quantity, known) for known in other)]


def _clauses(wording: Wording) -> int:
    return len({token.clause for token in wording.content})


def names_differ(mine: Wording, theirs: Wording, pairs: Pairs) -> bool:
    """Tell whether each text names something exact, a tool, flag, path or identifier, that the other does not.

    Also when both name the same in another order: "spaces for code, tabs for lists" is not "tabs for code, ...".
    """
    paired = {id(token) for pair in pairs for token in pair}
    only = [
        {token.stem for token in _names(one) if id(token) not in paired} - {token.stem for token in _names(other)}
        for one, other in ((mine, theirs), (theirs, mine))
    ]
    if all(only):
        return True
    flags = [{token.stem for token in wording.tokens if token.is_flag} for wording in (mine, theirs)]
    if all(flags) and flags[0] != flags[1]:
        return True
    return _names_in_other_order(mine, theirs)


def _names(wording: Wording) -> list[Token]:
    return [token for token in wording.tokens if token.exact or token.stem in _TOOLS]


def _names_in_other_order(mine: Wording, theirs: Wording) -> bool:
    one, other = (list(dict.fromkeys((t.stem, t.sign) for t in _names(wording))) for wording in (mine, theirs))
    if one == other or sorted(one) != sorted(other):
        return False
    return len({sign for _, sign in one}) == 1  # else the signs say which is wanted, in whatever order


def is_negated(mine: Wording, theirs: Wording, pairs: Pairs) -> bool:
    """Tell whether the texts say and deny the same thing.

    "Never build SQL from strings; bind parameters" and "Bind parameters in SQL, never format strings" deny the same and
    affirm the same. That the one mentions SQL beside what it denies turns nothing round. Nor does a name beside it that
    only one text denies: "never count records with `wc`; count them with a parser".
    """
    shared = [(one, other) for one, other in pairs if not (one.is_stop or one.is_light)]
    turned = [(one, other) for one, other in shared if one.sign * other.sign < 0 and not _also(one, other, shared)]
    if not turned:
        return mine.negations != theirs.negations and _all_shared(mine, theirs, shared)
    if any(one.exact or one.axes or one.stem in _TOOLS for one, _ in turned) or len(turned) > BESIDE_MAX:
        return True
    if len({one.sign for one, _ in turned}) > 1:  # what the one says the other denies, and the other way round
        return True
    agreed = [(one, other) for one, other in shared if one.sign == other.sign]
    turned_stems = {token.stem for pair in turned for token in pair}
    if not any(one.sign > 0 and one.stem not in turned_stems for one, _ in agreed):
        return True
    paired = {id(token) for pair in pairs for token in pair}
    clauses = [
        {pair[side].clause for pair in agreed if pair[side].sign < 0}
        | {token.clause for token in _names(wording) if token.sign < 0 and id(token) not in paired}
        for side, wording in enumerate((mine, theirs))
    ]
    return not all(one.clause in clauses[0] if one.sign < 0 else other.clause in clauses[1] for one, other in turned)


BESIDE_MAX = 3


def _all_shared(mine: Wording, theirs: Wording, shared: Pairs) -> bool:
    """Tell whether neither text says anything that the other does not: then one "not" more makes another lesson."""
    paired = {id(token) for pair in shared for token in pair}
    return all(token.is_light or id(token) in paired for wording in (mine, theirs) for token in wording.content)


def _also(one: Token, other: Token, pairs: Pairs) -> bool:
    """Tell whether the same word is also said with the other sign, as in "check what it sees, not what we see"."""
    return any(a.stem == one.stem and a.sign == b.sign for a, b in pairs if a is not one and b is not other)


def is_opposed(mine: Wording, theirs: Wording) -> bool:
    """Tell whether the texts stand at two poles: enable and disable, trusted and untrusted."""
    one, other = _poles(mine), _poles(theirs)
    for axis in one.keys() & other.keys():
        if set(one[axis]).isdisjoint(other[axis]):
            return True
        if sorted(one[axis]) == sorted(other[axis]) and one[axis] != other[axis] and _clauses(mine) == _clauses(theirs):
            return True
    return any(_prefixed(these, those) for these, those in ((mine, theirs), (theirs, mine)))


def _poles(wording: Wording) -> dict[int, list[int]]:
    found: dict[int, list[int]] = {}
    for token in wording.tokens:
        if not token.exact and token.sign:
            for axis, pole in token.axes.items():
                found.setdefault(axis, []).append(pole * token.sign)
    return found


_PREFIXES = ("un", "non", "in", "im", "ir", "il", "ab", "a", "dis", "de", "anti", "mis")


def _prefixed(these: Wording, those: Wording) -> bool:
    """Tell whether one text has a word that the other has with ``un-`` in front or ``-less`` behind."""
    plain = {token.stem: token.sign for token in these.content if not token.exact}
    turned = {token.stem: token.sign for token in those.content if not token.exact}
    for word, sign in plain.items():
        if len(word) < 3 or word in turned:
            continue
        for other in (*(prefix + word for prefix in _PREFIXES), word.removesuffix("ful") + "less"):
            if other in turned and other not in plain and turned[other] * sign >= 0:
                return True
    return False


def is_swapped(mine: Wording, theirs: Wording, pairs: Pairs) -> bool:
    """Tell whether what the one puts first, the other puts last: before, to, into; or the same words, rearranged."""
    for kind in mine.relations.keys() & theirs.relations.keys():
        straight = swapped = 0
        for left, right in mine.relations[kind]:
            for their_left, their_right in theirs.relations[kind]:
                straight += len(pairing(left, their_left)) + len(pairing(right, their_right))
                swapped += len(pairing(left, their_right)) + len(pairing(right, their_left))
        if swapped and swapped >= straight:
            return True
    return not _agree_on_names(pairs) and _rearranged(mine, theirs)


def _agree_on_names(pairs: Pairs) -> bool:
    """Tell whether one name is wanted by both texts, and another by neither."""
    signs = {(one.sign, other.sign) for one, other in pairs if one.exact or one.stem in _TOOLS}
    return signs == {(1, 1), (-1, -1)}


def _rearranged(mine: Wording, theirs: Wording) -> bool:
    one, other = _by_clause(mine), _by_clause(theirs)
    if sorted(one) == sorted(other) or len(one) != len(other):
        return False
    words = {word for clause in one for word in clause}
    if len(words) < 2 or words != {word for clause in other for word in clause}:
        return False
    return not any(_is_put_first(these, those) for these, those in ((mine, theirs), (theirs, mine)))


def _by_clause(wording: Wording) -> list[tuple[str, ...]]:
    clauses: dict[int, list[str]] = {}
    for token in _in_order(wording):
        if not (token.is_stop or _is_adverb(token)):
            clauses.setdefault(token.clause, []).append(token.stem)
    return [tuple(clause) for clause in clauses.values()]


def _in_order(wording: Wording) -> list[Token]:
    """Return the tokens as their order counts: "the key of a map" is "the map key"."""
    found: list[Token] = []
    is_of = False
    for token in told(wording):
        if token.surface.casefold() == "of" and found and not found[-1].is_stop:
            is_of = True
            continue
        found.insert(len(found) - is_of, token)
        is_of = False
    return found


def _is_adverb(token: Token) -> bool:
    """Tell of a word that may stand anywhere; as far as its end tells."""
    return token.surface.casefold().endswith("ly") and len(token.surface) > _ADVERB_FROM


def _is_put_first(mine: Wording, theirs: Wording) -> bool:
    """Tell whether the one ends in what the other begins with, preposition and all: "in CI pin it", "pin it in CI"."""
    one, other = ([t.stem for t in _in_order(wording) if not _is_adverb(t)] for wording in (mine, theirs))
    return any(at and word in _MAY_COME_FIRST and other == one[at:] + one[:at] for at, word in enumerate(one))


_MAY_COME_FIRST = frozenset(
    ("for", "in", "on", "at", "with", "from", "to", "inside", "within", "during", "by", "under")
)


def is_exchanged(mine: Wording, theirs: Wording, pairs: Pairs) -> bool:
    """Tell whether the texts are alike but for a word or two in the same place that are not known to mean the same."""
    partner = {id(other): one for one, other in pairs}
    one, other = ([t for t in w.content if not (t.is_light or t.is_time)] for w in (mine, theirs))
    keys = [token.stem for token in one], [partner[id(t)].stem if id(t) in partner else t.stem for t in other]
    from difflib import SequenceMatcher  # few texts come so close

    changes = [code for code in SequenceMatcher(None, *keys, autojunk=False).get_opcodes() if code[0] != "equal"]
    changed = sum(max(i2 - i1, j2 - j1) for _, i1, i2, j1, j2 in changes)
    if changed <= 1:
        words = [token for _, i1, i2, j1, j2 in changes for token in one[i1:i2] + other[j1:j2]]
        turns = any(token.axes or token.is_flag for token in words) and not _is_known(words, mine, theirs)
        counts = changed and [q.unit for q in _counted(mine)] != [q.unit for q in _counted(theirs)]
        if turns or counts or mine.is_timed != theirs.is_timed:
            return True
    if changed > EXCHANGED_MAX or changed > EXCHANGED_SHARE_MAX * max(len(one), len(other)):
        return False
    moved = {id(token) for _, i1, i2, _, _ in changes for token in one[i1:i2]}
    theirs_changed = [token for _, _, _, j1, j2 in changes for token in other[j1:j2]]
    if any(id(partner[id(token)]) in moved for token in theirs_changed if id(token) in partner):
        return False  # said in another order, so not the same sentence with a word exchanged
    return any(
        tag == "replace" and not _is_known(one[i1:i2] + other[j1:j2], mine, theirs) for tag, i1, i2, j1, j2 in changes
    )


def is_exchanged_elsewhere(mine: Wording, theirs: Wording, pairs: Pairs) -> bool:
    """Tell whether the texts share all their words but one each, beside the same neighbour, in whatever order.

    "Use a durable queue for jobs" and "for jobs, use a volatile queue". The same lessons in other words seldom differ
    by one word each; where they do, the two mostly stand beside other ones. Of an opposite that has a word of its own
    besides, the exchanged ones stand before the same word: with two more each, nothing tells the one from the other.
    """
    partner = {id(one): other for one, other in pairs} | {id(other): one for one, other in pairs}
    words = [[t for t in _in_order(w) if not (t.is_stop or t.is_time)] for w in (mine, theirs)]
    heavy = [[t for t in each if not t.is_light] for each in words]
    alone = [[t for t in each if id(t) not in partner and not t.exact] for each in heavy]
    counts = sorted(map(len, alone))
    if counts not in ([1, 1], [1, 2]):
        return False
    steps = (-1, 1) if counts == [1, 1] else (1,)
    return any(
        partner.get(id(_beside(told[0], one, step))) is _beside(told[1], other, step) is not None
        for told in (heavy, words)
        for step in steps
        for one, other in product(*alone)
    )


def _beside(words: list[Token], token: Token, step: int) -> Token | None:
    at = next(at for at, each in enumerate(words) if each is token) + step
    return words[at] if 0 <= at < len(words) else None


def _is_known(tokens: list[Token], mine: Wording, theirs: Wording) -> bool:
    """Tell whether both texts say all of these, in whatever place."""
    return all(any(alike(token, other) for other in wording.content) for token in tokens for wording in (mine, theirs))
