// Stands in for the place in OpenClaw's sources where its bundled plugins find the agent. The gateway runs it.

import { bridge } from "../bridge.mjs";
import { whose } from "../owner.mjs";

/** Runs one turn. Answers `{payloads: [{text, isError?}], …}`. */
export function runEmbeddedPiAgent(wish) {
  return bridge.runAgent(wish, whose());
}
