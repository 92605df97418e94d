// Replaces the OpenClaw module through which its bundled plugins run the agent; here the gateway runs it.

import { bridge } from "../bridge.mjs";
import { whose } from "../owner.mjs";

/** Runs one turn. Answers `{payloads: [{text, isError?}], …}`. */
export function runEmbeddedPiAgent(wish) {
  return bridge.runAgent(wish, whose());
}
