// For a plugin's entry: what it exports and what its config may be.

import { textResult, jsonResult } from "./tools.mjs";

/** A plugin. It only helps editors to know the types. */
export const definePluginEntry = (definition) => definition;

/** A plugin that brings a chat channel. It loads as far as its registerChannel, which says what is missing. */
export function defineChannelPluginEntry({ plugin, setRuntime, registerFull, ...definition }) {
  const register = (api) => {
    setRuntime?.(api.runtime);
    api.registerChannel({ plugin });
    registerFull?.(api);
  };
  return { ...definition, register };
}

/** A plugin that is a list of tools: `execute(params, config, context)` returns a text or a value. */
export function defineToolPlugin({ tools, ...definition }) {
  const register = (api) => {
    for (const tool of tools((each) => each)) {
      const { name, optional = false } = tool;
      if (tool.factory) {
        api.registerTool((toolContext) => tool.factory({ api, config: api.pluginConfig ?? {}, toolContext }), { name, optional });
      } else {
        api.registerTool({ ...tool, execute: executor(tool, api) }, { name, optional });
      }
    }
  };
  return { ...definition, register };
}

function executor(tool, api) {
  return async (toolCallId, params, signal, onUpdate) => {
    const value = await tool.execute(params, api.pluginConfig ?? {}, { api, toolCallId, signal, onUpdate });
    return typeof value === "string" ? textResult(value, value) : jsonResult(value ?? null);
  };
}

/** The schema of a config with nothing in it. */
export function emptyPluginConfigSchema() {
  const refuse = (message) => ({ success: false, error: { issues: [{ path: [], message }] } });
  return {
    safeParse(value) {
      if (value === undefined) return { success: true, data: undefined };
      if (value === null || typeof value !== "object" || Array.isArray(value)) return refuse("expected config object");
      return Object.keys(value).length > 0 ? refuse("config must be empty") : { success: true, data: value };
    },
    jsonSchema: { type: "object", additionalProperties: false, properties: {} },
  };
}

/** The schema of a plugin's config, from zod. */
export function buildPluginConfigSchema(schema) {
  return { safeParse: (value) => schema.safeParse(value), jsonSchema: jsonSchemaOf(schema) };
}

/** The schema of a plugin's config, as JSON Schema. The gateway checks it before the plugin is loaded. */
export function buildJsonPluginConfigSchema(jsonSchema) {
  return { safeParse: (data) => ({ success: true, data }), jsonSchema };
}

/** The schema of a channel's config, from zod. */
export function buildChannelConfigSchema(schema) {
  return { schema: jsonSchemaOf(schema) };
}

function jsonSchemaOf(schema) {
  const choices = { target: "draft-07", unrepresentable: "any" };
  return typeof schema?.toJSONSchema === "function" ? schema.toJSONSchema(choices) : { type: "object", additionalProperties: true };
}

/** A path that begins with a slash, or null. */
export function normalizePluginHttpPath(path, fallback) {
  const text = path?.trim() || fallback?.trim();
  if (!text) return null;
  return text.startsWith("/") ? text : `/${text}`;
}
