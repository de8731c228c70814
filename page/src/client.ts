import { ESTIMATE_FIELDS, FIT_FIELDS, type Card, type Derivation, type Estimate, type FitAnswer, type Problem } from "./types.js";

export class Refused extends Error {
  constructor(readonly problem: Problem) { super(problem.detail); }
}
async function answer<T>(response: Response): Promise<T> {
  const body = await response.json();
  if (!response.ok) throw new Refused(body as Problem);
  return body as T;
}
async function ask<T>(path: string, card: Card, signal?: AbortSignal): Promise<T> {
  const headers = { "Content-Type": "application/json", Accept: "application/json" };
  return answer(await fetch(path, { method: "POST", headers, body: JSON.stringify(card), ...(signal ? { signal } : {}) }));
}

export function estimate(card: Card, signal: AbortSignal): Promise<Estimate> {
  return ask(`/estimate?fields=${ESTIMATE_FIELDS.join()}`, card, signal);
}
export async function derivations(card: Card): Promise<Derivation[]> {
  return (await ask<{ derivations: Derivation[] }>("/estimate?fields=derivations", card)).derivations;
}
export function fit(card: Card, signal?: AbortSignal): Promise<FitAnswer> {
  return ask(`/fit?fields=${FIT_FIELDS.join()}`, card, signal);
}
export type Sketch = Pick<Estimate, "required" | "kv_cache" | "capacity" | "headroom" | "verdict">;
/** Many cards in one request; a card that is refused becomes null. */
export async function estimates(cards: Card[], signal: AbortSignal): Promise<(Sketch | null)[]> {
  const response = await fetch("/estimate?fields=required,kv_cache,capacity,headroom,verdict", {
    method: "POST", signal, headers: { "Content-Type": "application/x-ndjson", Accept: "application/x-ndjson" },
    body: cards.map((c) => JSON.stringify(c)).join("\n") + "\n",
  });
  if (!response.ok) throw new Refused((await response.json()) as Problem);
  const lines = (await response.text()).split("\n").filter(Boolean).map((line) => JSON.parse(line));
  return lines.map((line) => (line && "required" in line ? (line as Sketch) : null));
}
export interface Named { id: string; name?: string; memory_usable_bytes?: number; parameters_total?: number }
/** Rows of a catalogue list that hold a text. */
export async function matches(kind: string, text: string): Promise<Named[]> {
  const query = new URLSearchParams({ limit: "20", ...(text ? { q: text } : {}) });
  return (await answer<{ items: Named[] }>(await fetch(`/catalog/${kind}?${query}`, { headers: { Accept: "application/json" } }))).items;
}
export function curlOf(card: Card): string {
  const quoted = JSON.stringify(card).replaceAll("'", "'\\''");
  return `curl -sS --fail-with-body '${location.origin}/estimate' -H 'Content-Type: application/json' -d '${quoted}'`;
}
const PLAIN = /^[\w@%+=:,./-]+$/;
export function shellOf(command: string[]): string {
  return command.map((word) => (PLAIN.test(word) ? word : `'${word.replaceAll("'", "'\\''")}'`)).join(" ");
}
