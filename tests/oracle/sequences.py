"""Generate random traces with the model's answers; a seed determines the trace.

Each trace has one flavour: "plain" (any operation, no waiting), "waiters" (takes that block),
"timed" (a clock with one beat per second). All avoid accidental behaviour of the recorded program
(docs/divergence.md), so a service must give exactly the same answers.
"""

from __future__ import annotations

import copy
import itertools
import json
import random
from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path
from typing import Any, Final

from tests.oracle.model import Model
from tests.oracle.model_tubes import KINDS, MILLISECONDS, SUBQUEUE_KINDS, TIMED_KINDS
from tests.oracle.trace import FORMAT, Json, Outcome

FLAVOURS: Final = ("plain", "waiters", "timed")
STEPS: Final = {"plain": 200, "waiters": 100, "timed": 90}
CAPACITY: Final = 8
WAIT_SECONDS: Final = 90
SNAPSHOT_EACH: Final = 40
BURST: Final = 7
"""Number of steps on each beat of a timed trace."""
CLEAR: Final = range(200, 950)
"""Milliseconds after a beat in which deadlines are allowed, far from the burst of steps."""

WEIGHTS: Final = {
    "put": 26, "take": 26, "ack": 14, "release": 8, "bury": 5, "kick": 4, "delete": 4, "peek": 3,
    "touch": 3, "release_all": 1, "truncate": 1, "statistics": 1, "identify": 2, "disconnect": 2,
    "create_tube": 1, "drop": 1, "tubes": 1, "tube_exists": 1,
}  # fmt: skip
TIMED_OPERATIONS: Final = ("put", "take", "ack", "release", "bury", "kick", "delete", "touch")


class Sequence:
    """A random trace while it is generated."""

    def __init__(self, seed: int, flavour: str) -> None:
        assert flavour in FLAVOURS, flavour
        self.chance = random.Random(f"{flavour} {seed}")
        self.seed = seed
        self.flavour = flavour
        self.model = Model()
        self.steps: list[Json] = []
        self.handles = 0

    def make(self) -> Json:
        """Return the trace in the file format."""
        for name in "ABCDE"[: 5 if self.flavour == "waiters" else 3]:
            self._play(name, "connect", {})
        for tube, kind in self._first_tubes().items():
            options = {"options": {"capacity": CAPACITY}} if kind == "limfifottl" else {}
            self._play("A", "create_tube", {"tube": tube, "type": kind, **options})
        if self.flavour == "timed":
            self._play("ctl", "clock", {"beat": 1.0, "slack": 0.1})
        while len(self.steps) < STEPS[self.flavour]:
            self._go_on()
        for name in list(self.model.connections):
            if self.flavour == "waiters":
                self._play(name, "disconnect", {})
                self._collect()
        self._look()
        return {
            "format": FORMAT, "name": f"{self.flavour}_{self.seed}", "kind": "random",
            "config": {"ttr": 0}, "timed": self.flavour == "timed", "quirks": [],
            "steps": self.steps,
        }  # fmt: skip

    def _first_tubes(self) -> Mapping[str, str]:
        kinds = TIMED_KINDS if self.flavour == "timed" else KINDS
        some = self.chance.sample(kinds, self.chance.choice((1, 1, 1, 3)))
        return {f"q{place}": kind for place, kind in enumerate(some)}

    def _go_on(self) -> None:
        """Add a step that leaves no deadline near a beat, and the steps that must follow it."""
        place = len(self.steps)
        if self.flavour == "timed" and place % BURST == 0:
            self._play("ctl", "sleep", {"until": self.model.now / MILLISECONDS + 1.0})
        if place % SNAPSHOT_EACH == 0:
            self._look()
        operations = TIMED_OPERATIONS if self.flavour == "timed" else tuple(WEIGHTS)
        weights = [WEIGHTS[name] for name in operations]
        operation = self.chance.choices(operations, weights)[0]
        step = getattr(self, f"_{operation}", self._with_tube)(operation)
        if step is None:
            return
        before = copy.deepcopy(self.model)
        self._play(*step)
        if self.flavour == "timed" and not self._is_clear():
            self.model = before
            del self.steps[place:]
        self._collect()

    def _play(self, by: str, operation: str, arguments: Json, handle: str | None = None) -> None:
        outcome = self.model.play(by, operation, arguments, handle)
        step: dict[str, Any] = {"i": len(self.steps), "session": by, "op": operation}
        step["args"] = arguments
        if handle is not None:
            step["async"] = handle
        self.steps.append(step | _encoded_outcome(outcome))

    def _collect(self) -> None:
        """Add steps that collect the results of blocked calls."""
        for handle, call in list(self.model.blocked.items()):
            if call.outcome is not None:
                self._play("ctl", "await", {"handle": handle, "max_wait": 2})

    def _look(self) -> None:
        self._play("ctl", "snapshot", {"tubes": sorted(self.model.tubes)})

    def _is_clear(self) -> bool:
        return all(
            task.due_at is None or task.due_at % MILLISECONDS in CLEAR
            for tube in self.model.tubes.values()
            for task in tube.tasks.values()
        )

    # ---------------------------------------------------------------------- connections and
    # arguments

    def _free(self) -> str | None:
        """Return a connection without a blocked call."""
        free = [name for name in self.model.connections if not self.model.is_busy(name)]
        return self.chance.choice(free) if free else None

    def _tube(self) -> str:
        if self.flavour == "plain" and self.chance.random() < 0.01:
            return "absent"
        return self.chance.choice([*self.model.tubes] or ["absent"])

    def _with_tube(self, operation: str, **arguments: Json) -> Any:
        by = self._free()
        return None if by is None else (by, operation, {"tube": self._tube(), **arguments})

    def _put(self, operation: str) -> Any:
        step = self._with_tube(operation)
        if step is None:
            return None
        number = self.chance.randrange(1000)
        data = self.chance.choice((f"d{number}", number, [number], {"n": number}))
        step[2]["data"] = data
        tube = self.model.tubes.get(step[2]["tube"])
        options = dict(self._wishes(tube.kind)) if tube else {}
        if options:
            step[2]["options"] = options
        return step

    def _wishes(self, kind: str) -> Iterator[tuple[str, Json]]:
        timed = self.flavour == "timed"
        if kind in SUBQUEUE_KINDS and self.chance.random() < 0.9:
            yield "utube", self.chance.choice("abcd")
        if kind not in TIMED_KINDS:
            return
        if self.chance.random() < 0.5:
            yield "pri", self.chance.randrange(4)
        if self.chance.random() < 0.25:
            yield "delay", self.chance.randrange(3) + 0.25 if timed else self._far()
        if self.chance.random() < 0.3 and not (timed and kind == "utubettl"):
            yield "ttl", self.chance.randrange(1, 5) + 0.35 if timed else 5000 + self._far()
        if self.chance.random() < 0.3:
            yield "ttr", self.chance.randrange(3) + 0.5 if timed else self._far()

    def _far(self) -> int:
        return self.chance.randrange(2000, 4000)

    def _take(self, operation: str) -> Any:
        step = self._with_tube(operation, timeout=0)
        if step is None or self.flavour != "waiters" or step[2]["tube"] not in self.model.tubes:
            return step
        blocked = sum(self.model.is_busy(name) for name in self.model.connections)
        if blocked + 2 > len(self.model.connections):
            return None
        self.handles += 1
        step[2]["timeout"] = WAIT_SECONDS
        return *step, f"w{self.handles}"

    def _with_task(self, operation: str) -> Any:
        """Return an operation on a task that was put once, or on an id that never existed."""
        by = self._free()
        known = [
            name
            for name, (tube, _) in self.model.tasks.items()
            if tube in self.model.tubes and not self.model.is_stale(name)
        ]
        if by is None:
            return None
        if not known or self.chance.random() < 0.03:
            number = 100_000 + self.chance.randrange(1000)
            return self._with_tube(operation, id=number)
        held = [
            name for name in known if self.model.tasks[name][1].owner == self.model.connections[by]
        ]
        wants_own = operation in ("ack", "release", "touch") and self.chance.random() < 0.8
        name = self.chance.choice(held if held and wants_own else known[-30:])
        return by, operation, {"tube": self.model.tasks[name][0], "task": name}

    _ack = _peek = _bury = _delete = _with_task

    def _release(self, operation: str) -> Any:
        step = self._with_task(operation)
        if step is not None and self.chance.random() < 0.3:
            delay = self.chance.randrange(3) + 0.25 if self.flavour == "timed" else self._far()
            step[2]["options"] = {"delay": delay}
        return step

    def _touch(self, operation: str) -> Any:
        step = self._with_task(operation)
        if step is not None:
            step[2]["increment"] = self.chance.choice((1.2, 1.2, 0, -1))
        return step

    def _kick(self, operation: str) -> Any:
        counts: tuple[Json, ...] = ({}, {"count": 1}, {"count": 2}, {"count": 3})
        return self._with_tube(operation, **self.chance.choice(counts))

    # ------------------------------------------------------------------------------ tubes, sessions

    def _truncate(self, operation: str) -> Any:
        step = self._with_tube(operation)
        tube = None if step is None else self.model.tubes.get(step[2]["tube"])
        if tube and any(task.state == "TAKEN" for task in tube.tasks.values()):
            return None
        return step

    def _create_tube(self, operation: str) -> Any:
        by, tube = self._free(), self.chance.choice(("q0", "q1", "q2", "q9"))
        if by is None or self.flavour == "waiters":
            return None
        kind = self.chance.choice((*KINDS[:3], "nosuch"))
        options: Json = {}
        if tube in self.model.tubes and self.chance.random() < 0.5:
            kind, options = self.model.tubes[tube].kind, {"options": {"if_not_exists": True}}
        return by, operation, {"tube": tube, "type": kind, **options}

    def _drop(self, operation: str) -> Any:
        return self._with_tube(operation) if len(self.model.tubes) > 1 else None

    def _tubes(self, operation: str) -> Any:
        by = self._free()
        return None if by is None else (by, operation, {})

    def _identify(self, operation: str) -> Any:
        by = self._free()
        wished = self.chance.choice(
            [None, *self.model.connections.values(), "UNKNOWN", "MALFORMED"]
        )
        return (
            None
            if by is None
            else (by, operation, {} if wished is None else {"session_id": wished})
        )

    def _disconnect(self, operation: str) -> Any:
        """End a connection; a new one takes its place."""
        names = list(self.model.connections)
        if self.flavour == "waiters":
            return None
        name = self.chance.choice(names)
        self._play(name, operation, {})
        return name, "connect", {}


def _encoded_outcome(outcome: Outcome) -> Mapping[str, Json]:
    """Return an outcome in the file format."""
    encoded: dict[str, Json] = (
        {"error": {"class": outcome.error}}
        if outcome.error is not None
        else {"result": outcome.result}
    )
    return encoded | (
        {"events": [list(event) for event in outcome.events]} if outcome.events else {}
    )


def write_random_traces(folder: Path, seeds: Iterable[int], flavours: Iterable[str]) -> list[Path]:
    """Write the traces of some seeds below a folder; return their paths."""
    folder.mkdir(parents=True, exist_ok=True)
    paths = []
    for seed, flavour in itertools.product(seeds, flavours):
        trace = Sequence(seed, flavour).make()
        paths.append(folder / f"{trace['name']}.json")
        paths[-1].write_text(json.dumps(trace), encoding="utf-8")
    return paths
