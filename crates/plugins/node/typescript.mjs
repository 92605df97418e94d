// Converts TypeScript to JavaScript with Node's built-in support.

import module from "node:module";

/** Whether this Node can do it. */
export const speaksTypeScript = typeof module.stripTypeScriptTypes === "function";

/** The JavaScript of a TypeScript source. */
export function toJavaScript(source, url) {
  const code = module.stripTypeScriptTypes(source, { mode: "transform", sourceMap: true, sourceUrl: url });
  return withRequire(withoutUnusedImports(code));
}

/** How Node has to read it: most plugins are ES modules and do not say so. */
export function formatOf(code, pathname) {
  if (pathname.endsWith(".cts")) return "commonjs";
  if (pathname.endsWith(".mts") || usesModuleSyntax(code)) return "module";
  return /\b(module\.exports|exports\.\w|require\s*\()/.test(code) ? "commonjs" : "module";
}

const IMPORT = /^import\s+(?:([\w$]+)\s*,?\s*)?(?:\{([^}]*)\}|\*\s+as\s+([\w$]+))?\s*from\s*(["'][^"'\n]+["'](?:\s*with\s*\{[^}]*\})?);?/gm;

// A type-aware compiler drops imports that are used as types only; Node does not know that a name is a type
// unless it is marked. After the types are removed, a name that occurs nowhere else was a type.
function withoutUnusedImports(code) {
  const body = code.replace(IMPORT, "").replace(/^\/\/# source.*$/gm, "");
  const isUsed = (name) => new RegExp(`(?<![\\w$])${name.replaceAll("$", "\\$")}(?![\\w$])`).test(body);
  return code.replace(IMPORT, (statement, whole, named, space, from) => {
    const kept = (named ?? "").split(",").map((each) => each.trim()).filter((each) => each !== "" && isUsed(localName(each)));
    const clauses = [];
    if (whole && isUsed(whole)) clauses.push(whole);
    if (space && isUsed(space)) clauses.push(`* as ${space}`);
    if (kept.length > 0) clauses.push(`{ ${kept.join(", ")} }`);
    const rest = clauses.length === 0 ? "" : `import ${clauses.join(", ")} from ${from};`;
    // Line numbers are preserved, so that positions in errors are right.
    return rest.padEnd(rest.length + countLines(statement) - countLines(rest), "\n");
  });
}

function countLines(text) {
  return text.split("\n").length;
}

function localName(specifier) {
  return specifier.split(/\s+as\s+/).at(-1);
}

// OpenClaw's loader provides `require`, `__filename` and `__dirname` to every module.
function withRequire(code) {
  if (!usesModuleSyntax(code)) return code;
  const gifts = [
    ["require", /(?<![\w$.])require\s*[.(]/, `process.getBuiltinModule("node:module").createRequire(import.meta.url)`],
    ["__filename", /(?<![\w$.])__filename\b/, "import.meta.filename"],
    ["__dirname", /(?<![\w$.])__dirname\b/, "import.meta.dirname"],
  ];
  const missing = gifts.filter(([name, use]) => use.test(code) && !declares(code, name));
  return missing.map(([name, , value]) => `const ${name} = ${value};`).join("") + code;
}

function declares(code, name) {
  return new RegExp(`\\b(const|let|var|function)\\s+${name}\\b|import[^;]*\\b${name}\\b[^;]*from`).test(code);
}

function usesModuleSyntax(code) {
  return /^\s*(import\b(?!\s*\()|export\b)|\bimport\.meta\b/m.test(code);
}
