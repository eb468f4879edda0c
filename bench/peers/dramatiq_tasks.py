"""The task in dramatiq; `python -m bench.peers.dramatiq_tasks TASKS RATE` puts it."""

from __future__ import annotations

import os
import sys

import dramatiq
from dramatiq.brokers.redis import RedisBroker

from bench.peers.producer import put_all
from bench.peers.record import note

dramatiq.set_broker(RedisBroker(url=os.environ["PEER_REDIS"]))
task = dramatiq.actor(note)

if __name__ == "__main__":
    put_all(task.send, int(sys.argv[1]), float(sys.argv[2]))
