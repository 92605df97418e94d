//! Listen addresses of a gateway, and what is printed about them.

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr, UdpSocket};

use homard_gateway::Tls;

use crate::{
    cli_error::CliError,
    config::{Config, gateway::Bind},
};

/// Tailscale's service address, present in every tailnet. Nothing is sent there.
const TAILSCALE_SERVICE: Ipv4Addr = Ipv4Addr::new(100, 100, 100, 100);
/// An address reserved for documentation: the route to it leaves through the local network.
const UNROUTED_ADDRESS: Ipv4Addr = Ipv4Addr::new(192, 0, 2, 1);

/// Returns the bind mode from the flag, or else from the config.
pub(super) fn bind(flag: Option<&str>, config: &Config) -> Result<Bind, CliError> {
    match flag {
        Some(word) => Bind::named(word).ok_or_else(|| {
            CliError::usage(format!("invalid --bind {word}; use loopback, lan, tailnet, custom or auto"))
        }),
        None => Ok(config.gateway.bind.map_or(Bind::Loopback, |bind| bind.0)),
    }
}

/// Returns the listen addresses. Loopback is always included, because commands connect there.
pub(super) fn addresses(bind: Bind, port: u16, config: &Config) -> Result<Vec<SocketAddr>, CliError> {
    let here = [IpAddr::from(Ipv4Addr::LOCALHOST), Ipv6Addr::LOCALHOST.into()];
    let addresses = match bind {
        Bind::Auto | Bind::Loopback => here.to_vec(),
        Bind::Lan => vec![Ipv4Addr::UNSPECIFIED.into()],
        Bind::Tailnet => {
            let none = || {
                CliError::new(
                    "config",
                    "gateway.bind is tailnet, but this machine is in no Tailscale network; start Tailscale with: tailscale up",
                )
            };
            let own = route_source(TAILSCALE_SERVICE).filter(|own| is_tailnet(*own)).ok_or_else(none)?;
            vec![here[0], here[1], own.into()]
        }
        Bind::Custom => {
            let none = || {
                CliError::new(
                    "config",
                    "gateway.bind is custom, but gateway.customBindHost is missing; set it to an address of this machine",
                )
            };
            match config.gateway.custom_bind_host.ok_or_else(none)? {
                address if address.is_unspecified() => vec![address],
                address if address.is_loopback() => {
                    here.into_iter().chain([address].into_iter().filter(|own| !here.contains(own))).collect()
                }
                address => vec![here[0], here[1], address],
            }
        }
    };
    Ok(addresses.into_iter().map(|address| (address, port).into()).collect())
}

/// Returns the addresses at which other machines reach the gateway, as far as known.
pub(super) fn reachable_addresses(addresses: &[SocketAddr]) -> Vec<IpAddr> {
    let known = |address: IpAddr| {
        let own = if address.is_unspecified() { route_source(UNROUTED_ADDRESS).map(IpAddr::from) } else { None };
        own.unwrap_or(address)
    };
    addresses.iter().map(SocketAddr::ip).filter(|address| !address.is_loopback()).map(known).collect()
}

/// Returns the lines about the listen addresses: first for this machine, then for others.
pub(super) fn address_lines(bound: &[SocketAddr], tls: Option<&Tls>) -> Vec<[String; 2]> {
    let (scheme, port) = (if tls.is_some() { "wss" } else { "ws" }, bound.first().map_or(0, SocketAddr::port));
    let row = |name: &str, text: String| [name.to_owned(), text];
    let own = bound.iter().map(SocketAddr::ip).find(IpAddr::is_loopback).unwrap_or(Ipv4Addr::LOCALHOST.into());
    let mut rows = vec![row("listening", format!("{scheme}://{}", SocketAddr::new(own, port)))];
    for address in reachable_addresses(bound) {
        rows.push(row("network", format!("{scheme}://{} from other machines", SocketAddr::new(address, port))));
    }
    rows.extend(tls.map(|tls| row("certificate", format!("SHA-256 {}", tls.fingerprint()))));
    rows
}

/// Returns a warning for as long as the gateway is exposed without TLS.
pub(super) fn exposure(bound: &[SocketAddr], is_secret: bool, config: &Config) -> Option<String> {
    let mut open = bound.iter().map(|address| address.ip().to_canonical()).filter(|address| !address.is_loopback());
    let address = open.find(|address| !matches!(address, IpAddr::V4(own) if is_tailnet(*own)))?;
    (config.gateway.allow_insecure && !is_secret).then(|| {
        format!(
            "gateway.allowInsecure is true: the gateway listens on {address} without TLS, so others on that network can \
             read its token and every message; set gateway.tls.enabled to true"
        )
    })
}

fn is_tailnet(address: Ipv4Addr) -> bool {
    let [first, second, ..] = address.octets();
    first == 100 && (64..128).contains(&second)
}

/// Returns the local address of the route to another address. Nothing is sent.
fn route_source(other: Ipv4Addr) -> Option<Ipv4Addr> {
    let socket = UdpSocket::bind((Ipv4Addr::UNSPECIFIED, 0)).ok()?;
    socket.connect((other, 9)).ok()?;
    match socket.local_addr().ok()?.ip() {
        IpAddr::V4(own) if !own.is_unspecified() && !own.is_loopback() => Some(own),
        IpAddr::V4(_) | IpAddr::V6(_) => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn listens(bind: Bind, text: &str) -> Result<Vec<String>, String> {
        let config = Config::parse(text).unwrap();
        let addresses = addresses(bind, 7, &config).map_err(|failure| failure.message)?;
        Ok(addresses.iter().map(SocketAddr::to_string).collect())
    }

    #[test]
    fn a_gateway_listens_where_it_is_told_and_always_here() {
        let here = || vec!["127.0.0.1:7".to_owned(), "[::1]:7".to_owned()];
        let and = |address: &str| Ok([here(), vec![address.to_owned()]].concat());
        let custom = |host: &str| listens(Bind::Custom, &format!("{{gateway: {{customBindHost: '{host}'}}}}"));
        assert_eq!(listens(Bind::Auto, "{}"), Ok(here()));
        assert_eq!(listens(Bind::Loopback, "{}"), Ok(here()));
        assert_eq!(listens(Bind::Lan, "{}"), Ok(vec!["0.0.0.0:7".to_owned()]));
        assert_eq!(custom("192.0.2.7"), and("192.0.2.7:7"));
        assert_eq!(custom("127.0.0.1"), Ok(here()));
        assert_eq!(custom("127.0.0.7"), and("127.0.0.7:7"));
        assert_eq!(custom("::"), Ok(vec!["[::]:7".to_owned()]));
        assert_eq!(
            listens(Bind::Custom, "{}").unwrap_err(),
            "gateway.bind is custom, but gateway.customBindHost is missing; set it to an address of this machine"
        );
    }

    #[test]
    fn the_flag_comes_before_the_config() {
        let config = Config::parse("{gateway: {bind: 'lan'}}").unwrap();
        assert_eq!((bind(None, &config), bind(Some("loopback"), &config)), (Ok(Bind::Lan), Ok(Bind::Loopback)));
        assert_eq!(
            bind(Some("world"), &config).unwrap_err().message,
            "invalid --bind world; use loopback, lan, tailnet, custom or auto"
        );
    }

    #[test]
    fn an_insecure_choice_is_told_for_as_long_as_it_holds() {
        let told = |address: &str, is_secret, text: &str| {
            exposure(&[address.parse().unwrap()], is_secret, &Config::parse(text).unwrap()).is_some()
        };
        let chosen = "{gateway: {allowInsecure: true}}";
        assert!(told("0.0.0.0:7", false, chosen) && told("192.0.2.7:7", false, chosen));
        assert!(!told("0.0.0.0:7", true, chosen) && !told("127.0.0.1:7", false, chosen));
        assert!(!told("100.70.0.1:7", false, chosen) && !told("0.0.0.0:7", false, "{}"));
    }
}
