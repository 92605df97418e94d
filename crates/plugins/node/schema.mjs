// A tool's parameters as JSON Schema. Plugins write them by hand, with TypeBox or with zod.

import { createRequire } from "node:module";
import path from "node:path";

const NOTHING = { type: "object", properties: {} };

/** The JSON Schema of a tool's parameters. Throws if there is no way to know it. */
export function toJsonSchema(parameters, rootDir) {
  if (parameters == null) return NOTHING;
  const isZod = "_zod" in parameters || "_def" in parameters;
  // TypeBox is JSON Schema already; its markers are symbols, which are not serialised.
  const schema = isZod ? fromZod(parameters, rootDir) : parameters;
  const { $schema: _dialect, ...rest } = JSON.parse(JSON.stringify(schema));
  return rest;
}

function fromZod(schema, rootDir) {
  if (typeof schema.toJSONSchema === "function") return schema.toJSONSchema();
  const find = createRequire(path.join(rootDir ?? process.cwd(), "plugin.js"));
  const zod = tryTo(() => find("zod"));
  if ("_zod" in schema && zod?.toJSONSchema) return zod.toJSONSchema(schema);
  const convert = tryTo(() => find("zod-to-json-schema"));
  if (convert) return (convert.zodToJsonSchema ?? convert)(schema);
  throw new Error("the tool's parameters are a zod schema that cannot be turned into JSON Schema; use zod 4 or TypeBox");
}

function tryTo(run) {
  try {
    return run();
  } catch {
    return undefined;
  }
}
