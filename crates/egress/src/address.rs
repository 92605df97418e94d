//! Classifies IP addresses: which are on the public internet.

use std::{
    net::{IpAddr, Ipv4Addr, Ipv6Addr},
    str::FromStr,
};

/// A CIDR block.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct IpBlock {
    start: IpAddr,
    bits: u8,
}

impl IpBlock {
    const fn v4(start: [u8; 4], bits: u8) -> Self {
        let [a, b, c, d] = start;
        Self { start: IpAddr::V4(Ipv4Addr::new(a, b, c, d)), bits }
    }

    /// A block with a prefix of at most 32 bits.
    const fn v6(high: u16, low: u16, bits: u8) -> Self {
        Self { start: IpAddr::V6(Ipv6Addr::new(high, low, 0, 0, 0, 0, 0, 0)), bits }
    }

    /// True if the block contains an address.
    pub(crate) fn contains(&self, address: IpAddr) -> bool {
        let bits = u32::from(self.bits);
        match (self.start, address) {
            (IpAddr::V4(start), IpAddr::V4(address)) => {
                (start.to_bits() ^ address.to_bits()).checked_shr(32 - bits).unwrap_or(0) == 0
            }
            (IpAddr::V6(start), IpAddr::V6(address)) => {
                (start.to_bits() ^ address.to_bits()).checked_shr(128 - bits).unwrap_or(0) == 0
            }
            (IpAddr::V4(_), IpAddr::V6(_)) | (IpAddr::V6(_), IpAddr::V4(_)) => false,
        }
    }
}

/// The text is not a CIDR block such as `10.0.0.0/8`.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct InvalidIpBlock;

impl FromStr for IpBlock {
    type Err = InvalidIpBlock;

    fn from_str(text: &str) -> Result<Self, InvalidIpBlock> {
        let (start, bits) = text.split_once('/').ok_or(InvalidIpBlock)?;
        let start: IpAddr = start.parse().map_err(|_not_an_address| InvalidIpBlock)?;
        let max = if start.is_ipv4() { 32 } else { 128 };
        let bits = bits.parse().ok().filter(|bits| *bits <= max).ok_or(InvalidIpBlock)?;
        Ok(Self { start, bits })
    }
}

/// Special-purpose IPv4 blocks from IANA's registry, and public addresses of two cloud metadata services.
const SPECIAL_V4: &[(IpBlock, &str)] = &[
    (IpBlock::v4([0, 0, 0, 0], 8), "this machine"),
    (IpBlock::v4([10, 0, 0, 0], 8), "a private network"),
    (IpBlock::v4([100, 64, 0, 0], 10), "a carrier-grade NAT network"),
    (IpBlock::v4([127, 0, 0, 0], 8), "this machine"),
    (IpBlock::v4([168, 63, 129, 16], 32), "a cloud metadata service"),
    (IpBlock::v4([169, 254, 0, 0], 16), "a link-local address, as used by cloud metadata services"),
    (IpBlock::v4([172, 16, 0, 0], 12), "a private network"),
    (IpBlock::v4([192, 0, 0, 0], 24), "reserved"),
    (IpBlock::v4([192, 0, 2, 0], 24), "reserved for documentation"),
    (IpBlock::v4([192, 88, 99, 0], 24), "a tunnel"),
    (IpBlock::v4([192, 168, 0, 0], 16), "a private network"),
    (IpBlock::v4([198, 18, 0, 0], 15), "reserved for benchmarks"),
    (IpBlock::v4([198, 51, 100, 0], 24), "reserved for documentation"),
    (IpBlock::v4([203, 0, 113, 0], 24), "reserved for documentation"),
    (IpBlock::v4([224, 0, 0, 0], 4), "a multicast group"),
    (IpBlock::v4([240, 0, 0, 0], 4), "reserved"),
];

/// The only global unicast block of IPv6.
const PUBLIC_V6: IpBlock = IpBlock::v6(0x2000, 0, 3);

/// Special-purpose blocks within [`PUBLIC_V6`].
const SPECIAL_V6: &[(IpBlock, &str)] = &[
    // Includes Teredo, which embeds any IPv4 address.
    (IpBlock::v6(0x2001, 0, 23), "reserved"),
    (IpBlock::v6(0x2001, 0xdb8, 32), "reserved for documentation"),
    // 6to4, which embeds any IPv4 address.
    (IpBlock::v6(0x2002, 0, 16), "a tunnel"),
    (IpBlock::v6(0x3fff, 0, 20), "reserved for documentation"),
];

/// Blocks outside [`PUBLIC_V6`] that have a name; all other addresses outside it are not public either.
const NAMED_V6: &[(IpBlock, &str)] = &[
    (IpBlock::v6(0xfc00, 0, 7), "a private network"),
    (IpBlock::v6(0xfe80, 0, 10), "a link-local address"),
    (IpBlock::v6(0xff00, 0, 8), "a multicast group"),
];

/// Returns what kind of address it is, if it is not public.
pub(crate) fn non_public_kind(address: IpAddr) -> Option<&'static str> {
    match address {
        IpAddr::V4(address) => lookup(SPECIAL_V4, address.into()),
        IpAddr::V6(address) => non_public_kind_v6(address),
    }
}

fn non_public_kind_v6(address: Ipv6Addr) -> Option<&'static str> {
    if let Some(carried) = embedded_v4(address) {
        return non_public_kind(carried.into());
    }
    if address.is_loopback() || address.is_unspecified() {
        return Some("this machine");
    }
    if !PUBLIC_V6.contains(address.into()) {
        return Some(lookup(NAMED_V6, address.into()).unwrap_or("reserved"));
    }
    lookup(SPECIAL_V6, address.into()).or_else(|| is_isatap(address).then_some("a tunnel"))
}

fn lookup(table: &[(IpBlock, &'static str)], address: IpAddr) -> Option<&'static str> {
    table.iter().find(|(net, _)| net.contains(address)).map(|(_, kind)| *kind)
}

/// Returns the IPv4 address embedded in an IPv6 one: mapped (`::ffff:a.b.c.d`), or NAT64 (`64:ff9b::a.b.c.d`), through
/// which an IPv6-only network reaches public IPv4 servers.
pub(crate) fn embedded_v4(address: Ipv6Addr) -> Option<Ipv4Addr> {
    let low = Ipv4Addr::from_bits((address.to_bits() & u128::from(u32::MAX)) as u32);
    let is_nat64 = address.segments()[..6] == [0x64, 0xff9b, 0, 0, 0, 0];
    address.to_ipv4_mapped().or_else(|| is_nat64.then_some(low))
}

/// True for ISATAP addresses, whose lower half means "tunnel to the IPv4 address that follows".
fn is_isatap(address: Ipv6Addr) -> bool {
    let segments = address.segments();
    matches!(segments[4], 0 | 0x200) && segments[5] == 0x5efe
}

#[cfg(test)]
mod tests {
    use super::*;

    fn kind_of(address: &str) -> Option<&'static str> {
        non_public_kind(address.parse().unwrap())
    }

    #[test]
    fn blocks_contain_their_edges_and_not_their_neighbours() {
        for (first, last) in [
            ("0.0.0.0", "0.255.255.255"),
            ("10.0.0.0", "10.255.255.255"),
            ("100.64.0.0", "100.127.255.255"),
            ("127.0.0.0", "127.255.255.255"),
            ("168.63.129.16", "168.63.129.16"),
            ("169.254.0.0", "169.254.255.255"),
            ("172.16.0.0", "172.31.255.255"),
            ("192.0.0.0", "192.0.0.255"),
            ("192.0.2.0", "192.0.2.255"),
            ("192.88.99.0", "192.88.99.255"),
            ("192.168.0.0", "192.168.255.255"),
            ("198.18.0.0", "198.19.255.255"),
            ("198.51.100.0", "198.51.100.255"),
            ("203.0.113.0", "203.0.113.255"),
            ("224.0.0.0", "255.255.255.255"),
        ] {
            let [first, last] = [first, last].map(|edge| edge.parse::<Ipv4Addr>().unwrap().to_bits());
            assert!([first, last].iter().all(|edge| non_public_kind(Ipv4Addr::from_bits(*edge).into()).is_some()));
            let neighbours = [first.checked_sub(1), last.checked_add(1)].into_iter().flatten();
            for neighbour in neighbours.map(Ipv4Addr::from_bits) {
                assert_eq!(non_public_kind(neighbour.into()), None, "{neighbour}");
            }
        }
    }

    #[test]
    fn every_encoding_of_a_private_address_is_recognized() {
        let encodings = [
            ("::", "this machine"),
            ("::1", "this machine"),
            ("::ffff:127.0.0.1", "this machine"),
            ("::ffff:a9fe:a9fe", "a link-local address, as used by cloud metadata services"),
            ("::127.0.0.1", "reserved"),
            ("::8.8.8.8", "reserved"),
            ("64:ff9b::10.0.0.1", "a private network"),
            ("64:ff9b:1::8.8.8.8", "reserved"),
            ("100::1", "reserved"),
            ("2001:0:7f00:1::", "reserved"),
            ("2001:db8::1", "reserved for documentation"),
            ("2002:7f00:1::", "a tunnel"),
            ("2a00::5efe:127.0.0.1", "a tunnel"),
            ("2a00::200:5efe:10.0.0.1", "a tunnel"),
            ("3fff::1", "reserved for documentation"),
            ("4000::", "reserved"),
            ("5f00::1", "reserved"),
            ("fc00::1", "a private network"),
            ("fd00:ec2::254", "a private network"),
            ("fe80::1", "a link-local address"),
            ("fec0::1", "reserved"),
            ("ff02::1", "a multicast group"),
        ];
        assert_eq!(
            encodings.map(|(address, _)| (address, kind_of(address))),
            encodings.map(|(a, kind)| (a, Some(kind)))
        );
    }

    #[test]
    fn public_addresses_are_public() {
        let public = ["8.8.8.8", "::ffff:8.8.8.8", "64:ff9b::8.8.8.8", "2606:4700::1111", "2a00:1450:4001::200e"];
        assert_eq!(public.map(kind_of), [None; 5]);
    }

    #[test]
    fn address_blocks_are_parsed_or_rejected() {
        let net = |text: &str| text.parse::<IpBlock>();
        assert_eq!(net("10.0.0.0/8"), Ok(IpBlock::v4([10, 0, 0, 0], 8)));
        assert_eq!(net("fc00::/7"), Ok(IpBlock::v6(0xfc00, 0, 7)));
        assert_eq!(["10.0.0.0", "10.0.0.0/33", "fc00::/129", "box/8", "10.0.0.0/x"].map(net), [Err(InvalidIpBlock); 5]);
        assert!(net("0.0.0.0/0").unwrap().contains("10.1.2.3".parse().unwrap()));
        assert!(net("::/0").unwrap().contains("::1".parse().unwrap()));
        assert!(!net("::/0").unwrap().contains("10.1.2.3".parse().unwrap()));
    }
}
