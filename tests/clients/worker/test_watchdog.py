"""The watchdog acts on a signal in two threads: its own, and the main thread."""

import faulthandler
import os
import signal
import threading

from taskraft.worker.life_cycle import LifeCycle
from taskraft.worker.watchdog import Watchdog


class ToldLock:
    """A lock that tells how the main thread asked for it while another thread had it."""

    def __init__(self):
        self._lock = threading.Lock()
        self.asked = threading.Event()
        self.gave_up = False

    def locked(self):
        return self._lock.locked()

    def acquire(self, blocking=True):
        if threading.current_thread() is threading.main_thread():
            self.gave_up = not blocking
            self.asked.set()
        return self._lock.acquire(blocking=blocking)

    def release(self):
        self._lock.release()

    def __enter__(self):
        self.acquire()

    def __exit__(self, *_):
        self.release()


class StoppedWorker:
    """A worker whose stop takes until the main thread has asked for the lock."""

    def __init__(self, lock):
        self.life = LifeCycle(25.0, 2.0)
        self.stopping, self.stopped, self.left = (threading.Event() for _ in range(3))
        self._lock = lock

    def request_stop(self):
        self.stopping.set()
        self._lock.asked.wait()
        if self._lock.gave_up:
            self.left.wait()
        self.stopped.set()

    def kill_processes(self):
        raise AssertionError("the process would have ended")

    def handlers(self):
        return []


def test_a_signal_handler_waits_for_the_thread_that_acts():
    watchdog = Watchdog()
    watchdog._acting = lock = ToldLock()
    worker = StoppedWorker(lock)
    watchdog.add(worker)
    before = signal.signal(signal.SIGTERM, watchdog._handle)
    pipe = signal.set_wakeup_fd(-1)
    try:
        thread = threading.Thread(target=watchdog._receive, args=(bytes([signal.SIGTERM]),))
        thread.start()
        worker.stopping.wait()
        signal.raise_signal(signal.SIGTERM)
        was_stopped = worker.stopped.is_set()
        worker.left.set()
        thread.join()
        assert was_stopped
    finally:
        faulthandler.cancel_dump_traceback_later()
        signal.set_wakeup_fd(pipe)
        signal.signal(signal.SIGTERM, before)
        os.close(watchdog._reader)
        os.close(watchdog._writer)
