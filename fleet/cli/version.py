"""Text of ``fleet --version``: the version, its commit, and the Python that runs it."""

import json
import platform
import subprocess
from contextlib import suppress
from importlib import metadata
from pathlib import Path

from fleet import __version__

DISTRIBUTION = "fleet-learnings"


def version() -> str:
    """Return the version, the commit where one is known, and the Python that runs it, in one line."""
    return f"fleet {__version__} ({', '.join(filter(None, [_commit(), f'Python {platform.python_version()}']))})"


def _commit() -> str:
    """Return which commit this is: of the checkout that it runs from, else as the installer noted it; "" of a wheel."""
    root = Path(__file__).resolve().parents[2]
    if (root / ".git").exists() and (root / "pyproject.toml").exists():
        with suppress(OSError, subprocess.SubprocessError):
            asked = ["git", "-C", str(root), "rev-parse", "--short=12", "HEAD"]
            done = subprocess.run(asked, capture_output=True, text=True, timeout=5, check=True)
            return f"commit {done.stdout.strip()}"
    with suppress(metadata.PackageNotFoundError, ValueError, KeyError, TypeError):
        noted = json.loads(metadata.distribution(DISTRIBUTION).read_text("direct_url.json") or "{}")
        return f"commit {noted['vcs_info']['commit_id'][:12]}"
    return ""
