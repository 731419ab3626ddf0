//! Proof that the sender of a delivery has the secret of a trigger: the secret itself, or a
//! signature.

use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use hmac::{Hmac, Mac};
use sha2::Sha256;
use subtle::ConstantTimeEq;

use crate::model::digest::{self, sha256};
use crate::model::time::{Span, Time};
use crate::model::trigger::Verify;

/// Parts of a request that may contain the proof.
pub struct SignedRequest<'a> {
    pub body: &'a [u8],
    /// Returns the value of a header, if the request has exactly one such header.
    pub header: &'a dyn Fn(&str) -> Option<String>,
    /// Part of the URL path after the trigger id.
    pub in_path: Option<&'a str>,
}

/// Trigger's way of verification and the hash of its secret, for a check of a request.
pub struct Capability<'a> {
    pub verify: &'a Verify,
    pub secret_sha256: &'a str,
    /// Secret itself, if this machine has it and signatures are checked with the secret.
    pub key: Option<&'a [u8]>,
}

/// Kind of proof that a request contains: the secret itself, or a signature made with it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Shown {
    Said,
    Signed,
}

/// Prefix of a Standard Webhooks secret, followed by Base64.
const WHSEC: &str = "whsec_";

/// Returns the valid proof in a request, if any. Compares in a time that reveals no secret.
pub fn shown(
    known: &Capability<'_>,
    request: &SignedRequest<'_>,
    now: Time,
    tolerance: Span,
) -> Option<Shown> {
    let said = said(known.verify, request);
    let is_said = is_secret(known, said.as_deref().unwrap_or_default()) && said.is_some();
    let signed = signed(known.verify, request).unwrap_or_default();
    let is_signed = signed.is_by(known, request.body) && signed.is_timely(now, tolerance);
    match (is_said, is_signed) {
        (true, _) => Some(Shown::Said),
        (false, true) => Some(Shown::Signed),
        (false, false) => None,
    }
}

/// True if `said` is the trigger's secret. Compares in constant time.
pub fn is_secret(known: &Capability<'_>, said: &[u8]) -> bool {
    sha256(said).as_bytes().ct_eq(known.secret_sha256.as_bytes()).into()
}

/// Returns the secret that a request contains: in `Authorization: Bearer`, as the password of
/// `Authorization: Basic`, in `X-Gitlab-Token`, or in the path for a trigger that allows that.
fn said(verify: &Verify, request: &SignedRequest<'_>) -> Option<Vec<u8>> {
    if let Some(secret) = request.in_path {
        return (*verify == Verify::Url).then(|| secret.as_bytes().to_vec());
    }
    let Some(authorization) = (request.header)("Authorization") else {
        return (request.header)("X-Gitlab-Token").map(String::into_bytes);
    };
    let (scheme, word) = authorization.split_once(' ')?;
    match scheme.to_ascii_lowercase().as_str() {
        "bearer" => Some(word.trim().as_bytes().to_vec()),
        "basic" => {
            let pair = STANDARD.decode(word.trim()).ok()?;
            let colon = pair.iter().position(|byte| *byte == b':')?;
            pair.get(colon + 1..).map(<[u8]>::to_vec)
        }
        _ => None,
    }
}

/// Signed text, time and signatures of a request, by the scheme of the trigger.
#[derive(Default)]
struct Signed {
    /// Signed text that precedes the body.
    prefix: String,
    /// Time of the signature in seconds since 1970, if the scheme signs a time.
    at: Option<i64>,
    /// All signatures in the request; one of them must match.
    signatures: Vec<Vec<u8>>,
}

impl Signed {
    fn is_by(&self, known: &Capability<'_>, body: &[u8]) -> bool {
        let key = known.key.and_then(|key| hmac_key(known.verify, key)).unwrap_or_default();
        let Ok(mac) = Hmac::<Sha256>::new_from_slice(&key) else { return false };
        let mac = mac.chain_update(&self.prefix).chain_update(body);
        let is_right = |one: &Vec<u8>| mac.clone().verify_slice(one).is_ok();
        self.signatures.iter().fold(false, |found, one| found | is_right(one)) && !key.is_empty()
    }

    fn is_timely(&self, now: Time, tolerance: Span) -> bool {
        self.at.is_none_or(|seconds| {
            let apart = (i128::from(now.as_millis()) - i128::from(seconds) * 1000).unsigned_abs();
            apart <= u128::from(tolerance.as_millis())
        })
    }
}

/// Returns the key of the HMAC for a secret.
fn hmac_key(verify: &Verify, secret: &[u8]) -> Option<Vec<u8>> {
    match verify {
        Verify::StandardWebhooks => {
            let text = std::str::from_utf8(secret).ok()?;
            STANDARD.decode(text.strip_prefix(WHSEC).unwrap_or(text)).ok()
        }
        Verify::HmacSha256 { .. } | Verify::Stripe | Verify::Slack => Some(secret.to_vec()),
        Verify::Secret | Verify::Url => None,
    }
}

fn signed(verify: &Verify, request: &SignedRequest<'_>) -> Option<Signed> {
    let header = request.header;
    let one = |digits: &str| vec![digest::bytes(digits).unwrap_or_default()];
    Some(match verify {
        Verify::Secret | Verify::Url => return None,
        Verify::HmacSha256 { header: name } => {
            let said = header(name)?;
            let digits = said.strip_prefix("sha256=").unwrap_or(&said);
            Signed { signatures: one(digits), ..Signed::default() }
        }
        Verify::StandardWebhooks => {
            let (id, at) = (header("webhook-id")?, header("webhook-timestamp")?);
            let said = header("webhook-signature")?;
            let digests = said.split(' ').filter_map(|one| one.strip_prefix("v1,"));
            Signed {
                prefix: format!("{id}.{at}."),
                at: Some(seconds(&at)?),
                signatures: digests.filter_map(|digest| STANDARD.decode(digest).ok()).collect(),
            }
        }
        Verify::Stripe => {
            let said = header("Stripe-Signature")?;
            let pairs: Vec<(&str, &str)> =
                said.split(',').filter_map(|pair| pair.trim().split_once('=')).collect();
            let of = |name: &'static str| pairs.iter().filter(move |(other, _)| *other == name);
            let (_, at) = of("t").next()?;
            Signed {
                prefix: format!("{at}."),
                at: Some(seconds(at)?),
                signatures: of("v1").filter_map(|(_, digits)| digest::bytes(digits)).collect(),
            }
        }
        Verify::Slack => {
            let (at, said) = (header("X-Slack-Request-Timestamp")?, header("X-Slack-Signature")?);
            let signatures = one(said.strip_prefix("v0=")?);
            Signed { prefix: format!("v0:{at}:"), at: Some(seconds(&at)?), signatures }
        }
    })
}

fn seconds(word: &str) -> Option<i64> {
    word.bytes().all(|byte| byte.is_ascii_digit()).then(|| word.parse().ok()).flatten()
}

/// Returns the dedupe key of a signed delivery. It is made of signed content only, because an
/// attacker can repeat a recorded request with other headers. `None` if the key is a hash of the
/// body and the body is empty, because all empty deliveries would have the same key.
pub fn delivery_key(verify: &Verify, request: &SignedRequest<'_>) -> Option<String> {
    match verify {
        Verify::Secret | Verify::Url => None,
        // A sender that retries signs the same id with another time.
        Verify::StandardWebhooks => (request.header)("webhook-id").map(|id| sha256(id.as_bytes())),
        Verify::HmacSha256 { .. } | Verify::Stripe | Verify::Slack => {
            (!request.body.is_empty()).then(|| sha256(request.body))
        }
    }
    .map(|hash| format!("signed:{hash}"))
}

/// Returns a new secret in the format of `verify`, made from a random word.
pub fn new_secret(verify: &Verify, word: String) -> String {
    match verify {
        Verify::StandardWebhooks => format!("{WHSEC}{}", STANDARD.encode(word)),
        Verify::Secret | Verify::HmacSha256 { .. } | Verify::Stripe | Verify::Slack | Verify::Url => word,
    }
}

/// Refuses a secret that the sender made, if it is unusable for `verify`.
pub fn check_secret(verify: &Verify, secret: &str) -> Result<(), &'static str> {
    if secret.is_empty() {
        return Err("it is empty");
    }
    if secret.chars().any(char::is_control) {
        return Err("it has control characters, which no header can carry: it is one line of text");
    }
    match verify {
        Verify::StandardWebhooks if hmac_key(verify, secret.as_bytes()).is_none_or(|key| key.is_empty()) => {
            Err("it is not base64: a secret of Standard Webhooks is `whsec_` and base64")
        }
        Verify::Url
            if !secret.bytes().all(|byte| byte.is_ascii_alphanumeric() || b"-._~".contains(&byte)) =>
        {
            Err("a part of an address has letters, digits and -._~ only")
        }
        Verify::StandardWebhooks
        | Verify::Secret
        | Verify::HmacSha256 { .. }
        | Verify::Stripe
        | Verify::Slack
        | Verify::Url => Ok(()),
    }
}
