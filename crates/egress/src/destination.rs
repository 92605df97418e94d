//! Checks a URL's text. The addresses that its host name resolves to are checked in `resolver`.

use std::net::IpAddr;

use reqwest::Url;
use url::Host;

use crate::{
    Error,
    address::non_public_kind,
    exception::{EgressException, ExceptionMatch, covers, is_listed, match_exceptions},
};

/// Maximum length of a URL.
const MAX_URL_LENGTH: usize = 2048;

/// Top-level names that always resolve to local addresses. They are not even looked up, because that would leak the
/// query to DNS servers.
const LOCAL_NAMES: &[&str] = &["localhost", "local", "internal", "home.arpa"];

/// Parses and checks a URL. Its host is the one that will be dialled: lower case, without a trailing dot.
pub(crate) fn parse(text: &str, exceptions: &[EgressException]) -> Result<Url, Error> {
    // The URL parser ignores control characters, so that people and the parser would read different URLs.
    if text.len() > MAX_URL_LENGTH || text.contains(char::is_control) {
        return Err(Error::NotUrl {
            why: format!("it contains control characters or is longer than {MAX_URL_LENGTH} bytes"),
        });
    }
    let url = Url::parse(text.trim()).map_err(|error| Error::NotUrl { why: error.to_string() })?;
    check(url, exceptions)
}

/// Checks a parsed URL, including the target of a redirect.
pub(crate) fn check(mut url: Url, exceptions: &[EgressException]) -> Result<Url, Error> {
    if !matches!(url.scheme(), "http" | "https") {
        return Err(Error::Scheme { scheme: url.scheme().to_owned() });
    }
    if !url.username().is_empty() || url.password().is_some() {
        return Err(Error::Userinfo);
    }
    if url.as_str().len() > MAX_URL_LENGTH {
        return Err(Error::NotUrl { why: format!("it is longer than {MAX_URL_LENGTH} bytes") });
    }
    if let Some(name) = url.domain().and_then(|name| name.strip_suffix('.')).map(str::to_owned) {
        url.set_host(Some(&name)).map_err(|error| Error::NotUrl { why: error.to_string() })?;
    }
    let host = url.host_str().unwrap_or_default();
    let port = url.port_or_known_default().unwrap_or_default();
    match match_exceptions(exceptions, host, port) {
        ExceptionMatch::Allowed => return Ok(url),
        ExceptionMatch::OtherPort => return Err(Error::OtherPort { host: host.to_owned(), port }),
        ExceptionMatch::NotListed => {}
    }
    if !matches!(port, 80 | 443 | 1024..) {
        return Err(Error::Port { port });
    }
    match url.host() {
        Some(Host::Domain(name)) => check_name(name)?,
        Some(Host::Ipv4(address)) => check_address(host, address.into(), exceptions)?,
        Some(Host::Ipv6(address)) => check_address(host, address.into(), exceptions)?,
        None => return Err(Error::Name { name: String::new() }),
    }
    Ok(url)
}

/// Checks that an address is public or covered by an exception.
fn check_address(host: &str, address: IpAddr, exceptions: &[EgressException]) -> Result<(), Error> {
    match non_public_kind(address) {
        Some(what) if !covers(exceptions, address) => Err(Error::NotPublic { host: host.to_owned(), what }),
        Some(_) | None => Ok(()),
    }
}

/// Returns the IP address in a URL that has one instead of a host name.
pub(crate) fn literal(url: &Url) -> Option<IpAddr> {
    match url.host()? {
        Host::Domain(_) => None,
        Host::Ipv4(address) => Some(address.into()),
        Host::Ipv6(address) => Some(address.into()),
    }
}

/// Rules for the addresses that a host name resolves to.
pub(crate) struct DestinationRules {
    /// Exceptions to the rule that only public servers may be reached.
    pub(crate) exceptions: Vec<EgressException>,
    /// True if an address belongs to this machine.
    pub(crate) is_local: fn(IpAddr) -> bool,
}

impl DestinationRules {
    /// Checks an address that a name resolves to.
    pub(crate) fn check_resolved(&self, host: &str, address: IpAddr) -> Result<(), Error> {
        check_address(host, address, &self.exceptions)?;
        self.check_not_local(host, address)
    }

    /// Checks that an address does not belong to this machine.
    pub(crate) fn check_not_local(&self, host: &str, address: IpAddr) -> Result<(), Error> {
        if is_listed(&self.exceptions, host) || covers(&self.exceptions, address) || !(self.is_local)(address) {
            return Ok(());
        }
        Err(Error::NotPublic { host: host.to_owned(), what: "an address of this machine" })
    }
}

/// Accepts only labels of letters, digits, hyphens and underscores, so that every parser reads the name in the same
/// way.
fn check_name(name: &str) -> Result<(), Error> {
    let is_plain = |byte: u8| byte.is_ascii_alphanumeric() || matches!(byte, b'-' | b'_');
    let is_label = |label: &str| (1..=63).contains(&label.len()) && label.bytes().all(is_plain);
    if name.len() > 253 || !name.split('.').all(is_label) {
        return Err(Error::Name { name: name.escape_debug().to_string() });
    }
    let is_in = |inner: &&str| name.strip_suffix(*inner).is_some_and(|rest| rest.is_empty() || rest.ends_with('.'));
    if LOCAL_NAMES.iter().any(is_in) {
        return Err(Error::NotPublic { host: name.to_owned(), what: "a local network name" });
    }
    Ok(())
}
