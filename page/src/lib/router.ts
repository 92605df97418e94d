// Addresses of views. They are in the fragment, so that they work below any path prefix and never collide with the
// gateway's own paths, such as webhooks.
import { signal } from "@preact/signals";

export interface Route {
  view: string;
  /** The rest of the path, decoded: a session key or a run id. */
  arg: string;
  params: URLSearchParams;
}

export function parseRoute(fragment: string): Route {
  const [path = "", query = ""] = fragment.replace(/^#?\/?/, "").split("?", 2);
  const slash = path.indexOf("/");
  const view = slash < 0 ? path : path.slice(0, slash);
  let arg = slash < 0 ? "" : path.slice(slash + 1);
  try {
    arg = decodeURIComponent(arg);
  } catch {
    // An address that was typed by hand may not be encoded.
  }
  return { view, arg, params: new URLSearchParams(query) };
}

export function link(view: string, arg = "", params?: Record<string, string | undefined>): string {
  const query = new URLSearchParams();
  for (const [name, value] of Object.entries(params ?? {})) if (value) query.set(name, value);
  const path = arg ? `${view}/${encodeURIComponent(arg).replaceAll("%3A", ":")}` : view;
  return `#/${path}${query.size ? `?${query}` : ""}`;
}

export const route = signal<Route>(parseRoute(globalThis.location?.hash ?? ""));

export function startRouter(): void {
  addEventListener("hashchange", () => (route.value = parseRoute(location.hash)));
  route.value = parseRoute(location.hash);
}

export function go(address: string): void {
  location.hash = address;
}

/** Changes the parameters of the current address without a new entry in the history. */
export function setParams(changes: Record<string, string | undefined>): void {
  const { view, arg, params } = route.peek();
  const all: Record<string, string | undefined> = { ...Object.fromEntries(params), ...changes };
  history.replaceState(null, "", link(view, arg, all));
  route.value = parseRoute(location.hash);
}
