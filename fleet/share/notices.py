"""Notices: short messages to the person responsible for the agents, over the channels that the configuration names.

The failure of a channel is a warning, and stops nothing. The log is for programs, such as a dashboard: it has one JSON
line for each notice, and stays on this machine. A webhook gets Slack's incoming format, and only if somebody on this
machine agreed to its address.
"""

import json
import subprocess
import sys
from collections.abc import Mapping
from contextlib import suppress
from shutil import which
from typing import NamedTuple
from urllib.parse import urlsplit

from fleet.model.errors import FleetError, UsageError
from fleet.store import consent
from fleet.store.workspace import Workspace
from fleet.text.screening import for_terminal, one_line, redact, screen

LOG = "events.jsonl"
"""Name of the log, in ``.fleet``."""
_LOG_BYTES_MAX = 512 * 1024
_WAIT_S = 5.0
_ANSWER_BYTES_MAX = 16 * 1024
_TEXT_CHARS_MAX = 2_000
_MARKUP = str.maketrans({"&": "&amp;", "<": "&lt;", ">": "&gt;"})


class Notice(NamedTuple):
    """One message; ``event``: the name of what happened, for programs, such as ``reflection.complete``."""

    event: str
    title: str
    text: str
    data: Mapping[str, object] = {}


class Notices:
    """The channels that a workspace's configuration names."""

    def __init__(self, workspace: Workspace) -> None:
        self._workspace = workspace
        self._settings = workspace.config.notify
        self._url = self._settings.webhook or consent.variable(self._settings.webhook_env)

    def send(self, notice: Notice) -> None:
        """Send a notice over every channel that is on. A failure is a warning."""
        clean = notice._replace(title=_clean(notice.title), text=_clean(notice.text))
        channels = {"log": self._log, "terminal": self._terminal, "desktop": self._desktop, "webhook": self._webhook}
        for channel, send in channels.items():
            try:
                send(clean)
            except (FleetError, OSError, ValueError, subprocess.SubprocessError) as why:
                self._workspace.warn(
                    f"the {channel} was not told of {notice.event}: {redact(str(why))}. Nothing else depends on it"
                )

    def unagreed(self) -> str:
        """Return the host of the configured webhook if nobody on this machine agreed to it; "" otherwise.

        If its value is no address, the name of the setting or variable is returned, since the value may be a secret.
        """
        if not self._url or self._workspace.state.agrees(consent.WEBHOOK, self._url):
            return ""
        with suppress(UsageError):
            return urlsplit(consent.Endpoint(self._url).check()).hostname or ""
        return "[notify] webhook" if self._settings.webhook else self._settings.webhook_env

    def agree(self) -> None:
        """Record a person's consent to the configured webhook, in place of any other; raise ``UsageError`` for none."""
        try:
            url = consent.Endpoint(self._url).check()
        except UsageError:
            if self._settings.webhook:
                raise
            text = f"what {self._settings.webhook_env} holds is no address that fleet sends to. Nothing was sent"
            raise UsageError(text) from None
        self._workspace.state.agree(consent.WEBHOOK, url, self._workspace.wall(), alone=True)

    def _log(self, notice: Notice) -> None:
        workspace = self._workspace
        if workspace.is_read_only:
            return
        path = workspace.local / LOG
        row = {"at": workspace.wall(), "event": notice.event, "text": notice.text, **notice.data}
        known = workspace.files.read(path)
        if len(known) > _LOG_BYTES_MAX:  # only the newer half stays: programs have read the older long ago
            half = known[len(known) // 2 :].partition(b"\n")[2]
            workspace.files.replace(path, half, is_durable=False)
        workspace.files.append(path, json.dumps(row, default=str).encode() + b"\n", is_durable=False)

    def _terminal(self, notice: Notice) -> None:
        if self._settings.terminal and sys.stderr.isatty():
            sys.stderr.write(for_terminal(f"fleet: {notice.title}: {notice.text}") + "\n")

    def _desktop(self, notice: Notice) -> None:
        if self._settings.desktop and (program := which("notify-send")):
            words = [program, "--app-name=fleet", "--", notice.title, notice.text.translate(_MARKUP)]
            subprocess.run(words, timeout=_WAIT_S, check=True, capture_output=True)

    def _webhook(self, notice: Notice) -> None:
        if self._url and self._workspace.state.agrees(consent.WEBHOOK, self._url):
            body = json.dumps({"text": f"*{notice.title}*\n{notice.text}"}).encode()
            with suppress(TimeoutError):
                consent.Endpoint(self._url).post(body, {}, _WAIT_S, _ANSWER_BYTES_MAX)


def _clean(text: str) -> str:
    return one_line(screen(text).text)[:_TEXT_CHARS_MAX]
