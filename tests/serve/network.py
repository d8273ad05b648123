"""One machine's network: a way to a server that can be cut, can hang, can lose the replies, and comes back.

What hung once stays dead, as it does for a machine that slept or took another network: both ends still hold a
connection that nobody carries anything over. Only a new one works.
"""

import os
import signal
import socket
import struct
import subprocess
import threading
from collections.abc import Callable
from contextlib import suppress

HOST = "127.0.0.1"
OPEN, AWAY, HANGING, MUTE = "open", "away", "hanging", "mute"
"""It works; it refuses, and whatever was open is reset; nothing is carried; only what goes out is carried."""
_RESET = struct.pack("ii", 1, 0)


class Link:
    """One connection through the network, and how much of it still works."""

    def __init__(self, client: socket.socket, server: socket.socket) -> None:
        self.ends = (client, server)
        self.is_dead = self.is_mute = False

    def carry(self) -> None:
        for source, other, is_reply in ((*self.ends, False), (*self.ends[::-1], True)):
            threading.Thread(target=self._pump, args=(source, other, is_reply), daemon=True).start()

    def _pump(self, source: socket.socket, other: socket.socket, is_reply: bool) -> None:
        with suppress(OSError):
            while data := source.recv(65_536):
                if not (self.is_dead or (self.is_mute and is_reply)):
                    other.sendall(data)
        if not self.is_dead:  # whoever is cut off does not hear that the other one hung up
            with suppress(OSError):
                other.shutdown(socket.SHUT_WR)

    def end(self) -> None:
        for each in self.ends:
            with suppress(OSError):
                each.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, _RESET)
            with suppress(OSError):
                each.shutdown(socket.SHUT_RDWR)
            each.close()


class Network:
    """A port on loopback that leads to a server, as long as the network is there.

    Args:
        reach: connects to the server; raises ``OSError`` when nobody is there.
    """

    def __init__(self, reach: Callable[[], socket.socket]) -> None:
        self._reach = reach
        self._mode = OPEN
        self._links: list[Link] = []
        self._lock = threading.Lock()
        self._listening = socket.create_server((HOST, 0))
        self.port = self._listening.getsockname()[1]
        self._thread = threading.Thread(target=self._accept, daemon=True)
        self._thread.start()

    def become(self, mode: str) -> None:
        """Be another one from now on."""
        with self._lock:
            self._mode = mode
            for link in self._links:
                link.is_dead = link.is_dead or mode == HANGING
                link.is_mute = link.is_mute or mode == MUTE
            if mode == AWAY:
                self._hang_up()

    def _hang_up(self) -> None:
        for link in self._links:
            link.end()
        self._links.clear()

    def _accept(self) -> None:
        with suppress(OSError):
            while True:
                client, _ = self._listening.accept()
                with self._lock:
                    self._admit(client)

    def _admit(self, client: socket.socket) -> None:
        try:
            # A way that hangs leads nowhere: its other end is nobody's.
            server = socket.socketpair()[0] if self._mode == HANGING else self._reach()
        except OSError:
            server = None
        if server is None or self._mode == AWAY:
            client.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, _RESET)
            client.close()
            return
        link = Link(client, server)
        link.is_dead, link.is_mute = self._mode == HANGING, self._mode == MUTE
        self._links.append(link)
        link.carry()

    def end(self) -> None:
        self._listening.shutdown(socket.SHUT_RDWR)
        self._listening.close()
        self._thread.join(10)
        with self._lock:
            self._hang_up()


class GitServer:
    """Serves the repositories below a folder, one process a connection: nothing listens, and nothing is left."""

    def __init__(self, folder: str, env: dict[str, str]) -> None:
        self._words = ["git", "daemon", "--inetd", "--log-destination=none", "--export-all"]
        self._words += ["--enable=receive-pack", "--timeout=20", f"--base-path={folder}", folder]
        self._env = env
        self._children: list[subprocess.Popen[bytes]] = []

    def reach(self) -> socket.socket:
        ours, theirs = socket.socketpair()
        with theirs:
            child = subprocess.Popen(
                self._words, stdin=theirs, stdout=theirs, stderr=subprocess.DEVNULL, env=self._env,
                start_new_session=True,
            )  # fmt: skip
        self._children = [each for each in self._children if each.poll() is None] + [child]
        return ours

    def end(self) -> None:
        for child in self._children:
            if child.poll() is None:
                with suppress(ProcessLookupError):
                    os.killpg(child.pid, signal.SIGKILL)
            child.wait()
