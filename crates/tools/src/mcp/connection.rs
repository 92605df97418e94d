//! A connection to an MCP server.

use std::{borrow::Cow, error::Error as StdError, iter, str::FromStr, sync::Arc, time::Duration};

use homard_runtime::task;
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
    server_process::{ServerProcess, ServerStderr},
    setup::ServerTransport,
    supervisor::McpShared,
};
use crate::external::line;

/// Time limit for closing a connection.
const CLOSE_TIMEOUT: Duration = Duration::from_secs(2);

/// Connect timeout for HTTP servers.
const CONNECT_TIMEOUT: Duration = Duration::from_secs(10);

/// Maximum length of an error message from a server, in characters.
const MAX_ERROR_CHARS: usize = 2000;

/// Maximum number of tools per server.
const MAX_TOOLS: usize = 256;

/// Maximum number of pages of a tool list.
const MAX_PAGES: usize = 64;

/// Why a request to a server failed.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub(super) enum Error {
    /// It cannot be reached or started.
    #[error("cannot start or reach the server: {0}")]
    Start(String),
    /// The connection was lost.
    #[error("connection lost: {0}")]
    Disconnected(String),
    /// Timeout.
    #[error("no response within {0:?}")]
    Timeout(Duration),
    /// It rejected the request, or its response is invalid.
    #[error("{0}")]
    Rejected(String),
    /// It failed repeatedly and is in cooldown.
    #[error("in cooldown for another {} s after a failure: {why}", rest.as_secs() + 1)]
    Cooldown { rest: Duration, why: String },
}

impl Error {
    /// Maps the text of the error.
    pub(super) fn map_text(self, change: impl Fn(&str) -> String) -> Self {
        match self {
            Self::Start(text) => Self::Start(change(&text)),
            Self::Disconnected(text) => Self::Disconnected(change(&text)),
            Self::Rejected(text) => Self::Rejected(change(&text)),
            Self::Timeout(limit) => Self::Timeout(limit),
            Self::Cooldown { rest, why } => Self::Cooldown { rest, why: change(&why) },
        }
    }

    fn refused(reason: &str) -> Self {
        Self::Rejected(line(reason, MAX_ERROR_CHARS))
    }
}

/// The client's side of the protocol: our capabilities, and notifications from the server.
#[derive(Debug)]
struct McpClient {
    changed: Arc<Notify>,
}

impl ClientHandler for McpClient {
    async fn on_tool_list_changed(&self, _context: NotificationContext<RoleClient>) {
        self.changed.notify_one();
    }

    fn get_info(&self) -> ClientConfig {
        let client_info = Implementation::new("homard", env!("CARGO_PKG_VERSION"));
        ClientConfig::new(ClientCapabilities::default(), client_info)
    }
}

/// A connection to a server. Dropping it closes the connection.
#[derive(Debug)]
pub(super) struct McpConnection {
    peer: Peer<RoleClient>,
    stop: CancellationToken,
    stderr: Option<ServerStderr>,
}

impl McpConnection {
    /// Connects. Dropping the future leaves nothing behind.
    pub(super) async fn open(
        server_transport: &ServerTransport,
        shared: &McpShared,
        changed: Arc<Notify>,
    ) -> Result<Self, Error> {
        let handler = McpClient { changed };
        let stop = shared.stop.child_token();
        let (service, child) = match server_transport {
            ServerTransport::Command { command, args, env, cwd } => {
                let given = env.iter().map(|(name, value)| (name.clone(), value.clone()));
                let env = shared.env.iter().cloned().chain(given);
                let (child, stdout, stdin) = ServerProcess::start(command, args, env, cwd.as_deref())
                    .map_err(|error| Error::Start(format!("{command}: {error}")))?;
                // The transport rejects lines longer than 16 MiB.
                let transport = AsyncRwTransport::new_client(stdout, stdin);
                match serve_client_with_ct(handler, transport, stop.clone()).await {
                    Ok(service) => (service, Some(child)),
                    Err(error) => {
                        let stderr = child.stderr();
                        child.end().await;
                        return Err(Error::Start(with_stderr(init_error(&error), Some(&stderr))));
                    }
                }
            }
            ServerTransport::Http { url, headers } => {
                let transport = StreamableHttpClientTransport::with_client(client()?, config(url, headers)?);
                let served = serve_client_with_ct(handler, transport, stop.clone()).await;
                (served.map_err(|error| Error::Start(init_error(&error)))?, None)
            }
        };
        let (peer, stderr) = (service.peer().clone(), child.as_ref().map(ServerProcess::stderr));
        // Joined through the tracker on shutdown.
        task::spawn("mcp link", shared.tasks.track_future(hold(service, child, stop.clone())));
        Ok(Self { peer, stop, stderr })
    }

    /// True if the connection is closed.
    pub(super) fn is_closed(&self) -> bool {
        self.stop.is_cancelled() || self.peer.is_transport_closed()
    }

    /// Returns why it may have been closed.
    pub(super) fn close_reason(&self) -> String {
        with_stderr("the connection was closed".to_owned(), self.stderr.as_ref())
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
        for _ in 0..MAX_PAGES {
            let params = PaginatedRequestParams::default().with_cursor(cursor);
            let page = self.peer.list_tools(Some(params)).await.map_err(|error| self.explain(&error))?;
            tools.extend(page.tools);
            cursor = page.next_cursor;
            if cursor.is_none() || tools.len() > MAX_TOOLS {
                break;
            }
        }
        if tools.len() > MAX_TOOLS || cursor.is_some() {
            tracing::warn!(most = MAX_TOOLS, "an MCP server has too many tools; ignoring the rest");
        }
        tools.truncate(MAX_TOOLS);
        Ok(tools)
    }

    /// Calls a tool. Dropping the future sends a cancellation to the server.
    pub(super) async fn call(&self, tool: String, arguments: Option<JsonObject>) -> Result<CallToolResult, Error> {
        let mut params = CallToolRequestParams::new(Cow::Owned(tool));
        params.arguments = arguments;
        match self.peer.call_tool_once(params).await.map_err(|error| self.explain(&error))? {
            CallToolResponse::Complete(result) => Ok(result),
            CallToolResponse::InputRequired(_) => {
                Err(Error::refused("the server requested input from a person, which is not supported"))
            }
            CallToolResponse::Task(_) => {
                Err(Error::refused("the server returned a task to be finished later, which is not supported"))
            }
            _ => Err(Error::refused("the server returned an unknown type of response")),
        }
    }

    #[allow(clippy::wildcard_enum_match_arm, reason = "the others are told in their own words, and more may come")]
    fn explain(&self, error: &ServiceError) -> Error {
        match error {
            ServiceError::McpError(error) => {
                Error::refused(&format!("the server returned an error: {} ({})", error.message, error.code.0))
            }
            ServiceError::TransportSend(error) => {
                Error::Disconnected(with_stderr(innermost(error), self.stderr.as_ref()))
            }
            ServiceError::TransportClosed => Error::Disconnected(self.close_reason()),
            other => Error::refused(&other.to_string()),
        }
    }
}

impl Drop for McpConnection {
    fn drop(&mut self) {
        self.stop.cancel();
    }
}

/// Holds a connection until it is closed or no longer wanted, then stops the command behind it.
async fn hold(service: RunningService<RoleClient, McpClient>, child: Option<ServerProcess>, stop: CancellationToken) {
    let close_deadline = async {
        stop.cancelled().await;
        sleep(CLOSE_TIMEOUT).await;
    };
    tokio::select! {
        biased;
        quit = service.waiting() => tracing::debug!(?quit, "MCP connection closed"),
        () = close_deadline => tracing::warn!("MCP connection did not close in time; dropping it"),
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
    let builder = Client::builder().no_proxy().redirect(Policy::none()).referer(false).connect_timeout(CONNECT_TIMEOUT);
    builder.build().map_err(|error| Error::Start(innermost(&error)))
}

fn config<'a>(
    url: &str,
    headers: impl IntoIterator<Item = (&'a String, &'a String)>,
) -> Result<StreamableHttpClientTransportConfig, Error> {
    let mut config = StreamableHttpClientTransportConfig::with_uri(url);
    for (name, value) in headers {
        let refused = || Error::Start(format!("{name:?} is not a valid header name, or its value is invalid"));
        let header = HeaderName::from_str(name).ok().ok_or_else(refused)?;
        let mut value = HeaderValue::from_str(value).ok().ok_or_else(refused)?;
        value.set_sensitive(true);
        config.custom_headers.insert(header, value);
    }
    Ok(config)
}

#[allow(clippy::wildcard_enum_match_arm, reason = "the others are told in their own words, and more may come")]
fn init_error(error: &ClientInitializeError) -> String {
    match error {
        ClientInitializeError::TransportError { error, .. } => innermost(error),
        // The unexpected response can be anything, and long.
        ClientInitializeError::ExpectedInitResponse(_) | ClientInitializeError::ExpectedInitResult(_) => {
            "the server does not speak MCP".to_owned()
        }
        other => line(&other.to_string(), MAX_ERROR_CHARS),
    }
}

fn with_stderr(message: String, stderr: Option<&ServerStderr>) -> String {
    match stderr.map(ServerStderr::last).filter(|stderr| !stderr.is_empty()) {
        Some(stderr) => format!("{message}. Last output of the server: {stderr}"),
        None => message,
    }
}

/// Returns the innermost cause. The outer errors only wrap it and contain the URL, which may hold a secret.
fn innermost(error: &(dyn StdError + 'static)) -> String {
    iter::successors(Some(error), |&cause| cause.source()).last().map(ToString::to_string).unwrap_or_default()
}
