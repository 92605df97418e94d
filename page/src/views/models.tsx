// Models: which are configured, with which credentials, and whether they can be used now.
import { call } from "../lib/connection";
import { compact, visible } from "../lib/format";
import { link } from "../lib/router";
import { Badge, Empty, Head, Problem, Time, useLoad } from "../lib/ui";

interface Model {
  id: string;
  name: string;
  provider: string;
  alias?: string;
  contextWindow?: number;
  reasoning?: boolean;
  input?: string[];
  available?: boolean;
  unavailableReason?: string;
  unavailableUntil?: number;
}
interface Provider {
  provider: string;
  displayName: string;
  status: string;
  profiles: { profileId?: string; id?: string; type?: string; status?: string; expiresAt?: number; cooldownUntil?: number }[];
}
interface Agent {
  id: string;
  name?: string;
  model?: { primary?: string; fallbacks?: string[] };
}

export default function Models() {
  const { data, error, reload } = useLoad(async () => {
    const [models, auth, agents] = await Promise.all([call<{ models: Model[] }>("models.list"), call<{ providers: Provider[] }>("models.authStatus"), call<{ agents: Agent[] }>("agents.list")]);
    return { models: models.models, providers: auth.providers, agents: agents.agents };
  });
  return (
    <section class="view" aria-label="Models">
      <Head title="Models">
        <a class="button" href={link("settings", "", { search: "model" })}>
          Change
        </a>
      </Head>
      {error ? <Problem error={error} retry={reload} /> : null}
      {data && data.models.every(({ provider }) => provider === "homard") ? (
        <Empty title="Only the built-in demo model is configured">
          Add a key with <code>homard models auth add anthropic</code> and choose a model with <code>homard config set agents.defaults.model.primary</code>.
        </Empty>
      ) : null}
      {data ? (
        <>
          <section>
            <h2>Agents</h2>
            <ul class="rows">
              {data.agents.map((agent) => (
                <li key={agent.id}>
                  <strong>{visible(agent.name ?? agent.id)}</strong>
                  <span class="grow">
                    {agent.model?.primary ?? "homard/demo"}
                    {agent.model?.fallbacks?.length ? <span class="muted"> then {agent.model.fallbacks.join(", ")}</span> : null}
                  </span>
                </li>
              ))}
            </ul>
          </section>
          <section>
            <h2>Models</h2>
            <table class="table">
              <thead>
                <tr>
                  <th scope="col">Model</th>
                  <th scope="col" class="num">
                    Context
                  </th>
                  <th scope="col" class="narrow-hide">
                    Input
                  </th>
                  <th scope="col">Status</th>
                </tr>
              </thead>
              <tbody>
                {data.models.map((model) => (
                  <tr key={`${model.provider}/${model.id}`}>
                    <th scope="row">
                      {model.provider}/{model.id} {model.alias ? <span class="muted">{model.alias}</span> : null} {model.reasoning ? <Badge tone="quiet">reasoning</Badge> : null}
                    </th>
                    <td class="num">{model.contextWindow ? compact(model.contextWindow) : ""}</td>
                    <td class="narrow-hide">{(model.input ?? []).join(", ")}</td>
                    <td>
                      <Badge tone={model.available === false ? "bad" : "ok"}>{model.available === false ? (model.unavailableReason ?? "unavailable") : "available"}</Badge> {model.unavailableUntil ? <Time at={model.unavailableUntil} relative /> : null}
                    </td>
                  </tr>
                ))}
              </tbody>
            </table>
          </section>
          <section>
            <h2>Credentials</h2>
            <ul class="rows">
              {data.providers.map((provider) => (
                <li key={provider.provider}>
                  <strong>{provider.displayName}</strong>
                  <span class="grow">{provider.profiles.map((profile) => profile.profileId ?? profile.id).join(", ")}</span>
                  <Badge tone={provider.status === "missing" || provider.status === "expired" ? "bad" : provider.status === "cooldown" ? "warn" : "ok"}>{provider.status === "static" ? "configured" : provider.status}</Badge>
                </li>
              ))}
            </ul>
          </section>
        </>
      ) : null}
    </section>
  );
}
