// The keys of the configuration, as the schema describes them.

export interface Schema {
  type?: string | string[];
  properties?: Record<string, Schema>;
  additionalProperties?: Schema | boolean;
  items?: Schema;
  enum?: unknown[];
  anyOf?: Schema[];
  description?: string;
  minimum?: number;
  maximum?: number;
  default?: unknown;
}
export interface Hint {
  label?: string;
  help?: string;
  sensitive?: boolean;
}

export interface Setting {
  path: string[];
  name: string;
  label: string;
  help: string;
  kind: "boolean" | "number" | "integer" | "text" | "choice" | "json";
  choices: string[];
  isSecret: boolean;
}

/** The keys that have a value of their own, in the order of the schema. */
export function settingsOf(schema: Schema, hints: Record<string, Hint>, path: string[] = []): Setting[] {
  const found: Setting[] = [];
  for (const [key, child] of Object.entries(schema.properties ?? {})) {
    const here = [...path, key];
    const plain = withoutNull(child);
    if (plain.properties && Object.keys(plain.properties).length) {
      found.push(...settingsOf(plain, hints, here));
      continue;
    }
    const name = here.join(".");
    const hint = hints[name];
    const choices = (plain.enum ?? []).filter((choice): choice is string => typeof choice === "string");
    const types = [plain.type ?? []].flat().filter((type) => type !== "null");
    const kind = choices.length ? "choice" : types.length === 1 && !plain.anyOf ? ({ boolean: "boolean", number: "number", integer: "integer", string: "text" } as const)[types[0]!] : undefined;
    found.push({ path: here, name, label: hint?.label ?? key, help: hint?.help ?? child.description ?? "", kind: kind ?? "json", choices, isSecret: hint?.sensitive === true });
  }
  return found;
}

function withoutNull(schema: Schema): Schema {
  const options = (schema.anyOf ?? []).filter(({ type }) => type !== "null");
  return options.length === 1 && options[0] ? { description: schema.description ?? "", ...options[0] } : schema;
}

/** Words of a search in the name, the label or the help of a setting. */
export function matches(setting: Setting, query: string): boolean {
  const text = `${setting.name} ${setting.label} ${setting.help}`.toLowerCase();
  return query.toLowerCase().split(/\s+/).every((word) => text.includes(word));
}
