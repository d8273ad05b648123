"""Figures for Prometheus: on loopback, for who calls this machine by a name of its own, and off unless asked for."""

import contextlib
import re
import socket

import anyio
import pytest

from fleet.serve import sidecar
from fleet.store.config import Config
from tests.serve.conftest import until

PORT = 19099
FIGURES = {"syncs_total": 3, "lines_out_total": 5, "last_success_timestamp_seconds": 1_800_000_000.25}


def asked(request: str, port: int) -> tuple[int, str]:
    """Return the code and the body of an answer; 0 where there is none."""
    found = b""

    async def story() -> None:
        nonlocal found
        async with anyio.create_task_group() as group:
            group.start_soon(sidecar._serve_figures, FIGURES, "ann", port)
            await anyio.sleep(0.1)
            found = await anyio.to_thread.run_sync(said, port, request.encode() + b"\r\n\r\n")
            group.cancel_scope.cancel()

    anyio.run(story)
    head, _, body = found.decode().partition("\r\n\r\n")
    return int(head.split()[1]) if head else 0, body


def free_port() -> int:
    with socket.socket() as some:
        some.bind(("127.0.0.1", 0))
        return some.getsockname()[1]


def said(port: int, request: bytes) -> bytes:
    """Return all that is answered to a request."""
    with socket.create_connection(("127.0.0.1", port), 5) as client:
        client.sendall(request)
        found = b""
        while some := client.recv(65536):
            found += some
    return found


def test_every_figure_has_its_help_its_type_and_one_value():
    port = free_port()
    code, body = asked(f"GET /metrics HTTP/1.1\r\nHost: 127.0.0.1:{port}", port)
    assert code == 200
    names = re.findall(r"^# TYPE (\w+) (counter|gauge)$", body, re.MULTILINE)
    assert [name for name, _ in names] == re.findall(r"^# HELP (\w+) ", body, re.MULTILINE)
    assert [name for name, _ in names] == re.findall(r'^(\w+)\{agent="ann"\} [\d.]+$', body, re.MULTILINE)
    assert all(name.endswith("_total") is (kind == "counter") for name, kind in names)
    assert 'fleet_sidecar_syncs_total{agent="ann"} 3\n' in body
    assert 'fleet_sidecar_last_success_timestamp_seconds{agent="ann"} 1800000000.250\n' in body


@pytest.mark.parametrize(
    ("request_head", "code"),
    [
        (f"GET /metrics HTTP/1.1\r\nhost: LOCALHOST:{PORT}", 200),
        (f"GET /metrics?x=1 HTTP/1.1\r\nHost: localhost:{PORT}", 200),
        (f"GET /metrics HTTP/1.1\r\nHost: evil.example:{PORT}", 403),
        ("GET /metrics HTTP/1.1\r\nHost: localhost", 403),
        ("GET /metrics HTTP/1.1\r\nHost: localhost:1", 403),
        (f"GET /metrics HTTP/1.1\r\nHost: localhost:{PORT}\r\nHost: evil.example", 403),
        ("GET /metrics HTTP/1.1", 403),
        (f"GET / HTTP/1.1\r\nHost: localhost:{PORT}", 404),
        ("nonsense", 0),
        ("", 0),
        ("\x00\xff", 0),
    ],
)
def test_only_a_plain_question_by_our_own_name_is_answered(request_head, code):
    port = free_port()
    assert asked(request_head.replace(str(PORT), str(port)), port)[0] == code


def test_figures_are_off_unless_asked_for():
    assert Config().sidecar.metrics_port == 0


def test_long_slow_and_many_callers_stop_nobody(monkeypatch):
    monkeypatch.setattr(sidecar, "REQUEST_S", 0.3)
    port = free_port()
    good = f"GET /metrics HTTP/1.1\r\nHost: 127.0.0.1:{port}\r\n\r\n".encode()

    async def story() -> None:
        async with anyio.create_task_group() as group:
            group.start_soon(sidecar._serve_figures, FIGURES, "ann", port)
            await anyio.sleep(0.1)
            with contextlib.ExitStack() as callers:
                for _ in range(20):
                    callers.enter_context(socket.create_connection(("127.0.0.1", port), 5))
                await anyio.sleep(0.5)  # they said nothing, and were left
                assert b"200 OK" in await anyio.to_thread.run_sync(said, port, good)
            with contextlib.suppress(OSError):
                endless = await anyio.to_thread.run_sync(said, port, b"GET /" + b"x" * 100_000)
                assert b"200 OK" not in endless
            assert b"200 OK" in await anyio.to_thread.run_sync(said, port, good)
            group.cancel_scope.cancel()

    anyio.run(story)


def test_a_sidecar_counts_what_it_does(crew):
    port = free_port()
    crew.quick("ann", f"interval_s = 2.0\nquiet_s = 0.2\nmetrics_port = {port}\n")
    crew.up("ann")
    crew.correct("ann", "Read the whole error")
    request = f"GET /metrics HTTP/1.1\r\nHost: localhost:{port}\r\n\r\n".encode()

    def figure(name: str) -> float:
        found = re.search(rf'^fleet_sidecar_{name}\{{agent="ann"\}} ([\d.]+)', said(port, request).decode(), re.M)
        return float(found[1]) if found else -1

    assert until(lambda: figure("lines_out_total") >= 1)
    assert figure("syncs_total") >= 1
    assert figure("last_success_timestamp_seconds") >= figure("start_timestamp_seconds") > 0
    with socket.socket() as outside:
        outside.settimeout(1)
        assert outside.connect_ex(("127.0.0.2", port)) != 0, "it listens on one address only"
