"""Many lessons at once: each is counted, and nothing is read once for every one of them. And many processes at once."""

from contextlib import contextmanager

import pytest
from msgspec.structs import replace

from fleet.learn import corrections_md, counting, restore
from fleet.learn.counting import CountedLog
from fleet.learn.discoveries import WAITING, Findings
from fleet.model.discovery import Discovery
from fleet.store import config
from fleet.store.lines import DISCOVERIES
from fleet.store.workspace import Workspace


@pytest.fixture
def workspace(tmp_path):
    (tmp_path / config.FILE_NAME).write_text(config.render("", "fleet"))
    made = Workspace(tmp_path)
    yield made
    made.close()


def test_entries_written_by_hand_are_counted_in_one_go(workspace, monkeypatch):
    log = CountedLog(workspace, "velma").log_file()
    log.parent.mkdir(parents=True)
    entry = "## 2026-03-15 14:30Z — {0}\n**What I got wrong:** w\n**Pattern:** Check gadget {0} first\n\n"
    log.write_text("".join(entry.format(number) for number in range(40)))
    with workspace.writing("velma"):
        pass
    parsed, parse = [], corrections_md.Log.parse
    monkeypatch.setattr(corrections_md.Log, "parse", lambda page: parsed.append(1) or parse(page))
    counting.reconcile_all(workspace)
    assert len(parsed) <= 3
    assert len(CountedLog(workspace, "velma").read_log().records) == 40
    assert sorted(each.text for each in workspace.patterns.lessons()) == sorted(
        f"Check gadget {number} first" for number in range(40)
    )


def test_nobody_waits_for_the_write_lock_with_a_logs_lock_in_hand(workspace, monkeypatch):
    # Whoever writes a lesson takes them in the other order: two such commands waited for each other until both gave up.
    with workspace.writing("velma") as writer:
        finding = Discovery(id="", at=writer.tick(), by=writer.name, problem="p", solution="s")
    waiting = workspace.home("velma") / WAITING
    waiting.parent.mkdir(parents=True)
    waiting.write_bytes(DISCOVERIES.encode(replace(finding, id=finding.own_id())) + b"\n")
    old = workspace.root / "earlier" / "velma"
    old.mkdir(parents=True)
    (old / corrections_md.FILE_NAME).write_text("## 2026-03-15 14:30Z\n**Pattern:** Check gadget first\n")
    (old / "memory.md").write_text("# memory\n")
    workspace._old_places.append("earlier")
    held, orders, lock = [], [], Workspace.lock

    @contextmanager
    def noting(self, name, *wait_s):
        orders.append((*held, name))
        with lock(self, name, *wait_s):
            held.append(name)
            yield
            held.pop()

    monkeypatch.setattr(Workspace, "lock", noting)
    Findings(workspace, "velma").take_waiting()
    restore.bring(workspace)
    assert workspace.discoveries.count() == 1
    assert not waiting.exists()
    assert (workspace.home("velma") / "memory.md").exists()
    assert ("write", "log-velma") in orders
    assert ("log-velma", "write") not in orders
