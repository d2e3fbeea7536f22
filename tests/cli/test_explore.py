"""The explorer starts, prints its address, ends on Ctrl-C, and reports errors."""

import asyncio
import contextlib
import html
import importlib.util
import json
import re
import signal
import socket
import subprocess
import sys
import threading
import time
import urllib.request
from collections.abc import Callable, Iterator
from typing import Any

import pytest
import uvicorn

import headwise as package
from headwise.cli import explore
from headwise.errors import MissingPackage, ModelError, OptionError
from headwise.explorer.model_facts import BUILTIN_TEXT
from headwise.explorer.serve import open_socket, serve
from headwise.explorer.session import Session

from ..explorer.sessions import fresh_session
from .running import Runner

COMMAND = ("-m", "headwise", "explore")


def start(*arguments: str) -> subprocess.Popen[str]:
    command = [sys.executable, *arguments]
    return subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)


@pytest.mark.slow
def test_explorer_prints_its_address_answers_and_ends_cleanly() -> None:
    server = start(*COMMAND, "minilm", "--no-open")
    try:
        assert server.stdout is not None
        line = server.stdout.readline()
        address = next(word for word in line.split() if word.startswith("http://127.0.0.1:"))
        with urllib.request.urlopen(f"{address}api/model") as answer:
            assert json.load(answer)["name"] == "minilm"
        server.send_signal(signal.SIGINT)
        rest, errors = server.communicate(timeout=30)
    finally:
        server.kill()
    assert (server.returncode, rest, errors) == (130, "", "")


@pytest.mark.parametrize("is_handed_on", [True, False])
def test_ctrl_c_ends_the_command_but_not_a_program(
    is_handed_on: bool, headwise: Runner, monkeypatch: pytest.MonkeyPatch
) -> None:
    """`is_handed_on`: whether the server raises the interrupt again, as it should, or only ends."""

    def interrupted(*_: object, **__: object) -> None:
        if is_handed_on:
            raise KeyboardInterrupt

    monkeypatch.setattr(uvicorn.Server, "run", interrupted)
    assert headwise("explore", "--no-open").code == 130
    package.explore(package.load_model("minilm"), opens=False)  # returns


def test_used_port_and_missing_model_raise() -> None:
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        taken.listen()
        port = taken.getsockname()[1]
        command = start(*COMMAND, "--no-open", "--port", str(port))
        _, error = command.communicate(timeout=60)
    assert command.returncode == 2 and f"port {port}" in error
    with pytest.raises(ModelError, match=r"\./nowhere"):
        explore.explore_command(model="./nowhere", port=port, opens=False)
    with open_socket(port):
        pass  # the port is free again


def test_socket_lets_asyncio_send_answers_at_once() -> None:
    """asyncio turns off the wait for more data only for sockets with this protocol."""
    with open_socket(0) as sock:
        assert sock.proto == socket.IPPROTO_TCP


def test_two_explorers_get_different_ports() -> None:
    with open_socket(None) as one, open_socket(None) as other:
        ports = [found.getsockname()[1] for found in (one, other)]
        assert ports[0] != ports[1]
        with pytest.raises(OptionError, match=f"port {ports[1]}"):
            open_socket(ports[1])
        # a connection that comes before the server is ready waits for it
        socket.create_connection(("127.0.0.1", ports[0]), timeout=5).close()


def test_missing_packages_raise_with_the_install_command(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(importlib.util, "find_spec", lambda name: None)
    with pytest.raises(MissingPackage, match=r"pip install 'headwise\[explorer\]'"):
        explore.explore_command()


def test_python_serves_the_same_page(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    servers: list[uvicorn.Server] = []
    prepare = uvicorn.Server.__init__

    def prepared(server: uvicorn.Server, config: uvicorn.Config) -> None:
        prepare(server, config)
        servers.append(server)

    monkeypatch.setattr(uvicorn.Server, "__init__", prepared)
    loaded = package.load_model("minilm")
    thread = threading.Thread(target=package.explore, args=[loaded], kwargs={"opens": False})
    thread.start()
    said = ""
    while "Ctrl-C" not in said or not servers:
        time.sleep(0.05)
        said += capsys.readouterr().out
    with urllib.request.urlopen(said.split()[3]) as answer:
        assert b"headwise" in answer.read()
    servers[0].should_exit = True
    thread.join()


@contextlib.contextmanager
def serving(start: Callable[[], Any], monkeypatch: pytest.MonkeyPatch) -> Iterator[str]:
    """Serve the explorer in a thread inside the block; `start` loads the session."""
    servers: list[uvicorn.Server] = []
    prepare = uvicorn.Server.__init__

    def prepared(server: uvicorn.Server, config: uvicorn.Config) -> None:
        prepare(server, config)
        servers.append(server)

    monkeypatch.setattr(uvicorn.Server, "__init__", prepared)
    ended: list[BaseException] = []

    def run() -> None:
        try:
            serve(start, sock, opens=False)
        except BaseException as error:
            ended.append(error)

    with open_socket(0) as sock:
        thread = threading.Thread(target=run)
        thread.start()
        try:
            yield f"http://127.0.0.1:{sock.getsockname()[1]}/"
        finally:
            servers[0].should_exit = True
            thread.join(30)
    assert [type(error) for error in ended] == [KeyboardInterrupt]


def fetch(address: str) -> bytes:
    with urllib.request.urlopen(address, timeout=30) as answer:
        content: bytes = answer.read()
    return content


def test_the_page_is_served_while_the_model_loads(monkeypatch: pytest.MonkeyPatch) -> None:
    loads = threading.Event()

    def start() -> Session:
        assert loads.wait(30)
        return fresh_session("bert")

    with serving(start, monkeypatch) as address:
        begun = time.perf_counter()
        page = fetch(address)
        for name in re.findall(rb'(?:src|href)="/static/([^"]+)"', page):
            assert fetch(f"{address}static/{name.decode()}")
        assert time.perf_counter() - begun < 5
        for word in BUILTIN_TEXT.rstrip(".").split():
            assert html.escape(word, quote=False).encode() in page
        answers: list[bytes] = []
        waiting = threading.Thread(target=lambda: answers.append(fetch(f"{address}api/model")))
        waiting.start()
        time.sleep(0.2)
        assert answers == [], "answers that need the model wait for it"
        loads.set()
        waiting.join(30)
        assert json.loads(answers[0])["name"] == "bert"


def test_a_model_that_cannot_be_loaded_ends_the_server_with_its_error() -> None:
    def start() -> Session:
        raise ModelError("this model is broken")

    with open_socket(0) as sock, pytest.raises(ModelError, match="this model is broken"):
        serve(start, sock, opens=False)


@pytest.mark.slow
@pytest.mark.parametrize("seconds", [1.0, 2.0, 3.0])
def test_ctrl_c_ends_the_command_while_the_model_loads(seconds: float) -> None:
    server = start(*COMMAND, "smollm2", "--no-open")
    try:
        time.sleep(seconds)
        server.send_signal(signal.SIGINT)
        _, errors = server.communicate(timeout=60)
    finally:
        server.kill()
    assert (server.returncode, errors) == (130, "")


def test_explore_in_a_notebook_recommends_view() -> None:
    async def in_a_loop() -> None:
        package.explore()

    with pytest.raises(OptionError, match=r"headwise\.view"):
        asyncio.run(in_a_loop())
