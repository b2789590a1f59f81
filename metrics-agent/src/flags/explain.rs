//! Flags of `metrics-agent explain`.

use std::net::SocketAddr;
use std::path::PathBuf;

use clap::Args;
use endpoint_picker::request::subset::Subset;

use super::agent::PoolFlags;
use super::values::{body_and_endpoint, header, path};
use crate::commands::agent_client::FetchError;
use crate::commands::explain::RecordedRequest;
use crate::commands::recorded;

/// Flags of `metrics-agent explain`.
#[derive(Args, Debug)]
pub struct ExplainFlags {
    /// A file with the body of a request; - for standard input.
    body: PathBuf,

    /// A recorded snapshot of the pool (metrics-agent snapshot --save FILE), instead of an agent.
    #[arg(long, value_name = "FILE", conflicts_with_all = ["agent", "pool"])]
    pub snapshot: Option<PathBuf>,

    /// The pool.
    #[command(flatten)]
    pub source: PoolFlags,

    /// The request's path, which decides the API.
    #[arg(long, value_name = "PATH", default_value = "/v1/chat/completions", value_parser = path)]
    path: hyper::Uri,

    /// A header of the request; may be repeated.
    #[arg(long, value_name = "NAME: VALUE", value_parser = header)]
    header: Vec<(String, Vec<u8>)>,

    /// The subset hint, IP:PORT separated by commas: only these endpoints may be picked.
    #[arg(long, value_name = "ENDPOINTS")]
    subset: Option<String>,

    /// A body that was sent to an endpoint before, with the same path and headers; may be repeated, in the order of sending.
    #[arg(long, value_name = "FILE=IP:PORT", value_parser = body_and_endpoint)]
    after: Vec<(PathBuf, SocketAddr)>,

    /// The seed of random numbers: equal seeds give equal decisions.
    #[arg(long, value_name = "N", default_value_t = 0)]
    seed: u64,
}

impl ExplainFlags {
    /// The request, with bodies read from their files.
    pub fn request(&self) -> Result<RecordedRequest, FetchError> {
        let path = self.path.to_string();
        let pseudo = [(":method", "POST"), (":path", &path)];
        let pseudo = pseudo.map(|(name, value)| (name.to_owned(), value.as_bytes().to_vec()));
        let before = self.after.iter().map(|(file, endpoint)| Ok((recorded::bytes(file)?, *endpoint)));
        Ok(RecordedRequest {
            headers: pseudo.into_iter().chain(self.header.iter().cloned()).collect(),
            subset: self.subset.as_deref().map_or(Subset::All, Subset::from_comma_separated),
            body: recorded::bytes(&self.body)?,
            before: before.collect::<Result<_, _>>()?,
            seed: self.seed,
            path,
        })
    }
}
