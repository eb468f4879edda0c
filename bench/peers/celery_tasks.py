"""The task in Celery; `python -m bench.peers.celery_tasks TASKS RATE` puts it."""

from __future__ import annotations

import os
import sys

from celery import Celery

from bench.peers.producer import put_all
from bench.peers.record import note

app = Celery("peers", broker=os.environ["PEER_REDIS"])
app.conf.task_ignore_result = True
app.conf.task_acks_late = True  # each task runs at least once, as in the other libraries
app.conf.worker_send_task_events = False
task = app.task(note, name="note")

if __name__ == "__main__":
    put_all(task.delay, int(sys.argv[1]), float(sys.argv[2]))
