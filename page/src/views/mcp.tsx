// MCP: the configured servers, and whether they are connected.
import { useState } from "preact/hooks";
import { AddButton, FormDialog, RemoveButton, SwitchButton } from "../lib/actions";
import { readConfig, setValue, valueAt } from "../lib/config";
import { call, may } from "../lib/connection";
import { duration, visible } from "../lib/format";
import { Badge, Empty, Head, Problem, useLoad, type Tone } from "../lib/ui";

interface Server {
  command?: string;
  args?: string[];
  url?: string;
  enabled?: boolean;
}
/** A row of `mcp.status`. */
interface Connection {
  name: string;
  state: "starting" | "ready" | "down";
  server?: string;
  tools: string[];
  error?: string;
  retryMs?: number;
}

async function load() {
  const [config, live] = await Promise.all([readConfig(), call<{ servers: Connection[] }>("mcp.status")]);
  const servers = Object.entries((valueAt(config.parsed, ["mcp", "servers"]) ?? {}) as Record<string, Server>);
  return servers.map(([name, server]) => ({ name, server, connection: live.servers.find((one) => one.name === name) }));
}

const TONES: Record<Connection["state"], Tone> = { starting: "live", ready: "ok", down: "bad" };

export default function Mcp() {
  const { data, error, reload } = useLoad(load);
  const isAdmin = may("admin");
  return (
    <section class="view" aria-label="MCP">
      <Head title="MCP servers">
        <button type="button" onClick={reload}>
          Refresh
        </button>
        {isAdmin ? (
          <AddButton label="Add a server" after={reload}>
            {(close) => <AddServer onClose={close} />}
          </AddButton>
        ) : null}
      </Head>
      {error ? <Problem error={error} retry={reload} /> : null}
      {data && data.length === 0 ? <Empty title="No MCP servers yet">A server gives agents further tools: a program that Homard starts, or an address.</Empty> : null}
      <ul class="rows">
        {data?.map(({ name, server, connection }) => (
          <li key={name}>
            <span class="grow">
              <strong>{visible(name)}</strong> <span class="muted small">{visible(connection?.server ?? "")}</span>
              <div class="mono muted small">{visible(server.url ?? [server.command, ...(server.args ?? [])].join(" "))}</div>
              {connection?.error ? <div class="run-error">{visible(connection.error)}</div> : null}
              {connection?.retryMs ? <div class="muted small">tried again in {duration(connection.retryMs)}</div> : null}
              {connection?.tools.length ? <div class="muted small">Tools: {connection.tools.map(visible).join(", ")}</div> : null}
            </span>
            {server.enabled === false ? <Badge tone="quiet">disabled</Badge> : <Badge tone={connection ? TONES[connection.state] : "quiet"}>{connection?.state ?? "not started"}</Badge>}
            {isAdmin ? (
              <>
                <SwitchButton name={name} isOn={server.enabled !== false} change={(enabled) => setValue(["mcp", "servers", name, "enabled"], enabled)} after={reload} />
                <RemoveButton name={name} title="Remove this server?" text={`Agents lose the tools of ${name}.`} remove={() => setValue(["mcp", "servers", name], null)} after={reload} />
              </>
            ) : null}
          </li>
        ))}
      </ul>
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
    <FormDialog title="Add an MCP server" submit={submit} done="Added" onClose={onClose}>
      <label>
        Name
        <input required autofocus pattern="[A-Za-z0-9_\-]+" value={name} onInput={(event) => setName(event.currentTarget.value)} />
      </label>
      <label>
        Command with arguments, or address
        <input required value={target} onInput={(event) => setTarget(event.currentTarget.value)} placeholder="npx -y @modelcontextprotocol/server-filesystem /data" />
      </label>
    </FormDialog>
  );
}
