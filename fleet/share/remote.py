"""The far side of a clan, as the exchange sees it: it keeps files, and answers which of them changed.

It knows nothing of patterns. Each transport is one class with two calls, and one suite,
``tests/contract/test_remote.py``, runs over all of them.

At least once and in any order is enough, since what travels are lines whose join does not mind (DESIGN, section 3).
"""

import re
from pathlib import Path
from typing import Protocol, runtime_checkable
from urllib.parse import unquote

import msgspec

from fleet.model.errors import FleetError, UsageError
from fleet.store import tree
from fleet.store.git import SCHEMES

Files = dict[str, bytes]
"""Path under clan-learnings -> its bytes; ``b""`` means that the path is gone. Only what changed."""


class Whole(Files):
    """Files that are the whole tree, since the mark was empty or is not known any more: what is not in it is gone."""


Mark = str
"""A state of the far side; opaque. ``""``: never pulled, or nothing is there."""


class Moved(msgspec.Struct, frozen=True):
    """Somebody was faster. No error: pull, join, try again."""

    reason: str


class RemoteUnavailable(FleetError):  # noqa: N818 - a state of the world more often than an error
    """The far side could not be asked, or its answer did not arrive. A push may have got there all the same."""

    exit_code = 5


class RemoteRefused(FleetError):  # noqa: N818 - the far side's own word
    """The far side answered, and said no: a hook, a permission. Its screened words are in the message."""

    exit_code = 3


class Remote(Protocol):
    """The keeper of the clan's files for everybody."""

    name: str
    """For people; without credentials."""
    warnings: list[str]
    """What a person should hear of, for the caller to take out and say."""
    skipped: int
    """How many files were there and were not read: then nobody may say that all is in sync."""

    def pull(self, since: Mark) -> tuple[Files, Mark]:
        """Return what changed since a mark, and the mark of the state it leads to.

        An empty mark, and one that is not known any more, give the ``Whole`` tree. Where nothing is there any more,
        every path that the mark had is gone and the new mark is empty.

        Raises:
            RemoteUnavailable: nothing was read.
        """
        ...

    def push(self, files: Files, on: Mark, *, message: str | None = None) -> Mark | Moved:
        """Lay files over the state ``on``; ``b""`` removes a path. Done whole or not at all.

        Args:
            files: what changes. None: nothing happens, and ``on`` is returned.
            on: what the far side must be at, else ``Moved``. ``""``: nothing is there yet.
            message: one line for people, where the far side keeps such.

        Raises:
            RemoteUnavailable: it may or may not have arrived; pushing it again is harmless.
            RemoteRefused: it was not taken.
            ValueError: a path is not one of the clan's.
        """
        ...


@runtime_checkable
class Mirrored(Remote, Protocol):
    """A remote whose marks are commits of the workspace's own tree store: nothing is read twice, nothing copied."""

    def fetch(self, since: Mark) -> Mark:
        """Bring the far side's head into the tree store, as ``pull`` does, and return it.

        Raises:
            RemoteUnavailable: nothing was read.
        """
        ...


def check_outgoing(files: Files) -> None:
    """Refuse what no other machine would read.

    Raises:
        ValueError: a path is not one of the clan's; our own fault.
        RemoteRefused: a file is too large.
    """
    for path, data in files.items():
        if not tree.is_clan_path(path):
            raise ValueError(f"{path!r} has no place in the clan's tree")
        if len(data) > tree.BLOB_BYTES_MAX:
            raise RemoteRefused(
                f"{path} has {len(data) // 2**20} MiB, more than the {tree.BLOB_BYTES_MAX // 2**20} MiB "
                "that others read; nothing was sent, and nothing is lost. `fleet compact` makes it smaller"
            )


# --- addresses ------------------------------------------------------------------------------------------------------

_ADDRESS_CHARS_MAX = 4096
_BRANCH_BYTES_MAX = 200  # with ".lock" behind it, still a file name
_CONTROL = re.compile(r"[\x00-\x1f\x7f-\x9f\ud800-\udfff]")
_HELPER = re.compile(r"[^/:\[]*::")
_SCHEME = re.compile(r"([^/:]+)://(.*)", re.DOTALL)
_SCP_LIKE = re.compile(r"(?:[^/:@]*@)?(?P<host>\[[^/\]]*\]|[^/:]*):(?P<path>.*)", re.DOTALL)
_NO_BRANCH = re.compile(
    r"[\x00-\x20\x7f-\x9f~^:?*\[\\\ud800-\udfff]|\.\.|@\{|//|(?:^|/)\.|\.lock(?:/|$)|^/|/$|\.$|^-|^@$|^HEAD$"
)
_USERINFO = re.compile(r"(?P<scheme>[a-z][a-z0-9+.-]*://)?(?P<info>[^\s?#]*)@", re.IGNORECASE)


class BadRemote(UsageError, ValueError):  # noqa: N818 - reads as what it is
    """An address or a branch that is not handed to git."""


def check_remote(url: str) -> str:
    """Return the address as it is handed to git: an absolute path, ``host:path``, or a url of ``SCHEMES``.

    Raises:
        BadRemote: it is none of these, or could be taken for an option, a program or another host's option.
    """
    url = url.strip()
    shown = redact_url(url)[:200]
    if not url or len(url) > _ADDRESS_CHARS_MAX or _CONTROL.search(url):
        raise BadRemote(f"{shown!r} is no address of a remote: it is empty, too long or has control characters in it")
    if url.startswith("-"):
        raise BadRemote(f"{shown!r} starts with a dash; git would take it for an option")
    if _HELPER.match(url):
        raise BadRemote(f"{shown!r} would make git run a helper program; use one of {', '.join(SCHEMES)}, or a path")
    with_scheme = _SCHEME.fullmatch(url)
    if with_scheme:
        scheme, rest = with_scheme.groups()
        if scheme not in SCHEMES:
            raise BadRemote(f"{shown!r}: {scheme!r} is none of {', '.join(SCHEMES)}")
        host = rest.partition("/")[0].rpartition("@")[2]
        if host.startswith("-") or (not host and scheme != "file"):
            raise BadRemote(f"{shown!r} has no proper host")
        return url
    scp_like = _SCP_LIKE.fullmatch(url)
    if scp_like:
        if not scp_like["host"] or not scp_like["path"] or scp_like["host"][0] == "-" or scp_like["path"][0] == "-":
            raise BadRemote(f"{shown!r} has no proper host and path")
        return url
    return str(Path(url).expanduser().absolute())


def remote_is_allowed(url: str) -> bool:
    """Tell whether ``check_remote`` takes an address."""
    try:
        check_remote(url)
    except BadRemote:
        return False
    return True


def is_local(url: str) -> bool:
    """Tell whether a checked address is on this machine."""
    return url.startswith(("/", "file://"))


def check_branch(name: str) -> str:
    """Return the short name of a branch, if it is one by the rules of ``git check-ref-format --branch``.

    Raises:
        BadRemote: it is not.
    """
    if not name or len(name.encode("utf-8", "replace")) > _BRANCH_BYTES_MAX or _NO_BRANCH.search(name):
        raise BadRemote(f"{name[:200]!r} is no name of a branch; letters, digits, - and / are always fine")
    return name


def redact_url(url: str) -> str:
    """Return an address without what lets one in: user and password (over ssh the user stays), and the query."""
    bare, mark, _ = url.partition("?")
    info = secret = _userinfo(bare)
    if info and bare.startswith("ssh://"):
        user, _, secret = info.partition(":")
        bare = bare.replace(info, f"{user}:***" if secret else user, 1)
    elif info:
        bare = bare.replace(info, "***", 1)
    return bare + ("?***" if mark else "")


def secrets_in(url: str) -> tuple[str, ...]:
    """Return what of an address must never be shown, in each form in which git may repeat it."""
    info = _userinfo(url.partition("?")[0])
    user, _, password = info.partition(":")
    parts = {info, password} if url.startswith("ssh://") else {info, user, password}
    parts.add(url.partition("?")[2])
    if url.startswith("ssh://") and not password:
        parts.discard(info)
    return tuple(sorted(form for part in parts for form in {part, unquote(part)} if len(form) > 3))


def _userinfo(address: str) -> str:
    """Return what stands before the host. A password may have a bare ``@`` or ``/`` in it, and still is one."""
    found = _USERINFO.match(address)
    if not found:
        return ""
    info = found["info"]
    if not found["scheme"]:
        return info if ":" in info.partition("/")[0] and not info.startswith("[") else ""
    first = info.partition("/")[0]
    if first == info or re.search(r":(?![0-9]+$)", first):
        return info
    return first.rpartition("@")[0]
