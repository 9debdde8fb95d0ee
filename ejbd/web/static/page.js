// What the page does by itself: times in the reader's zone, news as they come, output as it comes, copying.
"use strict";

(() => {
  const REST_MS = 3000; // between two looks that news cause, at least
  const SHARE = 150; // and so many times as long as the last look took: a viewer costs the daemon less than 1 % of a core
  const SLOW_MS = 30000; // and where there are none: what other jobs do makes no event
  const AGAIN_MS = 5000;
  const MOST_OUTPUT = 262144; // characters that are kept of an output

  const now = () => performance.now(); // not the clock: that may be set while the page is open

  // What a proxy in front of the daemon serves the page below; "" where it is served by itself.
  const below = new URL(document.currentScript.src).pathname.split("/web/static/")[0];

  const form = new Intl.DateTimeFormat(undefined, {
    year: "numeric", month: "2-digit", day: "2-digit", hour: "2-digit", minute: "2-digit", second: "2-digit",
    hourCycle: "h23", timeZoneName: "short",
  });

  function localTimes(root) {
    for (const one of root.querySelectorAll("time[datetime]:not([data-local])")) {
      const at = new Date(one.dateTime);
      if (!Number.isNaN(at.getTime())) {
        one.title = one.textContent;
        one.textContent = form.format(at);
        one.dataset.local = "";
      }
    }
    let shown = null; // the day of the tick before: a new day is named, whatever hour its first tick has here
    for (const one of root.querySelectorAll("text[data-at]")) {
      const at = new Date(Number(one.dataset.at) * 1000);
      const named = one.dataset.day || (shown !== null && shown !== at.toDateString());
      shown = at.toDateString();
      const day = { weekday: "short", day: "2-digit" };
      const words = { hour: "2-digit", minute: "2-digit", hourCycle: "h23", ...(named ? day : {}) };
      one.textContent = new Intl.DateTimeFormat(undefined, words).format(at);
    }
  }

  // -- news: the daemon says that there are some ---------------------------------------------------------------------

  const told = document.getElementById("connection");
  let looked = -SLOW_MS;
  let took = 0;
  let timer = 0;
  let over = false; // the browser is signed out: nothing is asked for any more

  function say(text, gone) {
    if (told && !old && told.textContent !== text) {
      told.textContent = text;
      told.classList.toggle("gone", gone);
    }
  }

  function look() {
    timer = 0;
    if (over || document.visibilityState === "hidden") return;
    looked = now();
    document.body.dispatchEvent(new CustomEvent("ejb:news"));
  }

  function soon() {
    const rest = Math.min(SLOW_MS, Math.max(REST_MS, SHARE * took));
    if (!timer) timer = setTimeout(look, Math.max(200, looked + rest - now()));
  }

  function end() {
    if (over) return;
    over = true;
    old = false;
    say("signed out; what is shown may be old: ", true);
    if (!told) return;
    told.append(again("sign in again"));
  }

  function again(words) {
    const back = document.createElement("a");
    back.href = location.href;
    back.textContent = words;
    return back;
  }

  let old = false; // the daemon was upgraded: what comes now is meant for another script and other styles

  function upgraded() {
    if (old) return;
    say("the daemon was upgraded: ", true);
    old = true;
    if (told) told.append(again("load this page anew"));
  }

  // A stream that is refused says no more than one that nothing answers.
  async function refused() {
    try {
      const answer = await fetch(below + "/v1/jobs?limit=1");
      if (answer.status === 401) return end();
    } catch {
      // nothing answers yet
    }
    setTimeout(listenAgain, AGAIN_MS);
  }

  function listen() {
    const source = new EventSource(below + "/web/news");
    source.addEventListener("news", soon);
    let away = true; // what happened between the page and its stream is in neither: one look more shows it
    source.onopen = () => {
      say("live", false);
      if (away) soon();
      away = false;
    };
    source.onerror = () => {
      away = true;
      say("the daemon does not answer; what is shown may be old", true);
      if (source.readyState === EventSource.CLOSED) refused();
    };
    window.addEventListener("pagehide", () => source.close(), { once: true });
  }

  function listenAgain() {
    listen();
    soon();
  }

  // -- what a reader has opened, scrolled or begun to use stays as it is when the page looks anew --------------------

  const kept = { open: [], left: {} };
  document.body.addEventListener("htmx:beforeSwap", () => {
    kept.open = [...document.querySelectorAll("#live details[open][id]")].map((one) => one.id);
    kept.left = {};
    for (const one of document.querySelectorAll("#live .wide[id]")) kept.left[one.id] = one.scrollLeft;
  });
  document.body.addEventListener("htmx:afterSwap", () => {
    for (const id of kept.open) document.getElementById(id)?.setAttribute("open", "");
    for (const id of Object.keys(kept.left)) {
      const one = document.getElementById(id);
      if (one) one.scrollLeft = kept.left[id];
    }
    localTimes(document);
  });
  // What is shown has a digest, by which the daemon sees that it would send the same again, and sends nothing.
  let have = "";
  document.body.addEventListener("htmx:configRequest", (event) => {
    if (have) event.detail.headers["X-EJB-Have"] = have;
  });
  document.body.addEventListener("htmx:afterRequest", (event) => {
    const waited = Number(event.detail.xhr.getResponseHeader("X-EJB-Waited")) || 0; // for a poll to be over
    took = now() - looked - waited * 1000;
    if (!event.detail.successful) return;
    have = event.detail.xhr.getResponseHeader("X-EJB-Is") || "";
    const made = event.detail.xhr.getResponseHeader("X-EJB-Made");
    if (made && made !== document.body.dataset.made) upgraded();
  });
  document.body.addEventListener("htmx:responseError", (event) => {
    if (event.detail.xhr.status === 401) end();
  });

  // -- output, as the job writes it ----------------------------------------------------------------------------------

  async function follow(place) {
    const decoder = new TextDecoder();
    let offset = 0;
    while (!over) {
      let wait = 2000;
      if (document.visibilityState !== "hidden" && place.closest("details")?.open !== false) {
        try {
          const answer = await fetch(place.dataset.log + "&offset=" + offset);
          if (answer.ok) {
            const bytes = new Uint8Array(await answer.arrayBuffer());
            if (bytes.length) {
              const below = place.scrollTop + place.clientHeight >= place.scrollHeight - 4;
              place.textContent = (place.textContent + decoder.decode(bytes, { stream: true })).slice(-MOST_OUTPUT);
              if (below) place.scrollTop = place.scrollHeight;
              wait = 200;
            }
            offset = Number(answer.headers.get("X-EJB-Next-Offset"));
            if (answer.headers.get("X-EJB-Complete") === "true") return;
          } else {
            if (answer.status === 401) return end();
            const problem = await answer.json().catch(() => ({}));
            if (!place.textContent && problem.detail) place.textContent = "(" + problem.detail + ")";
            wait = 10000;
          }
        } catch {
          wait = AGAIN_MS;
        }
      }
      await new Promise((done) => setTimeout(done, wait));
    }
  }

  localTimes(document);
  for (const place of document.querySelectorAll("[data-log]")) follow(place);
  for (const button of document.querySelectorAll("button.copy")) {
    if (!navigator.clipboard) continue; // an address that is not encrypted, and not this machine
    button.hidden = false;
    button.addEventListener("click", async () => {
      await navigator.clipboard.writeText(button.dataset.copy);
      button.textContent = "copied";
    });
  }
  if (document.getElementById("live")) {
    listen();
    setInterval(() => { if (now() - looked > SLOW_MS) look(); }, 5000);
    window.addEventListener("pageshow", (event) => { if (event.persisted) listenAgain(); }); // back to a page at rest
    document.addEventListener("visibilitychange", () => { if (document.visibilityState === "visible") soon(); });
    looked = now();
  }
})();
