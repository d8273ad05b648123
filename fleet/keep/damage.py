"""What a damaged database makes SQLite, and Python's module around it, raise: and what of that says damage."""

import sqlite3

from fleet.keep.errors import FleetError

TROUBLE: tuple[type[Exception], ...] = (
    sqlite3.Error,
    UnicodeDecodeError,  # a damaged name in the schema comes out as a message that is no UTF-8
    MemoryError,  # a damaged length asks for more than there is
    OverflowError,
    SystemError,  # the module, of an answer that it did not expect
)
"""What a question to a database may raise."""
ODD: tuple[type[Exception], ...] = (TypeError, ValueError, LookupError, AttributeError)
"""What a value of another kind than was written leads to. A fault of ours looks the same, and stays when mended."""
UNUSABLE: tuple[type[Exception], ...] = (*TROUBLE, FleetError)
"""What a question to a database of ours may raise."""

# None of these says that the file is damaged: making it anew would help nobody.
_NO_DAMAGE = frozenset(
    {
        *(sqlite3.SQLITE_BUSY, sqlite3.SQLITE_LOCKED, sqlite3.SQLITE_READONLY, sqlite3.SQLITE_FULL),
        *(sqlite3.SQLITE_IOERR, sqlite3.SQLITE_CANTOPEN, sqlite3.SQLITE_PERM, sqlite3.SQLITE_NOMEM),
        *(sqlite3.SQLITE_INTERRUPT, sqlite3.SQLITE_AUTH, sqlite3.SQLITE_PROTOCOL),
    }
)


def is_damage(why: Exception) -> bool:
    """Tell whether new tables may help, and not only another time or another disk."""
    return getattr(why, "sqlite_errorcode", sqlite3.SQLITE_ERROR) & 0xFF not in _NO_DAMAGE


def is_ruin(why: Exception) -> bool:
    """Tell whether bytes of the file are wrong, and not only that a table is missing, or another, or a module is."""
    if isinstance(why, ODD) and not isinstance(why, TROUBLE):
        return False
    return is_damage(why) and getattr(why, "sqlite_errorcode", 0) & 0xFF != sqlite3.SQLITE_ERROR


def told(why: Exception) -> str:
    """Return in a few words what was raised."""
    return f"{why}" if isinstance(why, sqlite3.Error) else f"{type(why).__name__}"
