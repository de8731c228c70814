import { bar, colour, phaseOf, seen } from "./bars.js";
import { band, count, el, size, table } from "./dom.js";
import { t } from "./strings.js";
import type { Candidate, CounterName, Estimate, FitAnswer, Item, Problem, Verdict } from "./types.js";

export interface Look { counter: CounterName; phase: string; open: Set<string> }

export function chip(verdict: Verdict | null): HTMLElement {
  return el("span", { class: `chip ${verdict ?? "none"}` }, verdict ? t(verdict) : t("noCard"));
}
export function problem(p: Problem): HTMLElement {
  const lines = (p.errors ?? []).map((e) => el("li", {}, el("code", {}, e.pointer || "/"), ` ${e.detail}`));
  return el("div", { class: "problem", role: "alert" }, el("strong", {}, p.title), el("p", {}, p.detail), lines.length ? el("ul", {}, ...lines) : null);
}
export function headline(e: Estimate): HTMLElement {
  const parts = [el("strong", {}, band(e.required))];
  const rest: string[] = [];
  if (e.capacity) rest.push(`${size(e.capacity.usable_bytes)} ${t("usable")}`);
  if (e.headroom) rest.push(`${size(e.headroom.expected)} ${t("headroom")}`);
  if (e.claimed_bytes !== null) rest.push(`${size(e.claimed_bytes)} ${t("claimed")}`);
  const model = `${e.model.id ?? e.model.family} · ${count(e.model.parameters.total)}${e.model.parameters.active ? ` (${count(e.model.parameters.active)} active)` : ""}`;
  return el("div", { class: "headline" }, el("p", { class: "what" }, t("required")), el("p", { class: "figure" }, ...parts, " ", chip(e.verdict)),
    el("p", { class: "rest" }, rest.join(" · ")), el("p", { class: "rest" }, model), e.model.layers ? el("p", { class: "rest" }, e.model.layers) : null);
}
export function bars(e: Estimate, look: Look): HTMLElement {
  const name = look.phase || e.peak.phase;
  const totals = e.gpus.map((g) => phaseOf(g, name).total[look.counter].high);
  const scale = Math.max(...totals, e.capacity?.usable_bytes ?? 0) * 1.04 || 1;
  const items = seen(phaseOf(e.gpus.find((g) => g.ranks.includes(e.peak.gpu_index)) ?? e.gpus[0]!, name).items, look.counter);
  const legend = [...new Set(items.sort((a, b) => b.bytes.expected - a.bytes.expected).map((i) => i.component))];
  return el("div", { class: "bars" },
    ...e.gpus.map((g) => el("figure", {}, el("figcaption", {}, `${t("gpuIndex")} ${ranks(g.ranks)}${e.gpus.length > 1 ? ` · ${t("stage")} ${g.stage}` : ""} · ${band(phaseOf(g, name).total[look.counter])}`), bar(e, g, name, look.counter, scale))),
    el("ul", { class: "legend" }, ...legend.map((c) => el("li", {}, el("span", { class: `swatch ${colour(c)}` }), c.replaceAll("_", " ")))));
}
function ranks(r: number[]): string { return r.length > 2 ? `${r[0]}–${r[r.length - 1]}` : r.join(", "); }

export function phases(e: Estimate, look: Look, redraw: () => void): HTMLElement {
  const name = look.phase || e.peak.phase;
  return el("fieldset", { class: "modes" }, el("legend", {}, t("phases")), ...e.phases.map((p) => el("label", {},
    el("input", { type: "radio", name: "phase", value: p.phase, checked: p.phase === name, change: () => { look.phase = p.phase; redraw(); } }),
    el("span", {}, `${p.phase.replaceAll("_", " ")} ${size(p.total[look.counter].expected)}`))));
}
export function items(e: Estimate, look: Look, redraw: () => void): HTMLElement {
  const worst = e.gpus.find((g) => g.ranks.includes(e.peak.gpu_index)) ?? e.gpus[0]!;
  const found = seen(phaseOf(worst, look.phase || e.peak.phase).items, look.counter).sort((a, b) => b.bytes.expected - a.bytes.expected);
  const rows = found.flatMap((item, at) => row(item, `${item.component}-${at}`, look, redraw));
  const head = el("tr", {}, ...[t("component"), t("size"), t("band"), t("basis")].map((h, i) => el("th", { scope: "col", class: i === 1 ? "number" : "" }, h)));
  return el("div", { class: "scroll", tabindex: "0", role: "region", "aria-label": t("items") },
    el("table", { class: "items" }, el("caption", {}, t("items")), el("thead", {}, head), el("tbody", {}, ...rows)));
}
function row(item: Item, key: string, look: Look, redraw: () => void): HTMLElement[] {
  const open = look.open.has(key);
  const toggle = () => { if (open) look.open.delete(key); else look.open.add(key); redraw(); document.getElementById(`i-${key}`)?.focus(); };
  const name = el("button", { type: "button", id: `i-${key}`, class: "expand", "aria-expanded": String(open), "aria-label": `${t("showLaw")} ${item.component}`, click: toggle },
    el("span", { class: `swatch ${colour(item.component)}` }), item.component.replaceAll("_", " "));
  const line = el("tr", {}, el("th", { scope: "row" }, name), el("td", { class: "number" }, size(item.bytes.expected)), el("td", {}, band(item.bytes)), el("td", {}, item.basis));
  if (!open) return [line];
  const list = el("dl", {}, el("dt", {}, t("law")), el("dd", {}, el("code", {}, item.law)), el("dt", {}, t("source")), el("dd", {}, item.source),
    ...(item.detail ? [el("dt", {}, t("detail")), el("dd", {}, item.detail)] : []));
  return [line, el("tr", { class: "more" }, el("td", { colspan: "4" }, list))];
}
export function notes(e: Estimate): HTMLElement {
  const list = (title: string, lines: string[]) => lines.length ? el("details", {}, el("summary", {}, `${title} (${lines.length})`), el("ul", {}, ...lines.map((l) => el("li", {}, l)))) : null;
  const assumed = e.assumptions.length ? el("details", {}, el("summary", {}, `${t("assumptions")} (${e.assumptions.length})`),
    table(t("assumptions"), [t("field"), t("value"), t("why")], e.assumptions.map((a) => [a.field, typeof a.value === "string" ? a.value : JSON.stringify(a.value), a.why]))) : null;
  const rules = Object.values(e.rules_of_thumb).map((r) => `${r.rule}: ${size(r.bytes)}`);
  return el("section", { class: "notes" },
    el("ul", { class: "reasons" }, ...e.reasons.map((r) => el("li", {}, chip(r.status), ` ${r.reason}`))),
    assumed, list(t("unknowns"), e.unknowns), list(t("invalidated"), e.invalidated_by), list(t("rules"), rules),
    el("p", { class: "digest" }, `${t("digest")} `, el("code", { id: "digest" }, e.digest)));
}

export type SortKey = "rank" | "price" | "headroom" | "sku";
function cost(c: Candidate): number { return c.price ? Number(c.price.for_duration) : Infinity; }
export function fitView(a: FitAnswer, sort: SortKey, resort: (key: SortKey) => void): HTMLElement {
  const order: Record<SortKey, (x: Candidate, y: Candidate) => number> = {
    rank: (x, y) => x.rank - y.rank, price: (x, y) => cost(x) - cost(y), sku: (x, y) => x.sku.localeCompare(y.sku),
    headroom: (x, y) => (y.memory?.headroom.expected ?? -Infinity) - (x.memory?.headroom.expected ?? -Infinity),
  };
  const sorter = (key: SortKey, label: string) => el("button", { type: "button", class: "sort", "aria-pressed": String(sort === key), click: () => resort(key) }, label);
  const heads: [string, SortKey | null][] = [[t("order"), "sku"], [t("verdict"), "rank"], [t("price"), "price"], [t("headroom"), "headroom"], [t("missing"), null]];
  const head = el("tr", {}, ...heads.map(([label, key]) => el("th", { scope: "col" }, key ? sorter(key, label) : label)));
  const rows = [...a.candidates].sort(order[sort]).map((c) => el("tr", {},
    el("th", { scope: "row" }, `${c.hosts > 1 ? `${c.hosts} × ` : ""}${c.sku}`, el("small", {}, ` ${c.gpu_count} × ${c.gpu} · ${c.weights_format}`)),
    el("td", {}, chip(c.status)),
    el("td", { class: "number" }, c.price ? `${c.price.for_duration} ${c.price.currency} / ${c.price.duration_hours} ${t("hours")}` : "–"),
    el("td", { class: "number" }, c.memory ? size(c.memory.headroom.expected) : "–"),
    el("td", {}, c.requirements.filter((r) => r.status !== "met").map((r) => r.name).join(", "))));
  const excluded = a.excluded.map((x) => el("li", {}, `${x.count} × ${x.requirement}: ${x.reason}`));
  const alternatives = a.alternatives.length ? table(t("alternatives"), [t("change"), t("saves"), t("verdict"), t("risk")],
    a.alternatives.map((x) => [`${x.field.replace(/^\//, "")}: ${show(x.from)} → ${show(x.to)}`, size(x.saves_bytes), chip(x.verdict), x.risk]), [1]) : null;
  return el("div", { class: "fit" },
    rows.length ? el("div", { class: "scroll", tabindex: "0", role: "region", "aria-label": t("packages") }, el("table", {}, el("caption", {}, t("packages")), el("thead", {}, head), el("tbody", {}, ...rows))) : el("p", {}, t("nothing")),
    excluded.length ? el("details", {}, el("summary", {}, t("excluded")), el("ul", {}, ...excluded)) : null, alternatives);
}
function show(value: unknown): string { return value === null || value === undefined ? "–" : typeof value === "string" ? value : JSON.stringify(value); }
