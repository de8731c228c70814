// The card as a form: which fields matter for which workload, and the card they make.
import { el } from "./dom.js";
import { t, type Key } from "./strings.js";
import type { Card } from "./types.js";

export type Mode = "serving" | "training" | "plain";
export interface State { mode: Mode; values: Record<string, string> }

interface Field { name: string; label: Key; modes: Mode[]; kind: "text" | "number" | "select" | "list"; main?: boolean; options?: string[]; list?: string; when?: (v: Record<string, string>) => boolean; min?: number; step?: string }

const ENGINES = ["vllm", "sglang", "llama.cpp", "ollama", "transformers", "tensorrt-llm", "tgi", "mlx"];
const FRAMEWORKS = ["transformers", "trl", "peft", "torchtune", "torchtitan", "litgpt", "axolotl", "llama-factory", "ms-swift", "unsloth", "deepspeed", "megatron"];
const ALL: Mode[] = ["serving", "training", "plain"];
const adapter = (v: Record<string, string>) => ["lora", "qlora", "dora"].includes(v.method ?? "lora");
const FIELDS: Field[] = [
  { name: "max_model_len", label: "context", modes: ["serving"], kind: "number", main: true, min: 1 },
  { name: "concurrency", label: "concurrency", modes: ["serving"], kind: "number", main: true, min: 1 },
  { name: "method", label: "method", modes: ["training"], kind: "select", main: true, options: ["lora", "qlora", "dora", "full"] },
  { name: "rank", label: "rank", modes: ["training"], kind: "number", main: true, min: 1, when: adapter },
  { name: "micro_batch_size", label: "microBatch", modes: ["training"], kind: "number", main: true, min: 1 },
  { name: "sequence_length", label: "sequence", modes: ["training"], kind: "number", main: true, min: 1 },
  { name: "gpu", label: "gpu", modes: ALL, kind: "list", main: true, list: "gpus" },
  { name: "tensor_parallel_size", label: "gpus", modes: ALL, kind: "number", main: true, min: 1 },
  { name: "engine", label: "engine", modes: ["serving"], kind: "select", main: true, options: ENGINES },
  { name: "framework", label: "framework", modes: ["training"], kind: "select", main: true, options: FRAMEWORKS },
  { name: "weights_format", label: "format", modes: ALL, kind: "list", main: true, list: "formats" },
  { name: "engine_version", label: "version", modes: ["serving"], kind: "text" },
  { name: "kv_cache_dtype", label: "kvType", modes: ["serving"], kind: "select", options: ["", "fp8", "q8_0", "q4_0"] },
  { name: "gpu_memory_utilization", label: "utilization", modes: ["serving"], kind: "number", min: 0.05, step: "0.01", when: (v) => ["vllm", "sglang", "tgi", "tensorrt-llm"].includes(v.engine ?? "vllm") },
  { name: "pipeline_parallel_size", label: "parallel", modes: ["serving"], kind: "number", min: 1 },
  { name: "gradient_checkpointing", label: "checkpointing", modes: ["training"], kind: "select", options: ["", "none", "selective", "full"] },
  { name: "optimizer", label: "optimizer", modes: ["training"], kind: "list", list: "optimizers" },
  { name: "sharding", label: "sharding", modes: ["training"], kind: "select", options: ["", "none", "ddp", "zero1", "zero2", "zero3", "fsdp"] },
  { name: "data_parallel_size", label: "dataParallel", modes: ["training"], kind: "number", min: 1, when: (v) => !["", "none"].includes(v.sharding ?? "") },
  { name: "reserve", label: "reserve", modes: ALL, kind: "text" },
];
const NUMBERS = new Set(FIELDS.filter((f) => f.kind === "number").map((f) => f.name));
const SERVING = ["engine", "engine_version", "max_model_len", "concurrency", "kv_cache_dtype", "gpu_memory_utilization"];
const TRAINING = ["framework", "method", "micro_batch_size", "sequence_length", "gradient_checkpointing", "optimizer", "sharding"];
const PLACEMENT = ["gpu", "tensor_parallel_size"];

export const FIRST: State = { mode: "serving", values: { model: "meta-llama/Llama-3.1-8B-Instruct", engine: "vllm", max_model_len: "8192", concurrency: "16", gpu: "l40s" } };

function taken(state: State, keys: string[]): Record<string, unknown> {
  const out: Record<string, unknown> = {};
  for (const key of keys) {
    const value = state.values[key];
    const field = FIELDS.find((f) => f.name === key);
    if (value === undefined || value === "" || (field?.when && !field.when(state.values))) continue;
    out[key] = NUMBERS.has(key) ? Number(value) : value;
  }
  return out;
}
export function cardOf(state: State): Card {
  const v = state.values;
  const card: Card = { model: v.config?.trim() ? { config: JSON.parse(v.config) as unknown } : v.model };
  if (v.weights_format) card.weights = { format: v.weights_format };
  if (state.mode === "serving") card.serving = { engine: "vllm", ...taken(state, SERVING) };
  if (state.mode === "training") {
    const training: Record<string, unknown> = { framework: "transformers", method: "lora", ...taken(state, TRAINING) };
    if (adapter(v) && v.rank) training.lora = { rank: Number(v.rank) };
    card.training = training;
  }
  const further = state.mode === "training" ? ["data_parallel_size"] : state.mode === "serving" ? ["pipeline_parallel_size"] : [];
  const placement = taken(state, [...PLACEMENT, ...further]);
  if (Object.keys(placement).length) card.placement = placement;
  if (v.reserve) card.reserve = v.reserve;
  return card;
}

/** Values that one change of an answer gives to the form; null when the form has no such field. */
export function changed(state: State, field: string, to: unknown): Record<string, string> | null {
  if (field === "/weights/format") return { weights_format: String(to) };
  const several = field === "/placement/gpus" || field === "/placement/gpu" ? /^(\d+) x (\S+)$/.exec(String(to)) : null;
  if (several) return { tensor_parallel_size: several[1]!, gpu: several[2]! };
  const name = field.split("/").pop()!;
  const known = FIELDS.find((f) => f.name === name && f.modes.includes(state.mode) && (!f.when || f.when(state.values)));
  return known && (typeof to === "string" || typeof to === "number") ? { [name]: String(to) } : null;
}

/** A field of the card as the form calls it. */
export function labelOf(pointer: string): string {
  const path = pointer.split("/").slice(1);
  const known = pointer === "/weights/format" ? "weights_format" : pointer === "/placement/gpus" ? "tensor_parallel_size" : path.length === 2 ? path[1] : "";
  const field = FIELDS.find((f) => f.name === known);
  return field ? t(field.label) : path.slice(1).join(" ").replaceAll("_", " ") || pointer;
}

let advanced = false;
export function form(state: State, done: (redraw: boolean) => void, complete: (kind: string, text: string) => void): HTMLElement {
  const set = (name: string, redraw = false) => (e: Event) => {
    const text = (e.target as HTMLInputElement).value;
    state.values[name] = text;
    const list = (e.target as HTMLElement).getAttribute("list");
    if (list && e.type === "input") complete(list, text);
    done(redraw);
  };
  const open = (list: string) => (e: Event) => complete(list, (e.target as HTMLInputElement).value);
  const modes = el("fieldset", { class: "modes" }, el("legend", {}, t("mode")),
    ...ALL.map((mode) => el("label", {},
      el("input", { type: "radio", name: "mode", value: mode, checked: state.mode === mode, change: () => { state.mode = mode; done(true); } }), el("span", {}, t(mode)))));
  const model = el("div", { class: "field" }, el("label", { for: "f-model" }, t("model")),
    el("input", { id: "f-model", list: "models", value: state.values.model ?? "", autocomplete: "off", spellcheck: "false", input: set("model"), focus: open("models"), "aria-describedby": "model-hint" }),
    el("small", { id: "model-hint" }, t("modelHint")),
    el("details", { open: Boolean(state.values.config) }, el("summary", {}, t("config")),
      el("textarea", { id: "f-config", rows: "6", spellcheck: "false", "aria-label": t("configHint"), placeholder: '{"model_type": "llama", …}', input: set("config") }, state.values.config ?? "")));
  const shown = FIELDS.filter((f) => f.modes.includes(state.mode) && (!f.when || f.when(state.values)));
  const draw = (fields: Field[]) => fields.map((f) => one(f, state, set, open));
  const used = shown.some((f) => !f.main && state.values[f.name]);
  const rest = el("details", { class: "more", open: advanced || used, toggle: (e) => { advanced = (e.target as HTMLDetailsElement).open; } },
    el("summary", {}, t("more")), el("div", { class: "fields" }, ...draw(shown.filter((f) => !f.main))));
  return el("form", { class: "card", submit: (e) => e.preventDefault() }, model, modes, el("div", { class: "fields" }, ...draw(shown.filter((f) => f.main))), rest);
}
function one(f: Field, state: State, set: (name: string, redraw?: boolean) => (e: Event) => void, open: (list: string) => (e: Event) => void): HTMLElement {
  const id = `f-${f.name}`;
  const value = state.values[f.name] ?? "";
  const redraw = ["engine", "method", "sharding"].includes(f.name);
  const hints: Record<string, string> = { weights_format: t("asStored"), reserve: "6 GiB", gpu: t("gpuAny"), tensor_parallel_size: "1" };
  const input = f.kind === "select"
    ? el("select", { id, change: set(f.name, redraw) }, ...f.options!.map((o) => el("option", { value: o, selected: o === value }, o || t("defaults"))))
    : el("input", { id, value, type: f.kind === "number" ? "number" : "text", input: set(f.name), autocomplete: "off", placeholder: hints[f.name] ?? t("defaults"),
        ...(f.min !== undefined ? { min: String(f.min) } : {}), ...(f.step ? { step: f.step } : {}), ...(f.list ? { list: f.list, focus: open(f.list) } : {}) });
  return el("div", { class: "field" }, el("label", { for: id }, t(f.label)), input);
}
