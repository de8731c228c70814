import type { Amount } from "./types.js";

type Child = Node | string | null | undefined | false;
export function el<K extends keyof HTMLElementTagNameMap>(
  name: K, attributes: Record<string, string | boolean | ((e: Event) => void)> = {}, ...children: Child[]
): HTMLElementTagNameMap[K] {
  const node = document.createElement(name);
  for (const [key, value] of Object.entries(attributes)) {
    if (typeof value === "function") node.addEventListener(key, value);
    else if (value === true) node.setAttribute(key, "");
    else if (value !== false) node.setAttribute(key, value);
  }
  node.append(...children.filter((c): c is Node | string => c !== null && c !== undefined && c !== false));
  return node;
}
export function svg(name: string, attributes: Record<string, string | number> = {}, ...children: (Node | string)[]): SVGElement {
  const node = document.createElementNS("http://www.w3.org/2000/svg", name);
  for (const [key, value] of Object.entries(attributes)) node.setAttribute(key, String(value));
  node.append(...children);
  return node;
}
/** A line of the service's own MathML; the HTML parser knows its elements and runs nothing. */
export function maths(markup: string): Element {
  const found = new DOMParser().parseFromString(markup, "text/html").body.firstElementChild;
  return found?.localName === "math" ? document.importNode(found, true) : el("span");
}

export type Unit = "GiB" | "GB";
let unit: Unit = "GiB";
export function useUnit(chosen: Unit): void { unit = chosen; }
function figure(bytes: number): string {
  const value = bytes / (unit === "GiB" ? 2 ** 30 : 10 ** 9);
  const digits = Math.abs(value) < 0.1 && value !== 0 ? 3 : 2;
  return value.toLocaleString(document.documentElement.lang, { minimumFractionDigits: digits, maximumFractionDigits: digits });
}
export function size(bytes: number): string { return `${figure(bytes)} ${unit}`; }
export function band(amount: Amount): string {
  const [low, high] = [figure(amount.low), figure(amount.high)];
  return low === high ? size(amount.expected) : `${low} – ${high} ${unit}`;
}
/** An id of the catalogue as people write it. */
export function gpuName(id: string): string { return id.toUpperCase().replaceAll("-", " "); }
export function count(n: number): string { return n.toLocaleString(document.documentElement.lang); }
/** Parameters as models are named by them: 8.03B. */
export function short(n: number): string {
  const [unit, of] = n >= 1e12 ? ["T", 1e12] : n >= 1e9 ? ["B", 1e9] : n >= 1e6 ? ["M", 1e6] : ["", 1];
  return `${(n / (of as number)).toLocaleString(document.documentElement.lang, { maximumFractionDigits: n < 1e11 ? 2 : 0 })}${unit}`;
}
export function table(caption: string, heads: string[], rows: Child[][], numeric: number[] = [], kind = ""): HTMLElement {
  const head = el("tr", {}, ...heads.map((h, i) => el("th", { scope: "col", class: numeric.includes(i) ? "number" : "" }, h)));
  const body = rows.map((cells) => el("tr", {}, ...cells.map((c, i) =>
    i === 0 ? el("th", { scope: "row" }, c) : el("td", { class: numeric.includes(i) ? "number" : "" }, c))));
  return scroll(caption, el("table", { class: kind }, el("caption", { class: "unseen" }, caption), el("thead", {}, head), el("tbody", {}, ...body)));
}
/** What may be wider than the page scrolls by itself, with a keyboard too. */
export function scroll(label: string, ...inside: Child[]): HTMLElement {
  return el("div", { class: "scroll", tabindex: "0", role: "group", "aria-label": label }, ...inside);
}
