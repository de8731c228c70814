// What the page reads of the service's answers; the whole of it is in /openapi.json.
export interface Amount { low: number; expected: number; high: number }
export type Verdict = "met" | "needs_confirmation" | "excluded";
export type CounterName = "allocated" | "reserved" | "device";
export interface Item {
  component: string; bytes: Amount; basis: string; law: string; source: string; detail: string;
  counter: CounterName; inside_budget: boolean;
}
export type Counters = Record<CounterName, Amount>;
export interface Phase { phase: string; total: Counters; items: Item[] }
export interface Finding { status: Verdict; reason: string; field: string }
export interface KvCache {
  bytes_per_token: number; state_bytes_per_sequence: number; pool: Amount | null;
  capacity_tokens: Amount | null; max_concurrency: number | null; max_model_len: number | null;
}
export interface Gpu { ranks: number[]; stage: number; peak: Counters & { phase: string }; phases: Phase[] }
export interface Estimate {
  model: { id: string | null; family: string; layers: string; trust: string; source: string;
    parameters: { total: number; active: number | null; trainable: number | null } };
  peak: Counters & { phase: string; gpu_index: number };
  required: Amount; claimed_bytes: number | null; gpus: Gpu[]; kv_cache: KvCache | null;
  capacity: { nominal_bytes: number; usable_bytes: number; source: string; confidence: string } | null;
  headroom: Amount | null; verdict: Verdict | null; reasons: Finding[]; reserve_bytes: number;
  rules_of_thumb: Record<string, { rule: string; bytes: number; text: string }>;
  assumptions: { field: string; value: unknown; why: string }[];
  unknowns: string[]; invalidated_by: string[]; digest: string;
}
export const ESTIMATE_FIELDS = ["model", "peak", "required", "claimed_bytes", "gpus", "kv_cache", "capacity", "headroom", "verdict", "reasons",
  "reserve_bytes", "rules_of_thumb", "assumptions", "unknowns", "invalidated_by", "digest"];
export interface Step { name: string; formula: string; numbers: string; value: number; mathml: string }
export interface Derivation {
  component: string; law: string; expected_bytes: number; detail: string; summary: string; steps: Step[];
  inputs: { name: string; value: string; unit: string | null; meaning: string }[]; exact: boolean; note: string;
}
export interface Requirement { name: string; status: Verdict; reason: string; evidence: string }
export interface Launch { command: string[]; env: Record<string, string>; docker: string }
export interface Price {
  for_duration: string | number; currency: string; duration_hours: number; as_of: string | null; amount: string | number; per: string; kind: string;
}
export interface Candidate {
  rank: number; sku: string; provider: string; region: string | null; gpu: string; gpu_count: number; hosts: number; gpus_per_host: number;
  placement: Record<string, number | string | null>; weights_format: string; status: Verdict; requirements: Requirement[];
  memory: { required: Amount; usable_bytes: number; headroom: Amount } | null;
  price: Price | null; launch?: Launch; missing: string[];
}
export interface Change { field: string; from: unknown; to: unknown; saves_bytes: number; verdict: Verdict | null; risk?: string; cost?: string; price?: Price | null }
export interface FitAnswer {
  candidates: Candidate[]; selected: Candidate | null; confirmations: string[];
  excluded: { requirement: string; count: number; reason: string }[]; alternatives: Change[];
  current: { candidate: Candidate; remedies: Change[] } | null; considered: { skus: number; candidates: number; met: number; needs_confirmation: number; excluded: number };
}
export const FIT_FIELDS = ["candidates", "selected", "confirmations", "excluded", "alternatives", "current", "considered"];
export interface Problem { title: string; status: number; detail: string; errors?: { pointer: string; detail: string; did_you_mean?: string[] }[] }
export interface Card {
  model?: unknown; weights?: { format?: string }; serving?: Record<string, unknown>; training?: Record<string, unknown>;
  placement?: Record<string, unknown>; reserve?: string; requirements?: Record<string, unknown>;
  offer?: Record<string, unknown>; current?: Record<string, unknown>; limit?: number; include_excluded?: boolean;
}
