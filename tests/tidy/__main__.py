"""Print all violations of the house rules, or those of the rules that are named."""

import sys

from tests.tidy.rules import DRAFTS, RULES


def main(*chosen: str) -> None:
    """Print each rule with its violations."""
    for rule in (*RULES, *DRAFTS):
        if not chosen or rule.__name__ in chosen:
            found = rule()
            print(f"{rule.__name__}: {len(found)}", *found, sep="\n  ")


if __name__ == "__main__":
    main(*sys.argv[1:])
