"""The order in which commands take the locks of a workspace: no two of them may wait for each other."""

import re
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from fleet.model import limits
from fleet.store.files import Files
from tests.reflect.talks import taught

LESSON, OTHER, THIRD = "Quote every variable in a shell script", "Pin the version of every action", "Never force a push"
SCRATCHPAD = "# Notes\n\n- 2026-11-01 The mirror fails behind the proxy\n- 2026-11-02 Pin the runner\n"


@pytest.fixture
def taken(monkeypatch) -> dict[str, set[str]]:
    """Locks by name, each with the locks that were taken while it was held."""
    held, graph, lock = list[str](), dict[str, set[str]](), Files.lock

    @contextmanager
    def recording(files: Files, path: Path, wait_s: float = limits.LOCK_WAIT_S) -> Iterator[None]:
        name = re.sub(r"^(log|inbox|reflect|tidy|private)-(?!guest).*", r"\1", path.name.removesuffix(".lock"))
        for outer in held if wait_s else ():  # who does not wait holds nobody up
            graph.setdefault(outer, set()).add(name)
        held.append(name)
        try:
            with lock(files, path, wait_s):
                yield
        finally:
            held.remove(name)

    monkeypatch.setattr(Files, "lock", recording)
    return graph


def cycle(graph: dict[str, set[str]]) -> list[str]:
    """Return the locks of a cycle in the order in which they wait for each other; none for no cycle."""
    done = set[str]()

    def behind(name: str, way: list[str]) -> list[str]:
        if name in way:
            return [*way[way.index(name) :], name]
        if name in done:
            return []
        found = next(filter(None, (behind(each, [*way, name]) for each in sorted(graph.get(name, ())))), [])
        done.add(name)
        return found

    return next(filter(None, (behind(name, []) for name in sorted(graph))), [])


def test_no_two_commands_wait_for_each_others_locks(stage, taken):
    for agent in ("velma", "tank"):
        stage.join(agent)
        lesson, other = stage.correct(agent, LESSON), stage.correct(agent, OTHER)
        third = stage.correct(agent, THIRD, "--trigger", "Bash:git push --force*")
        stage.run(agent, "discover", "--problem", f"p {agent}", "--solution", "s")
        stage.run(agent, "sync")
    (stage.folder / "velma/.agents.local.md").write_text(SCRATCHPAD)
    talk = taught(stage.folder / "talk.jsonl")
    for words in (
        ("correct", "--wrong", "w", "--right", "another", "--same", lesson),
        ("edit", lesson, "--set", "category=shell"),
        ("edit", third, "--set", "scope=private"),
        ("edit", third, "--set", "scope=clan"),
        ("guard", third, "deny"),
        ("feedback", lesson, "--helped"),
        ("merge", lesson, other),
        ("unmerge", lesson),
        ("demote", lesson),
        ("promote", lesson),
        ("retire", lesson, other),
        ("undo",),
        ("restore", lesson),
        ("observe", "dead-end", "The mirror fails behind the proxy"),
        ("journal", "--title", "Try the mirror", "--ok", "unit tests", "--next", "fuzz it"),
        ("handover",),
        ("mutate", "M1", "--failed", "make lint", "--switch", "make unit", "--why", "another way"),
        ("reflect", "--transcript", str(talk.path)),
        ("import", "--transcripts", str(talk.path), "--accept", "all"),
        ("inbox", "approve", "--all", "skill"),
        ("inbox", "reject", "--all", "promotion", "--why", "no"),
        ("migrate",),
        ("consolidate", "--force"),
        ("tidy",),
        ("done",),
        ("sleep",),
        ("review", "--answer", f"{lesson}:{other}=different"),
        ("inbox", "--json"),
        ("sync",),
        ("poll",),
        ("compact",),
        ("render-patterns",),
        ("backup", "../b.tar.gz"),
        ("restore-backup", "../b.tar.gz", "--yes"),
        ("block", "tank"),
        ("unblock", "tank"),
        ("config", "set", "promotion.own", "4"),
        ("config", "set", "files.home", "notes/agents"),
        ("undo",),
        ("pause",),
        ("resume",),
        ("purge", other, "--yes"),
        ("doctor", "--fix"),
        ("init", "--agent", "slash"),
        ("undo", "--agent", "velma"),
        ("leave", "--yes"),
    ):
        stage.run("velma", *words, expect=None)
    assert {"sync", "write", "log", "runs", "undo", "scratchpad"} <= {*taken, *set().union(*taken.values())}
    print("\n".join(f"{name}: {', '.join(sorted(inner))}" for name, inner in sorted(taken.items())))
    assert not cycle(taken)
