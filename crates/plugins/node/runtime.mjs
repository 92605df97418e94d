// `api.runtime`: what plugins may do beyond registering.

import path from "node:path";
import { formatNativeDependencyHint, runCommandWithTimeout } from "./command.mjs";
import { makeLogger } from "./log.mjs";
import { memoryGetTool, memorySearchTool } from "./memory.mjs";
import { detectMime, isVoiceCompatibleAudio, mediaKindFromMime } from "./mime.mjs";
import { absent, RUNTIME_NAMESPACES } from "./unsupported.mjs";

/** Makes the runtime of one plugin. */
export function makeRuntime({ plugin, house, peer, log }) {
  const missing = Object.fromEntries(RUNTIME_NAMESPACES.map((name) => [name, absent(`api.runtime.${name}`)]));
  const logger = (bindings) => makeLogger(log, plugin, bindings);
  return {
    ...missing,
    version: house.hostVersion,
    config: config(house, plugin),
    system: system({ peer, log, plugin }),
    media: {
      detectMime,
      mediaKindFromMime,
      isVoiceCompatibleAudio,
      loadWebMedia: absent("api.runtime.media.loadWebMedia"),
      getImageMetadata: absent("api.runtime.media.getImageMetadata"),
      resizeToJpeg: absent("api.runtime.media.resizeToJpeg"),
    },
    tools: {
      createMemorySearchTool: (about) => memorySearchTool(peer, plugin, about),
      createMemoryGetTool: (about) => memoryGetTool(peer, plugin, about),
      // Commands for a terminal are the gateway's own; there is a `memory` command already.
      registerMemoryCli: () => {},
    },
    logging: { shouldLogVerbose: () => house.isVerbose, getChildLogger: logger },
    state: {
      resolveStateDir: () => house.stateDir,
      openKeyedStore: absent("api.runtime.state.openKeyedStore"),
      openSyncKeyedStore: absent("api.runtime.state.openSyncKeyedStore"),
      openBlobStore: absent("api.runtime.state.openBlobStore"),
    },
    agent: agent({ house, peer, plugin }),
    llm: { complete: (wish, { signal } = {}) => peer.request("llm.complete", { ...plain(wish), plugin }, { signal: wish?.signal ?? signal }) },
    gateway: {
      isAvailable: () => true,
      request: (method, params) => peer.request("gateway.request", { method, params: params ?? {}, plugin }),
    },
  };
}

function config(house, plugin) {
  const replace = async (next) => ({ config: await house.writeConfig(next, plugin), followUp: { mode: "auto", requiresRestart: false } });
  return {
    loadConfig: () => house.config(),
    current: () => house.config(),
    writeConfigFile: async (next) => void (await house.writeConfig(next, plugin)),
    replaceConfigFile: ({ nextConfig, sourceConfig }) => replace(nextConfig ?? sourceConfig),
    mutateConfigFile: async ({ mutate }) => {
      const draft = house.config();
      const result = await mutate(draft);
      return { ...(await replace(draft)), result };
    },
  };
}

function system({ peer, log, plugin }) {
  return {
    // Plugins expect this one to be done when it returns, so nobody would see its failure but the log.
    enqueueSystemEvent: (text, { sessionKey, contextKey } = {}) => {
      peer
        .request("system.enqueueEvent", { text, sessionKey, contextKey, plugin })
        .catch((error) => log("warn", `a system event was rejected: ${error.message}`, plugin));
      return true;
    },
    runCommandWithTimeout,
    formatNativeDependencyHint,
    requestHeartbeat: absent("api.runtime.system.requestHeartbeat"),
    requestHeartbeatNow: absent("api.runtime.system.requestHeartbeatNow"),
    runHeartbeatOnce: absent("api.runtime.system.runHeartbeatOnce"),
  };
}

function agent({ house, peer, plugin }) {
  const run = (wish) => runAgent(peer, wish, plugin);
  return {
    runEmbeddedAgent: run,
    runEmbeddedPiAgent: run,
    resolveAgentWorkspaceDir: () => house.workspaceDir,
    resolveAgentDir: (_config, id = "main") => path.join(house.stateDir, "agents", id, "agent"),
  };
}

/** Runs an agent's turn for a plugin. */
export function runAgent(peer, wish, plugin) {
  return peer.request("agent.run", { ...plain(wish), plugin }, { signal: wish?.abortSignal });
}

// The gateway has its own config, and functions do not travel.
function plain(wish) {
  const isSent = ([key, value]) => !["config", "cfg", "signal", "abortSignal"].includes(key) && typeof value !== "function";
  return Object.fromEntries(Object.entries(wish ?? {}).filter(isSent));
}
