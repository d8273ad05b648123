"""``fleet.toml``: the one configuration file, every threshold with its default."""

import tomllib
from pathlib import Path

import msgspec

from fleet.keep import limits
from fleet.keep.errors import UsageError

FILE_NAME = "fleet.toml"


class Share(msgspec.Struct, kw_only=True, forbid_unknown_fields=True):
    """What travels, and where to.

    Attributes:
        remote: git remote of the clan; "" means: the ``origin`` of the repository around, once confirmed.
        branch: its branch.
        fields: fields of a correction that travel besides text, correct, category and tags: "wrong", "source".
        attempts: how often a refused push is tried anew.
        wait_s: how long one git command may take.
    """

    remote: str = ""
    branch: str = "fleet"
    fields: list[str] = []
    attempts: int = 15
    wait_s: float = 60.0


class Keep(msgspec.Struct, kw_only=True, forbid_unknown_fields=True):
    """When a whole edition is written.

    Attributes:
        edition_always_bytes: below this size of everything, with every sync that changes something.
        edition_uncovered_share: above, when this share of the edition is not covered by it.
    """

    edition_always_bytes: int = limits.EDITION_ALWAYS_BYTES
    edition_uncovered_share: float = limits.EDITION_UNCOVERED_SHARE


class Recall(msgspec.Struct, kw_only=True, forbid_unknown_fields=True):
    """How much an agent reads when its session starts.

    Attributes:
        start_chars: all of it; hosts cut at 10,000.
        discoveries: the newest so many.
        page_lessons: lessons in patterns.md.
        session_idle_minutes: a session without a name ends after this long without a command.
    """

    start_chars: int = limits.START_CHARS_MAX
    discoveries: int = limits.GOSSIP_DISCOVERIES
    page_lessons: int = limits.PAGE_LESSONS_MAX
    session_idle_minutes: int = limits.SESSION_IDLE_MINUTES


class Config(msgspec.Struct, kw_only=True, forbid_unknown_fields=True):
    """The whole file."""

    share: Share = msgspec.field(default_factory=Share)
    keep: Keep = msgspec.field(default_factory=Keep)
    recall: Recall = msgspec.field(default_factory=Recall)


def load(path: Path) -> Config:
    """Read the file; what it does not say has its default.

    Raises:
        UsageError: it cannot be read, and which key is wrong.
    """
    try:
        return msgspec.convert(tomllib.loads(path.read_text("utf-8-sig")), Config)
    except (tomllib.TOMLDecodeError, UnicodeDecodeError) as why:
        raise UsageError(f"{path} is not valid TOML: {why}. Nothing was changed; mend the file and try again") from why
    except msgspec.ValidationError as why:
        raise UsageError(f"{path}: {why}. Nothing was changed; mend the file and try again") from why


def render(remote: str, branch: str) -> str:
    """Return the text of a new file: what was chosen, and every default as a comment."""
    share = f"remote = {_quoted(remote)}" if remote else '# remote = "git@example.org:team/learnings.git"'
    return f"""\
# fleet: the one configuration file. Every value shows its default; take away the "#" to change it.

[share]
{share}
branch = {_quoted(branch)}
# fields = []                    # also share these fields of a correction: "wrong", "source"
# attempts = 15                  # how often a refused push is tried anew
# wait_s = 60.0                  # how long one git command may take

[keep]
# edition_always_bytes = {limits.EDITION_ALWAYS_BYTES}  # below, every sync that changes something writes it whole
# edition_uncovered_share = {limits.EDITION_UNCOVERED_SHARE}  # above, when this share of it is not covered

[recall]
# start_chars = {limits.START_CHARS_MAX}             # what an agent reads at first; hosts cut at 10,000
# discoveries = {limits.GOSSIP_DISCOVERIES}
# page_lessons = {limits.PAGE_LESSONS_MAX}
# session_idle_minutes = {limits.SESSION_IDLE_MINUTES}
"""


def with_remote(text: str, remote: str, branch: str) -> str:
    """Return the text of the file with another remote and branch, every other line as it was."""
    lines = text.splitlines(keepends=True)
    start = next((i for i, line in enumerate(lines) if line.strip() == "[share]"), None)
    if start is None:
        lines += ["" if not lines or lines[-1].endswith("\n") else "\n", "[share]\n"]
        start = len(lines) - 1
    for key, value in (("branch", branch), ("remote", remote)):
        end = next((i for i in range(start + 1, len(lines)) if lines[i].lstrip().startswith("[")), len(lines))
        wanted = f"{key} = {_quoted(value)}\n"
        at = next((i for i in range(start + 1, end) if _is_key(lines[i], key)), None)
        if at is None:
            lines.insert(start + 1, wanted)
        else:
            lines[at] = wanted
    return "".join(lines)


def _is_key(line: str, key: str) -> bool:
    return line.lstrip("# \t").partition("=")[0].strip() == key and "=" in line


def _quoted(text: str) -> str:
    """A TOML basic string: JSON's escapes are a subset of TOML's, but for DEL."""
    return msgspec.json.encode(text).decode().replace("\x7f", "\\u007f")
