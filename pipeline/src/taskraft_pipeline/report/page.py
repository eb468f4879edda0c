"""Render a report as one self-contained HTML file, without scripts."""

from __future__ import annotations

import base64
from html import escape
from typing import TYPE_CHECKING, Final

from taskraft_pipeline.report.tables import count, duration, headline, ratio, tables

if TYPE_CHECKING:
    from taskraft_pipeline.report.report import Report
    from taskraft_pipeline.report.tables import Table

STYLE: Final = """
:root { color-scheme: light; }
body { font: 15px/1.5 system-ui, sans-serif; color: #22272e; background: #f4f5f7; margin: 0; }
main { max-width: 1120px; margin: 0 auto; padding: 28px 24px 48px; }
h1 { font-size: 26px; margin: 0 0 2px; } h2 { font-size: 17px; margin: 34px 0 10px; }
p { margin: 0; color: #59626d; }
.cards { display: grid; grid-template-columns: repeat(auto-fit, minmax(136px, 1fr)); gap: 12px;
         margin: 22px 0; }
.card { background: white; border: 1px solid #e4e7eb; border-radius: 8px; padding: 12px 14px; }
.card b { display: block; font-size: 21px; font-weight: 650; white-space: nowrap; }
.card span { color: #59626d; font-size: 13px; }
.bad b { color: #b3261e; }
img { width: 100%; background: white; border: 1px solid #e4e7eb; border-radius: 8px; }
.scroll { overflow-x: auto; background: white; border: 1px solid #e4e7eb; border-radius: 8px; }
table { border-collapse: collapse; width: 100%; font-variant-numeric: tabular-nums; }
th, td { padding: 7px 14px; text-align: right; white-space: nowrap; }
th { font-weight: 600; color: #59626d; font-size: 13px; border-bottom: 1px solid #e4e7eb; }
th:first-child, td:first-child { text-align: left; }
td:last-child { max-width: 420px; overflow: hidden; text-overflow: ellipsis; }
tr:nth-child(even) td { background: #fafbfc; }
"""


def page(report: Report, picture: bytes) -> str:
    """Return a report with its charts, a PNG, as an HTML document."""
    encoded = base64.b64encode(picture).decode()
    content = "\n".join(html_table(table) for table in tables(report) if table.rows)
    percentiles = "exact" if report.is_exact else "within 0.01 % of rank"
    return f"""<!doctype html>
<html lang="en"><head><meta charset="utf-8"><title>taskraft report</title>
<meta name="viewport" content="width=device-width, initial-scale=1"><style>{STYLE}</style></head>
<body><main>
<h1>taskraft report</h1>
<p>{escape(report.source)}: {escape(headline(report))}</p>
<div class="cards">{cards(report)}</div>
<img alt="Throughput, backlog, times, failures and attempts" src="data:image/png;base64,{encoded}">
{content}
<h2>How to read it</h2>
<p>A task waits from the time it becomes ready until it is taken. It runs from the take until it
leaves the state TAKEN, for whatever reason. Times are the cluster's
time in UTC; percentiles are {percentiles}.</p>
</main></body></html>
"""


def cards(report: Report) -> str:
    """Return the most important numbers as HTML."""
    total = report.total
    shown = [
        (count(total.count("put")), "tasks put"),
        (count(total.count("acknowledged")), "tasks acknowledged"),
        (ratio(total.acks_per_second), "acknowledged per second"),
        (duration(total.wait.at(0.5)), "median wait"),
        (duration(total.run.at(0.5)), "median run"),
        (count(total.count("failed")), "failed attempts"),
    ]
    found = [f'<div class="card"><b>{value}</b><span>{name}</span></div>' for value, name in shown]
    if not report.is_filtered:
        verdict, kind = ("complete", "") if report.is_complete else ("WITH GAPS", " bad")
        found.append(f'<div class="card{kind}"><b>{verdict}</b><span>history</span></div>')
    return "".join(found)


def html_table(table: Table) -> str:
    """Return a table as HTML."""
    heads = "".join(f"<th>{escape(head)}</th>" for head in table.heads)
    rows = "".join(
        f"<tr>{''.join(f'<td>{escape(cell)}</td>' for cell in row)}</tr>" for row in table.rows
    )
    return (
        f'<h2>{escape(table.title)}</h2><div class="scroll"><table>'
        f"<thead><tr>{heads}</tr></thead><tbody>{rows}</tbody></table></div>"
    )
