//! The connection of the chat to a gateway: established again whenever it breaks.

use std::{collections::BTreeMap, time::Duration};

use homard_chat::link::{Link, LinkEvent, Place, RpcError, RpcRequest};
use homard_client::{ConnectResult, Error, GatewayClient, GatewayTarget, ServerFrame, chat_gateway};
use homard_journal::lock::{self, LockHolder};
use homard_runtime::task;
use homard_settings::{Chosen, paths::Paths};
use tokio::{
    sync::mpsc::{self, UnboundedReceiver},
    task::JoinHandle,
    time::{Instant, sleep, timeout},
};
use tokio_util::sync::CancellationToken;

use crate::own_gateway::OwnGateway;

/// First and maximum pause between attempts to connect.
const FIRST_DELAY: Duration = Duration::from_millis(100);
const MAX_DELAY: Duration = Duration::from_secs(3);
/// Time for a gateway that was started for the chat to accept connections.
const START_TIMEOUT: Duration = Duration::from_secs(30);
/// Pause between attempts to connect to it.
const START_POLL: Duration = Duration::from_millis(25);
/// Time for a gateway that was running to come back, before one is started for the chat.
const RETURN_TIMEOUT: Duration = Duration::from_secs(30);
/// Number of events that wait for the terminal; beyond it, the socket is not read.
const MAX_WAITING: usize = 1_024;
/// Time to end when the chat ends.
const FINISH_TIMEOUT: Duration = Duration::from_secs(5);
/// The scopes of the chat: the holder of the gateway's token is the owner.
const SCOPES: [&str; 4] = ["operator.admin", "operator.write", "operator.read", "operator.approvals"];
const CAPS: [&str; 1] = ["tool-events"];

/// Handle of the connection.
#[derive(Debug)]
pub struct Connection {
    stop: CancellationToken,
    task: JoinHandle<()>,
}

impl Connection {
    /// Closes the connection, and ends a gateway that was started for the chat.
    pub async fn finish(self) {
        self.stop.cancel();
        // The gateway ends by itself if it takes longer.
        timeout(FINISH_TIMEOUT, self.task).await.ok();
    }
}

/// Starts connecting.
pub fn start(chosen: Chosen, paths: Paths) -> (Link, Connection) {
    let (requests, receiver) = mpsc::unbounded_channel();
    let (sender, events) = mpsc::channel(MAX_WAITING);
    let stop = CancellationToken::new();
    let mut connector = Connector { chosen, paths, events: sender, own: None, has_told_of_own: false, lost_at: None };
    let stopped = stop.clone();
    let task = task::spawn("chat connection", async move {
        tokio::select! {
            biased;
            () = stopped.cancelled() => {}
            () = connector.run(receiver) => {}
        }
        if let Some(own) = connector.own {
            own.stop().await;
        }
    });
    (Link { requests, events }, Connection { stop, task })
}

struct Connector {
    chosen: Chosen,
    paths: Paths,
    events: mpsc::Sender<LinkEvent>,
    /// The gateway that was started for the chat.
    own: Option<OwnGateway>,
    /// True if the user knows that a gateway is started for the chat.
    has_told_of_own: bool,
    /// When the connection to a gateway broke that is expected to return.
    lost_at: Option<Instant>,
}

/// Why there is no connection.
enum ConnectFailure {
    /// It may be there later.
    Retry(String),
    /// The user has to do something first.
    Final(String),
}

impl Connector {
    async fn run(&mut self, mut requests: UnboundedReceiver<RpcRequest>) {
        let mut delay = FIRST_DELAY;
        loop {
            let why = match self.connect().await {
                Ok(client) => {
                    delay = FIRST_DELAY;
                    // The gateway of another chat ends with that chat.
                    let is_meant_to_stay = chat_gateway::holder(&self.paths.state).is_none();
                    // Requests of the broken connection are sent again by the chat if they matter.
                    while requests.try_recv().is_ok() {}
                    let place = if self.own.is_some() { Place::OwnGateway } else { Place::Gateway };
                    let hello = client.hello().clone();
                    if self.events.send(LinkEvent::Connected { hello, place }).await.is_err() {
                        return;
                    }
                    match self.serve(client, &mut requests).await {
                        Some(why) => {
                            self.lost_at = is_meant_to_stay.then(Instant::now);
                            why
                        }
                        None => return,
                    }
                }
                Err(ConnectFailure::Retry(why)) => why,
                Err(ConnectFailure::Final(why)) => {
                    // Fails only if the chat has ended.
                    self.events.send(LinkEvent::Failed(why)).await.ok();
                    return;
                }
            };
            if self.events.send(LinkEvent::Lost { why, retry_in: delay }).await.is_err() {
                return;
            }
            sleep(delay).await;
            delay = (delay * 2).min(MAX_DELAY);
        }
    }

    /// Connects to the running gateway. If there is none, one is started for the chat.
    async fn connect(&mut self) -> Result<Box<GatewayClient>, ConnectFailure> {
        let target =
            GatewayTarget::find(None, None, &self.chosen.loaded, &self.paths).map_err(|error| failure(&error))?;
        // Another gateway may have taken over from the own one.
        self.own = self.own.take().and_then(OwnGateway::if_running);
        match GatewayClient::connect(&target, &SCOPES, &CAPS).await {
            Ok(ConnectResult::Gateway(client)) => Ok(client),
            Ok(ConnectResult::NotRunning) if target.is_own && !self.is_awaited() => {
                match lock::holder(&self.paths.state) {
                    Some(holder) => Err(in_use(&holder)),
                    None => self.start_own().await,
                }
            }
            Ok(ConnectResult::NotRunning) => {
                Err(ConnectFailure::Retry(format!("no gateway answers at {}", target.url)))
            }
            Err(error) => Err(failure(&error)),
        }
    }

    /// True for a gateway that ran a moment ago: its supervisor or the user starts it again.
    fn is_awaited(&self) -> bool {
        self.lost_at.is_some_and(|lost_at| lost_at.elapsed() < RETURN_TIMEOUT)
    }

    async fn start_own(&mut self) -> Result<Box<GatewayClient>, ConnectFailure> {
        let mut own = OwnGateway::start(&self.paths).map_err(|error| {
            ConnectFailure::Final(format!("no gateway is running, and none could be started: {error}"))
        })?;
        let until = Instant::now() + START_TIMEOUT;
        loop {
            if let Some(why) = own.failure() {
                // Another process, such as a second chat, was faster.
                return Err(match lock::holder(&self.paths.state) {
                    Some(holder) => in_use(&holder),
                    None => ConnectFailure::Final(format!("the gateway could not be started\n{why}")),
                });
            }
            let target =
                GatewayTarget::find(None, None, &self.chosen.loaded, &self.paths).map_err(|error| failure(&error))?;
            if let Ok(ConnectResult::Gateway(client)) = GatewayClient::connect(&target, &SCOPES, &CAPS).await {
                let is_own = lock::holder(&self.paths.state).is_none_or(|holder| own.is_process(holder.pid));
                if is_own {
                    self.own = Some(own);
                    let text = "no gateway is running; one was started for this chat and ends with it";
                    if !std::mem::replace(&mut self.has_told_of_own, true) {
                        // Fails only if the chat has ended.
                        self.events.send(LinkEvent::Remark(text.to_owned())).await.ok();
                    }
                }
                return Ok(client);
            }
            if Instant::now() > until {
                own.stop().await;
                let why = format!("the gateway did not start within {} seconds", START_TIMEOUT.as_secs());
                return Err(ConnectFailure::Final(why));
            }
            sleep(START_POLL).await;
        }
    }

    /// Passes requests and frames on until the connection breaks. Returns why, or nothing if the chat has ended.
    async fn serve(
        &self,
        mut client: Box<GatewayClient>,
        requests: &mut UnboundedReceiver<RpcRequest>,
    ) -> Option<String> {
        let mut ids = BTreeMap::new();
        loop {
            let frame = tokio::select! {
                biased;
                request = requests.recv() => {
                    let RpcRequest { id, method, params } = request?;
                    match client.send(method, params).await {
                        Ok(sent) => ids.insert(sent, id),
                        Err(error) => return Some(summary(&error)),
                    };
                    continue;
                }
                frame = client.next() => frame,
            };
            let event = match frame {
                Ok(ServerFrame::Event { event, payload }) => LinkEvent::Event { name: event, payload },
                Ok(ServerFrame::Response { id, answer }) => {
                    let Some(id) = ids.remove(&id) else { continue };
                    let result = answer.map_err(|error| RpcError { code: error.code, message: error.message });
                    LinkEvent::Response { id, result }
                }
                Err(error) => return Some(summary(&error)),
            };
            self.events.send(event).await.ok()?;
        }
    }
}

/// Another process has the state directory. It starts to listen, or ends its work there.
fn in_use(holder: &LockHolder) -> ConnectFailure {
    ConnectFailure::Retry(format!("the state directory is in use by {holder}, which does not listen yet"))
}

/// A connection that breaks may come back; a wrong token or URL does not change by itself.
fn failure(error: &Error) -> ConnectFailure {
    let text = error.to_string();
    match error {
        Error::Refused(refusal) if refusal.code != "UNAVAILABLE" => ConnectFailure::Final(text),
        Error::Refused(_) | Error::Connection(_) | Error::Socket(_) | Error::Frame(_) => ConnectFailure::Retry(text),
        Error::Config(_) | Error::Target(_) | Error::Settings(_) | Error::Credentials(_) => ConnectFailure::Final(text),
    }
}

fn summary(error: &Error) -> String {
    let text = error.to_string();
    text.strip_prefix("the connection to the gateway was lost: ").unwrap_or(&text).to_owned()
}
