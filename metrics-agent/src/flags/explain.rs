//! Flags of `metrics-agent explain`.

use core::error::Error;
use std::net::SocketAddr;
use std::path::PathBuf;

use clap::Args;
use endpoint_picker::request::subset::Subset;
use hyper::Uri;
use metrics_agent_doctor::agent_client::Agent;
use metrics_agent_doctor::explain::RecordedRequest;
use metrics_agent_doctor::fetch::FetchError;
use metrics_agent_doctor::recorded;
use metrics_agent_support::client::credentials::{ClientFiles, Trust};
use rustls::pki_types::ServerName;

use super::values::{FlagError, agent, body_and_endpoint, header, path, server_name};

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
    path: Uri,

    /// A header of the request; may be repeated.
    #[arg(long, value_name = "NAME: VALUE", value_parser = header)]
    header: Vec<(String, Vec<u8>)>,

    /// The subset hint, IP:PORT separated by commas: only these endpoints may be picked.
    #[arg(long, value_name = "ENDPOINTS")]
    subset: Option<String>,

    /// A body that was sent to an endpoint before, with the same path and headers; may be repeated, in the
    /// order of sending.
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

/// The agent and the pool that a command reads.
#[derive(Args, Debug)]
pub struct PoolFlags {
    /// The agent to read from.
    #[command(flatten)]
    pub agent: AgentFlags,

    /// The pool; required when the agent has several.
    #[arg(long, value_name = "NAME")]
    pub pool: Option<String>,
}

/// The agent that a command reads from.
#[derive(Args, Debug)]
pub struct AgentFlags {
    /// The agent, as a URL, or as HOST:PORT for http; https requires --agent-ca.
    #[arg(long, value_name = "URL|HOST:PORT", default_value = "http://127.0.0.1:9095", value_parser = agent)]
    agent: Uri,

    /// Authorities of the agent's certificate, in PEM.
    #[arg(long, value_name = "PATH")]
    agent_ca: Option<PathBuf>,

    /// The name in the agent's certificate; by default the host of the URL.
    #[arg(long, value_name = "NAME", requires = "agent_ca", value_parser = server_name)]
    agent_server_name: Option<ServerName<'static>>,

    /// Client certificate chain, in PEM.
    #[arg(long, value_name = "PATH", requires = "agent_key", requires = "agent_ca")]
    agent_cert: Option<PathBuf>,

    /// Key of --agent-cert, in PEM.
    #[arg(long, value_name = "PATH", requires = "agent_cert")]
    agent_key: Option<PathBuf>,

    /// A file with the token for the agent on its first line (`authorization: Bearer …`).
    #[arg(long, value_name = "PATH")]
    agent_token_file: Option<PathBuf>,
}

impl AgentFlags {
    /// The agent, with the credentials for it.
    pub async fn client(&self) -> Result<Agent, Box<dyn Error>> {
        let is_https = self.agent.scheme_str() == Some("https");
        if is_https != self.agent_ca.is_some() {
            let problem = "--agent https://… and --agent-ca require each other";
            return Err(FlagError(problem.to_owned()).into());
        }
        let files = ClientFiles {
            trust: self.agent_ca.clone().map(Trust::Authorities),
            certificate_and_key: self.agent_cert.clone().zip(self.agent_key.clone()),
            server_name: self.agent_server_name.clone(),
            token: self.agent_token_file.clone(),
        };
        Ok(Agent { url: self.agent.clone(), credentials: files.read(None).await? })
    }
}
