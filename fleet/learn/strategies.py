"""The eight ways out of a stuck approach: code, name, when, example. Fleets name them differently: names can be set.

Plain data and no imports: the message of a closed door is built from it.
"""

from __future__ import annotations

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Mapping


class Strategy:
    """One of them.

    Attributes:
        code: ``M1`` to ``M8``.
        name: what it is called here.
        when: what it is for.
        example: what it looks like.
    """

    __slots__ = ("code", "example", "name", "when")

    def __init__(self, code: str, name: str, when: str, example: str) -> None:
        self.code = code
        self.name = name
        self.when = when
        self.example = example


STRATEGIES = (
    Strategy(
        "M1",
        "Fallback Dependency",
        "something outside is down, broken or limits you",
        "the package mirror answers 503: install from the other mirror, and go on",
    ),
    Strategy(
        "M2",
        "Extreme Debug Logging",
        "you cannot see what fails",
        "the deploy dies without a word: print before and after each step, and change nothing else until it speaks",
    ),
    Strategy(
        "M3",
        "Hardcode & Isolate",
        "too many things vary at once",
        "the login fails: write token and host into one curl call, and see whether that works",
    ),
    Strategy(
        "M4",
        "Switch Libraries",
        "the library itself is at fault, not how you use it",
        "the parser loses umlauts in its newest version too: take another parser",
    ),
    Strategy(
        "M5",
        "Reduce Scope",
        "the problem is too large to debug whole",
        "the import of 40 files fails: import one, get it green, then add the next",
    ),
    Strategy(
        "M6",
        "Invert the Approach",
        "the approach is wrong, not its details",
        "patching generated files gets undone: change the generator instead",
    ),
    Strategy(
        "M7",
        "Ask the Oracle",
        "somebody knows this already",
        "an odd answer from the billing service: look into the fleet's lessons and discoveries before the next line",
    ),
    Strategy(
        "M8",
        "Read the Error",
        "the output says what is wrong, and you have not acted on it",
        "it says that the field region is missing: pass region, and leave the rest alone",
    ),
)

CODES = tuple(strategy.code for strategy in STRATEGIES)


def named(names: Mapping[str, str]) -> tuple[Strategy, ...]:
    """Return the strategies under the names that a fleet gave them."""
    return tuple(Strategy(s.code, names.get(s.code) or s.name, s.when, s.example) for s in STRATEGIES)
