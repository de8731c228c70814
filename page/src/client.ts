import type { Card, Estimate, FitAnswer, Problem } from "./types.js";

export class Refused extends Error {
  constructor(readonly problem: Problem) { super(problem.detail); }
}
async function answer<T>(response: Response): Promise<T> {
  const body = await response.json();
  if (!response.ok) throw new Refused(body as Problem);
  return body as T;
}
const JSON_TYPE = { "Content-Type": "application/json", Accept: "application/json" };

export async function estimate(card: Card, signal: AbortSignal): Promise<Estimate> {
  return answer(await fetch("/estimate", { method: "POST", headers: JSON_TYPE, body: JSON.stringify(card), signal }));
}
export async function fit(card: Card): Promise<FitAnswer> {
  return answer(await fetch("/fit", { method: "POST", headers: JSON_TYPE, body: JSON.stringify(card) }));
}
/** Many cards in one request; a card that is refused becomes null. */
export async function estimates(cards: Card[], signal: AbortSignal): Promise<(Estimate | null)[]> {
  const response = await fetch("/estimate", {
    method: "POST", signal, headers: { "Content-Type": "application/x-ndjson", Accept: "application/x-ndjson" },
    body: cards.map((c) => JSON.stringify(c)).join("\n") + "\n",
  });
  if (!response.ok) throw new Refused((await response.json()) as Problem);
  const lines = (await response.text()).split("\n").filter(Boolean).map((line) => JSON.parse(line));
  return lines.map((line) => (line && "required" in line ? (line as Estimate) : null));
}
export async function names(path: string): Promise<string[]> {
  const found: string[] = [];
  let next: string | null = `${path}?limit=500`;
  while (next) {
    const response: Response = await fetch(next, { headers: { Accept: "application/json" } });
    const page = await answer<{ items: { id: string }[] }>(response);
    found.push(...page.items.map((i) => i.id));
    next = /<([^>]+)>; rel="?next/.exec(response.headers.get("Link") ?? "")?.[1] ?? null;
  }
  return found;
}
export function curlOf(card: Card): string {
  const quoted = JSON.stringify(card).replaceAll("'", "'\\''");
  return `curl -sS --fail-with-body '${location.origin}/estimate' -H 'Content-Type: application/json' -d '${quoted}'`;
}
