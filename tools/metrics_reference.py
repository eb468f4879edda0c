"""List the metrics of nodes and workers in Markdown, read from the code that exports them.

`make docs` inserts the text into docs/reference/metrics.md.
"""

import ast
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Final, NamedTuple

ROOT: Final = Path(__file__).parent.parent
NODE: Final = ROOT / "service" / "taskraft_service"
WORKER: Final = ROOT / "clients" / "python" / "src" / "taskraft" / "worker"
KINDS: Final = {
    "Counter": "counter",
    "CounterMetricFamily": "counter",
    "GaugeMetricFamily": "gauge",
    "Histogram": "histogram",
    "HistogramMetricFamily": "histogram",
    "histogram": "histogram",  # a function of metrics/entries.py that sets the labels
}
"""Kind of metric by the name of the function that creates the metric."""
PREFIX: Final = "taskraft_"


class MetricEntry(NamedTuple):
    """One exported metric."""

    name: str
    """Name without the suffix `_total` of counters."""
    kind: str
    labels: tuple[str, ...]
    text: str

    def row(self) -> str:
        """Return the row of the table."""
        shown = f"{self.name}_total" if self.kind == "counter" else self.name
        labels = ", ".join(f"`{label}`" for label in self.labels)
        return f"| `{shown}` | {self.kind} | {labels} | {self.text} |"


def text() -> str:
    """Return a table of the metrics of a node, and a table of those of a worker."""
    parts = []
    for title, folder in (("Metrics of a node", NODE), ("Metrics of a worker", WORKER)):
        rows = [metric.row() for metric in metrics(folder)]
        head = "| metric | kind | labels | meaning |\n| --- | --- | --- | --- |"
        parts.append("\n".join((f"## {title}\n", head, *rows, "")))
    return "\n".join(parts)


def metrics(folder: Path) -> list[MetricEntry]:
    """Return the metrics that the modules of a folder export, by name.

    Raises:
        ValueError: a metric has no constant text, or two metrics have one name.
    """
    found = sorted(
        metric
        for path in folder.rglob("*.py")
        if "prometheus_client" in (source := path.read_text())
        for metric in _metrics_of(ast.parse(source))
    )
    names = [metric.name for metric in found]
    if twice := {name for name in names if names.count(name) > 1}:
        raise ValueError(f"these metrics are created at several places: {sorted(twice)}")
    return found


def _metrics_of(tree: ast.Module) -> Iterator[MetricEntry]:
    """Yield the metrics that are created alone, and those that a function creates from a table."""
    for node in ast.walk(tree):
        if isinstance(node, ast.Call) and _name_of(node.args):
            if kind := _kind(node):
                yield MetricEntry(_name_of(node.args), kind, _labels(node, tree), _text(node.args))
        elif isinstance(node, ast.FunctionDef):
            for row in ast.walk(node):
                if isinstance(row, ast.Tuple) and (name := _name_of(row.elts)):
                    call = _call_with_variable(node)
                    yield MetricEntry(name, _kind(call), _labels(call, tree), _text(row.elts))


def _call_with_variable(tree: ast.AST) -> ast.Call:
    """Return the only call that creates a metric whose name is a variable."""
    (call,) = (
        node
        for node in ast.walk(tree)
        if isinstance(node, ast.Call) and _kind(node) and isinstance(node.args[0], ast.Name)
    )
    return call


def _kind(call: ast.Call) -> str:
    """Return the kind of metric that a call creates; empty: the call creates none."""
    return KINDS.get(call.func.id, "") if isinstance(call.func, ast.Name) else ""


def _name_of(values: list[ast.expr]) -> str:
    """Return the name of a metric at the begin of a list of expressions; empty: there is none."""
    first = values[0].value if values and isinstance(values[0], ast.Constant) else None
    return first if isinstance(first, str) and first.startswith(PREFIX) else ""


def _text(values: list[ast.expr]) -> str:
    second = values[1].value if len(values) > 1 and isinstance(values[1], ast.Constant) else None
    if not isinstance(second, str) or not second.endswith("."):
        raise ValueError(f"the metric {_name_of(values)} needs a sentence as its second argument")
    return second.removesuffix(".").replace("|", "\\|")


def _labels(call: ast.Call, tree: ast.Module) -> tuple[str, ...]:
    """Return the labels of a metric, which a local function may set."""
    if isinstance(call.func, ast.Name) and call.func.id == "histogram":
        call = _call_with_variable(tree)
    given: Iterable[ast.expr] = [each.value for each in call.keywords if each.arg == "labels"]
    for sequence in (*given, *call.args[2:3]):
        if isinstance(sequence, ast.Tuple | ast.List):
            return tuple(
                str(each.value) for each in sequence.elts if isinstance(each, ast.Constant)
            )
    return ()
