"""Put tasks at a constant rate from threads, and take them, while nodes are replaced."""

import itertools
import threading
import time

from taskraft import Client

PRODUCERS = 8
"""Number of threads that put. One put follows another, so one thread would put fewer tasks than
intended while an election or a busy machine makes each put slower."""


class Load:
    """Puts and takes through the official client; every error is a failed call."""

    def __init__(self, target, puts_per_second):
        self._target = target
        self._pause = PRODUCERS / puts_per_second
        self._numbers = itertools.count()
        self._began = time.monotonic()
        self.seconds = 0.0
        self._done = threading.Event()
        self.put, self.taken, self.errors = [], set(), []
        self._threads = [
            threading.Thread(target=self._guarded, args=(work,))
            for work in (*[self._produce] * PRODUCERS, self._consume)
        ]

    def __enter__(self):
        for thread in self._threads:
            thread.start()
        return self

    def __exit__(self, *_):
        self._done.set()
        for thread in self._threads:
            thread.join()
        self.seconds = time.monotonic() - self._began

    def _guarded(self, work):
        try:
            with Client(self._target) as client:
                work(client)
        except Exception as error:  # noqa: BLE001 - the test reports every error
            self.errors.append(error)

    def _produce(self, client):
        due = time.monotonic()
        while not self._done.is_set():
            number = next(self._numbers)
            client.tube("load").put(str(number))
            self.put.append(number)
            due += self._pause
            self._done.wait(max(due - time.monotonic(), 0))

    def _consume(self, client):
        while not self._done.is_set():
            self._take(client)

    def _take(self, client):
        tasks = client.take_many("load", 50, wait="200ms")
        self.taken.update(int(task.payload) for task in tasks)
        if tasks:
            client.settle([task.token for task in tasks])
        return len(tasks)

    def drain(self):
        """Take all tasks that are left."""
        with Client(self._target) as client:
            while self._take(client):
                pass
