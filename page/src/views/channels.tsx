// Channels: their accounts and what is undelivered, and the first steps to add one.
import { useState } from "preact/hooks";
import { AddButton, FormDialog, RemoveButton } from "../lib/actions";
import { setValue } from "../lib/config";
import { call, may } from "../lib/connection";
import { visible } from "../lib/format";
import { NotDelivered, type Outbox } from "../lib/outbox";
import { link } from "../lib/router";
import { act, Badge, Dialog, Empty, Head, Problem, Time, useCall, useLoad } from "../lib/ui";

interface Account {
  accountId: string;
  name?: string;
  enabled?: boolean;
  configured?: boolean;
  running?: boolean;
  connected?: boolean;
  lastError?: string | null;
  lastInboundAt?: number | null;
  lastOutboundAt?: number | null;
  probe?: { ok: boolean; error?: string; bot?: { username?: string; name?: string }; hints?: string[] };
  outbox?: Outbox;
}
interface Status {
  channelOrder: string[];
  channelLabels: Record<string, string>;
  channelAccounts: Record<string, Account[]>;
}

export default function Channels() {
  const { data, error, reload } = useLoad(() => call<Status>("channels.status"));
  const [probed, setProbed] = useState<Status | null>(null);
  const [logOf, showLog] = useState<string | null>(null);
  const shown = probed ?? data;
  const probe = () =>
    act(async () => {
      setProbed(await call<Status>("channels.status", { probe: true, timeoutMs: 8_000 }));
    });
  return (
    <section class="view" aria-label="Channels">
      <Head title="Channels">
        {shown?.channelOrder.length ? (
          <button type="button" onClick={() => void probe()}>
            Test
          </button>
        ) : null}
        {may("admin") ? (
          <>
            <AddButton label="Add Telegram" after={reload}>
              {(close) => <AddTelegram onClose={close} />}
            </AddButton>
            <AddButton label="Add a webhook" after={reload}>
              {(close) => <AddWebhook onClose={close} />}
            </AddButton>
          </>
        ) : null}
      </Head>
      {error ? <Problem error={error} retry={reload} /> : null}
      {shown && shown.channelOrder.length === 0 ? (
        <Empty title="No channels yet">
          {may("admin") ? "Add Telegram with the token of a bot, or a webhook for a program of your own." : "An administrator can add one."}
        </Empty>
      ) : null}
      <div class="grid">
        {shown?.channelOrder.flatMap((channel) =>
          (shown.channelAccounts[channel] ?? []).map((account) => (
            <section class="card" key={`${channel}/${account.accountId}`}>
              <h2>
                {shown.channelLabels[channel] ?? channel} <span class="muted small">{account.name ?? account.accountId}</span>
                <Badge tone={account.connected ? "ok" : account.lastError ? "bad" : account.running ? "live" : "quiet"}>{account.connected ? "connected" : account.running ? "connecting" : account.configured ? "stopped" : "not configured"}</Badge>
              </h2>
              {account.lastError ? <Problem error={visible(account.lastError)} /> : null}
              {account.probe ? <Probed channel={channel} probe={account.probe} /> : null}
              {account.probe?.hints?.map((hint) => (
                <p class="note" key={hint}>
                  {hint}
                </p>
              ))}
              <p class="muted small">
                {account.lastInboundAt ? (
                  <>
                    received <Time at={account.lastInboundAt} relative />{" "}
                  </>
                ) : null}
                {account.outbox?.waiting ? `${account.outbox.waiting} messages wait for delivery. ` : ""}
              </p>
              {account.outbox ? <NotDelivered outbox={account.outbox} /> : null}
              <div class="actions start">
                <button type="button" class="small" onClick={() => showLog(channel)}>
                  Log
                </button>
                <a class="button small" href={link("runs", "", { channel })}>
                  Runs
                </a>
                {may("admin") ? (
                  <RemoveButton action="Log out" done="Logged out" name={account.accountId} title="Log out of this account?" text="Its credentials are removed from the configuration, and it disconnects." remove={() => call("channels.logout", { channel, accountId: account.accountId })} after={reload} />
                ) : null}
              </div>
            </section>
          )),
        )}
      </div>
      {logOf ? <ChannelLog channel={logOf} onClose={() => showLog(null)} /> : null}
    </section>
  );
}

type Probe = NonNullable<Account["probe"]>;

/** The answer of the platform, with the address under which people find the bot. */
function Probed({ channel, probe }: { channel: string; probe: Probe }) {
  if (!probe.ok) return <Problem error={visible(probe.error ?? "no answer")} />;
  const name = probe.bot?.username;
  const isLinked = channel === "telegram" && name !== undefined && /^\w+$/.test(name);
  return (
    <p>
      The platform answers: {visible(name ?? probe.bot?.name ?? "ok")}.{" "}
      {isLinked ? (
        <a href={`https://t.me/${name}`} target="_blank" rel="noopener noreferrer">
          Open the chat with the bot
        </a>
      ) : null}
    </p>
  );
}

function AddTelegram({ onClose }: { onClose: () => void }) {
  const [token, setToken] = useState("");
  const submit = () => setValue(["channels", "telegram"], { enabled: true, botToken: token.trim() });
  const intro = (
    <p>
      Write <code>/newbot</code> to <a href="https://t.me/BotFather" target="_blank" rel="noopener noreferrer">@BotFather</a> in Telegram, and enter the token that it returns. It is stored in the configuration file.
    </p>
  );
  return (
    <FormDialog title="Add Telegram" submit={submit} done="Telegram was added" onClose={onClose} intro={intro} outro={<p class="muted small">People who write to the bot get a code; approve it under Approvals.</p>}>
      <label>
        Bot token
        <input type="password" autocomplete="off" required autofocus value={token} onInput={(event) => setToken(event.currentTarget.value)} />
      </label>
    </FormDialog>
  );
}

/** A secret for signatures, as long as a key of HMAC-SHA256. */
function newSecret(): string {
  return Array.from(crypto.getRandomValues(new Uint8Array(32)), (byte) => byte.toString(16).padStart(2, "0")).join("");
}

function AddWebhook({ onClose }: { onClose: () => void }) {
  const [name, setName] = useState("");
  const [secret, setSecret] = useState(newSecret);
  const [url, setUrl] = useState("");
  const submit = () => setValue(["channels", "webhook", "accounts", name.trim()], { secret, ...(url.trim() ? { url: url.trim() } : {}) });
  const intro = <p>A program sends messages to this gateway by HTTP, and gets the replies at its own address. Both directions are signed with the secret.</p>;
  return (
    <FormDialog title="Add a webhook" submit={submit} done="The webhook was added" onClose={onClose} intro={intro} outro={<p class="muted small">It is reached at <code>/channels/webhook/{visible(name.trim() || "NAME")}</code>.</p>}>
      <label>
        Name
        <input required autofocus pattern="[a-z0-9_\-]+" value={name} onInput={(event) => setName(event.currentTarget.value)} />
      </label>
      <label>
        Secret
        <input required minLength={16} class="mono" value={secret} onInput={(event) => setSecret(event.currentTarget.value)} />
      </label>
      <label>
        Address for replies (optional)
        <input type="url" placeholder="https://" value={url} onInput={(event) => setUrl(event.currentTarget.value)} />
      </label>
    </FormDialog>
  );
}

function ChannelLog({ channel, onClose }: { channel: string; onClose: () => void }) {
  const { data, error } = useCall<{ lines: { ts: number; accountId: string; text: string }[] }>("channels.logs", { channel }, [channel]);
  return (
    <Dialog title={`What happened on ${channel}`} onClose={onClose} wide>
      {error ? <Problem error={error} /> : null}
      {data?.lines.length === 0 ? <p class="muted">Nothing was recorded since the gateway started.</p> : null}
      <ul class="rows">
        {data?.lines.map((line, at) => (
          <li key={at}>
            <Time at={line.ts} />
            <span class="grow">{visible(line.text)}</span>
          </li>
        ))}
      </ul>
    </Dialog>
  );
}
