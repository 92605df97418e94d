//! Addresses of this machine's interfaces, which reach local services just like `127.0.0.1`.

use std::{
    fs,
    net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr, UdpSocket},
};

use crate::address::{IpBlock, embedded_v4};

/// True if an address belongs to this machine. Not cached, because interfaces change.
pub(crate) fn is_local_address(address: IpAddr) -> bool {
    let address = match address {
        IpAddr::V6(v6) => embedded_v4(v6).map_or(address, IpAddr::V4),
        IpAddr::V4(_) => address,
    };
    is_source(address) || is_listed(address)
}

/// True if the system would use an address as source to reach itself. Sends nothing. Fails to detect a second address
/// in the same network, for which the first is the source.
fn is_source(address: IpAddr) -> bool {
    let unspecified: IpAddr =
        if address.is_ipv4() { Ipv4Addr::UNSPECIFIED.into() } else { Ipv6Addr::UNSPECIFIED.into() };
    let source = UdpSocket::bind((unspecified, 0)).and_then(|socket| {
        // Any port will do, because no packet is sent.
        socket.connect(SocketAddr::new(address, 9))?;
        socket.local_addr()
    });
    source.is_ok_and(|source| source.ip() == address)
}

/// True if the kernel lists an address as one of this machine.
fn is_listed(address: IpAddr) -> bool {
    let read = |path: &str| fs::read_to_string(path).unwrap_or_default();
    match address {
        IpAddr::V4(_) => local_v4(&read("/proc/net/fib_trie")).iter().any(|net| net.contains(address)),
        IpAddr::V6(_) => local_v6(&read("/proc/net/if_inet6")).any(|local| local == address),
    }
}

/// Parses the local blocks of `/proc/net/fib_trie`: a line with an address, then one with its prefix length and kind.
fn local_v4(text: &str) -> Vec<IpBlock> {
    let mut found = Vec::new();
    let mut address = None;
    for line in text.lines().map(str::trim) {
        if let Some(leaf) = line.strip_prefix("|-- ") {
            address = leaf.parse::<Ipv4Addr>().ok();
        } else if let Some(length) = line.strip_suffix(" host LOCAL")
            && let Some(address) = address
        {
            found.extend(format!("{address}{length}").parse::<IpBlock>().ok());
        }
    }
    found
}

/// Parses the addresses of `/proc/net/if_inet6`: each line begins with one, as 32 hex digits.
fn local_v6(text: &str) -> impl Iterator<Item = Ipv6Addr> {
    let digits = text.lines().filter_map(|line| line.split_whitespace().next());
    digits.filter_map(|digits| u128::from_str_radix(digits, 16).ok()).map(Ipv6Addr::from_bits)
}

#[cfg(test)]
mod tests {
    use super::*;

    const FIB: &str = "Main:
  +-- 0.0.0.0/0 3 0 5
     |-- 0.0.0.0
        /0 universe UNICAST
     +-- 93.184.216.0/24 2 0 2
        |-- 93.184.216.0
           /24 link UNICAST
        |-- 93.184.216.34
           /32 host LOCAL
        |-- 93.184.216.255
           /32 link BROADCAST
Local:
     |-- 203.0.113.0
        /24 host LOCAL
     |-- 127.0.0.0
        /8 host LOCAL
";
    const INET6: &str = "00000000000000000000000000000001 01 80 10 80       lo
2606280002200001000000000000000a 02 40 00 80     eth0
";

    #[test]
    fn local_addresses_are_read_from_proc() {
        let nets = local_v4(FIB);
        let is_local = |address: &str| nets.iter().any(|net| net.contains(address.parse().unwrap()));
        let own = ["93.184.216.34", "203.0.113.7", "127.0.0.1"];
        let other = ["93.184.216.35", "93.184.216.255", "93.184.216.0", "8.8.8.8", "0.0.0.0"];
        assert_eq!((own.map(is_local), other.map(is_local)), ([true; 3], [false; 5]));
        let expected: [Ipv6Addr; 2] = ["::1", "2606:2800:220:1::a"].map(|address| address.parse().unwrap());
        assert_eq!(local_v6(INET6).collect::<Vec<_>>(), expected);
        assert_eq!((local_v4("nothing").len(), local_v6("nothing\n\n").count()), (0, 0));
    }

    #[test]
    fn only_local_addresses_count_as_local() {
        assert!(is_local_address(Ipv4Addr::LOCALHOST.into()));
        assert!(
            is_local_address("::ffff:127.0.0.1".parse().unwrap())
                && is_local_address("64:ff9b::127.0.0.1".parse().unwrap())
        );
        assert!(!is_local_address("192.0.2.1".parse().unwrap()) && !is_local_address("2001:db8::1".parse().unwrap()));
    }
}
