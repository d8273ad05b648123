"""Large modules without what they import beside, and hardly use: msgspec, and pathlib.

They take as long to import as Python itself to start, half of it for others. msgspec prefers ``typing_extensions``
(and its ``inspect``) to ``typing``, which has all that it looks for on the Pythons that fleet runs on; with its class
of identifiers comes ``platform``, to be asked for the system's name; and pathlib imports ``urllib.parse`` for the sake
of URIs. From Python 3.13 on the last two are left alone anyway.
"""

import os
import sys

TYPE_CHECKING = False
if TYPE_CHECKING:  # what `typing` says, without its milliseconds
    from types import ModuleType


def import_msgspec() -> None:
    """Import msgspec, unless somebody did; whoever wants what it did without gets that afterwards."""
    if "msgspec" in sys.modules or "typing_extensions" in sys.modules:
        return
    platform = type(sys)("platform")
    platform.system = _system  # type: ignore[attr-defined]
    _import("msgspec", {"typing_extensions": None, "platform": platform})


def import_pathlib() -> None:
    """Import pathlib, unless somebody did; a path is made a URI with the real ``urllib.parse``."""
    if "pathlib" in sys.modules:
        return
    parse = type(sys)("urllib.parse")
    parse.quote_from_bytes = _quote_from_bytes  # type: ignore[attr-defined]
    _import("pathlib", {"urllib.parse": parse})


def _import(name: str, stand_ins: "dict[str, ModuleType | None]") -> None:
    """Import a module while others stand in for what it asks for; None: there is none."""
    standing = {each: module for each, module in stand_ins.items() if each not in sys.modules}
    sys.modules.update(standing)  # type: ignore[arg-type]
    try:
        __import__(name)
    except (ImportError, AttributeError):
        return  # it asks for more than we know of: whoever imports it next gets all of it
    finally:
        for each in standing:
            del sys.modules[each]


def _system() -> str:
    return os.uname().sysname


def _quote_from_bytes(text: bytes) -> str:
    from urllib.parse import quote_from_bytes

    return quote_from_bytes(text)
