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
export interface Gpu { ranks: number[]; stage: number; peak: Counters & { phase: string }; phases: Phase[]; items: Item[] }
export interface Estimate {
  model: { id: string | null; family: string; layers: string; trust: string;
    parameters: { total: number; active: number | null; trainable: number | null } };
  peak: Counters & { phase: string; gpu_index: number };
  required: Amount; claimed_bytes: number | null; phases: Phase[]; gpus: Gpu[]; kv_cache: KvCache | null;
  capacity: { nominal_bytes: number; usable_bytes: number; source: string } | null;
  headroom: Amount | null; verdict: Verdict | null; reasons: Finding[]; reserve_bytes: number;
  rules_of_thumb: Record<string, { rule: string; bytes: number; text: string }>;
  assumptions: { field: string; value: unknown; why: string }[];
  unknowns: string[]; invalidated_by: string[]; digest: string;
}
export interface Requirement { name: string; status: Verdict; reason: string; evidence: string }
export interface Launch { command: string[]; env: Record<string, string>; docker: string }
export interface Price { for_duration: string | number; currency: string; duration_hours: number; as_of: string | null }
export interface Candidate {
  rank: number; sku: string; provider: string; gpu: string; gpu_count: number; hosts: number;
  placement: Card["placement"]; weights_format: string; status: Verdict; requirements: Requirement[];
  memory: { required: Amount; usable_bytes: number; headroom: Amount } | null;
  price: Price | null; launch?: Launch; missing: string[];
}
export interface Alternative { field: string; from: unknown; to: unknown; saves_bytes: number; verdict: Verdict | null; risk: string }
export interface FitAnswer {
  candidates: Candidate[]; selected: Candidate | null; confirmations: string[];
  excluded: { requirement: string; count: number; reason: string }[]; alternatives: Alternative[]; digest: string;
}
export interface Problem { title: string; status: number; detail: string; errors?: { pointer: string; detail: string; did_you_mean?: string[] }[] }
export interface Card {
  model?: unknown; weights?: { format?: string }; serving?: Record<string, unknown>; training?: Record<string, unknown>;
  placement?: Record<string, unknown>; reserve?: string; requirements?: Record<string, unknown>;
}
