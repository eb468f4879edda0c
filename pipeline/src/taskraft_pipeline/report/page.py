"""Render a report as one self-contained HTML file, without scripts."""

from __future__ import annotations

import base64
from html import escape
from typing import TYPE_CHECKING, Final

from taskraft_pipeline.report.chart_look import DARK, LIGHT, NARROW, WIDE, colours_of, look_of
from taskraft_pipeline.report.charts import draw
from taskraft_pipeline.report.tables import count, duration, headline, ratio, tables

if TYPE_CHECKING:
    from collections.abc import Sequence

    from taskraft_pipeline.report.chart_look import Theme
    from taskraft_pipeline.report.report import Report
    from taskraft_pipeline.report.tables import Table

STYLE: Final = """
body { font: 15px/1.5 system-ui, sans-serif; margin: 0;
       color: var(--ink); background: var(--back); }
main { max-width: 1240px; margin: 0 auto; padding: 28px 24px 48px; }
h1 { font-size: 26px; margin: 0 0 2px; } h2 { font-size: 17px; margin: 34px 0 10px; }
p { margin: 0; color: var(--faint); }
.cards { display: grid; grid-template-columns: repeat(8, 1fr); gap: 12px; margin: 22px 0; }
@media (max-width: 1200px) { .cards { grid-template-columns: repeat(4, 1fr); } }
@media (max-width: 620px) { .cards { grid-template-columns: repeat(2, 1fr); } }
.card, picture, .scroll { background: var(--paper); border: 1px solid var(--grid);
                          border-radius: 8px; }
.card { padding: 12px 14px; white-space: nowrap; }
.card b { display: block; font-size: 21px; font-weight: 650; }
.card span { color: var(--faint); font-size: 13px; }
.bad b { color: var(--bad); }
.key { display: flex; flex-wrap: wrap; gap: 4px 18px; margin: 26px 0 10px; padding: 0;
       list-style: none; }
.key li::before { content: ""; display: inline-block; width: 12px; height: 12px;
                  border-radius: 3px; margin-right: 6px; background: var(--tube); }
.charts { display: grid; grid-template-columns: repeat(auto-fit, minmax(min(480px, 100%), 1fr));
          gap: 12px; }
picture { overflow: hidden; } img { display: block; width: 100%; }
.scroll { overflow-x: auto; }
table { border-collapse: collapse; width: 100%; font-variant-numeric: tabular-nums; }
th, td { padding: 7px 14px; text-align: right; white-space: nowrap; }
th { font-weight: 600; color: var(--faint); font-size: 13px; border-bottom: 1px solid var(--grid); }
th:first-child, td:first-child { text-align: left; }
th.text, td.text { text-align: left; }
td.text:last-child { white-space: normal; overflow-wrap: anywhere; min-width: 180px; }
@media (max-width: 1000px) { th, td { padding: 7px; } table { font-size: 14px; }
                             th { font-size: 12px; } }
tr:nth-child(even) td { background: var(--back); }
"""
IS_DARK: Final = "(prefers-color-scheme: dark)"
IS_NARROW: Final = "(max-width: 620px)"
BACKS: Final = {LIGHT: ("#f4f5f7", "#b3261e"), DARK: ("#14181d", "#ff8a80")}
"""Background of the page, and colour of what is wrong, by theme."""


def page(report: Report, changed: Sequence[Table] = ()) -> str:
    """Return a report as an HTML document with its charts, in the theme of the reader.

    Args:
        report: the report.
        changed: tables of what has changed since the last report.
    """
    content = "\n".join(html_table(table) for table in tables(report) if table.rows)
    percentiles = "exact" if report.is_exact else "within 0.01 % of rank"
    return f"""<!doctype html>
<html lang="en"><head><meta charset="utf-8"><title>taskraft report</title>
<meta name="viewport" content="width=device-width, initial-scale=1">
<meta name="color-scheme" content="light dark"><style>{themes()}{STYLE}</style></head>
<body><main>
<h1>taskraft report</h1>
<p>{escape(report.source)}: {escape(headline(report))}</p>
<div class="cards">{cards(report)}</div>
{"".join(html_table(table) for table in changed if table.rows)}
{key(report)}
<div class="charts">{pictures(report)}</div>
{content}
<h2>How to read it</h2>
<p>A task waits from the time it becomes ready until it is taken. It runs from the take until it
leaves the state TAKEN, for whatever reason. Times are the cluster's time in UTC; percentiles are
{percentiles}.</p>
</main></body></html>
"""


def themes() -> str:
    """Return the style rules with the colours of both themes."""

    def colours(theme: Theme) -> str:
        back, bad = BACKS[theme]
        return (
            f":root {{ --ink: {theme.ink}; --faint: {theme.faint}; --grid: {theme.grid};"
            f" --paper: {theme.paper}; --back: {back}; --bad: {bad}; }}"
        )

    return f"{colours(LIGHT)} @media {IS_DARK} {{ {colours(DARK)} }}"


def key(report: Report) -> str:
    """Return the colours of the tubes as HTML."""
    tubes = "".join(
        f'<li style="--tube: {colour}">{escape(name)}</li>'
        for name, colour in colours_of(report).items()
    )
    return f'<ul class="key">{tubes}</ul>'


def pictures(report: Report) -> str:
    """Return the charts as HTML, each for both themes and for phones."""
    drawn = {
        media: draw(report, look_of(report, theme, size))
        for media, theme, size in (
            (f"{IS_DARK} and {IS_NARROW}", DARK, NARROW),
            (IS_NARROW, LIGHT, NARROW),
            (IS_DARK, DARK, WIDE),
        )
    }
    found = []
    for title, image in draw(report, look_of(report, LIGHT)).items():
        sources = "".join(
            f'<source media="{media}" srcset="{inline(charts[title])}">'
            for media, charts in drawn.items()
        )
        found.append(f'<picture>{sources}<img alt="{title}" src="{inline(image)}"></picture>')
    return "".join(found)


def inline(image: bytes) -> str:
    """Return a PNG as a URL with its content."""
    return f"data:image/png;base64,{base64.b64encode(image).decode()}"


def cards(report: Report) -> str:
    """Return the most important numbers as HTML."""
    total = report.total
    shown = [
        (count(total.count("put")), "tasks put"),
        (count(total.count("acknowledged")), "acknowledged"),
        (ratio(total.acks_per_second), "acknowledged/s"),
        (duration(total.wait.at(0.5)), "median wait"),
        (duration(total.run.at(0.5)), "median run"),
        (count(total.count("failed")), "failed attempts"),
        (count(total.count("buried")), "tasks buried"),
    ]
    found = [f'<div class="card"><b>{value}</b><span>{name}</span></div>' for value, name in shown]
    verdict, kind = ("complete", "") if report.is_complete else ("WITH GAPS", " bad")
    if report.is_filtered:
        verdict, kind = "filtered", ""
    found.append(f'<div class="card{kind}"><b>{verdict}</b><span>history</span></div>')
    return "".join(found)


def html_table(table: Table) -> str:
    """Return a table as HTML."""
    kinds = [' class="text"' if head in table.texts else "" for head in table.heads]

    def line(name: str, row: Sequence[str]) -> str:
        cells = zip(kinds, row, strict=True)
        return "".join(f"<{name}{kind}>{escape(cell)}</{name}>" for kind, cell in cells)

    heads = line("th", table.heads)
    rows = "".join(f"<tr>{line('td', row)}</tr>" for row in table.rows)
    return (
        f'<h2>{escape(table.title)}</h2><div class="scroll"><table>'
        f"<thead><tr>{heads}</tr></thead><tbody>{rows}</tbody></table></div>"
    )
