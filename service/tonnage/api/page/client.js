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
const JSON_TYPE = { "Content-Type": "application/json", Accept: "application/json" };
export async function estimate(card, signal) {
    return answer(await fetch("/estimate", { method: "POST", headers: JSON_TYPE, body: JSON.stringify(card), signal }));
}
export async function fit(card) {
    return answer(await fetch("/fit", { method: "POST", headers: JSON_TYPE, body: JSON.stringify(card) }));
}
export async function estimates(cards, signal) {
    const response = await fetch("/estimate", {
        method: "POST", signal, headers: { "Content-Type": "application/x-ndjson", Accept: "application/x-ndjson" },
        body: cards.map((c) => JSON.stringify(c)).join("\n") + "\n",
    });
    if (!response.ok)
        throw new Refused((await response.json()));
    const lines = (await response.text()).split("\n").filter(Boolean).map((line) => JSON.parse(line));
    return lines.map((line) => (line && "required" in line ? line : null));
}
export async function names(path) {
    const found = [];
    let next = `${path}?limit=500`;
    while (next) {
        const response = await fetch(next, { headers: { Accept: "application/json" } });
        const page = await answer(response);
        found.push(...page.items.map((i) => i.id));
        next = /<([^>]+)>; rel="?next/.exec(response.headers.get("Link") ?? "")?.[1] ?? null;
    }
    return found;
}
export function curlOf(card) {
    const quoted = JSON.stringify(card).replaceAll("'", "'\\''");
    return `curl -sS --fail-with-body '${location.origin}/estimate' -H 'Content-Type: application/json' -d '${quoted}'`;
}
