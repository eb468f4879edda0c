"""Generate docs/errors.md from the table in `taskraft.catalogue`: `python -m tools.errors_page`."""

import textwrap
from pathlib import Path
from typing import Final

from taskraft.catalogue import CATALOGUE, ErrorReason
from taskraft.cli.failures import EXIT_CODES, FAILED

PAGE: Final = Path(__file__).parent.parent / "docs" / "errors.md"

WIDTH: Final = 120
"""Maximum length of a line of text, in characters."""

HEAD: Final = """# Errors

<!-- Written by `python -m tools.errors_page` from the table in taskraft.catalogue; do not edit. -->

This page lists every error reason with its meaning and advice. `taskraft explain REASON` prints the
same text.

A call that fails as a whole returns a gRPC status with a `google.rpc.ErrorInfo` detail. The detail
has the domain `taskraft.v1` and one of the reasons below. Further details depend on the reason:

- If a retry can succeed, the status has a `google.rpc.RetryInfo` with the time to wait.
- `INVALID_FIELD` has a `google.rpc.BadRequest` with all violations, cut off after 4 KiB. If the
  list is cut off, the metadata `violations` is the total number of violations.

If one item of a list is refused, the response reports the error at the position of the item, with
the same reasons and all violations. The other items of the list succeed, unless the request is
atomic. If an option of the whole request is wrong, for example an option that the kind of the tube
does not support, the whole request is refused and has no effect.

"Retried" means that the Python client retries the call by itself, with the same `request_id`, until
the deadline of the call. The last error then says whether a change may have taken effect. "Raised"
means that the client raises the exception at once.
"""


def page() -> str:
    """Return the page as Markdown."""
    sections = (section(row) for row in CATALOGUE.values())
    return "\n".join((HEAD, *sections))


def section(row: ErrorReason) -> str:
    """Return the section of one reason."""
    client = "retried" if row.is_retried else "raised"
    facts = (
        f"gRPC code `{row.code}` · `taskraft.errors.{row.exception.__name__}` ({client})"
        f" · exit code {EXIT_CODES.get(row.code, FAILED)}"
    )
    text = f"{row.meaning} {row.advice}"
    if row.final_advice:
        text += f" If the retries have ended: {row.final_advice}"
    return f"## {row.reason}\n\n{facts}\n\n{textwrap.fill(text, WIDTH, break_on_hyphens=False)}\n"


def main() -> None:
    """Write the page."""
    PAGE.write_text(page())


if __name__ == "__main__":
    main()
