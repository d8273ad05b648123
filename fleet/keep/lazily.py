"""Regular expressions that are compiled when they are first used: most runs use few of those a module has.

A command of 80 ms cannot spend 20 on patterns for secrets that no text hints at.
"""

import re
from typing import Any, AnyStr, cast


class _Late:
    """Stands for a pattern. Once it was used, its methods are the compiled pattern's own."""

    def __init__(self, text: str | bytes, flags: int) -> None:
        self.pattern = text
        self._flags = flags

    def __getattr__(self, name: str) -> Any:
        compiled = re.compile(self.pattern, self._flags)
        for method in ("search", "match", "fullmatch", "sub", "subn", "split", "findall", "finditer"):
            setattr(self, method, getattr(compiled, method))
        return getattr(compiled, name)


def compiled(text: AnyStr, flags: int = 0) -> re.Pattern[AnyStr]:
    """Return what behaves as ``re.compile(text, flags)``."""
    return cast("re.Pattern[AnyStr]", _Late(text, int(flags)))
