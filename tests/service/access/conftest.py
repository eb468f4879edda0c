"""Provide the secured node that most access tests use."""

import pytest

from tests.service.access.secured import INVOICES, MAIL, secured
from tests.service.conftest import create


@pytest.fixture
async def node(tmp_path):
    async with secured(tmp_path) as one:
        root = await one.known("root")
        for tube in (MAIL, INVOICES, "secret"):
            await create(root, tube)
        yield one
