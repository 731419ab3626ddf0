//! HTTP request in environment variables, with the body on stdin (CGI/1.1, RFC 3875).

use std::env;
use std::time::Instant;

use super::connection::{read_body, send};
use super::{HttpAnswer, HttpRequest, head};

/// Reads the request: its head from the environment, its body from stdin.
pub fn receive(by: Instant) -> Result<HttpRequest, HttpAnswer> {
    let vars = env::vars_os()
        .filter_map(|(name, value)| Some((name.into_string().ok()?, value.into_string().ok()?)));
    let (mut request, length) = request(vars)?;
    read_body(rustix::stdio::stdin(), &mut request.body, length, by)?;
    Ok(request)
}

/// Parses a request from CGI variables. Returns the request without body, and the body's length.
fn request(vars: impl Iterator<Item = (String, String)>) -> Result<(HttpRequest, u64), HttpAnswer> {
    let mut request = HttpRequest::default();
    for (name, value) in vars {
        match name.as_str() {
            "REQUEST_METHOD" => request.method = value,
            // CGI passes the query in another variable, so this path has no query.
            "PATH_INFO" => request.path = value,
            "CONTENT_TYPE" if !value.is_empty() => request.headers.push(("Content-Type".to_owned(), value)),
            "CONTENT_LENGTH" if !value.is_empty() => {
                request.headers.push(("Content-Length".to_owned(), value))
            }
            // The variables without `HTTP_` have these headers, so the copies are ignored.
            "HTTP_CONTENT_TYPE" | "HTTP_CONTENT_LENGTH" => {}
            name => {
                if let Some(header) = name.strip_prefix("HTTP_") {
                    request.headers.push((header.replace('_', "-"), value));
                }
            }
        }
    }
    if request.method.is_empty() {
        return Err(HttpAnswer::bad_request("the server names no REQUEST_METHOD"));
    }
    // Some servers decode a chunked body and pass its length, but keep the header
    // Transfer-Encoding, which would then contradict Content-Length.
    let is_told = request.header("Content-Length")?.is_some();
    request.headers.retain(|(name, _)| !(is_told && name.eq_ignore_ascii_case("Transfer-Encoding")));
    let length = head::length(&request)?;
    Ok((request, length))
}

/// Writes the answer in the format of CGI.
pub fn answer(answer: &HttpAnswer, method: &str, by: Instant) {
    let first = format!("Status: {}", answer.status.0);
    send(rustix::stdio::stdout(), &answer.encode(&first, method != "HEAD"), by);
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::http::MAX_BODY;

    /// Any CGI variables, in any order and number, result in a request or a refusal.
    #[test]
    fn random_cgi_variables_give_a_request_or_a_refusal() {
        const NAMES: [&str; 10] = [
            "REQUEST_METHOD",
            "PATH_INFO",
            "CONTENT_TYPE",
            "CONTENT_LENGTH",
            "HTTP_CONTENT_LENGTH",
            "HTTP_TRANSFER_ENCODING",
            "HTTP_AUTHORIZATION",
            "HTTP_HOST",
            "HTTP_",
            "QUERY_STRING",
        ];
        const VALUES: [&str; 9] =
            ["POST", "/agents/a", "", "2", "+2", "2, 2", "99999999999999999999", "chunked", "\r\n"];
        bolero::check!().with_iterations(20_000).with_type::<(Vec<(u8, u8)>, String)>().for_each(
            |(pairs, noise)| {
                let vars = pairs.iter().map(|(name, value)| {
                    let name = NAMES
                        .get(usize::from(*name) % 11)
                        .map_or(format!("HTTP_{noise}"), |name| (*name).to_owned());
                    (
                        name,
                        VALUES
                            .get(usize::from(*value) % 10)
                            .map_or(noise.clone(), |value| (*value).to_owned()),
                    )
                });
                if let Ok((request, length)) = request(vars) {
                    assert!(!request.method.is_empty() && request.body.is_empty() && length <= MAX_BODY);
                    let told = request.header("Content-Length").unwrap();
                    assert_eq!(length, told.map_or(0, |told| told.parse().unwrap()));
                }
            },
        );
    }
}
