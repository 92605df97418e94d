//! A gateway client: WebSocket, protocol 4, authenticated by the shared secret, without a device identity.
//!
//! It sends requests and returns frames; what they mean, and how they are shown, is for its user. Start with
//! [`GatewayTarget::find`] (which gateway), then [`GatewayClient`].

pub mod chat_gateway;

mod error;
mod tls;

use std::{io::ErrorKind, time::Duration};

use futures_util::{SinkExt, StreamExt};
use homard_config::LoadedConfig;
use homard_credentials::{
    certificate,
    gateway_secret::{self, GatewaySecret, SecretSource},
};
use homard_journal::lock;
use homard_proto::{
    Extra, Generation,
    method::connect::{Client as Program, ConnectParams},
};
use homard_settings::{
    Config,
    paths::{self, PORT, Paths},
};
use serde::Deserialize;
use serde_json::{Value, json};
use tokio::{net::TcpStream, time::timeout};
use tokio_rustls::client::TlsStream;
use tokio_tungstenite::{
    WebSocketStream, client_async_with_config,
    tungstenite::{Message, http::Uri, protocol::WebSocketConfig},
};
use tokio_util::either::Either;

pub use self::{
    error::{Error, RpcError},
    tls::Fingerprint,
};

/// Timeout for each step of connecting.
const CONNECT_TIMEOUT: Duration = Duration::from_secs(10);
/// Maximum size of a message from the gateway.
const MAX_MESSAGE: usize = 25 << 20;

/// The gateway to connect to.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct GatewayTarget {
    pub url: String,
    /// The shared secret.
    pub secret: Option<GatewaySecret>,
    /// Fingerprint of the certificate; without it the system must trust the certificate.
    pub pin: Option<Fingerprint>,
    /// True if it is the gateway of this state directory, so that this process may act in its place.
    pub is_own: bool,
    /// True if that gateway is known not to run. Its token is then not sent to whatever listens on its port.
    pub is_down: bool,
}

impl GatewayTarget {
    /// Finds the gateway from flags, environment and config.
    pub fn find(
        url: Option<String>,
        flag: Option<GatewaySecret>,
        loaded: &LoadedConfig<Config>,
        paths: &Paths,
    ) -> Result<Self, Error> {
        let config = &loaded.config;
        let gateway = &config.gateway;
        let known = |path: &str| {
            let fault = loaded.faults.iter().find(|fault| fault.problem.path.starts_with(path));
            fault.map_or(Ok(()), |fault| Err(Error::Config(format!("config file {}, {fault}", paths.config.display()))))
        };
        if let Some(url) = url {
            // The secret of this gateway is not sent to another one.
            return Ok(Self { url, secret: flag, pin: None, is_own: false, is_down: false });
        }
        if gateway.mode.as_deref() == Some("remote") {
            known("gateway.remote")?;
            let Some(url) = &gateway.remote.url else {
                let file = paths.config.display();
                return Err(Error::Target(format!(
                    "gateway.mode is \"remote\" and gateway.remote.url is missing in {file}"
                )));
            };
            let text = |text: &Option<homard_settings::Text>| text.as_ref().map(|text| text.as_str().to_owned());
            let secret =
                flag.or_else(|| GatewaySecret::either(text(&gateway.remote.token), text(&gateway.remote.password)));
            let pin = gateway.remote.tls_fingerprint.as_ref().map(|text| Fingerprint::read(text.as_str())).transpose();
            let pin = pin.map_err(|error| {
                Error::Target(format!("gateway.remote.tlsFingerprint in {}: {error}", paths.config.display()))
            })?;
            return Ok(Self { url: url.as_str().to_owned(), secret, pin, is_own: false, is_down: false });
        }
        // A running gateway records its port: it may have been started with another one than the config has now.
        let recorded = recorded_port(paths);
        let port = paths::port()?.or(recorded).or(gateway.port).unwrap_or(PORT);
        let (secret, source) = gateway_secret::find(flag, config, paths)?.unzip();
        if !matches!(source, Some(SecretSource::Flag | SecretSource::Environment)) {
            known("gateway.auth")?;
        }
        // The token of this state directory is meant for its gateway only: whatever else listens does not get it.
        let is_down = matches!(source, Some(SecretSource::File(_))) && recorded.is_none();
        if !gateway.tls.enabled {
            return Ok(Self { url: format!("ws://127.0.0.1:{port}"), secret, pin: None, is_own: true, is_down });
        }
        let pin = certificate::fingerprint(config, paths).map(|text| Fingerprint::read(&text)).transpose()?;
        Ok(Self { url: format!("wss://127.0.0.1:{port}"), secret, pin, is_own: true, is_down })
    }
}

/// Returns the port on which the gateway of the state directory listens; `None` if no gateway holds the directory, or
/// the one that does is not listening yet.
fn recorded_port(paths: &Paths) -> Option<u16> {
    let holder = lock::holder(&paths.state)?;
    let text = std::fs::read_to_string(paths.port_file()).ok()?;
    let (port, pid) = match text.trim().split_once(' ') {
        Some((port, pid)) => (port, pid.parse().ok()?),
        // A gateway of an earlier version, which is about to be restarted, records the port alone.
        None => (text.trim(), holder.pid),
    };
    if pid == holder.pid { port.parse().ok() } else { None }
}

/// Result of a connection attempt.
#[derive(Debug)]
pub enum ConnectResult {
    /// The gateway completed the handshake.
    Gateway(Box<GatewayClient>),
    /// No gateway listens there; nothing was sent.
    NotRunning,
}

/// A message from the gateway.
#[derive(Debug, Clone, PartialEq)]
pub enum ServerFrame {
    /// Response to the request with this id.
    Response { id: String, answer: Result<Value, RpcError> },
    /// An event.
    Event { event: String, payload: Value },
}

#[derive(Deserialize)]
#[serde(default)]
#[derive(Default)]
struct Frame {
    r#type: String,
    id: String,
    ok: bool,
    event: String,
    payload: Value,
    error: Option<RpcError>,
}

/// A connection to a gateway.
#[derive(Debug)]
pub struct GatewayClient {
    socket: WebSocketStream<Either<TcpStream, TlsStream<TcpStream>>>,
    requests: u64,
    /// Payload of `hello-ok`.
    hello: Value,
}

impl GatewayClient {
    /// Connects and performs the handshake with the given scopes and capabilities.
    pub async fn connect(target: &GatewayTarget, scopes: &[&str], caps: &[&str]) -> Result<ConnectResult, Error> {
        if target.is_down {
            return Ok(ConnectResult::NotRunning);
        }
        let GatewayAddress { uri, host, port, is_tls: is_secret } = parse_address(&target.url)?;
        let connection_error = |why: String| Error::Connection(format!("the gateway at {} {why}", target.url));
        let timed_out = |_| connection_error("does not answer".to_owned());
        let stream =
            match timeout(CONNECT_TIMEOUT, TcpStream::connect((host.as_str(), port))).await.map_err(timed_out)? {
                Ok(stream) => stream,
                Err(error) if error.kind() == ErrorKind::ConnectionRefused => return Ok(ConnectResult::NotRunning),
                Err(error) => return Err(connection_error(format!("cannot be reached: {error}"))),
            };
        stream.set_nodelay(true).map_err(Error::Socket)?;
        let stream = if is_secret {
            let handshake =
                timeout(CONNECT_TIMEOUT, tls::connect(stream, &host, target.pin.as_ref())).await.map_err(timed_out)?;
            Either::Right(handshake.map_err(|error| connection_error(tls_error(target, &error)))?)
        } else {
            Either::Left(stream)
        };
        let config = WebSocketConfig::default().max_message_size(Some(MAX_MESSAGE)).max_frame_size(Some(MAX_MESSAGE));
        let upgrade =
            timeout(CONNECT_TIMEOUT, client_async_with_config(uri, stream, Some(config))).await.map_err(timed_out)?;
        let (socket, _) = upgrade.map_err(|error| {
            connection_error(format!(
                "did not complete the WebSocket handshake: {error}\nanother program may be listening there; choose another port with HOMARD_GATEWAY_PORT"
            ))
        })?;
        let mut client = Self { socket, requests: 0, hello: Value::Null };
        timeout(CONNECT_TIMEOUT, client.handshake(target, scopes, caps)).await.map_err(timed_out)??;
        Ok(ConnectResult::Gateway(Box::new(client)))
    }

    async fn handshake(&mut self, target: &GatewayTarget, scopes: &[&str], caps: &[&str]) -> Result<(), Error> {
        // Devices sign the challenge; we only wait for it because it shows that the gateway is ready.
        while !matches!(self.next().await?, ServerFrame::Event { event, .. } if event == "connect.challenge") {}
        let owned = |list: &[&str]| Some(list.iter().map(|&word| word.to_owned()).collect());
        let params = ConnectParams {
            min_protocol: Generation::Four.number(),
            max_protocol: Generation::Four.number(),
            client: Program {
                id: "cli".to_owned(),
                mode: "cli".to_owned(),
                version: env!("CARGO_PKG_VERSION").to_owned(),
                platform: std::env::consts::OS.to_owned(),
                device_family: None,
                extra: Extra::new(),
            },
            role: Some("operator".to_owned()),
            scopes: owned(scopes),
            caps: owned(caps),
            auth: target.secret.as_ref().map(GatewaySecret::auth),
            device: None,
            extra: Extra::new(),
        };
        self.hello = self.call("connect", json!(params)).await?;
        Ok(())
    }

    /// Returns the gateway's description of itself.
    pub fn hello(&self) -> &Value {
        &self.hello
    }

    /// Sends a request and waits for the first response.
    pub async fn call(&mut self, method: &str, params: Value) -> Result<Value, Error> {
        self.call_until(method, params, |_| true).await
    }

    /// Sends a request and waits for the final response: some methods send `accepted` first.
    pub async fn call_final(&mut self, method: &str, params: Value) -> Result<Value, Error> {
        self.call_until(method, params, is_final).await
    }

    /// Sends a request and waits for an error, or for a response that satisfies `is_final`. Other frames are dropped.
    async fn call_until(
        &mut self,
        method: &str,
        params: Value,
        is_final: impl Fn(&Value) -> bool,
    ) -> Result<Value, Error> {
        let request_id = self.send(method, params).await?;
        loop {
            match self.next().await? {
                ServerFrame::Response { id, answer: Ok(payload) } if id == request_id && is_final(&payload) => {
                    return Ok(payload);
                }
                ServerFrame::Response { id, answer: Err(error) } if id == request_id => {
                    return Err(Error::Refused(error));
                }
                ServerFrame::Response { .. } | ServerFrame::Event { .. } => {}
            }
        }
    }

    /// Sends a request and returns its id.
    pub async fn send(&mut self, method: &str, params: Value) -> Result<String, Error> {
        self.requests += 1;
        let id = self.requests.to_string();
        let request = json!({"type": "req", "id": id, "method": method, "params": params});
        self.socket
            .send(Message::text(request.to_string()))
            .await
            .map_err(|error| connection_lost(&error.to_string()))?;
        Ok(id)
    }

    /// Returns the next message from the gateway. Cancel safe.
    pub async fn next(&mut self) -> Result<ServerFrame, Error> {
        loop {
            let bytes = match self.socket.next().await {
                Some(Ok(Message::Text(text))) => text.into(),
                Some(Ok(Message::Binary(bytes))) => bytes,
                Some(Ok(Message::Close(Some(frame)))) if !frame.reason.is_empty() => {
                    return Err(connection_lost(&frame.reason));
                }
                Some(Ok(Message::Close(_))) | None => return Err(connection_lost("closed by the gateway")),
                Some(Ok(Message::Ping(_) | Message::Pong(_) | Message::Frame(_))) => continue,
                Some(Err(error)) => return Err(connection_lost(&error.to_string())),
            };
            let frame: Frame = serde_json::from_slice(&bytes).map_err(Error::Frame)?;
            match (frame.r#type.as_str(), frame.ok, frame.error) {
                ("res", true, _) => return Ok(ServerFrame::Response { id: frame.id, answer: Ok(frame.payload) }),
                ("res", false, error) => {
                    let unspecified = || RpcError {
                        code: "UNAVAILABLE".to_owned(),
                        message: "the gateway rejected the request".to_owned(),
                    };
                    return Ok(ServerFrame::Response { id: frame.id, answer: Err(error.unwrap_or_else(unspecified)) });
                }
                ("event", ..) => return Ok(ServerFrame::Event { event: frame.event, payload: frame.payload }),
                _ => {}
            }
        }
    }
}

/// Returns true if this is the final response to a request.
pub(crate) fn is_final(payload: &Value) -> bool {
    payload.get("status").and_then(Value::as_str) != Some("accepted")
}

fn connection_lost(why: &str) -> Error {
    Error::Connection(format!("the connection to the gateway was lost: {why}"))
}

/// Explains why no TLS connection could be established, and how to fix it.
fn tls_error(target: &GatewayTarget, error: &tls::TlsFailure) -> String {
    let hint = match (&target.pin, target.is_own) {
        (Some(_), true) => "if its certificate was replaced, restart the gateway",
        (Some(_), false) => "if its certificate was replaced, update gateway.remote.tlsFingerprint",
        (None, true) => "start it with: homard gateway",
        (None, false) => {
            "if its certificate is self-signed, pass the fingerprint that the gateway prints with --tls-fingerprint or \
                          gateway.remote.tlsFingerprint"
        }
    };
    format!("is not trusted: {error}\n{hint}")
}

/// Address of a gateway.
#[derive(Debug, PartialEq)]
struct GatewayAddress {
    /// Request URI of the WebSocket handshake.
    uri: Uri,
    host: String,
    port: u16,
    is_tls: bool,
}

/// Checks that a text is the URL of a gateway.
pub fn check_url(url: &str) -> Result<(), Error> {
    parse_address(url).map(|_| ())
}

fn parse_address(url: &str) -> Result<GatewayAddress, Error> {
    let uri: Uri = url.parse().map_err(|error| {
        Error::Target(format!("{url} is not a URL; it should look like ws://127.0.0.1:{PORT}: {error}"))
    })?;
    let (default_port, is_tls) = match uri.scheme_str() {
        Some("ws") => (80, false),
        Some("wss") => (443, true),
        _ => {
            let text = format!("{url} is not a gateway URL; it should look like ws://127.0.0.1:{PORT}");
            return Err(Error::Target(text));
        }
    };
    let host =
        uri.host().ok_or_else(|| Error::Target(format!("{url} has no host")))?.trim_matches(['[', ']']).to_owned();
    Ok(GatewayAddress { host, port: uri.port_u16().unwrap_or(default_port), is_tls, uri })
}

#[cfg(test)]
mod tests {
    use homard_journal::Journal;

    use super::*;

    #[test]
    fn a_port_counts_if_the_process_that_recorded_it_holds_the_directory() {
        let state = tempfile::tempdir().unwrap();
        let paths = Paths { state: state.path().to_owned(), config: state.path().join("homard.json") };
        let recorded = |text: &str| {
            std::fs::write(paths.port_file(), text).unwrap();
            recorded_port(&paths)
        };
        let own = format!("7000 {}\n", std::process::id());
        assert_eq!(recorded(&own), None, "nobody holds the directory");
        let journal = Journal::open(state.path(), || 1).unwrap();
        assert_eq!(recorded(&own), Some(7000));
        assert_eq!(recorded("7000 1\n"), None, "a gateway that has ended");
        assert_eq!(recorded("7000\n"), Some(7000), "a gateway of an earlier version");
        for broken in ["", "7000 x", "x 1", "70000\n"] {
            assert_eq!(recorded(broken), None, "{broken}");
        }
        std::fs::remove_file(paths.port_file()).unwrap();
        assert_eq!(recorded_port(&paths), None);
        drop(journal);
    }

    #[test]
    fn urls_name_a_host_and_a_port() {
        let at = |url| {
            let address = parse_address(url).map_err(|error| error.to_string())?;
            Ok((address.host, address.port, address.is_tls))
        };
        let found = |host: &str, port, is_secret| Ok::<_, String>((host.to_owned(), port, is_secret));
        assert_eq!(at("ws://127.0.0.1:18789"), found("127.0.0.1", 18789, false));
        assert_eq!(at("ws://[::1]:7/x"), found("::1", 7, false));
        assert_eq!(at("ws://example.org"), found("example.org", 80, false));
        assert_eq!(at("wss://example.org"), found("example.org", 443, true));
        assert_eq!(
            at("http://127.0.0.1:1").unwrap_err(),
            "http://127.0.0.1:1 is not a gateway URL; it should look like ws://127.0.0.1:18789"
        );
    }

    #[test]
    fn an_accepted_response_is_not_final() {
        assert!(!is_final(&json!({"status": "accepted"})));
        assert!(is_final(&json!({"status": "ok"})));
        assert!(is_final(&json!({"ok": true})));
    }
}
