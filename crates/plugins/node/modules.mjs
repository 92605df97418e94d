// Resolves the imports of plugins: the SDK, TypeScript files, and paths without extension.

import { existsSync, readFileSync, statSync } from "node:fs";
import module from "node:module";
import { fileURLToPath, pathToFileURL } from "node:url";
import { formatOf, speaksTypeScript, toJavaScript } from "./typescript.mjs";

const SDK = /^(openclaw|clawdbot|moltbot)\/plugin-sdk(\/.*)?$/;
const TYPEBOX = /^(@sinclair\/)?typebox$/;
const TYPESCRIPT = /\.[mc]?ts$/;
// OpenClaw's bundled plugins import the agent by its path in OpenClaw's sources, which an installation lacks.
const EMBEDDED_RUN = /\/src\/agents\/pi-embedded-runner(\.[jt]s)?$/;
const ENDINGS = [".ts", ".mts", ".cts", ".js", ".mjs", ".cjs", ".json"];

const ours = (name) => ({ url: new URL(`./sdk/${name}`, import.meta.url).href, format: "module", shortCircuit: true });

/** Puts the hooks in place. Returns what is missing on this Node, or null. */
export function hookImports() {
  if (typeof module.registerHooks !== "function" || !speaksTypeScript) {
    return `Node ${process.versions.node} is too old for plugins in TypeScript or with imports of the plugin SDK; install Node 22.15 or newer`;
  }
  // So that positions in errors refer to the TypeScript source.
  process.setSourceMapsEnabled(true);
  module.registerHooks({ resolve, load });
  return null;
}

function resolve(specifier, context, next) {
  if (SDK.test(specifier)) return ours("index.mjs");
  try {
    return asJson(next(specifier, context), context);
  } catch (error) {
    const found = isPath(specifier) ? nearby(specifier, context.parentURL) : standIn(specifier);
    if (found === null) throw error;
    return asJson(found, context);
  }
}

// Bundlers allow imports of JSON without an attribute; Node does not.
function asJson(found, context) {
  const isImported = context.conditions?.includes("import") && !context.importAttributes?.type;
  if (!isImported || !/^file:.*\.json(\?|$)/.test(found.url)) return found;
  return { ...found, format: "json", importAttributes: { type: "json" } };
}

function isPath(specifier) {
  return /^(\.{0,2}\/|\.{1,2}$|file:)/.test(specifier);
}

function standIn(specifier) {
  return TYPEBOX.test(specifier) ? ours("typebox.mjs") : null;
}

function nearby(specifier, parent) {
  const target = new URL(specifier, parent ?? pathToFileURL(`${process.cwd()}/`));
  if (target.protocol !== "file:") return null;
  const path = fileURLToPath(target);
  const bare = path.replace(/\.([mc]?)js$/, "");
  const sameInTypeScript = path === bare ? [] : [path.replace(/\.([mc]?)js$/, ".$1ts")];
  const tries = [...sameInTypeScript, ...ENDINGS.map((end) => path + end), ...ENDINGS.map((end) => `${path}/index${end}`)];
  const found = tries.find((each) => existsSync(each) && statSync(each).isFile());
  if (found !== undefined) return { url: pathToFileURL(found).href + target.search, shortCircuit: true };
  return EMBEDDED_RUN.test(path) ? ours("embedded-run.mjs") : null;
}

function load(url, context, next) {
  if (!url.startsWith("file:")) return next(url, context);
  const { pathname } = new URL(url);
  if (!TYPESCRIPT.test(pathname)) return next(url, context);
  const source = toJavaScript(readFileSync(fileURLToPath(url), "utf8"), url);
  return { format: formatOf(source, pathname), source, shortCircuit: true };
}
