// A memory bar per GPU: stacked components, the band as a whisker, the capacity as a line.
import { band, size, svg } from "./dom.js";
import { t } from "./strings.js";
import type { CounterName, Estimate, Gpu, Item, Phase } from "./types.js";

const ORDER = ["weights", "buffers", "adapters", "lora_adapters", "draft_model", "reference_model", "master_weights", "gradients",
  "optimizer_states", "kv_cache", "recurrent_state", "activations", "logits", "sampler", "vision_encoder", "workspace", "cuda_graphs",
  "communication", "framework", "device_context", "fragmentation"];
const SEEN: Record<CounterName, CounterName[]> = {
  allocated: ["allocated"], reserved: ["allocated", "reserved"], device: ["allocated", "reserved", "device"],
};
export function colour(component: string): string {
  const at = ORDER.indexOf(component);
  return `c${(at < 0 ? ORDER.length : at) % 16}`;
}
export function seen(items: Item[], counter: CounterName): Item[] {
  return items.filter((i) => SEEN[counter].includes(i.counter) && i.bytes.expected > 0);
}
export function phaseOf(gpu: Gpu, name: string): Phase {
  return gpu.phases.find((p) => p.phase === name) ?? gpu.phases.find((p) => p.phase === gpu.peak.phase) ?? gpu.phases[0]!;
}

export function bar(estimate: Estimate, gpu: Gpu, phaseName: string, counter: CounterName, scale: number): SVGElement {
  const phase = phaseOf(gpu, phaseName);
  const total = phase.total[counter];
  const W = 720;
  const x = (bytes: number) => (Math.max(0, bytes) / scale) * W;
  const parts = seen(phase.items, counter).sort((a, b) => b.bytes.expected - a.bytes.expected);
  const title = `${t("gpuIndex")} ${gpu.ranks.join(", ")}: ${phase.phase} ${band(total)}`;
  const node = svg("svg", { viewBox: `0 0 ${W} 46`, role: "img", class: "bar", "aria-label": title }, svg("title", {}, title));
  node.append(svg("rect", { x: 0, y: 6, width: W, height: 26, class: "track" }));
  let at = 0;
  for (const item of parts) {
    const width = x(item.bytes.expected);
    node.append(svg("rect", { x: at, y: 6, width: Math.max(width, 0.5), height: 26, class: colour(item.component) },
      svg("title", {}, `${item.component} ${band(item.bytes)}`)));
    at += width;
  }
  node.append(svg("path", { d: `M${x(total.low)} 38H${x(total.high)}M${x(total.low)} 34v8M${x(total.high)} 34v8`, class: "whisker" }));
  if (estimate.capacity) {
    const c = x(estimate.capacity.usable_bytes);
    node.append(svg("path", { d: `M${c} 0V46`, class: "capacity" }, svg("title", {}, `${size(estimate.capacity.usable_bytes)} ${t("usable")}`)));
  }
  return node;
}
