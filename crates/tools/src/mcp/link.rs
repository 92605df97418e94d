//! A connection to a server.

use std::{borrow::Cow, error::Error as StdError, iter, str::FromStr, sync::Arc, time::Duration};

use homard_agent::task;
use reqwest::{
    Client,
    header::{HeaderName, HeaderValue},
    redirect::Policy,
};
use rmcp::{
    ClientHandler, Peer, RoleClient, ServiceError,
    model::{
        CallToolRequestParams, CallToolResponse, CallToolResult, ClientCapabilities, ClientConfig, Implementation,
        JsonObject, PaginatedRequestParams, Tool,
    },
    service::{ClientInitializeError, NotificationContext, RunningService, serve_client_with_ct},
    transport::{
        StreamableHttpClientTransport, async_rw::AsyncRwTransport,
        streamable_http_client::StreamableHttpClientTransportConfig,
    },
};
use tokio::{sync::Notify, time::sleep};
use tokio_util::sync::CancellationToken;

use super::{
    child::{Child, Said},
    keeper::House,
    setup::Reach,
};
use crate::external::line;

/// How long a connection may take to be given up.
const CLOSE: Duration = Duration::from_secs(2);

/// How long the network may take to a server that speaks HTTP.
const DIAL: Duration = Duration::from_secs(10);

/// How long what a server says of its troubles may be, in characters.
const WORDS: usize = 2000;

/// How many tools of a server are taken.
const MOST_TOOLS: usize = 256;

/// How often a list may go on.
const MOST_PAGES: usize = 64;

/// Why a server did not do what it was asked.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub(super) enum Error {
    /// It is not there.
    #[error("it could not be started or reached: {0}")]
    Start(String),
    /// It was there, and is not any more.
    #[error("it went away: {0}")]
    Gone(String),
    /// It took too long.
    #[error("it did not answer within {0:?}")]
    Slow(Duration),
    /// It answered that it does not do that, or in a way that we do not understand.
    #[error("{0}")]
    Refused(String),
    /// It failed again and again, and is left alone for a while.
    #[error("it is left alone for another {} s because of what happened before: {why}", rest.as_secs() + 1)]
    Resting { rest: Duration, why: String },
}

impl Error {
    /// The same error with its text changed.
    pub(super) fn told_by(self, change: impl Fn(&str) -> String) -> Self {
        match self {
            Self::Start(text) => Self::Start(change(&text)),
            Self::Gone(text) => Self::Gone(change(&text)),
            Self::Refused(text) => Self::Refused(change(&text)),
            Self::Slow(limit) => Self::Slow(limit),
            Self::Resting { rest, why } => Self::Resting { rest, why: change(&why) },
        }
    }

    fn refused(why: &str) -> Self {
        Self::Refused(line(why, WORDS))
    }
}

/// What we tell a server of ourselves, and hear of it.
#[derive(Debug)]
struct Ears {
    changed: Arc<Notify>,
}

impl ClientHandler for Ears {
    async fn on_tool_list_changed(&self, _context: NotificationContext<RoleClient>) {
        self.changed.notify_one();
    }

    fn get_info(&self) -> ClientConfig {
        let ours = Implementation::new("homard", env!("CARGO_PKG_VERSION"));
        ClientConfig::new(ClientCapabilities::default(), ours)
    }
}

/// A connection to a server. It ends when this is dropped.
#[derive(Debug)]
pub(super) struct Link {
    peer: Peer<RoleClient>,
    stop: CancellationToken,
    said: Option<Said>,
}

impl Link {
    /// Connects. Dropped before its end, it leaves nothing behind.
    pub(super) async fn open(reach: &Reach, house: &House, changed: Arc<Notify>) -> Result<Self, Error> {
        let ears = Ears { changed };
        let stop = house.stop.child_token();
        let (service, child) = match reach {
            Reach::Command { command, args, env, cwd } => {
                let given = env.iter().map(|(name, value)| (name.clone(), value.clone()));
                let env = house.env.iter().cloned().chain(given);
                let (child, stdout, stdin) = Child::start(command, args, env, cwd.as_deref())
                    .map_err(|error| Error::Start(format!("{command}: {error}")))?;
                // It does not take in a line that is longer than 16 MiB.
                let transport = AsyncRwTransport::new_client(stdout, stdin);
                match serve_client_with_ct(ears, transport, stop.clone()).await {
                    Ok(service) => (service, Some(child)),
                    Err(error) => {
                        let said = child.said();
                        child.end().await;
                        return Err(Error::Start(with_last_words(unready(&error), Some(&said))));
                    }
                }
            }
            Reach::Http { url, headers } => {
                let transport = StreamableHttpClientTransport::with_client(client()?, config(url, headers)?);
                let served = serve_client_with_ct(ears, transport, stop.clone()).await;
                (served.map_err(|error| Error::Start(unready(&error)))?, None)
            }
        };
        let (peer, said) = (service.peer().clone(), child.as_ref().map(Child::said));
        // The tracker joins it when the house is closed.
        task::spawn("mcp link", house.tasks.track_future(hold(service, child, stop.clone())));
        Ok(Self { peer, stop, said })
    }

    /// Whether it is over.
    pub(super) fn is_closed(&self) -> bool {
        self.stop.is_cancelled() || self.peer.is_transport_closed()
    }

    /// Why it may be over.
    pub(super) fn last_words(&self) -> String {
        with_last_words("the connection was closed".to_owned(), self.said.as_ref())
    }

    /// Who it says that it is.
    pub(super) fn server(&self) -> Option<String> {
        let info = self.peer.peer_info()?;
        let server = info.server_info.as_ref()?;
        Some(format!("{} {}", server.name, server.version))
    }

    /// What it can do.
    pub(super) async fn list(&self) -> Result<Vec<Tool>, Error> {
        let mut tools = Vec::new();
        let mut cursor = None;
        for _ in 0..MOST_PAGES {
            let asked = PaginatedRequestParams::default().with_cursor(cursor);
            let page = self.peer.list_tools(Some(asked)).await.map_err(|error| self.explain(&error))?;
            tools.extend(page.tools);
            cursor = page.next_cursor;
            if cursor.is_none() || tools.len() > MOST_TOOLS {
                break;
            }
        }
        if tools.len() > MOST_TOOLS || cursor.is_some() {
            tracing::warn!(most = MOST_TOOLS, "an MCP server has more tools than are taken");
        }
        tools.truncate(MOST_TOOLS);
        Ok(tools)
    }

    /// Calls a tool. Dropped before its end, it tells the server that nobody waits any more.
    pub(super) async fn call(&self, tool: String, arguments: Option<JsonObject>) -> Result<CallToolResult, Error> {
        let mut asked = CallToolRequestParams::new(Cow::Owned(tool));
        asked.arguments = arguments;
        match self.peer.call_tool_once(asked).await.map_err(|error| self.explain(&error))? {
            CallToolResponse::Complete(result) => Ok(result),
            CallToolResponse::InputRequired(_) => {
                Err(Error::refused("it wants to ask a person, which is not possible here"))
            }
            CallToolResponse::Task(_) => Err(Error::refused("it wants to finish later, which is not possible here")),
            _ => Err(Error::refused("it answered in a way that is not understood")),
        }
    }

    #[allow(clippy::wildcard_enum_match_arm, reason = "the others are told in their own words, and more may come")]
    fn explain(&self, error: &ServiceError) -> Error {
        match error {
            ServiceError::McpError(error) => Error::refused(&format!("it says: {} ({})", error.message, error.code.0)),
            ServiceError::TransportSend(error) => Error::Gone(with_last_words(innermost(error), self.said.as_ref())),
            ServiceError::TransportClosed => Error::Gone(self.last_words()),
            other => Error::refused(&other.to_string()),
        }
    }
}

impl Drop for Link {
    fn drop(&mut self) {
        self.stop.cancel();
    }
}

/// Holds a connection until it is over or not wanted any more, and ends the command behind it.
async fn hold(service: RunningService<RoleClient, Ears>, child: Option<Child>, stop: CancellationToken) {
    let patience = async {
        stop.cancelled().await;
        sleep(CLOSE).await;
    };
    tokio::select! {
        biased;
        quit = service.waiting() => tracing::debug!(?quit, "an MCP connection is over"),
        () = patience => tracing::warn!("an MCP connection was given up"),
    }
    stop.cancel();
    if let Some(child) = child {
        child.end().await;
    }
}

fn client() -> Result<Client, Error> {
    if rustls::crypto::CryptoProvider::get_default().is_none() {
        // reqwest panics without one. It fails only if another thread was faster, which is as good.
        rustls::crypto::ring::default_provider().install_default().ok();
    }
    // A redirect could carry the headers, which may be secrets, to somebody else.
    let builder = Client::builder().no_proxy().redirect(Policy::none()).referer(false).connect_timeout(DIAL);
    builder.build().map_err(|error| Error::Start(innermost(&error)))
}

fn config<'a>(
    url: &str,
    headers: impl IntoIterator<Item = (&'a String, &'a String)>,
) -> Result<StreamableHttpClientTransportConfig, Error> {
    let mut config = StreamableHttpClientTransportConfig::with_uri(url);
    for (name, value) in headers {
        let refused = || Error::Start(format!("{name:?} is not a header, or has a value that none can have"));
        let header = HeaderName::from_str(name).ok().ok_or_else(refused)?;
        let mut value = HeaderValue::from_str(value).ok().ok_or_else(refused)?;
        value.set_sensitive(true);
        config.custom_headers.insert(header, value);
    }
    Ok(config)
}

#[allow(clippy::wildcard_enum_match_arm, reason = "the others are told in their own words, and more may come")]
fn unready(error: &ClientInitializeError) -> String {
    match error {
        ClientInitializeError::TransportError { error, .. } => innermost(error),
        // What came instead may be anything, and long.
        ClientInitializeError::ExpectedInitResponse(_) | ClientInitializeError::ExpectedInitResult(_) => {
            "it does not speak MCP".to_owned()
        }
        other => line(&other.to_string(), WORDS),
    }
}

fn with_last_words(what: String, said: Option<&Said>) -> String {
    match said.map(Said::last).filter(|said| !said.is_empty()) {
        Some(said) => format!("{what}. The last that it said: {said}"),
        None => what,
    }
}

/// The innermost reason. The outer ones only say that there was one, and name the URL, which may hold a secret.
fn innermost(error: &(dyn StdError + 'static)) -> String {
    iter::successors(Some(error), |&cause| cause.source()).last().map(ToString::to_string).unwrap_or_default()
}
