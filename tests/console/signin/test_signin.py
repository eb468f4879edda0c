"""Sign-in by token, OpenID Connect and proxy, against a node with access control."""

import contextlib
import os
import re
from unittest.mock import patch

import httpx2
import pytest
from click.testing import CliRunner

from taskraft import Client
from taskraft.cli import main
from taskraft_console.signin.signin_pages import _local_path
from tests.authority import Authority
from tests.console.conftest import running_console
from tests.console.signin.open_id_provider import CLIENT, running_provider
from tests.service.access.secured import token_of, write_principals
from tools.local_cluster import LocalCluster

pytestmark = pytest.mark.cluster
GRANTS = {
    "root": [("admin", "*")],
    "mailer": [("admin", "mail")],
    "viewer": [("reader", "mail")],
}
HEADERS = {"sec-fetch-site": "same-origin"}


@pytest.fixture(scope="module")
def secured(tmp_path_factory):
    """Run a node that knows three principals; yield its address, and the folder of tokens."""
    folder = tmp_path_factory.mktemp("secured")
    authority = Authority(folder, "clients")
    files = authority.server()
    access = write_principals(folder / "access.toml", GRANTS, speaks_for=["mailer"])
    settings = {
        "TASKRAFT_TLS_CERT": str(files.certificate),
        "TASKRAFT_TLS_KEY": str(files.key),
        "TASKRAFT_ACCESS_FILE": str(access),
    }
    for name in GRANTS:
        (folder / f"{name}.token").write_text(token_of(name))
    cluster = LocalCluster(1, folder / "c", settings)
    (node,) = cluster.nodes
    node.start()
    target = node.address.replace("127.0.0.1", "localhost")
    try:
        with (
            patch.dict(os.environ, {"TASKRAFT_CA": str(authority.path)}),
            Client(target, token=token_of("root"), timeout=30) as root,
        ):
            for tube in ("mail", "secret"):
                root.create_tube(tube)
                root.tube(tube).put(f"content of {tube}")
            yield target, folder, root
    finally:
        cluster.close()


def written(folder, method, more=""):
    path = folder / f"{method}.toml"
    path.write_text(f'method = "{method}"\npublic_url = "http://127.0.0.1:1"\n{more}')
    return path


@pytest.fixture
def by_token(secured):
    target, folder, root = secured
    with running_console(target, "--sign-in", str(written(folder, "token"))) as console:
        yield console, root


@pytest.fixture
def new_browser():
    """Return a function that opens a browser at a console; all are closed at the end."""
    with contextlib.ExitStack() as stack:

        def opened(console, **options):
            one = httpx2.Client(base_url=console.address, headers=HEADERS, **options)
            return stack.enter_context(one)

        yield opened


@pytest.fixture
def signed_in(new_browser):
    """Return a function that signs in with the token of a principal."""

    def begun(console, principal, wanted="/"):
        browser = new_browser(console)
        form = {"token": token_of(principal), "next": wanted}
        return browser, browser.post("/signin/begin", data=form)

    return begun


def csrf_of(browser, path):
    return re.search(r'name="csrf" value="([^"]+)"', browser.get(path).text)[1]


def test_a_page_without_a_sign_in_leads_to_the_sign_in(by_token):
    console, _ = by_token
    for path in ("/", "/tubes/secret", "/history", "/tubes/mail/tasks/1/payload", "/nothing"):
        answer = console.get(path)
        assert answer.status_code == 303, path
        assert answer.headers["location"].startswith("/signin?next=%2F"), path
        assert "secret" not in answer.text
    live = console.get("/live?page=/tubes", headers={"accept": "text/event-stream"})
    assert live.status_code == 401
    assert console.get("/livez").status_code == 200
    probe = console.get("/readyz", headers={"host": "10.0.0.9:7400"})
    assert (probe.status_code, probe.text) == (200, "ok\n")
    assert console.get("/static/x/missing").status_code == 404
    assert console.get("/signin/other").status_code == 404


def test_a_token_gives_the_rights_of_its_principal_only(by_token, signed_in):
    console, root = by_token
    browser, answer = signed_in(console, "mailer", "/tubes/mail?window=24h")
    assert (answer.status_code, answer.headers["location"]) == (303, "/tubes/mail?window=24h")
    cookie = answer.headers["set-cookie"]
    assert "HttpOnly" in cookie
    assert "SameSite=lax" in cookie
    assert '<span class="person">mailer</span>' in browser.get("/rights").text
    assert "secret" not in browser.get("/tubes").text
    assert browser.get("/tubes/secret").status_code in (403, 404)
    form = {"csrf": csrf_of(browser, "/tubes/mail")}
    assert browser.post("/tubes/mail/do/pause-puts", data=form).status_code == 303
    assert root.list_tubes(["mail"])[0].options.put_paused
    assert browser.post("/tubes/mail/do/resume-puts", data=form).status_code == 303
    viewer, _ = signed_in(console, "viewer")
    form = {"csrf": csrf_of(viewer, "/tubes/mail")}
    refused = viewer.post("/tubes/mail/do/pause-puts", data=form)
    assert refused.status_code == 403
    assert "NOT_ALLOWED" in refused.text
    assert not root.list_tubes(["mail"])[0].options.put_paused


def test_a_wrong_token_is_refused_with_a_sentence(by_token):
    console, _ = by_token
    for token, status, said in (
        ("unknown-token", 403, "The cluster does not know this token"),
        ("", 400, "This is not a token"),
        ("gr\u00fcn-gr\u00fcn", 400, "This is not a token"),
        ("a" * 4_000, 400, "This is not a token"),
    ):
        answer = console.post("/signin/begin", {"token": token}, is_own=False)
        assert answer.status_code == status
        assert said in answer.text
        assert "set-cookie" not in answer.headers


def test_a_form_of_another_visitor_or_site_is_refused(by_token, signed_in):
    console, root = by_token
    mailer, _ = signed_in(console, "mailer")
    other, _ = signed_in(console, "mailer")
    form = {"csrf": csrf_of(other, "/tubes/mail")}
    assert mailer.post("/tubes/mail/do/pause-puts", data=form).status_code == 403
    form = {"csrf": csrf_of(mailer, "/tubes/mail")}
    across = {"sec-fetch-site": "cross-site"}
    answer = mailer.post("/tubes/mail/do/pause-puts", data=form, headers=across)
    assert answer.status_code == 403
    begin = mailer.post("/signin/begin", data={"token": token_of("root")}, headers=across)
    assert begin.status_code == 403
    assert not root.list_tubes(["mail"])[0].options.put_paused


def test_after_a_sign_out_a_form_says_that_nothing_was_changed(by_token, signed_in, new_browser):
    console, root = by_token
    browser, _ = signed_in(console, "mailer")
    form = {"csrf": csrf_of(browser, "/tubes/mail")}
    stolen = dict(browser.cookies)
    assert browser.post("/signin/out").status_code == 303
    late = new_browser(console, cookies=stolen)
    answer = late.post("/tubes/mail/do/pause-puts", data=form)
    assert answer.status_code == 401
    assert "Your sign-in has ended. Nothing was changed." in answer.text
    assert not root.list_tubes(["mail"])[0].options.put_paused
    again = late.get("/tubes")
    assert again.headers["location"] == "/signin?next=%2Ftubes&why=ended"
    assert "Your sign-in has ended" in late.get(again.headers["location"]).text


PEOPLE = """
[[people]]
user = "anna@example.com"
token_file = "mailer.token"
[[people]]
group = "watchers"
token_file = "viewer.token"
"""


def test_a_proxy_names_the_person_and_nobody_else_can(secured):
    target, folder, root = secured
    more = '[proxy]\ntrusted_proxies = ["127.0.0.1"]\n' + PEOPLE
    with running_console(target, "--sign-in", str(written(folder, "proxy", more))) as console:
        anna = HEADERS | {"x-forwarded-user": "anna@example.com"}
        ben = HEADERS | {"x-forwarded-user": "ben", "x-forwarded-groups": "staff, watchers"}
        page = console.get("/tubes/mail", headers=anna)
        assert "anna@example.com" in page.text
        form = {"csrf": re.search(r'name="csrf" value="([^"]+)"', page.text)[1]}
        for who, status in ((ben, 403), (anna, 303)):
            answer = httpx2.post(
                f"{console.address}/tubes/mail/do/pause-puts", data=form, headers=who
            )
            assert answer.status_code == status
        assert root.list_tubes(["mail"])[0].options.put_paused
        act = root.audit(principal="mailer", call="UpdateTube")[0]
        assert act.detail.startswith("person='anna@example.com' ")
        audit = console.get("/audit?call=UpdateTube", headers=anna).text
        assert "anna@example.com" in audit.partition("<tbody>")[2]
        root.update_tube("mail", put_paused=False)
        assert "secret" not in console.get("/tubes", headers=ben).text
        for headers in ({}, {"x-forwarded-user": ""}, {"x-forwarded-user": "carl"}):
            assert console.get("/tubes", headers=headers).status_code == 403
        twice = [("x-forwarded-user", "carl"), ("x-forwarded-user", "anna@example.com")]
        assert console.get("/tubes", headers=twice).status_code == 403
    far = more.replace("127.0.0.1", "10.0.0.1")
    with running_console(target, "--sign-in", str(written(folder, "proxy", far))) as console:
        answer = console.get("/tubes", headers=anna)
        assert answer.status_code == 403
        assert "only through its proxy" in answer.text


@pytest.fixture(scope="module")
def provider():
    with running_provider() as one:
        yield one


def test_a_person_signs_in_with_open_id_connect(secured, provider, new_browser):
    target, folder, _ = secured
    oidc = f'[oidc]\nissuer = "{provider.address}"\nclient_id = "{CLIENT}"\n' + PEOPLE
    with running_console(
        target, "--sign-in", str(written(folder, "oidc", oidc)), "--read-only"
    ) as console:

        def returned(claims):
            provider.claims = claims
            browser = new_browser(console)
            asked = browser.get("/signin/begin?next=/tubes/mail").headers["location"]
            back = httpx2.get(asked).headers["location"]
            return browser, back.replace("http://127.0.0.1:1/", "/")

        browser, back = returned({"email": "anna@example.com", "email_verified": True})
        answer = browser.get(back)
        assert (answer.status_code, answer.headers["location"]) == (303, "/tubes/mail")
        assert "anna@example.com" in browser.get("/tubes/mail").text
        assert "secret" not in browser.get("/tubes").text
        assert browser.get(back).status_code == 400  # a code counts once

        for claims, said in (
            ({"email": "anna@example.com"}, "has not verified the address"),
            ({"email": "dora@example.com", "email_verified": True}, "has no access"),
            ({}, "has no &#39;email&#39;"),
            ({"aud": "another", "email": "anna@example.com"}, "sign-in failed"),
            ({"iss": "https://evil.example"}, "sign-in failed"),
            ({"nonce": "another"}, "sign-in failed"),
            ({"exp": 1}, "sign-in failed"),
        ):
            browser, back = returned(claims)
            answer = browser.get(back)
            assert answer.status_code == 403, claims
            assert said in answer.text
            assert browser.get("/tubes").status_code == 303
        _, back = returned({"email": "anna@example.com", "email_verified": True})
        assert console.get(back).status_code == 400  # the state belongs to another browser


def test_a_next_page_is_always_one_of_the_console():
    asked = ("/tubes?x=1", "//evil.example", "https://evil.example", "/\\evil", "/a\nb", "")
    assert [_local_path(text) for text in asked] == ["/tubes?x=1", "/", "/", "/", "/", "/"]


def test_without_sign_in_no_other_address_is_listened_on():
    done = CliRunner().invoke(main, ["console", "--listen", "0.0.0.0:0"])
    assert done.exit_code == 2
    assert "--sign-in" in done.output
