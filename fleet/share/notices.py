"""Notices: short messages to whoever is responsible for the agents, over whatever the configuration names.

Every way is one function of the same shape (``_WAYS``). A notice never fails what it tells of: a way that does not
answer is a warning. The log is for programs, such as a dashboard: a JSON line each, on this machine alone. A webhook
gets Slack's incoming format, and only where somebody on this machine agreed to its very address.
"""

import html
import json
import os
import subprocess
import sys
from collections.abc import Callable, Mapping
from contextlib import suppress
from shutil import which
from typing import NamedTuple
from urllib.parse import urlsplit

from fleet.model.errors import FleetError
from fleet.store import consent
from fleet.store.workspace import Workspace
from fleet.text.screening import for_terminal, one_line, redact, screen

LOG = "events.jsonl"
"""Name of the log, in ``.fleet``."""
_LOG_BYTES_MAX = 512 * 1024
_WAIT_S = 5.0
_ANSWER_BYTES_MAX = 16 * 1024
_TEXT_CHARS_MAX = 2_000


class Notice(NamedTuple):
    """One message.

    Attributes:
        event: what happened, as programs name it, such as ``reflection.complete``.
        title: a few words.
        text: a sentence or two.
        data: what programs are told beside it.
    """

    event: str
    title: str
    text: str
    data: Mapping[str, object] = {}


def send(workspace: Workspace, notice: Notice) -> None:
    """Send a notice over every way that is on. What goes wrong is a warning."""
    clean = notice._replace(title=_clean(notice.title), text=_clean(notice.text))
    for way, act in _WAYS.items():
        try:
            act(workspace, clean)
        except (FleetError, OSError, ValueError, subprocess.SubprocessError) as why:
            workspace.warn(f"the {way} was not told of {notice.event}: {redact(str(why))}. Nothing else depends on it")


def _webhook_url(workspace: Workspace) -> str:
    """Return the address of the webhook that is named, by the file or by its variable; "" for none."""
    settings = workspace.config.notify
    return settings.webhook or consent.variable(settings.webhook_env)


def unagreed(workspace: Workspace) -> str:
    """Return the host of the webhook that is named and that nobody on this machine agreed to; "" for none."""
    url = _webhook_url(workspace)
    is_open = url and not workspace.state.agrees(consent.WEBHOOK, url)
    return urlsplit(url).hostname or url[:40] if is_open else ""


def agree(workspace: Workspace) -> None:
    """Note a person's yes to the webhook that is named, in place of any other.

    Raises:
        UsageError: messages may not go there.
    """
    url = consent.check_endpoint(_webhook_url(workspace))
    workspace.state.agree(consent.WEBHOOK, url, workspace.wall(), alone=True)


def _clean(text: str) -> str:
    return one_line(screen(text).text)[:_TEXT_CHARS_MAX]


def _log(workspace: Workspace, notice: Notice) -> None:
    if workspace.is_read_only:
        return
    path = workspace.local / LOG
    row = {"at": workspace.wall(), "event": notice.event, "text": notice.text, **notice.data}
    known = workspace.files.read(path)
    if len(known) > _LOG_BYTES_MAX:  # the newer half stays: a program that reads it has long had the other one
        half = known[len(known) // 2 :].partition(b"\n")[2]
        workspace.files.replace(path, half, is_durable=False)
    workspace.files.append(path, json.dumps(row, default=str).encode() + b"\n", is_durable=False)


def _terminal(workspace: Workspace, notice: Notice) -> None:
    if workspace.config.notify.terminal and sys.stderr.isatty():
        sys.stderr.write(for_terminal(f"fleet: {notice.title}: {notice.text}") + "\n")


def _desktop(workspace: Workspace, notice: Notice) -> None:
    program = which("notify-send") if workspace.config.notify.desktop else None
    if program is not None:
        words = [program, "--app-name=fleet", "--", notice.title, html.escape(notice.text)]
        subprocess.run(words, timeout=_WAIT_S, check=True, capture_output=True, env=dict(os.environ))


def _webhook(workspace: Workspace, notice: Notice) -> None:
    url = _webhook_url(workspace)
    if not url or not workspace.state.agrees(consent.WEBHOOK, url):
        return
    body = json.dumps({"text": f"*{notice.title}*\n{notice.text}"}).encode()
    with suppress(TimeoutError):
        consent.posted(url, body, {}, _WAIT_S, _ANSWER_BYTES_MAX)


_WAYS: Mapping[str, Callable[[Workspace, Notice], None]] = {
    "log": _log,
    "terminal": _terminal,
    "desktop": _desktop,
    "webhook": _webhook,
}
