// Skills: what agents can read how to do, and what is missing for it.
import { SwitchButton } from "../lib/actions";
import { call, may } from "../lib/connection";
import { visible } from "../lib/format";
import { Badge, Empty, Head, Problem, useCall } from "../lib/ui";

interface Skill {
  name: string;
  skillKey: string;
  description?: string;
  source?: string;
  emoji?: string;
  disabled?: boolean;
  eligible?: boolean;
  blockedByAllowlist?: boolean;
  missing?: { bins?: string[]; anyBins?: string[]; env?: string[]; config?: string[]; os?: string[] };
}

export default function Skills() {
  const { data, error, reload } = useCall<{ skills: Skill[]; workspaceDir: string; managedSkillsDir: string }>("skills.status");
  return (
    <section class="view" aria-label="Skills">
      <Head title="Skills" />
      {error ? <Problem error={error} retry={reload} /> : null}
      {data && data.skills.length === 0 ? (
        <Empty title="No skills yet">
          A skill is a folder with a <code>SKILL.md</code> in <code>{visible(data.workspaceDir)}/skills</code> or <code>{visible(data.managedSkillsDir)}</code>.
        </Empty>
      ) : null}
      <ul class="rows">
        {data?.skills.map((skill) => {
          const missing = Object.entries(skill.missing ?? {}).flatMap(([kind, names]) => (names ?? []).map((name) => `${kind} ${name}`));
          return (
            <li key={skill.skillKey ?? skill.name}>
              <span class="grow">
                <strong>{visible(skill.name)}</strong> <span class="muted small">{skill.source}</span>
                <div class="muted small">{visible(skill.description ?? "")}</div>
                {missing.length ? <div class="run-error">missing: {missing.map(visible).join(", ")}</div> : null}
              </span>
              <Badge tone={skill.disabled ? "quiet" : skill.eligible ? "ok" : "warn"}>{skill.disabled ? "disabled" : skill.eligible ? "usable" : "not usable"}</Badge>
              {may("admin") ? (
                <SwitchButton name={skill.name} isOn={skill.disabled !== true} change={(enabled) => call("skills.update", { skillKey: skill.skillKey ?? skill.name, enabled })} after={reload} />
              ) : null}
            </li>
          );
        })}
      </ul>
    </section>
  );
}
