export function el(name, attributes = {}, ...children) {
    const node = document.createElement(name);
    for (const [key, value] of Object.entries(attributes)) {
        if (typeof value === "function")
            node.addEventListener(key, value);
        else if (value === true)
            node.setAttribute(key, "");
        else if (value !== false)
            node.setAttribute(key, value);
    }
    node.append(...children.filter((c) => c !== null && c !== undefined && c !== false));
    return node;
}
export function svg(name, attributes = {}, ...children) {
    const node = document.createElementNS("http://www.w3.org/2000/svg", name);
    for (const [key, value] of Object.entries(attributes))
        node.setAttribute(key, String(value));
    node.append(...children);
    return node;
}
export function maths(markup) {
    const found = new DOMParser().parseFromString(markup, "text/html").body.firstElementChild;
    return found?.localName === "math" ? document.importNode(found, true) : el("span");
}
let unit = "GiB";
export function useUnit(chosen) { unit = chosen; }
function figure(bytes) {
    const value = bytes / (unit === "GiB" ? 2 ** 30 : 10 ** 9);
    const digits = Math.abs(value) < 0.1 && value !== 0 ? 3 : 2;
    return value.toLocaleString(document.documentElement.lang, { minimumFractionDigits: digits, maximumFractionDigits: digits });
}
export function size(bytes) { return `${figure(bytes)} ${unit}`; }
export function band(amount) {
    const [low, high] = [figure(amount.low), figure(amount.high)];
    return low === high ? size(amount.expected) : `${low} – ${high} ${unit}`;
}
export function gpuName(id) { return id.toUpperCase().replaceAll("-", " "); }
export function count(n) { return n.toLocaleString(document.documentElement.lang); }
export function short(n) {
    const [unit, of] = n >= 1e12 ? ["T", 1e12] : n >= 1e9 ? ["B", 1e9] : n >= 1e6 ? ["M", 1e6] : ["", 1];
    return `${(n / of).toLocaleString(document.documentElement.lang, { maximumFractionDigits: n < 1e11 ? 2 : 0 })}${unit}`;
}
export function table(caption, heads, rows, numeric = [], kind = "") {
    const head = el("tr", {}, ...heads.map((h, i) => el("th", { scope: "col", class: numeric.includes(i) ? "number" : "" }, h)));
    const body = rows.map((cells) => el("tr", {}, ...cells.map((c, i) => i === 0 ? el("th", { scope: "row" }, c) : el("td", { class: numeric.includes(i) ? "number" : "" }, c))));
    return scroll(caption, el("table", { class: kind }, el("caption", { class: "unseen" }, caption), el("thead", {}, head), el("tbody", {}, ...body)));
}
export function scroll(label, ...inside) {
    return el("div", { class: "scroll", tabindex: "0", role: "group", "aria-label": label }, ...inside);
}
