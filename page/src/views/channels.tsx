// Channels: their accounts and what is undelivered, and the first steps to add one.
import { useState } from "preact/hooks";
import { setValue } from "../lib/config";
import { call, may } from "../lib/connection";
import { visible } from "../lib/format";
import { link } from "../lib/router";
import { act, Badge, confirmed, Dialog, Empty, Head, Problem, Time, useCall, useLoad } from "../lib/ui";

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
  undelivered?: { waiting: number; unknown: { id: string; to: string; queuedAt: number }[] };
}
interface Status {
  channelOrder: string[];
  channelLabels: Record<string, string>;
  channelAccounts: Record<string, Account[]>;
}

export default function Channels() {
  const { data, error, reload } = useLoad(() => call<Status>("channels.status"));
  const [probed, setProbed] = useState<Status | null>(null);
  const [isAdding, add] = useState(false);
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
          <button type="button" class="primary" onClick={() => add(true)}>
            Add Telegram
          </button>
        ) : null}
      </Head>
      {error ? <Problem error={error} retry={reload} /> : null}
      {shown && shown.channelOrder.length === 0 ? (
        <Empty title="No channels yet">
          {may("admin") ? "Add Telegram with the token of a bot" : "An administrator can add one"}; other channels are described in <code>homard docs channels</code>.
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
              {account.probe ? account.probe.ok ? <p>The platform answers: {visible(account.probe.bot?.username ?? account.probe.bot?.name ?? "ok")}.</p> : <Problem error={visible(account.probe.error ?? "no answer")} /> : null}
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
                {account.undelivered?.waiting ? `${account.undelivered.waiting} messages wait for delivery. ` : ""}
                {account.undelivered?.unknown.length ? `It is not known whether ${account.undelivered.unknown.length} messages were delivered.` : ""}
              </p>
              <div class="actions start">
                <button type="button" class="small" onClick={() => showLog(channel)}>
                  Log
                </button>
                <a class="button small" href={link("runs", "", { channel })}>
                  Runs
                </a>
                {may("admin") ? (
                  <button
                    type="button"
                    class="small danger"
                    onClick={async () => {
                      if (await confirmed("Log out of this account?", "Its credentials are removed from the configuration, and it disconnects.", "Log out")) void act(() => call("channels.logout", { channel, accountId: account.accountId }), "Logged out").then(reload);
                    }}
                  >
                    Log out
                  </button>
                ) : null}
              </div>
            </section>
          )),
        )}
      </div>
      {isAdding ? (
        <AddTelegram
          onClose={() => {
            add(false);
            reload();
          }}
        />
      ) : null}
      {logOf ? <ChannelLog channel={logOf} onClose={() => showLog(null)} /> : null}
    </section>
  );
}

function AddTelegram({ onClose }: { onClose: () => void }) {
  const [token, setToken] = useState("");
  return (
    <Dialog title="Add Telegram" onClose={onClose}>
      <p>
        Write <code>/newbot</code> to <a href="https://t.me/BotFather" target="_blank" rel="noopener noreferrer">@BotFather</a> in Telegram, and enter the token that it returns. It is stored in the configuration file.
      </p>
      <form
        onSubmit={async (event) => {
          event.preventDefault();
          if (await act(() => setValue(["channels", "telegram"], { enabled: true, botToken: token.trim() }), "Telegram was added")) onClose();
        }}
      >
        <label>
          Bot token
          <input type="password" autocomplete="off" required autofocus value={token} onInput={(event) => setToken(event.currentTarget.value)} />
        </label>
        <div class="actions">
          <button type="submit" class="primary">
            Add
          </button>
        </div>
      </form>
      <p class="muted small">People who write to the bot get a code; approve it under Approvals.</p>
    </Dialog>
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
