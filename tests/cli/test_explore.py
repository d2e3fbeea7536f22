"""The explorer starts, prints its address, ends on Ctrl-C, and reports errors."""

import asyncio
import importlib.util
import json
import signal
import socket
import subprocess
import sys
import threading
import time
import urllib.request

import pytest
import uvicorn

import headwise as package
from headwise.cli import explore
from headwise.errors import MissingPackage, ModelError, OptionError
from headwise.explorer.serve import open_socket

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


def test_explore_in_a_notebook_recommends_view() -> None:
    async def in_a_loop() -> None:
        package.explore()

    with pytest.raises(OptionError, match=r"headwise\.view"):
        asyncio.run(in_a_loop())
