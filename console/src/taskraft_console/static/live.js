// Live updates. The visible tabs of a browser share one stream, because a browser opens at most six
// connections to a server over HTTP/1.1. Each visible tab holds a shared Web Lock that names its
// page. The tab that also holds the lock of the stream asks the server for the pages of all these
// locks, and sends their contents to the other tabs over a BroadcastChannel. A hidden tab holds no
// lock. The browser releases the locks of a closed tab, so that another tab opens the stream.
(() => {
  "use strict";
  const PAGES_MAX = 16; // maximum number of pages in one stream, as in live_pages.py
  const ADDRESS_MAX = 16000; // maximum length of the address of a stream, in characters
  const RETRY_MS = 10000; // time until a refused stream is opened again
  const RELOAD_MS = 10000; // interval in which a page without a stream is read as a whole
  const CHECK_MS = 10000; // interval in which the holder of the stream looks for ended tabs
  const OLD_MS = 2000; // age from which values are shown in grey, as in live.html
  const SILENT_MS = 40000; // longest silence of a stream; its server sends a ping every 15 s

  // The dot shows whether updates arrive; the content of each update sets the dot to "live" again.
  function mark(color, why) {
    const dot = document.querySelector("#pulse .dot");
    if (dot) { dot.className = `dot ${color}`; dot.nextElementSibling.textContent = why; }
  }

  // Show old values in grey, with their age.
  function showAge(ms) {
    if (ms < OLD_MS) return;
    document.getElementById("main").classList.add("old");
    document.getElementById("age").textContent = `values ${Math.floor(ms / 1000)} s old`;
  }

  // Read a page as a whole again and again, while no stream sends its content.
  class Reloads {
    constructor(show) {
      Object.assign(this, { show, timer: 0, ageTimer: 0, why: "", shownAt: performance.now() });
    }

    start(why) {
      this.why = `${why}: reloads every ${RELOAD_MS / 1000} s`;
      mark("amber", this.why);
      if (this.timer) return;
      this.shownAt = performance.now();
      this.timer = setInterval(() => this.reload(), RELOAD_MS);
      this.ageTimer = setInterval(() => showAge(performance.now() - this.shownAt), 1000);
    }

    stop() {
      clearInterval(this.timer);
      clearInterval(this.ageTimer);
      this.timer = 0;
    }

    async reload() {
      let text = "";
      try { text = await (await fetch(location.href)).text(); } catch { mark("red", "the console does not answer"); return; }
      if (!this.timer) return;
      const content = new DOMParser().parseFromString(text, "text/html").getElementById("live");
      if (content) { this.show(content.innerHTML); this.shownAt = performance.now(); mark("amber", this.why); } else location.reload(); // the sign-in has ended
    }
  }

  // Read pages from the server until close(): one stream, reopened when the pages change.
  class Stream {
    constructor(address, onContent, onLost) {
      Object.assign(this, { address, onContent, onLost, pages: [], newest: new Map(), heardAt: 0 });
    }

    // The first pages are kept if there are too many.
    open(wanted) {
      const pages = [];
      let length = this.address.length;
      for (const page of wanted.slice(0, PAGES_MAX)) {
        length += encodeURIComponent(page).length + "?page=".length;
        if (pages.length === 0 || length <= ADDRESS_MAX) pages.push(page);
      }
      if (this.source && [...pages].sort().join(" ") === [...this.pages].sort().join(" ")) return;
      this.close();
      this.pages = pages;
      this.connect();
    }

    connect() {
      const query = this.pages.map((page) => `page=${encodeURIComponent(page)}`).join("&");
      this.source = new EventSource(`${this.address}?${query}`);
      this.heardAt = performance.now();
      this.source.addEventListener("ping", () => { this.heardAt = performance.now(); });
      this.source.addEventListener("message", (event) => {
        this.heardAt = performance.now();
        const content = JSON.parse(event.data);
        this.newest.set(content.page, content.html);
        this.onContent(content);
      });
      this.source.addEventListener("error", () => {
        this.onLost();
        // The browser repeats a broken connection by itself, but not a refused one.
        if (this.source.readyState === EventSource.CLOSED) this.retry = setTimeout(() => this.connect(), RETRY_MS);
      });
      this.watch ||= setInterval(() => this.reconnectIfSilent(), RETRY_MS);
    }

    // A connection whose other end is gone without a word reports no error.
    reconnectIfSilent() {
      if (performance.now() - this.heardAt < SILENT_MS || this.source.readyState === EventSource.CLOSED) return;
      this.onLost();
      this.source.close();
      this.connect();
    }

    close() {
      clearTimeout(this.retry);
      clearInterval(this.watch);
      this.watch = 0;
      this.source?.close();
      this.source = null;
      this.newest.clear();
    }
  }

  document.addEventListener("DOMContentLoaded", () => {
    const place = document.getElementById("live");
    const { address: page, stream: address, group } = place.dataset;
    if (!page) return;
    const show = (html) => htmx.swap({ sourceElement: place, target: place, swap: "innerMorph", text: html });
    const reloads = new Reloads(show);
    const isShared = "locks" in navigator && "BroadcastChannel" in window;
    const tabs = isShared ? shareStream(page, address, group, show, reloads) : ownStream(page, address, show, reloads);
    const stop = () => { tabs.stop(); reloads.stop(); };
    const follow = () => (document.hidden ? stop() : tabs.start());
    follow();
    document.addEventListener("visibilitychange", follow);
    addEventListener("pagehide", stop);
    addEventListener("pageshow", (event) => { if (event.persisted) follow(); });
  });

  // For a browser without Web Locks, and for http on other addresses than loopback.
  function ownStream(page, address, show, reloads) {
    const stream = new Stream(address, (content) => { reloads.stop(); show(content.html); }, () => reloads.start("no live updates"));
    return { start: () => stream.open([page]), stop: () => stream.close() };
  }

  function shareStream(page, address, group, show, reloads) {
    const scope = `taskraft ${address} ${group}`; // other sign-ins and base paths have other streams
    const streamLock = `${scope} stream`;
    const pageLock = `${scope} page `;
    const channel = new BroadcastChannel(scope);
    let visible = null; // an AbortController while this tab is visible
    let isHolder = false;
    const ignoreAbort = (error) => { if (error.name !== "AbortError") throw error; };

    function take(message) {
      if (!visible) return;
      if (message.page === page) { reloads.stop(); show(message.html); }
      if (message.isLost) reloads.start("no live updates");
      if (message.pages && !message.pages.includes(page)) reloads.start("too many pages are open");
    }
    const tell = (message) => { take(message); channel.postMessage(message); };
    const stream = new Stream(address, tell, () => tell({ isLost: true }));

    async function openStream() {
      const { held } = await navigator.locks.query();
      const others = held.filter((lock) => lock.name.startsWith(pageLock)).map((lock) => lock.name.slice(pageLock.length));
      if (!isHolder) return;
      stream.open([...new Set([page, ...others])]);
      tell({ pages: stream.pages });
    }

    channel.addEventListener("message", ({ data }) => {
      if (!isHolder) { take(data); return; }
      if (stream.newest.has(data.wanted)) channel.postMessage({ page: data.wanted, html: stream.newest.get(data.wanted) });
      openStream();
    });

    function start() {
      if (visible) return;
      visible = new AbortController();
      const { signal } = visible;
      const hidden = new Promise((resolve) => signal.addEventListener("abort", resolve));
      navigator.locks.request(pageLock + page, { mode: "shared", signal }, () => {
        if (signal.aborted) return undefined;
        channel.postMessage({ wanted: page });
        return hidden;
      }).then(() => channel.postMessage({ left: page })).catch(ignoreAbort);
      navigator.locks.request(streamLock, { signal }, async () => {
        if (signal.aborted) return;
        isHolder = true;
        const check = setInterval(openStream, CHECK_MS);
        openStream();
        await hidden;
        clearInterval(check);
      }).catch(ignoreAbort);
    }

    function stop() {
      visible?.abort();
      visible = null;
      isHolder = false;
      stream.close();
    }
    return { start, stop };
  }
})();
