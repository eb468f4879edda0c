"""Offer one case the commands of the program, and a view of the cluster."""

from __future__ import annotations

import time
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final

from taskraft.conformance.program import CaseSkipped, ClientProgram, RuleBroken, encoded

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from taskraft import Client
    from taskraft._sync_tube import Tube
    from taskraft.conformance.proxy import CuttableProxy

FOLLOW_SECONDS: Final = 15.0
"""Maximum time in which a client goes on after a lost connection or a new leader, in seconds."""


@dataclass(frozen=True, slots=True)
class Stage:
    """The program, the cluster and the tube of one case.

    Args:
        program: the client program under test.
        client: a Python client that looks at the cluster directly.
        proxies: the proxies between the program and the nodes.
        tube: an empty tube of the case.
    """

    program: ClientProgram
    client: Client
    proxies: Sequence[CuttableProxy]
    tube: Tube

    def put(self, *payloads: bytes, **options: object) -> list[str]:
        """Let the program put tasks; return their ids.

        Raises:
            RuleBroken: a task was refused, or there is not one id for each task.
        """
        tasks = [{"payload": encoded(payload)} for payload in payloads]
        answer = self.program.succeed("put", tube=self.tube.name, tasks=tasks, **options)
        ids = [str(each) for each in answer.get("task_ids", ())]
        expect("errors of the put", answer.get("errors", []), [])
        expect("number of task ids", len(ids), len(payloads))
        return ids

    def take(
        self, tasks_max: int = 10, wait_ms: int = 0, **options: object
    ) -> list[dict[str, Any]]:
        """Let the program take tasks."""
        answer = self.program.succeed(
            "take",
            tube=self.tube.name,
            tasks_max=tasks_max,
            wait_ms=str(wait_ms),
            **options,
        )
        return list(answer["tasks"])

    def settle(self, action: str, *tokens: str, **options: object) -> list[tuple[int, str]]:
        """Let the program settle leases; return item and reason of each refused lease."""
        answer = self.program.succeed("settle", action=action, tokens=tokens, **options)
        return [(each["item"], each["reason"]) for each in answer.get("errors", ())]

    def subscribe(self, credit: int, **options: object) -> None:
        """Let the program open a subscription."""
        self.program.succeed("subscribe", tube=self.tube.name, credit=credit, **options)

    def stream_ack(self, *tokens: str) -> list[tuple[int, str]]:
        """Let the program acknowledge on its stream; return item and reason of refused leases."""
        answer = self.program.succeed("stream_ack", tokens=tokens)
        return [(each["item"], each["reason"]) for each in answer.get("errors", ())]

    def next(self, seconds: float) -> dict[str, Any] | None:
        """Return the next task of the program's subscription, or None."""
        answer = self.program.succeed("next", wait_ms=str(int(seconds * 1_000)))
        task: dict[str, Any] | None = answer["task"]
        return task

    def count(self, state: str) -> int:
        """Return the number of tasks of the tube in a state, such as "taken"."""
        number: int = getattr(self.tube.stats().tasks, state)
        return number

    def skip_if_puts_create_tubes(self, because: str) -> None:
        """Skip the rest of the case if the cluster setting ``auto_create_tubes`` is on.

        Raises:
            CaseSkipped: the setting is on.
        """
        if self.client.configure().auto_create_tubes:
            raise CaseSkipped(f"auto_create_tubes is on: {because}")

    def until(
        self, what: str, condition: Callable[[], bool], seconds: float = FOLLOW_SECONDS
    ) -> None:
        """Wait until a condition holds.

        Raises:
            RuleBroken: the condition does not hold in time.
        """
        end = time.monotonic() + seconds
        while not condition():
            if time.monotonic() > end:
                raise RuleBroken(f"not within {seconds:g} s: {what}")
            time.sleep(0.05)


def expect(what: str, found: object, wanted: object) -> None:
    """Compare two values.

    Raises:
        RuleBroken: they differ.
    """
    if found != wanted:
        raise RuleBroken(f"{what}: {found!r}, not {wanted!r}")
