//! Strict parser of the first line and the headers of a request. A head that two programs could
//! parse differently is refused.

use super::{HttpAnswer, HttpRequest, HttpStatus, MAX_BODY, MAX_HEAD};

/// Maximum number of headers of a request.
const MAX_HEADERS: usize = 64;

/// Returns the length of the head at the beginning of `bytes`; `None` if more bytes are needed.
/// Error when these bytes can't begin a valid head.
pub fn end(bytes: &[u8]) -> Result<Option<usize>, HttpAnswer> {
    let bad = |message: &str| Err(HttpAnswer::bad_request(message));
    let mut last = 0;
    for (at, byte) in bytes.iter().enumerate().take(MAX_HEAD) {
        match (last, *byte) {
            (b'\r', b'\n') => {
                if at < 2 {
                    return bad("the request begins with an empty line");
                }
                if bytes[..=at].ends_with(b"\r\n\r\n") {
                    return Ok(Some(at + 1));
                }
            }
            (b'\r', _) => return bad("a carriage return without a line feed"),
            (_, b'\n') => return bad("a line feed without a carriage return"),
            (_, 0) => return bad("a zero byte"),
            (_, _) => {}
        }
        last = *byte;
    }
    if bytes.len() >= MAX_HEAD {
        return bad(&format!("more than {MAX_HEAD} bytes before the body"));
    }
    Ok(None)
}

/// Parses a complete head. Returns the request without its body, the length of the body in bytes,
/// and true if the client waits for the interim answer 100 (Continue) before it sends the body.
pub fn parse(bytes: &[u8]) -> Result<(HttpRequest, u64, bool), HttpAnswer> {
    let mut headers = [httparse::EMPTY_HEADER; MAX_HEADERS];
    let mut parsed = httparse::Request::new(&mut headers);
    match parsed.parse(bytes) {
        Ok(httparse::Status::Complete(_)) => {}
        Ok(httparse::Status::Partial) => return Err(HttpAnswer::bad_request("the request is not whole")),
        Err(error) => return Err(HttpAnswer::bad_request(error.to_string())),
    }
    let mut request = HttpRequest {
        method: parsed.method.unwrap_or_default().to_owned(),
        path: path(parsed.path.unwrap_or_default())?,
        ..HttpRequest::default()
    };
    for header in parsed.headers.iter() {
        let value = std::str::from_utf8(header.value)
            .map_err(|_| HttpAnswer::bad_request(format!("header {}: not UTF-8", header.name)))?;
        request.headers.push((header.name.to_owned(), value.trim_matches([' ', '\t']).to_owned()));
    }
    if parsed.version == Some(1) && request.header("Host")?.is_none() {
        return Err(HttpAnswer::bad_request("HTTP/1.1 without a header Host"));
    }
    let length = length(&request)?;
    let expects = request.header("Expect")?.is_some_and(|word| word.eq_ignore_ascii_case("100-continue"));
    let waits = expects && parsed.version == Some(1);
    Ok((request, length, waits))
}

/// Returns the path of a request target, without its query. Error when the target is no path.
pub fn path(target: &str) -> Result<String, HttpAnswer> {
    let path = target.split_once('?').map_or(target, |(path, _)| path);
    if !path.starts_with('/') || target.contains('#') {
        return Err(HttpAnswer::bad_request("the target is not a path"));
    }
    Ok(path.to_owned())
}

/// Returns the length of the body: its Content-Length, or 0 without one. Error when that is
/// malformed or above `MAX_BODY`, or when the request has a Transfer-Encoding.
pub fn length(request: &HttpRequest) -> Result<u64, HttpAnswer> {
    let length = request.header("Content-Length")?;
    if request.header("Transfer-Encoding")?.is_some() {
        let message = "a body comes with its Content-Length, and with no Transfer-Encoding";
        return Err(HttpAnswer::bad_request(message));
    }
    let Some(word) = length else { return Ok(0) };
    if word.is_empty() || !word.bytes().all(|byte| byte.is_ascii_digit()) {
        return Err(HttpAnswer::bad_request("Content-Length is not a number"));
    }
    match word.parse::<u64>() {
        Ok(length) if length <= MAX_BODY => Ok(length),
        Ok(_) | Err(_) => {
            Err(HttpAnswer::new(HttpStatus::TOO_LARGE, format!("the body has more than {MAX_BODY} bytes")))
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Any bytes result in a request or a refusal.
    #[test]
    fn random_bytes_give_a_request_or_a_refusal() {
        let whole = b"POST /agents/a/triggers/b?c HTTP/1.1\r\nHost: x\r\nContent-Length: 2\r\n\r\n";
        let (request, length, waits) = parse(whole).unwrap();
        assert_eq!((request.path.as_str(), length, waits), ("/agents/a/triggers/b", 2, false));
        assert_eq!(end(whole), Ok(Some(whole.len())));
        bolero::check!().with_iterations(20_000).with_type::<(Vec<u8>, u16, u8)>().for_each(
            |(noise, at, cut)| {
                let at = usize::from(*at) % whole.len();
                let cut = (at + usize::from(*cut)).min(whole.len());
                for bytes in [noise.clone(), [&whole[..at], noise, &whole[cut..]].concat()] {
                    if let Ok(Some(end)) = end(&bytes)
                        && let Ok((request, length, _)) = parse(&bytes[..end])
                    {
                        assert!(length <= MAX_BODY && request.path.starts_with('/'));
                        assert!(bytes[..end].ends_with(b"\r\n\r\n"));
                    }
                }
            },
        );
    }
}
