"""Rights in `taskraft apply`: what is written, what is refused, and that the server reads it."""

import json
import stat

import pytest
import yaml

from taskraft_service.access.principals import AccessFileInvalid, read_principals

DIGEST = "sha256:" + "9f" * 32
OTHER = "sha256:" + "ab" * 32
FILE = f"""
principals:
  billing:
    tokens: ["{DIGEST}"]
    certificates: ["billing.example"]
    grants:
      - {{role: producer, tubes: ["billing.*", mail]}}
"""


@pytest.fixture
def apply(run, tmp_path):
    """Return a function that applies declarations to the access file, and returns the result."""

    def invoke(content, options="", name="access.json"):
        return run(f"apply -f - --access-file {tmp_path / name} {options}", input=content)

    return invoke


@pytest.fixture
def path(tmp_path):
    return tmp_path / "access.json"


def actions(done):
    assert done.exit_code == 0, done.output
    return [(each["name"], each["action"]) for each in json.loads(done.stdout)]


def test_principals_are_written_once_and_read_by_the_server(apply, path, calls):
    assert actions(apply(FILE, "--dry-run -o json")) == [("billing", "create")]
    assert not path.exists()
    assert actions(apply(FILE, "-o json")) == [("billing", "create")]
    assert stat.S_IMODE(path.stat().st_mode) == 0o600
    billing = read_principals(path).principal("billing")
    assert billing.credentials == {DIGEST, "billing.example"}
    written = path.stat().st_ino
    assert actions(apply(FILE, "-o json")) == [("billing", "unchanged")]
    assert path.stat().st_ino == written, "an unchanged file was written again"
    assert calls.calls == [], "rights need no cluster"


def test_a_principal_that_speaks_for_people_stays_so(apply, path):
    speaking = FILE + "    speaks_for: true\n"
    assert actions(apply(speaking, "-o json")) == [("billing", "create")]
    assert read_principals(path).principal("billing").speaks_for
    assert actions(apply(speaking, "-o json")) == [("billing", "unchanged")]
    other = f"principals: {{audit: {{tokens: ['{OTHER}'], speaks_for: false}}}}"
    assert actions(apply(other, "-o json")) == [("audit", "create")]
    principals = read_principals(path)
    assert principals.principal("billing").speaks_for
    assert not principals.principal("audit").speaks_for
    assert actions(apply(FILE, "-o json")) == [("billing", "update")]
    assert not read_principals(path).principal("billing").speaks_for
    done = apply(FILE + "    speaks_for: perhaps\n")
    assert done.exit_code == 2, done.output
    assert "true or false" in done.output


def test_principals_that_the_file_does_not_name_stay(apply, path):
    apply(FILE)
    path.chmod(0o640)
    audit = f"{{tokens: ['{OTHER}'], grants: [{{role: reader, tubes: ['*']}}]}}"
    added = f"principals: {{audit: {audit}}}"
    shown = apply(added, "--dry-run").stdout
    assert shown.startswith("principal audit: create\n")
    assert OTHER in shown
    apply(added)
    assert len(read_principals(path)) == 2
    assert stat.S_IMODE(path.stat().st_mode) == 0o640
    changed = FILE.replace("producer", "consumer")
    assert "principal billing: update\n" in apply(changed).stdout
    assert list(path.parent.iterdir()) == [path], "a temporary file is left"


@pytest.mark.parametrize(
    "principal",
    [
        "billing: []",
        "'no spaces': {}",
        "billing: {typo: 1}",
        "billing: {tokens: [my-secret-token]}",
        "billing: {tokens: text}",
        "billing: {grants: [{role: owner, tubes: [a]}]}",
        "billing: {grants: [{role: reader, tubes: []}]}",
        "billing: {grants: [{role: reader}]}",
        "billing: {grants: [{role: reader, tubes: ['a b']}]}",
        f"billing: {{tokens: ['{DIGEST}']}}, other: {{tokens: ['{DIGEST}']}}",
        "billing: {certificates: [a]}, other: {certificates: [a]}",
    ],
)
def test_a_wrong_principal_is_refused_as_by_the_server(apply, path, principal, tmp_path):
    done = apply(f"principals: {{{principal}}}")
    assert (done.exit_code, done.stdout) == (2, "")
    assert len(done.stderr.splitlines()) == 1
    assert done.stderr.startswith("error: <stdin>:1: principals.")
    assert "my-secret-token" not in done.stderr
    assert not path.exists()
    content = tmp_path / "same.json"
    content.write_text(json.dumps(yaml.safe_load(f"principals: {{{principal}}}")))
    with pytest.raises(AccessFileInvalid):
        read_principals(content)


TOML = """# Who may do what; reviewed by the team of platform.
[principals.audit]
tokens = ["DIGEST"]  # rotated in May
[[principals.audit.grants]]
role = "reader"
tubes = ["*"]
"""


def test_a_toml_file_keeps_its_comments_and_its_other_principals(apply, tmp_path):
    path = tmp_path / "access.toml"
    path.write_text(TOML.replace("DIGEST", OTHER))
    shown = apply(FILE, "--dry-run", name=path.name).stdout
    assert shown.startswith("principal billing: create\n")
    assert path.read_text() == TOML.replace("DIGEST", OTHER)
    assert actions(apply(FILE, "-o json", name=path.name)) == [("billing", "create")]
    principals = read_principals(path)
    assert principals.principal("billing").credentials == {DIGEST, "billing.example"}
    assert principals.principal("audit").credentials == {OTHER}
    written = path.read_text()
    assert "# Who may do what" in written
    assert "# rotated in May" in written
    assert actions(apply(FILE, "-o json", name=path.name)) == [("billing", "unchanged")]
    changed = FILE.replace("producer", "consumer")
    assert actions(apply(changed, "-o json", name=path.name)) == [("billing", "update")]
    assert "# rotated in May" in path.read_text()
    read_principals(path)


@pytest.mark.parametrize("name", ["access.json", "access.toml"])
def test_prune_removes_the_principals_that_the_file_does_not_name(apply, tmp_path, name):
    path = tmp_path / name
    other = f"  audit:\n    tokens: ['{OTHER}']\n    grants: [{{role: reader, tubes: ['*']}}]\n"
    apply(FILE + other, name=name)
    assert len(read_principals(path)) == 2
    assert actions(apply("schedules: []", "--prune --dry-run -o json", name=name)) == []
    assert apply(FILE, "--prune", name=name).exit_code == 2, "no terminal, and no --yes"
    assert len(read_principals(path)) == 2
    pruned = actions(apply(FILE, "--prune --yes -o json", name=name))
    assert pruned == [("billing", "unchanged"), ("audit", "delete")]
    assert len(read_principals(path)) == 1
    assert read_principals(path).principal("billing").credentials == {DIGEST, "billing.example"}


def test_prune_of_principals_needs_the_access_file(run):
    assert "give --access-file" in run("apply -f - --prune --yes", input="principals: {}").stderr


def test_a_missing_toml_file_is_created(apply, tmp_path):
    path = tmp_path / "access.toml"
    apply(FILE, name=path.name)
    assert len(read_principals(path)) == 1
    assert stat.S_IMODE(path.stat().st_mode) == 0o600
    path.write_text("[principals")
    assert "not TOML" in apply(FILE, name=path.name).stderr


def test_a_wrong_principal_is_named_with_its_key_and_its_line(apply):
    changed = FILE.replace("producer", "owner")
    told = "error: <stdin>:7: principals.billing.grants[0].role: must be one of admin, "
    assert apply(changed).stderr.startswith(told)
    twice = f"{FILE}  other:\n    tokens: ['{DIGEST}']\n"
    told = "error: <stdin>:8: principals.other: billing has the same token or certificate\n"
    assert apply(twice).stderr == told


def test_nothing_is_written_if_a_tube_of_the_file_is_wrong(apply, path):
    done = apply(f"{FILE}\ntubes: [{{name: a, typo: 1}}]")
    assert done.exit_code == 2
    assert not path.exists()


def test_principals_need_a_json_file(apply, run, path):
    assert "--access-file" in run("apply -f -", input=FILE).stderr
    assert ".toml or .json" in apply(FILE, name="access.yaml").stderr
    path.write_text("{")
    assert "not JSON" in apply(FILE).stderr
    path.write_text('{"principals": [], "other": 1}')
    assert apply(FILE).exit_code == 2
