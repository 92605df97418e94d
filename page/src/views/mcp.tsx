// MCP: the configured servers.
import { useState } from "preact/hooks";
import { readConfig, setValue, valueAt } from "../lib/config";
import { may } from "../lib/connection";
import { visible } from "../lib/format";
import { act, Badge, confirmed, Dialog, Empty, Head, Problem, useLoad } from "../lib/ui";

interface Server {
  command?: string;
  args?: string[];
  url?: string;
  enabled?: boolean;
}

export default function Mcp() {
  const { data, error, reload } = useLoad(readConfig);
  const [isAdding, add] = useState(false);
  const servers = Object.entries((valueAt(data?.parsed, ["mcp", "servers"]) ?? {}) as Record<string, Server>);
  const isAdmin = may("admin");
  return (
    <section class="view" aria-label="MCP">
      <Head title="MCP servers">
        {isAdmin ? (
          <button type="button" class="primary" onClick={() => add(true)}>
            Add a server
          </button>
        ) : null}
      </Head>
      {error ? <Problem error={error} retry={reload} /> : null}
      {data && servers.length === 0 ? <Empty title="No MCP servers yet">A server gives agents further tools: a program that Homard starts, or an address.</Empty> : null}
      <ul class="rows">
        {servers.map(([name, server]) => (
          <li key={name}>
            <span class="grow">
              <strong>{visible(name)}</strong>
              <div class="mono muted small">{visible(server.url ?? [server.command, ...(server.args ?? [])].join(" "))}</div>
            </span>
            <Badge tone={server.enabled === false ? "quiet" : "ok"}>{server.enabled === false ? "disabled" : "enabled"}</Badge>
            {isAdmin ? (
              <>
                <button type="button" class="small" aria-label={`${server.enabled === false ? "Enable" : "Disable"} ${name}`} onClick={() => void act(() => setValue(["mcp", "servers", name, "enabled"], server.enabled === false)).then(reload)}>
                  {server.enabled === false ? "Enable" : "Disable"}
                </button>
                <button
                  type="button"
                  class="small danger"
                  aria-label={`Remove ${name}`}
                  onClick={async () => {
                    if (await confirmed("Remove this server?", `Agents lose the tools of ${name}.`, "Remove")) void act(() => setValue(["mcp", "servers", name], null), "Removed").then(reload);
                  }}
                >
                  Remove
                </button>
              </>
            ) : null}
          </li>
        ))}
      </ul>
      <p class="muted small">
        <code>homard mcp test NAME</code> connects to a server and lists its tools.
      </p>
      {isAdding ? (
        <AddServer
          onClose={() => {
            add(false);
            reload();
          }}
        />
      ) : null}
    </section>
  );
}

function AddServer({ onClose }: { onClose: () => void }) {
  const [name, setName] = useState("");
  const [target, setTarget] = useState("");
  const submit = () => {
    const words = target.trim().split(/\s+/);
    const server: Server = /^https?:\/\//.test(target.trim()) ? { url: target.trim() } : { command: words[0] ?? "", args: words.slice(1) };
    return setValue(["mcp", "servers", name.trim()], server);
  };
  return (
    <Dialog title="Add an MCP server" onClose={onClose}>
      <form
        onSubmit={async (event) => {
          event.preventDefault();
          if (await act(submit, "Added")) onClose();
        }}
      >
        <label>
          Name
          <input required autofocus pattern="[A-Za-z0-9_\-]+" value={name} onInput={(event) => setName(event.currentTarget.value)} />
        </label>
        <label>
          Command with arguments, or address
          <input required value={target} onInput={(event) => setTarget(event.currentTarget.value)} placeholder="npx -y @modelcontextprotocol/server-filesystem /data" />
        </label>
        <div class="actions">
          <button type="submit" class="primary">
            Add
          </button>
        </div>
      </form>
    </Dialog>
  );
}
