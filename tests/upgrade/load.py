"""Put tasks at a constant rate from a thread, and take them, while nodes are replaced."""

import threading
import time

from taskraft import Client


class Load:
    """Puts and takes through the official client; every error is a failed call."""

    def __init__(self, target, puts_per_second):
        self._target = target
        self._pause = 1 / puts_per_second
        self._done = threading.Event()
        self.put, self.taken, self.errors = [], set(), []
        self._threads = [
            threading.Thread(target=self._guarded, args=(work,))
            for work in (self._produce, self._consume)
        ]

    def __enter__(self):
        for thread in self._threads:
            thread.start()
        return self

    def __exit__(self, *_):
        self._done.set()
        for thread in self._threads:
            thread.join()

    def _guarded(self, work):
        try:
            with Client(self._target) as client:
                work(client)
        except Exception as error:  # noqa: BLE001 - the test reports every error
            self.errors.append(error)

    def _produce(self, client):
        due = time.monotonic()
        while not self._done.is_set():
            number = len(self.put)
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
