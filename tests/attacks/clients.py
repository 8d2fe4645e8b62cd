# SPDX-License-Identifier: Apache-2.0
"""Clients of the service that send nonsense, are slow or disconnect, beside correct ones.

    python -m tests.attacks.clients               10,000 bad requests in an hour
    python -m tests.attacks.clients --minutes 5   in five minutes
    python -m tests.attacks.clients --minutes 1440 --kill 60   a day, whose driver dies each minute

The service is the real command in its own process. Correct clients must get every answer, and it
must be right. The service's memory, handles and threads are counted in the middle and at the end.
With --kill the process that holds the driver is killed this often: each death may fail one request.
The third death within a minute would end the device's use, so --kill is more than 30.
Exit code: 0 if no answer was lost and nothing grew, 1 otherwise.
"""

from __future__ import annotations

import argparse
import http.client
import json
import math
import os
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
from pathlib import Path
from typing import Any

import numpy as np

from delegate.format.reader import read_model
from delegate.inspect import write_model
from tests.support.compare import inputs_for, interpreter, invoke
from tests.support.isolated import children
from tests.support.process import ROOT
from tflite_opencl.conformance.cases.chains import chain_graph

WARM_UP = 0.1  # of the time and of the bad requests
RATE = 50  # requests a second of all correct clients
RIGHT, WRONG = 4, 4  # clients
_SLACK_BYTES = 16 << 20  # for queues, socket caches and arenas of threads
_SLACK_HANDLES = 8  # for connections that are being closed
MODEL = write_model(chain_graph("conv_relu_pool", "int8", (1, 9, 8, 3)))
INFER = "/v2/models/model/infer"


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


def attack(seconds: float, bad: int, seed: int, device: str, kill: float = math.inf) -> str:
    """Return a summary, after about `bad` bad requests. `kill`: seconds between two deaths.

    Raises: AssertionError: an answer was lost, or something grew.
    """
    with tempfile.TemporaryDirectory() as folder:
        model = Path(folder) / "model.tflite"
        model.write_bytes(MODEL)
        command = [sys.executable, "-m", "tflite_opencl", "serve", str(model), "--device", device]
        command += ["--listen", "127.0.0.1:0", "--timeout", "2"]
        with subprocess.Popen(
            command, cwd=ROOT, stderr=subprocess.PIPE, stdout=subprocess.PIPE, text=True
        ) as process:
            try:
                clients = Clients(*_address(process), may_fail=kill < math.inf)
                pause = WRONG * seconds / bad
                # The first part is a warm-up: caches fill once.
                parts = (WARM_UP * seconds, seconds / 2, seconds / 2)
                seen = []
                with _killing(process.pid, kill) as deaths:
                    for number, part in enumerate(parts):
                        _run_for(clients, part, pause, seed + number)
                        seen.append(_resources_of(process.pid))
            finally:
                process.send_signal(signal.SIGTERM)
                out, err = process.communicate(timeout=60)
    _, middle, end = seen
    answers = "; ".join(f"{what} {count}" for what, count in sorted(clients.answers.items()))
    grown = [after - before for before, after in zip(middle, end, strict=True)]
    text = (
        f"{answers}\n{out.strip()}\n{len(deaths)} deaths of the driver's process\n"
        f"{end[0] >> 20} MiB ({grown[0] >> 10:+} KiB in the second half), "
        f"{end[1]} handles ({grown[1]:+}), {end[2]} threads ({grown[2]:+})"
    )
    lost, failed = clients.lost, clients.answers["right: 500"]
    assert not lost, f"{len(lost)} are lost, as {lost[0]}\n{text}\n{err}"
    assert failed <= len(deaths), f"{failed} failed: {text}\n{err}"
    assert math.isinf(kill) or (deaths and not clients.answers["right: 503"]), f"{text}\n{err}"
    assert process.returncode == 0, err
    assert "Traceback" not in err, err
    assert grown[0] <= _SLACK_BYTES, f"memory grows: {text}"
    assert grown[1] <= _SLACK_HANDLES, f"file handles grow: {text}"
    assert grown[2] <= 0, f"threads grow: {text}"
    return text


@contextmanager
def _killing(service: int, pause: float) -> Iterator[list[int]]:
    """Kill the process of the service's driver after each pause in seconds; yield the killed."""
    ends, killed = threading.Event(), list[int]()

    def work() -> None:
        while not ends.wait(min(pause, threading.TIMEOUT_MAX)):
            for child in children(service):
                os.kill(child, signal.SIGKILL)
                killed.append(child)

    thread = threading.Thread(target=work)
    thread.start()
    try:
        yield killed
    finally:
        ends.set()
        thread.join()


def _address(process: subprocess.Popen[str]) -> tuple[str, int]:
    assert process.stderr is not None
    address = ("", 0)
    for line in process.stderr:
        if line.startswith("INFO: listening: "):
            host, _, port = line.strip().rpartition("//")[2].rpartition(":")
            address = host, int(port)
        if line.startswith("INFO: ready"):
            return address
    raise AssertionError(process.communicate())


def _run_for(clients: Clients, seconds: float, wrong_pause: float, seed: int) -> None:
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


def _resources_of(pid: int) -> tuple[int, int, int]:
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
    parser.add_argument("--kill", type=float, default=math.inf, metavar="SECONDS")
    given = parser.parse_args(arguments)
    try:
        print(attack(60 * given.minutes, given.bad, given.seed, given.device, given.kill))
    except AssertionError as error:
        print(error)
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main())
