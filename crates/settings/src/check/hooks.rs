//! Checks of webhooks that could not be served, or not as intended.

use homard_config::nearest;
use homard_gateway::{MappingAction, WebhookError};
use homard_proto::AgentId;

use super::{FoundProblems, key};
use crate::{
    Config, Text,
    sections::hooks::{GMAIL, Mapping},
};

/// Checks that webhooks have a token and a valid path, and name existing agents.
pub(super) fn check_webhooks(config: &Config, found: &mut FoundProblems) {
    let (path, hooks) = (key("hooks"), &config.hooks);
    match hooks.webhooks() {
        Ok(_) => {}
        Err(WebhookError::NoToken) => {
            let why = "is missing: webhooks require a token of their own; \
                       make one with: openssl rand -hex 32";
            found.push((path.key("token"), why.to_owned()));
        }
        Err(WebhookError::Path(_)) => {
            let why = "must be a path such as /hooks that the gateway does not use itself";
            found.push((path.key("path"), why.to_owned()));
        }
    }
    let members = config.agents.members();
    for (at, mapping) in hooks.mappings.iter().enumerate() {
        let path = path.key("mappings").index(at);
        let agent = mapping.agent_id.as_deref().map(str::trim);
        if let Some(id) = agent.filter(|id| !members.iter().any(|member| member.id == AgentId::normalize(id))) {
            let similar = nearest(id, members.iter().map(|member| member.id.as_str()));
            let help = similar.map(|similar| format!("; did you mean {similar:?}?")).unwrap_or_default();
            found.push((path.key("agentId"), format!("names an agent that is not in agents.list{help}")));
        }
        if mapping.transform.as_ref().is_some_and(|transform| !is_beneath(&transform.module)) {
            let why = "must be a relative path below hooks.transformsDir, without ..";
            found.push((path.key("transform").key("module"), why.to_owned()));
        }
    }
}

/// Returns warnings about webhooks.
pub(super) fn webhook_warnings(config: &Config) -> FoundProblems {
    let (path, hooks) = (key("hooks"), &config.hooks);
    let mut found = FoundProblems::new();
    let (token, owners) = (hooks.token.as_ref(), config.gateway.auth.token.as_ref());
    if hooks.enabled && token.is_some() && token.map(Text::as_str) == owners.map(Text::as_str) {
        let why = "is also the gateway's token: every webhook sender would have full access to the gateway; use another token";
        found.push((path.key("token"), why.to_owned()));
    }
    for (at, preset) in hooks.presets.iter().enumerate().filter(|(_, preset)| *preset != GMAIL) {
        found.push((
            path.key("presets").index(at),
            format!("is {preset:?}, which is not a known preset and is ignored; supported: {GMAIL}"),
        ));
    }
    for (at, mapping) in hooks.mappings.iter().enumerate() {
        let path = path.key("mappings").index(at);
        // A transform module may supply what is missing.
        if let Some(name) = missing(mapping).filter(|_| mapping.transform.is_none()) {
            found.push((path.key(name), "is missing; requests to this mapping are refused".to_owned()));
        }
    }
    found
}

/// Returns the required template that a mapping lacks.
fn missing(mapping: &Mapping) -> Option<&'static str> {
    match mapping.action.map(|action| action.0).unwrap_or_default() {
        MappingAction::Agent => mapping.message_template.is_none().then_some("messageTemplate"),
        MappingAction::Wake => mapping.text_template.is_none().then_some("textTemplate"),
    }
}

fn is_beneath(module: &str) -> bool {
    let module = module.trim();
    !module.is_empty()
        && !module.starts_with(['/', '~'])
        && !module.contains('\\')
        && !module.split('/').any(|part| part == "..")
}

#[cfg(test)]
mod tests {
    use std::path::Path;

    use super::*;

    fn messages(text: &str) -> (Vec<String>, Vec<String>) {
        let loaded = Config::read(Path::new("homard.json"), text);
        let lines = |list: Vec<_>| {
            let line =
                |problem: homard_config::ConfigProblem| problem.to_string().split_once(": ").unwrap().1.to_owned();
            list.into_iter().map(line).collect()
        };
        (lines(loaded.problems), lines(loaded.warnings))
    }

    #[test]
    fn webhooks_without_a_token_or_a_path_are_problems() {
        let token = "hooks.token is missing: webhooks require a token of their own; \
                     make one with: openssl rand -hex 32";
        let path = "hooks.path must be a path such as /hooks that the gateway does not use itself";
        for (text, expected) in [
            ("{hooks: {enabled: true}}", token),
            ("{hooks: {enabled: true, token: ' '}}", token),
            ("{hooks: {enabled: true, token: 't', path: '/'}}", path),
            ("{hooks: {enabled: true, token: 't', path: '/v1'}}", path),
        ] {
            assert_eq!(messages(text), (vec![expected.to_owned()], Vec::new()), "{text}");
        }
        for valid in ["{hooks: {token: ''}}", "{hooks: {enabled: true, token: 't', path: 'in'}}"] {
            assert_eq!(messages(valid), (Vec::new(), Vec::new()), "{valid}");
        }
    }

    #[test]
    fn invalid_mappings_are_reported() {
        let text = "{agents: {list: [{id: 'ops'}]}, gateway: {auth: {token: 't'}},
            hooks: {enabled: true, token: 't', presets: ['gmail', 'slack'], mappings: [
                {agentId: 'opps', messageTemplate: 'x'}, {action: 'wake', messageTemplate: 'x'}, {textTemplate: 'x'},
                {transform: {module: '../x.mjs'}}, {transform: {module: '/x.mjs'}}, {transform: {module: 'a/x.mjs'}}]}}";
        let module = |at: usize| {
            format!(
                "hooks.mappings[{at}].transform.module must be a relative path below hooks.transformsDir, without .."
            )
        };
        let problems = vec![
            "hooks.mappings[0].agentId names an agent that is not in agents.list; did you mean \"ops\"?".to_owned(),
            module(3),
            module(4),
        ];
        let warnings = vec![
            "hooks.token is also the gateway's token: every webhook sender would have full access to the gateway; use another token".to_owned(),
            "hooks.presets[1] is \"slack\", which is not a known preset and is ignored; supported: gmail".to_owned(),
            "hooks.mappings[1].textTemplate is missing; requests to this mapping are refused".to_owned(),
            "hooks.mappings[2].messageTemplate is missing; requests to this mapping are refused".to_owned(),
        ];
        assert_eq!(messages(text), (problems, warnings));
    }
}
