// Objects (a JSON list on standard input) against the models that their publishers' definitions make: values by the schema, names of fields
// by the types, because a cluster drops what it does not know. `npm ci` first.
import { spawnSync } from "node:child_process";
import { mkdtempSync, readFileSync, rmSync, writeFileSync } from "node:fs";
import { join } from "node:path";

const PUBLISHERS = {
  "gateway.networking.k8s.io": "@kubernetes-models/gateway-api",
  "monitoring.coreos.com": "@kubernetes-models/prometheus-operator",
};
const objects = JSON.parse(readFileSync(0, "utf8"));
const problems = [];
const typed = [];

for (const [number, object] of objects.entries()) {
  const [group] = object.apiVersion.split("/");
  const from = `${PUBLISHERS[group]}/${object.apiVersion}`;
  const models = await import(from);
  try {
    new models[object.kind](object).validate();
  } catch (error) {
    problems.push(`${object.kind}: ${error.message}`);
  }
  typed.push(`import type { I${object.kind} as T${number} } from "${from}";`);
  typed.push(`export const o${number}: T${number} = ${JSON.stringify(object)};`);
}

const folder = mkdtempSync(join(import.meta.dirname, "node_modules", ".checked-"));
try {
  const file = join(folder, "objects.mts");
  writeFileSync(file, typed.join("\n"));
  const options = ["--noEmit", "--skipLibCheck", "--strict", "--module", "nodenext", "--pretty", "false", file];
  const result = spawnSync(join(import.meta.dirname, "node_modules", ".bin", "tsc"), options, { encoding: "utf8" });
  problems.push(...(result.stdout ?? "").split("\n").filter((line) => line.includes("error")).map((line) => line.replace(/^.*?: error/, "error")));
} finally {
  rmSync(folder, { recursive: true });
}
process.stdout.write(problems.map((line) => `${line}\n`).join("") || `${objects.length} objects are valid\n`);
process.exitCode = problems.length ? 1 : 0;
