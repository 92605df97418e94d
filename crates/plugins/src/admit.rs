//! Decides which registrations of a plugin are accepted: those that its manifest declares, under names that are free.
//! Pure.

use homard_hooks::HookPoint;

use crate::{
    manifest::{DeclaredRights, Manifest, RightDeclaration},
    registrations::{Registrations, ToolRegistration},
};

/// Maximum number of registrations of each kind.
const MAX_REGISTRATIONS: usize = 500;

/// Names reserved by the gateway; plugins cannot use them.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct ReservedNames {
    /// Tool names.
    pub tools: Vec<String>,
    /// Chat command names.
    pub commands: Vec<String>,
    /// Gateway method names.
    pub methods: Vec<String>,
    /// HTTP paths, including everything below them.
    pub paths: Vec<String>,
}

/// Returns the accepted registrations, and the reasons for rejecting the others.
pub(crate) fn authorise(
    mut registrations: Registrations,
    manifest: &Manifest,
    reserved: &ReservedNames,
) -> (Registrations, Vec<String>) {
    let mut denied = Vec::new();
    let rights = manifest.rights.as_ref();
    let contains = |list: &[String], name: &str| list.iter().any(|reserved_name| reserved_name == name);
    let mut rule = |kind: &str, name: &str, is_declared: bool, problem: Option<String>| {
        let reason = match problem {
            None if is_declared => return true,
            None => "the manifest does not declare it under \"rights\"".to_owned(),
            Some(reason) => reason,
        };
        denied.push(format!("{kind} {name}: {reason}"));
        false
    };
    let own_name = || Some("the name is reserved".to_owned());
    registrations.tools.retain(|tool| {
        let is_reserved =
            contains(&reserved.tools, &manifest.id) || names(tool).any(|name| contains(&reserved.tools, name));
        let is_declared = |rights: &DeclaredRights| {
            names(tool).all(|name| declares(&rights.tools, |declared| declared.name == *name, name))
        };
        let tool_names = names(tool).cloned().collect::<Vec<_>>().join(", ");
        rule("tool", &tool_names, rights.is_none_or(is_declared), is_reserved.then(own_name).flatten())
    });
    registrations.hooks.retain(|hook| {
        let name = &hook.name;
        let is_declared = rights.is_none_or(|rights| declares(&rights.hooks, |declared| declared.name == *name, name));
        let unknown = HookPoint::named(name).is_none().then(|| "unknown hook; it never fires".to_owned());
        rule("hook", name, is_declared || manifest.guard.contains(name), unknown)
    });
    registrations.internal_hooks.retain(|listener| {
        let is_declared = |rights: &DeclaredRights| listener.events.iter().all(|event| contains(&rights.events, event));
        rule("listener", &listener.events.join(", "), rights.is_none_or(is_declared), None)
    });
    registrations.commands.retain(|command| {
        let name = &command.name;
        let is_declared =
            rights.is_none_or(|rights| declares(&rights.commands, |declared| declared.name == *name, name));
        let name_error = (!is_command(name))
            .then(|| "a command name must begin with a-z and contain only a-z, 0-9, - and _".to_owned());
        rule(
            "command",
            name,
            is_declared,
            name_error.or_else(|| contains(&reserved.commands, name).then(own_name).flatten()),
        )
    });
    registrations.services.retain(|service| {
        let id = &service.id;
        let is_declared = rights.is_none_or(|rights| declares(&rights.services, |declared| declared.id == *id, id));
        rule("service", id, is_declared, None)
    });
    registrations.gateway_methods.retain(|method| {
        let name = &method.name;
        let is_declared =
            rights.is_none_or(|rights| declares(&rights.methods, |declared| declared.name == *name, name));
        rule("method", name, is_declared, contains(&reserved.methods, name).then(own_name).flatten())
    });
    registrations.http_routes.retain(|route| {
        let path = &route.path;
        let is_declared = rights.is_none_or(|rights| declares(&rights.routes, |declared| declared.path == *path, path));
        let is_reserved = reserved.paths.iter().any(|reserved_name| {
            path == reserved_name || path.strip_prefix(reserved_name.as_str()).is_some_and(|rest| rest.starts_with('/'))
        });
        rule("route", path, is_declared, is_reserved.then(own_name).flatten())
    });
    for hook in &mut registrations.hooks {
        hook.guard |= manifest.guard.contains(&hook.name);
    }
    limit_all(&mut registrations, &mut denied);
    (registrations, denied)
}

/// Returns all names of a tool.
fn names(tool: &ToolRegistration) -> impl Iterator<Item = &String> {
    let aliases = tool.names.iter().filter(|name| **name != tool.name);
    std::iter::once(&tool.name).filter(|name| !name.is_empty()).chain(aliases)
}

fn declares<T>(all: &[RightDeclaration<T>], matches: impl Fn(&T) -> bool, name: &str) -> bool {
    all.iter().any(|declared| match declared {
        RightDeclaration::Named(declared) => declared == name,
        RightDeclaration::Full(declaration) => matches(declaration),
    })
}

fn is_command(name: &str) -> bool {
    let is_rest = |c: char| c.is_ascii_lowercase() || c.is_ascii_digit() || c == '_' || c == '-';
    name.len() <= 64 && name.starts_with(|c: char| c.is_ascii_lowercase()) && name.chars().all(is_rest)
}

/// Drops registrations beyond the limit.
fn limit_all(registrations: &mut Registrations, denied: &mut Vec<String>) {
    limit("tools", &mut registrations.tools, denied);
    limit("hooks", &mut registrations.hooks, denied);
    limit("listeners", &mut registrations.internal_hooks, denied);
    limit("commands", &mut registrations.commands, denied);
    limit("services", &mut registrations.services, denied);
    limit("methods", &mut registrations.gateway_methods, denied);
    limit("routes", &mut registrations.http_routes, denied);
}

fn limit<T>(kind: &str, all: &mut Vec<T>, denied: &mut Vec<String>) {
    if all.len() > MAX_REGISTRATIONS {
        denied.push(format!(
            "{} of {} {kind}: the limit per plugin is {MAX_REGISTRATIONS}",
            all.len() - MAX_REGISTRATIONS,
            all.len()
        ));
        all.truncate(MAX_REGISTRATIONS);
    }
}

#[cfg(test)]
mod tests {
    use serde_json::{Value, json};

    use super::*;
    use crate::registrations::{HookRegistration, RegistrationKind};

    fn manifest(rights: Option<Value>) -> Manifest {
        let mut file = json!({"id": "mine", "configSchema": {}, "run": ["x"], "guard": ["before_tool_call"]});
        let name = match rights {
            Some(rights) => {
                file["rights"] = rights;
                "homard.plugin.json"
            }
            None => "openclaw.plugin.json",
        };
        crate::manifest::read(name, &file.to_string()).unwrap()
    }

    fn sample_registrations() -> Registrations {
        serde_json::from_value(json!({
            "tools": [{"ref": "t1", "name": "add", "optional": null}, {"name": "read"}, {"names": ["a", "b"], "isFactory": true}],
            "hooks": [{"name": "before_tool_call"}, {"name": "agent_end", "priority": null}, {"name": "cron_changed"}],
            "internalHooks": [{"events": ["command:new"], "name": "n"}],
            "commands": [{"name": "go"}, {"name": "Go!"}, {"name": "stop"}],
            "services": [{"id": "s"}],
            "gatewayMethods": [{"name": "mine.ask"}, {"name": "health"}],
            "httpRoutes": [{"path": "/mine"}, {"path": "/hooks/x"}],
        }))
        .unwrap()
    }

    fn reserved() -> ReservedNames {
        let list = |name: &str| vec![name.to_owned()];
        ReservedNames { tools: list("read"), commands: list("stop"), methods: list("health"), paths: list("/hooks") }
    }

    #[test]
    fn a_plugin_without_declared_rights_may_register_anything_but_reserved_names() {
        let (admitted, denied) = authorise(sample_registrations(), &manifest(None), &reserved());
        let expected = [
            "tool read: the name is reserved",
            "hook cron_changed: unknown hook; it never fires",
            "command Go!: a command name must begin with a-z and contain only a-z, 0-9, - and _",
            "command stop: the name is reserved",
            "method health: the name is reserved",
            "route /hooks/x: the name is reserved",
        ];
        assert_eq!(denied, expected);
        assert_eq!((admitted.tools.len(), admitted.hooks.len(), admitted.http_routes.len()), (2, 2, 1));
        assert!(admitted.hooks[0].guard && !admitted.hooks[1].guard);
    }

    // R69.
    #[test]
    fn an_undeclared_registration_is_denied_by_name() {
        let (admitted, denied) = authorise(
            sample_registrations(),
            &manifest(Some(json!({"tools": ["add", "a"]}))),
            &ReservedNames::default(),
        );
        let reason = "the manifest does not declare it under \"rights\"";
        let expected = [
            format!("tool read: {reason}"),
            format!("tool a, b: {reason}"),
            format!("hook agent_end: {reason}"),
            "hook cron_changed: unknown hook; it never fires".to_owned(),
            format!("listener command:new: {reason}"),
            format!("command go: {reason}"),
            "command Go!: a command name must begin with a-z and contain only a-z, 0-9, - and _".to_owned(),
            format!("command stop: {reason}"),
            format!("service s: {reason}"),
            format!("method mine.ask: {reason}"),
            format!("method health: {reason}"),
            format!("route /mine: {reason}"),
            format!("route /hooks/x: {reason}"),
        ];
        assert_eq!(denied, expected);
        let remaining: Vec<_> = admitted.handles().map(|(kind, name, _)| (kind, name)).collect();
        assert_eq!(remaining, [(RegistrationKind::Tool, "add"), (RegistrationKind::Hook, "before_tool_call")]);
    }

    #[test]
    fn too_many_registrations_are_dropped_and_reported() {
        let hooks = vec![HookRegistration::from("agent_end".to_owned()); MAX_REGISTRATIONS + 2];
        let (admitted, denied) =
            authorise(Registrations { hooks, ..Registrations::default() }, &manifest(None), &ReservedNames::default());
        assert_eq!(admitted.hooks.len(), MAX_REGISTRATIONS);
        assert_eq!(denied, ["2 of 502 hooks: the limit per plugin is 500"]);
    }
}
