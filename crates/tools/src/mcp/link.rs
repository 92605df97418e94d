//! A connection to an MCP server.

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

/// Time limit for closing a connection.
const CLOSE: Duration = Duration::from_secs(2);

/// Connect timeout for HTTP servers.
const DIAL: Duration = Duration::from_secs(10);

/// Maximum length of an error message from a server, in characters.
const WORDS: usize = 2000;

/// Maximum number of tools per server.
const MOST_TOOLS: usize = 256;

/// Maximum number of pages of a tool list.
const MOST_PAGES: usize = 64;

/// Why a request to a server failed.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub(super) enum Error {
    /// It cannot be reached or started.
    #[error("it could not be started or reached: {0}")]
    Start(String),
    /// The connection was lost.
    #[error("it went away: {0}")]
    Gone(String),
    /// Timeout.
    #[error("it did not answer within {0:?}")]
    Slow(Duration),
    /// It rejected the request, or its response is invalid.
    #[error("{0}")]
    Refused(String),
    /// It failed repeatedly and is in cooldown.
    #[error("it is left alone for another {} s because of what happened before: {why}", rest.as_secs() + 1)]
    Resting { rest: Duration, why: String },
}

impl Error {
    /// Maps the text of the error.
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

/// The client's side of the protocol: our capabilities, and notifications from the server.
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

/// A connection to a server. Dropping it closes the connection.
#[derive(Debug)]
pub(super) struct Link {
    peer: Peer<RoleClient>,
    stop: CancellationToken,
    said: Option<Said>,
}

impl Link {
    /// Connects. Dropping the future leaves nothing behind.
    pub(super) async fn open(reach: &Reach, house: &House, changed: Arc<Notify>) -> Result<Self, Error> {
        let ears = Ears { changed };
        let stop = house.stop.child_token();
        let (service, child) = match reach {
            Reach::Command { command, args, env, cwd } => {
                let given = env.iter().map(|(name, value)| (name.clone(), value.clone()));
                let env = house.env.iter().cloned().chain(given);
                let (child, stdout, stdin) = Child::start(command, args, env, cwd.as_deref())
                    .map_err(|error| Error::Start(format!("{command}: {error}")))?;
                // The transport rejects lines longer than 16 MiB.
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
        // Joined through the tracker on shutdown.
        task::spawn("mcp link", house.tasks.track_future(hold(service, child, stop.clone())));
        Ok(Self { peer, stop, said })
    }

    /// True if the connection is closed.
    pub(super) fn is_closed(&self) -> bool {
        self.stop.is_cancelled() || self.peer.is_transport_closed()
    }

    /// Returns why it may have been closed.
    pub(super) fn last_words(&self) -> String {
        with_last_words("the connection was closed".to_owned(), self.said.as_ref())
    }

    /// Returns the name and version that the server reports.
    pub(super) fn server(&self) -> Option<String> {
        let info = self.peer.peer_info()?;
        let server = info.server_info.as_ref()?;
        Some(format!("{} {}", server.name, server.version))
    }

    /// Lists the tools.
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

    /// Calls a tool. Dropping the future sends a cancellation to the server.
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

/// Holds a connection until it is closed or no longer wanted, then stops the command behind it.
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
        // reqwest panics without a provider. This only fails if another thread installed one first, which is fine.
        rustls::crypto::ring::default_provider().install_default().ok();
    }
    // A redirect could send the headers, which may be secrets, to another server.
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
        // The unexpected response can be anything, and long.
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

/// Returns the innermost cause. The outer errors only wrap it and contain the URL, which may hold a secret.
fn innermost(error: &(dyn StdError + 'static)) -> String {
    iter::successors(Some(error), |&cause| cause.source()).last().map(ToString::to_string).unwrap_or_default()
}
