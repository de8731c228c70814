// How many requests at once each context length allows; the region below the line fits the card.
import type { Sketch } from "./client.js";
import { count, svg } from "./dom.js";
import { t } from "./strings.js";
import type { Card } from "./types.js";

export interface Point { context: number; requests: number }

export function contexts(longest: number): number[] {
  const lengths: number[] = [];
  for (let length = 1024; length < longest; length *= 2) lengths.push(length);
  return [...lengths, longest];
}
export function variant(card: Card, changes: Record<string, unknown>): Card {
  const serving = { ...card.serving, ...changes };
  return { ...card, serving };
}
export function requestsAt(estimate: Sketch): number {
  const cache = estimate.kv_cache;
  if (!cache || !estimate.capacity || estimate.verdict === "excluded") return 0;
  if (cache.max_concurrency !== null) return Math.floor(cache.max_concurrency);
  if (!estimate.headroom) return 0;
  const length = cache.max_model_len ?? 0;
  const each = cache.bytes_per_token * length + cache.state_bytes_per_sequence;
  return each > 0 ? Math.max(0, 1 + Math.floor(estimate.headroom.expected / each)) : 0;
}
export function tokens(n: number): string { return n >= 1024 && n % 1024 === 0 ? `${count(n / 1024)}k` : n >= 1024 ? `${Math.round(n / 1024)}k` : String(n); }

export function curve(points: Point[], now: Point | null, width: number): SVGElement {
  const W = Math.max(320, width), H = 260, L = 46, B = 46, R = 14, T = 26;
  const most = Math.max(2, ...points.map((p) => p.requests), now?.requests ?? 0);
  const first = points[0]!.context, last = points[points.length - 1]!.context;
  const x = (c: number) => L + (Math.log2(c / first) / Math.max(1e-9, Math.log2(last / first))) * (W - L - R);
  const y = (n: number) => H - B - (Math.log2(1 + n) / Math.log2(1 + most)) * (H - B - T);
  const words = points.map((p) => `${count(p.context)}: ${count(p.requests)}`).join("; ");
  const node = svg("svg", { viewBox: `0 0 ${W} ${H}`, width: W, height: H, role: "img", class: "curve", "aria-label": `${t("curve")}. ${words}` }, svg("title", {}, t("curve")));
  const line = points.map((p) => `${x(p.context)} ${y(p.requests)}`).join("L");
  node.append(svg("path", { d: `M${x(first)} ${y(0)}L${line}L${x(last)} ${y(0)}Z`, class: "region" }));
  const marks = [...new Set([0, 1, ...[2, 5, 10, 20, 50, 100, 200, 500, 1000, 2000, 5000].filter((n) => n < most * 0.8), most])];
  let below = Infinity;
  for (const n of marks) {
    if (below - y(n) < 18) continue;
    below = y(n);
    node.append(svg("path", { d: `M${L} ${y(n)}H${W - R}`, class: "grid" }), svg("text", { x: L - 6, y: y(n) + 4, "text-anchor": "end" }, count(n)));
  }
  node.append(svg("path", { d: `M${line}`, class: "line" }), svg("path", { d: `M${L} ${T}V${H - B}H${W - R}`, class: "axis" }));
  const step = Math.ceil(points.length / Math.max(3, Math.floor((W - L) / 64)));
  points.forEach((p, i) => {
    if (i % step === 0) node.append(svg("text", { x: x(p.context), y: H - B + 18, "text-anchor": i === 0 ? "start" : i === points.length - 1 ? "end" : "middle" }, tokens(p.context)));
    node.append(svg("circle", { cx: x(p.context), cy: y(p.requests), r: 3, class: "dot" }, svg("title", {}, `${count(p.context)}: ${count(p.requests)}`)));
  });
  node.append(svg("text", { x: (L + W - R) / 2, y: H - 6, "text-anchor": "middle", class: "name" }, t("context")));
  node.append(svg("text", { x: 2, y: 12, class: "name" }, t("concurrency")));
  const inside = points[0]!.requests > 1;
  if (inside) node.append(svg("text", { x: L + 12, y: y(0) - 12, class: "fits" }, t("fitsHere")));
  if (now && now.context >= first && now.context <= last) {
    const far = x(now.context) > W * 0.6;
    node.append(svg("circle", { cx: x(now.context), cy: y(now.requests), r: 6, class: "now" }),
      svg("text", { x: x(now.context) + (far ? -12 : 12), y: y(now.requests) - 8, "text-anchor": far ? "end" : "start", class: "here" }, `${t("yourCard")}: ${count(now.requests)} × ${tokens(now.context)}`));
  }
  return node;
}
