//! RPC dispatch: the method table, scope checks, and responses.

use std::{future::Future, panic::AssertUnwindSafe, pin::Pin, sync::Arc};

use futures_util::FutureExt;
use homard_agent::Tape;
use homard_audit::{Fact, What};
use homard_proto::{
    ErrorShape,
    frame::{Request, Response},
    method::Params,
};
use serde_json::Value;

use crate::{
    added::{Asked, Method},
    client::Client,
    methods::{
        absent, agent, agents,
        chat::{history, inject, resume, send},
        commands, cron, devices, follow, health, house, logs, machine, models, runs,
        sessions::{self, change, compact, look},
        startup, tasks, usage,
    },
    projector::{Hold, Missed, Resume},
    scope::{self, Scope},
    server::Server,
};

/// A request on its way to its method.
#[derive(Debug)]
pub(crate) struct Call {
    /// State shared by all connections.
    pub(crate) server: Arc<Server>,
    /// The caller.
    pub(crate) client: Arc<Client>,
    params: Option<Value>,
}

impl Call {
    /// Returns a string parameter before validation.
    pub(crate) fn asked(&self, name: &str) -> Option<String> {
        self.params.as_ref()?.get(name)?.as_str().map(str::to_owned)
    }

    /// Validates and decodes the parameters.
    pub(crate) fn params<P: Params>(&mut self) -> Result<P, ErrorShape> {
        P::decode(self.client.generation, self.params.take())
    }
}

/// Result of a method.
#[derive(Debug)]
pub(crate) enum Answer {
    /// A payload, with an error if the request failed.
    Once(Value, Option<ErrorShape>),
    /// The same, sent before the delayed events of the run.
    Held(Value, Option<ErrorShape>, Hold),
    /// A payload now and the run's result at its end; the run's events are delayed until the first is sent.
    Twice(Value, Arc<Tape>, Hold),
    /// Missed events of runs; answered by the projector, which knows what was sent last.
    Missed(Missed),
}

impl From<Value> for Answer {
    fn from(payload: Value) -> Self {
        Self::Once(payload, None)
    }
}

/// Future that resolves to a method's result.
type Answering = Pin<Box<dyn Future<Output = Result<Answer, ErrorShape>> + Send>>;

/// A method implemented in this crate.
struct BuiltIn {
    name: &'static str,
    needs: Scope,
    answer: fn(Call) -> Answering,
}

/// All built-in methods; `hello-ok` lists exactly these and the registered ones.
const BUILT_IN: &[BuiltIn] = &[
    BuiltIn { name: "health", needs: Scope::Read, answer: |call| Box::pin(health::health(call)) },
    BuiltIn { name: "status", needs: Scope::Read, answer: |call| Box::pin(health::status(call)) },
    BuiltIn { name: "system-presence", needs: Scope::Read, answer: |call| Box::pin(health::presence(call)) },
    BuiltIn { name: "agent", needs: Scope::Write, answer: |call| Box::pin(agent::start(call)) },
    BuiltIn { name: "agent.wait", needs: Scope::Write, answer: |call| Box::pin(agent::wait(call)) },
    BuiltIn { name: "agents.list", needs: Scope::Read, answer: |call| Box::pin(agents::list(call)) },
    BuiltIn { name: "agent.identity.get", needs: Scope::Read, answer: |call| Box::pin(agents::identity(call)) },
    BuiltIn { name: "sessions.list", needs: Scope::Read, answer: |call| Box::pin(sessions::list(call)) },
    BuiltIn { name: "sessions.resolve", needs: Scope::Read, answer: |call| Box::pin(look::resolve(call)) },
    BuiltIn { name: "sessions.preview", needs: Scope::Read, answer: |call| Box::pin(look::preview(call)) },
    BuiltIn { name: "sessions.describe", needs: Scope::Read, answer: |call| Box::pin(look::describe(call)) },
    BuiltIn { name: "sessions.create", needs: Scope::Write, answer: |call| Box::pin(change::create(call)) },
    BuiltIn { name: "sessions.patch", needs: Scope::Admin, answer: |call| Box::pin(change::patch(call)) },
    BuiltIn { name: "sessions.reset", needs: Scope::Admin, answer: |call| Box::pin(change::reset(call)) },
    BuiltIn { name: "sessions.delete", needs: Scope::Admin, answer: |call| Box::pin(change::delete(call)) },
    BuiltIn { name: "sessions.compact", needs: Scope::Admin, answer: |call| Box::pin(compact::compact(call)) },
    BuiltIn { name: "sessions.compactions", needs: Scope::Read, answer: |call| Box::pin(compact::list(call)) },
    BuiltIn { name: "sessions.compactions.undo", needs: Scope::Admin, answer: |call| Box::pin(compact::undo(call)) },
    BuiltIn { name: "chat.history", needs: Scope::Read, answer: |call| Box::pin(history::history(call)) },
    BuiltIn { name: "chat.send", needs: Scope::Write, answer: |call| Box::pin(send::send(call)) },
    BuiltIn { name: "chat.abort", needs: Scope::Write, answer: |call| Box::pin(send::abort(call)) },
    BuiltIn { name: "chat.inject", needs: Scope::Admin, answer: |call| Box::pin(inject::inject(call)) },
    BuiltIn { name: "chat.resume", needs: Scope::Read, answer: |call| Box::pin(resume::resume(call)) },
    BuiltIn { name: "chat.startup", needs: Scope::Read, answer: |call| Box::pin(startup::startup(call)) },
    BuiltIn { name: "chat.metadata", needs: Scope::Read, answer: |call| Box::pin(startup::metadata(call)) },
    BuiltIn { name: "commands.list", needs: Scope::Read, answer: |call| Box::pin(commands::list(call)) },
    BuiltIn { name: "models.list", needs: Scope::Read, answer: |call| Box::pin(models::list(call)) },
    BuiltIn { name: "sessions.subscribe", needs: Scope::Read, answer: |call| Box::pin(follow::subscribe(call)) },
    BuiltIn { name: "sessions.unsubscribe", needs: Scope::Read, answer: |call| Box::pin(follow::unsubscribe(call)) },
    BuiltIn {
        name: "sessions.messages.subscribe",
        needs: Scope::Read,
        answer: |call| Box::pin(follow::follow_messages(call)),
    },
    BuiltIn {
        name: "sessions.messages.unsubscribe",
        needs: Scope::Read,
        answer: |call| Box::pin(follow::leave_messages(call)),
    },
    BuiltIn { name: "tools.catalog", needs: Scope::Read, answer: |call| Box::pin(house::tools(call)) },
    BuiltIn { name: "tools.effective", needs: Scope::Read, answer: |call| Box::pin(house::effective_tools(call)) },
    BuiltIn { name: "logs.tail", needs: Scope::Read, answer: |call| Box::pin(logs::tail(call)) },
    BuiltIn { name: "node.list", needs: Scope::Read, answer: |call| Box::pin(house::nodes(call)) },
    BuiltIn { name: "runs.list", needs: Scope::Read, answer: |call| Box::pin(runs::list(call)) },
    BuiltIn { name: "runs.get", needs: Scope::Read, answer: |call| Box::pin(runs::get(call)) },
    BuiltIn { name: "runs.trace", needs: Scope::Read, answer: |call| Box::pin(runs::trace(call)) },
    BuiltIn { name: "runs.held", needs: Scope::Read, answer: |call| Box::pin(runs::held(call)) },
    BuiltIn { name: "runs.release", needs: Scope::Write, answer: |call| Box::pin(runs::release(call)) },
    BuiltIn { name: "runs.drop", needs: Scope::Write, answer: |call| Box::pin(runs::drop_held(call)) },
    BuiltIn { name: "usage.cost", needs: Scope::Read, answer: |call| Box::pin(usage::cost(call)) },
    BuiltIn { name: "sessions.usage", needs: Scope::Read, answer: |call| Box::pin(usage::sessions(call)) },
    BuiltIn { name: "sessions.usage.timeseries", needs: Scope::Read, answer: |call| Box::pin(usage::timeseries(call)) },
    BuiltIn { name: "sessions.usage.logs", needs: Scope::Read, answer: |call| Box::pin(usage::logs(call)) },
    BuiltIn { name: "usage.status", needs: Scope::Read, answer: |call| Box::pin(house::usage(call)) },
    BuiltIn { name: "system.info", needs: Scope::Read, answer: |call| Box::pin(machine::info(call)) },
    BuiltIn { name: "system-event", needs: Scope::Admin, answer: |call| Box::pin(house::system_event(call)) },
    BuiltIn { name: "question.list", needs: Scope::Questions, answer: |call| Box::pin(house::questions(call)) },
    BuiltIn {
        name: "plugin.approval.list",
        needs: Scope::Approvals,
        answer: |call| Box::pin(house::other_approvals(call)),
    },
    BuiltIn {
        name: "openclaw.approval.list",
        needs: Scope::Approvals,
        answer: |call| Box::pin(house::other_approvals(call)),
    },
    BuiltIn { name: "themes.list", needs: Scope::Read, answer: |call| Box::pin(house::themes(call)) },
    BuiltIn { name: "models.authStatus", needs: Scope::Read, answer: |call| Box::pin(models::auth_status(call)) },
    BuiltIn { name: "tasks.list", needs: Scope::Read, answer: |call| Box::pin(tasks::list(call)) },
    BuiltIn { name: "diagnostics.lanes", needs: Scope::Read, answer: |call| Box::pin(tasks::lanes(call)) },
    BuiltIn { name: "environments.list", needs: Scope::Read, answer: |call| Box::pin(house::places(call)) },
    BuiltIn { name: "doctor.memory.status", needs: Scope::Read, answer: |call| Box::pin(house::memory(call)) },
    BuiltIn { name: "webSearch.status", needs: Scope::Read, answer: |call| Box::pin(house::web_search(call)) },
    BuiltIn { name: "update.status", needs: Scope::Read, answer: |call| Box::pin(absent::update(call)) },
    BuiltIn { name: "node.pair.list", needs: Scope::Pairing, answer: |call| Box::pin(absent::node_pairs(call)) },
    BuiltIn { name: "diagnostics.stability", needs: Scope::Read, answer: |call| Box::pin(absent::stability(call)) },
    BuiltIn { name: "plugins.catalog.browse", needs: Scope::Read, answer: |call| Box::pin(absent::market(call)) },
    BuiltIn {
        name: "exec.approval.grants.list",
        needs: Scope::Approvals,
        answer: |call| Box::pin(absent::grants(call)),
    },
    BuiltIn { name: "artifacts.list", needs: Scope::Read, answer: |call| Box::pin(absent::artifacts(call)) },
    BuiltIn { name: "talk.catalog", needs: Scope::Read, answer: |call| Box::pin(absent::voices(call)) },
    BuiltIn { name: "progressCard.get", needs: Scope::Read, answer: |call| Box::pin(absent::progress_card(call)) },
    BuiltIn { name: "sessions.branches.list", needs: Scope::Read, answer: |call| Box::pin(absent::branches(call)) },
    BuiltIn { name: "sessions.companion.state", needs: Scope::Read, answer: |call| Box::pin(absent::companion(call)) },
    BuiltIn {
        name: "sessions.observer.visibility",
        needs: Scope::Read,
        answer: |call| Box::pin(absent::observer(call)),
    },
    BuiltIn { name: "transcripts.list", needs: Scope::Read, answer: |call| Box::pin(absent::meetings(call)) },
    BuiltIn { name: "skills.library.list", needs: Scope::Read, answer: |call| Box::pin(absent::shared_skills(call)) },
    BuiltIn { name: "skills.proposals.list", needs: Scope::Read, answer: |call| Box::pin(absent::proposals(call)) },
    BuiltIn { name: "migrations.memory.plan", needs: Scope::Admin, answer: |call| Box::pin(absent::memories(call)) },
    BuiltIn { name: "tools.github.status", needs: Scope::Read, answer: |call| Box::pin(absent::github(call)) },
    BuiltIn { name: "device.pair.list", needs: Scope::Pairing, answer: |call| Box::pin(devices::list(call)) },
    BuiltIn { name: "device.pair.approve", needs: Scope::Pairing, answer: |call| Box::pin(devices::approve(call)) },
    BuiltIn { name: "device.pair.reject", needs: Scope::Pairing, answer: |call| Box::pin(devices::reject(call)) },
    BuiltIn { name: "device.pair.remove", needs: Scope::Pairing, answer: |call| Box::pin(devices::remove(call)) },
    BuiltIn { name: "device.pair.rename", needs: Scope::Pairing, answer: |call| Box::pin(devices::rename(call)) },
    BuiltIn { name: "device.token.rotate", needs: Scope::Pairing, answer: |call| Box::pin(devices::rotate(call)) },
    BuiltIn { name: "device.token.revoke", needs: Scope::Pairing, answer: |call| Box::pin(devices::revoke(call)) },
    BuiltIn { name: "cron.status", needs: Scope::Read, answer: |call| Box::pin(cron::status(call)) },
    BuiltIn { name: "cron.list", needs: Scope::Read, answer: |call| Box::pin(cron::list(call)) },
    BuiltIn { name: "cron.get", needs: Scope::Read, answer: |call| Box::pin(cron::get(call)) },
    BuiltIn { name: "cron.runs", needs: Scope::Read, answer: |call| Box::pin(cron::runs(call)) },
    BuiltIn { name: "cron.add", needs: Scope::Admin, answer: |call| Box::pin(cron::add(call)) },
    BuiltIn { name: "cron.update", needs: Scope::Admin, answer: |call| Box::pin(cron::update(call)) },
    BuiltIn { name: "cron.remove", needs: Scope::Admin, answer: |call| Box::pin(cron::remove(call)) },
    BuiltIn { name: "cron.run", needs: Scope::Admin, answer: |call| Box::pin(cron::run(call)) },
    BuiltIn { name: "wake", needs: Scope::Write, answer: |call| Box::pin(cron::wake(call)) },
    BuiltIn { name: "last-heartbeat", needs: Scope::Read, answer: |call| Box::pin(cron::last_heartbeat(call)) },
    BuiltIn { name: "set-heartbeats", needs: Scope::Admin, answer: |call| Box::pin(cron::set_heartbeats(call)) },
];

/// Returns the names of the built-in methods.
pub fn own_names() -> Vec<&'static str> {
    names(&[])
}

/// Returns the names of built-in and registered methods.
pub(crate) fn names(added: &[Method]) -> Vec<&'static str> {
    BUILT_IN.iter().map(|method| method.name).chain(added.iter().map(|method| method.name)).collect()
}

/// Like [`names`], with the methods of plugins as far as they are known.
pub(crate) fn all_names(server: &Server) -> Vec<String> {
    let foreign = server.foreign.as_ref().map(|foreign| foreign.methods()).unwrap_or_default();
    names(&server.methods).into_iter().map(str::to_owned).chain(foreign).collect()
}

/// Removes methods whose names are taken already.
pub(crate) fn distinct(methods: Vec<Method>) -> Vec<Method> {
    let mut distinct: Vec<Method> = Vec::new();
    for method in methods {
        if method.name == "connect" || names(&distinct).contains(&method.name) {
            tracing::error!(method = method.name, "a method was added whose name is taken; it is left out");
        } else {
            distinct.push(method);
        }
    }
    distinct
}

/// Dispatches a request and sends its response.
pub(crate) async fn answer(server: Arc<Server>, client: Arc<Client>, request: Request) {
    let Request { id, method, params, .. } = request;
    let call = Call { server: server.clone(), client: client.clone(), params };
    // A panic in a method must not end the connection.
    let answer = match AssertUnwindSafe(ask(&method, call)).catch_unwind().await {
        Ok(answer) => answer,
        Err(_) => Err(ErrorShape::unavailable(format!("internal error in {method}; the gateway's log says more"))),
    };
    let respond = |id: String, payload, error: Option<ErrorShape>| {
        let ok = error.is_none();
        client.outbox.respond(&Response { id: id.into(), ok, payload: Some(payload), error });
    };
    match answer {
        Ok(Answer::Once(payload, error)) => respond(id, payload, error),
        Ok(Answer::Held(payload, error, hold)) => {
            respond(id, payload, error);
            if client.needs_pause {
                client.outbox.pause();
            }
            drop(hold);
        }
        Ok(Answer::Twice(payload, tape, hold)) => {
            client.outbox.respond(&Response::ok(&id, payload));
            server.projector.answer_at_end(tape, client, id);
            drop(hold);
        }
        Ok(Answer::Missed(missed)) => server.projector.resume(Resume { client, request: id, missed }),
        Err(error) => client.outbox.respond(&Response::error(id, error)),
    }
}

async fn ask(name: &str, call: Call) -> Result<Answer, ErrorShape> {
    if name == "connect" {
        return Err(ErrorShape::invalid("connect is only valid as the first request"));
    }
    if let Some(method) = BUILT_IN.iter().find(|method| method.name == name) {
        check(&call, name, method.needs)?;
        return (method.answer)(call).await;
    }
    let Some(method) = call.server.methods.iter().find(|method| method.name == name).cloned() else {
        return ask_foreign(name, call).await;
    };
    check(&call, name, method.needs.of(call.client.generation))?;
    (method.answer)(Asked::new(call)).await.map(Answer::from)
}

/// Forwards a request to a plugin's method.
async fn ask_foreign(name: &str, mut call: Call) -> Result<Answer, ErrorShape> {
    let found = call.server.foreign.clone().and_then(|foreign| foreign.needs(name).map(|needs| (foreign, needs)));
    // Unknown methods require the highest scope, so that an unlisted name cannot be probed with less.
    check(&call, name, found.as_ref().map_or(Scope::Admin, |(_, needs)| *needs))?;
    let (foreign, _) = found.ok_or_else(|| ErrorShape::invalid(format!("unknown method: {name}")))?;
    let client = serde_json::json!({"id": call.client.id, "protocol": call.client.generation.number()});
    foreign.call(name, call.params.take().unwrap_or_default(), client).await.map(Answer::from)
}

fn check(call: &Call, name: &str, need: Scope) -> Result<(), ErrorShape> {
    let client = &call.client;
    if client.scopes.allow(need) {
        return Ok(());
    }
    let fact = Fact::new(What::ScopeDenied).by(&format!("connection {}", client.id)).ended("denied");
    call.server.hub.audit().note(fact.with("method", name).with("needs", need.name()));
    Err(scope::missing(client.generation, need))
}
