//! What can be asked, and who may.

use std::{future::Future, panic::AssertUnwindSafe, pin::Pin, sync::Arc};

use futures_util::FutureExt;
use homard_agent::Tape;
use homard_proto::{
    ErrorShape,
    frame::{Request, Response},
    method::Params,
};
use serde_json::Value;

use crate::{
    connection::Client,
    methods::{
        agent,
        chat::{self, send},
        cron, health,
        sessions::{self, change, look},
    },
    projector::Hold,
    scope::{self, Scope},
    server::Server,
};

/// One question, on its way to whoever answers it.
#[derive(Debug)]
pub(crate) struct Call {
    /// What all connections share.
    pub(crate) server: Arc<Server>,
    /// Who asks.
    pub(crate) client: Arc<Client>,
    /// With what.
    params: Option<Value>,
}

impl Call {
    /// Checks and reads the parameters.
    pub(crate) fn params<P: Params>(&mut self) -> Result<P, ErrorShape> {
        P::decode(self.client.generation, self.params.take())
    }
}

/// What a question is answered with.
#[derive(Debug)]
pub(crate) enum Answer {
    /// This, and an error beside it if it did not go well.
    Once(Value, Option<ErrorShape>),
    /// This, before any news of the run that are held.
    Held(Value, Option<ErrorShape>, Hold),
    /// This, and what comes of the run on this tape, whose news are held until then.
    Twice(Value, Arc<Tape>, Hold),
}

impl From<Value> for Answer {
    fn from(payload: Value) -> Self {
        Self::Once(payload, None)
    }
}

/// An answer in the making.
type Answering = Pin<Box<dyn Future<Output = Result<Answer, ErrorShape>> + Send>>;

struct Method {
    name: &'static str,
    needs: Scope,
    answer: fn(Call) -> Answering,
}

/// Everything that can be asked; `hello-ok` lists exactly this.
const METHODS: [Method; 28] = [
    Method { name: "health", needs: Scope::Read, answer: |call| Box::pin(health::health(call)) },
    Method { name: "status", needs: Scope::Read, answer: |call| Box::pin(health::status(call)) },
    Method { name: "system-presence", needs: Scope::Read, answer: |call| Box::pin(health::presence(call)) },
    Method { name: "agent", needs: Scope::Write, answer: |call| Box::pin(agent::start(call)) },
    Method { name: "agent.wait", needs: Scope::Write, answer: |call| Box::pin(agent::wait(call)) },
    Method { name: "sessions.list", needs: Scope::Read, answer: |call| Box::pin(sessions::list(call)) },
    Method { name: "sessions.resolve", needs: Scope::Read, answer: |call| Box::pin(look::resolve(call)) },
    Method { name: "sessions.preview", needs: Scope::Read, answer: |call| Box::pin(look::preview(call)) },
    Method { name: "sessions.describe", needs: Scope::Read, answer: |call| Box::pin(look::describe(call)) },
    Method { name: "sessions.create", needs: Scope::Write, answer: |call| Box::pin(change::create(call)) },
    Method { name: "sessions.patch", needs: Scope::Admin, answer: |call| Box::pin(change::patch(call)) },
    Method { name: "sessions.reset", needs: Scope::Admin, answer: |call| Box::pin(change::reset(call)) },
    Method { name: "sessions.delete", needs: Scope::Admin, answer: |call| Box::pin(change::delete(call)) },
    Method { name: "sessions.compact", needs: Scope::Admin, answer: |call| Box::pin(change::compact(call)) },
    Method { name: "chat.history", needs: Scope::Read, answer: |call| Box::pin(chat::history(call)) },
    Method { name: "chat.send", needs: Scope::Write, answer: |call| Box::pin(send::send(call)) },
    Method { name: "chat.abort", needs: Scope::Write, answer: |call| Box::pin(send::abort(call)) },
    Method { name: "cron.status", needs: Scope::Read, answer: |call| Box::pin(cron::status(call)) },
    Method { name: "cron.list", needs: Scope::Read, answer: |call| Box::pin(cron::list(call)) },
    Method { name: "cron.get", needs: Scope::Read, answer: |call| Box::pin(cron::get(call)) },
    Method { name: "cron.runs", needs: Scope::Read, answer: |call| Box::pin(cron::runs(call)) },
    Method { name: "cron.add", needs: Scope::Admin, answer: |call| Box::pin(cron::add(call)) },
    Method { name: "cron.update", needs: Scope::Admin, answer: |call| Box::pin(cron::update(call)) },
    Method { name: "cron.remove", needs: Scope::Admin, answer: |call| Box::pin(cron::remove(call)) },
    Method { name: "cron.run", needs: Scope::Admin, answer: |call| Box::pin(cron::run(call)) },
    Method { name: "wake", needs: Scope::Write, answer: |call| Box::pin(cron::wake(call)) },
    Method { name: "last-heartbeat", needs: Scope::Read, answer: |call| Box::pin(cron::last_heartbeat(call)) },
    Method { name: "set-heartbeats", needs: Scope::Admin, answer: |call| Box::pin(cron::set_heartbeats(call)) },
];

/// The names of everything that can be asked.
pub(crate) fn names() -> [&'static str; METHODS.len()] {
    METHODS.map(|method| method.name)
}

/// Answers a question, whatever it is.
pub(crate) async fn answer(server: Arc<Server>, client: Arc<Client>, request: Request) {
    let Request { id, method, params, .. } = request;
    let call = Call { server: server.clone(), client: client.clone(), params };
    // A bug in one answer must not take the connection with it.
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
            drop(hold);
        }
        Ok(Answer::Twice(payload, tape, hold)) => {
            client.outbox.respond(&Response::ok(&id, payload));
            server.projector.answer_at_end(tape, client, id);
            drop(hold);
        }
        Err(error) => client.outbox.respond(&Response::error(id, error)),
    }
}

async fn ask(name: &str, call: Call) -> Result<Answer, ErrorShape> {
    if name == "connect" {
        return Err(ErrorShape::invalid("connect is only valid as the first request"));
    }
    let Some(method) = METHODS.iter().find(|method| method.name == name) else {
        return Err(ErrorShape::invalid(format!("unknown method: {name}")));
    };
    if !call.client.scopes.allow(method.needs) {
        return Err(scope::missing(call.client.generation, method.needs));
    }
    (method.answer)(call).await
}
