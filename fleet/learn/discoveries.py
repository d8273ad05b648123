"""Discoveries: non-obvious findings, and the check before one is logged: no routine fix, and no secret."""

from pathlib import Path

from msgspec.structs import replace

from fleet.learn.inputs import Text, secrets_in
from fleet.model import limits, names
from fleet.model.discovery import CONFIDENCES, TYPES, Discovery, decode, retraction_id
from fleet.model.errors import FleetError, NoError, RefusedError, UsageError
from fleet.model.line import BadLineError, Refused
from fleet.store.lines import DISCOVERIES
from fleet.store.workspace import Workspace, Writer

WAITING = "discoveries.jsonl"
"""An agent's own file of pending discoveries: those that could not be written when they were made."""


class Findings:
    """Discoveries of an agent."""

    def __init__(self, workspace: Workspace, agent: str) -> None:
        self._workspace = workspace
        self._agent = agent

    def log(self, finding: Discovery) -> tuple[Discovery, bool]:
        """Log a discovery as it was reported, unscreened and without an id; return it, and whether it was new.

        If a fault elsewhere keeps it from being written, it is stored as pending in the agent's own file.

        Raises:
            UsageError: an unknown type or confidence, or a workaround that was found too fast to be one.
            RefusedError: it has a secret, a text is too long, or it was retracted. Nothing is written.
        """
        _check(finding)
        texts = {name: Text.enter(name, getattr(finding, name)) for name in ("problem", "solution", "context")}
        tags = [Text.enter("tag", tag) for tag in finding.tags]
        if kinds := secrets_in([*texts.values(), *tags]):
            raise RefusedError(
                f"this discovery holds a secret ({', '.join(kinds)}), and every agent of the clan would read it. "
                "Nothing was written. Say it without the secret; if it was a real one, rotate it"
            )
        words = {name: each.text for name, each in texts.items()}
        entry = replace(finding, **words, tags=tuple(tag.text for tag in tags if tag.text))
        if not entry.problem or not entry.solution:
            raise UsageError("a discovery needs a --problem and a --solution with words in them; nothing was written")
        entry = replace(entry, id=entry.own_id())
        try:
            if self._workspace.is_guest(self._agent):
                raise UsageError("no agent is named here yet. Run `fleet init --agent NAME`")
            self.take_waiting()
            with self._workspace.writing(self._agent) as writer:
                known, is_new = _append(writer, entry)
        except FleetError as why:
            if self._workspace.is_read_only:
                raise
            return entry, self._keep_waiting(entry, str(why))
        if not is_new and known.id in self._workspace.discoveries.retracted():
            raise RefusedError(
                f"{known.id} was taken back, and the same words stay so. Nothing was logged: say it in other words, "
                "and it is another discovery"
            )
        return known, is_new

    def take_waiting(self) -> None:
        """Log the pending discoveries of the agent. After a crash this is repeated, without effect on those logged."""
        path = self._waiting_file()
        if not self._workspace.files.read(path):
            return
        with self._workspace.writing(self._agent) as writer, self._workspace.log_lock(self._agent):
            refused: list[Refused] = []
            for number, line in enumerate(self._workspace.files.read(path).splitlines(), 1):
                try:
                    if isinstance(entry := decode(line), Discovery):
                        _append(writer, entry)
                except BadLineError as why:  # the line was cut by a crash, or written by a person
                    refused.append(Refused(f"{self._agent}/{WAITING}", number, str(why), line))
            self._workspace.quarantine.keep(refused, self._workspace.wall())
            self._workspace.files.remove(path)

    def retract(self, prefix: str) -> Discovery:
        """Retract a discovery, durable before this returns: its line stays, but it is shown to nobody any more.

        Raises:
            NoError: there is no such discovery, or it was taken back already.
        """
        with self._workspace.writing(self._agent) as writer:
            entry = find(self._workspace, prefix)
            if entry.id in self._workspace.discoveries.retracted():
                raise NoError(f"{entry.id} was taken back already; nothing was changed")
            line = Discovery(id=retraction_id(entry.id), at=writer.tick(), by=writer.name, retracts=entry.id)
            writer.append(DISCOVERIES, [line])
        return entry

    def _keep_waiting(self, entry: Discovery, why: str) -> bool:
        """Store a discovery as pending in the agent's own file; return whether it is new there."""
        path, line = self._waiting_file(), DISCOVERIES.encode(entry)
        with self._workspace.log_lock(self._agent):
            is_new = line not in self._workspace.files.read(path).split(b"\n")
            if is_new:
                self._workspace.files.append(path, line + b"\n")
        self._workspace.warn(f"{entry.id} waits in {path}, and goes to the clan once this is mended: {why}")
        return is_new

    def _waiting_file(self) -> Path:
        return self._workspace.home(self._agent) / WAITING


def _append(writer: Writer, entry: Discovery) -> tuple[Discovery, bool]:
    found = writer.workspace.discoveries
    if (known := found.get(entry.id)) or entry.id in found.retracted():  # a retraction deletes an unsent discovery
        return known or entry, False
    entry = replace(entry, at=writer.tick(), by=writer.name)
    writer.append(DISCOVERIES, [entry])
    return entry, True


def _check(finding: Discovery) -> None:
    if finding.type not in TYPES:
        raise UsageError(f"--type must be one of {', '.join(TYPES)}, not {finding.type[:40]!r}")
    if finding.confidence not in CONFIDENCES:
        raise UsageError(f"--confidence must be one of {', '.join(CONFIDENCES)}, not {finding.confidence[:40]!r}")
    if finding.minutes is not None and not 0 <= finding.minutes <= 10_000_000:
        raise UsageError("--minutes must be between 0 and 10,000,000")
    if finding.type == "workaround" and (finding.minutes is None or finding.minutes <= limits.WORKAROUND_MINUTES_MIN):
        raise UsageError(
            f"a workaround needs --minutes above {limits.WORKAROUND_MINUTES_MIN}: what took less to find is a routine "
            "fix, and would crowd out what the fleet needs to hear. Nothing was written"
        )
    if len(finding.tags) > limits.TAGS_MAX:
        raise UsageError(f"at most {limits.TAGS_MAX} tags; nothing was written")


def find(workspace: Workspace, prefix: str, *, is_read: bool = False) -> Discovery:
    """Return the discovery with an id, or a unique beginning of one; ``is_read``: the command only reads.

    Raises:
        NoError: no discovery, or more than one.
    """
    found = map(workspace.discoveries.get, workspace.discoveries.beginning(prefix))
    entries = [entry for entry in found if entry and not entry.retracts]
    none = f"no discovery begins with {prefix[:40]!r}. `fleet gossip` lists the newest"
    names.only({each.id: each.problem or each.solution for each in entries}, prefix, none, is_read=is_read)
    return entries[0]
