//! RPC dispatch: the method table, scope checks, and responses.

use std::{future::Future, panic::AssertUnwindSafe, pin::Pin, sync::Arc};

use futures_util::FutureExt;
use homard_agent::Tape;
use homard_audit::{AuditKind, AuditRecord};
use homard_proto::{
    ErrorShape,
    frame::{Request, Response},
    method::Params,
};
use serde_json::Value;

use crate::{
    client::Client,
    devices::RevokedConnections,
    extra_methods::{Method, MethodRequest},
    methods::{
        agent, agents,
        chat::{history, inject, resume, send},
        commands, cron, devices, health, logs, models, prompts, runs,
        sessions::{self, change, compact, queries},
        startup, stubs, subscriptions, system, system_info, tasks, usage,
    },
    projector::{EventGate, ResumePosition, ResumeRequest},
    scope::{self, Scope},
    server::ServerState,
};

/// A request on its way to its method.
#[derive(Debug)]
pub(crate) struct RpcCall {
    /// State shared by all connections.
    pub(crate) server: Arc<ServerState>,
    /// The caller.
    pub(crate) client: Arc<Client>,
    params: Option<Value>,
}

impl RpcCall {
    /// Returns a string parameter before validation.
    pub(crate) fn raw_param(&self, name: &str) -> Option<String> {
        self.params.as_ref()?.get(name)?.as_str().map(str::to_owned)
    }

    /// Validates and decodes the parameters.
    pub(crate) fn params<P: Params>(&mut self) -> Result<P, ErrorShape> {
        P::decode(self.client.generation, self.params.take())
    }
}

/// Result of a method.
#[derive(Debug)]
pub(crate) enum RpcResult {
    /// A payload, with an error if the request failed.
    Single(Value, Option<ErrorShape>),
    /// The same, sent before the delayed events of the run.
    Gated(Value, Option<ErrorShape>, EventGate),
    /// A payload, sent before the connections of a device whose tokens were revoked are closed.
    Revoking(Value, RevokedConnections),
    /// A payload now and the run's result at its end; the run's events are delayed until the first is sent.
    WithFinal(Value, Arc<Tape>, EventGate),
    /// Missed events of runs; answered by the projector, which knows what was sent last.
    Resume(ResumePosition),
}

impl From<Value> for RpcResult {
    fn from(payload: Value) -> Self {
        Self::Single(payload, None)
    }
}

/// Future that resolves to a method's result.
type RpcFuture = Pin<Box<dyn Future<Output = Result<RpcResult, ErrorShape>> + Send>>;

/// A method implemented in this crate.
struct BuiltIn {
    name: &'static str,
    scope: Scope,
    handler: fn(RpcCall) -> RpcFuture,
}

/// All built-in methods; `hello-ok` lists exactly these and the registered ones.
const BUILT_IN: &[BuiltIn] = &[
    BuiltIn { name: "health", scope: Scope::Read, handler: |call| Box::pin(health::health(call)) },
    BuiltIn { name: "status", scope: Scope::Read, handler: |call| Box::pin(health::status(call)) },
    BuiltIn { name: "system-presence", scope: Scope::Read, handler: |call| Box::pin(health::presence(call)) },
    BuiltIn { name: "agent", scope: Scope::Write, handler: |call| Box::pin(agent::start(call)) },
    BuiltIn { name: "agent.wait", scope: Scope::Write, handler: |call| Box::pin(agent::wait(call)) },
    BuiltIn { name: "agents.list", scope: Scope::Read, handler: |call| Box::pin(agents::list(call)) },
    BuiltIn { name: "agent.identity.get", scope: Scope::Read, handler: |call| Box::pin(agents::identity(call)) },
    BuiltIn { name: "sessions.list", scope: Scope::Read, handler: |call| Box::pin(sessions::list(call)) },
    BuiltIn { name: "sessions.resolve", scope: Scope::Read, handler: |call| Box::pin(queries::resolve(call)) },
    BuiltIn { name: "sessions.preview", scope: Scope::Read, handler: |call| Box::pin(queries::preview(call)) },
    BuiltIn { name: "sessions.describe", scope: Scope::Read, handler: |call| Box::pin(queries::describe(call)) },
    BuiltIn { name: "sessions.create", scope: Scope::Write, handler: |call| Box::pin(change::create(call)) },
    BuiltIn { name: "sessions.patch", scope: Scope::Admin, handler: |call| Box::pin(change::patch(call)) },
    BuiltIn { name: "sessions.reset", scope: Scope::Admin, handler: |call| Box::pin(change::reset(call)) },
    BuiltIn { name: "sessions.delete", scope: Scope::Admin, handler: |call| Box::pin(change::delete(call)) },
    BuiltIn { name: "sessions.compact", scope: Scope::Admin, handler: |call| Box::pin(compact::compact(call)) },
    BuiltIn { name: "sessions.compactions", scope: Scope::Read, handler: |call| Box::pin(compact::list(call)) },
    BuiltIn { name: "sessions.compactions.undo", scope: Scope::Admin, handler: |call| Box::pin(compact::undo(call)) },
    BuiltIn { name: "chat.history", scope: Scope::Read, handler: |call| Box::pin(history::history(call)) },
    BuiltIn { name: "chat.send", scope: Scope::Write, handler: |call| Box::pin(send::send(call)) },
    BuiltIn { name: "chat.abort", scope: Scope::Write, handler: |call| Box::pin(send::abort(call)) },
    BuiltIn { name: "chat.inject", scope: Scope::Admin, handler: |call| Box::pin(inject::inject(call)) },
    BuiltIn { name: "chat.resume", scope: Scope::Read, handler: |call| Box::pin(resume::resume(call)) },
    BuiltIn { name: "chat.startup", scope: Scope::Read, handler: |call| Box::pin(startup::startup(call)) },
    BuiltIn { name: "chat.metadata", scope: Scope::Read, handler: |call| Box::pin(startup::metadata(call)) },
    BuiltIn { name: "commands.list", scope: Scope::Read, handler: |call| Box::pin(commands::list(call)) },
    BuiltIn { name: "models.list", scope: Scope::Read, handler: |call| Box::pin(models::list(call)) },
    BuiltIn {
        name: "sessions.subscribe",
        scope: Scope::Read,
        handler: |call| Box::pin(subscriptions::subscribe(call)),
    },
    BuiltIn {
        name: "sessions.unsubscribe",
        scope: Scope::Read,
        handler: |call| Box::pin(subscriptions::unsubscribe(call)),
    },
    BuiltIn {
        name: "sessions.messages.subscribe",
        scope: Scope::Read,
        handler: |call| Box::pin(subscriptions::subscribe_messages(call)),
    },
    BuiltIn {
        name: "sessions.messages.unsubscribe",
        scope: Scope::Read,
        handler: |call| Box::pin(subscriptions::unsubscribe_messages(call)),
    },
    BuiltIn { name: "tools.catalog", scope: Scope::Read, handler: |call| Box::pin(system::tools(call)) },
    BuiltIn { name: "tools.effective", scope: Scope::Read, handler: |call| Box::pin(system::effective_tools(call)) },
    BuiltIn { name: "logs.tail", scope: Scope::Read, handler: |call| Box::pin(logs::tail(call)) },
    BuiltIn { name: "node.list", scope: Scope::Read, handler: |call| Box::pin(system::nodes(call)) },
    BuiltIn { name: "runs.list", scope: Scope::Read, handler: |call| Box::pin(runs::list(call)) },
    BuiltIn { name: "runs.get", scope: Scope::Read, handler: |call| Box::pin(runs::get(call)) },
    BuiltIn { name: "runs.trace", scope: Scope::Read, handler: |call| Box::pin(runs::trace(call)) },
    BuiltIn { name: "runs.tools", scope: Scope::Read, handler: |call| Box::pin(runs::tools(call)) },
    BuiltIn { name: "runs.prompt", scope: Scope::Read, handler: |call| Box::pin(prompts::prompt(call)) },
    BuiltIn { name: "runs.held", scope: Scope::Read, handler: |call| Box::pin(runs::held(call)) },
    BuiltIn { name: "runs.release", scope: Scope::Write, handler: |call| Box::pin(runs::release(call)) },
    BuiltIn { name: "runs.drop", scope: Scope::Write, handler: |call| Box::pin(runs::drop_held(call)) },
    BuiltIn { name: "usage.cost", scope: Scope::Read, handler: |call| Box::pin(usage::cost(call)) },
    BuiltIn { name: "sessions.usage", scope: Scope::Read, handler: |call| Box::pin(usage::sessions(call)) },
    BuiltIn {
        name: "sessions.usage.timeseries",
        scope: Scope::Read,
        handler: |call| Box::pin(usage::timeseries(call)),
    },
    BuiltIn { name: "sessions.usage.logs", scope: Scope::Read, handler: |call| Box::pin(usage::logs(call)) },
    BuiltIn { name: "usage.status", scope: Scope::Read, handler: |call| Box::pin(system::usage_status(call)) },
    BuiltIn { name: "system.info", scope: Scope::Read, handler: |call| Box::pin(system_info::info(call)) },
    BuiltIn { name: "system-event", scope: Scope::Admin, handler: |call| Box::pin(system::system_event(call)) },
    BuiltIn { name: "question.list", scope: Scope::Questions, handler: |call| Box::pin(system::questions(call)) },
    BuiltIn {
        name: "plugin.approval.list",
        scope: Scope::Approvals,
        handler: |call| Box::pin(system::other_approvals(call)),
    },
    BuiltIn {
        name: "openclaw.approval.list",
        scope: Scope::Approvals,
        handler: |call| Box::pin(system::other_approvals(call)),
    },
    BuiltIn { name: "themes.list", scope: Scope::Read, handler: |call| Box::pin(system::themes(call)) },
    BuiltIn { name: "models.authStatus", scope: Scope::Read, handler: |call| Box::pin(models::auth_status(call)) },
    BuiltIn { name: "tasks.list", scope: Scope::Read, handler: |call| Box::pin(tasks::list(call)) },
    BuiltIn { name: "diagnostics.lanes", scope: Scope::Read, handler: |call| Box::pin(tasks::lanes(call)) },
    BuiltIn { name: "environments.list", scope: Scope::Read, handler: |call| Box::pin(system::environments(call)) },
    BuiltIn { name: "doctor.memory.status", scope: Scope::Read, handler: |call| Box::pin(system::memory_status(call)) },
    BuiltIn { name: "webSearch.status", scope: Scope::Read, handler: |call| Box::pin(system::web_search_status(call)) },
    BuiltIn {
        name: "update.status",
        scope: Scope::Read,
        handler: |call| Box::pin(stubs::answer("update.status", call)),
    },
    BuiltIn {
        name: "node.pair.list",
        scope: Scope::Pairing,
        handler: |call| Box::pin(stubs::answer("node.pair.list", call)),
    },
    BuiltIn {
        name: "diagnostics.stability",
        scope: Scope::Read,
        handler: |call| Box::pin(stubs::answer("diagnostics.stability", call)),
    },
    BuiltIn {
        name: "plugins.catalog.browse",
        scope: Scope::Read,
        handler: |call| Box::pin(stubs::answer("plugins.catalog.browse", call)),
    },
    BuiltIn {
        name: "exec.approval.grants.list",
        scope: Scope::Approvals,
        handler: |call| Box::pin(stubs::answer("exec.approval.grants.list", call)),
    },
    BuiltIn {
        name: "artifacts.list",
        scope: Scope::Read,
        handler: |call| Box::pin(stubs::answer("artifacts.list", call)),
    },
    BuiltIn { name: "talk.catalog", scope: Scope::Read, handler: |call| Box::pin(stubs::answer("talk.catalog", call)) },
    BuiltIn {
        name: "progressCard.get",
        scope: Scope::Read,
        handler: |call| Box::pin(stubs::answer("progressCard.get", call)),
    },
    BuiltIn {
        name: "sessions.branches.list",
        scope: Scope::Read,
        handler: |call| Box::pin(stubs::answer("sessions.branches.list", call)),
    },
    BuiltIn {
        name: "sessions.companion.state",
        scope: Scope::Read,
        handler: |call| Box::pin(stubs::answer("sessions.companion.state", call)),
    },
    BuiltIn {
        name: "sessions.observer.visibility",
        scope: Scope::Read,
        handler: |call| Box::pin(stubs::answer("sessions.observer.visibility", call)),
    },
    BuiltIn {
        name: "transcripts.list",
        scope: Scope::Read,
        handler: |call| Box::pin(stubs::answer("transcripts.list", call)),
    },
    BuiltIn {
        name: "skills.library.list",
        scope: Scope::Read,
        handler: |call| Box::pin(stubs::answer("skills.library.list", call)),
    },
    BuiltIn {
        name: "skills.proposals.list",
        scope: Scope::Read,
        handler: |call| Box::pin(stubs::answer("skills.proposals.list", call)),
    },
    BuiltIn {
        name: "migrations.memory.plan",
        scope: Scope::Admin,
        handler: |call| Box::pin(stubs::answer("migrations.memory.plan", call)),
    },
    BuiltIn {
        name: "tools.github.status",
        scope: Scope::Read,
        handler: |call| Box::pin(stubs::answer("tools.github.status", call)),
    },
    BuiltIn { name: "device.pair.list", scope: Scope::Pairing, handler: |call| Box::pin(devices::list(call)) },
    BuiltIn { name: "device.pair.approve", scope: Scope::Pairing, handler: |call| Box::pin(devices::approve(call)) },
    BuiltIn { name: "device.pair.reject", scope: Scope::Pairing, handler: |call| Box::pin(devices::reject(call)) },
    BuiltIn { name: "device.pair.remove", scope: Scope::Pairing, handler: |call| Box::pin(devices::remove(call)) },
    BuiltIn { name: "device.pair.rename", scope: Scope::Pairing, handler: |call| Box::pin(devices::rename(call)) },
    BuiltIn { name: "device.token.rotate", scope: Scope::Pairing, handler: |call| Box::pin(devices::rotate(call)) },
    BuiltIn { name: "device.token.revoke", scope: Scope::Pairing, handler: |call| Box::pin(devices::revoke(call)) },
    BuiltIn {
        name: "device.loginCode.create",
        scope: Scope::Admin,
        handler: |call| Box::pin(devices::create_login_code(call)),
    },
    BuiltIn { name: "cron.status", scope: Scope::Read, handler: |call| Box::pin(cron::status(call)) },
    BuiltIn { name: "cron.list", scope: Scope::Read, handler: |call| Box::pin(cron::list(call)) },
    BuiltIn { name: "cron.get", scope: Scope::Read, handler: |call| Box::pin(cron::get(call)) },
    BuiltIn { name: "cron.runs", scope: Scope::Read, handler: |call| Box::pin(cron::runs(call)) },
    BuiltIn { name: "cron.add", scope: Scope::Admin, handler: |call| Box::pin(cron::add(call)) },
    BuiltIn { name: "cron.update", scope: Scope::Admin, handler: |call| Box::pin(cron::update(call)) },
    BuiltIn { name: "cron.remove", scope: Scope::Admin, handler: |call| Box::pin(cron::remove(call)) },
    BuiltIn { name: "cron.run", scope: Scope::Admin, handler: |call| Box::pin(cron::run(call)) },
    BuiltIn { name: "wake", scope: Scope::Write, handler: |call| Box::pin(cron::wake(call)) },
    BuiltIn { name: "last-heartbeat", scope: Scope::Read, handler: |call| Box::pin(cron::last_heartbeat(call)) },
    BuiltIn { name: "set-heartbeats", scope: Scope::Admin, handler: |call| Box::pin(cron::set_heartbeats(call)) },
];

/// Returns the names of the built-in methods.
pub fn builtin_names() -> Vec<&'static str> {
    names(&[])
}

/// Returns the names of built-in and registered methods.
pub(crate) fn names(added: &[Method]) -> Vec<&'static str> {
    BUILT_IN.iter().map(|method| method.name).chain(added.iter().map(|method| method.name)).collect()
}

/// Like [`names`], with the methods of plugins as far as they are known.
pub(crate) fn all_names(server: &ServerState) -> Vec<String> {
    let plugins = server.routes.plugins.as_ref().map(|plugins| plugins.methods()).unwrap_or_default();
    names(&server.routes.methods).into_iter().map(str::to_owned).chain(plugins).collect()
}

/// Removes methods whose names are taken already.
pub(crate) fn without_duplicates(methods: Vec<Method>) -> Vec<Method> {
    let mut distinct: Vec<Method> = Vec::new();
    for method in methods {
        if method.name == "connect" || names(&distinct).contains(&method.name) {
            tracing::error!(method = method.name, "method name is already registered; ignoring the duplicate");
        } else {
            distinct.push(method);
        }
    }
    distinct
}

/// Dispatches a request and sends its response.
pub(crate) async fn dispatch(server: Arc<ServerState>, client: Arc<Client>, request: Request) {
    let Request { id, method, params, .. } = request;
    let call = RpcCall { server: server.clone(), client: client.clone(), params };
    // A panic in a method must not end the connection.
    let answer = match AssertUnwindSafe(call_method(&method, call)).catch_unwind().await {
        Ok(answer) => answer,
        Err(_) => Err(ErrorShape::unavailable(format!("internal error in {method}; see the gateway's log"))),
    };
    let respond = |id: String, payload, error: Option<ErrorShape>| {
        let ok = error.is_none();
        client.send_queue.respond(&Response { id: id.into(), ok, payload: Some(payload), error });
    };
    match answer {
        Ok(RpcResult::Single(payload, error)) => respond(id, payload, error),
        Ok(RpcResult::Gated(payload, error, gate)) => {
            respond(id, payload, error);
            if client.needs_pause {
                client.send_queue.pause();
            }
            drop(gate);
        }
        Ok(RpcResult::Revoking(payload, connections)) => {
            respond(id, payload, None);
            drop(connections);
        }
        Ok(RpcResult::WithFinal(payload, tape, gate)) => {
            client.send_queue.respond(&Response::ok(&id, payload));
            server.projector.respond_at_end(tape, client, id);
            drop(gate);
        }
        Ok(RpcResult::Resume(position)) => server.projector.resume(ResumeRequest { client, request: id, position }),
        Err(error) => client.send_queue.respond(&Response::error(id, error)),
    }
}

async fn call_method(name: &str, call: RpcCall) -> Result<RpcResult, ErrorShape> {
    if name == "connect" {
        return Err(ErrorShape::invalid("connect is only valid as the first request"));
    }
    if let Some(method) = BUILT_IN.iter().find(|method| method.name == name) {
        check(&call, name, method.scope)?;
        return (method.handler)(call).await;
    }
    let Some(method) = call.server.routes.methods.iter().find(|method| method.name == name).cloned() else {
        return call_plugin(name, call).await;
    };
    check(&call, name, method.scopes.of(call.client.generation))?;
    (method.handler)(MethodRequest::new(call)).await.map(RpcResult::from)
}

/// Forwards a request to a plugin's method.
async fn call_plugin(name: &str, mut call: RpcCall) -> Result<RpcResult, ErrorShape> {
    let found = call
        .server
        .routes
        .plugins
        .clone()
        .and_then(|plugins| plugins.required_scope(name).map(|scope| (plugins, scope)));
    // Unknown methods require the highest scope, so that an unlisted name cannot be probed with less.
    check(&call, name, found.as_ref().map_or(Scope::Admin, |(_, scope)| *scope))?;
    let (plugins, _) = found.ok_or_else(|| ErrorShape::invalid(format!("unknown method: {name}")))?;
    let client = serde_json::json!({"id": call.client.id, "protocol": call.client.generation.number()});
    plugins.call(name, call.params.take().unwrap_or_default(), client).await.map(RpcResult::from)
}

fn check(call: &RpcCall, name: &str, required: Scope) -> Result<(), ErrorShape> {
    let client = &call.client;
    if client.scopes.allow(required) {
        return Ok(());
    }
    let record = AuditRecord::new(AuditKind::ScopeDenied).actor(&format!("connection {}", client.id)).outcome("denied");
    call.server.hub.audit().note(record.with("method", name).with("needs", required.name()));
    Err(scope::missing_error(client.generation, required))
}
