// Sessions: the list, and one session with its compactions.
import { useState } from "preact/hooks";
import type { SessionRow } from "../chat/session";
import { blocksOf, textOf, type StoredMessage } from "../chat/transcript";
import { RemoveButton } from "../lib/actions";
import { call, may } from "../lib/connection";
import { compact, sessionName, visible } from "../lib/format";
import { go, link, route, setParams } from "../lib/router";
import { act, Badge, confirmed, Dialog, Empty, Head, Problem, Search, Time, useCall, useLoad, useRowKeys } from "../lib/ui";

const PAGE = 100;

export default function Sessions() {
  const search = route.value.params.get("search") ?? "";
  const archived = route.value.params.get("archived") === "1";
  const [limit, setLimit] = useState(PAGE);
  const { data, error, reload } = useLoad(() => call<{ sessions: SessionRow[]; totalCount?: number }>("sessions.list", { limit, ...(search ? { search } : {}), ...(archived ? { archived: true } : {}) }), [search, limit, archived]);
  const [opened, open] = useState<SessionRow | null>(null);
  const rows = data?.sessions ?? [];
  const [selected] = useRowKeys(rows.length, (at) => rows[at] && go(link("chat", rows[at].key)));
  return (
    <section class="view" aria-label="Sessions">
      <Head title="Sessions">
        <Search value={search} onInput={(search) => setParams({ search })} label="Search sessions" />
        <label class="check small">
          <input type="checkbox" checked={archived} onChange={(event) => setParams({ archived: event.currentTarget.checked ? "1" : undefined })} /> archived
        </label>
      </Head>
      {error ? <Problem error={error} retry={reload} /> : null}
      {data && rows.length === 0 ? (
        <Empty title={search || archived ? "No session matches" : "No sessions yet"}>{search || archived ? null : <a href={link("chat")}>Write a message to start one</a>}</Empty>
      ) : (
        <div class="table-box">
          <table class="table">
            <thead>
              <tr>
                <th scope="col">Session</th>
                <th scope="col" class="num">
                  Updated
                </th>
                <th scope="col" class="narrow-hide">
                  Model
                </th>
                <th scope="col" class="num narrow-hide">
                  Context
                </th>
                <th scope="col">
                  <span class="visually-hidden">Actions</span>
                </th>
              </tr>
            </thead>
            <tbody>
              {rows.map((row, at) => (
                <tr key={row.key} class={at === selected ? "selected" : undefined}>
                  <th scope="row">
                    <a href={link("chat", row.key)}>{visible(row.label ?? row.displayName ?? sessionName(row.key))}</a> {row.hasActiveRun ? <Badge tone="live">running</Badge> : null}
                    {row.label ? <div class="muted small">{visible(row.key)}</div> : null}
                  </th>
                  <td class="num">{row.updatedAt ? <Time at={row.updatedAt} relative /> : ""}</td>
                  <td class="narrow-hide">{row.model ? `${row.modelProvider}/${row.model}` : ""}</td>
                  <td class="num narrow-hide">{row.totalTokens ? `${compact(row.totalTokens)} of ${compact(row.contextTokens ?? 0)}` : ""}</td>
                  <td class="tools">
                    <button type="button" class="small" onClick={() => open(row)} aria-label={`Details of ${row.key}`}>
                      Details
                    </button>
                  </td>
                </tr>
              ))}
            </tbody>
          </table>
        </div>
      )}
      {rows.length === limit ? (
        <button type="button" class="center" onClick={() => setLimit(limit + PAGE)}>
          More
        </button>
      ) : null}
      {opened ? (
        <Details
          row={opened}
          onClose={() => {
            open(null);
            reload();
          }}
        />
      ) : null}
    </section>
  );
}

interface Compaction {
  id: string;
  timestamp?: number | string;
  at?: number;
  tokensBefore?: number;
  tokensAfter?: number;
  summary?: string;
  undone?: boolean;
  inEffect?: boolean;
}

function Details({ row, onClose }: { row: SessionRow; onClose: () => void }) {
  const { data, error, reload } = useCall<{ compactions: Compaction[] }>("sessions.compactions", { key: row.key }, [row.key]);
  const [label, setLabel] = useState(row.label ?? "");
  const isAdmin = may("admin");
  const compactions = data?.compactions ?? [];
  return (
    <Dialog title={sessionName(row.key)} onClose={onClose}>
      <p class="mono muted">{visible(row.key)}</p>
      <form
        class="setting-input"
        onSubmit={(event) => {
          event.preventDefault();
          void act(() => call("sessions.patch", { key: row.key, label: label || null }), "Renamed");
        }}
      >
        <label>
          Name
          <input value={label} disabled={!isAdmin} maxLength={200} onInput={(event) => setLabel(event.currentTarget.value)} />
        </label>
        {isAdmin ? <button type="submit">Rename</button> : null}
      </form>
      <h3>Compactions</h3>
      {error ? <Problem error={error} /> : null}
      {compactions.length === 0 ? <p class="muted">The history was not compacted.</p> : null}
      <ul class="rows">
        {compactions.map((compaction) => (
          <li key={compaction.id}>
            <span class="grow">
              {compact(compaction.tokensBefore ?? 0)} tokens before{compaction.tokensAfter ? `, ${compact(compaction.tokensAfter)} after` : ""} {compaction.undone ? <Badge tone="quiet">undone</Badge> : null}
            </span>
            {isAdmin && !compaction.undone ? (
              <button type="button" class="small" onClick={() => void act(() => call("sessions.compactions.undo", { key: row.key, id: compaction.id }), "Undone").then(reload)}>
                Undo
              </button>
            ) : null}
          </li>
        ))}
      </ul>
      <div class="actions">
        <button type="button" onClick={() => void act(() => exportSession(row.key))}>
          Export
        </button>
        {isAdmin ? (
          <>
            <button type="button" onClick={() => void act(() => call("sessions.compact", { key: row.key }, 180_000), "Compacted").then(reload)}>
              Compact
            </button>
            <button
              type="button"
              onClick={async () => {
                if ((await confirmed("Reset this session?", "A new transcript begins. The old one stays on disk.", "Reset")) && (await act(() => call("sessions.reset", { key: row.key }), "Reset"))) onClose();
              }}
            >
              Reset
            </button>
            <RemoveButton action="Delete" done="Deleted" name="" isLarge title="Delete this session?" text="It is removed from the list together with its transcript." remove={() => call("sessions.delete", { key: row.key, deleteTranscript: true })} after={onClose} />
          </>
        ) : null}
      </div>
    </Dialog>
  );
}

/** Saves the conversation as Markdown. */
async function exportSession(key: string): Promise<void> {
  const messages: StoredMessage[] = [];
  for (;;) {
    const page = await call<{ messages: StoredMessage[]; hasMore?: boolean }>("chat.history", { sessionKey: key, limit: 1_000, offset: messages.length });
    messages.unshift(...page.messages);
    if (!page.hasMore || page.messages.length === 0) break;
  }
  const parts = messages.map((message) => {
    const calls = blocksOf(message).flatMap((block) => (block.type === "toolCall" ? [`\`${block.name}\` ${JSON.stringify(block.arguments)}`] : []));
    const at = message.timestamp ? new Date(message.timestamp).toISOString() : "";
    return [`### ${message.role} ${at}`, textOf(message), ...calls].filter(Boolean).join("\n\n");
  });
  const address = URL.createObjectURL(new Blob([`# ${key}\n\n${parts.join("\n\n")}\n`], { type: "text/markdown" }));
  const anchor = document.createElement("a");
  anchor.href = address;
  anchor.download = `${key.replace(/[^\w.-]+/g, "-")}.md`;
  anchor.click();
  setTimeout(() => URL.revokeObjectURL(address), 10_000);
}
