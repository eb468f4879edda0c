"""Find the files of the demo, and examine one."""

from demo.source_files import Findings, examine, source_files, standard_library


def test_the_standard_library_has_many_files_and_no_foreign_ones():
    root = standard_library()
    paths = [file.path for file in source_files(root)]
    assert len(paths) > 500
    assert root / "os.py" in paths
    assert not [path for path in paths if "site-packages" in path.relative_to(root).parts]


def test_a_file_is_digested_and_its_lines_are_counted(tmp_path):
    (tmp_path / "one.py").write_bytes(b"a\nb\n")
    digest = "911169ddaaf146aff539f58c26c489af3b892dff0fe283c1c264c65ae5aa59a2"
    assert examine(tmp_path / "one.py") == Findings(sha256=digest, lines=2)
