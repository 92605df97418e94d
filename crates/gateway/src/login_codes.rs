//! One-time codes that let a browser sign in without the token (`homard dashboard`).
//!
//! A code is valid once, for a minute, and only together with a device identity: what the browser keeps is the token of
//! its device. Codes are kept in memory, as digests.

use std::{
    sync::{Mutex, PoisonError},
    time::Duration,
};

use sha2::{Digest, Sha256};
use subtle::ConstantTimeEq;
use tokio::time::Instant;

/// How long a code is valid.
pub(crate) const VALID_FOR: Duration = Duration::from_secs(60);

/// Maximum number of codes that are valid at once; a new one replaces the oldest.
const MAX_CODES: usize = 16;

/// The codes that were issued and not used yet.
#[derive(Debug, Default)]
pub(crate) struct LoginCodes(Mutex<Vec<LoginCode>>);

#[derive(Debug)]
struct LoginCode {
    digest: [u8; 32],
    expires_at: Instant,
}

impl LoginCodes {
    /// Issues a code, derived from this unguessable text.
    pub(crate) fn issue(&self, random: &str, now: Instant) -> String {
        let code = hex::encode(Sha256::digest(random));
        let mut codes = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        codes.retain(|code| code.expires_at > now);
        if codes.len() >= MAX_CODES {
            codes.remove(0);
        }
        codes.push(LoginCode { digest: Sha256::digest(&code).into(), expires_at: now + VALID_FOR });
        code
    }

    /// Uses a code up; returns true if it was valid.
    pub(crate) fn redeem(&self, code: &str, now: Instant) -> bool {
        let digest = Sha256::digest(code);
        let mut codes = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        codes.retain(|code| code.expires_at > now);
        let found = codes.iter().position(|code| bool::from(code.digest.ct_eq(&digest)));
        found.map(|index| codes.remove(index)).is_some()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_code_is_valid_once_and_for_a_minute() {
        let (codes, now) = (LoginCodes::default(), Instant::now());
        let (first, second) = (codes.issue("a", now), codes.issue("b", now));
        assert_ne!(first, second);
        assert_eq!([codes.redeem(&first, now), codes.redeem(&first, now)], [true, false]);
        assert!(!codes.redeem("guess", now));
        assert!(!codes.redeem(&second, now + VALID_FOR));
    }

    #[test]
    fn the_oldest_code_makes_way() {
        let (codes, now) = (LoginCodes::default(), Instant::now());
        let issued: Vec<_> = (0..=MAX_CODES).map(|number| codes.issue(&number.to_string(), now)).collect();
        assert!(!codes.redeem(&issued[0], now));
        assert!(codes.redeem(&issued[1], now) && codes.redeem(&issued[MAX_CODES], now));
    }
}
