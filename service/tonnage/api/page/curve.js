import { count, svg } from "./dom.js";
import { t } from "./strings.js";
export function contexts(longest) {
    const lengths = [];
    for (let length = 1024; length < longest; length *= 2)
        lengths.push(length);
    return [...lengths, longest];
}
export function variant(card, changes) {
    const serving = { ...card.serving, ...changes };
    return { ...card, serving };
}
export function requestsAt(estimate) {
    const cache = estimate.kv_cache;
    if (!cache || !estimate.capacity || estimate.verdict === "excluded")
        return 0;
    if (cache.max_concurrency !== null)
        return Math.floor(cache.max_concurrency);
    if (!estimate.headroom)
        return 0;
    const length = cache.max_model_len ?? 0;
    const each = cache.bytes_per_token * length + cache.state_bytes_per_sequence;
    return each > 0 ? Math.max(0, 1 + Math.floor(estimate.headroom.expected / each)) : 0;
}
export function curve(points, now) {
    const W = 720, H = 240, L = 52, B = 30, R = 12, T = 12;
    const most = Math.max(2, ...points.map((p) => p.requests), now?.requests ?? 0);
    const first = points[0].context, last = points[points.length - 1].context;
    const x = (c) => L + (Math.log2(c / first) / Math.max(1e-9, Math.log2(last / first))) * (W - L - R);
    const y = (n) => H - B - (Math.log2(1 + n) / Math.log2(1 + most)) * (H - B - T);
    const words = points.map((p) => `${count(p.context)}: ${count(p.requests)}`).join("; ");
    const node = svg("svg", { viewBox: `0 0 ${W} ${H}`, role: "img", class: "curve", "aria-label": `${t("curve")}. ${words}` }, svg("title", {}, t("curve")));
    const line = points.map((p) => `${x(p.context)} ${y(p.requests)}`).join("L");
    node.append(svg("path", { d: `M${x(first)} ${y(0)}L${line}L${x(last)} ${y(0)}Z`, class: "region" }));
    node.append(svg("path", { d: `M${line}`, class: "line" }));
    node.append(svg("path", { d: `M${L} ${T}V${H - B}H${W - R}`, class: "axis" }));
    points.forEach((p, i) => {
        if (i % Math.ceil(points.length / 7) === 0 || i === points.length - 1)
            node.append(svg("text", { x: x(p.context), y: H - 10, "text-anchor": "middle" }, p.context >= 1024 ? `${Math.round(p.context / 1024)}k` : String(p.context)));
        node.append(svg("circle", { cx: x(p.context), cy: y(p.requests), r: 3, class: "dot" }, svg("title", {}, `${count(p.context)}: ${count(p.requests)}`)));
    });
    for (const n of [0, 1, Math.round(Math.sqrt(1 + most)) - 1, most])
        node.append(svg("text", { x: L - 6, y: y(n) + 4, "text-anchor": "end" }, count(n)));
    if (now && now.context >= first && now.context <= last)
        node.append(svg("circle", { cx: x(now.context), cy: y(now.requests), r: 6, class: "now" }));
    return node;
}
