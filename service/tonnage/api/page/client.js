import { ESTIMATE_FIELDS, FIT_FIELDS } from "./types.js";
export class Refused extends Error {
    problem;
    constructor(problem) {
        super(problem.detail);
        this.problem = problem;
    }
}
async function answer(response) {
    const body = await response.json();
    if (!response.ok)
        throw new Refused(body);
    return body;
}
async function ask(path, card, signal) {
    const headers = { "Content-Type": "application/json", Accept: "application/json" };
    return answer(await fetch(path, { method: "POST", headers, body: JSON.stringify(card), ...(signal ? { signal } : {}) }));
}
export function estimate(card, signal) {
    return ask(`/estimate?fields=${ESTIMATE_FIELDS.join()}`, card, signal);
}
export async function derivations(card) {
    return (await ask("/estimate?fields=derivations", card)).derivations;
}
export function fit(card, signal) {
    return ask(`/fit?fields=${FIT_FIELDS.join()}`, card, signal);
}
export async function estimates(cards, signal) {
    const response = await fetch("/estimate?fields=required,kv_cache,capacity,headroom,verdict", {
        method: "POST", signal, headers: { "Content-Type": "application/x-ndjson", Accept: "application/x-ndjson" },
        body: cards.map((c) => JSON.stringify(c)).join("\n") + "\n",
    });
    if (!response.ok)
        throw new Refused((await response.json()));
    const lines = (await response.text()).split("\n").filter(Boolean).map((line) => JSON.parse(line));
    return lines.map((line) => (line && "required" in line ? line : null));
}
export async function matches(kind, text) {
    const query = new URLSearchParams({ limit: "20", ...(text ? { q: text } : {}) });
    return (await answer(await fetch(`/catalog/${kind}?${query}`, { headers: { Accept: "application/json" } }))).items;
}
export function curlOf(card) {
    const quoted = JSON.stringify(card).replaceAll("'", "'\\''");
    return `curl -sS --fail-with-body '${location.origin}/estimate' -H 'Content-Type: application/json' -d '${quoted}'`;
}
const PLAIN = /^[\w@%+=:,./-]+$/;
export function shellOf(command) {
    return command.map((word) => (PLAIN.test(word) ? word : `'${word.replaceAll("'", "'\\''")}'`)).join(" ");
}
