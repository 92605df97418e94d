//! Checks across values that are valid individually: duplicate agent ids, bindings to unknown agents.

pub(crate) mod channels;
mod hooks;
mod models;
mod plugins;
mod replies;
pub(crate) mod tool_names;

use std::{
    borrow::Cow,
    collections::BTreeMap,
    path::{Path as File, PathBuf},
    sync::LazyLock,
};

use homard_config::{ConfigProblem, Findings, Sections, nearest, path::Path};
use homard_proto::AgentId;

use super::{
    Config, Text, parts,
    sections::{
        agents::Agent,
        schedule::{Heartbeat, zone},
    },
};
use crate::{
    agent_directories::{sandboxing, workspace},
    channel_kinds::HOSTED,
    paths::{self, Paths},
};

/// All known keys, written by a test.
const KEYS: &str = include_str!("../data/config-keys.txt");

impl Sections for Config {
    fn keys() -> Cow<'static, str> {
        // A hosted channel's package defines its keys. A key without keys below it may contain anything.
        static WITH_HOSTED: LazyLock<String> = LazyLock::new(|| {
            let hosted: String = HOSTED.iter().map(|name| format!(" {name}\n")).collect();
            KEYS.replacen("\nchannels\n", &format!("\nchannels\n{hosted}"), 1)
        });
        WITH_HOSTED.as_str().into()
    }

    fn part_of(path: &Path) -> Option<Path> {
        parts::part_of(path)
    }

    fn disable_part(&mut self, part: &Path, why: &ConfigProblem) {
        parts::disable_part(self, part, why);
    }

    fn note_files(&mut self, files: &[PathBuf]) {
        self.files = files.to_vec();
    }

    fn agent_directories(&self) -> Vec<PathBuf> {
        // Without a state directory nothing can run.
        let Ok(paths) = Paths::find() else { return Vec::new() };
        let members = self.agents.members();
        let workspaces = members.iter().map(|agent| workspace(self, &paths, agent));
        let extra_write = self.tools.exec.sandbox.extra_write.iter();
        let extra_write = extra_write.map(|path| paths::expand(path.as_str().as_ref(), paths::home().as_deref()));
        let sandbox_roots = members.iter().map(|agent| sandboxing(self, &paths, agent).root);
        workspaces.chain(sandbox_roots).chain(extra_write).chain([paths.state.join("workspace")]).collect()
    }

    fn cross_check(&self) -> Findings {
        let mut problems = Vec::new();
        self.check_ids(&mut problems);
        self.check_directories(&mut problems);
        self.check_bindings(&mut problems);
        self.check_hours(&mut problems);
        self.check_tool_lists(&mut problems);
        hooks::check_webhooks(self, &mut problems);
        channels::check_account_names(self, &mut problems);
        if let Err((name, why)) = self.audit.checkpoints.sinks() {
            problems.push((key("audit").key("checkpoints").key(name), why.to_owned()));
        }
        let renames = self.session.main_key.as_deref().is_some_and(|name| name.trim() != "main");
        let no_effect = "has no effect: the main session is always called main".to_owned();
        let mut warnings: FoundProblems =
            renames.then(|| (key("session").key("mainKey"), no_effect)).into_iter().collect();
        self.check_servers(&mut warnings);
        warnings.extend(tool_names::tool_name_warnings(self));
        warnings.extend(replies::reply_warnings(self));
        warnings.extend(channels::channel_warnings(self));
        warnings.extend(channels::recipient_warnings(self));
        warnings.extend(hooks::webhook_warnings(self));
        warnings.extend(plugins::plugin_warnings(self));
        warnings.extend(models::model_warnings(self));
        let faults = [models::provider_faults(self), models::model_faults(self)].concat();
        Findings { problems, faults, warnings }
    }
}

type FoundProblems = Vec<(Path, String)>;

fn key(name: &str) -> Path {
    Path::root().key(name)
}

impl Config {
    /// Returns all agents of the file: path, id, and settings.
    fn all_agents(&self) -> impl Iterator<Item = (Path, Option<&str>, &Agent)> {
        let (list, entries) = (key("agents").key("list"), key("agents").key("entries"));
        let listed = self.agents.list.iter().enumerate();
        let listed = listed.map(move |(at, agent)| (list.index(at), agent.id.as_ref().map(Text::as_str), agent));
        let from_entries = self.agents.entries.iter();
        listed.chain(from_entries.map(move |(id, agent)| (entries.key(id), Some(id.as_str()), agent)))
    }

    /// Checks that every agent has a unique id.
    fn check_ids(&self, found: &mut FoundProblems) {
        let mut owners: BTreeMap<AgentId, Path> = BTreeMap::new();
        for (path, id, _) in self.all_agents() {
            let Some(id) = id.map(str::trim) else {
                found.push((path, "must have an id".to_owned()));
                continue;
            };
            let at = if path.starts_with(&key("agents").key("list")) { path.key("id") } else { path.clone() };
            match owners.get(&AgentId::normalize(id)) {
                _ if id.is_empty() => found.push((at, "must not be empty".to_owned())),
                Some(owner) => {
                    found.push((at, format!("is also the id of {owner}; agent ids must be unique")));
                }
                None => drop(owners.insert(AgentId::normalize(id), path)),
            }
        }
    }

    /// Checks that no two agents share a directory.
    fn check_directories(&self, found: &mut FoundProblems) {
        let state = Paths::find().map(|paths| paths.state).unwrap_or_default();
        let mut owners: BTreeMap<PathBuf, Path> = BTreeMap::new();
        // If a chosen directory conflicts with a default one, the chosen one is reported.
        let (chosen, with_default): (Vec<_>, Vec<_>) =
            self.all_agents().partition(|(_, _, agent)| agent.agent_dir.is_some());
        for (path, id, agent) in with_default.into_iter().chain(chosen) {
            let folder = match &agent.agent_dir {
                Some(text) => paths::expand(File::new(text.as_str()), paths::home().as_deref()),
                None => state.join("agents").join(AgentId::normalize(id.unwrap_or_default()).as_str()).join("agent"),
            };
            // Compared as text, without looking at the disk: catching different spellings of a path is enough.
            let folder: PathBuf = state.join(folder).components().collect();
            match owners.get(&folder) {
                Some(owner) if agent.agent_dir.is_some() => {
                    let message =
                        format!("is also the agent directory of {owner}; every agent needs its own directory");
                    found.push((path.key("agentDir"), message));
                }
                Some(_) => {}
                None => drop(owners.insert(folder, path)),
            }
        }
    }

    /// Checks that bindings name existing agents.
    fn check_bindings(&self, found: &mut FoundProblems) {
        let members = self.agents.members();
        for (at, binding) in self.bindings.iter().enumerate() {
            let path = key("bindings").index(at);
            let id = binding.agent_id.trim();
            if id.is_empty() {
                found.push((path, "must name an agent with agentId".to_owned()));
            } else if !members.iter().any(|member| member.id == AgentId::normalize(id)) {
                let similar = nearest(id, members.iter().map(|member| member.id.as_str()));
                let help = similar.map(|similar| format!("; did you mean {similar:?}?")).unwrap_or_default();
                found.push((path.key("agentId"), format!("names an agent that is not in agents.list{help}")));
            }
        }
    }

    /// Checks the active hours of heartbeats (times of day and a time zone), and the time zone of the user.
    fn check_hours(&self, found: &mut FoundProblems) {
        let defaults = &self.agents.defaults;
        let agent_heartbeats = self.all_agents().filter_map(|(path, _, agent)| Some((path, agent.heartbeat.as_ref()?)));
        let all: Vec<(Path, &Heartbeat)> = agent_heartbeats.collect();
        let shared = (key("agents").key("defaults"), &defaults.heartbeat);
        for (path, heartbeat) in std::iter::once(shared).chain(all) {
            if let Some((name, why)) = heartbeat.invalid_hours() {
                found.push((path.key("heartbeat").key("activeHours").key(name), why.to_owned()));
            }
        }
        if let Some(Err(why)) = defaults.user_timezone.as_deref().map(zone) {
            found.push((key("agents").key("defaults").key("userTimezone"), why.to_owned()));
        }
    }

    /// Checks that enabled MCP servers can be used.
    fn check_servers(&self, found: &mut FoundProblems) {
        for (name, server) in self.mcp.servers.iter().filter(|(_, server)| server.enabled != Some(false)) {
            let path = key("mcp").key("servers").key(name);
            if let Some((name, why)) = server.config_error() {
                found.push((path.key(name), format!("{why}; the server is disabled")));
            }
            if server.ssl_verify == Some(false) {
                found.push((path.key("sslVerify"), "has no effect: certificates are always checked".to_owned()));
            }
        }
    }

    /// Checks that no tool policy, neither the global one nor that of an agent, has both `allow` and `alsoAllow`.
    fn check_tool_lists(&self, found: &mut FoundProblems) {
        let agent_policies = self.all_agents().map(|(path, _, agent)| (path.key("tools"), agent.tools.to_policy()));
        let scopes: Vec<_> = std::iter::once((key("tools"), self.tools.to_policy())).chain(agent_policies).collect();
        for (path, policy) in scopes {
            if let Some(problem) = policy.check("") {
                found.push((path.key("alsoAllow"), problem.what));
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Returns the problems and warnings of a config, without the file name before the colon.
    fn messages(text: &str) -> Vec<String> {
        let loaded = Config::read(File::new("homard.json"), text);
        let [problems, warnings] = [loaded.problems, loaded.warnings];
        problems
            .iter()
            .chain(&warnings)
            .map(|problem| problem.to_string().split_once(": ").unwrap().1.to_owned())
            .collect()
    }

    #[test]
    fn every_agent_has_an_id_of_its_own() {
        assert_eq!(
            messages("{agents: {list: [{id: 'a'}, {name: 'x'}, {id: ' '}, {id: 'A'}], entries: {a: {}, b: {}}}}"),
            [
                "agents.list[1] must have an id",
                "agents.list[2].id must not be empty",
                "agents.list[3].id is also the id of agents.list[0]; agent ids must be unique",
                "agents.entries.a is also the id of agents.list[0]; agent ids must be unique",
            ]
        );
        assert_eq!(messages("{agents: {list: [{id: 'a', default: true}, {id: 'b'}]}}"), [""; 0]);
    }

    #[test]
    fn every_account_of_a_channel_has_a_name_of_its_own() {
        let account =
            "{secret: '0123456789abcdef', url: 'http://127.0.0.1/', dmPolicy: 'allowlist', allowFrom: ['ann']}";
        let text = format!("{{channels: {{webhook: {{accounts: {{Door: {account}, door: {account}}}}}}}}}");
        let expected =
            "channels.webhook.accounts.door is the same account as \"Door\": account names are case-insensitive";
        assert_eq!(messages(&text), [expected]);
    }

    #[test]
    fn keys_of_a_string_or_object_value_are_checked() {
        let warnings = |member: &str| messages(&format!("{{channels: {{telegram: {{streaming: {{{member}}}}}}}}}"));
        let prefix = "channels.telegram.streaming";
        assert_eq!(warnings("mode: 'partial'"), [""; 0]);
        assert_eq!(warnings("mod: 'partial'"), [format!("{prefix}.mod is not a known key; did you mean \"mode\"?")]);
        let unsupported = format!("{prefix}.chunkMode is an OpenClaw key that has no effect in Homard yet");
        assert_eq!(warnings("chunkMode: 'length'"), [unsupported]);
    }

    #[test]
    fn no_two_agents_share_a_directory() {
        let state = Paths::find().unwrap().state;
        let text = format!(
            "{{agents: {{list: [{{id: 'a', agentDir: '/x//y'}}, {{id: 'b', agentDir: '/x/./y/'}}, {{id: 'c'}}, \
             {{id: 'd', agentDir: '{}/agents/c/agent'}}, {{id: 'e', agentDir: '/z'}}]}}}}",
            state.display()
        );
        let message =
            |owner: &str| format!("is also the agent directory of {owner}; every agent needs its own directory");
        assert_eq!(
            messages(&text),
            [
                format!("agents.list[1].agentDir {}", message("agents.list[0]")),
                format!("agents.list[3].agentDir {}", message("agents.list[2]")),
            ]
        );
    }

    #[test]
    fn bindings_must_name_known_agents() {
        let text = "{agents: {list: [{id: 'home'}, {id: 'work'}]}, bindings: [
            {agentId: 'Work', match: {channel: 'a'}}, {agentId: 'wrok', match: {channel: 'a'}},
            {agentId: 'x', match: {channel: 'a'}}, {match: {channel: 'a'}}]}";
        assert_eq!(
            messages(text),
            [
                "bindings[1].agentId names an agent that is not in agents.list; did you mean \"work\"?",
                "bindings[2].agentId names an agent that is not in agents.list",
                "bindings[3] must name an agent with agentId",
            ]
        );
        assert_eq!(messages("{bindings: [{agentId: 'main', match: {channel: 'a'}}]}"), [""; 0]);
    }

    #[test]
    fn times_of_day_and_time_zones_are_validated() {
        let text = "{agents: {defaults: {heartbeat: {activeHours: {start: '8:00'}}, userTimezone: 'Mars/Base'},
            list: [{id: 'a', heartbeat: {activeHours: {start: '08:00', end: '25:00'}}},
                   {id: 'b', heartbeat: {activeHours: {timezone: 'Europe/Berlin', start: '22:00', end: '24:00'}}}]}}";
        assert_eq!(
            messages(text),
            [
                "agents.defaults.heartbeat.activeHours.start must be a time of the day, written HH:MM",
                "agents.defaults.userTimezone is not a time zone; use a name such as Europe/Berlin",
                "agents.list[0].heartbeat.activeHours.end must be a time of the day, written HH:MM; midnight is 24:00",
            ]
        );
    }

    #[test]
    fn a_scope_has_one_way_to_allow_tools() {
        let message = "cannot be combined with allow; add its tools to allow, or use a profile with alsoAllow";
        assert_eq!(
            messages(
                "{tools: {allow: ['read'], alsoAllow: ['exec']},
                  agents: {list: [{id: 'a', tools: {allow: ['read'], alsoAllow: ['exec']}},
                                  {id: 'b', tools: {allow: [], alsoAllow: ['exec']}}]}}"
            ),
            [format!("tools.alsoAllow {message}"), format!("agents.list[0].tools.alsoAllow {message}")]
        );
    }

    #[test]
    fn an_unusable_mcp_server_is_a_warning() {
        let text = "{mcp: {servers: {a: {command: 'x'}, b: {}, c: {url: 'u', sslVerify: false, transport: 'sse'},
                     d: {enabled: false, transport: 'sse'}}}}";
        assert!(Config::read(File::new("homard.json"), text).is_valid());
        assert_eq!(
            messages(text),
            [
                "mcp.servers.b.command is missing, and so is url; set one of them; the server is disabled",
                "mcp.servers.c.sslVerify has no effect: certificates are always checked",
                "mcp.servers.c.transport is sse, which is not supported; many such servers also support streamable-http; \
                 the server is disabled",
            ]
        );
    }

    #[test]
    fn contradictory_reply_bounds_are_a_warning() {
        let text = "{agents: {defaults: {
            blockStreamingChunk: {minChars: 1300}, blockStreamingCoalesce: {minChars: 9, maxChars: 5},
            humanDelay: {maxMs: 90}}}}";
        assert!(Config::read(File::new("homard.json"), text).is_valid());
        assert_eq!(
            messages(text),
            [
                "agents.defaults.blockStreamingChunk.minChars is greater than maxChars; 1200 is used instead",
                "agents.defaults.blockStreamingCoalesce.minChars is greater than maxChars; 5 is used instead",
                "agents.defaults.humanDelay.maxMs has no effect unless mode is custom",
            ]
        );
        assert_eq!(
            messages(
                "{agents: {defaults: {blockStreamingChunk: {minChars: 1300, maxChars: 1300}, humanDelay: {minMs: 90}},
                  list: [{id: 'a', humanDelay: {mode: 'custom', maxMs: 80}}, {id: 'b', humanDelay: {mode: 'off'}},
                         {id: 'c', humanDelay: {minMs: 7}}]}}"
            ),
            [
                "agents.list[0].humanDelay.maxMs makes every delay 90 ms long: minMs is greater than maxMs, which is 80",
                "agents.list[2].humanDelay.minMs has no effect unless mode is custom",
            ]
        );
    }

    #[test]
    fn a_custom_main_key_is_a_warning() {
        let loaded = Config::read(File::new("homard.json"), "{session: {mainKey: 'work'}}");
        assert!(loaded.is_valid());
        assert_eq!(
            messages("{session: {mainKey: 'work'}}"),
            ["session.mainKey has no effect: the main session is always called main"]
        );
        assert_eq!(messages("{session: {mainKey: 'main'}}"), [""; 0]);
    }
}
