"""Write the golden files of versions that have none yet (``make golden``); change no file."""

import tempfile
from pathlib import Path

from taskraft_service.versions import FORMATS, HIGHEST, SnapshotFileVersion
from tests.golden.content import (
    acts_content,
    audit_content,
    bulk_content,
    bulk_log_content,
    consumer_owners_content,
    consumer_owners_log_content,
    feed_content,
    labels_content,
    limits_content,
    log_content,
    owners_content,
    returns_content,
    snapshot_content,
    snapshot_file_content,
    state_content,
    takers_content,
    takers_log_content,
    tube_owners_content,
    tube_owners_log_content,
)
from tests.golden.digests import DIGESTS, FOLDER, digest_of


def main():
    """Write the missing files, and append their digests."""
    formats = FORMATS[HIGHEST]
    with tempfile.TemporaryDirectory() as folder:
        wanted = {
            f"limits/v{int(HIGHEST)}/limits.json": limits_content,
            f"log/v{int(HIGHEST)}/entries.json": log_content,
            f"log/v{int(HIGHEST)}/acts.json": acts_content,
            f"log/v{int(HIGHEST)}/owners.json": owners_content,
            f"log/v{int(HIGHEST)}/takers.json": takers_log_content,
            f"log/v{int(HIGHEST)}/tube_owners.json": tube_owners_log_content,
            f"log/v{int(HIGHEST)}/consumer_owners.json": consumer_owners_log_content,
            f"state/v{int(formats.state)}/consumer_owners.json": consumer_owners_content,
            f"state/v{int(formats.state)}/tube_owners.json": tube_owners_content,
            f"state/v{int(formats.state)}/labels.json": labels_content,
            f"state/v{int(formats.state)}/takers.json": takers_content,
            f"state/v{int(formats.state)}/returns.json": returns_content,
            f"state/v{int(formats.state)}/requests.json": state_content,
            f"state/v{int(formats.state)}/audit.json": audit_content,
            f"log/v{int(HIGHEST)}/bulk.json": bulk_log_content,
            f"state/v{int(formats.state)}/bulk.json": bulk_content,
            f"state/v{int(formats.state)}/state.json": state_content,
            f"feed/v{int(formats.feed)}/chunks.json": feed_content,
            f"snapshot/v{int(formats.snapshot)}/snapshot.json": (
                lambda: snapshot_content(Path(folder))
            ),
            f"snapshot_file/v{int(max(SnapshotFileVersion))}/snapshot.json": (
                lambda: snapshot_file_content(Path(folder))
            ),
        }
        for name, content in wanted.items():
            path = FOLDER / name
            if path.exists():
                continue
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_text(content() + "\n")
            with DIGESTS.open("a") as digests:
                digests.write(f"{digest_of(path)}  {name}\n")
            print(f"wrote {name}")


if __name__ == "__main__":
    main()
