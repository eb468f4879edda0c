// Draw the charts of a page with uPlot. All charts of a page share one answer, and one cursor.
(() => {
  "use strict";
  const REFRESH_MS = 10000;
  const ACT_PIXELS = 8; // distance from the cursor at which an act is named
  const resolved = (name) => {
    // A custom property can hold light-dark(); the color of an element is resolved.
    const probe = document.createElement("span");
    probe.style.color = `var(${name})`;
    document.body.append(probe);
    const color = getComputedStyle(probe).color;
    probe.remove();
    return color;
  };
  const short = (amount) => String(Number(amount.toFixed(1)));
  const number = (value) => (value == null ? "–" : value >= 10000 ? `${(value / 1000).toFixed(1)} k` : value >= 10 ? String(Math.round(value)) : short(value));
  const duration = (ms) => (ms == null ? "–" : ms < 1000 ? `${Math.round(ms)} ms` : ms < 60000 ? `${short(ms / 1000)} s` : ms < 3600000 ? `${short(ms / 60000)} m` : `${short(ms / 3600000)} h`);
  const rate = (value) => (value == null ? "–" : `${number(value)}/s`);
  // Marks of a scale of durations are whole seconds, minutes and hours.
  const STEPS_MS = [1, 2, 5, 10, 20, 50, 100, 200, 500, ...[1, 2, 5, 10, 15, 30, 60, 120, 300, 600, 900, 1800, 3600, 7200, 14400, 21600, 43200, 86400, 172800, 432000, 864000].map((seconds) => seconds * 1000)];
  const zone = () => { try { return localStorage.getItem("taskraft-zone") === "local" ? Intl.DateTimeFormat().resolvedOptions().timeZone : "UTC"; } catch { return "UTC"; } };
  const clock = (at) => new Date(at * 1000).toLocaleTimeString("en-GB", { timeZone: zone() });
  // Without a cursor, the legend shows the newest sample.
  const showNewest = (plot) => { if (plot.cursor.idx == null) plot.setLegend({ idx: plot.data[0].length - 1 }, false); };
  const KINDS = {
    rates: { unit: rate, lines: [["put", "in", "--link", []], ["ack", "done", "--good", []], ["fail", "failed", "--alarm", [4, 3]]] },
    backlog: { unit: number, lines: [["ready", "ready", "--ready", []], ["taken", "taken", "--taken", [6, 3]], ["buried", "buried", "--buried", [2, 2]]] },
    age: { unit: duration, steps: STEPS_MS, lines: [["oldest_ready_age_ms", "oldest ready", "--warning", []]] },
    times: { unit: duration, steps: STEPS_MS, lines: [["wait_p50_ms", "wait p50", "--link", [3, 3]], ["wait_p95_ms", "wait p95", "--link", []], ["run_p50_ms", "run p50", "--taken", [3, 3]], ["run_p95_ms", "run p95", "--taken", []]] },
  };
  const drawn = new Map(); // the plot of each figure; plot.acts: the acts of management in its span

  // A dashed line marks each act of management.
  function markActs(plot, color) {
    const { ctx, bbox } = plot;
    ctx.save();
    ctx.strokeStyle = color;
    ctx.setLineDash([3 * devicePixelRatio, 4 * devicePixelRatio]);
    for (const act of plot.acts) {
      const x = Math.round(plot.valToPos(act.at, "x", true)) + 0.5;
      if (x < bbox.left || x > bbox.left + bbox.width) continue;
      ctx.beginPath();
      ctx.moveTo(x, bbox.top);
      ctx.lineTo(x, bbox.top + bbox.height);
      ctx.stroke();
    }
    ctx.restore();
  }

  // The caption names the act next to the cursor, within ACT_PIXELS; else the source of the samples.
  function nameAct(plot, caption) {
    const distance = (act) => Math.abs(plot.valToPos(act.at, "x") - plot.cursor.left);
    const [near] = plot.cursor.left < 0 ? [] : [...plot.acts].sort((one, other) => distance(one) - distance(other));
    caption.textContent = near && distance(near) <= ACT_PIXELS ? `${clock(near.at)} ${near.text}` : plot.source;
  }

  function draw(figure, answer) {
    const kind = KINDS[figure.dataset.chart];
    const data = [answer.at, ...kind.lines.map(([name]) => answer.series[name])];
    const place = figure.querySelector(".plot");
    const caption = figure.querySelector(".from");
    if (answer.at.length < 2) { caption.textContent = "no samples yet; nodes take one every 10 s"; return; }
    const source = `every ${answer.step_ms / 1000} s, node ${answer.node}`;
    const known = drawn.get(figure);
    if (known) { Object.assign(known, { source, acts: answer.acts }).setData(data); showNewest(known); return; }
    caption.textContent = source;
    const muted = resolved("--muted");
    const line = resolved("--line");
    const axis = { stroke: muted, grid: { stroke: line, width: 1 }, ticks: { show: false }, font: "11px system-ui, sans-serif" };
    const plot = new uPlot({
      width: place.clientWidth, height: 176,
      cursor: { sync: { key: "page" }, points: { size: 5 }, drag: { x: false, y: false } },
      legend: { live: true },
      scales: { y: { range: (_, low, high) => [0, Math.max(high || 0, 1) * 1.08] } },
      axes: [{ ...axis, size: 30, values: [[3600, "{HH}:{mm}", null, null, null, null, null, null, 1], [60, "{HH}:{mm}", null, null, null, null, null, null, 1], [1, "{HH}:{mm}:{ss}", null, null, null, null, null, null, 1]] }, { ...axis, size: 58, ...(kind.steps && { incrs: kind.steps }), values: (_, ticks) => ticks.map((tick) => (tick === 0 ? "0" : kind.unit(tick))) }],
      series: [{ label: "at", value: (_, at) => (at == null ? "–" : clock(at)) },
        ...kind.lines.map(([, label, color, dash]) => ({ label, stroke: resolved(color), width: 1.6, dash, spanGaps: false, points: { show: false }, value: (_, v) => kind.unit(v) }))],
      hooks: {
        init: [(self) => Object.assign(self, { source, acts: answer.acts })],
        drawAxes: [(self) => markActs(self, muted)],
        setCursor: [showNewest, (self) => nameAct(self, caption)],
      },
      tzDate: (at) => uPlot.tzDate(new Date(at * 1000), zone()),
    }, data, place);
    drawn.set(figure, plot);
    showNewest(plot);
  }

  async function refresh() {
    if (document.hidden) return;
    const figures = [...document.querySelectorAll("figure.chart[data-url]")];
    for (const url of new Set(figures.map((figure) => figure.dataset.url))) {
      try {
        const answer = await fetch(url, { headers: { Accept: "application/json" } });
        if (!answer.ok) continue;
        const content = await answer.json();
        for (const figure of figures.filter((each) => each.dataset.url === url && each.isConnected)) draw(figure, content);
      } catch { /* the next refresh asks again; the state of the page shows that updates are missing */ }
    }
  }

  function redraw() {
    for (const plot of drawn.values()) plot.destroy();
    drawn.clear();
    refresh();
  }
  document.addEventListener("DOMContentLoaded", refresh);
  document.addEventListener("visibilitychange", refresh);
  document.addEventListener("taskraft:theme", redraw);
  let width = innerWidth;
  addEventListener("resize", () => { if (innerWidth !== width) { width = innerWidth; redraw(); } });
  setInterval(() => { if (document.querySelector("#live[data-address]")) refresh(); }, REFRESH_MS);
})();
