// The frame around all views: navigation, connection banner, command palette, keys.
import { signal } from "@preact/signals";
import { Component, type ComponentType, type ComponentChildren } from "preact";
import { useEffect, useRef, useState } from "preact/hooks";
import { health, hello, may, offers, onOpen, call, on, signOut, state, useToken } from "./lib/connection";
import { go, link, route } from "./lib/router";
import { Icon, type IconName, isTyping, messageOf, now, QuestionDialog, toasts } from "./lib/ui";
import { Palette, palette } from "./palette";

interface View {
  id: string;
  title: string;
  icon: IconName;
  group: string;
  load: () => Promise<{ default: ComponentType }>;
  needs?: "approvals" | "pairing" | "admin";
}

export const VIEWS: View[] = [
  { id: "", title: "Overview", icon: "overview", group: "", load: () => import("./views/overview") },
  { id: "chat", title: "Chat", icon: "chat", group: "", load: () => import("./chat/chat") },
  { id: "runs", title: "Runs", icon: "runs", group: "", load: () => import("./runs/runs") },
  { id: "sessions", title: "Sessions", icon: "sessions", group: "", load: () => import("./views/sessions") },
  { id: "approvals", title: "Approvals", icon: "approvals", group: "", load: () => import("./views/approvals") },
  { id: "channels", title: "Channels", icon: "channels", group: "Connect", load: () => import("./views/channels") },
  { id: "schedule", title: "Schedule", icon: "schedule", group: "Connect", load: () => import("./views/schedule") },
  { id: "models", title: "Models", icon: "models", group: "Agent", load: () => import("./views/models") },
  { id: "usage", title: "Usage", icon: "usage", group: "Agent", load: () => import("./views/usage") },
  { id: "skills", title: "Skills", icon: "skills", group: "Agent", load: () => import("./views/skills") },
  { id: "plugins", title: "Plugins", icon: "plugins", group: "Agent", load: () => import("./views/plugins") },
  { id: "hooks", title: "Hooks", icon: "hooks", group: "Agent", load: () => import("./views/hooks") },
  { id: "mcp", title: "MCP", icon: "mcp", group: "Agent", load: () => import("./views/mcp") },
  { id: "settings", title: "Settings", icon: "settings", group: "Gateway", load: () => import("./views/settings") },
  { id: "logs", title: "Logs", icon: "logs", group: "Gateway", load: () => import("./views/logs") },
  { id: "doctor", title: "Doctor", icon: "doctor", group: "Gateway", load: () => import("./views/doctor") },
];

/** Number of requests that wait for a decision. */
export const waiting = signal(0);

function countWaiting(): void {
  const lists = [
    may("approvals") ? call<unknown[]>("exec.approval.list").then((list) => list.length) : 0,
    may("pairing") ? call<{ pending: unknown[] }>("device.pair.list").then(({ pending }) => pending.length) : 0,
    may("read") && offers("channels.pairing.list") ? call<{ requests: unknown[] }>("channels.pairing.list").then(({ requests }) => requests.length) : 0,
  ];
  Promise.all(lists).then(
    (counts) => (waiting.value = counts.reduce((sum, count) => sum + count, 0)),
    (error: unknown) => console.warn("cannot count pending requests", error),
  );
}

export type Theme = "system" | "light" | "dark";
export const theme = signal<Theme>((localStorage.getItem("homard.theme") as Theme | null) ?? "system");
export function setTheme(chosen: Theme): void {
  theme.value = chosen;
  localStorage.setItem("homard.theme", chosen);
  applyTheme();
}
function applyTheme(): void {
  if (theme.peek() === "system") delete document.documentElement.dataset["theme"];
  else document.documentElement.dataset["theme"] = theme.peek();
}
applyTheme();

export function App() {
  useGlobalKeys();
  useEffect(() => {
    const stops = [onOpen(countWaiting), ...["exec.approval.requested", "exec.approval.resolved", "device.pair.requested", "device.pair.resolved"].map((event) => on(event, countWaiting))];
    return () => stops.forEach((stop) => stop());
  }, []);
  const current = state.value;
  if (current.kind === "needs-token") return <AskToken why={current.why} />;
  if (current.kind === "needs-pairing") return <Pairing request={current.request} />;
  if (!hello.value) return <Starting />;
  return <Frame />;
}

function Frame() {
  const { view } = route.value;
  const [isMenuOpen, openMenu] = useState(false);
  const found = VIEWS.find(({ id }) => id === view);
  useEffect(() => {
    document.title = found?.id ? `${found.title} · Homard` : "Homard";
    openMenu(false);
  }, [view, route.value.arg]);
  const groups = [...new Set(VIEWS.map(({ group }) => group))];
  return (
    <div class={`frame ${isMenuOpen ? "menu-open" : ""}`}>
      <a class="skip" href="#main" onClick={(event) => { event.preventDefault(); document.getElementById("main")?.focus(); }}>
        Skip to content
      </a>
      <header class="topbar">
        <button type="button" class="ghost" aria-label="Menu" aria-expanded={isMenuOpen} aria-controls="nav" onClick={() => openMenu(!isMenuOpen)}>
          <Icon name="menu" />
        </button>
        <span class="topbar-title">{found?.title ?? "Homard"}</span>
        <button type="button" class="ghost" aria-label="Commands" onClick={() => (palette.value = true)}>
          <Icon name="search" />
        </button>
      </header>
      <nav id="nav" class="nav" aria-label="Views">
        <div class="brand">
          <svg viewBox="0 0 32 32" class="logo" aria-hidden="true">
            <rect width="32" height="32" rx="7" />
            <path d="M10 8v16M22 8v16M10 16h12" />
          </svg>
          Homard
        </div>
        {groups.map((group) => (
          <ul key={group} aria-label={group || "Work"}>
            {group ? <li class="nav-group" aria-hidden="true">{group}</li> : null}
            {VIEWS.filter((entry) => entry.group === group).map(({ id, title, icon }) => (
              <li key={id}>
                <a href={link(id)} aria-current={id === view ? "page" : undefined}>
                  <Icon name={icon} />
                  {title}
                  {id === "approvals" && waiting.value > 0 ? <span class="count" aria-label={`${waiting.value} waiting`}>{waiting.value}</span> : null}
                </a>
              </li>
            ))}
          </ul>
        ))}
        <div class="nav-foot">
          <button type="button" class="palette-button" onClick={() => (palette.value = true)}>
            Commands <kbd>Ctrl K</kbd>
          </button>
          <ConnectionNote />
        </div>
      </nav>
      {isMenuOpen ? <button type="button" class="scrim" aria-label="Close menu" onClick={() => openMenu(false)} /> : null}
      <main id="main" tabIndex={-1}>
        <Banner />
        <Boundary key={view}>{found ? <Lazy view={found} /> : <NoView />}</Boundary>
      </main>
      {palette.value ? <Palette /> : null}
      <QuestionDialog />
      <div class="toasts" role="status" aria-live="polite">
        {toasts.value.map(({ id, text, tone }) => (
          <div key={id} class={`toast ${tone}`}>
            {text}
          </div>
        ))}
      </div>
    </div>
  );
}

function ConnectionNote() {
  const isOpen = state.value.kind === "open";
  const degraded = health.value?.degraded?.length ?? 0;
  const text = !isOpen ? "reconnecting" : degraded ? `${degraded} problem${degraded > 1 ? "s" : ""}` : "connected";
  return (
    <p class="nav-note">
      <span class={`dot ${!isOpen ? "warn" : degraded ? "bad" : "ok"}`} />
      {text} · {hello.value?.server.version}
    </p>
  );
}

/** Shown only if the connection has been lost for two seconds. */
function Banner() {
  const current = state.value;
  const since = current.kind === "connecting" ? current.since : 0;
  const [isLate, setLate] = useState(false);
  useEffect(() => {
    setLate(false);
    if (!since) return;
    const timer = setTimeout(() => setLate(true), Math.max(0, since + 2_000 - Date.now()));
    return () => clearTimeout(timer);
  }, [since]);
  if (current.kind !== "connecting" || !isLate) return null;
  return (
    <div class="banner" role="status">
      Reconnecting. {current.why}
    </div>
  );
}

const loadedViews = new Map<string, ComponentType>();

function Lazy({ view }: { view: View }) {
  const [, setTurn] = useState(0);
  const [error, setError] = useState<unknown>(null);
  useEffect(() => {
    if (loadedViews.has(view.id)) return;
    view.load().then(
      (module) => {
        loadedViews.set(view.id, module.default);
        setTurn((turn) => turn + 1);
      },
      // A new version of the gateway has other file names.
      (failed: unknown) => setError(failed),
    );
  }, [view.id]);
  const Loaded = loadedViews.get(view.id);
  if (error)
    return (
      <div class="problem" role="alert">
        This view could not be loaded; the gateway may have been updated.
        <button type="button" onClick={() => location.reload()}>
          Reload the page
        </button>
      </div>
    );
  return Loaded ? <Loaded /> : <div class="loading" aria-label="Loading" />;
}

/** Keeps a failure in one view from ending the page. */
class Boundary extends Component<{ children: ComponentChildren }, { error: unknown }> {
  override state = { error: null as unknown };
  static override getDerivedStateFromError(error: unknown) {
    return { error };
  }
  override componentDidCatch(error: unknown) {
    console.error(error);
  }
  override render() {
    if (this.state.error === null) return this.props.children;
    return (
      <div class="problem" role="alert">
        This view failed: {messageOf(this.state.error)}
        <button type="button" onClick={() => this.setState({ error: null })}>
          Show it again
        </button>
      </div>
    );
  }
}

function NoView() {
  return (
    <div class="empty">
      <h1>There is no such view</h1>
      <a href={link("")}>Overview</a>
    </div>
  );
}

function Starting() {
  const current = state.value;
  const isLate = current.kind === "connecting" && now.value - current.since > 2_000;
  return (
    <main class="door" aria-busy="true">
      <h1>Homard</h1>
      <p>{isLate && current.kind === "connecting" ? `Cannot reach the gateway: ${current.why}. Trying again.` : "Connecting…"}</p>
    </main>
  );
}

function AskToken({ why }: { why: string | null }) {
  const field = useRef<HTMLInputElement>(null);
  return (
    <main class="door">
      <h1>Homard</h1>
      {why ? (
        <p class="problem" role="alert">
          {why}
        </p>
      ) : null}
      <p>
        On the gateway's machine, run <code>homard dashboard</code>: it opens this page with a link that is valid for one minute. Or enter the gateway's token. It is in the
        file <code>gateway-token</code> in the state directory:
      </p>
      <pre class="command" tabIndex={0}>cat ~/.homard/gateway-token</pre>
      <form
        onSubmit={(event) => {
          event.preventDefault();
          const token = field.current?.value.trim();
          if (token) useToken(token);
        }}
      >
        <label>
          Token or password
          <input ref={field} type="password" name="token" autocomplete="current-password" autofocus required />
        </label>
        <button type="submit" class="primary">
          Connect
        </button>
      </form>
    </main>
  );
}

function Pairing({ request }: { request: string }) {
  return (
    <main class="door">
      <h1>Homard</h1>
      <p role="status">This browser is not paired yet. Approve it in a browser that is, under Approvals, or on the gateway's machine:</p>
      <pre class="command" tabIndex={0}>{`homard gateway call device.pair.approve --params '{"requestId": "${request}"}'`}</pre>
      <p>This page continues by itself.</p>
      <button type="button" onClick={() => void signOut()}>
        Use another token
      </button>
    </main>
  );
}

function useGlobalKeys(): void {
  useEffect(() => {
    let isGo = false;
    const press = (event: KeyboardEvent) => {
      if ((event.ctrlKey || event.metaKey) && event.key.toLowerCase() === "k") {
        event.preventDefault();
        if (hello.peek()) palette.value = !palette.peek();
        return;
      }
      if (isTyping(event) || event.ctrlKey || event.metaKey || event.altKey) return;
      if (event.key === "/") {
        const search = document.querySelector<HTMLElement>("[data-search]");
        if (search) {
          event.preventDefault();
          search.focus();
        }
        return;
      }
      if (isGo) {
        isGo = false;
        const target = VIEWS.find(({ title }) => title[0]!.toLowerCase() === event.key);
        if (target) go(link(target.id));
        return;
      }
      isGo = event.key === "g";
    };
    addEventListener("keydown", press);
    return () => removeEventListener("keydown", press);
  }, []);
}
