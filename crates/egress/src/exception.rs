//! Exceptions, configured by the owner, to the rule that only public servers may be reached.

use std::{net::IpAddr, str::FromStr};

use reqwest::Url;

use crate::address::IpBlock;

/// A non-public destination that may be reached.
///
/// Written as a host (`box.lan`, `127.0.0.1`, `[::1]`), a host and its port (`localhost:8888`), or a CIDR block
/// (`10.0.0.0/8`).
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct EgressException(Kind);

#[derive(Debug, Clone, PartialEq, Eq)]
enum Kind {
    /// The host as URLs spell it, on one port or on any.
    Host(String, Option<u16>),
    Net(IpBlock),
}

/// The text is not an [`EgressException`].
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{0} is not a host such as box.lan or localhost:8888, and not a block of addresses such as 10.0.0.0/8")]
pub struct InvalidEgressException(String);

impl FromStr for EgressException {
    type Err = InvalidEgressException;

    fn from_str(text: &str) -> Result<Self, InvalidEgressException> {
        let bad = || InvalidEgressException(text.to_owned());
        if text.contains('/') {
            return text.parse().map(|net| Self(Kind::Net(net))).map_err(|_not_a_net| bad());
        }
        if text.contains(['@', '?', '#', '\\']) || text.contains(char::is_whitespace) {
            return Err(bad());
        }
        // An https URL omits port 443 and an http URL port 80; parsing with both schemes shows whether a port was
        // written.
        let [http, https] = ["http", "https"].map(|scheme| Url::parse(&format!("{scheme}://{text}/")).ok());
        let (http, https) = http.zip(https).ok_or_else(bad)?;
        let name = http.host_str().ok_or_else(bad)?.trim_end_matches('.').to_owned();
        Ok(Self(Kind::Host(name, http.port().or(https.port()))))
    }
}

/// Result of looking up a host and port in the exceptions.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum ExceptionMatch {
    /// Allowed, whatever its address is.
    Allowed,
    /// The host is listed, but only with other ports.
    OtherPort,
    /// Not listed.
    NotListed,
}

/// Looks up a host and port in the exceptions.
pub(crate) fn match_exceptions(exceptions: &[EgressException], host: &str, port: u16) -> ExceptionMatch {
    let mut verdict = ExceptionMatch::NotListed;
    for EgressException(kind) in exceptions {
        match kind {
            Kind::Host(name, allowed) if name == host => {
                if allowed.is_none_or(|allowed| allowed == port) {
                    return ExceptionMatch::Allowed;
                }
                verdict = ExceptionMatch::OtherPort;
            }
            Kind::Host(..) | Kind::Net(_) => {}
        }
    }
    verdict
}

/// True if a host is listed, with any port.
pub(crate) fn is_listed(exceptions: &[EgressException], host: &str) -> bool {
    exceptions.iter().any(|EgressException(kind)| matches!(kind, Kind::Host(name, _) if name == host))
}

/// True if an address is in a listed block.
pub(crate) fn covers(exceptions: &[EgressException], address: IpAddr) -> bool {
    exceptions.iter().any(|EgressException(kind)| matches!(kind, Kind::Net(net) if net.contains(address)))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn all(texts: &[&str]) -> Vec<EgressException> {
        texts.iter().map(|text| text.parse().unwrap()).collect()
    }

    #[test]
    fn a_host_is_allowed_on_its_port_or_on_any() {
        let list = all(&["Box.lan.", "localhost:8888", "[::1]:443", "127.0.0.1:80"]);
        let verdicts = [("box.lan", 1), ("localhost", 8888), ("localhost", 22), ("[::1]", 443), ("[::1]", 80)];
        assert_eq!(
            verdicts.map(|(host, port)| match_exceptions(&list, host, port)),
            [
                ExceptionMatch::Allowed,
                ExceptionMatch::Allowed,
                ExceptionMatch::OtherPort,
                ExceptionMatch::Allowed,
                ExceptionMatch::OtherPort
            ]
        );
        assert_eq!(match_exceptions(&list, "127.0.0.1", 443), ExceptionMatch::OtherPort);
        assert_eq!(match_exceptions(&list, "lan", 80), ExceptionMatch::NotListed);
        assert_eq!((is_listed(&list, "localhost"), is_listed(&list, "box")), (true, false));
    }

    #[test]
    fn a_block_covers_its_addresses_and_names_no_host() {
        let list = all(&["10.0.0.0/8"]);
        assert!(covers(&list, "10.1.1.1".parse().unwrap()) && !covers(&list, "11.1.1.1".parse().unwrap()));
        assert_eq!(match_exceptions(&list, "10.1.1.1", 80), ExceptionMatch::NotListed);
    }

    #[test]
    fn invalid_exceptions_are_refused_by_name() {
        for text in ["", "a b", "http://box", "box/path", "me@box", "10.0.0.0/99", "box:99999", "box?x", "box#x"] {
            assert_eq!(text.parse::<EgressException>(), Err(InvalidEgressException(text.to_owned())));
        }
    }
}
