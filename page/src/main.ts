// The page: one state, one card, one answer; the address holds the whole card.
import { curlOf, estimate, estimates, fit, names, Refused } from "./client.js";
import { contexts, curve, requestsAt, variant, type Point } from "./curve.js";
import { el, size, useUnit, type Unit } from "./dom.js";
import { cardOf, FIRST, form, type State } from "./form.js";
import { LANGUAGES, speak, t } from "./strings.js";
import type { Card, CounterName, Estimate, FitAnswer } from "./types.js";
import { bars, fitView, headline, items, notes, phases, problem, type Look, type SortKey } from "./view.js";

const WAIT_MS = 120;
const state: State = read() ?? structuredClone(FIRST);
const look: Look = { counter: "device", phase: "", open: new Set() };
let unit: Unit = "GiB";
let answered: Estimate | null = null;
let packages: FitAnswer | null = null;
let sort: SortKey = "rank";
let points: Point[] = [];
let oneMore: { shared: number; each: number } | null = null;
let pending = new AbortController();
let timer = 0;

function read(): State | null {
  const held = /^#card=(.+)$/.exec(location.hash)?.[1];
  if (!held) return null;
  try {
    const text = new TextDecoder().decode(Uint8Array.from(atob(held.replaceAll("-", "+").replaceAll("_", "/")), (c) => c.charCodeAt(0)));
    const found = JSON.parse(text) as State;
    return typeof found.values === "object" && ["serving", "training", "plain"].includes(found.mode) ? found : null;
  } catch { return null; }
}
function write(): void {
  const bytes = new TextEncoder().encode(JSON.stringify(state));
  const text = btoa(String.fromCharCode(...bytes)).replaceAll("+", "-").replaceAll("/", "_").replace(/=+$/, "");
  history.replaceState(null, "", `#card=${text}`);
}
const at = (id: string) => document.getElementById(id)!;

function drawForm(): void {
  const focused = document.activeElement?.id;
  at("form").replaceChildren(form(state, (redraw) => { if (redraw) drawForm(); later(); }));
  if (focused) document.getElementById(focused)?.focus();
}
function later(): void { clearTimeout(timer); timer = window.setTimeout(() => void ask(), WAIT_MS); }

async function ask(): Promise<void> {
  pending.abort();
  pending = new AbortController();
  packages = null;
  let card: Card;
  try { card = cardOf(state); } catch (error) { return fail({ title: "config.json", status: 0, detail: String(error) }); }
  write();
  at("answer").setAttribute("aria-busy", "true");
  try {
    answered = await estimate(card, pending.signal);
    if (!answered.phases.some((p) => p.phase === look.phase)) look.phase = "";
    points = []; oneMore = null;
    draw();
    // the curve is an extra: without it the answer still stands
    await more(card, answered, pending.signal).catch(() => undefined);
  } catch (error) {
    if (error instanceof Refused) fail(error.problem);
    else if ((error as Error).name !== "AbortError") fail({ title: "Network", status: 0, detail: String(error) });
  }
}
function fail(p: Parameters<typeof problem>[0]): void {
  answered = null;
  at("answer").removeAttribute("aria-busy");
  at("answer").replaceChildren(problem(p));
  at("packages").replaceChildren();
}
/** The curve and the price of one more request: a batch of the same card with one field changed. */
async function more(card: Card, now: Estimate, signal: AbortSignal): Promise<void> {
  if (!card.serving || !now.kv_cache || !now.capacity) return;
  const longest = Number(card.serving.max_model_len ?? now.kv_cache.max_model_len ?? 32768);
  const lengths = contexts(Math.max(longest * 4, 32768));
  const users = Number(card.serving.concurrency ?? 1);
  const asked = [...lengths.map((n) => variant(card, { max_model_len: n, concurrency: 1 })), variant(card, { concurrency: users }), variant(card, { concurrency: users + 1 })];
  const all = await estimates(asked, signal);
  points = lengths.map((context, i) => ({ context, requests: all[i] ? requestsAt(all[i]!) : 0 }));
  const [before, after] = all.slice(lengths.length);
  if (before && after) {
    const each = after.required.expected - before.required.expected;
    oneMore = { each, shared: before.required.expected - each * users };
  }
  draw();
}
function draw(): void {
  if (!answered) return;
  const e = answered;
  const card = cardOf(state);
  const users = Number(card.serving?.concurrency ?? 1), context = Number(card.serving?.max_model_len ?? e.kv_cache?.max_model_len ?? 0);
  at("answer").removeAttribute("aria-busy");
  at("answer").replaceChildren(
    headline(e), switches(), phases(e, look, draw), bars(e, look), items(e, look, draw),
    card.serving && points.length
      ? el("section", {}, el("h2", {}, t("curve")), curve(points, { context, requests: users }), el("p", { class: "rest" }, t("curveHint")),
          oneMore ? el("p", {}, `${t("oneMore")}: `, el("strong", {}, size(oneMore.each)), ` ${t("perUser")}, ${size(oneMore.shared)} ${t("shared")}`) : null)
      : "",
    notes(e), actions(card));
  drawPackages();
}
function switches(): HTMLElement {
  const pick = (name: string, legend: string, options: string[], chosen: string, choose: (o: string) => void) =>
    el("fieldset", { class: "modes small" }, el("legend", {}, legend), ...options.map((o) => el("label", {},
      el("input", { type: "radio", name, value: o, checked: o === chosen, change: () => { choose(o); draw(); } }), el("span", {}, name === "counter" ? t(o as CounterName) : o))));
  return el("div", { class: "switches" },
    pick("counter", t("counter"), ["allocated", "reserved", "device"], look.counter, (o) => { look.counter = o as CounterName; }),
    pick("unit", t("unit"), ["GiB", "GB"], unit, (o) => { unit = o as Unit; useUnit(unit); }));
}
function actions(card: Card): HTMLElement {
  const copy = (label: string, text: () => string, id: string) => el("button", { type: "button", id, click: async (e: Event) => {
    const button = e.currentTarget as HTMLButtonElement;
    await navigator.clipboard.writeText(text());
    button.textContent = t("copied");
    window.setTimeout(() => { button.textContent = label; }, 1200);
  } }, label);
  const launch = packages?.candidates[0]?.launch;
  return el("div", { class: "actions" },
    el("button", { type: "button", class: "main", id: "find", click: () => void findPackages(card) }, t("find")),
    copy(t("copyCurl"), () => curlOf(card), "copy-curl"),
    launch && launch.command.length ? copy(t("copyLaunch"), () => launch.command.join(" "), "copy-launch") : null,
    copy(t("share"), () => location.href, "copy-link"));
}
async function findPackages(card: Card): Promise<void> {
  at("packages").replaceChildren(el("p", { role: "status" }, t("finding")));
  const { placement: _placement, ...need } = card;
  try { packages = await fit({ ...need, requirements: { duration: "3 days" } }); draw(); }
  catch (error) { at("packages").replaceChildren(problem(error instanceof Refused ? error.problem : { title: "Network", status: 0, detail: String(error) })); }
}
function drawPackages(): void {
  at("packages").replaceChildren(packages ? fitView(packages, sort, (key) => { sort = key; drawPackages(); }) : "");
}
function fill(id: string, values: string[]): void {
  at(id).replaceChildren(...values.map((v) => el("option", { value: v })));
}
function words(): void {
  at("title").textContent = t("title");
  at("lead").textContent = t("lead");
  at("api").textContent = t("api");
  at("language-label").textContent = t("language");
  document.title = `Tonnage: ${t("title")}`;
}
function start(): void {
  const stored = localStorage.getItem("language") ?? navigator.language.slice(0, 2);
  const language = stored in LANGUAGES ? stored : "en";
  speak(language);
  const select = at("language") as HTMLSelectElement;
  select.replaceChildren(...Object.entries(LANGUAGES).map(([code, l]) => el("option", { value: code, selected: code === language, lang: code }, l.name)));
  select.addEventListener("change", () => { localStorage.setItem("language", select.value); speak(select.value); words(); drawForm(); draw(); });
  words();
  drawForm();
  void ask();
  for (const kind of ["models", "gpus", "formats", "optimizers"]) void names(`/catalog/${kind}`).then((found) => fill(kind, found), () => undefined);
  window.addEventListener("hashchange", () => { const found = read(); if (found) { Object.assign(state, found); drawForm(); later(); } });
}
start();
