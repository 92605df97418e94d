//! A server for tests, also those of the crates that fetch something.

use std::{
    net::SocketAddr,
    sync::{Arc, Mutex},
};

use tokio::{
    io::{AsyncReadExt, AsyncWriteExt},
    net::{TcpListener, TcpStream},
};

/// A test server that runs a given handler for every connection and records the requests.
pub(crate) struct Server {
    pub(crate) address: SocketAddr,
    pub(crate) requests: Arc<Mutex<Vec<String>>>,
}

impl Server {
    pub(crate) async fn at<W, F>(host: &str, respond: W) -> Self
    where
        W: Fn(TcpStream, String) -> F + Send + 'static,
        F: Future<Output = ()> + Send + 'static,
    {
        let listener = TcpListener::bind((host, 0)).await.unwrap();
        let address = listener.local_addr().unwrap();
        let requests = Arc::new(Mutex::new(Vec::new()));
        let recorded = requests.clone();
        spawn(async move {
            loop {
                let (mut stream, _) = listener.accept().await.unwrap();
                let mut head = Vec::new();
                while !head.ends_with(b"\r\n\r\n") {
                    head.push(stream.read_u8().await.unwrap());
                }
                let head = String::from_utf8(head).unwrap();
                recorded.lock().unwrap().push(head.clone());
                spawn(respond(stream, head));
            }
        });
        Self { address, requests }
    }

    /// Sends the same bytes on every connection.
    pub(crate) async fn replying(answer: impl Into<Vec<u8>>) -> Self {
        let answer = Arc::new(answer.into());
        let respond = move |mut stream: TcpStream, _| {
            let answer = answer.clone();
            // A client that has read enough may close the connection early.
            async move { stream.write_all(&answer).await.unwrap_or_default() }
        };
        Self::at("127.0.0.1", respond).await
    }

    pub(crate) fn url(&self, path: &str) -> String {
        format!("http://{}{path}", self.address)
    }

    pub(crate) fn request_count(&self) -> usize {
        self.requests.lock().unwrap().len()
    }
}

pub(crate) fn answer(head: &str, body: &[u8]) -> Vec<u8> {
    [format!("HTTP/1.1 200 OK\r\nConnection: close\r\n{head}\r\n").as_bytes(), body].concat()
}

#[allow(clippy::disallowed_methods, reason = "a server of a test ends with its runtime")]
fn spawn(task: impl Future<Output = ()> + Send + 'static) {
    tokio::spawn(task);
}
