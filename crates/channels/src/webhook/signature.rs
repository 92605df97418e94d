//! Request signatures: prove that a body comes from the holder of the secret and is recent.

use hmac::{Hmac, KeyInit, Mac};
use sha2::Sha256;

use crate::Secret;

/// Header with the time of signing in seconds since the epoch.
pub const TIMESTAMP_HEADER: &str = "x-homard-timestamp";

/// Header with the signature: `v1=` and the HMAC-SHA256 of `<timestamp>.<body>` in hex.
pub const SIGNATURE_HEADER: &str = "x-homard-signature";

/// Maximum difference of the clocks in seconds.
pub const CLOCK_TOLERANCE: u64 = 300;

/// Why a signature is rejected.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum SignatureError {
    /// It is missing, or not valid for this body.
    Invalid,
    /// It is too old, or in the future.
    Expired,
}

/// Returns the signature of a body in the format of its header.
pub fn sign(secret: &Secret, seconds: u64, body: &[u8]) -> String {
    let bytes = mac(secret, &seconds.to_string(), body).map(|mac| mac.finalize().into_bytes());
    format!("v1={}", hex::encode(bytes.unwrap_or_default()))
}

/// Verifies the signature of a body, within the tolerance around `now_ms`. The comparison takes constant time.
pub fn verify(
    secret: &Secret,
    timestamp: Option<&str>,
    signature: Option<&str>,
    body: &[u8],
    now_ms: u64,
) -> Result<(), SignatureError> {
    let timestamp = timestamp.map(str::trim).unwrap_or_default();
    let seconds: u64 = timestamp.parse().map_err(|_nan| SignatureError::Invalid)?;
    let candidate =
        signature.and_then(|signature| unhex(signature.trim().strip_prefix("v1=")?)).ok_or(SignatureError::Invalid)?;
    // The header's text is signed, not the parsed number.
    let mac = mac(secret, timestamp, body).ok_or(SignatureError::Invalid)?;
    mac.verify_slice(&candidate).map_err(|_wrong| SignatureError::Invalid)?;
    if seconds.abs_diff(now_ms / 1000) > CLOCK_TOLERANCE { Err(SignatureError::Expired) } else { Ok(()) }
}

fn mac(secret: &Secret, timestamp: &str, body: &[u8]) -> Option<Hmac<Sha256>> {
    // HMAC accepts keys of any length, so this does not fail.
    let mut mac = Hmac::<Sha256>::new_from_slice(secret.expose().as_bytes()).ok()?;
    mac.update(timestamp.as_bytes());
    mac.update(b".");
    mac.update(body);
    Some(mac)
}

fn unhex(text: &str) -> Option<Vec<u8>> {
    let digits: Option<Vec<u8>> =
        text.chars().map(|c| c.to_digit(16).and_then(|digit| u8::try_from(digit).ok())).collect();
    let digits = digits.filter(|digits| digits.len() % 2 == 0)?;
    Some(digits.chunks(2).map(|pair| pair.iter().fold(0, |byte, digit| byte << 4 | digit)).collect())
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn secret() -> Secret {
        Secret::from("a secret of the tests")
    }

    #[test]
    fn a_signature_matches_openssl() {
        // printf '1700000000.{"id":"1"}' | openssl dgst -sha256 -hmac 'a secret of the tests'
        let expected = "v1=41b1c2ce8458b06ece8658ef445f57dfd3ae479d29e6bf1dfdf5b1005ba3daa4";
        assert_eq!(sign(&secret(), 1_700_000_000, b"{\"id\":\"1\"}"), expected);
    }

    #[test]
    fn only_a_fresh_signature_of_this_body_is_valid() {
        let now = 1_700_000_000_u64;
        let valid = sign(&secret(), now, b"body");
        let check = |timestamp: Option<&str>, signature: Option<&str>, body: &[u8], now: u64| {
            verify(&secret(), timestamp, signature, body, now * 1000)
        };
        let at = Some("1700000000");
        assert_eq!(check(at, Some(&valid), b"body", now), Ok(()));
        assert_eq!(check(at, Some(&valid.to_uppercase().replace("V1", "v1")), b"body", now), Ok(()));
        assert_eq!(check(at, Some(&valid), b"body", now + 300), Ok(()));
        assert_eq!(check(at, Some(&valid), b"body", now - 301), Err(SignatureError::Expired));
        assert_eq!(check(at, Some(&valid), b"body", now + 301), Err(SignatureError::Expired));
        assert_eq!(check(at, Some(&valid), b"bodY", now), Err(SignatureError::Invalid));
        assert_eq!(check(Some("1700000001"), Some(&valid), b"body", now), Err(SignatureError::Invalid));
        let other = sign(&Secret::from("another secret of tests"), now, b"body");
        for invalid in [None, Some(""), Some("v1="), Some("v1=zz"), Some("v1=abc"), Some(&valid[3..]), Some(&other)] {
            assert_eq!(check(at, invalid, b"body", now), Err(SignatureError::Invalid), "{invalid:?}");
        }
        for invalid in [None, Some(""), Some("now"), Some("-1"), Some("99999999999999999999")] {
            assert_eq!(check(invalid, Some(&valid), b"body", now), Err(SignatureError::Invalid), "{invalid:?}");
        }
    }

    proptest! {
        #[test]
        fn only_what_was_signed_is_verified(body: Vec<u8>, other: Vec<u8>, seconds in 0u64..1 << 40) {
            let signature = sign(&secret(), seconds, &body);
            let believed = |body: &[u8]| {
                verify(&secret(), Some(&seconds.to_string()), Some(&signature), body, seconds * 1000).is_ok()
            };
            prop_assert!(believed(&body));
            prop_assert_eq!(believed(&other), other == body);
        }
    }
}
