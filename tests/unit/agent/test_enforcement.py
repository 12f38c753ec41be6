"""What a pod that tries its network finds."""

import socket
import subprocess
import sys

from whetstone_agent.environment import enforcement


def probe(port: int, mode: str, seconds: float) -> subprocess.Popen[bytes]:
    command = [sys.executable, "-c", enforcement._SCRIPT, "127.0.0.1", str(port), mode, str(seconds)]
    return subprocess.Popen(command)


def test_a_pod_whose_policy_forbids_it_gives_up_and_a_free_one_waits_until_the_network_knows_it() -> None:
    with socket.socket() as server:
        server.bind(("127.0.0.1", 0))
        port = server.getsockname()[1]
        with probe(port, "free", 60) as free, probe(port, "limited", 60) as limited:
            assert limited.wait(30) == enforcement._BLOCKED
            assert free.poll() is None
            server.listen()
            assert free.wait(30) == enforcement._THROUGH


def test_a_free_pod_that_never_comes_through_says_so() -> None:
    with socket.socket() as server:
        server.bind(("127.0.0.1", 0))
        assert probe(server.getsockname()[1], "free", 1).wait(30) == enforcement._BLOCKED


def test_a_limited_pod_comes_through_only_if_it_does_so_to_the_end() -> None:
    with socket.create_server(("127.0.0.1", 0)) as server:
        assert probe(server.getsockname()[1], "limited", 0.5).wait(30) == enforcement._THROUGH
