//! Device identity: verifies an Ed25519 signature over the connection parameters and the challenge nonce.

use std::{
    collections::HashMap,
    sync::{Mutex, PoisonError},
    time::Duration,
};

use base64::{Engine as _, prelude::BASE64_URL_SAFE_NO_PAD};
use ed25519_dalek::{Signature, VerifyingKey};
use homard_proto::{
    ErrorShape, Generation,
    method::connect::{ConnectParams, Device},
};
use serde_json::json;
use sha2::{Digest, Sha256};

/// Why a device identity is rejected.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum DeviceAuthError {
    /// The device id is not the digest of the public key.
    IdMismatch,
    /// The signature's timestamp is too old or in the future.
    Expired,
    /// A signed nonce is required and missing.
    NonceRequired,
    /// Another nonce was signed.
    NonceMismatch,
    /// The signature does not verify.
    Signature,
    /// The public key is invalid.
    PublicKey,
}

impl DeviceAuthError {
    /// Returns the error that is sent to the client.
    pub(crate) fn error(self, generation: Generation) -> ErrorShape {
        let (message, code, reason) = match self {
            Self::IdMismatch => ("device identity mismatch", "DEVICE_ID_MISMATCH", "device-id-mismatch"),
            Self::Expired => ("device signature expired", "SIGNATURE_EXPIRED", "device-signature-stale"),
            Self::NonceRequired => ("device nonce required", "NONCE_REQUIRED", "device-nonce-missing"),
            Self::NonceMismatch => ("device nonce mismatch", "NONCE_MISMATCH", "device-nonce-mismatch"),
            Self::Signature => ("device signature invalid", "SIGNATURE_INVALID", "device-signature"),
            Self::PublicKey => ("device public key invalid", "PUBLIC_KEY_INVALID", "device-public-key"),
        };
        let error = ErrorShape::invalid(message);
        match generation {
            Generation::Three => error,
            Generation::Four => error.with_details(json!({"code": format!("DEVICE_AUTH_{code}"), "reason": reason})),
        }
    }
}

/// Connection facts that a signature is checked against.
#[derive(Debug, Clone, Copy)]
pub(crate) struct SignatureContext<'a> {
    /// Nonce of this connection's challenge.
    pub(crate) nonce: &'a str,
    /// Milliseconds since the epoch.
    pub(crate) now_ms: u64,
    /// True if the peer is on this machine.
    pub(crate) is_local: bool,
    /// Negotiated protocol version.
    pub(crate) generation: Generation,
}

/// Maximum number of nonce-less signatures that are remembered.
const MAX_USED_SIGNATURES: usize = 1_024;

/// Maximum difference between a signature's timestamp and the local clock.
fn skew(generation: Generation) -> Duration {
    match generation {
        Generation::Three => Duration::from_secs(600),
        Generation::Four => Duration::from_secs(120),
    }
}

/// Verifies a device's identity; checks are made in the order that clients expect.
pub(crate) fn check(
    params: &ConnectParams,
    device: &Device,
    context: SignatureContext<'_>,
) -> Result<(), DeviceAuthError> {
    let key = BASE64_URL_SAFE_NO_PAD.decode(&device.public_key).unwrap_or_default();
    if device.id != hex::encode(Sha256::digest(&key)) {
        return Err(DeviceAuthError::IdMismatch);
    }
    let clock_skew = Duration::from_millis(context.now_ms.abs_diff(device.signed_at));
    if clock_skew > skew(context.generation) {
        return Err(DeviceAuthError::Expired);
    }
    match &device.nonce {
        None if !context.is_local => return Err(DeviceAuthError::NonceRequired),
        Some(nonce) if nonce != context.nonce => return Err(DeviceAuthError::NonceMismatch),
        None | Some(_) => {}
    }
    let key = read_key(&key).ok_or(DeviceAuthError::PublicKey)?;
    let signature = BASE64_URL_SAFE_NO_PAD.decode(&device.signature).unwrap_or_default();
    let is_valid = signed_payloads(params, device).iter().any(|text| is_signed(&key, text.as_bytes(), &signature));
    if is_valid { Ok(()) } else { Err(DeviceAuthError::Signature) }
}

/// Accepted signatures without a nonce, until they expire. Prevents replay.
#[derive(Debug, Default)]
pub(crate) struct UsedSignatures(Mutex<HashMap<String, u64>>);

impl UsedSignatures {
    /// Records a signature. Rejects one that was used before, and any while the table is full; clients that sign the
    /// nonce are not affected.
    pub(crate) fn record(&self, device: &Device, now_ms: u64) -> Result<(), DeviceAuthError> {
        let mut signatures = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        signatures.retain(|_, expires_at_ms| *expires_at_ms >= now_ms);
        if signatures.len() >= MAX_USED_SIGNATURES || signatures.contains_key(&device.signature) {
            return Err(DeviceAuthError::NonceRequired);
        }
        // Only protocol 3 has signatures without a nonce.
        let lifetime_ms = homard_stdx::time::millis(skew(Generation::Three));
        signatures.insert(device.signature.clone(), device.signed_at.saturating_add(lifetime_ms));
        Ok(())
    }
}

fn read_key(bytes: &[u8]) -> Option<VerifyingKey> {
    VerifyingKey::from_bytes(<&[u8; 32]>::try_from(bytes).ok()?).ok()
}

/// Strict verification: rejects non-canonical signatures and weak keys, for which one signature fits many messages.
fn is_signed(key: &VerifyingKey, text: &[u8], signature: &[u8]) -> bool {
    Signature::from_slice(signature).is_ok_and(|signature| key.verify_strict(text, &signature).is_ok())
}

/// Returns the payloads that the device may have signed, newest format first.
fn signed_payloads(params: &ConnectParams, device: &Device) -> Vec<String> {
    let auth = params.auth.clone().unwrap_or_default();
    let token = auth.token.or(auth.device_token).or(auth.bootstrap_token).unwrap_or_default();
    let common = [
        device.id.as_str(),
        &params.client.id,
        &params.client.mode,
        params.role.as_deref().unwrap_or("operator"),
        &params.scopes.as_deref().unwrap_or_default().join(","),
        &device.signed_at.to_string(),
        &token,
    ]
    .join("|");
    let Some(nonce) = &device.nonce else { return vec![format!("v1|{common}")] };
    let plain = |text: &str| text.trim().to_ascii_lowercase();
    let platform = plain(&params.client.platform);
    let family = plain(params.client.device_family.as_deref().unwrap_or_default());
    vec![format!("v3|{common}|{nonce}|{platform}|{family}"), format!("v2|{common}|{nonce}")]
}

#[cfg(test)]
mod tests {
    use ed25519_dalek::{Signer, SigningKey};
    use serde_json::Value;

    use super::*;

    const NONCE: &str = "11111111-2222-4333-8444-555555555555";
    const SIGNED_AT: u64 = 1_737_264_000_000;

    fn vectors() -> Value {
        serde_json::from_str(include_str!("../tests/golden/device-auth-vectors.json")).unwrap()
    }

    fn params(version: &str) -> ConnectParams {
        let vectors = vectors();
        let mut device = json!({
            "id": vectors["deviceId"], "publicKey": vectors["publicKeyBase64Url"],
            "signature": vectors[version]["signatureBase64Url"], "signedAt": SIGNED_AT,
        });
        if version != "v1" {
            device["nonce"] = NONCE.into();
        }
        serde_json::from_value(json!({
            "minProtocol": 3, "maxProtocol": 4,
            "client": {"id": "cli", "mode": "cli", "version": "1", "platform": "Linux", "deviceFamily": " linux "},
            "role": "operator", "scopes": ["operator.admin", "operator.approvals", "operator.pairing"],
            "auth": {"token": "TEST-TOKEN"}, "device": device,
        }))
        .unwrap()
    }

    fn context() -> SignatureContext<'static> {
        SignatureContext { nonce: NONCE, now_ms: SIGNED_AT, is_local: true, generation: Generation::Three }
    }

    fn check_params(params: &ConnectParams, context: SignatureContext<'_>) -> Result<(), DeviceAuthError> {
        check(params, params.device.as_ref().unwrap(), context)
    }

    #[test]
    fn golden_signatures_are_valid() {
        for version in ["v1", "v2", "v3"] {
            assert_eq!(check_params(&params(version), context()), Ok(()), "{version}");
            let texts = signed_payloads(&params(version), params(version).device.as_ref().unwrap());
            assert!(texts.contains(&vectors()[version]["payload"].as_str().unwrap().to_owned()), "{version}");
        }
    }

    #[test]
    fn errors_are_checked_in_the_order_that_clients_expect() {
        let mut params = params("v2");
        let device = params.device.as_mut().unwrap();
        device.signature = "AAAA".to_owned();
        device.nonce = Some("of another connection".to_owned());
        device.signed_at = SIGNED_AT - 600_001;
        let id = std::mem::replace(&mut device.id, "ab".repeat(32));
        assert_eq!(check_params(&params, context()), Err(DeviceAuthError::IdMismatch));
        params.device.as_mut().unwrap().id = id;
        assert_eq!(check_params(&params, context()), Err(DeviceAuthError::Expired));
        params.device.as_mut().unwrap().signed_at = SIGNED_AT;
        assert_eq!(check_params(&params, context()), Err(DeviceAuthError::NonceMismatch));
        params.device.as_mut().unwrap().nonce = None;
        assert_eq!(
            check_params(&params, SignatureContext { is_local: false, ..context() }),
            Err(DeviceAuthError::NonceRequired)
        );
        assert_eq!(check_params(&params, context()), Err(DeviceAuthError::Signature));
    }

    #[test]
    fn the_signature_covers_all_connect_parameters() {
        let changes: [fn(&mut ConnectParams); 6] = [
            |params| params.client.id = "test".to_owned(),
            |params| params.client.mode = "ui".to_owned(),
            |params| params.role = Some("node".to_owned()),
            |params| params.scopes = Some(vec!["operator.admin".to_owned()]),
            |params| params.auth.as_mut().unwrap().token = Some("OTHER".to_owned()),
            |params| params.device.as_mut().unwrap().signed_at += 1,
        ];
        for version in ["v1", "v2", "v3"] {
            for (at, change) in changes.iter().enumerate() {
                let mut params = params(version);
                change(&mut params);
                assert_eq!(check_params(&params, context()), Err(DeviceAuthError::Signature), "{version}, change {at}");
            }
        }
        let mut other = params("v3");
        other.client.platform = "darwin".to_owned();
        assert_eq!(check_params(&other, context()), Err(DeviceAuthError::Signature));
    }

    #[test]
    fn an_invalid_public_key_is_reported() {
        let mut params = params("v2");
        let device = params.device.as_mut().unwrap();
        device.public_key = BASE64_URL_SAFE_NO_PAD.encode([7; 31]);
        device.id = hex::encode(Sha256::digest([7; 31]));
        assert_eq!(check_params(&params, context()), Err(DeviceAuthError::PublicKey));
    }

    #[test]
    fn each_protocol_version_has_its_own_clock_skew() {
        let check_at = |generation, distance| {
            check_params(&params("v2"), SignatureContext { now_ms: SIGNED_AT + distance, generation, ..context() })
        };
        assert_eq!(check_at(Generation::Three, 600_000), Ok(()));
        assert_eq!(check_at(Generation::Three, 600_001), Err(DeviceAuthError::Expired));
        assert_eq!(check_at(Generation::Four, 120_000), Ok(()));
        assert_eq!(check_at(Generation::Four, 120_001), Err(DeviceAuthError::Expired));
    }

    #[test]
    fn a_signature_without_nonce_is_valid_for_v1_payloads_only() {
        let mut params = params("v2");
        let key = SigningKey::from_bytes(&[7; 32]);
        let device = params.device.as_mut().unwrap();
        device.public_key = BASE64_URL_SAFE_NO_PAD.encode(key.verifying_key().to_bytes());
        device.id = hex::encode(Sha256::digest(key.verifying_key().to_bytes()));
        let device = params.device.clone().unwrap();
        let v2_payload = signed_payloads(&params, &device).pop().unwrap();
        let signature = BASE64_URL_SAFE_NO_PAD.encode(key.sign(v2_payload.as_bytes()).to_bytes());
        params.device = Some(Device { signature, ..device });
        assert_eq!(check_params(&params, context()), Ok(()));
        params.device.as_mut().unwrap().nonce = None;
        assert_eq!(check_params(&params, context()), Err(DeviceAuthError::Signature));
    }

    #[test]
    fn used_signatures_are_remembered_until_expiry_up_to_a_limit() {
        let used = UsedSignatures::default();
        let device = params("v1").device.unwrap();
        assert_eq!(used.record(&device, SIGNED_AT - 600_000), Ok(()));
        for now in [SIGNED_AT, SIGNED_AT + 600_000] {
            assert_eq!(used.record(&device, now), Err(DeviceAuthError::NonceRequired));
        }
        // The first signature has expired by then.
        assert_eq!(used.record(&device, SIGNED_AT + 600_001), Ok(()));
        let other = |at: usize| Device { signature: at.to_string(), ..device.clone() };
        let recorded = (0..2 * MAX_USED_SIGNATURES).filter(|at| used.record(&other(*at), SIGNED_AT).is_ok()).count();
        assert_eq!(recorded, MAX_USED_SIGNATURES - 1);
        assert_eq!(used.record(&other(0), SIGNED_AT + 600_001), Ok(()));
    }

    fn bytes(digits: &Value) -> Vec<u8> {
        hex::decode(digits.as_str().unwrap()).unwrap()
    }

    /// The classes that Wycheproof covers. `tests/golden/ed25519-vectors.json` was computed from the equations.
    #[test]
    fn r49_every_test_vector_has_the_expected_result() {
        let vectors = include_str!("../tests/golden/ed25519-vectors.json");
        let vectors: Vec<Value> = serde_json::from_str(vectors).unwrap();
        let mut count = [0, 0];
        for vector in &vectors {
            let (text, signature) = (bytes(&vector["message"]), bytes(&vector["signature"]));
            let is_valid = read_key(&bytes(&vector["publicKey"])).is_some_and(|key| is_signed(&key, &text, &signature));
            assert_eq!(vector["valid"], is_valid, "{vector}");
            count[usize::from(is_valid)] += 1;
        }
        assert_eq!(count, [137, 5]);
        // Flipping any single bit of a valid signature invalidates it.
        let valid = &vectors[3];
        let (key, text, signature) = (&valid["publicKey"], bytes(&valid["message"]), bytes(&valid["signature"]));
        let key = read_key(&bytes(key)).unwrap();
        for bit in 0..512 {
            let mut flipped = signature.clone();
            flipped[bit / 8] ^= 1 << (bit % 8);
            assert!(!is_signed(&key, &text, &flipped), "bit {bit} does not count");
        }
    }

    /// The group order, little-endian. A signature whose second half is at least this large is a malleated form of
    /// another.
    const ORDER: [u8; 32] = [
        0xed, 0xd3, 0xf5, 0x5c, 0x1a, 0x63, 0x12, 0x58, 0xd6, 0x9c, 0xf7, 0xa2, 0xde, 0xf9, 0xde, 0x14, 0, 0, 0, 0, 0,
        0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0x10,
    ];

    #[test]
    fn r49_malleable_signatures_and_weak_keys_are_rejected() {
        let valid = params("v3");
        let signature = BASE64_URL_SAFE_NO_PAD.decode(&valid.device.as_ref().unwrap().signature).unwrap();
        let mut malleated = signature.clone();
        let mut carry = 0_u16;
        for (byte, order) in malleated[32..].iter_mut().zip(ORDER) {
            let sum = u16::from(*byte) + u16::from(order) + carry;
            (*byte, carry) = (sum as u8, sum >> 8);
        }
        for wrong in
            [malleated, signature[..63].to_vec(), [signature.clone(), vec![0]].concat(), vec![0; 64], Vec::new()]
        {
            let mut params = valid.clone();
            params.device.as_mut().unwrap().signature = BASE64_URL_SAFE_NO_PAD.encode(&wrong);
            assert_eq!(check_params(&params, context()), Err(DeviceAuthError::Signature), "{wrong:?}");
        }
        // Points of small order: with them, one signature fits many messages.
        let identity = [1, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0];
        for weak in [identity, [0; 32]] {
            let mut params = valid.clone();
            let device = params.device.as_mut().unwrap();
            device.public_key = BASE64_URL_SAFE_NO_PAD.encode(weak);
            device.id = hex::encode(Sha256::digest(weak));
            device.signature = BASE64_URL_SAFE_NO_PAD.encode([identity.as_slice(), &[0; 32]].concat());
            let error = check_params(&params, context()).unwrap_err();
            assert!(matches!(error, DeviceAuthError::Signature | DeviceAuthError::PublicKey), "{error:?}");
        }
        let padded = BASE64_URL_SAFE_NO_PAD.encode(&signature) + "==";
        let mut params = valid;
        params.device.as_mut().unwrap().signature = padded;
        assert_eq!(check_params(&params, context()), Err(DeviceAuthError::Signature));
    }

    #[test]
    fn r49_a_nonce_is_valid_for_one_connection_and_a_signature_expires() {
        let other_nonce = SignatureContext { nonce: "of-another-connection", ..context() };
        assert_eq!(check_params(&params("v3"), other_nonce), Err(DeviceAuthError::NonceMismatch));
        let protocol_four = SignatureContext { generation: Generation::Four, ..context() };
        for (distance, expected) in [(0, Ok(())), (120_001, Err(DeviceAuthError::Expired))] {
            assert_eq!(
                check_params(&params("v3"), SignatureContext { now_ms: SIGNED_AT + distance, ..protocol_four }),
                expected
            );
            assert_eq!(
                check_params(&params("v3"), SignatureContext { now_ms: SIGNED_AT - distance, ..protocol_four }),
                expected
            );
        }
    }

    #[test]
    fn each_protocol_version_gets_its_own_error_format() {
        let message = "device nonce mismatch";
        assert_eq!(DeviceAuthError::NonceMismatch.error(Generation::Three), ErrorShape::invalid(message));
        assert_eq!(
            DeviceAuthError::NonceMismatch.error(Generation::Four),
            ErrorShape::invalid(message)
                .with_details(json!({"code": "DEVICE_AUTH_NONCE_MISMATCH", "reason": "device-nonce-mismatch"}))
        );
    }
}
