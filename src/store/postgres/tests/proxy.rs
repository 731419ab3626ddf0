//! A proxy before the server of these tests.

use super::{Fresh, Url, rig};

#[path = "../../../../tests/it/cutting.rs"]
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

    /// How many flights there were.
    pub fn flights(&self) -> usize {
        self.0.flights()
    }

    /// Cuts all connections at their next flight, and lets nobody in.
    pub fn stop(&self) {
        self.0.stop();
    }
}
