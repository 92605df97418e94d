//! Checkpoints of the audit log: its head is sent to other places, so that restoring an older copy is detected.
//!
//! Nothing waits for them. Failed destinations are retried, and the failure is logged once.

use std::{
    fs::OpenOptions,
    io::{self, Write},
    os::unix::fs::OpenOptionsExt,
    path::{Path, PathBuf},
    time::Duration,
};

use homard_audit::ChainHead;
use homard_runtime::{Ambient, ambient::iso, task};
use homard_settings::{
    Text,
    audit::{CheckpointSink, Checkpoints},
};
use serde_json::{Value, json};
use tokio::{
    net::{UdpSocket, UnixDatagram},
    sync::watch,
    task::JoinHandle,
    time::timeout,
};
use tokio_util::sync::CancellationToken;

use crate::Error;

/// Timeout for a destination.
const SINK_TIMEOUT: Duration = Duration::from_secs(10);
/// Timeout for the last checkpoint at shutdown.
const FINAL_TIMEOUT: Duration = Duration::from_secs(2);
/// Default interval between checkpoints.
const DEFAULT_INTERVAL: Duration = Duration::from_secs(60);
/// Facility `authpriv`, severity `notice`.
const PRIORITY: u8 = 10 * 8 + 5;

/// Configured destinations of checkpoints.
#[derive(Debug)]
pub(crate) struct Sinks {
    sinks: Vec<Sink>,
    interval: Duration,
}

#[derive(Debug)]
enum Sink {
    File(PathBuf),
    Socket(PathBuf),
    Udp(String),
    Http { client: reqwest::Client, url: reqwest::Url, token: Option<Text> },
}

impl Sinks {
    /// Builds the destinations of a config.
    pub(crate) fn of(config: &Checkpoints) -> Result<Self, Error> {
        let targets = config.sinks().map_err(|(name, why)| Error::Config(format!("audit.checkpoints.{name} {why}")))?;
        let sink = |target| {
            Ok(match target {
                CheckpointSink::File(path) => Sink::File(path),
                CheckpointSink::Socket(path) => Sink::Socket(path),
                CheckpointSink::Udp(server) => Sink::Udp(server),
                CheckpointSink::Url { url, token } => {
                    if rustls::crypto::CryptoProvider::get_default().is_none() {
                        // reqwest panics without a provider. This fails only if another thread installed one first,
                        // which is fine.
                        rustls::crypto::ring::default_provider().install_default().ok();
                    }
                    let client = reqwest::Client::builder().timeout(SINK_TIMEOUT);
                    // A redirect would send the token to a host that the config does not name.
                    let client = client.redirect(reqwest::redirect::Policy::none()).build();
                    Sink::Http {
                        client: client
                            .map_err(|error| Error::Config(format!("cannot create the HTTP client: {error}")))?,
                        url,
                        token,
                    }
                }
            })
        };
        let sinks = targets.into_iter().map(sink).collect::<Result<_, Error>>()?;
        Ok(Self { sinks, interval: config.every_seconds.map_or(DEFAULT_INTERVAL, Duration::from_secs) })
    }
}

/// Why a checkpoint was not sent.
type SendFailure = Box<dyn std::error::Error + Send + Sync>;

impl Sink {
    /// Returns the sink's config key.
    fn name(&self) -> &'static str {
        match self {
            Self::File(_) => "audit.checkpoints.file",
            Self::Socket(_) | Self::Udp(_) => "audit.checkpoints.syslog",
            Self::Http { .. } => "audit.checkpoints.url",
        }
    }

    async fn send(&self, checkpoint: &Value) -> Result<(), SendFailure> {
        match self {
            Self::File(path) => {
                let (path, line) = (path.clone(), format!("{checkpoint}\n"));
                tokio::task::spawn_blocking(move || add(&path, &line)).await??;
            }
            Self::Socket(path) => {
                let text = format!("<{PRIORITY}>homard: audit checkpoint {checkpoint}");
                UnixDatagram::unbound()?.send_to(text.as_bytes(), path).await?;
            }
            Self::Udp(server) => {
                let (at, host) = (iso(Ambient::system().now_ms()), rustix::system::uname());
                let host = host.nodename().to_string_lossy();
                let text = format!("<{PRIORITY}>1 {at} {host} homard - audit-checkpoint - {checkpoint}");
                let address = tokio::net::lookup_host(server).await?.next().ok_or("the host name has no address")?;
                let local = if address.is_ipv4() { "0.0.0.0:0" } else { "[::]:0" };
                UdpSocket::bind(local).await?.send_to(text.as_bytes(), address).await?;
            }
            Self::Http { client, url, token } => {
                let request = client.post(url.clone()).header("content-type", "application/json");
                let request = token.iter().fold(request, |request, token| request.bearer_auth(token.as_str()));
                let sent = request.body(checkpoint.to_string()).send().await;
                sent.and_then(reqwest::Response::error_for_status).map_err(reqwest::Error::without_url)?;
            }
        }
        Ok(())
    }
}

fn add(path: &Path, line: &str) -> io::Result<()> {
    let mut file = OpenOptions::new().create(true).append(true).mode(0o600).open(path)?;
    file.write_all(line.as_bytes())?;
    file.sync_data()
}

/// Sends checkpoints until stopped.
#[derive(Debug)]
pub(crate) struct CheckpointTask {
    stop: CancellationToken,
    task: JoinHandle<()>,
}

impl CheckpointTask {
    /// Starts the task, if there is a destination.
    pub(crate) fn start(sinks: Sinks, heads: watch::Receiver<Option<ChainHead>>) -> Option<Self> {
        if sinks.sinks.is_empty() {
            return None;
        }
        let stop = CancellationToken::new();
        let stopped = stop.clone();
        let interval = sinks.interval;
        let mut sender = CheckpointSender {
            sent: sinks.sinks.into_iter().map(|sink| (sink, SinkState::default())).collect(),
            heads,
        };
        let task = task::spawn("audit checkpoints", async move {
            loop {
                if !sender.is_behind() {
                    tokio::select! {
                        biased;
                        () = stopped.cancelled() => break,
                        changed = sender.heads.changed() => if changed.is_err() { break },
                    }
                }
                sender.send().await;
                tokio::select! {
                    biased;
                    () = stopped.cancelled() => break,
                    () = tokio::time::sleep(interval) => {}
                }
            }
            // Shutdown must not take long.
            timeout(FINAL_TIMEOUT, sender.send()).await.ok();
        });
        Some(Self { stop, task })
    }

    /// Stops the task, which sends the last checkpoint within a short timeout.
    pub(crate) async fn stop(self) {
        self.stop.cancel();
        if let Err(error) = self.task.await {
            tracing::warn!("the task that sends audit log checkpoints failed: {error}");
        }
    }
}

#[derive(Debug, Default)]
struct SinkState {
    head: Option<ChainHead>,
    is_failing: bool,
}

struct CheckpointSender {
    sent: Vec<(Sink, SinkState)>,
    heads: watch::Receiver<Option<ChainHead>>,
}

impl CheckpointSender {
    fn is_behind(&self) -> bool {
        let head = *self.heads.borrow();
        head.is_some() && self.sent.iter().any(|(_, sent)| sent.head != head)
    }

    async fn send(&mut self) {
        let Some(head) = *self.heads.borrow_and_update() else { return };
        let checkpoint =
            json!({"at": iso(Ambient::system().now_ms()), "rows": head.rows, "digest": head.digest.to_string()});
        for (sink, sent) in self.sent.iter_mut().filter(|(_, sent)| sent.head != Some(head)) {
            let outcome = timeout(SINK_TIMEOUT, sink.send(&checkpoint)).await;
            match outcome.unwrap_or_else(|_elapsed| Err("timed out".into())) {
                Ok(()) => *sent = SinkState { head: Some(head), is_failing: false },
                Err(error) if !std::mem::replace(&mut sent.is_failing, true) => {
                    let name = sink.name();
                    tracing::warn!("failed to send an audit log checkpoint to {name}: {error}; retrying");
                }
                Err(_) => {}
            }
        }
    }
}

/// Parses the checkpoints in a text: one per line, also within syslog lines.
pub fn read(text: &str) -> Vec<ChainHead> {
    let checkpoint = |line: &str| {
        let document: Value = serde_json::from_str(line[line.find('{')?..].trim_end()).ok()?;
        Some(ChainHead { rows: document["rows"].as_u64()?, digest: document["digest"].as_str()?.parse().ok()? })
    };
    text.lines().filter_map(checkpoint).collect()
}

#[cfg(test)]
mod tests {
    use std::os::unix::net::UnixDatagram as StdSocket;

    use homard_audit::Digest;
    use tokio::{
        io::{AsyncReadExt, AsyncWriteExt},
        net::TcpListener,
    };

    use super::*;
    use homard_settings::Config;

    fn sinks(checkpoints: &Value) -> Sinks {
        let text = json!({"audit": {"checkpoints": checkpoints}}).to_string();
        Sinks::of(&Config::parse(&text).unwrap().audit.checkpoints).unwrap()
    }

    fn head(rows: u64) -> ChainHead {
        ChainHead { rows, digest: Digest::of(&rows.to_be_bytes()) }
    }

    #[tokio::test]
    async fn checkpoints_reach_every_sink_and_can_be_read_back() {
        let folder = tempfile::tempdir().unwrap();
        let (file, socket) = (folder.path().join("checkpoints.jsonl"), folder.path().join("log"));
        let local = StdSocket::bind(&socket).unwrap();
        let http = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let url = format!("http://{}/checkpoints", http.local_addr().unwrap());
        let (end, heads) = watch::channel(Some(head(3)));
        let to = json!({"file": file, "syslog": socket, "url": url, "token": "for-checkpoints"});
        let task = CheckpointTask::start(sinks(&to), heads).unwrap();
        end.send_replace(Some(head(7)));
        let (mut http_stream, _) = http.accept().await.unwrap();
        let mut request = String::new();
        while !request.contains('}') {
            let mut bytes = [0; 4096];
            let length = http_stream.read(&mut bytes).await.unwrap();
            request.push_str(std::str::from_utf8(&bytes[..length]).unwrap());
        }
        http_stream.write_all(b"HTTP/1.1 204 No Content\r\n\r\n").await.unwrap();
        assert!(request.starts_with("POST /checkpoints ") && request.contains("Bearer for-checkpoints"), "{request}");
        let mut bytes = [0; 1024];
        let length = local.recv(&mut bytes).unwrap();
        let syslog_line = std::str::from_utf8(&bytes[..length]).unwrap();
        assert!(syslog_line.starts_with("<85>homard: audit checkpoint {"), "{syslog_line}");
        task.stop().await;
        let written = std::fs::read_to_string(&file).unwrap();
        for text in [written.as_str(), syslog_line, request.as_str()] {
            assert_eq!(read(text).last(), Some(&head(7)), "{text}");
        }
    }

    #[tokio::test]
    async fn checkpoints_go_to_syslog_over_udp_and_a_failing_sink_blocks_no_other() {
        let server = UdpSocket::bind("127.0.0.1:0").await.unwrap();
        let to = json!({"file": "/nonexistent/checkpoints", "syslog": server.local_addr().unwrap().to_string()});
        let (end, heads) = watch::channel(None);
        let task = CheckpointTask::start(sinks(&to), heads).unwrap();
        end.send_replace(Some(head(1)));
        let mut bytes = [0; 1024];
        let length = server.recv(&mut bytes).await.unwrap();
        assert_eq!(read(std::str::from_utf8(&bytes[..length]).unwrap()), [head(1)]);
        task.stop().await;
    }

    #[test]
    fn an_invalid_sink_is_an_error_and_no_sink_disables_checkpoints() {
        for (section, expected) in [
            (json!({"file": "checkpoints"}), "audit.checkpoints.file must be an absolute path"),
            (json!({"syslog": "localhost"}), "audit.checkpoints.syslog must be host:port"),
            (json!({"url": "ftp://example.org"}), "audit.checkpoints.url must be an http or https address"),
        ] {
            let text = json!({"audit": {"checkpoints": section}}).to_string();
            let error = Config::parse(&text).unwrap_err().to_string();
            assert!(error.contains(expected), "{error}");
        }
        assert!(CheckpointTask::start(sinks(&json!({})), watch::channel(None).1).is_none());
        assert!(Config::parse("{audit: {checkpoints: {everySeconds: 0}}}").is_err());
    }

    #[test]
    fn lines_without_a_checkpoint_are_skipped() {
        let line = format!("Jan 1 host homard: audit checkpoint {{\"rows\":3,\"digest\":\"{}\"}}\r\n", head(3).digest);
        assert_eq!(read(&format!("nothing\n{{\"rows\":1}}\n{line}")), [head(3)]);
    }
}
