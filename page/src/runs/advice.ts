// What can be done about a failure. Errors of the gateway end with the next step; this finds it, and the view for it.
import { link } from "../lib/router";

export interface Advice {
  text: string;
  /** The view in which it is done. */
  href?: string;
}

/** Views by what an error is about; the first that matches. */
const PLACES: [pattern: RegExp, text: string, href: () => string][] = [
  [/\bbudgets?\b/i, "Raise or remove the limit", () => link("settings", "", { search: "budgets" })],
  [/\bHTTP 40[13]\b|API key|credential/i, "Check the API key of the provider", () => link("models")],
  [/\bHTTP 402\b|billing|insufficient|quota/i, "Check the account at the provider", () => link("models")],
  [/baseUrl|refused|unreachable|resolve|network/i, "Check the address of the provider, and whether it runs", () => link("settings", "", { search: "models.providers" })],
  [/\bHTTP (429|5\d\d)\b|overloaded|rate.?limit/i, "Wait, choose another model, or add a fallback", () => link("settings", "", { search: "agents.defaults.model" })],
  [/\bHTTP 4\d\d\b|unknown model|no model/i, "Check the model and its settings", () => link("models")],
  [/context window|too (long|large)|does not fit/i, "Reset or compact the session, or choose a model with a larger context window", () => link("sessions")],
  [/\bguard\b|\bhook\b/i, "Check this hook, or disable it", () => link("hooks")],
  [/queue_full/i, "Wait until the queue is shorter, or change the queue settings", () => link("settings", "", { search: "messages.queue" })],
  [/timeout|time limit/i, "Allow more time", () => link("settings", "", { search: "timeoutSeconds" })],
  [/bot was blocked|chat not found|kicked|forbidden/i, "The person has to write to the bot again, or the bot has to be added again", () => link("channels")],
  [/disk|space/i, "Free some space on the disk of the gateway", () => link("doctor")],
];

/** Splits an error into what happened and what to do. */
export function adviceFor(error: string): { what: string; next: Advice | null } {
  const place = PLACES.find(([pattern]) => pattern.test(error));
  // "…; check the API key", "…. To raise it, set budgets.day.cost"
  const hint = /^([\s\S]+?)(?:; |\. )((?:check|try|choose|wait|free|set|raise|restart|allow|increase|see|to raise)\b[\s\S]+)$/i.exec(error);
  const text = hint?.[2] ? hint[2].charAt(0).toUpperCase() + hint[2].slice(1) : place?.[1];
  if (!text) return { what: error, next: null };
  return { what: hint?.[1] ?? error, next: place ? { text, href: place[2]() } : { text } };
}
