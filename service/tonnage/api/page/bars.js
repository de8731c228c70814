import { band, size, svg } from "./dom.js";
import { t, word } from "./strings.js";
const KINDS = ["weights", "kv_cache", "activations", "optimizer_states", "gradients", "logits", "sampler", "cuda_graphs", "device_context",
    "framework", "workspace", "communication", "buffers", "recurrent_state", "master_weights", "fragmentation", "vision_encoder", "user_reserve"];
const LIKE = {
    lora_adapters: "master_weights", adapters: "master_weights", draft_model: "recurrent_state", reference_model: "recurrent_state",
    dequantization: "workspace", quantization_workspace: "workspace", optimizer_temporary: "workspace", gradient_buckets: "communication",
    unsharded_parameters: "buffers",
};
const SEEN = {
    allocated: ["allocated"], reserved: ["allocated", "reserved"], device: ["allocated", "reserved", "device"],
};
export function colour(component) {
    const kind = LIKE[component] ?? component;
    return KINDS.includes(kind) ? `k-${kind}` : "k-other";
}
export function seen(items, counter) {
    return items.filter((i) => SEEN[counter].includes(i.counter) && i.bytes.expected > 0).sort((a, b) => b.bytes.expected - a.bytes.expected);
}
export function phaseOf(gpu, name) {
    return gpu.phases.find((p) => p.phase === name) ?? gpu.phases.find((p) => p.phase === gpu.peak.phase) ?? gpu.phases[0];
}
export function fullest(e) {
    return e.gpus.find((g) => g.ranks.includes(e.peak.gpu_index)) ?? e.gpus[0];
}
export function need(e) {
    const items = seen(phaseOf(fullest(e), e.peak.phase).items, "device").map((i) => ({ component: i.component, bytes: i.bytes.expected }));
    const parts = e.reserve_bytes ? [...items, { component: "user_reserve", bytes: e.reserve_bytes }] : items;
    const total = parts.reduce((sum, p) => sum + p.bytes, 0);
    const pool = parts.find((p) => p.component === "kv_cache");
    const idle = total - e.required.expected;
    if (e.claimed_bytes === null || !pool)
        return parts;
    const used = Math.max(0, pool.bytes - idle);
    const rest = parts.filter((p) => p !== pool);
    const needed = [...rest, { component: "kv_cache", bytes: used }].sort((a, b) => b.bytes - a.bytes);
    return idle > 0 ? [...needed, { component: "kv_cache", bytes: pool.bytes - used, claimed: true }] : needed;
}
export function drawn(d) {
    const W = 1000, H = d.height ?? 40, x = (bytes) => (Math.max(0, bytes) / d.scale) * W;
    const node = svg("svg", { viewBox: `0 0 ${W} ${H}`, preserveAspectRatio: "none", role: "img", class: "bar", "aria-label": d.title }, svg("title", {}, d.title));
    node.append(svg("rect", { x: 0, y: 0, width: W, height: H, class: "track" }));
    let at = 0;
    for (const part of d.parts) {
        const width = x(part.bytes);
        const name = part.claimed ? t("claimedBeyond") : word(part.component);
        node.append(svg("rect", { x: at, y: 0, width: Math.max(width, 1), height: H, ...(part.claimed ? { fill: "url(#hatch)" } : { class: colour(part.component) }) }, svg("title", {}, `${name} ${size(part.bytes)}`)));
        at += width;
    }
    if (d.capacity !== null && at > x(d.capacity) + 1 && d.parts.every((p) => !p.claimed))
        node.append(svg("rect", { x: x(d.capacity), y: 0, width: at - x(d.capacity), height: H, fill: "url(#over)" }));
    if (d.high > d.low)
        node.append(svg("path", { d: `M${x(d.low)} ${H / 2}H${x(d.high)}M${x(d.low)} ${H * 0.25}V${H * 0.75}M${x(d.high)} ${H * 0.25}V${H * 0.75}`, class: "whisker" }));
    if (d.capacity !== null)
        node.append(svg("path", { d: `M${x(d.capacity)} 0V${H}`, class: "capacity" }, svg("title", {}, `${size(d.capacity)} ${t("usable")}`)));
    return node;
}
export function bar(e, gpu, phaseName, counter, scale, height) {
    const phase = phaseOf(gpu, phaseName), total = phase.total[counter];
    const parts = seen(phase.items, counter).map((i) => ({ component: i.component, bytes: i.bytes.expected }));
    const title = `${t("gpuIndex")} ${gpu.ranks.join(", ")}: ${word(phase.phase)} ${band(total)}`;
    return drawn({ parts, low: total.low, high: total.high, capacity: e.capacity?.usable_bytes ?? null, scale, title, ...(height ? { height } : {}) });
}
