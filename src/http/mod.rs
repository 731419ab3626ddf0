//! One HTTP request and its answer, by CGI from a web server or on one connection.

pub mod cgi;
pub mod connection;
pub mod head;

/// Maximum size of the first line and the headers of a request together, in bytes.
pub const MAX_HEAD: usize = 16 << 10;

/// Maximum size of a body in bytes for every agent, before the agent's own limit.
pub const MAX_BODY: u64 = 4 << 20;

/// Complete HTTP request.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct HttpRequest {
    pub method: String,
    /// Path without the query.
    pub path: String,
    pub headers: Vec<(String, String)>,
    pub body: Vec<u8>,
}

impl HttpRequest {
    /// Returns the value of a header. Error when the header occurs more than once, because the
    /// value would be ambiguous.
    pub fn header(&self, name: &str) -> Result<Option<&str>, HttpAnswer> {
        let mut found = self.headers.iter().filter(|(other, _)| other.eq_ignore_ascii_case(name));
        match (found.next(), found.next()) {
            (None, _) => Ok(None),
            (Some((_, value)), None) => Ok(Some(value)),
            (Some(_), Some(_)) => Err(HttpAnswer::bad_request(format!("more than one header {name}"))),
        }
    }
}

/// HTTP status of an answer: its number and its phrase.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct HttpStatus(&'static str);

impl HttpStatus {
    pub const OK: HttpStatus = HttpStatus("200 OK");
    pub const ACCEPTED: HttpStatus = HttpStatus("202 Accepted");
    pub const BAD_REQUEST: HttpStatus = HttpStatus("400 Bad Request");
    pub const UNAUTHORIZED: HttpStatus = HttpStatus("401 Unauthorized");
    pub const NOT_FOUND: HttpStatus = HttpStatus("404 Not Found");
    pub const REQUEST_TIMEOUT: HttpStatus = HttpStatus("408 Request Timeout");
    pub const TOO_LARGE: HttpStatus = HttpStatus("413 Content Too Large");
    pub const UNSUPPORTED_TYPE: HttpStatus = HttpStatus("415 Unsupported Media Type");
    pub const TOO_MANY: HttpStatus = HttpStatus("429 Too Many Requests");
    pub const UNAVAILABLE: HttpStatus = HttpStatus("503 Service Unavailable");
}

/// HTTP answer. `encode` adds a line feed to the body.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct HttpAnswer {
    pub status: HttpStatus,
    pub content_type: &'static str,
    pub body: String,
    /// Headers in addition to the headers of every answer.
    pub headers: Vec<(&'static str, String)>,
}

impl HttpAnswer {
    /// Returns an answer with an error message.
    pub fn new(status: HttpStatus, message: impl Into<String>) -> HttpAnswer {
        let body = serde_json::json!({ "error": { "message": message.into() } }).to_string();
        HttpAnswer::json(status, body)
    }

    /// Returns the answer to a request that can't be understood.
    fn bad_request(message: impl Into<String>) -> HttpAnswer {
        HttpAnswer::new(HttpStatus::BAD_REQUEST, message)
    }

    pub fn json(status: HttpStatus, body: String) -> HttpAnswer {
        HttpAnswer { status, content_type: "application/json", body, headers: Vec::new() }
    }

    /// Returns an answer with metrics in the text format of Prometheus.
    pub fn metrics(text: &str) -> HttpAnswer {
        let body = text.trim_end().to_owned();
        let content_type = "text/plain; version=0.0.4; charset=utf-8";
        HttpAnswer { status: HttpStatus::OK, content_type, body, headers: Vec::new() }
    }

    pub fn with(mut self, name: &'static str, value: impl ToString) -> HttpAnswer {
        self.headers.push((name, value.to_string()));
        self
    }

    /// Encodes the answer with `first` as the first line. `has_body`: false for a HEAD request.
    fn encode(&self, first: &str, has_body: bool) -> Vec<u8> {
        let mut text = format!(
            "{first}\r\nContent-Type: {}\r\nContent-Length: {}\r\n",
            self.content_type,
            self.body.len() + 1
        );
        for (name, value) in &self.headers {
            text.push_str(&format!("{name}: {value}\r\n"));
        }
        text.push_str("Cache-Control: no-store\r\n\r\n");
        if has_body {
            text.push_str(&format!("{}\n", self.body));
        }
        text.into_bytes()
    }
}
