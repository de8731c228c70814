// Packages of /fit: the one to order on the first screen, and all of them as a table.
import { shellOf } from "./client.js";
import { count, el, gpuName, scroll, size, table } from "./dom.js";
import { t } from "./strings.js";
import type { Candidate, Change, FitAnswer } from "./types.js";
import { chip, said } from "./view.js";

export const DURATIONS: [string, "hour" | "day" | "days3" | "week" | "month"][] = [["1 hour", "hour"], ["1 day", "day"], ["3 days", "days3"], ["1 week", "week"], ["30 days", "month"]];
export type SortKey = "verdict" | "price" | "headroom" | "sku" | "gpu";
const STATUSES = ["met", "needs_confirmation", "excluded"];
export interface Shelf { sort: SortKey; open: string; duration: string; refused: string; detail: Map<string, FitAnswer | null> }

function cost(c: Candidate): number { return c.price ? Number(c.price.for_duration) : Infinity; }
function money(c: Candidate): string {
  if (!c.price) return t("noPrice");
  return Number(c.price.for_duration).toLocaleString(document.documentElement.lang, { style: "currency", currency: c.price.currency });
}
function hardware(c: Candidate): string { return `${c.hosts > 1 ? `${c.hosts} × ` : ""}${c.gpus_per_host} × ${gpuName(c.gpu)}`; }
function time(duration: string): string { return t(DURATIONS.find(([d]) => d === duration)?.[1] ?? "days3"); }

/** The cheapest package that can fit, and the cheapest with nothing left to confirm. */
export function orderView(a: FitAnswer | null, shelf: Shelf): HTMLElement {
  if (!a) return el("div", { role: "status" }, shelf.refused || t("judging"));
  const first = a.candidates[0], ready = a.selected;
  if (!first) return el("div", {}, t("noPackage"));
  const line = (label: string, c: Candidate) => el("div", { class: "pick" }, el("b", {}, hardware(c)), " ", el("span", { class: "price" }, t("perDuration", { price: money(c), time: time(shelf.duration) })), " ", chip(c.status),
    el("small", { class: "soft" }, `${label} · ${c.provider}${c.missing.length ? ` · ${t("toConfirm")}: ${c.missing.map((m) => m.replaceAll("_", " ")).join(", ")}` : ""}`));
  const same = ready && ready.sku === first.sku;
  return el("div", {}, same ? null : line(t("cheapest"), first), ready ? line(t("ready"), ready) : null, el("a", { href: "#packages", click: jump }, t("seeAll")));
}
function jump(e: Event): void {
  e.preventDefault();
  const there = document.getElementById("packages");
  there?.scrollIntoView();
  there?.querySelector<HTMLElement>("select, button")?.focus({ preventScroll: true });
}

export interface Acts { sort: (key: SortKey) => void; open: (sku: string) => void; duration: (text: string) => void; more: () => void; copy: (label: string, text: string) => HTMLElement }
export function packagesView(a: FitAnswer, shelf: Shelf, acts: Acts): HTMLElement {
  const order: Record<SortKey, (x: Candidate, y: Candidate) => number> = {
    verdict: (x, y) => STATUSES.indexOf(x.status) - STATUSES.indexOf(y.status) || x.rank - y.rank, price: (x, y) => cost(x) - cost(y) || x.rank - y.rank, sku: (x, y) => x.sku.localeCompare(y.sku), gpu: (x, y) => x.gpu.localeCompare(y.gpu) || cost(x) - cost(y),
    headroom: (x, y) => (y.memory?.headroom.expected ?? -Infinity) - (x.memory?.headroom.expected ?? -Infinity),
  };
  const heads: [string, SortKey, string][] = [[t("order"), "sku", ""], [t("gpu"), "gpu", "wide"], [t("verdict"), "verdict", ""], [t("price"), "price", "number"], [t("headroomShort"), "headroom", "number wide"]];
  const head = el("tr", {}, ...heads.map(([label, key, kind]) => el("th", { scope: "col", class: kind, ...(shelf.sort === key ? { "aria-sort": key === "headroom" ? "descending" : "ascending" } : {}) },
    el("button", { type: "button", class: "sort", click: () => acts.sort(key) }, label))));
  const rows = [...a.candidates].sort(order[shelf.sort]).flatMap((c) => candidate(c, shelf, acts));
  const choose = el("label", { class: "duration" }, `${t("duration")} `, el("select", { id: "duration", change: (e) => acts.duration((e.target as HTMLSelectElement).value) },
    ...DURATIONS.map(([value, key]) => el("option", { value, selected: value === shelf.duration }, t(key)))));
  const n = a.considered;
  return el("section", { class: "panel" }, el("div", { class: "head" }, el("h2", {}, t("packages")), choose),
    el("p", { class: "soft" }, t("looked", { skus: count(n.skus), met: count(n.met), confirm: count(n.needs_confirmation), excluded: count(n.excluded) })),
    rows.length ? scroll(t("packages"), el("table", { class: "offers" }, el("caption", { class: "unseen" }, t("packages")), el("thead", {}, head), el("tbody", {}, ...rows))) : el("p", {}, t("noPackage")),
    a.candidates.length >= 5 && a.candidates.length < 30 ? el("button", { type: "button", id: "more", click: acts.more }, t("showMore")) : null,
    a.excluded.length ? el("details", {}, el("summary", {}, `${t("excluded")} (${a.excluded.reduce((sum, x) => sum + x.count, 0)})`), el("ul", {}, ...a.excluded.map((x) => el("li", {}, `${x.count} × ${x.requirement}: ${x.reason}`)))) : null,
    changesTable(a.alternatives));
}
function candidate(c: Candidate, shelf: Shelf, acts: Acts): HTMLElement[] {
  const open = shelf.open === c.sku;
  const [, name, place] = c.sku.split(":");
  const button = el("button", { type: "button", class: "expand", id: `p-${c.sku}`, "aria-expanded": String(open), "aria-label": `${t("details")} ${c.sku}`, click: () => acts.open(c.sku) }, el("b", {}, c.provider), ` ${name ?? c.sku}`);
  const line = el("tr", {}, el("th", { scope: "row" }, button, el("small", { class: "soft" }, [hardware(c), c.weights_format, c.region ?? place].filter(Boolean).join(" · "))),
    el("td", { class: "wide" }, hardware(c)), el("td", {}, chip(c.status)), el("td", { class: "number" }, money(c)), el("td", { class: "number wide" }, c.memory ? size(c.memory.headroom.expected) : "–"));
  return open ? [line, el("tr", { class: "more" }, el("td", { colspan: "5" }, inside(c, shelf, acts)))] : [line];
}
function inside(c: Candidate, shelf: Shelf, acts: Acts): HTMLElement {
  const judged = c.requirements.map((r) => el("li", {}, chip(r.status, true), " ", el("b", {}, r.name.replaceAll("_", " ")), ` ${r.reason}`));
  const found = shelf.detail.get(c.sku);
  const command = c.launch?.command.length ? shellOf(c.launch.command) : "";
  return el("div", { class: "derivation" }, el("ul", { class: "reasons" }, ...judged),
    command ? el("div", { class: "launch" }, el("code", {}, command), acts.copy(t("copyLaunch"), command)) : null,
    found === undefined ? el("p", { class: "soft", role: "status" }, t("working")) : found ? changesTable(found.alternatives) : null);
}
function changesTable(found: Change[]): HTMLElement | null {
  if (!found.length) return null;
  return el("div", {}, el("h3", {}, t("alternatives")), table(t("alternatives"), [t("change"), t("saves"), t("then"), t("risk")],
    found.map((x) => [said(x), size(x.saves_bytes), chip(x.verdict), x.risk ?? x.cost ?? ""]), [1], "broad"));
}
