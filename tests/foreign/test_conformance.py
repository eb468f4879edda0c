"""Judge the example clients of `examples/` by the conformance suite, and run them over TLS."""

import os
import subprocess
import sys
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from taskraft import Client
from taskraft.conformance.cases import CASES
from taskraft.conformance.suite import run_cases
from tests.authority import Authority
from tests.foreign.conftest import (
    BUILD_TIMEOUT_S,
    ROOT,
    build_go,
    generate_go,
    install_node,
    require,
    run,
)
from tests.service.access.secured import GRANTS, token_of, write_principals
from tools.local_cluster import LocalCluster

pytestmark = pytest.mark.real_time

EXAMPLES = ROOT / "examples"
LONG_BUILD = pytest.mark.nightly if os.environ.get("CI") else pytest.mark.foreign
"""A build from nothing takes minutes. CI leaves these languages to the nightly run, because the
rules of the contract are the same in all languages."""
IS_NATIVE = os.environ.get("TASKRAFT_EDGE") == "native"
OVER_GRPC = pytest.mark.nightly if IS_NATIVE else pytest.mark.real_time
"""Leaves a test over the native edge to the nightly run. With each change, one program keeps all
rules over the native edge, and the other clients meet it in `test_interop.py` and over TLS."""
LANGUAGES = [
    pytest.param("go", marks=pytest.mark.foreign),
    pytest.param("node", marks=pytest.mark.foreign),
    pytest.param("java", marks=[LONG_BUILD, pytest.mark.timeout(600)]),
    pytest.param("rust", marks=[LONG_BUILD, pytest.mark.timeout(600)]),
]
RUN_TIMEOUT_S = 60
SIDE_BY_SIDE = 4
"""Number of cases that run at the same time. A case waits most of its time: for the end of a lease,
or for a task that must not come."""
CHANGES_LEADER = "new_leader"
"""Case that runs alone, because a new leader has none of the temporary tubes of other cases."""


@pytest.fixture(scope="module")
def go(tmp_path_factory):
    folder = EXAMPLES / "go"
    generate_go(folder)
    return build_go(folder, ".", tmp_path_factory.mktemp("go") / "example")


@pytest.fixture(scope="module")
def node():
    folder = EXAMPLES / "node"
    install_node(folder)
    run("npm", "run", "build", folder=folder, timeout_s=BUILD_TIMEOUT_S)
    return ["node", str(folder / "build" / "main.js")]


@pytest.fixture(scope="module")
def java():
    require("mvn", "javac")
    folder = EXAMPLES / "java"
    run("mvn", "-q", "-B", "package", folder=folder, timeout_s=2 * BUILD_TIMEOUT_S)
    path = f"{folder}/target/taskraft-example.jar:{folder}/target/lib/*"
    return ["java", "-XX:TieredStopAtLevel=1", "-cp", path, "dev.taskraft.example.Main"]


@pytest.fixture(scope="module")
def rust():
    require("cargo")
    folder = EXAMPLES / "rust"
    run("cargo", "build", "-q", folder=folder, timeout_s=2 * BUILD_TIMEOUT_S)
    return [str(folder / "target" / "debug" / "taskraft-example")]


@pytest.fixture(scope="module")
def cluster(tmp_path_factory):
    with LocalCluster(3, tmp_path_factory.mktemp("conformance") / "c") as one:
        yield one


def violations(command, cluster):
    """Run all cases; return the violations by case."""
    names = [case.__name__ for case in CASES]
    names.remove(CHANGES_LEADER)
    with Client(cluster.target) as client, ThreadPoolExecutor(SIDE_BY_SIDE) as pool:

        def judged(name):
            (verdict,) = run_cases(command, cluster.target.split(","), client, [name])
            assert not verdict.skipped
            return verdict

        verdicts = [*pool.map(judged, names), judged(CHANGES_LEADER)]
    return {one.name: one.violation for one in verdicts if one.violation}


@OVER_GRPC
@pytest.mark.parametrize("language", LANGUAGES)
def test_an_example_client_keeps_all_rules(language, cluster, request):
    command = request.getfixturevalue(language)
    assert violations([*command, "conformance"], cluster) == {}


def test_a_program_with_the_generated_stubs_of_python_keeps_all_rules(cluster):
    assert violations(own_program(), cluster) == {}


@OVER_GRPC
def test_the_python_client_keeps_all_rules(cluster):
    program = str(Path(__file__).parent / "client_program.py")
    assert violations([sys.executable, program], cluster) == {}


@OVER_GRPC
@pytest.mark.parametrize("creates", [True, False])
def test_a_case_is_skipped_if_puts_create_tubes(creates, cluster):
    cases = ("refused_calls", "dropped_tube")
    with Client(cluster.target) as client:
        client.configure(auto_create_tubes=creates)
        try:
            verdicts = list(run_cases(own_program(), cluster.target.split(","), client, cases))
        finally:
            client.configure(auto_create_tubes=False)
    assert [one.violation for one in verdicts] == ["", ""]
    skipped = [one.skipped.partition(":")[0] for one in verdicts]
    assert skipped == (["auto_create_tubes is on"] * 2 if creates else ["", ""])


def own_program(*fault):
    return [sys.executable, str(Path(__file__).parent / "stub_program.py"), *fault]


FAULTS = {
    "no-retry": ("lost_answers", "'put' failed: "),
    "new-id": ("lost_answers", "tasks of a put whose answer was lost: "),
    "doubles": ("exact_numbers", "refused acknowledgements: "),
    "silent": ("refused_items", "refused leases: "),
    "too-much-credit": ("subscription", "a task beyond the credit: "),
    "no-new-stream": ("subscription_after_a_cut", "the program ended before it answered"),
    "opens-again": ("dropped_tube", "'next' succeeded, but the server refused the call"),
    "session-stays": ("subscription", "not within 3 s: leases end with the subscription"),
    "ignores-held": ("stream_cut_at_each_message", "answer 2 lost: no task for 5 s, "),
    "old-session": ("expired_session", "the program ended before it answered 'stream_ack'"),
    "no-settled-error": ("refused_settlement", "'stream_ack' succeeded, but the server refused"),
    "no-json": ("put_take_acknowledge", "the answer to 'put' is not JSON: "),
    "no-member": ("put_take_acknowledge", "unexpected answer, KeyError: 'tasks'"),
    "status": ("put_take_acknowledge", "the program ended with status 3, not 0"),
}


@pytest.fixture(scope="module")
def found(cluster):
    """Run each broken program against the case that its fault breaks; return the violations."""
    with Client(cluster.target) as client, ThreadPoolExecutor(SIDE_BY_SIDE) as pool:

        def violation_of(fault):
            case, _ = FAULTS[fault]
            command, addresses = own_program(fault), cluster.target.split(",")
            (verdict,) = run_cases(command, addresses, client, [case])
            return verdict.violation

        return dict(zip(FAULTS, pool.map(violation_of, FAULTS), strict=True))


@OVER_GRPC
@pytest.mark.parametrize("fault", FAULTS)
def test_a_broken_rule_is_found(fault, found):
    _, violation = FAULTS[fault]
    assert found[fault].startswith(violation)


@pytest.mark.parametrize("language", LANGUAGES)
def test_an_example_client_uses_tls_and_a_token(language, tmp_path, request):
    command = request.getfixturevalue(language)
    authority = Authority(tmp_path, "clients")
    files = authority.server()
    access = write_principals(tmp_path / "access.toml", {"root": GRANTS["root"]})
    settings = {
        "TASKRAFT_TLS_CERT": str(files.certificate),
        "TASKRAFT_TLS_KEY": str(files.key),
        "TASKRAFT_ACCESS_FILE": str(access),
        "TASKRAFT_AUTO_CREATE_TUBES": "true",
    }
    cluster = LocalCluster(1, tmp_path / "c", settings)
    (server,) = cluster.nodes
    server.start()
    environment = {
        **os.environ,
        "TASKRAFT_TARGET": server.address.replace("127.0.0.1", "localhost"),
        "TASKRAFT_CA_FILE": str(authority.path),
        "TASKRAFT_TOKEN": token_of("root"),
    }
    try:
        produced = example(command, "produce", environment)
        consumed = example(command, "consume", environment)
    finally:
        cluster.close()
    assert produced == ["put 1", "put 2"]
    assert consumed == ["took 1, attempt 1: task 0", "took 2, attempt 1: task 1"]


def example(command, verb, environment):
    done = subprocess.run(
        [*command, verb, "mail", "2"],
        env=environment,
        capture_output=True,
        text=True,
        timeout=RUN_TIMEOUT_S,
        check=False,
    )
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout.splitlines()
