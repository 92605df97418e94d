// Settings: a form for every key of the schema, and the file itself. Changes are shown before they are saved.
import { readConfig } from "../lib/config";
import { call } from "../lib/connection";
import { route, setParams } from "../lib/router";
import { Head, Problem, Search, useLoad } from "../lib/ui";
import { FileEditor } from "../settings/file";
import { Form, type FormData } from "../settings/form";
import { Issues } from "../settings/review";
import { settingsOf, type Hint, type Schema } from "../settings/schema";

async function load(): Promise<FormData> {
  const [file, { schema, uiHints }] = await Promise.all([readConfig(), call<{ schema: Schema; uiHints: Record<string, Hint> }>("config.schema")]);
  return { file, settings: settingsOf(schema, uiHints) };
}

export default function Settings() {
  const { data, error, reload } = useLoad(load);
  const isRaw = route.value.params.get("pane") === "file";
  return (
    <section class="view full" aria-label="Settings">
      <Head title="Settings">
        {isRaw ? null : <Search value={route.value.params.get("search") ?? ""} onInput={(search) => setParams({ search })} label="Search settings" />}
        <div class="tabs" role="tablist" aria-label="How settings are shown">
          <button type="button" role="tab" aria-selected={!isRaw} onClick={() => setParams({ pane: undefined })}>
            Form
          </button>
          <button type="button" role="tab" aria-selected={isRaw} onClick={() => setParams({ pane: "file" })}>
            File
          </button>
        </div>
      </Head>
      {error ? <Problem error={error} retry={reload} /> : null}
      {data && !data.file.valid ? <Issues issues={data.file.issues} title="The file is not valid; the last valid configuration is in use." /> : null}
      {data?.file.warnings.length ? <Issues issues={data.file.warnings} title="Notes about the configuration" tone="warn" /> : null}
      {data ? isRaw ? <FileEditor key={data.file.hash} file={data.file} reload={reload} /> : <Form data={data} reload={reload} /> : null}
    </section>
  );
}
