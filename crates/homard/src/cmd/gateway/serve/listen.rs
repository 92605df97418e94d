//! Listen addresses of a gateway, and what is printed about them.

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr, UdpSocket};

use homard_gateway::Tls;
use homard_settings::{Config, gateway::Bind};

use crate::cli_error::CliError;

/// Tailscale's service address, present in every tailnet. Nothing is sent there.
const TAILSCALE_SERVICE: Ipv4Addr = Ipv4Addr::new(100, 100, 100, 100);
/// An address reserved for documentation: the route to it leaves through the local network.
const UNROUTED_ADDRESS: Ipv4Addr = Ipv4Addr::new(192, 0, 2, 1);

/// Returns the bind mode from the flag, or else from the config.
pub(in crate::cmd::gateway) fn bind(flag: Option<&str>, config: &Config) -> Result<Bind, CliError> {
    match flag {
        Some(name) => Bind::named(name).ok_or_else(|| {
            CliError::usage(format!("invalid --bind {name}; use loopback, lan, tailnet, custom or auto"))
        }),
        None => Ok(config.gateway.bind.map_or(Bind::Loopback, |bind| bind.0)),
    }
}

/// Returns the listen addresses. Loopback is always included, because commands connect there.
pub(in crate::cmd::gateway) fn addresses(bind: Bind, port: u16, config: &Config) -> Result<Vec<SocketAddr>, CliError> {
    let loopback = [IpAddr::from(Ipv4Addr::LOCALHOST), Ipv6Addr::LOCALHOST.into()];
    let addresses = match bind {
        Bind::Auto | Bind::Loopback => loopback.to_vec(),
        Bind::Lan => vec![Ipv4Addr::UNSPECIFIED.into()],
        Bind::Tailnet => {
            let none = || {
                CliError::new(
                    "config",
                    "gateway.bind is tailnet, but this machine is in no Tailscale network; start Tailscale with: tailscale up",
                )
            };
            let tailnet = route_source(TAILSCALE_SERVICE).filter(|tailnet| is_tailnet(*tailnet)).ok_or_else(none)?;
            vec![loopback[0], loopback[1], tailnet.into()]
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
                    loopback.into_iter().chain([address].into_iter().filter(|ip| !loopback.contains(ip))).collect()
                }
                address => vec![loopback[0], loopback[1], address],
            }
        }
    };
    Ok(addresses.into_iter().map(|address| (address, port).into()).collect())
}

/// Returns the addresses whose family this machine supports.
pub(in crate::cmd::gateway) fn supported(addresses: Vec<SocketAddr>) -> Vec<SocketAddr> {
    let has_ipv6 = UdpSocket::bind((Ipv6Addr::LOCALHOST, 0)).is_ok();
    addresses.into_iter().filter(|address| address.is_ipv4() || has_ipv6).collect()
}

/// Returns the addresses at which other machines reach the gateway, as far as known.
pub(super) fn reachable_addresses(addresses: &[SocketAddr]) -> Vec<IpAddr> {
    let known = |address: IpAddr| {
        let source = if address.is_unspecified() { route_source(UNROUTED_ADDRESS).map(IpAddr::from) } else { None };
        source.unwrap_or(address)
    };
    addresses.iter().map(SocketAddr::ip).filter(|address| !address.is_loopback()).map(known).collect()
}

/// Returns the lines about the listen addresses: first for this machine, then for others.
pub(super) fn address_lines(addresses: &[SocketAddr], tls: Option<&Tls>) -> Vec<[String; 2]> {
    let (scheme, port) = (if tls.is_some() { "wss" } else { "ws" }, addresses.first().map_or(0, SocketAddr::port));
    let row = |name: &str, text: String| [name.to_owned(), text];
    let loopback = addresses.iter().map(SocketAddr::ip).find(IpAddr::is_loopback).unwrap_or(Ipv4Addr::LOCALHOST.into());
    let mut rows = vec![row("listening", format!("{scheme}://{}", SocketAddr::new(loopback, port)))];
    for address in reachable_addresses(addresses) {
        rows.push(row("network", format!("{scheme}://{} from other machines", SocketAddr::new(address, port))));
    }
    rows.extend(tls.map(|tls| row("certificate", format!("SHA-256 {}", tls.fingerprint()))));
    rows
}

/// Returns a warning if `gateway.allowInsecure` is true and the gateway listens without TLS on an address that is
/// neither loopback nor in a tailnet.
pub(super) fn exposure(addresses: &[SocketAddr], has_tls: bool, config: &Config) -> Option<String> {
    let mut open = addresses.iter().map(|address| address.ip().to_canonical()).filter(|address| !address.is_loopback());
    let address = open.find(|address| !matches!(address, IpAddr::V4(v4) if is_tailnet(*v4)))?;
    (config.gateway.allow_insecure && !has_tls).then(|| {
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
fn route_source(destination: Ipv4Addr) -> Option<Ipv4Addr> {
    let socket = UdpSocket::bind((Ipv4Addr::UNSPECIFIED, 0)).ok()?;
    socket.connect((destination, 9)).ok()?;
    match socket.local_addr().ok()?.ip() {
        IpAddr::V4(source) if !source.is_unspecified() && !source.is_loopback() => Some(source),
        IpAddr::V4(_) | IpAddr::V6(_) => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn addresses_of(bind: Bind, text: &str) -> Result<Vec<String>, String> {
        let config = Config::parse(text).unwrap();
        let addresses = addresses(bind, 7, &config).map_err(|failure| failure.message)?;
        Ok(addresses.iter().map(SocketAddr::to_string).collect())
    }

    #[test]
    fn a_gateway_listens_on_its_bind_address_and_always_on_loopback() {
        let loopback = || vec!["127.0.0.1:7".to_owned(), "[::1]:7".to_owned()];
        let with_loopback = |address: &str| Ok([loopback(), vec![address.to_owned()]].concat());
        let custom = |host: &str| addresses_of(Bind::Custom, &format!("{{gateway: {{customBindHost: '{host}'}}}}"));
        assert_eq!(addresses_of(Bind::Auto, "{}"), Ok(loopback()));
        assert_eq!(addresses_of(Bind::Loopback, "{}"), Ok(loopback()));
        assert_eq!(addresses_of(Bind::Lan, "{}"), Ok(vec!["0.0.0.0:7".to_owned()]));
        assert_eq!(custom("192.0.2.7"), with_loopback("192.0.2.7:7"));
        assert_eq!(custom("127.0.0.1"), Ok(loopback()));
        assert_eq!(custom("127.0.0.7"), with_loopback("127.0.0.7:7"));
        assert_eq!(custom("::"), Ok(vec!["[::]:7".to_owned()]));
        assert_eq!(
            addresses_of(Bind::Custom, "{}").unwrap_err(),
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
    fn an_insecure_address_is_reported() {
        let warns = |address: &str, has_tls, text: &str| {
            exposure(&[address.parse().unwrap()], has_tls, &Config::parse(text).unwrap()).is_some()
        };
        let insecure = "{gateway: {allowInsecure: true}}";
        assert!(warns("0.0.0.0:7", false, insecure) && warns("192.0.2.7:7", false, insecure));
        // TLS, loopback, and a tailnet, which is encrypted itself.
        assert!(!warns("0.0.0.0:7", true, insecure) && !warns("127.0.0.1:7", false, insecure));
        assert!(!warns("100.70.0.1:7", false, insecure) && !warns("0.0.0.0:7", false, "{}"));
    }
}
