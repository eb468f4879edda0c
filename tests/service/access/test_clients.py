"""The Python client and the command line against a node that requires credentials."""

import asyncio

import pytest
from click.testing import CliRunner

from taskraft import AsyncClient, errors
from taskraft.cli import main
from taskraft_service.access.principals import digest_of
from tests.authority import Authority
from tests.service.access.secured import GRANTS, secured, token_of, write_principals
from tests.service.conftest import create

pytestmark = pytest.mark.real_time


@pytest.fixture
async def node(tmp_path):
    async with secured(tmp_path) as one:
        await create(await one.known("root"), "billing.mail")
        yield one


def target_of(node):
    return f"localhost:{node.server.client_port}"


async def test_a_client_with_a_token_uses_sessions_and_streams(node, tmp_path):
    path = tmp_path / "token"
    path.write_text(token_of("root"))
    ca = node.authority.path
    async with AsyncClient(target_of(node), ca=ca, token_file=path) as client:
        tube = client.tube("billing.mail")
        await tube.put({"n": 1})
        task = await tube.take(wait="5s")
        assert task.payload == b'{"n":1}'
        await task.ack()
        await tube.put({"n": 2})
        async with client.subscribe("billing.*") as tasks:
            async for one in tasks:
                await one.ack()
                break
        path.write_text(token_of("nobody"))
        with pytest.raises(errors.NotAllowed, match='"nobody" lacks the permission to put'):
            await tube.put({"n": 3})


async def test_a_client_reports_why_it_is_refused(node):
    ca = node.authority.path
    async with AsyncClient(target_of(node), ca=ca, token="wrong") as client:
        with pytest.raises(errors.NoCredentials):
            await client.tube("billing.mail").put({})
    async with AsyncClient(target_of(node), ca=ca, token=token_of("rival")) as client:
        with pytest.raises(errors.NotAllowed):
            await client.tube("billing.mail").put({})


async def test_the_command_reads_credentials_from_files_and_the_environment(node, tmp_path):
    path = tmp_path / "token"
    path.write_text(token_of("billing"))
    ca = str(node.authority.path)

    async def run(*line, **variables):
        environment = {"TASKRAFT_TARGET": target_of(node), **variables}
        invoke = CliRunner().invoke
        return await asyncio.to_thread(invoke, main, line, env=environment)

    put = ("put", "billing.mail", "{}")
    done = await run(*put, "--ca", ca, "--token-file", str(path))
    assert done.exit_code == 0, done.output
    done = await run(*put, TASKRAFT_CA=ca, TASKRAFT_TOKEN=token_of("billing"))
    assert done.exit_code == 0, done.output
    done = await run(*put, "--ca", ca)
    assert (done.exit_code, "NO_CREDENTIALS" in done.output) == (1, True)
    done = await run(*put, "--cert", ca)
    assert (done.exit_code, "cert and key must be set together" in done.output) == (2, True)
    done = await run("put", "--help")
    assert "--token-file" in done.output
    assert "--token " not in done.output


def test_a_new_token_is_written_to_a_private_file_and_its_digest_is_printed(tmp_path):
    path = tmp_path / "token"
    done = CliRunner().invoke(main, ["token", str(path)])
    assert done.output.strip() == digest_of(path.read_text().strip())
    assert path.stat().st_mode & 0o777 == 0o600
    before = path.read_text()
    assert len(before) > 40
    again = CliRunner().invoke(main, ["token", str(path)])
    assert (again.exit_code, "File exists" in again.output) == (2, True)
    assert path.read_text() == before


@pytest.mark.parametrize("principal", ["mailer", "other"])
async def test_a_client_certificate_identifies_the_principal(tmp_path, principal):
    clients = Authority(tmp_path, "users")
    book = write_principals(tmp_path / "access.toml", GRANTS, mailer=["mailer.example"])
    async with secured(tmp_path, tls_client_ca=clients.path, access_file=book) as node:
        own = clients.sign("own", f"{principal}.example")
        credentials = {"ca": node.authority.path, "cert": own.certificate, "key": own.key}
        async with AsyncClient(target_of(node), **credentials, timeout="5s") as client:
            if principal == "mailer":
                assert (await client.stats()).total.tasks.total == 0
            else:
                with pytest.raises(errors.NoCredentials):
                    await client.stats()
        async with AsyncClient(
            target_of(node), ca=node.authority.path, token=token_of("root"), timeout="1s"
        ) as client:
            with pytest.raises((errors.Unavailable, errors.DeadlinePassed)):
                await client.stats()
