# SPDX-License-Identifier: Apache-2.0
"""Clients of the service that send nonsense, are slow or disconnect, beside correct ones.

    python -m tests.attacks.clients               10,000 bad requests in an hour
    python -m tests.attacks.clients --minutes 5   in five minutes

The service is the real command in its own process. Correct clients must get every answer, and it
must be right. The service's memory, handles and threads are counted in the middle and at the end.
Exit code: 0 if no answer was lost and nothing grew, 1 otherwise.
"""

from __future__ import annotations

import argparse
import http.client
import json
import random
import signal
import socket
import struct
import subprocess
import sys
import tempfile
import threading
import time
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from delegate.format.reader import read_model
from delegate.inspect import write_model
from tests.support.compare import inputs_for, interpreter, invoke
from tests.support.process import ROOT
from tflite_opencl.conformance.cases.chains import chain_graph

WARM_UP = 0.1  # of the time and of the bad requests
RATE = 50  # requests a second of all correct clients
RIGHT, WRONG = 4, 4  # clients
_SLACK_BYTES = 16 << 20  # for queues, socket caches and arenas of threads
_SLACK_HANDLES = 8  # for connections that are being closed
MODEL = write_model(chain_graph("conv_relu_pool", "int8", (1, 9, 8, 3)))
INFER = "/v2/models/model/infer"
_START = ("-m", "tflite_opencl")


class Clients:
    """Correct and faulty clients of a service, and their results."""

    def __init__(self, host: str, port: int, may_fail: bool = False) -> None:
        """`may_fail`: answers 500 of right clients are counted, but not as lost."""
        self._address, self.may_fail = (host, port), may_fail
        (values,), (expected, *_) = inputs_for(read_model(MODEL))[:1], self._expected()
        self._expected_output = expected
        self._body = self._request(values)
        self.answers: Counter[str] = Counter()  # what right and wrong clients were told
        self.lost: list[str] = []  # what right clients did not get

    def _expected(self) -> Sequence[Any]:
        return invoke(interpreter(MODEL), inputs_for(read_model(MODEL))[0])

    def _request(self, values: Sequence[Any]) -> bytes:
        graph = read_model(MODEL)
        entries = [
            {
                "name": tensor.name or f"input_{number}", "datatype": "INT8",
                "shape": [*tensor.shape], "data": np.asarray(array).reshape(-1).tolist(),
            }
            for number, (tensor, array) in enumerate(zip(graph.inputs, values, strict=True))
        ]  # fmt: skip
        return json.dumps({"inputs": entries}).encode()

    def right(self, draw: random.Random) -> None:
        """Ask once, on a connection of its own or on none that is kept, and check the answer."""
        connection = http.client.HTTPConnection(*self._address, timeout=60)
        try:
            for _ in range(draw.randint(1, 3)):
                connection.request("POST", INFER, self._body)
                answer = connection.getresponse()
                output = json.loads(answer.read())
                if answer.status == 503 or (answer.status == 500 and self.may_fail):
                    self.answers[f"right: {answer.status}"] += 1
                    continue
                result = np.array(output["outputs"][0]["data"])
                if not np.array_equal(result, self._expected_output.reshape(-1)):
                    self.lost.append(f"{answer.status}: another answer: {output}")
                self.answers[f"right: {answer.status}"] += 1
        except (OSError, http.client.HTTPException, KeyError) as error:
            self.lost.append(f"{type(error).__name__}: {error}")
        finally:
            connection.close()

    def wrong(self, draw: random.Random) -> None:
        """Be wrong once, in one of the ways."""
        way = draw.choice(
            [self._bad_body, self._disconnect, self._slow, self._no_http, self._picture]
        )
        self.answers[f"wrong: {way(draw)}"] += 1

    def _status_of(self, path: str, body: bytes, **headers: str) -> str:
        connection = http.client.HTTPConnection(*self._address, timeout=60)
        try:
            connection.request("POST", path, body, headers)
            answer = connection.getresponse()
            answer.read()
            return str(answer.status)
        except (OSError, http.client.HTTPException):
            return "closed"
        finally:
            connection.close()

    def _bad_body(self, draw: random.Random) -> str:
        body = bytearray(self._body)
        for _ in range(draw.randint(1, 8)):
            body[draw.randrange(len(body))] = draw.randrange(256)
        headers = draw.choice(
            [{}, {"Content-Encoding": "gzip"}, {"Inference-Header-Content-Length": "7"}]
        )
        return self._status_of(INFER, bytes(body[: draw.randint(0, len(body))]), **headers)

    def _picture(self, draw: random.Random) -> str:
        return self._status_of("/classify", draw.randbytes(draw.randint(0, 3000)))

    def _disconnect(self, draw: random.Random) -> str:
        with self._connection() as connection:
            connection.sendall(self._head(len(self._body)) + self._body)
            if draw.random() < 0.5:  # with a reset
                connection.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
        return "gone"

    def _slow(self, draw: random.Random) -> str:
        with self._connection() as connection:
            head = self._head(len(self._body))
            connection.sendall(head[: draw.randint(0, len(head))])
            time.sleep(draw.uniform(0, 0.5))
            connection.sendall(self._body[: draw.randint(0, 50)])
        return "slow"

    def _no_http(self, draw: random.Random) -> str:
        with self._connection() as connection:
            connection.sendall(draw.randbytes(draw.randint(1, 500)) + b"\r\n\r\n")
            connection.recv(1000)
        return "no HTTP"

    @contextmanager
    def _connection(self) -> Iterator[socket.socket]:
        try:
            with socket.create_connection(self._address, timeout=60) as connection:
                yield connection
        except OSError:  # the service may close it first
            pass

    def _head(self, length: int) -> bytes:
        return f"POST {INFER} HTTP/1.1\r\nHost: x\r\nContent-Length: {length}\r\n\r\n".encode()


@dataclass(slots=True)
class Service:
    """A service in its own process; `out`, `err`: what it said, once it has ended."""

    process: subprocess.Popen[str]
    address: tuple[str, int]
    out: str = ""
    err: str = ""


@contextmanager
def serving(folder: Path, device: str, start: Sequence[str] = _START) -> Iterator[Service]:
    """Serve MODEL until the end of the block. `start`: Python's arguments before the command's."""
    model, log = folder / "model.tflite", folder / "log"
    model.write_bytes(MODEL)
    command = [sys.executable, *start, "serve", str(model), "--device", device]
    command += ["--listen", "127.0.0.1:0", "--timeout", "2"]
    # A pipe that nobody reads would fill, and hold the service.
    with (
        log.open("w") as stderr,
        subprocess.Popen(
            command, cwd=ROOT, stderr=stderr, stdout=subprocess.PIPE, text=True
        ) as process,
    ):
        service = Service(process, ("", 0))
        try:
            service.address = _address(process, log)
            yield service
        finally:
            process.send_signal(signal.SIGTERM)
            service.out = process.communicate(timeout=60)[0]
            service.err = log.read_text()


def attack(seconds: float, bad: int, seed: int, device: str) -> str:
    """Return a summary, after about `bad` bad requests.

    Raises: AssertionError: an answer was lost, or something grew.
    """
    with tempfile.TemporaryDirectory() as folder, serving(Path(folder), device) as service:
        clients = Clients(*service.address)
        pause = WRONG * seconds / bad
        # The first part is a warm-up: caches fill once.
        seen = []
        for number, part in enumerate((WARM_UP * seconds, seconds / 2, seconds / 2)):
            run_for(clients, part, pause, seed + number)
            seen.append(resources_of(service.process.pid))
    _, middle, end = seen
    answers = "; ".join(f"{what} {count}" for what, count in sorted(clients.answers.items()))
    grown = [after - before for before, after in zip(middle, end, strict=True)]
    text = (
        f"{answers}\n{service.out.strip()}\n"
        f"{end[0] >> 20} MiB ({grown[0] >> 10:+} KiB in the second half), "
        f"{end[1]} handles ({grown[1]:+}), {end[2]} threads ({grown[2]:+})"
    )
    lost, err = clients.lost, service.err
    assert not lost, f"{len(lost)} are lost, as {lost[0]}\n{text}\n{err}"
    assert service.process.returncode == 0, err
    assert "Traceback" not in err, err
    assert grown[0] <= _SLACK_BYTES, f"memory grows: {text}"
    assert grown[1] <= _SLACK_HANDLES, f"file handles grow: {text}"
    assert grown[2] <= 0, f"threads grow: {text}"
    return text


def _address(process: subprocess.Popen[str], log: Path) -> tuple[str, int]:
    while "INFO: ready" not in (text := log.read_text()):
        assert process.poll() is None, text
        time.sleep(0.05)
    host, _, port = text.partition("INFO: listening: http://")[2].split()[0].rpartition(":")
    return host, int(port)


def run_for(clients: Clients, seconds: float, wrong_pause: float, seed: int) -> None:
    """Run all clients for some seconds; `wrong_pause`: seconds between requests of a faulty one."""
    end = time.monotonic() + seconds
    rounds: list[tuple[Callable[[random.Random], None], float]] = [
        *[(clients.right, RIGHT / RATE)] * RIGHT, *[(clients.wrong, wrong_pause)] * WRONG,
    ]  # fmt: skip
    errors: list[BaseException] = []

    def client(number: int, once: Callable[[random.Random], None], pause: float) -> None:
        draw, due = random.Random(f"{seed} {number}"), time.monotonic()
        try:
            while time.monotonic() < end:
                once(draw)
                due = max(due + pause, time.monotonic() - pause)
                time.sleep(max(0.0, due - time.monotonic()))
        except BaseException as error:
            errors.append(error)

    threads = [threading.Thread(target=client, args=(n, *each)) for n, each in enumerate(rounds)]
    for each in threads:
        each.start()
    for each in threads:
        each.join()
    if errors:
        raise errors[0]


def resources_of(pid: int) -> tuple[int, int, int]:
    """Return a process's bytes of memory, file handles and threads, without clients."""
    time.sleep(3)
    pages = int(Path(f"/proc/{pid}/statm").read_text().split()[1])
    counts = (len(list(Path(f"/proc/{pid}/{name}").iterdir())) for name in ("fd", "task"))
    return pages * 4096, *counts


def main(arguments: Sequence[str] | None = None) -> int:
    """Attack, print the summary, and return the exit code."""
    parser = argparse.ArgumentParser(
        prog="python -m tests.attacks.clients",
        description=__doc__,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument("--minutes", type=float, default=60.0, metavar="N")
    parser.add_argument("--bad", type=int, default=10_000, metavar="N", help="requests, about")
    parser.add_argument("--seed", type=int, default=7)
    parser.add_argument("--device", default="pocl", metavar="WORD", help="of its name")
    given = parser.parse_args(arguments)
    try:
        print(attack(60 * given.minutes, given.bad, given.seed, given.device))
    except AssertionError as error:
        print(error)
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main())
