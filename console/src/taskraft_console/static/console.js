// Theme, relative times, keyboard, copy buttons and what live updates leave alone. The pages work without this file.
(() => {
  "use strict";
  const root = document.documentElement;
  const store = {
    get: (key) => { try { return localStorage.getItem(key); } catch { return null; } },
    set: (key, value) => { try { localStorage.setItem(key, value); } catch { /* a private window keeps nothing */ } },
  };

  const theme = store.get("taskraft-theme");
  if (theme) root.dataset.theme = theme;
  const zone = () => store.get("taskraft-zone") || "UTC";

  // Write times in the chosen zone; the server writes UTC.
  function showTimes(within) {
    if (zone() === "UTC") return;
    for (const element of within.querySelectorAll("time[datetime]")) {
      const at = new Date(element.dateTime);
      if (element.dataset.form !== "relative" && !Number.isNaN(at.getTime())) {
        element.textContent = at.toLocaleString(undefined, { dateStyle: "short", timeStyle: "medium" });
      }
    }
  }

  function labelButtons() {
    const dark = (root.dataset.theme || (matchMedia("(prefers-color-scheme: dark)").matches ? "dark" : "light")) === "dark";
    const themeButton = document.getElementById("theme");
    const zoneButton = document.getElementById("zone");
    if (themeButton) { themeButton.hidden = false; themeButton.textContent = dark ? "Light" : "Dark"; }
    if (zoneButton) { zoneButton.hidden = false; zoneButton.textContent = zone() === "UTC" ? "UTC" : "Local"; }
  }

  document.addEventListener("click", async (event) => {
    const button = event.target.closest("button");
    if (!button) return;
    if (button.id === "theme") {
      root.dataset.theme = button.textContent === "Dark" ? "dark" : "light";
      store.set("taskraft-theme", root.dataset.theme);
      labelButtons();
      document.dispatchEvent(new Event("taskraft:theme"));
    } else if (button.id === "zone") {
      store.set("taskraft-zone", zone() === "UTC" ? "local" : "UTC");
      location.reload();
    } else if (button.classList.contains("copy")) {
      await navigator.clipboard.writeText(button.previousElementSibling.textContent);
      button.textContent = "copied";
      setTimeout(() => { button.textContent = "copy"; }, 1500);
    } else if (button.dataset.close !== undefined) {
      document.getElementById("help").close();
    }
  });

  document.addEventListener("htmx:after:swap", (event) => { showTimes(document); document.dispatchEvent(new CustomEvent("taskraft:updated", { detail: event.detail })); });
  // An update must not close what the reader has opened, and must not replace a field in use.
  document.addEventListener("htmx:before:morph:node", (event) => {
    const { oldNode } = event.detail || {};
    if (oldNode && oldNode.nodeType === 1 && oldNode.matches("details[open]") && oldNode.querySelector("form")) event.preventDefault();
  });

  // Keyboard.
  const pages = { o: "", t: "tubes", k: "tasks", w: "workers", g: "workflows", s: "schedules", c: "cluster", f: "failures", b: "bulk", a: "audit" };
  let awaiting = "";
  const rows = () => [...document.querySelectorAll("main table.list tbody tr")];
  function move(step) {
    const all = rows();
    if (!all.length) return;
    const now = all.findIndex((row) => row.classList.contains("current"));
    const next = all[Math.max(0, Math.min(all.length - 1, now + step))];
    all.forEach((row) => row.classList.remove("current"));
    next.classList.add("current");
    next.scrollIntoView({ block: "nearest" });
    next.querySelector("a")?.focus({ preventScroll: true });
  }
  document.addEventListener("keydown", (event) => {
    if ((event.ctrlKey || event.metaKey) && event.key.toLowerCase() === "k") {
      event.preventDefault();
      document.querySelector("form.go input").focus();
      return;
    }
    if (event.target.matches("input, select, textarea") || event.ctrlKey || event.metaKey || event.altKey) {
      if (event.key === "Escape") event.target.blur();
      return;
    }
    if (awaiting === "g") {
      awaiting = "";
      const link = pages[event.key] === undefined ? null : document.querySelector(`nav.main a[data-page="${pages[event.key]}"]`);
      if (link) { event.preventDefault(); location.href = link.href; }
      return;
    }
    switch (event.key) {
      case "g": awaiting = "g"; setTimeout(() => { awaiting = ""; }, 1200); break;
      case "/": { const field = document.querySelector("main form.filters input") || document.querySelector("form.go input"); event.preventDefault(); field.focus(); break; }
      case "j": move(1); break;
      case "k": move(-1); break;
      case "r": location.reload(); break;
      case ".": document.getElementById("pause")?.click(); break;
      case "y": document.querySelector("main .forms button.copy")?.click(); break;
      case "m": document.querySelector("main details.act > summary")?.focus(); break;
      case "?": document.getElementById("help").showModal(); break;
    }
  });

  document.addEventListener("DOMContentLoaded", () => {
    labelButtons();
    showTimes(document);
    // On a narrow screen the navigation is one row that scrolls sideways.
    const nav = document.querySelector("nav.main");
    const page = nav?.querySelector("[aria-current]");
    if (page) nav.scrollLeft = page.offsetLeft - (nav.clientWidth - page.offsetWidth) / 2;
  });
})();
