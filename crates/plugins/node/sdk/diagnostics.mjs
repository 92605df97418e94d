// For monitoring plugins: the log, and events between plugins. Events of the gateway are available as hooks.

import { bridge } from "../bridge.mjs";

const listeners = new Set();
let sequence = 0;

export const isDiagnosticsEnabled = (config) => config?.diagnostics?.enabled === true;

/** Tells those who listen. */
export function emitDiagnosticEvent(event) {
  const whole = { ...event, seq: ++sequence, ts: Date.now() };
  for (const listen of listeners) {
    try {
      listen(whole);
    } catch (error) {
      bridge.log?.("warn", `a listener of diagnostic events failed: ${error?.message}`);
    }
  }
}

/** Listens; returns how to stop. */
export function onDiagnosticEvent(listen) {
  listeners.add(listen);
  return () => listeners.delete(listen);
}

/** Reads the log of this process; returns how to stop. */
export function registerLogTransport(listen) {
  bridge.logListeners.add(listen);
  return () => bridge.logListeners.delete(listen);
}
