// Chat: the list of sessions and one conversation.
import { useEffect, useLayoutEffect, useMemo, useRef, useState } from "preact/hooks";
import { ApprovalCard, useApprovals } from "../lib/approval";
import { call, hello, may, on, onOpen } from "../lib/connection";
import { ago, compact, cost, sessionName, visible } from "../lib/format";
import { Markdown } from "../lib/markdown";
import { go, link, route } from "../lib/router";
import { act, Badge, Empty, Head, Icon, now, Problem, Search, Time, useCall, useLoad } from "../lib/ui";
import { Composer, Picture, type ModelChoice, type SlashCommand } from "./composer";
import { OpenSession, type SessionRow } from "./session";
import { ToolCard } from "./tool";
import { blocksOf, liveToolView, runOf, textOf, toolViews, visibleParts, type AnsweredCommand, type LiveRun, type PendingMessage, type StoredMessage, type ToolView, type Transcript } from "./transcript";

const MAX_SESSIONS = 300;

export default function Chat() {
  const key = route.value.arg || hello.value?.snapshot.sessionDefaults.mainSessionKey || "agent:main:main";
  const [isListOpen, openList] = useState(false);
  useEffect(() => openList(false), [key]);
  return (
    <div class={`chat ${isListOpen ? "list-open" : ""}`}>
      <SessionList current={key} />
      <Conversation key={key} sessionKey={key} onSessions={() => openList(!isListOpen)} isListOpen={isListOpen} />
    </div>
  );
}

function SessionList({ current }: { current: string }) {
  const [query, setQuery] = useState("");
  const { data, error, reload } = useLoad(() => call<{ sessions: SessionRow[] }>("sessions.list", { limit: MAX_SESSIONS, ...(query ? { search: query } : {}) }), [query]);
  useEffect(() => {
    // Subscribed by the open conversation, too; the gateway counts a connection once.
    const stops = [onOpen(() => void call("sessions.subscribe").catch((failed: unknown) => console.warn(failed))), on("sessions.changed", reload)];
    return () => stops.forEach((stop) => stop());
  }, [query]);
  const sessions = data?.sessions ?? [];
  const create = () =>
    act(async () => {
      const made = await call<{ key: string }>("sessions.create", {});
      go(link("chat", made.key));
    });
  return (
    <aside class="sessions" aria-label="Sessions">
      <div class="sessions-head">
        <Search value={query} onInput={setQuery} label="Search sessions" />
        {may("write") ? (
          <button type="button" onClick={() => void create()}>
            New
          </button>
        ) : null}
      </div>
      {error ? <Problem error={error} retry={reload} /> : null}
      <ul class="session-rows">
        {sessions.map((row) => (
          <li key={row.key}>
            <a href={link("chat", row.key)} aria-current={row.key === current ? "page" : undefined}>
              <span class="session-name">{visible(row.label ?? row.displayName ?? sessionName(row.key))}</span>
              <span class="session-note">
                {row.hasActiveRun ? <Badge tone="live">running</Badge> : row.updatedAt ? ago(row.updatedAt, now.value) : ""}
              </span>
            </a>
          </li>
        ))}
      </ul>
      {data && sessions.length === 0 ? <p class="muted small pad">{query ? "No session matches." : "No sessions yet. Write a message to start one."}</p> : null}
    </aside>
  );
}

function Conversation({ sessionKey, onSessions, isListOpen }: { sessionKey: string; onSessions: () => void; isListOpen: boolean }) {
  const [session, setSession] = useState<OpenSession | null>(null);
  useEffect(() => {
    const opened = new OpenSession(sessionKey);
    setSession(opened);
    return () => opened.close();
  }, [sessionKey]);
  if (!session) return <section class="conversation" />;
  return <Open session={session} onSessions={onSessions} isListOpen={isListOpen} />;
}

function Open({ session, onSessions, isListOpen }: { session: OpenSession; onSessions: () => void; isListOpen: boolean }) {
  const version = session.version.value;
  const { data: metadata } = useCall<{ models: ModelChoice[]; commands: SlashCommand[] }>("chat.metadata", { sessionKey: session.key }, [session]);
  const approvals = useApprovals().filter(({ request }) => request.sessionKey === session.key);
  const scroll = useRef<HTMLDivElement>(null);
  const isAtEnd = useRef(true);
  const [isAway, setAway] = useState(false);
  const { transcript } = session;
  const isBusy = session.isBusy;
  const info = session.info.value;
  const rows = useMemo(() => rowsOf(transcript), [version, session]);
  // The end stays visible while the reader is there; what is read does not move otherwise.
  useLayoutEffect(() => {
    const element = scroll.current;
    if (element && isAtEnd.current) element.scrollTop = element.scrollHeight;
  }, [version, approvals.length]);
  useEffect(() => {
    const element = scroll.current;
    if (!element) return;
    const observer = new ResizeObserver(() => {
      if (isAtEnd.current) element.scrollTop = element.scrollHeight;
    });
    observer.observe(element);
    if (element.firstElementChild) observer.observe(element.firstElementChild);
    return () => observer.disconnect();
  }, []);
  useEffect(() => {
    const press = (event: KeyboardEvent) => {
      if (event.key === "Escape" && !event.defaultPrevented && session.isBusy && may("write") && !document.querySelector("dialog[open]")) {
        void act(() => session.stop(), "Stopped");
      }
    };
    addEventListener("keydown", press);
    return () => removeEventListener("keydown", press);
  }, [session]);
  const readEarlier = async () => {
    const element = scroll.current;
    const before = element ? element.scrollHeight - element.scrollTop : 0;
    await session.readEarlier();
    requestAnimationFrame(() => {
      if (element) element.scrollTop = element.scrollHeight - before;
    });
  };
  const used = info?.totalTokens && info.contextTokens ? Math.round((info.totalTokens / info.contextTokens) * 100) : null;
  return (
    <section class="conversation" aria-label="Conversation">
      <Head title={visible(info?.label ?? info?.displayName ?? sessionName(session.key))}>
        {used !== null ? (
          <span class="muted small" title={`${compact(info?.totalTokens ?? 0)} of ${compact(info?.contextTokens ?? 0)} tokens`}>
            context {used} %
          </span>
        ) : null}
        <a class="button small" href={link("runs", "", { session: session.key })}>
          Runs
        </a>
        <button type="button" class="small only-narrow" aria-expanded={isListOpen} onClick={onSessions}>
          Sessions
        </button>
      </Head>
      <div
        ref={scroll}
        class="messages"
        tabIndex={0}
        role="log"
        aria-label="Messages"
        aria-live="off"
        onScroll={(event) => {
          const element = event.currentTarget;
          isAtEnd.current = element.scrollTop + element.clientHeight >= element.scrollHeight - 40;
          setAway(!isAtEnd.current);
          if (element.scrollTop < 400 && session.hasMore.peek()) void readEarlier();
        }}
      >
        <div class="messages-inner">
          {session.error.value ? <Problem error={session.error.value} retry={() => void session.read()} /> : null}
          {session.hasMore.value ? (
            <button type="button" class="small center" onClick={() => void readEarlier()}>
              Earlier messages
            </button>
          ) : null}
          {session.isLoaded.value && rows.length === 0 && !isBusy && approvals.length === 0 ? (
            <Empty title="No messages yet">
              Write a message below. <code>/</code> shows the commands.
            </Empty>
          ) : null}
          {rows.map((row) => (
            <Row key={row.key} row={row} session={session} />
          ))}
          {approvals.map((approval) => (
            <ApprovalCard key={approval.id} approval={approval} />
          ))}
        </div>
      </div>
      {isAway ? (
        <button
          type="button"
          class="to-end"
          onClick={() => {
            const element = scroll.current;
            if (element) element.scrollTop = element.scrollHeight;
          }}
        >
          Newest messages
        </button>
      ) : null}
      <div class="visually-hidden" role="status" aria-live="polite">
        {isBusy ? "The agent is working" : ""}
      </div>
      <Composer session={session} models={metadata?.models ?? []} commands={metadata?.commands ?? []} isBusy={isBusy} />
    </section>
  );
}

type RowItem =
  | { key: string; kind: "message"; message: StoredMessage; tools: Map<string, ToolView>; signature: string }
  | { key: string; kind: "live"; run: LiveRun; parts: ReturnType<typeof visibleParts>; tools: Map<string, ToolView> }
  | { key: string; kind: "pending"; pending: PendingMessage }
  | { key: string; kind: "command"; command: AnsweredCommand }
  | { key: string; kind: "failure"; runId: string; text: string; at: number };

function rowsOf(transcript: Transcript): RowItem[] {
  const view = toolViews(transcript);
  const rows: RowItem[] = [];
  const explained = new Set<string>();
  transcript.messages.forEach((message, at) => {
    if (message.role === "toolResult") return;
    if (message.errorMessage || message.stopReason === "error") explained.add(runOf(message) ?? "");
    const tools = new Map<string, ToolView>();
    for (const block of blocksOf(message)) if (block.type === "toolCall") tools.set(block.id, view(block, message));
    const signature = [...tools.values()].map((tool) => `${tool.id}${tool.isRunning}${tool.ms}${tool.output?.length ?? ""}${outputLength(tool)}`).join();
    rows.push({ key: message.__openclaw?.id ?? `at-${at}`, kind: "message", message, tools, signature });
  });
  // Between the stored messages, by time.
  for (const command of transcript.commands) {
    const after = rows.findLastIndex((row) => row.kind === "command" || (row.kind === "message" && (row.message.timestamp ?? 0) <= command.at));
    rows.splice(after + 1, 0, { key: `command-${command.runId}`, kind: "command", command });
  }
  for (const [runId, { text, at }] of transcript.failures) if (!explained.has(runId)) rows.push({ key: `failure-${runId}`, kind: "failure", runId, text, at });
  for (const run of transcript.live.values()) {
    if (run.isQueued) continue;
    const parts = visibleParts(transcript, run);
    if (transcript.ended.has(run.runId) && parts.length === 0) continue;
    rows.push({ key: `live-${run.runId}`, kind: "live", run: { ...run, activity: transcript.ended.has(run.runId) ? "" : run.activity }, parts, tools: new Map([...transcript.tools].map(([id, tool]) => [id, liveToolView(tool)])) });
  }
  for (const pending of transcript.pending) rows.push({ key: `pending-${pending.runId}`, kind: "pending", pending });
  return rows;
}

const outputLength = (tool: ToolView) => (tool.output ?? []).reduce((sum, block) => sum + (block.type === "text" ? block.text.length : 1), 0);

function Row({ row, session }: { row: RowItem; session: OpenSession }) {
  switch (row.kind) {
    case "message":
      return <Message key={row.key} message={row.message} tools={row.tools} signature={row.signature} />;
    case "live":
      return <Live run={row.run} parts={row.parts} tools={row.tools} />;
    case "pending":
      return <Pending pending={row.pending} session={session} />;
    case "command":
      return (
        <div class="message command-reply">
          <article class="message user" aria-label="You">
            <div class="bubble">
              <p class="user-text">{visible(row.command.text)}</p>
            </div>
          </article>
          <article class="message assistant" aria-label="Reply to the command">
            <Markdown text={row.command.reply} />
            <MetaLine at={row.command.at} note="not part of the conversation" />
          </article>
        </div>
      );
    case "failure":
      return (
        <div class="message problem-message">
          <Problem error={row.text} />
          <MetaLine at={row.at} runId={row.runId} />
        </div>
      );
  }
}

function Message({ message, tools, signature }: { message: StoredMessage; tools: Map<string, ToolView>; signature: string }) {
  // A stored message never changes; only its tool calls do.
  return useMemo(() => {
    const role = message.role;
    if (role === "user") {
      return (
        <article class="message user" aria-label="You">
          <div class="bubble">
            {blocksOf(message).map((block, at) =>
              block.type === "text" ? (
                <p key={at} class="user-text" dir="auto">
                  {visible(block.text)}
                </p>
              ) : block.type === "image" ? (
                block.data ? (
                  <Picture key={at} mimeType={block.mimeType ?? ""} data={block.data} name="attached image" />
                ) : (
                  <span key={at} class="image-note">
                    image {block.mimeType ?? ""}
                  </span>
                )
              ) : null,
            )}
          </div>
          <MetaLine at={message.timestamp} runId={runOf(message)} note={message.steeredInto ? "steered into the run" : undefined} />
        </article>
      );
    }
    if (role === "assistant") {
      const isEmpty = blocksOf(message).length === 0 && !message.errorMessage;
      if (isEmpty) return null;
      const usage = message.usage;
      return (
        <article class="message assistant" aria-label="Agent">
          {blocksOf(message).map((block, at) => {
            if (block.type === "text") return <Markdown key={at} text={block.text} />;
            if (block.type === "thinking") return <Thinking key={at} text={block.thinking} />;
            if (block.type === "toolCall") {
              const tool = tools.get(block.id);
              return tool ? <ToolCard key={block.id} tool={tool} /> : null;
            }
            return (
              <span key={at} class="image-note">
                image {block.mimeType ?? ""}
              </span>
            );
          })}
          {message.errorMessage ? <Problem error={message.stopReason === "aborted" ? "Stopped" : message.errorMessage} /> : null}
          {message.stopReason !== "toolUse" ? (
            <MetaLine
              at={message.timestamp}
              runId={runOf(message)}
              note={usage && usage.totalTokens > 0 ? `${message.provider ?? ""}/${message.model ?? ""} · ${compact(usage.totalTokens)} tokens${usage.cost?.total ? ` · ${cost(usage.cost.total)}` : ""}` : undefined}
            />
          ) : null}
        </article>
      );
    }
    return (
      <details class="message system">
        <summary>{role === "compactionSummary" || message.__openclaw?.kind === "compaction" ? "The history before was compacted" : role}</summary>
        <Markdown text={message.summary ?? textOf(message)} />
      </details>
    );
  }, [message, signature]);
}

function Thinking({ text, isOpen = false }: { text: string; isOpen?: boolean }) {
  return (
    <details class="thinking" open={isOpen}>
      <summary>
        <Icon name="arrow" /> Reasoning <span class="muted">{compact(text.length)} characters</span>
      </summary>
      <p class="thinking-text" dir="auto">
        {visible(text)}
      </p>
    </details>
  );
}

function Live({ run, parts, tools }: { run: LiveRun; parts: ReturnType<typeof visibleParts>; tools: Map<string, ToolView> }) {
  return (
    <article class="message assistant live" aria-label="Agent, working" aria-busy="true">
      {parts.map((part, at) => {
        if (part.kind === "text") return <Markdown key={at} text={part.text} />;
        if (part.kind === "thinking") return <Thinking key={at} text={part.text} />;
        if (part.kind === "note")
          return (
            <p key={at} class="note">
              {visible(part.text)}
            </p>
          );
        const tool = tools.get(part.call);
        return tool ? <ToolCard key={part.call} tool={tool} /> : null;
      })}
      {run.activity ? (
        <p class="activity">
          <span class="pulse" aria-hidden="true" /> {run.activity} · <Elapsed since={run.startedAt} /> ·{" "}
          <a href={link("runs", run.runId)}>run</a>
        </p>
      ) : null}
    </article>
  );
}

function Elapsed({ since }: { since: number }) {
  const [seconds, setSeconds] = useState(0);
  useEffect(() => {
    const tick = () => setSeconds(Math.max(0, Math.floor((Date.now() - since) / 1_000)));
    tick();
    const timer = setInterval(tick, 1_000);
    return () => clearInterval(timer);
  }, [since]);
  return <span class="num">{seconds} s</span>;
}

const STATES: Record<PendingMessage["state"], string> = { sending: "sending", sent: "sent", queued: "queued", steered: "steered into the run", failed: "not sent" };

function Pending({ pending, session }: { pending: PendingMessage; session: OpenSession }) {
  return (
    <article class={`message user pending ${pending.state}`} aria-label="You, not stored yet">
      <div class="bubble">
        {pending.images.map((image, at) => {
          const [mimeType = "", data = ""] = image.split(";");
          return <Picture key={at} mimeType={mimeType} data={data} name="attached image" />;
        })}
        <p class="user-text" dir="auto">
          {visible(pending.text)}
        </p>
      </div>
      <p class="meta">
        {STATES[pending.state]}
        {pending.state === "queued" && pending.position !== null ? ` at position ${pending.position}` : ""}
        {pending.error ? `: ${pending.error}` : ""} · <a href={link("runs", pending.runId)}>run</a>
        {pending.state === "failed" ? (
          <button type="button" class="ghost small" onClick={() => session.discard(pending.runId)}>
            Dismiss
          </button>
        ) : null}
      </p>
    </article>
  );
}

function MetaLine({ at, runId, note }: { at?: number | undefined; runId?: string | undefined; note?: string | undefined }) {
  return (
    <p class="meta">
      {at ? <Time at={at} /> : null}
      {note ? <span> · {note}</span> : null}
      {runId ? (
        <>
          {" · "}
          <a href={link("runs", runId)} title="What this run did">
            run
          </a>
        </>
      ) : null}
    </p>
  );
}
