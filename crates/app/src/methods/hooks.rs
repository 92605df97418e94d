//! `hooks.status`: the internal hooks, which of them run, and what the others lack. As `homard hooks list --json`.

use homard_gateway::{Method, MethodRequest, Scope};
use homard_plugins::internal::{decide, discover, report};
use homard_proto::{ErrorShape, method::queries::NothingParams};
use homard_settings::paths::Paths;
use serde_json::{Value, json};

use crate::{hooks::settings, reload::ConfigReloader};

/// Returns the method.
pub(super) fn method(live: &ConfigReloader, paths: &Paths) -> Method {
    let (live, paths) = (live.clone(), paths.clone());
    Method::new("hooks.status", Scope::Read, move |request| {
        super::on_blocking_thread(request, live.clone(), paths.clone(), status)
    })
}

fn status(mut request: MethodRequest, live: &ConfigReloader, paths: &Paths) -> Result<Value, ErrorShape> {
    let NothingParams {} = request.params()?;
    let settings = settings(&live.current(), paths);
    let found = discover(&settings.roots);
    let hooks = found.hooks.iter().map(|hook| report(hook, &decide(hook, &settings.host, &settings.rules)));
    Ok(json!({
        "workspaceDir": settings.workspace, "managedHooksDir": settings.roots.managed,
        "hooks": hooks.collect::<Vec<_>>(), "problems": found.problems.iter().map(ToString::to_string).collect::<Vec<_>>(),
    }))
}
