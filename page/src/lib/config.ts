// Changes of the configuration, by path.
import { call } from "./connection";

export interface ConfigIssue {
  path: string;
  message: string;
  line?: number;
  column?: number;
}
export interface ConfigFile {
  path: string;
  exists: boolean;
  raw: string | null;
  parsed: Record<string, unknown>;
  config: Record<string, unknown>;
  hash: string;
  valid: boolean;
  issues: ConfigIssue[];
  warnings: ConfigIssue[];
}
export interface ConfigChange {
  hash: string;
  changedPaths: string[];
  restart?: { required: boolean; paths: string[] };
  notice?: string;
}

export const readConfig = (): Promise<ConfigFile> => call<ConfigFile>("config.get");

export function valueAt(tree: unknown, path: string[]): unknown {
  return path.reduce<unknown>((value, key) => (value && typeof value === "object" ? (value as Record<string, unknown>)[key] : undefined), tree);
}

/** An object that has only this value, at this path. */
export function nested(path: string[], value: unknown): Record<string, unknown> {
  return path.reduceRight<unknown>((inner, key) => ({ [key]: inner }), value) as Record<string, unknown>;
}

/** Sets values; `null` removes one. Everything else in the file stays as it is, comments too. */
export async function patchConfig(changes: Record<string, unknown>, hash: string, replacePaths: string[] = []): Promise<ConfigChange> {
  return call<ConfigChange>("config.patch", { raw: JSON.stringify(changes), baseHash: hash, ...(replacePaths.length ? { replacePaths } : {}) });
}

/** Reads the file and changes one value. */
export async function setValue(path: string[], value: unknown): Promise<ConfigChange> {
  const { hash } = await readConfig();
  return patchConfig(nested(path, value), hash);
}

export function merge(into: Record<string, unknown>, from: Record<string, unknown>): Record<string, unknown> {
  const result = { ...into };
  for (const [key, value] of Object.entries(from)) {
    const old = result[key];
    const isObject = (item: unknown): item is Record<string, unknown> => !!item && typeof item === "object" && !Array.isArray(item);
    result[key] = isObject(old) && isObject(value) ? merge(old, value) : value;
  }
  return result;
}
