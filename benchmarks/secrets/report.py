"""How many of three scanners' own cases are found, how much of what is none is flagged, and what public notes come to.

python -m benchmarks.secrets.report CHECKOUTS [--beside PYTHON] [--missed]

``CHECKOUTS`` holds, side by side, checkouts of ``gitleaks``, ``detect-secrets`` and ``trufflehog``, and in ``notes``
any collections of notes in Markdown. ``PYTHON`` is an interpreter that has detect-secrets, which is asked the same.
``--missed`` lists what went wrong in the half of the rules that was read; of the other half no case is ever listed.

A negative is a text in which its own source's tests find nothing. Many of them are secrets by another rule: a random
value of another length behind ``API_KEY=`` is none of one provider's, and still nothing to hand round. So there are two
rows of them: all, and the undisputed ones, in which no rule of gitleaks' whole configuration sees a secret, and which
no other case calls one, nor anything that is in them.
"""

import json
import math
import re
import subprocess
import sys
import tomllib
from collections import Counter
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Any, NamedTuple

from benchmarks.secrets import cases
from benchmarks.secrets.cases import Case
from fleet.text import screening

Finder = Callable[[list[str]], list[int]]
"""How many secrets are found in each of some texts."""

_ASKED = """
import json, sys, tempfile
from pathlib import Path
from detect_secrets import SecretsCollection
from detect_secrets.settings import default_settings
with default_settings(), tempfile.TemporaryDirectory() as folder:
    for number, text in enumerate(json.load(sys.stdin)):
        file = Path(folder, f"{number}.txt")
        file.write_text(text, "utf-8")
        found = SecretsCollection()
        found.scan_file(str(file))
        print(len({(each.line_number, each.secret_hash) for _, each in found}))
"""


def fleet(texts: list[str]) -> list[int]:
    """Return how many values ``screen`` takes out of each text."""
    return [screening.screen(text).text.count("[REDACTED:") - text.count("[REDACTED:") for text in texts]


def beside(python: str) -> Finder:
    """Return the same question, put to detect-secrets in an environment of its own."""

    def found(texts: list[str]) -> list[int]:
        asked = subprocess.run(
            [python, "-c", _ASKED], input=json.dumps(texts), capture_output=True, text=True, check=True
        )
        return [int(line) for line in asked.stdout.split()]

    return found


class _Rule(NamedTuple):
    secret: re.Pattern[str]
    entropy: float
    group: int
    keywords: tuple[str, ...]
    allowed: tuple[tuple[str, re.Pattern[str]], ...]
    stop: tuple[str, ...]


def gitleaks(checkout: Path) -> Finder:
    """Return the same question, put to the expressions of gitleaks' configuration: what a negative may not be."""
    config = tomllib.loads((checkout / "config" / "gitleaks.toml").read_text("utf-8"))
    rules = [_rule(each, config.get("allowlist", {})) for each in config["rules"] if "regex" in each]
    return lambda texts: [sum(_finds(rule, text) for rule in rules) for text in texts]


def _rule(told: dict[str, Any], everywhere: dict[str, Any]) -> _Rule:
    lists = [*told.get("allowlists", []), everywhere]
    allowed = [
        (each.get("regexTarget", "secret"), re.compile(cases.python_expression(expression)))
        for each in lists
        for expression in each.get("regexes", [])
    ]
    stop = tuple(word.lower() for each in lists for word in each.get("stopwords", []))
    secret = re.compile(cases.python_expression(told["regex"]))
    keywords = tuple(word.lower() for word in told.get("keywords", []))
    return _Rule(secret, told.get("entropy", 0.0), told.get("secretGroup", 0), keywords, tuple(allowed), stop)


def _finds(rule: _Rule, text: str) -> bool:
    low = text.lower()
    if rule.keywords and not any(word in low for word in rule.keywords):
        return False
    for found in rule.secret.finditer(text):
        secret = found[rule.group] if rule.group else next((each for each in found.groups() if each), found[0])
        targets = {"secret": secret, "match": found[0], "line": text}
        is_allowed = any(expression.search(targets[target]) for target, expression in rule.allowed)
        if not is_allowed and _entropy(secret) > rule.entropy and not any(word in secret.lower() for word in rule.stop):
            return True
    return False


def _entropy(text: str) -> float:
    return -sum(n / len(text) * math.log2(n / len(text)) for n in Counter(text).values()) if text else 0.0


def undisputed(told: list[Case], theirs: Finder) -> list[Case]:
    """Return the negatives that are none by any rule."""
    texts = {case.text for case in told if case.is_secret}
    secrets = {secret for case in told for secret in case.secrets if len(secret) >= 8}
    negatives = [case for case in told if not case.is_secret and case.text not in texts]
    found = theirs([case.text for case in negatives])
    plain = [case for case, count in zip(negatives, found, strict=True) if not count]
    return [case for case in plain if not any(secret in case.text for secret in secrets)]


def _share(finder: Finder, chosen: Iterable[Case]) -> str:
    told = list(chosen)
    found = sum(1 for count in finder([case.text for case in told]) if count)
    return f"{found:>5} of {len(told):>5} = {found / max(1, len(told)):6.1%}"


def main() -> int:
    """Print the table."""
    folder = Path(sys.argv[1])
    finders: dict[str, Finder] = {"fleet": fleet}
    if "--beside" in sys.argv:
        finders["detect-secrets"] = beside(sys.argv[sys.argv.index("--beside") + 1])
    theirs = finders["gitleaks' rules"] = gitleaks(folder / "gitleaks")
    readers = (
        ("gitleaks", cases.gitleaks),
        ("detect-secrets", cases.detect_secrets),
        ("trufflehog", cases.trufflehog),
    )
    told = [case for name, reader in readers for case in reader(folder / name)]
    negatives = [case for case in told if not case.is_secret]
    plain = undisputed(told, theirs)
    rows = [
        (
            f"{name}, {'read' if is_read else 'unseen'}",
            [c for c in told if c[0] == name and c.is_secret and c.is_read == is_read],
        )
        for name, _ in readers
        for is_read in (True, False)
    ]
    rows += [
        (f"no secrets: {which}, {'read' if is_read else 'unseen'}", [c for c in of if c.is_read == is_read])
        for which, of in (("all", negatives), ("undisputed", plain))
        for is_read in (True, False)
    ]
    for who, finder in finders.items():
        print(f"{who}:")
        for what, chosen in rows:
            print(f"  {what:<30} {_share(finder, chosen)}")
        _notes(folder / "notes", finder)
    if "--missed" in sys.argv:
        _missed([case for case in told if case.is_read and (case.is_secret or case in plain)])
    return 0


def _notes(folder: Path, finder: Finder) -> None:
    files = sorted(folder.rglob("*.md"))
    counts = finder([file.read_text("utf-8", "replace") for file in files])
    print(f"  {'notes':<30} {sum(counts):>5} flags in {sum(map(bool, counts))} of {len(files)}")


def _missed(told: list[Case]) -> None:
    for case, count in zip(told, fleet([case.text for case in told]), strict=True):
        if case.is_secret != bool(count):
            print(f"{'MISSED' if case.is_secret else 'FLAGGED'}\t{case.source}/{case.rule}\t{case.text[:400]!r}")


if __name__ == "__main__":
    sys.exit(main())
