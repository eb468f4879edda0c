"""Open pages of the console in a browser, and collect their faults."""

import contextlib
from importlib.resources import files

AXE = (files("axe_playwright_python") / "axe.min.js").read_text()
AXE_RUN = """
async () => (await axe.run(document)).violations.map(
  (each) => each.id + ": " + each.nodes.map((node) => node.html).slice(0, 3).join(" | "))
"""
NO_FAULTS = (
    "Failed to load resource: the server responded with",
    "Failed to load resource: net::ERR_CONNECTION_REFUSED",
    "Failed to load resource: net::ERR_INCOMPLETE_CHUNKED_ENCODING",
)


def is_fault(said):
    """Return whether a message of the browser is a fault.

    An HTTP status such as 404 is no fault, and a console that a test has ended is no fault.
    """
    return said.type == "error" and not said.text.startswith(NO_FAULTS)


@contextlib.contextmanager
def opened_browser(chromium, origin, **options):
    """Open a browser without pages; fail on errors, dialogs, and calls to other hosts."""
    context = chromium.new_context(**options)
    faults = []

    def watch(page):
        page.on("pageerror", lambda error: faults.append(f"error: {error}"))
        page.on(
            "dialog", lambda dialog: (faults.append(f"dialog: {dialog.message}"), dialog.dismiss())
        )

    context.on("page", watch)
    context.on("console", lambda said: faults.append(said.text) if is_fault(said) else None)
    context.on(
        "request",
        lambda asked: faults.append(asked.url) if not asked.url.startswith(origin) else None,
    )
    try:
        yield context
        assert faults == []
    finally:
        context.close()


@contextlib.contextmanager
def opened(chromium, origin, **options):
    """Open a page; fail on errors, dialogs, and calls to other hosts."""
    with opened_browser(chromium, origin, **options) as browser:
        yield browser.new_page()


def broken_rules(page):
    """Return the rules of accessibility that a page breaks, in the light and in the dark theme."""
    page.evaluate("document.querySelectorAll('details').forEach((each) => { each.open = true })")
    page.evaluate(AXE)
    found = []
    for scheme in ("light", "dark"):
        page.emulate_media(color_scheme=scheme)
        found += [f"{scheme}: {each}" for each in page.evaluate(AXE_RUN)]
    return found
