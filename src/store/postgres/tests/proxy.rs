//! Proxy in front of the server of these tests.

use super::{Fresh, Url, rig};

#[path = "../../../../tests/it/connection_proxy.rs"]
mod cutting;

pub use cutting::Cut;

pub struct Proxy(cutting::Proxy);

impl Proxy {
    pub fn start(cut: Option<Cut>) -> Proxy {
        Proxy(cutting::Proxy::before(rig::server().socket(), cut))
    }

    pub fn url(&self, fresh: &Fresh) -> Url {
        let (port, schema) = (self.0.port, &fresh.schema);
        Url::parse(&format!("postgres://dormouse@127.0.0.1:{port}/dormouse?schema={schema}&sslmode=disable"))
            .unwrap()
    }

    /// Number of round trips so far.
    pub fn trips(&self) -> usize {
        self.0.trips()
    }

    /// Cuts each connection at its next round trip, and refuses new ones.
    pub fn stop(&self) {
        self.0.stop();
    }
}
