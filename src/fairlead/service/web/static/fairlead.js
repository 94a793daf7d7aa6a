// The dashboard works without this file. It adds live updates, logs that follow, local times and a few conveniences.
"use strict";

const parser = new DOMParser();

function localTimes(root) {
  for (const time of root.querySelectorAll("time[datetime]:not([title])")) {
    const date = new Date(time.dateTime);
    time.title = time.textContent;
    const today = date.toDateString() === new Date().toDateString();
    const clock = date.toLocaleTimeString([], { hour: "2-digit", minute: "2-digit", second: "2-digit", hour12: false });
    time.textContent = today ? clock : `${date.toLocaleDateString()} ${clock}`;
  }
}

// ---- live parts: the page is loaded again, and elements with data-live are replaced where they differ ----

let loading = false;

async function refresh() {
  if (loading || document.hidden) return;
  loading = true;
  try {
    const answer = await fetch(location.href, { headers: { Accept: "text/html" } });
    if (answer.status === 401) location.reload(); // the session has ended
    if (!answer.ok) return;
    const fresh = parser.parseFromString(await answer.text(), "text/html");
    const phase = phaseNow();
    for (const old of document.querySelectorAll("[data-live]")) {
      const part = fresh.getElementById(old.id);
      if (part) replace(old, part);
    }
    if (phaseNow() !== phase) loadSlow();
  } catch {
    setLink(false);
  } finally {
    loading = false;
  }
}

const sent = new Map(); // id of a part -> its markup as the service sent it

function replace(old, part) {
  const markup = part.outerHTML;
  if (sent.get(old.id) === markup) return;
  sent.set(old.id, markup);
  const open = [...old.querySelectorAll("details[open]")].map((one) => one.id);
  const focused = old.contains(document.activeElement) ? signature(document.activeElement) : null;
  const fresh = document.importNode(part, true);
  localTimes(fresh);
  old.replaceWith(fresh);
  prepareTables(fresh);
  for (const id of open) if (id) document.getElementById(id)?.setAttribute("open", "");
  if (focused) [...fresh.querySelectorAll("a, button, summary")].find((one) => signature(one) === focused)?.focus({ preventScroll: true });
}

const signature = (element) => `${element.tagName} ${element.getAttribute("href") ?? element.textContent}`;

function setLink(on) {
  const link = document.getElementById("link");
  if (!link || (link.dataset.state === "on") === on) return;
  link.dataset.state = on ? "on" : "off";
  link.firstElementChild.textContent = on ? "live" : "not live";
}

function listen() {
  const link = document.getElementById("link");
  if (!link) return;
  link.hidden = !document.querySelector("[data-live]");
  if (link.hidden) return;
  const source = new EventSource("/live");
  source.onopen = () => setLink(true);
  source.onerror = () => setLink(false);
  source.addEventListener("tick", refresh);
  // Estimates and ages change without an event; and a stream may be refused while many pages are open.
  setInterval(refresh, 15000);
  document.addEventListener("visibilitychange", refresh);
  addEventListener("pagehide", () => source.close());
}

// ---- a job: its explanation, which takes a while, and its log ----

const phaseNow = () => {
  const facts = document.getElementById("facts");
  return facts ? `${facts.dataset.phase} ${facts.dataset.reason.split(":")[0]}` : "";
};

// Loads the parts of the page that take a while, each from the page that has it in full. What was asked for last counts:
// a job may start while its explanation is still on its way.
const asked = new Map(); // id of a part -> how often it was asked for

function loadSlow() {
  for (const part of document.querySelectorAll("[data-load]")) loadPart(part.id);
}

async function loadPart(id) {
  const turn = (asked.get(id) ?? 0) + 1;
  asked.set(id, turn);
  const address = document.getElementById(id).dataset.load;
  document.getElementById(id).setAttribute("aria-busy", "true");
  const answer = await fetch(address).catch(() => null);
  const text = (await answer?.text().catch(() => null)) ?? "";
  if (asked.get(id) !== turn) return;
  const old = document.getElementById(id);
  old.removeAttribute("aria-busy");
  const page = parser.parseFromString(text, "text/html");
  const part = page.getElementById(id);
  if (!part) {
    const problem = page.querySelector(".problem");
    if (problem) old.append(document.importNode(problem, true));
    return;
  }
  const fresh = document.importNode(part, true);
  fresh.dataset.load = address;
  localTimes(fresh);
  old.replaceWith(fresh);
  prepareTables(fresh);
  if (fresh.dataset.again) setTimeout(() => asked.get(id) === turn && loadPart(id), 1000 * fresh.dataset.again);
}

const MOST_LOG = 400000; // characters

async function followLog() {
  const log = document.querySelector("[data-log]");
  if (!log) return;
  const state = document.getElementById("log-state");
  const decoder = new TextDecoder();
  const answer = await fetch(log.dataset.log).catch(() => null);
  if (!answer?.ok) {
    state.textContent = "cannot be read.";
    return;
  }
  state.textContent = "follows.";
  const reader = answer.body.getReader();
  for (;;) {
    const { done, value } = await reader.read().catch(() => ({ done: true }));
    if (done) break;
    const atEnd = log.scrollHeight - log.scrollTop - log.clientHeight < 40;
    log.append(decoder.decode(value, { stream: true }));
    if (log.textContent.length > 2 * MOST_LOG) log.textContent = log.textContent.slice(-MOST_LOG);
    if (atEnd) log.scrollTop = log.scrollHeight;
  }
  state.textContent = log.textContent ? "complete." : "is empty.";
}

// ---- conveniences ----

function light(event) {
  const run = event.target.closest?.("[data-job]");
  for (const lit of document.querySelectorAll(".run.lit")) lit.classList.remove("lit");
  if (!run) return;
  for (const same of document.querySelectorAll(`[data-job="${CSS.escape(run.dataset.job)}"]`)) same.classList.add("lit");
}

document.addEventListener("mouseover", light);
document.addEventListener("focusin", light);

document.addEventListener("submit", (event) => {
  const words = event.target.dataset.confirm;
  if (words && !confirm(words)) event.preventDefault();
});

document.addEventListener("input", (event) => {
  if (event.target.id !== "at") return;
  event.target.form.querySelector("output").textContent = new Date(1000 * event.target.value).toLocaleString([], { hour12: false });
});

document.addEventListener("change", (event) => {
  if (event.target.matches("[data-auto] select, [data-auto] [type=range]")) event.target.form.requestSubmit();
});

document.addEventListener("keydown", (event) => {
  const step = { ArrowLeft: "prev", ArrowRight: "next" }[event.key];
  const link = step && !event.altKey && !event.ctrlKey && !event.metaKey && document.querySelector(`a[data-step=${step}]`);
  if (link && event.target === document.body) link.click();
  if (event.key !== "/" || event.ctrlKey || event.metaKey || event.target.matches("input, select, textarea")) return;
  const field = document.querySelector('[data-key="/"]');
  if (field) {
    event.preventDefault();
    field.focus();
  }
});

localTimes(document);
prepareTables(document);
listen();
loadSlow();
followLog();
document.documentElement.dataset.ready = "yes";
