"""Whether a Ray cluster answers at an address, found out in seconds and without Ray, which itself tries for minutes."""

import os
import socket
from urllib.parse import urlsplit

SECONDS_TO_ANSWER = 8
# Ray speaks gRPC, that is HTTP/2. A server of that kind answers these bytes, the greeting of a client and its empty
# settings, with settings of its own; another server closes the connection, says something else or nothing.
GREETING = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n" + b"\x00\x00\x00\x04\x00\x00\x00\x00\x00"
SETTINGS = 4  # the type of that answer, its fourth byte


def check_address(address: str) -> None:
    """Raises ConnectionError in a full sentence where no Ray cluster answers at HOST:PORT, ValueError for another form.

    Example:
        >>> check_address("gpu-server")
        Traceback (most recent call last):
        ValueError: The address of a Ray cluster is HOST:PORT, for example 10.0.0.1:6379, got 'gpu-server'.
    """
    try:
        parts = urlsplit(address if "://" in address else f"//{address}")
        host, port = parts.hostname, parts.port
    except ValueError:
        host = port = None
    if not host or not port:
        raise ValueError(
            f"The address of a Ray cluster is HOST:PORT, for example 10.0.0.1:6379, got {address!r}."
        ) from None
    try:
        with socket.create_connection((host, port), timeout=SECONDS_TO_ANSWER) as connection:
            connection.settimeout(SECONDS_TO_ANSWER)
            if os.environ.get("RAY_USE_TLS") in (None, "", "0") and not _greets_as_grpc(connection):
                raise ConnectionError("something answers there that is not Ray")
    except OSError as error:
        reason = error.strerror or str(error) or type(error).__name__
        raise ConnectionError(
            f"No Ray cluster answers at {address} ({reason}). Start one on that machine with `ray start --head`, or "
            "check the address and the firewall."
        ) from None


def _greets_as_grpc(connection: socket.socket) -> bool:
    connection.sendall(GREETING)
    answer = b""
    while len(answer) < 4:
        chunk = connection.recv(16)
        if not chunk:
            return False
        answer += chunk
    return answer[3] == SETTINGS
