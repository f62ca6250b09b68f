"""Delay the packets of a network device, as the queueing discipline netem does, for kernels without it."""

from __future__ import annotations

import fcntl
import os
import select
import socket
import struct
import threading
import time
from collections import deque
from collections.abc import Callable
from typing import Self

from tests.waiting import join

# linux/if_tun.h, linux/if_packet.h
_TUNSETIFF = 0x400454CA
_IFF_TAP, _IFF_NO_PI, _IFF_VNET_HDR = 0x0002, 0x1000, 0x4000
_SOL_PACKET, _PACKET_VNET_HDR, _PACKET_OUTGOING = 263, 15, 4
_ETH_P_ALL = 0x0003
# Bytes. The kernel merges packets of a connection up to 64 KiB, and puts a header before them.
_MOST = (64 << 10) + 256


class Delay:
    """Carries frames between a device and a new tap device, each after a delay in either direction.

    Both ends pass on the header that says which checksums and segments the kernel has still to make, so that frames
    arrive as they would without this. Raises OSError if this process may not do that.
    """

    def __init__(self, device: str, tap: str, seconds: float) -> None:
        self._seconds = seconds
        self._socket = socket.socket(socket.AF_PACKET, socket.SOCK_RAW, 0)
        self._socket.setblocking(False)
        self._socket.setsockopt(_SOL_PACKET, _PACKET_VNET_HDR, 1)
        self._socket.bind((device, _ETH_P_ALL))
        self._tap = os.open("/dev/net/tun", os.O_RDWR | os.O_NONBLOCK)
        flags = _IFF_TAP | _IFF_NO_PI | _IFF_VNET_HDR
        fcntl.ioctl(self._tap, _TUNSETIFF, struct.pack("16sH22x", tap.encode(), flags))
        self._stopped = threading.Event()
        self._thread = threading.Thread(target=self._run, name=f"delay-{device}", daemon=True)
        self.frames = 0
        """How many were carried."""

    def __enter__(self) -> Self:
        self._thread.start()
        return self

    def __exit__(self, *error: object) -> None:
        self._stopped.set()
        join(self._thread)
        self._socket.close()
        os.close(self._tap)

    def _run(self) -> None:
        waiting = deque[tuple[float, bytes, Callable[[bytes], object]]]()
        while not self._stopped.is_set():
            # A frame waits the same time in both directions, so the first one is due first.
            wait_s = min(0.1, max(0.0, waiting[0][0] - time.monotonic())) if waiting else 0.1
            sources = [self._tap, self._socket.fileno()]
            ready, _, _ = select.select(sources, [], [], wait_s)
            for source in ready:
                frame, send = self._from_tap() if source == self._tap else self._from_device()
                if frame:
                    waiting.append((time.monotonic() + self._seconds, frame, send))
            while waiting and waiting[0][0] <= time.monotonic():
                _, frame, send = waiting.popleft()
                try:
                    send(frame)
                    self.frames += 1
                except OSError:
                    # A device without room or that is down loses frames; TCP sends them again.
                    continue

    def _from_tap(self) -> tuple[bytes, Callable[[bytes], object]]:
        return os.read(self._tap, _MOST), self._socket.send

    def _from_device(self) -> tuple[bytes, Callable[[bytes], object]]:
        frame, (_, _, kind, *_) = self._socket.recvfrom(_MOST)
        # The socket also sees what it sent itself.
        return b"" if kind == _PACKET_OUTGOING else frame, self._to_tap

    def _to_tap(self, frame: bytes) -> int:
        return os.write(self._tap, frame)
