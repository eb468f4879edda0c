"""Run the cases of the conformance suite against a client program."""

from __future__ import annotations

import uuid
from contextlib import ExitStack
from dataclasses import dataclass
from typing import TYPE_CHECKING

from taskraft.conformance.cases import CASES
from taskraft.conformance.program import CaseSkipped, ClientProgram, RuleBroken
from taskraft.conformance.proxy import CuttableProxy
from taskraft.conformance.stage import Stage

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence

    from taskraft import Client


@dataclass(frozen=True, slots=True)
class Verdict:
    """The result of one case.

    Args:
        name: name of the case.
        rule: rule that the client must keep.
        violation: description of the violation; empty: the program kept the rule.
        skipped: reason why the case was not run to its end; empty: it was.
    """

    name: str
    rule: str
    violation: str
    skipped: str


def run_cases(
    command: Sequence[str],
    addresses: Sequence[str],
    client: Client,
    names: Sequence[str] = (),
) -> Iterator[Verdict]:
    """Run the cases, each with a new process of the program and a tube of its own.

    Args:
        command: the program with its arguments.
        addresses: addresses of the nodes.
        client: a client of the same nodes.
        names: cases to run; empty: all cases.
    """
    for case in CASES:
        if not names or case.__name__ in names:
            rule = " ".join((case.__doc__ or "").split())
            yield Verdict(case.__name__, rule, *_judge(case, command, addresses, client))


def _judge(
    case: Callable[[Stage], None],
    command: Sequence[str],
    addresses: Sequence[str],
    client: Client,
) -> tuple[str, str]:
    """Run one case; return the violation and the reason to skip, which may be empty texts."""
    tube = client.tube(client.create_tube(f"conformance-{uuid.uuid4()}").name)
    with ExitStack() as stack:
        stack.callback(client.drop_tube, tube.name, force=True)
        proxies = [stack.enter_context(CuttableProxy(address)) for address in addresses]
        program = stack.enter_context(ClientProgram(command, [proxy.address for proxy in proxies]))
        try:
            case(Stage(program, client, proxies, tube))
            program.end()
        except CaseSkipped as reason:
            return "", str(reason)
        except RuleBroken as violation:
            return str(violation), ""
        except (LookupError, TypeError, ValueError) as error:
            # A member of an answer is missing or has another type.
            return f"unexpected answer, {type(error).__name__}: {error}", ""
    return "", ""
