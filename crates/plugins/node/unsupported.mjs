// Stubs for OpenClaw APIs that this gateway does not support. Each exists and reports its name when it is
// used, so that a plugin fails with a reason and not with "is not a function".

/** Registrars that there are no counterparts for. */
export const REGISTRARS = [
  "registerChannel", "registerProvider",
  "registerHostedMediaResolver", "registerWidgetPresenter", "registerMcpServerConnectionResolver",
  "registerGatewayAccessPolicy", "registerSessionCatalog", "registerReload", "registerNodeHostCommand",
  "registerNodeInvokePolicy", "registerSecurityAuditCollector", "registerGatewayDiscoveryService",
  "registerCliBackend", "registerTextTransforms", "registerConfigMigration", "registerMigrationProvider",
  "registerAutoEnableProbe", "registerWorkerProvider", "registerModelCatalogProvider", "registerEmbeddingProvider",
  "registerSpeechProvider", "registerRealtimeTranscriptionProvider", "registerRealtimeVoiceProvider",
  "registerMediaUnderstandingProvider", "registerTranscriptSourceProvider", "registerImageGenerationProvider",
  "registerVideoGenerationProvider", "registerMusicGenerationProvider", "registerWebFetchProvider",
  "registerWebSearchProvider", "registerInteractiveHandler", "onConversationBindingResolved",
  "registerContextEngine", "registerCompactionProvider", "registerDecisionProvider", "registerAgentHarness",
  "registerCodexAppServerExtensionFactory", "registerAgentToolResultMiddleware", "registerSessionExtension",
  "enqueueNextTurnInjection", "registerTrustedToolPolicy", "registerToolMetadata", "registerControlUiDescriptor",
  "registerBoardWidgetContentKind", "registerAgentEventSubscription", "emitAgentEvent",
  "setRunContext", "getRunContext", "clearRunContext", "registerSessionSchedulerJob", "registerSessionAction",
  "sendSessionAttachment", "scheduleSessionTurn", "unscheduleSessionTurnsByTag", "registerDetachedTaskRuntime",
  "registerMemoryCapability", "registerMemoryPromptSupplement", "registerMemoryPromptPreparation",
  "registerMemoryCorpusSupplement", "registerNodeCliFeature",
];

/** Namespaces of `api` that there are no counterparts for. */
export const NAMESPACES = ["session", "agent", "runContext"];

/** Namespaces of `api.runtime` that there are no counterparts for. */
export const RUNTIME_NAMESPACES = [
  "channel", "tts", "subagent", "mediaUnderstanding", "events", "modelAuth", "imageGeneration", "videoGeneration",
  "musicGeneration", "hooks", "nodes", "sandbox", "worktrees", "webSearch", "tasks", "modelConfig", "decisions",
];

/** The error for something that is not there. */
export function notSupported(name) {
  return new Error(`${name} is not supported by this gateway`);
}

/** Something that can be passed around and looked into, and that says its name when it is called. */
export function absent(name, onUse = () => {}) {
  return new Proxy(() => {}, {
    get: (_, key) => (typeof key === "symbol" || key === "then" ? undefined : absent(`${name}.${key}`, onUse)),
    apply: () => {
      onUse(name);
      throw notSupported(name);
    },
  });
}
