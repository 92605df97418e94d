// The command palette: views, sessions, runs by id, and actions.
import { signal } from "@preact/signals";
import { useEffect, useLayoutEffect, useRef, useState } from "preact/hooks";
import { setTheme, VIEWS } from "./app";
import { call, may, signOut } from "./lib/connection";
import { sessionName } from "./lib/format";
import { go, link } from "./lib/router";

export const palette = signal(false);

interface Command {
  title: string;
  hint: string;
  run: () => void;
}

/** Words of the query in any order; a match at the start comes first. */
export function rank(title: string, query: string): number {
  const text = title.toLowerCase();
  const words = query.toLowerCase().split(/\s+/).filter(Boolean);
  if (!words.every((word) => text.includes(word))) return -1;
  return text.startsWith(words[0] ?? "") ? 2 : 1;
}

export function Palette() {
  const dialog = useRef<HTMLDialogElement>(null);
  const [query, setQuery] = useState("");
  const [selected, select] = useState(0);
  const [sessions, setSessions] = useState<string[]>([]);
  // Before the next key arrives.
  useLayoutEffect(() => dialog.current?.showModal(), []);
  useEffect(() => {
    if (may("read")) {
      call<{ sessions: { key: string }[] }>("sessions.list", { limit: 200 }).then(
        ({ sessions }) => setSessions(sessions.map(({ key }) => key)),
        (error: unknown) => console.warn("no sessions in the palette", error),
      );
    }
  }, []);
  const all: Command[] = [
    ...VIEWS.map(({ id, title }) => ({ title, hint: "view", run: () => go(link(id)) })),
    ...sessions.map((key) => ({ title: sessionName(key), hint: "chat", run: () => go(link("chat", key)) })),
    { title: "Last run", hint: "run", run: () => go(link("runs", "last")) },
    { title: "Failed runs", hint: "runs", run: () => go(link("runs", "", { status: "error" })) },
    ...(["light", "dark", "system"] as const).map((name) => ({ title: `Theme: ${name}`, hint: "action", run: () => setTheme(name) })),
    { title: "Sign out of this browser", hint: "action", run: () => void signOut() },
  ];
  const looksLikeId = /^[\w:.-]{8,}$/.test(query) ? [{ title: `Open run ${query}`, hint: "run", run: () => go(link("runs", query)) }] : [];
  const found = all
    .map((command) => ({ command, rank: rank(command.title, query) }))
    .filter(({ rank }) => rank >= 0)
    .sort((left, right) => right.rank - left.rank)
    .map(({ command }) => command)
    .slice(0, 40)
    .concat(looksLikeId);
  const at = Math.min(selected, found.length - 1);
  const close = () => dialog.current?.close();
  const run = (command: Command | undefined) => {
    close();
    command?.run();
  };
  return (
    <dialog ref={dialog} class="palette" aria-label="Commands" onClose={() => (palette.value = false)} onClick={(event) => event.target === dialog.current && close()}>
      <input
        role="combobox"
        aria-expanded="true"
        aria-controls="palette-list"
        aria-activedescendant={at >= 0 ? `palette-${at}` : undefined}
        aria-label="Search views, sessions and actions"
        placeholder="Go to…"
        autofocus
        value={query}
        onInput={(event) => {
          setQuery(event.currentTarget.value);
          select(0);
        }}
        onKeyDown={(event) => {
          if (event.key === "ArrowDown") select(Math.min(found.length - 1, at + 1));
          else if (event.key === "ArrowUp") select(Math.max(0, at - 1));
          else if (event.key === "Enter") run(found[at]);
          else return;
          event.preventDefault();
        }}
      />
      <ul id="palette-list" role="listbox" aria-label="Commands">
        {found.map((command, index) => (
          <li
            key={index}
            id={`palette-${index}`}
            role="option"
            aria-selected={index === at}
            onClick={() => run(command)}
            ref={(element) => {
              if (index === at) element?.scrollIntoView({ block: "nearest" });
            }}
          >
            {command.title}
            <span class="hint">{command.hint}</span>
          </li>
        ))}
      </ul>
      {found.length === 0 ? <p class="hint none">Nothing found</p> : null}
    </dialog>
  );
}
