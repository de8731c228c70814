import { bar, colour, drawn, fullest, need, phaseOf, seen, type Part } from "./bars.js";
import { band, count, el, maths, scroll, short, size, table } from "./dom.js";
import { labelOf } from "./form.js";
import { t, word } from "./strings.js";
import type { Change, CounterName, Derivation, Estimate, Item, Problem, Verdict } from "./types.js";

export interface Look { counter: CounterName; phase: string; open: Set<string> }

const SIGNS: Record<string, string> = { met: "✓", needs_confirmation: "?", excluded: "✕" };
export function chip(verdict: Verdict | null, ofRequirement = false): HTMLElement {
  const words = ofRequirement ? { met: t("requirementMet"), needs_confirmation: t("needs_confirmation"), excluded: t("requirementExcluded") } : { met: t("met"), needs_confirmation: t("needs_confirmation"), excluded: t("excluded") };
  return el("span", { class: `chip ${verdict ?? "none"}` }, verdict ? words[verdict] : t("noCard"));
}
export function problem(p: Problem, guess: (pointer: string, value: string) => void): HTMLElement {
  const lines = (p.errors ?? []).map((e) => el("li", {}, el("code", {}, e.pointer || "/"), ` ${e.detail} `,
    ...(e.did_you_mean ?? []).map((name) => el("button", { type: "button", class: "small", click: () => guess(e.pointer, name) }, name))));
  return el("div", { class: "problem", role: "alert" }, el("strong", {}, p.title), el("p", {}, p.detail), lines.length ? el("ul", {}, ...lines) : null);
}

// ---- the first screen: does it fit, what to order, how sure ----

export interface Facts { order: HTMLElement; growth: (string | HTMLElement)[]; actions: HTMLElement; changes: HTMLElement | null }
export function says(e: Estimate, gpu: string): string {
  const key = { met: "saysMet", needs_confirmation: "saysConfirm", excluded: "saysExcluded" } as const;
  return e.verdict ? t(key[e.verdict], { gpu }) : t("saysNone", { size: band(e.required) });
}
export function hero(e: Estimate, gpu: string, facts: Facts): HTMLElement {
  const free = e.headroom?.expected ?? 0;
  const rest = !e.capacity ? `: ${t("noCard")}` : ` ${t("ofUsable", { size: size(e.capacity.usable_bytes) })}. ${free < 0 ? t("missing", { size: size(-free) }) : t("free", { size: size(free) })}.`;
  const p = e.model.parameters;
  const model = `${e.model.id ?? e.model.family} · ${short(p.total)} ${t("parameters")}${p.active && p.active !== p.total ? ` (${short(p.active)} ${t("active")})` : ""}`;
  const fact = (title: string, ...inside: (string | HTMLElement)[]) => el("div", {}, el("dt", {}, title), ...inside.map((line) => el("dd", {}, line)));
  return el("section", { class: `hero ${e.verdict ?? "none"}` },
    el("h2", { class: "says" }, el("span", { class: "sign", "aria-hidden": "true" }, SIGNS[e.verdict ?? ""] ?? "≈"), el("span", { id: "verdict" }, says(e, gpu))),
    el("p", { class: "figure" }, `${t("needs")} `, el("strong", {}, band(e.required)), rest),
    el("p", { class: "soft" }, model),
    needBar(e),
    facts.changes,
    el("dl", { class: facts.growth.length ? "facts three" : "facts" }, fact(t("toOrder"), facts.order), fact(t("howSure"), ...sureness(e)), facts.growth.length ? fact(t("growth"), ...facts.growth) : null),
    facts.actions);
}
function needBar(e: Estimate): HTMLElement {
  const parts = need(e), claimed = parts.some((p) => p.claimed);
  const total = parts.reduce((sum, p) => sum + p.bytes, 0);
  const scale = Math.max(total, e.required.high, e.capacity?.usable_bytes ?? 0) * 1.005 || 1;
  const picture = drawn({ parts, low: e.required.low, high: e.required.high, capacity: e.capacity?.usable_bytes ?? null, scale, title: `${t("required")}: ${band(e.required)}`, height: 44 });
  const limit = e.capacity ? el("span", { class: "limit" }, `${size(e.capacity.usable_bytes)} ${t("usable")}`) : null;
  if (limit) limit.style.width = `${(100 * e.capacity!.usable_bytes) / scale}%`;
  return el("figure", { class: "need" }, limit, picture, legend(parts),
    claimed && e.claimed_bytes !== null ? el("figcaption", { class: "soft" }, t("claimNote", { size: size(e.claimed_bytes) })) : null);
}
function legend(parts: Part[]): HTMLElement {
  const total = parts.reduce((sum, p) => sum + p.bytes, 0);
  const big = parts.filter((p) => !p.claimed && p.bytes > total * 0.012);
  const small = parts.filter((p) => !p.claimed && !big.includes(p)).reduce((sum, p) => sum + p.bytes, 0);
  return el("ul", { class: "legend" }, ...big.map((p) => entry(colour(p.component), word(p.component), p.bytes)),
    small > 0 ? entry("k-other", t("others"), small) : null, ...parts.filter((p) => p.claimed).map((p) => entry("claimed", t("claimedBeyond"), p.bytes)));
}
function entry(kind: string, name: string, bytes: number): HTMLElement {
  return el("li", {}, el("span", { class: `swatch ${kind}` }), name, " ", el("b", {}, size(bytes)));
}
const KNOWN = ["exact", "derived", "user"];
function sureness(e: Estimate): string[] {
  const r = e.required, items = seen(phaseOf(fullest(e), e.peak.phase).items, "device");
  const total = items.reduce((sum, i) => sum + i.bytes.expected, 0);
  const known = items.filter((i) => KNOWN.includes(i.basis)).reduce((sum, i) => sum + i.bytes.expected, 0);
  return [t("bandIs", { low: size(r.expected - r.low), high: size(r.high - r.expected) }),
    t("byFormula", { share: String(Math.round((100 * known) / (total || 1))) }), t("modelTrust", { trust: word(e.model.trust, ["trust_"]) })];
}
export function changesView(found: Change[], verdict: Verdict | null, canApply: (c: Change) => (() => void) | null): HTMLElement | null {
  const useful = found.filter((c) => c.verdict !== "excluded").slice(0, 5);
  if (!useful.length || verdict === "met") return null;
  const rows = useful.map((c) => {
    const apply = canApply(c);
    return el("li", {}, chip(c.verdict), " ", el("b", {}, said(c)), el("span", { class: "soft" }, ` · −${size(c.saves_bytes)} · ${c.cost ?? c.risk ?? ""}`), " ",
      apply ? el("button", { type: "button", class: "small", "aria-label": `${t("apply")}: ${said(c)}`, click: apply }, t("apply")) : null);
  });
  return el("div", { class: "changes" }, el("h3", {}, t("changes")), el("ul", {}, ...rows));
}
export function said(c: Change): string { return `${labelOf(c.field)}: ${show(c.from)} → ${show(c.to)}`; }
export function show(value: unknown): string { return value === null || value === undefined ? "–" : typeof value === "string" ? value : JSON.stringify(value); }

// ---- where it goes ----

export function phases(e: Estimate, look: Look, redraw: () => void): HTMLElement {
  const name = look.phase || e.peak.phase, gpu = fullest(e);
  const scale = Math.max(...gpu.phases.map((p) => p.total[look.counter].high), e.capacity?.usable_bytes ?? 0) || 1;
  return el("fieldset", { class: "phases" }, el("legend", {}, t("phases")), ...gpu.phases.map((p) => el("label", {},
    el("input", { type: "radio", name: "phase", value: p.phase, checked: p.phase === name, change: () => { look.phase = p.phase; redraw(); } }),
    el("span", {}, el("b", {}, word(p.phase)), ` ${size(p.total[look.counter].expected)}`, bar(e, gpu, p.phase, look.counter, scale, 14)))));
}
export function loads(e: Estimate, look: Look): HTMLElement | null {
  if (e.gpus.length < 2) return null;
  const name = look.phase || e.peak.phase;
  const scale = Math.max(...e.gpus.map((g) => phaseOf(g, name).total[look.counter].high), e.capacity?.usable_bytes ?? 0) * 1.005 || 1;
  return el("div", { class: "bars" }, ...e.gpus.map((g) => el("figure", {},
    el("figcaption", { class: "soft" }, `${t("gpuIndex")} ${ranks(g.ranks)} · ${t("stage")} ${g.stage} · ${band(phaseOf(g, name).total[look.counter])}`), bar(e, g, name, look.counter, scale))));
}
function ranks(r: number[]): string { return r.length > 2 ? `${r[0]}–${r[r.length - 1]}` : r.join(", "); }

export function items(e: Estimate, look: Look, known: Derivation[] | null, toggle: (key: string) => void): HTMLElement {
  const phase = phaseOf(fullest(e), look.phase || e.peak.phase), found = seen(phase.items, look.counter);
  const rows = found.flatMap((item, at) => row(item, `${item.component}-${at}`, look, known, toggle));
  const total = phase.total[look.counter];
  const sum = el("tr", { class: "sum" }, el("th", { scope: "row" }, t("total")), el("td", { class: "number" }, size(total.expected)), el("td", { class: "wide" }, band(total)), el("td", { class: "wide" }));
  const heads: [string, string][] = [[t("component"), ""], [t("size"), "number"], [t("band"), "wide"], [t("basis"), "wide"]];
  return scroll(t("items"), el("table", { class: "items" }, el("caption", { class: "unseen" }, t("items")),
    el("thead", {}, el("tr", {}, ...heads.map(([h, kind]) => el("th", { scope: "col", class: kind }, h)))), el("tbody", {}, ...rows, sum)));
}
function row(item: Item, key: string, look: Look, known: Derivation[] | null, toggle: (key: string) => void): HTMLElement[] {
  const open = look.open.has(key);
  const name = el("button", { type: "button", id: `i-${key}`, class: "expand", "aria-expanded": String(open), "aria-label": `${t("showLaw")} ${word(item.component)}`, click: () => toggle(key) },
    el("span", { class: `swatch ${colour(item.component)}` }), word(item.component));
  const line = el("tr", {}, el("th", { scope: "row" }, name, item.detail ? el("small", { class: "soft" }, item.detail) : null), el("td", { class: "number" }, size(item.bytes.expected)),
    el("td", { class: "wide" }, item.bytes.low === item.bytes.high ? t("basis_exact") : band(item.bytes)), el("td", { class: "wide" }, word(item.basis, ["basis_"])));
  return open ? [line, el("tr", { class: "more" }, el("td", { colspan: "4" }, derivationView(item, known)))] : [line];
}
function derivationView(item: Item, known: Derivation[] | null): HTMLElement {
  const d = known?.find((x) => x.component === item.component && x.law === item.law && x.expected_bytes === item.bytes.expected && x.detail === item.detail);
  const steps = d?.steps ?? [];
  const result = `${count(item.bytes.expected)} B = ${size(item.bytes.expected)}`;
  return el("div", { class: "derivation" },
    known ? null : el("p", { class: "soft", role: "status" }, t("working")),
    d?.summary ? el("p", {}, d.summary) : null,
    known && !steps.length ? el("p", { class: "soft" }, t("noFormula")) : d?.note ? el("p", { class: "soft" }, t("constant", { how: word(item.basis, ["basis_"]) })) : null,
    steps.length ? scroll(t("formula"), el("dl", { class: "steps" }, ...steps.map((s) => el("div", {}, el("dt", {}, s.name), el("dd", {}, maths(s.mathml)))))) : null,
    el("p", { class: "result" }, word(item.component), " = ", el("strong", {}, result)),
    d?.inputs.length ? el("details", {}, el("summary", {}, `${t("inputs")} (${d.inputs.length})`),
      table(t("inputs"), [t("field"), t("value"), t("meaning")], d.inputs.map((i) => [i.name.replaceAll("_", " "), i.value, i.meaning]), [1])) : null,
    el("dl", { class: "source" }, el("dt", {}, t("law")), el("dd", {}, el("a", { href: `/catalog/laws/${item.law}` }, item.law)), el("dt", {}, t("source")), el("dd", {}, item.source),
      el("dt", {}, t("basis")), el("dd", {}, `${word(item.basis, ["basis_"])}, ${band(item.bytes)}`)));
}

// ---- how sure ----

export function notes(e: Estimate): HTMLElement {
  const list = (title: string, lines: string[]) => lines.length ? el("details", {}, el("summary", {}, `${title} (${lines.length})`), el("ul", {}, ...lines.map((l) => el("li", {}, l)))) : null;
  const assumed = e.assumptions.length ? el("details", {}, el("summary", {}, `${t("assumptions")} (${e.assumptions.length})`),
    table(t("assumptions"), [t("field"), t("value"), t("why")], e.assumptions.map((a) => [a.field, show(a.value), a.why]))) : null;
  const rules = Object.values(e.rules_of_thumb).map((r) => `${r.rule}: ${size(r.bytes)}`);
  return el("section", { class: "panel notes" }, el("h2", {}, t("howSure")),
    el("ul", { class: "reasons" }, ...e.reasons.map((r) => el("li", {}, chip(r.status), ` ${r.reason}`))),
    assumed, list(t("unknowns"), e.unknowns), list(t("invalidated"), e.invalidated_by), list(t("rules"), rules),
    el("p", { class: "soft" }, e.model.layers ? `${e.model.layers} · ` : "", e.model.source),
    el("p", { class: "soft digest" }, `${t("digest")} `, el("code", { id: "digest" }, e.digest)));
}
