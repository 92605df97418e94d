// The two memory tools (search and get), for plugins that register them.

import { jsonResult } from "./sdk/tools.mjs";

/** Finds notes by meaning and words. */
export function memorySearchTool(peer, plugin, { agentSessionKey } = {}) {
  return {
    name: "memory_search",
    label: "Memory Search",
    description: "Search the notes in MEMORY.md and memory/*.md. Use it before answering about earlier work, decisions, dates, people or preferences.",
    parameters: {
      type: "object",
      properties: { query: { type: "string" }, maxResults: { type: "number" }, minScore: { type: "number" } },
      required: ["query"],
    },
    execute: async (_id, params, signal) =>
      jsonResult(await peer.request("memory.search", { ...params, sessionKey: agentSessionKey, plugin }, { signal })),
  };
}

/** Reads a part of a note. */
export function memoryGetTool(peer, plugin, { agentSessionKey } = {}) {
  return {
    name: "memory_get",
    label: "Memory Get",
    description: "Read some lines of MEMORY.md or memory/*.md, best after memory_search has found them.",
    parameters: {
      type: "object",
      properties: { path: { type: "string" }, from: { type: "number" }, lines: { type: "number" } },
      required: ["path"],
    },
    execute: async (_id, params, signal) =>
      jsonResult(await peer.request("memory.get", { ...params, sessionKey: agentSessionKey, plugin }, { signal })),
  };
}
