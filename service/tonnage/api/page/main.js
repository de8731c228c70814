import { curlOf, derivations, estimate, estimates, fit, matches, Refused, shellOf } from "./client.js";
import { contexts, curve, requestsAt, tokens, variant } from "./curve.js";
import { band, count, el, gpuName, size, useUnit } from "./dom.js";
import { cardOf, changed, FIRST, form } from "./form.js";
import { orderView, packagesView } from "./packages.js";
import { LANGUAGES, speak, t } from "./strings.js";
import { changesView, hero, items, loads, notes, phases, problem, says } from "./view.js";
const WAIT_MS = 120, FEW = 5, MANY = 40;
const state = read() ?? structuredClone(FIRST);
const look = { counter: "device", phase: "", open: new Set() };
const shelf = { sort: "price", open: "", duration: "3 days", refused: "", detail: new Map() };
let unit = "GiB";
let answered = null;
let derived = null;
let packages = null;
let points = [];
let oneMore = null;
let pending = new AbortController();
let timer = 0;
let inSight = true;
function read() {
    const held = /^#card=(.+)$/.exec(location.hash)?.[1];
    if (!held)
        return null;
    try {
        const text = new TextDecoder().decode(Uint8Array.from(atob(held.replaceAll("-", "+").replaceAll("_", "/")), (c) => c.charCodeAt(0)));
        const found = JSON.parse(text);
        return typeof found.values === "object" && ["serving", "training", "plain"].includes(found.mode) ? found : null;
    }
    catch {
        return null;
    }
}
function write() {
    const bytes = new TextEncoder().encode(JSON.stringify(state));
    const text = btoa(Array.from(bytes, (b) => String.fromCharCode(b)).join("")).replaceAll("+", "-").replaceAll("/", "_").replace(/=+$/, "");
    history.replaceState(null, "", `#card=${text}`);
}
const at = (id) => document.getElementById(id);
function drawForm() {
    keepFocus(() => at("form").replaceChildren(form(state, (redraw) => { if (redraw)
        drawForm(); later(); }, complete)));
}
function later() { clearTimeout(timer); timer = window.setTimeout(() => void ask(), WAIT_MS); }
async function ask() {
    pending.abort();
    pending = new AbortController();
    const { signal } = pending;
    let card;
    try {
        card = cardOf(state);
    }
    catch (error) {
        return fail({ title: "config.json", status: 0, detail: String(error) });
    }
    write();
    at("answer").setAttribute("aria-busy", "true");
    try {
        const found = await estimate(card, signal);
        [answered, derived, packages, points, oneMore] = [found, null, null, [], null];
        shelf.detail.clear();
        shelf.open = shelf.refused = "";
        if (!found.gpus.some((g) => g.phases.some((p) => p.phase === look.phase)))
            look.phase = "";
        draw();
        if (look.open.size)
            void derive();
        await Promise.all([more(card, found, signal), find(FEW, signal)].map((extra) => extra.catch(() => undefined)));
    }
    catch (error) {
        if (error instanceof Refused)
            fail(error.problem);
        else if (error.name !== "AbortError")
            fail({ title: "Network", status: 0, detail: String(error) });
    }
}
function fail(p) {
    answered = null;
    at("summary").hidden = true;
    at("answer").removeAttribute("aria-busy");
    at("answer").replaceChildren(problem(p, (pointer, name) => {
        const field = { "/model": "model", "/weights/format": "weights_format" }[pointer] ?? pointer.split("/").pop();
        state.values[field] = name;
        drawForm();
        later();
    }));
    at("rest").replaceChildren();
    at("packages").replaceChildren();
}
async function more(card, now, signal) {
    if (!card.serving || !now.kv_cache || !now.capacity)
        return;
    const longest = Number(card.serving.max_model_len ?? now.kv_cache.max_model_len ?? 32768);
    const lengths = contexts(Math.max(longest * 4, 32768));
    const users = Number(card.serving.concurrency ?? 1);
    const asked = [...lengths.map((n) => variant(card, { max_model_len: n, concurrency: 1 })), variant(card, { concurrency: users }), variant(card, { concurrency: users + 1 })];
    const all = await estimates(asked, signal);
    points = lengths.map((context, i) => ({ context, requests: all[i] ? requestsAt(all[i]) : 0 }));
    const [before, after] = all.slice(lengths.length);
    if (before && after) {
        const each = after.required.expected - before.required.expected;
        oneMore = { each, shared: before.required.expected - each * users };
    }
    draw();
}
function question(limit) {
    const { placement, ...needed } = cardOf(state);
    const { gpu, ...layout } = placement ?? {};
    const today = gpu ? { current: { gpu, ...(Object.keys(layout).length ? { placement: layout } : {}) } } : {};
    return { ...needed, ...today, requirements: { duration: shelf.duration }, limit, include_excluded: limit > FEW };
}
async function find(limit, signal) {
    try {
        packages = await fit(question(limit), signal);
        draw();
    }
    catch (error) {
        if (error instanceof Refused)
            shelf.refused = error.problem.detail;
        if (error.name !== "AbortError")
            draw();
    }
}
async function derive() {
    const asked = answered?.digest;
    const found = await derivations(cardOf(state)).catch(() => []);
    if (answered?.digest === asked) {
        derived = found;
        keepFocus(drawRest);
    }
}
async function openPackage(sku) {
    shelf.open = shelf.open === sku ? "" : sku;
    keepFocus(drawPackages);
    if (!shelf.open || shelf.detail.has(sku))
        return;
    const one = { ...question(1), offer: { skus: [sku] } };
    delete one.current;
    shelf.detail.set(sku, await fit(one).catch(() => null));
    keepFocus(drawPackages);
}
function draw() { keepFocus(drawAll); }
function drawAll() {
    if (!answered)
        return;
    const e = answered, card = cardOf(state);
    at("answer").removeAttribute("aria-busy");
    at("answer").replaceChildren(hero(e, hardware(card), { order: orderView(packages, shelf), growth: growth(card), actions: actions(card), changes: changes(e) }));
    summary(e, hardware(card));
    drawRest();
    drawPackages();
}
function summary(e, gpu) {
    at("summary").className = e.verdict ?? "";
    at("summary").hidden = inSight;
    at("summary").replaceChildren(el("span", {}, says(e, gpu)), el("small", {}, band(e.required)));
}
function hardware(card) {
    const p = card.placement ?? {};
    const gpus = ["tensor_parallel_size", "pipeline_parallel_size", "data_parallel_size"].reduce((n, key) => n * Number(p[key] ?? 1), 1);
    return `${count(gpus)} × ${gpuName(String(p.gpu ?? "GPU"))}`;
}
function growth(card) {
    if (!card.serving || !answered?.kv_cache)
        return [];
    const lines = [];
    const context = answered.kv_cache.max_model_len;
    const most = answered.kv_cache.max_concurrency;
    if (most !== null && context !== null && answered.verdict !== "excluded")
        lines.push(t("upTo", { count: count(Math.floor(most)), context: count(context) }));
    if (oneMore)
        lines.push(t("oneMoreIs", { size: size(oneMore.each) }), t("sharedIs", { size: size(oneMore.shared) }));
    return lines;
}
function changes(e) {
    return changesView(packages?.current?.remedies ?? [], e.verdict, (c) => {
        const values = changed(state, c.field, c.to);
        return values && (() => { Object.assign(state.values, values); drawForm(); later(); });
    });
}
function drawRest() {
    if (!answered)
        return;
    const e = answered, card = cardOf(state), redraw = () => keepFocus(drawRest);
    const toggle = (key) => {
        if (!look.open.delete(key))
            look.open.add(key);
        keepFocus(drawRest);
        if (look.open.size && !derived)
            void derive();
    };
    const where = el("section", { class: "panel" }, el("div", { class: "head" }, el("h2", {}, t("items")), switches()), phases(e, look, redraw), loads(e, look), items(e, look, derived, toggle));
    at("rest").replaceChildren(where, curveView(card, e) ?? "", notes(e));
}
function keepFocus(redraw) {
    const held = document.activeElement;
    const again = held?.id ? `#${CSS.escape(held.id)}` : held?.name ? `input[name="${held.name}"]:checked` : "";
    const named = (d) => d.firstElementChild?.textContent ?? "";
    const unfolded = new Set(Array.from(document.querySelectorAll("#result details[open]"), named));
    redraw();
    for (const d of document.querySelectorAll("#result details"))
        if (unfolded.has(named(d)))
            d.open = true;
    if (again && document.activeElement !== held)
        document.querySelector(again)?.focus({ preventScroll: true });
}
function curveView(card, e) {
    if (!card.serving || !points.some((p) => p.requests > 0))
        return null;
    const context = Number(card.serving.max_model_len ?? e.kv_cache?.max_model_len ?? 0);
    const width = Math.min(840, at("rest").clientWidth - 42);
    return el("section", { class: "panel" }, el("h2", {}, t("curve")), el("p", { class: "soft" }, t("curveHint")), curve(points, { context, requests: Number(card.serving.concurrency ?? 1) }, width), oneMore ? el("p", {}, `${t("oneMoreIs", { size: "" })}`, el("strong", {}, size(oneMore.each)), ` (${tokens(context)}) · ${t("sharedIs", { size: size(oneMore.shared) })}`) : null);
}
function pick(name, legend, options, chosen, choose) {
    return el("fieldset", { class: "modes small" }, el("legend", {}, legend), ...options.map((o) => el("label", {}, el("input", { type: "radio", name, value: o, checked: o === chosen, change: () => { choose(o); draw(); } }), el("span", {}, name === "counter" ? t(o) : o))));
}
function switches() {
    return el("div", { class: "switches" }, pick("counter", t("counter"), ["allocated", "reserved", "device"], look.counter, (o) => { look.counter = o; }));
}
function unitSwitch() {
    at("unit").replaceChildren(pick("unit", t("unit"), ["GiB", "GB"], unit, (o) => { unit = o; useUnit(unit); keepFocus(unitSwitch); }));
}
function copy(label, text, id = "") {
    return el("button", { type: "button", ...(id ? { id } : {}), click: async (e) => {
            const button = e.currentTarget;
            await navigator.clipboard.writeText(text());
            button.textContent = t("copied");
            window.setTimeout(() => { button.textContent = label; }, 1200);
        } }, label);
}
function actions(card) {
    const launch = (packages?.current?.candidate.launch ?? packages?.candidates[0]?.launch)?.command ?? [];
    return el("div", { class: "actions" }, copy(t("copyCurl"), () => curlOf(card), "copy-curl"), launch.length ? copy(t("copyLaunch"), () => shellOf(launch), "copy-launch") : null, copy(t("share"), () => location.href, "copy-link"));
}
function drawPackages() {
    at("packages").replaceChildren(packages ? packagesView(packages, shelf, {
        sort: (key) => { shelf.sort = key; drawPackages(); document.querySelector("#packages th[aria-sort] button")?.focus(); }, open: (sku) => void openPackage(sku), more: () => void find(MANY),
        duration: (text) => { shelf.duration = text; shelf.detail.clear(); void find(packages.candidates.length > FEW ? MANY : FEW); },
        copy: (label, text) => copy(label, () => text),
    }) : "");
}
const asked = new Map();
function complete(kind, text) {
    if (asked.get(kind) === text)
        return;
    asked.set(kind, text);
    void matches(kind, text).then((found) => { if (asked.get(kind) === text)
        fill(kind, found); }, () => undefined);
}
function fill(id, found) {
    const label = (n) => n.memory_usable_bytes ? `${n.name} · ${size(n.memory_usable_bytes)}` : n.parameters_total ? `${count(n.parameters_total)} ${t("parameters")}` : n.name ?? "";
    at(id).replaceChildren(...found.map((n) => el("option", { value: n.id, label: label(n) })));
}
function words() {
    at("title").textContent = t("title");
    at("lead").textContent = t("lead");
    at("api").textContent = t("api");
    at("language-label").textContent = t("language");
    unitSwitch();
    document.title = `Tonnage: ${t("title")}`;
}
async function start() {
    const stored = localStorage.getItem("language") ?? navigator.language.slice(0, 2);
    const language = stored in LANGUAGES ? stored : "en";
    await speak(language);
    const select = at("language");
    select.replaceChildren(...Object.entries(LANGUAGES).map(([code, l]) => el("option", { value: code, selected: code === language, lang: code }, l.name)));
    select.addEventListener("change", async () => { localStorage.setItem("language", select.value); await speak(select.value); words(); drawForm(); draw(); });
    words();
    drawForm();
    new IntersectionObserver(([seen]) => { inSight = seen.isIntersecting; at("summary").hidden = inSight || !answered; }, { rootMargin: "0px 0px -90px" }).observe(at("answer"));
    void ask();
    window.addEventListener("hashchange", () => { const found = read(); if (found) {
        Object.assign(state, found);
        drawForm();
        later();
    } });
}
void start();
