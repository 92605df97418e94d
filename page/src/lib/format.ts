// Numbers, durations and times for people.

export function duration(ms: number): string {
  if (ms < 1_000) return `${Math.round(ms)} ms`;
  if (ms < 10_000) return `${(ms / 1_000).toFixed(2)} s`;
  if (ms < 60_000) return `${(ms / 1_000).toFixed(1)} s`;
  const seconds = Math.round(ms / 1_000);
  const two = (large: number, largeUnit: string, small: number, smallUnit: string) => `${large} ${largeUnit}${small ? ` ${small} ${smallUnit}` : ""}`;
  if (seconds < 3_600) return two(Math.floor(seconds / 60), "min", seconds % 60, "s");
  const minutes = Math.floor(seconds / 60);
  if (minutes < 24 * 60) return two(Math.floor(minutes / 60), "h", minutes % 60, "min");
  return two(Math.floor(minutes / 1_440), "d", Math.floor(minutes / 60) % 24, "h");
}

export function count(number: number): string {
  return Math.round(number).toLocaleString("en-US");
}

/** A token count in at most five characters. */
export function compact(number: number): string {
  if (number < 1_000) return String(Math.round(number));
  if (number < 9_950) return `${(number / 1_000).toFixed(1)}k`;
  if (number < 999_500) return `${Math.round(number / 1_000)}k`;
  return `${(number / 1_000_000).toFixed(1)}M`;
}

export function bytes(number: number): string {
  if (number < 1_024) return `${number} B`;
  if (number < 1_024 * 1_024) return `${(number / 1_024).toFixed(1)} KiB`;
  if (number < 1_024 ** 3) return `${(number / 1_024 ** 2).toFixed(1)} MiB`;
  return `${(number / 1_024 ** 3).toFixed(1)} GiB`;
}

export function cost(dollars: number): string {
  if (dollars === 0) return "$0";
  if (dollars < 0.01) return `$${dollars.toFixed(4)}`;
  return `$${dollars.toFixed(2)}`;
}

const pad = (number: number, width = 2) => String(number).padStart(width, "0");

export function clock(at: number): string {
  const time = new Date(at);
  return `${pad(time.getHours())}:${pad(time.getMinutes())}:${pad(time.getSeconds())}`;
}

export function date(at: number): string {
  const time = new Date(at);
  return `${time.getFullYear()}-${pad(time.getMonth() + 1)}-${pad(time.getDate())}`;
}

/** Today only the time, otherwise the date too. */
export function when(at: number, now: number = Date.now()): string {
  return date(at) === date(now) ? clock(at) : `${date(at)} ${clock(at).slice(0, 5)}`;
}

export function ago(at: number, now: number = Date.now()): string {
  const seconds = Math.round((now - at) / 1_000);
  // The clock of the page moves in steps of ten seconds.
  if (seconds > -11 && seconds < 5) return "just now";
  const [amount, suffix] = seconds < 0 ? [-seconds, "in "] : [seconds, ""];
  const text = amount < 60 ? `${amount} s` : amount < 3_600 ? `${Math.floor(amount / 60)} min` : amount < 86_400 ? `${Math.floor(amount / 3_600)} h` : `${Math.floor(amount / 86_400)} d`;
  return suffix ? `in ${text}` : `${text} ago`;
}

/** Writes characters that change the direction of the text, and other invisible ones, as their code points. */
export function visible(text: string): string {
  return text.replace(/[\u200b\u200e\u200f\u202a-\u202e\u2060-\u2069\ufeff]/g, (character) => `[U+${character.charCodeAt(0).toString(16).toUpperCase().padStart(4, "0")}]`);
}

/** A session key without the parts that are the same in most rows. */
export function sessionName(key: string): string {
  const parts = key.split(":");
  if (parts[0] !== "agent" || parts.length < 3) return key;
  return parts[1] === "main" ? parts.slice(2).join(":") : `${parts.slice(2).join(":")} · ${parts[1]}`;
}

/** The agent of a session key. */
export function agentOf(key: string): string {
  const parts = key.split(":");
  return parts[0] === "agent" ? (parts[1] ?? "main") : "main";
}

/** The channel of a session key, if it names one. */
export function channelOf(key: string): string {
  const parts = key.split(":");
  const third = parts[0] === "agent" ? parts[2] : parts[0];
  if (third === undefined || third === "main") return "direct";
  if (third === "subagent" || third === "cron") return third;
  return parts.length > (parts[0] === "agent" ? 3 : 1) ? third : "direct";
}
