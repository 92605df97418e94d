//! Escaping of ids in session keys: each id becomes one part, and no other id becomes the same part.
//!
//! A session key is in lower case, and its parts are separated by colons. Characters that could be lost or misread are
//! written as `%` and hexadecimal bytes: capitals, colons, blanks, percent signs, and reserved words. Ids of lower-case
//! letters, digits and punctuation are unchanged, so the keys of ordinary ids are those of OpenClaw.

use homard_proto::{Identity, identity::DEFAULT_ACCOUNT};
use sha2::{Digest, Sha256};

/// Words that introduce the next part of a key.
const RESERVED: [&str; 6] = ["direct", "dm", "group", "channel", "thread", "topic"];

/// Maximum length of a part. With an agent, an account, a peer and a thread, a key stays within its limit.
const MAX_PART_BYTES: usize = 120;

/// Escapes an id as a part of a key. The first `forced` bytes are always escaped, which gives another spelling of the
/// same id.
///
/// An id that becomes too long is replaced by its digest, which is unique but cannot be decoded.
pub(super) fn escape(id: &str, forced: usize) -> String {
    let mut part = String::with_capacity(id.len());
    for (offset, c) in id.char_indices() {
        let is_free = offset >= forced && !(offset == 0 && RESERVED.contains(&id));
        if is_free && is_plain(c) {
            part.push(c);
        } else {
            c.encode_utf8(&mut [0; 4]).bytes().for_each(|byte| part.push_str(&format!("%{byte:02x}")));
        }
    }
    if part.len() > MAX_PART_BYTES {
        let digest = Sha256::digest(id.as_bytes());
        // No escaped byte starts like this.
        part = format!("%x{}", hex::encode(digest));
    }
    part
}

/// Returns the folder name for the files of a peer, unique for each peer.
///
/// Channels and accounts contain no hyphen here, so the first hyphen ends them.
pub fn folder_of(peer: &Identity) -> String {
    let part = |id: &str| escape(id, 0).replace('/', "%2f");
    let name_part = |name: &str| part(name).replace('-', "%2d").replace('@', "%40");
    let account = match peer.account() {
        DEFAULT_ACCOUNT => String::new(),
        account => format!("@{}", name_part(account)),
    };
    format!("{}{account}-{}", name_part(peer.channel()), part(peer.id()))
}

/// True if a character is not escaped.
fn is_plain(c: char) -> bool {
    match c {
        ':' | '%' => false,
        c if c.is_ascii() => c.is_ascii_graphic() && !c.is_ascii_uppercase(),
        c => c.is_alphanumeric() && c.to_lowercase().eq([c]),
    }
}

#[cfg(test)]
mod tests {
    use homard_proto::{ChannelAccount, IdIssuer};
    use proptest::prelude::*;

    use super::*;

    /// Decodes a part; `None` if it is a digest.
    fn unescape(part: &str) -> Option<String> {
        let mut bytes = Vec::new();
        let mut rest = part.bytes();
        while let Some(byte) = rest.next() {
            if byte == b'%' {
                let code = [rest.next()?, rest.next()?];
                bytes.push(u8::from_str_radix(std::str::from_utf8(&code).ok()?, 16).ok()?);
            } else {
                bytes.push(byte);
            }
        }
        String::from_utf8(bytes).ok()
    }

    #[test]
    fn every_peer_has_a_folder_name_of_its_own() {
        let peer = |channel: &str, account: &str, id: &str| {
            folder_of(&ChannelAccount::new(channel, account, IdIssuer::Peer, false).sender(id))
        };
        assert_eq!(peer("telegram", "default", "7"), "telegram-7");
        assert_eq!(peer("telegram", "default", "-100"), "telegram--100");
        assert_eq!(peer("telegram", "work", "7"), "telegram@work-7");
        let peers = [
            ("a", "default", "b-c"),
            ("a-b", "default", "c"),
            ("a", "b", "c"),
            ("a", "b-c", "d"),
            ("a", "b", "c-d"),
            ("a@b", "default", "c"),
            ("w", "default", "ann"),
            ("w", "default", "Ann"),
            ("w", "default", "ann "),
            ("w", "default", ".."),
            ("w", "default", "../ann"),
            ("w", "default", "%2e%2e/ann"),
            ("w", "default", ""),
        ];
        let names: std::collections::BTreeSet<_> =
            peers.map(|(channel, account, id)| peer(channel, account, id)).into();
        assert_eq!(names.len(), peers.len(), "{names:?}");
        assert!(names.iter().all(|name| !name.contains('/') && !name.starts_with('.')), "{names:?}");
        assert!(peer("w", "default", &"x/".repeat(500)).len() < 200);
    }

    #[test]
    fn ordinary_ids_stay_as_they_are_and_others_are_escaped() {
        for id in ["123456789", "-1001234", "ann", "ann@example.org", "+4917", "änn", "a_b-c.d/e", "groups"] {
            assert_eq!(escape(id, 0), id);
        }
        for (id, part) in [
            ("Ann", "%41nn"),
            ("ann ", "ann%20"),
            ("ann:thread:1", "ann%3athread%3a1"),
            ("100%", "100%25"),
            ("group", "%67roup"),
            ("dm", "%64m"),
            ("a\u{200b}", "a%e2%80%8b"),
        ] {
            assert_eq!(escape(id, 0), part);
        }
        assert_eq!((escape("bob", 1), escape("bob", 2)), ("%62ob".to_owned(), "%62%6fb".to_owned()));
    }

    #[test]
    fn an_id_that_is_too_long_becomes_a_digest() {
        let (one, other) = (escape(&"A".repeat(41), 0), escape(&"A".repeat(42), 0));
        assert_eq!((one.len(), unescape(&one), one == other), (66, None, false));
        assert_eq!(escape(&"a".repeat(MAX_PART_BYTES), 0), "a".repeat(MAX_PART_BYTES));
    }

    proptest! {
        #[test]
        fn an_escaped_part_can_be_decoded(id in "\\PC{0,12}|[A-Za-z:% ]{0,12}", forced in 0_usize..4) {
            let part = escape(&id, forced);
            if !part.starts_with("%x") {
                prop_assert_eq!(unescape(&part), Some(id));
            }
        }

        #[test]
        fn an_escaped_part_is_valid_in_a_key(id in any::<String>(), forced in 0_usize..4) {
            let part = escape(&id, forced);
            prop_assert!(!part.contains(':') && !RESERVED.contains(&part.as_str()));
            prop_assert_eq!(&part.to_lowercase(), &part);
            prop_assert_eq!(part.trim(), &part);
            prop_assert!(part.len() <= MAX_PART_BYTES);
        }
    }
}
