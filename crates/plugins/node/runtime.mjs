// `api.runtime`: what plugins may do beyond registering.

import path from "node:path";
import { formatNativeDependencyHint, runCommandWithTimeout } from "./command.mjs";
import { makeLogger } from "./log.mjs";
import { memoryGetTool, memorySearchTool } from "./memory.mjs";
import { detectMime, isVoiceCompatibleAudio, mediaKindFromMime } from "./mime.mjs";
import { absent, RUNTIME_NAMESPACES } from "./unsupported.mjs";

/** Makes the runtime of one plugin. */
export function makeRuntime({ plugin, gatewayInfo, peer, log }) {
  const missing = Object.fromEntries(RUNTIME_NAMESPACES.map((name) => [name, absent(`api.runtime.${name}`)]));
  const logger = (bindings) => makeLogger(log, plugin, bindings);
  return {
    ...missing,
    version: gatewayInfo.hostVersion,
    config: config(gatewayInfo, plugin),
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
      // CLI commands are provided by the gateway, which already has a `memory` command.
      registerMemoryCli: () => {},
    },
    logging: { shouldLogVerbose: () => gatewayInfo.isVerbose, getChildLogger: logger },
    state: {
      resolveStateDir: () => gatewayInfo.stateDir,
      openKeyedStore: absent("api.runtime.state.openKeyedStore"),
      openSyncKeyedStore: absent("api.runtime.state.openSyncKeyedStore"),
      openBlobStore: absent("api.runtime.state.openBlobStore"),
    },
    agent: agent({ gatewayInfo, peer, plugin }),
    llm: { complete: (wish, { signal } = {}) => peer.request("llm.complete", { ...plain(wish), plugin }, { signal: wish?.signal ?? signal }) },
    gateway: {
      isAvailable: () => true,
      request: (method, params) => peer.request("gateway.request", { method, params: params ?? {}, plugin }),
    },
  };
}

function config(gatewayInfo, plugin) {
  const replace = async (next) => ({ config: await gatewayInfo.writeConfig(next, plugin), followUp: { mode: "auto", requiresRestart: false } });
  return {
    loadConfig: () => gatewayInfo.config(),
    current: () => gatewayInfo.config(),
    writeConfigFile: async (next) => void (await gatewayInfo.writeConfig(next, plugin)),
    replaceConfigFile: ({ nextConfig, sourceConfig }) => replace(nextConfig ?? sourceConfig),
    mutateConfigFile: async ({ mutate }) => {
      const draft = gatewayInfo.config();
      const result = await mutate(draft);
      return { ...(await replace(draft)), result };
    },
  };
}

function system({ peer, log, plugin }) {
  return {
    // Plugins call this synchronously, so a failure can only be logged.
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

function agent({ gatewayInfo, peer, plugin }) {
  const run = (wish) => runAgent(peer, wish, plugin);
  return {
    runEmbeddedAgent: run,
    runEmbeddedPiAgent: run,
    resolveAgentWorkspaceDir: () => gatewayInfo.workspaceDir,
    resolveAgentDir: (_config, id = "main") => path.join(gatewayInfo.stateDir, "agents", id, "agent"),
  };
}

/** Runs an agent's turn for a plugin. */
export function runAgent(peer, wish, plugin) {
  return peer.request("agent.run", { ...plain(wish), plugin }, { signal: wish?.abortSignal });
}

// The gateway uses its own config, and functions cannot be serialised.
function plain(wish) {
  const isSent = ([key, value]) => !["config", "cfg", "signal", "abortSignal"].includes(key) && typeof value !== "function";
  return Object.fromEntries(Object.entries(wish ?? {}).filter(isSent));
}
