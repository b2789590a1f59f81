//! What `metrics-agent explain` is told.

use std::net::SocketAddr;
use std::path::PathBuf;

use clap::Args;
use endpoint_picker::subset::Subset;

use super::asking::AskFlags;
use super::values::{body_and_endpoint, header, path};
use crate::commands::agent_client::FetchError;
use crate::commands::explain::Asked;
use crate::commands::recorded;

/// What `metrics-agent explain` is told.
#[derive(Args, Debug)]
pub struct ExplainFlags {
    /// A file with the body of a request; - for standard input.
    body: PathBuf,

    /// A recorded snapshot of the pool (metrics-agent snapshot --save FILE), in place of an agent.
    #[arg(long, value_name = "FILE", conflicts_with_all = ["agent", "pool"])]
    pub snapshot: Option<PathBuf>,

    /// The agent to ask for the pool's snapshot.
    #[command(flatten)]
    pub ask: AskFlags,

    /// The request's path, which tells the API.
    #[arg(long, value_name = "PATH", default_value = "/v1/chat/completions", value_parser = path)]
    path: hyper::Uri,

    /// A header of the request; may be repeated.
    #[arg(long, value_name = "NAME: VALUE", value_parser = header)]
    header: Vec<(String, Vec<u8>)>,

    /// The subset hint, IP:PORT separated by commas: only these may be picked.
    #[arg(long, value_name = "ENDPOINTS")]
    subset: Option<String>,

    /// A body that was sent to an endpoint before, with the same path and headers; may be repeated, in their order.
    #[arg(long, value_name = "FILE=IP:PORT", value_parser = body_and_endpoint)]
    after: Vec<(PathBuf, SocketAddr)>,

    /// What chance makes of it: equal seeds choose alike.
    #[arg(long, value_name = "N", default_value_t = 0)]
    seed: u64,
}

impl ExplainFlags {
    /// Reads the bodies.
    pub fn asked(&self) -> Result<Asked, FetchError> {
        let path = self.path.to_string();
        let pseudo = [(":method", "POST"), (":path", &path)];
        let pseudo = pseudo.map(|(name, value)| (name.to_owned(), value.as_bytes().to_vec()));
        let before = self.after.iter().map(|(file, endpoint)| Ok((recorded::bytes(file)?, *endpoint)));
        Ok(Asked {
            headers: pseudo.into_iter().chain(self.header.iter().cloned()).collect(),
            subset: self.subset.as_deref().map_or(Subset::All, Subset::from_comma_separated),
            body: recorded::bytes(&self.body)?,
            before: before.collect::<Result<_, _>>()?,
            seed: self.seed,
            path,
        })
    }
}
