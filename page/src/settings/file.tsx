// The configuration file as text, with the lines of problems.
import { useState } from "preact/hooks";
import { EditDiff } from "../chat/tool";
import type { ConfigChange, ConfigFile } from "../lib/config";
import { call, may } from "../lib/connection";
import { Empty, messageOf } from "../lib/ui";
import { issuesOf, Refused, ReviewDialog, SaveBar, reportSaved, type Refusal } from "./review";

export function FileEditor({ file, reload }: { file: ConfigFile; reload: () => void }) {
  const original = file.raw ?? "";
  const [text, setText] = useState(original);
  const [problem, setProblem] = useState<Refusal | null>(null);
  const [isReview, review] = useState(false);
  const lines = text.split("\n");
  const wrong = new Set(problem?.issues.map(({ line }) => line) ?? []);
  const save = async () => {
    review(false);
    try {
      reportSaved(await call<ConfigChange>("config.set", { raw: text, ...(file.exists ? { baseHash: file.hash } : {}) }));
      setProblem(null);
      reload();
    } catch (error) {
      const issues = issuesOf(error);
      const at = /line (\d+), column (\d+)/.exec(messageOf(error));
      if (issues.length === 0 && at) issues.push({ path: "", message: messageOf(error).replace(/^.*column \d+: /, ""), line: Number(at[1]), column: Number(at[2]) });
      setProblem({ message: messageOf(error), issues });
    }
  };
  if (file.raw === null) return <Empty title="Only devices with all permissions may read the file" />;
  return (
    <>
      <Refused problem={problem} />
      <p class="muted small">
        <code>{file.path}</code>, JSON5. Secrets are shown as __OPENCLAW_REDACTED__ and stay as they are.
      </p>
      <div class="editor">
        <pre class="editor-lines" aria-hidden="true">
          {lines.map((_, at) => (
            <span key={at} class={wrong.has(at + 1) ? "wrong" : undefined}>
              {at + 1}
              {"\n"}
            </span>
          ))}
        </pre>
        <textarea aria-label="Configuration file" spellcheck={false} disabled={!may("admin")} rows={lines.length + 1} value={text} onInput={(event) => setText(event.currentTarget.value)} />
      </div>
      <SaveBar text={text === original ? "No changes" : "Changed"} isChanged={text !== original} discard={() => setText(original)} review={() => review(true)} />
      {isReview ? (
        <ReviewDialog title="Save this file?" onClose={() => review(false)} save={() => void save()}>
          <EditDiff edit={{ before: original, after: text }} />
        </ReviewDialog>
      ) : null}
    </>
  );
}
