"""The explorer starts, says where, ends on Ctrl-C, and refuses in a sentence."""

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


def started(*arguments: str) -> subprocess.Popen[str]:
    command = [sys.executable, *arguments]
    return subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)


@pytest.mark.slow
def test_it_says_the_address_answers_and_ends_cleanly() -> None:
    server = started(*COMMAND, "minilm", "--no-open")
    try:
        assert server.stdout is not None
        line = server.stdout.readline()
        address = next(word for word in line.split() if word.startswith("http://127.0.0.1:"))
        with urllib.request.urlopen(f"{address}api/model") as answer:
            assert json.load(answer)["name"] == "minilm"
        server.send_signal(signal.SIGINT)
        rest, said = server.communicate(timeout=30)
    finally:
        server.kill()
    assert (server.returncode, rest, said) == (130, "", "")


@pytest.mark.parametrize("is_handed_on", [True, False])
def test_an_interrupt_ends_the_command_and_lets_a_program_go_on(
    is_handed_on: bool, headwise: Runner, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Whether the server hands the signal on, as it should, or only ends."""

    def interrupted(*_: object, **__: object) -> None:
        if is_handed_on:
            raise KeyboardInterrupt

    monkeypatch.setattr(uvicorn.Server, "run", interrupted)
    assert headwise("explore", "--no-open").code == 130
    package.explore(package.load_model("minilm"), opens=False)  # returns


def test_a_port_that_is_taken_and_a_model_that_is_not_there_are_refused() -> None:
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        taken.listen()
        port = taken.getsockname()[1]
        refused = started(*COMMAND, "--no-open", "--port", str(port))
        _, said = refused.communicate(timeout=60)
    assert refused.returncode == 2 and f"port {port}" in said
    with pytest.raises(ModelError, match=r"there is no directory \./nowhere"):
        explore.explore_command(model="./nowhere", port=port, opens=False)
    with open_socket(port):
        pass  # the port is free again


def test_answers_are_sent_at_once() -> None:
    """What asyncio asks of a socket before it turns off the wait for more to send."""
    with open_socket(0) as found:
        assert found.proto == socket.IPPROTO_TCP


def test_two_that_start_together_get_a_port_each() -> None:
    with open_socket(None) as one, open_socket(None) as other:
        ports = [found.getsockname()[1] for found in (one, other)]
        assert ports[0] != ports[1]
        with pytest.raises(OptionError, match=f"port {ports[1]}"):
            open_socket(ports[1])
        # who comes before the server is ready waits for it
        socket.create_connection(("127.0.0.1", ports[0]), timeout=5).close()


def test_missing_packages_are_named(monkeypatch: pytest.MonkeyPatch) -> None:
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


def test_a_notebook_is_told_what_does_not_wait() -> None:
    async def in_a_loop() -> None:
        package.explore()

    with pytest.raises(OptionError, match=r"use headwise\.view here"):
        asyncio.run(in_a_loop())
