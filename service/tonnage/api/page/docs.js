"use strict";

const element = (name, properties = {}, ...children) => {
  const node = Object.assign(document.createElement(name), properties);
  node.append(...children);
  return node;
};

let api;

const resolve = (schema) => {
  let name = "";
  while (schema && schema.$ref) {
    name = schema.$ref.split("/").pop();
    schema = api.components.schemas[name];
  }
  return { name, schema: schema || {} };
};

const followed = (node) =>
  node.$ref ? node.$ref.slice(2).split("/").reduce((place, step) => place[step], api) : node;

const typeOf = (schema) => {
  const { name, schema: found } = resolve(schema);
  if (name) return name;
  if (found.anyOf) return found.anyOf.map(typeOf).join(" | ");
  if (found.const !== undefined) return JSON.stringify(found.const);
  if (found.enum) return found.enum.map((value) => JSON.stringify(value)).join(" | ");
  if (found.type === "array") return `[${typeOf(found.items || {})}]`;
  const bounds = [];
  for (const [key, sign] of [["minimum", "≥"], ["exclusiveMinimum", ">"], ["maximum", "≤"], ["exclusiveMaximum", "<"]]) {
    if (found[key] !== undefined) bounds.push(`${sign} ${found[key]}`);
  }
  return (found.type || "any") + (bounds.length ? ` (${bounds.join(", ")})` : "");
};

const fieldsOf = (schema) => {
  const { schema: found } = resolve(schema);
  const table = element("table");
  const required = new Set(found.required || []);
  for (const [name, field] of Object.entries(found.properties || {})) {
    const cell = element("td", {}, element("code", { textContent: typeOf(field) }));
    if (field.description) cell.append(` ${field.description}`);
    for (const part of partsOf(field)) cell.append(nested(part));
    table.append(element("tr", {}, element("th", { textContent: name + (required.has(name) ? " *" : "") }), cell));
  }
  return table;
};

const partsOf = (schema) => {
  if (schema.$ref) return [schema];
  if (schema.anyOf) return schema.anyOf.flatMap(partsOf);
  return schema.items ? partsOf(schema.items) : [];
};

const nested = (schema) => {
  const { name, schema: found } = resolve(schema);
  const box = element("details", {}, element("summary", { textContent: name }));
  box.addEventListener("toggle", () => {
    if (box.open && box.childElementCount === 1) {
      if (found.description) box.append(element("p", { textContent: found.description }));
      if (found.anyOf) box.append(...found.anyOf.flatMap(partsOf).map(nested));
      else box.append(fieldsOf(found));
    }
  });
  return box;
};

const tryOut = (path, verb, operation) => {
  const form = element("form");
  const inputs = new Map();
  const body = element("textarea", { rows: 14, spellcheck: false, ariaLabel: "Body" });
  for (const parameter of (operation.parameters || []).map(followed)) {
    const input = element("input", { ariaLabel: parameter.name, value: parameter.example ?? "" });
    inputs.set(parameter, input);
  }
  if (operation.requestBody) {
    const examples = Object.values(operation.requestBody.content["application/json"].examples || {});
    body.value = JSON.stringify(examples.length ? examples[0].value : {}, null, 2);
    form.append(body);
  } else if (inputs.size) {
    const table = element("table");
    for (const [parameter, input] of inputs) {
      const words = element("td", {}, element("code", { textContent: typeOf(parameter.schema) }), ` ${parameter.description || ""}`);
      table.append(element("tr", {}, element("th", { textContent: parameter.name }), element("td", {}, input), words));
    }
    form.append(table);
  }
  const shown = element("pre", { hidden: true, tabIndex: 0 });
  form.append(element("button", { textContent: "Send" }));
  form.addEventListener("submit", async (event) => {
    event.preventDefault();
    let address = path;
    const query = new URLSearchParams();
    for (const [parameter, input] of inputs) {
      if (!input.value) continue;
      if (parameter.in === "path") address = address.replace(`{${parameter.name}}`, input.value.split("/").map(encodeURIComponent).join("/"));
      else query.set(parameter.name, input.value);
    }
    const options = { method: verb.toUpperCase() };
    if (operation.requestBody) {
      options.body = body.value;
      options.headers = { "content-type": "application/json" };
    }
    const answer = await fetch(address + (query.size ? `?${query}` : ""), options);
    const text = await answer.text();
    let pretty = text;
    try { pretty = JSON.stringify(JSON.parse(text), null, 2); } catch { /* not JSON: as it is */ }
    shown.hidden = false;
    shown.textContent = `${answer.status} ${answer.statusText}\n\n${pretty}`;
  });
  return element("section", {}, element("h3", { textContent: "Try it" }), form, shown);
};

const show = (path, verb, operation) => {
  const details = document.getElementById("details");
  details.replaceChildren(
    element("h2", {}, element("span", { className: "verb", textContent: verb.toUpperCase() }), ` ${path}`),
    element("p", { textContent: operation.summary }),
    tryOut(path, verb, operation),
  );
  if (operation.requestBody) {
    details.append(element("h3", { textContent: "Body" }), fieldsOf(operation.requestBody.content["application/json"].schema));
  }
  details.append(element("h3", { textContent: "Answers" }));
  for (const [status, reference] of Object.entries(operation.responses)) {
    const answer = followed(reference);
    const kinds = Object.keys(answer.content || {}).join(", ");
    const box = element("details", {}, element("summary", { textContent: `${status} ${answer.description} ${kinds && `(${kinds})`}` }));
    for (const media of Object.values(answer.content || {}).slice(0, 1)) if (media.schema) box.append(fieldsOf(media.schema));
    details.append(box);
  }
};

const start = async () => {
  api = await (await fetch("/openapi.json")).json();
  document.getElementById("version").textContent = api.info.version;
  document.getElementById("summary").textContent = api.info.summary;
  const list = document.getElementById("operations");
  for (const tag of api.tags) {
    list.append(element("h2", { textContent: tag.name }));
    for (const [path, verbs] of Object.entries(api.paths)) {
      for (const [verb, operation] of Object.entries(verbs)) {
        if (!operation.tags.includes(tag.name)) continue;
        const link = element("a", { href: `#${operation.operationId}` }, element("span", { className: "verb", textContent: verb.toUpperCase() }), path);
        link.addEventListener("click", (event) => {
          for (const other of list.querySelectorAll("a")) other.removeAttribute("aria-current");
          link.setAttribute("aria-current", "true");
          show(path, verb, operation);
          if (event.isTrusted) document.getElementById("details").scrollIntoView();
        });
        list.append(link);
        if (location.hash === `#${operation.operationId}`) link.click();
      }
    }
  }
  if (!list.querySelector("[aria-current]")) list.querySelector("a").dispatchEvent(new Event("click"));
};

start();
