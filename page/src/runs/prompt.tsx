// What a model received in one request, and how that differs from the request before.
import { EditDiff, LongText } from "../chat/tool";
import { count, visible } from "../lib/format";
import { link } from "../lib/router";
import { Badge, messageOf, Problem, useCall } from "../lib/ui";
type Change = "same" | "added" | "changed" | "removed";

interface Section {
  name: string;
  chars: number;
  text: string;
  change?: Change;
  previousText?: string;
}

interface ToolDefinition {
  name: string;
  description: string;
  parameters: unknown;
  change?: Change;
  previous?: ToolDefinition;
}

interface SentMessage {
  name: string;
  chars: number;
  text: string;
  at: number;
  isNew: boolean;
}

interface RequestHead {
  runId: string;
  request: number;
  at: number;
  provider: string;
  model: string;
  tokens: number;
  isKept: boolean;
}

/** The response of `runs.prompt`. */
interface Prompt extends RequestHead {
  previous?: RequestHead;
  sections?: Section[];
  tools?: ToolDefinition[];
  messages: SentMessage[];
  omittedMessages: number;
}

const TONES = { added: "live", changed: "warn", removed: "bad" } as const;

/** `sizes` are the sections with their length, which are known even if the texts are not kept. */
export function PromptTexts({ id, request, sizes }: { id: string; request: number; sizes: [string, number][] }) {
  const { data, error } = useCall<Prompt>("runs.prompt", { id, request }, [id, request]);
  if (error) return <Problem error={messageOf(error)} />;
  if (!data) return <div class="loading" aria-label="Loading" />;
  return (
    <>
      {data.previous ? <Compared data={data} previous={data.previous} /> : null}
      <Sections sections={data.sections} sizes={sizes} />
      {data.tools ? <Tools tools={data.tools} /> : null}
      <Messages data={data} />
    </>
  );
}

/** With which request this one is compared. */
function Compared({ data, previous }: { data: Prompt; previous: RequestHead }) {
  const isOther = previous.runId !== data.runId;
  const isOtherModel = previous.model !== data.model || previous.provider !== data.provider;
  return (
    <p class="small muted">
      Compared with {isOther ? <a href={link("runs", previous.runId)}>the last request of the previous run</a> : "the previous request of this run"}
      {isOtherModel ? `, which was sent to ${previous.provider}/${previous.model}: each model has a cache of its own` : ""}
      {previous.isKept ? "." : ", whose texts are not kept."}
    </p>
  );
}

function Sections({ sections, sizes }: { sections: Section[] | undefined; sizes: [string, number][] }) {
  const shown = sections ?? sizes.map(([name, chars]): Section => ({ name, chars, text: "" }));
  const total = Math.max(1, shown.reduce((sum, { chars }) => sum + chars, 0));
  return (
    <>
      <h3>System prompt</h3>
      {sections ? null : <p class="small muted">Its text is not kept: it was removed because trace.keepPromptBytes was reached, or keeping is disabled.</p>}
      <ul class="prompt-parts" aria-label="Sections of the system prompt">
        {shown.map(({ name, chars, text, change = "same", previousText }) => {
          const line = (
            <>
              <span class="part-name">{visible(name)}</span>
              {change === "same" ? null : <Badge tone={TONES[change]}>{change}</Badge>}
              <span class="weight" aria-hidden="true">
                <span style={{ width: `${(chars / total) * 100}%` }} />
              </span>
              <span class="num">{count(chars)}</span>
            </>
          );
          return (
            <li key={name} class={change === "same" ? undefined : "differs"}>
              {sections ? (
                <details open={change !== "same"}>
                  <summary>{line}</summary>
                  {change === "same" ? <LongText value={text} label={name} /> : <EditDiff edit={{ before: previousText ?? "", after: text }} />}
                </details>
              ) : (
                <div class="part-line">{line}</div>
              )}
            </li>
          );
        })}
      </ul>
    </>
  );
}

const definition = (tool: ToolDefinition) => `${tool.description}\n\n${JSON.stringify(tool.parameters, null, 2)}`;

function Tools({ tools }: { tools: ToolDefinition[] }) {
  const differing = tools.filter(({ change = "same" }) => change !== "same");
  return (
    <>
      <h3>
        Tools <span class="muted num">{tools.filter(({ change }) => change !== "removed").length}</span>
      </h3>
      <ul class="prompt-parts" aria-label="Tools of the request">
        {[...differing, ...tools.filter((tool) => !differing.includes(tool))].map((tool) => {
          const { name, change = "same", previous } = tool;
          return (
            <li key={name} class={change === "same" ? undefined : "differs"}>
              <details open={change !== "same"}>
                <summary>
                  <code class="part-name">{visible(name)}</code>
                  {change === "same" ? null : <Badge tone={TONES[change]}>{change}</Badge>}
                </summary>
                {change === "changed" && previous ? <EditDiff edit={{ before: definition(previous), after: definition(tool) }} /> : <LongText value={definition(tool)} label={name} />}
              </details>
            </li>
          );
        })}
      </ul>
    </>
  );
}

const ROLES: Record<string, string> = { user: "User", assistant: "Agent", toolResult: "Tool result", other: "Other" };

function Messages({ data }: { data: Prompt }) {
  const added = data.messages.filter(({ isNew }) => isNew).length;
  return (
    <>
      <h3>
        Conversation <span class="muted num">{data.messages.length}</span>
      </h3>
      <p class="small muted">
        {data.previous ? `${count(added)} new since the previous request. ` : ""}
        {data.omittedMessages ? `${count(data.omittedMessages)} more are summarized or too long to show. ` : ""}
        Read from the transcript: old tool results may have been shorter in the request.
      </p>
      <ul class="prompt-parts" aria-label="Messages of the request">
        {data.messages.map((message, at) => (
          <li key={at} class={message.isNew && data.previous ? "differs" : undefined}>
            <details>
              <summary>
                <span class="part-name">{ROLES[message.name] ?? message.name}</span>
                <span class="ellipsis muted">{visible(message.text.slice(0, 100).replace(/\s+/g, " "))}</span>
                {message.isNew && data.previous ? <Badge tone="live">new</Badge> : null}
                <span class="num">{count(message.chars)}</span>
              </summary>
              <LongText value={message.text} label="message" />
            </details>
          </li>
        ))}
      </ul>
    </>
  );
}
