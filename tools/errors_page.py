"""Write docs/errors.md from the table in `taskraft.catalogue` (`python -m tools.errors_page`)."""

from pathlib import Path
from typing import Final

from taskraft.catalogue import CATALOGUE, ErrorReason
from taskraft.cli.failures import EXIT_CODES, FAILED

PAGE: Final = Path(__file__).parent.parent / "docs" / "errors.md"

HEAD: Final = """# Errors

<!-- Written by `python -m tools.errors_page` from the table in taskraft.catalogue; do not edit. -->

A call that fails as a whole answers with a gRPC status that carries a `google.rpc.ErrorInfo` with
the domain `taskraft.v1` and one of these reasons; where waiting helps there is a
`google.rpc.RetryInfo` too, and with `INVALID_FIELD` a `google.rpc.BadRequest` with all violations,
or the first 4 KiB of them: then the metadata `violations` tells how many were found.
One item of a list that is refused is told in place, with the same reasons and all that is wrong
with it; what no item may have (an option of the request that the kind of the tube does not know)
refuses the request, and nothing is done. The command line shows a row with
`taskraft explain REASON`.

"Retried" means that the Python client repeats the call by itself, with the same `request_id`, until
the caller's time is over.
"""


def page() -> str:
    """Return the whole page."""
    sections = (section(row) for row in CATALOGUE.values())
    return "\n".join((HEAD, *sections))


def section(row: ErrorReason) -> str:
    """Return what the page says about one reason."""
    client = "retried" if row.is_retried else "raised"
    facts = (
        f"gRPC code `{row.code}` · `taskraft.errors.{row.exception.__name__}` ({client})"
        f" · exit code {EXIT_CODES.get(row.code, FAILED)}"
    )
    return f"## {row.reason}\n\n{facts}\n\n{row.meaning} {row.advice}\n"


def main() -> None:
    """Write the page."""
    PAGE.write_text(page())


if __name__ == "__main__":
    main()
