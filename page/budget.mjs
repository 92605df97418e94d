// Checks the size of what the first load of the page transfers, and of its style sheet, compressed with gzip.
import { readdirSync, readFileSync } from "node:fs";
import { gzipSync } from "node:zlib";

const LIMITS = { script: 90 * 1024, style: 15 * 1024 };
const folder = new URL(process.argv[2] ? `file://${process.argv[2]}/` : "./dist/", import.meta.url);
const assets = new URL("assets/", folder);
const size = (name) => gzipSync(readFileSync(new URL(name, assets)), { level: 9 }).length;

/** A chunk and everything that it imports before it runs. */
function closure(name, found = new Set()) {
  if (found.has(name)) return found;
  found.add(name);
  const text = readFileSync(new URL(name, assets), "utf8");
  for (const [, imported] of text.matchAll(/(?:from|import)\s*"\.\/([^"]+\.js)"/g)) closure(imported, found);
  return found;
}

const html = readFileSync(new URL("index.html", folder), "utf8");
const entry = /assets\/([^"]+\.js)/.exec(html)[1];
// The chat is what most visits show first.
const chat = readdirSync(assets).find((name) => name.startsWith("chat-"));
const scripts = [...closure(chat, closure(entry))];
const script = scripts.reduce((sum, name) => sum + size(name), 0);
const style = readdirSync(assets).filter((name) => name.endsWith(".css")).reduce((sum, name) => sum + size(name), 0);
const all = readdirSync(assets).reduce((sum, name) => sum + readFileSync(new URL(name, assets)).length, 0);
console.log(`first load: ${script} bytes of script in ${scripts.length} files, ${style} bytes of style; all files uncompressed: ${all} bytes`);
for (const [what, bytes] of [["script", script], ["style", style]]) {
  if (bytes > LIMITS[what]) {
    console.error(`${what}: ${bytes} bytes are more than the budget of ${LIMITS[what]}`);
    process.exitCode = 1;
  }
}
