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
let unit = "GiB";
export function useUnit(chosen) { unit = chosen; }
export function size(bytes) {
    const value = bytes / (unit === "GiB" ? 2 ** 30 : 10 ** 9);
    return `${value.toFixed(Math.abs(value) < 0.1 && value !== 0 ? 3 : 2)} ${unit}`;
}
export function band(amount) {
    return amount.low === amount.high ? size(amount.expected) : `${size(amount.low)} – ${size(amount.high)}`;
}
export function count(n) { return n.toLocaleString(document.documentElement.lang); }
export function table(caption, heads, rows, numeric = []) {
    const head = el("tr", {}, ...heads.map((h, i) => el("th", { scope: "col", class: numeric.includes(i) ? "number" : "" }, h)));
    const body = rows.map((cells) => el("tr", {}, ...cells.map((c, i) => i === 0 ? el("th", { scope: "row" }, c) : el("td", { class: numeric.includes(i) ? "number" : "" }, c))));
    return el("div", { class: "scroll", tabindex: "0", role: "region", "aria-label": caption }, el("table", {}, el("caption", {}, caption), el("thead", {}, head), el("tbody", {}, ...body)));
}
