"""Nodes of a Ray cluster in network namespaces, joined by a bridge; a test can cut, slow down or delay them."""

from __future__ import annotations

import os
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path

import pytest

from fullrank_fleet.cluster import worker_environment
from tests.fleet.delay import Delay
from tests.waiting import LONG_S

BRIDGE, SUBNET, HOST = "frkbr0", "10.231.77", 254
_PORT = 6379
# A node, and what joins the cluster by it, sees its own processes only: Ray starts no head where it sees other nodes,
# and joins the cluster by the head where it sees that.
_ALONE = ("unshare", "--pid", "--fork", "--kill-child", "--mount-proc")
# Whatever tokens this user has.
_AUTH = {"RAY_AUTH_MODE": "disabled"}
# Seconds. On a busy machine a head takes longer to start than Ray waits for it.
_PATIENCE = {"RAY_raylet_start_wait_time_s": "120"}


class Network:
    """Namespaces frk1, frk2, … with the addresses 10.231.77.1, …, and this process at 10.231.77.254."""

    def __init__(self, count: int) -> None:
        self._count = count

    def make(self) -> None:
        _ip("link", "add", BRIDGE, "type", "bridge")
        _ip("address", "add", f"{SUBNET}.{HOST}/24", "dev", BRIDGE)
        _ip("link", "set", BRIDGE, "up")
        for number in range(1, self._count + 1):
            name, port = f"frk{number}", f"frkp{number}"
            _ip("netns", "add", name)
            _ip("link", "add", port, "type", "veth", "peer", "name", "eth0", "netns", name)
            _ip("link", "set", port, "master", BRIDGE, "up")
            for command in (
                ("link", "set", "lo", "up"),
                ("link", "set", "eth0", "up"),
                ("address", "add", f"{address_of(number)}/24", "dev", "eth0"),
                # Ray finds its own address by that of the way to the internet.
                ("route", "add", "default", "via", f"{SUBNET}.{HOST}"),
            ):
                _ip("-n", name, *command)

    def close(self) -> None:
        for number in range(1, self._count + 1):
            # Connections that are still closing keep a namespace, and so its port, for minutes.
            _ip("link", "delete", f"frkp{number}", check=False)
            _ip("netns", "delete", f"frk{number}", check=False)
        _ip("link", "delete", BRIDGE, check=False)

    @contextmanager
    def cut(self, number: int) -> Iterator[None]:
        _ip("link", "set", f"frkp{number}", "down")
        try:
            yield
        finally:
            _ip("link", "set", f"frkp{number}", "up")

    @contextmanager
    def slowed(self, number: int, rate: str) -> Iterator[None]:
        """Let a node receive and send no more than a rate while the block runs."""
        limit = ("root", "tbf", "rate", rate, "burst", "1600", "limit", "1000000")
        ways: tuple[tuple[list[str], str], ...] = (
            ([], f"frkp{number}"),
            (["ip", "netns", "exec", f"frk{number}"], "eth0"),
        )
        for prefix, device in ways:
            _run([*prefix, "tc", "qdisc", "add", "dev", device, *limit])
        try:
            yield
        finally:
            for prefix, device in ways:
                _run([*prefix, "tc", "qdisc", "delete", "dev", device, "root"])

    @contextmanager
    def delayed(self, number: int, seconds: float) -> Iterator[Delay]:
        """Delay every packet from and to a node while the block runs; skip the test without /dev/net/tun."""
        port, tap = f"frkp{number}", f"frkt{number}"
        # Without ARP: this machine would answer for its own address at once.
        _ip("link", "set", port, "nomaster", "arp", "off")
        try:
            if not os.access("/dev/net/tun", os.R_OK | os.W_OK):
                pytest.skip("needs /dev/net/tun")
            with Delay(port, tap, seconds) as delay:
                _ip("link", "set", tap, "master", BRIDGE, "up")
                yield delay
        finally:
            _ip("link", "set", port, "arp", "on", "master", BRIDGE)


@contextmanager
def network(count: int) -> Iterator[Network]:
    """Make the namespaces; skip the test where the machine forbids it."""
    if shutil.which("ip") is None or shutil.which("tc") is None:
        pytest.skip("needs ip and tc (Debian: apt-get install iproute2)")
    found = Network(count)
    try:
        try:
            found.make()
        except subprocess.CalledProcessError as error:
            pytest.skip(f"this machine allows no network namespaces: {error.stderr.strip()}")
        yield found
    finally:
        found.close()


def address_of(number: int) -> str:
    return f"{SUBNET}.{number}"


class Nodes:
    """Nodes of a Ray cluster, one in each namespace; the first is the head, without replicas, and may be in Redis."""

    def __init__(self, redis: str | None = None) -> None:
        self.address = f"{address_of(1)}:{_PORT}"
        # Short, because Ray puts sockets there.
        self._folder = Path(tempfile.mkdtemp(prefix="frk-", dir="/tmp"))
        self._redis = {"RAY_REDIS_ADDRESS": redis} if redis else {}
        self._processes: dict[int, subprocess.Popen[bytes]] = {}

    def start(self, number: int) -> None:
        place = (
            [
                "--head",
                "--port",
                str(_PORT),
                "--temp-dir",
                str(self._folder),
                "--num-cpus",
                "0",
                "--include-dashboard",
                "false",
            ]
            if number == 1
            else ["--address", self.address, "--num-cpus", "0" if number == 2 else "1"]
        )
        log = (self._folder / f"node-{number}.log").open("ab")
        self._processes[number] = subprocess.Popen(
            [
                *("ip", "netns", "exec", f"frk{number}", *_ALONE),
                *(sys.executable, "-m", "ray.scripts.scripts", "start", "--block", *place),
                *("--node-ip-address", address_of(number), "--object-store-memory", "80000000"),
            ],
            env={**os.environ, **worker_environment(), **_AUTH, **_PATIENCE, **self._redis},
            stdout=log,
            stderr=log,
            start_new_session=True,
        )
        log.close()
        self._wait(number)

    def inside(self, number: int) -> list[str]:
        """Return what to put before a command that is to run beside the processes of a node."""
        space = f"/proc/{self._processes[number].pid}/ns"
        return [
            "nsenter",
            *(f"--net={space}/net", f"--mount={space}/mnt", f"--pid={space}/pid_for_children"),
        ]

    def kill(self, number: int) -> None:
        process = self._processes.pop(number)
        with suppress(ProcessLookupError):
            os.killpg(process.pid, signal.SIGKILL)
        process.wait(LONG_S)
        _kill_all(number)

    def kill_replicas(self, number: int) -> None:
        """Kill the processes of the replicas of a node; Ray starts them again."""
        for pid in _processes(number):
            with suppress(ProcessLookupError, FileNotFoundError):
                if b"ShardActor" in Path(f"/proc/{pid}/cmdline").read_bytes():
                    os.kill(pid, signal.SIGKILL)

    def close(self) -> None:
        for number in sorted(self._processes, reverse=True):
            self.kill(number)
        shutil.rmtree(self._folder, ignore_errors=True)

    def _wait(self, number: int) -> None:
        deadline = time.monotonic() + 150
        log = self._folder / f"node-{number}.log"
        before = log.read_text().count("Ray runtime started")
        while log.read_text().count("Ray runtime started") == before:
            assert time.monotonic() < deadline, log.read_text()
            assert self._processes[number].poll() is None, log.read_text()
            time.sleep(0.1)


def _kill_all(number: int) -> None:
    """Kill what is left in a namespace, such as the workers of a node whose raylet was killed."""
    for pid in _processes(number):
        with suppress(ProcessLookupError):
            os.kill(pid, signal.SIGKILL)


def _processes(number: int) -> list[int]:
    found = subprocess.run(
        ["ip", "netns", "pids", f"frk{number}"],
        capture_output=True,
        text=True,
        check=False,
        timeout=LONG_S,
    )
    return [*map(int, found.stdout.split())]


def _ip(*arguments: str, check: bool = True) -> None:
    _run(["ip", *arguments], check=check)


def _run(command: Sequence[str], *, check: bool = True) -> None:
    subprocess.run(command, check=check, capture_output=True, text=True, timeout=LONG_S)
