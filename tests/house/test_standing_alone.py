"""The project stands alone: no machine's path, no registry's host, no trace of how the work is organised."""

import re
import subprocess
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
FOREIGN = re.compile(r"/work/(?:main|shared)|\.library\b|pypi\.org|pythonhosted|registry\.npmjs|deb\.debian\.org")


def test_no_file_names_a_machine_or_a_registry():
    listed = subprocess.run(["git", "ls-files", "-z"], cwd=ROOT, capture_output=True, check=False)
    if listed.returncode:
        pytest.skip("not a git checkout")
    for name in filter(None, listed.stdout.decode().split("\0")):
        path = ROOT / name
        if name == "tests/house/test_standing_alone.py" or not path.is_file():
            continue
        found = FOREIGN.search(path.read_text("utf-8", "replace"))
        assert not found, f"{name}: {found and found[0]}"
