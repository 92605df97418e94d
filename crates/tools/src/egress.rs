//! The one door to the web for what an agent asks for: GET, from public servers only, within bounds.
//!
//! Every hop is checked: what the URL says (`destination`), and what its name leads to (`names`) at the moment when the
//! connection is made, so that there is no time between the check and the use. No proxy, no cookies, no other headers
//! than those here. Providers of models have their own road; they are chosen by the owner, not by a page.

mod address;
mod body;
mod destination;
mod exception;
mod names;
#[cfg(test)]
mod tests;

use std::{
    error::Error as StdError,
    fmt,
    sync::{Arc, OnceLock},
    time::Duration,
};

use reqwest::{
    Client, Response, Url,
    dns::Resolve,
    header::{ACCEPT, ACCEPT_ENCODING, CONTENT_ENCODING, CONTENT_TYPE, HeaderMap, HeaderValue, LOCATION},
    redirect::Policy,
};
use tokio::time::{Instant, timeout_at};

pub use self::{
    body::Body,
    exception::{BadException, Exception},
    names::SystemNames,
};
use self::{body::Unpacker, names::GuardedNames};

/// Why the web was not asked, or did not answer.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum Error {
    /// It cannot be read as a URL.
    #[error("this is not a URL that can be used: {why}. It looks like https://example.com/page")]
    NotUrl {
        /// What is wrong with it.
        why: String,
    },
    /// Neither http nor https.
    #[error("{scheme} URLs cannot be used: only http and https")]
    Scheme {
        /// What it is.
        scheme: String,
    },
    /// A name or a password in the URL.
    #[error("URLs with a user name or a password are not used: leave out what is before the @")]
    Userinfo,
    /// A host name that no server can have.
    #[error("{name:?} is not the name of a server")]
    Name {
        /// The name.
        name: String,
    },
    /// A port where no web server is expected.
    #[error("port {port} is not used: only 80, 443 and those from 1024 on")]
    Port {
        /// The port.
        port: u16,
    },
    /// Not on the public internet.
    #[error("{host} is not on the public internet ({what}): only public servers can be reached, unless the owner allows it")]
    Inside {
        /// The host.
        host: String,
        /// What it is instead.
        what: &'static str,
    },
    /// Sent on once too often.
    #[error("the server sent us on more than {most} times")]
    Redirects {
        /// How often is allowed.
        most: usize,
    },
    /// No connection, or no answer.
    #[error("{host} cannot be reached ({why})")]
    Unreached {
        /// The host.
        host: String,
        /// Why.
        why: String,
    },
    /// It took too long.
    #[error("{host} did not answer completely within {limit:?}")]
    Slow {
        /// The host.
        host: String,
        /// The limit that was passed: for the whole, or for the time without news.
        limit: Duration,
    },
    /// Packed in a way that nobody asked for.
    #[error("the server packed its answer in a way that was not asked for")]
    Packed,
    /// What came cannot be unpacked.
    #[error("the answer is broken ({why})")]
    Broken {
        /// Why.
        why: String,
    },
    /// HTTP does not work here at all.
    #[error("HTTP cannot be set up: {why}")]
    Setup {
        /// Why.
        why: String,
    },
}

/// The bounds of what is asked for.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Bounds {
    /// What may be reached although it is not public.
    pub allow: Vec<Exception>,
    /// How long a request may take from first to last.
    pub timeout: Duration,
    /// How long nothing may come.
    pub idle: Duration,
    /// How often a server may send us on.
    pub redirects: usize,
    /// How many bytes of a body are read at most, unpacked.
    pub bytes: usize,
    /// How we call ourselves.
    pub user_agent: String,
}

impl Default for Bounds {
    fn default() -> Self {
        Self {
            allow: Vec::new(),
            timeout: Duration::from_secs(30),
            idle: Duration::from_secs(15),
            redirects: 3,
            bytes: 2_000_000,
            user_agent: concat!("Mozilla/5.0 (compatible; homard/", env!("CARGO_PKG_VERSION"), ")").to_owned(),
        }
    }
}

/// What is asked for.
#[derive(Debug, Clone)]
pub struct Request {
    url: String,
    accept: &'static str,
    key: Option<(&'static str, String)>,
}
